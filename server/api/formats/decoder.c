/* decoder.c - reads the body of a request. inference.c knows the JSON of the Open Inference
 * Protocol, and codec/safetensors.c that of safetensors. */
#include "api/formats/decoder.h"

#include "api/call/fields.h"
#include "api/formats/inference.h"
#include "api/formats/tensors.h"
#include "api/reply.h"
#include "codec/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FORM "application/x-www-form-urlencoded"

enum {
    /* The most bytes and values of JSON before tensors, because an I/O thread parses it while the
     * body arrives. */
    MOST_REQUEST_JSON = 32 * 1024,
    MOST_VALUES = 4096
};

/* ---------------------------------------------------------------------------------- the headers */

/* Returns whether a body of this type is read as JSON: JSON, no type at all, or the type that `curl
 * -d` sends by default. */
static bool is_json(const char *media_type) {
    return media_type[0] == '\0' || strcmp(media_type, "application/json") == 0 ||
           strcmp(media_type, FORM) == 0;
}

const char *decoder_shorter(const struct http_request *request) {
    const struct api_route *route = request->route;
    const bool tensors =
        route != NULL && (route->handler == NULL || fields_has("X", route->fields));
    return tensors && is_json(request->media_type)
               ? "; as a binary tensor a number of float32 takes 4 bytes, which are often 10 or "
                 "more in JSON"
               : "";
}

/* Returns a short body in JSON that the endpoint takes. */
static const char *example_of(enum api_format format, unsigned fields) {
    return format == API_INFERENCE ? "{\"inputs\": [{\"name\": \"X\", \"datatype\": \"FP32\", "
                                     "\"shape\": [1, 2], \"data\": [1, 2]}]}"
                                   : fields_example(fields);
}

bool decoder_begin(struct api_request *request) {
    struct decoder *decoder = &request->input.decoder;
    const unsigned fields = request->route->fields;
    const struct http_request *http = request->http;
    const bool inference = request->format == API_INFERENCE;
    const char *bytes = inference ? "application/octet-stream" : TENSORS_SAFETENSORS;
    const bool is_bytes = strcmp(http->media_type, bytes) == 0;
    char detail[384];
    if (http->parameter_count > 0) { /* an option that is not read must not look as if it were */
        const struct http_parameter *parameter = &http->parameters[0];
        snprintf(detail, sizeof detail,
                 "the address has \"?%.64s=%.64s\"; options belong in the body, such as %s",
                 parameter->name, parameter->value, example_of(request->format, fields));
        reply_problem(request, 422, detail);
        return false;
    }
    if (!is_json(http->media_type) && !is_bytes) {
        snprintf(
            detail, sizeof detail,
            "the Content-Type is %.100s; it must be application/json or %s. JSON is such as %s",
            http->media_type, bytes, example_of(request->format, fields));
        reply_problem(request, 415, detail);
        return false;
    }
    decoder->format = inference ? API_INFERENCE : is_bytes ? API_SAFETENSORS : API_JSON;
    decoder->fields = fields;
    decoder->model = request->name;
    decoder->is_web_form = strcmp(http->media_type, FORM) == 0;
    decoder->json_size = SIZE_MAX;
    decoder->floats = CODEC_TYPE_FP32;
    decoder->stage = decoder->format == API_SAFETENSORS ? DECODER_IN_PREFIX : DECODER_IN_JSON;
    if (inference && !inference_length(http->inference_header, &decoder->json_size)) {
        snprintf(detail, sizeof detail,
                 "Inference-Header-Content-Length is \"%.40s\"; it must be the number of bytes of "
                 "the JSON before the tensors, which is at least 1",
                 http->inference_header);
        reply_problem(request, 400, detail);
        return false;
    }
    return true;
}

bool decoder_open(struct decoder *decoder, const struct codec_options *json) {
    struct codec_options options = *json;
    options.null_key = fields_null_key(decoder->fields);
    if (decoder->format != API_JSON) {
        options = (struct codec_options){.account = json->account};
        options.integers = decoder->format == API_SAFETENSORS; /* all are sizes or offsets */
    }
    if (decoder->format == API_SAFETENSORS || decoder->json_size != SIZE_MAX) {
        options.max_bytes = MOST_REQUEST_JSON;
        options.max_values = MOST_VALUES;
    }
    if (decoder->format == API_INFERENCE) {
        static const char *const data[] = {"data", NULL};
        options.key_level = 3;
        options.infinity_keys = data;
    }
    decoder->account = json->account;
    decoder->reader = codec_reader_create(&options);
    return decoder->reader != NULL;
}

