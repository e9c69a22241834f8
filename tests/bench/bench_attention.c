/*
 * bench_attention.c measures how close attention comes to the best speed of the machine: it prints
 * the GFLOP/s of the matrix products of each call (shape_flops), and their ratio to those of
 * cblas_sgemm (or cblas_dgemm) on as many threads, on square matrices of the size that is fastest.
 * Call and product are measured in turns, and the ratio is the median of the turns. At the end come
 * the mean and the worst ratio of each group of calls. The same results are written as JSON to the
 * file $BENCH_JSON.
 *
 *   bench_attention             measures a grid, calls of common models and calls that are drawn
 *   bench_attention --seed N    draws from this seed, and leaves the grid out
 *   bench_attention --shapes N  draws so many calls, and leaves the grid out
 *   bench_attention --only RE   measures only calls whose line matches the regular expression
 *   bench_attention LINE...     measures these calls, which are written as --list does
 *   bench_attention --list      lists the calls; it takes the options above. A line "# GROUP" comes
 *                               before the calls of each group
 *   bench_attention --serve     reads lines of calls and answers each with a sample in seconds. A
 *                               line "numbers LINE" asks for numbers of the results, and "gemm" for
 *                               the rate of cblas_sgemm in operations per second
 *
 * $BENCH_THREADS threads (default: as many as there are cores) run the tasks of a plan.
 */
#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attention.h"
#include "blas_setup.h"
#include "pool.h"
#include "shape.h"
#include "support/count.h"

enum {
    RUNS = 9,
    SLOW_RUNS = 5, /* for calls that take long */
    SEED = 1,      /* of the calls that are drawn if no option names another */
    DRAWN = 32
};

/* ------------------------------------------------------------------------------------ measuring */

static double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *x, int count) {
    qsort(x, (size_t)count, sizeof *x, compare_doubles);
    return x[count / 2];
}

static void *allocate(size_t bytes) {
    const size_t units = (bytes + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT + 1;
    void *data = aligned_alloc(ATTN_ALIGNMENT, units * ATTN_ALIGNMENT);
    if (data == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return data;
}

/* Returns new numbers with a variance of about 1, times `scale`. */
static void *make_numbers(size_t count, bool wide, double scale) {
    void *data = allocate(count * (wide ? 8 : 4));
    uint32_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        const double x = (double)(int32_t)state / 2147483648.0 * 1.7 * scale;
        if (wide) {
            ((double *)data)[i] = x;
        } else {
            ((float *)data)[i] = (float)x;
        }
    }
    return data;
}

static int threads;

/* A product of square matrices that every thread computes at once, each on its own matrices. */
static struct {
    bool wide;
    size_t size;
    void *memory[2][64][3];
} gemm;

static void gemm_job(size_t thread) {
    void **m = gemm.memory[gemm.wide][thread];
    const blasint n = (blasint)gemm.size;
    if (gemm.wide) {
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, m[0], n, m[1], n, 0,
                    m[2], n);
    } else {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, m[0], n, m[1], n, 0,
                    m[2], n);
    }
}

static void no_job(size_t thread) {
    (void)thread;
}

/* The operations in a second of all threads together. */
static double gemm_rate(bool wide, size_t size) {
    enum {
        LARGEST = 2048
    };
    for (int t = 0; t < threads && gemm.memory[wide][t][0] == NULL; t++) {
        for (int i = 0; i < 3; i++) {
            gemm.memory[wide][t][i] = make_numbers(LARGEST * LARGEST, wide, 1);
        }
    }
    gemm.wide = wide;
    gemm.size = size;
    pool_wake();
    pool_each(no_job); /* returns when all threads are awake */
    const double start = clock_seconds();
    pool_each(gemm_job);
    const double seconds = clock_seconds() - start;
    pool_rest();
    return 2.0 * (double)size * (double)size * (double)size * threads / seconds;
}

/* The size of the square product that is fastest on this machine. */
static size_t best_size(bool wide) {
    static const size_t sizes[] = {512, 768, 1024, 1536, 2048};
    double rates[COUNT(sizes)][RUNS];
    size_t best = 0;
    for (int run = 0; run < RUNS; run++) {
        for (size_t i = 0; i < COUNT(sizes); i++) {
            rates[i][run] = gemm_rate(wide, sizes[i]);
        }
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        best = median_of(rates[i], RUNS) > median_of(rates[best], RUNS) ? i : best;
    }
    return sizes[best];
}

/* Returns best_size, which is measured at the first use. */
static size_t gemm_size(bool wide) {
    static size_t size[2];
    size[wide] = size[wide] > 0 ? size[wide] : best_size(wide);
    return size[wide];
}

