/*
 * family.h - finds the layers of a model by the names of its tensors.
 */
#ifndef LAYERS_FAMILY_H
#define LAYERS_FAMILY_H

#include "codec/safetensors.h"
#include "layers/config.h"
#include "layers/layers.h"

/* A tensor of a model, which may have several files. */
struct family_tensor {
    struct codec_header_tensor header;
    const struct layer_shard *shard;
};

/* Makes the layers of a model: model->layers and model->factors. The tensors are sorted by name. A
 * set of weights that looks like a layer, but cannot be served, becomes a layer with a reason.
 * Returns false if there is no memory, or the account of the config has no room for the layers. */
bool family_find(struct layer_model *model, const struct family_tensor *tensors, size_t count,
                 const struct config *config);

#endif
