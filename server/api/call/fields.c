/*
 * fields.c - the table of request fields. One row says everything about a key: which endpoints have
 * it, how its value is read and where the value goes, whether it may be drawn, and what the library
 * calls it. The fields of a group are read in the order of their rows, so a request with several
 * faults is told the fault of the first row.
 *
 * To add an option: add one row with its name, its endpoints, the group FIELDS_OPTIONS, its kind,
 * its limits and CALL(options.NAME); rows stand in the order in which errors are found. A value
 * with a form of its own, or a default other than 0, has a reader in field_readers.c and a .sample.
 * tests/api/check_openapi.py openapi.yaml --table build/release/table.json says what is missing in
 * openapi.yaml and tests/openapi/exact.yaml (then make docs). Give tests/data/answers.txt a good
 * request and refusals.txt a bad one. Most tests and fuzz targets draw the row in every format:
 * needs and excludes of tests/support/drawn.c say beside what it cannot stand, and
 * tests/openapi/hooks.py which values are too large. options.json of the explorer has its control,
 * GROUPS in docs.py its place in /docs, and llms.txt.in a line. An option that config.json of a
 * model sets is also in family_options.c and api/pages/layers.c.
 *
 * To add a matrix: add a tensor to struct call of call.h, and a row to the table with its least and
 * greatest rank, NUMBERS (so that it can be drawn), the letters of its axes (tests/support/drawn.h)
 * and TENSOR(...); a weight of a head has WEIGHT(...). Add a property without a type to
 * openapi.yaml, and one whose type ends in In to tests/openapi/exact.yaml. Its gradient is a
 * result: grep -rn 'GRAD_NORM_K\|grad_norm_K' lib server tests openapi.yaml shows the places.
 */
#include "api/call/comparison.h"
#include "api/call/field.h"
#include "api/reply.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const dtypes[] = {"float32", "float64"};
static const char *const layouts[] = {[ATTN_IN_OUT] = "in_out", [ATTN_OUT_IN] = "out_in"};
static const char *const normalizations[] = {[ATTN_SOFTMAX] = "softmax",
                                             [ATTN_UNNORMALIZED] = "none",
                                             [ATTN_SIGMOID] = "sigmoid",
                                             [ATTN_STICK_BREAKING] = "stick_breaking"};
static const char *const updates[] = {"linear", "gated", "delta", "gated_delta"};
static const char *const compute_dtypes[] = {"float16", "bfloat16"};
static const char *const computed_types[] = {"float64",  "float32", "tf32",       "float16",
                                             "bfloat16", "float8",  "float8_e5m2"};
static const char *const alignments[] = {
    [FIELD_TOP_LEFT] = "top_left", [FIELD_BOTTOM_RIGHT] = "bottom_right"};
static const char of_projections[] =
    "it is a key of /self-attention, which projects X by W_Q, W_K and W_V";
static const char beside_heads[] = "it belongs beside \"heads\", once for all heads";
static const char of_softmax[] = "/softmax has no gradients: that of X is \"grad_bias\" of "
                                 "/attention if \"bias\" is X and \"scale\" is 0";

#define ATTENTION      FIELDS_AT_ATTENTION
#define PROJECTIONS    FIELDS_AT_PROJECTIONS
#define HEAD           FIELDS_AT_HEAD
#define SOFTMAX        FIELDS_AT_SOFTMAX
#define EMBEDDINGS     FIELDS_AT_EMBEDDINGS
#define LAYER          FIELDS_AT_LAYER
#define LINEAR         FIELDS_AT_LINEAR
#define FREE           (ATTENTION | LINEAR)
#define WITH_X         (PROJECTIONS | LAYER)
#define ATTENTIONS     (ATTENTION | PROJECTIONS | LAYER)
#define CALLS          (ATTENTIONS | LINEAR | SOFTMAX)
#define WORDS          (ATTENTIONS | LINEAR | EMBEDDINGS)
#define ALL            (WORDS | SOFTMAX)

#define CALL(member)   .value = offsetof(struct call, member)
#define WORK(member)   .value = offsetof(struct api_work, member)
#define CHOICES(texts) .choices = (texts), .choice_count = sizeof(texts) / sizeof *(texts)
/* TENSOR: the tensor of a matrix and the pointer to it, in struct call. WEIGHT: the same of a
 * projection, in struct call_weights and attn_projection. */
#define TENSOR(tensor, to)                                                                         \
    .value = offsetof(struct call, tensors.tensor), .pointer = offsetof(struct call, to)
#define WEIGHT(member)                                                                             \
    .value = offsetof(struct call_weights, member), .pointer = offsetof(attn_projection, member)

#define NUMBERS FIELDS_NUMBERS
#define PROJECTED                                                                                  \
    .hint_at = PROJECTIONS,                                                                        \
    .hint = "Q, K and V are keys of /attention; here \"return\" names them as results"
#define OF_ATTENTION                                                                               \
    .hint_at = WITH_X, .hint = "it is a key of /attention: packed sequences have no projections"
#define OF_SOFTMAX                  .hint_at = SOFTMAX, .hint = of_softmax

