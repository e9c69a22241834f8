/*
 * generated.c - makes the tensors of generated matrices, and the phases that fill them.
 *
 * Drawing is serial, and a body of 60 bytes may ask for seconds of it. So the draws are the first
 * phases of the request's own job, each with one task, which draws a chunk of a matrix or a few
 * small matrices. Such a job waits its turn, ends with its client or its deadline, and counts in
 * the cost of all jobs. draw.c knows how a request describes a draw.
 */
#include "api/call/generated.h"

#include <math.h>
#include <string.h>

#include "api/call/field.h"

enum {
    /* Multiply-adds that take as long as beginning a draw, drawing one number, and copying one. */
    COST_OF_DRAW = 1000,
    COST_OF_UNIFORM = 300,
    COST_OF_NORMAL = 1600,
    COST_OF_COPY = 16,
    ROWS_BYTES = 1 << 20, /* bytes of embedded words that one task copies */
    MOST_PARTS = 1 << 20,
    SEQUENCE_PARTS = 16 /* planning for a sequence takes as long as for so many heads */
};

/* The numbers that one request may draw. They take minutes of one core. */
#define MAX_ELEMENTS ((size_t)1 << 32)

struct generated_draw {
    attn_draw draw;
    void *data; /* borrowed from the body; NULL: the numbers are thrown away */
    bool mask;  /* the numbers become bytes */
};

void generated_free(struct generated *g) {
    attn_random_free(g->generator.random);
    *g = (struct generated){0};
}

/* -------------------------------------------------------------------------------------- draws */

/* Adds a draw. A body may name thousands of draws that are thrown away, each with thirty bytes, and
 * each takes twice as many bytes here. */
static bool add_draw(struct generated *g, struct codec_document *document,
                     const struct codec_value *value, const struct generated_draw *next,
                     struct codec_error *error) {
    const attn_draw *draw = &next->draw;
    if (draw->count == 0) {
        return true;
    }
    if (draw->count > MAX_ELEMENTS - g->elements) {
        codec_fail(document, value, error,
                   "the request draws more than %lld numbers, which is a fixed limit",
                   (long long)MAX_ELEMENTS);
        error->status = CODEC_TOO_LARGE;
        return false;
    }
    struct generated_draw *draws =
        account_grow(codec_document_account(document), g->draws, &g->draw_capacity,
                     g->draw_count + 1, sizeof *draws);
    if (draws == NULL) {
        return codec_no_memory(error);
    }
    const bool normal = draw->distribution == ATTN_NORMAL;
    g->draws = draws;
    g->draws[g->draw_count++] = *next;
    g->elements += draw->count;
    g->cost += COST_OF_DRAW + (double)draw->count * (normal ? COST_OF_NORMAL : COST_OF_UNIFORM);
    return true;
}

/* Makes the value a tensor that is drawn. The tensor of a mask holds bytes, but has room for the
 * numbers from which they are made. */
static bool make_drawn(struct generated *g, struct codec_document *document,
                       const struct codec_value *value, const struct draw *draw, bool mask,
                       struct codec_error *error) {
    const size_t width = attn_dtype_size(g->dtype), count = draw->draw.count;
    const size_t room = !mask ? count : count > SIZE_MAX / width ? SIZE_MAX : count * width;
    void *data = NULL;
    return codec_make_tensor(document, value, mask ? ATTN_BOOL : g->dtype, draw->rank, draw->shape,
                             room, &data, error) &&
           add_draw(g, document, value, &(struct generated_draw){draw->draw, data, mask}, error);
}

/* Adds the draws of a list "discard", whose numbers are thrown away. */
static bool discard(struct generated *g, struct codec_document *document,
                    const struct codec_value *list, struct codec_error *error) {
    struct draw draw;
    if (list == NULL) {
        return true;
    }
    if (codec_kind_of(list) != CODEC_ARRAY) {
        return codec_refuse(document, list,
                            "an array of draws such as {\"random\": \"randn\", \"shape\": [4, 3]}",
                            error);
    }
    for (const struct codec_value *item = codec_at(list, 0); item != NULL;
         item = codec_next(item)) {
        if (!draw_read(document, item, &g->generator, false, &draw, error) ||
            !add_draw(g, document, item, &(struct generated_draw){.draw = draw.draw}, error)) {
            return false;
        }
    }
    return true;
}

