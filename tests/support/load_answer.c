/*
 * load_answer.c - reads an answer from the bytes of a socket, line by line and chunk by chunk, and
 * compares it with the expected one.
 */
#include "support/load.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns the value if the line is a header of this name, or else NULL. */
static const char *header_value(const char *line, const char *name) {
    const size_t size = strlen(name);
    return strncasecmp(line, name, size) == 0 && line[size] == ':'
               ? line + size + 1 + strspn(line + size + 1, " ")
               : NULL;
}

static void take_header(struct load_answer *a, const char *line) {
    const char *value;
    char *end;
    if (strchr("CRTcrt", *line) == NULL) { /* most headers are none of the four below */
        return;
    }
    if ((value = header_value(line, "Content-Length")) != NULL) {
        a->left = strtoull(value, &end, 10);
        a->part = *end == '\0' ? a->part : BROKEN;
    } else if ((value = header_value(line, "Transfer-Encoding")) != NULL) {
        a->chunked = strcasecmp(value, "chunked") == 0;
    } else if ((value = header_value(line, "Connection")) != NULL) {
        a->close = strcasecmp(value, "close") == 0;
    } else if ((value = header_value(line, "Retry-After")) != NULL) {
        a->retry = strtoull(value, &end, 10) >= 1 && *end == '\0';
    }
}

/* Takes a line without its line end. */
static void take_line(struct load_answer *a, const char *line) {
    char *end;
    switch (a->part) {
    case STATUS_LINE:
        a->status = strncmp(line, "HTTP/1.1 ", 9) == 0 ? (int)strtol(line + 9, &end, 10) : 0;
        a->part = a->status >= 200 && a->status < 600 ? HEADERS : BROKEN;
        break;
    case HEADERS:
        if (*line != '\0') {
            take_header(a, line);
        } else {
            a->part = a->chunked ? CHUNK_SIZE : a->left > 0 ? SIZED : COMPLETE;
        }
        break;
    case CHUNK_SIZE:
        a->left = strtoull(line, &end, 16);
        a->part = end == line || *end != '\0' ? BROKEN : a->left > 0 ? CHUNK : TRAILER;
        break;
    case CHUNK_END:
        a->part = *line == '\0' ? CHUNK_SIZE : BROKEN;
        break;
    case TRAILER:
        a->part = *line == '\0' ? COMPLETE : TRAILER;
        break;
    default:
        a->part = BROKEN;
    }
}

/* Collects a line, which may come in any number of pieces, and drops what does not fit. Returns how
 * many bytes it took. */
static size_t feed_line(struct load_answer *a, const char *bytes, size_t size) {
    const char *newline = memchr(bytes, '\n', size);
    const size_t taken = newline != NULL ? (size_t)(newline - bytes) + 1 : size;
    const size_t room = LOAD_LINE - 1 - a->line_size, kept = taken < room ? taken : room;
    memcpy(a->line + a->line_size, bytes, kept);
    a->line_size += kept;
    if (newline != NULL) {
        while (a->line_size > 0 && a->line[a->line_size - 1] <= '\r') {
            a->line_size--;
        }
        a->line[a->line_size] = '\0';
        a->line_size = 0;
        take_line(a, a->line);
    }
    return taken;
}

static size_t feed_body(struct load_answer *a, const char *bytes, size_t size,
                        const struct load_message *m) {
    const size_t taken = size < a->left ? size : (size_t)a->left;
    if (m->expected != NULL && a->status == 200) {
        a->differs = a->differs || a->got + taken > m->expected_size ||
                     memcmp(m->expected + a->got, bytes, taken) != 0;
    }
    a->got += taken;
    a->left -= taken;
    if (a->left == 0) {
        a->part = a->part == CHUNK ? CHUNK_END : COMPLETE;
    }
    return taken;
}

void load_read_answer(struct load_answer *a, const char *bytes, size_t size,
                      const struct load_message *m) {
    while (size > 0 && a->part != COMPLETE && a->part != BROKEN) {
        const bool body = a->part == SIZED || a->part == CHUNK;
        const size_t taken = body ? feed_body(a, bytes, size, m) : feed_line(a, bytes, size);
        bytes += taken;
        size -= taken;
    }
    if (size > 0) { /* more bytes than one answer */
        a->part = BROKEN;
    }
    if (a->part == COMPLETE && m->expected != NULL && a->status == 200) {
        a->differs = a->differs || a->got != m->expected_size;
    }
}
