/*
 * ways.h - the service that is tested, and two ways to ask it: the app alone, and the server with
 * its workers over a socket. The server needs a key, is asked by a web page, and logs its requests.
 */
#ifndef MEMORY_WAYS_H
#define MEMORY_WAYS_H

#include <stdbool.h>
#include <stddef.h>

#include "api/api.h"
#include "memory/requests.h"

struct answer {
    int status; /* 0 = the connection ended without an answer */
    bool retry; /* the answer has Retry-After */
    char *body; /* owned; NULL without an answer */
    size_t size;
};

/* A way to ask. `finish` is called after all requests since `prepare`. */
struct way {
    const char *name;
    void (*prepare)(void);
    void (*ask)(const struct request *request, struct answer *out);
    void (*finish)(void);
};

extern const struct way way_app, way_server;

/* The state of the service, its app, and its server, which is NULL until it is started. */
extern struct api_state tested_state;
extern struct http_app tested_app;
extern struct http_server *tested_server;

/* Makes the app and writes the file of keys, which `trial_file` then names. */
void ways_begin(void);

/* Starts workers. Returns NULL without memory. */
struct jobs *ways_start_workers(void);

/* Starts `tested_server`. Returns false with a message if it does not start. */
bool ways_start_server(char *error, size_t size);

/* Ends the connection of way_server. */
void ways_hang_up(void);

#endif
