/*
 * jobs.c - the ring of jobs and the workers (see jobs.h). A job is in the ring while it has tasks
 * that no worker has taken. A worker takes its next quantum from the job that will have been served
 * least when that quantum ends. A quantum is tasks that cost QUANTUM_COST together, or one task if
 * a task costs more. This is fair queueing with a virtual time, which is the service that a job
 * would have if it had always been in the ring and had its share. A new job starts at the virtual
 * time. So it need not wait until other jobs have caught up, other jobs need not wait for it, and
 * all jobs get the same share of the workers, however long their tasks are. When the last quantum
 * of a phase ends, the job enters the ring again with the tasks of its next phase.
 *
 * One mutex protects the ring. A quantum lasts at least ten times as long as a worker holds it.
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
    NICE = 5, /* a worker gets a third of the time of an I/O thread that wants the same core */
    QUANTUM_COST = 4000000,  /* multiply-adds: about 50 us */
    LONG_QUANTUM = 12000000, /* multiply-adds; a quantum that costs more is long */
    PATIENCE_NS = 20000,     /* a worker without work looks for work this long before it sleeps */
    KEEP_SCRATCH = 8 << 20,  /* bytes of scratch memory that all workers keep between tasks */
    KEEP_EACH = 1 << 20,     /* bytes of it that one worker keeps at most */
    SMALL_SCRATCH = 4096,    /* bytes; jobs_run_here() has so much scratch memory on its stack */
    RESERVE = 16,            /* one part in RESERVE of the bounds is kept for small jobs */
    SMALL = 1000             /* a small job costs at most one part in SMALL of max_cost */
};

struct jobs {
    pthread_mutex_t mutex;
    pthread_cond_t offered;
    struct job *ring;     /* the job that has waited longest, or NULL if the ring is empty */
    unsigned sleeping;    /* workers that wait for `offered` */
    unsigned long_quanta; /* long quanta that are running, at most `cores` */
    unsigned cores;       /* cores that this process may use */
    bool stopping;
    int64_t earliest;      /* no deadline in the ring is earlier than this */
    double virtual_time;   /* the value of `served` with which a new job starts */
    atomic_uint offers;    /* how often a job has entered the ring */
    struct jobs_load load; /* the admitted jobs */
    unsigned active;       /* admitted jobs, and those that continue them */
    unsigned max_jobs;
    double max_cost;
    size_t keep_scratch; /* bytes of scratch memory that a worker keeps between tasks */
    unsigned threads;
    pthread_t workers[];
};

/* The tasks first .. first + count - 1 of the present phase of a job. */
struct quantum {
    struct job *job;
    size_t first, count;
    bool is_long;
};

struct scratch {
    void *memory;
    size_t size;
    size_t keep; /* memory of up to this size is kept, because allocating it again costs time */
};

/* Returns the nanoseconds that the calling thread has spent on a CPU. */
static int64_t thread_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---------------------------------------------------------------------------------- one job */

static bool has_outcome(const struct job *job) {
    return atomic_load_explicit(&job->outcome, memory_order_relaxed) != 0;
}

/* Sets the outcome unless the job has one already. */
static void set_outcome(struct job *job, enum job_outcome outcome) {
    int none = 0;
    atomic_compare_exchange_strong(&job->outcome, &none, (int)outcome);
}

/* Records that a task failed. The lowest number is kept. */
static void set_failed(struct job *job, size_t task) {
    size_t failed = atomic_load(&job->phase.failed);
    while (task < failed && !atomic_compare_exchange_weak(&job->phase.failed, &failed, task)) {
    }
}

/* Returns whether a task may still be begun: the job has no outcome, and no task before this one
 * has failed. */
static bool may_begin(const struct job *job, size_t task) {
    return !has_outcome(job) &&
           task < atomic_load_explicit(&job->phase.failed, memory_order_relaxed);
}

void jobs_cancel(struct job *job) {
    set_outcome(job, JOB_CANCELLED);
}

/* Goes to the first phase that has tasks, from the present one on. Returns false if there is none.
 */
