/*
 * binary.h - tensors as bytes: their types, tensors whose bytes arrive with a body, and results as
 * the bytes of an answer. The bytes are little-endian, packed and in row-major order, as in the
 * binary tensor extension of the Open Inference Protocol and in safetensors. This file knows
 * the names of their types, and nothing else of them.
 */
#ifndef CODEC_BINARY_H
#define CODEC_BINARY_H

#include "codec/codec.h"

/* X(NAME, name in the Open Inference Protocol, name in safetensors, bits of an element). That
 * protocol has no type of at most 8 bits with a fraction, so these have names like its own.
 * FP4_E2M1 and FP8_E8M0 are of the OCP Microscaling Formats 1.0: a byte has two numbers of the
 * first, with the earlier one in its lower bits, and the second has powers of two alone. The other
 * two are of Micikevicius et al. 2022 (arXiv 2209.05433): PyTorch's float8_e4m3fn and
 * float8_e5m2. */
#define CODEC_TYPES(X)                                                                             \
    X(BOOL, "BOOL", "BOOL", 8)                                                                     \
    X(UINT8, "UINT8", "U8", 8)                                                                     \
    X(UINT16, "UINT16", "U16", 16)                                                                 \
    X(UINT32, "UINT32", "U32", 32)                                                                 \
    X(UINT64, "UINT64", "U64", 64)                                                                 \
    X(INT8, "INT8", "I8", 8)                                                                       \
    X(INT16, "INT16", "I16", 16)                                                                   \
    X(INT32, "INT32", "I32", 32)                                                                   \
    X(INT64, "INT64", "I64", 64)                                                                   \
    X(FP4_E2M1, "FP4_E2M1", "F4", 4)                                                               \
    X(FP8_E8M0, "FP8_E8M0", "F8_E8M0", 8)                                                          \
    X(FP8_E4M3, "FP8_E4M3", "F8_E4M3", 8)                                                          \
    X(FP8_E5M2, "FP8_E5M2", "F8_E5M2", 8)                                                          \
    X(FP16, "FP16", "F16", 16)                                                                     \
    X(BF16, "BF16", "BF16", 16)                                                                    \
    X(FP32, "FP32", "F32", 32)                                                                     \
    X(FP64, "FP64", "F64", 64)

enum codec_type {
#define CODEC_TYPE_ENUM(name, inference, safetensors, bits) CODEC_TYPE_##name,
    CODEC_TYPES(CODEC_TYPE_ENUM)
#undef CODEC_TYPE_ENUM
    CODEC_TYPE_COUNT
};

/* The names of the types, by their numbers. */
extern const char *const codec_inference_types[CODEC_TYPE_COUNT];
extern const char *const codec_safetensors_types[CODEC_TYPE_COUNT];

/* Returns the bytes of one element, or 1 if a byte has several. */
size_t codec_type_size(enum codec_type type);

/* Returns the bytes of so many elements, which fill whole bytes. */
size_t codec_type_bytes(enum codec_type type, size_t count);

/* Returns how many elements codec_type_size() bytes have: 2 of FP4_E2M1, and 1 of all others. */
size_t codec_type_together(enum codec_type type);

/* Returns whether the type has fractions: it is one of the last eight. */
static inline bool codec_type_is_float(enum codec_type type) {
    return type >= CODEC_TYPE_FP4_E2M1;
}

/* Returns whether no client writes numbers of this type as JSON. */
static inline bool codec_type_is_bytes(enum codec_type type) {
    return codec_type_is_float(type) && type <= CODEC_TYPE_BF16 && type != CODEC_TYPE_FP16;
}

/* The spec of a tensor: what a header says of it. */
struct codec_tensor_spec {
    enum codec_type type;
    int rank; /* 1 to ATTN_MAX_RANK */
    size_t shape[ATTN_MAX_RANK];
    size_t bytes;
    bool texts; /* the elements are texts, which have no type; `bytes` is set by the caller */
    /* The numbers do not get the float type of the document, see codec_spec_dtype(). */
    bool own_type, exact;
};

/* Reads the type and the shape of the tensor `name`. `names` has the names of the types. Every axis
 * is at least 1, and the bytes of the tensor fit in a size_t. Errors: CODEC_CONTENT; the message
 * names the tensor. */
bool codec_as_spec(const struct codec_document *document, const struct codec_value *type,
                   const struct codec_value *shape, const char *name,
                   const char *const names[static CODEC_TYPE_COUNT], struct codec_tensor_spec *spec,
                   struct codec_error *error);

/* Reads the shape of a tensor of texts. There are at most CODEC_MAX_WORDS texts. Errors: as
 * codec_as_spec(). */
bool codec_as_texts_spec(const struct codec_document *document, const struct codec_value *shape,
                         const char *name, struct codec_tensor_spec *spec,
                         struct codec_error *error);

/* Returns the dtype that the numbers of a tensor of this spec have in a document: float64 if they
 * are `exact`. With an `own_type` the dtype is the narrowest that holds the numbers of the type:
 * FP64 and integers of 32 and 64 bits are float64, all others float32. Every other tensor has the
 * document's dtype. */
attn_dtype codec_spec_dtype(const struct codec_tensor_spec *spec, attn_dtype document);

/* Private to the codec: refuses the tensor `name`, after which the message states a rule. Returns
 * false. */
__attribute__((cold, format(printf, 5, 6))) bool
binary_refuse(const struct codec_document *document, const struct codec_value *value,
              const char *name, struct codec_error *error, const char *format, ...);

/* Widens `count` elements of a float type, which need not be aligned, to numbers of a float dtype.
 * Returns whether all numbers are finite. */
