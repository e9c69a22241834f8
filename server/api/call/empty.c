/* empty.c - see empty.h. */
#include "api/call/empty.h"

#include <string.h>

enum {
    MOST_OTHERS = 3
};

/* A matrix that may have no rows, and those by which its columns are known. */
struct input {
    const char *name, *others[MOST_OTHERS];
    bool weights; /* the rows of the first are its columns */
};

static const struct input inputs[] = {
    {"Q", {"K", "past_K"}, false},      {"K", {"past_K", "Q"}, false},    {"V", {"past_V"}, false},
    {"past_K", {"K", "Q", "X"}, false}, {"past_V", {"V", "X"}, false},    {"X", {"W_Q"}, true},
    {"context", {"W_K"}, true},         {"value_context", {"W_V"}, true},
};

enum {
    INPUTS = sizeof inputs / sizeof *inputs
};

/* Returns an axis of a matrix, counted from 1 at its end, or SIZE_MAX if nothing tells it. */
static size_t size_of(const struct codec_value *value, size_t back) {
    size_t shape[ATTN_MAX_RANK];
    const size_t rank = value == NULL ? 0 : codec_shape(value, shape);
    return rank < 2 ? SIZE_MAX : shape[rank - back];
}

/* Returns a count of the request, or `otherwise` if it has none. */
static size_t count_of(const struct fields *fields, const struct codec_document *document,
                       const char *name, size_t otherwise) {
    const struct codec_value *value = fields_get(fields, name);
    struct codec_error unused;
    int64_t count;
    return value != NULL && codec_kind_of(value) == CODEC_NUMBER &&
                   codec_as_integer(document, value, 1, INT32_MAX, &count, &unused)
               ? (size_t)count
               : otherwise;
}

/* Returns the heads that lie side by side in the rows of a matrix of /attention. */
static size_t heads_of(const struct fields *fields, const struct codec_document *document,
                       const char *name) {
    const size_t heads = count_of(fields, document, "heads", 1);
    return strcmp(name, "Q") == 0 ? heads : count_of(fields, document, "kv_heads", heads);
}

/* Returns the rows of weights of the request, or of its first head. */
static size_t rows_of_weights(const struct fields *fields, const struct codec_document *document,
                              const char *name) {
    const struct codec_value *weights = fields_get(fields, name);
    const struct codec_value *heads = fields_get(fields, "heads");
    const struct codec_value *layout = fields_get(fields, "weight_layout");
    const char *text = "";
    struct codec_error unused;
    if (weights == NULL && heads != NULL && codec_kind_of(heads) == CODEC_ARRAY) {
        weights = codec_get(codec_at(heads, 0), name);
    }
    if (layout != NULL && codec_kind_of(layout) == CODEC_TEXT) {
        codec_as_text(document, layout, &text, &unused);
    }
    return size_of(weights, strcmp(text, "out_in") == 0 ? 1 : 2);
}

/* Refuses a matrix without rows that has more axes than the first one beside it, such as [[]]
 * beside [[1, 2]]: one row without columns was probably meant. */
static bool check_axes(const struct fields *fields, struct codec_document *document,
                       const struct input *input, size_t rank, struct codec_error *error) {
    size_t axes = SIZE_MAX, which = 0;
    for (size_t i = 0; !input->weights && i < MOST_OTHERS && input->others[i] != NULL; i++) {
        const struct codec_value *other = fields_get(fields, input->others[i]);
        size_t shape[ATTN_MAX_RANK];
        const size_t own = other == NULL ? 0 : codec_shape(other, shape);
        if (own >= 2 && axes == SIZE_MAX) {
            axes = own;
            which = i;
        }
    }
    return axes >= rank ||
           codec_fail(document, fields_get(fields, input->name), error,
                      "%s is empty and has %zu axes, but %s has %zu: a matrix without rows is []",
                      input->name, rank, input->others[which], axes);
}

