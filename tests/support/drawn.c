/* drawn.c - draws valid calls from the table of request fields. */
#define _GNU_SOURCE /* fmemopen */
#include "support/drawn.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "api/call/answer_names.h"
#include "api/call/field.h"
#include "results.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

const char *const drawn_paths[] = {"/attention",
                                   "/self-attention",
                                   "/linear-attention",
                                   "/softmax",
                                   "/multi-head-attention",
                                   "/embeddings",
                                   "/layers/small.attention/attention"};
const size_t drawn_path_count = COUNT(drawn_paths);

enum {
    MODELS = 5 /* the first paths are models */
};

/* A call with the first key has the second one, too. */
static const char *const needs[][2] = {{"past_K", "past_V"},
                                       {"past_V", "past_K"},
                                       {"past_K_scale", "past_K"},
                                       {"past_V_scale", "past_V"},
                                       {"bias_K", "bias_V"},
                                       {"bias_V", "bias_K"},
                                       {"rotary_cos", "rotary_sin"},
                                       {"rotary_sin", "rotary_cos"},
                                       {"b_O", "W_O"},
                                       {"b_G", "W_G"},
                                       {"decay", "causal"},
                                       {"positions", "rotary"},
                                       {"embedding_dim", "random"},
                                       {"top_k", "return"},
                                       {"mean_over_heads", "return"},
                                       {"sigmoid_bias", "normalization"},
                                       {"grad_output", "return"},
                                       {"grad_lse", "return"},
                                       {"grad_weights", "return"},
                                       {"grad_present_state", "return"},
                                       {"tolerance", "expected"},
                                       {"computed_in", "expected"},
                                       {"fail_on_difference", "expected"}};

/* If a call has the first key, it has not the second one. A query may stand before the first row of
 * the tables of rotary_cos and rotary_sin if causal or alignment is given. */
static const char *const excludes[][2] = {{"embedding_dim", "embedding"},
                                          {"rotary", "rotary_cos"},
                                          {"rotary", "rotary_sin"},
                                          {"alibi", "bias_K"},
                                          {"alibi", "bias_V"},
                                          {"alibi", "zero_key"},
                                          {"decay", "bias_K"},
                                          {"decay", "bias_V"},
                                          {"decay", "zero_key"},
                                          {"context", "positions"},
                                          {"value_context", "positions"},
                                          {"alignment", "causal"},
                                          {"rotary_cos", "causal"},
                                          {"rotary_cos", "alignment"},
                                          {"compute_dtype", "grad_output"},
                                          {"compute_dtype", "grad_lse"},
                                          {"compute_dtype", "grad_weights"},
                                          {"sink", "normalization"},
                                          {"grad_lse", "normalization"},
                                          {"expected", "normalization"},
                                          {"gate", "W_G"},
                                          {"sequences", "sequence_offsets"}};

/* A call with sequences has none of these. */
static const char *const not_packed[] = {"mask",
                                         "bias",
                                         "lengths",
                                         "key_padding",
                                         "past_K",
                                         "past_V",
                                         "past_K_scale",
                                         "past_V_scale",
                                         "grad_weights",
                                         "top_k",
                                         "mean_over_heads",
                                         "past_state",
                                         "grad_present_state"};

struct state {
    struct rng *rng;
    struct drawn_call *drawn;
    unsigned at;
    bool free; /* Q, K and V are inputs, or X alone */
    bool given[FIELDS_MOST];
    /* Whether matrices have an axis of the batch; whether there are several heads; whether these
     * stand in the columns; and whether each has weights of its own. */
    bool batch, headed, packed, list;
    bool out_in;      /* the layout of the weights */
    bool sequences;   /* whether the rows are those of packed sequences */
    bool gradients;   /* whether there are gradients of results */
    bool decays;      /* whether there are decays */
    bool mean;        /* weights have no axis of the heads */
    char output;      /* the letter of the columns of the output */
    size_t size[128]; /* of an axis, by its letter */
    FILE *options;
};

/* ------------------------------------------------------------------------------------- the keys */

static unsigned bit_of(const char *path) {
    if (strcmp(path, "heads") == 0) {
        return FIELDS_AT_HEAD;
    }
    const struct api_route *route = api_route_of(path);
    return route != NULL ? route->fields : 0;
}

/* Returns row `i` of the table, or NULL if these objects do not have it. */
static const struct field *row_at(unsigned at, size_t i) {
    const struct field *row = fields_row(i);
    return row != NULL && (row->at & at) != 0 ? row : NULL;
}

