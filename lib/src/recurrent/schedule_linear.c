/*
 * schedule_linear.c - cuts linear attention into tasks, lays out their memory, and estimates their
 * cost. The decisions depend on the call and the kernels alone.
 */
#include "recurrent/schedule_linear.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/tensor.h"
#include "kernels/kernels.h"
#include "partition.h"
#include "plan_memory.h"
#include "recurrent/plan_linear.h"
#include "tuning.h"

/* The cost of the gradients of one position of a tile of `columns` columns, see cost.c. */
static double cost_of_backward(const struct linear *l, double columns) {
    enum {
        BACK = 60,        /* one number of a state */
        LEAST_ROW = 16,   /* a row of fewer numbers takes as long */
        BACK_STEP = 8000, /* one position */
        BACK_HEAD = 2500, /* one of its query heads */
        BACK_ROW = 500    /* one number of its row of Q */
    };
    if (!l->gradients.wanted) {
        return 0;
    }
    const double parts = ceil(columns / (double)l->gradients.columns);
    const double passes = 1 + 0.5 * (double)l->group + l->decay.given + l->corrects;
    const double heads = (double)l->group * (BACK_HEAD + BACK_ROW * (double)l->d);
    return parts * (BACK_STEP + heads) +
           BACK * passes * (double)l->d * fmax(columns, LEAST_ROW * parts);
}

/* The cost of one position of a tile of `columns` columns. */
static double cost_of_position(const attn_plan *plan, double columns) {
    enum {
        PASS = 10,         /* one number of a state in double, read and written */
        LEAST_ROW = 16,    /* a row of fewer numbers takes as long */
        KEEP = 200,        /* writing a number of a state to a result */
        STEP = 6000,       /* one position */
        READ_HEAD = 1500,  /* one more query head that reads the state, or a correction */
        FEW_COLUMNS = 32,  /* sums of fewer columns do not stay in registers */
        READ_FEW = 1000,   /* reading a row of a state of so few columns */
        CHUNK_STEP = 5000, /* one position of a chunk */
        CHUNK_HEAD = 2500, /* one of its query heads */
        ROW = 20,          /* one number of its rows */
        FOLD = 40,         /* one number of a state, once for a chunk */
        SOLVE = 60,        /* one row of the triangular system */
        COLUMN = 300       /* the gates of one column of K, for each row that they decay */
    };
    const struct linear *l = plan->linear;
    const double d = (double)l->d, group = (double)l->group, in_double = linear_in_double(plan),
                 back = cost_of_backward(l, columns);
    if (l->chunk == 0) {
        const double passes = 2 + l->decay.given;
        const double kept = plan_wants(plan, ATTN_WANT(STATES)) ? KEEP * columns : 0;
        const double read = READ_HEAD + d * (columns < FEW_COLUMNS ? READ_FEW : PASS * columns);
        return back + STEP + d * (fmax(columns, LEAST_ROW) * passes * PASS + kept) +
               (group - 1 + l->corrects) * read;
    }
    const double c = (double)l->chunk, numbers = d * columns;
    const double products =
        numbers * (1 + group + l->corrects) + (0.6 + 0.6 * l->corrects) * c * (d + columns) * group;
    const double by_column = l->by_column ? COLUMN * d * (group + l->corrects) : 0;
    return back + (1 + in_double) * (1.5 * products + FOLD * numbers / c) + by_column + CHUNK_STEP +
           group * CHUNK_HEAD + ROW * (d + columns) + (l->corrects ? c * SOLVE : 0);
}

/* The positions of all sequences. */
static double all_positions(const struct linear *l) {
    double rows = 0;
    for (size_t i = 0; i < l->count; i++) {
        rows += (double)l->sequences[i].rows;
    }
    return rows;
}

/* Returns so many rows of a chunk or block, or a few less or more. */
static size_t multiple_of_rows(size_t rows) {
    return size_max(1, rows / CHUNK_ROWS) * CHUNK_ROWS;
}

