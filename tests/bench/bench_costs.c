/*
 * bench_costs.c runs thousands of random calls over all shapes and options, extreme ones too. It
 * measures how long the longest task takes, and compares the time of each call with attn_plan_cost.
 * A large plain call makes about RATE multiply-adds in a nanosecond. So the ratio is 1 if the cost
 * of a call is right, and 3 if the cost is three times too small.
 *
 *   bench_costs [CALLS [SEED [ONLY]]]   ONLY: runs this call alone, with the time of each phase
 *
 * One thread runs everything. The time of a call is the CPU time of this thread, and of several
 * runs the shortest counts, so that other work does not matter. Results are written to fresh
 * memory, as those of a server are.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attention.h"
#include "blas_setup.h"
#include "results.h"
#include "support/rng.h"

#define RATE 80.0 /* multiply-adds in a nanosecond */

enum {
    NUMBERS = 1 << 25,      /* numbers in each array from which inputs are taken */
    GATES = 1 << 22,        /* the same for decays and betas */
    RESULT_BYTES = 1 << 28, /* the most bytes of all results of a call */
    WIDE = 16384,           /* the most columns of a head of a call with gradients */
    MOST_SECONDS = 1,       /* the most seconds of a call, by its cost */
    WORST = 16              /* calls that are printed */
};

/* The numbers of inputs: of size 1 (index 0), or so large that logits round badly (index 1). */
static float *narrow[2];
static double *wide[2];
/* Decays of linear attention (index 0), and its betas (index 1). */
static float *narrow_gates[2];
static double *wide_gates[2];
static unsigned char *bytes;

struct call {
    size_t index;
    char text[400];
    attn_plan *plan;
    attn_random *random; /* not NULL if the call is a seeded draw and has no plan */
    attn_draw draw;
    double plan_seconds, seconds, longest, cost;
    const char *longest_what;
};

static double clock_now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The CPU time of this thread alone. Reading it is a system call. */
static double cpu_now(void) {
    return clock_now(CLOCK_THREAD_CPUTIME_ID);
}

/* The tasks of a short call are measured by the time of the clock. Reading it costs almost nothing,
 * but it includes the time of other threads. */
static bool short_call;

static double task_now(void) {
    return short_call ? clock_now(CLOCK_MONOTONIC) : cpu_now();
}

/* ------------------------------------------------------------------------------- drawing a call */

/* Draws a number from 1 to `most`, whose logarithm is evenly distributed. */
static size_t size_up_to(struct rng *rng, double most) {
    const double x = exp(rng_uniform(rng) * log(most < 1 ? 1 : most + 0.999));
    return x < 1 ? 1 : (size_t)x;
}

static const void *numbers(struct rng *rng, attn_dtype dtype, size_t count, bool large) {
    const size_t at = count < NUMBERS ? rng_between(rng, 0, NUMBERS - count) : 0;
    return dtype == ATTN_FLOAT32 ? (const void *)(narrow[large] + at)
                                 : (const void *)(wide[large] + at);
}

struct sizes {
    size_t batch, heads, kv_heads, n, m, past, d, d_v;
    attn_dtype dtype;
    bool large;
};

/* The most that each size of a kind of call may be. If d_v is 0, it is that of d in half of the
 * calls. */
static const struct kind {
    double batch, heads, n, m, d, d_v;
} kinds[] = {
    {1, 1, 8, 3000000, 4, 4},    /* few queries, long rows */
    {1, 65536, 4, 16, 4, 4},     /* very many heads */
    {1, 1, 16, 64, 300000, 0},   /* wide rows */
    {1, 4, 16, 16, 8, 8},        /* a call as small as those of a notebook */
    {200000, 1, 4, 4, 4, 4},     /* many batch items */
    {1, 1, 1000000, 8, 8, 8},    /* many queries, few keys */
    {4, 32, 4096, 4096, 256, 0}, /* a call as large as those of a model, twice as often */
    {4, 32, 4096, 4096, 256, 0},
};

