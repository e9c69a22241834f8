/* test_codec_results.c - results as bytes: their names and types, rounding to 16 bits, and reading
 * them in pieces of any size. */
#include <fenv.h>

#include "codec/binary.h"
#include "test_codec.h"
#include "test_halves.h"

/* Returns a result of this type that borrows floats. */
static struct codec_result result_of(const float *numbers, size_t count, enum codec_type type) {
    return (struct codec_result){
        .tensor = {.data = numbers, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {count}},
        .type = type,
        .bytes = count * codec_type_size(type)};
}

static uint16_t narrow_one(float number, enum codec_type type) {
    const struct codec_result result = result_of(&number, 1, type);
    uint16_t bits;
    codec_result_read(&result, 0, &bits, sizeof bits);
    return bits;
}

static double value_of(uint16_t bits, enum codec_type type) {
    return type == CODEC_TYPE_FP16 ? half_value(bits) : bfloat_value(bits);
}

/* Rounds to the nearest number of the type in plain arithmetic, with ties to even: to a multiple of
 * the distance between the numbers around it. */
static double round_plainly(double number, enum codec_type type) {
    const bool half = type == CODEC_TYPE_FP16;
    const int fraction = half ? 10 : 7, least = half ? -14 : -126;
    int exponent;
    frexp(number, &exponent);
    exponent = exponent - 1 < least ? least : exponent - 1;
    const double step = ldexp(1, exponent - fraction);
    const double rounded = nearbyint(number / step) * step;
    const double beyond = ldexp(1, half ? 16 : 128);
    return fabs(rounded) >= beyond ? copysign((double)INFINITY, number) : rounded;
}

static void expect_rounded(float number, enum codec_type type) {
    const uint16_t bits = narrow_one(number, type);
    const double got = value_of(bits, type), expected = round_plainly((double)number, type);
    cr_assert(got == expected && signbit(got) == (signbit(number) != 0), "%a becomes %a, not %a",
              (double)number, got, expected);
}

Test(codec_results, numbers_of_16_bits_stay) {
    for (enum codec_type type = CODEC_TYPE_FP16; type <= CODEC_TYPE_BF16; type++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            const double value = value_of((uint16_t)bits, type);
            if (!isnan(value)) { /* no result is a NaN */
                cr_assert_eq(narrow_one((float)value, type), bits, "%04x", (unsigned)bits);
            }
        }
    }
}

/* Tries each number halfway between two neighbours, and the floats beside it. They are the hardest
 * ones, also among subnormal numbers and at the largest number. */
Test(codec_results, ties_are_rounded_to_even) {
    cr_assert_eq(fegetround(), FE_TONEAREST);
    for (enum codec_type type = CODEC_TYPE_FP16; type <= CODEC_TYPE_BF16; type++) {
        const uint32_t infinity = type == CODEC_TYPE_FP16 ? 0x7C00 : 0x7F80;
        for (uint32_t bits = 0; bits < infinity; bits++) {
            const double low = value_of((uint16_t)bits, type);
            const double high = bits + 1 < infinity ? value_of((uint16_t)(bits + 1), type)
                                                    : ldexp(1, type == CODEC_TYPE_FP16 ? 16 : 128);
            const float tie = (float)((low + high) / 2);
            cr_assert_eq((double)tie, (low + high) / 2);
            for (int sign = -1; sign < 2; sign += 2) {
                expect_rounded((float)sign * tie, type);
                expect_rounded((float)sign * nextafterf(tie, 0), type);
                expect_rounded((float)sign * nextafterf(tie, INFINITY), type);
            }
        }
    }
}

Test(codec_results, random_numbers_are_rounded) {
    for (int i = 0; i < 200000; i++) {
        union {
            uint32_t bits;
            float number;
        } any = {.bits = (uint32_t)random_bits()};
        if (isfinite(any.number)) {
            expect_rounded(any.number, CODEC_TYPE_FP16);
            expect_rounded(any.number, CODEC_TYPE_BF16);
        }
    }
    cr_expect_eq(narrow_one(-INFINITY, CODEC_TYPE_FP16), 0xFC00);
    cr_expect_eq(narrow_one(-INFINITY, CODEC_TYPE_BF16), 0xFF80);
    cr_expect_eq(narrow_one(-0.0F, CODEC_TYPE_FP16), 0x8000);
    cr_expect_eq(narrow_one(0x1p-149F, CODEC_TYPE_FP16), 0);
}

