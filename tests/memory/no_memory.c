/*
 * no_memory.c - lets every allocation of the service fail: the Nth one for N = 1, 2, 3, ... until a
 * request needs no more allocations, first the Nth alone, then with all that follow it. Each time
 * the answer must be the usual one (if what failed was not needed), a 503 or, over a socket, the
 * end of the connection. Nothing may be left in memory, and the same request must be answered right
 * after (promise 26). Starts, reloads, stored layers and the library alone are tried, too. Before
 * all that, the allocations of a small request are counted.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/layers.h"
#include "memory/alloc_failure.h"
#include "memory/requests.h"
#include "memory/trial.h"
#include "memory/ways.h"
#include "support/descriptors.h"
#include "support/json.h"
#include "support/pack.h"

enum {
    MOST_ALLOCATIONS = 2000, /* a request with more allocations is taken for a loop without end */
    /* A small request on a used connection allocates its context, its arena and its plan. */
    SMALL_ALLOCATIONS = 3
};

static const char *wanted; /* a part of the names of the requests to try; NULL = all are tried */

/* ------------------------------------------------------------------------------ one request */

static bool is_same(const struct request *q, const struct answer *a, const struct answer *b) {
    if (a->status != b->status || q->varies) {
        return a->status == b->status;
    }
    if (a->body == NULL || b->body == NULL) {
        return a->body == b->body;
    }
    /* The id differs with each request. It comes last, and only in problem documents. */
    const char *id = a->status == 200 ? NULL : strstr(a->body, "\"request_id\"");
    return id != NULL ? strncmp(a->body, b->body, (size_t)(id - a->body)) == 0
                      : a->size == b->size && memcmp(a->body, b->body, a->size) == 0;
}

/* Returns whether an answer with status 503 has Retry-After and is what the path promises: a
 * problem document or {"error": "text"}. */
static bool is_problem(const struct request *q, const struct answer *out) {
    struct cJSON *problem = json_parse(out->body, out->size);
    double status = 0;
    json_number(json_get(problem, "status"), &status);
    const bool bare = json_text(json_get(problem, "error")) != NULL && json_size(problem) == 1;
    json_free(problem);
    return (request_is_inference(q) ? bare : (int)status == 503) && out->retry;
}

/* Waits until other threads have freed everything, and reports what is left. */
static void expect_settled(void) {
    const double start = trial_now();
    while ((alloc_failure_left() > 0 || atomic_load(&tested_state.budget.used) != 0) &&
           trial_now() - start < trial_patience()) {
        trial_tick();
    }
    if (alloc_failure_left() > 0) {
        trial_fault("%zu blocks are left", alloc_failure_left());
        alloc_failure_tell_left();
    }
    if (atomic_load(&tested_state.budget.used) != 0) {
        trial_fault("%zu bytes of the budget are left", atomic_load(&tested_state.budget.used));
        atomic_store(&tested_state.budget.used, 0);
    }
}

/* What is tried while an allocation fails: a request in a way, whose usual answer is known. Other
 * trials leave members NULL. */
struct attempt {
    const struct way *way;
    const struct request *request;
    const struct answer *usual;
};

/* Lets one allocation after the other fail, first alone and then with all that follow it, until an
 * attempt needs no further one. `try_once` returns how many allocations failed. */
static void fail_each(const char *way, const char *name,
                      size_t (*try_once)(const struct attempt *attempt),
                      const struct attempt *attempt) {
    size_t needed[2];
    trial.way = way;
    trial.request = name;
    for (int i = 0; i < 2; i++) {
        trial.forever = i == 1;
        trial.first = 1;
        while (trial.first < MOST_ALLOCATIONS && try_once(attempt) > 0) {
            trial.first++;
        }
        if (trial.first == MOST_ALLOCATIONS) {
            trial_fault("the allocations have no end");
        }
        needed[i] = trial.first - 1;
    }
    printf("%s, %s: %zu allocations failed, %zu and all after them\n", way, name, needed[0],
           needed[1]);
}

/* Asks once while the allocation number `trial.first` fails, and once again with memory enough.
 * Returns how many allocations failed. */
static size_t try_at(const struct attempt *attempt) {
    const struct way *way = attempt->way;
    const struct request *q = attempt->request;
    const struct answer *usual = attempt->usual;
    struct answer got = {0}, after = {0};
    way->prepare();
    alloc_failure_arm(trial.first, trial.forever);
    way->ask(q, &got);
    const size_t failed = alloc_failure_disarm();
    if (got.status == 503 && q->status != 503) {
        if (!is_problem(q, &got)) {
            trial_fault("a 503 is no error of this path with Retry-After: %.200s", got.body);
        }
    } else if (got.status != 0 && !is_same(q, &got, usual)) {
        trial_fault("the answer is not the usual one: %d %.300s", got.status, got.body);
    }
    if (failed == 0 && got.status != usual->status) {
        trial_fault("the status is %d although no allocation failed", got.status);
    }
    way->ask(q, &after);
    if (!is_same(q, &after, usual)) {
        trial_fault("the next request got %d %.300s", after.status,
                    after.body != NULL ? after.body : "");
    }
    way->finish();
    expect_settled();
    free(got.body);
    free(after.body);
    return failed;
}

