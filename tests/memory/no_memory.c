/*
 * no_memory.c - every allocation of the service fails once, and from every one on all do: the Nth
 * for N = 1, 2, 3, ... until a request needs no more. Each time the answer is the one that is got
 * otherwise (what failed was not needed), a 503 or, over a socket, the end of the connection;
 * nothing is left behind; and the same request is answered right after (promise 26). The server
 * needs a key, is asked by a web page, and logs requests to a file.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "memory/scarce.h"
#include "support/client.h"
#include "support/json.h"
#include "support/pack.h"

#define KEY "Authorization: Bearer one-key-for-this-test\r\n"

enum {
    PIECE = 5000,        /* bytes of a body that come at a time, without a socket */
    MOST = 2000,         /* allocations of one request: more is a loop without end */
    MOST_FAULTS = 10,    /* a leak is found at nearly every allocation: ten say enough */
    SETTLE_SECONDS = 10, /* for what other threads have still to free */
    TICK_NS = 100000
};

struct question {
    const char *name, *method, *path;
    int status;
    bool varies; /* with the time: only its status is the same each time */
    char *body;
    size_t size;
    const char *headers; /* beside those of all; NULL: the key */
};

struct outcome {
    int status; /* 0: the connection ended */
    bool retry; /* Retry-After */
    char *body;
    size_t size;
};

/* A way to ask. */
struct way {
    const char *name;
    void (*prepare)(void);
    void (*ask)(const struct question *question, struct outcome *out);
    void (*finish)(void); /* of all requests since prepare */
};

static struct api_service service = {
    .budget = {64 << 20, 64 << 20, 0, 0}, .max_work = 1e12, .timeout = 60, .threads = 2};
static const struct jobs_options workers = {.threads = 2, .max_jobs = 8, .max_cost = 1e12};
static char key_file[] = "/tmp/attentiond-no-memory-XXXXXX";
static const struct http_options http = {
    .log = {.json = true, .requests = true, .file = "/dev/null"},
    .api_key_file = key_file,
    .cors_origins = "https://a.example",
    .address = "127.0.0.1",
    .threads = 2,
    .max_body = 16 << 20,
    .compression = true,
    .max_connections = 16,
    .idle_timeout = 30,
    .header_timeout = 30,
    .body_timeout = 30,
    .write_timeout = 30,
    .drain_timeout = 10};
static struct http_app app;
static struct http_server *server;
static unsigned faults;

/* What is being tried, for `fault`. */
static const char *way_name, *question_name;
static size_t first;
static const char *wanted; /* NULL: every question */
static bool forever;

__attribute__((format(printf, 1, 2))) static void fault(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s, %s, allocation %zu%s: ", way_name, question_name, first,
            forever ? " and all after it" : "");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    if (++faults == MOST_FAULTS) {
        unlink(key_file);
        printf("%u faults, so the rest was not tried\n", faults);
        fflush(stdout);
        _exit(1); /* nothing is torn down: that could wait for what was lost */
    }
}

