/*
 * fuzz_inference.c - fuzzes requests in the Open Inference Protocol, from bytes to the answer. The
 * first byte of an input chooses the model, how the body is cut, the limits and the header
 * Inference-Header-Content-Length. The rest is the body. Whatever the body is, the answer must not
 * depend on the cuts, an error must be {"error": "text"}, the tensors of a 200 must be as long as
 * its JSON says, and all numbers must be finite.
 */
#include <stdbool.h>
#include <string.h>

#include "fuzz/ask.h"
#include "fuzz/fuzz.h"

/* The bits of the first byte. */
enum {
    PATH = 3 << 0,   /* index in paths[] */
    STEP = 3 << 2,   /* the step of fuzz_ask() */
    TIGHT = 1 << 4,  /* the limits are too small for some requests */
    LEAVES = 1 << 5, /* the client leaves in the middle of the body */
    LENGTH = 3 << 6  /* enum length */
};

/* The header Inference-Header-Content-Length. */
enum length {
    LENGTH_RIGHT = 0 << 6,  /* the number of bytes of the JSON that begins the body */
    LENGTH_NONE = 1 << 6,   /* the whole body is JSON */
    LENGTH_NUMBER = 2 << 6, /* the two bytes before the body, as a number */
    LENGTH_TEXT = 3 << 6    /* the text before the body up to a line feed */
};

enum {
    MOST_OUTPUTS = 64
};

static const char *const paths[] = {
    "/v2/models/attention/infer", "/v2/models/self-attention/versions/1/infer",
    "/v2/models/linear-attention/infer", "/v2/models/softmax/infer"};

/* ---------------------------------------------------------------------------------- the answer */

/* Checks one output. Returns the bytes that it has after the JSON. */
static size_t check_output(const struct codec_document *document, const struct codec_value *output,
                           const char *bytes, size_t left) {
    const char *name = fuzz_text(document, output, "name");
    const char *datatype = fuzz_text(document, output, "datatype");
    const struct codec_value *parameters = codec_get(output, "parameters");
    const struct codec_value *data = codec_get(output, "data");
    const size_t elements = fuzz_elements(document, codec_get(output, "shape"));
    struct codec_error error;
    int64_t size = 0;
    fuzz_require((parameters == NULL) != (data == NULL), "%s has no data, or has them twice", name);
    if (parameters == NULL) {
        size_t shape[ATTN_MAX_RANK];
        const bool numbers = codec_shape(data, shape) == 1;
        fuzz_require((numbers ? shape[0] : codec_size(data)) == elements, "%s: %zu elements", name,
                     elements);
        return 0;
    }
    fuzz_require(codec_as_integer(document, codec_get(parameters, "binary_data_size"), 0, INT64_MAX,
                                  &size, &error),
                 "%s", error.message);
    const enum codec_type type = fuzz_type(datatype, codec_inference_types);
    fuzz_require((size_t)size == elements * codec_type_size(type) && (size_t)size <= left,
                 "%s has %lld bytes, and %zu are left", name, (long long)size, left);
    fuzz_require_numbers(name, type, bytes, (size_t)size);
    return (size_t)size;
}

static void check_inference(const struct app_answer *answer) {
    const char *names[MOST_OUTPUTS];
    const bool binary = answer->response.inference_length > 0;
    const size_t header = binary ? answer->response.inference_length : answer->size;
    size_t at = header, count = 0;
    fuzz_require(header <= answer->size, "a header of %zu bytes", header);
    fuzz_require(
        (answer->response.media_type != NULL) == binary &&
            (!binary || strcmp(answer->response.media_type, "application/octet-stream") == 0),
        "%s", answer->response.media_type);
    struct codec_document *document = fuzz_parse(answer->body, header);
    const struct codec_value *outputs = codec_get(codec_root(document), "outputs");
    fuzz_text(document, codec_root(document), "model_name");
    fuzz_require(strcmp(fuzz_text(document, codec_root(document), "model_version"), "1") == 0, "%s",
                 answer->body);
    fuzz_require(outputs != NULL && codec_kind_of(outputs) == CODEC_ARRAY, "%s", answer->body);
    for (const struct codec_value *output = codec_at(outputs, 0); output != NULL;
         output = codec_next(output)) {
        fuzz_require(count < MOST_OUTPUTS, "%s", answer->body);
        names[count] = fuzz_text(document, output, "name");
        for (size_t i = 0; i < count; i++) {
            fuzz_require(strcmp(names[i], names[count]) != 0, "%s is there twice", names[i]);
        }
        count++;
        at += check_output(document, output, answer->body + at, answer->size - at);
    }
    fuzz_require(count > 0, "no outputs: %s", answer->body);
    fuzz_require(at == answer->size, "%zu bytes, but %zu were described", answer->size, at);
    codec_document_free(document);
}

/* --------------------------------------------------------------------------------- the request */

/* Writes the header Inference-Header-Content-Length, and moves the beginning of the body. Returns
 * the header or NULL. */
static const char *choose_length(unsigned choice, const uint8_t **data, size_t *size,
                                 char text[64]) {
    size_t used = 0;
    switch (choice & LENGTH) {
    case LENGTH_RIGHT:
        snprintf(text, 64, "%zu", fuzz_json_size(*data, *size));
        return text;
    case LENGTH_NUMBER:
        snprintf(text, 64, "%u", *size > 1 ? (*data)[0] | (unsigned)(*data)[1] << 8 : 0);
        used = *size > 1 ? 2 : *size;
        break;
    case LENGTH_TEXT:
        while (used < *size && used < 62 && (*data)[used] != '\n' && (*data)[used] != '\0') {
            text[used] = (char)(*data)[used];
            used++;
        }
        text[used] = '\0';
        used += used < *size;
        break;
    default:
        return NULL;
    }
    *data += used;
    *size -= used;
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[64];
    struct app_answer answer;
    if (size == 0) {
        return 0;
    }
    const unsigned choice = *data++;
    size--;
    const struct http_request request = {.method = "POST",
                                         .path = paths[choice & PATH],
                                         .media_type = "application/octet-stream",
                                         .inference_header =
                                             choose_length(choice, &data, &size, text),
                                         .accept = "",
                                         .id = "fuzz",
                                         .inference = true};
    fuzz_ask((choice & TIGHT) != 0, &request, data, size, (choice & STEP) >> 2,
             (choice & LEAVES) != 0, &answer);
    if (answer.response.status == 200) {
        check_inference(&answer);
    }
    free(answer.body);
    return 0;
}
