/*
 * log.c - rate-limited lines on stderr. One lock, no queue: a line that is over the limit is
 * dropped and counted.
 */
#include "http/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum {
    LINES_PER_WINDOW = 10,
    WINDOW_SECONDS = 60
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by `lock`. */
static time_t window_start;
static unsigned window_lines;
static unsigned long dropped;

/* With `lock` held: may one more line be written? */
static bool admit(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (window_lines == 0 || now.tv_sec - window_start >= WINDOW_SECONDS) {
        if (dropped > 0) {
            fprintf(stderr, "attentiond: %lu lines were left out here\n", dropped);
        }
        window_start = now.tv_sec;
        window_lines = 0;
        dropped = 0;
    }
    if (window_lines == LINES_PER_WINDOW) {
        dropped++;
        return false;
    }
    window_lines++;
    return true;
}

/* The message without its own line end, control and non-ASCII bytes as '?'. */
static void write_line(char *message) {
    size_t size = 0;
    for (; message[size] != '\0'; size++) {
        if (message[size] != '\n' && (message[size] < ' ' || message[size] > '~')) {
            message[size] = '?';
        }
    }
    while (size > 0 && message[size - 1] == '\n') {
        message[--size] = '\0';
    }
    for (size_t i = 0; i < size; i++) {
        if (message[i] == '\n') {
            message[i] = '?';
        }
    }
    fprintf(stderr, "attentiond: %s\n", message);
}

void http_log_mhd(void *unused, const char *format, va_list arguments) {
    char message[512];
    (void)unused;
    vsnprintf(message, sizeof message, format, arguments);
    pthread_mutex_lock(&lock);
    if (admit()) {
        write_line(message);
    }
    pthread_mutex_unlock(&lock);
}

void http_log(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    http_log_mhd(NULL, format, arguments);
    va_end(arguments);
}
