/* format.c - finds the format of an answer, and answers in it. */
#include "api/format.h"

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

enum api_format format_of_answer(const struct http_request *request) {
    const double tensors = quality_of(request->accept, TENSORS_SAFETENSORS);
    const double json = quality_of(request->accept, "application/json");
    const bool same = strcmp(request->media_type, TENSORS_SAFETENSORS) == 0;
    const bool wanted = tensors < 0 && json <= 0 ? same : tensors > 0 && tensors >= json;
    return wanted ? API_SAFETENSORS : API_JSON;
}

void format_reply(const struct api_request *request, struct http_response *response,
                  struct codec_items *items, int digits) {
    switch (request->format) {
    case API_JSON:
        reply_json(request, response, items, digits);
        break;
    case API_SAFETENSORS:
        tensors_reply(request, response, items);
        break;
    case API_INFERENCE:
        inference_reply(request, response, items, digits);
        break;
    }
    response->by_accept = response->status == 200 && request->format != API_INFERENCE;
}
