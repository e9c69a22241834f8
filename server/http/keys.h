/*
 * keys.h - the bearer keys of the clients that are authorized. They stand in a file, one on each
 * line, and are compared in constant time.
 */
#ifndef HTTP_KEYS_H
#define HTTP_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    KEYS_SHORTEST = 16, /* characters of a key, at least */
    KEYS_LONGEST = 256, /* characters of a key, at most */
    KEYS_MOST = 1000    /* keys in a file */
};

struct keys;

/* Reads a file that has a key of visible ASCII characters on each line. Empty lines and lines that
 * begin with '#' are skipped. Borrows `path`. Returns owned; NULL with the reason in
 * error[0..size). */
struct keys *keys_load(const char *path, char *error, size_t size);

/* Reads the file again. Returns false with the reason if this fails; the old keys then stay. */
bool keys_reload(struct keys *keys, char *error, size_t size);

/* Returns whether this value of an Authorization header begins with "Bearer " and has a key. */
bool keys_is_bearer(const char *value, size_t size);

/* Returns whether this value of an Authorization header is "Bearer KEY" with one of the keys. May
 * be called from any thread. The time that it takes does not depend on how much of a key is
 * right. */
bool keys_match(struct keys *keys, const char *value, size_t size);

void keys_free(struct keys *keys); /* NULL is fine */

#endif
