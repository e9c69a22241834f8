/*
 * test_jobs.c - the workers run every task once and one phase after the other, huge and small jobs
 * take turns, the first failure is found, jobs end early, and admission is bounded.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "jobs/jobs.h"
#include "support/count.h"
#include "support/wait.h"

enum {
    PHASES = 4,
    MANY = 1000
};

struct counted {
    struct job job; /* the first member, so that a pointer to it is one to this struct */
    struct job_phases begin, phases;
    size_t counts[PHASES]; /* tasks of each phase */
    atomic_uint runs[PHASES][MANY];
    atomic_uint begins, started, out_of_order, dones; /* `started` counts tasks of the phases */
    size_t fails[2];             /* the phase and the task that fail; all later tasks fail, too */
    bool refuses;                /* its first task fails */
    atomic_bool *gate;           /* tasks wait until it is true */
    long nap;                    /* nanoseconds that each task sleeps */
    const struct counted *other; /* a job that is looked at when this one is done */
    size_t meanwhile;            /* tasks of phase 0 that `other` had run at that moment */
    atomic_int outcome;          /* 0 until the job is done */
    struct counted *next;        /* in all_jobs */
};

static struct jobs *jobs;
static struct counted *all_jobs; /* of a test, the last one first */

static void start_workers(unsigned threads, unsigned max_jobs, double max_cost) {
    const struct jobs_options options = {threads, max_jobs, max_cost};
    jobs_stop(jobs); /* those of the workers before, if there are any */
    jobs = jobs_start(&options);
    cr_assert_not_null(jobs);
}

static void end_test(void) {
    jobs_stop(jobs);
    for (struct counted *job = all_jobs, *next; job != NULL; job = next) {
        next = job->next;
        free(job);
    }
}

static size_t tasks(const void *counted, size_t phase) {
    return ((const struct counted *)counted)->counts[phase];
}

static bool begin_job(void *argument, const struct jobs_task *task) {
    struct counted *c = argument;
    (void)task;
    atomic_fetch_add(&c->begins, 1);
    return !c->refuses;
}

static bool task(void *argument, const struct jobs_task *task) {
    struct counted *c = argument;
    atomic_fetch_add(&c->started, 1);
    memset(task->scratch, (int)task->index, c->job.scratch);
    for (size_t before = 0; before < task->phase; before++) {
        for (size_t i = 0; i < c->counts[before]; i++) {
            atomic_fetch_add(&c->out_of_order, atomic_load(&c->runs[before][i]) != 1);
        }
    }
    while (c->gate != NULL && !atomic_load(c->gate)) {
        sched_yield();
    }
    if (c->nap > 0) {
        nanosleep(&(struct timespec){.tv_nsec = c->nap}, NULL);
    }
    atomic_fetch_add(&c->runs[task->phase][task->index], 1);
    for (size_t i = 0; i < c->job.scratch; i++) { /* no other task writes to this memory */
        atomic_fetch_add(&c->out_of_order,
                         ((unsigned char *)task->scratch)[i] != (unsigned char)task->index);
    }
    return task->phase != c->fails[0] || task->index < c->fails[1];
}

static void done(struct job *job, enum job_outcome outcome) {
    struct counted *c = (struct counted *)job;
    atomic_fetch_add(&c->dones, 1);
    for (size_t i = 0; c->other != NULL && i < c->other->counts[0]; i++) {
        c->meanwhile += atomic_load(&c->other->runs[0][i]);
    }
    atomic_store(&c->outcome, (int)outcome);
}

static struct counted *new_job(size_t a, size_t b, size_t c, size_t d, double cost) {
    struct counted *job = calloc(1, sizeof *job);
    cr_assert_not_null(job);
    *job =
        (struct counted){.job = {.cost = cost, .scratch = 100, .phases = &job->begin, .done = done},
                         .begin = {&job->phases, 1, NULL, begin_job, job},
                         .phases = {NULL, PHASES, tasks, task, job},
                         .counts = {a, b, c, d},
                         .fails = {PHASES, 0},
                         .next = all_jobs};
    return all_jobs = job;
}

