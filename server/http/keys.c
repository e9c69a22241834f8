/* keys.c reads the file with the keys and compares keys with them. */
#include "http/keys.h"

#include "http/file.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A key. Zeros follow its characters, so that two keys are equal if all their bytes are. */
struct key {
    unsigned char bytes[KEYS_LONGEST];
};

struct keys {
    const char *path;
    pthread_rwlock_t lock; /* guards the list and its count */
    struct key *list;
    size_t count;
};

/* Reads a line without its end. *is_key becomes whether it is neither empty nor a comment. Returns
 * false with the reason if it is not a valid key. */
static bool read_line(const char *line, size_t length, struct key *key, bool *is_key, char *error,
                      size_t size) {
    *is_key = length > 0 && line[0] != '#';
    *key = (struct key){0};
    if (!*is_key) {
        return true;
    }
    if (length < KEYS_SHORTEST || length > KEYS_LONGEST) {
        snprintf(error, size, "a key has %d to %d characters, but this one has %zu", KEYS_SHORTEST,
                 KEYS_LONGEST, length);
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (line[i] <= ' ' || line[i] > '~') {
            snprintf(error, size, "a key consists of visible ASCII characters");
            return false;
        }
        key->bytes[i] = (unsigned char)line[i];
    }
    return true;
}

static bool read_all(FILE *file, struct key *list, size_t *count, char *error, size_t size) {
    char *line = NULL, reason[128];
    size_t room = 0;
    bool good = true, is_key;
    ssize_t length;
    *count = 0;
    for (size_t number = 1; good && (length = getline(&line, &room, file)) >= 0; number++) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            length--;
        }
        struct key key;
        if (!read_line(line, (size_t)length, &key, &is_key, reason, sizeof reason)) {
            snprintf(error, size, "line %zu: %s", number, reason);
            good = false;
        } else if (is_key && *count == KEYS_MOST) {
            snprintf(error, size, "the file has more than %d keys", KEYS_MOST);
            good = false;
        } else if (is_key) {
            list[(*count)++] = key;
        }
    }
    if (good && !feof(file)) { /* a read error, or no memory for a line */
        snprintf(error, size, "%s", strerror(errno));
        good = false;
    } else if (good && *count == 0) {
        snprintf(error, size, "the file has no key");
        good = false;
    }
    free(line);
    return good;
}

bool keys_reload(struct keys *keys, char *error, size_t size) {
    struct key *list = calloc(KEYS_MOST, sizeof *list);
    size_t count = 0;
    FILE *file = list != NULL ? file_open(keys->path, error, size) : NULL;
    bool good = false;
    if (list == NULL) {
        snprintf(error, size, "out of memory");
    } else if (file != NULL) {
        good = read_all(file, list, &count, error, size);
    }
    if (good) {
        pthread_rwlock_wrlock(&keys->lock);
        struct key *old = keys->list;
        keys->list = list;
        keys->count = count;
        pthread_rwlock_unlock(&keys->lock);
        list = old;
    }
    if (file != NULL) {
        fclose(file);
    }
    free(list);
    return good;
}

struct keys *keys_load(const char *path, char *error, size_t size) {
    struct keys *keys = calloc(1, sizeof *keys);
    if (keys == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    keys->path = path;
    pthread_rwlock_init(&keys->lock, NULL);
    if (!keys_reload(keys, error, size)) {
        keys_free(keys);
        return NULL;
    }
    return keys;
}

static const char scheme[] = "Bearer ";

bool keys_is_bearer(const char *value, size_t size) {
    return size > sizeof scheme - 1 && strncasecmp(value, scheme, sizeof scheme - 1) == 0;
}

bool keys_match(struct keys *keys, const char *value, size_t size) {
    struct key given = {0};
    unsigned found = 0;
    if (!keys_is_bearer(value, size) || size > sizeof scheme - 1 + KEYS_LONGEST ||
        memchr(value, '\0', size) != NULL) {
        return false;
    }
    memcpy(given.bytes, value + sizeof scheme - 1, size - (sizeof scheme - 1));
    pthread_rwlock_rdlock(&keys->lock);
    for (size_t i = 0; i < keys->count; i++) {
        unsigned differs = 0;
        for (size_t j = 0; j < KEYS_LONGEST; j++) {
            differs |= (unsigned)(keys->list[i].bytes[j] ^ given.bytes[j]);
        }
        found |= (differs - 1) >> (sizeof differs * 8 - 1); /* 1 if no bit differs */
    }
    pthread_rwlock_unlock(&keys->lock);
    return found != 0;
}

void keys_free(struct keys *keys) {
    if (keys == NULL) {
        return;
    }
    pthread_rwlock_destroy(&keys->lock);
    free(keys->list);
    free(keys);
}
