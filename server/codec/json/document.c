/*
 * document.c - the skeleton as a cJSON tree, and the typed accessors over it. The only file that
 * includes cJSON.h. A codec_value is a cJSON node under another name; what a lifted array left
 * behind, an array with the tensor's index in it, is told apart here and nowhere else.
 *
 * cJSON is used for what it does well: parsing a small text that reader.c has already checked. Its
 * lookups ignore case unless told otherwise, and its global error position is never read.
 */
#include "codec/json/document.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/error.h"
#include "codec/json/number.h"
#include "codec/nearest.h"

/* Whole numbers up to here are exact in each float type, and so are their neighbours. */
#define EXACT_FLOAT32 16777216.0
#define EXACT_FLOAT64 9007199254740992.0

struct codec_document {
    cJSON *root;
    struct lifted_list tensors;
    attn_dtype dtype;
    struct account *account;
    size_t tree_bytes; /* counted for the tree */
};

/* The most that cJSON allocates for this skeleton: a node for each value and for the index of each
 * lifted array, and a string for each key and text, which is not longer than in the skeleton. */
static size_t tree_bytes(const struct document_source *source) {
    return (source->values + source->tensors.count) * account_block(sizeof(cJSON)) +
           source->strings * account_block(0) + source->size;
}

struct codec_document *codec_document_create(const struct document_source *source) {
    const size_t bytes = tree_bytes(source);
    struct codec_document *document = account_alloc(source->account, sizeof *document);
    if (document == NULL) {
        return NULL;
    }
    cJSON *root = NULL;
    if (account_take(source->account, bytes)) {
        root = cJSON_ParseWithLength(source->text, source->size);
        if (root == NULL) { /* the text is valid: only memory can be missing */
            account_give(source->account, bytes);
        }
    }
    if (root == NULL) {
        account_free(source->account, document, sizeof *document);
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
    cJSON_Delete(document->root);
    account_give(account, document->tree_bytes);
    lifted_list_free(&document->tensors, account);
    account_free(account, document, sizeof *document);
}

attn_dtype codec_document_dtype(const struct codec_document *document) {
    return document->dtype;
}

struct account *codec_document_account(const struct codec_document *document) {
    return document->account;
}

/* -------------------------------------------------------------------------------------- values */

static const cJSON *node_of(const struct codec_value *value) {
    return (const cJSON *)(const void *)value;
}

static const struct codec_value *value_of(const cJSON *node) {
    return (const struct codec_value *)(const void *)node;
}

static bool is_tensor(const cJSON *node) {
    return cJSON_IsArray(node) && node->child != NULL && node->child->next == NULL &&
           cJSON_IsNumber(node->child);
}

static struct lifted *tensor_of(const struct codec_document *document, const cJSON *node) {
    return lifted_at(&document->tensors, (size_t)node->child->valuedouble);
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
        return CODEC_TEXT;
    case cJSON_Object:
        return CODEC_OBJECT;
    case cJSON_Array:
        return is_tensor(node) ? CODEC_TENSOR : CODEC_ARRAY;
    default:
        return CODEC_NULL;
    }
}

static bool is_parent(const struct codec_value *value) {
    enum codec_kind kind = codec_kind_of(value);
    return kind == CODEC_ARRAY || kind == CODEC_OBJECT;
}

/* Each option of a call is looked for among all members, and the other way round: most differ in
 * the first letter. */
static bool is_name(const char *string, const char *name) {
    return string[0] == name[0] && strcmp(string, name) == 0;
}

const struct codec_value *codec_get(const struct codec_value *object, const char *name) {
    if (codec_kind_of(object) != CODEC_OBJECT) {
        return NULL;
    }
    const cJSON *member = node_of(object)->child;
    while (member != NULL && !is_name(member->string, name)) {
        member = member->next;
    }
    return value_of(member);
}

const char *codec_name(const struct codec_value *value) {
    return node_of(value)->string;
}