static struct sizes draw_sizes(struct rng *rng) {
    const struct kind *most = &kinds[rng_between(rng, 0, sizeof kinds / sizeof *kinds - 1)];
    struct sizes s;
    s.dtype = rng_chance(rng, 3) ? ATTN_FLOAT64 : ATTN_FLOAT32;
    s.large = rng_chance(rng, 12);
    s.batch = size_up_to(rng, most->batch);
    s.heads = size_up_to(rng, most->heads);
    s.n = size_up_to(rng, most->n);
    s.m = size_up_to(rng, most->m);
    s.d = size_up_to(rng, most->d);
    s.d_v = most->d_v > 0        ? size_up_to(rng, most->d_v)
            : rng_chance(rng, 2) ? s.d
                                 : size_up_to(rng, most->d);
    s.kv_heads = s.heads;
    if (s.heads % 2 == 0 && rng_chance(rng, 3)) {
        s.kv_heads = s.heads / (s.heads % 8 == 0 && rng_chance(rng, 2) ? 8 : 2);
    }
    s.past = s.m > 1 && rng_chance(rng, 6) ? rng_between(rng, 1, s.m - 1) : 0;
    return s;
}

/* Is a * b * c * d at most NUMBERS? */
static bool fits(size_t a, size_t b, size_t c, size_t d) {
    return (double)a * (double)b * (double)c * (double)d <= NUMBERS;
}

/* The tensors and lengths that the options point to. */
struct extras {
    attn_tensor mask, bias, slopes, sink, past_k, past_v, grad_output;
    attn_upstream upstream;
    size_t *lengths; /* owned */
};

static void draw_options(struct rng *rng, const struct sizes *s, bool projected, attn_options *o,
                         struct extras *e) {
    const uint64_t projections = ATTN_WANT(Q) | ATTN_WANT(K) | ATTN_WANT(V);
    const uint64_t possible =
        RESULTS_FORWARD & ~(ATTN_WANT(OUTPUT) | (projected ? 0 : projections));
    o->results = rng_chance(rng, 4) ? 0 : ATTN_WANT(OUTPUT);
    for (int r = 0; r < ATTN_RESULT_GRAD_Q || o->results == 0; r++) {
        o->results |= rng_chance(rng, 6) ? UINT64_C(1) << r % ATTN_RESULT_GRAD_Q & possible : 0;
    }
    o->top_k = rng_chance(rng, 3) ? s->m : rng_chance(rng, 2) ? size_up_to(rng, (double)s->m) : 0;
    o->causal = rng_chance(rng, 3);
    o->flags |= rng_chance(rng, 2) ? ATTN_FLAG_BOTTOM_RIGHT : 0;
    o->softcap = rng_chance(rng, 8) ? 2 : 0;
    o->normalization = rng_chance(rng, 12)   ? ATTN_UNNORMALIZED
                       : rng_chance(rng, 12) ? ATTN_STICK_BREAKING
                                             : ATTN_SOFTMAX;
    if (o->normalization != ATTN_SOFTMAX) {
        o->results &= ~RESULTS_OF(RESULT_SOFTMAX);
        o->results |= o->results == 0 ? ATTN_WANT(OUTPUT) : 0;
    }
    if (rng_chance(rng, 8)) {
        o->flags |= ATTN_FLAG_WINDOW;
        o->window[0] = (int64_t)size_up_to(rng, (double)s->m);
        o->window[1] = rng_chance(rng, 2) ? -1 : (int64_t)size_up_to(rng, (double)s->m);
    }
    o->flags |= rng_chance(rng, 8) ? (unsigned)ATTN_FLAG_ALIBI : 0;
    o->flags |= rng_chance(rng, 8) && o->normalization != ATTN_STICK_BREAKING
                    ? (unsigned)ATTN_FLAG_MEAN_OVER_HEADS
                    : 0;
    const bool shared = !fits(s->batch, s->heads, s->n, s->m) || rng_chance(rng, 3);
    const attn_tensor pairs = {.rank = 4,
                               .shape = {shared ? 1 : s->batch, shared ? 1 : s->heads, s->n, s->m}};
    if (rng_chance(rng, 6) && fits(s->n, s->m, 1, 1)) {
        e->mask = pairs;
        e->mask.dtype = ATTN_BOOL;
        e->mask.data = bytes;
        o->mask = &e->mask;
    }
    if (rng_chance(rng, 8) && fits(s->n, s->m, 1, 1)) {
        e->bias = pairs;
        e->bias.dtype = s->dtype;
        e->bias.data = numbers(rng, s->dtype, NUMBERS, false);
        o->bias = &e->bias;
    }
    if (rng_chance(rng, 8) && o->normalization == ATTN_SOFTMAX) {
        e->sink = (attn_tensor){.rank = 1, .shape = {s->heads}, .dtype = s->dtype};
        e->sink.data = numbers(rng, s->dtype, s->heads, false);
        o->sink = &e->sink;
    }
    if (rng_chance(rng, 6)) {
        e->lengths = malloc(s->batch * sizeof *e->lengths);
        for (size_t b = 0; b < s->batch; b++) {
            e->lengths[b] = rng_between(rng, 0, s->m);
        }
        o->lengths = e->lengths;
        o->lengths_count = s->batch;
    }
    if (rng_chance(rng, 8) && s->dtype == ATTN_FLOAT32) {
        o->compute_dtype = ATTN_COMPUTE_BFLOAT16;
    }
}

