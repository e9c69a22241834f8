/*
 * assets.c - what browsers load: the explorer at /, the reference at /docs, their files at
 * /assets/{name}, and openapi.yaml. All of it is in the daemon (embed.S), made by server/explorer.
 * It holds no secret, so it needs no key; what the pages then ask does.
 */
#include "api/api.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The pages run their own scripts and styles and ask this server, nothing else. Images may be data
 * or, for what a page saves of itself, blobs. A worker obeys the policy of its own response. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "        \
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "                 \
    "frame-ancestors 'none'"

#define ASSET(number, ...) extern const char asset_##number[];
#include <assets.inc>
#undef ASSET

static const struct {
    const char *place;
    struct http_asset asset;
} table[] = {
#define ASSET(number, path, gz, br, size, gz_size, br_size, type, entity_tag, never_changes)       \
    {path,                                                                                         \
     {.media_type = type,                                                                          \
      .tag = entity_tag,                                                                           \
      .policy = POLICY,                                                                            \
      .immutable = never_changes,                                                                  \
      .plain = {asset_##number, size},                                                             \
      .gzip = {asset_##number + (size), gz_size},                                                  \
      .brotli = {asset_##number + (size) + (gz_size), br_size}}},
#include <assets.inc>
};

static const struct http_asset *find(const char *folder, const char *name) {
    const size_t size = strlen(folder);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strncmp(table[i].place, folder, size) == 0 &&
            strcmp(table[i].place + size, name) == 0) {
            return &table[i].asset;
        }
    }
    return NULL;
}

static struct api_work *reply(struct http_response *response, const struct http_asset *asset) {
    assert(asset != NULL);
    response->status = 200;
    response->media_type = asset->media_type;
    response->body = asset->plain.bytes;
    response->size = asset->plain.size;
    response->asset = asset;
    return NULL;
}

struct api_work *api_explorer(const struct api_request *request, struct http_response *response) {
    (void)request;
    return reply(response, find("", "index.html"));
}

struct api_work *api_docs(const struct api_request *request, struct http_response *response) {
    (void)request;
    return reply(response, find("", "docs.html"));
}

struct api_work *api_openapi(const struct api_request *request, struct http_response *response) {
    (void)request;
    return reply(response, find("", "openapi.yaml"));
}

struct api_work *api_asset(const struct api_request *request, struct http_response *response) {
    const struct http_asset *asset = find("assets/", request->name);
    if (asset == NULL) {
        char detail[160];
        snprintf(detail, sizeof detail, "there is no file /assets/%.100s", request->name);
        http_problem(response, request->http, 404, detail, NULL, NULL);
        return NULL;
    }
    return reply(response, asset);
}