/* A matrix of `low` to `high` axes, whose sizes are `letters`. */
#define MATRIX(low, high, letters)  FIELD_MATRIX, low, high, NUMBERS, letters
#define ROWS_OF(low, high, letters) FIELD_ROWS, low, high, NUMBERS, letters
#define INPUT(low, high, letters)   FIELDS_INPUTS, MATRIX(low, high, letters)
#define OPTION(low, high, letters)  FIELDS_OPTIONS, MATRIX(low, high, letters)
#define READ_BY(reader)             FIELDS_OPTIONS, FIELD_READER, .read = reader
/* The scales of a matrix, whose row stands before. */
#define SCALES(letters, to)                                                                        \
    FIELDS_OPTIONS, FIELD_READER, 1, ATTN_MAX_RANK, NUMBERS, letters,                              \
        .pointer = offsetof(struct call, to), .read = field_scaled
/* A key that names results. */
#define RESULTS(key, at, kind, reader, names)                                                      \
    { key, at, FIELDS_OPTIONS, kind, .read = reader, CHOICES(names), .argument = "results" }

static const struct field table[] = {
    /* The matrices that a call is about, and its projections. */
    {"Q", FREE, INPUT(2, ATTN_MAX_RANK, "bHnd"), TENSOR(q, q), PROJECTED},
    {"K", FREE, FIELDS_INPUTS, ROWS_OF(2, ATTN_MAX_RANK, "bGmd"), TENSOR(k, k), PROJECTED},
    {"V", FREE, FIELDS_INPUTS, ROWS_OF(2, ATTN_MAX_RANK, "bGmv"), TENSOR(v, v), PROJECTED},
    {"X", FREE, INPUT(2, ATTN_MAX_RANK, "bHnd"), TENSOR(x, multihead.x)},
    {"X", PROJECTIONS, INPUT(2, 3, "bnc"), TENSOR(x, multihead.x)},
    {"X", LAYER, INPUT(2, 4, "bnc"), TENSOR(x, multihead.x)},
    {"X", SOFTMAX, FIELDS_INPUTS, FIELD_LOGITS, 1, ATTN_MAX_RANK, NUMBERS, "bhnc",
     TENSOR(x, multihead.x)},
    {"axis", SOFTMAX, FIELDS_INPUTS, FIELD_INTEGER, -ATTN_MAX_RANK, ATTN_MAX_RANK, CALL(axis),
     .sample = "-1|0"},
    {"context", WITH_X, FIELDS_INPUTS, ROWS_OF(2, 3, "bmx"), TENSOR(context, multihead.context)},
    {"value_context", WITH_X, FIELDS_INPUTS, ROWS_OF(2, 3, "bmy"),
     TENSOR(value_context, multihead.value_context)},
    {"W_Q", PROJECTIONS, FIELDS_WEIGHTS, MATRIX(2, 3, "Hcd"), WEIGHT(w_q)},
    {"W_K", PROJECTIONS, FIELDS_WEIGHTS, MATRIX(2, 3, "Gxd"), WEIGHT(w_k)},
    {"W_V", PROJECTIONS, FIELDS_WEIGHTS, MATRIX(2, 3, "Gyv"), WEIGHT(w_v)},
    {"W_Q", HEAD, FIELDS_WEIGHTS, MATRIX(2, 2, "cd"), WEIGHT(w_q)},
    {"W_K", HEAD, FIELDS_WEIGHTS, MATRIX(2, 2, "xd"), WEIGHT(w_k)},
    {"W_V", HEAD, FIELDS_WEIGHTS, MATRIX(2, 2, "yv"), WEIGHT(w_v)},
    {"W_O", PROJECTIONS, INPUT(2, 2, "io"), TENSOR(w_o, multihead.w_o)},
    {"b_Q", ATTENTION, INPUT(1, 2, "Hd"), TENSOR(b_q, options.b_q)},
    {"b_K", ATTENTION, INPUT(1, 2, "Gd"), TENSOR(b_k, options.b_k)},
    {"b_V", ATTENTION, INPUT(1, 2, "Gv"), TENSOR(b_v, options.b_v)},
    {"b_Q", PROJECTIONS | HEAD, FIELDS_WEIGHTS, MATRIX(1, 2, "Hd"), WEIGHT(b_q)},
    {"b_K", PROJECTIONS | HEAD, FIELDS_WEIGHTS, MATRIX(1, 2, "Gd"), WEIGHT(b_k)},
    {"b_V", PROJECTIONS | HEAD, FIELDS_WEIGHTS, MATRIX(1, 2, "Gv"), WEIGHT(b_v)},
    {"b_O", PROJECTIONS, INPUT(1, 1, "o"), TENSOR(b_o, multihead.b_o)},
    {"W_G", PROJECTIONS, INPUT(2, 3, "ci"), TENSOR(w_g, options.w_g)},
    {"b_G", PROJECTIONS, INPUT(1, 2, "i"), TENSOR(b_g, options.b_g)},
    {"bias_K", PROJECTIONS, INPUT(1, 2, "Gd"), TENSOR(bias_k, multihead.bias_k)},
    {"bias_V", PROJECTIONS, INPUT(1, 2, "Gv"), TENSOR(bias_v, multihead.bias_v)},
    {"zero_key", PROJECTIONS, FIELDS_INPUTS, FIELD_BOOL, CALL(multihead.zero_key)},
    {"weight_layout", PROJECTIONS, FIELDS_INPUTS, FIELD_CHOICE, CALL(multihead.layout),
     CHOICES(layouts), .argument = "layout"},

    /* The keys of every endpoint. */
    {"dtype", ALL, FIELDS_WORK, .kind = FIELD_DTYPE, CHOICES(dtypes)},
    {"digits", ALL, FIELDS_WORK, FIELD_INTEGER, 1, 17, WORK(digits)},
    {"timeout", ALL, FIELDS_WORK, FIELD_SECONDS, WORK(seconds)},

    /* The options of a call of attention. "mean_over_heads" and "top_k" depend on "return", and
     * "alignment" depends on "causal", so they come after these. */
    RESULTS("return", ATTENTION, FIELD_READER, field_return, answer_attention_names),
    RESULTS("return", PROJECTIONS, FIELD_READER, field_return, answer_projections_names),
    RESULTS("return", LINEAR, FIELD_READER, field_return, answer_linear_names),
    RESULTS("return", LAYER, FIELD_READER, field_return, answer_layer_names),
    RESULTS("expected", ATTENTION, FIELD_EXPECTED, comparison_read, answer_attention_names),
    RESULTS("expected", PROJECTIONS, FIELD_EXPECTED, comparison_read, answer_projections_names),
    RESULTS("expected", LINEAR, FIELD_EXPECTED, comparison_read, answer_linear_names),
    RESULTS("expected", LAYER, FIELD_EXPECTED, comparison_read, answer_layer_names),
    {"expected", SOFTMAX, FIELDS_OPTIONS, FIELD_EXPECTED, .read = comparison_read,
     .choices = &answer_names[ANSWER_OUTPUT], .choice_count = 1},
    {"computed_in", CALLS, READ_BY(field_computed_in), CHOICES(computed_types)},
    {"tolerance", CALLS, READ_BY(field_tolerance),
     .sample = "{\"absolute\":1e-5,\"relative\":1e-5}"},
    {"fail_on_difference", CALLS, READ_BY(field_fail_on_difference), .sample = "false"},
    {"compute_dtype", ATTENTIONS, READ_BY(field_compute_dtype), CHOICES(compute_dtypes)},
    {"scale", ATTENTIONS | LINEAR, FIELDS_OPTIONS, FIELD_READER, 1, 1, .sample = "h|0.5|0",
     .read = field_scale},
    {"update", LINEAR, READ_BY(field_update), CHOICES(updates)},
    {"normalize_QK", LINEAR, FIELDS_OPTIONS, FIELD_BOOL, CALL(linear.normalize_qk)},
    {"softcap", ATTENTIONS, FIELDS_OPTIONS, FIELD_NUMBER, CALL(options.softcap)},
    {"normalization", ATTENTIONS, FIELDS_OPTIONS, FIELD_CHOICE, CALL(options.normalization),
     CHOICES(normalizations)},
    {"sigmoid_bias", ATTENTIONS, FIELDS_OPTIONS, FIELD_NUMBER, CALL(options.sigmoid_bias)},
    {"mean_over_heads", ATTENTIONS, READ_BY(field_mean_over_heads), .sample = "true"},
    {"top_k", ATTENTIONS, READ_BY(field_top_k), .sample = "2"},
    {"kv_heads", FREE | PROJECTIONS, FIELDS_OPTIONS, FIELD_COUNT, CALL(options.kv_heads)},
    {"causal", ATTENTIONS, READ_BY(field_causal), .sample = "true|false|\"bottom_right\""},
    {"causal", LINEAR, READ_BY(field_always_causal), .sample = "true"},
    {"alignment", ATTENTIONS, READ_BY(field_alignment), CHOICES(alignments)},
    {"window", ATTENTIONS, READ_BY(field_window), .sample = "[1,0]|[2,-1]|[-1,1]"},
    {"alibi", ATTENTIONS, FIELDS_OPTIONS, FIELD_READER, 1, 1, NUMBERS, "h|true",
     TENSOR(alibi_slopes, options.alibi_slopes), .read = field_alibi},
    {"sink", ATTENTIONS, FIELDS_OPTIONS, FIELD_READER, 1, 1, NUMBERS, "h",
     TENSOR(sink, options.sink), .read = field_sink},
    {"lengths", ATTENTIONS | LINEAR, FIELDS_OPTIONS, FIELD_READER, 1, 1, .sample = "b",
     .read = field_lengths},
    {"sequences", FREE, FIELDS_OPTIONS, FIELD_READER, 2, 2, .sample = "n", .read = field_sequences,
     OF_ATTENTION},
    {"sequence_offsets", FREE, FIELDS_OPTIONS, FIELD_READER, 2, 2, .sample = "n",
     .read = field_sequence_offsets, .argument = "sequences", OF_ATTENTION},
    {"mask", ATTENTIONS, FIELDS_OPTIONS, FIELD_MASK, 1, ATTN_MAX_RANK, FIELDS_MASK, "bhnk",
     TENSOR(mask, options.mask),
     .not_a_mask = "numbers that are added to scores belong in \"bias\""},
    {"key_padding", ATTENTIONS, FIELDS_OPTIONS, FIELD_MASK, 1, ATTN_MAX_RANK - 2, FIELDS_MASK, "bk",
     TENSOR(key_padding, options.key_padding),
     .not_a_mask = "here 1 or true says that the key exists"},
    {"bias", ATTENTIONS, FIELDS_OPTIONS, FIELD_BIAS, 1, ATTN_MAX_RANK, NUMBERS, "bhnk",
     TENSOR(bias, options.bias)},
    {"decay", ATTENTION | PROJECTIONS, FIELDS_OPTIONS, FIELD_DECAY, 1, ATTN_MAX_RANK, NUMBERS,
     "bHk", TENSOR(decay, options.decay)},
    {"decay", LINEAR, FIELDS_OPTIONS, FIELD_DECAY, 1, ATTN_MAX_RANK, NUMBERS, "bGnd",
     TENSOR(decay, options.decay)},
    {"beta", LINEAR, OPTION(1, ATTN_MAX_RANK - 1, "bGn"), TENSOR(beta, linear.beta)},
    {"past_state", LINEAR, OPTION(2, ATTN_MAX_RANK, "bGdv"), TENSOR(past_state, linear.past_state)},
    {"past_K", ATTENTIONS, FIELDS_OPTIONS, ROWS_OF(2, ATTN_MAX_RANK, "bGpd"),
     TENSOR(past_k, options.past_k)},
    {"past_V", ATTENTIONS, FIELDS_OPTIONS, ROWS_OF(2, ATTN_MAX_RANK, "bGpv"),
     TENSOR(past_v, options.past_v)},
    {"Q_scale", FREE, SCALES("bHnd", q)},
    {"K_scale", FREE, SCALES("bGmd", k)},
    {"V_scale", FREE, SCALES("bGmv", v)},
    {"past_K_scale", ATTENTIONS, SCALES("bGpd", options.past_k)},
    {"past_V_scale", ATTENTIONS, SCALES("bGpv", options.past_v)},
    {"norm_Q", ATTENTIONS, OPTION(1, 1, "d"), TENSOR(norm_q, options.norm_q)},
    {"norm_K", ATTENTIONS, OPTION(1, 1, "d"), TENSOR(norm_k, options.norm_k)},
    {"norm_V", ATTENTIONS, OPTION(1, 1, "v"), TENSOR(norm_v, options.norm_v)},
    {"norm_epsilon", ATTENTIONS | LINEAR, FIELDS_OPTIONS, FIELD_NUMBER, CALL(options.norm_epsilon)},
    {"rotary", ATTENTIONS, READ_BY(field_rotary),
     .sample = "true|{\"base\":100,\"columns\":2,\"interleaved\":true,\"offset\":1}|"
               "{\"scaling\":{\"rope_type\":\"linear\",\"factor\":2}}"},
    {"rotary_cos", ATTENTIONS, OPTION(2, ATTN_MAX_RANK - 1, "bre"), TENSOR(rotary_cos, rotary.cos)},
    {"rotary_sin", ATTENTIONS, OPTION(2, ATTN_MAX_RANK - 1, "bre"), TENSOR(rotary_sin, rotary.sin)},
    {"positions", ATTENTIONS, FIELDS_OPTIONS, FIELD_EXACT, 1, ATTN_MAX_RANK - 2, NUMBERS, "bn",
     TENSOR(positions, rotary.positions)},
    {"gate", ATTENTION, OPTION(2, ATTN_MAX_RANK, "bHnv"), TENSOR(gate, options.gate)},
    {"gate", PROJECTIONS, OPTION(2, ATTN_MAX_RANK, "bni"), TENSOR(gate, options.gate)},
    {"grad_output", ATTENTION | LINEAR, OPTION(2, ATTN_MAX_RANK, "bHnv"),
     TENSOR(grad_output, upstream.output), OF_SOFTMAX},
    {"grad_output", WITH_X, OPTION(2, ATTN_MAX_RANK, "bno"), TENSOR(grad_output, upstream.output)},
    {"grad_lse", ATTENTIONS, OPTION(1, ATTN_MAX_RANK - 1, "bHn"), TENSOR(grad_lse, upstream.lse)},
    {"grad_weights", ATTENTIONS, OPTION(2, ATTN_MAX_RANK, "bHna"),
     TENSOR(grad_weights, upstream.weights), OF_SOFTMAX},
    {"grad_present_state", LINEAR, OPTION(2, ATTN_MAX_RANK, "bGdv"),
     TENSOR(grad_present_state, upstream.state)},
    {"heads", FREE, FIELDS_OPTIONS, FIELD_COUNT, CALL(options.heads)},
    {"heads", PROJECTIONS, FIELDS_UNGROUPED, .kind = FIELD_BY_NAME}, /* multihead.c reads it */

    /* generated.c reads these fields. */
    {"random", ALL, FIELDS_UNGROUPED, .kind = FIELD_BY_NAME,
     .sample = "{\"generator\":\"torch\",\"seed\":7}"},
    {"text", WORDS, FIELDS_UNGROUPED, .kind = FIELD_WORDS,
     .sample = "\"A r\\u00f4se, a \u03a3\u03b1\u03a3.\""},
    {"tokens", WORDS, FIELDS_UNGROUPED, .kind = FIELD_WORDS, .sample = "[\"b\",\"a\",\"b\",\"c\"]"},
    {"embedding", WORDS, FIELDS_UNGROUPED, .kind = FIELD_BY_NAME, .draw = NUMBERS, .sample = "wc"},
    {"embedding_dim", WORDS, FIELDS_UNGROUPED, .kind = FIELD_BY_NAME},
};

