/*
 * plan_rotary.c - checks the norms and rotary against the sizes of a plan, and computes the
 * frequencies of rotary embedding. engine/prepare.inc rotates the rows.
 */
#include "softmax/plan_rotary.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "engine/visible.h"
#include "plan_inputs.h"
#include "plan_memory.h"

static const double pi = 3.14159265358979323846;

/* ------------------------------------------------------------------------------ the frequencies */

/* Returns the frequency of pair k for a base. */
static double plain_frequency(double base, size_t k, size_t columns) {
    return pow(base, -2.0 * (double)k / (double)columns);
}

/* Finds the first and the last position of the queries of all batch items. */
static void positions_of_queries(const attn_plan *plan, int64_t *first, int64_t *last) {
    size_t shortest = 0, longest = 0;
    for (size_t b = 1; b < plan->batch && plan->form.ends != NULL; b++) {
        shortest = plan->form.ends[b] < plan->form.ends[shortest] ? b : shortest;
        longest = plan->form.ends[b] > plan->form.ends[longest] ? b : longest;
    }
    *first = plan_position(plan, shortest, 0);
    *last = plan_position(plan, longest, plan->n - 1);
}

/* Returns the number of positions that a call needs: the largest position and one more. `positions`
 * has one number for each new key of each batch item; it is NULL if the caller gave none. */
static double positions_of_call(const attn_plan *plan, const void *positions) {
    const struct rotary *r = &plan->rotary;
    if (positions == NULL) {
        int64_t first, last;
        positions_of_queries(plan, &first, &last);
        const int64_t keys = (int64_t)present_rows(plan);
        return (double)r->given.offset + (double)(last + 1 > keys ? last + 1 : keys);
    }
    const size_t items = r->positions_batch == 0 ? 1 : plan->batch;
    const size_t count = items * plan->form.new_keys;
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        const double position = number_at(positions, r->positions_dtype, i);
        /* GCC 12 for 64-bit ARM stops with an internal error if this is a call of fmax(). */
        if (position > most) {
            most = position;
        }
    }
    return most + 1;
}

/* Returns the base with which the dynamic scaling replaces the given one. */
static double dynamic_base(const attn_plan *plan, const void *given) {
    const attn_rotary *g = &plan->rotary.given;
    const double columns = (double)plan->rotary.columns;
    const double positions = fmax(positions_of_call(plan, given), g->original_positions);
    const double grown = g->factor * positions / g->original_positions - (g->factor - 1);
    return columns > 2 ? g->base * pow(grown, columns / (columns - 2)) : g->base;
}

/* Returns the pair, as a fraction, that turns so many times over the positions of the training. */
static double yarn_pair(const attn_rotary *g, double columns, double turns) {
    return columns * log(g->original_positions / (turns * 2 * pi)) / (2 * log(g->base));
}

/* The frequencies of pairs below *low stay, and those of pairs above *high are divided. */
static void yarn_range(const attn_rotary *g, size_t columns, double *low, double *high) {
    *low = yarn_pair(g, (double)columns, g->beta_fast);
    *high = yarn_pair(g, (double)columns, g->beta_slow);
    if (!g->untruncated) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, (double)columns - 1);
    *high += *high == *low ? 0.001 : 0;
}

static double llama3_frequency(const attn_rotary *g, double frequency) {
    const double turns = g->original_positions * frequency / (2 * pi);
    if (turns > g->high_factor) {
        return frequency;
    }
    if (turns < g->low_factor) {
        return frequency / g->factor;
    }
    const double share = (turns - g->low_factor) / (g->high_factor - g->low_factor);
    return (1 - share) * frequency / g->factor + share * frequency;
}

