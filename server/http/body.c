/*
 * body.c hands the body of a request to the app, piece by piece: it inflates a compressed body,
 * refuses a body that is too large, and gives the other connections their turn.
 */
#include "http/internal.h"

enum {
    /* A body in more than MAX_PIECES pieces is refused if they have less than MIN_PIECE bytes on
     * average. */
    MAX_PIECES = 65536,
    MIN_PIECE = 64,
    END_PIECES = 4 * MAX_PIECES, /* pieces that are read only so that the refusal can be sent */
    INFLATED = 32 * 1024,        /* bytes inflated until other connections have their turn */
    SLICE = 4 * 1024             /* bytes of a plain body after which the clock is read */
};

/* The milliseconds that the app may take for the body of one connection until the others have their
 * turn. Otherwise a hundred bodies of thousands of tiny arrays would keep them waiting. A turn has
 * its price, because libmicrohttpd suspends the connection for it; bodies of numbers need none. */
static const double TURN_MS = 0.2;

static void drop_reader(struct http_call *call) {
    coding_reader_free(call->body.reader);
    call->body.reader = NULL;
    http_call_hold(call, 0);
}

/* Refuses a compressed body that has a fault. Returns whether it has one. */
static bool refuse_fault(struct http_call *call) {
    const char *text;
    const int status = coding_fault(call->body.reader, &text);
    if (status != 0) {
        http_call_refuse(call, status, "%s", text);
        call->response.refused = status == 503   ? "without memory"
                                 : status == 413 ? "over a fixed limit"
                                                 : NULL;
    }
    return status != 0;
}

/* Inflates a piece of a compressed body and gives the app the result, at most INFLATED bytes: few
 * bytes can become many, and this thread has other connections. Returns how many bytes of the piece
 * are left for the next turn. The decoder may keep inflated bytes back as well, but not at the end
 * of the body: it takes the last byte only when all bytes are written. */
static size_t take_compressed(struct http_call *call, const char *bytes, size_t size) {
    char out[INFLATED];
    const int64_t start = clock_ns();
    const size_t part = coding_read(call->body.reader, bytes, &size, out, sizeof out);
    call->body.inflate_ms += clock_ms_since(start);
    call->body.inflated += part;
    if (refuse_fault(call)) {
        return 0;
    }
    if (call->body.inflated > call->server->options.max_body) {
        http_call_refuse_size(call, "more bytes than allowed once it is decompressed");
        return 0;
    }
    call->body.wanted = http_call_hold(call, coding_memory(call->body.reader)) &&
                        (part == 0 || call->server->app->body(call->exchange, out, part));
    if (!call->body.wanted) {
        drop_reader(call);
        return 0;
    }
    return size;
}

/* Gives the app a piece of a plain body. Returns how many bytes are left for the next turn. */
static size_t take_plain(struct http_call *call, const char *bytes, size_t size) {
    const int64_t start = size > SLICE ? clock_ns() : 0; /* one slice needs no clock */
    while (size > 0 && call->body.wanted) {
        const size_t part = size < SLICE ? size : SLICE;
        call->body.wanted = call->server->app->body(call->exchange, bytes, part);
        bytes += part;
        size -= part;
        if (size > 0 && clock_ms_since(start) > TURN_MS) {
            break;
        }
    }
    return call->body.wanted ? size : 0;
}

void body_set_deadline(struct http_call *call) {
    watch_until(&call->connection->watched, call->begun_ns / 1000000 +
                                                INT64_C(1000) * call->server->options.body_timeout +
                                                (int64_t)(call->body.received / WATCH_SLOWEST));
}

bool body_take(struct http_call *call, const void *bytes, size_t size, size_t *left) {
    const size_t most = call->server->options.max_body;
    *left = 0;
    call->body.received += size;
    call->body.pieces++;
    body_set_deadline(call);
    bool fragmented =
        call->body.pieces > MAX_PIECES && call->body.received < call->body.pieces * MIN_PIECE;
    if (call->body.received / 2 > most || (fragmented && call->body.pieces > END_PIECES)) {
        return false;
    }
    if (call->answered) {
        return true;
    }
    if (call->body.received > most) {
        http_call_refuse_size(call, "%llu bytes or more", (unsigned long long)call->body.received);
    } else if (fragmented) {
        http_call_refuse(call, 400,
                         "the body comes in more than %d pieces of less than %d bytes on average",
                         MAX_PIECES, MIN_PIECE);
    } else if (call->body.reader != NULL || call->body.wanted) {
        *left = call->body.reader != NULL ? take_compressed(call, bytes, size)
                                          : take_plain(call, bytes, size);
        call->body.received -= *left;
        call->body.pieces -= *left > 0; /* the rest of a piece is not counted as another piece */
    }
    return true;
}

void body_end(struct http_call *call) {
    if (call->body.reader == NULL) {
        return;
    }
    coding_end(call->body.reader);
    if (!refuse_fault(call)) {
        drop_reader(call);
    }
}
