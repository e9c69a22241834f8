/*
 * stored.h - the use of a stored layer by a call: its weights are packed, if no request has done so
 * before, and its relative bias is made, before the plan of the call runs.
 */
#ifndef API_STORED_H
#define API_STORED_H

#include "account.h"
#include "jobs/jobs.h"
#include "layers/layers.h"

struct api_request;
struct call;
struct codec_error;

/* The use of a layer, whose weights the phases pack. Zero-initialise. The owner ends the use by
 * layer_end(). */
struct stored_weights {
    struct layers *layers; /* borrowed; NULL: there is no layer */
    struct job_phases phases;
    size_t tasks;   /* 0: the weights are packed already */
    size_t scratch; /* bytes that one task needs */
    double cost;
    char reason[LAYERS_REASON]; /* why the weights cannot be read; empty if they can */
    struct layer_use use;
};

/* The layer of a call. Zero-initialise; without a layer the functions below do nothing. */
struct stored {
    size_t item, count;       /* the layer is number `item` of the `count` layers of the request */
    attn_tensor bias;         /* the relative bias, with the bias of the request, in `numbers` */
    const attn_tensor *given; /* the bias of the request, or NULL */
    void *numbers;            /* of the bias; NULL if the layer has none */
    struct job_phases phases; /* make the bias */
    struct stored_weights weights;
};

/* Checks that some of these layers of a catalogue are served, counts them, and checks that their
 * packed weights fit into memory together. Returns false after filling the response with a 422 or a
 * 413. */
bool stored_fit(struct api_request *request, const struct layers_catalogue *catalogue,
                const struct layer *first, size_t count, size_t *served);

/* Begins to use a layer of a catalogue that the caller has taken. Returns false after filling the
 * response with a 503. */
bool stored_use(struct api_request *request, struct stored_weights *w, const struct layer *layer,
                attn_dtype dtype);

/* Returns whether the phases have packed the weights. Otherwise fills the response: with a 422 if a
 * number is at fault, and with a 503 if the file is. */
bool stored_is_packed(struct api_request *request, const struct stored_weights *w);

/* Begins to use a layer, number `item` of the `count` layers of a request, which are in a catalogue
 * that the caller has taken, and fills the weights and the options of the call. Returns false after
 * filling the response with a 503. */
bool stored_begin(struct call *call, struct api_request *request, const struct layer *layer,
                  size_t item, size_t count);

/* Makes room for the relative bias of the layer, if it has one, when X and the options are read.
 * Returns false with the error set if there is no memory. */
bool stored_bias(struct call *call, struct account *account, struct codec_error *error);

/* Puts the phases that pack the weights and make the bias at the end of a list. Returns the end of
 * the list. */
struct job_phases **stored_prepare(struct call *call, struct job_phases **end);

/* Returns the cost of these phases. */
double stored_cost(const struct call *call);

#endif