/* Chooses how many positions are computed together, and the tiles of a state. Gradients
 * do not take more columns at a time than a tile has. */
static void choose_chunk(attn_plan *plan) {
    struct linear *l = plan->linear;
    const size_t longest = l->count > 0 ? l->sequences[0].rows : 0;
    const double rows = all_positions(l) * (double)plan->heads,
                 work = rows * (double)(l->d * l->d_v);
    l->columns = size_min(l->d_v, size_max(STATE_COLUMNS, STATE_NUMBERS / size_max(LEAST_D, l->d)));
    const bool exact = work <= FEW_NUMBERS || plan_wants(plan, ATTN_WANT(STATES));
    if (longest >= LINEAR_FEW_POSITIONS && !exact) {
        l->chunk = multiple_of_rows(size_min(32, CHUNK_NUMBERS / l->d));
    }
    const size_t enough = ceil_div(ENOUGH_STATES, size_max(1, l->count * l->states));
    if ((double)l->chunk * cost_of_position(plan, (double)l->columns) > LONGEST_CHUNK) {
        l->chunk = 0; /* very many query heads read each state */
    }
    const double position = cost_of_position(plan, (double)l->d_v);
    const size_t worth = (size_t)fmin(1 + (double)longest * position / STATE_WORK, ENOUGH_STATES);
    const size_t tiles = size_min(size_min(enough, worth), ceil_div(l->d_v, STATE_COLUMNS));
    const size_t columns = ceil_div(ceil_div(l->d_v, tiles), STATE_COLUMNS) * STATE_COLUMNS;
    l->columns = size_min(l->columns, size_min(l->d_v, columns));
    l->tiles = ceil_div(l->d_v, l->columns);
    l->gradients.columns = size_min(l->gradients.columns, l->columns);
    plan->path.streams = rows * (double)(l->d_v * attn_dtype_size(plan->dtype)) > STREAM_BYTES;
}

/* Chooses the columns of gradients, and the positions whose states are kept together: a power of
 * two, so that segments are whole chunks. */
static void choose_intervals(struct linear *l) {
    struct linear_gradients *g = &l->gradients;
    const size_t fit = size_max(LEAST_BACKWARD, BACKWARD_NUMBERS / size_max(1, l->d));
    g->columns = size_max(1, size_min(l->d_v, size_min(fit, MOST_BACKWARD)));
    g->interval = MOST_INTERVAL;
    while (g->interval > 1 && g->interval * l->d * g->columns > INTERVAL_NUMBERS) {
        g->interval /= 2;
    }
    g->checkpoints = g->interval;
}

/* Cuts the sequences into segments, and the tiles of states into tasks. */
static attn_status cut_segments(attn_plan *plan, attn_error *error) {
    struct linear *l = plan->linear;
    struct linear_gradients *g = &l->gradients;
    const double position = cost_of_position(plan, (double)l->columns);
    const size_t longest = l->count > 0 ? l->sequences[0].rows : 0, step = size_max(1, l->chunk);
    /* The first tile of a state that writes a row of `states` finds all of its memory new. */
    const bool kept = plan_wants(plan, ATTN_WANT(STATES));
    const double least = SEGMENT_STATES * (double)(l->d * l->columns);
    const double work = g->wanted ? BACKWARD_WORK : fmax(SEGMENT_WORK, least);
    const double fit = work / (kept ? cost_of_position(plan, (double)l->d_v) : position);
    l->rows = fit < (double)step ? step : (size_t)fmin(fit, 1e9) / step * step;
    if (g->wanted) {
        l->rows = size_max(step, size_min(l->rows, g->interval * g->checkpoints));
        g->checkpoints = ceil_div(l->rows, g->interval);
    }
    l->segments = size_max(1, ceil_div(longest, l->rows));
    l->longer = plan_alloc(plan, l->segments, sizeof *l->longer);
    if (l->longer == NULL) {
        return attn_no_memory(error);
    }
    l->longer[0] = l->count;
    size_t end = l->count;
    for (size_t s = 1; s < l->segments; s++) {
        while (l->sequences[end - 1].rows <= s * l->rows) {
            end--;
        }
        l->longer[s] = end;
    }
    const double all = (double)l->count * (double)l->states * (double)l->tiles;
    const double cost = all_positions(l) * (double)(l->states * l->tiles) * position;
    const double average = cost / fmax(all, 1),
                 most = (double)size_min(longest, l->rows) * position;
    const double some = fmin(TASK_WORK / fmax(average, 1), work / fmax(most, 1));
    const double fewest = all / MOST_TASKS; /* a task of short sequences has many of them */
    l->per_task = (size_t)fmax(1, fmin(fmax(some, fewest), all));
    return ATTN_OK;
}