/* Returns row `i` among those of an endpoint, or NULL. */
static const struct field *row_of_path(const char *path, size_t i) {
    const unsigned at = bit_of(path);
    for (size_t row = 0; fields_row(row) != NULL; row++) {
        if (row_at(at, row) != NULL && i-- == 0) {
            return fields_row(row);
        }
    }
    return NULL;
}

const char *drawn_key(const char *path, size_t i) {
    const struct field *row = row_of_path(path, i);
    return row != NULL ? row->name : NULL;
}

bool drawn_limit_of(const char *path, size_t i, struct drawn_limit *limit) {
    const struct field *row = row_of_path(path, i);
    if (row == NULL) {
        return false;
    }
    const bool counted = row->kind == FIELD_COUNT || row->kind == FIELD_SECONDS;
    *limit = (struct drawn_limit){.name = row->name,
                                  .least = counted ? 1 : row->least,
                                  .most = row->most,
                                  .element = row->kind == FIELD_MASK    ? "true"
                                             : row->kind == FIELD_DECAY ? "0"
                                                                        : "1",
                                  .open = row->kind == FIELD_READER && row->least == 1};
    if (counted || row->kind == FIELD_INTEGER) {
        limit->element = NULL;
    }
    return true;
}

const char *drawn_example(const char *path) {
    return fields_example(bit_of(path));
}

/* Returns where it stands whether a key is given. A key that the objects do not have is never
 * given, and the place that is returned then counts for nothing. */
static bool *given(struct state *s, const char *name) {
    static bool none;
    for (size_t i = 0; fields_row(i) != NULL; i++) {
        if (row_at(s->at, i) != NULL && strcmp(fields_row(i)->name, name) == 0) {
            return &s->given[i];
        }
    }
    none = false;
    return &none;
}

static void give(struct state *s, const char *name, bool whether) {
    *given(s, name) = whether;
}

/* Makes a call one of packed sequences, or not. Their rows have their heads in the columns. */
static void choose_sequences(struct state *s) {
    s->sequences =
        (*given(s, "sequences") || *given(s, "sequence_offsets")) && rng_chance(s->rng, 2);
    if (!s->sequences) {
        give(s, "sequences", false);
        give(s, "sequence_offsets", false);
        return;
    }
    s->batch = false;
    s->packed = s->headed;
    for (size_t i = 0; i < COUNT(not_packed); i++) {
        give(s, not_packed[i], false);
    }
}

/* Chooses the keys of a call. */
static void choose_keys(struct state *s, bool json) {
    static const char *const weights[] = {"W_Q", "W_K", "W_V"}, *const qkv[] = {"Q", "K", "V"},
                             *const scales[] = {"Q_scale", "K_scale", "V_scale"};
    static const char *const own[] = {"W_Q", "W_K",    "W_V",    "b_Q",          "b_K",
                                      "b_V", "past_K", "past_V", "past_K_scale", "past_V_scale"};
    const bool words =
        s->at != FIELDS_AT_SOFTMAX && (s->at == FIELDS_AT_EMBEDDINGS || rng_chance(s->rng, 5));
    const bool alone = words || !s->free || rng_chance(s->rng, 4);
    s->batch &= !words;
    s->packed |= words && s->free;
    for (size_t i = 0; fields_row(i) != NULL; i++) {
        s->given[i] = row_at(s->at, i) != NULL && rng_chance(s->rng, 4);
    }
    choose_sequences(s);
    for (size_t i = 0; i < 3; i++) {
        give(s, weights[i], true);
        give(s, qkv[i], !alone);
        give(s, scales[i], !alone && *given(s, scales[i]));
    }
    give(s, "X", alone && !words);
    give(s, "tokens", words && rng_chance(s->rng, 2));
    give(s, "text", words && !*given(s, "tokens"));
    give(s, "embedding_dim", words && json && rng_chance(s->rng, 3));
    give(s, "embedding", words);
    give(s, "random", json && *given(s, "random"));
    give(s, "compute_dtype", json && *given(s, "compute_dtype")); /* it needs float32 */
    give(s, "digits", json && *given(s, "digits"));
    give(s, "timeout", json && *given(s, "timeout"));
    give(s, "expected", !words && *given(s, "expected"));
    give(s, "dtype", false); /* whoever writes the call chooses it */
    for (size_t i = 0; i < COUNT(own) && s->list; i++) {
        give(s, own[i], false);
    }
    give(s, "heads", s->headed && s->packed);
    give(s, "kv_heads", *given(s, "heads") && !s->list && *given(s, "kv_heads"));
    for (size_t i = 0; i < COUNT(needs); i++) {
        if (*given(s, needs[i][0])) {
            give(s, needs[i][1], true);
        }
    }
    for (size_t i = 0; i < COUNT(excludes); i++) {
        if (*given(s, excludes[i][0])) {
            give(s, excludes[i][1], false);
        }
    }
    for (size_t i = 0; i < COUNT(needs); i++) {
        if (!*given(s, needs[i][1])) {
            give(s, needs[i][0], false);
        }
    }
    const bool norms = *given(s, "norm_Q") || *given(s, "norm_K") || *given(s, "norm_V") ||
                       *given(s, "normalize_QK");
    give(s, "norm_epsilon", norms && *given(s, "norm_epsilon"));
}