/* ---------------------------------------------------------------------------------------- calls */

struct call {
    struct shape shape;
    attn_plan *plan;
    void *memory[16];
    size_t used;
    double flops;
    double bytes; /* moved if each input and result is moved once, and the workspace twice */
};

static attn_tensor tensor(struct call *c, attn_dtype dtype, double scale, int rank,
                          const size_t *shape) {
    attn_tensor t = {.dtype = dtype, .rank = rank};
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        t.shape[i] = shape[i];
        count *= shape[i];
    }
    t.data = make_numbers(count, dtype == ATTN_FLOAT64, scale);
    c->memory[c->used++] = (void *)(uintptr_t)t.data;
    c->bytes += (double)count * (dtype == ATTN_FLOAT64 ? 8 : 4);
    return t;
}

/* Replaces weights by packed ones if the call wants that. */
static void prepack(struct call *c, attn_tensor *w) {
    size_t bytes;
    if (attn_prepack_bytes(w, ATTN_IN_OUT, &bytes, NULL) != ATTN_OK) {
        abort();
    }
    void *packed = aligned_alloc(ATTN_ALIGNMENT, bytes);
    if (packed == NULL || attn_prepack(w, ATTN_IN_OUT, packed, w, NULL) != ATTN_OK) {
        abort();
    }
    c->memory[c->used++] = packed;
}

static attn_status plan_projections(struct call *c, attn_dtype dtype, const attn_options *options,
                                    attn_error *error) {
    const struct shape *s = &c->shape;
    const attn_tensor x = tensor(c, dtype, 1, 2, (size_t[]){s->n, s->d_model});
    attn_tensor w[4];
    const double scale = 1 / sqrt((double)s->d_model);
    const size_t columns[] = {s->heads * s->d, s->kv_heads * s->d, s->kv_heads * shape_d_v(s)};
    for (int i = 0; i < 3; i++) {
        w[i] = tensor(c, dtype, scale, 2, (size_t[]){s->d_model, columns[i]});
    }
    w[3] = tensor(c, dtype, scale, 2, (size_t[]){s->heads * shape_d_v(s), s->d_model});
    for (int i = 0; i < 4 && s->prepacked > 0; i++) {
        prepack(c, &w[i]);
    }
    const attn_projection projection = {.w_q = &w[0], .w_k = &w[1], .w_v = &w[2]};
    const attn_multihead call = {.x = &x,
                                 .projections = &projection,
                                 .count = 1,
                                 .layout = s->prepacked > 0 ? ATTN_PREPACKED : ATTN_IN_OUT,
                                 .w_o = &w[3]};
    return attn_plan_multihead(&c->plan, &call, options, error);
}

static attn_tensor heads_of(struct call *c, attn_dtype dtype, size_t heads, size_t rows,
                            size_t columns) {
    const size_t apart[] = {heads, rows, columns}, packed[] = {rows, heads * columns};
    return c->shape.packed ? tensor(c, dtype, 1, 2, packed) : tensor(c, dtype, 1, 3, apart);
}

static attn_status plan_attention(struct call *c, attn_dtype dtype, const attn_options *options,
                                  attn_error *error) {
    const struct shape *s = &c->shape;
    const attn_tensor q = heads_of(c, dtype, s->heads, s->n, s->d);
    const attn_tensor k = heads_of(c, dtype, s->kv_heads, s->m, s->d);
    const attn_tensor v = heads_of(c, dtype, s->kv_heads, s->m, shape_d_v(s));
    attn_options o = *options;
    attn_tensor grad_output;
    const attn_upstream upstream = {.output = &grad_output};
    if (s->gradients) {
        grad_output = heads_of(c, dtype, s->heads, s->n, shape_d_v(s));
        o.upstream = &upstream;
        o.results |= ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V);
    }
    return attn_plan_attention(&c->plan, &q, &k, &v, &o, error);
}

/* Replaces numbers between -1 and 1 by their distances from 0, times `factor`. */
static void one_sided(attn_tensor *t, float factor) {
    float *numbers = (float *)(uintptr_t)t->data;
    for (size_t i = 0; i < t->shape[0] * t->shape[1]; i++) {
        numbers[i] = factor * fabsf(numbers[i]);
    }
}

