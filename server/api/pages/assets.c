/*
 * assets.c - the files that browsers load: the explorer at /, the reference at /docs, their files
 * at /assets/{name}, openapi.yaml, openapi.json and llms.txt. server/explorer makes them, and
 * embed.S puts them into the daemon. They hold no secret, so nobody needs a key for them; the
 * requests that the pages then send need one.
 */
#include "api/reply.h"

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

static struct api_work *asset_reply(struct api_request *request, const struct http_asset *asset) {
    assert(asset != NULL);
    request->response->status = 200;
    request->response->media_type = asset->media_type;
    request->response->body = asset->plain.bytes;
    request->response->size = asset->plain.size;
    request->response->asset = asset;
    request->response->policy = request->state->policy;
    return NULL;
}

struct api_work *api_explorer(struct api_request *request) {
    return asset_reply(request, find_asset("", "index.html"));
}

struct api_work *api_docs(struct api_request *request) {
    const char *path = request->http->path;
    if (path[strlen(path) - 1] == '/') { /* the links of the page are relative */
        request->response->status = 308;
        request->response->location = "../docs";
        return NULL;
    }
    return asset_reply(request, find_asset("", "docs.html"));
}

struct api_work *api_openapi_json(struct api_request *request) {
    return asset_reply(request, find_asset("", "openapi.json"));
}

struct api_work *api_openapi(struct api_request *request) {
    return asset_reply(request, find_asset("", "openapi.yaml"));
}

struct api_work *api_llms(struct api_request *request) {
    return asset_reply(request, find_asset("", "llms.txt"));
}

struct api_work *api_asset(struct api_request *request) {
    const struct http_asset *asset = find_asset("assets/", request->name);
    if (asset == NULL) {
        char detail[160];
        snprintf(detail, sizeof detail, "there is no file /assets/%.100s", request->name);
        reply_problem(request, 404, detail);
        return NULL;
    }
    return asset_reply(request, asset);
}
