/*
 * shape.c lists the calls to measure: a grid, those of common models, and calls of any size that
 * are drawn from a seed.
 */
#include "shape.h"
#include "support/count.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- lines */

static const struct field {
    const char *name;
    size_t offset;
} fields[] = {
    {"heads", offsetof(struct shape, heads)},
    {"kv_heads", offsetof(struct shape, kv_heads)},
    {"n", offsetof(struct shape, n)},
    {"m", offsetof(struct shape, m)},
    {"d", offsetof(struct shape, d)},
    {"d_v", offsetof(struct shape, d_v)},
    {"d_model", offsetof(struct shape, d_model)},
    {"float64", offsetof(struct shape, float64)},
    {"weights", offsetof(struct shape, weights)},
    {"mask", offsetof(struct shape, mask)},
    {"causal", offsetof(struct shape, causal)},
    {"window", offsetof(struct shape, window)},
    {"packed", offsetof(struct shape, packed)},
    {"prepacked", offsetof(struct shape, prepacked)},
    {"gradients", offsetof(struct shape, gradients)},
    {"linear", offsetof(struct shape, linear)},
    {"gated", offsetof(struct shape, gated)},
    {"delta", offsetof(struct shape, delta)},
};

enum {
    FIELDS = COUNT(fields)
};

void shape_write(const struct shape *s, char *line) {
    size_t used = 0;
    for (size_t i = 0; i < FIELDS; i++) {
        size_t value;
        memcpy(&value, (const char *)s + fields[i].offset, sizeof value);
        if (value != 0) {
            used += (size_t)snprintf(line + used, SHAPE_LINE - used, "%s%s=%zu",
                                     used == 0 ? "" : " ", fields[i].name, value);
        }
    }
}

/* Reads the members in a line. Returns false if one has no such name. */
static bool shape_fill(struct shape *s, const char *line) {
    memset(s, 0, sizeof *s);
    for (line += strspn(line, " "); *line != '\0' && *line != '\n';) {
        const size_t length = strcspn(line, "=");
        size_t field = 0;
        while (field < FIELDS && (strlen(fields[field].name) != length ||
                                  strncmp(fields[field].name, line, length) != 0)) {
            field++;
        }
        if (field == FIELDS || line[length] != '=') {
            return false;
        }
        char *end;
        const size_t value = strtoul(line + length + 1, &end, 10);
        memcpy((char *)s + fields[field].offset, &value, sizeof value);
        line = end + strspn(end, " ");
    }
    return true;
}

bool shape_read(struct shape *s, const char *line) {
    if (!shape_fill(s, line)) {
        return false;
    }
    const bool alone = s->d_model + s->causal + s->float64 + s->mask + s->gradients == 0;
    return s->heads > 0 && s->kv_heads > 0 && s->n > 0 && s->m > 0 && s->d > 0 &&
           (s->linear > 0 ? alone && s->packed > 0 && s->m == s->n && s->kv_heads == s->heads
                          : s->gated + s->delta == 0) &&
           (s->d_model == 0 || (s->packed == 0 && s->m == s->n && s->gradients == 0)) &&
           (s->window == 0 || s->causal > 0) && (s->prepacked == 0 || s->d_model > 0);
}

size_t shape_d_v(const struct shape *s) {
    return s->d_v > 0 ? s->d_v : s->d;
}

/* Returns how many pairs of query and key of a head causal and its window allow. */
static double visible_pairs(const struct shape *s) {
    double pairs = 0;
    if (!s->causal) {
        return (double)s->n * (double)s->m;
    }
    for (size_t i = 0; i < s->n; i++) {
        const size_t first = s->window > 0 && i > s->window ? i - s->window : 0;
        const size_t end = i < s->m ? i + 1 : s->m;
        pairs += end > first ? (double)(end - first) : 0;
    }
    return pairs;
}

