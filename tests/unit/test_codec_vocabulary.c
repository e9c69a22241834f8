/*
 * test_codec_vocabulary.c - the words, the vocabulary and the ids of texts and tokens.
 * data/golden_seeded.json has Python's results for many more texts.
 */
#include "test_codec.h"

static struct codec_words *words_of(struct codec_document *document, struct codec_error *error) {
    const struct codec_value *text = member(document, "text");
    return text != NULL ? codec_words_of_text(document, text, error)
                        : codec_words_of_tokens(document, member(document, "tokens"), error);
}

/* Expects these words and this vocabulary, written as "word=id word=id|word=id". */
static void expect_words(const char *body, const char *expected) {
    char got[512] = "";
    size_t used = 0;
    const size_t held = test_account()->held;
    struct codec_error error = {0};
    struct codec_document *document = read_good(body);
    struct codec_words *words = words_of(document, &error);
    cr_assert_not_null(words, "%s: %s", body, error.message);
    codec_document_free(document); /* the words do not need it */
    for (size_t i = 0; i < words->count; i++) {
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s=%d", i > 0 ? " " : "",
                                 words->words[i], (int)words->ids[i]);
    }
    for (size_t i = 0; i < words->different; i++) {
        used += (size_t)snprintf(got + used, sizeof got - used, "%s%s=%d", i > 0 ? " " : "|",
                                 words->sorted[i], (int)words->sorted_ids[i]);
    }
    cr_expect_str_eq(got, expected);
    cr_expect_geq(test_account()->held, held + words->count * 32 + words->text_bytes);
    codec_words_free(words);
    cr_expect_eq(test_account()->held, held);
}

Test(codec_vocabulary, texts) {
    expect_words("{\"text\":\"a\"}", "a=0|a=0");
    expect_words("{\"text\":\"  The cat, the; DOG. \"}",
                 "the=3 cat=0 the=3 dog=1|cat=0 dog=1 the=3");
    expect_words("{\"text\":\"a,b ; .c\"}", "ab=0 c=1|ab=0 c=1");
    expect_words("{\"text\":\"b\\u00a0a\\u2003b\\u001cz\\n\"}", "b=2 a=0 b=2 z=3|a=0 b=2 z=3");
    expect_words("{\"text\":\"abcdefgh2 abcdefgh1 abcdefgh\"}",
                 "abcdefgh2=2 abcdefgh1=1 abcdefgh=0|abcdefgh=0 abcdefgh1=1 abcdefgh2=2");
}

Test(codec_vocabulary, texts_of_other_letters) {
    expect_words("{\"text\":\"\\u00c9 e z\"}", "\u00e9=2 e=0 z=1|e=0 z=1 \u00e9=2");
    expect_words("{\"text\":\"\\u0130\"}", "i\u0307=0|i\u0307=0");
    expect_words("{\"text\":\"\\u0391\\u03a3 \\u03a3\\u0391 \\u03a3\"}",
                 "\u03b1\u03c2=0 \u03c3\u03b1=2 \u03c3=1|\u03b1\u03c2=0 \u03c3=1 \u03c3\u03b1=2");
    expect_words("{\"text\":\"\\ud83d\\ude00 \\uffff\"}",
                 "\U0001F600=1 \uffff=0|\uffff=0 \U0001F600=1");
}

Test(codec_vocabulary, tokens) {
    expect_words("{\"tokens\":[\"B\",\"a b\",\"\",\"B\",\"a.\"]}",
                 "B=2 a b=3 =0 B=2 a.=4|=0 B=2 a b=3 a.=4");
}

Test(codec_vocabulary, refusals) {
    static const struct {
        const char *body, *pointer, *message;
    } rows[] = {
        {"{\"text\":\"\"}", "/text", "text has no words"},
        {"{\"text\":\" .\\t\"}", "/text", "text has no words"},
        {"{\"text\":[\"a\"]}", "/text", "text must be a string, not an array"},
        {"{\"tokens\":[]}", "/tokens", "tokens has no words"},
        {"{\"tokens\":\"a\"}", "/tokens", "tokens must be an array of words, not \"a\""},
        {"{\"tokens\":{\"a\":1}}", "/tokens", "tokens must be an array of words, not an object"},
        {"{\"tokens\":[\"a\",[\"b\"]]}", "/tokens/1", "tokens/1 must be a string, not an array"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct codec_error error = {0};
        struct codec_document *document = read_good(rows[i].body);
        cr_expect_null(words_of(document, &error), "%s", rows[i].body);
        cr_expect_str_eq(error.pointer, rows[i].pointer);
        cr_expect_str_eq(error.message, rows[i].message);
        codec_document_free(document);
    }
}
