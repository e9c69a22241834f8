/* comparison_answer.c - what an answer says of a comparison: verdicts, errors and their places. */
#include "api/call/comparison.h"

#include "api/reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- the verdict */

/* The verdicts are ordered from the best to the worst. */
enum verdict {
    EQUAL,   /* no number differs */
    ROUNDED, /* rounding explains each row */
    CLOSE,   /* some row has more, but not more than `close` times as much */
    WRONG
};
static const char *const verdicts[] = {
    [EQUAL] = "equal", [ROUNDED] = "rounded", [CLOSE] = "close", [WRONG] = "wrong"};
static const double most_of_close = 2;

/* Writes the index of an element along each axis. */
static void put_index(const struct comparison_pair *pair, size_t element, size_t *index) {
    for (int axis = pair->result->rank - 1; axis >= 0 && pair->count > 0; axis--) {
        index[axis] = element % pair->result->shape[axis];
        element /= pair->result->shape[axis];
    }
}

/* Returns how many axes count rows: all but the last one, unless each number is a row. The heads of
 * a packed row are no axis; the index then begins with the first column of its head. */
static int axes_of_row(const struct comparison_pair *pair) {
    const int rank = pair->result->rank;
    return pair->row_size == pair->result->shape[rank - 1] && rank > 1 && pair->row_size != 1
               ? rank - 1
               : rank;
}

/* Returns a number of the client, and the exact one. */
static double expected_at(const struct comparison_pair *pair, size_t element) {
    double number;
    comparison_widen(pair->expected.data, pair->expected.dtype, element, 1, &number);
    return number;
}

static double exact_at(const struct comparison_pair *pair, size_t element) {
    double number;
    comparison_exact(pair, element, 1, &number);
    return number;
}

/* Returns the guess that explains all wrong rows. A row at the edge of a head has no neighbour. */
static const char *guess_of(const struct comparison_pair *pair) {
    static const char *const texts[SUSPECT_COUNT] = {
        [SUSPECT_BASE_2] = "; it is right in base 2: multiply it by ln 2",
        [SUSPECT_NEXT_ROW] = "; its rows are right if each moves one place on",
        [SUSPECT_LAST_ROW] = "; its rows are right if each moves one place back",
        [SUSPECT_TRANSPOSED] = "; its heads are right if each is transposed"};
    const size_t heads = pair->row_count / (pair->run / pair->step);
    for (int guess = SUSPECT_NONE + 1; guess < SUSPECT_COUNT && pair->wrong_rows > 1; guess++) {
        const bool shifts = guess == SUSPECT_NEXT_ROW || guess == SUSPECT_LAST_ROW;
        const size_t edges = shifts ? heads : 0;
        if (pair->explained[guess] > edges + 1 &&
            pair->explained[guess] + edges >= pair->wrong_rows) {
            return texts[guess];
        }
    }
    return "";
}

/* Writes two numbers with as many digits as tell them apart, but at least three. */
static void put_numbers(char first[static 32], char second[static 32], double a, double b) {
    for (int digits = 3; digits <= 17; digits++) {
        snprintf(first, 32, "%.*g", digits, a);
        snprintf(second, 32, "%.*g", digits, b);
        if (strcmp(first, second) != 0) {
            return;
        }
    }
}

/* Explains in a sentence why a result is not rounded. */
static void put_message(struct comparison_pair *pair) {
    char text[COMPARISON_TEXT], coarser[80] = "", expected[32], exact[32];
    size_t index[ATTN_MAX_RANK];
    const char *guess = guess_of(pair);
    if (pair->worst_count == 0) {
        return;
    }
    const size_t element = pair->worst_number;
    put_index(pair, element, index);
    comparison_put(text, pair->result->rank, index);
    put_numbers(expected, exact, expected_at(pair, element), exact_at(pair, element));
    if (isinf(pair->worst_ratio[0])) {
        snprintf(pair->message, sizeof pair->message, "%s has %s at %s, and %s is right",
                 pair->name, expected, text, exact);
        return;
    }
    if (guess[0] == '\0' && pair->coarser != NULL) {
        snprintf(coarser, sizeof coarser, "; as a kernel that multiplies in %s it would be rounded",
                 pair->coarser->name);
    }
    snprintf(pair->message, sizeof pair->message,
             "%s is off by %.3g times what rounding to %s explains in its worst row: at %s it is "
             "%s, and %s is right%s%s",
             pair->name, pair->worst_ratio[0], pair->computed->name, text, expected, exact, guess,
             coarser);
}

