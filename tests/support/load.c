/*
 * load.c - a load generator: sends requests over many keep-alive connections from one thread and
 * accounts for each of them. Prints one JSON object. `load` without arguments says how to call it.
 *
 * Closed loop (without --rate): each connection sends its next request when the last is answered.
 * Open loop: requests are due on a schedule, answers or not; latency counts from when a request was
 * due, so a server that stalls cannot hide it (no coordinated omission).
 *
 * Shares no code with the server, and believes nothing that it does not read from the socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support/rng.h"

enum {
    MAX_MESSAGES = 16,
    LINE = 512,     /* bytes of a header line that are looked at */
    EVENTS = 256,   /* taken from epoll at a time */
    TICK_US = 50000 /* between looks at timeouts; also the pause after a refused connection */
};

/* A request to send, whole, and the answer it should get. */
struct message {
    char *bytes;
    size_t size;
    char *expected; /* the body of a 200; NULL = any */
    size_t expected_size;
    double weight;
    bool bad; /* no JSON: must get a 400 */
};

/* How a request ended. */
enum end {
    WHOLE,     /* answered to the last byte */
    CUT,       /* the connection ended within the answer */
    LOST_USED, /* it ended before the answer, and had carried an answer before: surely accepted */
    LOST_NEW,  /* it ended before the answer, and was new: perhaps never accepted */
    TIMEOUT,
    REFUSED, /* there was no connection */
    LEFT,    /* by this client, on purpose */
    NONSENSE /* that is no HTTP answer */
};
static const char *const end_names[] = {"whole",   "cut",     "lost_used", "lost_new",
                                        "timeout", "refused", "left",      "nonsense"};
enum {
    ENDS = sizeof end_names / sizeof *end_names
};

/* ---------------------------------------------------------------------------- reading an answer */

enum part {
    STATUS_LINE,
    HEADERS,
    SIZED,
    CHUNK_SIZE,
    CHUNK,
    CHUNK_END,
    TRAILER,
    COMPLETE,
    BROKEN
};

struct answer {
    enum part part;
    int status;
    bool close, chunked, retry; /* `retry`: Retry-After is an integer of 1 or more */
    bool differs;               /* from what was expected */
    uint64_t left, got;         /* bytes of the body or chunk; of the body so far */
    size_t line_size;
    char line[LINE];
};

/* The value if the line is a header of this name. */
static const char *header_value(const char *line, const char *name) {
    const size_t size = strlen(name);
    return strncasecmp(line, name, size) == 0 && line[size] == ':'
               ? line + size + 1 + strspn(line + size + 1, " ")
               : NULL;
}