enum {
    ROWS = sizeof table / sizeof *table,
    HINT = 64 /* bytes of a hint that names an endpoint */
};
static_assert((int)ROWS <= (int)FIELDS_MOST, "struct fields has room for each row");
static_assert(sizeof(attn_layout) == sizeof(int) && sizeof(attn_normalization) == sizeof(int),
              "a choice is written as an int");

/* ------------------------------------------------------------------------------------ the keys */

/* Returns the row of a key in these objects, or ROWS if there is none. */
static size_t row_of(const char *name, unsigned at) {
    size_t row = 0;
    while (row < ROWS && ((table[row].at & at) == 0 || table[row].name[0] != name[0] ||
                          strcmp(table[row].name, name) != 0)) {
        row++;
    }
    return row;
}

/* Adds a value at the place of its row. */
static void add_value(struct fields *fields, size_t row, const struct codec_value *value) {
    size_t place = fields->count++;
    assert(place < FIELDS_MOST); /* no object has a key twice */
    for (; place > 0 && fields->given[place - 1].row > &table[row]; place--) {
        fields->given[place] = fields->given[place - 1];
    }
    fields->given[place] = (struct fields_given){&table[row], value};
    fields->initials |= UINT64_C(1) << table[row].name[0] % 64;
}

void fields_find(struct fields *fields, const struct codec_value *object, unsigned at) {
    fields->at = at;
    fields->count = fields->initials = 0;
    fields->unknown = codec_kind_of(object) != CODEC_OBJECT;
    if (fields->unknown) {
        return;
    }
    for (const struct codec_value *member = codec_at(object, 0); member != NULL;
         member = codec_next(member)) {
        const size_t row = row_of(codec_name(member), at);
        if (row == ROWS) {
            fields->unknown = true;
            continue;
        }
        if (codec_kind_of(member) != CODEC_NULL) { /* many clients write null for "not given" */
            add_value(fields, row, member);
        }
    }
}

