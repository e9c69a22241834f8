/*
 * test_library_errors.c - tests the errors of the library. data/library_errors.txt has the calls
 * that are written as text; here are the others.
 */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "linear_bounds.h"
#include "support/rows.h"
#include "test_by_hand.h"
#include "written_calls.h"

/* A row of data/library_errors.txt, made for one of the calls above it. */
struct refusal {
    unsigned line;
    attn_status status;
    char argument[40], texts[256];
    struct written_call call;
};

enum {
    MOST_REFUSALS = 600
};

/* ------------------------------------------------------------------------------------- the file */

static attn_status read_status(const char *name) {
#define STATUS(name_, code, text)                                                                  \
    if (strcmp(name, #name_) == 0) {                                                               \
        return ATTN_##name_;                                                                       \
    }
    ATTN_STATUS_MAP(STATUS)
#undef STATUS
    cr_assert_fail("there is no status \"%s\"", name);
    return ATTN_OK;
}

/* Reads a row, for a call of `size` characters. */
static void read_refusal(struct refusal *r, const struct rows *rows, const char *call,
                         size_t size) {
    char status[32], text[2 * ROWS_LINE];
    int at = 0;
    cr_assert(sscanf(rows->line, "%31s %39[^:]:%n", status, r->argument, &at) == 2 && at > 0,
              "line %u: %s", rows->number, rows->line);
    snprintf(text, sizeof text, "%.*s %s", (int)size, call, rows->line + at);
    char *texts = strstr(text, "=> ");
    strcpy(r->texts, texts == NULL ? "" : texts + 3);
    if (texts != NULL) {
        *texts = '\0';
    }
    r->line = rows->number;
    r->status = read_status(status);
    r->argument[strcmp(r->argument, "-") == 0 ? 0 : strlen(r->argument)] = '\0';
    read_written(&r->call, text);
}

/* Returns all rows, owned: free_refusals(). */
static struct refusal *read_refusals(size_t *count) {
    static struct rows rows;
    struct refusal *all = calloc(MOST_REFUSALS, sizeof *all);
    char calls[ROWS_LINE] = "";
    cr_assert_not_null(all);
    *count = 0;
    rows_open(&rows, "library_errors.txt");
    while (rows_next(&rows)) {
        if (rows.line[0] == '=') {
            strcpy(calls, rows.line + 2);
            continue;
        }
        for (const char *call = calls; *call != '\0'; ++*count) {
            const size_t size = strcspn(call, ";");
            cr_assert_lt(*count, MOST_REFUSALS);
            read_refusal(&all[*count], &rows, call, size);
            call += size + (call[size] == ';' ? strlen("; ") : 0);
        }
    }
    rows_close(&rows);
    return all;
}

static void free_refusals(struct refusal *all, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free_written(&all[i].call);
    }
    free(all);
}

/* Does a message have one of the texts of a row, or not have it if there is a '!' before it? */
static bool says(const char *message, const char *text, size_t size) {
    char copy[sizeof((struct refusal *)0)->texts];
    const bool absent = text[0] == '!', last = text[size - 1] == '$';
    snprintf(copy, sizeof copy, "%.*s", (int)(size - absent - last), text + absent);
    const char *at = strstr(message, copy);
    if (at == NULL || absent) {
        return (at == NULL) == absent;
    }
    return !last || strlen(at) == strlen(copy);
}

static void expect_refusal(struct refusal *r) {
    attn_error error = {0};
    attn_plan *plan;
    attn_status status = make_written(&plan, &r->call, &error);
    cr_expect_eq(plan == NULL, status != ATTN_OK || strncmp(r->call.function, "prepack", 7) == 0,
                 "line %u", r->line);
    if (r->call.runs) {
        cr_assert_eq(status, ATTN_OK, "line %u: %s", r->line, error.message);
        struct results results = run_plan(plan, NULL);
        status = results.status;
        error = results.error;
        free_results(&results);
    } else {
        attn_plan_free(plan);
    }
    cr_expect_eq(status, r->status, "line %u: %s %s", r->line, attn_status_text(status),
                 error.message);
    cr_expect_eq(error.status, status, "line %u: %s", r->line, attn_status_text(error.status));
    cr_expect_str_eq(error.argument, r->argument, "line %u: %s", r->line, error.message);
    for (const char *text = r->texts; *text != '\0'; text += *text == '|') {
        const size_t size = strcspn(text, "|");
        cr_expect(says(error.message, text, size), "line %u: %s", r->line, error.message);
        text += size;
    }
}

