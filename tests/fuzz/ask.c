/* ask.c - gives a body to the app, and checks what holds for every answer. */
#include "fuzz/ask.h"

#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "support/count.h"

/* ----------------------------------------------------------------------------------------- JSON */

/* These functions follow the grammar of RFC 8259 without white space. Each returns the end of the
 * value that begins at `at`, or NULL if it is not valid. The reader cannot be used here, because it
 * refuses the ragged arrays of heads that differ in size. cJSON cannot, because it accepts texts
 * that are not JSON. */
static const char *skip_value(const char *at);

static const char *skip_string(const char *at) {
    for (at++; *at != '"'; at++) {
        if ((unsigned char)*at < ' ') {
            return NULL;
        }
        if (*at == '\\' && (*++at == '\0' || strchr("\"\\/bfnrtu", *at) == NULL)) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *skip_number(const char *at) {
    static const char digits[] = "0123456789";
    at += *at == '-';
    size_t size = strspn(at, digits);
    if (size == 0 || (size > 1 && *at == '0')) {
        return NULL;
    }
    at += size;
    if (*at == '.') {
        size = strspn(++at, digits);
        at += size;
    }
    if (size > 0 && (*at == 'e' || *at == 'E')) {
        at += at[1] == '-' || at[1] == '+' ? 2 : 1;
        size = strspn(at, digits);
        at += size;
    }
    return size > 0 ? at : NULL;
}

static const char *skip_members(const char *at) {
    const char close = *at == '{' ? '}' : ']';
    if (*++at == close) {
        return at + 1;
    }
    for (;; at++) {
        if (close == '}') {
            at = *at == '"' ? skip_string(at) : NULL;
            if (at == NULL || *at++ != ':') {
                return NULL;
            }
        }
        at = skip_value(at);
        if (at == NULL || *at == close) {
            return at == NULL ? NULL : at + 1;
        }
        if (*at != ',') {
            return NULL;
        }
    }
}

static const char *skip_value(const char *at) {
    static const char *const words[] = {"null", "true", "false"};
    for (size_t i = 0; i < COUNT(words); i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    return *at == '{' || *at == '[' ? skip_members(at)
           : *at == '"'             ? skip_string(at)
                                    : skip_number(at);
}

/* Requires that a text is valid JSON and a newline. A NUL follows the text. */
static void require_json(const char *text, size_t size) {
    const char *end = skip_value(text);
    fuzz_require(end != NULL && strcmp(end, "\n") == 0 && end + 1 == text + size,
                 "no JSON and a newline: %.2000s", text);
}

size_t fuzz_json_size(const uint8_t *bytes, size_t size) {
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        if (quoted && bytes[i] == '\\') {
            i++;
        } else if (bytes[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && (bytes[i] == '{' || bytes[i] == '[')) {
            depth++;
        } else if (!quoted && (bytes[i] == '}' || bytes[i] == ']') && --depth == 0) {
            return i + 1;
        } else if (depth == 0) {
            return 0;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------------------------- the answer */

struct codec_document *fuzz_parse(const char *text, size_t size) {
    struct codec_document *document;
    struct codec_reader *reader = codec_reader_create(NULL);
    fuzz_require(reader != NULL, "out of memory");
    codec_reader_feed(reader, text, size);
    fuzz_require(codec_reader_finish(reader, &document) == CODEC_OK, "%s: %.2000s",
                 codec_reader_error(reader)->message, text);
    codec_reader_free(reader);
    return document;
}

static double number_of(const struct codec_document *document, const char *name, double otherwise) {
    const struct codec_value *value = codec_get(codec_root(document), name);
    struct codec_error error;
    double number;
    return value != NULL && codec_as_number(document, value, &number, &error) ? number : otherwise;
}

/* Checks the text that says what was wrong. */
static void check_detail(const struct codec_document *document, const char *key, const char *text) {
    const struct codec_value *value = codec_get(codec_root(document), key);
    struct codec_error error;
    const char *detail = "";
    fuzz_require(value != NULL && codec_as_text(document, value, &detail, &error) && *detail, "%s",
                 text);
    /* There is enough memory, so another error would hide behind this message. */
    fuzz_require(strcmp(detail, "the server has no memory left for this request") != 0, "%s", text);
}

static void check_problem(const struct http_response *response, const char *text, size_t size,
                          size_t body_size) {
    struct codec_document *document = fuzz_parse(text, size);
    struct codec_error error;
    const char *pointer = "/";
    check_detail(document, "detail", text);
    const struct codec_value *value = codec_get(codec_root(document), "pointer");
    fuzz_require(value == NULL || (codec_as_text(document, value, &pointer, &error) &&
                                   (*pointer == '/' || *pointer == '\0')),
                 "%s", text);
    const double status = number_of(document, "status", 0);
    const double offset = number_of(document, "offset", 0);
    fuzz_require(status >= response->status && status <= response->status, "%s", text);
    fuzz_require(offset >= 0 && offset <= (double)body_size, "%zu bytes: %s", body_size, text);
    fuzz_require(strcmp(response->media_type, "application/problem+json") == 0, "%s",
                 response->media_type);
    codec_document_free(document);
}

/* Checks an error of the Open Inference Protocol, which has one member. */
static void check_bare_error(const struct http_response *response, const char *text, size_t size) {
    struct codec_document *document = fuzz_parse(text, size);
    check_detail(document, "error", text);
    fuzz_require(codec_size(codec_root(document)) == 1, "%s", text);
    fuzz_require(strcmp(response->media_type, "application/json") == 0, "%s", response->media_type);
    codec_document_free(document);
}

static void check_answer(const struct http_request *request, const struct app_answer *answer,
                         size_t body_size) {
    const struct http_response *response = &answer->response;
    static const int statuses[] = {200, 400, 404, 405, 413, 415, 422, 503};
    size_t i = 0;
    while (i < COUNT(statuses) && statuses[i] != response->status) {
        i++;
    }
    fuzz_require(i < COUNT(statuses), "%d", response->status);
    fuzz_require((response->status == 405) == (response->allow != NULL), "%d", response->status);
    if (response->status != 200) {
        require_json(answer->body, answer->size);
        fuzz_require(response->inference_length == 0, "an error with binary tensors");
        if (request->inference) {
            check_bare_error(response, answer->body, answer->size);
        } else {
            check_problem(response, answer->body, answer->size, body_size);
        }
    } else if (response->media_type == NULL) {
        require_json(answer->body, answer->size); /* NaN is only inside of strings */
    }
}

/* --------------------------------------------------------------------------------- the request */

static struct api_state states[] = {
    {.budget = {4 << 20, 8 << 20, 0, 0}, .max_work = 1e7, .timeout = 60, .threads = 2},
    {.budget = {1 << 15, 1 << 17, 0, 0}, .max_work = 1e5, .timeout = 60, .threads = 2},
};

void fuzz_serve_layers(struct layers *layers) {
    states[0].layers = states[1].layers = layers;
}

void fuzz_ask(bool tight, const struct http_request *request, const uint8_t *data, size_t size,
              unsigned step, bool leaves, struct app_answer *answer) {
    static const size_t steps[] = {SIZE_MAX, 1, 7, 61};
    struct api_state *state = &states[tight];
    const struct http_app app = api_app(state);
    const struct http_response *response = &answer->response;
    app_ask(&app, request, &(struct app_body){data, size, steps[step], leaves}, answer);
    fuzz_require(answer->fault == NULL, "%s", answer->fault);
    fuzz_require(leaves || response->status != 0, "no answer");
    if (response->status != 0) {
        check_answer(request, answer, size);
    }
    const struct http_record record = {.status = response->status,
                                       .received = size,
                                       .timing = response->timed ? response->timing : NULL};
    app.completed(app.context, request, &record);
    fuzz_require(state->budget.used == 0, "%zu bytes remain", (size_t)state->budget.used);
    if (step > 0 && !tight && !leaves) {
        struct app_answer whole;
        fuzz_ask(false, request, data, size, 0, false, &whole);
        fuzz_require(response->status == whole.response.status &&
                         response->inference_length == whole.response.inference_length &&
                         answer->size == whole.size &&
                         memcmp(answer->body, whole.body, whole.size) == 0,
                     "with step %u: %d %.1000s, but whole: %d %.1000s", step, response->status,
                     answer->body, whole.response.status, whole.body);
        free(whole.body);
    }
}

/* --------------------------------------------------------------------------------- the tensors */

const char *fuzz_text(const struct codec_document *document, const struct codec_value *object,
                      const char *key) {
    const struct codec_value *value = codec_get(object, key);
    struct codec_error error;
    const char *text = NULL;
    fuzz_require(value != NULL && codec_as_text(document, value, &text, &error), "no text %s", key);
    return text;
}

enum codec_type fuzz_type(const char *name, const char *const names[static CODEC_TYPE_COUNT]) {
    size_t type = 0;
    while (type < CODEC_TYPE_COUNT && strcmp(names[type], name) != 0) {
        type++;
    }
    fuzz_require(type < CODEC_TYPE_COUNT, "the datatype %s", name);
    return (enum codec_type)type;
}

size_t fuzz_elements(const struct codec_document *document, const struct codec_value *shape) {
    int64_t axes[ATTN_MAX_RANK];
    struct codec_error error;
    size_t count = 0, elements = 1;
    fuzz_require(shape != NULL, "no shape");
    if (codec_kind_of(shape) == CODEC_TENSOR) {
        fuzz_require(
            codec_as_integers(document, shape, 1, INT64_MAX, axes, ATTN_MAX_RANK, &count, &error) &&
                count <= ATTN_MAX_RANK,
            "%s", error.message);
    }
    for (size_t axis = 0; axis < count; axis++) {
        elements *= (size_t)axes[axis];
    }
    return elements;
}

/* Returns whether a result may hold minus infinity, which stands for a forbidden key. */
static bool may_be_infinite(const char *name) {
    return strcmp(name, "lse") == 0 || strcmp(name, "masked_scores") == 0;
}

void fuzz_require_numbers(const char *name, enum codec_type type, const char *bytes, size_t size) {
    for (size_t at = 0; at < size; at += codec_type_size(type)) {
        float narrow = 0;
        double number = 0;
        uint16_t half = 0;
        uint32_t bits;
        switch (type) {
        case CODEC_TYPE_FP64:
            memcpy(&number, bytes + at, sizeof number);
            break;
        case CODEC_TYPE_FP32:
            memcpy(&narrow, bytes + at, sizeof narrow);
            number = (double)narrow;
            break;
        case CODEC_TYPE_FP16: /* only the exponent matters here */
            memcpy(&half, bytes + at, sizeof half);
            number = (half & 0x7C00) != 0x7C00 ? 1
                     : half == 0xFC00          ? -(double)INFINITY
                                               : (double)NAN;
            break;
        case CODEC_TYPE_BF16:
            memcpy(&half, bytes + at, sizeof half);
            bits = (uint32_t)half << 16;
            memcpy(&narrow, &bits, sizeof narrow);
            number = (double)narrow;
            break;
        default:
            return;
        }
        fuzz_require(isfinite(number) || (number < 0 && may_be_infinite(name)), "%s has %g at %zu",
                     name, number, at);
    }
}
