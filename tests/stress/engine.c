/*
 * engine.c - checks that the tasks of a plan give the same bytes on 1, 2, 3 and 7 threads, and that
 * several plans run side by side. It is written for ThreadSanitizer, and it is a plain program
 * because Criterion does not start under ThreadSanitizer.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"

enum {
    GROUP = 4,    /* query heads of one key head in the decoding call */
    LONG = 20000, /* keys of the decoding call */
    MODEL = 48,   /* columns of X in the calls with projections */
    HEADS = 3,
    QUERIES = 200, /* three blocks, for which the keys are packed once */
    KEYS = 4000,
    COLUMNS = 24,
    MAX_THREADS = 7,
    PLANS = 4
};

static float q[HEADS * QUERIES * COLUMNS], k[LONG * COLUMNS], v[LONG * COLUMNS];

/* Threads that share the tasks of one phase. */
struct team {
    attn_plan *plan;
    size_t phase;
    _Atomic size_t next;
};

static void *work(void *arg) {
    struct team *team = arg;
    const size_t blocks = (attn_plan_scratch(team->plan) + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT;
    void *scratch = aligned_alloc(ATTN_ALIGNMENT, blocks * ATTN_ALIGNMENT);
    size_t task;
    while ((task = atomic_fetch_add(&team->next, 1)) < attn_plan_tasks(team->plan, team->phase)) {
        attn_plan_task(team->plan, team->phase, task, scratch, NULL);
    }
    free(scratch);
    return NULL;
}

/* The calls of which two results are compared. */
enum call {
    TILES,    /* many queries, so that keys are packed and queries form blocks */
    WEIGHTS,  /* the same with weights; these are over 8 MiB, so they are written past the caches */
    DECODING, /* one query of grouped heads with many keys, so that rows are cut and merged */
    PROJECTED /* X and weight matrices, so that all phases have tasks */
};

static size_t phases_with_tasks(const attn_plan *plan) {
    size_t count = 0;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        count += attn_plan_tasks(plan, phase) > 0;
    }
    return count;
}

static attn_plan *new_plan(enum call call, float *output, float *other) {
    static const size_t rows[] = {QUERIES, QUERIES, 1, QUERIES};
    const attn_tensor tq = {
        .data = q, .rank = 3, .shape = {call == DECODING ? GROUP : HEADS, rows[call], COLUMNS}};
    const attn_tensor tk = {
        .data = k,
        .rank = 3,
        .shape = {call == DECODING ? 1 : HEADS, call == DECODING ? LONG : KEYS, COLUMNS}};
    const attn_tensor tv = {.data = v, .rank = 3, .shape = {tk.shape[0], tk.shape[1], COLUMNS}};
    const attn_tensor x = {.data = q, .rank = 2, .shape = {QUERIES, MODEL}};
    const attn_tensor w = {.data = k, .rank = 2, .shape = {MODEL, MODEL}};
    const attn_projection projection = {.w_q = &w, .w_k = &w, .w_v = &w};
    const attn_multihead multihead = {.x = &x, .projections = &projection, .count = 1, .w_o = &w};
    attn_options o = {
        .results = ATTN_WANT(OUTPUT), .causal = true, .flags = ATTN_FLAG_BOTTOM_RIGHT};
    o.results |= call == WEIGHTS ? ATTN_WANT(WEIGHTS) : ATTN_WANT(LSE);
    o.heads = call == PROJECTED ? HEADS : 0;
    attn_plan *plan;
    const attn_status status = call == PROJECTED
                                   ? attn_plan_multihead(&plan, &multihead, &o, NULL)
                                   : attn_plan_attention(&plan, &tq, &tk, &tv, &o, NULL);
    if (status != ATTN_OK) {
        printf("call %d is refused\n", (int)call);
        exit(1);
    }
    if (call == TILES && phases_with_tasks(plan) < 2) {
        printf("no keys are packed before the blocks are computed\n");
        exit(1);
    }
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, output);
    attn_plan_bind(plan, call == WEIGHTS ? ATTN_RESULT_WEIGHTS : ATTN_RESULT_LSE, 0, other);
    return plan;
}

static void run_on(attn_plan *plan, size_t threads) {
    pthread_t ids[MAX_THREADS];
    attn_plan_begin(plan, NULL);
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        struct team team = {.plan = plan, .phase = phase};
        for (size_t t = 0; t < threads; t++) {
            pthread_create(&ids[t], NULL, work, &team);
        }
        for (size_t t = 0; t < threads; t++) {
            pthread_join(ids[t], NULL);
        }
    }
    attn_plan_end(plan, NULL);
}

static int same_bytes(enum call call) {
    static const size_t counts[] = {1, 2, 3, 7};
    const size_t bytes = sizeof q;
    const size_t other_bytes =
        (size_t)HEADS * QUERIES * (call == WEIGHTS ? KEYS : 1) * sizeof(float);
    float *first[2] = {calloc(1, bytes), calloc(1, other_bytes)};
    float *now[2] = {calloc(1, bytes), calloc(1, other_bytes)};
    int failures = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float **to = i == 0 ? first : now;
        attn_plan *plan = new_plan(call, to[0], to[1]);
        run_on(plan, counts[i]);
        attn_plan_free(plan);
        if (memcmp(first[0], to[0], bytes) != 0 || memcmp(first[1], to[1], other_bytes) != 0) {
            printf("call %d: %zu threads give other bytes than one\n", (int)call, counts[i]);
            failures++;
        }
    }
    for (int i = 0; i < 2; i++) {
        free(first[i]);
        free(now[i]);
    }
    return failures;
}

