/* write.c - see write.h. The last step waits for the disk, so a worker takes it. */
#include "api/write.h"

#include <string.h>

#include "api/reply.h"
#include "layers/layers.h"

enum {
    COST_OF_WRITING = 100000000 /* multiply-adds; no I/O thread takes work of this size */
};

/* The work that ends an upload, or removes a file. */
struct writing {
    struct api_work work;    /* first */
    struct layers *layers;   /* borrowed */
    struct upload *upload;   /* borrowed; NULL: the file is removed */
    struct account *account; /* borrowed */
    enum upload_status status;
    bool replaced;
    char name[LAYERS_NAME + 2];
    char reason[LAYERS_REASON];
};

/* Writes the name of the model in a path. The name of its file is fine, too. */
static void name_of(const struct api_request *request, char name[static LAYERS_NAME + 2]) {
    static const char ending[] = ".safetensors";
    const char *text = request->layer;
    const size_t size = strlen(text), last = sizeof ending - 1;
    const size_t rest = size > last && strcmp(text + size - last, ending) == 0 ? size - last : size;
    const size_t most = rest < LAYERS_NAME + 1 ? rest : LAYERS_NAME + 1;
    memcpy(name, text, most); /* a name that is too long stays too long */
    name[most] = '\0';
}

static void refuse_status(const struct api_request *request, struct http_response *response,
                          enum upload_status status, const char *reason) {
    static const int statuses[] = {
        [UPLOAD_BAD] = 422, [UPLOAD_MISSING] = 404, [UPLOAD_FULL] = 507, [UPLOAD_FAILED] = 500};
    http_problem(response, request->http, statuses[status], reason, NULL, NULL);
}

bool write_begin(const struct api_request *request, struct upload **upload,
                 struct http_response *response) {
    char name[LAYERS_NAME + 2], reason[LAYERS_REASON];
    name_of(request, name);
    const enum upload_status status = upload_begin(request->state->layers, name, upload, reason);
    if (status != UPLOAD_DONE) {
        upload_free(*upload);
        *upload = NULL;
        refuse_status(request, response, status, reason);
    }
    return status == UPLOAD_DONE;
}

static size_t one_task(const struct job *job, size_t phase) {
    (void)job;
    (void)phase;
    return 1;
}

static bool begin_writing(struct job *job) {
    (void)job;
    return true;
}

static bool run_writing(struct job *job, size_t phase, size_t task, void *scratch) {
    struct writing *w = (struct writing *)job;
    (void)phase;
    (void)task;
    (void)scratch;
    w->status = w->upload != NULL ? upload_end(w->upload, &w->replaced, w->reason)
                                  : upload_remove(w->layers, w->name, w->reason);
    return true;
}

static void answer_writing(struct api_work *work, const struct api_request *request,
                           struct http_response *response) {
    const struct writing *w = (const struct writing *)work;
    struct codec_items list;
    if (w->status != UPLOAD_DONE) {
        refuse_status(request, response, w->status, w->reason);
        return;
    }
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_text(&list, "model", w->name);
    codec_add_bool(&list, "replaced", w->replaced);
    codec_add_bool(&list, "removed", w->upload == NULL);
    codec_add_close(&list);
    reply_json_whole(request, response, &list);
    if (response->status == 200 && w->upload != NULL && !w->replaced) {
        response->status = 201;
    }
}

static void release_writing(struct api_work *work) {
    struct writing *w = (struct writing *)work;
    account_free(w->account, w, sizeof *w);
}

struct api_work *api_write(const struct api_request *request, struct http_response *response) {
    struct writing *w = account_alloc(request->account, sizeof *w);
    if (w == NULL) {
        reply_no_memory(request, response);
        return NULL;
    }
    memset(w, 0, sizeof *w);
    w->account = request->account;
    w->layers = request->state->layers;
    w->upload = request->upload;
    name_of(request, w->name);
    w->work.job.cost = COST_OF_WRITING;
    w->work.job.phases = 1;
    w->work.job.tasks = one_task;
    w->work.job.begin = begin_writing;
    w->work.job.task = run_writing;
    w->work.answer = answer_writing;
    w->work.release = release_writing;
    if (!api_claim(request, &w->work, 0, response)) {
        release_writing(&w->work);
        return NULL;
    }
    return &w->work;
}