const struct field *fields_row(size_t row) {
    return row < ROWS ? &table[row] : NULL;
}

/* Returns the path of the first endpoint that has a key, or NULL. */
static const char *place_of(const char *name) {
    static const struct {
        unsigned at;
        const char *path;
    } places[] = {{ATTENTION, "/attention"},     {PROJECTIONS, "/self-attention"},
                  {LINEAR, "/linear-attention"}, {SOFTMAX, "/softmax"},
                  {EMBEDDINGS, "/embeddings"},   {LAYER, "/layers/{name}/attention"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (row_of(name, places[i].at) < ROWS) {
            return places[i].path;
        }
    }
    return NULL;
}

/* Returns whether other programs have this name for a key of these objects. */
static bool is_foreign(const char *name, unsigned at) {
    size_t i = 0;
    while (i < fields_foreign_count &&
           ((fields_foreign[i].where & at) == 0 || strcmp(fields_foreign[i].name, name) != 0)) {
        i++;
    }
    return i < fields_foreign_count;
}

/* Returns what is said of a key that another object has and this one does not, or NULL. It may be
 * written to `text`. */
static const char *hint_of(const char *name, unsigned at, char text[HINT]) {
    for (size_t row = 0; row < ROWS; row++) {
        if (strcmp(table[row].name, name) != 0) {
            continue;
        }
        if ((table[row].hint_at & at) != 0) {
            return table[row].hint;
        }
        if (at == LINEAR && attn_linear_lacks(name) != NULL) {
            return attn_linear_lacks(name);
        }
        if ((at & FREE) != 0 && (table[row].at & PROJECTIONS) != 0 &&
            row_of(name, ATTENTION) == ROWS) {
            return of_projections;
        }
        if (at == HEAD && (table[row].at & PROJECTIONS) != 0) {
            return beside_heads;
        }
    }
    const char *place = place_of(name);
    if (place == NULL || is_foreign(name, at)) {
        return NULL;
    }
    snprintf(text, HINT, "it is a key of %s", place);
    return text;
}

/* Refuses the first member that is no key, or a value that is no object. */
static bool refuse_key(const struct codec_document *document, const struct codec_value *object,
                       unsigned at, struct codec_error *error) {
    const char *names[FIELDS_MOST];
    struct codec_keys keys = {.names = names,
                              .count = fields_names(at, names),
                              .foreign = fields_foreign,
                              .foreign_count = fields_foreign_count,
                              .here = at};
    struct codec_foreign own = {.where = at};
    const struct codec_value *member = codec_at(object, 0);
    const char *text;
    char hint[HINT];
    const size_t results = row_of("return", at);
    if (results < ROWS) {
        keys.place = table[results].name;
        keys.elsewhere = table[results].choices;
        keys.elsewhere_count = table[results].choice_count;
    }
    while (member != NULL && codec_name(member) != NULL && row_of(codec_name(member), at) < ROWS) {
        member = codec_next(member);
    }
    if (codec_kind_of(object) == CODEC_TEXT && codec_as_text(document, object, &text, error) &&
        text[0] == '{') {
        return codec_fail(document, object, error,
                          "the body is a string with JSON in it: send the object itself");
    }
    own.name = member != NULL ? codec_name(member) : NULL;
    own.hint = own.name != NULL ? hint_of(own.name, at, hint) : NULL;
    if (own.hint != NULL) {
        keys.foreign = &own;
        keys.foreign_count = 1;
    }
    return codec_check_keys(document, object, &keys, error);
}

bool fields_check(const struct fields *fields, const struct codec_document *document,
                  const struct codec_value *object, struct codec_error *error) {
    return !fields->unknown || refuse_key(document, object, fields->at, error);
}

const struct codec_value *fields_get(const struct fields *fields, const char *name) {
    const bool may_be = (fields->initials >> name[0] % 64 & 1) != 0; /* excludes most names */
    for (size_t i = 0; may_be && i < fields->count; i++) {
        if (strcmp(fields->given[i].row->name, name) == 0) {
            return fields->given[i].value;
        }
    }
    return NULL;
}

const struct codec_value *fields_first(const struct fields *fields, enum fields_group group) {
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->given[i].row->group == group) {
            return fields->given[i].value;
        }
    }
    return NULL;
}

