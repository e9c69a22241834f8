/*
 * comparison_reference.c - the reference of a call: the same call in float64, over copies of its
 * inputs. Its runs measure how far rounding moves the results that are compared.
 *
 * The first run may be exact. In each other run, every number of an input gets a random relative
 * error of one rounding of the type in which the client's kernel multiplies. So does every score,
 * see attn_rounding. Sums in this type are made of many additions, whose errors grow with the
 * partial sums. So blocks of rows and of columns get errors in common, which grow with the root of
 * their number.
 *
 * A stored layer has packed weights in the dtype of the call, so its reference has this dtype.
 */
#include "api/call/comparison.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CHUNK = 64 * 1024,  /* numbers that one task copies */
    BLOCKS = 8,         /* blocks of rows, and of columns, whose numbers have errors in common */
    COST_OF_COPY = 800, /* multiply-adds that take as long as copying a number */
    COST_OF_MOVE = 100, /* multiply-adds that take as long as looking how far a number moved */
    MOST_RUNS = 32,     /* runs with errors, however cheap they are */
    LEAST_RUNS = 4      /* and however dear */
};
static const double most_work = 1e11; /* multiply-adds of the runs together, beyond the least */

/* ---------------------------------------------------------------------------------- the copies */

/* Adds an input to the copies if it has numbers that a kernel rounds. */
static bool add_copy(struct comparison *own, struct account *account, attn_tensor *input,
                     attn_dtype dtype) {
    const struct call *call = own->call;
    if (input->rank == 0 || (input->dtype != ATTN_FLOAT32 && input->dtype != ATTN_FLOAT64)) {
        return true;
    }
    /* Positions may be float64 in any call. */
    const attn_dtype own_dtype = input->dtype == ATTN_FLOAT64 ? ATTN_FLOAT64 : dtype;
    const size_t numbers = codec_count(input->rank, input->shape);
    void *data = account_alloc(account, numbers * attn_dtype_size(own_dtype));
    if (data == NULL) {
        return false;
    }
    own->copies[own->copy_count++] = (struct comparison_copy){
        .input = input,
        .from = *input,
        .data = data,
        .dtype = own_dtype,
        .first = own->copied,
        .whole = input == &call->tensors.positions || input == &call->tensors.bias,
        .weighted = call->linear.v == NULL &&
                    (input == &call->tensors.v || input == &call->tensors.past_v ||
                     input == &call->tensors.grad_output)};
    own->copied += numbers;
    const size_t rows = input->rank > 1 ? input->shape[input->rank - 2] : 1;
    own->rows = rows > own->rows ? rows : own->rows;
    return true;
}

/* Makes room for copies of all inputs of the call. */
static bool add_copies(struct comparison *own, struct account *account, attn_dtype dtype) {
    struct call *call = own->call;
    attn_tensor *const tensors = (attn_tensor *)&call->tensors;
    const size_t some = sizeof call->tensors / sizeof *tensors;
    const size_t of_head = sizeof *call->weights / sizeof *tensors;
    const size_t heads = call->weights != NULL ? call->multihead.count : 0;
    own->copies = account_alloc(account, (some + heads * of_head) * sizeof *own->copies);
    bool good = own->copies != NULL;
    for (size_t i = 0; good && i < some; i++) {
        good = add_copy(own, account, &tensors[i], dtype);
    }
    for (size_t i = 0; good && i < heads * of_head; i++) {
        good = add_copy(own, account, (attn_tensor *)call->weights + i, dtype);
    }
    return good;
}

/* Has a run no rounding errors? */
static bool is_exact(const struct comparison *own, size_t run) {
    return own->has_exact_run && run == 0;
}

/* Returns a number between -1 and 1 that is a hash of its place. */
static double draw(uint64_t seed, uint64_t place) {
    uint64_t x = seed + place * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return (double)(int64_t)x * 0x1p-63;
}

