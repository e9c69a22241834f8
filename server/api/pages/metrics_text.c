/*
 * metrics_text.c - GET /metrics: the counters and the load of the service in the text format of
 * Prometheus.
 */
#include "api/reply.h"
#include "layers/layers.h"
#include "process.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing text. After an allocation has failed, nothing is added any more. */
struct page {
    char *data;
    size_t size, capacity;
    bool failed;
};

__attribute__((format(printf, 2, 3))) static void put(struct page *page, const char *format, ...) {
    enum {
        LINE = 512 /* no line has so many bytes */
    };
    if (!page->failed) {
        char *data = account_grow(NULL, page->data, &page->capacity, page->size + LINE, 1);
        page->failed = data == NULL;
        page->data = data != NULL ? data : page->data;
    }
    if (!page->failed) {
        va_list arguments;
        va_start(arguments, format);
        page->size += (size_t)vsnprintf(page->data + page->size, LINE, format, arguments);
        va_end(arguments);
    }
}

static void head(struct page *page, const char *name, const char *type, const char *help) {
    put(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_number(struct page *page, const char *name, const char *type, const char *help,
                       double value) {
    head(page, name, type, help);
    put(page, "%s %.17g\n", name, value);
}

static uint64_t get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void put_counter(struct page *page, const char *name, const char *help,
                        const _Atomic uint64_t *counter) {
    head(page, name, "counter", help);
    put(page, "%s %" PRIu64 "\n", name, get(counter));
}

/* Writes a histogram with cumulative buckets. `label` is "" or a label with a comma after it. */
static void put_histogram(struct page *page, const char *name, const char *label,
                          const struct metrics_histogram *histogram,
                          const struct metrics_scale *scale) {
    uint64_t count = 0;
    char alone[64];
    const size_t length = strlen(label);
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        count += get(&histogram->buckets[i]);
        put(page, "%s_bucket{%sle=\"%.10g\"} %" PRIu64 "\n", name, label, scale->bounds[i], count);
    }
    count += get(&histogram->buckets[METRICS_BUCKETS]);
    put(page, "%s_bucket{%sle=\"+Inf\"} %" PRIu64 "\n", name, label, count);
    snprintf(alone, sizeof alone, length > 0 ? "{%.*s}" : "%.*s",
             (int)(length > 0 ? length - 1 : 0), label);
    put(page, "%s_sum%s %.15g\n", name, alone, (double)get(&histogram->sum) / scale->unit);
    put(page, "%s_count%s %" PRIu64 "\n", name, alone, count);
}

static void put_requests(struct page *page, const struct api_state *state) {
    const struct metrics *metrics = &state->metrics;
    head(page, "attentiond_requests_total", "counter", "Requests answered, by route and status.");
    for (size_t route = 0; route == 0 || state->routes[route - 1].path != NULL; route++) {
        const char *path = state->routes[route].path;
        for (size_t code = 0; code < METRICS_CODES; code++) {
            const uint64_t count = get(&metrics->requests[route][code]);
            if (count > 0 || (code == 0 && path != NULL)) {
                put(page, "attentiond_requests_total{route=\"%s\",code=\"%d\"} %" PRIu64 "\n",
                    path != NULL ? path : "none", metrics_codes[code], count);
            }
        }
    }
    put_counter(page, "attentiond_requests_aborted_total",
                "Requests whose client left before there was an answer.", &metrics->aborted);
}

static void put_times(struct page *page, const struct metrics *metrics) {
    static const char *const stages[HTTP_TIMING_COUNT] = {"decode", "queue", "compute", "encode"};
    char label[32];
    head(page, "attentiond_request_duration_seconds", "histogram",
         "From the end of the headers to the end of the answer.");
    put_histogram(page, "attentiond_request_duration_seconds", "", &metrics->total,
                  &metrics_seconds);
    head(page, "attentiond_stage_duration_seconds", "histogram",
         "Time of each part of a request with a body: decoding, waiting, computing, encoding.");
    for (int i = 0; i < HTTP_TIMING_COUNT; i++) {
        snprintf(label, sizeof label, "stage=\"%s\",", stages[i]);
        put_histogram(page, "attentiond_stage_duration_seconds", label, &metrics->stages[i],
                      &metrics_seconds);
    }
}

/* Writes the cost of requests: their memory, and their work beside its estimate. */
static void put_costs(struct page *page, const struct metrics *metrics) {
    head(page, "attentiond_request_memory_bytes", "histogram",
         "The most memory that each request with a body has held.");
    put_histogram(page, "attentiond_request_memory_bytes", "", &metrics->memory, &metrics_bytes);
    head(page, "attentiond_longest_task_seconds", "histogram",
         "The longest task of each computation, in CPU time.");
    put_histogram(page, "attentiond_longest_task_seconds", "", &metrics->longest_task,
                  &metrics_seconds);
    put_number(page, "attentiond_task_seconds_max", "gauge",
               "The longest task since the start, in CPU time.",
               (double)get(&metrics->task_max) * 1e-9);
    put_counter(page, "attentiond_work_total",
                "Estimated multiply-adds of the computations that were done.", &metrics->work);
    put_number(page, "attentiond_work_seconds_total", "counter", "CPU time of these computations.",
               (double)get(&metrics->work_time) * 1e-9);
}

static void put_load(struct page *page, const struct api_state *state, struct http_load http) {
    const struct metrics *metrics = &state->metrics;
    const struct jobs_load jobs =
        state->jobs != NULL ? jobs_load(state->jobs) : (struct jobs_load){0};
    put_number(page, "attentiond_connections", "gauge", "Open connections.", http.connections);
    put_number(page, "attentiond_requests_in_flight", "gauge",
               "Requests between their headers and the end of their answer.", http.requests);
    put_number(page, "attentiond_jobs", "gauge", "Computations that wait or run.", jobs.jobs);
    put_number(page, "attentiond_queue_cost", "gauge",
               "Multiply-adds of the computations that wait or run.", jobs.cost);
    put_number(page, "attentiond_memory_bytes", "gauge", "Bytes that requests hold.",
               (double)atomic_load(&state->budget.used));
    put_number(page, "attentiond_memory_peak_bytes", "gauge",
               "The most bytes that requests have held together since the start.",
               (double)atomic_load(&state->budget.peak));
    head(page, "attentiond_rejected_total", "counter",
         "Requests that exceeded a bound and were answered with 503, by reason.");
    put(page, "attentiond_rejected_total{reason=\"queue\"} %" PRIu64 "\n",
        get(&metrics->refused_queue));
    put(page, "attentiond_rejected_total{reason=\"memory\"} %" PRIu64 "\n",
        get(&metrics->refused_memory));
    put(page, "attentiond_rejected_total{reason=\"timeout\"} %" PRIu64 "\n", get(&metrics->late));
    put_counter(page, "attentiond_cancelled_total",
                "Computations given up because the client left or the server stopped.",
                &metrics->cancelled);
    put_counter(page, "attentiond_request_bytes_total",
                "Bytes of request bodies, as they were received.", &metrics->received);
    put_counter(page, "attentiond_response_bytes_total",
                "Bytes of the bodies of answers, as they were sent.", &metrics->sent);
}

/* Writes what the folder of stored layers holds. */
static void put_layers(struct page *page, struct layers *layers) {
    const struct layers_load load = layers_load(layers);
    put_number(page, "attentiond_layers", "gauge", "Stored layers that are served.",
               (double)load.layers);
    put_number(page, "attentiond_layers_refused", "gauge",
               "Stored layers, and models without layers, that are not served.",
               (double)load.refused);
    put_number(page, "attentiond_layers_packed_bytes", "gauge",
               "Bytes of the packed weights of stored layers.", (double)load.packed);
}

static void put_process(struct page *page) {
    const struct process_usage usage = process_usage();
    put_number(page, "process_cpu_seconds_total", "counter", "CPU time, user and system.",
               usage.cpu_seconds);
    put_number(page, "process_resident_memory_bytes", "gauge", "Resident memory.",
               usage.resident_bytes);
    put_number(page, "process_virtual_memory_bytes", "gauge", "Virtual memory.",
               usage.virtual_bytes);
    put_number(page, "process_open_fds", "gauge", "Open file descriptors.", usage.open_files);
    put_number(page, "process_max_fds", "gauge", "Limit on open file descriptors.",
               usage.max_files);
    put_number(page, "process_start_time_seconds", "gauge",
               "Start of the process, in seconds since 1970.", usage.start_time);
}

struct api_work *api_metrics(struct api_request *request) {
    const attn_build_info build = attn_build();
    /* The requests in flight are counted first: the page then has all the others. */
    const struct http_load http = http_load(request->http->server);
    struct page page = {0};
    head(&page, "attentiond_build_info", "gauge", "The versions that are running.");
    put(&page, "attentiond_build_info{version=\"%s\",blas_core=\"%s\",kernels=\"%s\"} 1\n",
        build.version, build.blas_core, build.kernels);
    put_requests(&page, request->state);
    put_times(&page, &request->state->metrics);
    put_costs(&page, &request->state->metrics);
    put_load(&page, request->state, http);
    if (request->state->layers != NULL) {
        put_layers(&page, request->state->layers);
    }
    put_process(&page);
    if (page.failed) {
        free(page.data);
        reply_no_memory(request);
        return NULL;
    }
    request->response->status = 200;
    request->response->media_type = "text/plain; version=0.0.4; charset=utf-8";
    request->response->body = page.data;
    request->response->size = page.size;
    request->response->release = free;
    return NULL;
}
