/* embeddings.c - POST /embeddings: a text as words, vocabulary and ids, and the rows of an
 * embedding that these are. */
#include "api/call.h"
#include "api/reply.h"

#include <stdlib.h>

static const char *const keys[] = {CALL_WORD_KEYS, "random", "dtype", "digits", "timeout"};

/* All that there is to compute, derived.c does before. */
struct embeddings {
    struct api_work work; /* first */
    const struct codec_words *words;
    attn_tensor ids, embedding; /* no data if there is none */
    int digits;
};

static bool read_request(const struct api_request *request, struct embeddings *e,
                         struct codec_error *error) {
    const struct codec_document *document = request->body;
    if (!call_check_keys(document, codec_root(document), CALL_AT_EMBEDDINGS, keys,
                         sizeof keys / sizeof *keys, error) ||
        !prepare_matrices(request, error) ||
        !call_read_common(document, &e->digits, &e->work.seconds, error)) {
        return false;
    }
    e->words = request->prepare->words;
    if (e->words == NULL) {
        return codec_fail(document, NULL, error, "text is missing: give text, or tokens");
    }
    e->ids = (attn_tensor){
        .data = e->words->ids, .dtype = ATTN_INT64, .rank = 1, .shape = {e->words->count}};
    return request->prepare->x == NULL ||
           codec_as_reals(document, request->prepare->x, 2, 2, &e->embedding, error);
}

static bool begin(struct job *job) {
    (void)job;
    return true;
}

static void answer(struct api_work *work, const struct api_request *request,
                   struct http_response *response) {
    const struct embeddings *e = (struct embeddings *)work;
    const struct codec_words *words = e->words;
    struct reply_items list = {.count = 0};
    reply_open(&list, CODEC_OP_OBJECT, NULL);
    reply_item(&list, (struct codec_item){.op = CODEC_OP_TEXTS,
                                          .key = "tokens",
                                          .count = words->count,
                                          .texts = words->words});
    reply_item(&list, (struct codec_item){.op = CODEC_OP_IDS,
                                          .key = "vocabulary",
                                          .count = words->different,
                                          .texts = words->sorted,
                                          .ids = words->sorted_ids});
    reply_tensor(&list, "ids", &e->ids);
    if (e->embedding.data != NULL) {
        reply_tensor(&list, "embedding", &e->embedding);
    }
    reply_close(&list);
    reply_items(request, response, &list, e->digits);
}

static void release(struct api_work *work) {
    free(work);
}

struct api_work *api_embeddings(const struct api_request *request, struct http_response *response) {
    struct embeddings e = {.work = {.job = {.begin = begin}, .answer = answer, .release = release}};
    struct codec_error error = {0};
    struct embeddings *owned;
    if (!read_request(request, &e, &error)) {
        reply_codec_error(request, response, &error);
        return NULL;
    }
    if (!api_claim(request, &e.work, 0, response)) {
        return NULL;
    }
    owned = malloc(sizeof *owned);
    if (owned == NULL) {
        reply_no_memory(request, response);
        return NULL;
    }
    *owned = e;
    return &owned->work;
}