/* Does a kernel of a type multiply a number as it is? A kernel that rounds its scores to the type
 * may round its inputs, too, after it has scaled them. */
static bool fits(double number, const struct comparison_type *type) {
    int exponent;
    const double whole = frexp(number, &exponent) / type->unit;
    return type->scores < type->unit && whole == nearbyint(whole);
}

/* Does a run cut digits off? Then all numbers come nearer to 0. Some kernels of TF32 cut off, and
 * others round. */
static bool cuts(const struct comparison *own, size_t run) {
    return own->type == &comparison_types[COMPARISON_TF32] && run % 2 == 1;
}

/* Returns the relative error of a number of an input, which has the place `index` there. */
static double input_error(const struct comparison *own, const struct comparison_copy *copy,
                          uint64_t seed, size_t run, size_t index, double number) {
    const int rank = copy->from.rank;
    const size_t columns = copy->from.shape[rank - 1],
                 rows = rank > 1 ? copy->from.shape[rank - 2] : 1;
    const size_t row = index / columns, column = index % columns;
    const size_t block_of_rows = row / (rows / BLOCKS + 1),
                 block_of_columns = column / (columns / BLOCKS + 1);
    const double common = sqrt((double)rows) * draw(seed ^ 1, block_of_rows * columns + column) +
                          sqrt((double)columns) * draw(seed ^ 2, row * BLOCKS + block_of_columns);
    const struct comparison_type *type = own->type;
    const double unit = fits(number, type) ? 0 : type->unit;
    /* Kernels cut off the weights that multiply it, too. For grad_output this also stands for the
     * gradients of scores, which grow with it. */
    const double smaller = cuts(own, run) ? unit + (copy->weighted ? type->unit : 0) : 0;
    return unit * draw(seed, index) - smaller + type->sum * common;
}

/* Writes some numbers of a copy. */
static void copy_numbers(const struct comparison *own, const struct comparison_copy *copy,
                         size_t run, size_t first, size_t end) {
    const bool exact = is_exact(own, run) || copy->whole;
    const uint64_t seed = ((uint64_t)run << 32) + ((uint64_t)(copy - own->copies) << 2);
    const attn_dtype dtype = copy->from.dtype;
    for (size_t i = first; i < end; i++) {
        const double given = dtype == ATTN_FLOAT64 ? ((const double *)copy->from.data)[i]
                                                   : (double)((const float *)copy->from.data)[i];
        double moved = exact ? given : given * (1 + input_error(own, copy, seed, run, i, given));
        moved = isfinite(moved) ? moved : given;
        if (copy->dtype == ATTN_FLOAT32) {
            ((float *)copy->data)[i] = (float)moved;
        } else {
            ((double *)copy->data)[i] = moved;
        }
    }
}

static void copy_task(const struct comparison *own, size_t run, size_t task) {
    const size_t first = task * CHUNK,
                 end = own->copied - first < CHUNK ? own->copied : first + CHUNK;
    for (size_t i = 0; i < own->copy_count; i++) {
        const struct comparison_copy *copy = &own->copies[i];
        const size_t next = i + 1 < own->copy_count ? copy[1].first : own->copied;
        if (copy->first < end && next > first) {
            copy_numbers(own, copy, run, first > copy->first ? first - copy->first : 0,
                         (next < end ? next : end) - copy->first);
        }
    }
}

/* ------------------------------------------------------------------------------------ the plan */

/* Has the call read its inputs, or the copies of them. */
static void put_inputs(const struct comparison *own, bool copies) {
    for (size_t i = 0; i < own->copy_count; i++) {
        const struct comparison_copy *copy = &own->copies[i];
        copy->input->data = copies ? copy->data : copy->from.data;
        copy->input->dtype = copies ? copy->dtype : copy->from.dtype;
    }
}