size_t decoder_values(const struct decoder *decoder) {
    return decoder->reader != NULL ? codec_reader_values(decoder->reader) : 0;
}

size_t decoder_bytes(const struct decoder *decoder) {
    if (decoder->reader == NULL) {
        return decoder->text_bytes;
    }
    return decoder->format == API_INFERENCE ? decoder->seen / 2
                                            : codec_reader_bytes(decoder->reader);
}

void decoder_drop(struct decoder *decoder) {
    codec_reader_free(decoder->reader);
    decoder->reader = NULL;
    codec_document_free(decoder->document);
    decoder->document = NULL;
}

static bool refuse(struct codec_error *error, enum codec_status status, const char *format, ...)
    __attribute__((cold, format(printf, 3, 4)));
static bool refuse(struct codec_error *error, enum codec_status status, const char *format, ...) {
    va_list arguments;
    *error = (struct codec_error){.status = status};
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

/* Keeps the error of the reader. The place of a byte counts from the beginning of the body. An
 * error of the Open Inference Protocol is only a text, so the place goes into it. */
static bool refuse_json(const struct decoder *decoder, struct codec_error *error) {
    struct codec_error said = *codec_reader_error(decoder->reader);
    const size_t used = strlen(said.message);
    if (decoder->format == API_SAFETENSORS) {
        said.offset += SAFETENSORS_PREFIX;
        said.column += said.line == 1 ? SAFETENSORS_PREFIX : 0;
    } else if (said.no_json) {
        snprintf(said.message + used, sizeof said.message - used,
                 "; the body must be JSON, such as %s%s",
                 example_of(decoder->format, decoder->fields),
                 decoder->is_web_form ? ", and not a form" : "");
    }
    if (decoder->format == API_INFERENCE && said.pointer[0] != '\0') {
        return refuse(error, said.status, "%s: %s", said.pointer, said.message);
    }
    if (decoder->format == API_INFERENCE && said.has_offset) {
        return refuse(error, said.status, "%s (at byte %zu)", said.message, said.offset);
    }
    *error = said;
    return false;
}

/* ---------------------------------------------------------------------- the JSON before tensors */

/* Lists what a header of safetensors has. "format" names the library that wrote the file. */
static bool list_safetensors(struct build *build, enum codec_type *floats,
                             struct codec_error *error) {
    struct codec_header_tensor list[CODEC_MAX_TENSORS];
    struct codec_safetensors header = {.list = list, .most = CODEC_MAX_TENSORS};
    if (!codec_safetensors_read(build->document, SAFETENSORS_BODY, &header, error)) {
        return false;
    }
    for (size_t i = 0; i < header.count; i++) {
        struct build_tensor tensor = {
            .name = list[i].name,
            .spec = {.type = list[i].type, .rank = list[i].rank, .bytes = list[i].bytes}};
        memcpy(tensor.spec.shape, list[i].shape, sizeof tensor.spec.shape);
        if (!build_add_tensor(build, &tensor, error)) {
            return false;
        }
    }
    if (!build_find_dtype(build, header.metadata, floats, error)) {
        return false;
    }
    const struct codec_value *option =
        header.metadata != NULL ? codec_at(header.metadata, 0) : NULL;
    for (; option != NULL; option = codec_next(option)) {
        if (strcmp(codec_name(option), "format") != 0 &&
            !build_add_option(build, codec_name(option), option, error)) {
            return false;
        }
    }
    return true;
}

/* Ends the JSON and makes the call of it. */
static bool open_tensors(struct decoder *decoder, struct codec_error *error) {
    if (codec_reader_finish(decoder->reader, &decoder->document) != CODEC_OK) {
        return refuse_json(decoder, error);
    }
    codec_reader_free(decoder->reader);
    decoder->reader = NULL;
    decoder->stage = DECODER_IN_TENSORS;
    decoder->stream = account_alloc(decoder->account, sizeof *decoder->stream);
    struct build *build = account_alloc(decoder->account, sizeof *build);
    if (decoder->stream == NULL || build == NULL) {
        return codec_no_memory(error);
    }
    *decoder->stream = (struct codec_stream){0};
    const size_t max_values = decoder->json_size != SIZE_MAX ? MOST_VALUES : 0;
    bool good = build_begin(build, decoder->document, max_values) || codec_no_memory(error);
    good = good &&
           (decoder->format == API_INFERENCE ? inference_read(decoder, build, error)
                                             : list_safetensors(build, &decoder->floats, error));
    good = good && build_end(build, decoder->stream, error);
    account_free(decoder->account, build);
    return good;
}

/* ------------------------------------------------------------------------------------- the body */

/* Takes bytes of the length of a header, which begins a body in safetensors. */
static bool take_prefix(struct decoder *decoder, const unsigned char **bytes, size_t *size,
                        struct codec_error *error) {
    while (*size > 0 && decoder->seen < SAFETENSORS_PREFIX) {
        decoder->prefix[decoder->seen++] = *(*bytes)++;
        --*size;
    }
    if (decoder->seen < SAFETENSORS_PREFIX) {
        return true;
    }
    const uint64_t length = codec_safetensors_length(decoder->prefix);
    if (codec_is_lfs_pointer(decoder->prefix)) {
        return refuse(error, CODEC_SYNTAX, "%s", codec_lfs_pointer);
    }
    if (length > MOST_REQUEST_JSON) {
        return refuse(error, CODEC_TOO_LARGE,
                      "the header of the safetensors has %llu bytes; it may have at most %d, which "
                      "is a fixed limit%s",
                      (unsigned long long)length, MOST_REQUEST_JSON,
                      length > UINT32_MAX ? "; the first 8 bytes of the body are this number, so "
                                            "the body may not be safetensors at all"
                                          : "");
    }
    if (length < 2) {
        return refuse(error, CODEC_SYNTAX,
                      "the header of the safetensors has %llu bytes; the shortest one is {}",
                      (unsigned long long)length);
    }
    decoder->json_size = (size_t)length;
    decoder->seen = 0;
    decoder->stage = DECODER_IN_JSON;
    return true;
}

/* Takes bytes of the JSON. */
static bool take_json(struct decoder *decoder, const unsigned char **bytes, size_t *size,
                      struct codec_error *error) {
    const size_t left = decoder->json_size - decoder->seen, part = *size < left ? *size : left;
    if (decoder->format == API_SAFETENSORS && decoder->seen == 0 && **bytes != '{') {
        return refuse(error, CODEC_SYNTAX, "the header of the safetensors does not begin with {");
    }
    if (codec_reader_feed(decoder->reader, *bytes, part) != CODEC_OK) {
        return refuse_json(decoder, error);
    }
    decoder->seen += part;
    *bytes += part;
    *size -= part;
    return decoder->seen < decoder->json_size || open_tensors(decoder, error);
}

bool decoder_feed(struct decoder *decoder, const void *bytes_, size_t size,
                  struct codec_error *error) {
    const unsigned char *bytes = bytes_;
    bool good = true;
    if (size > 0 && decoder->stage == DECODER_IN_PREFIX) {
        good = take_prefix(decoder, &bytes, &size, error);
    }
    if (good && size > 0 && decoder->stage == DECODER_IN_JSON) {
        good = take_json(decoder, &bytes, &size, error);
    }
    if (good && size > 0) {
        good = codec_stream_feed(decoder->stream, bytes, size, error);
    }
    return good;
}

struct codec_document *decoder_finish(struct decoder *decoder, struct codec_error *error) {
    struct codec_document *document = NULL;
    if (decoder->format == API_JSON) {
        if (codec_reader_finish(decoder->reader, &document) != CODEC_OK) {
            refuse_json(decoder, error);
        }
        return document;
    }
    if (decoder->json_size == SIZE_MAX && decoder->stage == DECODER_IN_JSON &&
        !open_tensors(decoder, error)) {
        return NULL;
    }
    if (decoder->stage != DECODER_IN_TENSORS) {
        const bool prefix = decoder->stage == DECODER_IN_PREFIX;
        refuse(error, CODEC_SYNTAX,
               "the body ends inside its header: %zu of its %zu bytes are there", decoder->seen,
               prefix ? (size_t)SAFETENSORS_PREFIX : decoder->json_size);
        return NULL;
    }
    if (codec_stream_finish(decoder->stream, error)) {
        document = decoder->document;
        decoder->document = NULL;
    }
    return document;
}
