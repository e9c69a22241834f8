/*
 * fuzz_request.c - fuzzes a request from its body to its answer in one process: reader, handler,
 * plan, tasks and writer. The first byte of an input chooses the path, the limits, how the body is
 * cut and whether the client stays. The rest is the body. Whatever the body is, the answer must
 * have a status of the API and be valid JSON, and the request must leave no memory behind.
 */
#include <stdbool.h>
#include <string.h>

#include "api/api.h"
#include "fuzz/fuzz.h"

/* The bits of the first byte. */
enum {
    PATH = 3 << 0,   /* index in paths[] */
    STEP = 3 << 2,   /* index in steps[] */
    TIGHT = 1 << 4,  /* the limits are too small for the notebooks */
    LEAVES = 1 << 5, /* the client leaves in the middle of the body */
    WORDS = 1 << 6,  /* the path is /embeddings instead */
    OTHER = 3 << 6   /* both bits: the request is others[bits 0 to 3] and computes nothing */
};

static struct api_state states[] = {
    {.budget = {4 << 20, 8 << 20, 0, 0}, .max_work = 1e7, .timeout = 60, .threads = 2},
    {.budget = {1 << 15, 1 << 17, 0, 0}, .max_work = 1e5, .timeout = 60, .threads = 2},
};

static const char *const paths[] = {"/attention", "/self-attention", "/multi-head-attention",
                                    "/softmax"};
static const size_t steps[] = {SIZE_MAX, 1, 7, 61};

#define JSON "application/json"
#define FORM "application/x-www-form-urlencoded"
/* GET /metrics is not here, because it asks the HTTP server and the workers. */
static const struct http_request others[16] = {
    {.method = "GET", .path = "/health/live", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/health/ready", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/health/ready", .media_type = "", .id = "fuzz", .draining = true},
    {.method = "POST", .path = "/metrics", .media_type = JSON, .id = "fuzz"},
    {.method = "GET", .path = "/version", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/openapi.yaml", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/version", .media_type = "", .id = "fuzz", .head = true},
    {.method = "GET", .path = "/attention", .media_type = "", .id = "fuzz"},
    {.method = "PUT", .path = "/softmax", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/version", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/\xff\"\\\n", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/attention/", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/attention", .media_type = "text/\xff\"\\", .id = "fuzz"},
    {.method = "POST", .path = "/attention", .media_type = "", .id = "fuzz"},
    {.method = "POST", .path = "/softmax", .media_type = FORM, .id = "fuzz"},
    {.method = "POST", .path = "/self-attention", .media_type = JSON, .id = "\"\\~"},
};

/* ---------------------------------------------------------------------------------- the answer */

/* Returns the body and a NUL, owned. The pieces have an odd size, so that their ends lie
 * everywhere. */
static char *read_body(const struct http_response *response, size_t *size) {
    enum {
        ROOM = 4099
    };
    if (response->read == NULL) {
        char *text = malloc(response->size + 1);
        fuzz_require(text != NULL, "out of memory");
        memcpy(text, response->body, response->size);
        text[ *size = response->size] = '\0';
        return text;
    }
    fuzz_require(response->size == 0, "%zu bytes of a body that is still made", response->size);
    char *text = NULL, *piece = malloc(ROOM); /* a sanitizer sees a write beyond it */
    size_t part;
    *size = 0;
    do {
        text = realloc(text, *size + ROOM + 1);
        fuzz_require(text != NULL && piece != NULL, "out of memory");
        fuzz_require(response->read((void *)(uintptr_t)response->body, piece, ROOM, &part),
                     "a body that breaks off after %zu bytes", *size);
        fuzz_require(part <= ROOM, "%zu bytes in a room of %d", part, ROOM);
        memcpy(text + *size, piece, part);
        *size += part;
    } while (part == ROOM);
    fuzz_require(response->read((void *)(uintptr_t)response->body, piece, ROOM, &part) && part == 0,
                 "there is more behind the end");
    free(piece);
    text[*size] = '\0';
    return text;
}

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
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    return *at == '{' || *at == '[' ? skip_members(at)
           : *at == '"'             ? skip_string(at)
                                    : skip_number(at);
}

static void require_json(const char *text, size_t size) {
    const char *end = skip_value(text);
    fuzz_require(end != NULL && strcmp(end, "\n") == 0 && end + 1 == text + size,
                 "no JSON and a newline: %.2000s", text);
}

