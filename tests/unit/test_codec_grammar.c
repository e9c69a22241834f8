/* test_codec_grammar.c - what is JSON and what is not, after RFC 8259, with the byte at fault. */
#include "test_codec.h"

enum {
    GOOD = -1
};

struct grammar_case {
    const char *text;
    long offset; /* of the byte that is wrong; GOOD if none is */
};

static void check_one(const char *text, long offset) {
    struct outcome outcome = read_text(text);
    if (offset == GOOD) {
        cr_expect_eq(outcome.error.status, CODEC_OK, "%s: %s", text, outcome.error.message);
    } else {
        cr_expect_eq(outcome.error.status, CODEC_SYNTAX, "%s: status %d %s", text,
                     outcome.error.status, outcome.error.message);
        cr_expect(outcome.error.has_offset);
        cr_expect_eq(outcome.error.offset, (size_t)offset, "%s: offset %zu, not %ld (%s)", text,
                     outcome.error.offset, offset, outcome.error.message);
        cr_expect_neq(outcome.error.message[0], '\0');
    }
    codec_document_free(outcome.document);
}

/* Each body three times: as it is, and where the hot loop takes part, which reads neither the first
 * number of an array nor those close to the end. */
static void check(const struct grammar_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *text = cases[i].text;
        char padded[300];
        check_one(text, cases[i].offset);
        if (cases[i].offset >= (long)strlen(text))
            continue;
        snprintf(padded, sizeof padded, "%s%100s", text, "");
        check_one(padded, cases[i].offset);
        if (text[0] != '[' || cases[i].offset == 0 || strchr("-0123456789", text[1]) == NULL)
            continue;
        snprintf(padded, sizeof padded, "[7,%s%100s", text + 1, "");
        check_one(padded, cases[i].offset == GOOD ? GOOD : cases[i].offset + 2);
    }
}

#define CHECK(cases) check(cases, sizeof cases / sizeof cases[0])

Test(codec_grammar, structure) {
    static const struct grammar_case cases[] = {
        {"[]", GOOD},
        {"{}", GOOD},
        {" [ ] ", GOOD},
        {"\t\r\n{\t}\n", GOOD},
        {"[[],[]]", GOOD},
        {"[[[]]]", GOOD},
        {"[{}]", GOOD},
        {"{\"a\":[]}", GOOD},
        {"{\"a\":{}}", GOOD},
        {"{\"a\":1,\"b\":2}", GOOD},
        {"[1,2]", GOOD},
        {"[ 1 , 2 ]", GOOD},
        {"[\"a\",1]", GOOD},
        {"[\"a\",[1],{\"b\":[2]}]", GOOD},
        {"{\"\":0}", GOOD},
        {"{\"a\":{\"a\":1}}", GOOD},
        {"\"text\"", GOOD},
        {"12", GOOD},
        {"null", GOOD},
        {"true", GOOD},
        {" false ", GOOD},
        {"", 0},
        {" ", 1},
        {"\n\n", 2},
        {"[", 1},
        {"{", 1},
        {"]", 0},
        {"}", 0},
        {",", 0},
        {":", 0},
        {"[}", 1},
        {"{]", 1},
        {"[1}", 2},
        {"{\"a\":1]", 6},
        {"[1", 2},
        {"[1,", 3},
        {"[[1]", 4},
        {"[,]", 1},
        {"[1,]", 3},
        {"[1,,2]", 3},
        {"[,1]", 1},
        {"[1 2]", 3},
        {"[1]]", 3},
        {"[]]", 2},
        {"[\"a\" \"b\"]", 5},
        {"[\"a\",]", 5},
        {"[\"a\"", 4},
        {"[[1],]", 5},
        {"[[1][2]]", 4},
        {"[[1] 2]", 5},
        {"{\"a\"}", 4},
        {"{\"a\":}", 5},
        {"{\"a\":1,}", 7},
        {"{,}", 1},
        {"{\"a\":1 \"b\":2}", 7},
        {"{\"a\":1,,\"b\":2}", 7},
        {"{a:1}", 1},
        {"{1:1}", 1},
        {"{'a':1}", 1},
        {"{null:1}", 1},
        {"{\"a\" 1}", 5},
        {"{\"a\",1}", 4},
        {"{\"a\"::1}", 5},
        {"{\"a\":1:2}", 6},
        {"{\"a\":1", 6},
        {"{\"a\":", 5},
        {"{\"a\"", 4},
        {"{[1]:2}", 1},
        {"[1:2]", 2},
        {"[\"a\":1]", 4},
        {"{\"a\":1}}", 7},
        {"{} {}", 3},
        {"[] x", 3},
        {"1 2", 2},
        {"\"a\" \"b\"", 4},
        {"[1]//", 3},
        {"/**/[1]", 0},
        {"[1/**/]", 2},
        {"[1]#", 3},
        {"\f[1]", 0},
        {"[\f1]", 1},
        {"[1\f]", 2},
        {"[1]\f", 3},
        {"\v[]", 0},
        {"[\xC2\xA0]", 1},
        {"\xEF\xBB\xBF[1]", 0},
        {"\xEF\xBB\xBF", 0},
        {"\xFE\xFF", 0},
        {"<a>", 0},
        {"[1]\x7F", 3},
        {"[\x01]", 1},
        {"{\"a\":\"b\"", 8},
        {"(1)", 0},
        {"[1,2", 4},
        {"[[1,2],[3", 9},
    };
    CHECK(cases);
}

