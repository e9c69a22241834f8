/*
 * draw.c - reads the generator of a request and the matrices that are to be drawn. The names of
 * distributions and parameters are the names of NumPy and PyTorch.
 */
#include "api/call/draw.h"

/* 2^53 - 1. A float64 that is a whole number up to this is exactly what the body says. 2^53 itself
 * may stand for 2^53 + 1, which float64 rounds to it. */
#define LARGEST INT64_C(9007199254740991)

bool draw_generator_read(const struct codec_document *document, const struct codec_value *value,
                         struct draw_generator *generator, struct codec_error *error) {
    static const char *const keys[] = {"generator", "seed"};
    static const char *const kinds[] = {[ATTN_NUMPY] = "numpy", [ATTN_TORCH] = "torch"};
    attn_error refused = {0};
    size_t kind;
    int64_t seed;
    if (!codec_check_keys(document, value, &(struct codec_keys){.names = keys, .count = 2},
                          error)) {
        return false;
    }
    for (size_t i = 0; i < 2; i++) {
        if (codec_get(value, keys[i]) == NULL) {
            return codec_fail(
                document, value, error,
                "random has no %s; an example is {\"generator\": \"numpy\", \"seed\": 42}",
                keys[i]);
        }
    }
    if (!codec_as_choice(document, codec_get(value, "generator"), kinds, 2, &kind, error)) {
        return false;
    }
    generator->kind = (attn_generator)kind;
    const bool narrow = generator->kind == ATTN_NUMPY; /* PyTorch takes -1 as 2^64 - 1 */
    if (!codec_as_integer(document, codec_get(value, "seed"), narrow ? 0 : -LARGEST,
                          narrow ? UINT32_MAX : LARGEST, &seed, error)) {
        return false;
    }
    if (attn_random_create(&generator->random, generator->kind, (uint64_t)seed, &refused) !=
        ATTN_OK) {
        return codec_no_memory(error); /* the seed and the generator are checked */
    }
    return true;
}

/* Returns the name of a matrix for a message. An element of a list has no name. */
static const char *matrix_name(const struct codec_value *value) {
    return codec_name(value) != NULL ? codec_name(value) : "a matrix";
}

bool draw_generator_check(const struct codec_document *document, const struct codec_value *value,
                          const struct draw_generator *generator, struct codec_error *error) {
    return generator->random != NULL ||
           codec_fail(document, value, error,
                      "%s is to be drawn, but the request has no \"random\": {\"generator\": "
                      "\"numpy\" or \"torch\", \"seed\": 42}",
                      matrix_name(value));
}

/* ----------------------------------------------------------------------------------- one matrix */

/* The parameters that a distribution has. */
enum {
    NONE,
    RANGE,  /* low and high */
    MOMENTS /* mean and std */
};

/* The values of "random" in a matrix, and the distribution of each. */
static const char *const names[] = {"randint", "rand",   "uniform",
                                    "randn",   "normal", "standard_normal"};
static const struct kind {
    attn_distribution distribution;
    int parameters;
} kinds[] = {{ATTN_RANDINT, RANGE}, {ATTN_UNIFORM, NONE},   {ATTN_UNIFORM, RANGE},
             {ATTN_NORMAL, NONE},   {ATTN_NORMAL, MOMENTS}, {ATTN_NORMAL, NONE}};

static bool read_parameter(const struct codec_document *document, const struct codec_value *value,
                           bool whole, double *out, struct codec_error *error) {
    int64_t integer;
    if (!whole) {
        return codec_as_number(document, value, out, error);
    }
    if (!codec_as_integer(document, value, -LARGEST, LARGEST, &integer, error)) {
        return false;
    }
    *out = (double)integer;
    return true;
}

static bool read_parameters(const struct codec_document *document, const struct codec_value *object,
                            size_t kind, attn_draw *draw, struct codec_error *error) {
    static const struct {
        const char *name;
        int of;
    } parameters[] = {{"low", RANGE}, {"high", RANGE}, {"mean", MOMENTS}, {"std", MOMENTS}};
    draw->b = 1;
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        const struct codec_value *value = codec_get(object, parameters[i].name);
        if (value == NULL) {
            continue;
        }
        if (parameters[i].of != kinds[kind].parameters) {
            return codec_fail(document, value, error, "%s has no %s; %s", names[kind],
                              parameters[i].name,
                              parameters[i].of == RANGE ? "randint and uniform have low and high"
                                                        : "normal has mean and std");
        }
        if (!read_parameter(document, value, draw->distribution == ATTN_RANDINT,
                            i % 2 == 0 ? &draw->a : &draw->b, error)) {
            return false;
        }
    }
    if (draw->distribution == ATTN_RANDINT && codec_get(object, "high") == NULL) {
        return codec_fail(document, object, error,
                          "%s has no high: randint draws whole numbers from low (0) to high - 1",
                          matrix_name(object));
    }
    return true;
}

