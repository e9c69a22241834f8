/* test_codec_moved.c - arrays of JSON that become tensors of a stated type and shape: how they are
 * rounded, and which do not fit. */
#include <math.h>

#include "codec/binary.h"
#include "test_codec.h"

/* Moves an array of a document into T0, a tensor of two axes in another tree of this float type,
 * and converts one number after the other. Takes the document. */
static struct outcome move_value(struct codec_document *document, const struct codec_value *value,
                                 enum codec_type type, const size_t shape[2], bool wide) {
    struct outcome outcome = {.document = document};
    const struct codec_tensor_spec spec = {.type = type,
                                           .rank = 2,
                                           .shape = {shape[0], shape[1]},
                                           .bytes = shape[0] * shape[1] * codec_type_size(type)};
    struct codec_value *root = codec_make_value(document, NULL, NULL, CODEC_OBJECT);
    struct codec_value *at = codec_make_value(document, root, "T0", CODEC_NULL);
    codec_set_dtype(document, wide ? ATTN_FLOAT64 : ATTN_FLOAT32);
    bool good = codec_move_tensor(document, at, value, &spec, &outcome.error);
    codec_set_root(document, root);
    for (size_t left; good && (left = codec_unconverted(document)) > 0;) {
        good = codec_convert(document, 1, &outcome.error);
        cr_expect_eq(codec_unconverted(document), good ? left - 1 : 0);
    }
    if (!good) {
        codec_document_free(document);
        outcome.document = NULL;
    }
    return outcome;
}

/* Does the same with the member `key` of a document. */
static struct outcome move(const char *json, const char *key, enum codec_type type,
                           const size_t shape[2], bool wide) {
    struct codec_document *document = read_good(json);
    return move_value(document, member(document, key), type, shape, wide);
}

/* Expects that T0 has these bytes, and frees the document. */
static void expect_moved(struct outcome outcome, const void *bytes, size_t size, const char *json) {
    attn_tensor tensor;
    cr_assert_not_null(outcome.document, "%s: %s", json, outcome.error.message);
    cr_assert(codec_as_reals(outcome.document, member(outcome.document, "T0"), 2, 2, &tensor,
                             &outcome.error));
    cr_expect_eq(memcmp(tensor.data, bytes, size), 0, "%s as %zu bytes", json, size);
    codec_document_free(outcome.document);
}

#define ROUNDED 0.1F, 0.2F, 0.3F, 0.7F

/* An array of FP32 has the numbers that its bytes would have, whatever the float type of the
 * document is and however the array is nested. */
Test(codec_moved, arrays_are_rounded_to_their_type) {
    static const char *const texts[] = {"{\"d\":[0.1,0.2,0.3,0.7]}",
                                        "{\"d\":[[0.1,0.2],[0.3,0.7]]}",
                                        "{\"d\":[0.1,0.2,0.3,0.7],\"dtype\":\"float64\"}",
                                        "{\"d\":[[0.1,0.2],[0.3,0.7]],\"dtype\":\"float64\"}"};
    static const float floats[] = {ROUNDED};
    static const double doubles[] = {ROUNDED}, exact[] = {0.1, 0.2, 0.3, 0.7};
    const size_t held = test_account()->held;
    static const size_t shape[] = {2, 2};
    for (size_t i = 0; i < COUNT(texts); i++) {
        expect_moved(move(texts[i], "d", CODEC_TYPE_FP32, shape, false), floats, sizeof floats,
                     texts[i]);
        expect_moved(move(texts[i], "d", CODEC_TYPE_FP32, shape, true), doubles, sizeof doubles,
                     texts[i]);
        if (i >= 2) { /* FP64 is not rounded */
            expect_moved(move(texts[i], "d", CODEC_TYPE_FP64, shape, true), exact, sizeof exact,
                         texts[i]);
        }
    }
    cr_expect_eq(test_account()->held, held);
}

/* A whole number that a float cannot have stays as it is in a document of float64. */
Test(codec_moved, whole_numbers_of_float64_are_exact) {
    static const char *const texts[] = {"{\"d\":[16777217,2,3,4]}",
                                        "{\"d\":[16777217,2,3,4],\"dtype\":\"float64\"}"};
    static const double numbers[] = {16777217, 2, 3, 4};
    static const size_t shape[] = {2, 2};
    for (size_t i = 0; i < COUNT(texts); i++) {
        expect_moved(move(texts[i], "d", CODEC_TYPE_INT32, shape, true), numbers, sizeof numbers,
                     texts[i]);
    }
}