/* Lets the allocations of a request fail. */
static void try_all(const struct way *way, const struct request *q) {
    if (wanted != NULL && strstr(q->name, wanted) == NULL) {
        return;
    }
    struct answer usual = {0};
    trial.way = way->name;
    trial.request = q->name;
    trial.first = 0;
    way->prepare(); /* this first request also makes libc allocate what it keeps for ever */
    way->ask(q, &usual);
    way->finish();
    if (usual.status != q->status) {
        trial_fault("the status is %d instead of %d: %.300s", usual.status, q->status,
                    usual.body != NULL ? usual.body : "");
    }
    fail_each(way->name, q->name, try_at, &(struct attempt){way, q, &usual});
    free(usual.body);
}

/* Counts the allocations of the third request on a connection. Those of libmicrohttpd are one for
 * the response and three for each header. */
static void count_allocations(const struct request *q) {
    struct answer answers[3] = {{0}};
    trial.way = way_server.name;
    trial.request = q->name;
    trial.first = 0;
    way_server.prepare();
    for (int i = 0; i < 3; i++) {
        alloc_failure_arm(0, false);
        way_server.ask(q, &answers[i]);
        alloc_failure_disarm();
    }
    const size_t http = alloc_failure_count_http(), own = alloc_failure_count() - http;
    way_server.finish();
    if (own > SMALL_ALLOCATIONS || http == 0 || answers[2].status != 200) {
        trial_fault("a request with status %d makes %zu allocations of its own, and %zu in "
                    "libmicrohttpd",
                    answers[2].status, own, http);
    }
    printf("a small request makes %zu allocations, and %zu in libmicrohttpd\n", own, http);
    for (int i = 0; i < 3; i++) {
        free(answers[i].body);
    }
}

/* ------------------------------------------------------------------------------ start and stop */

/* Starts the workers and the server while an allocation fails, and stops them. Returns how many
 * allocations failed. */
static size_t try_start(const struct attempt *attempt) {
    char error[256] = "";
    struct answer got = {0};
    alloc_failure_exempt(false);
    alloc_failure_arm(trial.first, trial.forever);
    tested_state.jobs = ways_start_workers();
    tested_server = NULL;
    if (tested_state.jobs != NULL) {
        ways_start_server(error, sizeof error);
    }
    const size_t failed = alloc_failure_disarm();
    alloc_failure_exempt(true);
    if (tested_server != NULL) {
        way_server.ask(attempt->request, &got);
        if (got.status != attempt->request->status) {
            trial_fault("the server starts, and answers with %d", got.status);
        }
        free(got.body);
        ways_hang_up();
        if (!http_stop(tested_server)) {
            trial_fault("the server does not stop");
        }
    } else if (failed == 0 || (tested_state.jobs != NULL && error[0] == '\0')) {
        trial_fault("the server does not start, and says \"%s\"", error);
    }
    jobs_stop(tested_state.jobs);
    expect_settled();
    return failed;
}

/* ------------------------------------------------------------------- the log and the keys again */

/* Reads the keys again while an allocation fails. The old keys must stay, or all new ones be there.
 * Returns how many allocations failed. */
static size_t try_reload(const struct attempt *attempt) {
    (void)attempt;
    static const struct request version = {
        .name = "version", .method = "GET", .path = "/version", .status = 200, .body = ""};
    struct answer got = {0};
    alloc_failure_exempt(false);
    alloc_failure_arm(trial.first, trial.forever);
    http_reload(tested_server);
    const size_t failed = alloc_failure_disarm();
    alloc_failure_exempt(true);
    way_server.ask(&version, &got);
    if (got.status != 200) {
        trial_fault("the next request got %d", got.status);
    }
    free(got.body);
    ways_hang_up();
    http_reload(tested_server); /* frees what the first reload allocated */
    expect_settled();
    return failed;
}

/* ---------------------------------------------------------------------------- stored layers */

/* Opens a folder of stored layers, and looks at it again, while an allocation fails. No descriptor
 * is left. Returns how many allocations failed. */
static size_t try_layers(const struct attempt *attempt) {
    char reason[LAYERS_REASON];
    const struct layers_options options = {.folder = TESTS_DIR "/data/layers", .memory = 1 << 20};
    const size_t before = count_descriptors(0);
    (void)attempt;
    alloc_failure_exempt(false);
    alloc_failure_arm(trial.first, trial.forever);
    struct layers *layers = layers_open(&options, reason);
    if (layers != NULL) {
        layers_refresh(layers);
    }
    const size_t failed = alloc_failure_disarm();
    alloc_failure_exempt(true);
    layers_close(layers);
    const size_t after = count_descriptors(0);
    if (after != before) {
        trial_fault("%zu descriptors are open, and %zu were before", after, before);
    }
    expect_settled();
    return failed;
}