/* Rows of K have a length of about 1, a gate is between 0.9 and 1, and beta is between 0 and 1. */
static attn_status plan_linear(struct call *c, const attn_options *options, attn_error *error) {
    const struct shape *s = &c->shape;
    const size_t each[] = {s->n, s->heads}, rows[] = {s->n, s->heads * s->d},
                 values[] = {s->n, s->heads * shape_d_v(s)},
                 states[] = {s->heads, s->d, shape_d_v(s)};
    const attn_tensor q = tensor(c, ATTN_FLOAT32, 1, 2, rows),
                      k = tensor(c, ATTN_FLOAT32, 1 / sqrt((double)s->d), 2, rows),
                      v = tensor(c, ATTN_FLOAT32, 1, 2, values);
    attn_tensor decay, beta, past;
    attn_linear call = {.q = &q, .k = &k, .v = &v};
    attn_options o = *options;
    o.results |= ATTN_WANT(PRESENT_STATE);
    if (s->gated) {
        decay = tensor(c, ATTN_FLOAT32, 1 / 1.7, 2, each);
        one_sided(&decay, -0.1F);
        o.decay = &decay;
    }
    if (s->delta) {
        beta = tensor(c, ATTN_FLOAT32, 1 / 1.7, 2, each);
        one_sided(&beta, 1);
        call.beta = &beta;
    }
    if (s->n == 1) {
        past = tensor(c, ATTN_FLOAT32, 1, 3, states);
        call.past_state = &past;
    }
    return attn_plan_linear(&c->plan, &call, &o, error);
}

static void open_call(struct call *c, const struct shape *s) {
    const attn_dtype dtype = s->float64 ? ATTN_FLOAT64 : ATTN_FLOAT32;
    const bool split = s->d_model > 0 || s->packed;
    attn_tensor mask = {.dtype = ATTN_BOOL, .rank = 2, .shape = {s->n, s->m}};
    attn_options o = {.causal = s->causal,
                      .results = ATTN_WANT(OUTPUT) | (s->weights ? ATTN_WANT(WEIGHTS) : 0),
                      .heads = split ? s->heads : 0,
                      .kv_heads = split ? s->kv_heads : 0};
    attn_error error;
    *c = (struct call){.shape = *s, .flops = shape_flops(s)};
    if (s->window > 0) {
        o.flags = ATTN_FLAG_WINDOW;
        o.window[0] = (int64_t)s->window;
    }
    if (s->mask) {
        unsigned char *bytes = allocate(s->n * s->m);
        for (size_t i = 0; i < s->n * s->m; i++) {
            bytes[i] = i % 7 != 0;
        }
        mask.data = c->memory[c->used++] = bytes;
        o.mask = &mask;
    }
    const attn_status status = s->linear        ? plan_linear(c, &o, &error)
                               : s->d_model > 0 ? plan_projections(c, dtype, &o, &error)
                                                : plan_attention(c, dtype, &o, &error);
    if (status != ATTN_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        const attn_result_tensor *result = attn_plan_tensor(c->plan, (attn_result)r, 0);
        size_t bytes;
        if (result != NULL) {
            const attn_tensor tensor = attn_as_tensor(result);
            attn_tensor_bytes(&tensor, &bytes);
            c->memory[c->used] = allocate(bytes);
            memset(c->memory[c->used], 0, bytes);
            attn_plan_bind(c->plan, (attn_result)r, 0, c->memory[c->used++]);
            c->bytes += (double)bytes;
        }
    }
    size_t results, all; /* without a scratch, the plan and its workspace remain */
    attn_plan_results_bytes(c->plan, &results);
    attn_plan_bytes(c->plan, 0, &all);
    c->bytes += 2 * (double)(all - results);
}

static void close_call(struct call *c) {
    attn_plan_free(c->plan);
    for (size_t i = 0; i < c->used; i++) {
        free(c->memory[i]);
    }
}

/* Returns the seconds of one run. It is repeated until the clock can measure the time. */
static double sample(const struct call *c) {
    double seconds = 0;
    size_t repeats = 0;
    pool_wake();
    for (size_t more = 1; seconds < 0.01; more *= 4) {
        pool_run(c->plan); /* fills the caches */
        const double start = clock_seconds();
        for (size_t i = 0; i < more; i++) {
            pool_run(c->plan);
        }
        seconds = clock_seconds() - start;
        repeats = more;
    }
    pool_rest();
    return seconds / (double)repeats;
}

/* -------------------------------------------------------------------------------------- results */

static FILE *json;

/* The ratio of a call that has been measured. */
struct result {
    const char *group;
    struct shape shape;
    double ratio;
};
static struct result *results;
static size_t result_count;

