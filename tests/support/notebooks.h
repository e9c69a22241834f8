/*
 * notebooks.h - the requests of tests/notebooks as they are sent, for tests that need correct
 * requests. It does not know their answers.
 */
#ifndef SUPPORT_NOTEBOOKS_H
#define SUPPORT_NOTEBOOKS_H

#include <stddef.h>

struct notebook {
    char name[64], path[64];
    char *body;
    size_t size;
};

/* Reads all requests, in the order of their names. *count is 0 if one cannot be read. Returns
 * owned: notebooks_free(). */
struct notebook *notebooks_read(size_t *count);
void notebooks_free(struct notebook *notebooks, size_t count);

#endif
