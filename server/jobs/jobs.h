/*
 * jobs.h - worker threads that take the tasks of all jobs in turn, so that the cost of a job
 * decides how long it waits, not its arrival; and admission by cost. The workers know the phases
 * and tasks of a job, but not what a task computes.
 */
#ifndef JOBS_H
#define JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_outcome {
    JOB_DONE = 1,
    JOB_FAILED,    /* a task returned false */
    JOB_NO_MEMORY, /* the scratch memory of a task could not be allocated */
    JOB_CANCELLED,
    JOB_LATE /* the deadline passed before the last task was begun */
};

enum {
    JOBS_ALIGNMENT = 64 /* bytes: a scratch begins at a multiple of this */
};

/* A task of a phase. */
struct jobs_task {
    size_t phase; /* among its struct job_phases, from 0 */
    size_t index; /* among the tasks of its phase, from 0 */
    void *scratch;
};

/* Phases of a job, of which each begins when the one before it has ended: `count` of one kind, and
 * then those of `next`, or none if that is NULL. */
struct job_phases {
    struct job_phases *next;
    size_t count;
    /* Returns the number of tasks of a phase, from 0. NULL: each phase has one task. */
    size_t (*tasks)(const void *argument, size_t phase);
    /* Runs a task. Returns false if it failed. */
    bool (*run)(void *argument, const struct jobs_task *task);
    void *argument;
};

/* The present phase of a job. */
struct job_phase {
    const struct job_phases *of; /* it is one of these; NULL after the last */
    size_t number;               /* its number among them */
    size_t tasks;
    size_t next_task;      /* the first task that is in no quantum yet */
    _Atomic size_t failed; /* the lowest task that failed, or SIZE_MAX */
    size_t quanta;         /* quanta of this phase that are running now */
};

/*
 * One job. The owner fills the first part and keeps the struct until `done` is called. The workers
 * call all functions: the tasks of each phase, in any order and at the same time, one phase after
 * the other, and last `done`, alone. After `done` they do not touch the job any more. If a task
 * fails, the tasks of its phase that come before it in number still run. So the failure with the
 * lowest number is found, whatever the order in which tasks run.
 */
struct job {
    double cost;      /* multiply-adds of all tasks */
    int64_t deadline; /* no task is begun at or after this value of clock_ns(); 0 = no deadline */
    size_t scratch;   /* bytes of memory, aligned to JOBS_ALIGNMENT, that each task has to itself */
    struct job_phases *phases; /* the workers want at least one task */
    void (*done)(struct job *job, enum job_outcome outcome);
    void *owner; /* the functions above may use it; jobs.c does not */

    int64_t begun; /* clock_ns() when the first task began; the job waited until then */
    /* Nanoseconds of all tasks together, and of the longest task. Workers count CPU time, and
     * jobs_run_here() counts elapsed time. Tasks of one quantum count as tasks of equal length. */
    _Atomic int64_t spent, longest;

    /* Only jobs.c uses the rest. */
    struct job *next, *previous; /* neighbours in the ring; NULL if the job is not in it */
    bool admitted;               /* the job counts in the bounds of admission */
    double served;      /* the virtual time of its start plus the cost of its quanta, see jobs.c */
    size_t total;       /* the number of tasks of all phases */
    atomic_int outcome; /* 0, or an enum job_outcome: no further task is begun */
    struct job_phase phase;
};

/* The last sixteenth of max_jobs and of max_cost is open to small jobs only, which cost at most a
 * thousandth of max_cost. So a few huge jobs cannot keep all others out. */
struct jobs_options {
    unsigned threads;  /* workers, at least 1 */
    unsigned max_jobs; /* jobs that may be admitted at the same time */
    double max_cost;   /* multiply-adds of all admitted jobs; a job alone may cost more */
};

struct jobs;

/* Starts the workers. Returns an owned object, or NULL if memory or threads are short. */
struct jobs *jobs_start(const struct jobs_options *options);

/* Ends the workers and frees `jobs`, which may be NULL. Every admitted job must be done. */
void jobs_stop(struct jobs *jobs);

/* Admits a job if the bounds allow it. An admitted job counts in the bounds until it is done. */
bool jobs_admit(struct jobs *jobs, struct job *job);

/* Returns whether jobs_admit() would refuse every job that is not small. */
bool jobs_full(struct jobs *jobs);

/* Runs a job, which may be done before this function returns. A job that was not admitted continues
 * the work of an admitted one: it is never refused and does not count in the bounds. Its struct may
 * be run again after `done`; all its runs together get the share of one job. The owner sets the
 * struct to zero before the first run. */
void jobs_run(struct jobs *jobs, struct job *job);

/* Runs a job at once in the calling thread; no workers are needed. Returns the outcome. `done` is
 * not called. */
enum job_outcome jobs_run_here(struct job *job);

/* No further task of this job is begun. The job may be running or still wait for jobs_run(). Any
 * thread may call this while the struct exists. */
void jobs_cancel(struct job *job);

struct jobs_load {
    unsigned jobs; /* jobs that are admitted and not done */
    double cost;   /* multiply-adds of these jobs */
};

struct jobs_load jobs_load(struct jobs *jobs);

#endif
