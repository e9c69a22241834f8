/*
 * shape.c lists the calls to measure: a grid, those of common models, and calls of any size that
 * are drawn from a seed.
 */
#include "shape.h"

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
    FIELDS = sizeof fields / sizeof *fields
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

bool shape_read(struct shape *s, const char *line) {
    memset(s, 0, sizeof *s);
    while (*line != '\0' && *line != '\n') {
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

static void pass_grid(const struct way *way) {
    static const size_t sizes[] = {4, 16, 64, 128, 512, 1024, 2048, 4096},
                        dims[] = {3, 32, 64, 128};
    static const size_t heads[][2] = {{1, 1}, {8, 8}, {12, 12}, {32, 8}};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        for (size_t j = 0; j < sizeof dims / sizeof *dims; j++) {
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const size_t n = sizes[i];
                pass(way, &(struct shape){.heads = heads[h][0],
                                          .kv_heads = heads[h][1],
                                          .n = n,
                                          .m = n,
                                          .d = dims[j]});
            }
        }
    }
    for (size_t j = 2; j < sizeof dims / sizeof *dims; j++) {
        for (size_t i = 2; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t n = sizes[i], d = dims[j];
            struct shape s = {.heads = 8, .kv_heads = 8, .n = n, .m = n, .d = d, .causal = 1};
            pass(way, &s);
            s.window = 256;
            pass(way, &s);
            s.causal = s.window = 0;
            s.mask = 1;
            pass(way, &s);
            s.mask = 0;
            s.weights = 1;
            pass(way, &s);
            s.weights = 0;
            s.float64 = 1;
            pass(way, &s);
        }
    }
    static const size_t decode[] = {1024, 16384, 100000};
    for (size_t i = 0; i < sizeof decode / sizeof *decode; i++) {
        pass(way, &(struct shape){.heads = 8, .kv_heads = 8, .n = 1, .m = decode[i], .d = 64});
        pass(way, &(struct shape){.heads = 32, .kv_heads = 8, .n = 1, .m = decode[i], .d = 128});
    }
    static const size_t rows[] = {16, 128, 512, 2048};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct shape s = {.heads = 12, .kv_heads = 12, .n = rows[i], .m = rows[i], .d = 64};
        if (s.n > 16) {
            s.packed = 1;
            pass(way, &s);
            s.packed = 0;
        }
        s.d_model = 768;
        if (s.n == 16 || s.n == 2048) { /* the other two are among the models */
            pass(way, &s);
        }
        s.weights = 1;
        pass(way, &s);
    }
}

/* Passes calls with gradients, as training makes them. */
static void pass_gradients(const struct way *way) {
    static const size_t sizes[] = {512, 1024, 2048, 4096}, dims[] = {64, 128};
    for (size_t j = 0; j < sizeof dims / sizeof *dims; j++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct shape s = {.heads = 8,
                              .kv_heads = 8,
                              .n = sizes[i],
                              .m = sizes[i],
                              .d = dims[j],
                              .gradients = 1};
            pass(way, &s);
            s.causal = 1;
            pass(way, &s);
        }
    }
}

/* Passes calls of linear attention with its four rules. */
static void pass_linear(const struct way *way) {
    static const size_t sizes[] = {1, 64, 512, 4096}, dims[] = {64, 128}, heads[] = {8, 32};
    enum {
        RULES = 4,
        CALLS = RULES * 2 * 2 * 4
    };
    for (size_t i = 0; i < CALLS; i++) {
        const size_t rule = i / 16, h = heads[i / 8 % 2], d = dims[i / 4 % 2], n = sizes[i % 4];
        pass(way, &(struct shape){.heads = h,
                                  .kv_heads = h,
                                  .n = n,
                                  .m = n,
                                  .d = d,
                                  .packed = 1,
                                  .linear = 1,
                                  .gated = rule % 2,
                                  .delta = rule / 2});
    }
}

/* Passes calls of transformers for images and text, whose products are hard to make fast. */
static void pass_models(const struct way *way) {
    static const struct {
        size_t heads, n, d, d_model, weights, prepacked;
    } models[] = {
        {6, 50, 64, 384, 0, 0},   {6, 50, 64, 384, 0, 1},   {6, 77, 64, 384, 0, 0},
        {12, 16, 64, 768, 0, 1},  {12, 128, 64, 768, 0, 0}, {12, 128, 64, 768, 0, 1},
        {12, 512, 64, 768, 0, 0}, {12, 512, 64, 768, 0, 1}, {12, 197, 64, 0, 0, 0},
        {12, 197, 64, 0, 1, 0},   {12, 577, 64, 0, 0, 0},   {12, 577, 64, 0, 1, 0},
        {8, 512, 80, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        pass(way, &(struct shape){.heads = models[i].heads,
                                  .kv_heads = models[i].heads,
                                  .n = models[i].n,
                                  .m = models[i].n,
                                  .d = models[i].d,
                                  .d_model = models[i].d_model,
                                  .weights = models[i].weights,
                                  .prepacked = models[i].prepacked});
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
        HARD = sizeof hard / sizeof *hard,
        EASY = sizeof easy / sizeof *easy
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
    const size_t kind = index % (sizeof kinds / sizeof *kinds);
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
    if (!choice->without_grid) {
        way.group = "grid";
        pass_grid(&way);
        way.group = "gradients";
        pass_gradients(&way);
        way.group = "linear";
        pass_linear(&way);
    }
    way.group = "models";
    pass_models(&way);
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
