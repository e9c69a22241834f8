/*
 * derived.c - see derived.h. Drawing is serial, and a body of 60 bytes may ask for seconds of it.
 * So it is the first phases of the request's own job, one task in each, a piece of a matrix or a
 * few small matrices at a time: it waits its turn, ends with its client or its deadline, and is
 * counted in what the workers take on. How a draw is written, draw.c knows.
 */
#include "api/derived.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

enum {
    /* What takes as long as so many multiply-adds. */
    COST_OF_DRAW = 1000,
    COST_OF_UNIFORM = 300,
    COST_OF_NORMAL = 1600,
    COST_OF_COPY = 16,
    ROWS_BYTES = 1 << 20, /* of the embedded words that one task copies */
    MOST_PARTS = 1 << 20
};

/* Numbers that one request draws: minutes of one core, and 2^18 phases of its job. */
#define MAX_ELEMENTS ((size_t)1 << 32)

struct prepare_draw {
    attn_draw draw;
    void *data; /* borrowed from the body; NULL: thrown away */
    bool mask;  /* the data become bytes */
};

void prepare_free(struct prepare *p) {
    attn_random_free(p->generator.random);
    codec_words_free(p->words);
    account_free(p->account, p->draws, p->draw_capacity * sizeof *p->draws);
    *p = (struct prepare){0};
}

/* -------------------------------------------------------------------------------------- draws */

/* Room for one more. A body has room for thousands that are thrown away, each of thirty bytes there
 * and twice as many here. */
static bool reserve_draw(struct prepare *p, struct codec_error *error) {
    struct prepare_draw *draws =
        account_grow(p->account, p->draws, &p->draw_capacity, p->draw_count + 1, sizeof *draws);
    if (draws == NULL) {
        return codec_no_memory(error);
    }
    p->draws = draws;
    return true;
}

static bool add_draw(struct prepare *p, const struct api_request *request,
                     const struct codec_value *value, const struct prepare_draw *next,
                     struct codec_error *error) {
    const attn_draw *draw = &next->draw;
    if (draw->count > MAX_ELEMENTS - p->elements) {
        codec_fail(request->body, value, error,
                   "the request draws more than %lld numbers, which is a fixed limit",
                   (long long)MAX_ELEMENTS);
        error->status = CODEC_TOO_LARGE;
        return false;
    }
    if (!reserve_draw(p, error)) {
        return false;
    }
    const bool normal = draw->distribution == ATTN_NORMAL;
    p->draws[p->draw_count++] = *next;
    p->elements += draw->count;
    p->cost += COST_OF_DRAW + (double)draw->count * (normal ? COST_OF_NORMAL : COST_OF_UNIFORM);
    return true;
}

/* The value becomes a tensor that is drawn. A mask becomes one of bytes, which is drawn as numbers
 * and has room for these. */
static bool make_drawn(struct prepare *p, const struct api_request *request,
                       const struct codec_value *value, const struct draw *draw, bool mask,
                       struct codec_error *error) {
    const size_t width = attn_dtype_size(p->dtype), count = draw->draw.count;
    const size_t room = !mask ? count : count > SIZE_MAX / width ? SIZE_MAX : count * width;
    void *data = NULL;
    return codec_make_tensor(request->body, value, mask ? ATTN_BOOL : p->dtype, draw->rank,
                             draw->shape, room, &data, error) &&
           add_draw(p, request, value, &(struct prepare_draw){draw->draw, data, mask}, error);
}

/* Draws that come before one and are thrown away. */
static bool discard(struct prepare *p, const struct api_request *request,
                    const struct codec_value *list, struct codec_error *error) {
    struct draw draw;
    if (list == NULL) {
        return true;
    }
    if (codec_kind_of(list) != CODEC_ARRAY) {
        return codec_refuse(request->body, list,
                            "an array of draws such as {\"random\": \"randn\", \"shape\": [4, 3]}",
                            error);
    }
    for (const struct codec_value *item = codec_at(list, 0); item != NULL;
         item = codec_next(item)) {
        if (!draw_read(request->body, item, &p->generator, false, &draw, error) ||
            !add_draw(p, request, item, &(struct prepare_draw){.draw = draw.draw}, error)) {
            return false;
        }
    }
    return true;
}

/* Are these surely numbers of a mask? */
static bool is_mask(const attn_draw *draw) {
    return draw->distribution == ATTN_RANDINT && draw->a >= 0 && draw->b <= 2;
}

