/*
 * lists.h - answers that list stored layers. A folder may have tens of thousands of layers, so a
 * list is work: its items count in the account of the request, and a worker makes them.
 */
#ifndef API_LISTS_H
#define API_LISTS_H

#include "api/api.h"
#include "layers/layers.h"

/* The entries [first, end) of a catalogue. */
struct lists_page {
    const struct layers_catalogue *catalogue;
    const struct api_route *routes; /* those of the service */
    size_t first, end;
    bool opens, closes; /* what stands before the entries, or behind them, belongs to the page */
};

/* Adds the items of a page to those of the pages before it. */
typedef void lists_add(struct codec_items *list, const struct lists_page *page);

/* Begins the answer with all entries, of which each task adds a page, or with none of them if
 * `hidden`. Returns the work, or NULL after filling the response. */
struct api_work *lists_all(struct api_request *request, bool hidden, lists_add *add);

/* Begins the answer with the page that the parameters "after" and "limit" of the query name. All
 * entries of one name are on the same page. Returns as lists_all() does. */
struct api_work *lists_one_page(struct api_request *request, lists_add *add);

#endif