static void keep_result(const char *group, const struct shape *s, double ratio) {
    results = realloc(results, (result_count + 1) * sizeof *results);
    if (results == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    results[result_count++] = (struct result){.group = group, .shape = *s, .ratio = ratio};
}

/* Prints the geometric mean and the worst of the ratios of a group, or of all groups if it is NULL:
 * those of n from `least` to `most`, and of d from `columns` on. */
static void print_summary(const char *name, const char *group, size_t least, size_t most,
                          size_t columns) {
    const struct result *worst = NULL;
    double logarithms = 0;
    size_t count = 0;
    for (const struct result *r = results; r < results + result_count; r++) {
        if ((group == NULL || strcmp(r->group, group) == 0) && r->shape.n >= least &&
            r->shape.n <= most && r->shape.d >= columns) {
            logarithms += log(r->ratio);
            count++;
            worst = worst == NULL || r->ratio < worst->ratio ? r : worst;
        }
    }
    if (worst != NULL) {
        char line[SHAPE_LINE];
        shape_write(&worst->shape, line);
        printf("%-26s %3zu calls, geometric mean %.2f, worst %.2f: %s\n", name, count,
               exp(logarithms / (double)count), worst->ratio, line);
    }
}

/* Prints a heading before the first call of a group. */
static void print_group(const char *group) {
    static const char *last = "";
    if (strcmp(group, last) != 0) {
        printf("# %s\n", group);
        last = group;
    }
}

/* Measures a call and prints the result. */
static void measure_shape(const char *group, const struct shape *s) {
    struct call c;
    char line[SHAPE_LINE];
    double seconds[RUNS], ratio[RUNS];
    open_call(&c, s);
    const int runs = sample(&c) > 0.2 ? SLOW_RUNS : RUNS;
    for (int i = 0; i < runs; i++) {
        const double peak = gemm_rate(s->float64 != 0, gemm_size(s->float64 != 0));
        seconds[i] = sample(&c);
        ratio[i] = c.flops / seconds[i] / peak;
    }
    const double time = median_of(seconds, runs), share = median_of(ratio, runs);
    shape_write(s, line);
    print_group(group);
    printf("%-62s %11.2f us %8.1f %5.2f %9.2f MB\n", line, time * 1e6, c.flops / time * 1e-9, share,
           c.bytes * 1e-6);
    fflush(stdout);
    if (json != NULL) {
        fprintf(json,
                ",\n{\"group\":\"%s\",\"call\":\"%s\",\"seconds\":%.9g,\"gflops\":%.4g,"
                "\"ratio\":%.4g,\"bytes\":%.0f}",
                group, line, time, c.flops / time * 1e-9, share, c.bytes);
    }
    keep_result(group, s, share);
    close_call(&c);
}

static void list_shape(const char *group, const struct shape *s) {
    char line[SHAPE_LINE];
    shape_write(s, line);
    print_group(group);
    puts(line);
}

/* Finds the first "model name" of /proc/cpuinfo. */
static void cpu_name(char *name, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(name, size, "unknown CPU");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            snprintf(name, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

/* Measures the calls that `lines` name, or those of the choice if there are no lines. */
static void run_bench(const struct shape_choice *choice, int count, char *lines[]) {
    const attn_build_info build = attn_build();
    const char *path = getenv("BENCH_JSON");
    char cpu[200];
    cpu_name(cpu, sizeof cpu);
    const size_t size = gemm_size(false);
    const double peak = gemm_rate(false, size) * 1e-9;
    printf("%s, %d threads, OpenBLAS core %s, row kernels %s, seed %" PRIu64 "\n", cpu, threads,
           build.blas_core, build.kernels, choice->seed);
    printf("cblas_sgemm %zu^3 on each thread: about %.0f GFLOP/s together\n", size, peak);
    printf("%-62s %14s %8s %5s %12s\n", "call", "time", "GFLOP/s", "ratio", "moved");
    json = path != NULL ? fopen(path, "w") : NULL;
    if (json != NULL) {
        fprintf(json,
                "[{\"cpu\":\"%s\",\"threads\":%d,\"blas\":\"%s\",\"blas_core\":\"%s\","
                "\"kernels\":\"%s\",\"gemm\":%zu,\"gemm_gflops\":%.4g,\"seed\":%" PRIu64 "}",
                cpu, threads, build.blas, build.blas_core, build.kernels, size, peak, choice->seed);
    }
    struct shape s;
    for (int i = 0; i < count; i++) {
        if (!shape_read(&s, lines[i])) {
            fprintf(stderr, "no such call: %s\n", lines[i]);
            exit(1);
        }
        measure_shape("given", &s);
    }
    if (count == 0) {
        shape_each(choice, measure_shape);
    }
    static const char *const groups[] = {"grid", "gradients", "linear", "models", "drawn"};
    print_summary("n = 2 ... 64", NULL, 2, 64, 0);
    for (size_t i = 0; i < COUNT(groups); i++) {
        print_summary(groups[i], groups[i], 0, SIZE_MAX, 0);
    }
    print_summary("drawn, n >= 128, d >= 32", "drawn", 128, SIZE_MAX, 32);
    free(results);
    if (json != NULL) {
        fprintf(json, "]\n");
        fclose(json);
    }
}

/* Prints numbers of a result that are spread over all of it. */
static void print_numbers(const attn_result_tensor *result) {
    enum {
        SPREAD = 997 /* as many as serve.py sends */
    };
    size_t count = 1;
    for (int i = 0; i < result->rank; i++) {
        count *= result->shape[i];
    }
    for (size_t i = 0; i < SPREAD; i++) {
        printf("%.9g ", (double)((const float *)result->data)[i * (count - 1) / (SPREAD - 1)]);
    }
}

/* Computes a call and prints numbers of its output and of its present state in one line. */
static void answer_numbers(const char *line) {
    struct shape s;
    struct call c;
    if (!shape_read(&s, line) || !s.linear) {
        fprintf(stderr, "no such call of linear attention: %s", line);
        exit(1);
    }
    open_call(&c, &s);
    pool_wake();
    pool_run(c.plan);
    pool_rest();
    print_numbers(attn_plan_tensor(c.plan, ATTN_RESULT_OUTPUT, 0));
    print_numbers(attn_plan_tensor(c.plan, ATTN_RESULT_PRESENT_STATE, 0));
    printf("\n");
    close_call(&c);
}

/* Answers each line of standard input: with the seconds of one sample if it is a call. */
static int serve(void) {
    char line[SHAPE_LINE], last[SHAPE_LINE] = "";
    struct call c = {0};
    struct shape s;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "gemm\n") == 0) {
            printf("%.9g\n", gemm_rate(false, gemm_size(false)));
            fflush(stdout);
            continue;
        }
        if (strncmp(line, "numbers ", 8) == 0) {
            answer_numbers(line + 8);
            fflush(stdout);
            continue;
        }
        if (strcmp(line, last) != 0) {
            if (!shape_read(&s, line)) {
                fprintf(stderr, "no such call: %s", line);
                return 1;
            }
            close_call(&c);
            open_call(&c, &s);
            strcpy(last, line);
        }
        printf("%.9g\n", sample(&c));
        fflush(stdout);
    }
    close_call(&c);
    return 0;
}