void fields_put(struct fields *fields, const char *name, const struct codec_value *value) {
    const size_t row = row_of(name, fields->at);
    if (row < ROWS) {
        add_value(fields, row, value);
    }
}

size_t fields_matrices(unsigned at, struct fields_matrix matrices[static FIELDS_MOST]) {
    size_t count = 0;
    for (size_t row = 0; row < ROWS; row++) {
        const struct field *field = &table[row];
        const bool words = field->kind == FIELD_WORDS;
        if ((field->at & at) != 0 &&
            (words || (field->most > 0 && field->draw != FIELDS_NOT_DRAWN))) {
            const int axes =
                field->kind == FIELD_LOGITS ? field->most : (int)strcspn(field->sample, "|");
            matrices[count++] = (struct fields_matrix){field->name, words ? 1 : axes,
                                                       field->kind == FIELD_MASK, words};
        }
    }
    return count;
}

bool fields_has(const char *name, unsigned at) {
    return row_of(name, at) < ROWS;
}

const char *fields_example(unsigned at) {
    return (at & FREE) != 0    ? "{\"Q\": [[1, 2]], \"K\": [[1, 2]], \"V\": [[1, 2]]}"
           : at == PROJECTIONS ? "{\"X\": [[1]], \"W_Q\": [[1]], \"W_K\": [[1]], \"W_V\": [[1]]}"
           : at == EMBEDDINGS  ? "{\"text\": \"a b\", \"embedding\": [[1, 2], [3, 4]]}"
                               : "{\"X\": [[1, 2]]}";
}

