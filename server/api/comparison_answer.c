/* comparison_answer.c - what an answer says of a comparison: verdicts, errors and their places. */
#include "api/comparison.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- the verdict */

/* The verdicts are ordered from the best to the worst. */
enum verdict {
    EQUAL,   /* no number differs */
    ROUNDED, /* no number differs by more than the bound of rounding */
    CLOSE,   /* some do, but none is beyond the tolerance */
    WRONG
};
static const char *const verdicts[] = {
    [EQUAL] = "equal", [ROUNDED] = "rounded", [CLOSE] = "close", [WRONG] = "wrong"};

/* Returns the error of a result that is as exact as the type lets it be, relative to its magnitude:
 * in float32 and float64 what lib/README.md promises. The bounds there of a gradient are relative
 * to the size of its terms, which is not known here, so those of gradients are wider. A type of 8
 * or 16 bits rounds the weights and then the result. */
static double promise(enum answer_name which, enum codec_type type) {
    static const double steps[CODEC_TYPE_COUNT] = {[CODEC_TYPE_FP8_E4M3] = 0x1p-3,
                                                   [CODEC_TYPE_FP8_E5M2] = 0x1p-2,
                                                   [CODEC_TYPE_FP16] = 0x1p-10,
                                                   [CODEC_TYPE_BF16] = 0x1p-7};
    const bool wide = type == CODEC_TYPE_FP64;
    if (steps[type] > 0) {
        return steps[type];
    }
    if (answer_is_gradient(which)) {
        return wide ? 1e-12 : which == ANSWER_GRAD_ALIBI ? 1e-4 : 1e-5;
    }
    return wide ? 1e-13 : which == ANSWER_WEIGHTS ? 2e-6 : 1e-6;
}

/* Returns the largest difference that rounding explains: the errors of both results. */
static double bound_of(const struct comparison_pair *pair) {
    const bool logarithm = pair->which == ANSWER_LSE || pair->which == ANSWER_ENTROPY;
    const double magnitude = fmax(pair->found.magnitude, logarithm ? 1 : 0);
    return (promise(pair->which, pair->result_type) + promise(pair->which, pair->type)) * magnitude;
}

/* Writes the index of an element along each axis. */
static void put_index(const struct comparison_pair *pair, size_t element, size_t *index) {
    for (int axis = pair->result->rank - 1; axis >= 0 && pair->count > 0; axis--) {
        index[axis] = element % pair->result->shape[axis];
        element /= pair->result->shape[axis];
    }
}

static enum verdict judge(struct comparison_pair *pair) {
    const struct comparison_findings *found = &pair->found;
    const double error = found->absolute.error;
    pair->bound = bound_of(pair);
    put_index(pair, found->absolute.element, pair->absolute_index);
    put_index(pair, found->relative.element, pair->relative_index);
    return error == 0 ? EQUAL : error <= pair->bound ? ROUNDED : found->beyond == 0 ? CLOSE : WRONG;
}

bool comparison_end(struct comparison *comparison) {
    enum verdict worst = EQUAL;
    bool within = true;
    for (size_t i = 0; i < comparison->count; i++) {
        struct comparison_pair *pair = &comparison->pairs[i];
        const enum verdict verdict = judge(pair);
        pair->verdict = verdicts[verdict];
        worst = verdict > worst ? verdict : worst;
        within = within && pair->found.beyond == 0;
    }
    comparison->verdict = verdicts[worst];
    comparison->within = within;
    return within;
}

/* ----------------------------------------------------------------------------------- the answer */

/* Returns one element of a tensor as a plain number. */
static attn_tensor element_of(const void *data, attn_dtype dtype, size_t element) {
    return (attn_tensor){.data = (const char *)data + element * attn_dtype_size(dtype),
                         .dtype = dtype};
}

/* Adds the place of an error. An infinite error is null. */
static void add_place(struct codec_items *list, const char *key, const struct comparison_pair *pair,
                      const struct comparison_place *place, const size_t *index) {
    codec_add_open(list, CODEC_OP_OBJECT, key);
    codec_add_number(list, "largest", place->error);
    if (place->element != SIZE_MAX) {
        const attn_tensor expected =
            element_of(pair->expected.data, pair->expected.dtype, place->element);
        const attn_tensor result =
            element_of(pair->result->data, pair->result->dtype, place->element);
        codec_add_integers(list, "index", index, (size_t)pair->result->rank);
        codec_add_tensor(list, "result", &result);
        codec_add_tensor(list, "expected", &expected);
    }
    codec_add_close(list);
}

