/* inference.c - requests in the Open Inference Protocol. */
#include "api/formats/inference.h"

#include <stdio.h>
#include <string.h>

#include "api/call/answer.h"
#include "api/call/fields.h"

enum {
    MOST_TEXT_BYTES = 1024 * 1024 /* as many as the JSON of a body outside of matrices */
};

/* ---------------------------------------------------------------------------------- the headers */

bool inference_length(const char *text, size_t *length) {
    size_t number = 0;
    *length = SIZE_MAX;
    if (text == NULL) {
        return true;
    }
    for (const char *digit = text; *digit != '\0'; digit++) {
        if (*digit < '0' || *digit > '9' || number > SIZE_MAX / 16) {
            return false;
        }
        number = 10 * number + (size_t)(*digit - '0');
    }
    *length = number;
    return number > 0;
}

/* ----------------------------------------------------------------------------------- parameters */

enum {
    OF_INPUT = 1,
    OF_OUTPUT = 2
};

/* Parameters that the protocol or its clients define, and that change nothing here: tritonclient
 * sends sequences and priorities, and MLServer the codec of each tensor and headers. */
#define IGNORED                                                                                    \
    "content_type", "headers", "id", "priority", "sequence_id", "sequence_start", "sequence_end"

/* Returns whether a parameter of a request changes nothing. Names with this prefix are reserved for
 * Triton, and ONNX's LinearAttention has the hint chunk_size. */
static bool is_ignored(const char *name, unsigned fields) {
    static const char *const ignored[] = {IGNORED};
    size_t i = 0;
    while (i < sizeof ignored / sizeof *ignored && strcmp(ignored[i], name) != 0) {
        i++;
    }
    return i < sizeof ignored / sizeof *ignored || strncmp(name, "triton_", 7) == 0 ||
           (fields == FIELDS_AT_LINEAR && strcmp(name, "chunk_size") == 0);
}

/* Checks the parameters of the input or output `name`; they may be NULL. `own` is the parameter
 * that means something here. */
static bool check_parameters(const struct decoder *decoder, const struct codec_value *parameters,
                             const char *name, unsigned of, const char *own,
                             struct codec_error *error) {
    static const char shared[] = "this server does not use shared memory",
                      request[] = "it is a parameter of the request";
    static const struct codec_foreign foreign[] = {
        {"shared_memory_region", OF_INPUT | OF_OUTPUT, shared},
        {"shared_memory_byte_size", OF_INPUT | OF_OUTPUT, shared},
        {"shared_memory_offset", OF_INPUT | OF_OUTPUT, shared},
        {"binary_data_output", OF_INPUT | OF_OUTPUT, request},
        {"binary_data", OF_INPUT, "it is a parameter of outputs; inputs have \"binary_data_size\""},
        {"binary_data_size", OF_OUTPUT,
         "it is a parameter of inputs; outputs have \"binary_data\""},
        {"classification", OF_OUTPUT, "results are tensors here"},
    };
    const char *names[] = {own, IGNORED}, *options[FIELDS_MOST];
    const struct codec_keys keys = {.names = names,
                                    .count = sizeof names / sizeof *names,
                                    .elsewhere = options,
                                    .elsewhere_count = fields_names(decoder->fields, options),
                                    .place = "parameters of the request",
                                    .foreign = foreign,
                                    .foreign_count = sizeof foreign / sizeof *foreign,
                                    .here = of};
    struct codec_error fault;
    return parameters == NULL || codec_check_keys(decoder->document, parameters, &keys, &fault) ||
           codec_fail(decoder->document, parameters, error, "the %s \"%.64s\": %s",
                      of == OF_INPUT ? "input" : "output", name, fault.message);
}

/* --------------------------------------------------------------------------------------- inputs */

/* Sets the bytes of texts, which only their binary_data_size says. */
static bool set_text_bytes(struct decoder *decoder, const struct codec_value *value, size_t size,
                           struct build_tensor *tensor, struct codec_error *error) {
    const size_t texts = codec_count(tensor->spec.rank, tensor->spec.shape);
    const size_t least = texts * sizeof(uint32_t);
    if (size < least) {
        return codec_fail(decoder->document, value, error,
                          "the input \"%.64s\" has a binary_data_size of %zu, but the lengths of "
                          "its %zu texts alone have %zu bytes",
                          tensor->name, size, texts, least);
    }
    if (size > MOST_TEXT_BYTES) {
        return codec_fail(decoder->document, value, error,
                          "the input \"%.64s\" has a binary_data_size of %zu; texts may have at "
                          "most %d bytes, which is a fixed limit",
                          tensor->name, size, MOST_TEXT_BYTES);
    }
    tensor->spec.bytes = size;
    decoder->text_bytes += size;
    return true;
}

