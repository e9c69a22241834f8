/*
 * fuzz_framing.c tries the filter of request heads. An input is a head as it is sent: "METHOD
 * target VERSION", then lines "name:value". Each line ends with LF alone, so that every other byte
 * can stand anywhere. A head that the filter lets through must be sound by the rules of RFC 9110
 * and 9112, which are written here once more. A head that it refuses must have a status that fits
 * and a detail that can be sent. This file does not know JSON bodies.
 */
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "fuzz/ask.h"
#include "fuzz/fuzz.h"
#include "http/asset.h"
#include "http/coding.h"
#include "http/framing.h"
#include "http/http.h"
#include "support/count.h"

/* ------------------------------------------------------------------------------------- the head */

struct head {
    char *method, *target, *version; /* owned */
    struct framing_header headers[FRAMING_MAX_HEADERS + 1];
    size_t count;
};

/* Returns a copy of exactly this size, so that a sanitizer sees a read beyond its end. */
static char *copy(const char *bytes, size_t size) {
    char *block = malloc(size > 0 ? size : 1);
    fuzz_require(block != NULL, "out of memory");
    memcpy(block, bytes, size);
    return block;
}

/* Returns the bytes up to `stop` as a string, which a NUL among them ends. *at moves behind
 * `stop`. */
static char *cut_text(const char **at, const char *end, char stop) {
    const char *found = memchr(*at, stop, (size_t)(end - *at));
    const size_t size = (size_t)((found != NULL ? found : end) - *at);
    char *text = malloc(size + 1);
    fuzz_require(text != NULL, "out of memory");
    memcpy(text, *at, size);
    text[size] = '\0';
    *at = found != NULL ? found + 1 : end;
    return text;
}

static void cut_header(struct framing_header *header, const char *line, const char *end) {
    const char *colon = memchr(line, ':', (size_t)(end - line));
    const char *value = colon != NULL ? colon + 1 : end;
    header->name_size = (size_t)((colon != NULL ? colon : end) - line);
    header->name = copy(line, header->name_size);
    header->value_size = (size_t)(end - value);
    header->value = copy(value, header->value_size);
}

static void cut_head(struct head *head, const char *at, size_t size) {
    const char *end = at + size;
    const char *line_end = memchr(at, '\n', size);
    line_end = line_end != NULL ? line_end : end;
    head->method = cut_text(&at, line_end, ' ');
    head->target = cut_text(&at, line_end, ' ');
    head->version = cut_text(&at, line_end, '\n');
    at = line_end;
    while (at < end && head->count <= FRAMING_MAX_HEADERS) {
        at++; /* LF */
        line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end != NULL ? line_end : end;
        cut_header(&head->headers[head->count++], at, line_end);
        at = line_end;
    }
}

static void free_head(struct head *head) {
    for (size_t i = 0; i < head->count; i++) {
        free((void *)(uintptr_t)head->headers[i].name);
        free((void *)(uintptr_t)head->headers[i].value);
    }
    free(head->method);
    free(head->target);
    free(head->version);
}

/* ------------------------------------------------------------------------------------ the rules */

static bool is(const char *bytes, size_t size, const char *text) {
    return size == strlen(text) && strncasecmp(bytes, text, size) == 0;
}

/* Counts the headers of this name; *last is the last one. */
static size_t headers_named(const struct head *head, const char *name,
                            const struct framing_header **last) {
    size_t count = 0;
    for (size_t i = 0; i < head->count; i++) {
        if (is(head->headers[i].name, head->headers[i].name_size, name)) {
            *last = &head->headers[i];
            count++;
        }
    }
    return count;
}

static void require_sound_text(const struct framing_header *header) {
    fuzz_require(header->name_size > 0, "an empty name");
    for (size_t i = 0; i < header->name_size; i++) {
        const char c = header->name[i];
        fuzz_require(c > ' ' && c < 0x7f && memchr("\"(),/:;<=>?@[\\]{}", c, 17) == NULL,
                     "byte %d in a name", c);
    }
    for (size_t i = 0; i < header->value_size; i++) {
        const unsigned char c = (unsigned char)header->value[i];
        fuzz_require((c >= ' ' || c == '\t') && c != 0x7f, "byte %u in a value", c);
    }
}