/* Plans the reference. The call is as before when it returns. */
static attn_status plan_reference(struct comparison *own, call_plan *plan, attn_error *error) {
    struct call *call = own->call;
    const attn_options options = call->options;
    attn_plan *const before = call->plan;
    bool gradient = false;
    call->options.results = 0;
    for (size_t i = 0; i < own->count; i++) {
        call->options.results |= answer_bits[own->pairs[i].which];
        gradient = gradient || answer_is_gradient(own->pairs[i].which);
    }
    call->options.compute_dtype = ATTN_COMPUTE_AS_GIVEN;
    call->options.rounding = &own->rounding;
    if (!gradient) {
        call->options.upstream = NULL;
    }
    call->plan = NULL;
    put_inputs(own, true);
    const attn_status status = plan(call, error);
    put_inputs(own, false);
    own->reference = call->plan;
    call->plan = before;
    call->options = options;
    return status;
}

/* Returns how often a reference of this cost runs. */
static size_t count_runs(double cost) {
    const double most = most_work / cost;
    return most > MOST_RUNS ? MOST_RUNS : most < LEAST_RUNS ? LEAST_RUNS : (size_t)most;
}

static bool make_room(struct comparison *own, struct account *account) {
    for (size_t i = 0; i < own->count; i++) {
        struct comparison_pair *pair = &own->pairs[i];
        const attn_result result = (attn_result)__builtin_ctzll(answer_bits[pair->which]);
        pair->moved = attn_plan_tensor(own->reference, result, 0);
        pair->rows = account_alloc(account, pair->row_count * sizeof *pair->rows);
        if (pair->rows == NULL) {
            return false;
        }
        if (own->has_exact_run) {
            pair->exact = account_alloc(account, pair->count * sizeof *pair->exact);
        }
        pair->spread = account_alloc(account, pair->count * sizeof *pair->spread);
        if ((own->has_exact_run && pair->exact == NULL) || pair->spread == NULL) {
            return false;
        }
    }
    return true;
}

bool comparison_reference(struct comparison *own, struct account *account, call_plan *plan,
                          struct codec_error *error) {
    const attn_dtype given = own->pairs[0].result->dtype;
    const attn_dtype dtype = own->call->stored.weights.layers != NULL ? given : ATTN_FLOAT64;
    attn_error plan_error = {0};
    own->has_exact_run =
        given != dtype || own->call->options.compute_dtype != ATTN_COMPUTE_AS_GIVEN;
    if (!add_copies(own, account, dtype)) {
        return codec_no_memory(error);
    }
    const attn_status status = plan_reference(own, plan, &plan_error);
    if (status == ATTN_NO_MEMORY) {
        return codec_no_memory(error);
    }
    if (status != ATTN_OK) {
        error->status = CODEC_TOO_LARGE;
        snprintf(error->message, sizeof error->message, "the comparison in float64: %s",
                 plan_error.message);
        return false;
    }
    if (!make_room(own, account)) {
        return codec_no_memory(error);
    }
    own->most_runs = count_runs(comparison_run_cost(own));
    own->first = own->pairs[0].computed;
    for (size_t i = 1; i < own->count; i++) {
        own->first = own->pairs[i].computed < own->first ? own->pairs[i].computed : own->first;
    }
    own->type = own->first;
    own->runs = own->most_runs;
    return true;
}

void comparison_free(struct comparison *comparison) {
    if (comparison != NULL) {
        attn_plan_free(comparison->reference);
    }
}

/* ------------------------------------------------------------------------------------ the runs */

/* Has the reference another number in place of this one, since it has no finite mask of this size?
 * See LEAST_SCORE of the library. */
static bool is_replaced(const struct comparison_pair *pair, double number) {
    return number < -0x1p40 && (answer_forms[pair->which] & ANSWER_MASKED) != 0;
}

/* Adds by how much the reference moved in a run, which may be the first with errors, or keeps the
 * exact numbers. */