static double yarn_magnitude(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Returns the factor of cos and sin if the caller does not give one. */
static double default_factor(const attn_rotary *g) {
    if (g->scaling == ATTN_ROTARY_YARN) {
        return g->mscale != 0 && g->mscale_all != 0
                   ? yarn_magnitude(g->factor, g->mscale) / yarn_magnitude(g->factor, g->mscale_all)
                   : yarn_magnitude(g->factor, 1);
    }
    if (g->scaling == ATTN_ROTARY_LONGROPE && g->factor > 1) {
        return sqrt(1 + log(g->factor) / log(g->original_positions));
    }
    return 1;
}

void plan_frequencies(const attn_plan *plan, const struct bindings *bindings) {
    const struct rotary *r = &plan->rotary;
    const attn_rotary *g = &r->given;
    const void *positions = bindings->inputs[INPUT_POSITIONS];
    if (bindings->frequencies == NULL) {
        return;
    }
    const double *divisors = NULL;
    double base = g->base, low = 0, high = 1;
    if (g->scaling == ATTN_ROTARY_DYNAMIC) {
        base = dynamic_base(plan, positions);
    } else if (g->scaling == ATTN_ROTARY_LONGROPE) {
        divisors = positions_of_call(plan, positions) > g->original_positions ? g->long_factors
                                                                              : g->short_factors;
    } else if (g->scaling == ATTN_ROTARY_YARN) {
        yarn_range(g, r->columns, &low, &high);
    }
    for (size_t k = 0; k < r->columns / 2; k++) {
        double f = plain_frequency(base, k, 2 * r->all_pairs);
        if (divisors != NULL) {
            f /= divisors[k];
        } else if (g->scaling == ATTN_ROTARY_LINEAR || g->scaling == ATTN_ROTARY_PROPORTIONAL) {
            f /= g->factor;
        } else if (g->scaling == ATTN_ROTARY_LLAMA3) {
            f = llama3_frequency(g, f);
        } else if (g->scaling == ATTN_ROTARY_YARN) {
            const double ramp = fmin(fmax(((double)k - low) / (high - low), 0), 1);
            f = f / g->factor * ramp + f * (1 - ramp);
        }
        bindings->frequencies[k] = f;
    }
}

/* ----------------------------------------------------------------------------------- the checks */

/* Returns the columns of a head of Q and K, or of V. */
static size_t columns_of_norm(const struct head *head, int which) {
    return which == INPUT_NORM_V ? head->d_v : head->d;
}

/* Checks and binds the norm of a matrix with so many heads. */
static attn_status bind_norm(attn_plan *plan, const attn_tensor *norm, int which, const char *name,
                             size_t heads, attn_error *error) {
    size_t columns = columns_of_norm(&plan->head[0], which);
    bool *whole = &plan->whole_norm[which - INPUT_NORM_Q];
    if (norm == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(check_matrix(norm, name, 1, 1, error));
    ATTN_TRY(check_dtype(norm, name, plan->dtype, error));
    plan_bind_input(plan, which, norm->data);
    for (size_t h = 0; h < plan->heads; h++) {
        size_t other = columns_of_norm(&plan->head[h], which);
        if (other != columns) { /* one of the two does not fit */
            ATTN_TRY(check_shape(norm, name, 1, &columns, error));
            return check_shape(norm, name, 1, &other, error);
        }
    }
    *whole = heads > 1 && norm->shape[0] == heads * columns;
    return *whole ? ATTN_OK : check_shape(norm, name, 1, &columns, error);
}

/* Fails unless a number that the scaling needs is finite and at least `least`. */
static attn_status check_scaling_number(double number, double least, const char *name,
                                        attn_error *error) {
    return number >= least && isfinite(number)
               ? ATTN_OK
               : attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                           "%s of rotary is %g; it must be a finite number of at least %g", name,
                           number, least);
}

static attn_status check_list(const double *list, size_t count, const char *name, size_t pairs,
                              attn_error *error) {
    if (list == NULL || count != pairs) {
        return attn_fail(
            error, ATTN_SHAPE_MISMATCH, "rotary",
            "%s of rotary has %zu numbers; it must have one for each of the %zu pairs of columns",
            name, list == NULL ? 0 : count, pairs);
    }
    for (size_t i = 0; i < count; i++) {
        if (!(list[i] > 0) || isinf(list[i])) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                             "%s[%zu] of rotary is %g; it must be a positive number", name, i,
                             list[i]);
        }
    }
    return ATTN_OK;
}