/* Returns whether 0 and 1 can be drawn, or 1 alone, and nothing else. */
static bool is_mask(const attn_draw *draw) {
    return draw->distribution == ATTN_RANDINT && draw->a >= 0 && draw->b == 2;
}

static bool draw_matrix(struct generated *g, struct codec_document *document,
                        const struct codec_value *value, bool mask, struct codec_error *error) {
    struct draw draw;
    if (!draw_read(document, value, &g->generator, true, &draw, error)) {
        return false;
    }
    if (mask && !is_mask(&draw.draw)) {
        return codec_fail(document, value, error,
                          "%s holds 0 and 1: draw it with randint, low 0 and high 2",
                          codec_name(value));
    }
    return discard(g, document, draw.discard, error) &&
           make_drawn(g, document, value, &draw, mask, error);
}

/* Draws the weights of torch.nn.Embedding(words, dim), which are normal numbers in float32. */
static bool draw_embedding(struct generated *g, struct codec_document *document,
                           const struct codec_value *value, struct codec_error *error) {
    struct draw draw = {.draw = {ATTN_NORMAL, ATTN_FLOAT32, 0, 1, 0}, .rank = 2};
    int64_t dim;
    if (!codec_as_integer(document, value, 1, MAX_ELEMENTS, &dim, error)) {
        return false;
    }
    if (g->words == NULL) {
        return codec_fail(document, value, error, "embedding_dim is given without text or tokens");
    }
    if (!draw_generator_check(document, value, &g->generator, error)) {
        return false;
    }
    if (g->generator.kind != ATTN_TORCH) {
        return codec_fail(
            document, value, error,
            "embedding_dim draws like torch.nn.Embedding and needs the generator torch; "
            "for numpy, give \"embedding\": {\"random\": \"randn\", \"shape\": [%zu, %lld]}",
            g->words->count, (long long)dim);
    }
    draw.shape[0] = g->words->count; /* at most CODEC_MAX_WORDS, so the product fits */
    draw.shape[1] = (size_t)dim;
    draw.draw.count = draw.shape[0] * draw.shape[1];
    return make_drawn(g, document, value, &draw, false, error);
}

/* Returns the product of all axes of a matrix but the last two; 1 if the value has no shape. */
static double matrix_batch(const struct codec_document *document,
                           const struct codec_value *matrix) {
    const struct codec_value *list = codec_get(matrix, "shape");
    size_t shape[ATTN_MAX_RANK], rank = codec_shape(matrix, shape), count;
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

/* Returns the number of packed sequences. */
static double sequences_of(const struct fields *fields) {
    const struct codec_value *lengths = fields_get(fields, "sequences");
    const struct codec_value *offsets = fields_get(fields, "sequence_offsets");
    size_t shape[ATTN_MAX_RANK], rank = 0;
    if (lengths != NULL || offsets != NULL) {
        rank = codec_shape(lengths != NULL ? lengths : offsets, shape);
    }
    return rank == 0 ? 0 : (double)shape[rank - 1];
}

double generated_parts(const struct fields *fields, const struct codec_document *document) {
    const struct codec_value *value = fields_get(fields, "heads");
    double batch = 1;
    int64_t heads = 1;
    struct codec_error unused;
    if (value != NULL && codec_kind_of(value) == CODEC_NUMBER &&
        !codec_as_integer(document, value, 1, MOST_PARTS, &heads, &unused)) {
        heads = 1;
    }
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->given[i].row->draw != FIELDS_NOT_DRAWN) {
            batch = fmax(batch, matrix_batch(document, fields->given[i].value));
        }
    }
    return fmin((double)heads * batch + SEQUENCE_PARTS * sequences_of(fields), MOST_PARTS);
}

/* Adds the draws of an object, which is the body or one of its heads, in the order of its members,
 * because the generator draws them in this order. */
