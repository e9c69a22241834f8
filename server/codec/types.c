/* types.c - the names of the types of binary tensors in each format, and their sizes. */
#include "codec/binary.h"

#define INFERENCE(name, inference, safetensors, size)   inference,
#define SAFETENSORS(name, inference, safetensors, size) safetensors,
#define SIZE(name, inference, safetensors, size)        size,
const char *const codec_inference_types[CODEC_TYPE_COUNT] = {CODEC_TYPES(INFERENCE)};
const char *const codec_safetensors_types[CODEC_TYPE_COUNT] = {CODEC_TYPES(SAFETENSORS)};
static const unsigned char sizes[CODEC_TYPE_COUNT] = {CODEC_TYPES(SIZE)};

size_t codec_type_size(enum codec_type type) {
    return sizes[type];
}
