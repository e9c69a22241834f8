/*
 * framing.c checks the rules of RFC 9110 and 9112 whose breach lets two parties disagree on where a
 * request ends, and a few limits. Chunk extensions and trailers cannot be seen from here, because
 * libmicrohttpd has already read them (0.9.75 takes both, 1.0.1 only trailers). Version 0.9.75 also
 * takes folded headers, bare LF, and NUL in the target or in a value, without a word; they are
 * found by the bytes between the parts that it hands over.
 */
#include "http/framing.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"};

/* Returns whether the target is visible ASCII without '\', and each '%' is followed by two
 * hexadecimal digits that do not encode a control character. */
static bool is_target_text(const char *raw) {
    for (const char *c = raw; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~' || *c == '\\') {
            return false;
        }
        if (*c == '%' && (!isxdigit((unsigned char)c[1]) || !isxdigit((unsigned char)c[2]) ||
                          c[1] < '2' || (c[1] == '7' && tolower((unsigned char)c[2]) == 'f'))) {
            return false;
        }
    }
    return true;
}

/* Returns whether the path has a segment "..". No honest request has one, because clients resolve
 * it before they send. */
static bool has_parent_segment(const char *raw) {
    size_t path = strcspn(raw, "?#");
    for (size_t i = 0; i + 3 <= path; i++) {
        if (memcmp(raw + i, "/..", 3) == 0 && (i + 3 == path || raw[i + 3] == '/')) {
            return true;
        }
    }
    return false;
}

enum framing_uri framing_check_uri(const char *raw) {
    if (strnlen(raw, FRAMING_MAX_URI + 1) > FRAMING_MAX_URI) {
        return FRAMING_URI_LONG;
    }
    if (raw[0] == '\0' || !is_target_text(raw) || has_parent_segment(raw)) {
        return FRAMING_URI_BAD;
    }
    return FRAMING_URI_SOUND;
}

/* The characters of a token (RFC 9110 section 5.6.2). */
static bool is_tchar(char c) {
    return isalnum((unsigned char)c) || c == '-' ||
           (c != '\0' && strchr("!#$%&'*+.^_`|~", c) != NULL);
}

static bool is_token(const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (!is_tchar(bytes[i])) {
            return false;
        }
    }
    return size > 0;
}

