/*
 * bench_attention.c measures how close attention comes to the best speed of the machine: it prints
 * the GFLOP/s of each call of a grid, and their ratio to those of cblas_sgemm (or cblas_dgemm) on
 * as many threads, on square matrices of the size that is fastest. Call and product are measured in
 * turns, and the ratio is the median of the turns. The same results are written as JSON to the file
 * $BENCH_JSON. Pairs of query and key that causal or a window forbid count as work.
 *
 *   bench_attention          measures the whole grid
 *   bench_attention LINE...  measures these calls, which are written as --list does
 *   bench_attention --list   lists the calls of the grid, a line for each
 *   bench_attention --serve  reads such lines and answers each with the seconds of one sample
 *
 * $BENCH_THREADS threads (default: as many as there are cores) run the tasks of a plan.
 */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attention.h"
#include "blas_setup.h"
#include "crew.h"

enum {
    RUNS = 9,
    SLOW_RUNS = 5 /* for calls that take long */
};

/* A call of the grid. A line names the members that are not zero: "n=64 d=3 heads=1 ...". */
struct shape {
    size_t heads, kv_heads, n, m, d;
    size_t d_model; /* if not 0, Q, K and V are projected from X (n,d_model) */
    size_t float64, weights, mask, causal, window;
    size_t packed; /* if not 0, given Q, K, V and the output are (n,heads*d) */
};

static const struct field {
    const char *name;
    size_t offset;
} fields[] = {
    {"heads", offsetof(struct shape, heads)},
    {"kv_heads", offsetof(struct shape, kv_heads)},
    {"n", offsetof(struct shape, n)},
    {"m", offsetof(struct shape, m)},
    {"d", offsetof(struct shape, d)},
    {"d_model", offsetof(struct shape, d_model)},
    {"float64", offsetof(struct shape, float64)},
    {"weights", offsetof(struct shape, weights)},
    {"mask", offsetof(struct shape, mask)},
    {"causal", offsetof(struct shape, causal)},
    {"window", offsetof(struct shape, window)},
    {"packed", offsetof(struct shape, packed)},
};

enum {
    FIELDS = sizeof fields / sizeof *fields
};

static size_t *field_of(struct shape *s, size_t field) {
    return (size_t *)(void *)((char *)s + fields[field].offset);
}

static void write_shape(struct shape s, char *line, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < FIELDS; i++) {
        if (*field_of(&s, i) != 0) {
            used += (size_t)snprintf(line + used, size - used, "%s%s=%zu", used == 0 ? "" : " ",
                                     fields[i].name, *field_of(&s, i));
        }
    }
}

static bool read_shape(struct shape *s, const char *line) {
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
        *field_of(s, field) = strtoul(line + length + 1, &end, 10);
        line = end + strspn(end, " ");
    }
    return s->heads > 0 && s->kv_heads > 0 && s->n > 0 && s->m > 0 && s->d > 0 &&
           !(s->packed > 0 && s->d_model > 0);
}

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
    crew_wake();
    crew_each(no_job); /* returns when all threads are awake */
    const double start = clock_seconds();
    crew_each(gemm_job);
    const double seconds = clock_seconds() - start;
    crew_rest();
    return 2.0 * (double)size * (double)size * (double)size * threads / seconds;
}

