/* test_codec_document.c - the values that are read out of a document, and what each refusal
 * says. */
#include <float.h>
#include <math.h>

#include "codec/nearest.h"
#include "test_codec.h"

/* Expects that an accessor returns false with CODEC_CONTENT, this pointer and this message. */
#define REFUSED(call, at, text)                                                                    \
    do {                                                                                           \
        cr_expect_not(call);                                                                       \
        cr_expect_eq(error.status, CODEC_CONTENT);                                                 \
        cr_expect(error.has_pointer);                                                              \
        cr_expect_str_eq(error.pointer, at);                                                       \
        cr_expect_str_eq(error.message, text);                                                     \
    } while (0)

static const struct codec_value *value(const struct codec_document *document, const char *name) {
    const struct codec_value *found = member(document, name);
    cr_assert_not_null(found, "%s", name);
    return found;
}

#define AT(name) document, value(document, name)

Test(codec_document, scalars) {
    struct codec_document *document = read_good(
        "{\"b\":true,\"x\":-1.25,\"i\":42,\"s\":\"a\\u00e9\\n\\ud83d\\ude00\",\"big\":1e999,\"z\":"
        "null,"
        "\"o\":{\"p/q\":[\"u\",7.5]},\"a\":[],\"K\":[1],\"huge\":9007199254740994,\"neg\":-0}");
    struct codec_error error;
    bool truth = false;
    double number = 0;
    int64_t integer = 0;
    const char *text = NULL;

    cr_assert(codec_as_bool(AT("b"), &truth, &error) && truth);
    cr_assert(codec_as_number(AT("x"), &number, &error) && number == -1.25);
    cr_assert(codec_as_number(AT("neg"), &number, &error) && number == 0 && signbit(number));
    cr_assert(codec_as_integer(AT("i"), 0, 42, &integer, &error) && integer == 42);
    cr_assert(codec_as_text(AT("s"), &text, &error));
    cr_expect_str_eq(text, "a\xC3\xA9\n\xF0\x9F\x98\x80");

    REFUSED(codec_as_bool(AT("i"), &truth, &error), "/i", "i must be true or false, not a number");
    REFUSED(codec_as_number(AT("s"), &number, &error), "/s", "s must be a number, not a string");
    REFUSED(codec_as_number(AT("z"), &number, &error), "/z", "z must be a number, not null");
    REFUSED(codec_as_number(AT("K"), &number, &error), "/K",
            "K must be a number, not an array of numbers");
    REFUSED(codec_as_number(AT("big"), &number, &error), "/big",
            "big must be a finite number within float64");
    REFUSED(codec_as_text(AT("o"), &text, &error), "/o", "o must be a string, not an object");
    REFUSED(codec_as_text(AT("a"), &text, &error), "/a", "a must be a string, not an empty array");
    REFUSED(codec_as_integer(AT("x"), 0, 9, &integer, &error), "/x",
            "x must be a whole number, not -1.25");
    REFUSED(codec_as_integer(AT("i"), 0, 9, &integer, &error), "/i", "i must be 0 to 9, not 42");
    REFUSED(codec_as_integer(AT("i"), 50, INT64_MAX, &integer, &error), "/i",
            "i must be at least 50, not 42");
    REFUSED(codec_as_integer(AT("big"), 0, 9, &integer, &error), "/big",
            "big must be a whole number");
    REFUSED(codec_as_integer(AT("huge"), 0, INT64_MAX, &integer, &error), "/huge",
            "huge must be 0 to 9007199254740991: larger whole numbers are not exact in float64");

    const struct codec_value *inner = codec_at(codec_get(value(document, "o"), "p/q"), 1);
    REFUSED(codec_as_text(document, inner, &text, &error), "/o/p~1q/1",
            "p/q/1 must be a string, not a number");
    REFUSED(codec_fail(document, NULL, &error, "no %s", "way"), "", "no way");
    REFUSED(codec_as_text(document, codec_root(document), &text, &error), "",
            "the body must be a string, not an object");
    codec_document_free(document);
}

