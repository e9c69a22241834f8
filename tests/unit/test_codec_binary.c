/* test_codec_binary.c - tensors that arrive as bytes: every type, every cut, numbers that are not
 * finite, forms that are refused, and memory that is refused. */
#include <math.h>

#include "codec/binary.h"
#include "codec/json/document.h"
#include "test_codec.h"
#include "test_halves.h"

/* A tensor and its bytes. */
struct sent {
    enum codec_type type;
    int rank;
    size_t shape[4];
    const void *bytes;
};

static struct codec_tensor_spec spec_of(const struct sent *sent) {
    struct codec_tensor_spec spec = {
        .type = sent->type, .rank = sent->rank, .bytes = codec_type_size(sent->type)};
    for (int axis = 0; axis < sent->rank; axis++) {
        spec.shape[axis] = sent->shape[axis];
        spec.bytes *= sent->shape[axis];
    }
    spec.bytes /= codec_type_together(sent->type);
    return spec;
}

/* Makes a document {"T0":0,"T1":0,...} of this float type. */
static struct codec_document *empty_document(size_t count, bool wide, struct account *account) {
    const struct codec_options options = {.dtype_key = "dtype", .account = account};
    char text[512];
    int size = sprintf(text, "{\"dtype\":\"%s\"", wide ? "float64" : "float32");
    for (size_t i = 0; i < count; i++) {
        size += sprintf(text + size, ",\"T%zu\":0", i);
    }
    size += sprintf(text + size, "}");
    return read_cuts(text, (size_t)size, &options, 0, false).document;
}

/* Gives the bytes to the stream, with a cut after the first `cut` bytes and then after each
 * `piece`. Each piece is a block of its own, so a sanitizer sees every read beyond it. */
static bool arrive(struct codec_stream *stream, const char *bytes, size_t size, size_t cut,
                   size_t piece, struct codec_error *error) {
    for (size_t at = 0, part; at < size; at += part) {
        part = at == 0 && cut > 0 ? cut : piece;
        part = part < size - at ? part : size - at;
        char *copy = malloc(part);
        memcpy(copy, bytes + at, part);
        const bool good = codec_stream_feed(stream, copy, part, error);
        free(copy);
        if (!good) {
            return false;
        }
    }
    return codec_stream_finish(stream, error);
}

/* Receives tensors whose bytes are `bytes`. The document is NULL if they are refused. */
static struct outcome receive(const struct sent *list, size_t count, const char *bytes, size_t size,
                              size_t cut, size_t piece, bool wide, struct account *account) {
    struct outcome outcome = {.document = empty_document(count, wide, account)};
    struct codec_stream stream = {.document = outcome.document};
    bool good = outcome.document != NULL;
    for (size_t i = 0; good && i < count; i++) {
        char name[24];
        const struct codec_tensor_spec spec = spec_of(&list[i]);
        sprintf(name, "T%zu", i);
        good = codec_stream_add(&stream, member(outcome.document, name), &spec, &outcome.error);
    }
    if (!good || !arrive(&stream, bytes, size, cut, piece, &outcome.error)) {
        codec_document_free(outcome.document);
        outcome.document = NULL;
    }
    return outcome;
}

/* Receives one whole tensor, which must be accepted. */
static struct outcome receive_one(const struct sent *sent, bool wide) {
    struct outcome outcome =
        receive(sent, 1, sent->bytes, spec_of(sent).bytes, 0, SIZE_MAX, wide, test_account());
    cr_assert_not_null(outcome.document, "%s", outcome.error.message);
    return outcome;
}

/* --------------------------------------------------------------------------------- every type */

