/*
 * problem.c writes problem documents (RFC 9457) without a JSON library. The texts that it is given
 * may hold any bytes and may end in the middle of a character; what it writes is always JSON.
 */
#include "http/http.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 2048 /* bytes of a detail, a pointer or an id; what follows them is cut off */
};

const char *http_title(int status) {
#define CASE(code, title)                                                                          \
    case code:                                                                                     \
        return title;
    switch (status) {
        HTTP_STATUSES(CASE)
    default:
        return "Unknown";
    }
#undef CASE
}

static bool is_continuation(unsigned char c) {
    return (c & 0xc0) == 0x80;
}

/* Returns the length of the well-formed UTF-8 character (Unicode 15, table 3-7) at `text`, of which
 * `left` bytes are left. Returns 0 if no character begins there, and left + 1 if the end of the
 * text cuts the character off. */
static size_t character_size(const unsigned char *text, size_t left) {
    unsigned char lead = text[0];
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4) {
        return 0;
    }
    size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (left > 1 && (text[1] < low || text[1] > high)) {
        return 0;
    }
    for (size_t i = 2; i < size && i < left; i++) {
        if (!is_continuation(text[i])) {
            return 0;
        }
    }
    return size <= left ? size : left + 1;
}

/* Writes `text` as a JSON string: two quotes, and at most 6 bytes for each byte of the text. */
static char *put_string(char *out, const char *text) {
    size_t size = strnlen(text, MAX_TEXT);
    const unsigned char *c = (const unsigned char *)text;
    const unsigned char *end = c + size;
    *out++ = '"';
    while (c < end) {
        size_t width = character_size(c, (size_t)(end - c));
        if (width > (size_t)(end - c)) {
            break;
        }
        if (width == 0) {
            out = stpcpy(out, "\xef\xbf\xbd"); /* U+FFFD stands for a byte that is no UTF-8 */
            width = 1;
        } else if (*c == '"' || *c == '\\') {
            *out++ = '\\';
            *out++ = (char)*c;
        } else if (*c < 0x20 || *c == 0x7f) {
            out += snprintf(out, 7, "\\u%04x", *c);
        } else {
            memcpy(out, c, width);
            out += width;
        }
        c += width;
    }
    *out++ = '"';
    return out;
}

static char *put_member(char *out, const char *name, const char *value) {
    *out++ = ',';
    out = put_string(out, name);
    *out++ = ':';
    return put_string(out, value);
}

static void no_memory(struct http_response *response, bool inference) {
    static const char body[] =
        "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
        "\"detail\":\"out of memory\"}\n";
    static const char error_body[] = "{\"error\":\"out of memory\"}\n";
    response->status = 503;
    response->body = inference ? error_body : body;
    response->size = (inference ? sizeof error_body : sizeof body) - 1;
    response->release = NULL;
}

/* Writes the whole document. The result has at most 320 bytes for names, title and numbers, and 6
 * for each byte of the other texts. */
static char *put_problem(char *out, const struct http_request *request, int status,
                         const char *detail, const char *pointer, const struct http_place *place) {
    out = stpcpy(out, "{\"type\":\"about:blank\"");
    out = put_member(out, "title", http_title(status));
    out += sprintf(out, ",\"status\":%d", status);
    out = put_member(out, "detail", detail);
    if (pointer != NULL) {
        out = put_member(out, "pointer", pointer);
    }
    if (place != NULL) {
        out += sprintf(out, ",\"offset\":%" PRIu64 ",\"line\":%" PRIu64 ",\"column\":%" PRIu64,
                       place->offset, place->line, place->column);
    }
    out = put_member(out, "request_id", request->id);
    return stpcpy(out, "}\n");
}

void http_problem(struct http_response *response, const struct http_request *request, int status,
                  const char *detail, const char *pointer, const struct http_place *place) {
    response->status = status;
    response->media_type = request->inference ? "application/json" : "application/problem+json";
    size_t text = strnlen(detail, MAX_TEXT) + (pointer != NULL ? strnlen(pointer, MAX_TEXT) : 0) +
                  strnlen(request->id, MAX_TEXT);
    char *body = malloc(6 * text + 320); /* 320 bytes: names, title, numbers */
    if (body == NULL) {
        no_memory(response, request->inference);
        return;
    }
    char *out = body;
    if (request->inference) {
        out = stpcpy(put_string(stpcpy(out, "{\"error\":"), detail), "}\n");
    } else {
        out = put_problem(out, request, status, detail, pointer, place);
    }
    response->body = body;
    response->size = (size_t)(out - body);
    response->release = free;
}