static void run_job(struct counted *c) {
    cr_assert(jobs_admit(jobs, &c->job));
    jobs_run(jobs, &c->job);
}

static enum job_outcome wait_for(struct counted *c) {
    WAIT_UNTIL(atomic_load(&c->outcome) != 0);
    return (enum job_outcome)atomic_load(&c->outcome);
}

static void expect_whole(struct counted *c) {
    cr_expect_eq(c->begins, 1);
    cr_expect_eq(c->out_of_order, 0);
    for (size_t phase = 0; phase < PHASES; phase++) {
        for (size_t i = 0; i < c->counts[phase]; i++) {
            cr_assert_eq(c->runs[phase][i], 1, "task %zu of phase %zu: %u times", i, phase,
                         c->runs[phase][i]);
        }
    }
}

TestSuite(jobs, .fini = end_test, .timeout = 60);

static void run_eight_jobs(unsigned threads, size_t count, double cost) {
    struct counted *all[8];
    start_workers(threads, 100, 1e12);
    for (size_t i = 0; i < 8; i++) {
        all[i] = i % 2 ? new_job(count, 0, 2, count, cost) : new_job(0, count, 0, 0, cost);
        run_job(all[i]);
    }
    for (size_t i = 0; i < 8; i++) {
        cr_expect_eq(wait_for(all[i]), JOB_DONE);
        expect_whole(all[i]);
    }
    cr_expect_eq(jobs_load(jobs).jobs, 0);
    cr_expect_float_eq(jobs_load(jobs).cost, 0, 1e-6);
}

Test(jobs, every_task_runs_once) {
    static const unsigned threads[] = {1, 2, 7};
    static const size_t counts[] = {0, 1, 3, MANY};
    static const double costs[] = {0, 1e6, 1e9};
    for (size_t i = 0; i < 36; i++) {
        run_eight_jobs(threads[i / 12], counts[i / 3 % 4], costs[i % 3]);
    }
}

/* The cost of its tasks limits a quantum, so the huge job has one task in each. */
Test(jobs, quanta_are_short) {
    struct counted *huge = new_job(MANY, 0, 0, 0, 4e6 * MANY), *small = new_job(1, 1, 1, 1, 1000);
    atomic_bool gate = false;
    start_workers(1, 100, 1e13);
    huge->gate = &gate;
    small->other = huge;
    run_job(huge);
    WAIT_UNTIL(atomic_load(&huge->begins) != 0);
    run_job(small);
    atomic_store(&gate, true);
    cr_expect_eq(wait_for(small), JOB_DONE);
    cr_expect_leq(small->meanwhile, 6, "%zu tasks during five quanta of the small job",
                  small->meanwhile);
    cr_expect_eq(wait_for(huge), JOB_DONE);
}

/* The long job came first, but the short one will have been served less after its quantum. */
Test(jobs, a_short_job_overtakes_a_long_task) {
    atomic_bool gate = false;
    struct counted *first = new_job(1, 0, 0, 0, 1000), *lengthy = new_job(1, 0, 0, 0, 4e9),
                   *brief = new_job(1, 1, 1, 1, 1000);
    start_workers(1, 100, 1e13);
    first->gate = &gate;
    run_job(first);
    run_job(lengthy);
    run_job(brief);
    atomic_store(&gate, true);
    cr_expect_eq(wait_for(brief), JOB_DONE);
    cr_expect_eq(wait_for(lengthy), JOB_DONE);
    cr_expect_lt(brief->job.begun, lengthy->job.begun);
    wait_for(first);
}