bool codec_widen(enum codec_type type, const void *bytes, size_t count, attn_dtype dtype,
                 void *out);

/* ------------------------------------------------------------------------- tensors of a request */

enum {
    CODEC_MAX_TENSORS = 64 /* most tensors of one body */
};

/* The tensors of a body whose bytes follow one another. Zero-initialise. Borrows the document,
 * which owns the tensors. */
struct codec_stream {
    struct codec_document *document;
    size_t count; /* tensors that are expected */
    size_t next;  /* the tensor that the next byte belongs to */
    struct codec_stream_tensor {
        const struct codec_value *value; /* the place of the tensor in the document */
        struct codec_tensor *tensor;     /* borrowed from the document */
        enum codec_type type;
        size_t elements;
    } list[CODEC_MAX_TENSORS];
    /* The element that the end of the last chunk has cut. */
    unsigned char cut[8];
    size_t cut_size;
};

/* Replaces a value of the document by a tensor, and expects its bytes after those of the tensors
 * before it. There are fewer than CODEC_MAX_TENSORS tensors so far. The tensor has the dtype of
 * codec_spec_dtype(), or ATTN_BOOL if its type is BOOL. Memory is taken while the bytes arrive.
 * Errors: CODEC_NO_MEMORY. */
bool codec_stream_add(struct codec_stream *stream, const struct codec_value *value,
                      const struct codec_tensor_spec *spec, struct codec_error *error);

/* Takes the next bytes, which may be cut anywhere. NaN and infinity are noted, and refused by the
 * accessors as in JSON. Errors: CODEC_SYNTAX for a byte after the last tensor, CODEC_CONTENT for a
 * BOOL that is neither 0 nor 1, CODEC_NO_MEMORY. */
bool codec_stream_feed(struct codec_stream *stream, const void *bytes, size_t size,
                       struct codec_error *error);

/* Checks that all bytes have arrived. Errors: CODEC_SYNTAX; the message names the tensor. */
bool codec_stream_finish(const struct codec_stream *stream, struct codec_error *error);

/* Makes a tensor of texts of the value `at`, with the texts of an array. The array is flat or
 * nested as the spec says. codec_words_of_text() and codec_words_of_tokens() read them, as they
 * read those of codec_stream_add(). Errors: CODEC_NO_MEMORY; CODEC_CONTENT for another number of
 * texts, and for what is no text. */
bool codec_move_texts(struct codec_document *, struct codec_value *at,
                      const struct codec_value *value, const struct codec_tensor_spec *spec,
                      struct codec_error *error);

/* Reads a tensor of any float dtype whose numbers may be anything: null stands for minus infinity,
 * and a datatype may also have NaN and infinities. *type is the datatype, or that of the dtype in a
 * body of JSON. In JSON a number out of the range of its dtype is refused. The data are borrowed
 * from the document. */
bool codec_as_any_reals(const struct codec_document *, const struct codec_value *, attn_tensor *out,
                        enum codec_type *type, struct codec_error *);

/* Moves an array of numbers or booleans to the value `at`. The array is flat, or it has the shape
 * of `spec`; it gets this shape, and the dtype of codec_spec_dtype(). Errors: CODEC_NO_MEMORY;
 * CODEC_CONTENT if the array does not have as many elements as the shape, or has an element that
 * the type does not have. The message names the tensor by codec_name(at). */
bool codec_move_tensor(struct codec_document *, struct codec_value *at,
                       const struct codec_value *value, const struct codec_tensor_spec *spec,
                       struct codec_error *error);

/* ------------------------------------------------------------------------ tensors of an answer */

/* A result as a named tensor. */
struct codec_result {
    char name[48];
    attn_tensor tensor; /* borrows its numbers; `data` is NULL if the result is one number */
    enum codec_type type;
    size_t bytes;      /* bytes of the tensor in this type */
    double number;     /* the one number */
    bool binary;       /* the results of codec_results_make() are; the caller may clear it */
    size_t offsets[2]; /* codec_safetensors_write() sets them: where its bytes begin and end */
};

/* The results of an answer. Zero-initialise. */
struct codec_results {
    struct codec_result *list; /* owned */
    size_t count, capacity;
    struct account *account; /* borrowed; counts the list */
};

/* Makes a list of all tensors and numbers of an answer, and leaves its texts out. A result inside
 * of an object has the name of the object and a dot before its own ("top_k.indices"). A part of a
 * list has its number after a dot ("Q.0"). A float32 tensor gets the type `narrow` if that is FP16
 * or BF16. Borrows the data of the items. Returns false if there is no memory; the caller frees the
 * list in any case. */
bool codec_results_make(struct codec_results *results, const struct codec_item *items, size_t count,
                        enum codec_type narrow, struct account *account);
void codec_results_free(struct codec_results *results);

/* Returns the bytes of a result if they are sent as they are, and NULL if they must be converted by
 * codec_result_read(). Borrowed from the result. */
const void *codec_result_bytes(const struct codec_result *result);

/* Returns how many numbers of a result are rounded to a narrower type, which may not hold them. */
size_t codec_result_narrowed(const struct codec_result *result);

/* Finds a number that the type of its result cannot hold, such as 70000 in FP16, among `count` of
 * these numbers from `first` on. Returns its index, or SIZE_MAX if there is none. */
size_t codec_result_out_of_range(const struct codec_result *result, size_t first, size_t count);

/* Writes `size` bytes of a result, from byte `first` on. */
void codec_result_read(const struct codec_result *result, size_t first, void *out, size_t size);

#endif
