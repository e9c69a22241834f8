/*
 * load.c - a load generator. It sends requests over many keep-alive connections from one thread,
 * accounts for each of them, and prints one JSON object. `load` without arguments says how to call
 * it.
 *
 * In the closed loop (without --rate) a connection sends its next request when the last one is
 * answered. In the open loop requests are due on a schedule, whether earlier ones are answered or
 * not. Latency counts from the time when a request was due, so a server that stalls cannot hide it
 * (no coordinated omission).
 *
 * The program shares no code with the server, and reports only what it reads from the socket.
 */
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support/count.h"
#include "support/load.h"
#include "support/rng.h"

enum {
    EVENTS = 256,   /* events that one call of epoll may return */
    TICK_US = 50000 /* between checks of timeouts, and the pause after a refused connection */
};

/* The ways in which a request ends. */
enum end {
    WHOLE,     /* the answer is complete */
    CUT,       /* the connection ended within the answer */
    LOST_USED, /* it ended before the answer, after earlier answers: the server had accepted it */
    LOST_NEW,  /* it ended before the first answer: the server may never have accepted it */
    TIMEOUT,
    REFUSED, /* the server refused the connection */
    LEFT,    /* this client left on purpose */
    NONSENSE /* the bytes are no HTTP answer */
};
static const char *const end_names[] = {"whole",   "cut",     "lost_used", "lost_new",
                                        "timeout", "refused", "left",      "nonsense"};
enum {
    ENDS = COUNT(end_names)
};

/* Latencies in microseconds. */
struct samples {
    uint32_t *values;
    size_t count, room;
};

struct connection {
    int fd;                             /* -1: no socket */
    bool used;                          /* an answer has come on it */
    bool writing;                       /* epoll waits until the socket takes more bytes */
    const struct load_message *message; /* the request in progress; NULL: idle */
    size_t sent;
    /* The times at which the message was due, begun and sent whole; whole_sent is 0 until then. */
    int64_t due, begun, whole_sent;
    struct load_answer answer;
    struct connection *next, *previous; /* neighbours in the ring: idle, busy or unused */
};

struct load {
    struct load_options options;
    struct rng rng;

    int epoll;
    struct connection *connections;
    struct connection idle, busy, unused; /* heads of rings, not connections */
    int64_t start, stop, ticked;
    int64_t resume;           /* no connection is opened before this time, after a refused one */
    uint64_t started, warmed; /* requests, and how many of them came before the schedule */
    uint64_t opened, ends[ENDS], statuses[600];
    uint64_t good_in_time, mismatches, wrong, without_retry;
    struct samples ok, refusals;           /* since a request was due */
    struct samples ok_took, refusals_took; /* since it was begun */
};

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
            load_die("no memory for samples");
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
    const struct load_answer *a = &c->answer;
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

/* Ends the request. The connection is kept if it can be. */
static void conclude(struct load *load, struct connection *c, enum end end) {
    const int64_t now = clock_us();
    load->ends[end]++;
    if (end == WHOLE) {
        judge(load, c, now);
    }
    if (end == REFUSED) {
        load->resume = now + TICK_US;
        load->stop = load->options.until_gone && load->stop > now ? now : load->stop;
    }
    if (load->options.log != NULL) {
        fprintf(load->options.log, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %d %zu %s\n",
                c->due, c->begun, c->whole_sent, now, end == WHOLE ? c->answer.status : 0,
                c->message->size, end_names[end]);
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

/* Ends a request whose connection has ended. */
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
    load_read_answer(&c->answer, bytes, (size_t)size, c->message);
    if (c->answer.part == COMPLETE) {
        conclude(load, c, WHOLE);
    } else if (c->answer.part == BROKEN) {
        conclude(load, c, NONSENSE);
    }
}

static void await_events(struct load *load, struct connection *c, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    if (c->writing != writing && epoll_ctl(load->epoll, EPOLL_CTL_MOD, c->fd, &event) != 0) {
        load_die("epoll_ctl");
    }
    c->writing = writing;
}

static void send_more(struct load *load, struct connection *c) {
    const struct load_message *m = c->message;
    const ssize_t size = send(c->fd, m->bytes + c->sent, m->size - c->sent, MSG_NOSIGNAL);
    if (size < 0 && errno == ECONNREFUSED) {
        conclude(load, c, REFUSED);
        return;
    }
    if (size < 0 && errno != EAGAIN && errno != EINTR) {
        receive(load, c); /* there may be an answer nevertheless */
        return;
    }
    c->sent += size > 0 ? (size_t)size : 0;
    if (c->sent < m->size) {
        await_events(load, c, true);
        return;
    }
    c->whole_sent = clock_us();
    await_events(load, c, false);
    if (load->options.leave_percent > 0 &&
        rng_between(&load->rng, 1, 100) <= load->options.leave_percent) {
        conclude(load, c, LEFT);
    }
}

/* Opens a connection. Returns false if the server refuses it. */
static bool dial(struct load *load, struct connection *c) {
    const int yes = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0) {
        load_die("socket");
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    load->opened++;
    if (connect(c->fd, (const struct sockaddr *)&load->options.address,
                sizeof load->options.address) != 0 &&
        errno != EINPROGRESS) {
        return false;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, c->fd, &event) != 0) {
        load_die("epoll_ctl");
    }
    return true;
}

