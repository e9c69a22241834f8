/* status.c - the texts of statuses and results, and the functions that fill an attn_error. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *attn_status_text(attn_status status) {
    switch (status) {
#define ATTN_STATUS_CASE(name, code, text)                                                         \
    case ATTN_##name:                                                                              \
        return text;
        ATTN_STATUS_MAP(ATTN_STATUS_CASE)
#undef ATTN_STATUS_CASE
    }
    return "unknown status";
}

const char *attn_result_name(attn_result result) {
    static const char *const names[] = {
#define ATTN_RESULT_NAME(name, text) [ATTN_RESULT_##name] = text,
        ATTN_RESULT_MAP(ATTN_RESULT_NAME)
#undef ATTN_RESULT_NAME
    };
    return (unsigned)result < ATTN_RESULT_COUNT ? names[result] : NULL;
}

attn_status attn_fail(attn_error *error, attn_status status, const char *argument,
                      const char *format, ...) {
    if (error != NULL) {
        error->status = status;
        error->transposed = false;
        snprintf(error->argument, sizeof error->argument, "%s", argument);
        va_list args;
        va_start(args, format);
        vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
    }
    return status;
}

attn_status attn_of_sequence(attn_error *error, attn_status status, size_t index) {
    if (error != NULL && status != ATTN_OK && status != ATTN_NO_MEMORY) {
        char prefix[40];
        const size_t used = (size_t)snprintf(prefix, sizeof prefix, "sequence %zu: ", index);
        const size_t last = sizeof error->message - 1;
        memmove(error->message + used, error->message, last - used);
        memcpy(error->message, prefix, used);
        error->message[last] = '\0';
    }
    return status;
}

attn_status attn_no_memory(attn_error *error) {
    return attn_fail(error, ATTN_NO_MEMORY, "", "out of memory");
}

attn_status attn_too_large(attn_error *error) {
    return attn_fail(error, ATTN_TOO_LARGE, "", "the matrices of this call are too large");
}
