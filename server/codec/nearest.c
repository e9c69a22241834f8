/* nearest.c - the nearest name by edit distance. */
#include "codec/nearest.h"

#include <stdbool.h>
#include <string.h>

enum {
    NAME_MAX_SIZE = 40, /* longer names are near to none */
    TOO_FAR = 3         /* more edits than any near name is away */
};

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Returns the edit distance, without regard to case. A swap of neighbouring letters is one edit
 * (Damerau 1964, as optimal string alignment). Both names have at most NAME_MAX_SIZE letters. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size) {
    size_t rows[3][NAME_MAX_SIZE + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_size; j++) {
        last[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            bool same = lower(a[i - 1]) == lower(b[j - 1]);
            now[j] = least(last[j - 1] + !same, least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1])) {
                now[j] = least(now[j], before[j - 2] + 1);
            }
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b_size];
}

const char *codec_nearest(const char *name, const char *const *names, size_t count, size_t *edits) {
    const char *nearest = NULL;
    const size_t size = strlen(name);
    *edits = TOO_FAR;
    for (size_t i = 0; size <= NAME_MAX_SIZE && i < count; i++) {
        const size_t other = strlen(names[i]);
        if (other > NAME_MAX_SIZE) {
            continue;
        }
        const size_t shorter = least(size, other), longer = size + other - shorter;
        const size_t allowed = shorter <= 3 ? 1 : 2;
        if (longer - shorter > allowed) { /* each letter too many is an edit */
            continue;
        }
        const size_t away = distance(name, size, names[i], other);
        if (away > allowed || (away > 0 && away == longer)) {
            continue; /* they are too far apart, or have nothing in common like "Z" and "Q" */
        }
        /* If two names are equally near, the longer one has more in common: "wq" is "W_Q", not
         * "Q". */
        if (away < *edits || (away == *edits && other > strlen(nearest))) {
            nearest = names[i];
            *edits = away;
        }
    }
    return nearest;
}
