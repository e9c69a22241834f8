/*
 * request_id.h - makes request ids: 16 hexadecimal digits, no two alike in one process, not to be
 * guessed from the ones before without effort. They name requests in logs; they are no secrets.
 */
#ifndef HTTP_REQUEST_ID_H
#define HTTP_REQUEST_ID_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    REQUEST_ID_SIZE = 17
};

struct request_ids {
    uint64_t key;
    uint64_t offset;
    _Atomic uint64_t counter;
};

/* Draws the key from the system's random source. */
void request_ids_init(struct request_ids *ids);

void request_ids_next(struct request_ids *ids, char out[static REQUEST_ID_SIZE]);

#endif