Test(codec_document, navigation) {
    struct codec_document *document = read_good("{\"a\":[\"x\",\"y\"],\"A\":{},\"t\":[1,2]}");
    const struct codec_value *root = codec_root(document);
    cr_expect_eq(codec_kind_of(root), CODEC_OBJECT);
    cr_expect_eq(codec_size(root), 3);
    cr_expect_eq(codec_kind_of(codec_get(root, "A")), CODEC_OBJECT);
    cr_expect_eq(codec_kind_of(codec_get(root, "a")), CODEC_ARRAY);
    cr_expect_null(codec_get(root, "T"));
    cr_expect_null(codec_get(codec_get(root, "a"), "x"));
    cr_expect_null(codec_at(codec_get(root, "a"), 2));
    cr_expect_null(codec_at(codec_get(root, "t"), 0), "a tensor has no elements to walk");
    cr_expect_eq(codec_size(codec_get(root, "t")), 0);
    cr_expect_null(codec_next(codec_at(codec_get(root, "a"), 1)));
    codec_document_free(document);
}

struct key_case {
    const char *body, *pointer, *message;
};

/* Expects that each of these bodies is refused, and that `good` has only these keys. */
static void expect_keys(const struct codec_keys *keys, const struct key_case *cases, size_t count,
                        const char *good) {
    struct codec_error error;
    for (size_t i = 0; i < count; i++) {
        struct codec_document *document = read_good(cases[i].body);
        REFUSED(codec_check_keys(document, codec_root(document), keys, &error), cases[i].pointer,
                cases[i].message);
        codec_document_free(document);
    }
    struct codec_document *document = read_good(good);
    cr_expect(codec_check_keys(document, codec_root(document), keys, &error));
    codec_document_free(document);
}

Test(codec_document, keys) {
    static const char *const names[] = {"Q",    "K",   "V",        "weights",
                                        "mask", "W_Q", "kv_heads", "heads"};
    static const struct codec_foreign foreign[] = {{"kv_head", 1, "a row of another object"},
                                                   {"key", 3, "it is \"K\" here"}};
    const struct codec_keys keys = {
        .names = names, .count = 8, .foreign = foreign, .foreign_count = 2, .here = 2};
    static const struct key_case cases[] = {
        {"{\"weigths\":1}", "/weigths", "unknown key \"weigths\"; did you mean \"weights\"?"},
        {"{\"Q\":1,\"q\":2}", "/q", "unknown key \"q\"; did you mean \"Q\"?"},
        {"{\"MASK\":1}", "/MASK", "unknown key \"MASK\"; did you mean \"mask\"?"},
        {"{\"wq\":1}", "/wq", "unknown key \"wq\"; did you mean \"W_Q\"?"},
        {"{\"key\":1}", "/key", "unknown key \"key\"; it is \"K\" here"},
        {"{\"kv_head\":1}", "/kv_head", "unknown key \"kv_head\"; did you mean \"kv_heads\"?"},
        {"{\"Z\":1}", "/Z", "unknown key \"Z\""},
        {"{\"something\":1}", "/something", "unknown key \"something\""},
        {"{\"a/\\u0001b\":1}", "/a~1\001b", "unknown key \"a/\\u0001b\""},
        {"[\"x\"]", "", "the body must be an object, not an array"},
        {"[1]", "", "the body must be an object, not an array of numbers"},
        {"3", "", "the body must be an object, not a number"},
    };
    expect_keys(&keys, cases, sizeof cases / sizeof *cases, "{\"Q\":1,\"K\":2,\"mask\":[]}");
}

Test(codec_document, keys_that_belong_elsewhere) {
    static const char *const names[] = {"Q", "K", "W_Q", "mask", "lengths"};
    static const char *const elsewhere[] = {"weights", "output", "lse", "Q", "masked", "present_K"};
    const struct codec_keys keys = {.names = names,
                                    .count = 5,
                                    .elsewhere = elsewhere,
                                    .elsewhere_count = 6,
                                    .place = "return"};
    static const struct key_case cases[] = {
        {"{\"weigths\":1}", "/weigths",
         "unknown key \"weigths\"; \"weights\" goes into \"return\""},
        {"{\"weights\":1}", "/weights",
         "unknown key \"weights\"; \"weights\" goes into \"return\""},
        {"{\"LSE\":1}", "/LSE", "unknown key \"LSE\"; \"lse\" goes into \"return\""},
        {"{\"length\":1}", "/length", "unknown key \"length\"; did you mean \"lengths\"?"},
        {"{\"q\":1}", "/q", "unknown key \"q\"; did you mean \"Q\"?"},
        {"{\"maske\":1}", "/maske", "unknown key \"maske\"; did you mean \"mask\"?"},
        {"{\"something\":1}", "/something", "unknown key \"something\""},
    };
    expect_keys(&keys, cases, sizeof cases / sizeof *cases, "{\"Q\":1}");
}