static const struct load_message *pick(struct load *load) {
    const size_t half = load->options.message_count / 2; /* the second half has the bad messages */
    size_t i = 0;
    for (double at = rng_uniform(&load->rng); i + 1 < half; i++) {
        at -= load->options.messages[i].weight;
        if (at < 0) {
            break;
        }
    }
    const bool bad = load->options.bad_percent > 0 &&
                     rng_between(&load->rng, 1, 100) <= load->options.bad_percent;
    return &load->options.messages[bad ? i + half : i];
}

static void ask(struct load *load, struct connection *c, int64_t due) {
    move(c, &load->busy);
    c->message = pick(load);
    c->sent = 0;
    c->due = due;
    c->begun = clock_us();
    c->whole_sent = 0;
    c->answer = (struct load_answer){.part = STATUS_LINE};
    load->started++;
    if (c->fd < 0 && !dial(load, c)) {
        conclude(load, c, REFUSED);
    } else {
        send_more(load, c);
    }
}

/* -------------------------------------------------------------------------------- the schedule */

/* Returns the time when the next request is due. */
static int64_t next_due(const struct load *load) {
    return load->options.rate > 0 ? load->start + (int64_t)((double)(load->started - load->warmed) *
                                                            1e6 / load->options.rate)
                                  : load->resume;
}

/* Returns a connection to ask on, or NULL if none is free. A connection that the server has closed
 * is not free. */
static struct connection *take_connection(struct load *load, int64_t now) {
    while (load->idle.next != &load->idle) {
        struct connection *c = load->idle.previous; /* the one that has been idle longest */
        char byte;
        if (load->options.rate == 0 || recv(c->fd, &byte, 1, MSG_PEEK) < 0) {
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
        ask(load, c, load->options.rate > 0 ? due : now);
    }
}

static void tick(struct load *load, int64_t now) {
    if (now - load->ticked < TICK_US) {
        return;
    }
    load->ticked = now;
    for (struct connection *c = load->busy.next, *next; c != &load->busy; c = next) {
        next = c->next;
        if (now - c->due > (int64_t)(load->options.timeout * 1e6)) {
            conclude(load, c, TIMEOUT);
        }
    }
}

/* Returns how long epoll may sleep: until the next tick, or until a request is due and has a
 * connection. While all connections are busy no request can begin, however late it is. Looking for
 * one all the time would take a core from the server. */
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
    if (c->message == NULL) {
        /* The idle connection has ended, or has received bytes that nobody asked for. */
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
    load->stop = load->start + (int64_t)(load->options.seconds * 1e6);
    const struct connection *end = load->connections + load->options.connection_count;
    for (struct connection *c = load->connections; load->options.warm && c < end; c++) {
        ask(load, c, load->start);
    }
    load->warmed = load->started;
    while (clock_us() < load->stop || load->busy.next != &load->busy) {
        ask_what_is_due(load);
        const struct timespec most = patience(load);
        const int count = epoll_pwait2(load->epoll, events, EVENTS, &most, NULL);
        if (count < 0 && errno != EINTR) {
            load_die("epoll_pwait2");
        }
        for (int i = 0; i < count; i++) {
            serve_event(load, &events[i]);
        }
        tick(load, clock_us());
    }
}

/* ---------------------------------------------------------------------------------- the report */

static int compare_samples(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_latency(const char *name, const struct samples *s, const char *comma) {
    static const double at[] = {0.5, 0.9, 0.99, 0.999, 1};
    static const char *const names[] = {"p50", "p90", "p99", "p99.9", "max"};
    if (s->count > 0) {
        qsort(s->values, s->count, sizeof *s->values, compare_samples);
    }
    printf("  \"%s\": {\"count\": %zu", name, s->count);
    for (size_t i = 0; i < COUNT(at) && s->count > 0; i++) {
        size_t rank = (size_t)(at[i] * (double)s->count);
        rank = rank < s->count ? rank : s->count - 1;
        printf(", \"%s\": %" PRIu32, names[i], s->values[rank]);
    }
    printf("}%s\n", comma);
}

static void report(const struct load *load) {
    const double seconds = (double)(load->stop - load->start) * 1e-6;
    const uint64_t due = load->options.rate > 0
                             ? (uint64_t)(seconds * load->options.rate) + load->warmed
                             : load->started;
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

/* ------------------------------------------------------------------------------------- main */

static void set_up_connections(struct load *load) {
    load->idle.next = load->idle.previous = &load->idle;
    load->busy.next = load->busy.previous = &load->busy;
    load->unused.next = load->unused.previous = &load->unused;
    load->connections = calloc(load->options.connection_count, sizeof *load->connections);
    load->epoll = epoll_create1(0);
    if (load->connections == NULL || load->epoll < 0) {
        load_die("too many connections");
    }
    for (size_t i = 0; i < load->options.connection_count; i++) {
        struct connection *c = &load->connections[i];
        c->fd = -1;
        c->next = c->previous = c;
        move(c, &load->unused);
    }
}

int main(int argc, char *argv[]) {
    static struct load load = {.options = {.connection_count = 64,
                                           .type = "application/json",
                                           .seconds = 5,
                                           .timeout = 30,
                                           .seed = 88172645463325253U}};
    load_read_options(&load.options, argc, argv);
    load.rng.state = load.options.seed;
    set_up_connections(&load);
    run(&load);
    report(&load);
    return load.options.log != NULL && fclose(load.options.log) != 0 ? 2 : 0;
}
