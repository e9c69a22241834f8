/*
 * comparison_rows.c - judges rows. Each is judged beside what rounding did to this very row in the
 * runs of the reference:
 *
 *     ratio = RMS error of the row / RMS error that rounding explains
 *
 * The denominator is the mean of the runs, and twice its standard deviation more, since a row of
 * few independent errors may be lucky in all runs. A row that is luckier than most of its
 * neighbours in the same head gets what these have, as far as a gate opens both. The rounding of
 * the result itself is added. In rows of weights or scores each number has its own denominator,
 * because their sizes differ so much.
 */
#include "api/call/comparison.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BLOCK = 256, /* numbers that are widened before they are compared */
    NEAR = 8,    /* neighbours of a row on each side */
    SAMPLE = 33, /* numbers of a row whose median is the usual size of an error */
};

/* The most that the RMS ratio of neighbouring rows, and that of a head, may be if rounding explains
 * them. `make search-verdicts ARGS=--learn` measures what right kernels have. */
static const double most_of_run = 2.4, most_of_head = 1.7;

/* Returns the number of runs that the limits of single rows and numbers depend on, which is at
 * least the good one. After fewer runs, right kernels may be off by more. */
static double runs_of_limits(const struct comparison *own) {
    return own->runs < COMPARISON_GOOD_RUNS ? COMPARISON_GOOD_RUNS : (double)own->runs;
}

/* Returns the most that the ratio of a row may be. A row of few numbers may be off by more. */
static double most_of_row(const struct comparison *own, const struct comparison_pair *pair) {
    return 2.6 + (2.4 + 10 / sqrt((double)pair->row_size)) / runs_of_limits(own);
}

/* Returns the most that the ratio of one number may be. */
static double most_of_number(const struct comparison *own) {
    return 6 + 32 / runs_of_limits(own);
}

/* The RMS of rounding errors, beside the largest one that a type has. */
static const double usual = 0.58;

/* Equal weights have equal rounding errors, which no sum averages. In coarser types, kernels
 * multiply weights whose largest one is 1, so equal ones are exact there. */
static const double alike = 0x1p-8;

/* The smallest normal float32. Many GPUs take smaller numbers for 0. */
static const double normal = 0x1p-126;

/* ------------------------------------------------------------------------------ single numbers */

static inline void keep_larger(struct comparison_place *place, double error, size_t element) {
    if (error > place->error || (error == place->error && element < place->element)) {
        *place = (struct comparison_place){error, element};
    }
}

/* Returns the error of a number: 0 if both are equal, also if they are infinite, and infinity if
 * one of them is not finite. */
static inline double error_of(double exact, double expected) {
    const double difference = expected - exact;
    return expected == exact ? 0 : fabs(difference) <= DBL_MAX ? difference : (double)INFINITY;
}

/* Notes the largest errors. Beside an expected 0 there is no relative error. */
static void note_number(struct comparison_findings *found, double error, double expected,
                        size_t element) {
    const double size = fabs(error), magnitude = fabs(expected);
    found->nan += isnan(expected) != 0;
    found->infinite += isinf(expected) != 0;
    if (size == 0) {
        return;
    }
    keep_larger(&found->absolute, size, element);
    if (isinf(size)) {
        keep_larger(&found->relative, size, element);
    } else if (magnitude > 0) {
        keep_larger(&found->relative, size / magnitude, element);
    }
}

void comparison_add_findings(struct comparison_findings *all,
                             const struct comparison_findings *some) {
    keep_larger(&all->absolute, some->absolute.error, some->absolute.element);
    keep_larger(&all->relative, some->relative.error, some->relative.element);
    keep_larger(&all->worst, some->worst.error, some->worst.element);
    all->beyond += some->beyond;
    all->nan += some->nan;
    all->infinite += some->infinite;
}

