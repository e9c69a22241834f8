/*
 * comparison.h - the comparison of a client's own results with those of its call: which differ, by
 * how much, where, and whether rounding explains it.
 */
#ifndef API_COMPARISON_H
#define API_COMPARISON_H

#include <pthread.h>

#include "api/answer.h"

enum {
    COMPARISON_TEXT = 21 * (ATTN_MAX_RANK + 1) /* bytes of a shape in a message */
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
    double magnitude;              /* the largest magnitude of the results */
    size_t beyond;                 /* elements beyond the tolerance */
    size_t nan, infinite;          /* elements of the expected tensor */
};

/* An expected tensor, and the result of the same name. */
struct comparison_pair {
    const char *name;               /* of the result */
    enum answer_name which;         /* the result */
    const struct codec_value *from; /* the place of the tensor in the body */
    attn_tensor expected;
    enum codec_type type; /* of the numbers of `expected` */
    const attn_result_tensor *result;
    enum codec_type result_type; /* of the arithmetic of the result: its compute_dtype, if given */
    double absolute, relative;   /* the tolerance */
    size_t count;                /* elements */
    size_t heads;                /* along the axis of the heads; 0: there is none */
    size_t head_size;            /* elements of a head that follow one another */
    _Atomic double *errors;      /* of each head: the largest absolute error */
    struct comparison_findings found;
    /* These members go into the answer; comparison_end() sets them. */
    double bound;
    const char *verdict;
    size_t absolute_index[ATTN_MAX_RANK], relative_index[ATTN_MAX_RANK];
};

/* The account of the request owns it. */
struct comparison {
    double absolute, relative; /* the tolerance of the request; less than 0: it gives none */
    bool headless;             /* no result has an axis of heads: it is the output of a softmax */
    bool refuses;              /* a difference beyond the tolerance is an error */
    struct job_phases phases;
    pthread_mutex_t *mutex;   /* of the call; it guards `found` of each pair while tasks run */
    const char *verdict;      /* the worst one; comparison_end() sets it and `within` */
    bool within;              /* every result is within its tolerance */
    char detail[448];         /* of the error */
    struct codec_buffer text; /* the comparison in JSON, for the other formats */
    size_t count;
    struct comparison_pair pairs[];
};

/* Finds the result of each expected tensor in the plan of the call, and checks its shape. Returns
 * false with the error set. */
bool comparison_check(struct call *call, struct account *account,
                      const struct codec_document *document, struct codec_error *error);

/* Returns the multiply-adds that take as long as the comparison. */
double comparison_cost(const struct comparison *comparison);

/* Puts the phases of the comparison at *end. Returns the end of the list. */
struct job_phases **comparison_add_phases(struct comparison *comparison, struct job_phases **end);

/* Writes a shape, an index or an order of axes: [2, 3]. */
void comparison_put(char out[static COMPARISON_TEXT], int rank, const size_t *numbers);

/* Ends the comparison after its last task. Returns whether every result is within the tolerance. */
bool comparison_end(struct comparison *comparison);

/* Adds the comparison to an answer: an object in JSON, and its text in the other formats. `digits`
 * is as in codec_write(). */
void comparison_add(struct codec_items *list, struct comparison *comparison, enum api_format format,
                    int digits);

/* Answers with a 409, which says that a result is beyond its tolerance. */
void comparison_refuse(struct comparison *comparison, struct api_request *request, int digits);

#endif
