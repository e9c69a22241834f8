/* test_codec_number.c - decimal text to binary and back. The values must equal those of strtof and
 * strtod. */
#include <float.h>
#include <math.h>

#include "codec/json/number.h"
#include "codec/json/power.h"
#include "codec/json/vectors.h"
#include "number_texts.h"
#include "support/scale.h"

/* Reads the texts as one vector or one row, in the hot loop and byte by byte, and compares them
 * with the C library. Short vectors are read as float64 first and become float32 later. */
static void compare_texts(char texts[BATCH][TEXT], size_t count, bool wide, bool vector) {
    char *body = malloc(BATCH * (TEXT + 1) + 200), *out = body;
    out += sprintf(out, "{\"dtype\":\"%s\",\"K\":%s", wide ? "float64" : "float32",
                   vector ? "[" : "[[");
    for (size_t i = 0; i < count; i++)
        out += sprintf(out, "%s%s", i > 0 ? ", " : "", texts[i]);
    /* The tail is long, because the hot loop stops before the end. */
    out += sprintf(out, "%s,\"tail\":\"%0100d\"}", vector ? "]" : "]]", 0);

    for (size_t piece = 0; piece < 2; piece++) {
        struct outcome outcome = read_pieces(body, (size_t)(out - body), NULL, piece);
        cr_assert_not_null(outcome.document, "%s", outcome.error.message);
        attn_tensor tensor;
        struct codec_error error;
        cr_assert(
            codec_as_reals(outcome.document, member(outcome.document, "K"), 1, 2, &tensor, &error),
            "%s", error.message);
        cr_assert_eq(tensor.shape[vector ? 0 : 1], count);
        for (size_t i = 0; i < count; i++) {
            if (wide) {
                double actual = ((const double *)tensor.data)[i], expected = strtod(texts[i], NULL);
                cr_assert(memcmp(&actual, &expected, sizeof actual) == 0, "%s: %a, not %a",
                          texts[i], actual, expected);
            } else {
                float actual = ((const float *)tensor.data)[i], expected = strtof(texts[i], NULL);
                cr_assert(memcmp(&actual, &expected, sizeof actual) == 0, "%s: %a, not %a",
                          texts[i], (double)actual, (double)expected);
            }
        }
        codec_document_free(outcome.document);
    }
    free(body);
}

static void compare_batch(char texts[BATCH][TEXT], size_t count, bool wide) {
    compare_texts(texts, count, wide, false);
    compare_texts(texts, count, wide, true);
}

Test(codec_number, random_texts_equal_strtof_and_strtod) {
    static char texts[BATCH][TEXT];
    for (size_t round = 0; round < 110; round++) {
        for (size_t i = 0; i < BATCH; i++)
            make_number_text(texts[i], round % KINDS);
        compare_batch(texts, BATCH, false);
        compare_batch(texts, BATCH, true);
    }
}

/* Reads midpoints between doubles, with all digits, with a wrong last digit, and with few
 * digits. */
Test(codec_number, double_midpoints) {
    static char texts[BATCH][TEXT];
    for (size_t i = 0; i < BATCH; i++) {
        double low = (1 + uniform()) * pow(2, (double)(random_bits() % 100) - 60);
        /* A long double of x86 has 64 bits, so it holds the midpoint. */
        long double middle = ((long double)low + (long double)nextafter(low, INFINITY)) / 2;
        if (i % 2 == 0) {
            sprintf(texts[i], "%.*Lf", 120, middle);
            size_t size = strlen(texts[i]);
            if (i % 4 == 0)
                texts[i][size - 1] = '1';
        } else {
            sprintf(texts[i], "%.*Lg", (int)(16 + i % 5), middle);
        }
    }
    compare_batch(texts, BATCH, true);
}

