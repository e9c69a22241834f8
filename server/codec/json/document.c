/*
 * document.c - the skeleton as a cJSON tree: its life, navigation, the pointers of values, and
 * tensors that are put into it. This is the only file that includes cJSON.h. A codec_value is a
 * cJSON node under another name. In place of a lifted array the tree has a string with its index;
 * only this file knows that.
 *
 * cJSON parses a small text that reader.c has already checked. While it parses, it takes its memory
 * from the block of the document. The names of members are compared here, because cJSON's own
 * lookups ignore case. Its global error position is never read.
 */
#include "codec/json/document.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/error.h"
#include "codec/json/number.h"

struct codec_document {
    cJSON *root;
    struct lifted_list tensors;
    attn_dtype dtype;
    struct account *account;
    size_t tree_bytes;                 /* bytes of `tree` */
    _Alignas(max_align_t) char tree[]; /* the nodes and strings of cJSON */
};

/* ------------------------------------------------------------------------------ cJSON's memory */

enum {
    FIRST_DIGIT = 0xF5, /* this byte stands for 0, and 0xFE for 9 */
    UNIT = 8            /* cJSON's nodes and strings begin at multiples of so many bytes */
};

/* The free part of a tree and its last block, while this thread parses. Otherwise they are NULL.
 * cJSON, which tests use too, then has the memory of malloc. */
static _Thread_local char *tree_next, *tree_end, *tree_last;

static void *tree_malloc(size_t size) {
    if (tree_next == NULL) {
        return malloc(size);
    }
    const size_t whole = (size + UNIT - 1) / UNIT * UNIT;
    if (whole > (size_t)(tree_end - tree_next)) {
        return NULL;
    }
    tree_last = tree_next;
    tree_next += whole;
    return tree_last;
}

/* A tree is freed as a whole. Only the copy of a number, which cJSON (1.7.15 of Debian) makes and
 * frees at once, makes room for the next block. */
static void tree_free(void *block) {
    if (tree_next == NULL) {
        free(block);
    } else if (block != NULL && block == tree_last) {
        tree_next = tree_last;
    }
}

static void set_hooks(void) {
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = tree_malloc, .free_fn = tree_free});
}

/* An upper bound of what cJSON allocates for this skeleton: a node for each value, a string
 * for each key, text and index, and a copy of one number. With its NUL, a string is not longer than
 * in the skeleton, where it has quotes. */
static size_t tree_bytes(const struct document_source *source) {
    return source->values * sizeof(cJSON) + (source->strings + source->tensors.count) * UNIT +
           source->size + NUMBER_SIZE + UNIT;
}

static_assert(sizeof(cJSON) % UNIT == 0 && alignof(cJSON) <= UNIT, "nodes lie side by side");

struct codec_document *document_create(const struct document_source *source) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const size_t bytes = tree_bytes(source);
    struct codec_document *document = account_alloc(source->account, sizeof *document + bytes);
    if (document == NULL) {
        return NULL;
    }
    pthread_once(&once, set_hooks);
    tree_next = document->tree;
    tree_end = document->tree + bytes;
    cJSON *root = cJSON_ParseWithLength(source->text, source->size);
    tree_next = tree_last = NULL;
    if (root == NULL) { /* this cannot happen: the text is valid JSON, and there is room for it */
        account_free(source->account, document, sizeof *document + bytes);
        return NULL;
    }
    *document = (struct codec_document){
        .root = root,
        .tensors = source->tensors,
        .dtype = source->dtype,
        .account = source->account,
        .tree_bytes = bytes,
    };
    return document;
}

void codec_document_free(struct codec_document *document) {
    if (document == NULL) {
        return;
    }
    struct account *account = document->account;
    lifted_list_free(&document->tensors, account);
    account_free(account, document, sizeof *document + document->tree_bytes);
}

attn_dtype codec_document_dtype(const struct codec_document *document) {
    return document->dtype;
}

struct account *codec_document_account(const struct codec_document *document) {
    return document->account;
}

/* ---------------------------------------------------------------------------------- navigation */

static const cJSON *node_of(const struct codec_value *value) {
    return (const cJSON *)(const void *)value;
}

static const struct codec_value *value_of(const cJSON *node) {
    return (const struct codec_value *)(const void *)node;
}

size_t document_write_index(char out[DOCUMENT_INDEX_SIZE], size_t index) {
    char digits[DOCUMENT_INDEX_SIZE];
    size_t count = 0, size = 0;
    do {
        digits[count++] = (char)(FIRST_DIGIT + index % 10);
        index /= 10;
    } while (index > 0);
    out[size++] = '"';
    while (count > 0) {
        out[size++] = digits[--count];
    }
    out[size++] = '"';
    return size;
}