/* There are more workers than cores, and more long tasks than workers. None of these tasks ends. */
Test(jobs, a_worker_is_left_for_short_quanta) {
    enum {
        MOST_CORES = 62
    };
    cpu_set_t set;
    cr_assert_eq(sched_getaffinity(0, sizeof set, &set), 0);
    const unsigned cores = (unsigned)CPU_COUNT(&set) < MOST_CORES ? (unsigned)CPU_COUNT(&set) : 0;
    atomic_bool gate = false;
    struct counted *lengthy[MOST_CORES + 2], *brief = new_job(1, 1, 1, 1, 1000);
    if (cores == 0) {
        cr_skip_test("too many cores for this test's threads");
    }
    start_workers(cores + 1, 1000, 1e15);
    for (size_t i = 0; i < cores + 2; i++) {
        lengthy[i] = new_job(1, 0, 0, 0, 4e9);
        lengthy[i]->gate = &gate;
        run_job(lengthy[i]);
    }
    /* The workers take all tasks that they may. */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    run_job(brief);
    cr_expect_eq(wait_for(brief), JOB_DONE);
    atomic_store(&gate, true);
    for (size_t i = 0; i < cores + 2; i++) {
        cr_expect_eq(wait_for(lengthy[i]), JOB_DONE);
    }
}

/* A job that continues another one is never refused, and takes no place from admitted jobs. */
Test(jobs, work_goes_on_beyond_the_bounds) {
    atomic_bool gate = false;
    struct counted *first = new_job(1, 0, 0, 0, 10), *part = new_job(1, 0, 0, 0, 10);
    start_workers(1, 1, 10);
    first->gate = &gate;
    run_job(first);
    cr_expect_not(jobs_admit(jobs, &part->job));
    jobs_run(jobs, &part->job);
    cr_expect_eq(jobs_load(jobs).jobs, 1);
    atomic_store(&gate, true);
    cr_expect_eq(wait_for(first), JOB_DONE);
    cr_expect_eq(wait_for(part), JOB_DONE);
    expect_whole(part);
    cr_expect_eq(jobs_load(jobs).jobs, 0);
}

static void fail_at(size_t fails, unsigned threads) {
    start_workers(threads, 100, 1e12);
    struct counted *c = new_job(3, MANY, 5, 0, 1e7);
    c->fails[0] = 1;
    c->fails[1] = fails;
    run_job(c);
    cr_expect_eq(wait_for(c), JOB_FAILED);
    for (size_t i = 0; i <= fails; i++) {
        cr_assert_eq(c->runs[1][i], 1, "task %zu: %u times", i, c->runs[1][i]);
    }
    cr_expect_eq(c->runs[2][0], 0);
    cr_expect_eq(c->dones, 1);
}

Test(jobs, first_failure_is_found) {
    static const unsigned threads[] = {1, 2, 7};
    for (size_t i = 0; i < 3; i++) {
        fail_at(0, threads[i]);
        fail_at(1, threads[i]);
        fail_at(500, threads[i]);
        fail_at(MANY - 1, threads[i]);
    }
}

Test(jobs, ends_early) {
    atomic_bool gate = false;
    start_workers(2, 100, 1e12);
    struct counted *refused = new_job(1, 1, 1, 1, 1), *late = new_job(1, 1, 1, 1, 1),
                   *cancelled = new_job(MANY, 1, 1, 1, 1e11);
    refused->refuses = true;
    run_job(refused);
    cr_expect_eq(wait_for(refused), JOB_FAILED);
    cr_expect_eq(refused->runs[0][0], 0);

    late->job.deadline = clock_ns() - 1;
    run_job(late);
    cr_expect_eq(wait_for(late), JOB_LATE);
    cr_expect_eq(late->begins, 0);

    cancelled->gate = &gate;
    run_job(cancelled);
    WAIT_UNTIL(atomic_load(&cancelled->begins) != 0);
    jobs_cancel(&cancelled->job);
    atomic_store(&gate, true);
    cr_expect_eq(wait_for(cancelled), JOB_CANCELLED);
    cr_expect_eq(cancelled->runs[0][MANY - 1], 0);
    cr_expect_eq(cancelled->runs[1][0], 0);
}