static attn_tensor matrix(struct rng *rng, const struct sizes *s, size_t heads, size_t rows,
                          size_t columns, bool packed) {
    attn_tensor t = {.dtype = s->dtype};
    if (s->batch > 1 || (!packed && heads > 1)) {
        t.shape[t.rank++] = packed || s->batch > 1 ? s->batch : heads;
    }
    if (!packed && s->batch > 1) {
        t.shape[t.rank++] = heads;
    }
    t.shape[t.rank++] = rows;
    t.shape[t.rank++] = packed ? heads * columns : columns;
    t.data = numbers(rng, s->dtype, s->batch * heads * rows * columns, s->large);
    return t;
}

static void describe(struct call *c, const char *kind, const struct sizes *s,
                     const attn_options *o) {
    int used = snprintf(c->text, sizeof c->text,
                        "%s %s B=%zu H=%zu/%zu n=%zu m=%zu(%zu past) d=%zu d_v=%zu%s", kind,
                        s->dtype == ATTN_FLOAT32 ? "f32" : "f64", s->batch, s->heads, s->kv_heads,
                        s->n, s->m, s->past, s->d, s->d_v, s->large ? " large" : "");
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if ((o->results >> r & 1) != 0) {
            used += snprintf(c->text + used, sizeof c->text - (size_t)used, " %s",
                             attn_result_name((attn_result)r));
        }
    }
    snprintf(c->text + used, sizeof c->text - (size_t)used, "%s%s%s%s%s%s%s%s%s%s top_k=%zu",
             o->causal ? " +causal" : "", o->flags & ATTN_FLAG_WINDOW ? " +window" : "",
             o->mask ? " +mask" : "", o->bias ? " +bias" : "", o->softcap > 0 ? " +softcap" : "",
             o->normalization == ATTN_UNNORMALIZED     ? " +none"
             : o->normalization == ATTN_STICK_BREAKING ? " +stick"
                                                       : "",
             o->flags & ATTN_FLAG_ALIBI ? " +alibi" : "",
             o->flags & ATTN_FLAG_MEAN_OVER_HEADS ? " +mean" : "", o->lengths ? " +lengths" : "",
             o->compute_dtype != ATTN_COMPUTE_AS_GIVEN ? " +compute_dtype" : "", o->top_k);
}

/* The inputs of a call: X and its projections, or Q, K and V. */
struct inputs {
    const attn_multihead *multihead; /* or NULL */
    const attn_tensor *q, *k, *v;
};

static attn_status plan_inputs(attn_plan **plan, const struct inputs *in, const attn_options *o) {
    return in->multihead != NULL ? attn_plan_multihead(plan, in->multihead, o, NULL)
                                 : attn_plan_attention(plan, in->q, in->k, in->v, o, NULL);
}