/* The calls of which every result is compared. */
enum whole_call {
    LONG_ROWS, /* rows that are cut along their keys, with all results */
    LONG_MEAN, /* the same with the mean over heads */
    COPIES,    /* projections with all results, so that Q, K and V are copied */
    SOFTMAX,   /* softmax alone, with slices that are cut */
    WHOLE_CALLS
};

static attn_plan *new_whole_plan(enum whole_call call) {
    const attn_tensor tq = {.data = q, .rank = 3, .shape = {2, 3, 2}};
    const attn_tensor tk = {.data = k, .rank = 3, .shape = {2, 2 * LONG, 2}};
    const attn_tensor x = {.data = q, .rank = 2, .shape = {QUERIES, MODEL}};
    const attn_tensor w = {.data = k, .rank = 2, .shape = {MODEL, MODEL}};
    const attn_tensor slices = {.data = k, .rank = 2, .shape = {LONG / 2, 2 * COLUMNS}};
    const attn_projection projection = {.w_q = &w, .w_k = &w, .w_v = &w};
    const attn_multihead multihead = {.x = &x, .projections = &projection, .count = 1};
    const unsigned all = (1u << ATTN_RESULT_COUNT) - 1;
    const unsigned projected = ATTN_WANT(Q) | ATTN_WANT(K) | ATTN_WANT(V);
    attn_options o = {.results = all & ~projected, .top_k = 2 * LONG};
    attn_plan *plan = NULL;
    if (call == SOFTMAX) {
        attn_plan_softmax(&plan, &slices, 0, NULL);
    } else if (call == COPIES) {
        o = (attn_options){.results = all, .heads = HEADS};
        attn_plan_multihead(&plan, &multihead, &o, NULL);
    } else {
        o.flags = call == LONG_MEAN ? (unsigned)ATTN_FLAG_MEAN_OVER_HEADS : 0;
        attn_plan_attention(&plan, &tq, &tk, &tk, &o, NULL);
    }
    if (plan == NULL) {
        printf("whole call %d is refused\n", (int)call);
        exit(1);
    }
    return plan;
}

/* Runs a plan with all its results in one block. Returns the block, which the caller frees. */
static char *run_whole(enum whole_call call, size_t threads, size_t *bytes) {
    attn_plan *plan = new_whole_plan(call);
    attn_plan_results_bytes(plan, bytes);
    char *block = aligned_alloc(ATTN_ALIGNMENT, *bytes);
    memset(block, 0, *bytes);
    attn_plan_bind_all(plan, block);
    run_on(plan, threads);
    attn_plan_free(plan);
    return block;
}

static int same_whole_bytes(enum whole_call call) {
    static const size_t counts[] = {2, 3, 7};
    int failures = 0;
    size_t bytes;
    char *first = run_whole(call, 1, &bytes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char *now = run_whole(call, counts[i], &bytes);
        if (memcmp(first, now, bytes) != 0) {
            printf("whole call %d: %zu threads give other bytes than one\n", (int)call, counts[i]);
            failures++;
        }
        free(now);
    }
    free(first);
    return failures;
}

static void *run_alone(void *arg) {
    attn_plan *plan = arg;
    for (int i = 0; i < 5; i++) {
        attn_plan_run(plan, NULL);
    }
    return NULL;
}

static int side_by_side(void) {
    static float output[PLANS][sizeof q / sizeof *q], lse[PLANS][HEADS * QUERIES];
    pthread_t ids[PLANS];
    attn_plan *plans[PLANS];
    int failures = 0;
    for (size_t i = 0; i < PLANS; i++) {
        plans[i] = new_plan(TILES, output[i], lse[i]);
        pthread_create(&ids[i], NULL, run_alone, plans[i]);
    }
    for (size_t i = 0; i < PLANS; i++) {
        pthread_join(ids[i], NULL);
        attn_plan_free(plans[i]);
        failures += memcmp(output[0], output[i], sizeof output[0]) != 0;
    }
    return failures;
}

int main(void) {
    uint32_t state = 1;
    float *const all[] = {q, k, v};
    const size_t counts[] = {sizeof q / sizeof *q, sizeof k / sizeof *k, sizeof v / sizeof *v};
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < counts[i]; j++) {
            state = state * 1664525 + 1013904223;
            all[i][j] = (float)(int32_t)state / 2147483648.0f;
        }
    }
    attn_blas_set_threads(1);
    int failures = same_bytes(TILES) + same_bytes(WEIGHTS) + same_bytes(DECODING) +
                   same_bytes(PROJECTED) + side_by_side();
    for (int call = 0; call < WHOLE_CALLS; call++) {
        failures += same_whole_bytes((enum whole_call)call);
    }
    printf("%s\n", failures == 0 ? "same bytes on 1, 2, 3 and 7 threads" : "FAILED");
    return failures != 0;
}
