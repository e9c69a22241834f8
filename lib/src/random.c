/*
 * random.c makes seeded draws: the numbers of NumPy's legacy RandomState and of PyTorch's generator
 * for the CPU. Both use the Mersenne Twister (Matsumoto & Nishimura 1998, seeded as in their
 * version of 2002). This file knows nothing of shapes: a draw is a number of elements.
 *
 * How each program makes numbers of the twister's words was read in NumPy 2.4
 * (legacy-distributions.c, distributions.c, mt19937.h) and PyTorch 2.15 (DistributionTemplates.h,
 * DistributionsHelper.h, TransformationHelper.h). Comparing bits showed where their compilers add a
 * product without rounding it first; fma() and fused() are used in these places and nowhere else.
 * log, log1p, sin and cos of doubles come from the C library, as in both programs.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/tensor.h"

/* PyTorch makes sixteen normals of eight pairs of uniforms at a time. Values 0 to 7 of such a group
 * are the first numbers of the pairs, and values 8 to 15 are the second ones. */
enum {
    WORDS = 624, /* words of the twister's state */
    FAR = 397,   /* distance of the words that the twister combines */
    LANES = 8,
    GROUP = 2 * LANES,
    BLOCK = 32 * GROUP, /* values that are made before they go into the caller's buffer */
};
static_assert(ATTN_DRAW_PIECE % BLOCK == 0, "a piece consists of whole groups");

static const double TWO_PI = 6.283185307179586;

struct attn_random {
    attn_generator generator;
    bool has_spare; /* normals are made in pairs, and the second one is kept for the next call */
    double spare;
    size_t used; /* how many of `words` were used */
    uint32_t state[WORDS], words[WORDS];
};

/* ------------------------------------------------------------------------------------- twister */

static void seed_state(uint32_t state[WORDS], uint32_t seed) {
    state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        state[i] = UINT32_C(1812433253) * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
}

static inline uint32_t twist(uint32_t here, uint32_t next, uint32_t far) {
    const uint32_t y = (here & UINT32_C(0x80000000)) | (next & UINT32_C(0x7fffffff));
    return far ^ (y >> 1) ^ ((0u - (y & 1u)) & UINT32_C(0x9908b0df));
}

/* Makes the next WORDS words. The index needs no remainder in any of the three loops, so compilers
 * make vector code of them. */
static void next_words(struct attn_random *random) {
    uint32_t *s = random->state;
    for (size_t i = 0; i < WORDS - FAR; i++) {
        s[i] = twist(s[i], s[i + 1], s[i + FAR]);
    }
    for (size_t i = WORDS - FAR; i < WORDS - 1; i++) {
        s[i] = twist(s[i], s[i + 1], s[i - (WORDS - FAR)]);
    }
    s[WORDS - 1] = twist(s[WORDS - 1], s[0], s[FAR - 1]);
    for (size_t i = 0; i < WORDS; i++) {
        uint32_t y = s[i];
        y ^= y >> 11;
        y ^= (y << 7) & UINT32_C(0x9d2c5680);
        y ^= (y << 15) & UINT32_C(0xefc60000);
        random->words[i] = y ^ (y >> 18);
    }
    random->used = 0;
}

static inline uint32_t next32(struct attn_random *random) {
    if (random->used == WORDS) {
        next_words(random);
    }
    return random->words[random->used++];
}

static inline uint64_t next64(struct attn_random *random) {
    const uint64_t high = next32(random);
    return high << 32 | next32(random);
}

/* --------------------------------------------------------------------------------------- NumPy */

/* Returns 53 bits of two words, as a number in [0, 1). */
static inline double numpy_unit(struct attn_random *random) {
    const double high = next32(random) >> 5, low = next32(random) >> 6;
    return (high * 0x1p26 + low) * 0x1p-53;
}

/* A word is masked to the bits of the largest offset, and it is dropped if it still exceeds that
 * offset. The loop stores every word and lets the next one overwrite a dropped one, because a
 * branch could not be predicted. A range of one number uses no word. */
static void numpy_integers(struct attn_random *random, const attn_draw *draw, double *values,
                           size_t count) {
    const int64_t low = (int64_t)draw->a;
    const uint64_t largest = (uint64_t)((int64_t)draw->b - low) - 1;
    uint64_t mask = largest;
    for (unsigned shift = 1; shift < 64; shift *= 2) {
        mask |= mask >> shift;
    }
    for (size_t i = 0; i < count;) {
        const uint64_t word = largest == 0            ? 0
                              : largest <= UINT32_MAX ? next32(random)
                                                      : next64(random);
        values[i] = (double)(low + (int64_t)(word & mask));
        i += (word & mask) <= largest;
    }
}

