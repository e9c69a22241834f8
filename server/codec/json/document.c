/*
 * document.c - a document as a tree of cJSON nodes: its memory, how it is built, navigation, and
 * the pointers of values. This is the only file that includes cJSON.h. A codec_value is a cJSON
 * node under another name. A tensor is a node of the type cJSON_Raw, whose text is its struct.
 *
 * The reader adds the nodes, so cJSON parses and allocates nothing. The names of members are
 * compared here, because cJSON's own lookups ignore case.
 */
#include "codec/json/document.h"

#include <cjson/cJSON.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "codec/error.h"

/* Nodes, texts and tensors lie side by side in blocks, and live as long as the document. */
struct block {
    struct block *before;
    _Alignas(cJSON) char bytes[];
};

struct codec_document {
    cJSON *root;
    struct codec_tensor *first_tensor, *last_tensor;
    size_t tensors;
    attn_dtype dtype;
    struct account *account;
    struct block *last; /* owned, with all blocks before it */
    size_t room, used;  /* bytes of the last block */
    size_t text;        /* where the open text begins in it; `used` if no text is open */
};

/* -------------------------------------------------------------------------------------- memory */

enum {
    FIRST_BLOCK = 4096, /* bytes, enough for a small body */
    MOST_BLOCK = 64 * 1024,
};

/* Adds a block with room for `size` bytes. The open text stays in one piece. */
static bool add_block(struct codec_document *document, size_t size) {
    struct block *last = document->last;
    const size_t open = document->used - document->text, needed = 2 * (open + size);
    const bool alone = document->text == 0 && open > 0;
    const size_t usual = document->room < MOST_BLOCK / 2 ? 2 * document->room : MOST_BLOCK;
    size_t bytes = last != NULL ? usual : FIRST_BLOCK;
    bytes = bytes > needed ? bytes : needed;
    struct block *block =
        account_realloc(document->account, alone ? last : NULL, sizeof *block + bytes);
    if (block == NULL) {
        return false;
    }
    if (!alone) {
        block->before = last;
        if (last != NULL && open > 0) {
            memcpy(block->bytes, last->bytes + document->text, open);
        }
    }
    document->room = bytes;
    document->last = block;
    document->used = open;
    document->text = 0;
    return true;
}

/* Makes room for `size` bytes at the end of the last block. */
static bool make_room(struct codec_document *document, size_t size) {
    return document->used + size <= document->room || add_block(document, size);
}

/* Returns space for a node or a tensor, or NULL if out of memory. No text is open. */
static void *allocate(struct codec_document *document, size_t size) {
    document->used = (document->used + alignof(cJSON) - 1) / alignof(cJSON) * alignof(cJSON);
    document->text = document->used;
    if (!make_room(document, size)) {
        return NULL;
    }
    void *space = document->last->bytes + document->used;
    document->text = document->used += size;
    return space;
}

struct codec_document *document_create(struct account *account) {
    struct codec_document *document = account_alloc(account, sizeof *document);
    if (document != NULL) {
        *document = (struct codec_document){.account = account};
    }
    return document;
}

void codec_document_free(struct codec_document *document) {
    if (document == NULL) {
        return;
    }
    struct account *account = document->account;
    for (struct codec_tensor *t = document->first_tensor; t != NULL; t = t->next) {
        codec_tensor_free(t, account);
    }
    for (struct block *block = document->last, *before; block != NULL; block = before) {
        before = block->before;
        account_free(account, block);
    }
    account_free(account, document);
}

attn_dtype codec_document_dtype(const struct codec_document *document) {
    return document->dtype;
}

void codec_set_dtype(struct codec_document *document, attn_dtype dtype) {
    document->dtype = dtype;
}

struct account *codec_document_account(const struct codec_document *document) {
    return document->account;
}

static const cJSON *node_of(const struct codec_value *value) {
    return (const cJSON *)(const void *)value;
}

static const struct codec_value *value_of(const cJSON *node) {
    return (const struct codec_value *)(const void *)node;
}

static cJSON *to_change(const struct codec_value *value) {
    return (cJSON *)(uintptr_t)value; /* the caller may change the document */
}

