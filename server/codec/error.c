/* error.c - the messages, pointers and quotations of error.h. It knows neither readers nor
 * documents. */
#include "codec/error.h"

#include <stdio.h>
#include <string.h>

/* Removes a character at the end that vsnprintf cut in two, and replaces control characters, which
 * must not reach a log. */
static void tidy(char *text) {
    size_t size = strlen(text);
    size_t start = size;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80) {
        start--;
    }
    if (start > 0 && (unsigned char)text[start - 1] >= 0xC0) {
        unsigned char lead = (unsigned char)text[start - 1];
        size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
        if (size - (start - 1) < need) {
            text[start - 1] = '\0';
        }
    }
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7F) {
            *text = '?';
        }
    }
}

void codec_error_message(struct codec_error *error, const char *format, va_list args) {
    vsnprintf(error->message, sizeof error->message, format, args);
    tidy(error->message);
}

void codec_error_set(struct codec_error *error, enum codec_status status, const char *format, ...) {
    *error = (struct codec_error){.status = status};
    va_list args;
    va_start(args, format);
    codec_error_message(error, format, args);
    va_end(args);
}

bool codec_no_memory(struct codec_error *error) {
    codec_error_set(error, CODEC_NO_MEMORY, "out of memory");
    return false;
}

bool codec_pointer_name(struct codec_error *error, const char *name, size_t size) {
    size_t start = strlen(error->pointer);
    size_t used = start;
    if (size > CODEC_ECHO || start + 1 + 2 * size >= sizeof error->pointer) {
        return false;
    }
    error->pointer[used++] = '/';
    for (size_t i = 0; i < size; i++) {
        if (name[i] == '~' || name[i] == '/') {
            error->pointer[used++] = '~';
            error->pointer[used++] = name[i] == '~' ? '0' : '1';
        } else {
            error->pointer[used++] = name[i];
        }
    }
    error->pointer[used] = '\0';
    return true;
}

bool codec_pointer_index(struct codec_error *error, size_t index) {
    char text[24];
    int size = snprintf(text, sizeof text, "%zu", index);
    return codec_pointer_name(error, text, (size_t)size);
}

void codec_pointer_label(const struct codec_error *error, char label[CODEC_QUOTE_SIZE]) {
    const char *start = NULL;
    for (const char *step = error->pointer; (step = strchr(step, '/')) != NULL; step++) {
        size_t size = strcspn(step + 1, "/");
        if (start == NULL || strspn(step + 1, "0123456789") != size) {
            start = step + 1;
        }
    }
    if (start == NULL) {
        strcpy(label, "the body");
        return;
    }
    char plain[sizeof error->pointer];
    size_t used = 0;
    for (const char *from = start; *from != '\0'; from++) {
        bool escaped = *from == '~';
        from += escaped;
        plain[used++] = !escaped ? *from : *from == '0' ? '~' : '/';
    }
    codec_quote(label, plain, used);
}

void codec_quote(char quoted[CODEC_QUOTE_SIZE], const char *text, size_t size) {
    size_t end = size;
    if (end > CODEC_ECHO) {
        end = CODEC_ECHO;
        while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) {
            end--;
        }
    }
    size_t used = 0, i = 0;
    while (i < end && used < CODEC_QUOTE_SIZE - 16) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7F) {
            used += (size_t)snprintf(quoted + used, 8, "\\u%04x", c);
            i++;
            continue;
        }
        do { /* copies a whole character, so that the text is never cut inside one */
            quoted[used++] = text[i++];
        } while (i < end && ((unsigned char)text[i] & 0xC0) == 0x80);
    }
    strcpy(quoted + used, i < size ? "..." : "");
}
