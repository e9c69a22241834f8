/*
 * bench_codec.c - the codec beside cJSON on the same text in the same run: nanoseconds for each
 * number and MB/s of reading and writing, and the memory that a body takes while it is read. The
 * results are medians of runs that alternate. The text is read from memory in chunks, as from a
 * socket.
 */
#include <cjson/cJSON.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/codec.h"
#include "codec/json/number.h"

enum {
    RUNS = 31,
    ROWS = 2048,
    COLUMNS = 64,
    COUNT = ROWS * COLUMNS,
    CHUNK = 32 * 1024
};

static uint64_t random_state = 0x9E3779B97F4A7C15;

static double uniform(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_time(double times[RUNS]) {
    qsort(times, RUNS, sizeof times[0], compare_times);
    return times[RUNS / 2];
}

static void die(const char *what) {
    fprintf(stderr, "bench_codec: %s\n", what);
    exit(1);
}

/* The forms of numbers: float32 and float64 as Python prints them, and small integers. */
enum form {
    FORM_FLOAT32,
    FORM_FLOAT64,
    FORM_INTEGER,
    FORM_COUNT
};
static const char *const form_names[] = {"float32", "float64", "integers"};

static double value_of(enum form form) {
    const double sum = uniform() + uniform() + uniform() + uniform();
    const double x = (sum - 2) * 1.7; /* nearly a normal distribution */
    return form == FORM_INTEGER   ? (double)(int)(x * 5)
           : form == FORM_FLOAT32 ? (double)(float)x
                                  : x;
}

/* Makes the body {"dtype": ..., "K": [[...], ...]} with the separators of Python's json.dumps.
 * Returns owned. */
static char *make_body(enum form form, size_t rows, size_t columns, size_t *size) {
    char *body = malloc(rows * (columns * (NUMBER_SIZE + 2) + 4) + 64);
    if (body == NULL)
        die("out of memory");
    char *out = body;
    out +=
        sprintf(out, "{\"dtype\": \"%s\", \"K\": [", form == FORM_FLOAT64 ? "float64" : "float32");
    for (size_t i = 0; i < rows; i++) {
        out += sprintf(out, i == 0 ? "[" : ", [");
        for (size_t j = 0; j < columns; j++) {
            if (j > 0)
                out += sprintf(out, ", ");
            double x = value_of(form);
            out += form == FORM_FLOAT64 ? number_write_double(out, x)
                                        : number_write_float(out, (float)x);
        }
        *out++ = ']';
    }
    out += sprintf(out, "]}");
    *size = (size_t)(out - body);
    return body;
}

static double time_read(const char *body, size_t size) {
    static const char *const infinite[] = {"bias", NULL};
    const struct codec_options options = {.dtype_key = "dtype", .infinity_keys = infinite};
    struct codec_document *document;
    double start = now_ns();
    struct codec_reader *reader = codec_reader_create(&options);
    for (size_t at = 0; at < size; at += CHUNK)
        codec_reader_feed(reader, body + at, size - at < CHUNK ? size - at : CHUNK);
    if (codec_reader_finish(reader, &document) != CODEC_OK)
        die(codec_reader_error(reader)->message);
    codec_reader_free(reader);
    double end = now_ns();
    codec_document_free(document);
    return end - start;
}

static double time_cjson_read(const char *body, size_t size) {
    double start = now_ns();
    cJSON *root = cJSON_ParseWithLength(body, size);
    double end = now_ns();
    if (root == NULL)
        die("cJSON refuses the body");
    cJSON_Delete(root);
    return end - start;
}

static void bench_read(enum form form) {
    double ours[RUNS], theirs[RUNS];
    size_t size;
    char *body = make_body(form, ROWS, COLUMNS, &size);
    for (int run = 0; run < RUNS; run++) {
        malloc_trim(0); /* otherwise our first malloc tidies up what cJSON has freed */
        ours[run] = time_read(body, size);
        theirs[run] = time_cjson_read(body, size);
    }
    double our = median_time(ours), their = median_time(theirs);
    printf("read   %-9s %6.1f bytes/number %8.1f ns %8.1f ns %6.1f x   %6.0f MB/s\n",
           form_names[form], (double)size / COUNT, our / COUNT, their / COUNT, their / our,
           (double)size / our * 1e3);
    free(body);
}

static double time_write(const attn_tensor *tensor, int digits, size_t *size) {
    struct codec_items list;
    struct codec_buffer buffer = {0};
    codec_items_begin(&list, NULL);
    codec_add_tensor(&list, NULL, tensor);
    double start = now_ns();
    const size_t bytes = codec_items_bytes(list.list, list.count, digits, SIZE_MAX);
    if (!codec_items_write(&list, digits, 0, bytes, &buffer))
        die("out of memory");
    double end = now_ns();
    *size = buffer.size;
    free(buffer.data);
    return end - start;
}

static double time_cjson_write(const attn_tensor *tensor) {
    cJSON *array = tensor->dtype == ATTN_FLOAT64 ? cJSON_CreateDoubleArray(tensor->data, COUNT)
                                                 : cJSON_CreateFloatArray(tensor->data, COUNT);
    double start = now_ns();
    char *text = cJSON_PrintUnformatted(array);
    double end = now_ns();
    if (text == NULL)
        die("out of memory");
    free(text);
    cJSON_Delete(array);
    return end - start;
}

static void bench_write(enum form form, int digits) {
    static float floats[COUNT];
    static double doubles[COUNT];
    double ours[RUNS], theirs[RUNS];
    size_t size = 0;
    for (size_t i = 0; i < COUNT; i++) {
        doubles[i] = value_of(form);
        floats[i] = (float)doubles[i];
    }
    attn_tensor tensor = {.data = form == FORM_FLOAT64 ? (void *)doubles : (void *)floats,
                          .dtype = form == FORM_FLOAT64 ? ATTN_FLOAT64 : ATTN_FLOAT32,
                          .rank = 2,
                          .shape = {ROWS, COLUMNS}};
    for (int run = 0; run < RUNS; run++) {
        malloc_trim(0);
        ours[run] = time_write(&tensor, digits, &size);
        theirs[run] = time_cjson_write(&tensor);
    }
    double our = median_time(ours), their = median_time(theirs);
    printf("write%2d %-9s %5.1f bytes/number %8.1f ns %8.1f ns %6.1f x   %6.0f MB/s\n", digits,
           form_names[form], (double)size / COUNT, our / COUNT, their / COUNT, their / our,
           (double)size / our * 1e3);
}

/* Returns the value of a line of /proc/self/status in KiB. */
static size_t status_kib(const char *name) {
    char line[128];
    size_t value = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtoul(line + strlen(name) + 1, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return value;
}

/* Measures the most memory that is resident while a body is read, without the body itself. */
static void bench_memory(size_t rows) {
    size_t size, matrix = rows * 256 * sizeof(float);
    char *body = make_body(FORM_FLOAT32, rows, 256, &size);
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file == NULL || fputs("5", file) < 0 || fclose(file) != 0) {
        printf("memory: the peak cannot be reset here\n");
        free(body);
        return;
    }
    size_t before = status_kib("VmRSS:");
    time_read(body, size);
    size_t used = (status_kib("VmHWM:") - before) * 1024;
    printf("memory %4.0f MiB of float32: %6.2f bytes per number at the peak, %5.3f x + 256 KiB\n",
           (double)matrix / 1048576, (double)used * sizeof(float) / (double)matrix,
           ((double)used - 262144) / (double)matrix);
    free(body);
}

int main(void) {
    bench_memory(1024);
    bench_memory(4096);
    bench_memory(16384);
    printf("                                           attentiond      cJSON\n");
    for (int form = 0; form < FORM_COUNT; form++)
        bench_read((enum form)form);
    for (int form = 0; form < FORM_COUNT; form++)
        bench_write((enum form)form, 0);
    bench_write(FORM_FLOAT32, 4);
    bench_write(FORM_FLOAT64, 6);
    return 0;
}
