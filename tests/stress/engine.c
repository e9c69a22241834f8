/*
 * engine.c - checks that the tasks of a plan give the same bytes on 1, 2, 3, 7 and 64 threads, and
 * that several plans run side by side. It is written for ThreadSanitizer, and it is a plain program
 * because Criterion does not start under ThreadSanitizer.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "results.h"
#include "support/count.h"
#include "support/plans.h"

enum {
    GROUP = 4,    /* query heads of one key head in the decoding call */
    LONG = 20000, /* keys of the decoding call */
    MODEL = 48,   /* columns of X in the calls with projections */
    HEADS = 3,
    QUERIES = 200, /* three blocks, for which the keys are packed once */
    KEYS = 4000,
    COLUMNS = 24,
    WIDE = 96, /* columns of linear attention */
    POSITIONS = 20000,
    PLANS = 4
};

static float q[HEADS * QUERIES * COLUMNS], k[LONG * COLUMNS], v[LONG * COLUMNS];
static float wide[POSITIONS * WIDE], decay[POSITIONS], beta[POSITIONS];

/* The calls, of which every result is compared. */
enum call {
    TILES,    /* many queries, so that keys are packed and queries form blocks */
    WEIGHTS,  /* the same with weights; these are over 8 MiB, so they are written past the caches */
    DECODING, /* one query of grouped heads with many keys, so that rows are cut and merged */
    PROJECTED,           /* X and weight matrices, so that all phases have tasks */
    LONG_ROWS,           /* rows that are cut along their keys, with all results */
    LONG_MEAN,           /* the same with the mean over heads */
    COPIES,              /* projections with all results, so that Q, K and V are copied */
    SOFTMAX,             /* softmax alone, with slices that are cut */
    GRADIENTS,           /* of all inputs; that of the bias is a sum over heads and queries */
    GRADIENTS_PROJECTED, /* of X and the weights */
    SEQUENCES,           /* short, long and empty ones, and gradients that they share */
    LINEAR,              /* one state, which is cut into bands, and its positions into segments */
    LINEAR_WEIGHTS,      /* the weights of linear attention, and all results beside them */
    LINEAR_SEQUENCES,    /* states of short, long and empty sequences */
    CALLS
};

static size_t phases_with_tasks(const attn_plan *plan) {
    size_t count = 0;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        count += attn_plan_tasks(plan, phase) > 0;
    }
    return count;
}

/* Makes a plan of linear attention, with the gated delta rule. */
static attn_plan *new_linear_plan(enum call call) {
    static const size_t lengths[] = {5, 90, 5, 0, 95, 805};
    const size_t n = call == LINEAR ? POSITIONS : 1000;
    const attn_tensor rows = {.data = wide, .rank = 2, .shape = {n, WIDE}};
    const attn_tensor decays = {.data = decay, .rank = 1, .shape = {n}};
    const attn_tensor betas = {.data = beta, .rank = 1, .shape = {n}};
    const attn_linear linear = {
        .q = &rows, .k = &rows, .v = &rows, .beta = &betas, .normalize_qk = true};
    const attn_sequences sequences = {6, lengths, NULL};
    attn_options o = {.results = ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE) | ATTN_WANT(DECAYS),
                      .decay = &decays};
    const attn_upstream upstream = {.output = &rows};
    if (call == LINEAR_WEIGHTS) {
        o.results |= ATTN_WANT(WEIGHTS);
    } else {
        o.results |= ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_V) | ATTN_WANT(GRAD_DECAY);
        o.upstream = &upstream;
    }
    o.sequences = call == LINEAR_SEQUENCES ? &sequences : NULL;
    attn_plan *plan = NULL;
    attn_plan_linear(&plan, &linear, &o, NULL);
    if (plan == NULL || (call == LINEAR && phases_with_tasks(plan) < 3)) {
        printf("call %d is refused, or has one segment\n", (int)call);
        exit(1);
    }
    return plan;
}

