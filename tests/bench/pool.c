/*
 * pool.c runs the tasks of a plan, or one function, on threads that do not sleep between two
 * rounds.
 */
#include "pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_THREADS = 64,
    MAX_PHASES = 4096,
    PATIENCE = 1 << 14, /* times that a thread reads a variable before it yields its core */
    /* A plan of a smaller cost, in multiply-adds, runs on one thread. It takes some 10 us if its
     * results are not fresh memory. */
    SERIAL_COST = 1300000,
};

static struct {
    size_t threads;
    pthread_t ids[MAX_THREADS];
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    bool awake, stop; /* read and written under the mutex */

    _Atomic size_t round;       /* grows by one with each run */
    _Atomic bool resting;       /* the threads are not awake; read without the mutex */
    void (*job)(size_t thread); /* the job of this round */
    attn_plan *plan;
    void *scratch[MAX_THREADS];
    size_t scratch_bytes[MAX_THREADS];
    _Atomic size_t next[MAX_PHASES][MAX_THREADS], arrived[MAX_PHASES], done;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER};

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void wait_for(const _Atomic size_t *value, size_t wanted) {
    for (size_t i = 0; atomic_load_explicit(value, memory_order_acquire) != wanted; i++) {
        if (i > PATIENCE) {
            sched_yield();
        }
    }
}

static void *scratch_of(size_t thread, const attn_plan *plan) {
    const size_t units = (attn_plan_scratch(plan) + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT + 1;
    const size_t bytes = units * ATTN_ALIGNMENT;
    if (pool.scratch_bytes[thread] < bytes) {
        free(pool.scratch[thread]);
        pool.scratch[thread] = aligned_alloc(ATTN_ALIGNMENT, bytes);
        pool.scratch_bytes[thread] = bytes;
        if (pool.scratch[thread] == NULL) {
            fail("out of memory");
        }
    }
    return pool.scratch[thread];
}

static void run_task(const attn_plan *plan, size_t phase, size_t task, void *scratch) {
    attn_error error;
    if (attn_plan_task(plan, phase, task, scratch, &error) != ATTN_OK) {
        fail(error.message);
    }
}

/* The job of a thread: it runs its own share of the tasks of each phase, and then what is left of
 * the shares of others. So a core finds again what it has computed in the phase or the run before.
 */
static void work(size_t thread) {
    attn_plan *plan = pool.plan;
    void *scratch = scratch_of(thread, plan);
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        const size_t tasks = attn_plan_tasks(plan, phase);
        if (tasks == 0) {
            continue;
        }
        for (size_t i = 0, task; i < pool.threads; i++) {
            const size_t owner = (thread + i) % pool.threads;
            const size_t first = tasks * owner / pool.threads;
            const size_t end = tasks * (owner + 1) / pool.threads;
            while ((task = first + atomic_fetch_add(&pool.next[phase][owner], 1)) < end) {
                run_task(plan, phase, task, scratch);
            }
        }
        atomic_fetch_add(&pool.arrived[phase], 1);
        wait_for(&pool.arrived[phase], pool.threads);
    }
}

static void work_alone(const attn_plan *plan) {
    void *scratch = scratch_of(0, plan);
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        for (size_t task = 0; task < attn_plan_tasks(plan, phase); task++) {
            run_task(plan, phase, task, scratch);
        }
    }
}

/* Waits for the round after `seen`. Returns false at the end of the pool. */
static bool next_round(size_t seen) {
    for (size_t i = 0; atomic_load_explicit(&pool.round, memory_order_acquire) == seen; i++) {
        if (i > PATIENCE) {
            sched_yield();
        }
        if (atomic_load(&pool.resting)) {
            pthread_mutex_lock(&pool.mutex);
            while (!pool.awake && !pool.stop) {
                pthread_cond_wait(&pool.woken, &pool.mutex);
            }
            const bool stop = pool.stop;
            pthread_mutex_unlock(&pool.mutex);
            if (stop) {
                return false;
            }
        }
    }
    return true;
}

static void *member(void *arg) {
    const size_t thread = *(size_t *)arg;
    free(arg);
    for (size_t seen = 0; next_round(seen); seen++) {
        pool.job(thread);
        atomic_fetch_add(&pool.done, 1);
    }
    return NULL;
}

void pool_start(int threads) {
    pool.threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : (size_t)threads;
    pool.resting = true;
    for (size_t t = 1; t < pool.threads; t++) {
        size_t *thread = malloc(sizeof *thread);
        if (thread == NULL) {
            fail("out of memory");
        }
        *thread = t;
        if (pthread_create(&pool.ids[t], NULL, member, thread) != 0) {
            fail("no thread could be started");
        }
    }
}

static void set_state(bool awake, bool stop) {
    pthread_mutex_lock(&pool.mutex);
    pool.awake = awake;
    pool.stop = stop;
    pool.resting = !awake;
    pthread_cond_broadcast(&pool.woken);
    pthread_mutex_unlock(&pool.mutex);
}

void pool_wake(void) {
    set_state(true, false);
}

void pool_rest(void) {
    set_state(false, false);
}

void pool_end(void) {
    set_state(false, true);
    for (size_t t = 1; t < pool.threads; t++) {
        pthread_join(pool.ids[t], NULL);
    }
    for (size_t t = 0; t < pool.threads; t++) {
        free(pool.scratch[t]);
    }
}

void pool_each(void (*job)(size_t thread)) {
    pool.job = job;
    pool.done = 0;
    atomic_fetch_add(&pool.round, 1);
    job(0);
    wait_for(&pool.done, pool.threads - 1);
}

void pool_run(attn_plan *plan) {
    attn_error error;
    assert(attn_plan_phases(plan) <= MAX_PHASES);
    if (attn_plan_begin(plan, &error) != ATTN_OK) {
        fail(error.message);
    }
    if (pool.threads == 1 || attn_plan_cost(plan) < SERIAL_COST) {
        work_alone(plan);
    } else {
        pool.plan = plan;
        for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
            for (size_t t = 0; t < pool.threads; t++) {
                pool.next[phase][t] = 0;
            }
            pool.arrived[phase] = 0;
        }
        pool_each(work);
    }
    if (attn_plan_end(plan, &error) != ATTN_OK) {
        fail(error.message);
    }
}