/* Converts one element in plain arithmetic. */
static void convert_plainly(enum codec_type type, const void *bytes, double *wide, float *narrow) {
#define PLAINLY(name, from)                                                                        \
    case CODEC_TYPE_##name: {                                                                      \
        from element;                                                                              \
        memcpy(&element, bytes, sizeof element);                                                   \
        *wide = (double)element;                                                                   \
        *narrow = (float)element;                                                                  \
        break;                                                                                     \
    }
    uint16_t half;
    switch (type) {
        PLAINLY(UINT8, uint8_t)
        PLAINLY(UINT16, uint16_t)
        PLAINLY(UINT32, uint32_t)
        PLAINLY(UINT64, uint64_t)
        PLAINLY(INT8, int8_t)
        PLAINLY(INT16, int16_t)
        PLAINLY(INT32, int32_t)
        PLAINLY(INT64, int64_t)
        PLAINLY(FP32, float)
        PLAINLY(FP64, double)
    case CODEC_TYPE_FP8_E8M0:
        *wide =
            *(const uint8_t *)bytes == 255 ? (double)NAN : ldexp(1, *(const uint8_t *)bytes - 127);
        *narrow = (float)*wide;
        break;
    case CODEC_TYPE_FP8_E4M3:
    case CODEC_TYPE_FP8_E5M2:
        *wide = type == CODEC_TYPE_FP8_E4M3 ? e4m3_value(*(const uint8_t *)bytes)
                                            : e5m2_value(*(const uint8_t *)bytes);
        *narrow = (float)*wide;
        break;
    case CODEC_TYPE_FP16:
    case CODEC_TYPE_BF16:
        memcpy(&half, bytes, sizeof half);
        *wide = type == CODEC_TYPE_FP16 ? half_value(half) : bfloat_value(half);
        *narrow = (float)*wide;
        break;
    default:
        *wide = *narrow = 0;
        cr_assert_fail("type %d", (int)type);
    }
#undef PLAINLY
}

/* Expects that the tensor has exactly these numbers; the bits of a NaN do not matter. */
static void expect_converted(const struct sent *sent, bool wide) {
    struct outcome outcome = receive_one(sent, wide);
    const struct codec_tensor *got = document_tensor(member(outcome.document, "T0"));
    const size_t size = codec_type_size(sent->type);
    cr_assert_eq(got->dtype, wide ? ATTN_FLOAT64 : ATTN_FLOAT32);
    cr_assert_eq(got->count, codec_count(sent->rank, sent->shape));
    for (size_t i = 0; i < got->count; i++) {
        const unsigned char *bytes = sent->bytes;
        double large;
        float small;
        if (sent->type == CODEC_TYPE_FP4_E2M1) {
            large = e2m1_value(i % 2 == 0 ? bytes[i / 2] % 16 : bytes[i / 2] / 16);
            small = (float)large;
        } else {
            convert_plainly(sent->type, bytes + i * size, &large, &small);
        }
        const double expected = wide ? large : (double)small, number = codec_tensor_number(got, i);
        cr_assert(isnan(expected) ? isnan(number)
                                  : number == expected && signbit(number) == signbit(expected),
                  "%s to %s, element %zu: %a, not %a", codec_inference_types[sent->type],
                  wide ? "double" : "float", i, number, expected);
    }
    codec_document_free(outcome.document);
}

Test(codec_binary, every_type) {
    enum {
        BYTES = 24000
    };
    unsigned char *bytes = malloc(BYTES + 1), *odd = bytes + 1; /* the bytes need no alignment */
    for (size_t i = 0; i < BYTES; i++) { /* many of them are the least and the largest numbers */
        odd[i] = i % 480 < 40   ? (unsigned char)(i / 480 % 2 == 0 ? 0xFF : 0)
                 : i % 480 < 48 ? (unsigned char)(i % 8 == 7 ? 0x80 : 0)
                                : (unsigned char)random_bits();
    }
    for (enum codec_type type = CODEC_TYPE_UINT8; type < CODEC_TYPE_COUNT; type++) {
        const size_t size = codec_type_size(type);
        const struct sent sent = {type, 2, {BYTES / size / 4, 4 * codec_type_together(type)}, odd};
        expect_converted(&sent, false);
        expect_converted(&sent, true);
    }
    free(bytes);
}