/* Adds gradients to some calls. */
static void draw_gradients(struct rng *rng, const struct sizes *s, const struct inputs *in,
                           attn_options *o, struct extras *e) {
    const uint64_t projected =
        ATTN_WANT(GRAD_X) | ATTN_WANT(GRAD_W_Q) | ATTN_WANT(GRAD_W_K) | ATTN_WANT(GRAD_W_V);
    const uint64_t possible = ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) |
                              (o->bias != NULL ? ATTN_WANT(GRAD_BIAS) : 0) |
                              (o->sink != NULL ? ATTN_WANT(GRAD_SINK) : 0) |
                              (in->multihead != NULL ? projected : 0);
    attn_options output = *o;
    attn_plan *plan;
    if (!rng_chance(rng, 4) || s->d > WIDE || s->d_v > WIDE ||
        o->compute_dtype != ATTN_COMPUTE_AS_GIVEN) {
        return;
    }
    output.results = ATTN_WANT(OUTPUT);
    output.top_k = 0;
    if (plan_inputs(&plan, in, &output) != ATTN_OK) {
        return;
    }
    e->grad_output = attn_as_tensor(attn_plan_tensor(plan, ATTN_RESULT_OUTPUT, 0));
    e->upstream.output = &e->grad_output;
    attn_plan_free(plan);
    size_t count = 0;
    attn_tensor_count(&e->grad_output, &count);
    if (count > NUMBERS) {
        return;
    }
    e->grad_output.data = numbers(rng, e->grad_output.dtype, count, false);
    o->upstream = &e->upstream;
    o->results |= rng_chance(rng, 4) ? ATTN_WANT(GRAD_Q) : possible;
}

/* Draws the gradients of a call, describes it and plans it. */
static bool plan_call(struct rng *rng, struct call *c, const char *kind, const struct sizes *s,
                      const struct inputs *in, attn_options *o, struct extras *e) {
    draw_gradients(rng, s, in, o, e);
    describe(c, kind, s, o);
    const double start = task_now();
    const attn_status status = plan_inputs(&c->plan, in, o);
    c->plan_seconds = task_now() - start;
    free(e->lengths);
    return status == ATTN_OK;
}

static bool draw_attention(struct rng *rng, struct call *c) {
    struct sizes s = draw_sizes(rng);
    struct extras e = {0};
    attn_options o = {0};
    const bool packed = rng_chance(rng, 3);
    if (!fits(s.batch, s.heads, s.n, s.d) || !fits(s.batch, s.kv_heads, s.m, s.d) ||
        !fits(s.batch, s.kv_heads, s.m, s.d_v)) {
        return false;
    }
    draw_options(rng, &s, false, &o, &e);
    const attn_tensor q = matrix(rng, &s, s.heads, s.n, s.d, packed);
    const attn_tensor k = matrix(rng, &s, s.kv_heads, s.m - s.past, s.d, packed);
    const attn_tensor v = matrix(rng, &s, s.kv_heads, s.m - s.past, s.d_v, packed);
    if (s.past > 0) {
        e.past_k = matrix(rng, &s, s.kv_heads, s.past, s.d, packed);
        e.past_v = matrix(rng, &s, s.kv_heads, s.past, s.d_v, packed);
        o.past_k = &e.past_k;
        o.past_v = &e.past_v;
    }
    if (packed) {
        o.heads = s.heads;
        o.kv_heads = s.kv_heads;
    }
    const struct inputs in = {NULL, &q, &k, &v};
    return plan_call(rng, c, packed ? "packed" : "attention", &s, &in, &o, &e);
}

static attn_tensor weights(struct rng *rng, attn_dtype dtype, size_t in, size_t out, bool out_in) {
    return (attn_tensor){.dtype = dtype,
                         .rank = 2,
                         .shape = {out_in ? out : in, out_in ? in : out},
                         .data = numbers(rng, dtype, in * out, false)};
}