Test(errors, of_the_file_name_the_rule_the_argument_and_the_values) {
    size_t count;
    struct refusal *all = read_refusals(&count);
    for (size_t i = 0; i < count; i++) {
        expect_refusal(&all[i]);
    }
    cr_expect_gt(count, 450);
    free_refusals(all, count);
}

#ifdef __GLIBC__
/* Returns the bytes of the heap that are in use. */
static size_t heap_bytes(void) {
    return mallinfo2().uordblks;
}

/* The allocator keeps some freed memory for each size, so the use grows at first. */
Test(errors, leave_no_memory_behind) {
    size_t count, before = 0, after = 1;
    struct refusal *all = read_refusals(&count);
    for (size_t time = 0; time < 40 && after != before; time++) {
        before = heap_bytes();
        for (size_t i = 0; i < count; i++) {
            attn_plan *plan;
            const attn_status status = make_written(&plan, &all[i].call, NULL);
            if (status == ATTN_OK && all[i].call.runs) {
                struct results results = run_plan(plan, NULL);
                free_results(&results);
            } else {
                attn_plan_free(plan);
            }
        }
        after = heap_bytes();
    }
    cr_expect_eq(after, before, "%zu bytes are left", after - before);
    free_refusals(all, count);
}
#endif

/* ----------------------------------------------------------------------------- calls in C alone */

Test(errors, may_be_ignored) {
    attn_plan *plan;
    cr_assert_eq(attn_plan_attention(&plan, NULL, &identity2, &identity2, NULL, NULL),
                 ATTN_INVALID_ARGUMENT);
    cr_assert_null(plan);
    attn_plan_free(NULL);
}

/* Plans of heads and of sequences take memory before a caller can refuse them. */
Test(errors, name_the_different_lengths) {
    enum {
        MANY = 5000
    };
    static size_t queries[MANY], keys[MANY];
    size_t rows[2] = {0};
    for (size_t i = 0; i < MANY; i++) {
        rows[0] += queries[i] = 1 + i / 71;
        rows[1] += keys[i] = 1 + i % 71;
    }
    static const double data[1 << 19];
    const attn_tensor q = {data, ATTN_FLOAT64, 2, {rows[0], 1}},
                      k = {data, ATTN_FLOAT64, 2, {rows[1], 1}};
    const attn_sequences sequences = {MANY, queries, keys};
    const attn_options o = {.sequences = &sequences};
    attn_error error = {0};
    attn_plan *plan;
    cr_expect_eq(attn_plan_attention(&plan, &q, &k, &k, &o, &error), ATTN_TOO_LARGE);
    cr_expect_str_eq(error.argument, "sequences");
    cr_expect_not_null(
        strstr(error.message, "5000 different pairs of lengths; with 1 head at most 1024"), "%s",
        error.message);
}