static void require_sound_length(const struct head *head, const struct framing_result *result) {
    const struct framing_header *length = NULL, *encoding = NULL;
    const size_t lengths = headers_named(head, "Content-Length", &length);
    const size_t encodings = headers_named(head, "Transfer-Encoding", &encoding);
    fuzz_require(lengths + encodings <= 1, "%zu lengths, %zu encodings", lengths, encodings);
    fuzz_require(lengths == 1 || result->content_length == 0, "%zu lengths", lengths);
    fuzz_require(lengths + encodings == 1 || strchr("GHDO", head->method[0]) != NULL,
                 "a %s without an end of its body", head->method);
    if (encodings == 1) {
        fuzz_require(is(encoding->value, encoding->value_size, "chunked"), "another encoding");
        fuzz_require(strcmp(head->version, "HTTP/1.1") == 0, "%s", head->version);
    }
    if (lengths == 1) {
        uint64_t value = 0;
        bool over = false;
        fuzz_require(length->value_size > 0, "an empty length");
        for (size_t i = 0; i < length->value_size; i++) {
            const unsigned digit = (unsigned char)length->value[i] - '0';
            fuzz_require(digit < 10, "a length with byte %d", length->value[i]);
            over = over || __builtin_mul_overflow(value, 10, &value) ||
                   __builtin_add_overflow(value, digit, &value);
        }
        fuzz_require(result->content_length == (over ? UINT64_MAX : value), "%llu",
                     (unsigned long long)result->content_length);
    }
}

/* Requires that a head that the filter let through is sound. */
static void require_sound(const struct head *head, const struct framing_result *result) {
    static const char *const methods[] = {"GET",    "HEAD",  "POST",   "PUT",
                                          "DELETE", "PATCH", "OPTIONS"};
    const struct framing_header *last = NULL;
    size_t method = 0;
    while (method < COUNT(methods) && strcmp(methods[method], head->method) != 0) {
        method++;
    }
    fuzz_require(method < COUNT(methods), "%s", head->method);
    fuzz_require(strcmp(head->version, "HTTP/1.0") == 0 || strcmp(head->version, "HTTP/1.1") == 0,
                 "%s", head->version);
    fuzz_require(head->count <= FRAMING_MAX_HEADERS, "%zu headers", head->count);
    fuzz_require(result->detail[0] == '\0' && !result->close, "%s", result->detail);
    for (size_t i = 0; i < head->count; i++) {
        const struct framing_header *header = &head->headers[i];
        require_sound_text(header);
        fuzz_require(!is(header->name, header->name_size, "Content-Encoding") ||
                         is(header->value, header->value_size, "identity"),
                     "a body that is compressed");
    }
    require_sound_length(head, result);
    const size_t hosts = headers_named(head, "Host", &last);
    fuzz_require(hosts == 1 || (hosts == 0 && head->version[7] == '0'), "%zu hosts", hosts);
    fuzz_require(headers_named(head, "Inference-Header-Content-Length", &last) <= 1,
                 "two lengths of a header of an inference");
    const size_t expectations = headers_named(head, "Expect", &last);
    fuzz_require(result->expects_continue == (expectations > 0), "%zu expectations", expectations);
    fuzz_require(expectations != 1 || is(last->value, last->value_size, "100-continue"),
                 "another expectation");
}

/* Checks the head with codings allowed: the body has no coding or a known one, and an answer gets a
 * coding that is asked for. */
static void check_codings(struct framing_head *seen) {
    struct framing_result result;
    bool must;
    size_t coded = 0;
    seen->codings = true;
    framing_check(seen, &result);
    for (size_t i = 0; i < seen->count; i++) {
        const struct framing_header *header = &seen->headers[i];
        if (is(header->name, header->name_size, "Content-Encoding") &&
            !is(header->value, header->value_size, "identity")) {
            coded++;
            fuzz_require(result.status != 0 ||
                             result.coding == framing_coding(header->value, header->value_size),
                         "another coding");
        }
    }
    fuzz_require(result.status != 0 ||
                     (coded == (result.coding != CODING_NONE) && result.coding != CODING_UNKNOWN),
                 "%zu codings", coded);
    const enum coding wanted = coding_choose(seen->headers, seen->count, CODINGS_MADE, &must);
    fuzz_require(wanted == CODING_GZIP || wanted == CODING_ZSTD || wanted == CODING_DEFLATE ||
                     (wanted == CODING_NONE && !must),
                 "%d", (int)wanted);
    const struct http_asset asset = {
        .tag = "W/\"tag\"", .plain = {"plain", 5}, .brotli = {"br", 2}};
    struct http_response response = {.status = 200, .asset = &asset};
    const enum coding stored = asset_choose(&response, seen->headers, seen->count);
    fuzz_require(response.status == 304 ||
                     response.body ==
                         (stored == CODING_BROTLI ? asset.brotli.bytes : asset.plain.bytes),
                 "%d", (int)stored);
}

