/* health.c - the endpoints that tell whether the service runs, and which version of it. */
#include "api/reply.h"

/* The text of __VERSION__ in clang differs between systems, so its numbers are used instead. */
#define TEXT(number)               #number
#define CLANG(major, minor, patch) "clang " TEXT(major) "." TEXT(minor) "." TEXT(patch)
#ifdef __clang__
#define COMPILER CLANG(__clang_major__, __clang_minor__, __clang_patchlevel__)
#else
#define COMPILER "GCC " __VERSION__
#endif

static void health_reply(struct api_request *request, const char *body, size_t size) {
    request->response->status = 200;
    request->response->body = body;
    request->response->size = size;
}

struct api_work *api_live(struct api_request *request) {
    static const char body[] = "{\"status\":\"live\"}\n";
    health_reply(request, body, sizeof body - 1);
    return NULL;
}

struct api_work *api_ready(struct api_request *request) {
    static const char body[] = "{\"status\":\"ready\"}\n";
    if (request->http->draining) {
        reply_problem(request, 503, "the server is about to stop");
    } else {
        health_reply(request, body, sizeof body - 1);
    }
    return NULL;
}

struct api_work *api_version(struct api_request *request) {
    const attn_build_info build = attn_build();
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_text(&list, "name", "attentiond");
    codec_add_text(&list, "version", build.version);
    codec_add_text(&list, "compiler", COMPILER);
    codec_add_text(&list, "blas", build.blas);
    codec_add_text(&list, "blas_core", build.blas_core);
    codec_add_text(&list, "kernels", build.kernels);
    codec_add_number(&list, "threads", request->state->threads);
    codec_add_number(&list, "cores", request->state->cores);
    if (request->state->memory_limit > 0) {
        codec_add_number(&list, "memory_limit", request->state->memory_limit);
    }
    codec_add_close(&list);
    reply_json(request, &list, 0);
    return NULL;
}
