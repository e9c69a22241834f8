/* search.c - see search.h. */
#include "layers/search.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char search_capture[] =
    "capture() (see server/layers/README.md) shows the heads of most models; ";

int search_compare(const char *a, const char *b) {
    static const char digits[] = "0123456789";
    size_t i = 0;
    while (a[i] == b[i] && a[i] != '\0') {
        i++;
    }
    while (i > 0 && strchr(digits, a[i - 1]) != NULL) { /* the number in which they differ */
        i--;
    }
    const size_t a_size = strspn(a + i, digits), b_size = strspn(b + i, digits);
    if (a_size > 0 && b_size > 0 && a_size != b_size) {
        return a_size < b_size ? -1 : 1;
    }
    return strcmp(a, b);
}

size_t search_first(const void *key, const void *list, size_t count, size_t size,
                    int (*compare)(const void *key, const void *element)) {
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare(key, (const char *)list + middle * size) > 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool search_list_has(const char *const *list, const char *name) {
    for (; list != NULL && *list != NULL; list++) {
        if (strcmp(*list, name) == 0) {
            return true;
        }
    }
    return false;
}

bool search_has_name(const char *names, const char *name) {
    char word[64];
    return strchr(name, ' ') == NULL &&
           snprintf(word, sizeof word, " %s ", name) < (int)sizeof word &&
           strstr(names, word) != NULL;
}

void search_keep_ascii(char *text) {
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < 0x80 ? *text : '?';
    }
}

bool search_refuse(const struct search *s, const char *format, ...) {
    struct layer *layer = s->layer;
    va_list arguments;
    va_start(arguments, format);
    if (layer->reason[0] == '\0') {
        const int size = vsnprintf(layer->reason, sizeof layer->reason, format, arguments);
        if (size >= (int)sizeof layer->reason) {
            strcpy(layer->reason + sizeof layer->reason - 4, "...");
        }
        search_keep_ascii(layer->reason);
    }
    va_end(arguments);
    return false;
}

bool search_has_part(const struct search *s, const char *part) {
    const size_t size = strlen(part);
    for (size_t i = 0; i + size < s->prefix_size; i++) { /* the prefix ends with a dot */
        if ((i == 0 || s->prefix[i - 1] == '.') && s->prefix[i + size] == '.' &&
            memcmp(s->prefix + i, part, size) == 0) {
            return true;
        }
    }
    return false;
}

bool search_number(const struct search *s, long *number) {
    size_t count = 0;
    for (size_t i = 0; i < s->prefix_size; i++) {
        if ((i == 0 || s->prefix[i - 1] == '.') && s->prefix[i] >= '0' && s->prefix[i] <= '9') {
            char *end;
            const long found = strtol(s->prefix + i, &end, 10);
            if (*end == '.') {
                *number = found;
                count++;
            }
        }
    }
    return count == 1 || search_refuse(s,
                                       "the names of its tensors have %s number, so it is not "
                                       "known which layer this is, which decides its attention",
                                       count == 0 ? "no" : "more than one");
}

static int compare_name(const void *key, const void *tensor) {
    return strcmp(key, ((const struct family_tensor *)tensor)->header.name);
}

size_t search_from(const struct search *s, const char *name) {
    return search_first(name, s->tensors, s->count, sizeof *s->tensors, compare_name);
}

const struct family_tensor *search_tensor(const struct search *s, const char *prefix,
                                          size_t prefix_size, const char *rest) {
    char name[512];
    if (rest == NULL || prefix_size + strlen(rest) >= sizeof name) {
        return NULL;
    }
    memcpy(name, prefix, prefix_size);
    strcpy(name + prefix_size, rest);
    return bsearch(name, s->tensors, s->count, sizeof *s->tensors, compare_name);
}

struct config_object search_quantization(const struct search *s) {
    return config_inner(config_root(s->config), "quantization_config");
}

const struct family_tensor *search_beside(const struct search *s, const char *part) {
    static const char *const known[] = {"weight",       "bias",         "weight_scale_inv",
                                        "weight_scale", "input_scale",  "k_scale",
                                        "v_scale",      "output_scale", NULL};
    static const char ending[] = ".weight";
    char name[512];
    const int size = snprintf(name, sizeof name, "%.*s%s", (int)s->prefix_size, s->prefix, part);
    if (size >= (int)sizeof name || size < (int)strlen(ending) ||
        strcmp(name + size - strlen(ending), ending) != 0) {
        return NULL; /* other names do not stand for one matrix each */
    }
    const size_t same = (size_t)size + 1 - strlen(ending);
    name[same] = '\0';
    size_t i = search_from(s, name);
    while (i < s->count && strncmp(s->tensors[i].header.name, name, same) == 0 &&
           search_list_has(known, s->tensors[i].header.name + same)) {
        i++;
    }
    return i < s->count && strncmp(s->tensors[i].header.name, name, same) == 0 ? &s->tensors[i]
                                                                               : NULL;
}

bool search_read(const struct search *s, const struct family_tensor *from, bool matrix,
                 struct layer_tensor *to) {
    const struct codec_header_tensor *t = &from->header;
    size_t rows = 1;
    for (int axis = 0; axis + 1 < t->rank; axis++) {
        rows *= t->shape[axis];
    }
    if (t->type < (matrix ? CODEC_TYPE_FP8_E4M3 : CODEC_TYPE_FP16) || t->type >= CODEC_TYPE_COUNT) {
        const struct config_object few = search_quantization(s);
        const char *method = config_text(few, "quant_method");
        return search_refuse(
            s,
            "%.100s is %s; only %sF16, BF16, F32 and F64 are read%s%.40s: save the model in one of "
            "them",
            t->name,
            t->type < CODEC_TYPE_COUNT ? codec_safetensors_types[t->type] : "of an unknown type",
            matrix ? "F8_E4M3, F8_E5M2, " : "", method == NULL ? "" : ". quant_method is ",
            method == NULL ? "" : method);
    }
    if (matrix ? t->rank != 2 : t->rank < 1 || rows != 1) {
        return search_refuse(s, "%.100s is no %s: it has %d axes", t->name,
                             matrix ? "matrix" : "vector", t->rank);
    }
    *to = (struct layer_tensor){
        .shard = from->shard,
        .type = t->type,
        .offset = from->shard->data + t->begin,
        .rows = rows,
        .columns = t->shape[t->rank - 1],
        .out_in = matrix && !s->family->in_out,
    };
    to->count = to->out_in ? to->rows : to->columns;
    if (to->rows == 0 || to->columns == 0) {
        return search_refuse(s, "%.100s is empty", t->name);
    }
    s->layer->bytes += t->bytes;
    return true;
}