/* ---------------------------------------------------------------------------- the library alone */

static const float numbers[64 * 8] = {1, -2, 3};
static const attn_tensor x = {.data = numbers, .dtype = ATTN_FLOAT32, .rank = 2, .shape = {64, 8}};

/* Makes and runs a plan while an allocation fails. A plan whose run failed must run again. Returns
 * how many allocations failed. */
static size_t try_plan(const attn_options *options) {
    static _Alignas(ATTN_ALIGNMENT) char results[8192], usual[8192];
    attn_plan *plan = NULL;
    memset(results, 0, sizeof results);
    alloc_failure_exempt(false);
    alloc_failure_arm(trial.first, trial.forever);
    attn_status status = attn_plan_attention(&plan, &x, &x, &x, options, NULL);
    if (status == ATTN_OK) {
        attn_plan_bind_all(plan, results);
        status = attn_plan_run(plan, NULL);
    } else if (plan != NULL) {
        trial_fault("there is a plan in spite of status %d", (int)status);
    }
    const size_t failed = alloc_failure_disarm();
    alloc_failure_exempt(true);
    if (status != (failed > 0 ? ATTN_NO_MEMORY : ATTN_OK)) {
        trial_fault("the status is %d", (int)status);
    }
    if (plan != NULL) {
        if (attn_plan_run(plan, NULL) != ATTN_OK) {
            trial_fault("the plan cannot be run again");
        }
        if (trial.first == 0) {
            memcpy(usual, results, sizeof usual);
        } else if (memcmp(usual, results, sizeof usual) != 0) {
            trial_fault("the results are not the usual ones");
        }
    }
    attn_plan_free(plan);
    expect_settled();
    return failed;
}

static size_t try_library(const struct attempt *attempt) {
    (void)attempt;
    return try_plan(&(attn_options){.causal = true});
}

static size_t try_sequences(const struct attempt *attempt) {
    static const size_t lengths[] = {5, 50, 0, 5, 4};
    const attn_sequences sequences = {5, lengths, NULL};
    const attn_tensor sink = {.data = numbers, .rank = 1, .shape = {1}};
    const attn_upstream upstream = {.output = &x};
    (void)attempt;
    return try_plan(
        &(attn_options){.sequences = &sequences,
                        .sink = &sink,
                        .upstream = &upstream,
                        .results = ATTN_WANT(OUTPUT) | ATTN_WANT(GRAD_X) | ATTN_WANT(GRAD_SINK)});
}

/* ------------------------------------------------------------------------------- all requests */

/* Asks the server with a compressed body, for a compressed answer. */
static void try_codings(const struct request *q) {
    static const char *const codings[] = {"gzip", "zstd", "deflate"};
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
        char name[64], headers[256];
        struct request packed = *q;
        snprintf(name, sizeof name, "%s, %s", q->name, codings[i]);
        snprintf(headers, sizeof headers,
                 REQUEST_KEY "Content-Encoding: %s\r\nAccept-Encoding: %s\r\n", codings[i],
                 codings[i]);
        packed.name = name;
        packed.headers = headers;
        packed.body = pack(codings[i], q->body, q->size, &packed.size);
        try_all(&way_server, &packed);
        free(packed.body);
    }
}

static void try_request(const struct request *q) {
    if (!q->only_server) {
        try_all(&way_app, q);
    }
    try_all(&way_server, q);
    if (request_has_codings(q)) {
        try_codings(q);
    }
}

/* With an argument, only the requests whose names contain it are tried. */
int main(int argc, char *argv[]) {
    char error[256];
    struct request notebook = request_of_notebook();
    wanted = argc > 1 ? argv[1] : NULL;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    ways_begin();
    if (!ways_start_server(error, sizeof error) || notebook.body == NULL) {
        fprintf(stderr, "the server does not start, or there is no notebook\n");
        return 1;
    }
    count_allocations(&notebook);
    try_request(&notebook);
    requests_visit(try_request);
    fail_each("the server", "reload", try_reload, NULL);
    if (!http_stop(tested_server)) {
        trial_fault("the server does not stop");
    }
    fail_each("start and stop", notebook.name, try_start, &(struct attempt){.request = &notebook});
    fail_each("stored layers", "open and refresh", try_layers, NULL);
    trial.first = 0;
    try_library(NULL); /* notes the usual output */
    fail_each("the library alone", "attn_plan_run", try_library, NULL);
    trial.first = 0;
    try_sequences(NULL);
    fail_each("the library with sequences", "attn_plan_run", try_sequences, NULL);
    unlink(trial_file);
    free(notebook.body);
    printf("%u faults\n", trial_faults());
    return trial_faults() != 0;
}