/* ------------------------------------------------------------------------------------ building */

struct codec_value *codec_make_value(struct codec_document *document, struct codec_value *parent,
                                     const char *name, enum codec_kind kind) {
    static const int types[] = {
        [CODEC_NULL] = cJSON_NULL,   [CODEC_BOOL] = cJSON_False,  [CODEC_NUMBER] = cJSON_Number,
        [CODEC_TEXT] = cJSON_String, [CODEC_ARRAY] = cJSON_Array, [CODEC_OBJECT] = cJSON_Object,
    };
    cJSON *node = allocate(document, sizeof *node);
    if (node == NULL) {
        return NULL;
    }
    *node = (cJSON){.type = types[kind]};
    if (parent != NULL && name == NULL) {
        cJSON_AddItemToArray(to_change(parent), node);
    } else if (parent != NULL) {
        cJSON_AddItemToObjectCS(to_change(parent), name, node);
    }
    return (struct codec_value *)(void *)node;
}

static cJSON *set_type(cJSON *node, int type) {
    node->type = (node->type & ~0xFF) | type;
    node->child = NULL;
    return node;
}

void codec_set_bool(struct codec_value *value, bool on) {
    set_type(to_change(value), on ? cJSON_True : cJSON_False);
}

void codec_set_number(struct codec_value *value, double number) {
    set_type(to_change(value), cJSON_Number)->valuedouble = number;
}

void codec_set_text(struct codec_value *value, const char *text) {
    set_type(to_change(value), cJSON_String)->valuestring = (char *)(uintptr_t)text;
}

void codec_set_value(struct codec_value *value, const struct codec_value *other) {
    const cJSON *from = node_of(other);
    cJSON *to = set_type(to_change(value), from->type & 0xFF);
    to->valuedouble = from->valuedouble;
    to->valuestring = from->valuestring;
    to->child = from->child;
}

void codec_set_root(struct codec_document *document, struct codec_value *root) {
    document->root = to_change(root);
}

void document_begin_text(struct codec_document *document) {
    document->text = document->used;
}

bool document_extend_text(struct codec_document *document, const char *bytes, size_t size) {
    if (!make_room(document, size)) {
        return false;
    }
    memcpy(document->last->bytes + document->used, bytes, size);
    document->used += size;
    return true;
}

const char *document_end_text(struct codec_document *document, size_t *size) {
    if (!document_extend_text(document, "", 1)) {
        return NULL;
    }
    const char *text = document->last->bytes + document->text;
    *size = document->used - document->text - 1;
    document->text = document->used;
    return text;
}

/* ---------------------------------------------------------------------------------- navigation */

const struct codec_value *codec_root(const struct codec_document *document) {
    return value_of(document->root);
}

enum codec_kind codec_kind_of(const struct codec_value *value) {
    /* The type of a node is one bit, from False, True and NULL to Raw, which nothing in JSON is. */
    static const unsigned char kinds[] = {CODEC_BOOL, CODEC_BOOL,  CODEC_NULL,   CODEC_NUMBER,
                                          CODEC_TEXT, CODEC_ARRAY, CODEC_OBJECT, CODEC_TENSOR};
    const cJSON *node = node_of(value);
    return node != NULL ? kinds[__builtin_ctz((unsigned)node->type)] : CODEC_NULL;
}

const struct codec_value *codec_get(const struct codec_value *object, const char *name) {
    if (codec_kind_of(object) != CODEC_OBJECT) {
        return NULL;
    }
    const cJSON *member = node_of(object)->child;
    while (member != NULL && !document_is_name(member->string, name)) {
        member = member->next;
    }
    return value_of(member);
}

const struct codec_value *codec_given(const struct codec_value *object, const char *name) {
    const struct codec_value *value = object == NULL ? NULL : codec_get(object, name);
    return value == NULL || codec_kind_of(value) == CODEC_NULL ? NULL : value;
}

const char *codec_name(const struct codec_value *value) {
    return node_of(value)->string;
}

const struct codec_value *codec_at(const struct codec_value *parent, size_t index) {
    return value_of(cJSON_GetArrayItem(node_of(parent), (int)index));
}