const struct codec_value *codec_at(const struct codec_value *array, size_t index) {
    if (!is_parent(array)) {
        return NULL;
    }
    const cJSON *child = node_of(array)->child;
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

/* -------------------------------------------------------------------------------------- errors */

/* Appends the pointer of `target`. cJSON nodes do not know their parents, so this searches the
 * document from its root, with a stack as deep as documents may be. */
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

static void set_place(const struct codec_document *document, const struct codec_value *value,
                      struct codec_error *error) {
    *error = (struct codec_error){.status = CODEC_CONTENT, .has_pointer = true};
    if (value != NULL) {
        locate(document, node_of(value), error);
    }
}

bool codec_fail(const struct codec_document *document, const struct codec_value *value,
                struct codec_error *error, const char *format, ...) {
    va_list args;
    set_place(document, value, error);
    va_start(args, format);
    codec_error_message(error, format, args);
    va_end(args);
    return false;
}

/* What refuse() takes for the value itself rather than one of its elements. */
#define WHOLE ((size_t)-1)

/* codec_fail() for an element of a tensor, or the WHOLE value, with its name in front of the
 * message. */
static bool __attribute__((format(printf, 5, 6)))
refuse(const struct codec_document *document, const struct codec_value *value, size_t element,
       struct codec_error *error, const char *format, ...) {
    set_place(document, value, error);
    if (element != WHOLE) {
        const struct lifted *tensor = tensor_of(document, node_of(value));
        size_t stride = tensor->count;
        for (int axis = 0; axis < tensor->rank; axis++) {
            stride /= tensor->shape[axis];
            if (!codec_pointer_index(error, element / stride % tensor->shape[axis])) {
                break;
            }
        }
    }
    char label[CODEC_QUOTE_SIZE], rule[sizeof error->message];
    va_list args;
    codec_pointer_label(error, label);
    va_start(args, format);
    vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    struct codec_error named;
    codec_error_set(&named, CODEC_CONTENT, "%s %s", label, rule);
    memcpy(error->message, named.message, sizeof error->message);
    return false;
}

static const char *describe(const struct codec_document *document,
                            const struct codec_value *value) {
    switch (codec_kind_of(value)) {
    case CODEC_BOOL:
        return "a boolean";
    case CODEC_NUMBER:
        return "a number";
    case CODEC_TEXT:
        return "a string";
    case CODEC_ARRAY:
        return node_of(value)->child == NULL ? "an empty array" : "an array";
    case CODEC_OBJECT:
        return "an object";
    case CODEC_TENSOR:
        return tensor_of(document, node_of(value))->dtype == ATTN_BOOL ? "an array of booleans"
                                                                       : "an array of numbers";
    default:
        return "null";
    }
}

bool codec_refuse(const struct codec_document *document, const struct codec_value *value,
                  const char *wanted, struct codec_error *error) {
    char quoted[CODEC_QUOTE_SIZE];
    if (codec_kind_of(value) != CODEC_TEXT) {
        return refuse(document, value, WHOLE, error, "must be %s, not %s", wanted,
                      describe(document, value));
    }
    const char *text = node_of(value)->valuestring;
    codec_quote(quoted, text, strlen(text));
    return refuse(document, value, WHOLE, error, "must be %s, not \"%s\"", wanted, quoted);
}

/* The shortest text of a number, for a message. */
static const char *number_text(double number, bool narrow, char text[NUMBER_SIZE + 1]) {
    size_t size =
        narrow ? number_write_float(text, (float)number) : number_write_double(text, number);
    text[size] = '\0';
    return text;
}

/* ---------------------------------------------------------------------------------------- keys */

/* The hint about a foreign name in this object, or NULL. */
static const char *hint_of(const char *name, const struct codec_keys *keys) {
    for (size_t i = 0; i < keys->foreign_count; i++) {
        const struct codec_foreign *foreign = &keys->foreign[i];
        if ((foreign->where & keys->here) != 0 && is_name(foreign->name, name)) {
            return foreign->hint;
        }
    }
    return NULL;
}

/* Says that an object has a member which is none of its keys, and what may have been meant. */
static bool refuse_key(const struct codec_document *document, const cJSON *member,
                       const struct codec_keys *keys, struct codec_error *error) {
    char quoted[CODEC_QUOTE_SIZE];
    size_t edits_here, edits_there;
    const char *here = codec_nearest(member->string, keys->names, keys->count, &edits_here);
    const char *there =
        codec_nearest(member->string, keys->elsewhere, keys->elsewhere_count, &edits_there);
    const char *hint = hint_of(member->string, keys);
    codec_quote(quoted, member->string, strlen(member->string));
    if (hint != NULL) {
        return codec_fail(document, value_of(member), error, "unknown key \"%s\"; %s", quoted,
                          hint);
    }
    if (edits_there < edits_here) {
        return codec_fail(document, value_of(member), error,
                          "unknown key \"%s\"; \"%s\" goes into \"%s\"", quoted, there,
                          keys->place);
    }
    if (here != NULL) {
        return codec_fail(document, value_of(member), error,
                          "unknown key \"%s\"; did you mean \"%s\"?", quoted, here);
    }
    return codec_fail(document, value_of(member), error, "unknown key \"%s\"", quoted);
}

bool codec_check_keys(const struct codec_document *document, const struct codec_value *object,
                      const struct codec_keys *keys, struct codec_error *error) {
    if (codec_kind_of(object) != CODEC_OBJECT) {
        return codec_refuse(document, object, "an object", error);
    }
    for (const cJSON *member = node_of(object)->child; member != NULL; member = member->next) {
        size_t i = 0;
        while (i < keys->count && !is_name(member->string, keys->names[i])) {
            i++;
        }
        if (i == keys->count) {
            return refuse_key(document, member, keys, error);
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------------- scalars */

bool codec_as_bool(const struct codec_document *document, const struct codec_value *value,
                   bool *out, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_BOOL) {
        return refuse(document, value, WHOLE, error, "must be true or false, not %s",
                      describe(document, value));
    }
    *out = cJSON_IsTrue(node_of(value));
    return true;
}

bool codec_as_number(const struct codec_document *document, const struct codec_value *value,
                     double *out, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_NUMBER) {
        return refuse(document, value, WHOLE, error, "must be a number, not %s",
                      describe(document, value));
    }
    double number = node_of(value)->valuedouble;
    if (!isfinite(number)) {
        return refuse(document, value, WHOLE, error, "must be a finite number within float64");
    }
    *out = number;
    return true;
}

/* Checks one number that wants to be whole and in [min, max]. `narrow`: it was read as float32. */
static bool check_integer(const struct codec_document *document, const struct codec_value *value,
                          size_t element, double number, bool narrow, int64_t min, int64_t max,
                          int64_t *out, struct codec_error *error) {
    char text[NUMBER_SIZE + 1];
    double exact = narrow ? EXACT_FLOAT32 : EXACT_FLOAT64;
    if (!isfinite(number)) {
        return refuse(document, value, element, error, "must be a whole number");
    }
    if (floor(number) != number) {
        return refuse(document, value, element, error, "must be a whole number, not %s",
                      number_text(number, narrow, text));
    }
    if (fabs(number) > exact) {
        return refuse(document, value, element, error,
                      "is %s: whole numbers beyond %.0f are not exact in %s",
                      number_text(number, narrow, text), exact, narrow ? "float32" : "float64");
    }
    int64_t integer = (int64_t)number;
    if (integer < min && max == INT64_MAX) {
        return refuse(document, value, element, error, "must be at least %lld, not %lld",
                      (long long)min, (long long)integer);
    }
    if (integer < min || integer > max) {
        return refuse(document, value, element, error, "must be %lld to %lld, not %lld",
                      (long long)min, (long long)max, (long long)integer);
    }
    *out = integer;
    return true;
}

bool codec_as_integer(const struct codec_document *document, const struct codec_value *value,
                      int64_t min, int64_t max, int64_t *out, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_NUMBER) {
        return refuse(document, value, WHOLE, error, "must be a whole number, not %s",
                      describe(document, value));
    }
    return check_integer(document, value, WHOLE, node_of(value)->valuedouble, false, min, max, out,
                         error);
}

bool codec_as_text(const struct codec_document *document, const struct codec_value *value,
                   const char **out, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_TEXT) {
        return refuse(document, value, WHOLE, error, "must be a string, not %s",
                      describe(document, value));
    }
    *out = node_of(value)->valuestring;
    return true;
}