Test(errors, unbound_results_do_not_run) {
    static const attn_linear linear = {.q = &identity2, .k = &identity2, .v = &identity2};
    attn_plan *plan;
    attn_error error;
    cr_assert_eq(attn_plan_softmax(&plan, &identity2, 0, NULL), ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_str_eq(error.argument, "output");
    attn_plan_free(plan);
    cr_assert_eq(attn_plan_linear(&plan, &linear, NULL, NULL), ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_str_eq(error.argument, "output");
    attn_plan_free(plan);
    cr_assert_eq(attn_plan_attention(&plan, &identity2, &identity2, &identity2, NULL, NULL),
                 ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_str_eq(error.argument, "output");
    cr_assert_eq(attn_plan_bind(plan, ATTN_RESULT_WEIGHTS, 0, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_eq(attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 1, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_null(attn_plan_tensor(plan, ATTN_RESULT_OUTPUT, 1));
    attn_plan_free(plan);
}

/* A score that overflows to -inf does not forbid its key. The call has more scores than a small
 * call, which would be computed in double. */
Test(errors, overflow_downwards_is_not_nothing_to_attend_to) {
    enum {
        ROWS = 70,
        KEYS = 300
    };
    float x[KEYS], y[KEYS], out[ROWS];
    attn_error error = {0};
    for (size_t i = 0; i < KEYS; i++) {
        x[i] = 1e19f;
        y[i] = -1e19f;
    }
    const attn_tensor q = {.data = x, .rank = 2, .shape = {ROWS, 1}},
                      k = {.data = y, .rank = 2, .shape = {KEYS, 1}};
    const attn_options o = {.flags = ATTN_FLAG_SCALE, .scale = 100, .results = ATTN_WANT(OUTPUT)};
    cr_expect_eq(plan_and_run(&q, &k, &k, &o, (void *[ATTN_RESULT_COUNT]){out}, &error),
                 ATTN_NOT_FINITE);
    cr_expect_not_null(strstr(error.message, "masked_scores is not a finite float32"), "%s",
                       error.message);
}

/* ----------------------------------------------------------------------------- linear attention */

#define ALL_OF_LINEAR                                                                              \
    "linear Q=2,4,5,8 K=2,2,5,8 V=2,2,5,3 decay=2,2,5,8 beta=2,2,5 past_state=2,2,8,3"             \
    " update=gated_delta"

/* Changes one size by +-1, and plans the call. `may_be_one` says that a size of 1 is shared. */
static void expect_other_size(const char *name, int axis, size_t change, bool may_be_one) {
    struct written_call call;
    attn_plan *plan;
    attn_error error = {0};
    read_written(&call, ALL_OF_LINEAR);
    size_t *size = &written_tensor(&call, name)->shape[axis];
    *size += change;
    const bool is_shared = may_be_one && *size == 1;
    const attn_status status = make_written(&plan, &call, &error);
    cr_expect_eq(status, is_shared ? ATTN_OK : ATTN_SHAPE_MISMATCH, "%s, axis %d is %zu: %d %s",
                 name, axis, *size, status, error.message);
    cr_expect_eq(error.argument[0] == '\0', is_shared, "%s", error.argument);
    attn_plan_free(plan);
}

/* Each size of each tensor is made larger by one, and smaller by one. */
Test(errors, of_each_size_of_linear_attention) {
    static const struct {
        const char *name;
        int rank, shared; /* the axes that a size of 1 shares: batch, heads, and rows of gates */
    } tensors[] = {{"Q", 4, 1},     {"K", 4, 3},    {"V", 4, 3},
                   {"decay", 4, 3}, {"beta", 3, 3}, {"past_state", 4, 0}};
    for (size_t t = 0; t < COUNT(tensors); t++) {
        for (int axis = 0; axis < tensors[t].rank; axis++) {
            const bool may_be_one = (tensors[t].shared >> axis & 1) != 0;
            expect_other_size(tensors[t].name, axis, 1, may_be_one);
            expect_other_size(tensors[t].name, axis, (size_t)-1, may_be_one);
        }
    }
}

Test(errors, of_results_that_linear_attention_does_not_have) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        struct written_call call;
        attn_plan *plan;
        attn_error error = {0};
        bool exists = false;
        read_written(&call, "linear Q=5,8 K=5,8 V=5,3 decay=5 beta=5 past_state=8,3");
        call.options.results = ATTN_WANT(OUTPUT) | UINT64_C(1) << r;
        call.has_upstream = r >= ATTN_RESULT_GRAD_Q;
        call.upstream.output = call.linear.v;
#define EXISTS(name) exists |= r == ATTN_RESULT_##name;
        LINEAR_RESULT_MAP(EXISTS)
#undef EXISTS
        const attn_status status = make_written(&plan, &call, &error);
        cr_expect_eq(status, exists ? ATTN_OK : ATTN_INVALID_ARGUMENT, "result %d", r);
        cr_expect_str_eq(error.argument, exists ? "" : "results", "result %d", r);
        cr_expect(exists || strstr(error.message, attn_result_name((attn_result)r)) != NULL, "%s",
                  error.message);
        attn_plan_free(plan);
    }
}

/* Numbers behind a length are not looked at. */
Test(errors, of_a_run_are_not_behind_a_length) {
    static const double decay[] = {-1, -1, -1, 1, NAN}, beta[] = {1, 1, 1, INFINITY, NAN};
    struct written_call call;
    attn_plan *plan;
    read_written(&call, "linear Q=5,8 K=5,8 V=5,3 decay=5 beta=5 lengths=3 results=decays,output");
    written_tensor(&call, "decay")->data = decay;
    written_tensor(&call, "beta")->data = beta;
    cr_assert_eq(make_written(&plan, &call, NULL), ATTN_OK);
    struct results r = run_plan(plan, NULL);
    cr_assert_eq(r.status, ATTN_OK, "%s", r.error.message);
    cr_expect_eq(r.of[ATTN_RESULT_DECAYS][3], 0);
    cr_expect_eq(r.of[ATTN_RESULT_DECAYS][4], 0);
    free_results(&r);
}

/* Runs a call without positions, and compares present_state with `want`, or with zeros. */
static void expect_empty(const char *text, const double *past, const double *want, size_t states) {
    struct written_call call;
    attn_plan *plan;
    attn_error error = {0};
    read_written(&call, text);
    if (call.linear.past_state != NULL) {
        written_tensor(&call, "past_state")->data = past;
    }
    call.options.results = ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE);
    call.options.results |= call.has_sequences ? 0 : ATTN_WANT(WEIGHTS) | ATTN_WANT(STATES);
    call.options.results |= call.options.decay != NULL ? ATTN_WANT(DECAYS) : 0;
    cr_assert_eq(make_written(&plan, &call, &error), ATTN_OK, "%s: %s", text, error.message);
    struct results r = run_plan(plan, NULL);
    cr_assert_eq(r.status, ATTN_OK, "%s: %s", text, r.error.message);
    cr_expect_eq(r.count[ATTN_RESULT_OUTPUT], 0, "%s", text);
    cr_expect_eq(r.count[ATTN_RESULT_PRESENT_STATE], states, "%s: %zu", text,
                 r.count[ATTN_RESULT_PRESENT_STATE]);
    for (size_t i = 0; i < states; i++) {
        const double is = r.of[ATTN_RESULT_PRESENT_STATE][i];
        cr_expect_eq(is, want == NULL ? 0 : want[i], "%s: %g", text, is);
    }
    free_results(&r);
}

Test(errors, empty_calls_of_linear_attention_have_none) {
    double past[64], twice[64];
    for (size_t i = 0; i < 64; i++) {
        past[i] = (double)(i + 1) / 8;
        twice[i] = past[i % 24];
    }
    expect_empty("linear Q=0,8 K=0,8 V=0,3 decay=0 beta=0 past_state=8,3", past, past, 24);
    expect_empty("linear Q=0,8 K=0,8 V=0,3", NULL, NULL, 24);
    expect_empty("linear Q=2,0,8 K=Q V=2,0,3 decay=2,0,8 beta=2,0 past_state=2,8,3", past, past,
                 48);
    expect_empty("linear Q=2,1,0,8 K=Q V=2,1,0,3 past_state=1,8,3", past, twice, 48);
    expect_empty("linear Q=0,2,5,8 K=Q V=0,2,5,3 decay=1,2,5 past_state=2,8,3", past, past, 0);
    expect_empty("linear Q=0,16 K=Q V=0,6 decay=0,2 beta=0,2 past_state=2,8,3 heads=2", past, past,
                 48);
    expect_empty("linear Q=0,4 K=Q V=0,3 past_state=3,4,3 queries=0,0,0", past, past, 36);
    expect_empty("linear Q=0,2,2 K=Q V=0,2,3 past_state=3,2,2,3 queries=0,0,0", past, past, 36);
    expect_empty("linear Q=0,5,16 K=Q V=5,6 decay=2 beta=5 heads=2", past, past, 0);
}