/* Draws a call with X, and with one set of weights for all heads or one for each head. */
static bool draw_multihead(struct rng *rng, struct call *c) {
    struct sizes s = draw_sizes(rng);
    struct extras e = {0};
    attn_options o = {0};
    const bool per_head = rng_chance(rng, 3);
    size_t model = rng_chance(rng, 6) ? size_up_to(rng, 1000000) : size_up_to(rng, 1024);
    s.past = 0;
    s.m = s.n = s.n < s.m ? s.m : s.n;
    s.kv_heads = per_head ? s.heads : s.kv_heads;
    if (!fits(s.batch, s.n, model, 1) || !fits(model, s.heads, s.d, 1) ||
        !fits(model, s.heads, s.d_v, 1) || !fits(s.batch, s.heads, s.n, s.d) ||
        !fits(s.batch, s.heads, s.n, s.d_v)) {
        return false;
    }
    draw_options(rng, &s, true, &o, &e);
    const bool out_in = rng_chance(rng, 3), projects = rng_chance(rng, 2);
    const size_t heads[] = {s.heads, s.kv_heads, s.kv_heads}, columns[] = {s.d, s.d, s.d_v};
    attn_tensor x = {.dtype = s.dtype, .rank = 3, .shape = {s.batch, s.n, model}}, w[3], w_o;
    x.data = numbers(rng, s.dtype, s.batch * s.n * model, s.large);
    for (int i = 0; i < 3; i++) {
        w[i] = weights(rng, s.dtype, model, per_head ? columns[i] : heads[i] * columns[i], out_in);
    }
    const size_t out = size_up_to(rng, (double)NUMBERS / (double)(s.heads * s.d_v));
    w_o = weights(rng, s.dtype, s.heads * s.d_v, out > 4096 ? 4096 : out, out_in);
    const size_t count = per_head ? s.heads : 1;
    attn_projection *projections = calloc(count, sizeof *projections);
    for (size_t h = 0; h < count; h++) {
        projections[h] = (attn_projection){.w_q = &w[0], .w_k = &w[1], .w_v = &w[2]};
    }
    o.heads = per_head ? 0 : s.heads;
    o.kv_heads = per_head ? 0 : s.kv_heads;
    const attn_multihead call = {.x = &x,
                                 .projections = projections,
                                 .count = count,
                                 .per_head = per_head,
                                 .layout = out_in ? ATTN_OUT_IN : ATTN_IN_OUT,
                                 .w_o = projects ? &w_o : NULL};
    const struct inputs in = {.multihead = &call};
    const bool planned = plan_call(rng, c, per_head ? "per_head" : "multihead", &s, &in, &o, &e);
    const size_t used = strlen(c->text);
    snprintf(c->text + used, sizeof c->text - used, " model=%zu%s out=%zu", model,
             out_in ? " out_in" : "", projects ? w_o.shape[!out_in] : 0);
    free(projections);
    return planned;
}

static attn_tensor gates(const struct sizes *s, bool betas, bool by_column) {
    attn_tensor t = {.dtype = s->dtype, .rank = 3, .shape = {s->batch, s->kv_heads, s->n}};
    t.data = s->dtype == ATTN_FLOAT32 ? (const void *)narrow_gates[betas] : wide_gates[betas];
    if (by_column) {
        t.shape[t.rank++] = s->d;
    }
    return t;
}

/* Draws a call of linear attention, whose rows of K have the length 1. Several query heads may read
 * each state. */
static bool draw_linear(struct rng *rng, struct call *c) {
    struct sizes s = draw_sizes(rng);
    const bool by_column = rng_chance(rng, 3);
    s.past = 0;
    s.kv_heads = s.heads;
    s.heads *= rng_chance(rng, 3) ? (size_t)1 << rng_between(rng, 1, 12) : 1;
    s.m = s.n = s.n < s.m ? s.m : s.n;
    if (!fits(s.batch, s.heads, s.n, s.d) || !fits(s.batch, s.heads, s.n, s.d_v) ||
        (double)s.batch * (double)s.kv_heads * (double)s.n * (double)(by_column ? s.d : 1) >
            GATES) {
        return false;
    }
    attn_tensor rows[4]; /* Q, K, V and the gradient by the output */
    for (int i = 0; i < 4; i++) {
        const size_t heads = i == 0 || i == 3 ? s.heads : s.kv_heads, columns = i < 2 ? s.d : s.d_v;
        rows[i] =
            (attn_tensor){.dtype = s.dtype, .rank = 4, .shape = {s.batch, heads, s.n, columns}};
        rows[i].data = numbers(rng, s.dtype, s.batch * heads * s.n * columns, false);
    }
    const attn_tensor decay = gates(&s, false, by_column), beta = gates(&s, true, false);
    const attn_linear call = {.q = &rows[0],
                              .k = &rows[1],
                              .v = &rows[2],
                              .beta = rng_chance(rng, 2) ? &beta : NULL,
                              .normalize_qk = true};
    attn_options o = {.results = rng_chance(rng, 4) ? 0 : ATTN_WANT(OUTPUT)};
    o.decay = rng_chance(rng, 2) ? &decay : NULL;
    o.results |= rng_chance(rng, 2) ? ATTN_WANT(PRESENT_STATE) : 0;
    o.results |= rng_chance(rng, 4) ? ATTN_WANT(WEIGHTS) : 0;
    o.results |= rng_chance(rng, 6) ? ATTN_WANT(STATES) : 0;
    o.results |= rng_chance(rng, 6) && o.decay != NULL ? ATTN_WANT(DECAYS) : 0;
    o.results |= o.results == 0 ? ATTN_WANT(OUTPUT) : 0;
    const attn_upstream upstream = {.output = &rows[3]};
    if (rng_chance(rng, 3)) {
        o.upstream = &upstream;
        o.results |= ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) |
                     (o.decay != NULL ? ATTN_WANT(GRAD_DECAY) : 0) |
                     (call.beta != NULL ? ATTN_WANT(GRAD_BETA) : 0);
    }
    describe(c, call.beta == NULL ? "linear" : "delta", &s, &o);
    const size_t used = strlen(c->text);
    snprintf(c->text + used, sizeof c->text - used, "%s%s",
             o.decay == NULL ? ""
             : by_column     ? " +decay by column"
                             : " +decay",
             o.upstream == NULL ? "" : " +gradients");
    const double start = task_now();
    const attn_status status = attn_plan_linear(&c->plan, &call, &o, NULL);
    c->plan_seconds = task_now() - start;
    return status == ATTN_OK;
}