/* The size of the square product that is fastest on this machine. */
static size_t best_size(bool wide) {
    static const size_t sizes[] = {512, 768, 1024, 1536, 2048};
    enum {
        SIZES = sizeof sizes / sizeof *sizes
    };
    double rates[SIZES][RUNS];
    size_t best = 0;
    for (int run = 0; run < RUNS; run++) {
        for (size_t i = 0; i < SIZES; i++) {
            rates[i][run] = gemm_rate(wide, sizes[i]);
        }
    }
    for (size_t i = 0; i < SIZES; i++) {
        best = median_of(rates[i], RUNS) > median_of(rates[best], RUNS) ? i : best;
    }
    return sizes[best];
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

static attn_status plan_projections(struct call *c, attn_dtype dtype, const attn_options *options,
                                    attn_error *error) {
    const struct shape *s = &c->shape;
    const attn_tensor x = tensor(c, dtype, 1, 2, (size_t[]){s->n, s->d_model});
    attn_tensor w[4];
    for (int i = 0; i < 3; i++) {
        w[i] = tensor(c, dtype, 1 / sqrt((double)s->d_model), 2,
                      (size_t[]){s->d_model, (i == 0 ? s->heads : s->kv_heads) * s->d});
    }
    w[3] =
        tensor(c, dtype, 1 / sqrt((double)s->d_model), 2, (size_t[]){s->heads * s->d, s->d_model});
    const attn_projection projection = {.w_q = &w[0], .w_k = &w[1], .w_v = &w[2]};
    const attn_multihead call = {.x = &x, .projections = &projection, .count = 1, .w_o = &w[3]};
    c->flops +=
        4.0 * (double)s->n * (double)s->d_model * (double)(s->heads + s->kv_heads) * (double)s->d;
    return attn_plan_multihead(&c->plan, &call, options, error);
}

static attn_status plan_attention(struct call *c, attn_dtype dtype, const attn_options *options,
                                  attn_error *error) {
    const struct shape *s = &c->shape;
    const size_t q_shape[] = {s->heads, s->n, s->d}, kv_shape[] = {s->kv_heads, s->m, s->d};
    const size_t q_packed[] = {s->n, s->heads * s->d}, kv_packed[] = {s->m, s->kv_heads * s->d};
    const int rank = s->packed ? 2 : 3;
    const attn_tensor q = tensor(c, dtype, 1, rank, s->packed ? q_packed : q_shape);
    const attn_tensor k = tensor(c, dtype, 1, rank, s->packed ? kv_packed : kv_shape);
    const attn_tensor v = tensor(c, dtype, 1, rank, s->packed ? kv_packed : kv_shape);
    return attn_plan_attention(&c->plan, &q, &k, &v, options, error);
}

static void open_call(struct call *c, const struct shape *s) {
    const attn_dtype dtype = s->float64 ? ATTN_FLOAT64 : ATTN_FLOAT32;
    const bool split = s->d_model > 0 || s->packed;
    attn_tensor mask = {.dtype = ATTN_BOOL, .rank = 2, .shape = {s->n, s->m}};
    attn_options o = {.causal = s->causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE,
                      .results = ATTN_WANT(OUTPUT) | (s->weights ? ATTN_WANT(WEIGHTS) : 0),
                      .heads = split ? s->heads : 0,
                      .kv_heads = split ? s->kv_heads : 0};
    attn_error error;
    *c = (struct call){.shape = *s};
    c->flops = 4.0 * (double)s->heads * (double)s->n * (double)s->m * (double)s->d;
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
    if ((s->d_model > 0 ? plan_projections : plan_attention)(c, dtype, &o, &error) != ATTN_OK) {
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
    crew_wake();
    for (size_t more = 1; seconds < 0.01; more *= 4) {
        crew_run(c->plan); /* fills the caches */
        const double start = clock_seconds();
        for (size_t i = 0; i < more; i++) {
            crew_run(c->plan);
        }
        seconds = clock_seconds() - start;
        repeats = more;
    }
    crew_rest();
    return seconds / (double)repeats;
}

/* ------------------------------------------------------------------------------------- the grid */

static FILE *json;
static size_t gemm_size[2];

/* Measures a call and prints the result. */
static void measure_shape(const struct shape *s) {
    struct call c;
    char line[512];
    double seconds[RUNS], ratio[RUNS];
    open_call(&c, s);
    const int runs = sample(&c) > 0.2 ? SLOW_RUNS : RUNS;
    for (int i = 0; i < runs; i++) {
        const double peak = gemm_rate(s->float64 != 0, gemm_size[s->float64 != 0]);
        seconds[i] = sample(&c);
        ratio[i] = c.flops / seconds[i] / peak;
    }
    const double time = median_of(seconds, runs), share = median_of(ratio, runs);
    write_shape(*s, line, sizeof line);
    printf("%-62s %11.2f us %8.1f %5.2f %9.2f MB\n", line, time * 1e6, c.flops / time * 1e-9, share,
           c.bytes * 1e-6);
    fflush(stdout);
    if (json != NULL) {
        fprintf(json,
                ",\n{\"call\":\"%s\",\"seconds\":%.9g,\"gflops\":%.4g,\"ratio\":%.4g,"
                "\"bytes\":%.0f}",
                line, time, c.flops / time * 1e-9, share, c.bytes);
    }
    close_call(&c);
}

static void list_shape(const struct shape *s) {
    char line[512];
    write_shape(*s, line, sizeof line);
    puts(line);
}

/* Calls `each` for all calls of the grid. */
static void each_of_grid(void (*each)(const struct shape *)) {
    static const size_t sizes[] = {4, 16, 64, 128, 512, 1024, 2048, 4096},
                        dims[] = {3, 32, 64, 128};
    static const size_t heads[][2] = {{1, 1}, {8, 8}, {12, 12}, {32, 8}};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        for (size_t j = 0; j < sizeof dims / sizeof *dims; j++) {
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const size_t n = sizes[i];
                each(&(struct shape){
                    .heads = heads[h][0], .kv_heads = heads[h][1], .n = n, .m = n, .d = dims[j]});
            }
        }
    }
    for (size_t j = 2; j < sizeof dims / sizeof *dims; j++) {
        for (size_t i = 2; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t n = sizes[i], d = dims[j];
            struct shape s = {.heads = 8, .kv_heads = 8, .n = n, .m = n, .d = d, .causal = 1};
            each(&s);
            s.window = 256;
            each(&s);
            s.causal = s.window = 0;
            s.mask = 1;
            each(&s);
            s.mask = 0;
            s.weights = 1;
            each(&s);
            s.weights = 0;
            s.float64 = 1;
            each(&s);
        }
    }
    static const size_t decode[] = {1024, 16384, 100000};
    for (size_t i = 0; i < sizeof decode / sizeof *decode; i++) {
        each(&(struct shape){.heads = 8, .kv_heads = 8, .n = 1, .m = decode[i], .d = 64});
        each(&(struct shape){.heads = 32, .kv_heads = 8, .n = 1, .m = decode[i], .d = 128});
    }
    static const size_t rows[] = {16, 128, 512, 2048};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct shape s = {.heads = 12, .kv_heads = 12, .n = rows[i], .m = rows[i], .d = 64};
        if (s.n > 16) {
            s.packed = 1;
            each(&s);
            s.packed = 0;
        }
        s.d_model = 768;
        each(&s);
        s.weights = 1;
        each(&s);
    }
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