Test(codec_moved, arrays_that_do_not_fit) {
#define ROW(json, type, rows, columns, ...)                                                        \
    { "{\"d\":" json "}", CODEC_TYPE_##type, {rows, columns}, __VA_ARGS__ }
#define WRONG(type, number) "T0/0/1 must be a number of its datatype " type ", not " number
    static const struct {
        const char *json;
        enum codec_type type;
        size_t shape[2];
        const char *message; /* NULL: the array is accepted */
    } rows[] = {
        ROW("[1,2,3,4]", INT8, 2, 2, NULL),
        ROW("[[1,2],[3,4]]", UINT64, 2, 2, NULL),
        ROW("[true,false]", BOOL, 1, 2, NULL),
        ROW("[1,0]", BOOL, 1, 2, NULL),
        ROW("[null,0]", FP32, 1, 2, NULL),
        ROW("[1,2,3]", FP32, 2, 2, "has 3 elements in its data, but 4 in its"),
        ROW("[1,2,3,4,5]", FP32, 2, 2, "has 5 elements in its data, but 4 in its"),
        ROW("[[1,2],[3,4]]", FP32, 4, 1, "whose nesting does not match"),
        ROW("[[[1,2]]]", FP32, 1, 2, "whose nesting does not match"),
        ROW("[true,false]", UINT8, 1, 2, "has booleans, but its type is no BOOL"),
        ROW("[0,2]", BOOL, 1, 2, WRONG("BOOL", "2")),
        ROW("[127,128]", INT8, 1, 2, WRONG("INT8", "128")),
        ROW("[-128,-129]", INT8, 1, 2, WRONG("INT8", "-129")),
        ROW("[255,256]", UINT8, 1, 2, WRONG("UINT8", "256")),
        ROW("[0,-1]", UINT64, 1, 2, WRONG("UINT64", "-1")),
        ROW("[0,1.5]", INT32, 1, 2, WRONG("INT32", "1.5")),
        ROW("[0,null]", INT32, 1, 2, WRONG("INT32", "null")),
        ROW("[0,1e20]", UINT64, 1, 2, "T0/0/1 must be a number of its datatype UINT64"),
        ROW("[0,1e39],\"dtype\":\"float64\"", FP32, 1, 2,
            "T0/0/1 must be a number of its datatype FP32"),
    };
    const size_t held = test_account()->held;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct outcome outcome = move(rows[i].json, "d", rows[i].type, rows[i].shape,
                                      strstr(rows[i].json, "dtype") != NULL);
        cr_expect_eq(outcome.document != NULL, rows[i].message == NULL, "%s: %s", rows[i].json,
                     outcome.error.message);
        if (outcome.document == NULL && rows[i].message != NULL) {
            cr_expect_eq(outcome.error.status, CODEC_CONTENT);
            cr_expect(strstr(outcome.error.message, "T0") != NULL &&
                          strstr(outcome.error.message, rows[i].message) != NULL,
                      "%s: %s", rows[i].json, outcome.error.message);
        }
        codec_document_free(outcome.document);
    }
    cr_expect_eq(test_account()->held, held);
}

/* An array that moves, and changes its float type, still knows what was sent. */
Test(codec_moved, minus_infinity_is_named) {
    static const char *const names[] = {"null", "-Infinity"};
    static const size_t shape[] = {1, 2};
    for (int way = 0; way < 4; way++) { /* the array and the document are narrow or wide */
        for (int which = 0; which < 2; which++) {
            char json[96], message[96];
            sprintf(json, "{\"dtype\":\"%s\",\"bias\":[[1,%s]]}",
                    way % 2 != 0 ? "float64" : "float32", names[which]);
            sprintf(message, "T0/0/1 must be a finite number, not %s", names[which]);
            struct outcome outcome = move(json, "bias", CODEC_TYPE_FP64, shape, way >= 2);
            attn_tensor tensor;
            cr_assert_not_null(outcome.document, "%s: %s", json, outcome.error.message);
            cr_expect_not(codec_as_reals(outcome.document, member(outcome.document, "T0"), 2, 2,
                                         &tensor, &outcome.error));
            cr_expect(strstr(outcome.error.message, message) != NULL, "%s: %s", json,
                      outcome.error.message);
            codec_document_free(outcome.document);
        }
    }
}

/* An array that moves still knows its first number out of range, wherever that stands and in
 * however many steps it is converted. */
