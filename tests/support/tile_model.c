/* tile_model.c implements tile_model.h. */
#include "support/tile_model.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    REGISTERS = 8,
    MOST_ROWS = 16,
    MOST_BYTES = 64
};

struct tile {
    size_t rows, bytes;
    uint8_t data[MOST_ROWS][MOST_BYTES];
};

static _Thread_local struct tile registers[REGISTERS];
static _Thread_local bool configured;

/* ------------------------------------------------------------------------------- instructions */

bool tile_model_configure(const uint8_t config[64]) {
    if (config[0] != 1 || config[1] != 0) { /* palette 0 releases the tiles; no instruction here */
        return false;                       /* is ever restarted in the middle */
    }
    for (size_t i = 2; i < 16; i++) {
        if (config[i] != 0) {
            return false;
        }
    }
    for (size_t t = 0; t < 16; t++) {
        const size_t rows = config[48 + t], bytes = config[16 + 2 * t] + 256U * config[17 + 2 * t];
        const bool unused = rows == 0 && bytes == 0;
        if (t < REGISTERS
                ? !unused && (rows == 0 || rows > MOST_ROWS || bytes == 0 || bytes > MOST_BYTES)
                : !unused) {
            return false;
        }
    }
    for (size_t t = 0; t < REGISTERS; t++) {
        memset(&registers[t], 0, sizeof registers[t]);
        registers[t].rows = config[48 + t];
        registers[t].bytes = config[16 + 2 * t];
    }
    configured = true;
    return true;
}

void tile_model_release(void) {
    memset(registers, 0, sizeof registers);
    configured = false;
}

static struct tile *used_tile(int t) {
    assert(configured && t >= 0 && t < REGISTERS && registers[t].rows > 0);
    return &registers[t];
}

void tile_model_zero(int t) {
    memset(used_tile(t)->data, 0, sizeof registers[t].data);
}

void tile_model_load(int t, const void *from, size_t stride) {
    struct tile *tile = used_tile(t);
    memset(tile->data, 0, sizeof tile->data);
    for (size_t r = 0; r < tile->rows; r++) {
        memcpy(tile->data[r], (const char *)from + r * stride, tile->bytes);
    }
}

void tile_model_store(int t, void *to, size_t stride) {
    const struct tile *tile = used_tile(t);
    for (size_t r = 0; r < tile->rows; r++) {
        memcpy((char *)to + r * stride, tile->data[r], tile->bytes);
    }
}