static enum verdict judge(struct comparison_pair *pair) {
    const enum verdict verdict = pair->found.absolute.error == 0     ? EQUAL
                                 : pair->sums.score <= 1             ? ROUNDED
                                 : pair->sums.score <= most_of_close ? CLOSE
                                                                     : WRONG;
    put_index(pair, pair->found.absolute.element, pair->absolute_index);
    put_index(pair, pair->found.relative.element, pair->relative_index);
    for (size_t i = 0; i < pair->worst_count; i++) {
        put_index(pair, pair->worst[i] * pair->row_size, pair->worst_index[i]);
    }
    if (verdict > ROUNDED) {
        put_message(pair);
    }
    return verdict;
}

/* Does the request give a tolerance? */
static bool has_tolerance(const struct comparison *own) {
    return own->absolute >= 0 || own->relative >= 0;
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
    return has_tolerance(comparison) ? within : worst <= ROUNDED;
}

/* ----------------------------------------------------------------------------------- the answer */

/* Adds the place of an error. An infinite error is null. */
static void add_place(struct codec_items *list, const char *key, const struct comparison_pair *pair,
                      const struct comparison_place *place, const size_t *index) {
    codec_add_open(list, CODEC_OP_OBJECT, key);
    codec_add_number(list, "largest", place->error);
    if (place->element != SIZE_MAX) {
        codec_add_integers(list, "index", index, (size_t)pair->result->rank);
        codec_add_number(list, "result", exact_at(pair, place->element));
        codec_add_number(list, "expected", expected_at(pair, place->element));
    }
    codec_add_close(list);
}

/* Adds a number that was measured, of which more than three digits would be noise. */
static void add_measured(struct codec_items *list, const char *key, double number) {
    char text[32];
    snprintf(text, sizeof text, "%.3g", number);
    codec_add_number(list, key, isfinite(number) ? strtod(text, NULL) : number);
}

/* Adds the rows of the largest ratios. */
static void add_worst_rows(struct codec_items *list, const struct comparison_pair *pair) {
    codec_add_open(list, CODEC_OP_ARRAY, "worst_rows");
    for (size_t i = 0; i < pair->worst_count; i++) {
        codec_add_open(list, CODEC_OP_OBJECT, NULL);
        codec_add_integers(list, "index", pair->worst_index[i], (size_t)axes_of_row(pair));
        add_measured(list, "ratio", pair->worst_ratio[i]);
        codec_add_close(list);
    }
    codec_add_close(list);
}

static void add_pair(struct codec_items *list, const struct comparison_pair *pair) {
    const attn_tensor errors = {
        .data = pair->errors, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {pair->heads}};
    const double beyond = (double)pair->found.beyond, count = (double)pair->count;
    codec_add_open(list, CODEC_OP_OBJECT, pair->name);
    codec_add_text(list, "verdict", pair->verdict);
    codec_add_bool(list, "within_tolerance", pair->found.beyond == 0);
    if (pair->message[0] != '\0') {
        codec_add_text(list, "message", pair->message);
    }
    codec_add_text(list, "computed_in", pair->computed->name);
    add_measured(list, "rms_ratio", pair->sums.ratio);
    add_measured(list, "bound", pair->sums.bound);
    codec_add_number(list, "mean_error", pair->sums.mean);
    add_worst_rows(list, pair);
    codec_add_number(list, "matched", count > 0 ? 1 - beyond / count : 1);
    codec_add_open(list, CODEC_OP_OBJECT, "tolerance");
    codec_add_number(list, "absolute", pair->absolute);
    codec_add_number(list, "relative", pair->relative);
    codec_add_close(list);
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

/* Says of the first result that is not accepted what is wrong with it. */
static void put_detail(struct comparison *comparison) {
    const struct comparison_pair *pair = comparison->pairs;
    char text[COMPARISON_TEXT];
    size_t index[ATTN_MAX_RANK];
    if (!has_tolerance(comparison)) {
        while (pair->message[0] == '\0') {
            pair++;
        }
        snprintf(comparison->detail, sizeof comparison->detail, "%s", pair->message);
        return;
    }
    while (pair->found.beyond == 0) {
        pair++;
    }
    const size_t element = pair->found.worst.element;
    put_index(pair, element, index);
    comparison_put(text, pair->result->rank, index);
    snprintf(comparison->detail, sizeof comparison->detail,
             "%s is beyond the \"tolerance\" of the request in %zu of %zu numbers; it differs most "
             "at %s, where %.17g is right and expected has %.17g",
             pair->name, pair->found.beyond, pair->count, text, exact_at(pair, element),
             expected_at(pair, element));
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
