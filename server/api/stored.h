/*
 * stored.h - the use of a stored layer by a call: its weights are packed, if no request has done so
 * before, and its relative bias is made, before the plan of the call runs.
 */
#ifndef API_STORED_H
#define API_STORED_H

#include "jobs/jobs.h"
#include "layers/layers.h"

struct api_request;
struct call;
struct codec_error;

/* The layer of a call. Zero-initialise; without a layer the functions below do nothing. */
struct stored {
    struct layers *layers; /* borrowed */
    struct layer_use use;
    size_t item, count;       /* the layer is number `item` of the `count` layers of the request */
    size_t pack_tasks;        /* 0: the weights are packed already */
    attn_tensor bias;         /* the relative bias, with the bias of the request, in `numbers` */
    const attn_tensor *given; /* the bias of the request, or NULL */
    void *numbers;            /* of the bias; NULL if the layer has none */
    struct job_phases phases;
    char reason[LAYERS_REASON]; /* why the weights cannot be read; empty if they can */
};

/* Checks that these layers of a catalogue are served, and that their packed weights fit into memory
 * together. Returns false after filling the response with a 422 or a 413. */
bool stored_fit(struct api_request *request, const struct layer *first, size_t count);

/* Answers why weights could not be packed: with a 422 if a number is at fault, and with a 503 if
 * the file is. */
__attribute__((cold)) void stored_refuse_weights(struct api_request *request,
                                                 const struct layer_use *use, const char *reason);

/* Answers with a 503 that says why a layer cannot be used now. */
__attribute__((cold)) void stored_refuse(struct api_request *request, enum layer_status status);

/* Begins to use layer `item` of the `count` layers of a request, which are in a catalogue that the
 * caller has taken, and fills the weights and the options of the call. Returns false after filling
 * the response with a 503. */
bool stored_begin(struct call *call, struct api_request *request, const struct layer *first,
                  size_t item, size_t count);

/* Makes room for the relative bias of the layer, if it has one, when X and the options are read.
 * Returns false with the error set if there is no memory. */
bool stored_bias(struct call *call, struct codec_error *error);

/* Puts the phases that pack the weights and make the bias at the end of a list. Returns the end of
 * the list. */
struct job_phases **stored_prepare(struct call *call, struct job_phases **end);

/* Returns the bytes of one scratch of these phases, and their cost. */
size_t stored_scratch(const struct call *call);
double stored_cost(const struct call *call);

/* Gives back the weights of the layer, when the call is computed. */
void stored_computed(struct call *call);

/* Ends the use of the layer. */
void stored_end(struct call *call);

#endif