/* The side of a double on which its text lies. */
Test(codec_number, side_of_a_text) {
    static const struct {
        const char *text;
        double value;
        int side;
    } rows[] = {{"1.5", 1.5, 0},
                {"-1.50", -1.5, 0},
                {"15E-1", 1.5, 0},
                {"0.0015e3", 1.5, 0},
                {"1.50000000000000000000000000001", 1.5, 1},
                {"-1.49999999999999999999999999999e0", -1.5, -1},
                {"100000000000000000001e-20", 1, 1},
                {"0.99999999999999999999", 1, -1},
                {"9.9999999999999999999e4", 1e5, -1},
                {"10000000000000000.5", 1e16, 1},
                {"1e23", 1e23, 1}, /* 99999999999999991611392 */
                {"0.1", 0.1, -1}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const int side = number_side(rows[i].text, strlen(rows[i].text), rows[i].value);
        cr_expect_eq((side > 0) - (side < 0), rows[i].side, "%s", rows[i].text);
    }
}

/* Compares numbers that have a space between them. */
static void compare_list(const char *list, bool wide) {
    static char texts[BATCH][TEXT];
    size_t count = 0;
    for (int size; sscanf(list, "%s%n", texts[count], &size) == 1; list += size) {
        count++;
    }
    compare_batch(texts, count, wide);
}

/* Two of these have an exponent at an end of 64 bits. */
Test(codec_number, edges) {
    static const char edges[] =
        "0 -0 0.0 -0.0e5 1e-999 -1e-999 1e-99999999999999999999 0.001e-9223372036854775808 "
        "0e999 0.000e99999999999 1e-45 7e-46 7.1e-46 1.401298464324817e-45 "
        "7.006492321624085e-46 7.0064923216240853e-46 7.0064923216240854e-46 "
        "7.006492321624085354618e-46 1.1754943508222875e-38 1.1754942807573643e-38 "
        "1.17549431578e-38 3.4028234663852886e38 3.4028235e38 3.40282356e38 "
        "340282346638528859811704183484516925440 0.1 0.2 0.3 1e22 1e23 9007199254740993 "
        "9007199254740992 16777217 16777219 33554433 33554435 18446744073709551615 "
        "18446744073709551616 1844674407370955161500 123456789012345678 0.5 0.25 0.125 "
        "4294967296 1e10 1E+10 100e-2 5e-324 2.5e-324 2.4e-324 2.2250738585072011e-308 "
        "2.2250738585072014e-308 0.000001 1e-10 8388608.5 8388609.5 "
        "1.00000005960464477539062 1.000000059604644775390625 1.0000000596046447753906250001 "
        "9.5367431640625e-07 999999.9 0.9999999999999999999";
    compare_list(edges, false);
    compare_list(edges, true);
}

Test(codec_number, float64_limits) {
    compare_list("1.7976931348623157e308 1.7976931348623158e308 -1e308 4.9e-324 1e300 1e-300 "
                 "12345678901234567890e280",
                 true);
}

/* Writes the digits of a number without sign, point, exponent and the zeros at both ends. Returns
 * how many there are. */
static int digits_of(const char *text, char digits[64]) {
    int used = 0, kept = 0;
    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text < '0' || *text > '9' || (used == 0 && *text == '0'))
            continue;
        digits[used++] = *text;
        if (*text != '0')
            kept = used;
    }
    digits[kept] = '\0';
    return kept;
}

/* Expects that `text` has the digits of `expected`, the shortest text of printf that reads back. */
static void expect_digits(const char *text, const char *expected) {
    char actual[64], wanted[64];
    digits_of(text, actual);
    digits_of(expected, wanted);
    cr_assert_str_eq(actual, wanted, "%s, not %s", text, expected);
}

/* A number that is written reads back as the same bits. It has the digits of the shortest text that
 * does so, and of the nearest of these. */
Test(codec_number, shortest_floats_round_trip) {
    for (size_t i = 0; i < test_scale(100000); i++) {
        float value =
            i % 2 == 0 ? random_float() : (float)((uniform() - 0.5) * (double)(1 << i % 20));
        char text[NUMBER_SIZE + 1], shorter[64];
        size_t size = number_write_float(text, value);
        cr_assert_leq(size, 24);
        text[size] = '\0';
        float back = strtof(text, NULL);
        cr_assert(memcmp(&back, &value, sizeof back) == 0, "%s is not %a", text, (double)value);
        int digits = 1; /* how many are needed */
        while (sprintf(shorter, "%.*e", digits - 1, (double)value), strtof(shorter, NULL) != value)
            digits++;
        expect_digits(text, shorter);
    }
}