/* --------------------------------------------------------------------------------- the matrices */

static void choose_sizes(struct state *s) {
    static const char letters[] = "bhnmpdcovwrs";
    static const size_t sizes[] = {2, 4, 3, 5, 2, 4, 6, 5, 3, 5, 12, 2};
    const bool words = *given(s, "text") || *given(s, "tokens"), layers = s->at == FIELDS_AT_LAYER;
    const bool attention = s->free, alone = words || *given(s, "X");
    size_t *size = s->size;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size[(int)letters[i]] = sizes[i];
    }
    size['b'] = s->batch ? 2 : 1;
    size['h'] = layers ? 2 : s->headed ? 4 : 1;
    size['n'] = words ? 4 : size['n'];
    if (attention ? alone || s->at == FIELDS_AT_LINEAR || *given(s, "positions")
                  : !*given(s, "context")) {
        size['m'] = size['n'];
    }
    if (attention) {
        size['c'] = s->packed ? size['h'] * size['d'] : size['d'];
        size['v'] = alone ? size['d'] : size['v'];
    } else if (layers) {
        size['c'] = 4;
        size['d'] = size['v'] = 2;
    }
    const bool may_share = s->headed && !s->list && !layers && !(attention && alone);
    const bool share = may_share && (s->packed ? *given(s, "kv_heads") : rng_chance(s->rng, 2));
    size['g'] = share ? 2 : size['h']; /* heads of K */
    size['x'] = *given(s, "context") && !layers ? 5 : size['c'];
    size['y'] = *given(s, "value_context") && !layers ? 7 : size['x'];
    size['k'] = size['m'] + (*given(s, "past_K") ? size['p'] : 0);
    size['a'] = size['k'] + *given(s, "bias_K") + *given(s, "zero_key");
    size['i'] = size['h'] * size['v'];
    s->output = *given(s, "W_O") ? 'o' : 'i';
    size['e'] = size['d'] / 2;
    size['u'] = 1;
}