static void add_pair(struct codec_items *list, const struct comparison_pair *pair) {
    const attn_tensor errors = {
        .data = pair->errors, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {pair->heads}};
    codec_add_open(list, CODEC_OP_OBJECT, pair->name);
    codec_add_text(list, "verdict", pair->verdict);
    codec_add_bool(list, "within_tolerance", pair->found.beyond == 0);
    codec_add_open(list, CODEC_OP_OBJECT, "tolerance");
    codec_add_number(list, "absolute", pair->absolute);
    codec_add_number(list, "relative", pair->relative);
    codec_add_close(list);
    codec_add_number(list, "bound", pair->bound);
    codec_add_integer(list, "beyond_tolerance", &pair->found.beyond);
    codec_add_integer(list, "expected_nan", &pair->found.nan);
    codec_add_integer(list, "expected_infinite", &pair->found.infinite);
    add_place(list, "absolute_error", pair, &pair->found.absolute, pair->absolute_index);
    add_place(list, "relative_error", pair, &pair->found.relative, pair->relative_index);
    if (pair->heads > 0) {
        codec_add_tensor(list, "head_errors", &errors);
    }
    codec_add_close(list);
}

static void add_comparison(struct codec_items *list, const char *key,
                           const struct comparison *comparison) {
    codec_add_open(list, CODEC_OP_OBJECT, key);
    codec_add_text(list, "verdict", comparison->verdict);
    codec_add_bool(list, "within_tolerance", comparison->within);
    codec_add_open(list, CODEC_OP_OBJECT, "results");
    for (size_t i = 0; i < comparison->count; i++) {
        add_pair(list, &comparison->pairs[i]);
    }
    codec_add_close(list);
    codec_add_close(list);
}

/* Writes the comparison as JSON, with a NUL at its end. Returns false if there is no memory. */
static bool write_text(struct comparison *comparison, struct account *account, int digits) {
    struct codec_items list;
    codec_items_begin(&list, account);
    add_comparison(&list, NULL, comparison);
    const size_t bytes = codec_items_bytes(list.list, list.count, digits, SIZE_MAX);
    const bool good = codec_items_write(&list, digits, 0, bytes, &comparison->text);
    codec_items_free(&list);
    if (good) {
        comparison->text.data[comparison->text.size - 1] = '\0'; /* in place of the line feed */
    }
    return good;
}

void comparison_add(struct codec_items *list, struct comparison *comparison, enum api_format format,
                    int digits) {
    if (format == API_JSON) {
        add_comparison(list, answer_names[ANSWER_COMPARISON], comparison);
    } else if (write_text(comparison, list->account, digits)) {
        codec_add_text(list, answer_names[ANSWER_COMPARISON], comparison->text.data);
    } else {
        list->failed = true;
    }
}

/* ----------------------------------------------------------------------------------- the error */

/* Writes a number of a tensor for a message. */
static void put_element(char out[static 32], const void *data, attn_dtype dtype, size_t element) {
    if (dtype == ATTN_FLOAT64) {
        snprintf(out, 32, "%.17g", ((const double *)data)[element]);
    } else {
        snprintf(out, 32, "%.9g", (double)((const float *)data)[element]);
    }
}

/* Says of the first result beyond the tolerance which of the numbers beyond it differs most. */
static void put_detail(struct comparison *comparison) {
    const struct comparison_pair *pair = comparison->pairs;
    char expected[32], result[32], text[COMPARISON_TEXT];
    size_t index[ATTN_MAX_RANK];
    while (pair->found.beyond == 0) {
        pair++;
    }
    const size_t element = pair->found.worst.element;
    put_index(pair, element, index);
    comparison_put(text, pair->result->rank, index);
    put_element(expected, pair->expected.data, pair->expected.dtype, element);
    put_element(result, pair->result->data, pair->result->dtype, element);
    snprintf(comparison->detail, sizeof comparison->detail,
             "%s is beyond the tolerance in %zu of %zu numbers; it differs most at %s, where the "
             "service has %s and expected has %s%s",
             pair->name, pair->found.beyond, pair->count, text, result, expected,
             pair->verdict == verdicts[ROUNDED]
                 ? "; rounding explains it, so give a larger \"tolerance\""
                 : "");
}

void comparison_refuse(struct comparison *comparison, struct api_request *request, int digits) {
    static const int64_t status = 409;
    const bool inference = request->http->inference;
    struct codec_items list;
    put_detail(comparison);
    codec_items_begin(&list, &request->account);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    if (!inference) {
        codec_add_text(&list, "type", "about:blank");
        codec_add_text(&list, "title", http_title((int)status));
        codec_add_integer(&list, "status", &status);
    }
    codec_add_text(&list, inference ? "error" : "detail", comparison->detail);
    add_comparison(&list, answer_names[ANSWER_COMPARISON], comparison);
    if (!inference) {
        codec_add_text(&list, "request_id", request->http->id);
    }
    codec_add_close(&list);
    reply_json(request, &list, digits);
    if (request->response->status == 200) {
        request->response->status = (int)status;
        request->response->media_type = inference ? "application/json" : "application/problem+json";
    }
}