/* Checks the numbers of the scaling, of which the defaults are filled in. */
static attn_status check_scaling(const attn_rotary *g, size_t pairs, attn_error *error) {
    if ((unsigned)g->scaling > ATTN_ROTARY_PROPORTIONAL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                         "scaling of rotary is %d; it must be 0 to 6", (int)g->scaling);
    }
    if (!(g->base > 0) || isinf(g->base)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                         "base of rotary is %g; it must be a positive number", g->base);
    }
    if (g->scaling != ATTN_ROTARY_UNSCALED && g->scaling != ATTN_ROTARY_LONGROPE) {
        ATTN_TRY(check_scaling_number(g->factor, 1, "factor", error));
    }
    if (g->scaling > ATTN_ROTARY_LINEAR && g->scaling != ATTN_ROTARY_PROPORTIONAL) {
        ATTN_TRY(check_scaling_number(g->original_positions, 1, "original_positions", error));
    }
    ATTN_TRY(check_scaling_number(g->attention_factor, 0, "attention_factor", error));
    if (g->scaling == ATTN_ROTARY_LLAMA3) {
        ATTN_TRY(check_scaling_number(g->low_factor, 0, "low_freq_factor", error));
        ATTN_TRY(check_scaling_number(g->high_factor, 0, "high_freq_factor", error));
        if (g->high_factor <= g->low_factor) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                             "high_freq_factor of rotary is %g; it must be more than "
                             "low_freq_factor, which is %g",
                             g->high_factor, g->low_factor);
        }
    }
    if (g->scaling == ATTN_ROTARY_YARN) {
        if (g->base <= 1) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                             "base of rotary is %g; with yarn it must be more than 1", g->base);
        }
        ATTN_TRY(check_scaling_number(g->beta_slow, 1e-6, "beta_slow", error));
        ATTN_TRY(check_scaling_number(g->beta_fast, g->beta_slow, "beta_fast", error));
        ATTN_TRY(check_scaling_number(g->mscale, 0, "mscale", error));
        ATTN_TRY(check_scaling_number(g->mscale_all, 0, "mscale_all_dim", error));
    }
    if (g->scaling == ATTN_ROTARY_LONGROPE) {
        if (g->factor != 0) {
            ATTN_TRY(check_scaling_number(g->factor, 1, "factor", error));
            ATTN_TRY(check_scaling_number(g->original_positions, 2, "original_positions", error));
        }
        ATTN_TRY(check_list(g->short_factors, g->short_count, "short_factor", pairs, error));
        ATTN_TRY(check_list(g->long_factors, g->long_count, "long_factor", pairs, error));
    }
    return ATTN_OK;
}

/* Checks that the batch items may have positions of their own. */
static attn_status check_own_positions(const attn_plan *plan, const char *name, attn_error *error) {
    if (plan->batch != 1 && (plan->in.q.items == 1 || plan->in.k.items == 1)) {
        return attn_fail(
            error, ATTN_SHAPE_MISMATCH, name,
            "%s gives each batch item its own positions, but all batch items share one %s", name,
            plan->in.q.items == 1 ? "Q" : "K");
    }
    return ATTN_OK;
}

/* Checks that a tensor is (rows, ...), or has the batch axes of the call before these `last` axes,
 * and sets the distance of its batch items. */
static attn_status check_items(const attn_plan *plan, const attn_tensor *t, const char *name,
                               int last, size_t *distance, attn_error *error) {
    const unsigned empty = ~0u << (last - 1); /* without positions, or without batch items */
    size_t items;
    ATTN_TRY(check_sizes(t, name, last, last + MOST_AXES, empty, error));
    ATTN_TRY(check_batch(t, name, last, &plan->form, &items, error));
    *distance = 0;
    if (items != 1) { /* without items there is no row that a shared Q or K could have */
        ATTN_TRY(check_own_positions(plan, name, error));
        *distance = t->shape[t->rank - last] * (last > 1 ? t->shape[t->rank - 1] : 1);
    }
    return ATTN_OK;
}

