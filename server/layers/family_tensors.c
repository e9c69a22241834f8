/*
 * family_tensors.c - reads the tensors of a layer, with the scales of those of 8 bits. A layer that
 * has another tensor which may change its attention is refused.
 */
#include "layers/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Checks that what is stored beside a matrix is known. Without the other tensors of an adapter, or
 * of a method that stores weights in few bits, a matrix is not the one of the model. */
static bool check_beside(const struct search *s, const char *part) {
    const struct family_tensor *other = part == NULL ? NULL : search_beside(s, part);
    const char *method = config_text(search_quantization(s), "quant_method");
    return other == NULL ||
           search_refuse(s,
                         "%.100s is stored beside %s%s%.40s, and it is not known what it changes",
                         other->header.name, part, method == NULL ? "" : " by the quant_method ",
                         method == NULL ? "" : method);
}

/* Returns the side of the blocks of a matrix that have one scale each, or 0 if `count` scales for
 * `size` rows or columns do not fit. `side` is that of config.json; 0: it says none. */
static size_t side_of_block(size_t size, size_t count, double side) {
    const size_t whole = (size_t)side;
    return whole > 0 && (size - 1) / whole + 1 == count ? whole : count == 1 ? size : 0;
}

/* Reads the sides of the blocks that have one scale each. Those of FP8 are 128 if config.json does
 * not say them. Returns false with the reason in the layer. */
static bool read_sides(const struct search *s, double side[2]) {
    const struct config_object config = search_quantization(s);
    const char *method = config_text(config, "quant_method");
    const bool standard = config.value == NULL || (method != NULL && strcmp(method, "fp8") == 0);
    bool good = true;
    side[0] = side[1] = standard ? 128 : 0;
    if (config_value(config, "weight_block_size") != NULL) {
        good = config_numbers(config, "weight_block_size", 2, side);
        for (size_t i = 0; i < 2; i++) {
            good = good && side[i] >= 1 && side[i] <= 1 << 20 && side[i] == floor(side[i]);
        }
    }
    return good || search_refuse(s, "weight_block_size must be two whole numbers");
}

/* Reads where the scales of a matrix are: one for all numbers, one for each row, or one for each
 * block. Returns false with the reason in the layer. */
static bool read_scales(const struct search *s, const char *part, struct layer_tensor *matrix) {
    static const char *const endings[] = {"_scale_inv", "_scale"};
    const struct family_tensor *found[2];
    double side[2];
    for (size_t i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", part, endings[i]);
        found[i] = search_tensor(s, s->prefix, s->prefix_size, name);
    }
    if (found[0] != NULL && found[1] != NULL) {
        return search_refuse(s, "%s has both a %s%s and a %s%s", part, part, endings[0], part,
                             endings[1]);
    }
    const struct family_tensor *scales = found[0] != NULL ? found[0] : found[1];
    if (scales == NULL) {
        return true;
    }
    if (codec_type_size(matrix->type) != 1 || !matrix->out_in) {
        return search_refuse(
            s, "%s has scales beside it, but is no matrix (outputs, inputs) of 8 bits", part);
    }
    const struct codec_header_tensor *t = &scales->header;
    if (t->rank < 0 || t->rank > 2 || t->type < CODEC_TYPE_FP16 || t->type >= CODEC_TYPE_COUNT) {
        return search_refuse(s, "%.100s is no matrix of F16, BF16, F32 or F64", t->name);
    }
    const size_t rows = t->rank > 0 ? t->shape[0] : 1, columns = t->rank > 1 ? t->shape[1] : 1;
    if (!read_sides(s, side)) {
        return false;
    }
    matrix->scales = (struct layer_scales){
        .shard = scales->shard,
        .type = t->type,
        .offset = scales->shard->data + t->begin,
        .columns = columns,
        .block_rows = rows == matrix->rows ? 1 : side_of_block(matrix->rows, rows, side[0]),
        .block_columns = side_of_block(matrix->columns, columns, side[1]),
    };
    s->layer->bytes += t->bytes;
    return (matrix->scales.block_rows > 0 && (matrix->scales.block_columns >= LAYER_LEAST_BLOCK ||
                                              matrix->scales.block_columns == matrix->columns)) ||
           search_refuse(
               s,
               "%s has %zu x %zu scales; they are read if there is one for the matrix, "
               "for each row, or for each block of weight_block_size, which %s%.0f x %.0f",
               part, rows, columns, side[0] > 0 ? "is " : "config.json does not say: ", side[0],
               side[1]);
}