static bool is_index(const char *text) {
    return (unsigned char)text[0] >= FIRST_DIGIT;
}

static size_t read_index(const char *text) {
    size_t index = 0;
    for (; *text != '\0'; text++) {
        index = 10 * index + (size_t)((unsigned char)*text - FIRST_DIGIT);
    }
    return index;
}

const struct codec_value *codec_root(const struct codec_document *document) {
    return value_of(document->root);
}

enum codec_kind codec_kind_of(const struct codec_value *value) {
    const cJSON *node = node_of(value);
    switch (node != NULL ? node->type & 0xFF : cJSON_NULL) {
    case cJSON_False:
    case cJSON_True:
        return CODEC_BOOL;
    case cJSON_Number:
        return CODEC_NUMBER;
    case cJSON_String:
        return is_index(node->valuestring) ? CODEC_TENSOR : CODEC_TEXT;
    case cJSON_Raw: /* no text has it: a tensor that was made later, with its index as its number */
        return CODEC_TENSOR;
    case cJSON_Object:
        return CODEC_OBJECT;
    case cJSON_Array:
        return CODEC_ARRAY;
    default:
        return CODEC_NULL;
    }
}

static bool is_parent(const struct codec_value *value) {
    enum codec_kind kind = codec_kind_of(value);
    return kind == CODEC_ARRAY || kind == CODEC_OBJECT;
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

const char *codec_name(const struct codec_value *value) {
    return node_of(value)->string;
}

const struct codec_value *codec_at(const struct codec_value *parent, size_t index) {
    if (!is_parent(parent)) {
        return NULL;
    }
    const cJSON *child = node_of(parent)->child;
    for (; child != NULL && index > 0; index--) {
        child = child->next;
    }
    return value_of(child);
}

const struct codec_value *codec_next(const struct codec_value *value) {
    return value == NULL ? NULL : value_of(node_of(value)->next);
}

size_t codec_size(const struct codec_value *value) {
    size_t size = 0;
    if (!is_parent(value)) {
        return 0;
    }
    for (const cJSON *child = node_of(value)->child; child != NULL; child = child->next) {
        size++;
    }
    return size;
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

struct lifted *document_tensor(const struct codec_document *document,
                               const struct codec_value *value) {
    const cJSON *node = node_of(value);
    return lifted_at(&document->tensors, node->type == cJSON_Raw ? (size_t)node->valuedouble
                                                                 : read_index(node->valuestring));
}

struct lifted *document_tensor_at(struct codec_document *document, size_t number) {
    return lifted_at(&document->tensors, number);
}

size_t document_put_tensor(struct codec_document *document, const struct codec_value *value,
                           const struct lifted *tensor, struct codec_error *error) {
    cJSON *node = (cJSON *)(uintptr_t)value; /* the caller may change the document */
    struct lifted *own = lifted_next(&document->tensors, document->account);
    if (own == NULL) {
        document_point(document, value, error);
        error->status = CODEC_NO_MEMORY;
        return DOCUMENT_NO_TENSOR;
    }
    *own = *tensor;
    node->type = cJSON_Raw;
    node->valuedouble = (double)document->tensors.count;
    node->valuestring = NULL;
    node->child = NULL;
    return document->tensors.count++;
}

bool codec_make_tensor(struct codec_document *document, const struct codec_value *value,
                       attn_dtype dtype, int rank, const size_t *shape, size_t capacity,
                       void **data, struct codec_error *error) {
    struct lifted tensor;
    size_t count = 1;
    for (int axis = 0; axis < rank; axis++) {
        count *= shape[axis];
    }
    if (!lifted_zeros(&tensor, document->account, dtype, rank, shape, count, capacity)) {
        document_point(document, value, error);
        error->status = CODEC_NO_MEMORY;
        return false;
    }
    *data = tensor.data;
    if (document_put_tensor(document, value, &tensor, error) == DOCUMENT_NO_TENSOR) {
        lifted_free(&tensor, document->account);
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------ pointers */

/* Appends the pointer of `target` to that of the error. cJSON nodes do not know their parents, so
 * this searches the document from its root. It is not recursive: `path` is as long as documents are
 * deep. False if `target` is not found or its pointer is too long. */
static bool locate(const struct codec_document *document, const cJSON *target,
                   struct codec_error *error) {
    const cJSON *path[CODEC_MAX_DEPTH + 2];
    size_t index[CODEC_MAX_DEPTH + 2] = {0};
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
