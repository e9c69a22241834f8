/*
 * field_rotary.c - reads "rotary": true, or an object that says how rows are turned. The keys of
 * "scaling" are those of `rope_scaling` in a config.json of Hugging Face transformers.
 */
#include "api/call/field.h"

#include <stddef.h>
#include <string.h>

enum {
    MOST_OFFSET = 1 << 30, /* the library takes no larger one */
    MOST_PAIRS = 1 << 15   /* and no head with more pairs of columns that turn */
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const keys_of_rotary[] = {"base", "columns", "interleaved", "offset", "scaling"};

/* The names that other programs have for them. */
static const struct codec_foreign others_of_rotary[] = {
    {"theta", 1, "it is \"base\" here"},
    {"rope_theta", 1, "it is \"base\" here"},
    {"rotary_base", 1, "it is \"base\" here"},
    {"dim", 1, "it is \"columns\" here, the columns of a head that turn"},
    {"rotary_dim", 1, "it is \"columns\" here, the columns of a head that turn"},
    {"rotary_embedding_dim", 1, "it is \"columns\" here, the columns of a head that turn"},
    {"partial_rotary_factor", 1,
     "it is \"columns\" here, this part of the columns of a head as a number; only the scaling "
     "\"proportional\" has it, in \"scaling\": {...}"},
    {"rope_scaling", 1, "it is \"scaling\" here"},
    {"rope_type", 1, "it stands in \"scaling\": {...} here"},
    {"factor", 1, "it stands in \"scaling\": {...} here"},
    {"position_ids", 1, "it is \"positions\" here, beside \"rotary\""},
    {"positions", 1, "it stands beside \"rotary\", not in it"},
};

static const char *const types[] = {
    [ATTN_ROTARY_UNSCALED] = "default",         [ATTN_ROTARY_LINEAR] = "linear",
    [ATTN_ROTARY_DYNAMIC] = "dynamic",          [ATTN_ROTARY_YARN] = "yarn",
    [ATTN_ROTARY_LONGROPE] = "longrope",        [ATTN_ROTARY_LLAMA3] = "llama3",
    [ATTN_ROTARY_PROPORTIONAL] = "proportional"};

enum {
    POSITIVE = 3 /* the first of these numbers must not be 0, which is a default of the library */
};

/* The numbers of "scaling", and then its other keys. */
static const char *const keys_of_scaling[] = {"factor",
                                              "original_max_position_embeddings",
                                              "partial_rotary_factor",
                                              "attention_factor",
                                              "low_freq_factor",
                                              "high_freq_factor",
                                              "beta_fast",
                                              "beta_slow",
                                              "mscale",
                                              "mscale_all_dim",
                                              "rope_type",
                                              "type",
                                              "truncate",
                                              "short_factor",
                                              "long_factor"};
static const size_t numbers_of_scaling[] = {
    offsetof(attn_rotary, factor),         offsetof(attn_rotary, original_positions),
    offsetof(attn_rotary, partial_factor), offsetof(attn_rotary, attention_factor),
    offsetof(attn_rotary, low_factor),     offsetof(attn_rotary, high_factor),
    offsetof(attn_rotary, beta_fast),      offsetof(attn_rotary, beta_slow),
    offsetof(attn_rotary, mscale),         offsetof(attn_rotary, mscale_all)};

/* Reads a list of numbers, if it is given. */
static bool read_factors(const struct codec_document *document, const struct codec_value *object,
                         const char *name, const double **factors, size_t *count,
                         struct codec_error *error) {
    const struct codec_value *value = codec_given(object, name);
    return value == NULL || codec_as_numbers(document, value, MOST_PAIRS, factors, count, error);
}

/* Reads the kind of scaling, which has two names. */
static bool read_type(const struct codec_document *document, const struct codec_value *object,
                      attn_rotary_scaling *scaling, struct codec_error *error) {
    const struct codec_value *type = codec_given(object, "rope_type");
    const struct codec_value *older = codec_given(object, "type");
    size_t choice, other;
    if (type == NULL && older == NULL) {
        return codec_fail(document, object, error, "scaling has no \"rope_type\"");
    }
    type = type != NULL ? type : older;
    older = older != NULL ? older : type;
    if (!codec_as_choice(document, type, types, COUNT(types), &choice, error) ||
        !codec_as_choice(document, older, types, COUNT(types), &other, error)) {
        return false;
    }
    *scaling = (attn_rotary_scaling)choice;
    return choice == other ||
           codec_fail(document, older, error, "type is \"%s\", but rope_type is \"%s\"",
                      types[other], types[choice]);
}

static bool read_scaling(struct call *call, struct codec_document *document,
                         const struct codec_value *object, struct codec_error *error) {
    static const struct codec_foreign others = {
        "rope_theta", 1, "it is \"base\" of \"rotary\" here, beside \"scaling\""};
    const struct codec_keys keys = {.names = keys_of_scaling,
                                    .count = COUNT(keys_of_scaling),
                                    .foreign = &others,
                                    .foreign_count = 1,
                                    .here = 1};
    attn_rotary *rotary = &call->rotary;
    const struct codec_value *truncate;
    bool on = true;
    if (!codec_check_keys(document, object, &keys, error) ||
        !read_type(document, object, &rotary->scaling, error)) {
        return false;
    }
    const bool proportional = rotary->scaling == ATTN_ROTARY_PROPORTIONAL;
    const char *other = proportional ? "low_freq_factor" : "partial_rotary_factor";
    if (codec_given(object, other) != NULL) { /* the library has one number for both */
        return codec_fail(document, codec_given(object, other), error,
                          "%s is not for rope_type \"%s\"%s", other, types[rotary->scaling],
                          proportional ? ""
                                       : "; \"columns\" beside \"scaling\" has this part of the "
                                         "columns of a head as a number");
    }
    for (size_t i = 0; i < COUNT(numbers_of_scaling); i++) {
        const struct codec_value *value = codec_given(object, keys_of_scaling[i]);
        double *number = (double *)((char *)rotary + numbers_of_scaling[i]);
        if (value != NULL && !codec_as_number(document, value, number, error)) {
            return false;
        }
        if (value != NULL && *number == 0 && i < POSITIVE) {
            return codec_fail(document, value, error, "%s is 0; it must be more than 0",
                              keys_of_scaling[i]);
        }
    }
    truncate = codec_given(object, "truncate");
    if (truncate != NULL && !codec_as_bool(document, truncate, &on, error)) {
        return false;
    }
    rotary->untruncated = !on;
    return read_factors(document, object, "short_factor", &rotary->short_factors,
                        &rotary->short_count, error) &&
           read_factors(document, object, "long_factor", &rotary->long_factors, &rotary->long_count,
                        error);
}

static bool read_object(struct call *call, struct codec_document *document,
                        const struct codec_value *object, struct codec_error *error) {
    const struct codec_keys keys = {.names = keys_of_rotary,
                                    .count = COUNT(keys_of_rotary),
                                    .foreign = others_of_rotary,
                                    .foreign_count = COUNT(others_of_rotary),
                                    .here = 1};
    attn_rotary *rotary = &call->rotary;
    if (!codec_check_keys(document, object, &keys, error)) {
        return false;
    }
    /* The object takes the place of a stored layer's embedding as a whole. */
    *rotary = (attn_rotary){.cos = rotary->cos, .sin = rotary->sin, .positions = rotary->positions};
    const struct codec_value *base = codec_given(object, "base"),
                             *columns = codec_given(object, "columns"),
                             *pairs = codec_given(object, "interleaved"),
                             *offset = codec_given(object, "offset"),
                             *scaling = codec_given(object, "scaling");
    if (base != NULL && codec_as_number(document, base, &rotary->base, error) &&
        !(rotary->base > 0)) {
        return codec_fail(document, base, error, "base must be a number greater than 0, not %g",
                          rotary->base);
    }
    return (base == NULL || rotary->base > 0) &&
           (columns == NULL || field_count(document, columns, &rotary->columns, error)) &&
           (pairs == NULL || codec_as_bool(document, pairs, &rotary->interleaved, error)) &&
           (offset == NULL ||
            codec_as_integer(document, offset, 0, MOST_OFFSET, &rotary->offset, error)) &&
           (scaling == NULL || read_scaling(call, document, scaling, error));
}

bool field_rotary(struct call *call, struct codec_document *document, const struct field *field,
                  const struct codec_value *value, struct codec_error *error) {
    bool on = true;
    (void)field;
    if (codec_kind_of(value) == CODEC_BOOL) {
        codec_as_bool(document, value, &on, error);
    } else if (codec_kind_of(value) != CODEC_OBJECT) {
        return codec_refuse(document, value, "true, false or an object such as {\"base\": 10000}",
                            error);
    } else if (!read_object(call, document, value, error)) {
        return false;
    }
    call->options.rotary = on ? &call->rotary : NULL;
    return true;
}