bool fields_is_words(const char *name, unsigned at) {
    const size_t row = row_of(name, at);
    return row < ROWS && table[row].kind == FIELD_WORDS;
}

size_t fields_names(unsigned at, const char *names[static FIELDS_MOST]) {
    size_t count = 0;
    for (size_t row = 0; row < ROWS; row++) {
        if ((table[row].at & at) != 0) {
            names[count++] = table[row].name;
        }
    }
    return count;
}

enum fields_draw fields_draw_of(const char *name) {
    const size_t row = row_of(name, ~0u);
    return row < ROWS ? table[row].draw : FIELDS_NOT_DRAWN;
}

static const char *key_of(enum field_kind kind) {
    size_t row = 0;
    while (table[row].kind != kind) {
        row++;
    }
    return table[row].name;
}

const char *fields_dtype_key(void) {
    return key_of(FIELD_DTYPE);
}

const char *fields_expected_key(void) {
    return key_of(FIELD_EXPECTED);
}

/* Does a key take -Infinity? */
static bool takes_infinity(const struct field *field) {
    return field->kind == FIELD_BIAS || field->kind == FIELD_DECAY;
}

void fields_infinity_keys(const char *keys[static API_INFINITY_KEYS]) {
    size_t count = 0;
    for (size_t row = 0; row < ROWS; row++) {
        if (takes_infinity(&table[row]) && row == row_of(table[row].name, ~0u)) {
            assert(count + 1 < API_INFINITY_KEYS);
            keys[count++] = table[row].name;
        }
    }
    keys[count] = NULL;
}

const char *fields_null_key(unsigned at) {
    return (at & SOFTMAX) != 0 ? key_of(FIELD_LOGITS) : NULL; /* logits are a key of it alone */
}

bool fields_takes_infinity(const char *name) {
    const size_t row = row_of(name, ~0u);
    return row < ROWS && takes_infinity(&table[row]);
}

/* ---------------------------------------------------------------------------------- the readers */

/* Adds a hint to the message of an error. Returns false. */
static bool add_hint(struct codec_error *error, const char *hint) {
    const size_t used = strlen(error->message);
    if (hint != NULL) {
        snprintf(error->message + used, sizeof error->message - used, "; %s", hint);
    }
    return false;
}

/* Returns what is said of a matrix that was refused, or NULL. */
static const char *hint_for(const struct field *field, const struct codec_value *value) {
    size_t shape[ATTN_MAX_RANK];
    const size_t rank = codec_shape(value, shape);
    if (rank == 1 && field->least == 2) {
        return "a matrix of one row is [[1, 2]]";
    }
    if (rank == 0 && field->at == LINEAR) {
        return "one number for all is [1]";
    }
    return rank >= (size_t)field->least && rank <= (size_t)field->most ? field->not_a_mask : NULL;
}

/* Reads a mask. Numbers that are all 0 are refused: whoever adds masks to scores, as most programs
 * do, means that every key is seen, and whoever means that none is seen can say false. */
static bool read_mask(struct codec_document *document, const struct field *field,
                      const struct codec_value *value, attn_tensor *tensor,
                      struct codec_error *error) {
    if (!codec_as_mask(document, value, field->least, field->most, tensor, error)) {
        return false;
    }
    return !codec_mask_is_zeros(value) ||
           codec_fail(document, value, error,
                      "%s is 0 everywhere, which would hide every key (if that is meant, write "
                      "false in place of 0)",
                      codec_name(value));
}

