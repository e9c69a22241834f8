/*
 * test_linear.c - laws of /linear-attention that no row of a table can say: the implied weights
 * give the output, a call may be split at any position, packed sequences have the numbers of calls
 * of their own, and all four updates do so. data/answers.txt has numbers that were worked out by
 * hand. The test knows the service by its socket only.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/daemon.h"
#include "support/json.h"
#include "support/rng.h"

TestSuite(linear, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);

/* The service computes so many rows in chunks, and their weights in three blocks. */
enum {
    HEADS = 2,
    ROWS = 150,
    D = 16,
    DV = 8,
    MOST = HEADS * ROWS * ROWS /* numbers of a result */
};

static const char *const updates[] = {"linear", "gated", "delta", "gated_delta"};

/* Heads first, then rows, then columns. */
struct data {
    double q[HEADS * ROWS * D], k[HEADS * ROWS * D], v[HEADS * ROWS * DV];
    double decay[HEADS * ROWS], beta[HEADS * ROWS], state[HEADS * D * DV];
};

static void draw_row(struct data *data) {
    struct rng rng = {34};
    for (size_t i = 0; i < HEADS * ROWS * D; i++) {
        data->q[i] = rng_normal(&rng);
        data->k[i] = rng_normal(&rng) / 4; /* about the length 1 */
    }
    for (size_t i = 0; i < HEADS * ROWS * DV; i++) {
        data->v[i] = rng_normal(&rng);
    }
    for (size_t i = 0; i < HEADS * ROWS; i++) {
        data->decay[i] = -fabs(rng_normal(&rng)) / 8;
        data->beta[i] = fabs(sin(rng_normal(&rng)));
    }
    for (size_t i = 0; i < HEADS * D * DV; i++) {
        data->state[i] = rng_normal(&rng);
    }
}

/* -------------------------------------------------------------------------------------- a call */

/* Rows [first, first + rows) of the data, (heads, rows, columns); or (rows, heads, columns) if they
 * are packed. */
struct part {
    size_t first, rows;
    bool packed;
};

/* Writes a matrix, or decay or beta, which have no columns. */
static void put_numbers(FILE *to, const char *name, const double *numbers, const struct part *part,
                        size_t columns) {
    const size_t outer = part->packed ? part->rows : HEADS,
                 inner = part->packed ? HEADS : part->rows;
    fprintf(to, ",\"%s\":[", name);
    for (size_t a = 0; a < outer; a++) {
        fputs(a > 0 ? ",[" : "[", to);
        for (size_t b = 0; b < inner; b++) {
            const size_t head = part->packed ? b : a, row = part->first + (part->packed ? a : b);
            const double *from = numbers + (head * ROWS + row) * (columns > 0 ? columns : 1);
            fputs(b > 0 ? "," : "", to);
            for (size_t c = 0; c < columns; c++) {
                fprintf(to, "%c%.17g", c > 0 ? ',' : '[', from[c]);
            }
            fprintf(to, columns > 0 ? "]" : "%.17g", from[0]);
        }
        fputc(']', to);
    }
    fputc(']', to);
}

/* Writes a state (heads, d, d_v). */
static void put_state(FILE *to, const double *state) {
    for (size_t h = 0; h < HEADS; h++) {
        fputs(h > 0 ? ",[" : "[[", to);
        for (size_t c = 0; c < D; c++) {
            for (size_t j = 0; j < DV; j++) {
                fprintf(to, "%s%.17g", j > 0 ? "," : c > 0 ? ",[" : "[", *state++);
            }
            fputc(']', to);
        }
        fputc(']', to);
    }
    fputc(']', to);
}

/* Writes one state, or a list of them. */
static void put_states(FILE *to, const double *state, size_t count) {
    fputs(count > 1 ? ",\"past_state\":[" : ",\"past_state\":", to);
    for (size_t i = 0; i < count; i++) {
        fputs(i > 0 ? "," : "", to);
        put_state(to, state + i * HEADS * D * DV);
    }
    fputs(count > 1 ? "]" : "", to);
}

