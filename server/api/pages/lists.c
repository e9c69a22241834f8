/* lists.c - see lists.h. */
#include "api/pages/lists.h"

#include <stdio.h>
#include <string.h>

#include "api/reply.h"

enum {
    LIMIT = 100,            /* entries of a page, if the request says nothing */
    MOST_ENTRIES = 1000,    /* of a page, and of a task */
    COST_OF_ENTRY = 100000, /* multiply-adds that take as long as listing an entry */
};

/* The work that makes the items of a list. It keeps the catalogue until its texts are sent. */
struct listing {
    struct api_work work; /* first */
    struct job_phases phase;
    struct layers *layers; /* borrowed; NULL: there is no folder */
    struct lists_page page;
    lists_add *add;
    struct codec_items items;
};

/* The characters of the names in a list. Only names that are refused have question marks. */
static const char characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-?";

static const struct layers_catalogue none; /* without a folder the lists are empty */

static bool lists_task(void *listing_, const struct jobs_task *task) {
    struct listing *listing = listing_;
    struct lists_page page = listing->page;
    page.first += task->phase * MOST_ENTRIES;
    page.opens = task->phase == 0;
    page.closes = task->phase + 1 == listing->phase.count;
    page.end = page.closes ? page.end : page.first + MOST_ENTRIES;
    listing->add(&listing->items, &page);
    return true;
}

static bool lists_answer(struct api_work *work, struct api_request *request,
                         struct codec_items *list) {
    (void)list; /* a list of layers is JSON in any case */
    reply_json(request, &((struct listing *)work)->items, 0);
    return false;
}

static void lists_release(struct api_work *work) {
    struct listing *listing = (struct listing *)work;
    if (listing->layers != NULL) {
        layers_give(listing->layers, listing->page.catalogue);
    }
}

/* Makes the work with a catalogue, and no entries yet. */
static struct listing *new_listing(struct api_request *request, lists_add *add) {
    struct listing *listing = account_alloc(&request->account, sizeof *listing);
    if (listing == NULL) {
        reply_no_memory(request);
        return NULL;
    }
    memset(listing, 0, sizeof *listing);
    listing->layers = request->state->layers;
    listing->page.catalogue = listing->layers != NULL ? layers_take(listing->layers) : &none;
    listing->page.routes = request->state->routes;
    listing->add = add;
    codec_items_begin(&listing->items, &request->account);
    listing->phase = (struct job_phases){NULL, 1, NULL, lists_task, listing};
    listing->work.job.phases = &listing->phase;
    listing->work.answer = lists_answer;
    listing->work.release = lists_release;
    return listing;
}

static struct api_work *with_entries(struct listing *listing, size_t first, size_t end) {
    listing->page.first = first;
    listing->page.end = end;
    listing->work.job.cost = (double)(end - first) * COST_OF_ENTRY;
    return &listing->work;
}

struct api_work *lists_all(struct api_request *request, bool hidden, lists_add *add) {
    struct listing *listing = new_listing(request, add);
    if (listing == NULL) {
        return NULL;
    }
    const size_t count = hidden ? 0 : listing->page.catalogue->entry_count;
    listing->phase.count = count > 0 ? (count - 1) / MOST_ENTRIES + 1 : 1;
    return with_entries(listing, 0, count);
}

/* ------------------------------------------------------------------------------------- the page */

/* Answers that a parameter is wrong. */
static bool refuse_parameter(struct api_request *request, const char *rule, const char *value) {
    char detail[256];
    snprintf(detail, sizeof detail, "%s, not \"%.64s\"%s", rule, value,
             strlen(value) > 64 ? " ..." : "");
    reply_problem(request, 422, detail);
    return false;
}

/* Reads a whole number. Returns 0 if the text is none, and too much if it is too large. */
static size_t number_of(const char *text) {
    size_t number = 0;
    for (; *text >= '0' && *text <= '9' && number <= MOST_ENTRIES; text++) {
        number = 10 * number + (size_t)(*text - '0');
    }
    return *text == '\0' || number > MOST_ENTRIES ? number : 0;
}

/* Reads the parameters. *after stays NULL without it. Returns false after filling the response. */
static bool read_query(struct api_request *request, const char **after, size_t *limit) {
    const struct http_request *http = request->http;
    *limit = 0;
    for (size_t i = 0; i < http->parameter_count && i < HTTP_PARAMETERS; i++) {
        const struct http_parameter *parameter = &http->parameters[i];
        if (strcmp(parameter->name, "after") == 0 && *after == NULL) {
            *after = parameter->value;
            if (strlen(*after) > LAYERS_NAME || (*after)[strspn(*after, characters)] != '\0') {
                return refuse_parameter(request,
                                        "after must be at most 128 of the characters A-Z, a-z, "
                                        "0-9, \".\", \"_\", \"-\" and \"?\"",
                                        *after);
            }
        } else if (strcmp(parameter->name, "limit") == 0 && *limit == 0) {
            *limit = number_of(parameter->value);
            if (*limit == 0 || *limit > MOST_ENTRIES) {
                return refuse_parameter(request, "limit must be a whole number from 1 to 1000",
                                        parameter->value);
            }
        } else {
            return refuse_parameter(
                request, "a list takes the parameters after and limit, each once", parameter->name);
        }
    }
    *limit = *limit > 0 ? *limit : LIMIT;
    return true;
}

struct api_work *lists_one_page(struct api_request *request, lists_add *add) {
    const char *after = NULL;
    size_t limit;
    struct listing *listing;
    if (!read_query(request, &after, &limit) || (listing = new_listing(request, add)) == NULL) {
        return NULL;
    }
    const struct layers_catalogue *catalogue = listing->page.catalogue;
    const size_t first = after == NULL ? 0 : layers_after(catalogue, after);
    size_t end = catalogue->entry_count - first > limit ? first + limit : catalogue->entry_count;
    while (end > first && end < catalogue->entry_count &&
           strcmp(layers_entry_name(&catalogue->entries[end - 1]),
                  layers_entry_name(&catalogue->entries[end])) == 0) {
        end++;
    }
    return with_entries(listing, first, end);
}