static attn_plan *new_plan(enum call call) {
    static const struct {
        size_t heads, kv_heads, queries, keys, columns;
    } sizes[CALLS] = {[TILES] = {HEADS, HEADS, QUERIES, KEYS, COLUMNS},
                      [WEIGHTS] = {HEADS, HEADS, QUERIES, KEYS, COLUMNS},
                      [DECODING] = {GROUP, 1, 1, LONG, COLUMNS},
                      [LONG_ROWS] = {2, 2, 3, 2 * LONG, 2},
                      [LONG_MEAN] = {2, 2, 3, 2 * LONG, 2},
                      [GRADIENTS] = {HEADS, HEADS, QUERIES, KEYS, COLUMNS}};
    const size_t columns = sizes[call].columns;
    const attn_tensor tq = {q, ATTN_FLOAT32, 3, {sizes[call].heads, sizes[call].queries, columns}};
    const attn_tensor tk = {k, ATTN_FLOAT32, 3, {sizes[call].kv_heads, sizes[call].keys, columns}};
    attn_tensor tv = tk;
    const attn_tensor x = {.data = q, .rank = 2, .shape = {QUERIES, MODEL}};
    const attn_tensor w = {.data = k, .rank = 2, .shape = {MODEL, MODEL}};
    const attn_tensor slices = {.data = k, .rank = 2, .shape = {LONG / 2, 2 * COLUMNS}};
    const attn_projection projection = {.w_q = &w, .w_k = &w, .w_v = &w};
    const attn_multihead multihead = {
        .x = &x,
        .projections = &projection,
        .count = 1,
        .w_o = call == PROJECTED || call == GRADIENTS_PROJECTED ? &w : NULL};
    const attn_tensor bias = {.data = v, .rank = 2, .shape = {1, KEYS}};
    const attn_tensor heads = {.data = v, .rank = 1, .shape = {HEADS}};
    const attn_upstream upstream = {.output = call == GRADIENTS ? &tq : &x};
    const uint64_t all = RESULTS_FORWARD;
    const uint64_t qkv = ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V);
    const attn_tensor rows = {.data = q, .rank = 3, .shape = {QUERIES, HEADS, COLUMNS}};
    const attn_tensor keys = {.data = k, .rank = 3, .shape = {KEYS, 1, COLUMNS}};
    const attn_upstream by_rows = {.output = &rows};
    static const size_t lengths[2][6] = {{5, 90, 5, 0, 95, 5}, {7, 1900, 7, 86, 2000, 0}};
    const attn_sequences sequences = {6, lengths[0], lengths[1]};
    attn_options o = {.results = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE), .top_k = 2 * LONG};
    attn_plan *plan = NULL;
    if (call >= LINEAR) {
        return new_linear_plan(call);
    }
    if (call == LONG_ROWS || call == LONG_MEAN) {
        o.results = all & ~(ATTN_WANT(Q) | ATTN_WANT(K) | ATTN_WANT(V));
        o.flags = call == LONG_MEAN ? (unsigned)ATTN_FLAG_MEAN_OVER_HEADS : 0;
    } else if (call == COPIES) {
        o.results = all;
    } else if (call == GRADIENTS) {
        o.upstream = &upstream;
        o.bias = &bias;
        o.sink = o.alibi_slopes = &heads;
        o.results = qkv | ATTN_WANT(GRAD_BIAS) | ATTN_WANT(GRAD_SINK) | ATTN_WANT(GRAD_ALIBI);
    } else if (call == SEQUENCES) {
        o.sequences = &sequences;
        o.upstream = &by_rows;
        o.sink = &heads;
        o.results |= qkv | ATTN_WANT(GRAD_SINK);
    } else if (call == GRADIENTS_PROJECTED) {
        o.upstream = &upstream;
        o.results = qkv | ATTN_WANT(GRAD_X) | ATTN_WANT(GRAD_W_Q) | ATTN_WANT(GRAD_W_K) |
                    ATTN_WANT(GRAD_W_V) | ATTN_WANT(GRAD_W_O);
    } else {
        o.causal = true;
        o.flags = ATTN_FLAG_BOTTOM_RIGHT;
        o.results |= call == WEIGHTS ? ATTN_WANT(WEIGHTS) : 0;
        tv.data = v;
    }
    if (call == SEQUENCES) {
        attn_plan_attention(&plan, &rows, &keys, &keys, &o, NULL);
    } else if (call == SOFTMAX) {
        attn_plan_softmax(&plan, &slices, 0, NULL);
    } else if (call == PROJECTED || call == COPIES || call == GRADIENTS_PROJECTED) {
        o.heads = HEADS;
        attn_plan_multihead(&plan, &multihead, &o, NULL);
    } else {
        attn_plan_attention(&plan, &tq, &tk, &tv, &o, NULL);
    }
    if (plan == NULL || (call == TILES && phases_with_tasks(plan) < 2)) {
        printf("call %d is refused, or packs no keys before its blocks\n", (int)call);
        exit(1);
    }
    return plan;
}

