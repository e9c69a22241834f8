/* inference.c - questions in the Open Inference Protocol. */
#include "api/inference.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "api/fields.h"

/* ---------------------------------------------------------------------------------- the request */

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

/* Returns a member of an object; NULL if it is not there or null. */
static const struct codec_value *member_of(const struct codec_value *object, const char *name) {
    const struct codec_value *value = codec_get(object, name);
    return value != NULL && codec_kind_of(value) != CODEC_NULL ? value : NULL;
}

/* --------------------------------------------------------------------------------------- inputs */

/* Reads the parameter binary_data_size of an input. Returns false with the error set; *given says
 * whether the input has it. */
static bool read_size(const struct codec_document *document, const struct codec_value *input,
                      const char *name, const struct codec_tensor_form *form, bool *given,
                      struct codec_error *error) {
    const struct codec_value *parameters = member_of(input, "parameters");
    int64_t size;
    *given = false;
    if (parameters == NULL) {
        return true;
    }
    if (codec_kind_of(parameters) != CODEC_OBJECT) {
        return codec_refuse(document, parameters, "an object", error);
    }
    if (member_of(parameters, "shared_memory_region") != NULL) {
        return codec_fail(document, parameters, error,
                          "the input \"%.64s\" is in shared memory, which this server does not use",
                          name);
    }
    const struct codec_value *value = member_of(parameters, "binary_data_size");
    if (value == NULL) {
        return true;
    }
    *given = true;
    if (!codec_as_integer(document, value, 0, INT64_MAX, &size, error)) {
        return false;
    }
    if ((size_t)size != form->bytes) {
        return codec_fail(
            document, value, error,
            "the input \"%.64s\" has a binary_data_size of %lld, but its datatype and "
            "shape have %zu bytes",
            name, (long long)size, form->bytes);
    }
    return true;
}

/* Checks that an input has its elements in one of two places: its data, or the bytes after the
 * JSON. */
