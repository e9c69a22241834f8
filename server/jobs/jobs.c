/*
 * jobs.c - see jobs.h. Jobs that have tasks to give stand in a ring. A worker takes its next turn
 * at the job that will have been served least when that turn ends: tasks worth TURN_COST, or one
 * task if it costs more. A new job begins with the service that a job would have had which was
 * there all the time and had its share. So it has to wait for no other to catch up, and no other
 * waits for it: all jobs get the same share of the workers, however long their tasks are (fair
 * queueing with a virtual time). When the last turn at a phase ends, the job gives the tasks of its
 * next phase.
 *
 * One mutex guards the ring; a turn lasts at least ten times as long as it is held.
 */
#define _GNU_SOURCE /* nice, sched_getaffinity */
#include "jobs/jobs.h"

#include "clock.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    NICE = 5, /* a third of the share that a thread of the I/O has where both want one core */
    TURN_COST = 4000000,    /* multiply-adds: about 50 us */
    LONG_TURN = 12000000,   /* a turn that costs more is long */
    PATIENCE_NS = 20000,    /* a worker without work looks so long before it sleeps */
    KEEP_SCRATCH = 8 << 20, /* bytes that all workers together keep when no job wants more, */
    KEEP_EACH = 1 << 20,    /* and each of them */
    RESERVE = 16,           /* the last part of the bounds, for small jobs: 1 in so many */
    SMALL = 1000,           /* a job is small that costs at most this part of max_cost */
    SCRATCH_ALIGN = 64
};

struct jobs {
    pthread_mutex_t mutex;
    pthread_cond_t offered;
    struct job *ring; /* whose turn is next; NULL = nobody has a task to give */
    unsigned sleeping;
    unsigned long_turns; /* that workers are at, at most `cores` */
    unsigned cores;      /* that this process may use */
    bool stopping;
    int64_t earliest;      /* no deadline in the ring is before this */
    double served;         /* the virtual time: the service that a new job begins with */
    atomic_uint offers;    /* grows whenever a job enters the ring */
    struct jobs_load load; /* of the admitted jobs */
    unsigned active;       /* jobs, those that go on included */
    unsigned max_jobs;
    double max_cost;
    size_t keep_scratch; /* bytes that each worker keeps */
    unsigned threads;
    pthread_t workers[];
};

/* `count` tasks of one stage of a job, from `first` on. */
struct turn {
    struct job *job;
    size_t first, count;
    bool is_long;
};

struct scratch {
    void *memory;
    size_t size;
    size_t keep; /* bytes that are not worth to be freed and allocated again */
};

/* Nanoseconds that the calling thread has spent on a CPU. */
static int64_t thread_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---------------------------------------------------------------------------------- one job */

static bool has_outcome(const struct job *job) {
    return atomic_load_explicit(&job->outcome, memory_order_relaxed) != 0;
}

/* The first reason stays. */
static void set_outcome(struct job *job, enum job_outcome outcome) {
    int none = 0;
    atomic_compare_exchange_strong(&job->outcome, &none, (int)outcome);
}

/* The first task that failed stays. */
static void fail_at(struct job *job, size_t task) {
    size_t failed = atomic_load(&job->failed);
    while (task < failed && !atomic_compare_exchange_weak(&job->failed, &failed, task)) {
    }
}

/* Is this task still wanted? */
static bool is_wanted(const struct job *job, size_t task) {
    return !has_outcome(job) && task < atomic_load_explicit(&job->failed, memory_order_relaxed);
}

void jobs_cancel(struct job *job) {
    set_outcome(job, JOB_CANCELLED);
}

static void reset(struct job *job) {
    job->linked = false;
    job->stage = 0;
    job->next_task = 0;
    job->stage_tasks = 1; /* begin */
    job->turns = 0;
    job->total = 0;
    atomic_store(&job->spent, 0);
    atomic_store(&job->longest, 0);
    atomic_store(&job->failed, SIZE_MAX);
    for (size_t phase = 0; phase < job->phases; phase++) {
        job->total += job->tasks(job, phase);
    }
}

/* All turns at a stage have ended. Goes to the next that has tasks; false if there is none, or if
 * the job has ended otherwise. */
