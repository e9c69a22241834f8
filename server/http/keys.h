/*
 * keys.h - who may ask: bearer keys from a file, one on each line, compared in constant time.
 */
#ifndef HTTP_KEYS_H
#define HTTP_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    KEYS_SHORTEST = 16, /* characters of a key */
    KEYS_LONGEST = 256,
    KEYS_MOST = 1000 /* in a file */
};

struct keys;

/* Reads the file: a key of visible ASCII characters on each line; empty lines and those that begin
 * with '#' are skipped. Borrows `path`. NULL with the reason in error[0..size). */
struct keys *keys_load(const char *path, char *error, size_t size);

/* Reads the file again. On failure, false with the reason, the old keys stay. */
bool keys_reload(struct keys *keys, char *error, size_t size);

/* Does this value of an Authorization header begin like "Bearer KEY"? */
bool keys_is_bearer(const char *value, size_t size);

/* Is this the value of an Authorization header ("Bearer KEY") with one of the keys? From any
 * thread. How long it takes does not depend on how much of a key is right. */
bool keys_match(struct keys *keys, const char *value, size_t size);

void keys_free(struct keys *keys); /* NULL is fine */

#endif