Test(codec_results, numbers_out_of_range) {
    static const struct {
        float number;
        bool half, bfloat; /* out of the range of the type */
    } rows[] = {{65519.996F, false, false}, {65520, true, false},
                {-65520, true, false},      {0x1.FEFFFEp+127F, true, false},
                {0x1.FFp+127F, true, true}, {-0x1.FFFFFEp+127F, true, true},
                {-INFINITY, false, false},  {0, false, false}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        float numbers[40] = {1, 2, 3};
        numbers[37] = rows[i].number;
        const struct codec_result half = result_of(numbers, COUNT(numbers), CODEC_TYPE_FP16);
        const struct codec_result bfloat = result_of(numbers, COUNT(numbers), CODEC_TYPE_BF16);
        const struct codec_result single = result_of(numbers, COUNT(numbers), CODEC_TYPE_FP32);
        cr_expect_eq(codec_result_out_of_range(&half, 0, 40), rows[i].half ? 37 : SIZE_MAX, "%zu",
                     i);
        cr_expect_eq(codec_result_out_of_range(&bfloat, 0, 40), rows[i].bfloat ? 37 : SIZE_MAX,
                     "%zu", i);
        cr_expect_eq(codec_result_narrowed(&single), 0);
        cr_expect_eq(codec_result_narrowed(&half), codec_result_narrowed(&bfloat));
        /* The number is in the piece [37, 38), and neither before nor behind it. */
        cr_expect_eq(codec_result_out_of_range(&half, 37, 1), rows[i].half ? 37 : SIZE_MAX);
        cr_expect_eq(codec_result_out_of_range(&half, 0, 37), SIZE_MAX);
        cr_expect_eq(codec_result_out_of_range(&half, 38, 2), SIZE_MAX);
        /* A number that is not refused does not become infinite. */
        if (isfinite(rows[i].number)) {
            cr_expect_eq(isinf(half_value(narrow_one(rows[i].number, CODEC_TYPE_FP16))) != 0,
                         rows[i].half);
            cr_expect_eq(isinf(bfloat_value(narrow_one(rows[i].number, CODEC_TYPE_BF16))) != 0,
                         rows[i].bfloat);
        }
    }
}

Test(codec_results, pieces_of_any_size) {
    enum {
        NUMBERS = 700
    };
    static const size_t pieces[] = {1, 2, 3, 5, 7, 255, 256, 257, 511, 512, 513, 1023, 1399, 2800};
    static const enum codec_type types[] = {CODEC_TYPE_FP16, CODEC_TYPE_BF16, CODEC_TYPE_FP32};
    float numbers[NUMBERS];
    for (size_t i = 0; i < NUMBERS; i++) {
        numbers[i] = (float)(i * i % 991) / 7;
    }
    for (size_t t = 0; t < COUNT(types); t++) {
        const struct codec_result result = result_of(numbers, NUMBERS, types[t]);
        char whole[NUMBERS * 4];
        codec_result_read(&result, 0, whole, result.bytes);
        cr_expect_eq(codec_result_bytes(&result) == NULL, types[t] != CODEC_TYPE_FP32);
        for (size_t k = 0; k < COUNT(pieces); k++) {
            for (size_t at = 0, part; at < result.bytes; at += part) {
                part = pieces[k] < result.bytes - at ? pieces[k] : result.bytes - at;
                char *piece = malloc(part); /* a sanitizer sees a write beyond it */
                codec_result_read(&result, at, piece, part);
                cr_assert_eq(memcmp(piece, whole + at, part), 0, "%zu bytes from %zu on", part, at);
                free(piece);
            }
        }
    }
}

/* ----------------------------------------------------------------------------------- the list */