/* Returns the columns of an input, or SIZE_MAX if nothing tells them. */
static size_t columns_of(const struct fields *fields, const struct codec_document *document,
                         const struct input *input) {
    size_t columns = SIZE_MAX;
    if (input->weights) {
        return rows_of_weights(fields, document, input->others[0]);
    }
    for (size_t i = 0; i < MOST_OTHERS && input->others[i] != NULL; i++) {
        const char *other = input->others[i];
        const bool projected = strcmp(other, "X") == 0 &&
                               (fields->at & (FIELDS_AT_PROJECTIONS | FIELDS_AT_LAYER)) != 0;
        const size_t given = projected ? SIZE_MAX : size_of(fields_get(fields, other), 1);
        const size_t from = heads_of(fields, document, other);
        if (given != SIZE_MAX && given % from == 0 && columns == SIZE_MAX &&
            __builtin_mul_overflow(given / from, heads_of(fields, document, input->name),
                                   &columns)) {
            columns = SIZE_MAX;
        }
    }
    return columns;
}

/* Makes a tensor of an empty array whose shape is known. */
static bool make_tensor(struct codec_document *document, const struct codec_value *value,
                        size_t rank, const size_t *shape, struct codec_error *error) {
    void *data;
    return codec_make_tensor(document, value, codec_document_dtype(document), (int)rank, shape, 0,
                             &data, error);
}

/* Adds the columns to a matrix without rows. */
static bool make_input(const struct fields *fields, struct codec_document *document,
                       const struct input *input, struct codec_error *error) {
    const struct codec_value *value = fields_get(fields, input->name);
    size_t shape[ATTN_MAX_RANK];
    const size_t rank = codec_empty_shape(value, shape);
    if (rank == 0 || rank == ATTN_MAX_RANK) { /* a reader refuses what has so many axes */
        return true;
    }
    shape[rank] = columns_of(fields, document, input);
    if (shape[rank] == SIZE_MAX || shape[rank] == 0) {
        return codec_fail(document, value, error,
                          "%s is empty, and nothing tells its number of columns: %sgive its shape, "
                          "as in {\"random\": \"randn\", \"shape\": [0, 4]}",
                          codec_name(value),
                          strncmp(input->name, "past", 4) == 0 ? "leave it out, or " : "");
    }
    return check_axes(fields, document, input, rank + 1, error) &&
           make_tensor(document, value, rank + 1, shape, error);
}

/* Has the call no key that a mask or bias is about? */
static bool has_no_keys(const struct fields *fields) {
    static const char *const names[] = {"K", "context", "X"};
    const size_t past = size_of(fields_get(fields, "past_K"), 2);
    size_t keys = SIZE_MAX;
    for (size_t i = 0; i < sizeof names / sizeof *names && keys == SIZE_MAX; i++) {
        keys = size_of(fields_get(fields, names[i]), 2);
    }
    return keys == 0 && (past == SIZE_MAX || past == 0);
}

/* Makes a tensor of an empty mask or bias. If there are keys, its last axis is that of the queries,
 * and one for all keys follows. */
static bool make_rule(const struct fields *fields, struct codec_document *document,
                      const char *name, struct codec_error *error) {
    const struct codec_value *value = fields_get(fields, name);
    size_t shape[ATTN_MAX_RANK];
    size_t rank = codec_empty_shape(value, shape);
    if (rank == 0) {
        return true;
    }
    if (rank < ATTN_MAX_RANK && !has_no_keys(fields)) {
        shape[rank++] = 1;
    }
    return make_tensor(document, value, rank, shape, error);
}

bool empty_make(const struct fields *fields, struct codec_document *document,
                struct codec_error *error) {
    static const char *const rules[] = {"mask", "bias"};
    static const char *const whole[] = {"key_padding",  "positions", "grad_output", "grad_lse",
                                        "grad_weights", "decay",     "beta"};
    size_t shape[ATTN_MAX_RANK], empty = 0;
    bool good = true;
    for (size_t i = 0; i < fields->count; i++) {
        empty += codec_empty_shape(fields->given[i].value, shape);
    }
    if (empty == 0) { /* as in most requests */
        return true;
    }
    for (size_t i = 0; good && i < INPUTS && fields->at != FIELDS_AT_SOFTMAX; i++) {
        good = make_input(fields, document, &inputs[i], error);
    }
    for (size_t i = 0; good && i < sizeof rules / sizeof *rules; i++) {
        good = make_rule(fields, document, rules[i], error);
    }
    for (size_t i = 0; good && i < sizeof whole / sizeof *whole; i++) {
        good = codec_make_empty(document, fields_get(fields, whole[i]), error);
    }
    return good && (fields->at != FIELDS_AT_SOFTMAX ||
                    codec_make_empty(document, fields_get(fields, "X"), error));
}