static bool is_field_value(const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if ((c < ' ' && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

/* The compiler knows the length of a text that is a literal, because this is inline. */
static inline bool is_equal(const char *bytes, size_t size, const char *text) {
    return size == strlen(text) && strncasecmp(bytes, text, size) == 0;
}

__attribute__((cold, format(printf, 3, 4))) static void
set_refusal(struct framing_result *result, int status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result->detail, sizeof result->detail, format, arguments);
    va_end(arguments);
    result->status = status;
    result->close = true;
}

static void check_target(const struct framing_head *head, struct framing_result *result) {
    size_t method = 0;
    while (method < sizeof methods / sizeof *methods &&
           strcmp(head->method, methods[method]) != 0) {
        method++;
    }
    if (strcmp(head->version, "HTTP/1.1") != 0 && strcmp(head->version, "HTTP/1.0") != 0) {
        set_refusal(result, 505, "the version must be HTTP/1.1 or HTTP/1.0; this one is \"%.16s\"",
                    head->version);
    } else if (head->uri == FRAMING_URI_LONG) {
        set_refusal(result, 414, "a request target has at most %d bytes", FRAMING_MAX_URI);
    } else if (head->uri == FRAMING_URI_BAD) {
        set_refusal(
            result, 400,
            "a request target is visible ASCII without \"\\\", \"/../\" and encoded control "
            "characters, and each %% is followed by two hexadecimal digits");
    } else if (method == sizeof methods / sizeof *methods) {
        set_refusal(result, 501, "the method \"%.32s\" is not known here; methods are upper case",
                    head->method);
    }
}

static void check_fields(const struct framing_head *head, struct framing_result *result) {
    if (head->count > FRAMING_MAX_HEADERS) {
        set_refusal(result, 431, "a request has at most %d header fields", FRAMING_MAX_HEADERS);
        return;
    }
    for (size_t i = 0; i < head->count && result->status == 0; i++) {
        const struct framing_header *header = &head->headers[i];
        int shown = header->name_size < 48 ? (int)header->name_size : 48;
        if (!is_token(header->name, header->name_size)) {
            set_refusal(result, 400, "a header name is a token of RFC 9110, not \"%.*s\"", shown,
                        header->name);
        } else if (!is_field_value(header->value, header->value_size)) {
            set_refusal(result, 400, "the header %.*s holds a control character", shown,
                        header->name);
        }
    }
}

/* Returns whether the CR and the LF of a line end were here: the parser has put NUL for both. */
static bool is_line_end(const char *at) {
    return at[0] == '\0' && at[1] == '\0';
}

/* Returns where the value begins if only a colon and white space are between it and the name. */
static const char *value_behind(const struct framing_header *header) {
    const char *behind = header->name + header->name_size + 1;
    return behind + strspn(behind, " \t");
}

/* Returns whether the head consists of its parts alone, with one space or CR LF between them.
 * libmicrohttpd 0.9.75 moves the name of a folded header elsewhere and appends the folded line to
 * it. A bare LF leaves one NUL instead of two, and a NUL makes a part end early. So each part must
 * begin right where the part before it ends, and the last part must end with the head. */
static bool is_seamless(const struct framing_head *head) {
    const char *at = head->method + strlen(head->method);
    if (head->target != at + 1 || head->version != head->target + head->target_size + 1) {
        return false;
    }
    at = head->version + strlen(head->version);
    for (size_t i = 0; i < head->count; i++) {
        const struct framing_header *header = &head->headers[i];
        if (!is_line_end(at) || header->name != at + 2 || header->value != value_behind(header)) {
            return false;
        }
        at = header->value + header->value_size;
    }
    return at + 4 == head->method + head->size && is_line_end(at) && is_line_end(at + 2);
}

static void check_seams(const struct framing_head *head, struct framing_result *result) {
    if (head->target != NULL && !is_seamless(head)) {
        set_refusal(
            result, 400,
            "each line of a head ends with CR LF and begins neither with white space nor with a "
            "colon, no byte is NUL, and there is one space on each side of the target");
    }
}

bool framing_is(const struct framing_header *header, const char *name) {
    return is_equal(header->name, header->name_size, name);
}

/* Counts the headers of this name. *first becomes the first one, or NULL. */
static inline __attribute__((always_inline)) size_t
find_headers(const struct framing_head *head, const char *name,
             const struct framing_header **first) {
    size_t count = 0;
    *first = NULL;
    for (size_t i = 0; i < head->count; i++) {
        if (framing_is(&head->headers[i], name) && count++ == 0) {
            *first = &head->headers[i];
        }
    }
    return count;
}

/* Reads a Content-Length, which saturates. Returns false if it does not consist of digits. */
static bool read_length(const struct framing_header *header, uint64_t *length) {
    *length = 0;
    for (size_t i = 0; i < header->value_size; i++) {
        if (header->value[i] < '0' || header->value[i] > '9') {
            return false;
        }
        uint64_t digit = (uint64_t)(header->value[i] - '0');
        *length = *length > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *length * 10 + digit;
    }
    return header->value_size > 0;
}

/* Returns whether a request with this method has a body. If such a request does not say where its
 * body ends, the header that said so may have been lost on the way, and the body would be taken for
 * the next request. */
static bool announces_body(const char *method) {
    return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
           strcmp(method, "PATCH") == 0;
}

static void check_body_length(const struct framing_head *head, struct framing_result *result) {
    const struct framing_header *length, *encoding;
    size_t lengths = find_headers(head, "Content-Length", &length);
    size_t encodings = find_headers(head, "Transfer-Encoding", &encoding);
    if (lengths > 1) {
        set_refusal(result, 400, "a request has one Content-Length; this one has %zu", lengths);
    } else if (lengths > 0 && encodings > 0) {
        set_refusal(result, 400, "a request has Content-Length or Transfer-Encoding, not both");
    } else if (encodings > 0 && strcmp(head->version, "HTTP/1.0") == 0) {
        set_refusal(result, 400, "HTTP/1.0 has no Transfer-Encoding");
    } else if (encodings > 1) {
        set_refusal(result, 400, "a request has one Transfer-Encoding; this one has %zu",
                    encodings);
    } else if (encodings == 1 && !is_equal(encoding->value, encoding->value_size, "chunked")) {
        set_refusal(result, 501, "the Transfer-Encoding must be \"chunked\"; this one is \"%.*s\"",
                    encoding->value_size < 48 ? (int)encoding->value_size : 48, encoding->value);
    } else if (lengths == 1 && !read_length(length, &result->content_length)) {
        set_refusal(result, 400, "a Content-Length is a decimal number");
    } else if (lengths == 0 && encodings == 0 && announces_body(head->method)) {
        set_refusal(result, 411,
                    "the request has no Content-Length and no chunks; send JSON as the body, for "
                    "example with curl -d '{}'");
    }
}

static const char inference_header[] = "Inference-Header-Content-Length";

static void check_names(const struct framing_head *head, struct framing_result *result) {
    const struct framing_header *header;
    size_t hosts = find_headers(head, "Host", &header);
    if (hosts > 1 || (hosts == 0 && strcmp(head->version, "HTTP/1.1") == 0)) {
        set_refusal(result, 400, "an HTTP/1.1 request has one Host header; this one has %zu",
                    hosts);
        return;
    }
    /* Two parties could disagree on which of two counts. */
    static const char *const single[] = {inference_header, "Content-Type", "Authorization"};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        const size_t count = find_headers(head, single[i], &header);
        if (count > 1) {
            set_refusal(result, 400, "a request has one %s; this one has %zu", single[i], count);
            return;
        }
    }
    if (find_headers(head, "Expect", &header) > 0) {
        if (is_equal(header->value, header->value_size, "100-continue")) {
            result->expects_continue = true;
        } else {
            set_refusal(result, 417, "the only expectation that can be met is 100-continue");
        }
    }
}

enum coding framing_coding(const char *name, size_t size) {
    static const char *const names[] = {"identity", "gzip", "x-gzip", "zstd", "br", "deflate"};
    static const enum coding codings[] = {CODING_NONE, CODING_GZIP,   CODING_GZIP,
                                          CODING_ZSTD, CODING_BROTLI, CODING_DEFLATE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_equal(name, size, names[i])) {
            return codings[i];
        }
    }
    return CODING_UNKNOWN;
}

