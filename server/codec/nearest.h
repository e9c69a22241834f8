/*
 * nearest.h - the known name that an unknown name probably stands for: a key, a name of a value, a
 * segment of a path, or an option of the daemon.
 */
#ifndef CODEC_NEAREST_H
#define CODEC_NEAREST_H

#include <stddef.h>

/* Returns the name among names[0..count) with the smallest edit distance to `name`, or NULL if none
 * is near enough. *edits is that distance. If the result is NULL, *edits is larger than every
 * distance that is near enough. */
const char *codec_nearest(const char *name, const char *const *names, size_t count, size_t *edits);

#endif
