/*
 * bad_requests.h - bodies that an endpoint refuses, and what it must say about each of them. The
 * lists know nothing of how they are sent (api/test_errors.c).
 */
#ifndef SUPPORT_BAD_REQUESTS_H
#define SUPPORT_BAD_REQUESTS_H

#include <stddef.h>

struct bad_request {
    const char *name;
    const char *body;
    size_t size;           /* bytes of the body */
    int status;            /* 400 or 422 */
    const char *detail[3]; /* texts that the detail must contain */
    /* The pointer of a 422, or the start of the pointer that ends before a '/'. "" is the whole
     * body. The errors below /v2 have neither pointer nor offset. */
    const char *pointer;
    size_t offset; /* the offset of a 400: the byte at which the body stops being JSON */
};

/* Stands for any pointer, or none. */
#define ANYWHERE "*"

struct bad_request_list {
    const char *path;               /* the endpoint */
    const struct bad_request *rows; /* the name after the last row is NULL */
};

/* `bad_request_list_count` lists. */
extern const struct bad_request_list bad_request_lists[];
extern const size_t bad_request_list_count;

#endif