static const float floats[12] = {1, 2, 3};
static const double doubles[2] = {1, 2};
static const int64_t indices[2] = {0, 1};
static const attn_result_tensor parts[] = {
    {.data = (void *)(uintptr_t)floats, .dtype = ATTN_FLOAT32, .rank = 2, .shape = {2, 3}},
    {.data = (void *)(uintptr_t)floats, .dtype = ATTN_FLOAT32, .rank = 2, .shape = {1, 4}}};
static const char *const words[] = {"a", "\"b\""};

static const struct codec_item answer[] = {
    {.op = CODEC_OP_OBJECT},
    TENSOR_ITEM("output", floats, ATTN_FLOAT32, 3, 1, 3, 4),
    {.op = CODEC_OP_TEXTS, .key = "tokens", .texts = words, .count = 2},
    {.op = CODEC_OP_IDS, .key = "vocabulary", .texts = words, .ids = indices, .count = 2},
    {.op = CODEC_OP_OBJECT, .key = "top_k"},
    TENSOR_ITEM("indices", indices, ATTN_INT64, 1, 2),
    TENSOR_ITEM("weights", doubles, ATTN_FLOAT64, 2, 2, 1),
    {.op = CODEC_OP_END},
    {.op = CODEC_OP_PARTS, .key = "Q", .parts = parts, .count = 2},
    {.op = CODEC_OP_OBJECT, .key = "statistics"},
    {.op = CODEC_OP_OBJECT, .key = "variance"},
    {.op = CODEC_OP_NUMBER, .key = "Q", .number = 0.25},
    {.op = CODEC_OP_END},
    {.op = CODEC_OP_END},
    {.op = CODEC_OP_END}};

static const struct {
    const char *name;
    enum codec_type type, narrow; /* the type if nothing is narrow, and if that is FP16 */
    int rank;
    size_t bytes, narrow_bytes;
} listed[] = {{"output", CODEC_TYPE_FP32, CODEC_TYPE_FP16, 3, 48, 24},
              {"top_k.indices", CODEC_TYPE_INT64, CODEC_TYPE_INT64, 1, 16, 16},
              {"top_k.weights", CODEC_TYPE_FP64, CODEC_TYPE_FP64, 2, 16, 16},
              {"Q.0", CODEC_TYPE_FP32, CODEC_TYPE_FP16, 2, 24, 12},
              {"Q.1", CODEC_TYPE_FP32, CODEC_TYPE_FP16, 2, 16, 8},
              {"statistics.variance.Q", CODEC_TYPE_FP64, CODEC_TYPE_FP64, 0, 8, 8}};

Test(codec_results, names_and_types) {
    for (int narrow = 0; narrow < 2; narrow++) {
        struct codec_results results = {0};
        cr_assert(codec_results_make(&results, answer, COUNT(answer),
                                     narrow ? CODEC_TYPE_FP16 : CODEC_TYPE_FP32, test_account()));
        cr_assert(results.count == COUNT(listed) && results.list != NULL);
        for (size_t i = 0; i < COUNT(listed); i++) {
            const struct codec_result *result = &results.list[i];
            cr_expect_str_eq(result->name, listed[i].name);
            cr_expect_eq(result->type, narrow ? listed[i].narrow : listed[i].type);
            cr_expect_eq(result->tensor.rank, listed[i].rank);
            cr_expect_eq(result->bytes, narrow ? listed[i].narrow_bytes : listed[i].bytes);
        }
        double number = 0;
        codec_result_read(&results.list[5], 0, &number, sizeof number);
        cr_expect_eq(number, 0.25);
        codec_results_free(&results);
        cr_expect_null(results.list);
    }
}

Test(codec_results, memory_refused) {
    bool made = false;
    for (size_t most = 0; !made; most += 64) {
        struct budget budget = {.max_request = most, .max_total = 4 * most + 2};
        struct account account;
        struct codec_results results = {0};
        account_open(&account, &budget, 0);
        made = codec_results_make(&results, answer, COUNT(answer), CODEC_TYPE_FP32, &account);
        cr_expect(made || account.refusal != ACCOUNT_NOT_REFUSED);
        cr_expect(made == (results.count == COUNT(listed)));
        codec_results_free(&results);
        cr_expect_eq(account.held, 0);
        account_close(&account);
        cr_assert_lt(most, 1 << 20);
    }
}