/* Denormal numbers count as zeros of their sign (DAZ). */
static float without_denormal(float x) {
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* Returns a b + c rounded once, to nearest even, where none of the three is denormal. A result that
 * is tiny after rounding, as if the exponent had no limit, becomes zero (FTZ). */
static inline float flushed_fma(float a, float b, float c) {
    const float sum = fmaf(a, b, c);
    if (!(fabsf(sum) <= FLT_MIN)) {
        return sum;
    }
    if (fabsf(sum) == FLT_MIN) {
        /* fmaf may have rounded up what is tiny with 24 bits. */
        const double exact = fma((double)a, (double)b, (double)c);
        return fabs(exact) < 0x1p-126 - 0x1p-151 ? copysignf(0, sum) : sum;
    }
    return copysignf(0, sum);
}

static float widened_part(const uint8_t *bytes) {
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Widens all parts of a tile at once, because each of them is multiplied up to 16 times. What lies
 * outside of its shape is 0. */
static void widen_tile(const struct tile *tile, float to[MOST_ROWS][MOST_BYTES / 2]) {
    for (size_t r = 0; r < MOST_ROWS; r++) {
        for (size_t i = 0; i < MOST_BYTES / 2; i++) {
            to[r][i] = without_denormal(widened_part(&tile->data[r][2 * i]));
        }
    }
}

void tile_model_dot(int c, int a, int b) {
    struct tile *sum = used_tile(c);
    const struct tile *left = used_tile(a), *right = used_tile(b);
    float x[MOST_ROWS][MOST_BYTES / 2], y[MOST_ROWS][MOST_BYTES / 2];
    assert(c != a && c != b && a != b && sum->bytes % 4 == 0 && left->bytes % 4 == 0);
    assert(right->bytes % 4 == 0 && sum->rows == left->rows && sum->bytes == right->bytes);
    assert(left->bytes / 4 == right->rows);
    widen_tile(left, x);
    widen_tile(right, y);
    for (size_t m = 0; m < sum->rows; m++) {
        for (size_t n = 0; n < sum->bytes / 4; n++) {
            float even = 0, odd = 0, total;
            for (size_t k = 0; k < left->bytes / 4; k++) {
                even = flushed_fma(x[m][2 * k], y[k][2 * n], even);
                odd = flushed_fma(x[m][2 * k + 1], y[k][2 * n + 1], odd);
            }
            memcpy(&total, &sum->data[m][4 * n], sizeof total);
            total = flushed_fma(1, flushed_fma(1, even, odd), without_denormal(total));
            memcpy(&sum->data[m][4 * n], &total, sizeof total);
        }
    }
}

uint16_t tile_model_round(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (fabsf(x) < FLT_MIN) {
        return (uint16_t)(bits >> 16 & 0x8000);
    }
    if (isnan(x)) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    if (isfinite(x)) {
        bits += 0x7fff + (bits >> 16 & 1);
    }
    return (uint16_t)(bits >> 16);
}

/* ------------------------------------------------------------------------ vectors of 16 floats */

struct lanes {
    float f[16];
};

#define EACH for (int i = 0; i < 16; i++)

static inline struct lanes lanes_set(float x) {
    struct lanes y;
    EACH y.f[i] = x;
    return y;
}

static inline struct lanes lanes_load(const float *x, size_t n, float fill) {
    struct lanes y;
    EACH y.f[i] = (size_t)i < n ? x[i] : fill;
    return y;
}

#define BINARY(name, expression)                                                                   \
    static inline struct lanes name(struct lanes a, struct lanes b) {                              \
        EACH a.f[i] = expression;                                                                  \
        return a;                                                                                  \
    }
BINARY(lanes_add, a.f[i] + b.f[i])
BINARY(lanes_sub, a.f[i] - b.f[i])
BINARY(lanes_mul, a.f[i] * b.f[i])
BINARY(lanes_max, a.f[i] > b.f[i] ? a.f[i] : b.f[i])

static inline struct lanes lanes_fma(struct lanes a, struct lanes b, struct lanes c) {
    EACH a.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return a;
}

/* Returns p 2^n. Where n is far outside of the range of a float, so is the result. */
static inline struct lanes lanes_exp2(struct lanes p, struct lanes n, struct lanes x, float least) {
    EACH n.f[i] = n.f[i] > 300 ? 300 : n.f[i] < -300 ? -300 : n.f[i];
    EACH p.f[i] = x.f[i] < least ? 0 : isnan(n.f[i]) ? n.f[i] : ldexpf(p.f[i], (int)n.f[i]);
    return p;
}

/* Sums have the order of the folds in avx512.c. */
static inline float lanes_sum(struct lanes v) {
    float q[4];
    for (size_t i = 0; i < 4; i++) {
        const float *x = v.f + 4 * i;
        q[i] = (x[0] + x[2]) + (x[1] + x[3]);
    }
    return (q[0] + q[1]) + (q[2] + q[3]);
}

static inline float lanes_largest(struct lanes v) {
    float max = -INFINITY;
    EACH max = v.f[i] > max ? v.f[i] : max;
    return max;
}

static inline struct lanes lanes_fold(const struct lanes v[16], float (*fold)(struct lanes)) {
    struct lanes y;
    EACH y.f[i] = fold(v[i]);
    return y;
}

/* -------------------------------------------------------------------------- vectors of 32 parts */

struct parts {
    uint16_t p[32];
};

static inline struct parts parts_load(const uint16_t *from) {
    struct parts w;
    memcpy(&w, from, sizeof w);
    return w;
}

static inline void parts_store(uint16_t *to, struct parts w) {
    memcpy(to, &w, sizeof w);
}

/* The third part needs no rounding: it is the upper half of what is left. */
static void parts_split(struct lanes lo, struct lanes hi, struct parts parts[3]) {
    for (size_t i = 0; i < 32; i++) {
        float x = i % 2 == 0 ? lo.f[i / 2] : hi.f[i / 2];
        uint32_t rest;
        for (size_t t = 0; t < 2; t++) {
            parts[t].p[i] = tile_model_round(x);
            x -= widened_part((const uint8_t *)&parts[t].p[i]);
        }
        memcpy(&rest, &x, sizeof rest);
        parts[2].p[i] = (uint16_t)(rest >> 16);
    }
}

static struct parts parts_interleave(struct parts w) {
    struct parts y;
    for (size_t i = 0; i < 32; i++) {
        y.p[i] = w.p[i / 2 + i % 2 * 16];
    }
    return y;
}

static struct parts parts_separate(struct parts w) {
    struct parts y;
    for (size_t i = 0; i < 32; i++) {
        y.p[i] = w.p[i % 16 * 2 + i / 16];
    }
    return y;
}

static void parts_transpose(struct parts w[16]) {
    struct parts y[16];
    for (size_t i = 0; i < 16 * 32; i++) {
        y[i / 32].p[i % 32] = w[i % 32 / 2].p[i / 32 * 2 + i % 2];
    }
    memcpy(w, y, sizeof y);
}

/* --------------------------------------------------------------------------------- the kernels */

static void configure_model(const void *config) {
    const bool valid = tile_model_configure(config);
    assert(valid);
    (void)valid;
}

#define TILES                    tile_model
#define TILE_CONFIG(c)           configure_model(c)
#define TILE_BARRIER()           (void)0
#define TILE_ZERO(t)             tile_model_zero(t)
#define TILE_LOAD(t, p, stride)  tile_model_load(t, p, stride)
#define TILE_STORE(t, p, stride) tile_model_store(t, p, stride)
#define TILE_DOT(c, a, b)        tile_model_dot(c, a, b)
#define TILE_RELEASE()           tile_model_release()
#define W                        struct parts
#define LOAD_PARTS(p)            parts_load(p)
#define STORE_PARTS(p, w)        parts_store(p, w)
#define SPLIT(lo, hi, parts)     parts_split(lo, hi, parts)
#define INTERLEAVE(w)            parts_interleave(w)
#define SEPARATE(w)              parts_separate(w)
#define TRANSPOSE_PAIRS(w)       parts_transpose(w)

#define real                     float
#define REAL_IS_FLOAT            1
#define ROW(name)                name##_f32
#define V                        struct lanes
#define LANES                    16
#define SET(c)                   lanes_set(c)
#define LOAD(p)                  lanes_load(p, 16, 0)
#define STORE(p, v)              memcpy(p, (v).f, sizeof(v).f)
#define ADD(a, b)                lanes_add(a, b)
#define SUB(a, b)                lanes_sub(a, b)
#define MUL(a, b)                lanes_mul(a, b)
#define MAX(a, b)                lanes_max(a, b)
#define FMA(a, b, c)             lanes_fma(a, b, c)
#define FNMA(a, b, c)            lanes_fma(lanes_mul(lanes_set(-1), a), b, c)
#define REDUCE_ADD(v)            lanes_sum(v)
#define REDUCE_MAX(v)            lanes_largest(v)
#define FOLD_ADD(v)              lanes_fold(v, lanes_sum)
#define FOLD_MAX(v)              lanes_fold(v, lanes_largest)
#define CLAMP(x)                 (x)
#define EXP2(p, n, x)            lanes_exp2(p, n, x, EXP_MIN)
#define LOAD_PART(p, n, fill)    lanes_load(p, n, fill)
#define STORE_PART(p, v, n)      memcpy(p, (v).f, (n) * sizeof(float))
/* Only some of the row kernels are used here. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "kernels/vector.inc"
