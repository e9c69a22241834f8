/* log.c - see log.h. One lock, no queue: a line that is over the limit is dropped and counted. */
#define _GNU_SOURCE /* O_CLOEXEC in older headers */
#include "http/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE = 1024
};

/* At most `most` lines in `seconds`. */
struct limit {
    const unsigned most;
    const time_t seconds;
    time_t start;
    unsigned lines;
    unsigned long dropped;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by `lock`, but for `options`, which are set before there are threads. */
static struct http_log_options options;
static int log_fd = STDERR_FILENO;
static struct limit messages = {.most = 10, .seconds = 60};
static struct limit requests = {.most = 1000, .seconds = 1};

/* `text` as it may stand in a line: what is not visible ASCII becomes '?', and in JSON quotes and
 * backslashes get a backslash; spaces stay in sentences. What does not fit is cut off. */
static void make_plain(char *out, size_t size, const char *text, bool spaces) {
    size_t used = 0;
    for (; *text != '\0' && used + 3 <= size; text++) {
        if (options.json && (*text == '"' || *text == '\\')) {
            out[used++] = '\\';
        }
        const bool plain = (*text > ' ' && *text <= '~') || (*text == ' ' && spaces);
        out[used++] = plain ? *text : '?';
    }
    out[used] = '\0';
}

/* ------------------------------------------------------------------------- lines, `lock` held */

/* What does not fit is cut off. A line is one write: those of several processes stay whole. */
static void write_line(char line[static LINE], int length) {
    size_t size = length < LINE - 1 ? (size_t)length : LINE - 2;
    struct pollfd fd = {.fd = log_fd, .events = POLLOUT};
    line[size++] = '\n';
    if (poll(&fd, 1, 0) == 0) {
        return; /* a pipe that nobody reads: better no line than no answer */
    }
    for (size_t done = 0; done < size;) {
        const ssize_t part = write(log_fd, line + done, size - done);
        if (part < 0 && errno != EINTR) {
            return; /* full, or gone: nobody to tell */
        }
        done += part > 0 ? (size_t)part : 0;
    }
}

/* "2026-11-21T10:22:39.123Z" */
static const char *now_as_text(char text[static 32]) {
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    const size_t size = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + size, 32 - size, ".%03ldZ", now.tv_nsec / 1000000);
    return text;
}

static void write_message(const char *level, const char *message) {
    char line[LINE], time[32];
    write_line(line, options.json
                         ? snprintf(line, sizeof line,
                                    "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"%s\"}",
                                    now_as_text(time), level, message)
                         : snprintf(line, sizeof line, "attentiond: %s", message));
}

/* May one more line be written? */
static bool admit(struct limit *limit) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (limit->lines == 0 || now.tv_sec - limit->start >= limit->seconds) {
        if (limit->dropped > 0) {
            char text[64];
            snprintf(text, sizeof text, "%lu lines were left out here", limit->dropped);
            write_message("warning", text);
        }
        limit->start = now.tv_sec;
        limit->lines = 0;
        limit->dropped = 0;
    }
    if (limit->lines == limit->most) {
        limit->dropped++;
        return false;
    }
    limit->lines++;
    return true;
}

/* -------------------------------------------------------------------------------------- public */

static int open_file(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0640);
}

bool http_log_open(const struct http_log_options *wanted, char *error, size_t size) {
    if (wanted->file != NULL) {
        const int fd = open_file(wanted->file);
        if (fd < 0) {
            snprintf(error, size, "the log %s: %s", wanted->file, strerror(errno));
            return false;
        }
        log_fd = fd;
    }
    options = *wanted;
    return true;
}

void http_log_reopen(void) {
    if (options.file == NULL) {
        return;
    }
    const int fd = open_file(options.file);
    if (fd < 0) {
        http_log("the log stays where it was: %s", strerror(errno));
        return;
    }
    pthread_mutex_lock(&lock);
    const int old = log_fd;
    log_fd = fd;
    pthread_mutex_unlock(&lock);
    if (old != STDERR_FILENO) {
        close(old);
    }
}

void http_log_mhd(void *unused, const char *format, va_list arguments) {
    char text[512], message[768];
    (void)unused;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    make_plain(message, sizeof message, text, true);
    pthread_mutex_lock(&lock);
    if (admit(&messages)) {
        write_message("warning", message);
    }
    pthread_mutex_unlock(&lock);
}

void http_log(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    http_log_mhd(NULL, format, arguments);
    va_end(arguments);
}

bool http_log_wants_requests(void) {
    return options.requests;
}

void http_log_request(const struct http_request *request, const struct http_record *record,
                      const char *client) {
    char line[LINE], time[32], path[256], id[160], method[32], stages[160] = "";
    const double *ms = record->timing;
    make_plain(method, sizeof method, request->head ? "HEAD" : request->method, false);
    make_plain(path, sizeof path, request->path, false);
    make_plain(id, sizeof id, request->id, false);
    if (ms != NULL && options.json) {
        snprintf(stages, sizeof stages,
                 ",\"decode_ms\":%.3f,\"queue_ms\":%.3f,\"compute_ms\":%.3f,\"encode_ms\":%.3f",
                 ms[HTTP_TIMING_DECODE], ms[HTTP_TIMING_QUEUE], ms[HTTP_TIMING_COMPUTE],
                 ms[HTTP_TIMING_ENCODE]);
    }
    now_as_text(time);
    const int size =
        options.json
            ? snprintf(
                  line, sizeof line,
                  "{\"time\":\"%s\",\"level\":\"info\",\"request_id\":\"%s\",\"client\":\"%s\","
                  "\"method\":\"%s\",\"path\":\"%s\",\"status\":%d,\"received\":%llu,"
                  "\"sent\":%llu,\"ms\":%.3f%s}",
                  time, id, client, method, path, record->status,
                  (unsigned long long)record->received, (unsigned long long)record->sent,
                  record->seconds * 1e3, stages)
            : snprintf(line, sizeof line, "%s %s %s %s %d %llu > %llu %.3f ms %s", time, client,
                       method, path, record->status, (unsigned long long)record->received,
                       (unsigned long long)record->sent, record->seconds * 1e3, id);
    pthread_mutex_lock(&lock);
    if (admit(&requests)) {
        write_line(line, size);
    }
    pthread_mutex_unlock(&lock);
}