static void take_numbers(const struct cJSON *value, double numbers[MOST], size_t *count) {
    if (json_is_array(value)) {
        for (value = json_first(value); value != NULL; value = json_next(value)) {
            take_numbers(value, numbers, count);
        }
        return;
    }
    cr_assert(*count < MOST && json_number(value, &numbers[*count]));
    ++*count;
}

/* Sends a call with update `which`, `past` states and more members. Returns the answer, owned. */
static struct cJSON *ask_linear(const struct data *data, size_t which, const struct part *part,
                                const double *past, size_t states, const char *more) {
    char *body;
    size_t size;
    FILE *to = open_memstream(&body, &size);
    cr_assert_not_null(to);
    fprintf(to, "{\"dtype\":\"float64\",\"update\":\"%s\"", updates[which]);
    put_numbers(to, "Q", data->q, part, D);
    put_numbers(to, "K", data->k, part, D);
    put_numbers(to, "V", data->v, part, DV);
    if (which % 2 == 1) {
        put_numbers(to, "decay", data->decay, part, 0);
    }
    if (which >= 2) {
        put_numbers(to, "beta", data->beta, part, 0);
    }
    if (past != NULL) {
        put_states(to, past, states);
    }
    fprintf(to, "%s}", more);
    fclose(to);
    struct cJSON *answer = daemon_ask_json("/linear-attention", body, size);
    free(body);
    return answer;
}

/* Copies a result, and returns how many numbers it has. */
static size_t take(const struct cJSON *answer, const char *name, double numbers[MOST]) {
    size_t count = 0;
    take_numbers(json_get(answer, name), numbers, &count);
    return count;
}

static void expect_near(double got, double want, const char *what, size_t which) {
    cr_expect(fabs(got - want) < 1e-11, "%s, %s: %.17g, not %.17g", updates[which], what, got,
              want);
}

/* ------------------------------------------------------------------------------------- the laws */

/* The output is linear in V and the past state, so what the past state gives is the output of a V
 * of zeros. */
Test(linear, implied_weights_times_V_and_the_past_are_the_output) {
    static const struct part whole = {0, ROWS, false};
    static struct data data, zeros;
    static double output[MOST], weights[MOST], past[MOST];
    draw_row(&data);
    zeros = data;
    memset(zeros.v, 0, sizeof zeros.v);
    for (size_t which = 0; which < 4; which++) {
        struct cJSON *answer = ask_linear(&data, which, &whole, data.state, 1, "");
        cr_assert_eq(take(answer, "output", output), HEADS * ROWS * DV);
        cr_assert_eq(take(answer, "weights", weights), HEADS * ROWS * ROWS);
        json_free(answer);
        answer = ask_linear(&zeros, which, &whole, data.state, 1, ",\"return\":[\"output\"]");
        take(answer, "output", past);
        json_free(answer);
        for (size_t i = 0; i < HEADS * ROWS; i++) {
            for (size_t j = 0; j < DV; j++) {
                const double *v = data.v + i / ROWS * ROWS * DV + j;
                double sum = past[i * DV + j];
                for (size_t row = 0; row < ROWS; row++) {
                    sum += weights[i * ROWS + row] * v[row * DV];
                }
                expect_near(output[i * DV + j], sum, "A V", which);
            }
            for (size_t row = i % ROWS + 1; row < ROWS; row++) {
                cr_expect_eq(weights[i * ROWS + row], 0, "a later position has a weight");
            }
        }
    }
}

/* present_state is the past_state of the rows that follow, wherever the call is cut. */
Test(linear, a_call_may_be_split_at_any_position) {
    static const struct part whole = {0, ROWS, false};
    static const size_t cuts[] = {0, 1, 31, 64, ROWS - 1};
    static const char more[] = ",\"return\":[\"output\",\"present_state\"]";
    static struct data data;
    static double output[MOST], state[MOST], part[MOST], middle[MOST];
    draw_row(&data);
    for (size_t i = 0; i < 4 * (sizeof cuts / sizeof *cuts); i++) {
        const size_t which = i % 4, cut = cuts[i / 4];
        struct part parts[] = {{0, cut, false}, {cut, ROWS - cut, false}};
        struct cJSON *answer = ask_linear(&data, which, &whole, data.state, 1, more);
        take(answer, "output", output);
        cr_assert_eq(take(answer, "present_state", state), HEADS * D * DV);
        json_free(answer);
        memcpy(middle, data.state, sizeof data.state);
        for (size_t p = cut > 0 ? 0 : 1; p < 2; p++) {
            answer = ask_linear(&data, which, &parts[p], middle, 1, more);
            take(answer, "output", part);
            take(answer, "present_state", middle);
            json_free(answer);
            for (size_t k = 0; k < HEADS * parts[p].rows * DV; k++) {
                const size_t head = k / (parts[p].rows * DV), rest = k % (parts[p].rows * DV);
                expect_near(part[k], output[(head * ROWS + parts[p].first) * DV + rest], "output",
                            which);
            }
        }
        for (size_t k = 0; k < HEADS * D * DV; k++) {
            expect_near(middle[k], state[k], "present_state", which);
        }
    }
}