double shape_flops(const struct shape *s) {
    if (s->linear) {
        const double state = (double)s->d * (double)shape_d_v(s);
        return 2 * (double)s->heads * (double)s->n * state * (s->delta ? 3 : 2);
    }
    const double columns = (double)(s->d + shape_d_v(s));
    const double of_gradients = s->gradients ? (double)(3 * s->d + 2 * shape_d_v(s)) : 0;
    return 2 * ((columns + of_gradients) * (double)s->heads * visible_pairs(s) +
                columns * (double)s->n * (double)s->d_model * (double)(s->heads + s->kv_heads));
}

/* --------------------------------------------------------------------------------------- groups */

/* The way of a call to the caller of shape_each. */
struct way {
    const regex_t *only; /* or NULL */
    const char *group;
    void (*each)(const char *group, const struct shape *s);
};

static void pass(const struct way *way, const struct shape *s) {
    char line[SHAPE_LINE];
    shape_write(s, line);
    if (way->only == NULL || regexec(way->only, line, 0, NULL, 0) == 0) {
        way->each(way->group, s);
    }
}

/* The calls of the groups, in order. Braces have alternatives, and those of the last braces take
 * turns first. Without kv_heads and m, these are heads and n. */
static const struct {
    const char *group, *lines;
} lists[] = {
    {"grid", "heads={1|8|12} d={3|32|64|128} n={4|16|64|128|512|1024|2048|4096}"},
    {"grid", "heads=32 kv_heads=8 d={3|32|64|128} n={4|16|64|128|512|1024|2048|4096}"},
    {"grid", "heads=8 d={64|128} n={64|128|512|1024|2048|4096} "
             "{causal=1|causal=1 window=256|mask=1|weights=1|float64=1}"},
    {"grid", "n=1 m={1024|16384|100000} {heads=8 d=64|heads=32 kv_heads=8 d=128}"},
    /* Those of 128 and 512 rows without weights are among the models. */
    {"grid", "heads=12 d=64 n=16 d_model=768 {|weights=1}"},
    {"grid", "heads=12 d=64 n={128|512} {packed=1|d_model=768 weights=1}"},
    {"grid", "heads=12 d=64 n=2048 {packed=1|d_model=768|d_model=768 weights=1}"},
    /* Training makes these. */
    {"gradients", "heads=8 d={64|128} n={512|1024|2048|4096} gradients=1 {|causal=1}"},
    {"linear", "packed=1 linear=1 {|gated=1|delta=1|gated=1 delta=1} heads={8|32} d={64|128} "
               "n={1|64|512|4096}"},
    /* Transformers for images and text, whose products are hard to make fast. */
    {"models", "heads=6 d=64 d_model=384 n=50 {|prepacked=1}"},
    {"models", "heads=6 d=64 d_model=384 n=77"},
    {"models", "heads=12 d=64 d_model=768 n=16 prepacked=1"},
    {"models", "heads=12 d=64 d_model=768 n={128|512} {|prepacked=1}"},
    {"models", "heads=12 d=64 n={197|577} {|weights=1}"},
    {"models", "heads=8 d=80 n=512"},
};

/* Passes the calls of a line with alternatives. */
static void pass_lines(const struct way *way, const char *line) {
    const size_t before = strcspn(line, "{"), end = strcspn(line, "}");
    char one[SHAPE_LINE];
    struct shape s;
    if (line[before] == '\0') {
        shape_fill(&s, line);
        s.kv_heads = s.kv_heads == 0 ? s.heads : s.kv_heads;
        s.m = s.m == 0 ? s.n : s.m;
        pass(way, &s);
        return;
    }
    for (size_t at = before; at < end;) {
        const size_t size = strcspn(line + at + 1, "|}");
        snprintf(one, sizeof one, "%.*s%.*s%s", (int)before, line, (int)size, line + at + 1,
                 line + end + 1);
        pass_lines(way, one);
        at += 1 + size;
    }
}

/* ---------------------------------------------------------------------------------------- draws */

