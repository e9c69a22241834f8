/*
 * jobs.c - see jobs.h. Jobs that have tasks to give stand in a ring. A worker takes a turn at the
 * next one: tasks worth TURN_COST, so that a turn at a huge job is hardly longer than one at a
 * small job. When the last turn at a phase ends, the job gives the tasks of its next phase.
 *
 * One mutex guards the ring; a turn lasts some hundred times as long as it is held.
 */
#define _GNU_SOURCE /* nice */
#include "jobs/jobs.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    NICE = 5, /* a third of the share that a thread of the I/O has where both want one core */
    TURN_COST = 4000000,    /* multiply-adds: about 50 us */
    PATIENCE_NS = 20000,    /* a worker without work looks so long before it sleeps */
    KEEP_SCRATCH = 4 << 20, /* bytes that a worker keeps when it goes to sleep */
    SCRATCH_ALIGN = 64
};

struct jobs {
    pthread_mutex_t mutex;
    pthread_cond_t offered;
    struct job *ring; /* whose turn is next; NULL = nobody has a task to give */
    unsigned sleeping;
    bool stopping;
    atomic_uint offers; /* grows whenever a job enters the ring */
    struct jobs_load load;
    unsigned max_jobs;
    double max_cost;
    unsigned threads;
    pthread_t workers[];
};

/* Tasks [first, end) of one stage of a job. */
struct turn {
    struct job *job;
    size_t first, end;
};

struct scratch {
    void *memory;
    size_t size;
};

int64_t jobs_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---------------------------------------------------------------------------------- one job */

static bool has_ended(const struct job *job) {
    return atomic_load_explicit(&job->end, memory_order_relaxed) != 0;
}

/* The first reason stays. */
static void end_job(struct job *job, enum job_end end) {
    int none = 0;
    atomic_compare_exchange_strong(&job->end, &none, (int)end);
}

/* The first task that failed stays. */
static void fail_at(struct job *job, size_t task) {
    size_t failed = atomic_load(&job->failed);
    while (task < failed && !atomic_compare_exchange_weak(&job->failed, &failed, task)) {
    }
}

/* Is this task still wanted? */
static bool is_wanted(const struct job *job, size_t task) {
    return !has_ended(job) && task < atomic_load_explicit(&job->failed, memory_order_relaxed);
}

void jobs_cancel(struct job *job) {
    end_job(job, JOB_CANCELLED);
}

static void reset(struct job *job) {
    job->linked = false;
    job->stage = 0;
    job->next_task = 0;
    job->ending = 1; /* begin */
    job->turns = 0;
    job->total = 0;
    atomic_store(&job->failed, SIZE_MAX);
    for (size_t phase = 0; phase < job->phases; phase++) {
        job->total += job->tasks(job, phase);
    }
}

/* All turns at a stage have ended. Goes to the next that has tasks; false if there is none, or if
 * the job has ended otherwise. */
static bool advance(struct job *job) {
    if (atomic_load(&job->failed) != SIZE_MAX) {
        end_job(job, JOB_FAILED);
    }
    if (has_ended(job)) {
        return false;
    }
    job->next_task = 0;
    for (job->ending = 0; job->ending == 0 && job->stage < job->phases; job->stage++) {
        job->ending = job->tasks(job, job->stage);
    }
    return job->ending > 0;
}