Test(jobs, admission_is_bounded) {
    struct counted *c[5];
    for (size_t i = 0; i < 5; i++) {
        c[i] = new_job(1, 0, 0, 0, i == 0 ? 100 : 4);
    }
    start_workers(2, 3, 10);
    cr_expect(jobs_admit(jobs, &c[0]->job), "a job alone may cost more");
    cr_expect_not(jobs_admit(jobs, &c[1]->job));
    cr_expect(jobs_full(jobs), "the cost is too high, although two places are left");
    jobs_run(jobs, &c[0]->job);
    cr_expect_eq(wait_for(c[0]), JOB_DONE);
    cr_expect(jobs_admit(jobs, &c[1]->job));
    cr_expect(jobs_admit(jobs, &c[2]->job));
    cr_expect_not(jobs_admit(jobs, &c[3]->job), "12 are more than 10");
    cr_expect_not(jobs_full(jobs), "a smaller job would be admitted");
    c[3]->job.cost = c[4]->job.cost = 1;
    cr_expect(jobs_admit(jobs, &c[3]->job));
    cr_expect_not(jobs_admit(jobs, &c[4]->job), "four are more than three");
    cr_expect_eq(jobs_load(jobs).jobs, 3);
    for (size_t i = 1; i < 4; i++) {
        jobs_run(jobs, &c[i]->job);
        cr_expect_eq(wait_for(c[i]), JOB_DONE);
    }
    cr_expect(jobs_admit(jobs, &c[4]->job), "the others are done");
    jobs_run(jobs, &c[4]->job);
    cr_expect_eq(wait_for(c[4]), JOB_DONE);
}

/* (0.1 + 0.2 + 0.3) - 0.1 - 0.2 - 0.3 is not 0 in doubles. Remainders like this one would add up
 * over all jobs that a server ever runs. */