static bool check_place(const struct question *question, const struct codec_value *input,
                        const struct plain_tensor *tensor, bool binary, struct codec_error *error) {
    const struct codec_document *document = question->json;
    const struct codec_value *data = member_of(input, "data");
    if (binary && data != NULL) {
        return codec_fail(document, data, error,
                          "the input \"%.64s\" has data and a binary_data_size; give one of them",
                          tensor->name);
    }
    if (binary && question->json_size == SIZE_MAX) {
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
    if (codec_kind_of(data) != CODEC_TENSOR) {
        return codec_fail(document, data, error,
                          "the data of the input \"%.64s\" must be an array of numbers or booleans",
                          tensor->name);
    }
    if (tensor->form.type == CODEC_TYPE_FP16 || tensor->form.type == CODEC_TYPE_BF16) {
        return codec_fail(
            document, data, error,
            "the input \"%.64s\" has the datatype %s, which has no form in JSON: send "
            "its bytes",
            tensor->name, codec_inference_types[tensor->form.type]);
    }
    return true;
}

static bool read_input(struct question *question, struct plain *plain,
                       const struct codec_value *input, struct codec_error *error) {
    static const char *const keys[] = {"name", "shape", "datatype", "parameters", "data"};
    static const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    const struct codec_document *document = question->json;
    struct plain_tensor tensor = {0};
    const struct codec_value *name;
    bool binary = false;
    if (!codec_check_keys(document, input, &known, error)) {
        return false;
    }
    name = member_of(input, "name");
    if (name == NULL) {
        return codec_fail(document, input, error, "an input has no name");
    }
    if (!codec_as_text(document, name, &tensor.name, error) ||
        !codec_as_form(document, member_of(input, "datatype"), member_of(input, "shape"),
                       tensor.name, codec_inference_types, &tensor.form, error) ||
        !read_size(document, input, tensor.name, &tensor.form, &binary, error) ||
        !check_place(question, input, &tensor, binary, error)) {
        return false;
    }
    tensor.data = binary ? NULL : member_of(input, "data");
    return plain_tensor(plain, &tensor, error);
}

/* -------------------------------------------------------------------------------------- outputs */

static bool read_binary(const struct codec_document *document, const struct codec_value *parameters,
                        const char *name, bool *binary, struct codec_error *error) {
    if (parameters == NULL) {
        return true;
    }
    if (codec_kind_of(parameters) != CODEC_OBJECT) {
        return codec_refuse(document, parameters, "an object", error);
    }
    if (member_of(parameters, "classification") != NULL) {
        return codec_fail(document, parameters, error,
                          "\"classification\" is not known here: results are tensors");
    }
    if (member_of(parameters, "shared_memory_region") != NULL) {
        return codec_fail(document, parameters, error,
                          "an output asks for shared memory, which this server does not use");
    }
    const struct codec_value *value = member_of(parameters, name);
    return value == NULL || codec_as_bool(document, value, binary, error);
}

/* Finds the result that an output is, or is a part of: *which is its index in answer_names, or
 * ANSWER_COUNT if the model does not have it. Returns false if there is no memory. */
static bool find_output(const struct question *question, const char *name, size_t *which) {
    struct codec_results outputs = {0};
    bool found = false;
    const bool good = inference_outputs(&outputs, question->fields, question->account);
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

/* Refuses an output that the model does not have. The message lists those that it has. */
static bool refuse_output(const struct question *question, const struct codec_value *name,
                          const char *text, struct codec_error *error) {
    char names[256];
    size_t size = 0;
    for (size_t i = 0; i < answer_count(question->fields) && size < sizeof names; i++) {
        size += (size_t)snprintf(names + size, sizeof names - size, "%s%s", i > 0 ? ", " : "",
                                 answer_names[i]);
    }
    return codec_fail(question->json, name, error,
                      "the output \"%.64s\" is unknown; this model has %s", text, names);
}

/* Reads one output into question->outputs. *which is the index of its result in answer_names. */
static bool read_output(struct question *question, const struct codec_value *output, size_t *which,
                        struct codec_error *error) {
    static const char *const keys[] = {"name", "parameters"};
    static const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    const struct codec_document *document = question->json;
    struct question_output wanted = {.binary = question->binary};
    if (!codec_check_keys(document, output, &known, error)) {
        return false;
    }
    const struct codec_value *name = member_of(output, "name");
    if (name == NULL) {
        return codec_fail(document, output, error, "an output has no name");
    }
    if (!codec_as_text(document, name, &wanted.name, error) ||
        !read_binary(document, member_of(output, "parameters"), "binary_data", &wanted.binary,
                     error)) {
        return false;
    }
    if (!find_output(question, wanted.name, which)) {
        return codec_no_memory(error);
    }
    if (*which == ANSWER_COUNT) {
        return refuse_output(question, name, wanted.name, error);
    }
    for (size_t i = 0; i < question->output_count; i++) {
        if (strcmp(question->outputs[i].name, wanted.name) == 0) {
            return codec_fail(document, name, error, "the output \"%.64s\" is asked for twice",
                              wanted.name);
        }
    }
    assert(question->output_count < QUESTION_OUTPUTS);
    question->outputs[question->output_count++] = wanted;
    return true;
}

/* Reads the outputs, and makes an option "return" of them. */
static bool read_outputs(struct question *question, struct plain *plain,
                         const struct codec_value *outputs, struct codec_error *error) {
    const struct codec_value *output = outputs != NULL ? codec_at(outputs, 0) : NULL;
    unsigned returned = 0; /* bits of the results */
    if (outputs != NULL && codec_kind_of(outputs) != CODEC_ARRAY) {
        return codec_refuse(question->json, outputs, "an array of objects", error);
    }
    if (output == NULL) {
        return true;
    }
    const bool returns = fields_has("return", question->fields);
    if (returns && plain_has(plain, "return")) {
        return codec_fail(question->json, outputs, error,
                          "give outputs or the parameter \"return\", not both");
    }
    if (returns) {
        codec_add_open(&plain->items, CODEC_OP_ARRAY, "return");
    }
    for (; output != NULL; output = codec_next(output)) {
        size_t which = ANSWER_COUNT;
        if (!read_output(question, output, &which, error)) {
            return false;
        }
        if (returns && (returned & 1u << which) == 0) {
            codec_add_text(&plain->items, NULL, answer_names[which]);
        }
        returned |= 1u << which;
    }
    if (returns) {
        codec_add_close(&plain->items);
    }
    return true;
}

/* ----------------------------------------------------------------------------------- parameters */

/* Reads a parameter that the protocol defines. *known says whether it is one. */
static bool read_reserved(struct question *question, struct plain *plain, const char *name,
                          const struct codec_value *value, bool *known, struct codec_error *error) {
    int64_t microseconds = 0;
    *known = true;
    if (strcmp(name, "binary_data_output") == 0 || strcmp(name, "priority") == 0 ||
        strcmp(name, "headers") == 0 || strncmp(name, "triton_", 7) == 0) {
        return true;
    }
    if (strcmp(name, "timeout") != 0) {
        *known = false;
        return true;
    }
    if (!codec_as_integer(question->json, value, 0, INT64_MAX, &microseconds, error)) {
        return false;
    }
    return microseconds == 0 || plain_number(plain, name, (double)microseconds * 1e-6, error);
}

static bool read_options(struct question *question, struct plain *plain,
                         const struct codec_value *parameters, struct codec_error *error) {
    if (!read_binary(question->json, parameters, "binary_data_output", &question->binary, error)) {
        return false;
    }
    const struct codec_value *value = parameters != NULL ? codec_at(parameters, 0) : NULL;
    for (; value != NULL; value = codec_next(value)) {
        bool known = false;
        if (!read_reserved(question, plain, codec_name(value), value, &known, error) ||
            (!known && !plain_option(plain, codec_name(value), value, error))) {
            return false;
        }
    }
    return true;
}

/* Refuses a member whose text is not `own`. `what` says which one it must be. */
static bool check_member(const struct codec_document *document, const char *key, const char *own,
                         const char *what, struct codec_error *error) {
    const struct codec_value *value = member_of(codec_root(document), key);
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

bool inference_read(struct question *question, struct plain *plain, struct codec_error *error) {
    static const char *const keys[] = {"id",      "parameters", "inputs",
                                       "outputs", "model_name", "model_version"};
    static const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    const struct codec_document *document = question->json;
    const struct codec_value *root = codec_root(document);
    if (!codec_check_keys(document, root, &known, error) ||
        !check_member(document, "model_name", question->model, "the model of the path", error) ||
        !check_member(document, "model_version", API_MODEL_VERSION, "the only version", error)) {
        return false;
    }
    const struct codec_value *id = member_of(root, "id"), *inputs = member_of(root, "inputs");
    if (id != NULL && !codec_as_text(document, id, &question->id, error)) {
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
        if (!read_input(question, plain, input, error)) {
            return false;
        }
    }
    return read_options(question, plain, member_of(root, "parameters"), error) &&
           read_outputs(question, plain, member_of(root, "outputs"), error);
}