Test(codec_grammar, numbers) {
    static const struct grammar_case cases[] = {
        {"[0]", GOOD},
        {"[-0]", GOOD},
        {"[0.0]", GOOD},
        {"[-0.5]", GOOD},
        {"[1e5]", GOOD},
        {"[1E5]", GOOD},
        {"[1e+5]", GOOD},
        {"[1e-5]", GOOD},
        {"[0e0]", GOOD},
        {"[0e+01]", GOOD},
        {"[1.5e007]", GOOD},
        {"[10]", GOOD},
        {"[100.001]", GOOD},
        {"[1e999]", GOOD},
        {"[-1e999]", GOOD},
        {"[1e-999]", GOOD},
        {"[123456789012345678901234567890]", GOOD},
        {"[20e1]", GOOD},
        {"[0.1234567890123456789012345678901234567890]", GOOD},
        {"[1e99999999999999999999]", GOOD},
        {"[1e-99999999999999999999]", GOOD},
        {"[0e99999999999999999999]", GOOD},
        {"-1.5e3", GOOD},
        {"[01]", 2},
        {"[-01]", 3},
        {"[00]", 2},
        {"[-00.5]", 3},
        {"[012.5]", 2},
        {"[1.]", 3},
        {"[-1.]", 4},
        {"[.5]", 1},
        {"[-.5]", 2},
        {"[+1]", 1},
        {"[-]", 2},
        {"[--1]", 2},
        {"[1e]", 3},
        {"[1E]", 3},
        {"[1e+]", 4},
        {"[1e-]", 4},
        {"[1.e1]", 3},
        {"[0.e1]", 3},
        {"[1e1.5]", 4},
        {"[1.2.3]", 4},
        {"[1+2]", 2},
        {"[1-2]", 2},
        {"[1ee2]", 3},
        {"[0x10]", 2},
        {"[1a]", 2},
        {"[1_000]", 2},
        {"[1 000]", 3},
        {"[1,000]", 4},
        {"[1.5f]", 4},
        {"[1.5e3x]", 6},
        {"[- 1]", 2},
        {"[1e 5]", 3},
        {"[\xEF\xBC\x91]", 1},
        {"1.", 2},
        {"-", 1},
        {"1e", 2},
        {"[1e+", 4},
        {"[0.", 3},
        {"[12", 3},
        {"[1\"2\"]", 2},
        {"[1[2]]", 2},
        {"[1{}]", 2},
        {"[1e0000000000000000000000000000001]", GOOD},
        {"[0.00000000000000000000000000000000000000000000000000000000000000000001]", GOOD},
        {"[00000000000000000000000000000000000000000000000000000000000000000001]", 2},
        {"[NaN]", 1},
        {"[nan]", 1},
        {"[Infinity]", 1},
        {"[-Infinity]", 1},
        {"[-NaN]", 1},
        {"[inf]", 1},
        {"{\"a\":NaN}", 5},
        {"{\"bias\":[NaN]}", 9},
        {"{\"bias\":[Infinity]}", 9},
        {"{\"bias\":[-Infinity]}", GOOD},
        {"{\"bias\":[[0,-Infinity],[-Infinity,1]]}", GOOD},
        {"{\"bias\":-Infinity}", GOOD},
        {"{\"bias\":[-Infinit]}", 17},
        {"{\"bias\":[-Infinityy]}", 18},
        {"{\"bias\":[-Inf", 13},
        {"{\"bias\":[-I", 11},
        {"{\"bias\":[-i]}", 10},
        {"{\"Bias\":[-Infinity]}", 9},
        {"{\"a\":{\"bias\":[-Infinity]}}", 14},
        {"{\"b\\u0069as\":[-Infinity]}", GOOD},
        {"{\"bias\":1,\"mask\":[-Infinity]}", 18},
    };
    CHECK(cases);
}