static bool find_tasks(struct job *job) {
    struct job_phase *phase = &job->phase;
    phase->next_task = 0;
    for (; phase->of != NULL; phase->of = phase->of->next, phase->number = 0) {
        const struct job_phases *of = phase->of;
        for (; phase->number < of->count; phase->number++) {
            phase->tasks = of->tasks == NULL ? 1 : of->tasks(of->argument, phase->number);
            if (phase->tasks > 0) {
                return true;
            }
        }
    }
    return false;
}

/* Goes to the first phase. Returns false if the job has no tasks. */
static bool reset_job(struct job *job) {
    job->next = NULL;
    job->phase = (struct job_phase){.of = job->phases, .failed = SIZE_MAX};
    job->total = 0;
    atomic_store(&job->spent, 0);
    atomic_store(&job->longest, 0);
    for (const struct job_phases *p = job->phases; p != NULL; p = p->next) {
        job->total += p->tasks == NULL ? p->count : 0;
        for (size_t phase = 0; p->tasks != NULL && phase < p->count; phase++) {
            job->total += p->tasks(p->argument, phase);
        }
    }
    return find_tasks(job);
}

/* Goes to the next phase that has tasks, after all quanta of a phase have ended. Returns false if
 * the job is over: it has an outcome, or no further phase has tasks. */
static bool next_phase(struct job *job) {
    if (atomic_load(&job->phase.failed) != SIZE_MAX) {
        set_outcome(job, JOB_FAILED);
    }
    job->phase.number++;
    return !has_outcome(job) && find_tasks(job);
}

/* Makes the scratch memory large enough for `size` bytes; returns false if there is no memory.
 * Scratch memory of more than `keep` bytes is freed as soon as a job needs less, because only the
 * account of a job that needs it has counted it. */
static bool fit_scratch(struct scratch *scratch, size_t size) {
    if (size > scratch->size || (scratch->size > scratch->keep && size < scratch->size)) {
        free(scratch->memory);
        size = (size + JOBS_ALIGNMENT - 1) / JOBS_ALIGNMENT * JOBS_ALIGNMENT;
        scratch->memory = size > 0 ? aligned_alloc(JOBS_ALIGNMENT, size) : NULL;
        scratch->size = scratch->memory == NULL ? 0 : size;
    }
    return size == 0 || scratch->memory != NULL;
}

/* Adds the nanoseconds that a number of tasks took to the times of a job. */
static void count_time(struct job *job, int64_t spent, size_t tasks) {
    const int64_t each = tasks > 0 ? spent / (int64_t)tasks : 0;
    int64_t longest = atomic_load_explicit(&job->longest, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->spent, spent, memory_order_relaxed);
    while (each > longest && !atomic_compare_exchange_weak(&job->longest, &longest, each)) {
    }
}

/* Runs the tasks of a quantum. Returns how many of them were run. */
static size_t run_quantum(const struct quantum *quantum, struct scratch *scratch) {
    struct job *job = quantum->job;
    size_t task = quantum->first;
    for (; task < quantum->first + quantum->count && may_begin(job, task); task++) {
        if (job->deadline != 0 && clock_ns() >= job->deadline) {
            set_outcome(job, JOB_LATE);
            break;
        }
        if (!fit_scratch(scratch, job->scratch)) {
            set_outcome(job, JOB_NO_MEMORY);
        } else {
            const struct jobs_task next = {job->phase.number, task, scratch->memory};
            if (!job->phase.of->run(job->phase.of->argument, &next)) {
                set_failed(job, task);
            }
        }
    }
    return task - quantum->first;
}

static enum job_outcome outcome_of(const struct job *job) {
    return has_outcome(job) ? (enum job_outcome)atomic_load(&job->outcome) : JOB_DONE;
}

enum job_outcome jobs_run_here(struct job *job) {
    _Alignas(JOBS_ALIGNMENT) char small[SMALL_SCRATCH];
    struct scratch scratch = {0};
    if (job->scratch <= sizeof small) {
        scratch = (struct scratch){.memory = small, .size = sizeof small, .keep = sizeof small};
    }
    const int64_t start = clock_ns(); /* thread_time() would cost a system call */
    atomic_store(&job->outcome, 0);
    job->begun = start;
    for (bool more = reset_job(job); more; more = next_phase(job)) {
        run_quantum(&(struct quantum){.job = job, .count = job->phase.tasks}, &scratch);
    }
    if (scratch.memory != small) {
        free(scratch.memory);
    }
    count_time(job, clock_ns() - start, job->total > 0 ? job->total : 1);
    return outcome_of(job);
}