/* Checks the coding of the body. A compressed body is well framed, so the connection stays usable
 * if the coding is refused. */
static void check_coding(const struct framing_head *head, struct framing_result *result) {
    for (size_t i = 0; i < head->count; i++) {
        const struct framing_header *header = &head->headers[i];
        const enum coding coding = framing_is(header, "Content-Encoding")
                                       ? framing_coding(header->value, header->value_size)
                                       : CODING_NONE;
        if (coding == CODING_NONE) {
            continue;
        }
        if (!head->codings || coding >= CODING_BROTLI || result->coding != CODING_NONE) {
            set_refusal(result, 415,
                        head->codings
                            ? "the Content-Encoding must be gzip, zstd, deflate or identity, and "
                              "only one of them; this one is \"%.*s\""
                            : "the Content-Encoding must be identity, not \"%.*s\": the operator "
                              "of this server allows others with --compression yes",
                        header->value_size < 48 ? (int)header->value_size : 48, header->value);
            result->close = false;
            return;
        }
        result->coding = coding;
    }
}

void framing_check(const struct framing_head *head, struct framing_result *result) {
    static void (*const checks[])(const struct framing_head *, struct framing_result *) = {
        check_target, check_fields, check_seams, check_body_length, check_names, check_coding,
    };
    *result = (struct framing_result){0};
    for (size_t i = 0; i < sizeof checks / sizeof *checks && result->status == 0; i++) {
        checks[i](head, result);
    }
    find_headers(head, "Content-Type", &result->content_type);
    find_headers(head, "X-Request-Id", &result->request_id);
    find_headers(head, "Authorization", &result->authorization);
    find_headers(head, "Origin", &result->origin);
    find_headers(head, "Accept", &result->accept);
    find_headers(head, inference_header, &result->inference_header);
    const struct framing_header *asked;
    result->is_preflight = strcmp(head->method, "OPTIONS") == 0 &&
                           find_headers(head, "Access-Control-Request-Method", &asked) > 0;
}

void framing_media_type(const struct framing_header *header, char *out, size_t size) {
    size_t length = 0;
    for (size_t i = 0; header != NULL && i < header->value_size && length + 1 < size; i++) {
        char c = header->value[i];
        if (c == ';' || c == ' ' || c == '\t') {
            break;
        }
        out[length++] = c >= 'A' && c <= 'Z' ? (char)(c | ' ') : c;
    }
    out[length] = '\0';
}

bool framing_is_id(const struct framing_header *header) {
    if (header == NULL || header->value_size == 0 || header->value_size > FRAMING_MAX_ID) {
        return false;
    }
    for (size_t i = 0; i < header->value_size; i++) {
        if (header->value[i] <= ' ' || header->value[i] > '~') {
            return false;
        }
    }
    return true;
}