/* Binds all results of a plan to one block, which the caller frees. */
static char *bind_block(attn_plan *plan, size_t *bytes) {
    attn_plan_results_bytes(plan, bytes);
    char *block = aligned_alloc(ATTN_ALIGNMENT, *bytes);
    memset(block, 0, *bytes);
    attn_plan_bind_all(plan, block);
    return block;
}

static int same_bytes(enum call call) {
    static run_tasks *const ways[] = {run_on_1, run_on_2, run_on_3, run_on_7, run_on_64};
    char *first = NULL;
    int failures = 0;
    for (size_t i = 0; i < COUNT(ways); i++) {
        size_t bytes;
        attn_plan *plan = new_plan(call);
        char *now = bind_block(plan, &bytes);
        const bool failed = ways[i](plan, NULL) != ATTN_OK;
        attn_plan_free(plan);
        first = first == NULL ? now : first;
        if (failed || memcmp(first, now, bytes) != 0) {
            printf("call %d: way %zu fails, or gives other bytes than one thread\n", (int)call, i);
            failures++;
        }
        if (now != first) {
            free(now);
        }
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
    char *results[PLANS];
    pthread_t ids[PLANS];
    attn_plan *plans[PLANS];
    size_t bytes;
    int failures = 0;
    for (size_t i = 0; i < PLANS; i++) {
        plans[i] = new_plan(TILES);
        results[i] = bind_block(plans[i], &bytes);
        pthread_create(&ids[i], NULL, run_alone, plans[i]);
    }
    for (size_t i = 0; i < PLANS; i++) {
        pthread_join(ids[i], NULL);
        attn_plan_free(plans[i]);
        failures += memcmp(results[0], results[i], bytes) != 0;
    }
    for (size_t i = 0; i < PLANS; i++) {
        free(results[i]);
    }
    return failures;
}

int main(void) {
    uint32_t state = 1;
    float *const all[] = {q, k, v, wide};
    const size_t counts[] = {COUNT(q), COUNT(k), COUNT(v), COUNT(wide)};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < counts[i]; j++) {
            state = state * 1664525 + 1013904223;
            all[i][j] = (float)(int32_t)state / 2147483648.0f;
        }
    }
    for (size_t i = 0; i < POSITIONS; i++) {
        decay[i] = -fabsf(v[i]) / 8;
        beta[i] = 1 + k[i] / 2;
    }
    attn_blas_set_threads(1);
    int failures = side_by_side();
    for (int call = 0; call < CALLS; call++) {
        failures += same_bytes((enum call)call);
    }
    printf("%s\n", failures == 0 ? "same bytes on 1, 2, 3, 7 and 64 threads" : "FAILED");
    return failures != 0;
}