/* "\"a\", \"b\" or \"c\"" */
static void list_names(char *out, size_t size, const char *const *names, size_t count) {
    size_t used = 0;
    for (size_t i = 0; i < count && used < size; i++) {
        const char *before = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        used += (size_t)snprintf(out + used, size - used, "%s\"%s\"", before, names[i]);
    }
}

/* The longest of the names that is a part of `text` and has three letters or more, or NULL. */
static const char *name_within(const char *text, const char *const *names, size_t count) {
    const char *found = NULL;
    for (size_t i = 0, longest = 2; i < count; i++) {
        const size_t size = strlen(names[i]);
        if (size > longest && strstr(text, names[i]) != NULL) {
            found = names[i];
            longest = size;
        }
    }
    return found;
}

bool codec_as_choice(const struct codec_document *document, const struct codec_value *value,
                     const char *const *names, size_t count, size_t *out,
                     struct codec_error *error) {
    /* No name is empty, and none is near to nothing. */
    const char *text = codec_kind_of(value) == CODEC_TEXT ? node_of(value)->valuestring : "";
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return true;
        }
    }
    char list[240];
    size_t edits;
    list_names(list, sizeof list, names, count);
    codec_refuse(document, value, list, error);
    const char *nearest = codec_nearest(text, names, count, &edits);
    nearest = nearest != NULL ? nearest : name_within(text, names, count);
    if (nearest != NULL && count > 2) { /* a shorter list needs no hint */
        const size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, "; did you mean \"%s\"?",
                 nearest);
    }
    return false;
}