/* Reads the parameter binary_data_size of an input. Returns false with the error set; *given says
 * whether the input has it. */
static bool read_size(struct decoder *decoder, const struct codec_value *parameters,
                      struct build_tensor *tensor, bool *given, struct codec_error *error) {
    const struct codec_value *value = codec_given(parameters, "binary_data_size");
    int64_t size;
    *given = value != NULL;
    if (value == NULL) {
        return true;
    }
    if (!codec_as_integer(decoder->document, value, 0, INT64_MAX, &size, error)) {
        return false;
    }
    if (tensor->spec.texts) {
        return set_text_bytes(decoder, value, (size_t)size, tensor, error);
    }
    return (size_t)size == tensor->spec.bytes ||
           codec_fail(decoder->document, value, error,
                      "the input \"%.64s\" has a binary_data_size of %lld, but its datatype and "
                      "shape have %zu bytes",
                      tensor->name, (long long)size, tensor->spec.bytes);
}

/* Checks that an input has its elements in one of two places: its data, or the bytes after the
 * JSON. */
static bool check_place(const struct decoder *decoder, const struct codec_value *input,
                        const struct build_tensor *tensor, bool binary, struct codec_error *error) {
    const struct codec_document *document = decoder->document;
    const struct codec_value *data = codec_given(input, "data");
    const bool texts = tensor->spec.texts;
    if (binary && data != NULL) {
        return codec_fail(document, data, error,
                          "the input \"%.64s\" has data and a binary_data_size; give one of them",
                          tensor->name);
    }
    if (binary && decoder->json_size == SIZE_MAX) {
        return codec_fail(document, input, error,
                          "the input \"%.64s\" has a binary_data_size, but the request has no "
                          "header Inference-Header-Content-Length",
                          tensor->name);
    }
    if (binary) {
        return true;
    }
    if (data == NULL) {
        return codec_fail(document, input, error,
                          "the input \"%.64s\" has neither data nor a binary_data_size",
                          tensor->name);
    }
    size_t unused[ATTN_MAX_RANK];
    const bool empty = !texts && tensor->spec.bytes == 0 && codec_empty_shape(data, unused) > 0;
    if (codec_kind_of(data) != (texts ? CODEC_ARRAY : CODEC_TENSOR) && !empty) {
        return codec_fail(document, data, error,
                          "the data of the input \"%.64s\" must be an array of %s", tensor->name,
                          texts ? "strings" : "numbers or booleans");
    }
    if (!texts && codec_type_is_bytes(tensor->spec.type)) {
        return codec_fail(document, data, error,
                          "the input \"%.64s\" has the datatype %s, which no client writes as "
                          "JSON: send its bytes, or the numbers as FP32",
                          tensor->name, codec_inference_types[tensor->spec.type]);
    }
    return true;
}

/* Reads the datatype and the shape of an input. Texts are of the type BYTES, and only they. */
static bool read_spec(const struct decoder *decoder, const struct codec_value *input,
                      struct build_tensor *tensor, struct codec_error *error) {
    const struct codec_document *document = decoder->document;
    const struct codec_value *type = codec_given(input, "datatype"),
                             *shape = codec_given(input, "shape");
    const bool words = fields_is_words(tensor->name, decoder->fields);
    const char *text = "";
    if (type != NULL && codec_kind_of(type) == CODEC_TEXT) {
        codec_as_text(document, type, &text, error);
    }
    const bool texts = strcmp(text, "BYTES") == 0;
    if (texts && !words) {
        return codec_fail(document, type, error,
                          "the input \"%.64s\" has the datatype BYTES, which %s", tensor->name,
                          fields_has("text", decoder->fields)
                              ? "only text and tokens have; matrices have one such as FP32"
                              : "no input of this model has");
    }
    if (words && !texts) {
        return codec_fail(document, type, error,
                          "the input \"%s\" must have the datatype BYTES, because it takes words",
                          tensor->name);
    }
    return texts ? codec_as_texts_spec(document, shape, tensor->name, &tensor->spec, error)
                 : codec_as_spec(document, type, shape, tensor->name, codec_inference_types,
                                 &tensor->spec, error);
}

/* Refuses texts that MLServer has encoded. Every other content type changes nothing. */
static bool check_content_type(const struct decoder *decoder, const struct codec_value *parameters,
                               const struct build_tensor *tensor, struct codec_error *error) {
    const struct codec_value *value =
        tensor->spec.texts ? codec_given(parameters, "content_type") : NULL;
    const char *text;
    if (value == NULL) {
        return true;
    }
    return codec_as_text(decoder->document, value, &text, error) &&
           (strcmp(text, "base64") != 0 ||
            codec_fail(decoder->document, value, error,
                       "the input \"%s\" has the content_type base64; send the text itself",
                       tensor->name));
}

