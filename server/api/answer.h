/* answer.h - the names that `return` knows, and which of the library's results each means. */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "attention.h"

enum {
    CALL_RESULT_OUTPUT,
    CALL_RESULT_WEIGHTS,
    CALL_RESULT_SCORES,
    CALL_RESULT_SCALED_SCORES,
    CALL_RESULT_MASKED_SCORES,
    CALL_RESULT_LSE,
    CALL_RESULT_STATISTICS,
    CALL_RESULT_ENTROPY,
    CALL_RESULT_TOP_K,
    CALL_RESULT_PRESENT_K,
    CALL_RESULT_PRESENT_V,
    CALL_RESULT_PROJECTED, /* from here on for projections only */
    CALL_RESULT_Q = CALL_RESULT_PROJECTED,
    CALL_RESULT_K,
    CALL_RESULT_V,
    CALL_RESULT_COUNT,
};

extern const char *const call_result_names[CALL_RESULT_COUNT];
extern const unsigned call_result_bits[CALL_RESULT_COUNT];

#endif
