/* answer_names.c - the lists that follow from ANSWER_MAP. */
#include "api/call/answer_names.h"

#include "api/call/fields.h"

/* One list for each column of ANSWER_MAP; a, p, l and s are the columns of the kinds of calls. A
 * list of names has those whose column is 1. */
#define ANSWER_IF_0(text)
#define ANSWER_IF_1(text)                                             text,
#define ANSWER_TEXT(name, text, rank, forms, parts, ...)              text,
#define ANSWER_RANK(name, text, rank, forms, parts, ...)              rank,
#define ANSWER_FORM(name, text, rank, forms, parts, ...)              forms,
#define ANSWER_PARTS(name, text, rank, forms, parts, ...)             parts,
#define ANSWER_BITS(name, text, rank, forms, parts, a, p, l, s, bits) bits,
#define ANSWER_AT(name, text, rank, forms, parts, a, p, l, s, bits)                                \
    (FIELDS_AT_ATTENTION * (a)) | (FIELDS_AT_PROJECTIONS * (p)) | (FIELDS_AT_LAYER * (l)) |        \
        (FIELDS_AT_LINEAR * (s)),
#define ANSWER_ATTENTION(name, text, rank, forms, parts, a, ...)        ANSWER_IF_##a(text)
#define ANSWER_PROJECTIONS(name, text, rank, forms, parts, a, p, ...)   ANSWER_IF_##p(text)
#define ANSWER_LAYER(name, text, rank, forms, parts, a, p, l, ...)      ANSWER_IF_##l(text)
#define ANSWER_LINEAR(name, text, rank, forms, parts, a, p, l, s, bits) ANSWER_IF_##s(text)
const char *const answer_names[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_TEXT)};
const char *const answer_attention_names[] = {ANSWER_MAP(ANSWER_ATTENTION)};
const char *const answer_projections_names[] = {ANSWER_MAP(ANSWER_PROJECTIONS)};
const char *const answer_layer_names[] = {ANSWER_MAP(ANSWER_LAYER)};
const char *const answer_linear_names[] = {ANSWER_MAP(ANSWER_LINEAR)};
const unsigned answer_at[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_AT)};
const uint64_t answer_bits[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_BITS)};
const int answer_ranks[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_RANK)};
const bool answer_has_parts[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_PARTS)};
const unsigned answer_forms[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_FORM)};

const char *const *answer_names_of(unsigned fields, size_t *count) {
    switch (fields) {
    case FIELDS_AT_ATTENTION:
        *count = ANSWER_OF_ATTENTION;
        return answer_attention_names;
    case FIELDS_AT_PROJECTIONS:
        *count = ANSWER_OF_PROJECTIONS;
        return answer_projections_names;
    case FIELDS_AT_LAYER:
        *count = ANSWER_OF_LAYER;
        return answer_layer_names;
    case FIELDS_AT_LINEAR:
        *count = ANSWER_OF_LINEAR;
        return answer_linear_names;
    default:
        *count = 1;
        return &answer_names[ANSWER_OUTPUT];
    }
}
