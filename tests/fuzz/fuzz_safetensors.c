/*
 * fuzz_safetensors.c - fuzzes requests in safetensors from their bytes to the answer. The first
 * byte of an input chooses the path, how the body is cut and the limits; the second one chooses the
 * Accept header, the format of the request, and whether the length of its header is made here. The
 * rest is the body. Whatever the body is, the answer must not depend on the cuts, and an answer in
 * safetensors must pass the checks of the format.
 */
#include <stdbool.h>
#include <string.h>

#include "codec/safetensors.h"
#include "fuzz/ask.h"
#include "fuzz/fuzz.h"

/* The bits of the first byte. */
enum {
    PATH = 7 << 0,  /* index in paths[] */
    STEP = 3 << 3,  /* the step of fuzz_ask() */
    TIGHT = 1 << 5, /* the limits are too small for some requests */
    LEAVES = 1 << 6 /* the client leaves in the middle of the body */
};

/* The bits of the second byte. */
enum {
    ACCEPT = 7 << 0, /* index in accepts[] */
    JSON = 1 << 3,   /* the request is JSON */
    PREFIX = 1 << 4  /* the eight bytes of the length stand in front of the body */
};

#define SAFETENSORS "application/vnd.safetensors"

static const char *const paths[] = {"/attention", "/self-attention", "/linear-attention",
                                    "/softmax",   "/embeddings",     "/attention",
                                    "/softmax",   "/embeddings"};
static const struct {
    const char *value;
    int safetensors; /* 1: the answer is safetensors, 0: JSON, -1: as the request */
} accepts[] = {
    {"", -1},
    {SAFETENSORS, 1},
    {"application/json", 0},
    {"*/*", -1},
    {SAFETENSORS ";q=0.5, application/json;q=0.4", 1},
    {SAFETENSORS ";q=0.3, application/json;q=0.4", 0},
    {"text/html, application/*;q=0.9", -1},
    {SAFETENSORS ";q=0", 0},
};

/* Checks one tensor of an answer, which must begin where the last one ended. Returns the offset of
 * its end. `bytes` are the bytes of all tensors, and `before` bytes stand before them. */
static size_t check_tensor(const struct codec_document *document, const struct codec_value *tensor,
                           size_t begin, const char *bytes, size_t size, size_t before) {
    const char *name = codec_name(tensor);
    const enum codec_type type =
        fuzz_type(fuzz_text(document, tensor, "dtype"), codec_safetensors_types);
    const size_t width = codec_type_size(type);
    const size_t whole = fuzz_elements(document, codec_get(tensor, "shape")) * width;
    struct codec_error error;
    int64_t offsets[2];
    size_t count;
    fuzz_require(codec_as_integers(document, codec_get(tensor, "data_offsets"), 0, INT64_MAX,
                                   offsets, 2, &count, &error) &&
                     count == 2,
                 "%s: %s", name, error.message);
    fuzz_require((size_t)offsets[0] == begin && (size_t)offsets[1] == begin + whole &&
                     begin + whole <= size && codec_size(tensor) == 3,
                 "%s lies at %zu", name, begin);
    fuzz_require((before + begin) % width == 0, "%s begins at byte %zu", name, before + begin);
    fuzz_require_numbers(name, type, bytes + begin, whole);
    return begin + whole;
}

/* Checks what the format promises of an answer. The tensors are written in the order of their
 * bytes. */
static void check_file(const struct app_answer *answer) {
    size_t end = 0, count = 0;
    fuzz_require(answer->size >= SAFETENSORS_PREFIX, "%zu bytes", answer->size);
    const size_t length = codec_safetensors_length((const unsigned char *)answer->body);
    const size_t before = SAFETENSORS_PREFIX + length;
    fuzz_require(length <= answer->size - SAFETENSORS_PREFIX && length % 8 == 0 &&
                     answer->body[SAFETENSORS_PREFIX] == '{',
                 "a header of %zu bytes", length);
    struct codec_document *document = fuzz_parse(answer->body + SAFETENSORS_PREFIX, length);
    const struct codec_value *member = codec_at(codec_root(document), 0);
    for (; member != NULL; member = codec_next(member)) {
        if (strcmp(codec_name(member), "__metadata__") == 0) {
            for (const struct codec_value *text = codec_at(member, 0); text != NULL;
                 text = codec_next(text)) {
                fuzz_require(codec_kind_of(text) == CODEC_TEXT, "%s", codec_name(text));
            }
            continue;
        }
        count++;
        end = check_tensor(document, member, end, answer->body + before, answer->size - before,
                           before);
    }
    fuzz_require(count > 0 && before + end == answer->size, "%zu bytes, but %zu are described",
                 answer->size, before + end);
    codec_document_free(document);
}

static void ask(const struct http_request *request, unsigned choice, int wanted,
                const uint8_t *data, size_t size) {
    struct app_answer answer;
    const bool file_came = strcmp(request->media_type, SAFETENSORS) == 0;
    fuzz_ask((choice & TIGHT) != 0, request, data, size, (choice & STEP) >> 3,
             (choice & LEAVES) != 0, &answer);
    if (answer.response.status == 200) {
        const bool file = answer.response.media_type != NULL;
        fuzz_require(file == (wanted < 0 ? file_came : wanted > 0), "%s gets %s", request->accept,
                     answer.response.media_type);
        fuzz_require(!file || strcmp(answer.response.media_type, SAFETENSORS) == 0, "%s",
                     answer.response.media_type);
        if (file) {
            check_file(&answer);
        }
    }
    free(answer.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    const unsigned choice = data[0], form = data[1];
    const struct http_request request = {.method = "POST",
                                         .path = paths[choice & PATH],
                                         .media_type =
                                             (form & JSON) != 0 ? "application/json" : SAFETENSORS,
                                         .accept = accepts[form & ACCEPT].value,
                                         .id = "fuzz"};
    data += 2;
    size -= 2;
    uint8_t *body = malloc(size + SAFETENSORS_PREFIX), *end = body;
    fuzz_require(body != NULL, "out of memory");
    if ((form & PREFIX) != 0) {
        const size_t length = fuzz_json_size(data, size);
        for (int i = 0; i < SAFETENSORS_PREFIX; i++) {
            *end++ = (uint8_t)(length >> 8 * i);
        }
    }
    memcpy(end, data, size);
    ask(&request, choice, accepts[form & ACCEPT].safetensors, body, (size_t)(end - body) + size);
    free(body);
    return 0;
}