/* Something that is lost would be waited for in vain each time, so the first time is enough. */
static double settle_seconds(void) {
    return faults == 0 ? SETTLE_SECONDS : 0.5;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ----------------------------------------------------------------------------- without a socket */

static void append(struct outcome *out, const void *bytes, size_t size) {
    scarce_exempt(true);
    char *body = realloc(out->body, out->size + size + 1);
    scarce_exempt(false);
    if (body == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(body + out->size, bytes, size);
    }
    out->body = body;
    out->size += size;
    out->body[out->size] = '\0';
}

static void ask_app(const struct question *q, struct outcome *out) {
    const struct http_request request = {.method = q->method,
                                         .path = q->path,
                                         .media_type = "application/json",
                                         .id = "here",
                                         .authorized = true,
                                         .server = server};
    struct http_response response = {0};
    static char piece[4096];
    size_t size = 1;
    scarce_exempt(false);
    void *exchange = app.begin(app.context, &request, &response);
    for (size_t at = 0; exchange != NULL && at < q->size; at += PIECE) {
        if (!app.body(exchange, q->body + at, q->size - at < PIECE ? q->size - at : PIECE)) {
            break;
        }
    }
    if (exchange != NULL) {
        app.end(exchange, &request, &response); /* true: there are no workers */
    }
    out->status = response.status;
    out->retry = true; /* the server adds it */
    append(out, response.body, response.size);
    while (response.read != NULL && size > 0) {
        if (!response.read((void *)(uintptr_t)response.body, piece, sizeof piece, &size)) {
            fault("an answer that was begun is cut off");
            break;
        }
        append(out, piece, size);
    }
    if (response.release != NULL) {
        response.release((void *)(uintptr_t)response.body);
    }
    if (exchange != NULL) {
        app.release(exchange);
    }
    scarce_exempt(true);
}

static void prepare_app(void) {
    service.jobs = NULL;
}

static void finish_app(void) {
}

static const struct way by_app = {"the app alone", prepare_app, ask_app, finish_app};

/* ------------------------------------------------------------------- the server and its workers */

static struct client_connection connection = {.fd = -1};
static bool is_open;

static void hang_up(void) {
    client_close(&connection);
    is_open = false;
}

static void decode(const char *coding, struct outcome *out) {
    char *body = unpack(coding, out->body, out->size, &out->size);
    if (body == NULL) {
        fault("an answer that is not %s", coding);
        return;
    }
    free(out->body);
    out->body = body;
}

static void ask_server(const struct question *q, struct outcome *out) {
    struct client_response response;
    char head[512], value[64];
    const double start = now();
    const int size = snprintf(head, sizeof head,
                              "%s %s HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n"
                              "Content-Length: %zu\r\n%s\r\n",
                              q->method, q->path, q->size, q->headers != NULL ? q->headers : KEY);
    if (!is_open && !client_open(&connection, http_port(server))) {
        fault("there is no connection: %s", strerror(errno));
        return;
    }
    is_open = true;
    if (client_send(&connection, head, (size_t)size)) {
        client_send(&connection, q->body, q->size); /* what is refused early has an answer, too */
    }
    if (!client_receive(&connection, false, &response)) {
        if (now() - start > SETTLE_SECONDS) {
            fault("neither an answer nor an end");
        }
        hang_up();
        return;
    }
    out->status = response.status;
    out->retry = client_header(&response, "Retry-After", value, sizeof value);
    out->body = response.body;
    out->size = response.size;
    response.body = NULL;
    if (client_header(&response, "Content-Encoding", value, sizeof value)) {
        decode(value, out);
    }
    if (client_header(&response, "Connection", value, sizeof value)) {
        hang_up();
    }
    client_response_free(&response);
}

static void wait_tick(void) {
    nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
}

/* New ones for each try: a worker keeps its scratch. */
static void prepare_server(void) {
    service.jobs = jobs_start(&workers);
    if (service.jobs == NULL) {
        fault("no workers");
    }
}

static void finish_server(void) {
    const double start = now();
    hang_up();
    while (http_load(server).connections > 0 && now() - start < settle_seconds()) {
        wait_tick();
    }
    if (jobs_load(service.jobs).jobs != 0) {
        fault("a job is left");
    }
    jobs_stop(service.jobs);
    service.jobs = NULL;
}

static const struct way by_server = {"the server", prepare_server, ask_server, finish_server};

/* ------------------------------------------------------------------------------------ the trial */

static bool is_same(const struct question *q, const struct outcome *a, const struct outcome *b) {
    if (a->status != b->status || q->varies) {
        return a->status == b->status;
    }
    if (a->body == NULL || b->body == NULL) {
        return a->body == b->body;
    }
    /* The id of the request differs; it comes last, and only in problems. */
    const char *id = a->status == 200 ? NULL : strstr(a->body, "\"request_id\"");
    return id != NULL ? strncmp(a->body, b->body, (size_t)(id - a->body)) == 0
                      : a->size == b->size && memcmp(a->body, b->body, a->size) == 0;
}

static bool is_problem(const struct outcome *out) {
    struct cJSON *problem = json_parse(out->body, out->size);
    double status = 0;
    json_number(json_get(problem, "status"), &status);
    json_free(problem);
    return (int)status == 503 && out->retry;
}

static void expect_settled(void) {
    const double start = now();
    while ((scarce_left() > 0 || atomic_load(&service.budget.used) != 0) &&
           now() - start < settle_seconds()) {
        wait_tick();
    }
    if (scarce_left() > 0) {
        fault("%zu blocks are left", scarce_left());
        scarce_tell_left();
    }
    if (atomic_load(&service.budget.used) != 0) {
        fault("%zu bytes of the budget are left", atomic_load(&service.budget.used));
        atomic_store(&service.budget.used, 0);
    }
}

/* One request whose first-th allocation fails, and another with memory enough. Returns how many
 * allocations failed. */
static size_t try_at(const struct way *way, const struct question *q, const struct outcome *usual) {
    struct outcome got = {0}, after = {0};
    way->prepare();
    scarce_arm(first, forever);
    way->ask(q, &got);
    const size_t failed = scarce_disarm();
    if (got.status == 503 && q->status != 503) {
        if (!is_problem(&got)) {
            fault("a 503 that is no problem with Retry-After: %.200s", got.body);
        }
    } else if (got.status != 0 && !is_same(q, &got, usual)) {
        fault("another answer, %d %.300s", got.status, got.body);
    }
    if (failed == 0 && got.status != usual->status) {
        fault("%d although nothing failed", got.status);
    }
    way->ask(q, &after);
    if (!is_same(q, &after, usual)) {
        fault("afterwards %d %.300s", after.status, after.body != NULL ? after.body : "");
    }
    way->finish();
    expect_settled();
    free(got.body);
    free(after.body);
    return failed;
}

static void try_all(const struct way *way, const struct question *q) {
    if (wanted != NULL && strstr(q->name, wanted) == NULL) {
        return;
    }
    struct outcome usual = {0};
    size_t needed[2] = {0};
    way_name = way->name;
    question_name = q->name;
    first = 0;
    way->prepare(); /* also what is allocated once and kept, by libc for example */
    way->ask(q, &usual);
    way->finish();
    if (usual.status != q->status) {
        fault("%d instead of %d: %.300s", usual.status, q->status,
              usual.body != NULL ? usual.body : "");
    }
    for (int i = 0; i < 2; i++) {
        forever = i == 1;
        first = 1;
        while (first < MOST && try_at(way, q, &usual) > 0) {
            first++;
        }
        if (first == MOST) {
            fault("no end of allocations");
        }
        needed[i] = first - 1;
    }
    printf("%s, %s: %zu allocations failed, %zu and all after them\n", way->name, q->name,
           needed[0], needed[1]);
    free(usual.body);
}

/* ------------------------------------------------------------------------------ start and stop */

/* Returns how many allocations of the start failed. */
static size_t try_start(const struct question *q) {
    char error[256] = "";
    struct outcome got = {0};
    scarce_exempt(false);
    scarce_arm(first, forever);
    service.jobs = jobs_start(&workers);
    server = service.jobs != NULL ? http_start(&http, &app, error, sizeof error) : NULL;
    const size_t failed = scarce_disarm();
    scarce_exempt(true);
    if (server != NULL) {
        ask_server(q, &got);
        if (got.status != q->status) {
            fault("started, and answers with %d", got.status);
        }
        free(got.body);
        hang_up();
        if (!http_stop(server)) {
            fault("the server does not stop");
        }
    } else if (failed == 0 || (service.jobs != NULL && error[0] == '\0')) {
        fault("it does not start, and says \"%s\"", error);
    }
    jobs_stop(service.jobs);
    expect_settled();
    return failed;
}

static void try_starts(const struct question *q) {
    way_name = "start and stop";
    question_name = q->name;
    for (int i = 0; i < 2; i++) {
        forever = i == 1;
        first = 1;
        while (first < MOST && try_start(q) > 0) {
            first++;
        }
        printf("start and stop: %zu allocations failed%s\n", first - 1,
               forever ? " and all after them" : "");
    }
}

/* ------------------------------------------------------------------- the log and the keys again */

/* Keys change whole or not at all. Returns how many allocations failed. */
static size_t try_reload(void) {
    static const struct question version = {"version", "GET", "/version", 200, false, "", 0, NULL};
    struct outcome got = {0};
    scarce_exempt(false);
    scarce_arm(first, forever);
    http_reload(server);
    const size_t failed = scarce_disarm();
    scarce_exempt(true);
    ask_server(&version, &got);
    if (got.status != 200) {
        fault("afterwards %d", got.status);
    }
    free(got.body);
    hang_up();
    http_reload(server); /* what was read while armed is let go */
    expect_settled();
    return failed;
}

static void try_reloads(void) {
    way_name = "the server";
    question_name = "reload";
    for (int i = 0; i < 2; i++) {
        forever = i == 1;
        for (first = 1; first < MOST && try_reload() > 0; first++) {
        }
        printf("reload: %zu allocations failed%s\n", first - 1,
               forever ? " and all after them" : "");
    }
}

/* ---------------------------------------------------------------------------- the library alone */

/* A plan whose run fails can be run again. Returns how many allocations failed. */
static size_t try_library(void) {
    static const float numbers[64 * 8] = {1, -2, 3};
    static float output[64 * 8], usual[64 * 8];
    const attn_tensor x = {
        .dtype = ATTN_FLOAT32, .rank = 2, .shape = {64, 8}, .data = (void *)(uintptr_t)numbers};
    const attn_options options = {.causal = ATTN_CAUSAL_TOP_LEFT};
    attn_plan *plan = NULL;
    memset(output, 0, sizeof output);
    scarce_exempt(false);
    scarce_arm(first, forever);
    attn_status status = attn_plan_attention(&plan, &x, &x, &x, &options, NULL);
    if (status == ATTN_OK) {
        attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, output);
        status = attn_plan_run(plan, NULL);
    } else if (plan != NULL) {
        fault("a plan in spite of status %d", (int)status);
    }
    const size_t failed = scarce_disarm();
    scarce_exempt(true);
    if (status != (failed > 0 ? ATTN_NO_MEMORY : ATTN_OK)) {
        fault("status %d", (int)status);
    }
    if (plan != NULL) {
        if (attn_plan_run(plan, NULL) != ATTN_OK) {
            fault("the plan cannot be run again");
        }
        if (first == 0) {
            memcpy(usual, output, sizeof usual);
        } else if (memcmp(usual, output, sizeof usual) != 0) {
            fault("another output");
        }
    }
    attn_plan_free(plan);
    expect_settled();
    return failed;
}