/* ------------------------------------------------------------------ the ring; the mutex is held */

static void link_job(struct jobs *jobs, struct job *job) {
    if (jobs->ring == NULL) {
        job->next = job->previous = job;
        jobs->ring = job;
    } else { /* the new job becomes the last one in the ring */
        job->next = jobs->ring;
        job->previous = jobs->ring->previous;
        job->previous->next = job->next->previous = job;
    }
    if (job->deadline != 0 && job->deadline < jobs->earliest) {
        jobs->earliest = job->deadline;
    }
    atomic_fetch_add_explicit(&jobs->offers, 1, memory_order_release);
    if (jobs->sleeping > 0) {
        if (job->phase.tasks - job->phase.next_task > 1) {
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
    job->next = NULL;
}

/* Returns the number of tasks of the next quantum of a job. */
static size_t quantum_size(const struct jobs *jobs, const struct job *job) {
    const size_t left = job->phase.tasks - job->phase.next_task;
    const size_t share = (left + jobs->threads - 1) / jobs->threads;
    const double worth = QUANTUM_COST * (double)job->total / (job->cost < 1 ? 1 : job->cost);
    const size_t count = worth < (double)share ? (size_t)worth : share;
    return count < 1 ? 1 : count;
}

static double quantum_cost(const struct job *job, size_t tasks) {
    return (double)tasks * job->cost / (double)job->total;
}

/* Returns the job that will have been served least after its next quantum. Among equal ones it is
 * the job that has waited longest. A job that already has an outcome comes first. Returns NULL if
 * no quantum may begin. Long quanta are limited to the number of cores: if more workers ran long
 * ones, each would last several times as long, and short ones would wait. */
static struct job *next_job(const struct jobs *jobs) {
    struct job *next = NULL, *job = jobs->ring;
    double least = INFINITY;
    while (job != NULL) {
        const double cost = quantum_cost(job, quantum_size(jobs, job));
        if (has_outcome(job)) {
            return job;
        }
        if (job->served + cost < least &&
            (cost <= LONG_QUANTUM || jobs->long_quanta < jobs->cores)) {
            next = job;
            least = job->served + cost;
        }
        job = job->next != jobs->ring ? job->next : NULL;
    }
    return next;
}

/* Takes the next quantum from a job, and advances its service and the virtual time. */
static struct quantum begin_quantum(struct jobs *jobs, struct job *job) {
    struct quantum quantum = {.job = job, .first = job->phase.next_task};
    quantum.count = may_begin(job, job->phase.next_task) ? quantum_size(jobs, job) : 0;
    const double cost = quantum_cost(job, quantum.count);
    quantum.is_long = cost > LONG_QUANTUM;
    jobs->long_quanta += quantum.is_long;
    jobs->ring = job->next;
    jobs->virtual_time = job->served > jobs->virtual_time ? job->served : jobs->virtual_time;
    jobs->virtual_time += cost / (jobs->active > 0 ? jobs->active : 1);
    job->served += cost;
    job->phase.next_task += quantum.count;
    job->phase.quanta++;
    job->begun = job->begun != 0 || quantum.count == 0 ? job->begun : clock_ns();
    if (job->phase.next_task == job->phase.tasks || quantum.count == 0) {
        unlink_job(jobs, job);
    }
    return quantum;
}

/* Removes a job that is over from the load. A sum of doubles keeps a remainder, so the cost is set
 * to 0 with the last job; otherwise remainders would add up. */
static void uncount(struct jobs *jobs, const struct job *job) {
    jobs->active--;
    if (job->admitted) {
        jobs->load.jobs--;
        jobs->load.cost = jobs->load.jobs > 0 ? jobs->load.cost - job->cost : 0;
    }
}

/* Called when the last quantum of a phase has ended. The job enters the ring with its next phase,
 * or its `done` is called without the mutex. */
static void end_phase(struct jobs *jobs, struct job *job) {
    if (next_phase(job)) {
        link_job(jobs, job);
        return;
    }
    const enum job_outcome outcome = outcome_of(job);
    uncount(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
    job->done(job, outcome);
    pthread_mutex_lock(&jobs->mutex);
}

/* Ends one job of the ring whose deadline has passed. Returns false if there is no such job. */
static bool end_late_job(struct jobs *jobs) {
    const int64_t now = clock_ns();
    struct job *job = jobs->ring;
    jobs->earliest = INT64_MAX;
    do {
        if (job->deadline != 0 && now >= job->deadline) {
            set_outcome(job, JOB_LATE);
            unlink_job(jobs, job);
            if (job->phase.quanta == 0) { /* otherwise its last quantum ends the phase */
                end_phase(jobs, job);
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

/* Ends all jobs of the ring whose deadlines have passed. Without this, a job would only notice
 * its deadline at its next quantum, which may be far away. */
static void end_late_jobs(struct jobs *jobs) {
    while (jobs->ring != NULL && clock_ns() >= jobs->earliest && end_late_job(jobs)) {
        jobs->earliest = 0; /* other jobs may be late, too */
    }
}

/* ----------------------------------------------------------------------------------- workers */

/* Waits until a quantum may begin, and returns its job. Returns NULL if the workers are to stop.
 * While jobs run, the tasks of a next phase will come soon. So the worker first looks for them for
 * a while, which is cheaper than to sleep and be woken. */
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

/* A worker. The kernel takes a core away from a busy thread only some hundred times in a second,
 * which is too seldom for small requests. So a worker lowers its own priority, and an I/O thread
 * takes its core as soon as it has something to do. (On Linux, nice() changes the calling thread
 * only.) A worker does not yield: since Linux 6.18 a thread that yields loses its share for some
 * milliseconds. A request that waited for such a worker beside a busy thread took 200 ms instead of
 * 5 ms. */
static void *work(void *jobs_) {
    struct jobs *jobs = jobs_;
    struct scratch scratch = {.keep = jobs->keep_scratch};
    (void)!nice(NICE);
    pthread_mutex_lock(&jobs->mutex);
    for (struct job *job; (job = wait_for_work(jobs, &scratch)) != NULL;) {
        const struct quantum quantum = begin_quantum(jobs, job);
        if (jobs->sleeping > 0 && next_job(jobs) != NULL) {
            /* A further quantum may begin, so a sleeping worker is woken for it. */
            pthread_cond_signal(&jobs->offered);
        }
        pthread_mutex_unlock(&jobs->mutex);
        const int64_t start = thread_time();
        const size_t tasks = run_quantum(&quantum, &scratch);
        count_time(quantum.job, thread_time() - start, tasks);
        pthread_mutex_lock(&jobs->mutex);
        jobs->long_quanta -= quantum.is_long;
        if (--quantum.job->phase.quanta == 0 && quantum.job->next == NULL) {
            end_phase(jobs, quantum.job);
        }
        end_late_jobs(jobs);
    }
    pthread_mutex_unlock(&jobs->mutex);
    free(scratch.memory);
    return NULL;
}

/* Returns the number of cores that this process may use, or `most` if there are more cores than a
 * cpu_set_t can hold. */
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

/* Returns whether one more job of this cost may be admitted. The mutex is held. */
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
    if (!job->admitted) {
        atomic_store(&job->outcome, 0);
        job->begun = 0;
    }
    reset_job(job);
    assert(job->phase.of != NULL && isfinite(job->cost) && job->cost >= 0);
    pthread_mutex_lock(&jobs->mutex);
    jobs->active += !job->admitted;
    job->served = job->admitted ? jobs->virtual_time : fmax(job->served, jobs->virtual_time);
    link_job(jobs, job);
    pthread_mutex_unlock(&jobs->mutex);
}

struct jobs_load jobs_load(struct jobs *jobs) {
    pthread_mutex_lock(&jobs->mutex);
    const struct jobs_load load = jobs->load;
    pthread_mutex_unlock(&jobs->mutex);
    return load;
}
