/*
 * grammar.h - texts that are JSON and texts that are not, after RFC 8259, with the byte at fault.
 * One list serves the tests of the reader (unit/test_codec_grammar.c) and of the service
 * (api/test_grammar.c). It covers what the public suites of JSON texts cover, in texts of its own.
 * It knows neither the reader nor the service.
 */
#ifndef SUPPORT_GRAMMAR_H
#define SUPPORT_GRAMMAR_H

#include <stddef.h>

enum {
    GOOD = -1
};

struct grammar_case {
    const char *text;
    long offset; /* of the byte at fault; GOOD if there is none */
};

struct grammar_list {
    const char *name;
    const struct grammar_case *cases;
    size_t count;
};

enum {
    GRAMMAR_STRUCTURE,
    GRAMMAR_NUMBERS,
    GRAMMAR_LITERALS,
    GRAMMAR_STRINGS,
    GRAMMAR_BIAS, /* -Infinity, which the member "bias" of the outermost object may hold */
    GRAMMAR_LISTS
};

extern const struct grammar_list grammar_lists[GRAMMAR_LISTS];

#endif