static void take_header(struct answer *a, const char *line) {
    const char *value;
    char *end;
    if (strchr("CRTcrt", *line) == NULL) { /* soon told, of most */
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

/* A line without its end. */
static void take_line(struct answer *a, const char *line) {
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

/* Collects a line over any number of reads; what does not fit is dropped. Returns bytes taken. */
static size_t feed_line(struct answer *a, const char *bytes, size_t size) {
    const char *newline = memchr(bytes, '\n', size);
    const size_t taken = newline != NULL ? (size_t)(newline - bytes) + 1 : size;
    const size_t room = LINE - 1 - a->line_size, kept = taken < room ? taken : room;
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

static size_t feed_body(struct answer *a, const char *bytes, size_t size, const struct message *m) {
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

static void feed(struct answer *a, const char *bytes, size_t size, const struct message *m) {
    while (size > 0 && a->part != COMPLETE && a->part != BROKEN) {
        const bool body = a->part == SIZED || a->part == CHUNK;
        const size_t taken = body ? feed_body(a, bytes, size, m) : feed_line(a, bytes, size);
        bytes += taken;
        size -= taken;
    }
    if (size > 0) { /* more than one answer to one request */
        a->part = BROKEN;
    }
    if (a->part == COMPLETE && m->expected != NULL && a->status == 200) {
        a->differs = a->differs || a->got != m->expected_size;
    }
}

/* ----------------------------------------------------------------------------- what is known */

/* Latencies in microseconds. */
struct samples {
    uint32_t *values;
    size_t count, room;
};

struct connection {
    int fd;                        /* -1: none */
    bool used;                     /* has carried an answer */
    bool writing;                  /* waits for room to send */
    const struct message *message; /* that is asked; NULL: idle */
    size_t sent;
    int64_t due, begun, whole_sent; /* of the message; the last is 0 until all of it is sent */
    struct answer answer;
    struct connection *next, *previous; /* of the same list: idle, busy or without a socket */
};

struct load {
    struct sockaddr_in address;
    const char *host, *path;
    struct message messages[MAX_MESSAGES];
    size_t message_count, bad_percent, leave_percent;
    double rate, seconds, timeout;
    size_t connection_count;
    bool until_gone, warm;
    FILE *log;
    struct rng rng;

    int epoll;
    struct connection *connections;
    struct connection idle, busy, unused; /* rings: no connections themselves */
    int64_t start, stop, resume, ticked;  /* `resume`: not before, after a refused connection */
    uint64_t started, warmed;             /* requests; of these before the schedule */
    uint64_t opened, ends[ENDS], statuses[600];
    uint64_t good_in_time, mismatches, wrong, without_retry;
    struct samples ok, ok_took, refusals, refusals_took; /* since due; since begun */
};

__attribute__((noreturn)) static void die(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    exit(2);
}

static int64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void add_sample(struct samples *s, int64_t us) {
    if (s->count == s->room) {
        s->room = s->room * 2 + 1024;
        s->values = realloc(s->values, s->room * sizeof *s->values);
        if (s->values == NULL) {
            die("no memory for samples");
        }
    }
    s->values[s->count++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static void move(struct connection *c, struct connection *ring) {
    c->next->previous = c->previous;
    c->previous->next = c->next;
    c->next = ring->next;
    c->previous = ring;
    c->next->previous = ring->next = c;
}

/* ---------------------------------------------------------------------- the life of a request */

static void hang_up(struct load *load, struct connection *c) {
    if (c->fd >= 0) {
        close(c->fd);
    }
    c->fd = -1;
    c->used = c->writing = false;
    move(c, &load->unused);
}

static void judge(struct load *load, const struct connection *c, int64_t now) {
    const struct answer *a = &c->answer;
    load->statuses[a->status]++;
    load->mismatches += a->differs;
    load->wrong += a->status != 503 && a->status != (c->message->bad ? 400 : 200);
    load->without_retry += a->status == 503 && !a->retry;
    if (a->status == 200) {
        add_sample(&load->ok, now - c->due);
        add_sample(&load->ok_took, now - c->begun);
        load->good_in_time += now <= load->stop;
    } else if (a->status == 503) {
        add_sample(&load->refusals, now - c->due);
        add_sample(&load->refusals_took, now - c->begun);
    }
}

/* The request is over. The connection is kept if it can be. */
static void conclude(struct load *load, struct connection *c, enum end end) {
    const int64_t now = clock_us();
    load->ends[end]++;
    if (end == WHOLE) {
        judge(load, c, now);
    }
    if (end == REFUSED) {
        load->resume = now + TICK_US;
        load->stop = load->until_gone && load->stop > now ? now : load->stop;
    }
    if (load->log != NULL) {
        fprintf(load->log, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %d %zu %s\n", c->due,
                c->begun, c->whole_sent, now, end == WHOLE ? c->answer.status : 0, c->message->size,
                end_names[end]);
    }
    const bool all_sent = c->sent == c->message->size;
    c->message = NULL;
    if (end == WHOLE && !c->answer.close && all_sent) {
        c->used = true;
        move(c, &load->idle);
    } else {
        hang_up(load, c);
    }
}

/* The connection has ended in the midst of a request. */
static void lose(struct load *load, struct connection *c) {
    conclude(load, c,
             c->answer.part != STATUS_LINE || c->answer.line_size > 0 ? CUT
             : c->used                                                ? LOST_USED
                                                                      : LOST_NEW);
}

static void receive(struct load *load, struct connection *c) {
    static char bytes[256 * 1024];
    const ssize_t size = recv(c->fd, bytes, sizeof bytes, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (size <= 0) {
        lose(load, c);
        return;
    }
    feed(&c->answer, bytes, (size_t)size, c->message);
    if (c->answer.part == COMPLETE) {
        conclude(load, c, WHOLE);
    } else if (c->answer.part == BROKEN) {
        conclude(load, c, NONSENSE);
    }
}

static void await(struct load *load, struct connection *c, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    if (c->writing != writing && epoll_ctl(load->epoll, EPOLL_CTL_MOD, c->fd, &event) != 0) {
        die("epoll_ctl");
    }
    c->writing = writing;
}

static void send_more(struct load *load, struct connection *c) {
    const struct message *m = c->message;
    const ssize_t size = send(c->fd, m->bytes + c->sent, m->size - c->sent, MSG_NOSIGNAL);
    if (size < 0 && errno == ECONNREFUSED) {
        conclude(load, c, REFUSED);
        return;
    }
    if (size < 0 && errno != EAGAIN && errno != EINTR) {
        receive(load, c); /* perhaps there is an answer nevertheless */
        return;
    }
    c->sent += size > 0 ? (size_t)size : 0;
    if (c->sent < m->size) {
        await(load, c, true);
        return;
    }
    c->whole_sent = clock_us();
    await(load, c, false);
    if (load->leave_percent > 0 && rng_between(&load->rng, 1, 100) <= load->leave_percent) {
        conclude(load, c, LEFT);
    }
}

/* False: there is no connection to be had. */
static bool dial(struct load *load, struct connection *c) {
    const int yes = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        die("socket");
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    load->opened++;
    if (connect(c->fd, (const struct sockaddr *)&load->address, sizeof load->address) != 0 &&
        errno != EINPROGRESS) {
        return false;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, c->fd, &event) != 0) {
        die("epoll_ctl");
    }
    return true;
}

static const struct message *pick(struct load *load) {
    const size_t half = load->message_count / 2; /* the second half is the first, made bad */
    size_t i = 0;
    for (double at = rng_uniform(&load->rng); i + 1 < half; i++) {
        at -= load->messages[i].weight;
        if (at < 0) {
            break;
        }
    }
    const bool bad = load->bad_percent > 0 && rng_between(&load->rng, 1, 100) <= load->bad_percent;
    return &load->messages[bad ? i + half : i];
}

static void ask(struct load *load, struct connection *c, int64_t due) {
    move(c, &load->busy);
    c->message = pick(load);
    c->sent = 0;
    c->due = due;
    c->begun = clock_us();
    c->whole_sent = 0;
    c->answer = (struct answer){.part = STATUS_LINE};
    load->started++;
    if (c->fd < 0 && !dial(load, c)) {
        conclude(load, c, REFUSED);
    } else {
        send_more(load, c);
    }
}

/* -------------------------------------------------------------------------------- the schedule */

/* When the next request is due. */
static int64_t next_due(const struct load *load) {
    return load->rate > 0
               ? load->start + (int64_t)((double)(load->started - load->warmed) * 1e6 / load->rate)
               : load->resume;
}

/* A connection to ask on, NULL if none is free. One that the server has closed is not. */
static struct connection *take_connection(struct load *load, int64_t now) {
    while (load->idle.next != &load->idle) {
        struct connection *c = load->idle.previous; /* idle for the longest time */
        char byte;
        if (load->rate == 0 || recv(c->fd, &byte, 1, MSG_PEEK) < 0) {
            return c;
        }
        hang_up(load, c);
    }
    return load->unused.next != &load->unused && now >= load->resume ? load->unused.next : NULL;
}

static void ask_what_is_due(struct load *load) {
    struct connection *c;
    for (int64_t now = clock_us(), due = next_due(load);
         due <= now && due < load->stop && now < load->stop &&
         (c = take_connection(load, now)) != NULL;
         now = clock_us(), due = next_due(load)) {
        ask(load, c, load->rate > 0 ? due : now);
    }
}

static void tick(struct load *load, int64_t now) {
    if (now - load->ticked < TICK_US) {
        return;
    }
    load->ticked = now;
    for (struct connection *c = load->busy.next, *next; c != &load->busy; c = next) {
        next = c->next;
        if (now - c->due > (int64_t)(load->timeout * 1e6)) {
            conclude(load, c, TIMEOUT);
        }
    }
}

/* How long epoll may sleep: until the next tick, or until a request is due and has a connection.
 * While all connections are busy no request can begin, however late it is: to look for one all the
 * time would take a core from the server that it waits for. */
static struct timespec patience(const struct load *load) {
    const bool idle = load->idle.next != &load->idle, unused = load->unused.next != &load->unused;
    const int64_t now = clock_us();
    int64_t until = now + TICK_US;
    if (now < load->stop && (idle || unused)) {
        const int64_t due = next_due(load), first = idle || due > load->resume ? due : load->resume;
        until = first < until ? first : until;
    }
    const int64_t rest = until > now ? until - now : 0;
    return (struct timespec){.tv_sec = rest / 1000000, .tv_nsec = rest % 1000000 * 1000};
}

static void serve_event(struct load *load, const struct epoll_event *event) {
    struct connection *c = event->data.ptr;
    if (c->message == NULL) { /* idle: it ends, or says something unasked */
        if (c->fd >= 0) {
            char byte;
            load->ends[NONSENSE] += recv(c->fd, &byte, 1, 0) > 0;
            hang_up(load, c);
        }
        return;
    }
    if ((event->events & (EPOLLERR | EPOLLHUP)) != 0 && c->sent == 0) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error == ECONNREFUSED || error == ETIMEDOUT) {
            conclude(load, c, REFUSED);
            return;
        }
    }
    if ((event->events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
        receive(load, c);
    }
    if ((event->events & EPOLLOUT) != 0 && c->message != NULL && c->sent < c->message->size) {
        send_more(load, c);
    }
}

static void run(struct load *load) {
    struct epoll_event events[EVENTS];
    load->start = load->ticked = clock_us();
    load->stop = load->start + (int64_t)(load->seconds * 1e6);
    for (size_t i = 0; load->warm && i < load->connection_count; i++) {
        ask(load, &load->connections[i], load->start);
    }
    load->warmed = load->started;
    while (clock_us() < load->stop || load->busy.next != &load->busy) {
        ask_what_is_due(load);
        const struct timespec most = patience(load);
        const int count = epoll_pwait2(load->epoll, events, EVENTS, &most, NULL);
        if (count < 0 && errno != EINTR) {
            die("epoll_pwait2");
        }
        for (int i = 0; i < count; i++) {
            serve_event(load, &events[i]);
        }
        tick(load, clock_us());
    }
}

/* ---------------------------------------------------------------------------------- the report */

static int compare(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_latency(const char *name, const struct samples *s, const char *comma) {
    static const double at[] = {0.5, 0.9, 0.99, 0.999, 1};
    static const char *const names[] = {"p50", "p90", "p99", "p99.9", "max"};
    if (s->count > 0) {
        qsort(s->values, s->count, sizeof *s->values, compare);
    }
    printf("  \"%s\": {\"count\": %zu", name, s->count);
    for (size_t i = 0; i < sizeof at / sizeof *at && s->count > 0; i++) {
        size_t rank = (size_t)(at[i] * (double)s->count);
        rank = rank < s->count ? rank : s->count - 1;
        printf(", \"%s\": %" PRIu32, names[i], s->values[rank]);
    }
    printf("}%s\n", comma);
}

static void report(const struct load *load) {
    const double seconds = (double)(load->stop - load->start) * 1e-6;
    const uint64_t due =
        load->rate > 0 ? (uint64_t)(seconds * load->rate) + load->warmed : load->started;
    const uint64_t resets = load->ends[CUT] + load->ends[LOST_USED] + load->ends[LOST_NEW];
    const char *comma = "";
    printf("{\"seconds\": %.3f, \"sent\": %" PRIu64 ", \"unsent\": %" PRIu64
           ", \"answered\": %" PRIu64 ", \"connections\": %" PRIu64 ",\n  \"statuses\": {",
           seconds, load->started, due > load->started ? due - load->started : 0, load->ends[WHOLE],
           load->opened);
    for (int i = 0; i < 600; i++) {
        if (load->statuses[i] > 0) {
            printf("%s\"%d\": %" PRIu64, comma, i, load->statuses[i]);
            comma = ", ";
        }
    }
    printf("},\n  \"ends\": {");
    for (size_t i = 0; i < ENDS; i++) {
        printf("%s\"%s\": %" PRIu64, i > 0 ? ", " : "", end_names[i], load->ends[i]);
    }
    printf("},\n  \"resets\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"timeouts\": %" PRIu64
           ", \"mismatches\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"without_retry\": %" PRIu64
           ",\n  \"goodput\": %.1f,\n",
           resets, load->ends[REFUSED], load->ends[TIMEOUT], load->mismatches, load->wrong,
           load->without_retry, (double)load->good_in_time / seconds);
    print_latency("latency_200", &load->ok, ",");
    print_latency("latency_503", &load->refusals, ",");
    print_latency("took_200", &load->ok_took, ",");
    print_latency("took_503", &load->refusals_took, "}");
}

/* -------------------------------------------------------------------------------- the arguments */

static const char usage[] =
    "usage: load HOST PORT PATH [OPTION VALUE]...\n"
    "  --body FILE[=WEIGHT]  POSTs this body; one of several is drawn by weight. Without: GET\n"
    "  --expect FILE         a 200 for the body named before must have these bytes\n"
    "  --bad PERCENT         of the bodies are cut before their last byte, and must get a 400\n"
    "  --leave PERCENT       of the requests are left by the client once they are sent\n"
    "  --connections N       at a time (64)\n"
    "  --rate R              open loop: requests due in a second\n"
    "  --seconds S           (5)\n"
    "  --timeout S           until a request is given up (30)\n"
    "  --warm yes            first ask once on every connection, so that all are open\n"
    "  --until-gone yes      end at the first refused connection\n"
    "  --seed N              of what is drawn (1)\n"
    "  --log FILE            a line for each request: when it was due, begun, sent (0: not "
    "wholly)\n"
    "                        and over, in microseconds of CLOCK_MONOTONIC; status, size, its end\n"
    "Ends: whole; cut: within the answer; lost_used: before it, on a connection that had carried "
    "one;\n"
    "lost_new: before it, on a new connection, which perhaps was never accepted; left; nonsense.\n"
    "Microseconds: latency_* since a request was due, took_* since it was begun.\n"
    "Status 2 if it cannot run.\n";

static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        die(path);
    }
    const long end = ftell(file);
    char *bytes = end >= 0 ? malloc((size_t)end + 1) : NULL;
    rewind(file);
    if (bytes == NULL || fread(bytes, 1, (size_t)end, file) != (size_t)end) {
        die(path);
    }
    fclose(file);
    *size = (size_t)end;
    return bytes;
}

static void add_body(struct load *load, char *value) {
    char *equals = strrchr(value, '=');
    struct message *m = &load->messages[load->message_count];
    if (load->message_count == MAX_MESSAGES / 2) {
        die("too many bodies");
    }
    load->message_count++;
    m->weight = equals != NULL ? atof(equals + 1) : 1;
    if (equals != NULL) {
        *equals = '\0';
    }
    m->bytes = read_file(value, &m->size);
}

static void expect(struct load *load, const char *path) {
    if (load->message_count == 0) {
        die("--expect comes after a --body");
    }
    struct message *m = &load->messages[load->message_count - 1];
    m->expected = read_file(path, &m->expected_size);
}

static void read_option(struct load *load, const char *name, char *value) {
    if (strcmp(name, "--body") == 0) {
        add_body(load, value);
    } else if (strcmp(name, "--expect") == 0) {
        expect(load, value);
    } else if (strcmp(name, "--bad") == 0) {
        load->bad_percent = (size_t)atol(value);
    } else if (strcmp(name, "--leave") == 0) {
        load->leave_percent = (size_t)atol(value);
    } else if (strcmp(name, "--connections") == 0) {
        load->connection_count = (size_t)atol(value);
    } else if (strcmp(name, "--rate") == 0) {
        load->rate = atof(value);
    } else if (strcmp(name, "--seconds") == 0) {
        load->seconds = atof(value);
    } else if (strcmp(name, "--timeout") == 0) {
        load->timeout = atof(value);
    } else if (strcmp(name, "--warm") == 0) {
        load->warm = strcmp(value, "yes") == 0;
    } else if (strcmp(name, "--until-gone") == 0) {
        load->until_gone = strcmp(value, "yes") == 0;
    } else if (strcmp(name, "--seed") == 0) {
        load->rng.state = strtoull(value, NULL, 10) | 1;
    } else if (strcmp(name, "--log") == 0) {
        load->log = fopen(value, "w");
        if (load->log == NULL) {
            die(value);
        }
    } else {
        fputs(usage, stderr);
        exit(2);
    }
}

/* A body becomes a whole request. */
static void complete(const struct load *load, struct message *m, const char *method, size_t size) {
    char head[1024];
    const int head_size =
        snprintf(head, sizeof head,
                 "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 method, load->path, load->host, size);
    char *bytes = malloc((size_t)head_size + size + 1);
    if (bytes == NULL || (size_t)head_size >= sizeof head) {
        die("a request too long");
    }
    memcpy(bytes, head, (size_t)head_size);
    memcpy(bytes + head_size, m->bytes, size);
    m->bytes = bytes;
    m->size = (size_t)head_size + size;
}

static void prepare(struct load *load) {
    const char *method = load->message_count > 0 ? "POST" : "GET";
    double weights = 0;
    if (load->message_count == 0) {
        load->messages[load->message_count++] = (struct message){.bytes = "", .weight = 1};
    }
    const size_t half = load->message_count;
    for (size_t i = 0; i < half; i++) {
        weights += load->messages[i].weight;
    }
    for (size_t i = 0; i < half; i++) {
        struct message *m = &load->messages[i], *bad = &load->messages[half + i];
        m->weight /= weights;
        while (m->size > 0 && strchr(" \r\n", m->bytes[m->size - 1]) != NULL) {
            m->size--; /* the last byte must be one that matters */
        }
        *bad = (struct message){.bytes = m->bytes, .bad = true};
        complete(load, bad, method, m->size > 0 ? m->size - 1 : 0);
        complete(load, m, method, m->size);
    }
    load->message_count = 2 * half;
    load->idle.next = load->idle.previous = &load->idle;
    load->busy.next = load->busy.previous = &load->busy;
    load->unused.next = load->unused.previous = &load->unused;
    load->connections = calloc(load->connection_count, sizeof *load->connections);
    load->epoll = epoll_create1(0);
    if (load->connections == NULL || load->epoll < 0) {
        die("too many connections");
    }
    for (size_t i = 0; i < load->connection_count; i++) {
        struct connection *c = &load->connections[i];
        c->fd = -1;
        c->next = c->previous = c;
        move(c, &load->unused);
    }
}

int main(int argc, char *argv[]) {
    static struct load load = {
        .connection_count = 64, .seconds = 5, .timeout = 30, .rng = {88172645463325253U}};
    if (argc < 4 || argc % 2 != 0) {
        fputs(usage, stderr);
        return 2;
    }
    load.host = argv[1];
    load.path = argv[3];
    load.address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    errno = 0;
    if (inet_pton(AF_INET, load.host, &load.address.sin_addr) != 1) {
        die("HOST is an IPv4 address");
    }
    for (int i = 4; i < argc; i += 2) {
        read_option(&load, argv[i], argv[i + 1]);
    }
    prepare(&load);
    run(&load);
    report(&load);
    return load.log != NULL && fclose(load.log) != 0 ? 2 : 0;
}