static bool draw_softmax(struct rng *rng, struct call *c) {
    attn_tensor x = {.dtype = rng_chance(rng, 3) ? ATTN_FLOAT64 : ATTN_FLOAT32};
    double left = 1 << 24;
    int used;
    x.rank = (int)rng_between(rng, 1, 4);
    for (int i = 0; i < x.rank; i++) {
        x.shape[i] = size_up_to(rng, i == x.rank - 1 && rng_chance(rng, 2) ? left : sqrt(left));
        left /= (double)x.shape[i];
    }
    const int axis = (int)rng_between(rng, 0, (size_t)x.rank - 1);
    x.data = numbers(rng, x.dtype, 1 << 24, false);
    used = snprintf(c->text, sizeof c->text, "softmax %s axis %d of",
                    x.dtype == ATTN_FLOAT32 ? "f32" : "f64", axis);
    for (int i = 0; i < x.rank; i++) {
        used += snprintf(c->text + used, sizeof c->text - (size_t)used, " %zu", x.shape[i]);
    }
    const double start = task_now();
    const attn_status status = attn_plan_softmax(&c->plan, &x, axis, NULL);
    c->plan_seconds = task_now() - start;
    return status == ATTN_OK;
}

static bool draw_draw(struct rng *rng, struct call *c) {
    c->draw.distribution = (attn_distribution)rng_between(rng, 0, 2);
    c->draw.dtype = ATTN_FLOAT64;
    c->draw.b = 10;
    c->draw.count = size_up_to(rng, 1 << 22);
    const bool torch = rng_chance(rng, 2);
    c->draw.dtype = torch && rng_chance(rng, 2) ? ATTN_FLOAT32 : ATTN_FLOAT64;
    snprintf(c->text, sizeof c->text, "draw %d of %zu, generator %d", (int)c->draw.distribution,
             c->draw.count, torch);
    return attn_random_create(&c->random, torch ? ATTN_TORCH : ATTN_NUMPY, 1, NULL) == ATTN_OK;
}

static bool draw_call(struct call *c, uint64_t seed) {
    struct rng rng = {seed * 1000003 + c->index * 7919 + 1};
    for (int i = 0; i < 4; i++) {
        rng_bits(&rng);
    }
    switch (rng_between(&rng, 0, 11)) {
    case 0:
    case 1:
    case 2:
        return draw_multihead(&rng, c);
    case 3:
        return draw_softmax(&rng, c);
    case 10:
    case 11:
        return draw_linear(&rng, c);
    case 4:
        return rng_chance(&rng, 4) ? draw_draw(&rng, c) : draw_attention(&rng, c);
    default:
        return draw_attention(&rng, c);
    }
}

/* -------------------------------------------------------------------------------------- running */

