/*
 * request_id.h - makes request ids of 16 hexadecimal digits. No two ids of one process are equal,
 * and they cannot be guessed from earlier ids without effort. They name requests in logs; they are
 * not secrets.
 */
#ifndef HTTP_REQUEST_ID_H
#define HTTP_REQUEST_ID_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    REQUEST_ID_SIZE = 17 /* 16 digits and a NUL */
};

struct request_ids {
    uint64_t key;
    uint64_t offset;
    _Atomic uint64_t counter;
};

/* Draws the key and the offset from the random source of the system. */
void request_ids_init(struct request_ids *ids);

/* Writes the next id. May be called from any thread. */
void request_ids_next(struct request_ids *ids, char out[static REQUEST_ID_SIZE]);

#endif
