/*
 * comparison.h - the comparison of a client's own results with those of its call: which differ, by
 * how much, where, and whether rounding explains it.
 *
 * Results are compared with exact ones, which a plan in float64 computes: the reference of the
 * call. How far rounding moves each row of them is measured, not assumed. The reference runs
 * several times more, each time with other rounding errors: every number of its inputs and every
 * score gets a random relative error of the size of one rounding of the type in which the client's
 * kernel multiplies. So terms that cancel, masks, gradients and all options count as they do in
 * such a kernel.
 *
 * A stored layer has packed weights in the dtype of the call, so its reference has this dtype, too.
 *
 * To add a type: add its place below, its row to comparison_types, its name to computed_types of
 * fields.c in the same place, and to ComputedIn in openapi.yaml (then make docs).
 */
#ifndef API_COMPARISON_H
#define API_COMPARISON_H

#include <pthread.h>

#include "api/call/answer_names.h"
#include "api/call/call.h"

enum {
    COMPARISON_TEXT = 21 * (ATTN_MAX_RANK + 1), /* bytes of a shape in a message */
    COMPARISON_GOOD_RUNS =
        8,                 /* of the reference, with which a row is judged as well as can be told */
    COMPARISON_WORST = 10, /* rows that the answer names */
    COMPARISON_RUN = 16    /* neighbouring rows of a head that are judged together, too */
};

/* The places of `comparison_types`, from the finest type to the coarsest. */
enum {
    COMPARISON_FLOAT64,
    COMPARISON_FLOAT32,
    COMPARISON_TF32,
    COMPARISON_FLOAT16,
    COMPARISON_BFLOAT16,
    COMPARISON_FLOAT8,
    COMPARISON_FLOAT8_E5M2
};

/* A type in which kernels multiply. */
struct comparison_type {
    const char *name;
    double unit;           /* the largest relative error of one rounding to it */
    double scores;         /* that of the scores, which not every kernel rounds to the type */
    double least;          /* the largest absolute error near 0, whose square is not 0 */
    double least_gradient; /* the same for the gradient of a score */
    double sum;            /* the largest relative error of one addition */
    double least_score;    /* its least number, with which kernels mask; 0: that is far smaller */
    double relative;       /* the default tolerance */
    double absolute;       /* the same beside the size of the result */
};

/* The element at which an error is the largest. */
struct comparison_place {
    double error;   /* infinity: one of the two numbers is not finite */
    size_t element; /* SIZE_MAX: no element differs */
};

/* The findings of a comparison of some elements, or of all of them. */
struct comparison_findings {
    struct comparison_place absolute, relative;
    struct comparison_place worst; /* the largest absolute error beyond the tolerance */
    size_t beyond;                 /* elements beyond the tolerance */
    size_t nan, infinite;          /* elements of the expected tensor */
};

/* The findings of one row of a head. A row of weights or scores has numbers of very different
 * sizes, so there each error is divided by the size that rounding gives to it. */
struct comparison_row {
    double error; /* the sum of the squared errors */
    double each;  /* that of the squared ratios of its numbers */
    double moved,
        moved_twice; /* sums over the runs of the reference: by how much the row moved, squared,
                                  and the square of that */
    double floor;    /* the squared errors of rounding the result itself */
    double mean;     /* the sum of the errors */
    double size;     /* the sum of the squared numbers */
    double open;     /* the sum of how far a gate opens each of them, squared */
    double ratio;    /* of the RMS error to that which rounding explains */
    double number;   /* the same of the number of the row that is off the most */
};

/* Guesses that would explain a wrong result. */
enum comparison_suspect {
    SUSPECT_NONE,
    SUSPECT_BASE_2,     /* lse is in base 2 */
    SUSPECT_NEXT_ROW,   /* each row is the next one */
    SUSPECT_LAST_ROW,   /* each row is the one before */
    SUSPECT_TRANSPOSED, /* rows and columns are exchanged */
    SUSPECT_COUNT
};

/* How the numbers of a result differ in size within a row. */
enum comparison_kind {
    KIND_ROW,    /* the numbers of a row have errors of one size */
    KIND_SCORES, /* each number has an error of its own size */
    KIND_WEIGHTS /* and it is relative to the number */
};