Test(codec_moved, numbers_out_of_range_are_named) {
    static const size_t shape[] = {20, 30};
    static const struct {
        const char *text;
        bool wide; /* out of the range of float64, too */
    } rows[] = {{"-1e999", true}, {"1e39", false}, {"3.5e38", false}, {"-1e308", false}};
    for (size_t i = 0; i < 2 * COUNT(rows); i++) {
        for (size_t at = 0; at < 600; at += 149) {
            const bool wide = i % 2 != 0, good = wide && !rows[i / 2].wide;
            char json[8192], message[128], *out = json + sprintf(json, "{\"d\":[");
            for (size_t k = 0; k < 600; k++) {
                out += sprintf(out, "%s%s", k > 0 ? "," : "",
                               k == at                ? rows[i / 2].text
                               : k == at + 1 && !wide ? (at % 2 != 0 ? "1e40" : "1e999")
                               : k == at + 100        ? "null"
                                                      : "0.5");
            }
            strcpy(out, "]}");
            struct outcome outcome = move(json, "d", CODEC_TYPE_FP64, shape, wide);
            attn_tensor tensor;
            cr_assert_not_null(outcome.document, "%s", outcome.error.message);
            sprintf(message, "T0/%zu/%zu is %s, which is out of the range of float%s", at / 30,
                    at % 30, rows[i / 2].text, wide ? "64" : "32");
            cr_expect_eq(codec_as_reals_or_null(outcome.document, member(outcome.document, "T0"), 2,
                                                2, &tensor, &outcome.error),
                         good);
            cr_expect(good || strcmp(outcome.error.message, message) == 0, "%s, not %s",
                      outcome.error.message, message);
            codec_document_free(outcome.document);
        }
    }
}

/* The largest and the least number of each type are accepted, also if float64 rounds them. The
 * first number that float64 tells from the largest one is refused. */
Test(codec_moved, whole_numbers_at_the_ends_of_their_types) {
    static const struct {
        enum codec_type type;
        const char *least, *largest;
        const char *next; /* the number after the largest one in float64 */
    } rows[] = {
        {CODEC_TYPE_BOOL, "0", "1", "2"},
        {CODEC_TYPE_INT8, "-128", "127", "128"},
        {CODEC_TYPE_INT16, "-32768", "32767", "32768"},
        {CODEC_TYPE_INT32, "-2147483648", "2147483647", "2147483648"},
        {CODEC_TYPE_INT64, "-9223372036854775808", "9223372036854775807", "9223372036854777856"},
        {CODEC_TYPE_UINT8, "0", "255", "256"},
        {CODEC_TYPE_UINT16, "0", "65535", "65536"},
        {CODEC_TYPE_UINT32, "0", "4294967295", "4294967296"},
        {CODEC_TYPE_UINT64, "0", "18446744073709551615", "18446744073709555712"},
    };
    static const size_t shape[] = {1, 3};
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int way = 0; way < 4; way++) { /* the document is wide, or the array is nested */
            const char *format = way >= 2 ? "{\"d\":[[%s,%s,%s]]%s}" : "{\"d\":[%s,%s,%s]%s}";
            const char *dtype = way % 2 != 0 ? ",\"dtype\":\"float64\"" : "";
            char json[256];
            sprintf(json, format, rows[i].least, rows[i].largest, "0", dtype);
            struct outcome outcome = move(json, "d", rows[i].type, shape, way % 2 != 0);
            cr_expect_not_null(outcome.document, "%s: %s", json, outcome.error.message);
            codec_document_free(outcome.document);
            sprintf(json, format, "0", "0", rows[i].next, dtype);
            outcome = move(json, "d", rows[i].type, shape, way % 2 != 0);
            cr_expect_null(outcome.document, "%s", json);
            cr_expect(strstr(outcome.error.message, "T0/0/2 must be a number of its") != NULL,
                      "%s: %s", json, outcome.error.message);
            codec_document_free(outcome.document);
        }
    }
}

/* A number is rounded to the nearest half, and to the even one of two that are equally near. The
 * first number that would become infinite is refused. */