/* Cuts units, which cost `cost` together, into tasks, and adds their cost to that of the plan. */
static struct partition cut_work(attn_plan *plan, size_t units, double cost) {
    const struct partition tasks = partition_units(units, cost);
    plan->schedule.cost += cost + (double)tasks.tasks * TASK_COST;
    return tasks;
}

/* Cuts the checks: the numbers of a position are decays and betas, and results to be cleared. */
static void cut_checks(attn_plan *plan, bool lengths) {
    enum {
        CHECK = 60 /* a number that is checked, and perhaps its exp */
    };
    struct linear *l = plan->linear;
    const size_t heads = plan->heads, states = l->states;
    double numbers = l->decay.given ? (double)states * (l->by_column ? (double)l->d : 1) : 0;
    numbers += l->beta.given ? (double)states : 0;
    numbers += lengths ? (double)heads * (double)l->d_v : 0;
    if (lengths && plan_wants(plan, ATTN_WANT(STATES))) {
        numbers += (double)states * (double)l->d * (double)l->d_v;
    }
    if (numbers == 0 || plan->n == 0) {
        return;
    }
    const double fit = fmax(1, TASK_WORK / (CHECK * numbers));
    l->check_rows = size_min(plan->n, (size_t)fit);
    l->check_blocks = ceil_div(plan->n, l->check_rows);
    const double cost = (double)plan->batch * (double)plan->n * numbers * CHECK;
    l->checks = cut_work(plan, plan->batch * l->check_blocks, cost);
}

/* Cuts the weights into blocks of queries. */
static void cut_weights(attn_plan *plan) {
    struct linear *l = plan->linear;
    if (!plan_wants(plan, ATTN_WANT(WEIGHTS)) || plan->n == 0) {
        return;
    }
    l->block =
        multiple_of_rows(size_min(size_min(64, CHUNK_NUMBERS / l->d), BLOCK_WEIGHTS / plan->n));
    l->blocks = ceil_div(plan->n, l->block);
    const double d = (double)l->d, pairs = (double)plan->n,
                 block = (double)size_min(l->block, plan->n);
    const double each = 2 * (d * (1 + 2.0 * l->corrects) + l->corrects * 2 * block) + 60 +
                        (l->by_column ? 20 * d : 0);
    const double units = (double)plan->batch * (double)plan->heads * (double)l->blocks;
    const double cost = units * (block * pairs / 2 * each + 30000 + pairs * block * 100);
    l->weights = cut_work(plan, plan->batch * plan->heads * l->blocks, cost);
}

/* Adds a * b * c doubles to those of the workspace, which become SIZE_MAX if they are too many.
 * Returns where they begin. */
static size_t place_doubles(size_t *all, size_t a, size_t b, size_t c) {
    const size_t at = *all;
    size_t count;
    if (!size_mul(a, b, &count) || !size_mul(count, c, &count) || !size_add(at, count, all)) {
        *all = SIZE_MAX;
    }
    return at;
}