/* Writes floats as an array, in the vectors of every CPU and in wide ones if this CPU has them, and
 * one by one. */
static void check_array(const float *values, size_t count) {
    static char expected[BATCH * (NUMBER_SIZE + 1)], actual[BATCH * (NUMBER_SIZE + 1)];
    char *end = expected;
    for (size_t i = 0; i < count; i++) {
        end += isfinite(values[i]) ? (int)number_write_float(end, values[i]) : sprintf(end, "null");
        *end++ = ',';
    }
    const size_t size = (size_t)(end - expected);
    cr_assert_eq(number_write_floats(actual, values, count, count) - actual, (ptrdiff_t)size);
    cr_assert_eq(memcmp(actual, expected, size), 0, "%.*s", (int)size, expected);
    cr_assert_eq(number_write_floats_plain(actual, values, count, count) - actual, (ptrdiff_t)size);
    cr_assert_eq(memcmp(actual, expected, size), 0, "%.*s", (int)size, expected);
#ifdef NUMBER_WIDE
    if (vector_has_digits()) {
        cr_assert_eq(number_write_floats_wide(actual, values, count, count) - actual,
                     (ptrdiff_t)size);
        cr_assert_eq(memcmp(actual, expected, size), 0, "%.*s", (int)size, expected);
    }
#endif
}

Test(codec_number, arrays_have_the_text_of_their_numbers) {
    static const float ends[] = {
        0,        -0.0f, 1,       -1,           0.5f,       10,       9999999,  10000000,
        16777216, 1e10f, FLT_MAX, -FLT_MAX,     FLT_MIN,    1e-45f,   INFINITY, -INFINITY,
        0.1f,     1e-5f, 0.0001f, 123456.7f,    8388608.5f, 33554436, 1e7f,     1.5e7f,
        -1.5e-7f, 3e33f, 1e-38f,  9.999999e-5f, 999999.94f, NAN};
    float values[BATCH];
    check_array(ends, COUNT(ends));
    for (int exponent = -149; exponent < 128; exponent++) { /* powers of two and their neighbours */
        values[0] = ldexpf(1, exponent);
        values[1] = nextafterf(values[0], 0);
        values[2] = nextafterf(values[0], INFINITY);
        check_array(values, 3);
    }
    for (size_t round = 0; round < test_scale(2000); round++) {
        const size_t count = round % BATCH;
        for (size_t i = 0; i < count; i++)
            values[i] = round % 3 == 0   ? random_float()
                        : round % 3 == 1 ? (float)((uniform() - 0.5) * (double)(1 << i % 20))
                                         : (float)(int)(random_bits() % 2000) - 1000;
        check_array(values, count);
    }
}

/* At a power of two the neighbour below is nearer than the one above. */
Test(codec_number, powers_of_two_round_trip) {
    for (int exponent = -1074; exponent < 1024; exponent++) {
        double value = ldexp(1, exponent);
        for (int i = 0; i < 3; i++) {
            char text[NUMBER_SIZE + 1], shortest[64], digit_text[64];
            text[number_write_double(text, value)] = '\0';
            cr_assert_eq(strtod(text, NULL), value, "%s is not %a", text, value);
            int digits = 1;
            while (sprintf(shortest, "%.*e", digits - 1, value), strtod(shortest, NULL) != value)
                digits++;
            cr_assert_leq(digits_of(text, digit_text), digits, "%s takes more than %d digits", text,
                          digits);
            if (exponent >= -149 && exponent <= 127 && i == 0) {
                text[number_write_float(text, (float)value)] = '\0';
                cr_assert_eq(strtof(text, NULL), (float)value, "%s is not %a", text, value);
            }
            value = nextafter(value, 0);
        }
    }
}

Test(codec_number, shortest_doubles_round_trip) {
    for (size_t i = 0; i < test_scale(100000); i++) {
        double value = i % 2 == 0 ? random_double() : (uniform() - 0.5) * (double)(1 << i % 20);
        char text[NUMBER_SIZE + 1], shorter[64];
        size_t size = number_write_double(text, value);
        cr_assert_leq(size, 24);
        text[size] = '\0';
        double back = strtod(text, NULL);
        cr_assert(memcmp(&back, &value, sizeof back) == 0, "%s is not %a", text, value);
        int digits = fabs(value) < DBL_MIN ? 1 : 12; /* nearly all others have at least 12 */
        while (sprintf(shorter, "%.*e", digits - 1, value), strtod(shorter, NULL) != value)
            digits++;
        expect_digits(text, shorter);
    }
}