static void try_libraries(void) {
    way_name = "the library alone";
    question_name = "attn_plan_run";
    first = 0;
    try_library();
    for (int i = 0; i < 2; i++) {
        forever = i == 1;
        for (first = 1; first < MOST && try_library() > 0; first++) {
        }
        printf("%s: %zu allocations failed%s\n", way_name, first - 1,
               forever ? " and all after them" : "");
    }
}

/* ---------------------------------------------------------------------------------- questions */

/* A matrix of rows x columns, or parts of these. */
static void put_matrix(FILE *to, size_t parts, size_t rows, size_t columns, const char *after) {
    for (size_t p = 0; p < parts; p++) {
        fputs(parts > 1 && p == 0 ? "[[" : "[", to);
        for (size_t i = 0; i < rows * columns; i++) {
            fprintf(to, "%s%zu.%zu",
                    i % columns != 0 ? ","
                    : i == 0         ? "["
                                     : "],[",
                    (i * 7 + p) % 3, (i * 31 + 17 * p) % 10);
        }
        fputs(parts > 1 && p + 1 == parts ? "]]]" : p + 1 == parts ? "]]" : "]],", to);
    }
    fputs(after, to);
}

/* Writes `format`, in which "#3x4" or "#2x3x4" is a matrix. */
static void write_body(struct question *q, const char *format) {
    FILE *to = open_memstream(&q->body, &q->size);
    while (*format != '\0') {
        size_t sizes[3] = {1, 1, 1};
        int count = 0;
        if (*format != '#') {
            fputc(*format++, to);
            continue;
        }
        do {
            char *end;
            sizes[count++] = strtoul(format + 1, &end, 10);
            format = end;
        } while (*format == 'x' && count < 3);
        if (count == 3) {
            put_matrix(to, sizes[0], sizes[1], sizes[2], "");
        } else {
            put_matrix(to, 1, sizes[0], sizes[1], "");
        }
    }
    fclose(to);
}