static bool draw_matrix(struct prepare *p, const struct api_request *request,
                        const struct codec_value *value, struct codec_error *error) {
    const bool mask = strcmp(codec_name(value), "mask") == 0;
    struct draw draw;
    if (!draw_read(request->body, value, &p->generator, true, &draw, error)) {
        return false;
    }
    if (mask && !is_mask(&draw.draw)) {
        return codec_fail(request->body, value, error,
                          "mask holds 0 and 1: draw it with randint, low 0 and high 2");
    }
    return discard(p, request, draw.discard, error) &&
           make_drawn(p, request, value, &draw, mask, error);
}

/* torch.nn.Embedding(words, dim): normal numbers in float32. */
static bool draw_embedding(struct prepare *p, const struct api_request *request,
                           const struct codec_value *value, struct codec_error *error) {
    struct draw draw = {.draw = {ATTN_NORMAL, ATTN_FLOAT32, 0, 1, 0}, .rank = 2};
    int64_t dim;
    if (!codec_as_integer(request->body, value, 1, MAX_ELEMENTS, &dim, error)) {
        return false;
    }
    if (p->words == NULL) {
        return codec_fail(request->body, value, error,
                          "embedding_dim is given without text or tokens");
    }
    if (!draw_generator_check(request->body, value, &p->generator, error)) {
        return false;
    }
    if (p->generator.kind != ATTN_TORCH) {
        return codec_fail(
            request->body, value, error,
            "embedding_dim draws like torch.nn.Embedding and needs the generator torch; "
            "for numpy, give \"embedding\": {\"random\": \"randn\", \"shape\": [%zu, %lld]}",
            p->words->count, (long long)dim);
    }
    draw.shape[0] = p->words->count; /* <= CODEC_MAX_WORDS: the product fits */
    draw.shape[1] = (size_t)dim;
    draw.draw.count = draw.shape[0] * draw.shape[1];
    return make_drawn(p, request, value, &draw, false, error);
}

/* Where a matrix may stand. */
static bool is_matrix(const char *name) {
    static const char *const matrices[] = {
        "X",   "Q",   "K",   "V",    "context", "W_Q",  "W_K",   "W_V",    "W_O",    "b_Q",
        "b_K", "b_V", "b_O", "mask", "bias",    "sink", "alibi", "past_K", "past_V", "embedding"};
    size_t i = 0;
    while (i < sizeof matrices / sizeof *matrices && strcmp(name, matrices[i]) != 0) {
        i++;
    }
    return i < sizeof matrices / sizeof *matrices;
}

/* The product of all axes of a matrix but the last two; 1 if it has no shape. */
static double batch_of(const struct codec_document *document, const struct codec_value *matrix) {
    const struct codec_value *list = codec_get(matrix, "shape");
    size_t shape[ATTN_MAX_RANK], rank = codec_shape(document, matrix, shape), count;
    int64_t sizes[ATTN_MAX_RANK];
    double batch = 1;
    struct codec_error unused;
    if (list != NULL &&
        codec_as_integers(document, list, 1, INT32_MAX, sizes, ATTN_MAX_RANK, &count, &unused)) {
        for (rank = 0; rank < count && rank < ATTN_MAX_RANK; rank++) {
            shape[rank] = (size_t)sizes[rank];
        }
    }
    for (size_t axis = 0; axis + 2 < rank; axis++) {
        batch *= (double)shape[axis];
    }
    return batch;
}

double prepare_parts(const struct codec_document *document) {
    double batch = 1;
    int64_t heads = 1;
    const struct codec_value *member = codec_at(codec_root(document), 0);
    for (; member != NULL; member = codec_next(member)) {
        const char *name = codec_name(member);
        struct codec_error unused;
        if (name == NULL) {
            break; /* the body is no object */
        }
        if (is_matrix(name)) {
            batch = fmax(batch, batch_of(document, member));
        } else if (strcmp(name, "heads") == 0 && codec_kind_of(member) == CODEC_NUMBER &&
                   !codec_as_integer(document, member, 1, MOST_PARTS, &heads, &unused)) {
            heads = 1;
        }
    }
    return fmin((double)heads * batch, MOST_PARTS);
}