/* ------------------------------------------------------------------------------------ matrices */

size_t codec_shape(const struct codec_document *document, const struct codec_value *value,
                   size_t shape[static ATTN_MAX_RANK]) {
    if (codec_kind_of(value) != CODEC_TENSOR) {
        return 0;
    }
    const struct lifted *tensor = tensor_of(document, node_of(value));
    memcpy(shape, tensor->shape, sizeof tensor->shape);
    return (size_t)tensor->rank;
}

/* Finds the tensor of a value, or says what it is instead: for an array that was not lifted, by
 * its first element that is at fault. */
static struct lifted *get_tensor(const struct codec_document *document,
                                 const struct codec_value *value, const char *wanted, int min_rank,
                                 int max_rank, struct codec_error *error) {
    const struct codec_value *at = value;
    while (codec_kind_of(at) == CODEC_ARRAY && codec_size(at) > 0) {
        at = codec_at(at, 0);
    }
    if (codec_kind_of(at) == CODEC_ARRAY) {
        refuse(document, at, WHOLE, error, "is empty");
        return NULL;
    }
    if (codec_kind_of(value) == CODEC_ARRAY) {
        refuse(document, value, WHOLE, error, "must be %s, not an array with %s in it", wanted,
               describe(document, at));
        return NULL;
    }
    if (codec_kind_of(value) != CODEC_TENSOR) {
        refuse(document, value, WHOLE, error, "must be %s, not %s", wanted,
               describe(document, value));
        return NULL;
    }
    struct lifted *tensor = tensor_of(document, node_of(value));
    if (tensor->rank >= min_rank && tensor->rank <= max_rank) {
        return tensor;
    }
    if (min_rank == max_rank) {
        refuse(document, value, WHOLE, error, "must have rank %d, not %d", min_rank, tensor->rank);
    } else {
        refuse(document, value, WHOLE, error, "must have rank %d to %d, not %d", min_rank, max_rank,
               tensor->rank);
    }
    return NULL;
}

