/*
 * bench_attention.c - how close attention comes to the machine: GFLOP/s of each call of a grid,
 * and its ratio to the best rate of cblas_sgemm (cblas_dgemm) times the threads, measured
 * alternately in the same run. Medians. The same as JSON goes to $BENCH_JSON. Uses $BENCH_THREADS
 * threads (default: all cores) over the plan's tasks.
 */
#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attention.h"
#include "blas_setup.h"

enum {
    MAX_THREADS = 64,
    RUNS = 9,
    GEMM = 1536
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --------------------------------------------------------------------------- a plan on threads */

struct crew {
    int threads;
    attn_plan *plan;
    void *scratch[MAX_THREADS];
    _Atomic size_t next[16];
    pthread_barrier_t start, between, end;
    _Atomic bool stop;
};

static struct crew crew;

static void work(size_t thread) {
    for (size_t phase = 0; phase < attn_plan_phases(crew.plan); phase++) {
        const size_t tasks = attn_plan_tasks(crew.plan, phase);
        size_t task;
        if (tasks == 0) {
            continue;
        }
        while ((task = atomic_fetch_add(&crew.next[phase], 1)) < tasks) {
            attn_plan_task(crew.plan, phase, task, crew.scratch[thread], NULL);
        }
        if (crew.threads > 1) {
            pthread_barrier_wait(&crew.between);
        }
    }
}

static void *member(void *arg) {
    const size_t thread = (size_t)(uintptr_t)arg;
    for (;;) {
        pthread_barrier_wait(&crew.start);
        if (crew.stop) {
            return NULL;
        }
        work(thread);
        pthread_barrier_wait(&crew.end);
    }
}

static bool run(attn_plan *plan) {
    crew.plan = plan;
    for (size_t phase = 0; phase < 16; phase++) {
        crew.next[phase] = 0;
    }
    if (attn_plan_begin(plan, NULL) != ATTN_OK) {
        return false;
    }
    if (crew.threads == 1) {
        work(0);
    } else {
        pthread_barrier_wait(&crew.start);
        work(0);
        pthread_barrier_wait(&crew.end);
    }
    return attn_plan_end(plan, NULL) == ATTN_OK;
}

/* --------------------------------------------------------------------------------- measuring */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int count) {
    qsort(x, (size_t)count, sizeof *x, by_value);
    return x[count / 2];
}

static void *filled(size_t bytes, bool wide) {
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (data == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    uint32_t state = 12345;
    for (size_t i = 0; i < bytes / (wide ? 8 : 4); i++) {
        state = state * 1664525 + 1013904223;
        const double x = (double)(int32_t)state / 2147483648.0 * 1.7; /* about unit variance */
        if (wide) {
            ((double *)data)[i] = x;
        } else {
            ((float *)data)[i] = (float)x;
        }
    }
    return data;
}

/* Seconds of one product of GEMM^3 on one thread. */
static double gemm_seconds(bool wide) {
    static void *a[2], *b[2], *c[2];
    const size_t bytes = (size_t)GEMM * GEMM * (wide ? 8 : 4);
    if (a[wide] == NULL) {
        a[wide] = filled(bytes, wide);
        b[wide] = filled(bytes, wide);
        c[wide] = filled(bytes, wide);
    }
    const double start = now();
    if (wide) {
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, GEMM, GEMM, GEMM, 1, a[1], GEMM,
                    b[1], GEMM, 0, c[1], GEMM);
    } else {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, GEMM, GEMM, GEMM, 1, a[0], GEMM,
                    b[0], GEMM, 0, c[0], GEMM);
    }
    return now() - start;
}

struct shape {
    const char *name;
    size_t heads, kv_heads, n, m, d;
    bool weights, wide, masked;
    attn_causal causal;
    int64_t left; /* window, 0 = none */
};

/* Seconds of one run, repeated so that the clock can see it. */
static double call_seconds(attn_plan *plan) {
    int repeats = 1;
    for (;;) {
        const double start = now();
        for (int i = 0; i < repeats; i++) {
            if (!run(plan)) {
                fprintf(stderr, "a run failed\n");
                exit(1);
            }
        }
        const double seconds = now() - start;
        if (seconds > 0.002 || repeats > 1 << 20) {
            return seconds / repeats;
        }
        repeats *= seconds > 0.0002 ? 4 : 16;
    }
}