Test(codec_moved, numbers_are_rounded_to_halves) {
    static const struct {
        const char *text;
        double half; /* 0: it is refused */
    } rows[] = {
        {"0.1", 0.0999755859375},
        {"-0.1", -0.0999755859375},
        {"1.00048828125", 1},                   /* halfway between 1 and its neighbour */
        {"1.00048828126", 1.0009765625},        /* float32 would call it halfway */
        {"1.0004882812500001", 1.0009765625},   /* a double cannot tell it from halfway */
        {"1.00146484375", 1.001953125},         /* halfway, and the larger one is even */
        {"2.9802322387695312e-08", 0},          /* half of the least number is rounded to 0 */
        {"2.98023223877e-08", 0x1p-24},         /* and a little more to that number */
        {"6.1e-05", 0x1p-14 * (1023.0 / 1024)}, /* the largest subnormal half */
        {"6.103515625e-05", 0x1p-14},
        {"65504", 65504},
        {"-65519.99", -65504},
        {"65520", 0},
        {"-65520", 0},
        {"1e300", 0},
    };
    static const size_t shape[] = {1, 2};
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int nested = 0; nested < 2; nested++) {
            char json[96];
            sprintf(json, "{\"dtype\":\"float64\",\"d\":%s1,%s%s}", nested ? "[[" : "[",
                    rows[i].text, nested ? "]]" : "]");
            const bool refused = rows[i].half == 0 && strncmp(rows[i].text, "2.9", 3) != 0;
            struct outcome outcome = move(json, "d", CODEC_TYPE_FP16, shape, false);
            if (refused) {
                cr_expect_null(outcome.document, "%s", json);
                cr_expect(strstr(outcome.error.message,
                                 "T0/0/1 must be a number of its datatype "
                                 "FP16, of which the largest is 65504") != NULL,
                          "%s: %s", json, outcome.error.message);
                continue;
            }
            const float halves[] = {1, (float)rows[i].half};
            expect_moved(outcome, halves, sizeof halves, json);
            const double doubles[] = {1, rows[i].half};
            expect_moved(move(json, "d", CODEC_TYPE_FP16, shape, true), doubles, sizeof doubles,
                         json);
        }
    }
}

/* Every half, and the number halfway to the next one, against the bits of halves. */
Test(codec_moved, all_halves) {
    static const size_t shape[] = {1, 4};
    for (unsigned half = 0; half < 0x7BFF; half += 7) {
        const unsigned place = half >> 10 > 0 ? half >> 10 : 1;
        const double step = ldexp(1, (int)place - 25), least = (half >> 10 > 0 ? 1024 : 0);
        const double number = (least + (half & 0x3FF)) * step, even = number + (half % 2) * step;
        char json[300];
        sprintf(json, "{\"dtype\":\"float64\",\"d\":[%.60g,%.60g,%.60g,%.60g]}", number,
                number + 0.49 * step, number + 0.5 * step, -number - 0.51 * step);
        const double wanted[] = {number, number, even, -number - step};
        expect_moved(move(json, "d", CODEC_TYPE_FP16, shape, true), wanted, sizeof wanted, json);
    }
}

enum {
    LONG = 140 /* digits of a text: more than any number halfway between two floats has */
};

/* Writes the number halfway between two neighbours, or what lies close to it on a side. */
static void write_beside(char *text, double halfway, int side) {
    char *last = text + snprintf(text, 2 * LONG, "%.*e", LONG, halfway);
    while (*--last != 'e') {
    }
    last--; /* a zero */
    *last = side > 0 ? '1' : '0';
    for (; side < 0 && (*last == '0' || *last == '.'); last--) {
        *last = *last == '.' ? '.' : '9';
    }
    *last = (char)(*last - (side < 0));
}

/* Reads a text beside others. Expects that it is the nearest double, and that the double is rounded
 * as the text is: to `wanted`. */
static void expect_nearest(const char *text, enum codec_type type, double wanted) {
    static const size_t shape[] = {1, 12};
    char json[1024];
    for (int nested = 0; nested < 2; nested++) {
        snprintf(json, sizeof json,
                 "{\"y\":[%s],\"x\":%s0.5,%s,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5%s}", text,
                 nested ? "[[" : "[", text, nested ? "]]" : "]");
        for (int wide = 0; wide < 2; wide++) {
            struct codec_document *document = read_good(json);
            struct codec_error error;
            attn_tensor tensor;
            codec_set_dtype(document, wide ? ATTN_FLOAT64 : ATTN_FLOAT32);
            cr_assert(codec_as_exact_reals(document, member(document, "y"), 1, 1, &tensor, &error));
            cr_expect_eq(*(const double *)tensor.data, strtod(text, NULL), "%s", text);
            const double doubles[] = {0.5, wanted};
            const float floats[] = {0.5F, (float)wanted};
            expect_moved(move_value(document, member(document, "x"), type, shape, wide),
                         wide ? (const void *)doubles : floats,
                         wide ? sizeof doubles : sizeof floats, text);
        }
    }
}

