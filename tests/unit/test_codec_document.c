/* test_codec_document.c - the keys of documents, long vectors, and values that are made.
 * data/values.txt has the values that are read. */

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
    expect_keys(&keys, cases, COUNT(cases), "{\"Q\":1,\"K\":2,\"mask\":[]}");
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
    expect_keys(&keys, cases, COUNT(cases), "{\"Q\":1}");
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
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t edits;
        const char *nearest = codec_nearest(cases[i].name, names, 7, &edits);
        cr_expect_str_eq(nearest != NULL ? nearest : "-",
                         cases[i].nearest != NULL ? cases[i].nearest : "-", "%s", cases[i].name);
    }
}

#define TEN "abcdefghij"

/* Each limit of what is near: at the limit, one below and one above. */
Test(codec_document, nearest_at_its_limits) {
    static const struct {
        const char *name, *known;
        size_t edits; /* more than 2: it is not near */
    } rows[] = {
        {"abc", "abd", 1},
        {"abc", "ade", 3},
        {"abc", "abcd", 1},
        {"abc", "abcde", 3},
        {"abcd", "abef", 2},
        {"abcd", "aefg", 3},
        {"abcd", "abcdef", 2},
        {"abcd", "abcdefg", 3},
        {"abcdef", "abcd", 2},
        {"ab", "ba", 1},
        {"ab", "cb", 1},
        {"a", "b", 3},
        {"a", "ab", 1},
        {"ABC", "abc", 0},
        {"abcde", "badce", 2},
        {"abcdef", "badcfe", 3},
        {"", "a", 3},
        {"", "", 0},
        {"abcd", "efgh", 3},
        {"abcde", "cab", 3},
        {TEN TEN TEN TEN, TEN TEN TEN TEN, 0},
        {TEN TEN TEN TEN, TEN TEN TEN "abcdefgh", 2},
        {TEN TEN TEN TEN, TEN TEN TEN "abcdefghjk", 2},
        {TEN TEN TEN "abcdefghi", TEN TEN TEN TEN, 1},
        {TEN TEN TEN TEN, TEN TEN TEN TEN "k", 3},
        {TEN TEN TEN TEN "k", TEN TEN TEN TEN, 3},
        {TEN TEN TEN TEN "k", TEN TEN TEN TEN "k", 3},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t edits = 7;
        const bool near = codec_nearest(rows[i].name, &rows[i].known, 1, &edits) != NULL;
        cr_expect(near == (rows[i].edits < 3) && (near ? edits == rows[i].edits : edits > 2),
                  "%s and %s: %zu", rows[i].name, rows[i].known, edits);
    }
    /* The nearest name counts, and of two that are equally near the longer one. */
    static const char *const names[] = {"abxy", "abcx", "abcdx", "abce"};
    size_t edits;
    cr_expect_str_eq(codec_nearest("abcd", names, 4, &edits), "abcdx");
    cr_expect_str_eq(codec_nearest("abcf", names, 4, &edits), "abcx");
    cr_expect_str_eq(codec_nearest("abce", names, 4, &edits), "abce");
}

/* The whole numbers of a vector are exact before it is read as floats, however long it is. */
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
        int64_t list[3];
        size_t count = 0;
        struct codec_error error;
        cr_assert(codec_as_integers(AT("v"), 0, INT64_MAX, list, 3, &count, &error));
        cr_expect(count == size && list[0] == 16777217);
        attn_tensor tensor;
        cr_assert(codec_as_reals(AT("v"), 1, 1, &tensor, &error));
        cr_expect(tensor.dtype == ATTN_FLOAT32 && tensor.shape[0] == size);
        for (size_t j = 0; j < size; j++) {
            cr_assert_eq(((const float *)tensor.data)[j], j % 2 == 0 ? 16777216 : 7);
        }
        REFUSED(codec_as_integers(AT("v"), 0, INT64_MAX, list, 3, &count, &error), "/v/0",
                "v/0 must be 0 to 16777215: larger whole numbers are not exact in float32");
        codec_document_free(document);
        free(body);
    }
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