static uint64_t read_number(const char *option, const char *text) {
    char *end;
    errno = 0;
    const uint64_t number = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0') {
        fprintf(stderr, "%s takes a whole number, not %s\n", option, text);
        exit(1);
    }
    return number;
}

/* Reads the options that choose calls and returns how many arguments they are. */
static int read_choice(struct shape_choice *choice, int count, char *args[]) {
    int i = 0;
    for (; i + 1 < count && strncmp(args[i], "--", 2) == 0; i += 2) {
        if (strcmp(args[i], "--only") == 0) {
            choice->only = args[i + 1];
        } else if (strcmp(args[i], "--seed") == 0) {
            choice->seed = read_number(args[i], args[i + 1]);
            choice->without_grid = true;
        } else if (strcmp(args[i], "--shapes") == 0) {
            choice->drawn = read_number(args[i], args[i + 1]);
            choice->without_grid = true;
        } else {
            break;
        }
    }
    return i;
}

int main(int argc, char *argv[]) {
    const char *mode = argc > 1 ? argv[1] : "", *wanted = getenv("BENCH_THREADS");
    const bool list = strcmp(mode, "--list") == 0, serves = strcmp(mode, "--serve") == 0;
    struct shape_choice choice = {.seed = SEED, .drawn = DRAWN};
    const int skip = 1 + list + serves,
              first = skip + read_choice(&choice, argc - skip, argv + skip);
    if (list && first < argc) {
        fprintf(stderr, "--list cannot read %s\n", argv[first]);
        return 1;
    }
    if (list) {
        printf("# seed %" PRIu64 "\n", choice.seed);
        shape_each(&choice, list_shape);
        return 0;
    }
    if (getenv("OPENBLAS_CORETYPE") != NULL && getenv("BENCH_CORETYPE_SET") == NULL) {
        fprintf(stderr, "OPENBLAS_CORETYPE is set: unset it, or set BENCH_CORETYPE_SET=1 too.\n");
        return 1;
    }
    blas_report();
    threads = wanted != NULL ? atoi(wanted) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    threads = threads < 1 ? 1 : threads > 64 ? 64 : threads;
    pool_start(threads);
    int status = 0;
    if (serves) {
        status = serve();
    } else {
        run_bench(&choice, argc - first, argv + first);
    }
    pool_end();
    return status;
}