static bool read_dtype(const struct codec_document *document, const struct codec_value *object,
                       attn_generator kind, attn_draw *draw, struct codec_error *error) {
    static const char *const dtypes[] = {[ATTN_FLOAT32] = "float32", [ATTN_FLOAT64] = "float64"};
    const struct codec_value *value = codec_get(object, "dtype");
    size_t dtype = kind == ATTN_NUMPY ? ATTN_FLOAT64 : ATTN_FLOAT32;
    if (value != NULL && !codec_as_choice(document, value, dtypes, 2, &dtype, error)) {
        return false;
    }
    draw->dtype = (attn_dtype)dtype;
    return true;
}

static bool read_shape(const struct codec_document *document, const struct codec_value *object,
                       struct draw *out, struct codec_error *error) {
    const struct codec_value *value = codec_get(object, "shape");
    int64_t sizes[ATTN_MAX_RANK];
    size_t rank;
    if (value == NULL) {
        return codec_fail(document, object, error, "%s has no shape", matrix_name(object));
    }
    if (!codec_as_integers(document, value, 0, LARGEST, sizes, ATTN_MAX_RANK, &rank, error)) {
        return false;
    }
    if (rank > ATTN_MAX_RANK) {
        return codec_fail(document, value, error, "shape has %zu axes; it may have at most %d",
                          rank, (int)ATTN_MAX_RANK);
    }
    out->rank = (int)rank;
    size_t count = 1; /* an empty axis counts as one element */
    for (size_t axis = 0; axis < rank; axis++) {
        out->shape[axis] = (size_t)sizes[axis];
        if (__builtin_mul_overflow(count, sizes[axis] > 0 ? out->shape[axis] : 1, &count)) {
            return codec_fail(document, value, error,
                              "shape has more elements than can be counted");
        }
    }
    out->draw.count = codec_count(out->rank, out->shape);
    return true;
}

/* Applies the rules of the library. Its arguments have the names of the keys of the object. */
static bool check_draw(const struct codec_document *document, const struct codec_value *object,
                       const struct draw_generator *generator, const attn_draw *draw,
                       struct codec_error *error) {
    attn_error refused = {0};
    if (attn_random_check(generator->random, draw, &refused) == ATTN_OK) {
        return true;
    }
    const struct codec_value *value = codec_get(object, refused.argument);
    return codec_fail(document, value != NULL ? value : object, error, "%s", refused.message);
}

bool draw_read(const struct codec_document *document, const struct codec_value *object,
               const struct draw_generator *generator, bool may_discard, struct draw *out,
               struct codec_error *error) {
    static const char *const keys[] = {"random", "shape", "low",   "high",
                                       "mean",   "std",   "dtype", "discard"};
#define IN_BODY                                                                                    \
    "it stands once, in \"random\": {\"generator\": \"numpy\", \"seed\": 42} of the body"
    static const struct codec_foreign foreign[] = {
        {"size", 1, "it is \"shape\" here"},
        {"seed", 1, IN_BODY},
        {"generator", 1, IN_BODY},
        {"data", 1, "a matrix is a list of rows here, such as [[1, 2], [3, 4]]"}};
    const struct codec_keys known = {.names = keys,
                                     .count = sizeof keys / sizeof *keys - !may_discard,
                                     .foreign = foreign,
                                     .foreign_count = sizeof foreign / sizeof *foreign,
                                     .here = 1};
    const struct codec_value *name = codec_get(object, "random");
    size_t kind;
    if (!codec_check_keys(document, object, &known, error)) {
        return false;
    }
    if (name == NULL) {
        return codec_fail(document, object, error,
                          "%s must be an array, or drawn as {\"random\": \"randn\", \"shape\": [4, "
                          "3]}; this object has no \"random\"",
                          matrix_name(object));
    }
    if (!codec_as_choice(document, name, names, sizeof names / sizeof *names, &kind, error)) {
        return false;
    }
    *out = (struct draw){.draw = {.distribution = kinds[kind].distribution},
                         .discard = codec_get(object, "discard")};
    if (!read_shape(document, object, out, error) ||
        !read_dtype(document, object, generator->kind, &out->draw, error) ||
        !read_parameters(document, object, kind, &out->draw, error)) {
        return false;
    }
    return out->draw.count == 0 || /* nothing is drawn */
           (draw_generator_check(document, object, generator, error) &&
            check_draw(document, object, generator, &out->draw, error));
}