/* Lays out the gradients of the states, and the partial gradients. */
static void place_partials(attn_plan *plan, size_t *all) {
    const struct linear *l = plan->linear;
    struct linear_gradients *g = &plan->linear->gradients;
    g->states = place_doubles(all, l->count * l->states, l->d, l->d_v);
    g->partials[LINEAR_PAST] = g->states;
    for (int i = 0; i < LINEAR_PAST; i++) {
        const struct gradient_rows of = linear_gradient_rows(plan, (enum linear_input)i);
        const size_t rows = of.per_sequence ? of.sequences : plan->batch * plan->n;
        g->partials[i] = plan_wants(plan, UINT64_C(1) << of.which)
                             ? place_doubles(all, of.tiles * of.owners, rows, of.width)
                             : SIZE_MAX;
    }
}

/* Lays out the workspace, and the scratch. The workspace keeps the states of sequences that have
 * more than one segment: the last ones, or those after each segment if they go back to it. */
static attn_status lay_out(attn_plan *plan, attn_error *error) {
    const struct linear *l = plan->linear;
    const struct attn_kernels *k = attn_kernels();
    struct schedule *s = &plan->schedule;
    size_t doubles = 0, positions;
    if (!size_mul(plan->batch, plan->n, &positions)) {
        return attn_too_large(error);
    }
    if (l->segments > 1) {
        const size_t times = l->gradients.wanted ? l->segments - 1 : 1;
        place_doubles(&doubles, l->longer[1] * l->states * times, l->d, l->d_v);
    }
    if (l->gradients.wanted) {
        place_partials(plan, &doubles);
    }
    if (!size_mul(doubles, sizeof(double), &s->workspace.bytes)) {
        return attn_too_large(error);
    }
    s->scratch.bytes = linear_rows_numbers(l) * sizeof(double);
    if (l->gradients.wanted) {
        const size_t numbers = size_max(linear_backward_numbers(l), linear_sum_numbers(l));
        s->scratch.bytes = size_max(s->scratch.bytes, numbers * sizeof(double));
    }
    if (chunk_rows(l) > 0) {
        /* Any call may need chunks in double, see chunks_run_f32(). */
        const size_t in_float = chunk_map(l, sizeof(float), k->panel_f32).bytes,
                     in_double = chunk_map(l, sizeof(double), k->panel_f64).bytes;
        s->scratch.bytes = size_max(s->scratch.bytes, size_max(in_float, in_double));
    }
    return ATTN_OK;
}

/* Returns the rows of the gradient of Q, K or V. */
static struct gradient_rows rows_of_matrix(const attn_plan *plan, enum linear_input input) {
    const struct linear *l = plan->linear;
    const struct operand *o = &plan->in.q + input;
    const struct head *head = plan->head, *next = head + heads_of_one(plan, o) % plan->heads;
    const size_t strides[] = {next->q - head->q, next->k - head->k, next->v - head->v};
    return (struct gradient_rows){.which = result_after(ATTN_RESULT_GRAD_Q, (int)input),
                                  .items = o->items,
                                  .heads = o->heads,
                                  .rows = plan->n,
                                  .width = input == LINEAR_V ? l->d_v : l->d,
                                  .stride = {o->batch, strides[input], o->ld},
                                  .owners = input == LINEAR_Q ? plan->heads : l->states,
                                  .tiles = input == LINEAR_V ? 1 : l->tiles,
                                  .sequences = plan->batch};
}

