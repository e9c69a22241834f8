/*
 * jobs.h - worker threads that take the tasks of all jobs in turn, so that cost decides who waits,
 * not arrival; and admission by cost. Knows the phases and tasks of a job, not what a task
 * computes.
 */
#ifndef JOBS_H
#define JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_outcome {
    JOB_DONE = 1,
    JOB_FAILED,    /* begin or a task returned false */
    JOB_NO_MEMORY, /* there is none for the scratch of a task */
    JOB_CANCELLED,
    JOB_LATE /* the deadline came first */
};

/*
 * One job. The owner fills the first part and keeps the struct until `done` is called. All
 * functions are called on worker threads: begin first and alone, then the tasks of each phase, in
 * any order and at the same time, phase after phase; `done` last and alone, after which the job is
 * not touched any more. When a task fails, those of its phase that come before it are run all the
 * same: so the first failure in the order of tasks is found whatever the order of running.
 */
struct job {
    double cost;      /* of all tasks, in multiply-adds */
    int64_t deadline; /* clock_ns() from which on no task is begun; 0 = none */
    size_t scratch;   /* bytes, aligned to 64, that a task has to itself */
    size_t phases;    /* may be 0: then `begin` is all there is to do */
    size_t (*tasks)(const struct job *job, size_t phase);
    bool (*begin)(struct job *job); /* false = failed */
    bool (*task)(struct job *job, size_t phase, size_t task, void *scratch);
    void (*done)(struct job *job, enum job_outcome outcome);
    void *owner; /* for `done` */

    int64_t begun; /* clock_ns() when begin was called: what came before was waiting */
    /* Nanoseconds of all tasks, and of the longest. Workers count CPU time, jobs_run_here counts
     * the time of the clock. If one turn has several tasks, their average counts. */
    _Atomic int64_t spent, longest;

    /* Of jobs.c alone. */
    struct job *next, *previous; /* in the ring */
    bool linked;
    bool admitted;      /* it counts in the bounds */
    double served;      /* the cost of the turns it had, see jobs.c */
    size_t stage;       /* 0: begin, then 1 + phase */
    size_t next_task;   /* the first of this stage that no turn has taken */
    size_t stage_tasks; /* the number of tasks of this stage; `begin` is the only one of stage 0 */
    size_t total;       /* tasks of all phases */
    _Atomic size_t failed; /* the first task of this stage that did, or SIZE_MAX */
    size_t turns;          /* that workers are at */
    atomic_int outcome;    /* 0, or an enum job_outcome: no further task is begun */
};

struct jobs_options {
    unsigned threads;  /* workers, at least 1 */
    unsigned max_jobs; /* admitted at a time */
    double max_cost;   /* of all admitted together; one alone may cost more */
    /* The last sixteenth of both is open to small jobs only, whose cost is at most a thousandth of
     * max_cost: so a few huge jobs cannot keep all others out. */
};

struct jobs;

/* Starts the workers. NULL if memory or threads are short. */
struct jobs *jobs_start(const struct jobs_options *options);

/* Ends the workers. Every admitted job must be done. NULL is fine. */
void jobs_stop(struct jobs *jobs);

/* Takes a job in if the bounds allow it: it counts from now on until it is done. */
bool jobs_admit(struct jobs *jobs, struct job *job);

/* Would jobs_admit refuse every job that is not small? */
bool jobs_full(struct jobs *jobs);

/* Runs an admitted job. It may be done before this returns. */
void jobs_run(struct jobs *jobs, struct job *job);

/* Runs a job at once, on this thread, with workers or without. Returns how it ended, and
 * `done` is not called. */
enum job_outcome jobs_run_here(struct job *job);

/* Runs a job that goes on with what an admitted one has begun: it is never refused, and does not
 * count in the bounds. The struct may be run again after `done`; all its runs together get the
 * share of one job. It is zero before the first. */
void jobs_go_on(struct jobs *jobs, struct job *job);

/* Begins no further task of a job that is running, or still to be run. From any thread, as long as
 * the struct is there. */
void jobs_cancel(struct job *job);

struct jobs_load {
    unsigned jobs; /* admitted and not done */
    double cost;   /* of these */
};

struct jobs_load jobs_load(struct jobs *jobs);

#endif