static bool advance(struct job *job) {
    if (atomic_load(&job->failed) != SIZE_MAX) {
        set_outcome(job, JOB_FAILED);
    }
    if (has_outcome(job)) {
        return false;
    }
    job->next_task = 0;
    for (job->stage_tasks = 0; job->stage_tasks == 0 && job->stage < job->phases; job->stage++) {
        job->stage_tasks = job->tasks(job, job->stage);
    }
    return job->stage_tasks > 0;
}

/* A scratch of more than `keep` bytes is freed as soon as a job needs less, because only the
 * job that needs it counts it. */
static bool fit(struct scratch *scratch, size_t size) {
    if (size > scratch->size || (scratch->size > scratch->keep && size < scratch->size)) {
        free(scratch->memory);
        size = (size + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
        scratch->memory = size > 0 ? aligned_alloc(SCRATCH_ALIGN, size) : NULL;
        scratch->size = scratch->memory == NULL ? 0 : size;
    }
    return size == 0 || scratch->memory != NULL;
}

/* Adds the nanoseconds that some tasks of a job have taken. */
static void note_time(struct job *job, int64_t spent, size_t tasks) {
    const int64_t each = tasks > 0 ? spent / (int64_t)tasks : 0;
    int64_t longest = atomic_load_explicit(&job->longest, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->spent, spent, memory_order_relaxed);
    while (each > longest && !atomic_compare_exchange_weak(&job->longest, &longest, each)) {
    }
}

/* Returns how many tasks were run. */
static size_t take_turn(const struct turn *turn, struct scratch *scratch) {
    struct job *job = turn->job;
    size_t task = turn->first;
    for (; task < turn->first + turn->count && is_wanted(job, task); task++) {
        if (job->deadline != 0 && clock_ns() >= job->deadline) {
            set_outcome(job, JOB_LATE);
            break;
        }
        if (job->stage == 0) {
            job->begun = clock_ns();
        }
        if (!fit(scratch, job->scratch)) {
            set_outcome(job, JOB_NO_MEMORY);
        } else if (!(job->stage == 0 ? job->begin(job)
                                     : job->task(job, job->stage - 1, task, scratch->memory))) {
            fail_at(job, task);
        }
    }
    return task - turn->first;
}

static enum job_outcome outcome_of(const struct job *job) {
    return has_outcome(job) ? (enum job_outcome)atomic_load(&job->outcome) : JOB_DONE;
}

enum job_outcome jobs_run_here(struct job *job) {
    struct scratch scratch = {0};
    const int64_t start = clock_ns(); /* the time of the thread would cost a system call */
    atomic_store(&job->outcome, 0);
    reset(job);
    do {
        take_turn(&(struct turn){.job = job, .count = job->stage_tasks}, &scratch);
    } while (advance(job));
    free(scratch.memory);
    note_time(job, clock_ns() - start, job->total > 0 ? job->total : 1);
    return outcome_of(job);
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
    if (job->deadline != 0 && job->deadline < jobs->earliest) {
        jobs->earliest = job->deadline;
    }
    atomic_fetch_add_explicit(&jobs->offers, 1, memory_order_release);
    if (jobs->sleeping > 0) {
        if (job->stage_tasks - job->next_task > 1) {
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

/* How many tasks the next turn at a job has. */
static size_t turn_size(const struct jobs *jobs, const struct job *job) {
    const size_t left = job->stage_tasks - job->next_task;
    const size_t share = (left + jobs->threads - 1) / jobs->threads;
    const double worth = TURN_COST * (double)job->total / (job->cost < 1 ? 1 : job->cost);
    const size_t count = worth < (double)share ? (size_t)worth : share;
    return count < 1 ? 1 : count;
}

static double turn_cost(const struct job *job, size_t tasks) {
    return (double)tasks * job->cost / (double)(job->total + 1);
}

/* The job that will have been served least after its next turn; of several the one that has waited
 * longest. A job that has ended comes first. NULL if no turn may begin: if more workers than cores
 * were at long turns, each turn would last several times as long, and short ones would wait. */
static struct job *next_job(const struct jobs *jobs) {
    struct job *next = NULL, *job = jobs->ring;
    double least = INFINITY;
    while (job != NULL) {
        const double cost = turn_cost(job, turn_size(jobs, job));
        if (has_outcome(job)) {
            return job;
        }
        if (job->served + cost < least && (cost <= LONG_TURN || jobs->long_turns < jobs->cores)) {
            next = job;
            least = job->served + cost;
        }
        job = job->next != jobs->ring ? job->next : NULL;
    }
    return next;
}

/* Begins a turn at this job. */
static struct turn begin_turn(struct jobs *jobs, struct job *job) {
    struct turn turn = {.job = job, .first = job->next_task};
    turn.count = is_wanted(job, job->next_task) ? turn_size(jobs, job) : 0;
    const double cost = turn_cost(job, turn.count);
    turn.is_long = cost > LONG_TURN;
    jobs->long_turns += turn.is_long;
    jobs->ring = job->next;
    jobs->served = job->served > jobs->served ? job->served : jobs->served;
    jobs->served += cost / (jobs->active > 0 ? jobs->active : 1);
    job->served += cost;
    job->next_task += turn.count;
    job->turns++;
    if (job->next_task == job->stage_tasks || turn.count == 0) {
        unlink_job(jobs, job);
    }
    return turn;
}

/* A job counts no more. Sums of doubles keep a remainder, which must not add up. */
static void leave(struct jobs *jobs, const struct job *job) {
    jobs->active--;
    if (job->admitted) {
        jobs->load.jobs--;
        jobs->load.cost = jobs->load.jobs > 0 ? jobs->load.cost - job->cost : 0;
    }
}

/* The last turn at a stage has ended. */
static void settle(struct jobs *jobs, struct job *job) {
    if (advance(job)) {
        offer(jobs, job);
        return;
    }
    const enum job_outcome outcome = outcome_of(job);
    leave(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
    job->done(job, outcome);
    pthread_mutex_lock(&jobs->mutex);
}

/* Ends a job of the ring whose deadline has passed, if there is one. */
static bool end_late_job(struct jobs *jobs) {
    const int64_t now = clock_ns();
    struct job *job = jobs->ring;
    jobs->earliest = INT64_MAX;
    do {
        if (job->deadline != 0 && now >= job->deadline) {
            set_outcome(job, JOB_LATE);
            unlink_job(jobs, job);
            if (job->turns == 0) { /* else the last turn settles it */
                settle(jobs, job);
            }
            return true;
        }
        if (job->deadline != 0 && job->deadline < jobs->earliest) {
            jobs->earliest = job->deadline;
        }
        job = job->next;
    } while (job != jobs->ring);
    return false;
}

/* Ends all late jobs of the ring. A job whose turn is far away would learn too late that its
 * deadline has passed. */
static void end_late_jobs(struct jobs *jobs) {
    while (jobs->ring != NULL && clock_ns() >= jobs->earliest && end_late_job(jobs)) {
        jobs->earliest = 0; /* look at the others, too */
    }
}

/* ----------------------------------------------------------------------------------- workers */

/* Waits until there is something to do; NULL: nothing will come any more. While jobs run, their
 * next phase is near: looking for it a while is cheaper than to sleep and be woken. */
static struct job *wait_for_work(struct jobs *jobs, struct scratch *scratch) {
    struct job *job;
    if (jobs->ring == NULL && jobs->active > 0) {
        const unsigned seen = atomic_load_explicit(&jobs->offers, memory_order_relaxed);
        pthread_mutex_unlock(&jobs->mutex);
        const int64_t until = clock_ns() + PATIENCE_NS;
        while (atomic_load_explicit(&jobs->offers, memory_order_acquire) == seen &&
               clock_ns() < until) {
        }
        pthread_mutex_lock(&jobs->mutex);
    }
    while ((job = next_job(jobs)) == NULL && !jobs->stopping) {
        if (scratch->size > scratch->keep) {
            free(scratch->memory);
            *scratch = (struct scratch){.keep = scratch->keep};
        }
        jobs->sleeping++;
        pthread_cond_wait(&jobs->offered, &jobs->mutex);
        jobs->sleeping--;
    }
    return job;
}

/* The kernel takes a core from a busy thread some hundred times in a second, too seldom for small
 * requests. So a worker stands behind the threads that read and answer: these take its core as soon
 * as they have something to do (on Linux, nice is of the thread). It does not yield: since Linux
 * 6.18 a thread that yields loses its share for some milliseconds, and a request that waited for
 * such a worker took 200 ms beside a busy thread instead of 5. */
static void *work(void *jobs_) {
    struct jobs *jobs = jobs_;
    struct scratch scratch = {.keep = jobs->keep_scratch};
    (void)!nice(NICE);
    pthread_mutex_lock(&jobs->mutex);
    for (struct job *job; (job = wait_for_work(jobs, &scratch)) != NULL;) {
        const struct turn turn = begin_turn(jobs, job);
        if (jobs->sleeping > 0 && next_job(jobs) != NULL) {
            pthread_cond_signal(
                &jobs->offered); /* a job that stood before it has just been taken */
        }
        pthread_mutex_unlock(&jobs->mutex);
        const int64_t start = thread_time();
        const size_t tasks = take_turn(&turn, &scratch);
        note_time(turn.job, thread_time() - start, tasks);
        pthread_mutex_lock(&jobs->mutex);
        jobs->long_turns -= turn.is_long;
        if (--turn.job->turns == 0 && !turn.job->linked) {
            settle(jobs, turn.job);
        }
        end_late_jobs(jobs);
    }
    pthread_mutex_unlock(&jobs->mutex);
    free(scratch.memory);
    return NULL;
}

/* The cores that this process may use; `most` if there are more than can be counted here. */
static unsigned count_cores(unsigned most) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : most;
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
    jobs->earliest = INT64_MAX;
    jobs->cores = count_cores(options->threads);
    jobs->keep_scratch = KEEP_SCRATCH / options->threads;
    jobs->keep_scratch = jobs->keep_scratch < KEEP_EACH ? jobs->keep_scratch : KEEP_EACH;
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
    assert(jobs->active == 0);
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

/* Is there room for one more job of this cost? The mutex is held. */
static bool has_room(const struct jobs *jobs, double cost) {
    const bool small = cost <= jobs->max_cost / SMALL;
    const unsigned max_jobs = jobs->max_jobs - (small ? 0 : jobs->max_jobs / RESERVE);
    const double max_cost = jobs->max_cost - (small ? 0 : jobs->max_cost / RESERVE);
    return jobs->load.jobs < max_jobs &&
           (jobs->load.jobs == 0 || jobs->load.cost + cost <= max_cost);
}

bool jobs_admit(struct jobs *jobs, struct job *job) {
    pthread_mutex_lock(&jobs->mutex);
    const bool fits = has_room(jobs, job->cost);
    assert(isfinite(job->cost) && job->cost >= 0);
    if (fits) {
        jobs->active++;
        jobs->load.jobs++;
        jobs->load.cost += job->cost;
    }
    pthread_mutex_unlock(&jobs->mutex);
    atomic_store(&job->outcome, 0);
    job->begun = 0;
    job->admitted = fits;
    return fits;
}

bool jobs_full(struct jobs *jobs) {
    pthread_mutex_lock(&jobs->mutex);
    const bool full = !has_room(jobs, nextafter(jobs->max_cost / SMALL, INFINITY));
    pthread_mutex_unlock(&jobs->mutex);
    return full;
}

void jobs_run(struct jobs *jobs, struct job *job) {
    reset(job);
    pthread_mutex_lock(&jobs->mutex);
    job->served = jobs->served;
    offer(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
}

void jobs_go_on(struct jobs *jobs, struct job *job) {
    atomic_store(&job->outcome, 0);
    job->begun = 0;
    reset(job);
    assert(isfinite(job->cost) && job->cost >= 0 && !job->admitted);
    pthread_mutex_lock(&jobs->mutex);
    jobs->active++;
    job->served = job->served > jobs->served ? job->served : jobs->served;
    offer(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
}

struct jobs_load jobs_load(struct jobs *jobs) {
    pthread_mutex_lock(&jobs->mutex);
    const struct jobs_load load = jobs->load;
    pthread_mutex_unlock(&jobs->mutex);
    return load;
}
