/* load_options.c - reads the options of the load generator and makes the requests that it sends. */
#include "support/load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void load_die(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    exit(2);
}

static const char usage[] =
    "usage: load HOST PORT PATH [OPTION VALUE]...\n"
    "  --body FILE[=WEIGHT]  POST this body; one of several is drawn by weight. Without: GET\n"
    "  --type TYPE           the Content-Type of all bodies (application/json)\n"
    "  --expect FILE         a 200 for the last --body must have these bytes\n"
    "  --bad PERCENT         cut this share of the bodies before the last byte; expect a 400\n"
    "  --leave PERCENT       close the connection once this share of the requests is sent\n"
    "  --connections N       connections at a time (64)\n"
    "  --rate R              open loop: requests that are due in a second\n"
    "  --seconds S           how long requests are sent (5)\n"
    "  --timeout S           how long to wait for an answer (30)\n"
    "  --warm yes            first ask once on every connection, so that all are open\n"
    "  --until-gone yes      end at the first refused connection\n"
    "  --seed N              seed of what is drawn (a fixed number)\n"
    "  --log FILE            write a line for each request: the times when it was due, begun, "
    "sent\n"
    "                        (0: not wholly) and ended, in microseconds of CLOCK_MONOTONIC; its\n"
    "                        status, its size, and how it ended\n"
    "A request ends whole; cut (within the answer); lost_used (before the answer, on a connection\n"
    "that had carried one); lost_new (before the answer, on a new connection, which perhaps was\n"
    "never accepted); timeout; refused; left (by --leave); nonsense (the answer is not HTTP).\n"
    "Times are in microseconds: latency_* since a request was due, took_* since it was begun.\n"
    "The exit status is 2 if the program cannot run.\n";

static char *read_whole_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        load_die(path);
    }
    const long end = ftell(file);
    char *bytes = end >= 0 ? malloc((size_t)end + 1) : NULL;
    rewind(file);
    if (bytes == NULL || fread(bytes, 1, (size_t)end, file) != (size_t)end) {
        load_die(path);
    }
    fclose(file);
    *size = (size_t)end;
    return bytes;
}

static void add_body(struct load_options *options, char *value) {
    char *equals = strrchr(value, '=');
    struct load_message *m = &options->messages[options->message_count];
    if (options->message_count == LOAD_MESSAGES / 2) {
        load_die("too many bodies");
    }
    options->message_count++;
    m->weight = equals != NULL ? atof(equals + 1) : 1;
    if (equals != NULL) {
        *equals = '\0';
    }
    m->bytes = read_whole_file(value, &m->size);
}

static void expect(struct load_options *options, const char *path) {
    if (options->message_count == 0) {
        load_die("--expect comes after a --body");
    }
    struct load_message *m = &options->messages[options->message_count - 1];
    m->expected = read_whole_file(path, &m->expected_size);
}

static void read_option(struct load_options *options, const char *name, char *value) {
    if (strcmp(name, "--body") == 0) {
        add_body(options, value);
    } else if (strcmp(name, "--type") == 0) {
        options->type = value;
    } else if (strcmp(name, "--expect") == 0) {
        expect(options, value);
    } else if (strcmp(name, "--bad") == 0) {
        options->bad_percent = (size_t)atol(value);
    } else if (strcmp(name, "--leave") == 0) {
        options->leave_percent = (size_t)atol(value);
    } else if (strcmp(name, "--connections") == 0) {
        options->connection_count = (size_t)atol(value);
    } else if (strcmp(name, "--rate") == 0) {
        options->rate = atof(value);
    } else if (strcmp(name, "--seconds") == 0) {
        options->seconds = atof(value);
    } else if (strcmp(name, "--timeout") == 0) {
        options->timeout = atof(value);
    } else if (strcmp(name, "--warm") == 0) {
        options->warm = strcmp(value, "yes") == 0;
    } else if (strcmp(name, "--until-gone") == 0) {
        options->until_gone = strcmp(value, "yes") == 0;
    } else if (strcmp(name, "--seed") == 0) {
        options->seed = strtoull(value, NULL, 10) | 1;
    } else if (strcmp(name, "--log") == 0) {
        options->log = fopen(value, "w");
        if (options->log == NULL) {
            load_die(value);
        }
    } else {
        fputs(usage, stderr);
        exit(2);
    }
}

/* Makes a whole request of the first `size` bytes of a body. */
static void complete(const struct load_options *options, struct load_message *m, const char *method,
                     size_t size) {
    char head[1024];
    const int head_size = snprintf(head, sizeof head,
                                   "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n"
                                   "Content-Length: %zu\r\n\r\n",
                                   method, options->path, options->host, options->type, size);
    char *bytes = malloc((size_t)head_size + size + 1);
    if (bytes == NULL || (size_t)head_size >= sizeof head) {
        load_die("a request too long");
    }
    memcpy(bytes, head, (size_t)head_size);
    memcpy(bytes + head_size, m->bytes, size);
    m->bytes = bytes;
    m->size = (size_t)head_size + size;
}

static void make_messages(struct load_options *options) {
    const char *method = options->message_count > 0 ? "POST" : "GET";
    double weights = 0;
    if (options->message_count == 0) {
        options->messages[options->message_count++] =
            (struct load_message){.bytes = "", .weight = 1};
    }
    const size_t half = options->message_count;
    for (size_t i = 0; i < half; i++) {
        weights += options->messages[i].weight;
    }
    for (size_t i = 0; i < half; i++) {
        struct load_message *m = &options->messages[i], *bad = &options->messages[half + i];
        m->weight /= weights;
        while (m->size > 0 && strchr(" \r\n", m->bytes[m->size - 1]) != NULL) {
            m->size--; /* a bad body lacks the last byte, which must be one that matters */
        }
        *bad = (struct load_message){.bytes = m->bytes, .bad = true};
        complete(options, bad, method, m->size > 0 ? m->size - 1 : 0);
        complete(options, m, method, m->size);
    }
    options->message_count = 2 * half;
}

void load_read_options(struct load_options *options, int argc, char *argv[]) {
    if (argc < 4 || argc % 2 != 0) {
        fputs(usage, stderr);
        exit(2);
    }
    options->host = argv[1];
    options->path = argv[3];
    options->address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    errno = 0;
    if (inet_pton(AF_INET, options->host, &options->address.sin_addr) != 1) {
        load_die("HOST is an IPv4 address");
    }
    for (int i = 4; i < argc; i += 2) {
        read_option(options, argv[i], argv[i + 1]);
    }
    make_messages(options);
}