#define ALL_RESULTS                                                                                \
    "\"output\",\"weights\",\"scores\",\"scaled_scores\",\"masked_scores\",\"lse\","               \
    "\"statistics\","                                                                              \
    "\"entropy\",\"top_k\",\"present_K\",\"present_V\""

#define SEED "\"random\":{\"generator\":\"torch\",\"seed\":1}"
#define RAND "{\"random\":\"rand\",\"shape\":"

static const struct {
    const char *name, *path;
    int status;
    const char *body;
} posts[] = {
    {"softmax", "/softmax", 200, "{\"X\":#3x4,\"axis\":0,\"digits\":3}"},
    {"everything of multi-head attention", "/multi-head-attention", 200,
     "{\"X\":#2x5x8,\"W_Q\":#8x8,\"W_K\":#8x4,\"W_V\":#8x4,\"W_O\":#8x8,\"heads\":4,\"kv_heads\":2,"
     "\"top_k\":2,\"causal\":true,\"return\":[" ALL_RESULTS ",\"Q\",\"K\",\"V\"]}"},
    {"weights of each head", "/multi-head-attention", 200,
     "{\"X\":#5x6,\"context\":#7x6,\"W_O\":#7x3,\"heads\":["
     "{\"W_Q\":#6x2,\"W_K\":#6x2,\"W_V\":#6x3},{\"W_Q\":#6x3,\"W_K\":#6x3,\"W_V\":#6x4}],"
     "\"return\":[\"output\",\"weights\",\"Q\",\"K\",\"V\"]}"},
    {"past, mask, bias and the rest", "/attention", 200,
     "{\"Q\":#2x4x3,\"K\":#2x3x3,\"V\":#2x3x2,\"past_K\":#2x2x3,\"past_V\":#2x2x2,"
     "\"mask\":[[true,true,false,true,true],[true,true,true,true,true],"
     "[false,false,false,false,false],[true,true,true,true,false]],\"bias\":#4x5,"
     "\"window\":[2,1],\"alibi\":[0.5,0.25],\"sink\":[0.5,1],\"softcap\":3,\"scale\":0.5,"
     "\"digits\":4,\"top_k\":2,\"mean_over_heads\":true,\"return\":[" ALL_RESULTS "]}"},
    {"lengths in float64", "/attention", 200,
     "{\"X\":#2x4x3,\"lengths\":[3],\"alibi\":true,\"sink\":[1,2],\"return\":[" ALL_RESULTS "],"
     "\"dtype\":\"float64\"}"},
    {"draws everywhere", "/attention", 200,
     "{" SEED ",\"Q\":" RAND "[2,3,4]},\"K\":" RAND "[2,4,4]},\"V\":" RAND "[2,4,2]},"
     "\"mask\":{\"random\":\"randint\",\"high\":2,\"shape\":[3,6]},\"sink\":" RAND "2},"
     "\"past_K\":" RAND "[2,2,4]},\"past_V\":" RAND "[2,2,2]},\"bias\":{\"random\":\"randn\","
     "\"shape\":[3,6],\"discard\":[" RAND "3}," RAND "9}]}}"},
    {"draws for the workers", "/softmax", 200, "{" SEED ",\"X\":" RAND "[100,100]},\"digits\":3}"},
    {"words", "/embeddings", 200, "{\"text\":\"\\u03a3\\u03b1\\u03a3, a b; \\u0130 a\"}"},
    {"words and their embedding", "/attention", 200,
     "{\"tokens\":[\"a\",\"b\"],\"embedding\":#2x3,\"dtype\":\"float64\"}"},
    {"words, an embedding for the workers", "/embeddings", 200,
     "{" SEED ",\"text\":\"a b c d\",\"embedding_dim\":20000}"},
    {"words that are too many for the rows", "/embeddings", 422,
     "{\"tokens\":[\"a\",\"b\"],\"embedding\":#1x3}"},
    {"a bad draw", "/softmax", 422, "{" SEED ",\"X\":" RAND "[2,0]}}"},
    {"bad JSON", "/attention", 400, "{\"X\":[[1,2],[3,]]}"},
    {"a wrong shape", "/attention", 422, "{\"Q\":#3x4,\"K\":#3x5,\"V\":#3x4}"},
    {"an unknown key", "/attention", 422, "{\"Q\":#3x4,\"K\":#3x4,\"W\":#3x4}"},
    {"no path", "/attentions", 404, "{}"},
    {"a large body", "/attention", 200, "{\"Q\":#1x4,\"K\":#17000x4,\"V\":#17000x1}"},
    {"a large body and a long answer", "/softmax", 200, "{\"X\":#18000x4}"},
    {"tiles for the workers", "/self-attention", 200,
     "{\"X\":#700x8,\"W_Q\":#8x8,\"W_K\":#8x8,\"W_V\":#8x8,\"return\":[\"output\",\"lse\"]}"},
    {"stages for the workers, a long answer", "/attention", 200,
     "{\"X\":#200x16,\"return\":[\"weights\",\"scores\"]}"},
    {"an overflow that a worker finds", "/attention", 422,
     "{\"Q\":#400x16,\"K\":#400x16,\"V\":#400x16,\"scale\":1e38}"},
};