Test(codec_grammar, literals) {
    static const struct grammar_case cases[] = {
        {"[true]", GOOD},
        {"[false]", GOOD},
        {"[null]", GOOD},
        {"[true,false]", GOOD},
        {"{\"a\":true,\"b\":false,\"c\":null}", GOOD},
        {"[tru]", 4},
        {"[truee]", 5},
        {"[True]", 1},
        {"[TRUE]", 1},
        {"[fals]", 5},
        {"[falsy]", 5},
        {"[nul]", 4},
        {"[nulll]", 5},
        {"[None]", 1},
        {"[undefined]", 1},
        {"tru", 3},
        {"t", 1},
        {"nul", 3},
        {"[n", 2},
        {"[true", 5},
        {"[true false]", 6},
        {"nope", 1},
        {"[trUe]", 3},
        {"[null1]", 5},
        {"[a]", 1},
    };
    CHECK(cases);
}

Test(codec_grammar, strings) {
    static const struct grammar_case cases[] = {
        {"\"\"", GOOD},
        {"\"a\"", GOOD},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", GOOD},
        {"\"\\u0041\"", GOOD},
        {"\"\\uD83D\\uDE00\"", GOOD},
        {"\"\\ud83d\\ude00x\"", GOOD},
        {"\"\\u00e9\\u20AC\"", GOOD},
        {"\"\xC3\xA9\"", GOOD},
        {"\"\xE2\x82\xAC\"", GOOD},
        {"\"\xF0\x9F\x98\x80\"", GOOD},
        {"\"\x7F\"", GOOD},
        {"\"\xED\x9F\xBF\xEE\x80\x80\"", GOOD},
        {"\"\xF4\x8F\xBF\xBF\"", GOOD},
        {"\"\\uFFFF\"", GOOD},
        {"\"'\"", GOOD},
        {"\"/\"", GOOD},
        {"[\"[1,2]\"]", GOOD},
        {"\"", 1},
        {"\"a", 2},
        {"\"\\", 2},
        {"\"\\\"", 3},
        {"\"\\u00", 5},
        {"'a'", 0},
        {"\"\\a\"", 2},
        {"\"\\x41\"", 2},
        {"\"\\'\"", 2},
        {"\"\\0\"", 2},
        {"\"\\U0041\"", 2},
        {"\"\\u004\"", 6},
        {"\"\\u00g1\"", 5},
        {"\"\\u 041\"", 3},
        {"\"\\u0000\"", 1},
        {"{\"a\\u0000\":1}", 3},
        {"\"\n\"", 1},
        {"\"\t\"", 1},
        {"\"a\x01\"", 2},
        {"\"\x1F\"", 1},
        {"\"\r\"", 1},
        {"\"\\uD83D\"", 7},
        {"\"\\uD83Dx\"", 7},
        {"\"\\uD83D\\n\"", 8},
        {"\"\\uD83D\\u0041\"", 7},
        {"\"\\uD83D\\uD83D\"", 7},
        {"\"\\uDE00\"", 1},
        {"\"a\\uDE00\"", 2},
        {"\"\\uDE00\\uD83D\"", 1},
        {"\"\\uD83D", 7},
        {"\"\\uD83D\\u", 9},
        {"\"\x80\"", 1},
        {"\"\xBF\"", 1},
        {"\"\xC0\x80\"", 1},
        {"\"\xC1\xBF\"", 1},
        {"\"\xC3\"", 2},
        {"\"\xC3(\"", 2},
        {"\"\xE0\x80\x80\"", 2},
        {"\"\xE0\x9F\xBF\"", 2},
        {"\"\xE2\x82\"", 3},
        {"\"\xE2(\xA1\"", 2},
        {"\"\xED\xA0\x80\"", 2},
        {"\"\xED\xBF\xBF\"", 2},
        {"\"\xF0\x80\x80\x80\"", 2},
        {"\"\xF0\x8F\xBF\xBF\"", 2},
        {"\"\xF0\x9F\x98\"", 4},
        {"\"\xF4\x90\x80\x80\"", 2},
        {"\"\xF5\x80\x80\x80\"", 1},
        {"\"\xFF\"", 1},
        {"\"\xFE\"", 1},
        {"\"\xC3", 2},
        {"{\"\xC3\":1}", 3},
        {"{\"a\n\":1}", 3},
        {"{\"a", 3},
        {"[\"a\xFF\"]", 3},
    };
    CHECK(cases);
}

Test(codec_grammar, nul_bytes) {
    expect_error_sized("[1]\0", 4, NULL, CODEC_SYNTAX, NULL, 3, "0x00");
    expect_error_sized("\0[1]", 4, NULL, CODEC_SYNTAX, NULL, 0, "0x00");
    expect_error_sized("[1\0]", 4, NULL, CODEC_SYNTAX, NULL, 2, "0x00");
    expect_error_sized("\"a\0\"", 4, NULL, CODEC_SYNTAX, NULL, 2, "0x00");
    expect_error_sized("\"\\\0\"", 4, NULL, CODEC_SYNTAX, NULL, 2, "escape");
    expect_error_sized("nul\0", 4, NULL, CODEC_SYNTAX, NULL, 3, "null");
}