struct gradient_rows linear_gradient_rows(const attn_plan *plan, enum linear_input input) {
    const struct linear *l = plan->linear;
    const struct broadcast *gates = input == LINEAR_DECAY ? &l->decay : &l->beta;
    struct gradient_rows rows;
    if (input <= LINEAR_V) {
        rows = rows_of_matrix(plan, input);
    } else if (input == LINEAR_PAST) {
        rows = (struct gradient_rows){.which = ATTN_RESULT_GRAD_PAST_STATE,
                                      .items = l->past_item == 0 ? 1 : l->count,
                                      .heads = l->states,
                                      .rows = l->d,
                                      .width = l->d_v,
                                      .stride = {l->past_item, l->d * l->d_v, l->d_v},
                                      .owners = l->states,
                                      .tiles = 1,
                                      .per_sequence = true,
                                      .sequences = l->count};
    } else {
        const bool broadcast = gates->stride[2] == 0, decay = input == LINEAR_DECAY;
        rows =
            (struct gradient_rows){.which = decay ? ATTN_RESULT_GRAD_DECAY : ATTN_RESULT_GRAD_BETA,
                                   .items = gates->stride[0] == 0 ? 1 : plan->batch,
                                   .heads = gates->stride[1] == 0 ? 1 : l->states,
                                   .rows = broadcast ? 1 : plan->n,
                                   .width = !gates->given           ? 0
                                            : decay && l->by_column ? l->d
                                                                    : 1,
                                   .stride = {gates->stride[0], gates->stride[1], gates->stride[2]},
                                   .owners = l->states,
                                   .tiles = l->tiles,
                                   .per_sequence = broadcast,
                                   .sequences = broadcast ? l->count : plan->batch};
    }
    rows.partials = (rows.items == 1 ? (double)rows.sequences : 1) *
                    (double)(rows.owners * rows.tiles) / (double)rows.heads;
    return rows;
}

/* Cuts the sums of the partial gradients: each row of a gradient is the sum of those of heads and
 * items. */
static void cut_sums(attn_plan *plan) {
    enum {
        ROW = 1000,    /* one row of a gradient */
        PARTIAL = 500, /* one of its partial gradients */
        SUMMED = 40    /* one number of a partial gradient */
    };
    struct linear_gradients *g = &plan->linear->gradients;
    for (int i = 0; i < LINEAR_INPUTS && g->wanted; i++) {
        const struct gradient_rows rows = linear_gradient_rows(plan, (enum linear_input)i);
        const size_t all = rows.items * rows.heads * rows.rows;
        const double cost =
            (double)all * (ROW + rows.partials * (PARTIAL + SUMMED * (double)rows.width));
        if (plan_wants(plan, UINT64_C(1) << rows.which)) {
            g->sums[i] = cut_work(plan, all, cost);
        }
    }
}

/* Orders sequences by their lengths, the longest first. */
static int compare_lengths(const void *a_, const void *b_) {
    const struct linear_sequence *a = a_, *b = b_;
    return a->rows != b->rows ? (a->rows > b->rows ? -1 : 1)
                              : (a->item > b->item) - (a->item < b->item);
}

attn_status plan_schedule_linear(attn_plan *plan, bool lengths, attn_error *error) {
    struct linear *l = plan->linear;
    struct schedule *s = &plan->schedule;
    qsort(l->sequences, l->count, sizeof *l->sequences, compare_lengths);
    choose_intervals(l);
    choose_chunk(plan);
    ATTN_TRY(cut_segments(plan, error));
    cut_checks(plan, lengths);
    cut_weights(plan);
    cut_sums(plan);
    ATTN_TRY(lay_out(plan, error));
    const double size = (double)attn_dtype_size(plan->dtype);
    const double tiles = (double)(l->states * l->tiles),
                 position = cost_of_position(plan, (double)l->columns);
    if (linear_runs(plan, 0) || l->gradients.wanted) {
        s->cost += all_positions(l) * tiles * position;
        s->cost += (double)l->count * (double)l->states *
                   ((double)(l->d * l->d_v) * 40 + (double)l->tiles * 10000);
    }
    for (size_t segment = 0; segment < l->segments; segment++) {
        s->cost += (double)linear_segment_tasks(l, segment) *
                   (l->gradients.wanted ? 2 * TASK_COST : TASK_COST);
    }
    s->cost +=
        80000 + ((double)plan->results.bytes + (double)s->workspace.bytes) * 20 +
        ((double)plan->in.q.numbers + (double)plan->in.k.numbers + (double)plan->in.v.numbers) *
            size * 4;
    return ATTN_OK;
}
