/*
 * comparison_run.c - the phases of a comparison, in the job of its call. The phases are those of
 * rounds, one for each type. A round has some runs of the reference with the errors of this type
 * (comparison_reference.c), and then compares the rows of each pair whose type it is
 * (comparison_rows.c). If rounding does not explain them, the rounds of coarser types try these,
 * and the first that explains a result is named.
 *
 * What several tasks find is put together by sums of counts and by maxima, and one task adds up all
 * rows, so the order of the tasks changes nothing.
 */
#include "api/call/comparison.h"

#include <stdint.h>

enum {
    CHUNK = 128 * 1024,    /* numbers of the rows that one task compares; about 10 ms */
    FEW_RUNS = 2,          /* of the reference, with the errors of each coarser type */
    COST_OF_ELEMENT = 800, /* multiply-adds that take as long as comparing an element */
    COST_OF_ROW = 20000    /* the same for a row */
};

/* Returns the runs of a round with the errors of this type. */
static size_t runs_of(const struct comparison *own, const struct comparison_type *type) {
    bool judges = false;
    for (size_t i = 0; i < own->count; i++) {
        judges = judges || own->pairs[i].computed == type;
    }
    return judges ? own->most_runs : FEW_RUNS;
}

/* Begins the next round. */
static void end_round(struct comparison *own) {
    own->type++;
    own->runs = runs_of(own, own->type);
}

/* The phases of each pair. */
enum {
    PHASE_ROWS,  /* compares rows */
    PHASE_SIZE,  /* finds the size of the result */
    PHASE_JUDGE, /* finds the ratios of rows */
    PHASE_END,   /* adds up the rows */
    PHASES
};

/* After the phases of all pairs, one ends the round. */
static size_t judging_phases(const struct comparison *own) {
    return PHASES * own->count + 1;
}

struct phase_place {
    const struct comparison_type *type; /* of the round */
    size_t run;                         /* of the reference */
    bool judges;
    size_t phase; /* of the run, or of all pairs */
};

static struct phase_place place_of_phase(const struct comparison *own, size_t phase) {
    const size_t each = comparison_run_phases(own);
    struct phase_place place = {.type = own->first};
    for (;; place.type++) {
        const bool exact = own->has_exact_run && place.type == own->first;
        const size_t runs = (runs_of(own, place.type) + exact) * each;
        if (phase < runs) {
            place.run = phase / each + (own->has_exact_run && !exact ? 1 : 0);
            place.phase = phase % each;
            return place;
        }
        phase -= runs;
        if (phase < judging_phases(own)) {
            place.judges = true;
            place.phase = phase;
            return place;
        }
        phase -= judging_phases(own);
    }
}

static size_t comparison_tasks(const void *comparison, size_t phase) {
    const struct comparison *own = comparison;
    const struct phase_place place = place_of_phase(own, phase);
    bool judges = false;
    for (size_t i = 0; i < own->count; i++) {
        judges = judges || comparison_judges(own, &own->pairs[i]);
    }
    if (place.judges && place.phase + 1 == judging_phases(own)) {
        return 1;
    }
    if (!place.judges) {
        return judges ? comparison_run_tasks(own, place.phase) : 0;
    }
    const struct comparison_pair *pair = &own->pairs[place.phase / PHASES];
    if (!comparison_judges(own, pair)) {
        return 0;
    }
    const size_t part = place.phase % PHASES;
    return part == PHASE_SIZE || part == PHASE_END ? 1 : comparison_tasks_of(pair, CHUNK);
}

static void rows_task(struct comparison *own, struct comparison_pair *pair, size_t part,
                      size_t task) {
    const size_t some = comparison_rows_of_task(pair, CHUNK), first = task * some;
    const size_t end = pair->row_count - first < some ? pair->row_count : first + some;
    struct comparison_findings found = {
        .absolute = {0, SIZE_MAX}, .relative = {0, SIZE_MAX}, .worst = {0, SIZE_MAX}};
    size_t explained[SUSPECT_COUNT] = {0}, wrong_rows = 0;
    for (size_t row = first; row < end; row++) {
        if (part == PHASE_ROWS) {
            comparison_compare_row(own, pair, row, &found);
        } else {
            comparison_judge_row(own, pair, row);
            comparison_judge_numbers(own, pair, row, &found);
            comparison_guess_row(own, pair, row, explained, &wrong_rows);
        }
    }
    if (own->type != pair->computed) {
        return; /* all this was found in the round of its own type */
    }
    pthread_mutex_lock(own->mutex);
    comparison_add_findings(&pair->found, &found);
    pair->wrong_rows += wrong_rows;
    for (int guess = 0; guess < SUSPECT_COUNT; guess++) {
        pair->explained[guess] += explained[guess];
    }
    pthread_mutex_unlock(own->mutex);
}

static void judge_task(struct comparison *own, size_t phase, size_t task) {
    if (phase + 1 == judging_phases(own)) {
        end_round(own);
        return;
    }
    struct comparison_pair *pair = &own->pairs[phase / PHASES];
    switch (phase % PHASES) {
    case PHASE_SIZE:
        comparison_end_rows(pair);
        break;
    case PHASE_END:
        comparison_end_pair(own, pair);
        break;
    default:
        rows_task(own, pair, phase % PHASES, task);
    }
}

static bool comparison_task(void *comparison, const struct jobs_task *task) {
    struct comparison *own = comparison;
    const struct phase_place place = place_of_phase(own, task->phase);
    attn_error error;
    if (place.judges) {
        judge_task(own, place.phase, task->index);
        return true;
    }
    if (comparison_run_task(own, place.run, place.phase, task, &error) == ATTN_OK) {
        return true;
    }
    call_fail(own->call, task->index, &error);
    return false;
}

/* Returns the type behind that of the last round: behind the last type, or behind the coarsest one
 * of a pair if the runs are so dear that a round has too few. float8 explains so much that it is
 * tried only beside types of 16 bits. */
static const struct comparison_type *end_of_types(const struct comparison *own) {
    const struct comparison_type *end = own->first;
    for (size_t i = 0; i < own->count; i++) {
        end = own->pairs[i].computed > end ? own->pairs[i].computed : end;
    }
    const struct comparison_type *last =
        &comparison_types[own->first < &comparison_types[COMPARISON_FLOAT16]
                              ? COMPARISON_BFLOAT16
                              : COMPARISON_FLOAT8_E5M2];
    return own->most_runs >= COMPARISON_GOOD_RUNS && end <= last ? last + 1 : end + 1;
}

double comparison_cost(const struct comparison *own) {
    double cost = 0, judging = 0;
    for (size_t i = 0; i < own->count; i++) {
        const struct comparison_pair *pair = &own->pairs[i];
        judging += (double)pair->count * COST_OF_ELEMENT + (double)pair->row_count * COST_OF_ROW;
    }
    for (const struct comparison_type *type = own->first; type < end_of_types(own); type++) {
        cost += (double)(runs_of(own, type) + 1) * comparison_run_cost(own) + judging;
    }
    return cost;
}

struct job_phases **comparison_add_phases(struct comparison *own, struct job_phases **end) {
    const size_t each = comparison_run_phases(own);
    size_t count = own->has_exact_run ? each : 0;
    for (const struct comparison_type *type = own->first; type < end_of_types(own); type++) {
        count += runs_of(own, type) * each + judging_phases(own);
    }
    own->phases = (struct job_phases){NULL, count, comparison_tasks, comparison_task, own};
    *end = &own->phases;
    return &own->phases.next;
}