static void numpy_uniforms(struct attn_random *random, const attn_draw *draw, double *values,
                           size_t count) {
    const double low = draw->a, range = draw->b - draw->a;
    for (size_t i = 0; i < count; i++) {
        values[i] = low + range * numpy_unit(random);
    }
}

/* The polar method (Marsaglia & Bray 1964). NumPy returns the second coordinate of a pair first. */
static double numpy_gauss(struct attn_random *random) {
    if (random->has_spare) {
        random->has_spare = false;
        return random->spare;
    }
    double x, y, square;
    do {
        x = 2.0 * numpy_unit(random) - 1.0;
        y = 2.0 * numpy_unit(random) - 1.0;
        square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    const double factor = sqrt(-2.0 * log(square) / square);
    random->spare = factor * x;
    random->has_spare = true;
    return factor * y;
}

static void numpy_normals(struct attn_random *random, const attn_draw *draw, double *values,
                          size_t count) {
    for (size_t i = 0; i < count; i++) {
        values[i] = draw->a + draw->b * numpy_gauss(random);
    }
}

/* ------------------------------------------------------------------------------------- PyTorch */

/*
 * Returns fmaf(a, b, c), but faster: fmaf() takes ten times as long if the compiler may not use FMA
 * instructions, and a hundred times on a CPU without them. The product of two floats is exact in
 * double. The sum is rounded to double and then to float. Rounding twice gives the same float as
 * rounding once, unless the double lies halfway between two floats or the result is subnormal;
 * fmaf() decides these cases.
 */
static inline float fused(float a, float b, float c) {
    const double sum = (double)a * (double)b + (double)c;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    const bool halfway = (bits & UINT64_C(0x1fffffff)) == UINT64_C(0x10000000);
    return halfway || fabs(sum) < (double)FLT_MIN ? fmaf(a, b, c) : (float)sum;
}

/* A uniform number in [0, 1) is made of as many low bits of a word as the type has. */
static inline float torch_unit_f32(struct attn_random *random) {
    return (float)(next32(random) & UINT32_C(0xffffff)) * 0x1p-24f;
}

static inline double torch_unit_f64(struct attn_random *random) {
    return (double)(next64(random) & UINT64_C(0x1fffffffffffff)) * 0x1p-53;
}

/* Ranges from 2^28 on use two words. PyTorch up to 2.6 used one word for every range below 2^32
 * (PyTorch issue 148175). */
static void torch_integers(struct attn_random *random, const attn_draw *draw, double *values,
                           size_t count) {
    const int64_t low = (int64_t)draw->a;
    const uint64_t range = (uint64_t)((int64_t)draw->b - low);
    for (size_t i = 0; i < count; i++) {
        const uint64_t word = range >= UINT64_C(1) << 28 ? next64(random) : next32(random);
        values[i] = (double)(low + (int64_t)(word % range));
    }
}

/* A value that was rounded up to `high`, which is excluded, becomes `low`. */
static void torch_uniforms(struct attn_random *random, const attn_draw *draw, double *values,
                           size_t count) {
    if (draw->dtype == ATTN_FLOAT32) {
        const float low = (float)draw->a, high = (float)draw->b;
        for (size_t i = 0; i < count; i++) {
            const float value = fused(torch_unit_f32(random), high - low, low);
            values[i] = (double)(value == high ? low : value);
        }
    } else {
        const double low = draw->a, high = draw->b;
        for (size_t i = 0; i < count; i++) {
            const double value = fma(torch_unit_f64(random), high - low, low);
            values[i] = value == high ? low : value;
        }
    }
}

/* Makes the normals of a tensor that is smaller than a group, one value after another and in double
 * for both types (Box & Muller 1958). */
static void torch_few_normals(struct attn_random *random, const attn_draw *draw, double *values,
                              size_t count) {
    const bool float32 = draw->dtype == ATTN_FLOAT32;
    for (size_t i = 0; i < count; i++) {
        double normal = random->spare;
        if (!random->has_spare) {
            const double u = torch_unit_f64(random), v = torch_unit_f64(random);
            const double radius = sqrt(-2.0 * log1p(-v)), angle = TWO_PI * u;
            random->spare = radius * sin(angle);
            normal = radius * cos(angle);
        }
        random->has_spare = !random->has_spare;
        normal = fma(normal, draw->b, draw->a);
        values[i] = float32 ? (double)(float)normal : normal;
    }
}

static inline float horner(const float *c, size_t count, float x) {
    float y = c[0];
    for (size_t i = 1; i < count; i++) {
        y = fused(y, x, c[i]);
    }
    return y;
}

/*
 * log for 2^-24 <= x <= 1, and sin and cos for 0 <= x <= 2 pi, as in Cephes (Moshier 1992,
 * single/logf.c and sinf.c). PyTorch uses these functions in vectors on CPUs with AVX2, and its
 * compiler fused products into sums there. On other CPUs PyTorch calls the C library, and the last
 * bits of its numbers differ.
 */
static inline float cephes_log(float x) {
    static const float p[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                              -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                              2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 23) - 126;
    bits = (bits & UINT32_C(0x007fffff)) | UINT32_C(0x3f000000);
    memcpy(&x, &bits, sizeof x); /* in [1/2, 1) */
    const bool low = x < 0.707106781186547524f;
    const float e = (float)(exponent - low);
    x = (low ? x + x : x) - 1.0f; /* exact */
    const float square = x * x;
    float y = horner(p, sizeof p / sizeof *p, x) * x;
    y = fused(y, square, e * -2.12194440e-4f); /* ln 2 is added in two parts */
    y -= 0.5f * square;
    return x + y + e * 0.693359375f;
}

static inline void cephes_sincos(float x, float *sine, float *cosine) {
    static const float s[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
    static const float c[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};
    const int octant = ((int)(x * 1.27323954473516f) + 1) & ~1;
    const float y = (float)octant;
    x = x - y * 0.78515625f; /* pi/4 is subtracted in three parts */
    x = x - y * 2.4187564849853515625e-4f;
    x = fused(y, -3.77489497744594108e-8f, x);
    const float square = x * x;
    const float of_cosine =
        fused(horner(c, sizeof c / sizeof *c, square) * square, square, -0.5f * square) + 1.0f;
    const float of_sine = fused(horner(s, sizeof s / sizeof *s, square) * square, x, x);
    const bool swapped = (octant & 2) != 0;
    const float first = swapped ? of_cosine : of_sine, second = swapped ? of_sine : of_cosine;
    *sine = (octant & 4) != 0 ? -first : first;
    *cosine = ((octant - 2) & 4) == 0 ? -second : second;
}

/* Turns the uniforms of a group, which are exact floats, into normals. */
static void torch_group_f32(double values[GROUP], float mean, float std) {
    for (size_t j = 0; j < LANES; j++) {
        float sine, cosine;
        const float u = 1.0f - (float)values[j], v = (float)values[LANES + j];
        const float radius = sqrtf(-2.0f * cephes_log(u));
        cephes_sincos((float)TWO_PI * v, &sine, &cosine);
        values[j] = (double)fused(radius * cosine, std, mean);
        values[LANES + j] = (double)fused(radius * sine, std, mean);
    }
}

static void torch_group_f64(double values[GROUP], double mean, double std) {
    for (size_t j = 0; j < LANES; j++) {
        const double radius = sqrt(-2.0 * log(1.0 - values[j]));
        const double angle = TWO_PI * values[LANES + j];
        values[j] = fma(radius * cos(angle), std, mean);
        values[LANES + j] = fma(radius * sin(angle), std, mean);
    }
}

/* Fills `values` with uniforms and then turns whole groups into normals in place. The values after
 * the last whole group stay uniform; attn_random_fill() overwrites them with the last group. */
static void torch_normals(struct attn_random *random, const attn_draw *draw, double *values,
                          size_t count) {
    const bool float32 = draw->dtype == ATTN_FLOAT32;
    for (size_t i = 0; i < count; i++) {
        values[i] = float32 ? (double)torch_unit_f32(random) : torch_unit_f64(random);
    }
    for (size_t i = 0; i + GROUP <= count; i += GROUP) {
        if (float32) {
            torch_group_f32(values + i, (float)draw->a, (float)draw->b);
        } else {
            torch_group_f64(values + i, draw->a, draw->b);
        }
    }
}

/* --------------------------------------------------------------------------------------- draws */

static void draw_values(struct attn_random *random, const attn_draw *draw, double *values,
                        size_t count) {
    const bool torch = random->generator == ATTN_TORCH;
    switch (draw->distribution) {
    case ATTN_RANDINT:
        (torch ? torch_integers : numpy_integers)(random, draw, values, count);
        break;
    case ATTN_UNIFORM:
        (torch ? torch_uniforms : numpy_uniforms)(random, draw, values, count);
        break;
    case ATTN_NORMAL:
        (!torch                ? numpy_normals
         : draw->count < GROUP ? torch_few_normals
                               : torch_normals)(random, draw, values, count);
        break;
    }
}

static void store(const double *values, size_t count, attn_dtype dtype, void *data, size_t at) {
    if (data == NULL) {
        return;
    }
    if (dtype == ATTN_FLOAT32) {
        float *to = (float *)data + at;
        for (size_t i = 0; i < count; i++) {
            to[i] = (float)values[i];
        }
    } else {
        memcpy((double *)data + at, values, count * sizeof *values);
    }
}

void attn_random_fill(attn_random *random, const attn_draw *draw, size_t first, size_t count,
                      attn_dtype dtype, void *data) {
    assert(attn_random_check(random, draw, NULL) == ATTN_OK && dtype_is_float(dtype));
    assert(first <= draw->count && count <= draw->count - first && first % ATTN_DRAW_PIECE == 0);
    double values[BLOCK];
    size_t done = 0;
    while (done < count) {
        const size_t n = count - done < BLOCK ? count - done : BLOCK;
        draw_values(random, draw, values, n);
        store(values, n, dtype, data, first + done);
        done += n;
    }
    /* If a tensor does not consist of whole groups, PyTorch makes its last sixteen values anew, as
     * one group of fresh uniforms. */
    if (random->generator == ATTN_TORCH && draw->distribution == ATTN_NORMAL &&
        draw->count > GROUP && draw->count % GROUP != 0 && count > 0 &&
        first + count == draw->count) {
        torch_normals(random, draw, values, GROUP);
        store(values, GROUP, dtype, data, draw->count - GROUP);
    }
}

/* -------------------------------------------------------------------------------------- checks */

/* The largest size of a and b. No normal exceeds 13, because 53 bits allow no larger one, so no
 * draw overflows float32. */
#define FURTHEST 1e37

static attn_status check_number(const char *name, double x, bool whole, attn_error *error) {
    if (whole && !(fabs(x) <= 0x1p53 && x == floor(x))) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name,
                         "%s must be a whole number within -2^53 .. 2^53, not %.16g", name, x);
    }
    if (!whole && !(fabs(x) <= FURTHEST)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name,
                         "%s must be within -1e37 .. 1e37, not %.15g", name, x);
    }
    return ATTN_OK;
}

