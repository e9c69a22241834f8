/*
 * embeddings.c - POST /embeddings: a text as words, vocabulary and ids, and the rows of an
 * embedding that the words stand for. generated.c makes all of this before the work begins, so the
 * work has no tasks of its own.
 */
#include "api/call/fields.h"
#include "api/call/generated.h"
#include "api/reply.h"

struct embeddings {
    struct api_work work; /* first */
    attn_tensor ids;
    attn_tensor embedding; /* `data` is NULL if the request gives no embedding */
};

static bool embeddings_read(struct api_request *request, struct embeddings *e,
                            struct codec_error *error) {
    const struct generated *generated = &request->generated;
    if (!fields_read_work(request, &e->work, error)) {
        return false;
    }
    const struct codec_words *words = generated->words;
    if (words == NULL) {
        return codec_fail(request->body, NULL, error, "text is missing: give text, or tokens");
    }
    e->ids =
        (attn_tensor){.data = words->ids, .dtype = ATTN_INT64, .rank = 1, .shape = {words->count}};
    return generated->x == NULL ||
           codec_as_reals(request->body, generated->x, 2, 2, &e->embedding, error);
}

static bool embeddings_answer(struct api_work *work, struct api_request *request,
                              struct codec_items *list) {
    const struct embeddings *e = (struct embeddings *)work;
    const struct codec_words *words = request->generated.words;
    codec_items_begin(list, &request->account);
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_texts(list, "tokens", words->words, words->count);
    codec_add(list, (struct codec_item){.op = CODEC_OP_IDS,
                                        .key = "vocabulary",
                                        .count = words->different,
                                        .texts = words->sorted,
                                        .ids = words->sorted_ids});
    codec_add_tensor(list, "ids", &e->ids);
    if (e->embedding.data != NULL) {
        codec_add_tensor(list, "embedding", &e->embedding);
    }
    codec_add_close(list);
    return true;
}

struct api_work *api_embeddings(struct api_request *request) {
    struct embeddings e = {.work = {.answer = embeddings_answer}};
    struct codec_error error = {0};
    struct embeddings *owned;
    if (!embeddings_read(request, &e, &error)) {
        reply_codec_error(request, &error);
        return NULL;
    }
    if (!api_admit(request, &e.work, 0, "")) {
        return NULL;
    }
    owned = account_alloc_taken(&request->account, ACCOUNT_ALIGNMENT, sizeof *owned); /* BASE */
    if (owned == NULL) {
        reply_no_memory(request);
        return NULL;
    }
    *owned = e;
    return &owned->work;
}