Test(jobs, the_cost_of_no_jobs_is_exactly_zero) {
    static const double costs[] = {0.1, 0.2, 0.3};
    static const size_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                       {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    start_workers(2, 3, 10);
    for (size_t i = 0; i < COUNT(orders); i++) {
        struct counted *c[3];
        for (size_t j = 0; j < 3; j++) {
            c[j] = new_job(1, 0, 0, 0, costs[j]);
            cr_assert(jobs_admit(jobs, &c[j]->job));
        }
        for (size_t j = 0; j < 3; j++) {
            jobs_run(jobs, &c[orders[i][j]]->job);
            cr_expect_eq(wait_for(c[orders[i][j]]), JOB_DONE);
        }
        const struct jobs_load load = jobs_load(jobs);
        cr_expect(load.jobs == 0 && load.cost == 0, "order %zu: %u jobs, cost %g", i, load.jobs,
                  load.cost);
    }
}

Test(jobs, runs_here) {
    struct counted *c = new_job(3, 0, MANY, 1, 1e9);
    cr_expect_eq(jobs_run_here(&c->job), JOB_DONE);
    expect_whole(c);
    cr_expect_eq(c->dones, 0);
    c = new_job(3, 4, 5, 6, 1);
    c->fails[0] = 2;
    c->fails[1] = 1;
    cr_expect_eq(jobs_run_here(&c->job), JOB_FAILED);
    cr_expect_eq(c->runs[2][1], 1);
    cr_expect_eq(c->runs[2][2], 0);
    cr_expect_eq(c->runs[3][0], 0);
}

/* Only jobs that cost at most a thousandth of max_cost get the last sixteenth of both bounds. */
Test(jobs, a_reserve_is_kept_for_small_jobs) {
    enum {
        MOST = 32,
        LARGE = MOST - MOST / 16
    };
    struct counted *c[MOST + 1];
    for (size_t i = 0; i <= MOST; i++) {
        c[i] = new_job(1, 0, 0, 0, i <= LARGE ? 1.1 : 1);
    }
    start_workers(2, MOST, 1000);
    for (size_t i = 0; i <= MOST; i++) {
        cr_expect_eq(jobs_admit(jobs, &c[i]->job), i != LARGE, "%zu", i);
    }
    cr_expect(jobs_full(jobs));
    cr_expect_not(jobs_admit(jobs, &c[LARGE]->job));
    for (size_t i = 0; i <= MOST; i++) {
        if (i != LARGE) {
            jobs_run(jobs, &c[i]->job);
            cr_expect_eq(wait_for(c[i]), JOB_DONE);
        }
    }
    cr_expect_not(jobs_full(jobs));
    for (size_t i = 0; i < 3; i++) {
        c[i] = new_job(1, 0, 0, 0, 1);
    }
    c[0]->job.cost = 938; /* nothing else is admitted, so 938 fits; then 62 are left */
    c[1]->job.cost = 2;
    cr_expect(jobs_admit(jobs, &c[0]->job));
    cr_expect_not(jobs_admit(jobs, &c[1]->job));
    cr_expect(jobs_admit(jobs, &c[2]->job));
    cr_expect(jobs_full(jobs));
    jobs_run(jobs, &c[0]->job);
    jobs_run(jobs, &c[2]->job);
    wait_for(c[0]);
    wait_for(c[2]);
}

/* Jobs may cost exactly as much as both bounds allow, and no more. */
Test(jobs, the_bounds_are_exact) {
    static const struct {
        double cost;
        bool fits;
    } rows[] = {{900, true}, {38, false}, {37.5, true}, {1.0001, false}, {1, true}};
    start_workers(1, 100, 1000); /* 62.5 of the cost is for small jobs, which cost at most 1 */
    struct counted *c[COUNT(rows)];
    double left = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        c[i] = new_job(1, 0, 0, 0, rows[i].cost);
        cr_expect_eq(jobs_admit(jobs, &c[i]->job), rows[i].fits, "%g", rows[i].cost);
        left += rows[i].fits ? rows[i].cost : 0;
    }
    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect_eq(jobs_load(jobs).cost, left);
        if (c[i]->job.admitted) {
            jobs_run(jobs, &c[i]->job);
            cr_expect_eq(wait_for(c[i]), JOB_DONE);
            left -= rows[i].cost;
        }
    }
}

/* A quantum of each of the jobs takes 0.16 s together, and the deadline is after 0.02 s. */
Test(jobs, a_late_job_need_not_wait_for_its_quantum) {
    enum {
        OTHERS = 64
    };
    struct counted *others[OTHERS], *late = new_job(1, 0, 0, 0, 1e9);
    size_t runs = 0;
    start_workers(2, OTHERS + 10, 1e18);
    for (size_t i = 0; i < OTHERS; i++) {
        others[i] = new_job(4, 0, 0, 0, 1e9);
        others[i]->nap = 5000000;
        run_job(others[i]);
    }
    late->job.deadline = clock_ns() + 20000000;
    run_job(late);
    cr_expect_eq(wait_for(late), JOB_LATE);
    for (size_t i = 0; i < OTHERS; i++) {
        runs += atomic_load(&others[i]->runs[0][0]);
        jobs_cancel(&others[i]->job);
    }
    cr_expect_lt(runs, OTHERS * 3 / 4, "%zu of %d had a quantum before", runs, OTHERS);
    for (size_t i = 0; i < OTHERS; i++) {
        wait_for(others[i]);
    }
}