static double half_of(unsigned bits) {
    const unsigned place = bits >> 10 > 0 ? bits >> 10 : 1;
    return ldexp((bits >> 10 > 0 ? 1024 : 0) + (bits & 0x3FF), (int)place - 25);
}

/* 2^53 + 2^29 + 1 is more than halfway between two floats, and its double is halfway. */
Test(codec_moved, whole_numbers_are_rounded_once) {
    static const size_t shape[] = {1, 2};
    static const float floats[] = {1, 0x1p53F + 0x1p30F};
    for (int nested = 0; nested < 2; nested++) {
        const char *json =
            nested ? "{\"d\":[[1,9007199791611905]]}" : "{\"d\":[1,9007199791611905]}";
        expect_moved(move(json, "d", CODEC_TYPE_INT64, shape, false), floats, sizeof floats, json);
    }
}

/* Texts that a double cannot tell from halfway between two neighbours. */
Test(codec_moved, numbers_are_rounded_once) {
    char text[2 * LONG];
    expect_nearest("1.0004882812500001", CODEC_TYPE_FP16, 1.0009765625);
    expect_nearest("65519.99999999999999999999", CODEC_TYPE_FP16, 65504);
    expect_nearest("9999.99999999999999999999", CODEC_TYPE_FP16, 10000);
    for (unsigned i = 0; i < 1500; i++) {
        const unsigned half = (unsigned)(random_bits() % 0x7BFF);
        const float low = ldexpf((float)(1 + random_bits() % (1 << 23)), (int)(i % 250) - 149);
        const float high = nextafterf(low, INFINITY);
        const double halves[] = {half_of(half), half_of(half + 1)}, floats[] = {low, high};
        for (int side = -1; side <= 1; side++) {
            uint32_t bits;
            memcpy(&bits, &low, sizeof bits);
            write_beside(text, (halves[0] + halves[1]) / 2, side);
            expect_nearest(text, CODEC_TYPE_FP16, halves[side > 0 || (side == 0 && half % 2 != 0)]);
            write_beside(text, ((double)low + (double)high) / 2, side);
            expect_nearest(text, CODEC_TYPE_FP32, floats[side > 0 || (side == 0 && bits % 2 != 0)]);
        }
    }
}

/* A mask of numbers becomes bytes in pieces of any size. Its first wrong number is named, however
 * many were converted before it. */
Test(codec_moved, masks_are_converted_in_pieces) {
    enum {
        SIDE = 67
    };
    static const char *const dtypes[] = {"float32", "float64"};
    char json[2 * SIDE * SIDE + 4 * SIDE + 64];
    for (size_t i = 0; i < 24; i++) {
        const size_t most = (size_t[]){1, 100, 4000, SIZE_MAX}[i % 4], wrong = i / 8;
        const size_t at = wrong == 1 ? 0 : SIDE * SIDE - 1;
        size_t size = (size_t)sprintf(json, "{\"dtype\":\"%s\",\"mask\":", dtypes[i / 4 % 2]);
        for (size_t k = 0; k < SIDE * SIDE; k++) {
            const char digit = wrong != 0 && k == at ? '2' : k * k % 3 != 0 ? '1' : '0';
            size += (size_t)sprintf(json + size, "%s%c%s",
                                    k == 0          ? "[["
                                    : k % SIDE == 0 ? "],["
                                                    : ",",
                                    digit, k == SIDE * SIDE - 1 ? "]]}" : "");
        }
        struct codec_document *document = read_good(json);
        const struct codec_value *value = member(document, "mask");
        struct codec_error error;
        attn_tensor mask;
        codec_expect_mask(value);
        cr_expect_eq(codec_unconverted(document), SIDE * SIDE);
        while (codec_unconverted(document) > 0) {
            cr_assert(codec_convert(document, most, &error));
        }
        const bool good = codec_as_mask(document, value, 2, 2, &mask, &error);
        cr_expect_eq(good, wrong == 0, "%s", good ? "" : error.message);
        for (size_t k = 0; good && k < SIDE * SIDE; k++) {
            cr_assert_eq(((const unsigned char *)mask.data)[k], k * k % 3 != 0, "%zu", k);
        }
        cr_expect(good || strstr(error.message, wrong == 1 ? "mask/0/0 must" : "mask/66/66 must"),
                  "%s", error.message);
        codec_document_free(document);
    }
}
