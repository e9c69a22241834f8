/*
 * request_id.c makes request ids by mixing a counter with a random key. The mixing is a bijection
 * of 64 bits (the finaliser of SplitMix64, Steele et al. 2014, with the key added between two
 * rounds), so the ids of one process never repeat.
 */
#include "http/request_id.h"

#include <sys/random.h>
#include <time.h>

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void request_ids_init(struct request_ids *ids) {
    uint64_t seed[2];
    if (getrandom(seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        /* This happens only just after the start of the machine. Ids that can be guessed are better
         * than no ids. */
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed[0] = mix((uint64_t)now.tv_nsec);
        seed[1] = mix((uint64_t)now.tv_sec);
    }
    ids->key = seed[0];
    ids->offset = seed[1];
    atomic_init(&ids->counter, 0);
}

void request_ids_next(struct request_ids *ids, char out[static REQUEST_ID_SIZE]) {
    uint64_t count = atomic_fetch_add_explicit(&ids->counter, 1, memory_order_relaxed);
    uint64_t id = mix(mix(count + ids->offset) + ids->key);
    for (int i = 0; i < REQUEST_ID_SIZE - 1; i++) {
        out[i] = "0123456789abcdef"[(id >> (60 - 4 * i)) & 15];
    }
    out[REQUEST_ID_SIZE - 1] = '\0';
}