/* A task of the huge job costs as much as half of a small job, whose quanta have one task each. */
Test(jobs, long_tasks_get_no_larger_share) {
    enum {
        SMALL = 20
    };
    atomic_bool all_wait = false;
    struct counted *huge = new_job(MANY, 0, 0, 0, 1e9 * MANY), *small[SMALL];
    huge->nap = 2000000;
    huge->gate = &all_wait;
    start_workers(1, SMALL + 10, 1e18);
    run_job(huge);
    for (size_t i = 0; i < SMALL; i++) {
        small[i] = new_job(50, 0, 0, 0, 2e9);
        small[i]->other = huge;
        run_job(small[i]);
    }
    atomic_store(&all_wait, true);
    for (size_t i = 0; i < SMALL; i++) {
        cr_expect_eq(wait_for(small[i]), JOB_DONE);
        cr_expect_lt(small[i]->meanwhile, 8, "%zu tasks of the huge job were run meanwhile",
                     small[i]->meanwhile);
    }
    jobs_cancel(&huge->job);
    wait_for(huge);
}

/* Runs a job whose deadline passes while one worker runs its first task, so that the other worker
 * ends it. Returns false if the deadline passed before that task began. */
static bool run_until_late(long milliseconds) {
    atomic_bool closed = false, gate = false;
    struct counted *other = new_job(1, 0, 0, 0, 1), *late = new_job(4, 1, 0, 0, 4e9),
                   *after = new_job(1, 0, 0, 0, 1);
    start_workers(2, 100, 1e18);
    other->gate = &closed;
    late->gate = &gate;
    run_job(other);
    WAIT_UNTIL(atomic_load(&other->started) != 0);
    late->job.deadline = clock_ns() + milliseconds * 1000000;
    run_job(late); /* only one worker is free */
    WAIT_UNTIL(clock_ns() >= late->job.deadline);
    const bool began = atomic_load(&late->started) == 1;
    atomic_store(&closed, true);
    cr_expect_eq(wait_for(other), JOB_DONE);
    run_job(after); /* the worker looks at deadlines before it takes this job */
    cr_expect_eq(wait_for(after), JOB_DONE);
    cr_expect(!began || late->dones == 0, "the job is done, and a task of it runs");
    atomic_store(&gate, true);
    cr_expect_eq(wait_for(late), JOB_LATE);
    cr_expect_eq(late->started, began ? 1 : 0);
    jobs_stop(jobs); /* nothing ends the job once more */
    jobs = NULL;
    cr_expect_eq(late->dones, 1);
    return began;
}

Test(jobs, a_late_job_ends_after_its_quantum) {
    long milliseconds = 20;
    while (!run_until_late(milliseconds)) { /* a busy machine began the task too late */
        milliseconds *= 2;
    }
}

/* An old job goes on, however many new jobs come, and whether it or a new one costs more. */
static void run_beside_new_jobs(size_t tasks, double cost) {
    enum {
        ABREAST = 4,
        MOST = 400
    };
    struct counted *old = new_job(tasks, 0, 0, 0, cost), *new[ABREAST] = {NULL};
    size_t begun = 0;
    atomic_bool gate = false;
    start_workers(1, ABREAST + 10, 1e18);
    old->gate = &gate;
    run_job(old);
    while (begun < MOST && atomic_load(&old->outcome) == 0) {
        for (size_t i = 0; i < ABREAST; i++) { /* a new job follows each one that is done */
            if (new[i] == NULL || atomic_load(&new[i]->outcome) != 0) {
                new[i] = new_job(1, 0, 0, 0, 4e8);
                new[i]->nap = 500000;
                run_job(new[i]);
                begun++;
            }
        }
        atomic_store(&gate, true);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    cr_expect_lt(begun, MOST, "the old job of cost %g is still waiting", cost);
    wait_for(old);
    for (size_t i = 0; i < ABREAST; i++) {
        wait_for(new[i]);
    }
}

Test(jobs, new_jobs_do_not_keep_an_old_one_waiting) {
    run_beside_new_jobs(20, 8e7);
    run_beside_new_jobs(3, 6e9);
}