static void note_seconds(struct call *c, double seconds, const char *what) {
    if (seconds > c->longest) {
        c->longest = seconds;
        c->longest_what = what;
    }
}

/* Binds all results to fresh memory and returns it, or NULL if the results are too large. */
static void *bind_all(attn_plan *plan) {
    size_t results, all;
    if (!attn_plan_results_bytes(plan, &results) || !attn_plan_bytes(plan, 0, &all) ||
        results > RESULT_BYTES || all - results > 4 * (size_t)RESULT_BYTES) {
        return NULL;
    }
    void *block = aligned_alloc(ATTN_ALIGNMENT, results + ATTN_ALIGNMENT);
    if (block != NULL) {
        attn_plan_bind_all(plan, block);
    }
    return block;
}

/* Those of linear attention have no names of their own. */
static const char *const phases[] = {"narrow", "project", "prepare", "pack", "attend",
                                     "merge",  "weigh",   "rank",    "out",  "gradients"};

static void run_plan(struct call *c, bool verbose) {
    attn_error error = {0};
    attn_status status;
    const size_t units = attn_plan_scratch(c->plan) / ATTN_ALIGNMENT + 1;
    void *scratch = aligned_alloc(ATTN_ALIGNMENT, units * ATTN_ALIGNMENT);
    short_call = c->cost < 1e7;
    const double cpu = cpu_now();
    double before = task_now(), after;
    note_seconds(c, c->plan_seconds, "plan");
    status = attn_plan_begin(c->plan, &error);
    note_seconds(c, task_now() - before, "begin");
    for (size_t phase = 0; phase < attn_plan_phases(c->plan); phase++) {
        const double begun = task_now();
        const size_t tasks = attn_plan_tasks(c->plan, phase);
        before = begun;
        for (size_t task = 0; task < tasks && status == ATTN_OK; task++) {
            status = attn_plan_task(c->plan, phase, task, scratch, &error);
            after = task_now();
            note_seconds(c, after - before, phases[phase > 9 ? 9 : phase]);
            before = after;
        }
        if (verbose && tasks > 0) {
            printf("  %-8s %8zu tasks %10.3f ms\n", phases[phase > 9 ? 9 : phase], tasks,
                   (before - begun) * 1e3);
        }
    }
    if (status == ATTN_OK) {
        before = task_now();
        status = attn_plan_end(c->plan, &error);
        note_seconds(c, task_now() - before, "end");
    }
    /* The time of a call that failed is not compared with its cost. */
    c->seconds = status == ATTN_OK ? c->plan_seconds + cpu_now() - cpu : 0;
    if (verbose) {
        printf("  plan %.3f ms, cost %.3g, %s\n", c->plan_seconds * 1e3, c->cost, error.message);
    }
    free(scratch);
}

static void run_draw(struct call *c) {
    double *data = malloc(c->draw.count * sizeof *data);
    for (size_t first = 0; first < c->draw.count; first += ATTN_DRAW_PIECE) {
        const size_t left = c->draw.count - first,
                     some = left < ATTN_DRAW_PIECE ? left : ATTN_DRAW_PIECE;
        const double start = task_now();
        attn_random_fill(c->random, &c->draw, first, some, ATTN_FLOAT64, data);
        note_seconds(c, task_now() - start, "draw");
    }
    free(data);
}

/* Draws and runs one call. Returns false if it is too large or refused. */
static bool try_once(struct call *c, size_t index, uint64_t seed, bool verbose) {
    *c = (struct call){.index = index};
    short_call = false;
    bool done = draw_call(c, seed);
    void *block = NULL;
    if (done && c->plan != NULL) {
        c->cost = attn_plan_cost(c->plan);
        done = c->cost <= MOST_SECONDS * RATE * 1e9;
        block = done ? bind_all(c->plan) : NULL;
        done = block != NULL;
    }
    if (done && verbose) {
        printf("%zu: %s\n", index, c->text);
    }
    if (done && c->plan != NULL) {
        run_plan(c, verbose);
    } else if (done) {
        run_draw(c);
    }
    free(block);
    attn_plan_free(c->plan);
    attn_random_free(c->random);
    return done;
}

/* Draws one call and runs it several times. The shortest times count, because delays by other work
 * are no cost of the call. Returns false if the call is too large or refused. */