/* An expected tensor, and the result of the same name. */
struct comparison_pair {
    const char *name;               /* of the result */
    enum answer_name which;         /* the result */
    const struct codec_value *from; /* the place of the tensor in the body */
    attn_tensor expected;
    enum codec_type type;                   /* of the numbers of `expected` */
    const struct comparison_type *computed; /* in which the client's kernel multiplies */
    const attn_result_tensor *result;       /* of the plan of the call */
    const attn_tensor *gate; /* what multiplies it, number by number or by head; NULL: nothing */
    const attn_result_tensor *moved; /* of the reference */
    double *exact;                   /* NULL: those of `result`, which are as exact */
    double *spread;                  /* of each number: by how much it moved, squared */
    double absolute, relative;       /* the tolerance */
    double absolute_of_size;         /* `absolute` beside the size of the result */
    size_t count;                    /* elements */
    size_t heads;                    /* along the axis of the heads; 0: there is none */
    size_t head_size;                /* elements of a head that follow one another */
    _Atomic double *errors;          /* of each head: the largest absolute error */
    struct comparison_findings found;
    /* Rows of one head are `step` rows apart, and `run` rows hold those of `step` heads. */
    enum comparison_kind kind;
    size_t row_size, run, step, row_count;
    struct comparison_row *rows;
    size_t explained[SUSPECT_COUNT], wrong_rows; /* rows that a guess explains, and wrong rows */
    /* These members go into the answer; the last phase and comparison_end() set them. */
    struct comparison_sums {
        double score; /* how many times the error exceeds what may still be rounding */
        double ratio, mean, bound;
    } sums;
    const struct comparison_type *coarser;       /* it explains what `computed` does not; or NULL */
    size_t worst[COMPARISON_WORST], worst_count; /* rows */
    double worst_ratio[COMPARISON_WORST];
    size_t worst_number; /* the element of the worst row that is off the most */
    size_t worst_index[COMPARISON_WORST][ATTN_MAX_RANK];
    const char *verdict;
    char message[512]; /* empty: the verdict needs none */
    size_t absolute_index[ATTN_MAX_RANK], relative_index[ATTN_MAX_RANK];
};

/* A copy of an input for the reference. */
struct comparison_copy {
    attn_tensor *input; /* of the call */
    attn_tensor from;   /* as it is there */
    void *data;
    attn_dtype dtype; /* of `data` */
    size_t first;     /* its numbers begin there among those of all copies */
    bool whole;    /* no kernel rounds its numbers: positions, and a bias, whose sum is rounded */
    bool weighted; /* weights multiply it, which a kernel cuts off: V, past_V and grad_output */
};

/* The account of the request owns it, except the plan. */
struct comparison {
    double absolute, relative; /* the tolerance of the request; less than 0: it gives none */
    const struct comparison_type *computed; /* "computed_in" of the request; NULL: it gives none */
    bool headless;          /* no result has an axis of heads: it is the output of a softmax */
    bool refuses;           /* a difference is an error */
    pthread_mutex_t *mutex; /* of the call; it guards `found` and `fits` of each pair */

    /* The reference. */
    struct call *call;
    attn_plan *reference; /* owned; NULL: there is none */
    attn_rounding rounding;
    struct comparison_copy *copies;
    size_t copy_count, copied; /* copies, and numbers of all copies together */
    size_t rows;               /* the most rows of an input: no sum over keys has more terms */
    bool has_exact_run;        /* the first run has no errors */
    /* The phases are those of rounds, one for each type, from the finest one of a pair on. */
    const struct comparison_type *first, *type; /* of the first round, and of the present one */
    size_t most_runs;                           /* of a round that judges a pair by its own type */
    size_t runs;                                /* of the present round, with errors */
    struct job_phases phases;

    const char *verdict;      /* the worst one; comparison_end() sets it and `within` */
    bool within;              /* every result is within its tolerance */
    char detail[768];         /* of the error */
    struct codec_buffer text; /* the comparison in JSON, for the other formats */
    size_t count;
    struct comparison_pair pairs[];
};

/* Finds the result of each expected tensor in the plan of the call, checks its shape, and makes the
 * reference by `plan`. Returns false with the error set. */
bool comparison_check(struct call *call, struct account *account, call_plan *plan,
                      const struct codec_document *document, struct codec_error *error);

