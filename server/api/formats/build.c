/* build.c - see build.h. */
#include "api/formats/build.h"

#include <string.h>

#include "api/call/fields.h"

bool build_begin(struct build *build, struct codec_document *document, size_t max_values) {
    build->document = document;
    build->call = codec_make_value(document, NULL, NULL, CODEC_OBJECT);
    build->expected = NULL;
    build->max_values = max_values;
    build->tensor_count = 0;
    return build->call != NULL;
}

/* Returns the object that gets the tensor `*name`, and makes it if it is not there. *name becomes
 * the name of the member. Returns NULL if there is no memory. */
static struct codec_value *object_of(struct build *build, const char **name) {
    const char *key = fields_expected_key();
    const size_t size = strlen(key);
    if (strncmp(*name, key, size) != 0 || (*name)[size] != '.') {
        return build->call;
    }
    *name += size + 1;
    if (build->expected == NULL) {
        build->expected = codec_make_value(build->document, build->call, key, CODEC_OBJECT);
    }
    return build->expected;
}

bool build_add_tensor(struct build *build, const struct build_tensor *tensor,
                      struct codec_error *error) {
    const char *name = tensor->name;
    if (build->tensor_count == CODEC_MAX_TENSORS) {
        return codec_fail(build->document, NULL, error,
                          "the request has more than %d tensors, which is a fixed limit",
                          CODEC_MAX_TENSORS);
    }
    struct codec_value *object = object_of(build, &name);
    if (object == NULL) {
        return codec_no_memory(error);
    }
    if (codec_get(object, name) != NULL) {
        return codec_fail(build->document, NULL, error, "the tensor \"%.64s\" is given twice",
                          tensor->name);
    }
    struct build_tensor *own = &build->tensors[build->tensor_count++];
    *own = *tensor;
    own->spec.own_type = object != build->call;
    own->spec.exact = !own->spec.own_type && fields_is_exact(name);
    own->member = codec_make_value(build->document, object, name, CODEC_NULL);
    return own->member != NULL || codec_no_memory(error);
}

/* Gives a value the content of a text, as JSON if it is JSON. */
static bool set_text(struct build *build, struct codec_value *value, const char *name,
                     const struct codec_value *text, struct codec_error *error) {
    static const char *const whole[] = {"", NULL};
    const struct codec_options options = {
        .account = codec_document_account(build->document),
        .max_values = build->max_values,
        .infinity_keys = fields_takes_infinity(name) ? whole : NULL,
    };
    const char *characters;
    return codec_as_text(build->document, text, &characters, error) &&
           codec_set_json(build->document, value, characters, &options, error);
}

/* Returns the type of float results that the tensors have. */
static enum codec_type type_of_tensors(const struct build *build) {
    unsigned types = 0;
    for (size_t i = 0; i < build->tensor_count; i++) {
        const struct codec_tensor_spec *spec = &build->tensors[i].spec;
        const bool counts = codec_type_is_float(spec->type) && !spec->own_type;
        types |= counts ? 1u << spec->type : 0; /* texts have no float type */
    }
    return (types & 1u << CODEC_TYPE_FP64) != 0 ? CODEC_TYPE_FP64
           : types == 1u << CODEC_TYPE_FP16     ? CODEC_TYPE_FP16
           : types == 1u << CODEC_TYPE_BF16     ? CODEC_TYPE_BF16
                                                : CODEC_TYPE_FP32;
}

bool build_find_dtype(struct build *build, const struct codec_value *options,
                      enum codec_type *floats, struct codec_error *error) {
    const char *key = fields_dtype_key(), *text = "";
    const struct codec_value *option = options != NULL ? codec_get(options, key) : NULL;
    if (option != NULL && codec_kind_of(option) == CODEC_TEXT) {
        struct codec_value *value = codec_make_value(build->document, NULL, NULL, CODEC_NULL);
        if (value == NULL) {
            return codec_no_memory(error);
        }
        if (!set_text(build, value, key, option, error)) {
            return false;
        }
        if (codec_kind_of(value) == CODEC_TEXT) {
            codec_as_text(build->document, value, &text, error);
        }
    } else if (option == NULL && codec_get(build->call, key) == NULL) {
        *floats = type_of_tensors(build);
        text = *floats == CODEC_TYPE_FP64 ? "float64" : text;
    }
    codec_set_dtype(build->document, strcmp(text, "float64") == 0 ? ATTN_FLOAT64 : ATTN_FLOAT32);
    return true;
}

struct codec_value *build_add_member(struct build *build, const char *name, enum codec_kind kind,
                                     struct codec_error *error) {
    if (codec_get(build->call, name) != NULL) {
        codec_fail(build->document, NULL, error, "\"%.64s\" is given as a tensor and as an option",
                   name);
        return NULL;
    }
    struct codec_value *member = codec_make_value(build->document, build->call, name, kind);
    if (member == NULL) {
        codec_no_memory(error);
    }
    return member;
}

bool build_add_option(struct build *build, const char *name, const struct codec_value *value,
                      struct codec_error *error) {
    const enum codec_kind kind = codec_kind_of(value);
    double number;
    struct codec_value *member = build_add_member(build, name, CODEC_NULL, error);
    if (member == NULL) {
        return false;
    }
    if (kind == CODEC_TEXT) {
        return set_text(build, member, name, value, error);
    }
    if (kind != CODEC_NUMBER && kind != CODEC_BOOL) {
        return codec_refuse(build->document, value,
                            "a number, a boolean or a string; a list is written as JSON in a "
                            "string, such as \"[2, 0]\"",
                            error);
    }
    codec_set_value(member, value);
    return kind == CODEC_BOOL || codec_as_number(build->document, value, &number, error);
}

bool build_end(struct build *build, struct codec_stream *stream, struct codec_error *error) {
    struct codec_document *document = build->document;
    if (codec_document_dtype(document) == ATTN_FLOAT64 &&
        codec_get(build->call, fields_dtype_key()) == NULL) {
        struct codec_value *dtype = build_add_member(build, fields_dtype_key(), CODEC_TEXT, error);
        if (dtype == NULL) {
            return false;
        }
        codec_set_text(dtype, "float64");
    }
    stream->document = document;
    for (size_t i = 0; i < build->tensor_count; i++) {
        const struct build_tensor *tensor = &build->tensors[i];
        const bool good = tensor->data == NULL
                              ? codec_stream_add(stream, tensor->member, &tensor->spec, error)
                              : (tensor->spec.texts ? codec_move_texts : codec_move_tensor)(
                                    document, tensor->member, tensor->data, &tensor->spec, error);
        if (!good) {
            return false;
        }
    }
    codec_set_root(document, build->call);
    return true;
}