/* Checks that all matrices of 8 bits have scales, if one has them or config.json speaks of them. */
static bool check_scales(const struct search *s) {
    const struct layer_tensor *t = s->layer->tensors;
    bool scaled = search_quantization(s).value != NULL;
    for (size_t part = 0; part < LAYER_PARTS; part++) {
        scaled = scaled || t[part].scales.shard != NULL;
    }
    for (size_t part = 0; scaled && part < LAYER_PARTS; part++) {
        if (t[part].shard != NULL && codec_type_size(t[part].type) == 1 &&
            t[part].scales.shard == NULL) {
            return search_refuse(s, "%s has 8 bits, but no %s_scale is stored beside it",
                                 s->family->tensors[part], s->family->tensors[part]);
        }
    }
    return true;
}

static bool read_tensors(const struct search *s) {
    for (int part = 0; part < LAYER_PARTS; part++) {
        const char *name = s->family->tensors[part];
        struct layer_tensor *read = &s->layer->tensors[part];
        const struct family_tensor *tensor = search_tensor(s, s->prefix, s->prefix_size, name);
        const bool matrix = part <= LAYER_W_O || part == LAYER_W_G;
        if (tensor != NULL &&
            !((!matrix || check_beside(s, name)) && search_read(s, tensor, matrix, read) &&
              (!matrix || read_scales(s, name, read)))) {
            return false;
        }
    }
    return true;
}

/* Returns whether a name has one of the words at the begin of one of its parts, or of the first. */
static bool begins_with(const char *name, const char *const *words, bool first) {
    for (; *words != NULL; words++) {
        const char *found = strstr(name, *words);
        if (found != NULL && (found == name || (!first && found[-1] == '.'))) {
            return true;
        }
    }
    return false;
}

/* Returns whether a tensor of a layer may change its attention, and is not one of its family. */
static bool is_unknown(const struct search *s, const char *rest) {
    /* Norms beside an attention, buffers of masks and frequencies, and scales of a cache. */
    static const char *const harmless[] = {"LayerNorm.",
                                           "ln.",
                                           "self_attn_layer_norm.",
                                           "inv_freq",
                                           "masked_bias",
                                           "k_scale",
                                           "v_scale",
                                           "kv_scale",
                                           "output_scale",
                                           "relative_attention_bias.",
                                           "input_scale",
                                           NULL};
    /* Without a prefix, a file may also have tensors that belong to no layer. */
    static const char *const options[] = {"W_",    "b_",     "norm_", "bias_",   "gate",
                                          "alibi", "rotary", "scale", "softcap", NULL};
    static const char *const norms[] = {"norm", "q_norm", "k_norm", "v_norm", "ln_q", "ln_k", NULL};
    for (size_t part = 0; part < LAYER_PARTS; part++) {
        const char *name = s->family->tensors[part];
        const size_t size = name == NULL ? 0 : strlen(name);
        if (name != NULL && strncmp(rest, name, size) == 0 &&
            (rest[size] == '\0' || strcmp(rest + size, "_scale") == 0 ||
             strcmp(rest + size, "_scale_inv") == 0)) {
            return false;
        }
    }
    if (s->type->name != NULL) {
        return !begins_with(rest, harmless, false) && strcmp(rest, "bias") != 0;
    }
    return strchr(rest, '.') != NULL ? begins_with(rest, norms, true)
                                     : s->prefix_size > 0 || begins_with(rest, options, true);
}

/* Checks that no other tensor of a layer may change its attention. */
static bool check_others(const struct search *s) {
    char prefix[512];
    snprintf(prefix, sizeof prefix, "%.*s", (int)s->prefix_size, s->prefix);
    for (size_t i = search_from(s, prefix);
         i < s->count && strncmp(s->tensors[i].header.name, prefix, s->prefix_size) == 0; i++) {
        const char *rest = s->tensors[i].header.name + s->prefix_size;
        if (is_unknown(s, rest)) {
            return search_refuse(
                s, "it has the tensor %.100s, and it is not known what this changes", rest);
        }
    }
    return true;
}

bool family_tensors_read(const struct search *s) {
    return read_tensors(s) && check_scales(s) && check_others(s);
}