static bool read_input(struct decoder *decoder, struct build *build,
                       const struct codec_value *input, struct codec_error *error) {
    static const char *const keys[] = {"name", "shape", "datatype", "parameters", "data"};
    static const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    const struct codec_document *document = decoder->document;
    struct build_tensor tensor = {0};
    bool binary = false;
    if (!codec_check_keys(document, input, &known, error)) {
        return false;
    }
    const struct codec_value *name = codec_given(input, "name"),
                             *parameters = codec_given(input, "parameters");
    if (name == NULL) {
        return codec_fail(document, input, error, "an input has no name");
    }
    if (!codec_as_text(document, name, &tensor.name, error) ||
        !read_spec(decoder, input, &tensor, error) ||
        !check_parameters(decoder, parameters, tensor.name, OF_INPUT, "binary_data_size", error) ||
        !check_content_type(decoder, parameters, &tensor, error) ||
        !read_size(decoder, parameters, &tensor, &binary, error) ||
        !check_place(decoder, input, &tensor, binary, error)) {
        return false;
    }
    tensor.data = binary ? NULL : codec_given(input, "data");
    return build_add_tensor(build, &tensor, error);
}

/* -------------------------------------------------------------------------------------- outputs */

/* Reads a parameter that says whether results are binary. */
static bool read_binary(const struct codec_document *document, const struct codec_value *parameters,
                        const char *name, bool *binary, struct codec_error *error) {
    if (parameters == NULL) {
        return true;
    }
    if (codec_kind_of(parameters) != CODEC_OBJECT) {
        return codec_refuse(document, parameters, "an object", error);
    }
    const struct codec_value *value = codec_given(parameters, name);
    return value == NULL || codec_as_bool(document, value, binary, error);
}

/* Finds the result that an output is, or is a part of: *which is its index in answer_names, or
 * ANSWER_COUNT if the model does not have it. Returns false if there is no memory. */
static bool find_output(const struct decoder *decoder, const char *name, size_t *which) {
    struct codec_results outputs = {0};
    bool found = false;
    const bool good = inference_outputs(&outputs, decoder->fields, decoder->account);
    found = strcmp(name, answer_names[ANSWER_COMPARISON]) == 0 &&
            fields_has("return", decoder->fields); /* it is no tensor */
    for (size_t i = 0; good && i < outputs.count && !found; i++) {
        found = inference_is_part(name, outputs.list[i].name);
    }
    codec_results_free(&outputs);
    for (*which = 0; *which < ANSWER_COUNT; ++*which) {
        if (found && inference_is_part(answer_names[*which], name)) {
            break;
        }
    }
    return good;
}

/* Reads one output into decoder->outputs. *which is the index of its result in answer_names. */
static bool read_output(struct decoder *decoder, const struct codec_value *output, size_t *which,
                        struct codec_error *error) {
    static const char *const keys[] = {"name", "parameters"};
    static const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    const struct codec_document *document = decoder->document;
    struct decoder_output wanted = {.binary = decoder->binary};
    if (!codec_check_keys(document, output, &known, error)) {
        return false;
    }
    const struct codec_value *name = codec_given(output, "name");
    if (name == NULL) {
        return codec_fail(document, output, error, "an output has no name");
    }
    const struct codec_value *parameters = codec_given(output, "parameters");
    if (!codec_as_text(document, name, &wanted.name, error) ||
        !check_parameters(decoder, parameters, wanted.name, OF_OUTPUT, "binary_data", error) ||
        !read_binary(document, parameters, "binary_data", &wanted.binary, error)) {
        return false;
    }
    if (!find_output(decoder, wanted.name, which)) {
        return codec_no_memory(error);
    }
    if (*which == ANSWER_COUNT) {
        size_t count;
        const char *const *names = answer_names_of(decoder->fields, &count);
        return codec_as_choice(document, name, names, count, which, error);
    }
    for (size_t i = 0; i < decoder->output_count; i++) {
        if (strcmp(decoder->outputs[i].name, wanted.name) == 0) {
            return codec_fail(document, name, error, "the output \"%.64s\" is asked for twice",
                              wanted.name);
        }
    }
    struct decoder_output *outputs =
        account_grow(decoder->account, decoder->outputs, &decoder->output_capacity,
                     decoder->output_count + 1, sizeof *outputs);
    if (outputs == NULL) {
        return codec_no_memory(error);
    }
    decoder->outputs = outputs;
    outputs[decoder->output_count++] = wanted;
    return true;
}

