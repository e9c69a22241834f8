/* number_texts.h - random numbers, and texts of numbers of all kinds. Tests compare what the codec
 * reads and writes of them with the C library. */
#ifndef NUMBER_TEXTS_H
#define NUMBER_TEXTS_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "test_codec.h"

enum {
    BATCH = 1000, /* texts that are read at once */
    TEXT = 900,   /* bytes of a text */
    KINDS = 11    /* kinds of texts */
};

static inline float random_float(void) {
    float value;
    do {
        uint32_t bits = (uint32_t)random_bits();
        memcpy(&value, &bits, sizeof value);
    } while (!isfinite(value));
    return value;
}

static inline double random_double(void) {
    double value;
    do {
        uint64_t bits = random_bits();
        memcpy(&value, &bits, sizeof value);
    } while (!isfinite(value));
    return value;
}

static inline double uniform(void) {
    return (double)(random_bits() >> 11) / 9007199254740992.0;
}

/* Makes a text of one of KINDS kinds. Each text is read as float32 and as float64. */
static inline void make_number_text(char *text, size_t kind) {
    float f = random_float();
    double d = random_double(),
           usual = (uniform() - 0.5) * pow(10, (double)(random_bits() % 12) - 6);
    uint64_t digits = random_bits() >> (random_bits() % 60);
    int shift = (int)(random_bits() % 60) - 40;
    switch (kind) {
    case 0: /* any float, with as many digits as it needs or more */
        sprintf(text, "%.*g", (int)(9 + random_bits() % 9), (double)f);
        break;
    case 1: /* the usual sizes, few and many digits */
        sprintf(text, "%.*g", (int)(1 + random_bits() % 19), usual);
        break;
    case 2: /* fixed point */
        sprintf(text, "%.*f", (int)(random_bits() % 25), usual);
        break;
    case 3: /* up to 20 digits with an exponent */
        sprintf(text, "%llue%d", (unsigned long long)digits, shift);
        while (strtof(text, NULL) > FLT_MAX)
            sprintf(text, "%llue%d", (unsigned long long)digits, --shift);
        break;
    case 4: /* halfway between two floats, and close to it */
        sprintf(text, "%.*g", (int)(20 + random_bits() % 180),
                (double)(float)usual +
                    (double)(nextafterf((float)usual, INFINITY) - (float)usual) / 2);
        break;
    case 5: /* halfway between two floats with 17 to 19 digits */
        sprintf(text, "%.*g", (int)(17 + random_bits() % 3),
                (double)(float)usual +
                    (double)(nextafterf((float)usual, INFINITY) - (float)usual) / 2);
        break;
    case 6: /* whole numbers around 2^24 and 2^53 */
        sprintf(text, "%s%llu", digits % 2 == 0 ? "-" : "",
                (unsigned long long)((digits % 4 < 2 ? 1ULL << 24 : 1ULL << 53) + digits % 64));
        break;
    case 7: /* denormal floats */
        sprintf(text, "%.*g", (int)(1 + random_bits() % 20),
                (double)ldexpf((float)uniform(), -126 - (int)(random_bits() % 26)));
        break;
    case 8: /* halfway between two halves, and close to it */
        sprintf(text, "%.*g", (int)(12 + random_bits() % 12),
                ldexp((double)(2049 + random_bits() % 2048), -(int)(random_bits() % 26)));
        break;
    case 9: /* leading zeros */
        sprintf(text, "%s0.%0*llu", digits % 2 == 0 ? "-" : "", (int)(random_bits() % 40),
                (unsigned long long)digits);
        break;
    default:
        sprintf(text, "%.17g", fabs(d) < 1e38 ? d : usual);
        break;
    }
}

#endif