/* Returns an input of a call, or of one of its heads, and the letters of its axes. */
static struct binary_input input_of(struct state *s, const struct field *row, char letters[5]) {
    struct binary_input input = {.name = row->name,
                                 .kind = row->draw == FIELDS_MASK         ? BINARY_MASK
                                         : row->kind == FIELD_DECAY       ? BINARY_DECAY
                                         : strcmp(row->name, "beta") == 0 ? BINARY_SHARE
                                                                          : 0};
    const char *axes = row->sample;
    const bool linear = s->at == FIELDS_AT_LINEAR;
    if (row->kind == FIELD_DECAY && s->packed && s->at == FIELDS_AT_ATTENTION) {
        axes = "bkH"; /* the heads are an axis, packed or not */
    }
    /* A decay of a state may be the same for all columns. */
    const bool by_head = row->kind == FIELD_DECAY && linear && rng_chance(s->rng, 2);
    const size_t all = strcspn(axes, "|") - by_head;
    size_t first = 0, rank = 0, columns = 1;
    char follows = 0;
    memset(letters, 0, 5);
    /* Past keys that are projected have the form of the result K. Gradients have that of lse, of
     * weights and of the state. */
    const bool of_weights = strcmp(row->name, "grad_weights") == 0;
    const bool apart = (row->kind == FIELD_DECAY && !linear) ||
                       (s->at != FIELDS_AT_ATTENTION && strncmp(row->name, "past", 4) == 0) ||
                       strcmp(row->name, "grad_lse") == 0 || (of_weights && !s->mean) ||
                       strcmp(row->name, "grad_present_state") == 0;
    if (strncmp(axes, "bh", 2) == 0) { /* any number of axes may be missing */
        const size_t most = s->batch ? 4 : s->headed ? 3 : 2;
        const size_t least = (size_t)row->least;
        first = all - rng_between(s->rng, least, most);
    }
    for (size_t i = first; i < all; i++) {
        const char axis = axes[i] == 'o' ? s->output : axes[i];
        const size_t size = s->size[tolower((unsigned char)axis)];
        if (isupper((unsigned char)axis) && !(apart && s->headed)) {
            columns = s->headed && s->packed && !of_weights ? size : 1;
            follows = axes[all - 1] == 'n' && columns > 1 ? axis : 0;
            if (!s->headed || s->packed || of_weights) {
                continue;
            }
        } else if (axis == 'b' && !s->batch) {
            continue;
        }
        letters[rank] = axis;
        input.shape[rank++] = size;
    }
    if (follows != 0) { /* without columns of a head, packed heads stand after the rows */
        letters[rank] = follows;
        input.shape[rank++] = columns;
        columns = 1;
    }
    input.shape[rank - 1] *= columns;
    if (s->packed && rank > 1 && isupper((unsigned char)letters[rank - 1]) &&
        input.shape[rank - 1] == input.shape[rank - 2]) { /* the heads follow the rows */
        letters[rank] = 'u';
        input.shape[rank++] = 1;
    }
    if (row->name[0] == 'W' && s->out_in) {
        const size_t last = input.shape[rank - 1];
        const char letter = letters[rank - 1];
        input.shape[rank - 1] = input.shape[rank - 2];
        input.shape[rank - 2] = last;
        letters[rank - 1] = letters[rank - 2];
        letters[rank - 2] = letter;
    }
    return input;
}

/* Returns an expected tensor: the lse, the last state, or the output of /softmax. */
static struct binary_input expected_of(const struct state *s, char letters[5]) {
    const bool linear = s->at == FIELDS_AT_LINEAR;
    struct binary_input input = {.name = linear ? "expected.present_state" : "expected.lse"};
    size_t rank = 0;
    if (s->at == FIELDS_AT_SOFTMAX) {
        input = s->drawn->call.inputs[0]; /* X */
        input.name = "expected.output";
        input.kind = 0;
        memcpy(letters, s->drawn->axes[0], 5);
        return input;
    }
    for (const char *axis = linear ? "sbgdv" : "bhn"; *axis != '\0'; axis++) {
        if (*axis == 's'                   ? s->sequences
            : *axis == 'b'                 ? s->batch
            : *axis == 'h' || *axis == 'g' ? s->headed
                                           : true) {
            letters[rank] = *axis;
            input.shape[rank++] = s->size[(int)*axis];
        }
    }
    return input;
}

/* Adds the matrices, and takes their keys from those that are given. */
static void add_inputs(struct state *s, bool json) {
    size_t count = 0;
    bool random = false;
    for (size_t i = 0; fields_row(i) != NULL; i++) {
        const struct field *row = fields_row(i);
        if (!s->given[i] || row->draw == FIELDS_NOT_DRAWN ||
            (strchr(row->sample, '|') != NULL && rng_chance(s->rng, 2))) {
            continue;
        }
        s->drawn->call.inputs[count] = input_of(s, row, s->drawn->axes[count]);
        if (json && row->kind != FIELD_DECAY && rng_chance(s->rng, 8)) {
            s->drawn->call.inputs[count].kind |= BINARY_DRAWN;
            random = true;
        } else if (json && row->kind == FIELD_BIAS) {
            s->drawn->call.inputs[count].kind |= BINARY_HOLES;
        }
        count++;
        s->given[i] = false;
    }
    if (*given(s, "expected")) {
        s->drawn->call.inputs[count] = expected_of(s, s->drawn->axes[count]);
        give(s, "expected", false);
    }
    give(s, "random", random || *given(s, "random"));
}

/* --------------------------------------------------------------------------------- the options */

/* Writes one of the values in a sample, from `from` on. */
static void put_sample(struct state *s, const char *from) {
    size_t count = 1;
    for (const char *at = from; (at = strchr(at, '|')) != NULL; at++) {
        count++;
    }
    for (size_t skip = rng_between(s->rng, 0, count - 1); skip > 0; skip--) {
        from = strchr(from, '|') + 1;
    }
    fprintf(s->options, "%.*s", (int)strcspn(from, "|"), from);
}

