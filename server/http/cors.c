/* cors.c looks for an origin in the operator's list. */
#include "http/cors.h"

#include <string.h>

bool cors_allows(const char *list, const char *origin, size_t size) {
    if (list == NULL || size == 0) {
        return false;
    }
    if (strcmp(list, "*") == 0) {
        return true;
    }
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");
        if (length == size && memcmp(list, origin, size) == 0) {
            return true;
        }
        list += length + (list[length] == ',');
    }
    return false;
}