struct figure {
    double seconds, gflops, ratio;
};

static struct figure measure(const struct shape *s) {
    const size_t size = s->wide ? 8 : 4;
    const attn_dtype dtype = s->wide ? ATTN_FLOAT64 : ATTN_FLOAT32;
    attn_tensor q = {.dtype = dtype, .rank = 3, .shape = {s->heads, s->n, s->d}};
    attn_tensor k = {.dtype = dtype, .rank = 3, .shape = {s->kv_heads, s->m, s->d}}, v = k;
    attn_tensor mask = {.dtype = ATTN_BOOL, .rank = 2, .shape = {s->n, s->m}};
    attn_options o = {.causal = s->causal, .results = ATTN_WANT(OUTPUT)};
    o.results |= s->weights ? ATTN_WANT(WEIGHTS) : 0;
    if (s->left != 0) {
        o.flags = ATTN_FLAG_WINDOW;
        o.window[0] = s->left;
    }
    q.data = filled(s->heads * s->n * s->d * size, s->wide);
    k.data = filled(s->kv_heads * s->m * s->d * size, s->wide);
    v.data = filled(s->kv_heads * s->m * s->d * size, s->wide);
    if (s->masked) {
        unsigned char *bytes = malloc(s->n * s->m);
        for (size_t i = 0; bytes != NULL && i < s->n * s->m; i++) {
            bytes[i] = i % 7 != 0;
        }
        mask.data = bytes;
        o.mask = &mask;
    }
    attn_plan *plan;
    attn_error error;
    if (attn_plan_attention(&plan, &q, &k, &v, &o, &error) != ATTN_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    void *out = filled(s->heads * s->n * s->d * size, s->wide);
    void *weights = s->weights ? filled(s->heads * s->n * s->m * size, s->wide) : NULL;
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, out);
    attn_plan_bind(plan, ATTN_RESULT_WEIGHTS, 0, weights);
    for (int t = 0; t < crew.threads; t++) {
        crew.scratch[t] = filled(attn_plan_scratch(plan), false);
    }
    double seconds[RUNS], gemm[RUNS];
    call_seconds(plan);
    for (int i = 0; i < RUNS; i++) {
        gemm[i] = gemm_seconds(s->wide);
        seconds[i] = call_seconds(plan);
    }
    struct figure f = {.seconds = median(seconds, RUNS)};
    qsort(gemm, RUNS, sizeof *gemm, by_value);
    const double peak = 2.0 * GEMM * GEMM * GEMM / gemm[0] * crew.threads; /* the best */
    const double flops = 4.0 * (double)s->heads * (double)s->n * (double)s->m * (double)s->d;
    f.gflops = flops / f.seconds * 1e-9;
    f.ratio = flops / f.seconds / peak;
    attn_plan_free(plan);
    const void *all[] = {q.data, k.data, v.data, mask.data, out, weights};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free((void *)(uintptr_t)all[i]);
    }
    for (int t = 0; t < crew.threads; t++) {
        free(crew.scratch[t]);
    }
    return f;
}

/* ------------------------------------------------------------------------------------- the grid */

static FILE *json;

static struct figure report(const struct shape *s) {
    const struct figure f = measure(s);
    printf("%-28s %3zu/%-3zu %6zu x %-6zu %4zu  %10.2f us %8.1f  %5.2f\n", s->name, s->heads,
           s->kv_heads, s->n, s->m, s->d, f.seconds * 1e6, f.gflops, f.ratio);
    fflush(stdout);
    if (json != NULL) {
        fprintf(json,
                "%s{\"name\":\"%s\",\"heads\":%zu,\"kv_heads\":%zu,\"n\":%zu,\"m\":%zu,\"d\":%zu,"
                "\"seconds\":%.9g,\"gflops\":%.4g,\"ratio\":%.4g}",
                ftell(json) > 400 ? ",\n" : "", s->name, s->heads, s->kv_heads, s->n, s->m, s->d,
                f.seconds, f.gflops, f.ratio);
    }
    return f;
}