static bool draw_members(struct generated *g, struct codec_document *document,
                         const struct codec_value *object, struct codec_error *error) {
    const bool root = object == codec_root(document);
    bool good = true;
    for (const struct codec_value *member = codec_at(object, 0); good && member != NULL;
         member = codec_next(member)) {
        const enum codec_kind kind = codec_kind_of(member);
        const enum fields_draw draw =
            kind == CODEC_OBJECT ? fields_draw_of(codec_name(member)) : FIELDS_NOT_DRAWN;
        if (draw != FIELDS_NOT_DRAWN) {
            good = draw_matrix(g, document, member, draw == FIELDS_MASK, error);
        } else if (root && kind == CODEC_ARRAY && strcmp(codec_name(member), "heads") == 0) {
            const struct codec_value *head = codec_at(member, 0);
            for (; good && head != NULL; head = codec_next(head)) {
                good =
                    codec_kind_of(head) != CODEC_OBJECT || draw_members(g, document, head, error);
            }
        } else if (root && kind != CODEC_NULL && strcmp(codec_name(member), "embedding_dim") == 0) {
            good = draw_embedding(g, document, member, error);
        }
    }
    return good;
}

/* -------------------------------------------------------------------------------------- words */

/* Reads the words of a request. Sets *value to the value that they come from, or to NULL. */
static bool read_words(struct generated *g, const struct fields *fields,
                       const struct codec_document *document, const struct codec_value **value,
                       struct codec_error *error) {
    static const char *const others[] = {"X", "Q", "K", "V"};
    const struct codec_value *text = fields_get(fields, "text");
    const struct codec_value *tokens = fields_get(fields, "tokens");
    *value = text != NULL ? text : tokens;
    if (*value == NULL) {
        return true;
    }
    if (text != NULL && tokens != NULL) {
        return codec_fail(document, tokens, error, "give text or tokens, not both");
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (fields_get(fields, others[i]) != NULL) {
            return codec_fail(document, *value, error,
                              "%s stands in place of X, but %s is given too", codec_name(*value),
                              others[i]);
        }
    }
    g->words = text != NULL ? codec_words_of_text(document, text, error)
                            : codec_words_of_tokens(document, tokens, error);
    return g->words != NULL;
}

/* Refuses an embedding without a row for word `i`. The message has at most 64 bytes of the word,
 * cut where a character ends. */
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

/* Makes a tensor of the words, which is to hold the rows of the embedding that they stand for. */
static bool embed(struct generated *g, struct codec_document *document,
                  const struct codec_value *value, const struct codec_value *embedding,
                  struct codec_error *error) {
    attn_tensor *rows = &g->rows;
    const struct codec_words *words = g->words;
    void *data;
    size_t bytes;
    if (!codec_as_reals(document, embedding, 2, 2, rows, error)) {
        return false;
    }
    if (codec_count(rows->rank, rows->shape) == 0) {
        return codec_fail(document, embedding, error, "%s is empty", codec_name(embedding));
    }
    for (size_t i = 0; i < words->count; i++) {
        if ((size_t)words->ids[i] >= rows->shape[0]) {
            return refuse_word(document, embedding, words, i, rows->shape[0], error);
        }
    }
    const size_t width = attn_dtype_size(rows->dtype);
    const size_t shape[] = {words->count, rows->shape[1]};
    if (__builtin_mul_overflow(shape[1] * width, shape[0], &bytes)) {
        bytes = SIZE_MAX / width * width;
    }
    if (!codec_make_tensor(document, value, rows->dtype, 2, shape, bytes / width, &data, error)) {
        return false;
    }
    g->x = value;
    g->embedded = data;
    g->cost += COST_OF_COPY * (double)bytes / (double)width;
    return true;
}

static bool embed_words(struct generated *g, struct fields *fields, struct codec_document *document,
                        const struct codec_value *words, struct codec_error *error) {
    const struct codec_value *embedding = fields_get(fields, "embedding");
    const struct codec_value *dim = fields_get(fields, "embedding_dim");
    if (embedding != NULL && dim != NULL) {
        return codec_fail(document, dim, error, "give embedding or embedding_dim, not both");
    }
    if (embedding != NULL && words == NULL) {
        return codec_fail(document, embedding, error, "embedding is given without text or tokens");
    }
    embedding = embedding != NULL ? embedding : dim;
    if (embedding != NULL) {
        if (!embed(g, document, words, embedding, error)) {
            return false;
        }
        fields_put(fields, "X", g->x);
    } else if (words != NULL && fields->at != FIELDS_AT_EMBEDDINGS) {
        return codec_fail(document, words, error, "%s needs embedding or embedding_dim beside it",
                          codec_name(words));
    }
    return true;
}

