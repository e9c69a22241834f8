/*
 * binary.h - binary tensors for tests: one call as JSON, in the Open Inference Protocol and in
 * safetensors, and the tensors of answers in these forms. It shares no code with the server. It
 * knows nothing of sockets or Criterion.
 */
#ifndef SUPPORT_BINARY_H
#define SUPPORT_BINARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct cJSON;

/* -------------------------------------------------------------------------------------- a call */

/* An input. Without `numbers`, its numbers are made of its name, and are the same in every form.
 * Each is a small multiple of 1/64, which the types of 16 bits and more hold. A mask has some zeros
 * then, and forbids all keys to its first query. */
struct binary_input {
    const char *name;      /* of a member of an object there is one: "expected.lse" */
    size_t shape[4];       /* ends with a 0 if there are fewer than four axes */
    unsigned kind;         /* bits BINARY_* */
    const double *numbers; /* those that FP16 and FP8_E5M2 do not have are larger than all theirs */
};

enum {
    BINARY_MASK = 1,
    BINARY_DRAWN = 2,  /* JSON has {"random": ...} in place of the numbers */
    BINARY_HOLES = 4,  /* JSON has null and -Infinity in place of some numbers */
    BINARY_DECAY = 8,  /* no number is above 0 */
    BINARY_SHARE = 16, /* the numbers are between 0 and 1/4 */
    BINARY_F32 = 32,   /* in safetensors these have a type of their own */
    BINARY_F64 = 64,
    BINARY_BF16 = 128,
    BINARY_INPUTS = 40
};

struct binary_call {
    const char *path;     /* the endpoint; without its slash it is the name of the model */
    const char *options;  /* members of the body, such as "\"causal\":true,\"window\":[1,0]" */
    const char *returned; /* the names of the results as JSON; NULL: the default ones */
    struct binary_input inputs[BINARY_INPUTS]; /* ends with an input without a name */
};

/* A call with many options and all results, and one whose answer is longer than a block. drawn.h
 * has others. */
extern const struct binary_call binary_rich, binary_long;

/* Joins an option to those of a call in `options`, which the result borrows. */
struct binary_call binary_with(const struct binary_call *call, const char *option,
                               char options[2048]);

/* The inputs of a small request to /v2/models/attention/infer. All of them are JSON. */
#define BINARY_QKV                                                                                 \
    "\"inputs\":[{\"name\":\"Q\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[1,2]},"           \
    "{\"name\":\"K\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,0],[0,1]]},"               \
    "{\"name\":\"V\",\"datatype\":\"FP32\",\"shape\":[2,1],\"data\":[3,4]}]"

/* Each of these functions returns a body, owned: free(). */

/* Returns how many numbers an input has. */
size_t binary_count(const struct binary_input *input);

/* Writes an input as a member of an object of JSON. */
void binary_put(FILE *to, const struct binary_input *input);

/* The body as JSON. `dtype` is "float32" or "float64". */
char *binary_json(const struct binary_call *call, const char *dtype, size_t *size);

/* The body in the Open Inference Protocol. `type` is the datatype of the inputs that are no mask:
 * "FP32", "FP64", "FP16", "BF16" or "FP8_E5M2". Input i is binary if bit i of `binary` is set.
 * `more` are members of the outermost object, such as "\"id\":\"7\",". *header is the length of the
 * JSON. */
char *binary_inference(const struct binary_call *call, const char *type, unsigned binary,
                       const char *more, size_t *header, size_t *size);

/* The body in safetensors. `type` is "F32", "F64", "F16", "BF16" or "F8_E5M2". */
char *binary_safetensors(const struct binary_call *call, const char *type, size_t *size);

/* Returns a body of safetensors with this header and these bytes. */
char *binary_file(const char *header, const void *bytes, size_t count, size_t *size);

/* ------------------------------------------------------------------------------------ an answer */

enum {
    BINARY_MOST = 64
};

struct binary_answer {
    struct binary_result {
        const char *name, *type; /* borrowed from `head`; the type has the name of its form */
        size_t rank, shape[8];
        const char *bytes;        /* borrowed from the answer, or NULL */
        size_t size;              /* bytes */
        const struct cJSON *data; /* the flat array of an output that is not binary, or NULL */
    } list[BINARY_MOST];
    size_t count;
    struct cJSON *head; /* owned; the JSON of the answer */
};

/* Each reads an answer, which the result borrows, and checks all that its format promises. Returns
 * false with a message. The caller frees the answer in any case. */
bool binary_read_inference(struct binary_answer *answer, const char *bytes, size_t size,
                           size_t header, char message[256]);
bool binary_read_safetensors(struct binary_answer *answer, const char *bytes, size_t size,
                             char message[256]);
void binary_free(struct binary_answer *answer);

/* Returns the result of this name, or NULL. */
const struct binary_result *binary_find(const struct binary_answer *answer, const char *name);

/* Returns whether each result has the shape and, bit for bit, the numbers of the JSON answer, or
 * its words, and whether nothing else is in the JSON answer. null is minus infinity. Otherwise
 * fills the message. */
bool binary_equal_json(const struct binary_answer *answer, const struct cJSON *json,
                       char message[256]);

#endif