/* A sequence without rows keeps its state. */
Test(linear, packed_sequences_are_calls_of_their_own) {
    enum {
        COUNT = 3
    };
    static const size_t firsts[COUNT] = {0, 33, 33}, lengths[COUNT] = {33, 0, ROWS - 33};
    static const struct part packed = {0, ROWS, true};
    static struct data data;
    static double output[MOST], states[MOST], own[MOST], past[COUNT * HEADS * D * DV];
    const size_t state = HEADS * D * DV;
    draw_row(&data);
    for (size_t i = 0; i < COUNT * state; i++) {
        const size_t item = i / state;
        past[i] = data.state[i % state] * (double)(item + 1);
    }
    for (size_t which = 0; which < 4; which++) {
        struct cJSON *answer =
            ask_linear(&data, which, &packed, past, COUNT,
                       ",\"sequences\":[[33,0,117]],\"return\":[\"output\",\"present_state\"]");
        cr_assert_eq(take(answer, "output", output), ROWS * HEADS * DV);
        cr_assert_eq(take(answer, "present_state", states), COUNT * state);
        json_free(answer);
        for (size_t s = 0; s < COUNT; s++) {
            const struct part part = {firsts[s], lengths[s], false};
            if (part.rows == 0) {
                for (size_t k = 0; k < state; k++) {
                    expect_near(states[s * state + k], past[s * state + k], "a kept state", which);
                }
                continue;
            }
            answer = ask_linear(&data, which, &part, past + s * state, 1,
                                ",\"return\":[\"output\",\"present_state\"]");
            take(answer, "output", own);
            for (size_t k = 0; k < HEADS * part.rows * DV; k++) {
                const size_t head = k / DV / part.rows, row = part.first + k / DV % part.rows;
                expect_near(output[(row * HEADS + head) * DV + k % DV], own[k], "output", which);
            }
            take(answer, "present_state", own);
            json_free(answer);
            for (size_t k = 0; k < state; k++) {
                expect_near(states[s * state + k], own[k], "present_state", which);
            }
        }
    }
}

/* The state after a position is that of a call that ends there, and decays are the gates. */
Test(linear, states_and_decays) {
    static const struct part whole = {0, 5, false};
    static struct data data;
    static double states[MOST], decays[MOST], last[MOST];
    draw_row(&data);
    struct cJSON *answer =
        ask_linear(&data, 3, &whole, data.state, 1, ",\"return\":[\"states\",\"decays\"]");
    cr_assert_eq(take(answer, "states", states), HEADS * 5 * D * DV);
    cr_assert_eq(take(answer, "decays", decays), HEADS * 5);
    json_free(answer);
    for (size_t n = 1; n <= 5; n++) {
        const struct part part = {0, n, false};
        answer = ask_linear(&data, 3, &part, data.state, 1, ",\"return\":[\"present_state\"]");
        take(answer, "present_state", last);
        json_free(answer);
        for (size_t k = 0; k < HEADS * D * DV; k++) {
            const size_t head = k / (D * DV);
            expect_near(states[(head * 5 + n - 1) * D * DV + k % (D * DV)], last[k], "states", 3);
        }
        for (size_t head = 0; head < HEADS; head++) {
            expect_near(decays[head * 5 + n - 1], exp(data.decay[head * ROWS + n - 1]), "decays",
                        3);
        }
    }
}
