/* format.c - finds the format of an answer, and answers in it. */
#include "api/formats/format.h"

#include <string.h>

#include "api/formats/inference.h"
#include "api/formats/tensors.h"

enum api_format format_of_answer(const struct http_request *request) {
    const int tensors = http_accepts(request->accept, TENSORS_SAFETENSORS);
    const int json = http_accepts(request->accept, "application/json");
    const bool same = strcmp(request->media_type, TENSORS_SAFETENSORS) == 0;
    const bool wanted = tensors < 0 && json <= 0 ? same : tensors > 0 && tensors >= json;
    return wanted ? API_SAFETENSORS : API_JSON;
}

void format_reply(struct api_request *request, struct codec_items *items, int digits) {
    switch (request->format) {
    case API_JSON:
        reply_json(request, items, digits);
        break;
    case API_SAFETENSORS:
        tensors_reply(request, items);
        break;
    case API_INFERENCE:
        inference_reply(request, items, digits);
        break;
    }
    request->response->by_accept =
        request->response->status == 200 && request->format != API_INFERENCE;
}
