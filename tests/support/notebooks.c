/* notebooks.c - reads the requests of tests/notebooks. */
#include "support/notebooks.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/json.h"

#define ENDING ".request.json"

static int is_request(const struct dirent *entry) {
    const size_t size = strlen(entry->d_name);
    return size > strlen(ENDING) && strcmp(entry->d_name + size - strlen(ENDING), ENDING) == 0;
}

/* Reads tests/notebooks/NAME.KIND.json. Returns owned: free(). */
static char *read_notebook_file(const char *name, const char *kind, size_t *size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/notebooks/%s.%s.json", TESTS_DIR, name, kind);
    return json_read_file(path, size);
}

static bool read_one(struct notebook *out, const char *file) {
    size_t size;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(strlen(file) - strlen(ENDING)), file);
    char *expected = read_notebook_file(out->name, "expected", &size);
    struct cJSON *answer = expected == NULL ? NULL : json_parse(expected, size);
    const char *path = json_text(json_get(answer, "path"));
    out->body = read_notebook_file(out->name, "request", &out->size);
    const bool done = path != NULL && out->body != NULL;
    snprintf(out->path, sizeof out->path, "%s", path != NULL ? path : "");
    json_free(answer);
    free(expected);
    return done;
}

struct notebook *notebooks_read(size_t *count) {
    struct dirent **files = NULL;
    const int found = scandir(TESTS_DIR "/notebooks", &files, is_request, alphasort);
    struct notebook *notebooks = calloc(found > 0 ? (size_t)found : 1, sizeof *notebooks);
    bool sound = notebooks != NULL;
    *count = 0;
    for (int i = 0; i < found; i++) {
        sound = sound && read_one(&notebooks[(*count)++], files[i]->d_name);
        free(files[i]);
    }
    free(files);
    if (!sound) {
        notebooks_free(notebooks, *count);
        *count = 0;
        return NULL;
    }
    return notebooks;
}

void notebooks_free(struct notebook *notebooks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(notebooks[i].body);
    }
    free(notebooks);
}
