/* log.c writes the log. There is no queue: a line that is over its limit is dropped and counted. */
#define _GNU_SOURCE /* O_CLOEXEC in older headers */
#include "http/log.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE = 1024,       /* bytes of a line, at most */
    MAX_REASONS = 16,  /* different reasons in one summary */
    SUMMARY_MS = 60000 /* the least time from one summary of refusals to the next one */
};

/* A limit of `most` lines in `seconds`. */
struct limit {
    const unsigned most;
    const int64_t seconds;
    int64_t start; /* whole seconds of the clock */
    unsigned lines;
    unsigned long dropped;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* `options` are set before there are threads. `lock` guards the others. */
static struct http_log_options options;
static int log_fd = STDERR_FILENO;
static bool torn; /* the log ends with a part of a line */
static struct limit messages = {.most = 10, .seconds = 60};
static struct limit requests = {.most = 1000, .seconds = 1};

/* The refusals since the last summary. They have a lock of their own, so that counting never waits
 * for a line that is being written. */
static struct {
    pthread_mutex_t lock;
    struct {
        const char *reason; /* static */
        unsigned long count;
    } reasons[MAX_REASONS];
    size_t reason_count;
    int64_t first;   /* clock_ms() of the first refusal */
    int64_t summary; /* clock_ms() of the last summary; 0 = there was none */
} refused = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Writes `text` so that it may stand in a line: '?' replaces every byte that is not visible ASCII,
 * and in JSON a backslash precedes quotes and backslashes. `spaces` lets spaces stay, in sentences.
 * Text that does not fit is cut off. */
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

/* Returns how many bytes were written. They are fewer than `size` if the log is full or gone. */
static size_t write_bytes(const char *text, size_t size) {
    size_t done = 0;
    while (done < size) {
        const ssize_t part = write(log_fd, text + done, size - done);
        if (part < 0 && errno != EINTR) {
            break;
        }
        done += part > 0 ? (size_t)part : 0;
    }
    return done;
}

/* Writes a line in one write, so that the lines of several processes stay whole. A line that does
 * not fit is cut off. */
static void write_line(char line[static LINE], int length) {
    size_t size = length < LINE - 1 ? (size_t)length : LINE - 2;
    struct pollfd fd = {.fd = log_fd, .events = POLLOUT};
    line[size++] = '\n';
    if (poll(&fd, 1, 0) == 0) {
        return; /* nobody reads the pipe: a lost line is better than a server that waits */
    }
    if (torn && write_bytes("\n", 1) == 0) {
        return;
    }
    const size_t done = write_bytes(line, size);
    torn = done > 0 && done < size;
}

/* Writes the time like this: "2026-11-21T10:22:39.123Z". */
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
    write_line(line,
               options.json
                   ? snprintf(line, sizeof line,
                              "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"%s\"}",
                              now_as_text(time), level, message)
                   : snprintf(line, sizeof line, "%s attentiond: %s", now_as_text(time), message));
}

/* Returns whether the limit allows one more line. If a new period begins after lines were dropped,
 * their number is written first. */
static bool admit(struct limit *limit) {
    const int64_t now = clock_ms() / 1000;
    if (limit->lines == 0 || now - limit->start >= limit->seconds) {
        if (limit->dropped > 0) {
            char text[64];
            snprintf(text, sizeof text, "%lu lines were left out here", limit->dropped);
            write_message("warning", text);
        }
        limit->start = now;
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

/* Opens the terminal of standard error once more, so that a write never waits for somebody to read
 * it. If O_NONBLOCK were set on standard error itself, it would change for all programs on that
 * terminal. */
static int open_terminal(void) {
    const int fd = isatty(STDERR_FILENO)
                       ? open("/dev/stderr", O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)
                       : -1;
    return fd >= 0 ? fd : STDERR_FILENO;
}

bool http_log_open(const struct http_log_options *wanted, char *error, size_t size) {
    if (wanted->file != NULL) {
        const int fd = open_file(wanted->file);
        if (fd < 0) {
            snprintf(error, size, "the log file %s cannot be opened: %s", wanted->file,
                     strerror(errno));
            return false;
        }
        log_fd = fd;
    } else {
        log_fd = open_terminal();
    }
    options = *wanted;
    return true;
}

bool http_log_reopen(void) {
    if (options.file == NULL) {
        return false;
    }
    const int fd = open_file(options.file);
    if (fd < 0) {
        http_log("warning", "the log stays where it was: %s cannot be opened: %s", options.file,
                 strerror(errno));
        return false;
    }
    pthread_mutex_lock(&lock);
    const int old = log_fd;
    log_fd = fd;
    torn = false;
    pthread_mutex_unlock(&lock);
    if (old != STDERR_FILENO) {
        close(old);
    }
    return true;
}

/* Writes a message, within the limit if there is one. */
static void write_text(const char *level, struct limit *limit, const char *text) {
    char message[768];
    make_plain(message, sizeof message, text, true);
    pthread_mutex_lock(&lock);
    if (limit == NULL || admit(limit)) {
        write_message(level, message);
    }
    pthread_mutex_unlock(&lock);
}

void http_log_mhd(void *unused, const char *format, va_list arguments) {
    char text[512];
    (void)unused;
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = '\0';
    write_text("warning", &messages, text);
}

void http_log(const char *level, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    write_text(level, NULL, text);
}

/* ------------------------------------------------------------------------------------ refusals */

void http_log_refused(const char *reason) {
    size_t i = 0;
    pthread_mutex_lock(&refused.lock);
    while (i < refused.reason_count && strcmp(refused.reasons[i].reason, reason) != 0) {
        i++;
    }
    if (i == refused.reason_count && i < MAX_REASONS) {
        refused.first = i == 0 ? clock_ms() : refused.first;
        refused.reasons[i].reason = reason;
        refused.reasons[i].count = 0;
        refused.reason_count++;
    }
    if (i < MAX_REASONS) {
        refused.reasons[i].count++;
    }
    pthread_mutex_unlock(&refused.lock);
}

/* Writes the counts of the refusals as a sentence and begins to count anew. */
static void take_summary(char *text, size_t size, int64_t now) {
    unsigned long total = 0;
    size_t used;
    for (size_t i = 0; i < refused.reason_count; i++) {
        total += refused.reasons[i].count;
    }
    used = (size_t)snprintf(text, size, "refused %lu time%s in the last %lld s", total,
                            total == 1 ? "" : "s", (long long)(now - refused.first) / 1000 + 1);
    for (size_t i = 0; i < refused.reason_count && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%lu %s", i == 0 ? ": " : ", ",
                                 refused.reasons[i].count, refused.reasons[i].reason);
    }
    refused.reason_count = 0;
    refused.summary = now;
}

void http_log_summary(bool last) {
    char text[768];
    const int64_t now = clock_ms();
    pthread_mutex_lock(&refused.lock);
    const bool due = refused.reason_count > 0 &&
                     (last || refused.summary == 0 || now - refused.summary >= SUMMARY_MS);
    if (due) {
        take_summary(text, sizeof text, now);
    }
    pthread_mutex_unlock(&refused.lock);
    if (due) {
        write_text("warning", NULL, text);
    }
}

/* ------------------------------------------------------------------------------------ requests */

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