static void collect_row(struct comparison_pair *pair, size_t row, bool exact, bool first_run) {
    enum {
        SOME = 256
    };
    double moved[SOME], was[SOME], sum = 0;
    const size_t end = (row + 1) * pair->row_size;
    for (size_t first = row * pair->row_size, some; first < end; first += some) {
        some = end - first < SOME ? end - first : SOME;
        comparison_widen(pair->moved->data, pair->moved->dtype, first, some, moved);
        if (exact) {
            memcpy(pair->exact + first, moved, some * sizeof *moved);
            continue;
        }
        comparison_exact(pair, first, some, was);
        for (size_t i = 0; i < some; i++) {
            const double by =
                moved[i] == was[i] || is_replaced(pair, was[i]) ? 0 : moved[i] - was[i];
            const double damped = by * comparison_damp(was[i]), squared = damped * damped;
            sum += squared;
            pair->spread[first + i] = (first_run ? 0 : pair->spread[first + i]) + squared;
        }
    }
    struct comparison_row *of = &pair->rows[row];
    of->moved = (first_run ? 0 : of->moved) + sum;
    of->moved_twice = (first_run ? 0 : of->moved_twice) + sum * sum;
}

size_t comparison_run_phases(const struct comparison *own) {
    return 2 + attn_plan_phases(own->reference) +
           1; /* copies, the start, the plan, the collection */
}

size_t comparison_run_tasks(const struct comparison *own, size_t phase) {
    size_t tasks = 0;
    if (phase == 0) {
        return own->copied / CHUNK + 1;
    }
    if (phase == 1) {
        return 1;
    }
    if (phase + 1 < comparison_run_phases(own)) {
        return attn_plan_tasks(own->reference, phase - 2);
    }
    for (size_t i = 0; i < own->count; i++) {
        tasks += comparison_tasks_of(&own->pairs[i], CHUNK);
    }
    return tasks;
}

static void collect_task(struct comparison *own, size_t run, size_t task) {
    struct comparison_pair *pair = own->pairs;
    while (task >= comparison_tasks_of(pair, CHUNK)) {
        task -= comparison_tasks_of(pair++, CHUNK);
    }
    const size_t some = comparison_rows_of_task(pair, CHUNK), first = task * some;
    const size_t end = pair->row_count - first < some ? pair->row_count : first + some;
    if (!is_exact(own, run) && !comparison_judges(own, pair)) {
        return;
    }
    for (size_t row = first; row < end; row++) {
        collect_row(pair, row, is_exact(own, run), run == (own->has_exact_run ? 1 : 0));
    }
}

/* Sets the rounding errors of a run. */
static void set_rounding(struct comparison *own, size_t run) {
    const struct comparison_type *type = own->type;
    own->rounding = (attn_rounding){.seed = own->has_exact_run && run > 0 ? run - 1 : run};
    if (!is_exact(own, run)) {
        own->rounding.scores = type->scores;
        own->rounding.products = type->unit;
        own->rounding.least_weight = type->least;
        own->rounding.least_gradient = type->least_gradient;
        own->rounding.sum = type->sum;
        own->rounding.least_score = type->least_score;
        own->rounding.delta = cuts(own, run) ? 2 * type->unit : 0;
    }
}

attn_status comparison_run_task(struct comparison *own, size_t run, size_t phase,
                                const struct jobs_task *task, attn_error *error) {
    if (phase == 0) {
        copy_task(own, run, task->index);
        return ATTN_OK;
    }
    if (phase + 1 == comparison_run_phases(own)) {
        collect_task(own, run, task->index);
        return ATTN_OK;
    }
    if (phase == 1) {
        set_rounding(own, run);
        return attn_plan_begin(own->reference, error);
    }
    return attn_plan_task(own->reference, phase - 2, task->index, task->scratch, error);
}

double comparison_run_cost(const struct comparison *own) {
    double cost = attn_plan_cost(own->reference) + (double)own->copied * COST_OF_COPY;
    for (size_t i = 0; i < own->count; i++) {
        cost += (double)own->pairs[i].count * COST_OF_MOVE;
    }
    return cost;
}