static struct codec_document *read_problem(const char *text, size_t size) {
    struct codec_document *document;
    struct codec_reader *reader = codec_reader_create(NULL);
    fuzz_require(reader != NULL, "out of memory");
    codec_reader_feed(reader, text, size);
    fuzz_require(codec_reader_finish(reader, &document) == CODEC_OK, "%s: %s",
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

static void check_problem(const struct http_response *response, const char *text, size_t size,
                          size_t body_size) {
    struct codec_document *document = read_problem(text, size);
    struct codec_error error;
    const char *detail = "", *pointer = "/";
    const struct codec_value *value = codec_get(codec_root(document), "detail");
    fuzz_require(value != NULL && codec_as_text(document, value, &detail, &error) && *detail, "%s",
                 text);
    /* There is enough memory, so another error would hide behind this message. */
    fuzz_require(strcmp(detail, "the server has no memory left for this request") != 0, "%s", text);
    value = codec_get(codec_root(document), "pointer");
    fuzz_require(value == NULL || (codec_as_text(document, value, &pointer, &error) &&
                                   (*pointer == '/' || *pointer == '\0')),
                 "%s", text);
    const double status = number_of(document, "status", 0);
    const double offset = number_of(document, "offset", 0);
    fuzz_require(status >= response->status && status <= response->status, "%s", text);
    fuzz_require(offset >= 0 && offset <= (double)body_size, "%zu bytes: %s", body_size, text);
    fuzz_require(strcmp(response->media_type, "application/problem+json") == 0, "%s",
                 response->media_type);
    fuzz_require((response->status == 405) == (response->allow != NULL), "%d", response->status);
    codec_document_free(document);
}

static void check_answer(const struct http_response *response, size_t body_size) {
    static const int statuses[] = {200, 400, 404, 405, 413, 415, 422, 503};
    size_t i = 0, size;
    while (i < sizeof statuses / sizeof *statuses && statuses[i] != response->status) {
        i++;
    }
    fuzz_require(i < sizeof statuses / sizeof *statuses, "%d", response->status);
    char *text = read_body(response, &size);
    if (response->status != 200) {
        require_json(text, size);
        check_problem(response, text, size, body_size);
    } else if (response->media_type == NULL) {
        require_json(text, size); /* NaN and Infinity occur only inside strings */
    }
    free(text);
}

/* --------------------------------------------------------------------------------- the request */

/* Gives the body to the app until it wants no more. */
static void feed(const struct http_app *app, void *exchange, const uint8_t *data, size_t size,
                 size_t step) {
    bool wanted = true;
    for (size_t at = 0; wanted && at < size;) {
        const size_t part = step < size - at ? step : size - at;
        char *piece = malloc(part);
        fuzz_require(piece != NULL, "out of memory");
        memcpy(piece, data + at, part);
        wanted = app->body(exchange, piece, part);
        free(piece);
        at += part;
    }
}

static void ask(struct api_state *state, const struct http_request *asked, const uint8_t *data,
                size_t size, size_t step, bool leaves) {
    const struct http_app app = api_app(state);
    struct http_request with_key = *asked;
    const struct http_request *request = &with_key;
    struct http_response response = {0};
    with_key.authorized = true;
    void *exchange = app.begin(app.context, request, &response);
    if (exchange != NULL) {
        fuzz_require(response.status == 0, "%d", response.status);
        feed(&app, exchange, data, leaves ? size / 2 : size, step);
        fuzz_require(leaves || app.end(exchange, request, &response),
                     "the answer comes later, but there are no workers");
    }
    if (response.status != 0) {
        check_answer(&response, size);
    }
    fuzz_require(leaves || response.status != 0, "no answer");
    if (response.release != NULL) {
        response.release((void *)(uintptr_t)response.body);
    }
    if (exchange != NULL) {
        app.release(exchange);
    }
    const struct http_record record = {.status = response.status,
                                       .received = size,
                                       .timing = response.timed ? response.timing : NULL};
    app.completed(app.context, request, &record);
    fuzz_require(state->budget.used == 0, "%zu bytes remain", (size_t)state->budget.used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const unsigned choice = data[0];
    if ((choice & OTHER) == OTHER) {
        ask(&states[0], &others[choice & 15], data + 1, size - 1, SIZE_MAX, false);
        return 0;
    }
    const struct http_request request = {.method = "POST",
                                         .path = (choice & WORDS) != 0 ? "/embeddings"
                                                                       : paths[choice & PATH],
                                         .media_type = JSON,
                                         .id = "fuzz"};
    ask(&states[(choice & TIGHT) != 0], &request, data + 1, size - 1, steps[(choice & STEP) >> 2],
        (choice & LEAVES) != 0);
    return 0;
}
