/* battery.h runs a kernel over the cases of cases.txt, and lets the service judge what it makes of
 * them. It is for C, C++ and CUDA, and calls curl. The head of cases.txt says what the keys of a
 * case mean and how the numbers are drawn. */
#ifndef BATTERY_H
#define BATTERY_H

#include "save.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CASES "cases.txt"

/* The inputs of a case, and room for the results, in the memory of the host. Matrices of queries
 * are (batch, heads, n, columns), those of keys (batch, kv_heads, m, columns). With `sequences` they
 * are (n, heads, columns) and (m, kv_heads, columns). All numbers are such as the type of the kernel
 * holds. An input that the case does not have is NULL or 0. */
struct problem {
    int batch, heads, kv_heads, n, m, d, d_v;
    const float *Q, *K, *V, *grad_output;
    double scale, softcap;
    int causal;                /* 1, or 2: the last query stands at the last key */
    int windowed, left, right; /* so many keys on each side; -1: all */
    int rotary;                /* 1: halves of the columns, 2: neighbours */
    const float *sink, *alibi; /* (heads) */
    const float *bias;         /* (heads, n, m) */
    const unsigned char *mask; /* (n, m), 1 where a query sees a key */
    const int *lengths;        /* (batch) */
    const int *sequences;      /* sequence s has the rows from sequences[s] to sequences[s + 1] */
    int sequence_count;
    const char *update;        /* of linear attention: linear, gated, delta or gated_delta */
    const float *decay, *beta; /* (batch, heads, n), or (n, heads) */
    const float *state;        /* (batch, heads, d, d_v) */
    float *output, *lse;       /* lse is (batch, heads, n), or (heads, n) */
    float *grad_Q, *grad_K, *grad_V;
    float *present_state; /* (batch or sequence_count, heads, d, d_v) */
};

/* A kernel returns NULL, or what it lacks: then the case is left out. */
typedef const char *battery_kernel(const struct problem *p);

struct battery_case {
    char text[512], *name, *keys[16], *values[16];
    int count;
};

struct battery_matrix {
    char name[32], shape[64];
    int exact; /* it is F32 whatever the type of the kernel is */
    size_t count;
    float *numbers;
    uint16_t *halves;
};

struct battery {
    struct battery_case c;
    unsigned long seed;
    const char *type; /* of the kernel: F32, F16 or BF16 */
    struct battery_matrix matrices[24];
    int matrix_count, lengths[16], sequences[16];
    unsigned char *mask;
};

/* ---------------------------------------------------------------------------- the file of cases */

static int battery_read(FILE *file, struct battery_case *c) {
    while (fgets(c->text, sizeof c->text, file)) {
        c->text[strcspn(c->text, "#\r\n")] = 0;
        c->name = strtok(c->text, ": ");
        for (c->count = 0; c->name && c->count < 16; c->count++) {
            c->keys[c->count] = strtok(NULL, "= ");
            c->values[c->count] = strtok(NULL, " ");
            if (!c->values[c->count])
                return 1;
        }
    }
    return 0;
}

static const char *battery_text(const struct battery *b, const char *key) {
    for (int i = 0; i < b->c.count; i++)
        if (!strcmp(b->c.keys[i], key))
            return b->c.values[i];
    return NULL;
}

static int battery_is(const struct battery *b, const char *key, const char *value) {
    const char *text = battery_text(b, key);
    return text && !strncmp(text, value, strlen(value));
}

static int battery_size(const struct battery *b, const char *key, int otherwise) {
    const char *text = battery_text(b, key);
    return text ? atoi(text) : otherwise;
}

/* Returns the number behind the colon of a value such as first:64. */
static int battery_behind(const struct battery *b, const char *key) {
    return atoi(strchr(battery_text(b, key), ':') + 1);
}

static int battery_list(const struct battery *b, const char *key, int *numbers) {
    int count = 0;
    for (const char *at = battery_text(b, key); at && count < 15; at = strchr(at, ',')) {
        at += *at == ',';
        numbers[count++] = atoi(at);
    }
    return count;
}

