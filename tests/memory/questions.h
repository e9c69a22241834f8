/*
 * questions.h - the requests whose allocations fail in turn.
 */
#ifndef MEMORY_QUESTIONS_H
#define MEMORY_QUESTIONS_H

#include <stdbool.h>
#include <stddef.h>

#define QUESTION_KEY "Authorization: Bearer one-key-for-this-test\r\n"

struct question {
    const char *name, *method, *path;
    int status;       /* the status of the answer if there is memory enough */
    bool varies;      /* the answer varies with the time, so only its status is compared */
    bool only_server; /* the server answers without the app, so the app is not asked */
    char *body;
    size_t size;         /* bytes of the body */
    const char *headers; /* headers beside Host, Origin and Content-Length; NULL = QUESTION_KEY */
    const char *media_type; /* the type of the body; NULL = application/json */
    const char *accept;     /* the Accept header; NULL = none */
    size_t header;          /* the Inference-Header-Content-Length header; 0 = none */
};

/* Returns whether this question is of the Open Inference Protocol, whose errors are {"error":
 * "text"}. */
bool question_is_inference(const struct question *question);

/* Calls `visit` with each question, whose body is freed after the call. */
void questions_visit(void (*visit)(const struct question *question));

/* Returns the question of a notebook. The caller frees its body, which is NULL if there is no
 * notebook. */
struct question question_of_notebook(void);

/* Returns whether the question is also asked with a compressed body. */
bool question_has_codings(const struct question *question);

#endif