/* Returns whether a call has an input of this name. */
static bool has_input(const struct state *s, const char *name) {
    const struct binary_input *input = s->drawn->call.inputs;
    while (input->name != NULL && strcmp(input->name, name) != 0) {
        input++;
    }
    return input->name != NULL;
}

/* Returns whether a call has a gradient: whether it has gradients of results, and the input. */
static bool has_gradient(const struct state *s, const char *input) {
    bool has = strlen(input) == 1 && (input[0] != 'X' || s->drawn->words);
    has |= s->list && input[0] == 'W' && strchr("OG", input[2]) == NULL;
    return (has || has_input(s, input)) && s->gradients;
}

/* Writes the names of results. */
static void draw_results(struct state *s, const struct field *row) {
    char *returned = s->drawn->returned;
    size_t size = 0;
    const bool none = *given(s, "normalization");
    const uint64_t packed =
        RESULTS_OF(RESULT_PACKED | RESULT_GRADIENT) | ATTN_WANT(PRESENT_STATE) | ATTN_WANT(DECAYS);
    for (size_t i = 0; i < row->choice_count; i++) {
        const char *name = row->choices[i];
        const bool needed = (strcmp(name, "top_k") == 0 && *given(s, "top_k")) ||
                            (strcmp(name, "weights") == 0 && s->mean) ||
                            (strcmp(name, "grad_V") == 0 && s->gradients) ||
                            (i == 0 && !*given(s, "top_k") && !s->mean && !s->gradients);
        const uint64_t bits = answer_bits[answer_of(name)];
        if ((none && (bits & RESULTS_OF(RESULT_SOFTMAX)) != 0) || strcmp(name, "comparison") == 0) {
            continue; /* the latter needs expected results */
        }
        if (s->sequences && (bits & ~packed) != 0) {
            continue;
        }
        if (strcmp(name, "decays") == 0 && !has_input(s, "decay")) {
            continue;
        }
        if (strncmp(name, "grad_", 5) == 0 && !has_gradient(s, name + 5)) {
            continue;
        }
        if (needed || rng_chance(s->rng, 3)) {
            size += (size_t)sprintf(returned + size, "%s\"%s\"", size > 0 ? "," : "[", name);
        }
    }
    strcpy(returned + size, "]");
    s->drawn->call.returned = returned;
}

/* Writes a list of lengths, or of scales; or one of the other values in its sample. */
static void put_list(struct state *s, const char *sample) {
    const char *others = strchr(sample, '|');
    if (others != NULL && rng_chance(s->rng, 2)) {
        put_sample(s, others + 1);
        return;
    }
    for (size_t i = 0; i < s->size[(int)sample[0]]; i++) {
        const size_t most = sample[0] == 'b' ? s->size['k'] : 3;
        fprintf(s->options, "%c%zu", i > 0 ? ',' : '[', rng_between(s->rng, 1, most));
    }
    fputc(']', s->options);
}

/* Writes the lengths, or the offsets, of two sequences, for Q and K or for each. */
static void put_sequences(struct state *s, bool offsets) {
    const size_t rows[] = {s->size['n'], s->size['m']};
    fputc('[', s->options);
    for (size_t i = 0; i < (rows[0] == rows[1] ? 1 : 2); i++) {
        const size_t first = rng_between(s->rng, 0, rows[i]);
        fprintf(s->options, offsets ? "%s[0,%zu,%zu]" : "%s[%zu,%zu]", i > 0 ? "," : "", first,
                offsets ? rows[i] : rows[i] - first);
    }
    fputc(']', s->options);
}

/* Writes the heads of a call that have weights of their own. */
static void put_heads(struct state *s) {
    struct state one = *s;
    one.headed = one.batch = false;
    for (size_t head = 0; head < s->size['h']; head++) {
        const char *comma = "{";
        fputc(head > 0 ? ',' : '[', s->options);
        for (size_t i = 0; fields_row(i) != NULL; i++) {
            const struct field *row = row_at(FIELDS_AT_HEAD, i);
            if (row != NULL && (row->name[0] == 'W' || rng_chance(s->rng, 4))) {
                char axes[5];
                const struct binary_input input = input_of(&one, row, axes);
                fputs(comma, s->options);
                binary_put(s->options, &input);
                comma = ",";
            }
        }
        fputc('}', s->options);
    }
    fputc(']', s->options);
}