/* Requires that a refusal becomes a valid problem document, whatever bytes its detail quotes. */
static void require_refusal(const struct framing_result *result) {
    static const int statuses[] = {400, 411, 414, 415, 417, 431, 501, 505};
    static const struct http_request request = {
        .method = "GET", .path = "/", .media_type = "", .id = "fuzz"};
    size_t i = 0;
    while (i < COUNT(statuses) && statuses[i] != result->status) {
        i++;
    }
    fuzz_require(i < COUNT(statuses), "%d", result->status);
    fuzz_require(result->close == (result->status != 415), "%d: %d", result->status, result->close);
    fuzz_require(result->detail[0] != '\0' &&
                     memchr(result->detail, '\0', sizeof result->detail) != NULL,
                 "%d", result->status);

    struct http_response response = {0};
    http_problem(&response, &request, result->status, result->detail, NULL, NULL);
    codec_document_free(fuzz_parse(response.body, response.size));
    if (response.release != NULL) {
        response.release((void *)(uintptr_t)response.body);
    }
}

static int hex(char c) {
    const char *digits = "0123456789abcdef";
    const char *found = c == '\0' ? NULL : strchr(digits, c | ('A' <= c && c <= 'F' ? 0x20 : 0));
    return found == NULL ? -1 : (int)(found - digits);
}

static bool is_sound_target(const char *target) {
    if (*target == '\0') {
        return false;
    }
    for (const char *c = target; *c != '\0'; c++) {
        if (*c < '!' || *c > '~' || *c == '\\') {
            return false;
        }
        if (*c == '%') {
            const int high = hex(c[1]), low = high < 0 ? -1 : hex(c[2]), byte = high * 16 + low;
            if (low < 0 || byte < ' ' || byte == 0x7f) {
                return false;
            }
        }
    }
    const size_t path = strcspn(target, "?#");
    /* Each turn looks at one segment of the path; text before the first "/" does not count. */
    for (size_t at = 0; at < path;) {
        at += strcspn(target + at, "/?#");
        if (at < path && target[at] == '/' && strcspn(target + at + 1, "/?#") == 2 &&
            target[at + 1] == '.' && target[at + 2] == '.') {
            return false;
        }
        at++;
    }
    return true;
}

static void check_target(const char *target, enum framing_uri verdict) {
    const enum framing_uri expected = strlen(target) > FRAMING_MAX_URI ? FRAMING_URI_LONG
                                      : is_sound_target(target)        ? FRAMING_URI_SOUND
                                                                       : FRAMING_URI_BAD;
    fuzz_require(verdict == expected, "%d, not %d: %s", verdict, expected, target);
}

/* Requires that the result has the first header of this name. */
static void check_first(const struct head *head, const char *name,
                        const struct framing_header *first) {
    size_t i = 0;
    while (i < head->count && !is(head->headers[i].name, head->headers[i].name_size, name)) {
        i++;
    }
    fuzz_require(first == (i < head->count ? &head->headers[i] : NULL), "header %zu", i);
}

static void check_named(const struct head *head, const struct framing_result *result) {
    char type[32];
    check_first(head, "Content-Type", result->content_type);
    check_first(head, "X-Request-Id", result->request_id);
    check_first(head, "Accept", result->accept);
    check_first(head, "Inference-Header-Content-Length", result->inference_header);
    framing_media_type(result->content_type, type, sizeof type);
    const size_t size = strnlen(type, sizeof type);
    fuzz_require(size < sizeof type && strcspn(type, "; \tABCDEFGHIJKLMNOPQRSTUVWXYZ") == size,
                 "%s", type);
    fuzz_require(size == 0 || strncasecmp(type, result->content_type->value, size) == 0, "%s",
                 type);
    if (framing_is_id(result->request_id)) {
        fuzz_require(result->request_id->value_size - 1 < FRAMING_MAX_ID, "an id of %zu bytes",
                     result->request_id->value_size);
        for (size_t i = 0; i < result->request_id->value_size; i++) {
            const char c = result->request_id->value[i];
            fuzz_require(c > ' ' && c < 0x7f, "byte %d in an id", c);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct head head;
    struct framing_result result;
    head.count = 0;
    cut_head(&head, (const char *)data, size);
    const enum framing_uri uri = framing_check_uri(head.target);
    check_target(head.target, uri);
    struct framing_head seen = {.method = head.method,
                                .version = head.version,
                                .uri = uri,
                                .headers = head.headers,
                                .count = head.count};
    framing_check(&seen, &result);
    if (result.status == 0) {
        fuzz_require(uri == FRAMING_URI_SOUND, "%s", head.target);
        require_sound(&head, &result);
    } else {
        require_refusal(&result);
    }
    check_named(&head, &result);
    check_codings(&seen);
    free_head(&head);
    return 0;
}