static void grid(void) {
    static const size_t sizes[] = {4, 16, 64, 128, 512, 1024, 2048, 4096}, dims[] = {32, 64, 128};
    report(&(struct shape){"first notebook", 1, 1, 4, 4, 3, false, false, false, 0, 0});
    for (size_t j = 0; j < sizeof dims / sizeof *dims; j++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t n = sizes[i], d = dims[j];
            report(&(struct shape){"output", 8, 8, n, n, d, false, false, false, 0, 0});
        }
    }
    for (size_t i = 4; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i];
        report(&(struct shape){"output and weights", 8, 8, n, n, 64, true, false, false, 0, 0});
        report(&(struct shape){"causal", 8, 8, n, n, 64, false, false, false, ATTN_CAUSAL_TOP_LEFT,
                               0});
        report(&(struct shape){"causal, window 256", 8, 8, n, n, 64, false, false, false,
                               ATTN_CAUSAL_TOP_LEFT, 256});
        report(&(struct shape){"mask", 8, 8, n, n, 64, false, false, true, 0, 0});
    }
    report(&(struct shape){"12 heads", 12, 12, 1024, 1024, 64, false, false, false, 0, 0});
    report(&(struct shape){"grouped heads", 32, 8, 1024, 1024, 128, false, false, false, 0, 0});
    report(&(struct shape){"one head", 1, 1, 2048, 2048, 64, false, false, false, 0, 0});
    report(&(struct shape){"float64", 8, 8, 1024, 1024, 64, false, true, false, 0, 0});
    report(&(struct shape){"decode", 8, 8, 1, 4096, 64, false, false, false, 0, 0});
    report(&(struct shape){"decode, long", 8, 8, 1, 100000, 64, false, false, false, 0, 0});
    report(&(struct shape){"decode, grouped", 32, 8, 1, 16384, 128, false, false, false, 0, 0});
}

int main(int argc, char *argv[]) {
    (void)argc;
    if (getenv("OPENBLAS_CORETYPE") != NULL && getenv("BENCH_CORETYPE_SET") == NULL) {
        fprintf(stderr, "OPENBLAS_CORETYPE is set: unset it, or set BENCH_CORETYPE_SET=1 too.\n");
        return 1;
    }
    setenv("BENCH_CORETYPE_SET", "1", 1); /* for this program executed anew */
    blas_prepare(argv);
    const char *threads = getenv("BENCH_THREADS"), *path = getenv("BENCH_JSON");
    crew.threads = threads != NULL ? atoi(threads) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    crew.threads = crew.threads < 1 ? 1 : crew.threads > MAX_THREADS ? MAX_THREADS : crew.threads;
    pthread_barrier_init(&crew.start, NULL, (unsigned)crew.threads);
    pthread_barrier_init(&crew.between, NULL, (unsigned)crew.threads);
    pthread_barrier_init(&crew.end, NULL, (unsigned)crew.threads);
    pthread_t others[MAX_THREADS] = {0};
    for (int t = 1; t < crew.threads; t++) {
        pthread_create(&others[t], NULL, member, (void *)(uintptr_t)t);
    }
    const attn_build_info build = attn_build();
    const double peak = 2.0 * GEMM * GEMM * GEMM / gemm_seconds(false) * 1e-9;
    printf("OpenBLAS core %s, kernels %s, %d threads, cblas_sgemm about %.0f GFLOP/s a thread\n",
           build.blas_core, build.kernels, crew.threads, peak);
    printf("%-28s %7s %15s %4s  %13s %8s  %5s\n", "call", "heads", "queries x keys", "d", "time",
           "GFLOP/s", "ratio");
    json = path != NULL ? fopen(path, "w") : NULL;
    if (json != NULL) {
        fprintf(json,
                "{\"blas\":\"%.200s\",\"blas_core\":\"%s\",\"kernels\":\"%s\",\"threads\":%d,%*s"
                "\"calls\":[\n",
                build.blas, build.blas_core, build.kernels, crew.threads, 200, "");
    }
    grid();
    if (json != NULL) {
        fprintf(json, "\n]}\n");
        fclose(json);
    }
    crew.stop = true;
    if (crew.threads > 1) {
        pthread_barrier_wait(&crew.start);
    }
    for (int t = 1; t < crew.threads; t++) {
        pthread_join(others[t], NULL);
    }
    return 0;
}