/* Reads the outputs, and makes an option "return" of them. */
static bool read_outputs(struct decoder *decoder, struct build *build,
                         const struct codec_value *outputs, struct codec_error *error) {
    const struct codec_value *output = outputs != NULL ? codec_at(outputs, 0) : NULL;
    uint64_t returned = 0; /* bits of the results */
    if (outputs != NULL && codec_kind_of(outputs) != CODEC_ARRAY) {
        return codec_refuse(decoder->document, outputs, "an array of objects", error);
    }
    if (output == NULL) {
        return true;
    }
    const bool returns = fields_has("return", decoder->fields);
    struct codec_value *list = NULL;
    if (returns && codec_get(build->call, "return") != NULL) {
        return codec_fail(decoder->document, outputs, error,
                          "give outputs or the parameter \"return\", not both");
    }
    if (returns && (list = build_add_member(build, "return", CODEC_ARRAY, error)) == NULL) {
        return false;
    }
    for (; output != NULL; output = codec_next(output)) {
        size_t which = ANSWER_COUNT;
        if (!read_output(decoder, output, &which, error)) {
            return false;
        }
        if (returns && (returned & UINT64_C(1) << which) == 0) {
            struct codec_value *name = codec_make_value(build->document, list, NULL, CODEC_TEXT);
            if (name == NULL) {
                return codec_no_memory(error);
            }
            codec_set_text(name, answer_names[which]);
        }
        returned |= UINT64_C(1) << which;
    }
    return true;
}

/* --------------------------------------------------------------------------------- the request */

/* Reads a parameter that the protocol defines. *known says whether it is one. */
static bool read_reserved(struct decoder *decoder, struct build *build, const char *name,
                          const struct codec_value *value, bool *known, struct codec_error *error) {
    int64_t microseconds = 0;
    *known = true;
    if (strcmp(name, "binary_data_output") == 0 || is_ignored(name, decoder->fields)) {
        return true;
    }
    if (strcmp(name, "timeout") != 0) {
        *known = false;
        return true;
    }
    if (!codec_as_integer(decoder->document, value, 0, INT64_MAX, &microseconds, error)) {
        return false;
    }
    struct codec_value *seconds =
        microseconds > 0 ? build_add_member(build, name, CODEC_NUMBER, error) : NULL;
    if (seconds != NULL) {
        codec_set_number(seconds, (double)microseconds * 1e-6);
    }
    return microseconds == 0 || seconds != NULL;
}

static bool read_options(struct decoder *decoder, struct build *build,
                         const struct codec_value *parameters, struct codec_error *error) {
    if (!read_binary(decoder->document, parameters, "binary_data_output", &decoder->binary,
                     error)) {
        return false;
    }
    const struct codec_value *value = parameters != NULL ? codec_at(parameters, 0) : NULL;
    for (; value != NULL; value = codec_next(value)) {
        bool known = false;
        if (!read_reserved(decoder, build, codec_name(value), value, &known, error) ||
            (!known && !build_add_option(build, codec_name(value), value, error))) {
            return false;
        }
    }
    return true;
}

/* Refuses a member whose text is not `own`. `what` says which one it must be. */
static bool check_member(const struct codec_document *document, const char *key, const char *own,
                         const char *what, struct codec_error *error) {
    const struct codec_value *value = codec_given(codec_root(document), key);
    const char *text;
    if (value == NULL) {
        return true;
    }
    if (!codec_as_text(document, value, &text, error)) {
        return false;
    }
    return strcmp(text, own) == 0 || text[0] == '\0' ||
           codec_fail(document, value, error, "%s is \"%.64s\"; %s is \"%s\"", key, text, what,
                      own);
}

bool inference_read(struct decoder *decoder, struct build *build, struct codec_error *error) {
    static const char *const keys[] = {"id",      "parameters", "inputs",
                                       "outputs", "model_name", "model_version"};
    static const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    const struct codec_document *document = decoder->document;
    const struct codec_value *root = codec_root(document);
    if (!codec_check_keys(document, root, &known, error) ||
        !check_member(document, "model_name", decoder->model, "the model of the path", error) ||
        !check_member(document, "model_version", API_MODEL_VERSION, "the only version", error)) {
        return false;
    }
    const struct codec_value *id = codec_given(root, "id"), *inputs = codec_given(root, "inputs");
    if (id != NULL && !codec_as_text(document, id, &decoder->id, error)) {
        return false;
    }
    if (inputs == NULL) {
        return codec_fail(document, root, error, "inputs is missing");
    }
    if (codec_kind_of(inputs) != CODEC_ARRAY) {
        return codec_refuse(document, inputs, "an array of objects", error);
    }
    for (const struct codec_value *input = codec_at(inputs, 0); input != NULL;
         input = codec_next(input)) {
        if (!read_input(decoder, build, input, error)) {
            return false;
        }
    }
    const struct codec_value *parameters = codec_given(root, "parameters");
    return build_find_dtype(build, parameters, &decoder->floats, error) &&
           read_options(decoder, build, parameters, error) &&
           read_outputs(decoder, build, codec_given(root, "outputs"), error);
}
