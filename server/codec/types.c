/* types.c - the names of the types of binary tensors in each format, and their sizes. */
#include "codec/binary.h"

#define INFERENCE(name, inference, safetensors, bits)   inference,
#define SAFETENSORS(name, inference, safetensors, bits) safetensors,
#define BITS(name, inference, safetensors, bits)        bits,
const char *const codec_inference_types[CODEC_TYPE_COUNT] = {CODEC_TYPES(INFERENCE)};
const char *const codec_safetensors_types[CODEC_TYPE_COUNT] = {CODEC_TYPES(SAFETENSORS)};
static const unsigned char bits_of[CODEC_TYPE_COUNT] = {CODEC_TYPES(BITS)};

size_t codec_type_size(enum codec_type type) {
    return (bits_of[type] + 7u) / 8;
}

size_t codec_type_together(enum codec_type type) {
    return bits_of[type] < 8 ? 8u / bits_of[type] : 1;
}

size_t codec_type_bytes(enum codec_type type, size_t count) {
    return count / codec_type_together(type) * codec_type_size(type);
}