static const struct question shorts[] = {
    {"health", "GET", "/health/ready", 200, false, "", 0, NULL},
    {"version", "GET", "/version", 200, false, "", 0, NULL},
    {"metrics", "GET", "/metrics", 200, true, "", 0, NULL},
    {"no such method here", "PUT", "/softmax", 405, false, "", 0, NULL},
    {"openapi.yaml", "GET", "/openapi.yaml", 200, false, "", 0, NULL},
};

/* What a server is asked before an app. */
static const struct question heads[] = {
    {"no method", "BREW", "/", 501, false, "", 0, NULL},
    {"no key", "POST", "/softmax", 401, false, "{}", 2, ""},
    {"another key", "GET", "/version", 401, false, "", 0, "Authorization: Bearer another\r\n"},
    {"a browser asks first", "OPTIONS", "/attention", 204, false, "", 0,
     "Access-Control-Request-Method: POST\r\n"},
    {"a br body", "POST", "/softmax", 415, false, "{}", 2, KEY "Content-Encoding: br\r\n"},
};

/* Compressed, both ways, if it is one where that makes a difference. */
static void try_codings(const struct question *q) {
    static const char *const codings[] = {"gzip", "zstd"};
    static const char *const names[] = {"notebook", "openapi.yaml", "bad JSON",
                                        "a large body and a long answer"};
    size_t n = 0;
    while (n < sizeof names / sizeof *names && strcmp(q->name, names[n]) != 0) {
        n++;
    }
    for (size_t i = 0; n < sizeof names / sizeof *names && i < 2; i++) {
        char name[64], headers[256];
        struct question packed = *q;
        snprintf(name, sizeof name, "%s, %s", q->name, codings[i]);
        snprintf(headers, sizeof headers, KEY "Content-Encoding: %s\r\nAccept-Encoding: %s\r\n",
                 codings[i], codings[i]);
        packed.name = name;
        packed.headers = headers;
        packed.body = pack(codings[i], q->body, q->size, &packed.size);
        try_all(&by_server, &packed);
        free(packed.body);
    }
}