/* Those members of the request, or of one of its heads, that are to be drawn, in their order. */
static bool draw_members(struct prepare *p, const struct api_request *request,
                         const struct codec_value *object, struct codec_error *error) {
    const bool root = object == codec_root(request->body);
    bool good = true;
    for (const struct codec_value *member = codec_at(object, 0); good && member != NULL;
         member = codec_next(member)) {
        const enum codec_kind kind = codec_kind_of(member);
        if (kind == CODEC_OBJECT && is_matrix(codec_name(member))) {
            good = draw_matrix(p, request, member, error);
        } else if (root && kind == CODEC_ARRAY && strcmp(codec_name(member), "heads") == 0) {
            const struct codec_value *head = codec_at(member, 0);
            for (; good && head != NULL; head = codec_next(head)) {
                good = codec_kind_of(head) != CODEC_OBJECT || draw_members(p, request, head, error);
            }
        } else if (root && strcmp(codec_name(member), "embedding_dim") == 0) {
            good = draw_embedding(p, request, member, error);
        }
    }
    return good;
}

/* -------------------------------------------------------------------------------------- words */

/* *value: what the words were read from, NULL if there are none. */
static bool read_words(struct prepare *p, const struct api_request *request,
                       const struct codec_value **value, struct codec_error *error) {
    static const char *const others[] = {"X", "Q", "K", "V"};
    const struct codec_document *document = request->body;
    const struct codec_value *root = codec_root(document);
    const struct codec_value *text = codec_get(root, "text"), *tokens = codec_get(root, "tokens");
    *value = text != NULL ? text : tokens;
    if (*value == NULL) {
        return true;
    }
    if (text != NULL && tokens != NULL) {
        return codec_fail(document, tokens, error, "give text or tokens, not both");
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (codec_get(root, others[i]) != NULL) {
            return codec_fail(document, *value, error,
                              "%s stands in place of X, but %s is given too", codec_name(*value),
                              others[i]);
        }
    }
    p->words = text != NULL ? codec_words_of_text(document, text, error)
                            : codec_words_of_tokens(document, tokens, error);
    return p->words != NULL;
}

/* A word without a row. No more of it is told than what ends with a whole character. */
static bool refuse_word(const struct codec_document *document, const struct codec_value *embedding,
                        const struct codec_words *words, size_t i, size_t rows,
                        struct codec_error *error) {
    const char *word = words->words[i];
    size_t size = strnlen(word, 64);
    while ((word[size] & 0xC0) == 0x80) {
        size--;
    }
    return codec_fail(document, embedding, error,
                      "the word \"%.*s\" has the id %lld, but %s has %zu row%s", (int)size, word,
                      (long long)words->ids[i], codec_name(embedding), rows, rows == 1 ? "" : "s");
}

/* The rows of the embedding that the words stand for: a tensor in place of the words. */
static bool embed(struct prepare *p, const struct api_request *request,
                  const struct codec_value *value, const struct codec_value *embedding,
                  struct codec_error *error) {
    attn_tensor *rows = &p->rows;
    const struct codec_words *words = p->words;
    void *data;
    size_t bytes;
    if (!codec_as_reals(request->body, embedding, 2, 2, rows, error)) {
        return false;
    }
    for (size_t i = 0; i < words->count; i++) {
        if ((size_t)words->ids[i] >= rows->shape[0]) {
            return refuse_word(request->body, embedding, words, i, rows->shape[0], error);
        }
    }
    const size_t width = attn_dtype_size(rows->dtype);
    const size_t shape[] = {words->count, rows->shape[1]};
    if (__builtin_mul_overflow(shape[1] * width, shape[0], &bytes)) {
        bytes = SIZE_MAX / width * width;
    }
    if (!codec_make_tensor(request->body, value, rows->dtype, 2, shape, bytes / width, &data,
                           error)) {
        return false;
    }
    p->x = value;
    p->embedded = data;
    p->cost += COST_OF_COPY * (double)bytes / (double)width;
    return true;
}

static bool embed_words(struct prepare *p, const struct api_request *request,
                        const struct codec_value *words, struct codec_error *error) {
    const struct codec_value *root = codec_root(request->body);
    const struct codec_value *embedding = codec_get(root, "embedding");
    const struct codec_value *dim = codec_get(root, "embedding_dim");
    if (embedding != NULL && dim != NULL) {
        return codec_fail(request->body, dim, error, "give embedding or embedding_dim, not both");
    }
    if (embedding != NULL && words == NULL) {
        return codec_fail(request->body, embedding, error,
                          "embedding is given without text or tokens");
    }
    embedding = embedding != NULL ? embedding : dim;
    return embedding == NULL || embed(p, request, words, embedding, error);
}

