/*
 * schedule_linear.c - cuts linear attention into tasks, lays out their memory, and estimates their
 * cost. Its decisions depend on the call and the kernels alone.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "plan_build.h"
#include "plan_linear.h"
#include "status.h"
#include "tensor.h"

enum {
    /* With fewer numbers a call may as well be exact. */
    FEW_NUMBERS = 1 << 14,
    /* A segment costs at most about this much, which is 3 ms. */
    SEGMENT_WORK = 1 << 28,
    /* So many bands of states are enough for the threads of most machines. Each band computes the
     * products of its keys again, so more of them cost more. A band that is made only for them has at least BAND_COLUMNS columns and BAND_WORK multiply-adds. */
    ENOUGH_TASKS = 8,
    BAND_COLUMNS = 32,
    BAND_WORK = 1 << 20,
    /* The most numbers of a band of a state, and of the rows of K of a chunk. */
    STATE_NUMBERS = 1 << 16,
    CHUNK_NUMBERS = 1 << 14,
};

/* The cost of one position of a band of `columns` columns, see cost.c. */
static double cost_of_position(const attn_plan *plan, double columns) {
    enum {
        PASS = 10,         /* one number of a state in double, read and written */
        NARROW = 16,       /* a row of fewer numbers takes as long */
        KEEP = 200,        /* writing a number of a state to a result */
        STEP = 6000,       /* one position */
        CHUNK_STEP = 5000, /* one position of a chunk */
        ROW = 20,          /* one number of its rows */
        FOLD = 40,         /* one number of a state, once for a chunk */
        SOLVE = 60,        /* one row of the triangular system */
        COLUMN = 300       /* the gates of one column of K, for each row that they decay */
    };
    const struct linear *l = plan->linear;
    const double d = (double)l->d, group = (double)l->group, wide = plan->dtype == ATTN_FLOAT64;
    if (l->chunk == 0) {
        const double passes = 1 + group + (l->decay.data != NULL) + l->corrects;
        const double kept = plan_wants(plan, ATTN_WANT(STATES)) ? KEEP * columns : 0;
        return STEP + d * (fmax(columns, NARROW) * passes * PASS + kept);
    }
    const double c = (double)l->chunk, numbers = d * columns;
    const double products =
        numbers * (1 + group + l->corrects) + (0.6 + 0.6 * l->corrects) * c * (d + columns) * group;
    const double by_column = l->by_column ? COLUMN * d * (group + l->corrects) : 0;
    return (1 + wide) * (1.5 * products + FOLD * numbers / c) + by_column + CHUNK_STEP +
           ROW * (d + columns) + (l->corrects ? c * SOLVE : 0);
}

/* The positions of all lines. */
static double all_positions(const struct linear *l) {
    double rows = 0;
    for (size_t i = 0; i < l->count; i++) {
        rows += (double)l->lines[i].rows;
    }
    return rows;
}

/* Chooses how many positions are computed together, and the bands of a state. */
static void choose_chunk(attn_plan *plan) {
    struct linear *l = plan->linear;
    const size_t longest = l->count > 0 ? l->lines[0].rows : 0;
    const double work = all_positions(l) * (double)(l->d * l->d_v) * (double)plan->heads;
    l->columns = size_min(l->d_v, size_max(BAND_COLUMNS, STATE_NUMBERS / l->d));
    const bool exact = work <= FEW_NUMBERS || plan_wants(plan, ATTN_WANT(STATES));
    if (longest >= LINEAR_FEW_POSITIONS && !exact) {
        l->chunk = size_max(16, size_min(32, CHUNK_NUMBERS / l->d / 16 * 16));
    }
    const size_t enough = ceil_div(ENOUGH_TASKS, size_max(1, l->count * l->states));
    const double position = cost_of_position(plan, (double)l->d_v);
    const size_t worth = (size_t)fmin(1 + (double)longest * position / BAND_WORK, ENOUGH_TASKS);
    const size_t bands = size_min(size_min(enough, worth), ceil_div(l->d_v, BAND_COLUMNS));
    const size_t columns = ceil_div(ceil_div(l->d_v, bands), BAND_COLUMNS) * BAND_COLUMNS;
    l->columns = size_min(l->columns, size_min(l->d_v, columns));
    l->bands = ceil_div(l->d_v, l->columns);
}

/* Cuts the lines into segments, and the bands of states into tasks. */
static attn_status cut_segments(attn_plan *plan, attn_error *error) {
    struct linear *l = plan->linear;
    const double position = cost_of_position(plan, (double)l->columns);
    const size_t longest = l->count > 0 ? l->lines[0].rows : 0, step = size_max(1, l->chunk);
    const double fit = SEGMENT_WORK / position;
    l->rows = fit < (double)step ? step : (size_t)fmin(fit, 1e9) / step * step;
    l->segments = size_max(1, ceil_div(longest, l->rows));
    l->longer = plan_alloc(plan, l->segments, sizeof *l->longer);
    if (l->longer == NULL) {
        return attn_no_memory(error);
    }
    l->longer[0] = l->count;
    size_t end = l->count;
    for (size_t s = 1; s < l->segments; s++) {
        while (l->lines[end - 1].rows <= s * l->rows) {
            end--;
        }
        l->longer[s] = end;
    }
    const double all = (double)l->count * (double)l->states * (double)l->bands;
    const double cost = all_positions(l) * (double)(l->states * l->bands) * position;
    const double average = cost / fmax(all, 1),
                 most = (double)size_min(longest, l->rows) * position;
    const double some = fmin(TASK_WORK / fmax(average, 1), SEGMENT_WORK / fmax(most, 1));
    const double least = all / MOST_TASKS; /* a task of short sequences has many of them */
    l->per_task = (size_t)fmax(1, fmin(fmax(some, least), all));
    return ATTN_OK;
}