/* A rounded number has at most as many digits as asked for, rounded as printf rounds the exact
 * value. */
Test(codec_number, rounded_equals_printf) {
    for (size_t i = 0; i < test_scale(100000); i++) {
        double value = i % 4 == 0   ? random_double()
                       : i % 4 == 1 ? (double)random_float()
                       : i % 4 == 2 ? (double)(random_bits() % 100000) / 8 /* ties */
                                    : (uniform() - 0.5) * (double)(1 << i % 20);
        int digits = 1 + (int)(random_bits() % 17);
        char text[NUMBER_SIZE + 1], expected[64];
        size_t size = number_write_rounded(text, value, digits);
        cr_assert_leq(size, 24);
        text[size] = '\0';
        sprintf(expected, "%.*e", digits - 1, value);
        if (isinf(strtod(expected, NULL)))
            continue; /* rounded_at_the_largest_double tests these */
        cr_assert_eq(strtod(text, NULL), strtod(expected, NULL), "%s, not %s", text, expected);
        expect_digits(text, expected);
        cr_assert_leq(size, 24);
    }
}

/* Rounds a value to `digits` digits and compares the text with printf's. */
static void check_rounded(double value, int digits) {
    char text[64], expected[64];
    size_t size = number_write_rounded(text, value, digits);
    cr_assert_leq(size, 24);
    text[size] = '\0';
    cr_assert_eq(size, strspn(text, "-0123456789.e"), "%a to %d digits", value, digits);
    sprintf(expected, "%.*g", digits, value);
    cr_assert_eq(strtod(text, NULL), strtod(expected, NULL), "%s, not %s", text, expected);
    expect_digits(text, expected);
}

/* A number just below a power of ten may be rounded up to it, which has one digit more. */
Test(codec_number, rounded_at_powers_of_ten) {
    for (int exponent = -320; exponent <= 308; exponent++) {
        char power[16];
        sprintf(power, "1e%d", exponent);
        double middle = strtod(power, NULL);
        float narrow = strtof(power, NULL);
        double values[6] = {middle, nextafter(middle, 0), nextafter(middle, INFINITY)};
        if (narrow > 0 && narrow < FLT_MAX) {
            values[3] = (double)narrow;
            values[4] = (double)nextafterf(narrow, 0);
            values[5] = (double)nextafterf(narrow, INFINITY);
        }
        for (int i = 0; i < 6; i++) {
            for (int digits = 1; digits <= 17; digits++) {
                check_rounded(values[i], digits);
                check_rounded(-values[i], digits);
            }
        }
    }
}

/* Where printf rounds up to a text that reads as infinity, the last digit is one less. */
Test(codec_number, rounded_at_the_largest_double) {
    static const char *const down[18] = {NULL,
                                         "1e308",
                                         "1.7e308",
                                         "1.79e308",
                                         "1.797e308",
                                         "1.7976e308",
                                         "1.79769e308",
                                         "1.797693e308",
                                         "1.7976931e308",
                                         "1.79769313e308",
                                         "1.797693134e308",
                                         "1.7976931348e308",
                                         "1.79769313486e308",
                                         "1.797693134862e308",
                                         "1.7976931348623e308",
                                         "1.79769313486231e308",
                                         "1.797693134862315e308",
                                         "1.7976931348623157e308"};
    for (int digits = 1; digits <= 17; digits++) {
        char text[NUMBER_SIZE + 1];
        const size_t size = number_write_rounded(text, -DBL_MAX, digits);
        text[size] = '\0';
        cr_expect_str_eq(text + 1, down[digits]);
        check_rounded(1.4e308, digits);
        check_rounded(nextafter(1e308, INFINITY), digits);
    }
}

/* Whole numbers of LIMBS limbs of 32 bits, the lowest first. They hold 2^320. */
enum {
    LIMBS = 11,
    ONE_BIT = 320
};