static bool fit(struct scratch *scratch, size_t size) {
    if (size > scratch->size) {
        free(scratch->memory);
        size = (size + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
        scratch->memory = aligned_alloc(SCRATCH_ALIGN, size);
        scratch->size = scratch->memory == NULL ? 0 : size;
    }
    return size == 0 || scratch->memory != NULL;
}

static void take_turn(const struct turn *turn, struct scratch *scratch) {
    struct job *job = turn->job;
    if (turn->first < turn->end && job->deadline != 0 && jobs_clock() >= job->deadline) {
        end_job(job, JOB_LATE);
    }
    for (size_t task = turn->first; task < turn->end && is_wanted(job, task); task++) {
        if (job->stage == 0) {
            job->begun = jobs_clock();
        }
        if (!fit(scratch, job->scratch)) {
            end_job(job, JOB_NO_MEMORY);
        } else if (!(job->stage == 0 ? job->begin(job)
                                     : job->task(job, job->stage - 1, task, scratch->memory))) {
            fail_at(job, task);
        }
    }
}

static enum job_end end_of(const struct job *job) {
    return has_ended(job) ? (enum job_end)atomic_load(&job->end) : JOB_DONE;
}

enum job_end jobs_run_here(struct job *job) {
    struct scratch scratch = {0};
    atomic_store(&job->end, 0);
    reset(job);
    do {
        take_turn(&(struct turn){job, 0, job->ending}, &scratch);
    } while (advance(job));
    free(scratch.memory);
    return end_of(job);
}

/* ---------------------------------------------------------------------- the ring, mutex held */

static void offer(struct jobs *jobs, struct job *job) {
    if (jobs->ring == NULL) {
        job->next = job->previous = job;
        jobs->ring = job;
    } else { /* last in turn */
        job->next = jobs->ring;
        job->previous = jobs->ring->previous;
        job->previous->next = job->next->previous = job;
    }
    job->linked = true;
    atomic_fetch_add_explicit(&jobs->offers, 1, memory_order_release);
    if (jobs->sleeping > 0) {
        if (job->ending - job->next_task > 1) {
            pthread_cond_broadcast(&jobs->offered);
        } else {
            pthread_cond_signal(&jobs->offered);
        }
    }
}

static void unlink_job(struct jobs *jobs, struct job *job) {
    if (jobs->ring == job) {
        jobs->ring = job->next == job ? NULL : job->next;
    }
    job->next->previous = job->previous;
    job->previous->next = job->next;
    job->linked = false;
}

/* A turn at the job that is next. */
static struct turn next_turn(struct jobs *jobs) {
    struct job *job = jobs->ring;
    struct turn turn = {.job = job, .first = job->next_task};
    const size_t left = job->ending - job->next_task;
    const size_t share = (left + jobs->threads - 1) / jobs->threads;
    const double worth = TURN_COST * (double)job->total / (job->cost < 1 ? 1 : job->cost);
    size_t count = worth < (double)share ? (size_t)worth : share;
    count = !is_wanted(job, job->next_task) ? 0 : count < 1 ? 1 : count;
    jobs->ring = job->next;
    job->next_task += count;
    job->turns++;
    turn.end = job->next_task;
    if (job->next_task == job->ending || count == 0) {
        unlink_job(jobs, job);
    }
    return turn;
}

/* A job counts no more. Sums of doubles keep a remainder, which must not add up. */
static void leave(struct jobs *jobs, const struct job *job) {
    jobs->load.jobs--;
    jobs->load.cost = jobs->load.jobs > 0 ? jobs->load.cost - job->cost : 0;
}

/* The last turn at a stage has ended. */
static void settle(struct jobs *jobs, struct job *job) {
    if (advance(job)) {
        offer(jobs, job);
        return;
    }
    const enum job_end end = end_of(job);
    leave(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
    job->done(job, end);
    pthread_mutex_lock(&jobs->mutex);
}

/* ----------------------------------------------------------------------------------- workers */

/* Waits until there is something to do; false: nothing will come any more. While jobs run, their
 * next phase is near: looking for it a while is cheaper than to sleep and be woken. */
static bool wait_for_work(struct jobs *jobs, struct scratch *scratch) {
    if (jobs->ring == NULL && jobs->load.jobs > 0) {
        const unsigned seen = atomic_load_explicit(&jobs->offers, memory_order_relaxed);
        pthread_mutex_unlock(&jobs->mutex);
        const int64_t until = jobs_clock() + PATIENCE_NS;
        while (atomic_load_explicit(&jobs->offers, memory_order_acquire) == seen &&
               jobs_clock() < until) {
            sched_yield();
        }
        pthread_mutex_lock(&jobs->mutex);
    }
    while (jobs->ring == NULL && !jobs->stopping) {
        if (scratch->size > KEEP_SCRATCH) {
            free(scratch->memory);
            *scratch = (struct scratch){0};
        }
        jobs->sleeping++;
        pthread_cond_wait(&jobs->offered, &jobs->mutex);
        jobs->sleeping--;
    }
    return jobs->ring != NULL;
}

/* The kernel takes a core from a busy thread some hundred times in a second, too seldom for small
 * requests. So between turns a worker offers its core to the threads that read and answer, and
 * stands behind them (on Linux, nice is of the thread). */
static void *work(void *jobs_) {
    struct jobs *jobs = jobs_;
    struct scratch scratch = {0};
    (void)!nice(NICE);
    pthread_mutex_lock(&jobs->mutex);
    while (wait_for_work(jobs, &scratch)) {
        const struct turn turn = next_turn(jobs);
        pthread_mutex_unlock(&jobs->mutex);
        take_turn(&turn, &scratch);
        sched_yield();
        pthread_mutex_lock(&jobs->mutex);
        if (--turn.job->turns == 0 && !turn.job->linked) {
            settle(jobs, turn.job);
        }
    }
    pthread_mutex_unlock(&jobs->mutex);
    free(scratch.memory);
    return NULL;
}

struct jobs *jobs_start(const struct jobs_options *options) {
    assert(options->threads > 0);
    struct jobs *jobs = calloc(1, sizeof *jobs + options->threads * sizeof *jobs->workers);
    if (jobs == NULL) {
        return NULL;
    }
    pthread_mutex_init(&jobs->mutex, NULL);
    pthread_cond_init(&jobs->offered, NULL);
    jobs->max_jobs = options->max_jobs;
    jobs->max_cost = options->max_cost;
    while (jobs->threads < options->threads) {
        if (pthread_create(&jobs->workers[jobs->threads], NULL, work, jobs) != 0) {
            jobs_stop(jobs);
            return NULL;
        }
        jobs->threads++;
    }
    return jobs;
}

void jobs_stop(struct jobs *jobs) {
    if (jobs == NULL) {
        return;
    }
    pthread_mutex_lock(&jobs->mutex);
    assert(jobs->load.jobs == 0);
    jobs->stopping = true;
    pthread_cond_broadcast(&jobs->offered);
    pthread_mutex_unlock(&jobs->mutex);
    for (unsigned i = 0; i < jobs->threads; i++) {
        pthread_join(jobs->workers[i], NULL);
    }
    pthread_cond_destroy(&jobs->offered);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs);
}

/* --------------------------------------------------------------------------------- admission */

bool jobs_admit(struct jobs *jobs, struct job *job) {
    pthread_mutex_lock(&jobs->mutex);
    const bool fits = jobs->load.jobs < jobs->max_jobs &&
                      (jobs->load.jobs == 0 || jobs->load.cost + job->cost <= jobs->max_cost);
    if (fits) {
        jobs->load.jobs++;
        jobs->load.cost += job->cost;
    }
    pthread_mutex_unlock(&jobs->mutex);
    atomic_store(&job->end, 0);
    job->begun = 0;
    return fits;
}

bool jobs_full(struct jobs *jobs) {
    const struct jobs_load load = jobs_load(jobs);
    return load.jobs >= jobs->max_jobs || (load.jobs > 0 && load.cost >= jobs->max_cost);
}

void jobs_run(struct jobs *jobs, struct job *job) {
    reset(job);
    pthread_mutex_lock(&jobs->mutex);
    offer(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
}

struct jobs_load jobs_load(struct jobs *jobs) {
    pthread_mutex_lock(&jobs->mutex);
    const struct jobs_load load = jobs->load;
    pthread_mutex_unlock(&jobs->mutex);
    return load;
}
