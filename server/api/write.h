/*
 * write.h - PUT and DELETE /layers/{name}. They exist only if the operator allows them.
 */
#ifndef API_WRITE_H
#define API_WRITE_H

#include "api/api.h"
#include "layers/upload.h"

/* Begins to take the file of the model in the path. *upload becomes owned. Returns false after
 * filling `response`. */
bool write_begin(const struct api_request *request, struct upload **upload,
                 struct http_response *response);

#endif