/* Reads rows of keys or values. What excluded rows hold is seen when the call is computed. */
static bool read_rows(struct call *call, struct codec_document *document, const struct field *field,
                      const struct codec_value *value, attn_tensor *tensor,
                      struct codec_error *error) {
    size_t special;
    return codec_as_rows(document, value, field->least, field->most, tensor, &special, error) &&
           (special == SIZE_MAX ||
            excluded_note(
                call, document,
                &(struct excluded_tensor){.value = value, .tensor = tensor, .special = special},
                error));
}

/* Reads a matrix of numbers to `tensor`, and points `*pointer` to it. */
static bool read_matrix(struct codec_document *document, const struct field *field,
                        const struct codec_value *value, void *values, attn_tensor *tensor,
                        const attn_tensor **pointer, struct codec_error *error) {
    bool good;
    *pointer = tensor;
    switch (field->kind) {
    case FIELD_MASK:
        good = read_mask(document, field, value, tensor, error);
        break;
    case FIELD_EXACT:
        good = codec_as_exact_reals(document, value, field->least, field->most, tensor, error);
        break;
    case FIELD_ROWS: /* only calls have such fields */
        good = read_rows(values, document, field, value, tensor, error);
        break;
    case FIELD_LOGITS:
    case FIELD_DECAY:
    case FIELD_BIAS:
        good = codec_as_reals_or_null(document, value, field->least, field->most, tensor, error);
        break;
    default:
        good = codec_as_reals(document, value, field->least, field->most, tensor, error);
        break;
    }
    return good || add_hint(error, hint_for(field, value));
}

static bool read_choice(const struct codec_document *document, const struct field *field,
                        const struct codec_value *value, size_t *choice,
                        struct codec_error *error) {
    return codec_as_choice(document, value, field->choices, field->choice_count, choice, error);
}

static bool read_seconds(const struct codec_document *document, const struct codec_value *value,
                         double *seconds, struct codec_error *error) {
    if (!codec_as_number(document, value, seconds, error)) {
        return false;
    }
    return *seconds > 0 || codec_fail(document, value, error,
                                      "%s must be a number of seconds greater than 0, not %g",
                                      codec_name(value), *seconds);
}

/* Are the numbers of a field those of a matrix, which has the dtype of the request? */
static bool is_real(const struct field *field) {
    return field->draw == FIELDS_NUMBERS && field->kind != FIELD_EXACT;
}

bool fields_is_exact(const char *name) {
    const size_t row = row_of(name, ~0u);
    return row < ROWS && table[row].draw != FIELDS_MASK && !is_real(&table[row]);
}

/* Says that all members of an object are matrices. */
static void expect_members(const struct codec_document *document,
                           const struct codec_value *object) {
    for (const struct codec_value *member = codec_at(object, 0); member != NULL;
         member = codec_next(member)) {
        codec_expect_reals(document, member);
    }
}

void fields_expect(const struct fields *fields, const struct codec_document *document) {
    for (size_t i = 0; i < fields->count; i++) {
        const struct field *field = fields->given[i].row;
        const struct codec_value *value = fields->given[i].value;
        if (field->kind == FIELD_MASK) {
            codec_expect_mask(value);
        } else if (is_real(field)) {
            codec_expect_reals(document, value);
        } else if (field->kind == FIELD_EXPECTED) {
            expect_members(document, value);
        } else if (field->kind == FIELD_BY_NAME && strcmp(field->name, "heads") == 0) {
            for (value = codec_at(value, 0); value != NULL; value = codec_next(value)) {
                expect_members(document, value);
            }
        }
    }
}

/* Reads one value. `values` and `pointers` are the structs that the offsets of the row are in. */
static bool read_field(struct codec_document *document, const struct field *field,
                       const struct codec_value *value, void *values, void *pointers,
                       struct codec_error *error) {
    void *out = (char *)values + field->value, *pointer = (char *)pointers + field->pointer;
    size_t choice = 0;
    int64_t integer = 0;
    bool good = true;
    switch (field->kind) {
    case FIELD_BY_NAME:
    case FIELD_WORDS:
        break;
    case FIELD_MATRIX:
    case FIELD_ROWS:
    case FIELD_LOGITS:
    case FIELD_DECAY:
    case FIELD_BIAS:
    case FIELD_EXACT:
    case FIELD_MASK:
        good = read_matrix(document, field, value, values, out, pointer, error);
        break;
    case FIELD_DTYPE:
        good = read_choice(document, field, value, &choice, error) ||
               add_hint(error, "\"compute_dtype\" of /attention rounds every stage to 16 bits");
        break;
    case FIELD_CHOICE:
        good = read_choice(document, field, value, &choice, error);
        *(int *)out = (int)choice;
        break;
    case FIELD_INTEGER:
        good = codec_as_integer(document, value, field->least, field->most, &integer, error);
        *(int *)out = (int)integer;
        break;
    case FIELD_COUNT:
        good = field_count(document, value, out, error);
        break;
    case FIELD_NUMBER:
        good = codec_as_number(document, value, out, error);
        break;
    case FIELD_BOOL:
        good = codec_as_bool(document, value, out, error);
        break;
    case FIELD_SECONDS:
        good = read_seconds(document, value, out, error);
        break;
    case FIELD_EXPECTED:
    case FIELD_READER:
        good = field->read(values, document, field, value, error);
        break;
    }
    return good;
}