static attn_status check_positions(attn_plan *plan, const attn_tensor *t, attn_error *error) {
    struct rotary *r = &plan->rotary;
    static const char name[] = "positions";
    if (t->dtype != ATTN_FLOAT64) {
        ATTN_TRY(check_dtype(t, name, plan->dtype, error));
    }
    ATTN_TRY(check_items(plan, t, name, 1, &r->positions_batch, error));
    if (t->shape[t->rank - 1] != plan->n || plan->n != plan->form.new_keys) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "positions has %zu numbers for each batch item; it must have one for each "
                         "of the %zu queries and of the %zu new keys",
                         t->shape[t->rank - 1], plan->n, plan->form.new_keys);
    }
    plan_bind_input(plan, INPUT_POSITIONS, t->data);
    r->positions_dtype = t->dtype;
    return ATTN_OK;
}

static attn_status check_tables(attn_plan *plan, const attn_rotary *g, attn_error *error) {
    struct rotary *r = &plan->rotary;
    size_t distance;
    if (g->cos == NULL || g->sin == NULL) {
        const char *name = g->cos == NULL ? "rotary_cos" : "rotary_sin";
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name,
                         "rotary_cos and rotary_sin must be given together");
    }
    ATTN_TRY(check_dtype(g->cos, "rotary_cos", plan->dtype, error));
    ATTN_TRY(check_dtype(g->sin, "rotary_sin", plan->dtype, error));
    ATTN_TRY(check_items(plan, g->cos, "rotary_cos", 2, &r->table_batch, error));
    ATTN_TRY(check_items(plan, g->sin, "rotary_sin", 2, &distance, error));
    ATTN_TRY(check_shape(g->sin, "rotary_sin", g->cos->rank, g->cos->shape, error));
    ATTN_TRY(check_equal("rotary_cos", g->cos->shape[g->cos->rank - 1], "column",
                         "half of the columns that turn", r->columns / 2, error));
    r->table_rows = g->cos->shape[g->cos->rank - 2];
    plan_bind_input(plan, INPUT_ROTARY_COS, g->cos->data);
    plan_bind_input(plan, INPUT_ROTARY_SIN, g->sin->data);
    if (plan->options.sequences != NULL) {
        return ATTN_OK; /* the plans of the sequences check them */
    }
    if (plan_has(plan, INPUT_POSITIONS)) { /* their numbers are checked when they are read */
        return plan->form.empty ? ATTN_OK
                                : check_matrix(g->cos, "rotary_cos", 2, 2 + MOST_AXES, error);
    }
    int64_t first, last;
    positions_of_queries(plan, &first, &last);
    first = g->offset + (first < 0 ? first : 0);
    const double end = positions_of_call(plan, NULL);
    if (first < 0 || end > (double)r->table_rows) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "rotary_cos",
                         "rotary_cos has %zu row%s, one for each position from 0 on, but the call "
                         "has the positions %lld to %.0f",
                         r->table_rows, plural_end(r->table_rows), (long long)first, end - 1);
    }
    return ATTN_OK;
}

/* Finds the columns that turn if only a part of the pairs does. */
static attn_status check_part_of_pairs(struct rotary *r, attn_error *error) {
    const double part = r->given.partial_factor == 0 ? 1 : r->given.partial_factor;
    if (!(part > 0 && part <= 1)) {
        return attn_fail(
            error, ATTN_INVALID_ARGUMENT, "rotary",
            "partial_rotary_factor of rotary is %g; it must be more than 0 and at most 1", part);
    }
    r->columns = 2 * (size_t)(part * (double)r->all_pairs);
    return r->columns > 0 ? ATTN_OK
                          : attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                                      "partial_rotary_factor of rotary is %g, which is less than "
                                      "one of the %zu pairs of columns",
                                      part, r->all_pairs);
}

/* Keeps the numbers of the call, and makes room for the frequencies. */
static attn_status keep_numbers(attn_plan *plan, const attn_rotary *given, attn_error *error) {
    struct rotary *r = &plan->rotary;
    attn_rotary *g = &r->given;
    const size_t pairs = r->columns / 2;
    g->base = g->base == 0 ? 10000 : g->base;
    g->beta_fast = g->beta_fast == 0 ? 32 : g->beta_fast;
    g->beta_slow = g->beta_slow == 0 ? 1 : g->beta_slow;
    if (g->scaling == ATTN_ROTARY_PROPORTIONAL) {
        g->factor = g->factor == 0 ? 1 : g->factor;
        ATTN_TRY(check_part_of_pairs(r, error));
    }
    ATTN_TRY(check_scaling(g, pairs, error));
    r->factor = g->attention_factor != 0 ? g->attention_factor : default_factor(g);
    const size_t lists = g->scaling == ATTN_ROTARY_LONGROPE ? 2 : 0;
    double *numbers = plan_alloc(plan, (1 + lists) * pairs, sizeof *numbers);
    if (numbers == NULL) {
        return attn_no_memory(error);
    }
    if (lists > 0) {
        g->short_factors = memcpy(numbers + pairs, given->short_factors, pairs * sizeof(double));
        g->long_factors = memcpy(numbers + 2 * pairs, given->long_factors, pairs * sizeof(double));
    }
    plan->bindings.frequencies = numbers;
    return ATTN_OK;
}