/* ---------------------------------------------------------------------------------- the phases */

/* In place: byte i is written when number i has been read, and lies before number i + 1. */
static void make_mask(void *data, attn_dtype dtype, size_t first, size_t count) {
    unsigned char *bytes = data;
    for (size_t i = first; i < first + count; i++) {
        bytes[i] =
            dtype == ATTN_FLOAT32 ? ((const float *)data)[i] > 0 : ((const double *)data)[i] > 0;
    }
}

/* Draws the next piece and returns its size. */
static size_t draw_piece(struct prepare *p) {
    const struct prepare_draw *draw = &p->draws[p->next];
    const size_t first = p->drawn, left = draw->draw.count - first;
    const size_t count = left < ATTN_DRAW_PIECE ? left : ATTN_DRAW_PIECE;
    attn_random_fill(p->generator.random, &draw->draw, first, count, p->dtype, draw->data);
    if (draw->mask) {
        make_mask(draw->data, p->dtype, first, count);
    }
    p->drawn = count < left ? first + count : 0;
    p->next += count == left;
    return count;
}

/* One task: small pieces go together. */
static void draw_batch(struct prepare *p) {
    for (size_t drawn = 0; drawn < ATTN_DRAW_PIECE && p->next < p->draw_count;) {
        drawn += draw_piece(p);
    }
}

static size_t row_bytes(const struct prepare *p) {
    return p->rows.shape[1] * attn_dtype_size(p->rows.dtype);
}

/* Rows that one task copies. */
static size_t rows_at_once(const struct prepare *p) {
    return 1 + ROWS_BYTES / row_bytes(p);
}

static void copy_rows(const struct prepare *p, size_t task) {
    const size_t size = row_bytes(p), rows = rows_at_once(p), count = p->words->count;
    const size_t end = (task + 1) * rows < count ? (task + 1) * rows : count;
    for (size_t i = task * rows; i < end; i++) {
        memcpy(p->embedded + i * size, (const char *)p->rows.data + (size_t)p->words->ids[i] * size,
               size);
    }
}

static struct prepare *prepare_of(const struct job *job) {
    return (struct prepare *)(uintptr_t)((const char *)job - offsetof(struct prepare, job));
}

/* The phases: batches, one after the other; the rows; the begin of `then`; its phases. */
static size_t phases_before(const struct prepare *p) {
    return p->batches + (p->embedded != NULL) + 1;
}

static size_t tasks_of(const struct job *job, size_t phase) {
    const struct prepare *p = prepare_of(job);
    const size_t before = phases_before(p);
    if (phase >= before) {
        return p->then->tasks(p->then, phase - before);
    }
    if (phase == p->batches && p->embedded != NULL) {
        return (p->words->count - 1) / rows_at_once(p) + 1;
    }
    return 1;
}

static bool begin(struct job *job) {
    (void)job;
    return true;
}

static bool run_task(struct job *job, size_t phase, size_t task, void *scratch) {
    struct prepare *p = prepare_of(job);
    const size_t before = phases_before(p);
    if (phase >= before) {
        return p->then->task(p->then, phase - before, task, scratch);
    }
    if (phase + 1 == before) {
        return p->then->begin(p->then);
    }
    if (phase < p->batches) {
        draw_batch(p);
    } else {
        copy_rows(p, task);
    }
    return true;
}

struct job *prepare_job(struct prepare *p, struct job *then) {
    if (p->batches == 0 && p->embedded == NULL) {
        return then;
    }
    p->then = then;
    p->job = (struct job){.cost = then->cost + p->cost,
                          .scratch = then->scratch,
                          .phases = phases_before(p) + then->phases,
                          .tasks = tasks_of,
                          .begin = begin,
                          .task = run_task};
    return &p->job;
}

/* -------------------------------------------------------------------------------- the request */

bool prepare_matrices(const struct api_request *request, struct codec_error *error) {
    struct prepare *p = request->prepare;
    const struct codec_value *words;
    p->account = request->account;
    p->dtype = codec_document_dtype(request->body);
    if (!draw_generator_read(request->body, &p->generator, error) ||
        !read_words(p, request, &words, error) ||
        !draw_members(p, request, codec_root(request->body), error) ||
        !embed_words(p, request, words, error)) {
        return false;
    }
    /* At most: each but the last draws as many numbers at least. */
    p->batches = (p->elements + ATTN_DRAW_PIECE - 1) / ATTN_DRAW_PIECE;
    return true;
}
