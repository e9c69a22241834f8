/*
 * assets.c - the files that browsers load: the explorer at /, the reference at /docs, their files
 * at /assets/{name}, openapi.yaml and openapi.json. server/explorer makes them, and embed.S puts
 * them into the daemon. They hold no secret, so nobody needs a key for them; the requests that the
 * pages then send need one.
 */
#include "api/api.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The pages run only their own scripts and styles, and send requests only to this server. Images
 * may be data, or blobs, which the page uses to save pictures. A worker obeys the policy of its own
 * response, so all files have this policy. The origins that may show a page in a frame follow. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "        \
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "                 \
    "frame-ancestors "

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
      .immutable = never_changes,                                                                  \
      .plain = {asset_##number, size},                                                             \
      .gzip = {asset_##number + (size), gz_size},                                                  \
      .brotli = {asset_##number + (size) + (gz_size), br_size}}},
#include <assets.inc>
};

static const struct http_asset *find_asset(const char *folder, const char *name) {
    const size_t size = strlen(folder);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strncmp(table[i].place, folder, size) == 0 &&
            strcmp(table[i].place + size, name) == 0) {
            return &table[i].asset;
        }
    }
    return NULL;
}

void assets_set_policy(struct api_state *state) {
    const char *ancestors = state->frame_ancestors != NULL ? state->frame_ancestors : "'none'";
    assert(sizeof POLICY + strlen(ancestors) <= sizeof state->policy);
    char *at = stpcpy(state->policy, POLICY);
    strcpy(at, ancestors);
    while ((at = strchr(at, ',')) != NULL) {
        *at = ' ';
    }
}

static struct api_work *asset_reply(const struct api_request *request,
                                    struct http_response *response,
                                    const struct http_asset *asset) {
    assert(asset != NULL);
    response->status = 200;
    response->media_type = asset->media_type;
    response->body = asset->plain.bytes;
    response->size = asset->plain.size;
    response->asset = asset;
    response->policy = request->state->policy;
    return NULL;
}

struct api_work *api_explorer(const struct api_request *request, struct http_response *response) {
    return asset_reply(request, response, find_asset("", "index.html"));
}

struct api_work *api_docs(const struct api_request *request, struct http_response *response) {
    const char *path = request->http->path;
    if (path[strlen(path) - 1] == '/') { /* the links of the page are relative */
        response->status = 308;
        response->location = "../docs";
        return NULL;
    }
    return asset_reply(request, response, find_asset("", "docs.html"));
}

struct api_work *api_openapi_json(const struct api_request *request,
                                  struct http_response *response) {
    return asset_reply(request, response, find_asset("", "openapi.json"));
}

struct api_work *api_openapi(const struct api_request *request, struct http_response *response) {
    return asset_reply(request, response, find_asset("", "openapi.yaml"));
}

struct api_work *api_asset(const struct api_request *request, struct http_response *response) {
    const struct http_asset *asset = find_asset("assets/", request->name);
    if (asset == NULL) {
        char detail[160];
        snprintf(detail, sizeof detail, "there is no file /assets/%.100s", request->name);
        http_problem(response, request->http, 404, detail, NULL, NULL);
        return NULL;
    }
    return asset_reply(request, response, asset);
}