Test(codec_binary, every_half_and_bfloat) {
    static uint16_t all[65536];
    for (size_t i = 0; i < COUNT(all); i++) {
        all[i] = (uint16_t)i;
    }
    for (enum codec_type type = CODEC_TYPE_FP16; type <= CODEC_TYPE_BF16; type++) {
        const struct sent sent = {type, 2, {256, 256}, all};
        expect_converted(&sent, false);
        expect_converted(&sent, true);
    }
}

Test(codec_binary, every_number_of_8_bits) {
    uint8_t all[256];
    size_t finite[2] = {0};
    for (size_t i = 0; i < COUNT(all); i++) {
        all[i] = (uint8_t)i;
        finite[0] += isfinite(e4m3_value(all[i])) != 0;
        finite[1] += isfinite(e5m2_value(all[i])) != 0;
    }
    cr_assert_eq(finite[0], 254); /* all but the two NaN */
    cr_assert_eq(finite[1], 248); /* all but two infinities and six NaN */
    cr_assert_eq(e4m3_value(0x7E), 448);
    cr_assert_eq(e5m2_value(0x7B), 57344);
    cr_assert_eq(e2m1_value(0x7), 6);
    for (enum codec_type type = CODEC_TYPE_FP4_E2M1; type <= CODEC_TYPE_FP8_E5M2; type++) {
        const struct sent sent = {type, 2, {16, 16 * codec_type_together(type)}, all};
        expect_converted(&sent, false);
        expect_converted(&sent, true);
    }
}