/* Makes the reference of a call whose results are known. Returns false if there is no memory. */
bool comparison_reference(struct comparison *own, struct account *account, call_plan *plan,
                          struct codec_error *error);

/* The steps of a pair, each for a row: compares it, finds its ratio, finds what is beyond the
 * tolerance and the ratio of its worst number, and notes which guesses explain it if it is
 * wrong. */
void comparison_compare_row(const struct comparison *own, struct comparison_pair *pair,
                            size_t index, struct comparison_findings *found);
void comparison_judge_row(const struct comparison *own, struct comparison_pair *pair, size_t index);
void comparison_judge_numbers(const struct comparison *own, struct comparison_pair *pair,
                              size_t index, struct comparison_findings *found);
void comparison_guess_row(const struct comparison *own, const struct comparison_pair *pair,
                          size_t index, size_t explained[static SUSPECT_COUNT], size_t *wrong_rows);

/* Puts findings together. */
void comparison_add_findings(struct comparison_findings *all,
                             const struct comparison_findings *some);

/* Finds the size of a pair after its rows are compared, and adds all rows up after they are
 * judged. */
void comparison_end_rows(struct comparison_pair *pair);
void comparison_end_pair(const struct comparison *own, struct comparison_pair *pair);

/* Is a result judged in the present round: by its own type, or because that explains too little? */
bool comparison_judges(const struct comparison *own, const struct comparison_pair *pair);

/* Frees what the account does not own. NULL is allowed. */
void comparison_free(struct comparison *comparison);

/* Returns the multiply-adds that take as long as the comparison. */
double comparison_cost(const struct comparison *own);

/* A run of the reference has phases with tasks, and a cost in multiply-adds. A task has the errors
 * of attn_plan_begin() and attn_plan_task(). */
size_t comparison_run_phases(const struct comparison *own);
size_t comparison_run_tasks(const struct comparison *own, size_t phase);
attn_status comparison_run_task(struct comparison *own, size_t run, size_t phase,
                                const struct jobs_task *task, attn_error *error);
double comparison_run_cost(const struct comparison *own);

/* Puts the phases of the comparison at *end. Returns the end of the list. */
struct job_phases **comparison_add_phases(struct comparison *own, struct job_phases **end);

/* Widens `count` numbers from `first` on. */
void comparison_widen(const void *data, attn_dtype dtype, size_t first, size_t count, double *out);

/* Widens exact numbers of a pair in the same way. */
void comparison_exact(const struct comparison_pair *pair, size_t first, size_t count, double *out);

/* Returns the factor of errors of a number. It is 1 unless their squares would overflow. */
static inline double comparison_damp(double number) {
    return number > 0x1p450 || number < -0x1p450 ? 0x1p-600 : 1;
}

/* Returns how many rows of a pair one task takes, if it takes about so many numbers. A row takes as
 * long as 16 numbers more. */
static inline size_t comparison_rows_of_task(const struct comparison_pair *pair, size_t numbers) {
    const size_t rows = numbers / (pair->row_size + 16);
    return rows > 0 ? rows : 1;
}

/* Returns the tasks that take all rows of a pair, of such a size. */
static inline size_t comparison_tasks_of(const struct comparison_pair *pair, size_t numbers) {
    const size_t rows = comparison_rows_of_task(pair, numbers);
    return pair->row_count / rows + (pair->row_count % rows > 0);
}

/* Writes a shape, an index or an order of axes: [2, 3]. */
void comparison_put(char out[static COMPARISON_TEXT], int rank, const size_t *numbers);

/* The types in which kernels multiply, from the finest to the coarsest. */
extern const struct comparison_type comparison_types[];

/* Returns the type of numbers of a datatype. */
const struct comparison_type *comparison_type_of(enum codec_type type);

/* Ends the comparison after its last task. Returns whether the client's results are accepted. */
bool comparison_end(struct comparison *comparison);

/* Adds the comparison to an answer: an object in JSON, and its text in the other formats. `digits`
 * is as in codec_write(). */
void comparison_add(struct codec_items *list, struct comparison *comparison, enum api_format format,
                    int digits);

/* Answers with a 409, which says which result is not accepted. */
void comparison_refuse(struct comparison *comparison, struct api_request *request, int digits);

#endif