/* ---------------------------------------------------------------------------------- the phases */

/* Makes numbers into bytes in place. Byte i is written after number i has been read, and it lies
 * before number i + 1. */
static void make_mask(void *data, attn_dtype dtype, size_t first, size_t count) {
    unsigned char *bytes = data;
    for (size_t i = first; i < first + count; i++) {
        bytes[i] =
            dtype == ATTN_FLOAT32 ? ((const float *)data)[i] > 0 : ((const double *)data)[i] > 0;
    }
}

/* Draws the next chunk and returns its number of elements. */
static size_t draw_chunk(struct generated *g) {
    const struct generated_draw *draw = &g->draws[g->next];
    const size_t first = g->drawn, left = draw->draw.count - first;
    const size_t count = left < ATTN_DRAW_PIECE ? left : ATTN_DRAW_PIECE;
    attn_random_fill(g->generator.random, &draw->draw, first, count, g->dtype, draw->data);
    if (draw->mask) {
        make_mask(draw->data, g->dtype, first, count);
    }
    g->drawn = count < left ? first + count : 0;
    g->next += count == left;
    return count;
}

/* Draws the chunks of one phase: one whole chunk, or several small ones. */
static bool generated_draw(void *generated, const struct jobs_task *task) {
    struct generated *g = generated;
    (void)task;
    for (size_t drawn = 0; drawn < ATTN_DRAW_PIECE && g->next < g->draw_count;) {
        drawn += draw_chunk(g);
    }
    return true;
}

static size_t row_bytes(const struct generated *g) {
    return g->rows.shape[1] * attn_dtype_size(g->rows.dtype);
}

/* Returns the number of rows that one task copies. */
static size_t rows_at_once(const struct generated *g) {
    return 1 + ROWS_BYTES / row_bytes(g);
}

static size_t generated_copies(const void *generated, size_t phase) {
    const struct generated *g = generated;
    (void)phase;
    return (g->words->count - 1) / rows_at_once(g) + 1;
}

static bool generated_copy(void *generated, const struct jobs_task *task) {
    const struct generated *g = generated;
    const size_t size = row_bytes(g), rows = rows_at_once(g), count = g->words->count;
    const size_t end = (task->index + 1) * rows < count ? (task->index + 1) * rows : count;
    for (size_t i = task->index * rows; i < end; i++) {
        memcpy(g->embedded + i * size, (const char *)g->rows.data + (size_t)g->words->ids[i] * size,
               size);
    }
    return true;
}

void generated_begin(struct generated *g, struct job *job) {
    /* The number is a bound: every phase but the last draws at least ATTN_DRAW_PIECE numbers. */
    const size_t batches = (g->elements + ATTN_DRAW_PIECE - 1) / ATTN_DRAW_PIECE;
    job->cost += g->cost;
    if (g->embedded != NULL) {
        g->copying = (struct job_phases){job->phases, 1, generated_copies, generated_copy, g};
        job->phases = &g->copying;
    }
    if (batches > 0) {
        g->drawing = (struct job_phases){job->phases, batches, NULL, generated_draw, g};
        job->phases = &g->drawing;
    }
}

/* -------------------------------------------------------------------------------- the request */

bool generated_make(struct generated *g, struct fields *fields, struct codec_document *document,
                    struct codec_error *error) {
    const struct codec_value *random = fields_get(fields, "random"), *words;
    g->dtype = codec_document_dtype(document);
    return (random == NULL || draw_generator_read(document, random, &g->generator, error)) &&
           read_words(g, fields, document, &words, error) &&
           draw_members(g, document, codec_root(document), error) &&
           embed_words(g, fields, document, words, error);
}