/* The numbers of each chunk get the scales of their blocks, wherever the chunk begins. */
Test(codec_binary, scales_in_chunks) {
    enum {
        NUMBERS = 2 * 3 * 4 * 6
    };
    static float numbers[NUMBERS];
    const double wide_scales[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float scales[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    for (size_t i = 0; i < NUMBERS; i++) {
        numbers[i] = (float)i + 1;
    }
    const struct sent sent = {CODEC_TYPE_FP32, 4, {2, 3, 4, 6}, numbers};
    for (int wide = 0; wide < 2; wide++) {
        const attn_tensor scale = {.data = wide ? (const void *)wide_scales : scales,
                                   .dtype = wide ? ATTN_FLOAT64 : ATTN_FLOAT32,
                                   .rank = 4,
                                   .shape = {2, 1, 2, 3}};
        for (size_t cut = 0; cut <= NUMBERS; cut++) {
            struct outcome outcome = receive_one(&sent, wide != 0);
            const struct codec_value *value = member(outcome.document, "T0");
            codec_scale(value, &scale, 0, cut);
            codec_scale(value, &scale, cut, NUMBERS);
            for (size_t i = 0; i < NUMBERS; i++) {
                const size_t block = i / 72 * 6 + i / 12 % 2 * 3 + i / 2 % 3;
                cr_assert_eq(codec_tensor_number(document_tensor(value), i),
                             (double)numbers[i] * wide_scales[block], "cut %zu, element %zu", cut,
                             i);
            }
            codec_document_free(outcome.document);
        }
    }
}

/* Whole numbers stay exact where they are indices or lengths, however many there are. Those of a
 * matrix are rounded like any other. */
Test(codec_binary, whole_numbers_are_exact) {
    enum {
        MANY = 5000
    };
    static int64_t numbers[MANY], out[MANY];
    for (size_t i = 0; i < MANY; i++) {
        numbers[i] = i % 2 == 0 ? 16777217 : 9007199254740991 - (int64_t)i;
    }
    for (int exact = 0; exact < 2; exact++) {
        const struct codec_tensor_spec spec = {.type = CODEC_TYPE_INT64,
                                               .rank = 1,
                                               .shape = {MANY},
                                               .bytes = sizeof numbers,
                                               .exact = exact};
        struct codec_document *document = empty_document(1, false, test_account());
        const struct codec_value *value = member(document, "T0");
        struct codec_stream stream = {.document = document};
        struct codec_error error = {0};
        size_t count = 0;
        cr_assert(codec_stream_add(&stream, value, &spec, &error) &&
                  codec_stream_feed(&stream, numbers, sizeof numbers, &error));
        cr_assert_eq(codec_as_integers(document, value, 0, INT64_MAX, out, MANY, &count, &error),
                     exact, "%s", error.message);
        cr_expect(!exact || (count == MANY && memcmp(out, numbers, sizeof numbers) == 0));
        attn_tensor tensor;
        cr_assert(codec_as_reals(document, value, 1, 1, &tensor, &error));
        cr_expect_eq(tensor.dtype, exact ? ATTN_FLOAT64 : ATTN_FLOAT32);
        cr_expect(exact || *(const float *)tensor.data == 16777216.0F);
        codec_document_free(document);
    }
}

/* --------------------------------------------------------------------------------- every cut */

static const float six[] = {1, -2, 0.1F, 4, 5.5F, -0.0F};
static const int64_t two[] = {-1, INT64_C(1) << 40};
static const struct sent small[] = {{CODEC_TYPE_FP32, 2, {2, 3}, six},
                                    {CODEC_TYPE_BOOL, 1, {3}, "\1\0\1"},
                                    {CODEC_TYPE_INT64, 1, {2}, two},
                                    {CODEC_TYPE_FP16, 3, {1, 3, 1}, "\0\x3C\1\0\xFF\x7B"},
                                    {CODEC_TYPE_UINT8, 1, {1}, "\xFF"}};

/* Joins the bytes of the small tensors, and returns how many they are. */
static size_t join_small(char bytes[64]) {
    size_t size = 0;
    for (size_t i = 0; i < COUNT(small); i++) {
        const size_t part = spec_of(&small[i]).bytes;
        memcpy(bytes + size, small[i].bytes, part);
        size += part;
    }
    return size;
}

Test(codec_binary, every_cut) {
    char bytes[64];
    const size_t size = join_small(bytes), held = test_account()->held;
    for (int wide = 0; wide < 2; wide++) {
        struct outcome whole =
            receive(small, COUNT(small), bytes, size, 0, SIZE_MAX, wide != 0, test_account());
        cr_assert_not_null(whole.document, "%s", whole.error.message);
        char *expected = dump(whole.document);
        codec_document_free(whole.document);
        for (size_t cut = 1; cut < size; cut++) {
            for (size_t piece = 1; piece <= size; piece += piece < 12 ? 1 : size) {
                struct outcome other = receive(small, COUNT(small), bytes, size, cut, piece,
                                               wide != 0, test_account());
                cr_assert_not_null(other.document, "%s", other.error.message);
                char *actual = dump(other.document);
                cr_expect_str_eq(actual, expected, "cut after %zu and each %zu", cut, piece);
                free(actual);
                codec_document_free(other.document);
            }
        }
        free(expected);
    }
    cr_expect_eq(test_account()->held, held);
}

/* A body that is too short names the tensor in which it ends. */
Test(codec_binary, too_short_and_too_long) {
    char bytes[65] = "";
    const size_t size = join_small(bytes), held = test_account()->held;
    for (size_t piece = 1; piece < 70; piece += 17) {
        size_t end = 0, tensor = 0;
        for (size_t short_of = 0; short_of < size; short_of++) {
            char expected[128];
            while (short_of >= end + spec_of(&small[tensor]).bytes) {
                end += spec_of(&small[tensor++]).bytes;
            }
            sprintf(expected,
                    "the body ends inside the tensor \"T%zu\": %zu of its %zu bytes are "
                    "there",
                    tensor, short_of - end, spec_of(&small[tensor]).bytes);
            struct outcome outcome =
                receive(small, COUNT(small), bytes, short_of, 0, piece, false, test_account());
            cr_assert_null(outcome.document);
            cr_expect_eq(outcome.error.status, CODEC_SYNTAX);
            cr_expect_str_eq(outcome.error.message, expected);
        }
        struct outcome outcome =
            receive(small, COUNT(small), bytes, size + 1, 0, piece, false, test_account());
        cr_expect_null(outcome.document);
        cr_expect_eq(outcome.error.status, CODEC_SYNTAX);
        cr_expect_str_eq(outcome.error.message, "the body has bytes after the last of its tensors");
    }
    cr_expect_eq(test_account()->held, held);
}

/* ------------------------------------------------------------------- numbers that are refused */

/* Expects that both accessors of matrices say this of T0; NULL: they accept it. */
static void expect_said(struct codec_document *document, const char *reals, const char *or_null) {
    struct codec_error error;
    attn_tensor tensor;
    const struct codec_value *value = member(document, "T0");
    const bool good = codec_as_reals(document, value, 1, 8, &tensor, &error);
    cr_expect_eq(good, reals == NULL, "%s", reals);
    if (reals != NULL) {
        cr_expect_eq(error.status, CODEC_CONTENT);
        cr_expect_str_eq(error.message, reals);
    }
    const bool also = codec_as_reals_or_null(document, value, 1, 8, &tensor, &error);
    cr_expect_eq(also, or_null == NULL, "%s", or_null);
    if (or_null != NULL) {
        cr_expect_str_eq(error.message, or_null);
    }
}

Test(codec_binary, numbers_that_are_not_finite) {
#define NUMBER(type, number, narrow, narrow_or_null, wide, wide_or_null)                           \
    { CODEC_TYPE_##type, number, narrow, narrow_or_null, wide, wide_or_null }
#define BEYOND(type, number, text)                                                                 \
    NUMBER(type, number, "T0/0/1 is " text ", which is out of the range of float32",               \
           "T0/0/1 is " text ", which is out of the range of float32", NULL, NULL)
#define NOT(text)                 "T0/0/1 must be a finite number, not " text
#define NEVER(type, number, text) NUMBER(type, number, NOT(text), NOT(text), NOT(text), NOT(text))
#define MINUS_INFINITY(type, number)                                                               \
    NUMBER(type, number, NOT("-Infinity"), NULL, NOT("-Infinity"), NULL)
    static const struct {
        enum codec_type type;
        double number; /* in types of 8 and 16 bits the bits */
        const char *narrow, *narrow_or_null, *wide, *wide_or_null;
    } rows[] = {BEYOND(FP64, 1e300, "1e300"),
                BEYOND(FP64, -1e39, "-1e39"),
                NUMBER(FP64, 1e-320, NULL, NULL, NULL, NULL),
                NEVER(FP64, (double)NAN, "NaN"),
                NEVER(FP32, (double)INFINITY, "Infinity"),
                MINUS_INFINITY(FP32, -(double)INFINITY),
                MINUS_INFINITY(FP64, -(double)INFINITY),
                MINUS_INFINITY(FP16, 0xFC00),
                NEVER(FP16, 0x7C01, "NaN"),
                NEVER(FP8_E4M3, 0xFF, "NaN"),
                MINUS_INFINITY(FP8_E5M2, 0xFC),
                NEVER(FP8_E5M2, 0x7D, "NaN"),
                NEVER(FP8_E8M0, 0xFF, "NaN"),
                NEVER(BF16, 0x7F80, "Infinity")};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char bytes[4 * 8] = "";
        const size_t size = codec_type_size(rows[i].type);
        const float narrow = (float)rows[i].number;
        const uint16_t bits = (uint16_t)(size <= 2 ? rows[i].number : 0);
        memcpy(bytes + size,
               size == 8   ? (const void *)&rows[i].number
               : size == 4 ? (const void *)&narrow
                           : (const void *)&bits,
               size);
        const struct sent sent = {rows[i].type, 2, {2, 2}, bytes};
        struct outcome outcome = receive_one(&sent, false);
        expect_said(outcome.document, rows[i].narrow, rows[i].narrow_or_null);
        codec_document_free(outcome.document);
        outcome = receive_one(&sent, true);
        expect_said(outcome.document, rows[i].wide, rows[i].wide_or_null);
        codec_document_free(outcome.document);
    }
}

/* The first fault is named, whatever the cuts are. */
Test(codec_binary, the_first_number_at_fault) {
    const float rows[] = {0, -INFINITY, 1, NAN, INFINITY, -INFINITY};
    const struct sent sent = {CODEC_TYPE_FP32, 2, {3, 2}, rows};
    for (size_t piece = 1; piece < 30; piece++) {
        struct outcome outcome =
            receive(&sent, 1, sent.bytes, sizeof rows, 0, piece, false, test_account());
        expect_said(outcome.document, "T0/0/1 must be a finite number, not -Infinity",
                    "T0/1/1 must be a finite number, not NaN");
        codec_document_free(outcome.document);
    }
}

Test(codec_binary, booleans) {
    for (unsigned byte = 0; byte < 256; byte++) {
        for (size_t at = 0; at < 6; at++) {
            char bytes[6] = {1, 0, 1, 1, 0, 0}, expected[64];
            const struct sent sent = {CODEC_TYPE_BOOL, 2, {2, 3}, bytes};
            bytes[at] = (char)byte;
            struct outcome outcome =
                receive(&sent, 1, bytes, sizeof bytes, at, 2, false, test_account());
            cr_expect_eq(outcome.document != NULL, byte <= 1);
            if (outcome.document != NULL) {
                attn_tensor mask;
                cr_assert(codec_as_mask(outcome.document, member(outcome.document, "T0"), 2, 2,
                                        &mask, &outcome.error));
                cr_expect(mask.dtype == ATTN_BOOL && memcmp(mask.data, bytes, sizeof bytes) == 0);
                cr_expect_not(codec_as_reals(outcome.document, member(outcome.document, "T0"), 2, 2,
                                             &mask, &outcome.error));
            } else {
                sprintf(expected, "T0/%zu/%zu is the byte %u; a BOOL is 0 or 1", at / 3, at % 3,
                        byte);
                cr_expect_eq(outcome.error.status, CODEC_CONTENT);
                cr_expect_str_eq(outcome.error.message, expected);
            }
            codec_document_free(outcome.document);
        }
    }
}

/* ------------------------------------------------------------------------------------- memory */

/* A tensor of 1 to 2 MB grows from a block of malloc to pages of its own, in pieces of any size. */
Test(codec_binary, long_tensors_grow) {
    enum {
        ELEMENTS = 250000
    };
    char *bytes = malloc(ELEMENTS * 8);
    for (size_t i = 0; i < ELEMENTS; i++) {
        const double number = (double)(int64_t)random_bits() * 0x1p-60;
        memcpy(bytes + i * 8, &number, sizeof number);
    }
    for (int wide = 0; wide < 2; wide++) {
        const struct sent sent = {CODEC_TYPE_FP64, 2, {ELEMENTS / 10, 10}, bytes};
        const size_t pieces[] = {1021, 40001, SIZE_MAX};
        for (size_t k = 0; k < COUNT(pieces); k++) {
            struct outcome outcome =
                receive(&sent, 1, bytes, ELEMENTS * 8, 3, pieces[k], wide != 0, test_account());
            cr_assert_not_null(outcome.document, "%s", outcome.error.message);
            attn_tensor tensor;
            cr_assert(codec_as_reals(outcome.document, member(outcome.document, "T0"), 2, 2,
                                     &tensor, &outcome.error));
            for (size_t i = 0; i < ELEMENTS; i++) {
                double number;
                memcpy(&number, bytes + i * 8, sizeof number);
                cr_assert(wide != 0 ? ((const double *)tensor.data)[i] == number
                                    : ((const float *)tensor.data)[i] == (float)number);
            }
            codec_document_free(outcome.document);
        }
    }
    free(bytes);
}

/* Sends the first bytes of a tensor of 400 MB. Returns whether the account refuses them, and stores
 * the bytes that it held then. All of them must be given back. */
static enum account_refusal begin_huge(struct budget budget, size_t size, size_t *held) {
    static const char kilobyte[1024];
    const struct sent sent = {CODEC_TYPE_FP32, 2, {1000, 100000}, NULL};
    const struct codec_tensor_spec spec = spec_of(&sent);
    struct codec_error error;
    struct account account;
    account_open(&account, &budget, 0);
    struct codec_document *document = empty_document(1, true, &account);
    struct codec_stream stream = {.document = document};
    cr_assert(codec_stream_add(&stream, member(document, "T0"), &spec, &error));
    const bool taken = codec_stream_feed(&stream, kilobyte, size, &error);
    const enum account_refusal refusal = account.refusal;
    *held = account.held;
    cr_expect(taken ? !codec_stream_finish(&stream, &error) : error.status == CODEC_NO_MEMORY);
    codec_document_free(document);
    cr_expect_eq(account.held, 0);
    account_close(&account);
    cr_expect_eq(budget.used, 0);
    return refusal;
}

/* A client may declare 400 MB and send 1 KB: only what arrives takes memory. A tensor that no
 * request may hold is refused with its first byte. */
Test(codec_binary, sizes_that_are_only_declared) {
    const struct budget wide = {.max_request = (size_t)1 << 30, .max_total = (size_t)1 << 31},
                        tight = {.max_request = 1 << 20, .max_total = 4 << 20};
    size_t held;
    cr_assert_eq(begin_huge(wide, 1024, &held), ACCOUNT_NOT_REFUSED);
    cr_expect_lt(held, (size_t)3 << 20); /* one huge page, and the documents */
    cr_assert_eq(begin_huge(tight, 1, &held), ACCOUNT_OVER_REQUEST);
}

/* Receives the tensors with an account that may hold `most` bytes. All of them must be given
 * back. Returns whether they were accepted. */
static bool receive_within(const struct sent *list, size_t count, const char *bytes, size_t size,
                           size_t piece, size_t most) {
    struct budget budget = {.max_request = most, .max_total = 2 * most + 2};
    struct account account;
    account_open(&account, &budget, 0);
    const struct codec_options options = {.account = &account};
    struct codec_reader *reader = codec_reader_create(&options);
    struct outcome outcome = {0};
    codec_reader_free(reader);
    if (reader != NULL) { /* read_cuts() needs a reader */
        outcome = receive(list, count, bytes, size, 0, piece, false, &account);
    }
    if (outcome.document == NULL) {
        cr_expect_neq(account.refusal, ACCOUNT_NOT_REFUSED);
    }
    const bool good = outcome.document != NULL;
    codec_document_free(outcome.document);
    cr_expect_eq(account.held, 0, "%zu bytes remain of at most %zu", account.held, most);
    account_close(&account);
    cr_expect_eq(budget.used, 0);
    return good;
}

Test(codec_binary, memory_refused_at_every_step) {
    enum {
        LONG = 200000
    };
    char bytes[64], *zeros = calloc(LONG, 4);
    const size_t size = join_small(bytes);
    const struct sent sent = {CODEC_TYPE_FP16, 2, {LONG / 10, 10}, zeros};
    size_t refused = 0;
    for (size_t most = 0; !receive_within(small, COUNT(small), bytes, size, 5, most); most += 16) {
        refused++;
    }
    cr_expect_gt(refused, 50);
    for (size_t most = 0; !receive_within(&sent, 1, zeros, (size_t)LONG * 2, 3001, most);
         most += 4096) {
        refused++;
    }
    cr_expect_gt(refused, 200);
    free(zeros);
}

/* The largest floats are finite. */
Test(codec_binary, widens_the_largest_floats) {
    const float largest[] = {0x1.fffffep127f, -0x1p127f}, infinite[] = {1, INFINITY};
    float out[2];
    cr_expect(codec_widen(CODEC_TYPE_FP32, largest, 2, ATTN_FLOAT32, out));
    cr_expect_not(codec_widen(CODEC_TYPE_FP32, infinite, 2, ATTN_FLOAT32, out));
}