/* Vigna's splitmix64, as in Steele, Lea and Flood 2014: "Fast splittable pseudorandom number
 * generators". */
static uint64_t draw_bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Draws a number below `count`. */
static size_t draw_below(uint64_t *state, size_t count) {
    return (size_t)(draw_bits(state) % count);
}

/* Draws a number of rows between 17 and 3000. Its logarithm is uniform, and it is no multiple of 3
 * or 4, so it is no multiple of the rows or columns of a kernel's tile. */
static size_t draw_rows(uint64_t *state) {
    for (;;) {
        const double share = (double)(draw_bits(state) >> 11) * 0x1p-53;
        const size_t rows = (size_t)(17 * exp(share * log(3000.0 / 17)));
        if (rows % 3 != 0 && rows % 4 != 0) {
            return rows;
        }
    }
}

/* Draws the columns of a head. Columns that are hard for a kernel are drawn three times as often as
 * the others. */
static size_t draw_columns(uint64_t *state) {
    static const size_t hard[] = {24, 40, 72, 80, 96, 104, 112, 160}, easy[] = {32, 64, 128};
    enum {
        HARD = COUNT(hard),
        EASY = COUNT(easy)
    };
    const size_t i = draw_below(state, 3 * HARD + EASY);
    return i < 3 * HARD ? hard[i % HARD] : easy[i - 3 * HARD];
}

/* Draws a call. Its kind depends on its index. It has fewer heads than were drawn if its work or
 * its weights would be too large for a sample of some 50 ms on two cores. */
static struct shape draw_shape(uint64_t *state, size_t index) {
    static const struct {
        bool projections, weights, causal;
    } kinds[] = {
        {0},
        {.weights = true},
        {.causal = true},
        {.projections = true},
        {0},
        {.weights = true},
        {.causal = true, .weights = true},
        {.projections = true, .weights = true},
    };
    const size_t kind = index % (COUNT(kinds));
    const bool own_keys = kinds[kind].projections || kinds[kind].causal;
    struct shape s = {.weights = kinds[kind].weights, .causal = kinds[kind].causal};
    s.heads = 1 + draw_below(state, 16);
    s.n = s.m = draw_rows(state);
    s.d = draw_columns(state);
    if (draw_below(state, 3) == 0 && !own_keys) {
        s.m = draw_rows(state);
    }
    if (draw_below(state, 4) == 0) {
        s.d_v = draw_columns(state);
        s.d_v = s.d_v == s.d ? 0 : s.d_v;
    }
    static const double most_flops = 4e9, most_scores = 16e6;
    for (;; s.heads--) {
        const double scores = (double)s.heads * (double)s.n * (double)s.m;
        s.kv_heads = s.heads;
        s.d_model = kinds[kind].projections ? s.heads * s.d : 0;
        if (s.heads == 1 || (shape_flops(&s) <= most_flops && scores <= most_scores)) {
            return s;
        }
    }
}

void shape_each(const struct shape_choice *choice,
                void (*each)(const char *group, const struct shape *s)) {
    regex_t only;
    if (choice->only != NULL && regcomp(&only, choice->only, REG_EXTENDED | REG_NOSUB) != 0) {
        fprintf(stderr, "no regular expression: %s\n", choice->only);
        exit(1);
    }
    struct way way = {.only = choice->only != NULL ? &only : NULL, .each = each};
    for (size_t i = 0; i < COUNT(lists); i++) {
        way.group = lists[i].group;
        if (!choice->without_grid || strcmp(way.group, "models") == 0) {
            pass_lines(&way, lists[i].lines);
        }
    }
    way.group = "drawn";
    uint64_t state = choice->seed;
    for (size_t i = 0; i < choice->drawn; i++) {
        const struct shape s = draw_shape(&state, i);
        pass(&way, &s);
    }
    if (choice->only != NULL) {
        regfree(&only);
    }
}
