/* print_routes.c - prints each route as a line "METHOD /path", for check_openapi.py. */
#include <stdio.h>

#include "api/api.h"

int main(void) {
    for (size_t i = 0; i < api_route_count; i++) {
        printf("%s %s\n", api_routes[i].method, api_routes[i].path);
    }
    return 0;
}
