/*
 * jobs.c - sends many jobs from several threads to a few workers. Some of the jobs are cancelled,
 * some are late, and some fail. Every task must run at most once, all tasks must run if the outcome
 * is JOB_DONE, and `done` must be called once. It is written for ThreadSanitizer.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "jobs/jobs.h"
#include "support/rng.h"

enum {
    WORKERS = 4,
    SENDERS = 3,
    JOBS = 1500, /* jobs of each sender */
    PHASES = 3,
    MOST = 40 /* the largest number of tasks of a phase */
};

struct task_job {
    struct job job; /* the first member, so that a pointer to it is one to this struct */
    struct job_phases begin, phases;
    size_t counts[PHASES]; /* tasks of each phase */
    size_t fails;          /* the task of the last phase that fails */
    /* These are not atomic, because the order that the workers keep must be enough. */
    unsigned runs[PHASES][MOST];
    unsigned begins;
    atomic_uint dones;
    enum job_outcome outcome;
};

static struct jobs *jobs;
static atomic_uint faults;

static void report_fault(const char *what) {
    fprintf(stderr, "%s\n", what);
    atomic_fetch_add(&faults, 1);
}

static size_t tasks(const void *task_job, size_t phase) {
    return ((const struct task_job *)task_job)->counts[phase];
}

static bool begin(void *argument, const struct jobs_task *task) {
    (void)task;
    ((struct task_job *)argument)->begins++;
    return true;
}

static bool task(void *argument, const struct jobs_task *task) {
    struct task_job *t = argument;
    memset(task->scratch, 1, t->job.scratch);
    if (task->phase > 0 && t->counts[0] > 0 && t->runs[0][task->index % t->counts[0]] != 1) {
        report_fault("a phase began before the previous one had ended");
    }
    t->runs[task->phase][task->index]++;
    return task->phase < PHASES - 1 || task->index != t->fails;
}

static void done(struct job *job, enum job_outcome outcome) {
    struct task_job *t = (struct task_job *)job;
    t->outcome = outcome;
    atomic_fetch_add(&t->dones, 1);
}

static void check_job(const struct task_job *t) {
    const bool may_fail = t->fails < t->counts[PHASES - 1];
    if (atomic_load(&t->dones) != 1 || t->begins > 1) {
        report_fault("done or begun more than once");
    }
    if (t->outcome == JOB_DONE && may_fail) {
        report_fault("done although a task fails");
    }
    for (size_t phase = 0; phase < PHASES; phase++) {
        for (size_t i = 0; i < t->counts[phase]; i++) {
            if (t->runs[phase][i] > 1 || (t->outcome == JOB_DONE && t->runs[phase][i] != 1)) {
                report_fault("a task ran twice, or not at all");
            }
        }
    }
}

static void *send_jobs(void *seed) {
    struct rng rng = {*(const uint64_t *)seed};
    struct task_job *t = malloc(sizeof *t);
    if (t == NULL) {
        report_fault("no memory");
        return NULL;
    }
    for (int i = 0; i < JOBS; i++) {
        memset(t, 0, sizeof *t);
        t->job = (struct job){.cost = (double)rng_between(&rng, 0, 100000000),
                              .scratch = rng_between(&rng, 0, 5000),
                              .phases = &t->begin,
                              .done = done};
        t->begin = (struct job_phases){&t->phases, 1, NULL, begin, t};
        t->phases = (struct job_phases){NULL, PHASES, tasks, task, t};
        for (size_t phase = 0; phase < PHASES; phase++) {
            t->counts[phase] = rng_between(&rng, 0, MOST);
        }
        t->fails = rng_chance(&rng, 4) ? rng_between(&rng, 0, MOST - 1) : MOST;
        t->job.deadline = rng_chance(&rng, 8) ? clock_ns() + 50000 : 0;
        while (!jobs_admit(jobs, &t->job)) {
            sched_yield();
        }
        jobs_run(jobs, &t->job);
        if (rng_chance(&rng, 4)) {
            jobs_cancel(&t->job);
        }
        while (atomic_load(&t->dones) == 0) {
            sched_yield();
        }
        check_job(t);
    }
    free(t);
    return NULL;
}

int main(void) {
    const struct jobs_options options = {.threads = WORKERS, .max_jobs = 2, .max_cost = 1.5e8};
    uint64_t seeds[SENDERS];
    pthread_t senders[SENDERS];
    jobs = jobs_start(&options);
    if (jobs == NULL) {
        fprintf(stderr, "the workers do not start\n");
        return 1;
    }
    for (size_t i = 0; i < SENDERS; i++) {
        seeds[i] = i + 1;
        if (pthread_create(&senders[i], NULL, send_jobs, &seeds[i]) != 0) {
            fprintf(stderr, "a thread does not start\n");
            return 1;
        }
    }
    for (size_t i = 0; i < SENDERS; i++) {
        pthread_join(senders[i], NULL);
    }
    if (jobs_load(jobs).jobs != 0) {
        report_fault("jobs are left");
    }
    jobs_stop(jobs);
    printf("%d jobs on %d workers: %u faults\n", SENDERS * JOBS, WORKERS, atomic_load(&faults));
    return atomic_load(&faults) != 0;
}
