/*
 * excluded.h - what is done to the numbers of Q, K and V before the plan of a call runs. Scales are
 * multiplied. Keys and values that no query may look at become zeros: the rows of K and V that
 * `lengths`, `key_padding` or `sequences` exclude may hold anything in a tensor of bytes, because
 * caches have garbage there. Tasks look at each tensor that has a scale, a NaN or an infinity. A
 * number that is not finite becomes 0 in an excluded row. Elsewhere the request is refused.
 */
#ifndef API_EXCLUDED_H
#define API_EXCLUDED_H

#include <pthread.h>
#include <stdatomic.h>

#include "codec/codec.h"
#include "jobs/jobs.h"

struct api_request;
struct call;

enum {
    EXCLUDED_TENSORS = 5 /* Q, K and V or the contexts, and the past rows of the last two */
};

struct excluded {
    struct excluded_tensor {
        const struct codec_value *value;
        const attn_tensor *tensor; /* of the call */
        const attn_tensor *scale;  /* of as many axes, whose blocks it multiplies; or NULL */
        size_t special; /* the first number that is not finite, or SIZE_MAX; once the tasks have
                           run, the first such one in no excluded row, or SIZE_MAX */
        size_t count, tasks; /* numbers, and tasks that look at them */
    } list[EXCLUDED_TENSORS];
    size_t count;
    atomic_uchar *seen; /* of each key, whether a query of some batch item may look at it by
                            `lengths` and `key_padding`; NULL without `key_padding` */
    size_t *starts; /* the first row of each sequence in K, and the end of the last one; or NULL */
    size_t longest; /* the most keys that `lengths` give a batch item; SIZE_MAX without `lengths` */
    struct job_phases phases;
    pthread_mutex_t mutex; /* guards `special` while tasks run */
};

/* Notes a tensor of the call, of which `count` and `tasks` may be open. One that was noted before
 * gets the scale. Returns false with the error set if there is no memory. */
bool excluded_note(struct call *call, struct codec_document *document,
                   const struct excluded_tensor *noted, struct codec_error *error);

/* Refuses tensors with such numbers if no option of the call excludes rows. The options have been
 * read. */
bool excluded_check(struct call *call, struct codec_document *document, struct codec_error *error);

/* Returns whether a matrix of the call has a scale. */
bool excluded_has_scales(const struct call *call);

/* Puts the phases that look at the numbers at the end of a list. Returns the end of the list. The
 * call has its plan. */
struct job_phases **excluded_add_phases(struct call *call, struct job_phases **end);

/* Returns the cost of these phases. */
double excluded_cost(const struct call *call);

/* Returns whether all such numbers were in excluded rows. Otherwise fills the response. */
bool excluded_end(const struct call *call, struct api_request *request);

/* Frees what the account does not own. */
void excluded_free(struct call *call);

#endif