static attn_status check_parameters(const attn_draw *draw, attn_error *error) {
    const bool normal = draw->distribution == ATTN_NORMAL;
    const bool whole = draw->distribution == ATTN_RANDINT;
    ATTN_TRY(check_number(normal ? "mean" : "low", draw->a, whole, error));
    ATTN_TRY(check_number(normal ? "std" : "high", draw->b, whole, error));
    if (normal && draw->b < 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "std",
                         "std must not be negative, but it is %.15g", draw->b);
    }
    if (whole && draw->a >= draw->b) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "high",
                         "high must be greater than low: low is %.0f, high is %.0f", draw->a,
                         draw->b);
    }
    if (!normal && draw->a > draw->b) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "high",
                         "high must not be less than low: low is %.15g, high is %.15g", draw->a,
                         draw->b);
    }
    return ATTN_OK;
}

attn_status attn_random_check(const attn_random *random, const attn_draw *draw, attn_error *error) {
    if ((unsigned)draw->distribution > ATTN_NORMAL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "distribution",
                         "distribution must be randint, uniform or normal: 0 to 2, not %d",
                         (int)draw->distribution);
    }
    if (draw->distribution != ATTN_RANDINT) {
        if (random->generator == ATTN_NUMPY && draw->dtype != ATTN_FLOAT64) {
            return attn_fail(
                error, ATTN_INVALID_ARGUMENT, "dtype",
                "dtype must be float64, because NumPy's RandomState draws nothing else");
        }
        if (!dtype_is_float(draw->dtype)) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "dtype",
                             "dtype must be float32 or float64");
        }
    }
    return check_parameters(draw, error);
}

attn_status attn_random_create(attn_random **random, attn_generator generator, uint64_t seed,
                               attn_error *error) {
    *random = NULL;
    if (generator != ATTN_NUMPY && generator != ATTN_TORCH) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "generator",
                         "generator must be numpy or torch: 0 or 1, not %d", (int)generator);
    }
    if (generator == ATTN_NUMPY && seed > UINT32_MAX) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "seed",
                         "seed must be at most 2^32 - 1 with numpy, not %llu",
                         (unsigned long long)seed);
    }
    attn_random *made = malloc(sizeof *made);
    if (made == NULL) {
        return attn_fail(error, ATTN_NO_MEMORY, "", "no memory for a generator");
    }
    made->generator = generator;
    made->has_spare = false;
    made->spare = 0;
    made->used = WORDS;
    seed_state(made->state, (uint32_t)seed); /* PyTorch also uses only the low 32 bits */
    *random = made;
    return ATTN_OK;
}

void attn_random_free(attn_random *random) {
    free(random);
}