const struct codec_value *codec_next(const struct codec_value *value) {
    return value == NULL ? NULL : value_of(node_of(value)->next);
}

size_t codec_size(const struct codec_value *value) {
    return (size_t)cJSON_GetArraySize(node_of(value));
}

/* ------------------------------------------------------------------------------------- content */

bool document_bool(const struct codec_value *value) {
    return cJSON_IsTrue(node_of(value));
}

double document_number(const struct codec_value *value) {
    return node_of(value)->valuedouble;
}

const char *document_text(const struct codec_value *value) {
    return node_of(value)->valuestring;
}

struct codec_tensor *document_tensor(const struct codec_value *value) {
    return (struct codec_tensor *)(void *)node_of(value)->valuestring;
}

struct codec_tensor *document_new_tensor(struct codec_document *document,
                                         const struct codec_value *value, attn_dtype dtype,
                                         int rank, void *first) {
    struct codec_tensor *tensor = allocate(document, sizeof *tensor);
    if (tensor == NULL) {
        return NULL;
    }
    codec_tensor_init(tensor, dtype, rank, first);
    tensor->value = value;
    *(document->last_tensor != NULL ? &document->last_tensor->next : &document->first_tensor) =
        tensor;
    document->last_tensor = tensor;
    document->tensors++;
    set_type(to_change(value), cJSON_Raw)->valuestring = (char *)tensor;
    return tensor;
}

bool document_keep(struct codec_document *document, struct codec_tensor *tensor) {
    const size_t bytes = tensor->count * attn_dtype_size(tensor->dtype);
    void *data = allocate(document, bytes);
    if (data != NULL) {
        tensor->data = memcpy(data, tensor->data, bytes);
    }
    return data != NULL;
}

struct codec_tensor *document_next_tensor(const struct codec_document *document,
                                          const struct codec_tensor *tensor) {
    return tensor == NULL ? document->first_tensor : tensor->next;
}

size_t document_tensor_count(const struct codec_document *document) {
    return document->tensors;
}

bool codec_make_tensor(struct codec_document *document, const struct codec_value *value,
                       attn_dtype dtype, int rank, const size_t *shape, size_t capacity,
                       void **data, struct codec_error *error) {
    const size_t count = codec_count(rank, shape);
    struct codec_tensor *tensor = document_new_tensor(document, value, dtype, rank, NULL);
    if (tensor == NULL || !codec_tensor_zeros(tensor, document->account, shape, count, capacity)) {
        document_point(document, value, error);
        error->status = CODEC_NO_MEMORY;
        return false;
    }
    *data = tensor->data;
    return true;
}

/* ------------------------------------------------------------------------------------ pointers */

/* Appends the pointer of `target` to that of the error. cJSON nodes do not know their parents, so
 * this searches the document from its root. It is not recursive. A text that is read as JSON may
 * stand in a body, so `path` is as long as two bodies are deep. False if `target` is not found or
 * its pointer is too long. */
static bool locate(const struct codec_document *document, const cJSON *target,
                   struct codec_error *error) {
    const cJSON *path[2 * CODEC_MAX_DEPTH];
    size_t index[2 * CODEC_MAX_DEPTH] = {0};
    size_t depth = 0;

    path[0] = document->root;
    while (path[depth] != target) {
        if (path[depth]->child != NULL) {
            path[depth + 1] = path[depth]->child;
            index[++depth] = 0;
            continue;
        }
        while (depth > 0 && path[depth]->next == NULL) {
            depth--;
        }
        if (depth == 0) {
            return false;
        }
        path[depth] = path[depth]->next;
        index[depth]++;
    }
    for (size_t i = 1; i <= depth; i++) {
        const char *name = path[i]->string;
        if (name != NULL ? !codec_pointer_name(error, name, strlen(name))
                         : !codec_pointer_index(error, index[i])) {
            return false;
        }
    }
    return true;
}

void document_point(const struct codec_document *document, const struct codec_value *value,
                    struct codec_error *error) {
    *error = (struct codec_error){.status = CODEC_CONTENT, .has_pointer = true};
    if (value != NULL) {
        locate(document, node_of(value), error);
    }
}