static void multiply_limbs(uint32_t number[LIMBS], uint32_t factor) {
    uint64_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)number[i] * factor;
        number[i] = (uint32_t)carry;
        carry >>= 32;
    }
    cr_assert_eq(carry, 0);
}

static void divide_limbs(uint32_t number[LIMBS], uint32_t divisor) {
    uint64_t rest = 0;
    for (int i = LIMBS - 1; i >= 0; i--) {
        rest = rest << 32 | number[i];
        number[i] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
}

/* Returns the first 64 bits of a number, cut off. *log2 is the place of the first bit. */
static uint64_t first_bits(const uint32_t number[LIMBS], int *log2) {
    int top = LIMBS * 32 - 1;
    uint64_t bits = 0;
    while ((number[top / 32] >> top % 32 & 1) == 0) {
        top--;
    }
    for (int i = top; i > top - 64; i--) {
        bits = bits << 1 | (i < 0 ? 0 : number[i / 32] >> i % 32 & 1);
    }
    *log2 = top;
    return bits;
}

/* Every entry of the table equals the result of long multiplication, or of long division of
 * 2^320. */
Test(codec_number, table_of_powers) {
    for (int e = POWER_MIN; e <= POWER_MAX; e++) {
        uint32_t number[LIMBS] = {0};
        int one = e < 0 ? ONE_BIT : 0, log2;
        number[one / 32] = 1;
        for (int i = 0; i < abs(e); i++) {
            if (e < 0) {
                divide_limbs(number, 10);
            } else {
                multiply_limbs(number, 10);
            }
        }
        uint64_t bits = first_bits(number, &log2);
        cr_expect_eq(codec_powers[e - POWER_MIN], bits, "10^%d", e);
        cr_expect_eq(codec_power_log2(e), log2 - one, "10^%d", e);
    }
    for (int e = POWER_MAX + 1; e < 350; e++) { /* the logarithm holds beyond the table */
        cr_expect_eq(codec_power_log2(e), (int)floor(e * log2(10)), "10^%d", e);
        cr_expect_eq(codec_power_log2(-e), (int)floor(-e * log2(10)), "10^%d", -e);
    }
}

/* Every unit of floats is the power of ten of its entry, shifted, with k + 64 at its end. */
Test(codec_number, table_of_units) {
    cr_expect_eq(codec_float_units[0], 64 - 6);
    for (int e = 1; e < 256; e++) {
        const int q = e - 150, k = (int)floor(q * log10(2)), shift = 3 - q - codec_power_log2(-k);
        if (e == 255 || -k > POWER_MAX) {
            cr_expect_eq(codec_float_units[e], 0, "%d", e);
            continue;
        }
        cr_expect(-k >= POWER_MIN && shift >= 0 && shift <= 3);
        const uint64_t unit = codec_powers[-k - POWER_MIN] >> shift;
        cr_expect_eq(codec_float_units[e], (unit & ~UINT64_C(127)) + (uint64_t)(k + 64), "%d", e);
    }
}

Test(codec_number, written_forms) {
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},
                 {-0.0, "-0"},
                 {1, "1"},
                 {-1, "-1"},
                 {10, "10"},
                 {100000, "100000"},
                 {9999999, "9999999"},
                 {-1234567, "-1234567"},
                 {0.5, "0.5"},
                 {-0.25, "-0.25"},
                 {0.1, "0.1"},
                 {1.5, "1.5"},
                 {123.456, "123.456"},
                 {16777216, "16777216"},
                 {0.001, "0.001"},
                 {0.000125, "0.000125"},
                 {1e-5, "1e-5"},
                 {1.5e-7, "1.5e-7"},
                 {1e7, "1e7"},
                 {12000000, "12000000"},
                 {1.5e30, "1.5e30"},
                 {-1e-30, "-1e-30"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[NUMBER_SIZE + 1];
        text[number_write_double(text, cases[i].value)] = '\0';
        cr_expect_str_eq(text, cases[i].text);
        text[number_write_float(text, (float)cases[i].value)] = '\0';
        cr_expect_str_eq(text, cases[i].text);
    }
}