static bool read_group(const struct fields *fields, enum fields_group group,
                       struct codec_document *document, void *values, void *pointers,
                       struct codec_error *error) {
    for (size_t i = 0; i < fields->count; i++) {
        const struct fields_given *given = &fields->given[i];
        if (given->row->group == group &&
            !read_field(document, given->row, given->value, values, pointers, error)) {
            return false;
        }
    }
    return true;
}

bool fields_read_work(const struct api_request *request, struct api_work *work,
                      struct codec_error *error) {
    return read_group(&request->fields, FIELDS_WORK, request->body, work, work, error);
}

bool fields_read_inputs(const struct api_request *request, struct call *call,
                        struct codec_error *error) {
    return read_group(&request->fields, FIELDS_INPUTS, request->body, call, call, error);
}

bool fields_read_weights(const struct fields *fields, struct codec_document *document,
                         struct call_weights *weights, attn_projection *projection,
                         struct codec_error *error) {
    return read_group(fields, FIELDS_WEIGHTS, document, weights, projection, error);
}

/* Refuses to return a comparison with nothing. */
static bool check_return(const struct api_request *request, const struct call *call,
                         struct codec_error *error) {
    for (size_t i = 0; i < call->return_count; i++) {
        if (call->returned[i] == ANSWER_COMPARISON) {
            return codec_fail(request->body, fields_get(&request->fields, "return"), error,
                              "return names \"comparison\", but the request has no \"expected\" "
                              "to compare with");
        }
    }
    return true;
}

/* Leaves the weights out of the results that a request without "return" gets, if they have no
 * packed form. */
static void choose_results(const struct fields *fields, struct call *call) {
    if (fields_get(fields, "sequences") != NULL || fields_get(fields, "sequence_offsets") != NULL) {
        call->options.results = answer_bits[ANSWER_OUTPUT];
        call->return_count = 1; /* the first one is the output */
    }
}

/* Turns rotary embedding on if its tables are given. Refuses them beside `false`, and positions
 * that turn nothing. */
static bool choose_rotary(const struct api_request *request, struct call *call,
                          struct codec_error *error) {
    const struct codec_value *rotary = fields_get(&request->fields, "rotary");
    const struct codec_value *positions = fields_get(&request->fields, "positions");
    if (call->rotary.cos != NULL || call->rotary.sin != NULL) {
        if (rotary != NULL && call->options.rotary == NULL) {
            return codec_fail(request->body, rotary, error,
                              "rotary is false, but rotary_cos and rotary_sin turn it on");
        }
        call->options.rotary = &call->rotary;
    }
    return positions == NULL || call->options.rotary != NULL ||
           codec_fail(request->body, positions, error,
                      "positions is given without rotary or rotary_cos and rotary_sin");
}

bool fields_read_options(const struct api_request *request, struct call *call,
                         struct codec_error *error) {
    choose_results(&request->fields, call);
    if (!fields_read_work(request, &call->work, error) ||
        !read_group(&request->fields, FIELDS_OPTIONS, request->body, call, call, error) ||
        !choose_rotary(request, call, error)) {
        return false;
    }
    if (call->upstream.output != NULL || call->upstream.lse != NULL ||
        call->upstream.weights != NULL || call->upstream.state != NULL) {
        call->options.upstream = &call->upstream;
    }
    return call->comparison != NULL || check_return(request, call, error);
}

/* -------------------------------------------------------------------------------------- errors */

/* Returns the key under which an argument of the library stands in the body. The key of X is "text"
 * if the words of a text stand in place of X. Of several keys for an argument, the first one that
 * is given counts. */
static const char *key_of_argument(const struct fields *fields, const char *argument) {
    const char *key = NULL;
    for (size_t row = 0; row < ROWS; row++) {
        const char *name = table[row].argument != NULL ? table[row].argument : table[row].name;
        if ((table[row].at & fields->at) != 0 && strcmp(name, argument) == 0) {
            const struct codec_value *value = fields_get(fields, table[row].name);
            if (value != NULL) {
                return codec_name(value);
            }
            key = key == NULL ? table[row].name : key;
        }
    }
    return key != NULL ? key : argument;
}

/* Returns whether the request says that its weights are out_in. */
static bool is_out_in(const struct api_request *request) {
    const struct codec_value *value = fields_get(&request->fields, "weight_layout");
    struct codec_error unused;
    size_t layout;
    return value != NULL && codec_as_choice(request->body, value, layouts, 2, &layout, &unused) &&
           layout == ATTN_OUT_IN;
}

void fields_refuse(struct api_request *request, const attn_error *error) {
    attn_error named = *error;
    const size_t used = strlen(named.message);
    snprintf(named.argument, sizeof named.argument, "%s",
             key_of_argument(&request->fields, error->argument));
    if (error->transposed) {
        snprintf(named.message + used, sizeof named.message - used, "; transposed it would fit: %s",
                 is_out_in(request) ? "is \"weight_layout\" \"in_out\", the default?"
                                    : "the weights of torch.nn.Linear need \"weight_layout\": "
                                      "\"out_in\"");
    }
    reply_attn_error(request, &named);
}