static void put_tensor(const struct lifted *tensor, attn_tensor *out) {
    *out = (attn_tensor){.data = tensor->data, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(out->shape, tensor->shape, sizeof out->shape);
}

static bool as_numbers(const struct codec_document *document, const struct codec_value *value,
                       int min_rank, int max_rank, bool take_null, attn_tensor *out,
                       struct codec_error *error) {
    struct lifted *tensor =
        get_tensor(document, value, "a matrix of numbers", min_rank, max_rank, error);
    if (tensor == NULL) {
        return false;
    }
    if (tensor->dtype == ATTN_BOOL) {
        return refuse(document, value, WHOLE, error,
                      "must be a matrix of numbers, not of booleans");
    }
    if (tensor->exact) {
        lifted_narrow(tensor);
        lifted_trim(tensor, document->account);
    }
    if (tensor->first_null < tensor->first_range && !take_null) {
        return refuse(document, value, tensor->first_null, error,
                      "must be a finite number, not null");
    }
    if (tensor->first_range != LIFT_NONE) {
        return refuse(document, value, tensor->first_range, error,
                      "is %s, which is out of the range of %s", tensor->range_text,
                      tensor->dtype == ATTN_FLOAT64 ? "float64" : "float32");
    }
    put_tensor(tensor, out);
    return true;
}

bool codec_as_reals(const struct codec_document *document, const struct codec_value *value,
                    int min_rank, int max_rank, attn_tensor *out, struct codec_error *error) {
    return as_numbers(document, value, min_rank, max_rank, false, out, error);
}

bool codec_as_reals_or_null(const struct codec_document *document, const struct codec_value *value,
                            int min_rank, int max_rank, attn_tensor *out,
                            struct codec_error *error) {
    return as_numbers(document, value, min_rank, max_rank, true, out, error);
}

bool codec_make_tensor(struct codec_document *document, const struct codec_value *value,
                       attn_dtype dtype, int rank, const size_t *shape, size_t capacity,
                       void **data, struct codec_error *error) {
    cJSON *node = (cJSON *)(uintptr_t)value; /* the document is ours to change */
    cJSON *index = cJSON_CreateNumber((double)document->tensors.count);
    struct lifted *tensor = lifted_next(&document->tensors, document->account);
    size_t count = 1;
    for (int axis = 0; axis < rank; axis++) {
        count *= shape[axis];
    }
    if (index == NULL || tensor == NULL ||
        !lifted_zeros(tensor, document->account, dtype, rank, shape, count, capacity)) {
        cJSON_Delete(index);
        set_place(document, value, error);
        error->status = CODEC_NO_MEMORY;
        return false;
    }
    *data = tensor->data;
    document->tensors.count++;
    cJSON_Delete(node->child);
    cJSON_free(node->valuestring);
    node->valuestring = NULL;
    node->child = index;
    node->type = cJSON_Array;
    return true;
}

static double element_of(const struct lifted *tensor, size_t i) {
    return tensor->dtype == ATTN_FLOAT64 ? ((const double *)tensor->data)[i]
                                         : (double)((const float *)tensor->data)[i];
}

/* Says why an element is no good, in the client's words where the value was not kept. */
static bool refuse_element(const struct codec_document *document, const struct codec_value *value,
                           const struct lifted *tensor, size_t i, const char *rule,
                           struct codec_error *error) {
    char text[NUMBER_SIZE + 1];
    double number = element_of(tensor, i);
    if (i == tensor->first_range) {
        return refuse(document, value, i, error, "must be %s, not %s", rule, tensor->range_text);
    }
    if (!isfinite(number)) {
        return refuse(document, value, i, error, "must be %s, not %s", rule,
                      i == tensor->first_null ? "null" : "infinite");
    }
    return refuse(document, value, i, error, "must be %s, not %s", rule,
                  number_text(number, tensor->dtype == ATTN_FLOAT32, text));
}

bool codec_as_mask(struct codec_document *document, const struct codec_value *value, int min_rank,
                   int max_rank, attn_tensor *out, struct codec_error *error) {
    struct lifted *tensor =
        get_tensor(document, value, "a matrix of booleans", min_rank, max_rank, error);
    if (tensor == NULL) {
        return false;
    }
    if (tensor->dtype != ATTN_BOOL) {
        for (size_t i = 0; i < tensor->count; i++) {
            double number = element_of(tensor, i);
            if (number != 0 && number != 1) {
                return refuse_element(document, value, tensor, i, "true, false, 1 or 0", error);
            }
        }
        /* In place: byte i is written when number i has been read, and lies before number i + 1. */
        unsigned char *bytes = tensor->data;
        for (size_t i = 0; i < tensor->count; i++) {
            unsigned char byte = element_of(tensor, i) != 0;
            memcpy(bytes + i, &byte, 1);
        }
        tensor->dtype = ATTN_BOOL;
        tensor->exact = false;
        lifted_trim(tensor, document->account);
    }
    put_tensor(tensor, out);
    return true;
}

/* Of a list of whole numbers, or of one that is by itself. */
static bool list_size(const struct codec_document *document, const struct codec_value *value,
                      size_t *size, struct codec_error *error) {
    *size = 1;
    if (codec_kind_of(value) == CODEC_NUMBER) {
        return true;
    }
    const struct lifted *tensor =
        get_tensor(document, value, "an array of whole numbers", 1, 1, error);
    if (tensor == NULL) {
        return false;
    }
    if (tensor->dtype == ATTN_BOOL) {
        return refuse(document, value, WHOLE, error,
                      "must be an array of whole numbers, not of booleans");
    }
    *size = tensor->count;
    return true;
}

/* The first of such a list, as many as `size`. */
static bool read_list(const struct codec_document *document, const struct codec_value *value,
                      size_t size, int64_t min, int64_t max, int64_t *out,
                      struct codec_error *error) {
    if (codec_kind_of(value) == CODEC_NUMBER) {
        return codec_as_integer(document, value, min, max, out, error);
    }
    const struct lifted *tensor = tensor_of(document, node_of(value));
    for (size_t i = 0; i < size; i++) {
        if (!isfinite(element_of(tensor, i))) {
            return refuse_element(document, value, tensor, i, "a whole number", error);
        }
        if (!check_integer(document, value, i, element_of(tensor, i), tensor->dtype == ATTN_FLOAT32,
                           min, max, &out[i], error)) {
            return false;
        }
    }
    return true;
}

bool codec_as_integers(const struct codec_document *document, const struct codec_value *value,
                       int64_t min, int64_t max, int64_t *out, size_t most, size_t *count,
                       struct codec_error *error) {
    return list_size(document, value, count, error) &&
           read_list(document, value, *count < most ? *count : most, min, max, out, error);
}