/* Measures the calls that `lines` name, or the whole grid if there are no lines. */
static void run_bench(int count, char *lines[]) {
    const attn_build_info build = attn_build();
    const char *path = getenv("BENCH_JSON");
    char cpu[200];
    cpu_name(cpu, sizeof cpu);
    gemm_size[0] = best_size(false);
    gemm_size[1] = best_size(true);
    const double peak = gemm_rate(false, gemm_size[0]) * 1e-9;
    printf("%s, %d threads, OpenBLAS core %s, row kernels %s\n", cpu, threads, build.blas_core,
           build.kernels);
    printf("cblas_sgemm %zu^3 on each thread: about %.0f GFLOP/s together\n", gemm_size[0], peak);
    printf("%-62s %14s %8s %5s %12s\n", "call", "time", "GFLOP/s", "ratio", "moved");
    json = path != NULL ? fopen(path, "w") : NULL;
    if (json != NULL) {
        fprintf(json,
                "[{\"cpu\":\"%s\",\"threads\":%d,\"blas\":\"%s\",\"blas_core\":\"%s\","
                "\"kernels\":\"%s\",\"gemm\":%zu,\"gemm_gflops\":%.4g}",
                cpu, threads, build.blas, build.blas_core, build.kernels, gemm_size[0], peak);
    }
    struct shape s;
    for (int i = 0; i < count; i++) {
        if (!read_shape(&s, lines[i])) {
            fprintf(stderr, "no such call: %s\n", lines[i]);
            exit(1);
        }
        measure_shape(&s);
    }
    if (count == 0) {
        each_of_grid(measure_shape);
    }
    if (json != NULL) {
        fprintf(json, "]\n");
        fclose(json);
    }
}

/* Answers each line of standard input with the seconds of one sample. */
static int serve(void) {
    char line[256], last[256] = "";
    struct call c = {0};
    struct shape s;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, last) != 0) {
            if (!read_shape(&s, line)) {
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

int main(int argc, char *argv[]) {
    const char *mode = argc > 1 ? argv[1] : "", *wanted = getenv("BENCH_THREADS");
    if (strcmp(mode, "--list") == 0) {
        each_of_grid(list_shape);
        return 0;
    }
    if (getenv("OPENBLAS_CORETYPE") != NULL && getenv("BENCH_CORETYPE_SET") == NULL) {
        fprintf(stderr, "OPENBLAS_CORETYPE is set: unset it, or set BENCH_CORETYPE_SET=1 too.\n");
        return 1;
    }
    setenv("BENCH_CORETYPE_SET", "1", 1); /* blas_prepare may execute this program anew */
    blas_prepare(argv);
    threads = wanted != NULL ? atoi(wanted) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    threads = threads < 1 ? 1 : threads > 64 ? 64 : threads;
    crew_start(threads);
    int status = 0;
    if (strcmp(mode, "--serve") == 0) {
        status = serve();
    } else {
        run_bench(argc - 1, argv + 1);
    }
    crew_end();
    return status;
}
