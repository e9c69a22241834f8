/*
 * nearest.h - which known name was meant by one that is not known. Private to the codec.
 */
#ifndef CODEC_NEAREST_H
#define CODEC_NEAREST_H

#include <stddef.h>

/* Nearest of names[0..count) to `name` by edit distance, or NULL if none is near enough to be
 * meant. *edits: how far it is; more than any that is near enough if it is NULL. */
const char *codec_nearest(const char *name, const char *const *names, size_t count, size_t *edits);

#endif