static bool try_call(struct call *c, size_t index, uint64_t seed, bool verbose) {
    struct call again;
    bool done = try_once(c, index, seed, verbose);
    double all = c->seconds;
    for (int run = 1; done && run < 6 && (run < 2 || all < 5e-3 || c->longest > 5e-3); run++) {
        done = try_once(&again, index, seed, verbose);
        all += again.seconds;
        again.longest = again.longest < c->longest ? again.longest : c->longest;
        *c = again.seconds < c->seconds ? again : *c;
        c->longest = again.longest;
    }
    return done;
}

static double ratio_of(const struct call *c) {
    return c->seconds * 1e9 * RATE / c->cost;
}

/* --------------------------------------------------------------------------------------- result */

static int by_longest(const void *a, const void *b) {
    const double x = ((const struct call *)a)->longest, y = ((const struct call *)b)->longest;
    return (x < y) - (x > y);
}

static int by_ratio(const void *a, const void *b) {
    const double x = ratio_of(a), y = ratio_of(b);
    return (x < y) - (x > y);
}

static void print_call(const struct call *c) {
    printf("  longest %8.3f ms (%s)  total %9.3f ms  ratio %6.2f  cost %.3g  call %zu: %s\n",
           c->longest * 1e3, c->longest_what, c->seconds * 1e3, c->cost > 0 ? ratio_of(c) : 0,
           c->cost, c->index, c->text);
}

static void print_report(struct call *calls, size_t count) {
    size_t timed = 0;
    qsort(calls, count, sizeof *calls, by_longest);
    printf("longest task: %.3f ms\n", calls[0].longest * 1e3);
    for (size_t i = 0; i < count && i < WORST; i++) {
        print_call(&calls[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (calls[i].seconds > 0 && calls[i].cost > 0) { /* the call has a cost and did not fail */
            calls[timed++] = calls[i];
        }
    }
    qsort(calls, timed, sizeof *calls, by_ratio);
    printf("real to estimated cost: median %.2f, worst %.2f, least %.2f, of %zu calls\n",
           ratio_of(&calls[timed / 2]), ratio_of(&calls[0]), ratio_of(&calls[timed - 1]), timed);
    for (size_t i = 0; i < timed && i < WORST; i++) {
        print_call(&calls[i]);
    }
    printf("least:\n");
    for (size_t i = timed < WORST ? 0 : timed - WORST; i < timed; i++) {
        print_call(&calls[i]);
    }
}

static void make_inputs(void) {
    struct rng rng = {1};
    for (int large = 0; large < 2; large++) {
        narrow[large] = malloc(NUMBERS * sizeof(float));
        wide[large] = malloc(NUMBERS * sizeof(double));
    }
    for (int betas = 0; betas < 2; betas++) {
        narrow_gates[betas] = malloc(GATES * sizeof(float));
        wide_gates[betas] = malloc(GATES * sizeof(double));
        for (size_t i = 0; i < GATES; i++) {
            wide_gates[betas][i] = betas ? rng_uniform(&rng) : -0.1 * rng_uniform(&rng);
            narrow_gates[betas][i] = (float)wide_gates[betas][i];
        }
    }
    bytes = malloc(NUMBERS);
    if (wide[1] == NULL || bytes == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        const double x = 2 * rng_uniform(&rng) - 1;
        narrow[0][i] = (float)x;
        wide[0][i] = x;
        narrow[1][i] = (float)(x * 1e5);
        wide[1][i] = x * 1e10;
        bytes[i] = x < 0.5;
    }
}

int main(int argc, char *argv[]) {
    blas_report();
    const size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 3000;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    make_inputs();
    attn_blas_set_threads(1);
    if (argc > 3) {
        struct call c;
        if (try_call(&c, strtoul(argv[3], NULL, 10), seed, true)) {
            print_call(&c);
        }
        return 0;
    }
    struct call *calls = calloc(count, sizeof *calls);
    size_t made = 0;
    for (size_t i = 0; made < count; i++) {
        made += try_call(&calls[made], i, seed, false) ? 1 : 0;
    }
    printf("%zu random calls, seed %llu\n", count, (unsigned long long)seed);
    print_report(calls, count);
    free(calls);
    return 0;
}