static void try_both(const struct question *q) {
    try_all(&by_app, q);
    try_all(&by_server, q);
    try_codings(q);
}

static void write_key(void) {
    FILE *file = fdopen(mkstemp(key_file), "w");
    if (file == NULL || fputs("one-key-for-this-test\n", file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "%s cannot be written\n", key_file);
        exit(1);
    }
}

/* With an argument, only the questions whose names contain it. */
int main(int argc, char *argv[]) {
    char error[256];
    struct question notebook = {"notebook", "POST", "/attention", 200, false, NULL, 0, NULL};
    wanted = argc > 1 ? argv[1] : NULL;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    app = api_app(&service);
    write_key();
    server = http_start(&http, &app, error, sizeof error);
    notebook.body =
        json_read_file(TESTS_DIR "/notebooks/000-attention.request.json", &notebook.size);
    if (server == NULL || notebook.body == NULL) {
        fprintf(stderr, "the server does not start, or there is no notebook\n");
        return 1;
    }
    try_both(&notebook);
    for (size_t i = 0; i < sizeof shorts / sizeof *shorts; i++) {
        try_both(&shorts[i]);
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        try_all(&by_server, &heads[i]);
    }
    for (size_t i = 0; i < sizeof posts / sizeof *posts; i++) {
        struct question q = {posts[i].name, "POST", posts[i].path, posts[i].status, false,
                             NULL,          0,      NULL};
        write_body(&q, posts[i].body);
        try_both(&q);
        free(q.body);
    }
    try_reloads();
    if (!http_stop(server)) {
        fault("the server does not stop");
    }
    try_starts(&notebook);
    try_libraries();
    unlink(key_file);
    free(notebook.body);
    printf("%u faults\n", faults);
    return faults != 0;
}
