/* form.c - finds the form of an answer, and answers in it. */
#include "api/form.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/inference.h"
#include "api/tensors.h"

/* Returns the quality that an Accept header gives a media type by its name (RFC 9110 section
 * 12.5.1), or -1 if the header does not name it. */
static double quality_of(const char *accept, const char *type) {
    const size_t size = strlen(type);
    while (accept != NULL && *accept != '\0') {
        accept += strspn(accept, " \t,");
        const size_t entry = strcspn(accept, ",");
        const char *rest = accept + size;
        if (entry >= size && strncasecmp(accept, type, size) == 0 &&
            (rest[0] == '\0' || strchr(" \t;,", rest[0]) != NULL)) {
            for (; rest < accept + entry; rest++) {
                const char *name = rest + 1 + strspn(rest + 1, " \t");
                if (*rest == ';' && (name[0] == 'q' || name[0] == 'Q') && name[1] == '=') {
                    return strtod(name + 2, NULL);
                }
            }
            return 1;
        }
        accept += entry;
    }
    return -1;
}

bool form_is_safetensors(const struct http_request *request) {
    const double tensors = quality_of(request->accept, TENSORS_SAFETENSORS);
    const double json = quality_of(request->accept, "application/json");
    if (tensors < 0 && json <= 0) {
        return strcmp(request->media_type, TENSORS_SAFETENSORS) == 0;
    }
    return tensors > 0 && tensors >= json;
}

void form_reply(const struct api_request *request, struct http_response *response,
                const struct reply_items *list, int digits) {
    if (request->question != NULL && request->question->kind == QUESTION_INFERENCE) {
        inference_reply(request, response, list->items, list->count, digits);
        return;
    }
    if (request->safetensors) {
        tensors_reply(request, response, list->items, list->count);
    } else {
        reply_items(request, response, list, digits);
    }
    response->by_accept = response->status == 200;
}