static void put_option(struct state *s, const struct field *row) {
    fprintf(s->options, "%s\"%s\":", ftell(s->options) > 0 ? "," : "", row->name);
    if (strcmp(row->name, "heads") == 0 && s->list) {
        put_heads(s);
    } else if (strcmp(row->name, "heads") == 0 || strcmp(row->name, "kv_heads") == 0) {
        fprintf(s->options, "%zu", s->size[row->name[0] == 'h' ? 'h' : 'g']);
    } else if (strcmp(row->name, "embedding_dim") == 0) {
        fprintf(s->options, "%zu", s->size['c']);
    } else if (strcmp(row->name, "weight_layout") == 0) {
        fprintf(s->options, "\"%s\"", row->choices[s->out_in]);
    } else if (row->read == field_update) { /* the choices are in the order of these bits */
        fprintf(s->options, "\"%s\"",
                row->choices[has_input(s, "decay") + 2 * has_input(s, "beta")]);
    } else if (strcmp(row->name, "normalization") == 0 && *given(s, "sigmoid_bias")) {
        fputs("\"sigmoid\"", s->options);
    } else if (strcmp(row->name, "causal") == 0 && s->decays) {
        fputs("true", s->options);
    } else if (row->choice_count > 0) {
        fprintf(s->options, "\"%s\"", row->choices[rng_between(s->rng, 0, row->choice_count - 1)]);
    } else if (row->read == field_sequences || row->read == field_sequence_offsets) {
        put_sequences(s, row->read == field_sequence_offsets);
    } else if (row->most > 0 && row->draw == FIELDS_NOT_DRAWN && row->kind == FIELD_READER) {
        put_list(s, row->sample);
    } else if (row->sample != NULL) {
        put_sample(s, row->sample +
                          (row->draw != FIELDS_NOT_DRAWN ? strcspn(row->sample, "|") + 1 : 0));
    } else if (row->kind == FIELD_INTEGER) {
        fprintf(s->options, "%zu", rng_between(s->rng, (size_t)row->least, (size_t)row->most));
    } else {
        fputs(row->kind == FIELD_BOOL      ? "true"
              : row->kind == FIELD_SECONDS ? "10"
                                           : "0.5",
              s->options);
    }
}

void draw_call(struct rng *rng, const char *path, bool json, struct drawn_call *drawn) {
    struct state s = {.rng = rng, .drawn = drawn, .at = bit_of(path)};
    memset(drawn, 0, sizeof *drawn);
    drawn->call.path = path;
    drawn->call.options = drawn->options;
    s.batch = rng_chance(rng, 2);
    s.headed = s.at == FIELDS_AT_LAYER || !rng_chance(rng, 3);
    s.packed = s.at != FIELDS_AT_LAYER && rng_chance(rng, 2);
    s.list = json && s.at == FIELDS_AT_PROJECTIONS && rng_chance(rng, 4);
    s.headed |= s.list;
    s.packed |= s.list;
    s.free = s.at == FIELDS_AT_ATTENTION || s.at == FIELDS_AT_LINEAR;
    if (s.free && s.batch && !s.headed) {
        s.headed = true; /* the first of three axes counts the heads */
    }
    choose_keys(&s, json);
    choose_sizes(&s);
    drawn->words = *given(&s, "text") || *given(&s, "tokens");
    s.out_in = *given(&s, "weight_layout") && rng_chance(rng, 2);
    s.mean = *given(&s, "mean_over_heads");
    s.decays = *given(&s, "decay");
    s.gradients = *given(&s, "grad_output") || *given(&s, "grad_lse") ||
                  *given(&s, "grad_weights") || *given(&s, "grad_present_state");
    add_inputs(&s, json);
    s.options = fmemopen(drawn->options, sizeof drawn->options, "w");
    for (size_t i = 0; fields_row(i) != NULL; i++) {
        if (s.given[i] && fields_row(i)->read == field_return) {
            draw_results(&s, fields_row(i));
        } else if (s.given[i]) {
            put_option(&s, fields_row(i));
        }
    }
    fclose(s.options);
}

const char *drawn_dtype(const struct drawn_call *drawn, bool wide) {
    return wide && strstr(drawn->options, "compute_dtype") == NULL ? "float64" : "float32";
}

void draw_binary(size_t i, struct drawn_call *drawn) {
    struct rng rng = {i + 1};
    draw_call(&rng, drawn_paths[i % MODELS], false, drawn);
}