static void keep_error(_Atomic double *largest, double error) {
    double before = atomic_load_explicit(largest, memory_order_relaxed);
    while (error > before &&
           !atomic_compare_exchange_weak_explicit(largest, &before, error, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* ---------------------------------------------------------------------------------------- rows */

/* Returns the squared error of rounding a result to its type, or to that in which it is computed. A
 * logarithm of sums has the error of one weight, too, and each weight that of their sum. */
static double floor_of(const struct comparison *own, const struct comparison_pair *pair,
                       double exact) {
    const struct comparison_type *type = comparison_type_of(pair->type), *computed = own->type;
    const bool logarithm = pair->which == ANSWER_LSE || pair->which == ANSWER_ENTROPY;
    const double rounded = logarithm ? type->unit : fmax(type->unit, fmin(computed->unit, alike));
    const bool adds_keys = pair->kind == KIND_WEIGHTS || (pair->kind == KIND_ROW && !logarithm);
    const double terms = adds_keys ? (double)own->rows : 0;
    const double unit = fmax(rounded, (2 + sqrt(terms) / 2) * computed->sum) + DBL_EPSILON;
    const double of_products =
        pair->kind == KIND_WEIGHTS ? computed->least : fmin(computed->least, normal);
    const double least = fmax(type->least, of_products);
    const double of_number = isfinite(exact) ? unit * exact * comparison_damp(exact) : 0;
    const double of_sum = logarithm ? fmin(computed->unit, 4 * alike) : 0;
    return usual * usual * (of_number * of_number + least * least + of_sum * of_sum);
}

/* Returns by which factor a squared movement may be too small because all runs were lucky. */
static double luck(const struct comparison *own) {
    const double root = 1 + 24 / (double)own->runs;
    return root * root;
}

/* Returns the median of a few numbers, which it sorts. */
static double median(double *x, size_t count) {
    for (size_t i = 1; i < count; i++) {
        const double own = x[i];
        size_t at = i;
        for (; at > 0 && x[at - 1] > own; at--) {
            x[at] = x[at - 1];
        }
        x[at] = own;
    }
    return count == 0 ? 0 : x[count / 2];
}

/* Returns the usual squared movement of a number of a row, for scores, or beside the square of the
 * number, for weights. */
static double usual_movement(const struct comparison *own, const struct comparison_pair *pair,
                             size_t first) {
    const size_t apart = pair->row_size / SAMPLE + 1;
    double movements[SAMPLE + 1], exact;
    size_t count = 0;
    for (size_t i = 0; i < pair->row_size && count < SAMPLE; i += apart) {
        comparison_exact(pair, first + i, 1, &exact);
        const double movement = pair->spread[first + i] / (double)own->runs;
        if (isfinite(exact) && exact != 0) { /* weights are at most 1 */
            movements[count++] = pair->kind == KIND_WEIGHTS ? movement / (exact * exact) : movement;
        }
    }
    return median(movements, count);
}

/* Returns the squared error that rounding explains in one number of scores or weights. Few runs
 * tell less of one number, so the usual movement of its row counts, too. */
static double explained_of(const struct comparison *own, const struct comparison_pair *pair,
                           size_t element, double exact, double of_row) {
    const double moved = pair->spread[element] / (double)own->runs;
    double other = pair->kind == KIND_WEIGHTS ? of_row * exact * exact : of_row;
    other = fmin(other, luck(own) * moved);
    return ((double)own->runs * moved + 4 * other) / (double)(own->runs + 4) +
           floor_of(own, pair, exact);
}

/* Does a number count for the size of a result? One that a finite mask hides does not. */
static bool has_size(const struct comparison_pair *pair, double exact) {
    const bool masked = (answer_forms[pair->which] & ANSWER_MASKED) != 0;
    return isfinite(exact) && comparison_damp(exact) == 1 && !(masked && exact < -0x1p29);
}

/* Returns the square of the factor that a gate is for a number of the output, or for one of the
 * gradient of the gate; 1 without a gate. */
static double openness(const struct comparison_pair *pair, size_t element) {
    const attn_tensor *gate = pair->gate;
    double x;
    if (gate == NULL) {
        return 1;
    }
    const attn_result_tensor *result = pair->result;
    const size_t columns = result->shape[result->rank - 1] / gate->shape[gate->rank - 1];
    comparison_widen(gate->data, gate->dtype,
                     element / columns % codec_count(gate->rank, gate->shape), 1, &x);
    const double power = exp(-fabs(x)), factor = (x < 0 ? power : 1) / (1 + power);
    const double slope = power / ((1 + power) * (1 + power));
    return pair->which == ANSWER_OUTPUT ? factor * factor : slope * slope;
}

/* Compares the numbers of one row. */
void comparison_compare_row(const struct comparison *own, struct comparison_pair *pair,
                            size_t index, struct comparison_findings *found) {
    struct comparison_row *row = &pair->rows[index];
    const size_t start = index * pair->row_size, end = start + pair->row_size;
    const double of_row = usual_movement(own, pair, start);
    double exact[BLOCK], expected[BLOCK], largest = 0;
    row->error = row->each = row->floor = row->mean = row->size = row->number = row->open = 0;
    for (size_t first = start, some; first < end; first += some) {
        some = end - first < BLOCK ? end - first : BLOCK;
        comparison_exact(pair, first, some, exact);
        comparison_widen(pair->expected.data, pair->expected.dtype, first, some, expected);
        for (size_t i = 0; i < some; i++) {
            const double given = error_of(exact[i], expected[i]);
            const double error = given * comparison_damp(exact[i]);
            note_number(found, given, expected[i], first + i);
            largest = fmax(largest, fabs(given));
            row->mean += given;
            row->size += has_size(pair, exact[i]) ? exact[i] * exact[i] : 0;
            row->floor += floor_of(own, pair, exact[i]);
            row->open += openness(pair, first + i);
            row->error += error * error;
            if (error != 0) {
                const double ratio =
                    error * error / explained_of(own, pair, first + i, exact[i], of_row);
                row->each += ratio;
                row->number = pair->kind == KIND_ROW ? 0 : fmax(row->number, sqrt(ratio));
            }
        }
    }
    if (pair->heads > 0) {
        keep_error(&pair->errors[start / pair->head_size % pair->heads], largest);
    }
}

/* Returns by how much the runs say that a row may move, squared. *more is the factor by which they
 * may have been lucky. */
static double moved_of(const struct comparison *own, const struct comparison_row *row,
                       double *more) {
    const double runs = (double)own->runs, mean = row->moved / runs;
    const double variance = row->moved_twice / runs - mean * mean;
    *more = mean > 0 && variance > 0 ? 1 + 2 * sqrt(variance) / mean : 1;
    return mean;
}

/* The place of a row among those of its head. */
struct place {
    size_t head; /* the first row of the head */
    size_t row, count;
};

static struct place place_in_head(const struct comparison_pair *pair, size_t index) {
    const size_t head = index / pair->run * pair->run + index % pair->run % pair->step;
    return (struct place){head, (index - head) / pair->step, pair->run / pair->step};
}

/* Writes the row and its neighbours of the same head. Returns how many they are. */
static size_t neighbours(const struct comparison_pair *pair, size_t index,
                         size_t rows[static 2 * NEAR + 1]) {
    const struct place p = place_in_head(pair, index);
    size_t count = 0;
    for (size_t at = p.row < NEAR ? 0 : p.row - NEAR; at < p.count && at <= p.row + NEAR; at++) {
        rows[count++] = p.head + at * pair->step;
    }
    return count;
}

/* Returns the ratio of one number of a row of KIND_ROW. */
static double ratio_of_number(const struct comparison *own, const struct comparison_pair *pair,
                              size_t index, size_t column, double error, double exact) {
    size_t rows[2 * NEAR + 1];
    double around[2 * NEAR + 1];
    const size_t count = neighbours(pair, index, rows);
    const double own_open = openness(pair, index * pair->row_size + column);
    for (size_t i = 0; i < count; i++) {
        const size_t element = rows[i] * pair->row_size + column;
        const double open = openness(pair, element);
        around[i] = pair->spread[element] * (open > 0 ? own_open / open : 1);
    }
    const double moved = pair->spread[index * pair->row_size + column];
    const double explained = fmax(moved, fmin(median(around, count), luck(own) * moved));
    const double damped = error * comparison_damp(exact);
    return sqrt(damped * damped / (explained / (double)own->runs + floor_of(own, pair, exact)));
}

/* Returns the squared error that rounding explains in a row. */
static double explained_in(const struct comparison *own, const struct comparison_pair *pair,
                           size_t index) {
    size_t near[2 * NEAR + 1];
    double around[2 * NEAR + 1], more;
    const size_t some = neighbours(pair, index, near);
    for (size_t i = 0; i < some; i++) {
        const double open = pair->rows[near[i]].open;
        around[i] = moved_of(own, &pair->rows[near[i]], &more);
        around[i] *= more * (open > 0 ? pair->rows[index].open / open : 1);
    }
    double moved = moved_of(own, &pair->rows[index], &more);
    moved *= more;
    const double usually = fmin(median(around, some), luck(own) * moved);
    return fmax(moved, usually) + pair->rows[index].floor;
}

/* Finds the ratio of a row. In a row whose numbers have errors of one size, a column of far larger
 * numbers must not hide the others, so the mean of the ratios of its numbers counts, too. */
void comparison_judge_row(const struct comparison *own, struct comparison_pair *pair,
                          size_t index) {
    struct comparison_row *row = &pair->rows[index];
    const double each = row->each / (double)pair->row_size;
    double more;
    const double moved = moved_of(own, row, &more);
    if (row->error == 0 || isinf(row->error)) {
        row->ratio = row->error; /* infinite: a number of one of the two is not finite */
    } else if (pair->kind != KIND_ROW) {
        row->ratio = sqrt(each / more);
    } else {
        const double explained = explained_in(own, pair, index);
        const double as_each = each * (moved + row->floor) / explained;
        row->ratio = sqrt(fmax(row->error / explained, as_each));
    }
}

/* Counts the numbers of a row that are beyond the tolerance, and finds the ratio of that which is
 * off the most, if the row does not show it already. */
void comparison_judge_numbers(const struct comparison *own, struct comparison_pair *pair,
                              size_t index, struct comparison_findings *found) {
    struct comparison_row *row = &pair->rows[index];
    const double large =
        most_of_number(own) * sqrt(row->error / (double)pair->row_size) / row->ratio;
    const size_t start = index * pair->row_size, end = start + pair->row_size;
    double exact[BLOCK], expected[BLOCK];
    for (size_t first = start, some; first < end; first += some) {
        some = end - first < BLOCK ? end - first : BLOCK;
        comparison_exact(pair, first, some, exact);
        comparison_widen(pair->expected.data, pair->expected.dtype, first, some, expected);
        for (size_t i = 0; i < some; i++) {
            const double error = fabs(error_of(exact[i], expected[i]));
            if (error > pair->absolute + pair->relative * fabs(expected[i]) || isinf(error)) {
                found->beyond++;
                keep_larger(&found->worst, error, first + i);
            }
            if (pair->kind == KIND_ROW && error > large) {
                row->number = fmax(row->number, ratio_of_number(own, pair, index, first - start + i,
                                                                error, exact[i]));
            }
        }
    }
}

/* -------------------------------------------------------------------------------------- guesses */

/* Finds the element of the exact result that stands at an element of a row, if a guess is right.
 * Returns false if there is none. */
static bool guess_place(const struct comparison_pair *pair, enum comparison_suspect guess,
                        size_t index, size_t column, size_t *element) {
    const struct place p = place_in_head(pair, index);
    size_t row;
    switch (guess) {
    case SUSPECT_NEXT_ROW:
        row = p.row + 1;
        break;
    case SUSPECT_LAST_ROW:
        row = p.row - 1;
        break;
    case SUSPECT_TRANSPOSED:
        if (p.count != pair->row_size || p.count < 2) {
            return false;
        }
        row = column;
        column = p.row;
        break;
    default:
        return pair->which == ANSWER_LSE && (*element = index, true);
    }
    *element = (p.head + row * pair->step) * pair->row_size + column;
    return row < p.count;
}

/* Returns whether a guess explains a wrong row. */
static bool guess_explains(const struct comparison *own, const struct comparison_pair *pair,
                           enum comparison_suspect guess, size_t index) {
    const double factor = guess == SUSPECT_BASE_2 ? 0.6931471805599453 : 1;
    const double most =
        most_of_row(own, pair) * most_of_row(own, pair) * explained_in(own, pair, index);
    double sum = 0, expected, exact;
    size_t element;
    for (size_t column = 0; column < pair->row_size && sum <= most; column++) {
        if (!guess_place(pair, guess, index, column, &element)) {
            return false;
        }
        comparison_widen(pair->expected.data, pair->expected.dtype, index * pair->row_size + column,
                         1, &expected);
        comparison_exact(pair, element, 1, &exact);
        const double error = error_of(exact, factor * expected);
        sum += error * error;
    }
    return sum <= most;
}

/* Notes which guesses explain a row, if it is wrong. */
void comparison_guess_row(const struct comparison *own, const struct comparison_pair *pair,
                          size_t index, size_t explained[static SUSPECT_COUNT],
                          size_t *wrong_rows) {
    if (pair->rows[index].ratio <= most_of_row(own, pair)) {
        return;
    }
    ++*wrong_rows;
    for (int guess = SUSPECT_NONE + 1; guess < SUSPECT_COUNT; guess++) {
        explained[guess] += guess_explains(own, pair, (enum comparison_suspect)guess, index);
    }
}

/* ------------------------------------------------------------------------------------- all rows */

/* Sets the absolute tolerance, if the request does not: that of a number of the usual size. */
void comparison_end_rows(struct comparison_pair *pair) {
    double size = 0;
    for (size_t i = 0; i < pair->row_count; i++) {
        size += pair->rows[i].size;
    }
    if (pair->absolute < 0) {
        char text[32]; /* more than three digits would be noise */
        snprintf(text, sizeof text, "%.3g",
                 pair->count == 0 ? 0 : pair->absolute_of_size * sqrt(size / (double)pair->count));
        pair->absolute = strtod(text, NULL);
    }
}

/* Keeps the rows of the largest ratios, the first of equal ones first. A row whose worst number is
 * off by more than the row has the ratio that is as bad. */
static void keep_worst(const struct comparison *own, struct comparison_pair *pair, size_t index) {
    const struct comparison_row *row = &pair->rows[index];
    const double ratio =
        fmax(row->ratio, row->number / most_of_number(own) * most_of_row(own, pair));
    size_t at = pair->worst_count;
    if (ratio == 0 || (at == COMPARISON_WORST && ratio <= pair->worst_ratio[at - 1])) {
        return;
    }
    at = at == COMPARISON_WORST ? at - 1 : pair->worst_count++;
    for (; at > 0 && pair->worst_ratio[at - 1] < ratio; at--) {
        pair->worst[at] = pair->worst[at - 1];
        pair->worst_ratio[at] = pair->worst_ratio[at - 1];
    }
    pair->worst[at] = index;
    pair->worst_ratio[at] = ratio;
}

/* Adds up one head: `count` rows from `first` on. Returns the sum of its squared ratios. */
static double end_head(const struct comparison *own, const struct comparison_pair *pair,
                       size_t first, size_t count, struct comparison_sums *sums) {
    double sum = 0, of_run = 0;
    for (size_t i = 0; i < count; i++) {
        const struct comparison_row *row = &pair->rows[first + i * pair->step];
        const double squared = row->ratio * row->ratio;
        of_run = i % COMPARISON_RUN == 0 ? squared : of_run + squared;
        sum += squared;
        sums->mean += row->mean;
        sums->score = fmax(sums->score, row->ratio / most_of_row(own, pair));
        sums->score = fmax(sums->score, row->number / most_of_number(own));
        if (i % COMPARISON_RUN + 1 == COMPARISON_RUN) {
            sums->score = fmax(sums->score, sqrt(of_run / COMPARISON_RUN) / most_of_run);
        }
    }
    if (count > COMPARISON_RUN) {
        sums->score = fmax(sums->score, sqrt(sum / (double)count) / most_of_head);
    }
    return sum;
}

/* Adds up all rows of a pair. */
static struct comparison_sums sum_pair(const struct comparison *own,
                                       const struct comparison_pair *pair) {
    struct comparison_sums sums = {0};
    double sum = 0, explained = 0, more;
    for (size_t first = 0; first < pair->row_count; first += pair->run) {
        for (size_t head = 0; head < pair->step; head++) {
            sum += end_head(own, pair, first + head, pair->run / pair->step, &sums);
        }
    }
    for (size_t i = 0; i < pair->row_count; i++) {
        explained += moved_of(own, &pair->rows[i], &more) + pair->rows[i].floor;
    }
    if (pair->row_count > 0) {
        sums.ratio = sqrt(sum / (double)pair->row_count);
        sums.bound = sqrt(explained / (double)pair->count);
        sums.mean /= (double)pair->count;
    }
    return sums;
}

/* Returns the element of a row that is off the most, in rows of scores and of weights beside what
 * rounding explains in each number. */
static size_t worst_number(const struct comparison *own, const struct comparison_pair *pair,
                           size_t index) {
    const size_t first = index * pair->row_size;
    const double of_row = pair->kind != KIND_ROW ? usual_movement(own, pair, first) : 0;
    size_t worst = first;
    double largest = -1, exact, expected;
    for (size_t i = first; i < first + pair->row_size; i++) {
        comparison_exact(pair, i, 1, &exact);
        comparison_widen(pair->expected.data, pair->expected.dtype, i, 1, &expected);
        const double error = fabs(error_of(exact, expected)) * comparison_damp(exact);
        const double size = pair->kind == KIND_ROW || error == 0
                                ? error
                                : error / sqrt(explained_of(own, pair, i, exact, of_row));
        if (size > largest) {
            largest = size;
            worst = i;
        }
    }
    return worst;
}

/* Do most rows have errors as large as those of this type? A fault is often in a few rows only. */
static bool is_everywhere(const struct comparison_pair *pair) {
    size_t rows = 0;
    for (size_t i = 0; i < pair->row_count; i++) {
        rows += pair->rows[i].ratio > 0.02;
    }
    return rows > pair->row_count / 2;
}

/* Ends a pair. */
void comparison_end_pair(const struct comparison *own, struct comparison_pair *pair) {
    const struct comparison_sums sums = sum_pair(own, pair);
    if (own->type == pair->computed) {
        pair->sums = sums;
        for (size_t i = 0; i < pair->row_count; i++) {
            keep_worst(own, pair, i);
        }
        pair->worst_number = pair->worst_count > 0 ? worst_number(own, pair, pair->worst[0]) : 0;
    } else if (sums.score <= 1 && is_everywhere(pair)) {
        pair->coarser = own->type;
    }
}