/* -------------------------------------------------------------------------------- drawn numbers */

/* Returns where the numbers of a matrix begin. */
static uint64_t battery_seeded(const struct battery *b, const char *what) {
    char text[128];
    uint64_t s = 0xCBF29CE484222325;
    snprintf(text, sizeof text, "%lu %s %s", b->seed, b->c.name, what);
    for (const char *at = text; *at; at++)
        s = (s ^ (unsigned char)*at) * 0x100000001B3;
    return s;
}

static uint64_t battery_bits(uint64_t s, size_t i) {
    uint64_t z = s + (i + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static double battery_uniform(uint64_t s, size_t i) {
    return ldexp((double)(battery_bits(s, i) >> 11), -53);
}

static double battery_normal(uint64_t s, size_t i) {
    uint64_t z = battery_bits(s, i);
    double sum = 0;
    for (int part = 0; part < 4; part++)
        sum += (double)(z >> 16 * part & 0xFFFF);
    return (sum - 131070) * (sqrt(3) / 65536);
}

static float battery_rounded(const struct battery *b, double x) {
    int half = !strcmp(b->type, "F16"), exponent;
    if (!strcmp(b->type, "F32") || !isfinite(x) || x == 0)
        return (float)x;
    x = half ? x : (float)x;
    frexp(x, &exponent);
    exponent -= half ? 11 : 8;
    exponent = exponent < (half ? -24 : -133) ? (half ? -24 : -133) : exponent;
    return (float)ldexp(rint(ldexp(x, -exponent)), exponent);
}

/* Returns the 16 bits of a number that the type of the kernel holds. */
static uint16_t battery_half(const struct battery *b, float x) {
    uint32_t bits;
    int exponent;
    memcpy(&bits, &x, 4);
    unsigned sign = bits >> 16 & 0x8000;
    if (!strcmp(b->type, "BF16"))
        return (uint16_t)(bits >> 16);
    if (isnan(x) || fabs(x) > 65504)
        return (uint16_t)(sign | (isnan(x) ? 0x7E00 : 0x7C00));
    double part = frexp(fabs(x), &exponent);
    if (x == 0 || exponent < -13)
        return (uint16_t)(sign | (unsigned)ldexp(part, exponent + 24));
    return (uint16_t)(sign + ((unsigned)(exponent + 13) << 10) + (unsigned)ldexp(part, 11));
}

/* ---------------------------------------------------------------------------- inputs and results */

static float *battery_add(struct battery *b, const char *name, const char *shape) {
    struct battery_matrix *x = &b->matrices[b->matrix_count++];
    snprintf(x->name, sizeof x->name, "%s", name);
    snprintf(x->shape, sizeof x->shape, "%s", shape);
    x->exact = !strcmp(name, "expected.lse") || !strcmp(name, "expected.present_state");
    x->count = 1;
    for (const char *at = shape; at; at = strchr(at, ',')) {
        at += *at == ',';
        x->count *= (size_t)atoi(at);
    }
    x->numbers = (float *)malloc(x->count * sizeof(float) + 1);
    x->halves = (uint16_t *)malloc(x->count * sizeof(uint16_t) + 1);
    if (!x->numbers || !x->halves)
        exit(2);
    for (size_t i = 0; i < x->count; i++)
        x->numbers[i] = NAN; /* a number that a kernel does not write is wrong */
    return x->numbers;
}

/* Adds Q, K or V. Each is drawn in double, changed as the keys of the case say, and then rounded. */
static float *battery_rows(struct battery *b, const struct problem *p, const char *name) {
    int query = *name == 'Q' || *name == 'g', value = *name == 'V' || *name == 'g';
    int rows = query ? p->n : p->m, heads = query ? p->heads : p->kv_heads;
    int columns = value ? p->d_v : p->d;
    int given = *name != 'g'; /* no key changes grad_output */
    double tiny = !strcmp(b->type, "F16") ? 6e-5 : 1e-38;
    char shape[64], zeros[32];
    if (p->sequences)
        snprintf(shape, sizeof shape, "%d, %d, %d", rows, heads, columns);
    else
        snprintf(shape, sizeof shape, "%d, %d, %d, %d", p->batch, heads, rows, columns);
    snprintf(zeros, sizeof zeros, "-0 %s", name);
    uint64_t s = battery_seeded(b, name), signs = battery_seeded(b, zeros);
    float *numbers = battery_add(b, name, shape);
    for (size_t at = 0; at < b->matrices[b->matrix_count - 1].count; at += (size_t)columns) {
        int row = (int)(at / (size_t)columns), item = row / (heads * rows);
        double norm = 0;
        row = p->sequences ? row / heads : row % rows;
        for (int column = 0; column < columns; column++) {
            size_t i = at + (size_t)column;
            double x = battery_normal(s, i);
            if (*name == 'Q' && battery_is(b, "scores", "equal"))
                x = 0;
            if (*name == 'K' && battery_is(b, "scores", "huge") && row == (rows > 1))
                x *= 40;
            if (!value && !column && battery_is(b, "scores", "falling"))
                x = query ? 1 : -100 / p->scale * (row / battery_behind(b, "scores"));
            if (!value && !column && battery_is(b, "scores", "rising"))
                x = query ? 1 : 100 / p->scale * (row / battery_behind(b, "scores"));
            if (!value && !column && (battery_is(b, "scores", "low") || battery_is(b, "scores", "high")))
                x = query ? 1 : (battery_is(b, "scores", "low") ? -200 : 200) / p->scale;
            if (*name == 'V' && battery_text(b, "V"))
                x = battery_is(b, "V", "ones") || row % columns == column;
            if (given && battery_is(b, "inputs", "tiny"))
                x *= tiny;
            if (given && battery_is(b, "inputs", "signed_zero") && battery_uniform(signs, i) < 0.5)
                x = -0.0;
            if (given && !query && battery_text(b, "behind") && row >= p->lengths[item])
                x = NAN;
            norm += x * x;
            numbers[i] = battery_rounded(b, x);
        }
        for (int column = 0; *name == 'K' && p->beta && column < columns; column++) {
            size_t i = at + (size_t)column; /* no other key changes this K */
            numbers[i] = battery_rounded(b, battery_normal(s, i) / sqrt(norm));
        }
    }
    return numbers;
}

/* Adds a matrix that the value of this key describes. The service has another name for the state. */
static float *battery_drawn(struct battery *b, const char *name, const char *key,
                            const char *shape) {
    const char *text = battery_text(b, key);
    if (!text)
        return NULL;
    float *numbers = battery_add(b, name, shape);
    uint64_t s = battery_seeded(b, key);
    int given = strcmp(text, "drawn") && strcmp(text, "normal");
    for (size_t i = 0; i < b->matrices[b->matrix_count - 1].count; i++) {
        double x = !strcmp(key, "beta") ? battery_uniform(s, i) : battery_normal(s, i);
        x = given ? atof(text) : x;
        if (!strcmp(key, "decay"))
            x = given ? log(x > 0 ? x : 2e-87) : -log1p(exp(x));
        numbers[i] = battery_rounded(b, x);
    }
    return numbers;
}

static unsigned char *battery_mask(const struct battery *b, const struct problem *p) {
    if (!battery_text(b, "mask"))
        return NULL;
    unsigned char *mask = (unsigned char *)malloc((size_t)p->n * (size_t)p->m);
    if (!mask)
        exit(2);
    uint64_t s = battery_seeded(b, "mask");
    int half = battery_is(b, "mask", "half"), at = half ? 0 : battery_behind(b, "mask");
    int row = at < p->n ? at : p->n - 1;
    for (int i = 0; i < p->n * p->m; i++) {
        if (half)
            mask[i] = i / p->m == i % p->m || battery_uniform(s, (size_t)i) < 0.5;
        else
            mask[i] = battery_is(b, "mask", "first") ? i % p->m >= at : i / p->m != row;
    }
    return mask;
}

static void battery_inputs(struct battery *b, struct problem *p) {
    const char *text;
    char heads[64], gates[64], scores[64], state[64];
    memset(p, 0, sizeof *p);
    p->update = battery_text(b, "update");
    if (battery_list(b, "lengths", b->lengths))
        p->lengths = b->lengths;
    if ((p->sequence_count = battery_list(b, "sequences", b->sequences + 1))) {
        p->sequences = b->sequences;
        for (int i = 1; i <= p->sequence_count; i++)
            b->sequences[i] += b->sequences[i - 1];
    }
    p->batch = battery_size(b, "batch", 1);
    p->heads = battery_size(b, "heads", 1);
    p->kv_heads = battery_size(b, "kv_heads", p->heads);
    p->n = p->sequences ? b->sequences[p->sequence_count] : battery_size(b, "n", 1);
    p->m = battery_size(b, "m", p->n);
    p->d = battery_size(b, "d", 64);
    p->d_v = battery_size(b, "d_v", p->d);
    p->scale = (text = battery_text(b, "scale")) ? atof(text) : 1 / sqrt(p->d);
    p->softcap = (text = battery_text(b, "softcap")) ? atof(text) : 0;
    p->causal = battery_text(b, "causal") ? 1 + battery_is(b, "causal", "bottom_right") : 0;
    if ((text = battery_text(b, "window")))
        p->windowed = sscanf(text, "%d,%d", &p->left, &p->right) == 2;
    p->rotary = battery_text(b, "rotary") ? 1 + battery_is(b, "rotary", "interleaved") : 0;
    snprintf(heads, sizeof heads, "%d", p->heads);
    snprintf(scores, sizeof scores, "%d, %d, %d", p->heads, p->n, p->m);
    snprintf(state, sizeof state, "%d, %d, %d, %d", p->batch, p->heads, p->d, p->d_v);
    if (p->sequences)
        snprintf(gates, sizeof gates, "%d, %d", p->n, p->heads);
    else
        snprintf(gates, sizeof gates, "%d, %d, %d", p->batch, p->heads, p->n);

    if ((text = battery_text(b, "sink"))) {
        float *sink = battery_add(b, "sink", heads);
        for (int h = 0; h < p->heads; h++)
            sink[h] = battery_rounded(b, atof(text) + h / 8.0);
        p->sink = sink;
    }
    if (battery_text(b, "alibi")) {
        float *slopes = battery_add(b, "alibi", heads);
        int power = 1;
        while (power * 2 <= p->heads)
            power *= 2;
        for (int h = 0; h < p->heads; h++) {
            double exponent =
                h < power ? -8.0 * (h + 1) / power : -4.0 * (2 * (h - power) + 1) / power;
            slopes[h] = battery_rounded(b, pow(2, exponent));
        }
        p->alibi = slopes;
    }
    p->bias = battery_drawn(b, "bias", "bias", scores);
    p->decay = battery_drawn(b, "decay", "decay", gates);
    p->beta = battery_drawn(b, "beta", "beta", gates);
    p->state = battery_drawn(b, "past_state", "state", state);
    p->mask = b->mask = battery_mask(b, p);
    p->Q = battery_rows(b, p, "Q");
    p->K = battery_rows(b, p, "K");
    p->V = battery_rows(b, p, "V");
    p->grad_output = battery_rows(b, p, "grad_output");
}

static const char *battery_shape(const struct battery *b, const char *name) {
    int i = 0;
    while (strcmp(b->matrices[i].name, name))
        i++;
    return b->matrices[i].shape;
}

static void battery_results(struct battery *b, struct problem *p) {
    char lse[64], state[64];
    if (p->sequences)
        snprintf(lse, sizeof lse, "%d, %d", p->heads, p->n);
    else
        snprintf(lse, sizeof lse, "%d, %d, %d", p->batch, p->heads, p->n);
    snprintf(state, sizeof state, "%d, %d, %d, %d", p->sequences ? p->sequence_count : p->batch,
             p->heads, p->d, p->d_v);
    p->output = battery_add(b, "expected.output", battery_shape(b, "grad_output"));
    p->lse = battery_add(b, "expected.lse", lse);
    p->grad_Q = battery_add(b, "expected.grad_Q", battery_shape(b, "Q"));
    p->grad_K = battery_add(b, "expected.grad_K", battery_shape(b, "K"));
    p->grad_V = battery_add(b, "expected.grad_V", battery_shape(b, "V"));
    p->present_state = battery_add(b, "expected.present_state", state);
}

/* ----------------------------------------------------------------------------------- the verdict */

static void battery_option(char *options, const char *key, const char *before, const char *value,
                           const char *behind) {
    size_t used = strlen(options);
    if (value)
        snprintf(options + used, 1024 - used, ", \"%s\": \"%s%s%s\"", key, before, value, behind);
}

/* Writes the file of a case. Returns 0 if it has written everything. */
static int battery_save(struct battery *b, const struct problem *p, const char *results,
                        const char *path) {
    struct tensor tensors[25];
    char options[1024] = OPTIONS, mask[64], offsets[256] = "0";
    int count = 0;
    battery_option(options, "scale", "", battery_text(b, "scale"), "");
    battery_option(options, "softcap", "", battery_text(b, "softcap"), "");
    battery_option(options, "window", "[", battery_text(b, "window"), "]");
    battery_option(options, "lengths", "[", battery_text(b, "lengths"), "]");
    battery_option(options, "update", "", p->update, "");
    battery_option(options, "causal", "", battery_text(b, "causal"), "");
    if (p->rotary)
        battery_option(options, "rotary", "{\\\"base\\\": 10000, \\\"interleaved\\\": ",
                       p->rotary == 2 ? "true" : "false", "}");
    for (int i = 1; i <= p->sequence_count; i++) {
        size_t used = strlen(offsets);
        snprintf(offsets + used, sizeof offsets - used, ", %d", p->sequences[i]);
    }
    battery_option(options, "sequence_offsets", "[[", p->sequences ? offsets : NULL, "]]");
    battery_option(options, "computed_in", "",
                   *b->type == 'B'     ? "bfloat16"
                   : b->type[1] == '1' ? "float16"
                                       : "float32",
                   "");
    for (struct battery_matrix *x = b->matrices; x < b->matrices + b->matrix_count; x++) {
        int plain = x->exact || !strcmp(b->type, "F32");
        if (!strncmp(x->name, "expected.", 9) ? !strstr(results, x->name + 9)
                                              : *x->name == 'g' && !strstr(results, "grad_"))
            continue;
        if (!strcmp(x->name, p->update ? "expected.lse" : "expected.present_state"))
            continue;
        for (size_t i = 0; !plain && i < x->count; i++)
            x->halves[i] = battery_half(b, battery_rounded(b, x->numbers[i]));
        struct tensor t = {x->name, plain ? "F32" : b->type, x->shape, x->numbers, x->count * 4};
        if (!plain)
            t.data = x->halves, t.bytes = x->count * 2;
        tensors[count++] = t;
    }
    if (p->mask) {
        struct tensor t = {"mask", "BOOL", mask, p->mask, (size_t)p->n * (size_t)p->m};
        snprintf(mask, sizeof mask, "%d, %d", p->n, p->m);
        tensors[count++] = t;
    }
    return save(path, options, tensors, count);
}

/* Sends the file, and prints the verdict. Returns whether the results are right. */
static int battery_send(const struct problem *p, const char *path) {
    static char answer[1 << 16];
    const char *verdict, *at;
    char command[512];
    snprintf(command, sizeof command,
             "curl -sS -o battery.json \"${ATTENTIOND_URL:-http://127.0.0.1:8080}/%s\" "
             "--data-binary @%s "
             "-H 'Content-Type: application/vnd.safetensors' -H 'Accept: application/json' "
             "${ATTENTIOND_API_KEY:+-H \"Authorization: Bearer $ATTENTIOND_API_KEY\"}",
             p->update ? "linear-attention" : "attention", path);
    FILE *file = system(command) ? NULL : fopen("battery.json", "rb");
    if (!file)
        exit(2); /* curl has said why */
    answer[fread(answer, 1, sizeof answer - 1, file)] = 0;
    fclose(file);
    remove("battery.json");
    verdict = strstr(answer, "\"comparison\":{\"verdict\":\"");
    if (!verdict) {
        printf("refused  %s\n", answer);
        return 0;
    }
    verdict += strlen("\"comparison\":{\"verdict\":\"");
    printf("%.*s\n", (int)strcspn(verdict, "\""), verdict);
    if (*verdict == 'e' || *verdict == 'r') /* equal or rounded */
        return 1;
    for (at = verdict; (at = strstr(at, "\"message\":\"")); at += strcspn(at, "\"")) {
        at += strlen("\"message\":\"");
        printf("    %.*s\n", (int)strcspn(at, "\""), at);
    }
    printf("    %s has the inputs and the results\n", path);
    return 0;
}

/* Runs the cases: PROGRAM [--cases FILE] [--seed NUMBER] [NAME...]. type: that of the inputs of the
 * kernel, F32, F16 or BF16, in which it computes. results: those that it writes, such as "output
 * lse". Returns 0 if each case that has run is right. ATTENTIOND_URL and ATTENTIOND_API_KEY of the
 * environment name the service. */
static int battery(int argc, char **argv, battery_kernel *run, const char *type,
                   const char *results) {
    static struct battery b;
    const char *path = CASES;
    int first = 1, ran = 0, right = 0, left_out = 0;
    b.seed = 1;
    b.type = type;
    for (; first < argc && *argv[first] == '-'; first += 2) {
        if (first + 1 < argc && !strcmp(argv[first], "--cases"))
            path = argv[first + 1];
        else if (first + 1 < argc && !strcmp(argv[first], "--seed"))
            b.seed = strtoul(argv[first + 1], NULL, 10);
        else {
            fprintf(stderr, "usage: %s [--cases FILE] [--seed NUMBER] [NAME...]\n", argv[0]);
            return 2;
        }
    }
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "there is no file %s: name it with --cases\n", path);
        return 2;
    }
    while (battery_read(file, &b.c)) {
        struct problem p;
        char name[64];
        int wanted = first == argc;
        for (int i = first; i < argc; i++)
            wanted |= !strcmp(argv[i], b.c.name);
        if (!wanted)
            continue;
        battery_inputs(&b, &p);
        battery_results(&b, &p);
        printf("%-20s ", b.c.name);
        fflush(stdout); /* the name stands there if the kernel crashes */
        const char *lacks = run(&p);
        snprintf(name, sizeof name, "%.40s.safetensors", b.c.name);
        if (lacks) {
            printf("left out: %s\n", lacks);
            left_out++;
        } else if (battery_save(&b, &p, results, name)) {
            fprintf(stderr, "%s cannot be written\n", name);
            return 2;
        } else {
            ran++;
            if (battery_send(&p, name) && ++right)
                remove(name);
        }
        while (b.matrix_count) {
            free(b.matrices[--b.matrix_count].numbers);
            free(b.matrices[b.matrix_count].halves);
        }
        free(b.mask);
        b.mask = NULL;
    }
    fclose(file);
    if (!ran && !left_out)
        fprintf(stderr, "%s has no such case\n", path);
    printf("%d of %d cases are right, %d are left out\n", right, ran, left_out);
    return right < ran || !ran;
}

#endif
