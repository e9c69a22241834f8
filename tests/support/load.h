/*
 * load.h - what the files of the load generator share: a request, the answer to it, and the
 * options.
 */
#ifndef SUPPORT_LOAD_H
#define SUPPORT_LOAD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    LOAD_MESSAGES = 16, /* the most that there can be, good and bad */
    LOAD_LINE = 512     /* bytes of a header line that are kept */
};

/* A request as it is sent, and the answer that it should get. */
struct load_message {
    char *bytes;
    size_t size;
    char *expected; /* the body that a 200 must have; NULL: any */
    size_t expected_size;
    double weight;
    bool bad; /* the body is no JSON, so the answer must be a 400 */
};

/* ----------------------------------------------------------------------- load_answer.c */

enum load_part {
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

struct load_answer {
    enum load_part part;
    int status;
    bool close, chunked, retry; /* `retry`: Retry-After is a whole number from 1 on */
    bool differs;               /* the body differs from the expected one */
    uint64_t left, got;         /* bytes left of the body or chunk; bytes read of the body */
    size_t line_size;
    char line[LOAD_LINE];
};

/* Reads the next bytes of the answer to `message`, whatever pieces they come in. */
void load_read_answer(struct load_answer *answer, const char *bytes, size_t size,
                      const struct load_message *message);

/* ---------------------------------------------------------------------- load_options.c */

struct load_options {
    struct sockaddr_in address;
    const char *host, *path, *type;
    struct load_message messages[LOAD_MESSAGES]; /* the second half is the first, cut short */
    size_t message_count, bad_percent, leave_percent;
    double rate, seconds, timeout;
    size_t connection_count;
    bool until_gone, warm;
    FILE *log;
    uint64_t seed;
};

/* Reads the arguments of main() and makes the messages. Ends the program if one is wrong. */
void load_read_options(struct load_options *options, int argc, char *argv[]);

/* Prints a message, with that of errno if it is not 0, and ends the program with status 2. */
__attribute__((noreturn)) void load_die(const char *what);

#endif