Test(codec_document, no_memory) {
    struct codec_error error = {.has_pointer = true, .offset = 7};
    cr_expect_not(codec_no_memory(&error));
    cr_expect_eq(error.status, CODEC_NO_MEMORY);
    cr_expect_not(error.has_pointer);
    cr_expect_str_eq(error.message, "out of memory");
}

Test(codec_document, nearest) {
    static const char *const names[] = {"Q",      "W_Q",    "W_K",    "softcap",
                                        "causal", "window", "weights"};
    static const struct {
        const char *name, *nearest;
    } cases[] = {
        {"q", "Q"},
        {"w_q", "W_Q"},
        {"W_G", "W_Q"},
        {"softCap", "softcap"},
        {"soft_cap", "softcap"},
        {"casual", "causal"},
        {"windwo", "window"},
        {"weihgts", "weights"},
        {"wieghst", "weights"},
        {"K", NULL},
        {"xyz", NULL},
        {"", NULL},
        {"cap", NULL},
        {"weightsabc", NULL},
        {"QQ", "Q"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t edits;
        const char *nearest = codec_nearest(cases[i].name, names, 7, &edits);
        cr_expect_str_eq(nearest != NULL ? nearest : "-",
                         cases[i].nearest != NULL ? cases[i].nearest : "-", "%s", cases[i].name);
    }
}

Test(codec_document, choices) {
    static const char *const names[] = {"softmax", "none"},
                             *const three[] = {"top", "softmax", "none"},
                             *const parts[] = {"scores", "raw_scores", "V"};
    struct codec_document *document =
        read_good("{\"good\":\"none\",\"near\":\"sotfmax\",\"far\":\"other\",\"not\":1,\"long\":"
                  "\"my_raw_scores\",\"v\":"
                  "\"aVeryLongName\",\"r\":[\"x\",\"y\"]}");
    struct codec_error error;
    size_t choice = 9;
    cr_assert(codec_as_choice(AT("good"), names, 2, &choice, &error) && choice == 1);
    REFUSED(codec_as_choice(AT("near"), names, 2, &choice, &error), "/near",
            "near must be \"softmax\" or \"none\", not \"sotfmax\"");
    REFUSED(codec_as_choice(AT("far"), names, 2, &choice, &error), "/far",
            "far must be \"softmax\" or \"none\", not \"other\"");
    REFUSED(codec_as_choice(AT("not"), names, 2, &choice, &error), "/not",
            "not must be \"softmax\" or \"none\", not a number");
    REFUSED(codec_as_choice(AT("near"), three, 3, &choice, &error), "/near",
            "near must be \"top\", \"softmax\" or \"none\", not \"sotfmax\"; did you mean "
            "\"softmax\"?");
    REFUSED(codec_as_choice(AT("long"), parts, 3, &choice, &error), "/long",
            "long must be \"scores\", \"raw_scores\" or \"V\", not \"my_raw_scores\"; did you mean "
            "\"raw_scores\"?");
    REFUSED(codec_as_choice(AT("v"), parts, 3, &choice, &error), "/v",
            "v must be \"scores\", \"raw_scores\" or \"V\", not \"aVeryLongName\"");
    REFUSED(codec_as_choice(document, codec_at(value(document, "r"), 1), names, 1, &choice, &error),
            "/r/1", "r/1 must be \"softmax\", not \"y\"");
    codec_document_free(document);
}

Test(codec_document, reals) {
    struct codec_document *document = read_good(
        "{\"K\":[[1,2],[3,4]],\"v\":[1],\"s\":\"x\",\"n\":2,\"e\":[],\"ee\":[[[],[]]],\"m\":[true],"
        "\"null\":[[1,2],[3,null]],\"range\":[[1,2,3],[4,5,-1e39]],\"both\":[1e40,null],"
        "\"t\":[[\"x\"]],\"o\":{},\"h\":[{\"W\":[\"a\"]}],\"tiny\":[1e-60,-1e-60,1e-40]}");
    struct codec_error error;
    attn_tensor tensor;
    cr_assert(codec_as_reals(AT("K"), 2, 4, &tensor, &error));
    cr_expect(tensor.rank == 2 && tensor.shape[0] == 2 && tensor.shape[1] == 2);
    cr_expect_eq(((const float *)tensor.data)[3], 4);
    cr_assert(codec_as_reals(AT("tiny"), 1, 1, &tensor, &error));
    const float *tiny = tensor.data;
    cr_expect(tiny[0] == 0 && !signbit(tiny[0]) && tiny[1] == 0 && signbit(tiny[1]) &&
              tiny[2] == 1e-40f);

    REFUSED(codec_as_reals(AT("v"), 2, 4, &tensor, &error), "/v", "v must have rank 2 to 4, not 1");
    REFUSED(codec_as_reals(AT("K"), 3, 3, &tensor, &error), "/K", "K must have rank 3, not 2");
    REFUSED(codec_as_reals(AT("s"), 2, 4, &tensor, &error), "/s",
            "s must be a matrix of numbers, not a string");
    REFUSED(codec_as_reals(AT("n"), 2, 4, &tensor, &error), "/n",
            "n must be a matrix of numbers, not a number");
    REFUSED(codec_as_reals(AT("o"), 2, 4, &tensor, &error), "/o",
            "o must be a matrix of numbers, not an object");
    REFUSED(codec_as_reals(AT("e"), 2, 4, &tensor, &error), "/e", "e is empty");
    REFUSED(codec_as_reals(AT("ee"), 2, 4, &tensor, &error), "/ee/0/0", "ee/0/0 is empty");
    REFUSED(codec_as_reals(AT("m"), 1, 4, &tensor, &error), "/m",
            "m must be a matrix of numbers, not of booleans");
    REFUSED(codec_as_reals(AT("t"), 1, 4, &tensor, &error), "/t",
            "t must be a matrix of numbers, not an array with a string in it");
    REFUSED(codec_as_reals(AT("null"), 2, 2, &tensor, &error), "/null/1/1",
            "null/1/1 must be a finite number, not null");
    REFUSED(codec_as_reals(AT("range"), 2, 2, &tensor, &error), "/range/1/2",
            "range/1/2 is -1e39, which is out of the range of float32");
    REFUSED(codec_as_reals_or_null(AT("range"), 2, 2, &tensor, &error), "/range/1/2",
            "range/1/2 is -1e39, which is out of the range of float32");
    REFUSED(codec_as_reals(AT("both"), 1, 2, &tensor, &error), "/both/0",
            "both/0 is 1e40, which is out of the range of float32");
    cr_expect(codec_as_reals_or_null(AT("null"), 2, 2, &tensor, &error));
    const struct codec_value *inner = codec_get(codec_at(value(document, "h"), 0), "W");
    REFUSED(codec_as_reals(document, inner, 2, 2, &tensor, &error), "/h/0/W",
            "W must be a matrix of numbers, not an array with a string in it");
    codec_document_free(document);

    document = read_good("{\"dtype\":\"float64\",\"K\":[1e308,1e39],\"L\":[1,2e999]}");
    cr_assert(codec_as_reals(AT("K"), 1, 1, &tensor, &error));
    cr_expect_eq(tensor.dtype, ATTN_FLOAT64);
    REFUSED(codec_as_reals(AT("L"), 1, 1, &tensor, &error), "/L/1",
            "L/1 is 2e999, which is out of the range of float64");
    codec_document_free(document);
}

/* A number out of the range of float32 is refused, and is not made infinite. */
Test(codec_document, one_real) {
    struct codec_document *document =
        read_good("{\"a\":0.1,\"b\":-1e300,\"c\":3.4028235677973366e38,\"d\":3.4028235677973362e38,"
                  "\"e\":1e999,\"f\":[1]}");
    struct codec_error error;
    attn_tensor tensor;
    double element;
    cr_assert(codec_as_real(AT("a"), &element, &tensor, &error));
    cr_expect(tensor.rank == 1 && tensor.shape[0] == 1 && tensor.dtype == ATTN_FLOAT32);
    cr_expect_eq(*(const float *)tensor.data, 0.1f);
    REFUSED(codec_as_real(AT("b"), &element, &tensor, &error), "/b",
            "b is -1e300, which is out of the range of float32");
    REFUSED(codec_as_real(AT("c"), &element, &tensor, &error), "/c",
            "c is 3.4028235677973366e38, which is out of the range of float32");
    cr_assert(codec_as_real(AT("d"), &element, &tensor, &error));
    cr_expect_eq(*(const float *)tensor.data, FLT_MAX);
    REFUSED(codec_as_real(AT("e"), &element, &tensor, &error), "/e",
            "e must be a finite number within float64");
    REFUSED(codec_as_real(AT("f"), &element, &tensor, &error), "/f",
            "f must be a number, not an array of numbers");
    codec_document_free(document);

    document = read_good("{\"a\":1e300,\"dtype\":\"float64\"}");
    cr_assert(codec_as_real(AT("a"), &element, &tensor, &error));
    cr_expect(tensor.dtype == ATTN_FLOAT64 && *(const double *)tensor.data == 1e300);
    codec_document_free(document);
}

Test(codec_document, masks) {
    for (int wide = 0; wide < 2; wide++) {
        char body[400];
        sprintf(body,
                "{\"dtype\":\"float%d\",\"a\":[[1,0,1],[0,0,1]],\"b\":[[true],[false]],\"c\":[[1,0]"
                ",[0,2]],"
                "\"d\":[1,null],\"e\":\"x\",\"f\":[0.5],\"g\":[1e999],\"h\":[[]]}",
                wide ? 64 : 32);
        struct codec_document *document = read_good(body);
        struct codec_error error;
        attn_tensor tensor;
        for (int twice = 0; twice < 2; twice++) {
            cr_assert(codec_as_mask(AT("a"), 2, 4, &tensor, &error));
            cr_expect(tensor.dtype == ATTN_BOOL && tensor.rank == 2 && tensor.shape[1] == 3);
            cr_expect_arr_eq(tensor.data, "\1\0\1\0\0\1", 6);
        }
        cr_assert(codec_as_mask(AT("b"), 2, 4, &tensor, &error));
        cr_expect_arr_eq(tensor.data, "\1\0", 2);
        REFUSED(codec_as_mask(AT("c"), 2, 4, &tensor, &error), "/c/1/1",
                "c/1/1 must be true, false, 1 or 0, not 2");
        REFUSED(codec_as_mask(AT("d"), 1, 4, &tensor, &error), "/d/1",
                "d/1 must be true, false, 1 or 0, not null");
        REFUSED(codec_as_mask(AT("d"), 2, 4, &tensor, &error), "/d",
                "d must have rank 2 to 4, not 1");
        REFUSED(codec_as_mask(AT("e"), 2, 4, &tensor, &error), "/e",
                "e must be a matrix of booleans, not a string");
        REFUSED(codec_as_mask(AT("f"), 1, 4, &tensor, &error), "/f/0",
                "f/0 must be true, false, 1 or 0, not 0.5");
        REFUSED(codec_as_mask(AT("g"), 1, 4, &tensor, &error), "/g/0",
                "g/0 must be true, false, 1 or 0, not 1e999");
        REFUSED(codec_as_mask(AT("h"), 1, 4, &tensor, &error), "/h/0", "h/0 is empty");
        codec_document_free(document);
    }
}

Test(codec_document, integers) {
    struct codec_document *document = read_good(
        "{\"w\":[-1,2],\"n\":5,\"f\":[1,2.5],\"big\":[9007199254740994],\"m\":[true],\"r\":[[1]],"
        "\"s\":\"x\","
        "\"null\":[1,null],\"inf\":[1e99],\"inf2\":[1e999],\"e\":[],\"x\":[1,9],\"one\":2.5}");
    struct codec_error error;
    int64_t list[3];
    size_t count = 0;
    cr_assert(codec_as_integers(AT("w"), -1, 9, list, 3, &count, &error));
    cr_expect(count == 2 && list[0] == -1 && list[1] == 2);
    cr_assert(codec_as_integers(AT("n"), 0, 9, list, 3, &count, &error));
    cr_expect(count == 1 && list[0] == 5 && list[1] == 2);
    int64_t few[3] = {7, 7, 7};
    cr_assert(codec_as_integers(AT("x"), 0, 1, few, 1, &count, &error)); /* the 9 is not checked */
    cr_expect(count == 2 && few[0] == 1 && few[1] == 7);
    cr_assert(codec_as_integers(AT("n"), 0, 9, few, 3, &count, &error));
    cr_expect(count == 1 && few[0] == 5 && few[1] == 7);
    REFUSED(codec_as_integers(AT("x"), 0, 8, few, 2, &count, &error), "/x/1",
            "x/1 must be 0 to 8, not 9");
    REFUSED(codec_as_integers(AT("f"), 0, 9, list, 3, &count, &error), "/f/1",
            "f/1 must be a whole number, not 2.5");
    REFUSED(codec_as_integers(AT("one"), 0, 9, list, 3, &count, &error), "/one",
            "one must be a whole number, not 2.5");
    REFUSED(codec_as_integers(AT("big"), 0, INT64_MAX, list, 3, &count, &error), "/big/0",
            "big/0 must be 0 to 9007199254740991: larger whole numbers are not exact in float64");
    REFUSED(codec_as_integers(AT("m"), 0, 9, list, 3, &count, &error), "/m",
            "m must be an array of whole numbers, not of booleans");
    REFUSED(codec_as_integers(AT("r"), 0, 9, list, 3, &count, &error), "/r",
            "r must have rank 1, not 2");
    REFUSED(codec_as_integers(AT("s"), 0, 9, list, 3, &count, &error), "/s",
            "s must be an array of whole numbers, not a string");
    REFUSED(codec_as_integers(AT("null"), 0, 9, list, 3, &count, &error), "/null/1",
            "null/1 must be a whole number, not null");
    REFUSED(codec_as_integers(AT("inf"), 0, 9, list, 3, &count, &error), "/inf/0",
            "inf/0 must be 0 to 9");
    REFUSED(codec_as_integers(AT("inf2"), 0, 9, list, 3, &count, &error), "/inf2/0",
            "inf2/0 must be a whole number, not 1e999");
    REFUSED(codec_as_integers(AT("e"), 0, 9, list, 3, &count, &error), "/e", "e is empty");
    REFUSED(codec_as_integers(AT("x"), 2, 8, list, 3, &count, &error), "/x/0",
            "x/0 must be 2 to 8, not 1");
    codec_document_free(document);
}

/* Short lists of whole numbers are never rounded to float32, however the body is cut. */
Test(codec_document, integers_are_exact) {
    struct codec_document *document =
        read_good("{\"w\":[2147483647,0],\"o\":[16777217,0,9007199254740991],"
                  "\"f\":[0.99999999999,0],\"t\":[1,16777217.0000000001],\"m\":[2147483648]}");
    struct codec_error error;
    int64_t list[3];
    size_t count = 0;
    cr_assert(codec_as_integers(AT("w"), -1, INT32_MAX, list, 3, &count, &error), "%s",
              error.message);
    cr_expect(count == 2 && list[0] == 2147483647 && list[1] == 0);
    cr_assert(codec_as_integers(AT("o"), -1, INT64_MAX, list, 3, &count, &error), "%s",
              error.message);
    cr_expect(count == 3 && list[0] == 16777217 && list[2] == 9007199254740991);
    REFUSED(codec_as_integers(AT("f"), -1, 9, list, 3, &count, &error), "/f/0",
            "f/0 must be a whole number, not 0.99999999999");
    REFUSED(codec_as_integers(AT("t"), -1, INT64_MAX, list, 3, &count, &error), "/t/1",
            "t/1 must be a whole number, not 16777217.000000004");
    REFUSED(codec_as_integers(AT("m"), -1, INT32_MAX, list, 3, &count, &error), "/m/0",
            "m/0 must be -1 to 2147483647, not 2147483648");
    codec_document_free(document);
}

/* Messages name what was sent: null, or the -Infinity that "bias" may hold. */
Test(codec_document, null_and_minus_infinity_are_named) {
    static const struct {
        const char *body, *at, *what;
    } rows[] = {
        {"{\"bias\":[1,null]}", "/bias/1", "null"},
        {"{\"bias\":[1,-Infinity]}", "/bias/1", "-Infinity"},
        {"{\"bias\":[1,-Infinity,null],\"dtype\":\"float64\"}", "/bias/1", "-Infinity"},
        {"{\"bias\":[1,null,-Infinity]}", "/bias/1", "null"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct codec_document *document = read_good(rows[i].body);
        struct codec_error error;
        attn_tensor tensor;
        int64_t list[2];
        size_t count;
        char message[96];
        sprintf(message, "bias/1 must be a whole number, not %s", rows[i].what);
        REFUSED(codec_as_integers(AT("bias"), 0, 9, list, 2, &count, &error), rows[i].at, message);
        sprintf(message, "bias/1 must be true, false, 1 or 0, not %s", rows[i].what);
        REFUSED(codec_as_mask(AT("bias"), 1, 1, &tensor, &error), rows[i].at, message);
        sprintf(message, "bias/1 must be a finite number, not %s", rows[i].what);
        REFUSED(codec_as_reals(AT("bias"), 1, 1, &tensor, &error), rows[i].at, message);
        cr_expect(codec_as_reals_or_null(AT("bias"), 1, 1, &tensor, &error), "%s", error.message);
        codec_document_free(document);
    }
}

/* float64 rounds 2^53 + 1 to 2^53, and float32 rounds 2^24 + 1 to 2^24. So no message shows all
 * digits of such a number, and none is taken for the other. */
Test(codec_document, integers_that_may_be_others) {
    static const char *const texts[] = {"9007199254740992", "9007199254740993", "9007199254740995",
                                        "9007199254740994.5"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char body[256];
        sprintf(body, "{\"n\":%s,\"below\":-%s,\"list\":[%s],\"mask\":[[16777217]]}", texts[i],
                texts[i], texts[i]);
        struct codec_document *document = read_good(body);
        struct codec_error error;
        int64_t integer;
        size_t count;
        attn_tensor tensor;
        REFUSED(codec_as_integer(AT("n"), 1, 65536, &integer, &error), "/n",
                "n must be 1 to 65536");
        REFUSED(codec_as_integer(AT("n"), 1, INT64_MAX, &integer, &error), "/n",
                "n must be 1 to 9007199254740991: larger whole numbers are not exact in float64");
        REFUSED(codec_as_integer(AT("below"), -1, 65536, &integer, &error), "/below",
                "below must be -1 to 65536");
        REFUSED(codec_as_integer(AT("below"), INT64_MIN, INT64_MAX, &integer, &error), "/below",
                "below must be -9007199254740991 to 9007199254740991: larger whole numbers are not "
                "exact in float64");
        REFUSED(codec_as_integers(AT("list"), 0, 9, &integer, 1, &count, &error), "/list/0",
                "list/0 must be 0 to 9");
        REFUSED(codec_as_mask(AT("mask"), 2, 2, &tensor, &error), "/mask/0/0",
                "mask/0/0 must be true, false, 1 or 0, not about 1.68e+07");
        codec_document_free(document);
    }
}

/* Vectors of float32 with up to 4096 numbers are kept in double first. Their whole numbers are
 * exact then; those of longer vectors may be rounded, and are refused. The floats are the same. */
Test(codec_document, short_and_long_vectors) {
    static const size_t counts[] = {1, 15, 16, 17, 4095, 4096, 4097, 9000};
    for (size_t i = 0; i < 16; i++) {
        size_t size = counts[i / 2];
        char *body = malloc(size * 10 + 200), *out = body;
        out += sprintf(out, "{\"v\":[");
        for (size_t j = 0; j < size; j++) {
            out += sprintf(out, "%s%d", j > 0 ? "," : "", j % 2 == 0 ? 16777217 : 7);
        }
        out += sprintf(out, "],\"tail\":\"%0100d\"}", 0);
        struct codec_document *document =
            read_pieces(body, (size_t)(out - body), NULL, i % 2 * 9).document;
        cr_assert_not_null(document);
        bool exact = size <= 4096;
        int64_t list[3];
        size_t count = 0;
        struct codec_error error;
        if (exact) {
            cr_assert(codec_as_integers(AT("v"), 0, INT64_MAX, list, 3, &count, &error));
            cr_expect(count == size && list[0] == 16777217);
        } else {
            REFUSED(codec_as_integers(AT("v"), 0, INT64_MAX, list, 3, &count, &error), "/v/0",
                    "v/0 must be 0 to 16777215: larger whole numbers are not exact in float32");
        }
        attn_tensor tensor;
        cr_assert(codec_as_reals(AT("v"), 1, 1, &tensor, &error));
        cr_expect(tensor.dtype == ATTN_FLOAT32 && tensor.shape[0] == size);
        for (size_t j = 0; j < size; j++) {
            cr_assert_eq(((const float *)tensor.data)[j], j % 2 == 0 ? 16777216 : 7);
        }
        codec_document_free(document);
        free(body);
    }
}

/* A number out of the range of float32 is refused only if the vector is read as float32. */
Test(codec_document, vectors_out_of_range) {
    struct codec_document *document =
        read_good("{\"a\":[1,1e39,2e999],\"b\":[3.40282356779733661637539395458142568447e38,"
                  "3.40282356779733661637539395458142568448e38],\"bias\":[null,-Infinity,-4e38]}");
    struct codec_error error;
    attn_tensor tensor;
    REFUSED(codec_as_reals(AT("a"), 1, 1, &tensor, &error), "/a/1",
            "a/1 is 1e39, which is out of the range of float32");
    REFUSED(codec_as_reals(AT("b"), 1, 1, &tensor, &error), "/b/1",
            "b/1 is 3.402823567797336616375393954581, which is out of the range of float32");
    REFUSED(codec_as_reals_or_null(AT("bias"), 1, 1, &tensor, &error), "/bias/2",
            "bias/2 is -4e38, which is out of the range of float32");
    codec_document_free(document);
}

Test(codec_document, long_scalars) {
    struct codec_document *document = read_good(
        "{\"a\":0.10000000000000000000000000000000000000000000000000000000000000000000000000000001,"
        "\"b\":"
        "1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "}");
    struct codec_error error;
    double number = 0;
    cr_expect(codec_as_number(AT("a"), &number, &error) && number == 0.1);
    cr_expect(codec_as_number(AT("b"), &number, &error) && number == 1e87);
    codec_document_free(document);
}

Test(codec_document, messages_are_valid_text) {
    struct codec_document *document = read_good("{\"a\":1}");
    struct codec_error error;
    char text[400];
    for (size_t i = 0; i < sizeof text - 1; i++)
        text[i] = "\xE2\x82\xAC"[i % 3];
    text[sizeof text - 1] = '\0';
    for (size_t shift = 0; shift < 3; shift++) {
        codec_fail(document, NULL, &error, "%.*s%s", (int)shift, "xxx", text);
        size_t size = strlen(error.message);
        cr_expect_lt(size, sizeof error.message);
        cr_expect_eq((size - shift) % 3, 0, "the cut is inside a character");
    }
    codec_fail(document, NULL, &error, "a\nb\x01");
    cr_expect_str_eq(error.message, "a?b?");
    codec_document_free(document);
}

/* A value that was something else becomes a tensor of zeros. The other values stay what they
 * are. */
Test(codec_document, tensors_that_are_made) {
    struct codec_document *document =
        read_good("{\"a\":{\"random\":\"rand\",\"shape\":[2,3]},\"b\":[[1,2]],\"c\":\"text\",\"d\":"
                  "7,\"e\":[true]}");
    const size_t before = test_account()->held;
    static const size_t shape[] = {2, 3}, large[] = {1000, 1000};
    struct codec_error error;
    attn_tensor tensor;
    void *a, *c, *d;
    cr_assert(codec_make_tensor(AT("a"), ATTN_FLOAT32, 2, shape, 6, &a, &error));
    cr_assert(codec_make_tensor(AT("c"), ATTN_BOOL, 2, shape, 24, &c, &error));
    cr_assert(codec_make_tensor(AT("d"), ATTN_FLOAT64, 2, large, 1000000, &d, &error));
    cr_expect_geq(test_account()->held, before + 6 * 4 + 24 + 8000000);
    for (size_t i = 0; i < 6; i++) {
        cr_expect_eq(((float *)a)[i], 0);
        ((float *)a)[i] = (float)i;
    }
    cr_expect_eq(((double *)d)[999999], 0);
    ((unsigned char *)c)[5] = 1;
    cr_assert(codec_as_reals(AT("a"), 1, 4, &tensor, &error));
    cr_expect(tensor.data == a && tensor.rank == 2 && tensor.shape[1] == 3);
    cr_assert(codec_as_mask(AT("c"), 1, 4, &tensor, &error));
    cr_expect(tensor.data == c && tensor.shape[0] == 2);
    cr_assert(codec_as_reals(AT("b"), 2, 2, &tensor, &error));
    cr_expect_eq(((const float *)tensor.data)[1], 2);
    cr_assert(codec_as_mask(AT("e"), 1, 1, &tensor, &error));
    REFUSED(codec_as_reals(AT("d"), 3, 3, &tensor, &error), "/d", "d must have rank 3, not 2");
    cr_expect_str_eq(codec_name(value(document, "d")), "d");
    cr_expect_null(codec_name(codec_root(document)));
    codec_document_free(document);
}