/* Cuts the checks: the numbers of a position are decays and betas, and results to be cleared. */
static void cut_checks(attn_plan *plan, bool lengths) {
    enum {
        CHECK = 60 /* a number that is checked, and perhaps its exp */
    };
    struct linear *l = plan->linear;
    const size_t heads = plan->heads, states = l->states;
    double numbers = l->decay.data != NULL ? (double)states * (l->by_column ? (double)l->d : 1) : 0;
    numbers += l->beta.data != NULL ? (double)states : 0;
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
    l->checks = plan_cut(plan->batch * l->check_blocks, cost);
    plan->schedule.cost += cost + (double)l->checks.tasks * 4000;
}

/* Cuts the weights into blocks of queries. */
static void cut_weights(attn_plan *plan) {
    struct linear *l = plan->linear;
    if (!plan_wants(plan, ATTN_WANT(WEIGHTS)) || plan->n == 0) {
        return;
    }
    l->block = size_max(16, size_min(64, CHUNK_NUMBERS / l->d / 16 * 16));
    l->blocks = ceil_div(plan->n, l->block);
    const double d = (double)l->d, pairs = (double)plan->n,
                 block = (double)size_min(l->block, plan->n);
    const double each = 2 * (d * (1 + 2.0 * l->corrects) + l->corrects * 2 * block) + 60 +
                        (l->by_column ? 20 * d : 0);
    const double units = (double)plan->batch * (double)plan->heads * (double)l->blocks;
    const double cost = units * (block * pairs / 2 * each + 30000 + pairs * block * 20);
    l->weights = plan_cut(plan->batch * plan->heads * l->blocks, cost);
    plan->schedule.cost += cost + (double)l->weights.tasks * 4000;
}

/* Lays out the workspace, which keeps the states of lines that have more than one segment, and the
 * scratch. */
static attn_status lay_out(attn_plan *plan, attn_error *error) {
    const struct linear *l = plan->linear;
    const struct attn_kernels *k = attn_kernels();
    struct schedule *s = &plan->schedule;
    if (l->segments > 1 &&
        (!size_mul(l->longer[1] * l->states, l->d * l->d_v, &s->workspace.bytes) ||
         !size_mul(s->workspace.bytes, sizeof(double), &s->workspace.bytes))) {
        return attn_too_large(error);
    }
    s->scratch.bytes = linear_rows_numbers(l) * sizeof(double);
    struct linear widest = *l;
    widest.chunk = size_max(l->chunk, l->block);
    if (widest.chunk > 0) {
        const size_t f32 = k->panel_f32 > 0 ? k->panel_f32 : CHUNK_PANEL,
                     f64 = k->panel_f64 > 0 ? k->panel_f64 : CHUNK_PANEL;
        /* Any call may need chunks in double, see chunks_run_f32(). */
        const size_t narrow = chunk_map(&widest, sizeof(float), f32).bytes,
                     wide = chunk_map(&widest, sizeof(double), f64).bytes;
        s->scratch.bytes = size_max(s->scratch.bytes, size_max(narrow, wide));
    }
    return ATTN_OK;
}

/* Orders lines by their lengths, the longest first. */
static int compare_lines(const void *a_, const void *b_) {
    const struct line *a = a_, *b = b_;
    return a->rows != b->rows ? (a->rows > b->rows ? -1 : 1)
                              : (a->item > b->item) - (a->item < b->item);
}

attn_status plan_schedule_linear(attn_plan *plan, bool lengths, attn_error *error) {
    struct linear *l = plan->linear;
    struct schedule *s = &plan->schedule;
    qsort(l->lines, l->count, sizeof *l->lines, compare_lines);
    choose_chunk(plan);
    ATTN_TRY(cut_segments(plan, error));
    cut_checks(plan, lengths);
    cut_weights(plan);
    ATTN_TRY(lay_out(plan, error));
    const double size = (double)attn_dtype_size(plan->dtype);
    const double bands = (double)(l->states * l->bands),
                 position = cost_of_position(plan, (double)l->columns);
    if (linear_runs(plan)) {
        s->cost += all_positions(l) * bands * position;
        s->cost += (double)l->count * (double)l->states *
                   ((double)(l->d * l->d_v) * 40 + (double)l->bands * 10000);
    }
    for (size_t phase = 1; phase < linear_phases(l); phase++) {
        s->cost += (double)linear_segment_tasks(plan, phase - 1) * 4000;
    }
    s->cost +=
        80000 + ((double)plan->results.bytes + (double)s->workspace.bytes) * 20 +
        ((double)plan->in.q.numbers + (double)plan->in.k.numbers + (double)plan->in.v.numbers) *
            size * 4;
    return ATTN_OK;
}
