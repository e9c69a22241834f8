/* members.c - checks the members of an object, and says what an unknown key may stand for. */
#include "codec/codec.h"

#include <string.h>

#include "codec/error.h"
#include "codec/json/document.h"
#include "codec/nearest.h"

/* Returns the foreign name in this object that is `name`, or nearly so, or NULL. *edits is as in
 * codec_nearest(). A name that is only near one which is left out may be that of something else. */
static const struct codec_foreign *nearest_foreign(const char *name, const struct codec_keys *keys,
                                                   size_t *edits) {
    const struct codec_foreign *nearest = NULL;
    *edits = SIZE_MAX;
    for (size_t i = 0; i < keys->foreign_count; i++) {
        const struct codec_foreign *foreign = &keys->foreign[i];
        size_t away;
        if ((foreign->where & keys->here) != 0 &&
            codec_nearest(name, &foreign->name, 1, &away) != NULL && away < *edits &&
            (away == 0 || strstr(foreign->hint, "leave it out") == NULL)) {
            nearest = foreign;
            *edits = away;
        }
    }
    return nearest;
}

/* Refuses a member that is none of the keys. The message says which key the client may have
 * meant. */
static bool refuse_key(const struct codec_document *document, const struct codec_value *member,
                       const struct codec_keys *keys, struct codec_error *error) {
    const char *name = codec_name(member);
    char quoted[CODEC_QUOTE_SIZE];
    size_t edits_here, edits_there, edits_foreign;
    const char *here = codec_nearest(name, keys->names, keys->count, &edits_here);
    const char *there = codec_nearest(name, keys->elsewhere, keys->elsewhere_count, &edits_there);
    const struct codec_foreign *foreign = nearest_foreign(name, keys, &edits_foreign);
    codec_quote(quoted, name, strlen(name));
    if (foreign != NULL && edits_foreign == 0) {
        return codec_fail(document, member, error, "unknown key \"%s\"; %s", quoted, foreign->hint);
    }
    if (foreign != NULL && edits_foreign < edits_here && edits_foreign < edits_there) {
        return codec_fail(document, member, error, "unknown key \"%s\", which may be \"%s\"; %s",
                          quoted, foreign->name, foreign->hint);
    }
    if (edits_there < edits_here) {
        return codec_fail(document, member, error, "unknown key \"%s\"; \"%s\" goes into \"%s\"",
                          quoted, there, keys->place);
    }
    if (here != NULL) {
        return codec_fail(document, member, error, "unknown key \"%s\"; did you mean \"%s\"?",
                          quoted, here);
    }
    return codec_fail(document, member, error, "unknown key \"%s\"", quoted);
}

bool codec_check_keys(const struct codec_document *document, const struct codec_value *object,
                      const struct codec_keys *keys, struct codec_error *error) {
    if (codec_kind_of(object) != CODEC_OBJECT) {
        return codec_refuse(document, object, "an object", error);
    }
    for (const struct codec_value *member = codec_at(object, 0); member != NULL;
         member = codec_next(member)) {
        size_t i = 0;
        while (i < keys->count && !document_is_name(codec_name(member), keys->names[i])) {
            i++;
        }
        if (i == keys->count) {
            return refuse_key(document, member, keys, error);
        }
    }
    return true;
}