Test(codec_grammar, depth) {
    char body[200];
    for (size_t depth = 1; depth <= 40; depth++) {
        size_t size = 0;
        for (size_t i = 0; i < depth; i++)
            body[size++] = '[';
        body[size++] = '"';
        body[size++] = '"';
        for (size_t i = 0; i < depth; i++)
            body[size++] = ']';
        body[size] = '\0';
        if (depth > 16)
            expect_error(body, CODEC_SYNTAX, NULL, 16, "deeper than 16");
        else
            codec_document_free(read_good(body));
    }
    expect_error(
        "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":"
        "{\"a\":{\"a\":{\"a\":{\"a\":{",
        CODEC_SYNTAX, NULL, 80, "deeper than 16");
    struct codec_limits limits = {.max_depth = 2};
    expect_error_sized("[[[1]]]", 7, &limits, CODEC_SYNTAX, NULL, 2, "deeper than 2");
}

/* A deep body must not cost more than its first bytes, however it goes on. */
Test(codec_grammar, million_brackets) {
    size_t size = 1000000;
    char *body = malloc(size);
    memset(body, '[', size);
    struct outcome outcome = read_pieces(body, size, NULL, 0);
    cr_expect_eq(outcome.error.status, CODEC_SYNTAX);
    cr_expect_eq(outcome.error.offset, 16);
    free(body);
}

Test(codec_grammar, long_numbers) {
    char body[5000];
    memset(body, '1', sizeof body);
    body[0] = '[';
    body[4097] = ']';
    struct outcome outcome = read_sized(body, 4098, NULL);
    cr_expect_eq(outcome.error.status, CODEC_OK);
    codec_document_free(outcome.document);
    expect_error_sized(body, 4097, NULL, CODEC_SYNTAX, NULL, 4097, "ends inside");
    body[4097] = '1';
    body[4098] = ']';
    expect_error_sized(body, 4099, NULL, CODEC_SYNTAX, NULL, 1, "4096");
    body[10] = 'x'; /* what is wrong already stays wrong */
    expect_error_sized(body, 4099, NULL, CODEC_SYNTAX, NULL, 10, "not 'x'");
}

Test(codec_grammar, messages) {
    expect_error("[NaN]", CODEC_SYNTAX, NULL, 1, "NaN is not JSON");
    expect_error("[Infinity]", CODEC_SYNTAX, NULL, 1, "Infinity is not JSON");
    expect_error("[-Infinity]", CODEC_SYNTAX, NULL, 1, "only \"bias\" takes it");
    expect_error("[01]", CODEC_SYNTAX, NULL, 2, "zero");
    expect_error("[1.]", CODEC_SYNTAX, NULL, 3, "digit after '.'");
    expect_error("[1 2]", CODEC_SYNTAX, NULL, 3, "expected ',' or ']', not '2'");
    expect_error("{\"a\":1 2}", CODEC_SYNTAX, NULL, 7, "expected ',' or '}', not '2'");
    expect_error("\xEF\xBB\xBF{}", CODEC_SYNTAX, NULL, 0, "byte order mark");
    expect_error("", CODEC_SYNTAX, NULL, 0, "empty");
    expect_error("  ", CODEC_SYNTAX, NULL, 2, "white space");
    expect_error("{\"a\":[1", CODEC_SYNTAX, NULL, 7, "ends inside an array");
    expect_error("{\"a\"", CODEC_SYNTAX, NULL, 4, "ends inside an object");
    expect_error("[\"a", CODEC_SYNTAX, NULL, 3, "ends inside a string");
    expect_error("[\"\xFF\"]", CODEC_SYNTAX, NULL, 2, "UTF-8");
    expect_error("{} x", CODEC_SYNTAX, NULL, 3, "nothing more");
}

/* Every prefix of a good body is refused, at its end. */
Test(codec_grammar, truncation) {
    static const char body[] =
        "{\"dtype\": \"float64\", \"K\": [[1.5, -2e+3], [null, 0.25]], \"mask\": "
        "[true, false], \"h\": [{\"\\u0041\\ud83d\\ude00\xE2\x82\xAC\": -0.5}], "
        "\"bias\": [-Infinity], \"n\": null}";
    for (size_t size = 1; size < sizeof body - 1; size++)
        expect_error_sized(body, size, NULL, CODEC_SYNTAX, NULL, (long)size, "");
    codec_document_free(read_good(body));
}