static attn_status check_rotary(attn_plan *plan, const attn_rotary *given, attn_error *error) {
    enum {
        MOST_OFFSET = 1 << 30 /* positions stay exact in double, and sums of them fit an int64_t */
    };
    struct rotary *r = &plan->rotary;
    const size_t d = plan->head[0].d;
    for (size_t h = 0; h < plan->heads; h++) {
        if (plan->head[h].d != d) {
            return attn_fail(
                error, ATTN_SHAPE_MISMATCH, "rotary",
                "rotary needs heads of one size, but head 0 has %zu columns and head %zu has %zu",
                d, h, plan->head[h].d);
        }
    }
    r->given = *given;
    r->columns = given->columns == 0 ? d : given->columns;
    if (r->columns % 2 != 0 || r->columns > d) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                         "rotary turns %zu columns of each head; it must be an even number of at "
                         "most %zu, the columns of a head",
                         r->columns, d);
    }
    if (given->offset < 0 || given->offset > MOST_OFFSET) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "rotary",
                         "offset of rotary is %lld; it must be 0 to %d", (long long)given->offset,
                         MOST_OFFSET);
    }
    r->all_pairs = r->columns / 2;
    r->factor = 1;
    if (plan->form.ends != NULL && plan->in.q.items == 1) {
        ATTN_TRY(check_own_positions(plan, "lengths", error));
    }
    if (given->positions != NULL) {
        ATTN_TRY(check_positions(plan, given->positions, error));
    }
    return given->cos != NULL || given->sin != NULL ? check_tables(plan, given, error)
                                                    : keep_numbers(plan, given, error);
}

attn_status plan_rotary(attn_plan *plan, const attn_options *o, attn_error *error) {
    enum {
        MOST_COLUMNS = 1 << 16 /* so that a scratch has room for a row in double */
    };
    const size_t d = plan->head[0].d, d_v = plan->head[0].d_v;
    const char *reason = d <= MOST_COLUMNS   ? NULL
                         : o->rotary != NULL ? "rotary"
                         : o->norm_q != NULL ? "norm_Q"
                         : o->norm_k != NULL ? "norm_K"
                         : o->b_q != NULL    ? "b_Q"
                         : o->b_k != NULL    ? "b_K"
                                             : NULL;
    if (reason == NULL && d_v > MOST_COLUMNS) {
        reason = o->norm_v != NULL ? "norm_V" : o->b_v != NULL ? "b_V" : NULL;
    }
    if (reason != NULL) {
        return attn_fail(error, ATTN_TOO_LARGE, reason,
                         "a head has %zu columns; with %s it may have at most %d", size_max(d, d_v),
                         reason, MOST_COLUMNS);
    }
    const bool norms = o->norm_q != NULL || o->norm_k != NULL || o->norm_v != NULL;
    ATTN_TRY(check_norm_epsilon(o, norms ? NULL : "norm_Q, norm_K or norm_V", &plan->norm_epsilon,
                                error));
    ATTN_TRY(bind_norm(plan, o->norm_q, INPUT_NORM_Q, "norm_Q", plan->in.q.heads, error));
    ATTN_TRY(bind_norm(plan, o->norm_k, INPUT_NORM_K, "norm_K", plan->kv_heads, error));
    ATTN_TRY(bind_norm(plan, o->norm_v, INPUT_NORM_V, "norm_V", plan->in.v.heads, error));
    return o->rotary == NULL ? ATTN_OK : check_rotary(plan, o->rotary, error);
}
