/*
 * vocabulary.c - makes words, a vocabulary and ids of a text, as the sentence notebook does with
 * Python's lower(), replace(), split() and sorted(). This is the only file that includes
 * libunistring.
 */
#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <unictype.h>
#include <unistr.h>

#include "codec/error.h"
#include "codec/json/document.h"

/* A word with its first bytes as a number. Most words are compared by this number alone. */
struct entry {
    uint64_t first;
    const char *word;
    size_t place; /* index of the word in the text */
};

static struct codec_words *no_memory(struct codec_error *error) {
    codec_no_memory(error);
    return NULL;
}

void codec_words_free(struct codec_words *words) {
    if (words != NULL) {
        struct account *account = words->account;
        account_free(account, words->text);
        account_free(account, words->block);
        account_free(account, words);
    }
}

/* ------------------------------------------------------------------------------------ the text */

/* Is this white space for Python's str.isspace(): by Unicode, or one of the four separators of
 * ASCII? */
static bool is_space(ucs4_t c) {
    return c < 0x80 ? c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F)
                    : uc_is_property_white_space(c);
}

/* Reads the first character of text[0..size), which is not empty. Returns the number of its
 * bytes. */
static size_t get(const char *text, size_t size, ucs4_t *c) {
    *c = (unsigned char)*text;
    return *c < 0x80 ? 1 : (size_t)u8_mbtouc(c, (const uint8_t *)text, size);
}

/* Writes a character. Returns the number of its bytes. */
static size_t put(char *out, ucs4_t c) {
    *out = (char)c;
    return c < 0x80 ? 1 : (size_t)u8_uctomb((uint8_t *)out, c, 4);
}

/* Is the first character that Unicode does not call case-ignorable a cased letter? */
static bool cased_follows(const char *text, size_t size) {
    ucs4_t c = 0;
    for (size_t at = 0; at < size;) {
        at += get(text + at, size - at, &c);
        if (!uc_is_property_case_ignorable(c)) {
            return uc_is_property_cased(c);
        }
    }
    return false;
}

enum {
    LARGE_SIGMA = 0x3A3,
    FINAL_SIGMA = 0x3C2,
    LARGE_I_WITH_DOT = 0x130, /* the only letter whose lower case is two characters */
    DOT_ABOVE = 0x307
};

/*
 * Does what str.lower(), the removal of the marks , ; . and str.split() do: writes the words of
 * text[0..size) one after the other, with a NUL after each. Returns the number of words; *used is
 * the number of bytes. `out` has room for three bytes for every two of the text and one more,
 * because in lower case two bytes become three at most. One rule of Unicode depends on the
 * neighbouring letters: a sigma at the end of a word has a lower case of its own
 * (SpecialCasing.txt: Final_Sigma).
 */
static size_t clean(const char *text, size_t size, char *out, size_t *used) {
    size_t words = 0;
    bool inside = false, after_cased = false;
    char *to = out;
    ucs4_t c;
    for (size_t at = 0; at < size;) {
        at += get(text + at, size - at, &c);
        const bool final = c == LARGE_SIGMA && after_cased && !cased_follows(text + at, size - at);
        if (!uc_is_property_case_ignorable(c)) {
            after_cased = uc_is_property_cased(c);
        }
        if (is_space(c) || c == ',' || c == ';' || c == '.') {
            if (inside && is_space(c)) {
                *to++ = '\0';
                inside = false;
            }
            continue;
        }
        words += !inside;
        inside = true;
        if (c == LARGE_I_WITH_DOT) {
            to += put(to, 'i');
            c = DOT_ABOVE;
        }
        to += put(to, final ? FINAL_SIGMA : uc_tolower(c));
    }
    *to++ = '\0';
    *used = (size_t)(to - out);
    return words;
}

/* ------------------------------------------------------------------------------ the vocabulary */

static int compare(const void *a_, const void *b_) {
    const struct entry *a = a_, *b = b_;
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    return strcmp(a->word, b->word); /* the order of UTF-8's bytes is that of code points */
}

static uint64_t first_bytes(const char *word) {
    uint64_t first = 0;
    for (int i = 0; i < 8; i++) {
        first = first << 8 | (unsigned char)*word;
        word += *word != '\0';
    }
    return first;
}

/* Makes the vocabulary and the ids of the words. False if out of memory. */
static bool number(struct codec_words *words) {
    const size_t size = words->count * sizeof(struct entry);
    struct entry *entries = account_alloc(words->account, size);
    if (entries == NULL) {
        return false;
    }
    for (size_t i = 0; i < words->count; i++) {
        entries[i] = (struct entry){first_bytes(words->words[i]), words->words[i], i};
    }
    qsort(entries, words->count, sizeof *entries, compare);
    for (size_t i = words->count, id = i - 1; i-- > 0;) { /* the last place of a word is its id */
        if (compare(&entries[i], &entries[id]) != 0) {
            id = i;
        }
        words->ids[entries[i].place] = (int64_t)id;
    }
    for (size_t i = 0; i < words->count; i++) {
        if (words->ids[entries[i].place] == (int64_t)i) {
            words->sorted[words->different] = entries[i].word;
            words->sorted_ids[words->different++] = (int64_t)i;
        }
    }
    account_free(words->account, entries);
    return true;
}

/* The characters of words: `size` bytes of text with a NUL after each word. */
struct characters {
    char *text;
    size_t size;
};

/* Makes `count` words of the characters. Takes these; they are freed if out of memory. */
static struct codec_words *create(struct account *account, struct characters characters,
                                  size_t count, struct codec_error *error) {
    struct codec_words *words = account_alloc(account, sizeof *words);
    char *block = account_alloc(account, count * (2 * sizeof(char *) + 2 * sizeof(int64_t)));
    char *text = characters.text;
    if (words == NULL || block == NULL) {
        account_free(account, words);
        account_free(account, block);
        account_free(account, text);
        return no_memory(error);
    }
    *words = (struct codec_words){.count = count,
                                  .text_bytes = characters.size,
                                  .text = text,
                                  .block = block,
                                  .account = account};
    words->ids = (int64_t *)(void *)block;
    words->sorted_ids = words->ids + count;
    words->words = (const char **)(void *)(words->sorted_ids + count);
    words->sorted = words->words + count;
    for (size_t i = 0; i < count; i++) {
        words->words[i] = text;
        text += strlen(text) + 1;
    }
    if (!number(words)) {
        codec_words_free(words);
        return no_memory(error);
    }
    return words;
}

/* ----------------------------------------------------------------------------------- the words */

/* Refuses a text without words, and one with too many. */
static bool check_count(const struct codec_document *document, const struct codec_value *value,
                        size_t count, struct codec_error *error) {
    if (count == 0) {
        return codec_fail(document, value, error, "%s has no words", codec_name(value));
    }
    if (count > CODEC_MAX_WORDS) {
        return codec_fail(document, value, error, "%s has %zu words; it may have at most %d",
                          codec_name(value), count, CODEC_MAX_WORDS);
    }
    return true;
}

/* Copies the packed texts of a tensor, each with a NUL behind it instead of its length before it.
 * Takes UTF-8 without NUL only, as a JSON string would be. Returns false with the error set. */
static bool unpack(const struct codec_document *document, const struct codec_value *value,
                   const struct codec_tensor *packed, struct characters *out,
                   struct codec_error *error) {
    const uint8_t *at = packed->data, *end = at + packed->count;
    const char *name = codec_name(value);
    uint32_t size;
    char *to = out->text;
    for (size_t i = 0; i < packed->texts; i++, at += size) {
        if ((size_t)(end - at) < sizeof size) {
            return codec_fail(document, value, error,
                              "%s has %zu texts in its bytes, but %zu in its shape", name, i,
                              packed->texts);
        }
        memcpy(&size, at, sizeof size);
        at += sizeof size;
        if (size > (size_t)(end - at)) {
            return codec_fail(document, value, error,
                              "%s/%zu has a length of %u bytes, but only %zu are left", name, i,
                              (unsigned)size, (size_t)(end - at));
        }
        const uint8_t *bad = u8_check(at, size), *nul = memchr(at, 0, size);
        if (bad != NULL || nul != NULL) {
            return codec_fail(document, value, error, "%s/%zu %s at its byte %zu", name, i,
                              bad != NULL ? "is not UTF-8" : "has a NUL",
                              (size_t)((bad != NULL ? bad : nul) - at));
        }
        memcpy(to, at, size);
        to[size] = '\0';
        to += size + 1;
    }
    out->size = (size_t)(to - out->text);
    return at == end ||
           codec_fail(document, value, error, "%s has %zu bytes after the last of its %zu texts",
                      name, (size_t)(end - at), packed->texts);
}

/* Returns the packed texts of a value, or NULL if it has none. */
static const struct codec_tensor *packed_texts(const struct codec_value *value) {
    const struct codec_tensor *packed =
        codec_kind_of(value) == CODEC_TENSOR ? document_tensor(value) : NULL;
    return packed != NULL && packed->texts > 0 ? packed : NULL;
}

/* Makes words of a text, which ends with NUL. */
static struct codec_words *words_of(const struct codec_document *document,
                                    const struct codec_value *value, const char *text,
                                    struct codec_error *error) {
    struct account *account = codec_document_account(document);
    const size_t size = strlen(text);
    struct characters cleaned = {.text = account_alloc(account, size + size / 2 + 1)};
    if (cleaned.text == NULL) {
        return no_memory(error);
    }
    const size_t count = clean(text, size, cleaned.text, &cleaned.size);
    if (!check_count(document, value, count, error)) {
        account_free(account, cleaned.text);
        return NULL;
    }
    return create(account, cleaned, count, error);
}

/* Makes words of packed texts. `whole`: it is one text; otherwise each text is a word. */
static struct codec_words *words_of_packed(const struct codec_document *document,
                                           const struct codec_value *value,
                                           const struct codec_tensor *packed, bool whole,
                                           struct codec_error *error) {
    struct account *account = codec_document_account(document);
    struct characters texts;
    struct codec_words *words = NULL;
    if (whole && packed->texts != 1) {
        codec_fail(document, value, error, "%s must be one text, not %zu; words are tokens",
                   codec_name(value), packed->texts);
        return NULL;
    }
    texts.text = account_alloc(account, packed->count);
    if (texts.text == NULL) {
        return no_memory(error);
    }
    if (unpack(document, value, packed, &texts, error)) {
        if (!whole) {
            return create(account, texts, packed->texts, error);
        }
        words = words_of(document, value, texts.text, error);
    }
    account_free(account, texts.text);
    return words;
}

struct codec_words *codec_words_of_text(const struct codec_document *document,
                                        const struct codec_value *value,
                                        struct codec_error *error) {
    const struct codec_tensor *packed = packed_texts(value);
    const char *text;
    if (packed != NULL) {
        return words_of_packed(document, value, packed, true, error);
    }
    return codec_as_text(document, value, &text, error) ? words_of(document, value, text, error)
                                                        : NULL;
}

struct codec_words *codec_words_of_tokens(const struct codec_document *document,
                                          const struct codec_value *value,
                                          struct codec_error *error) {
    const size_t count = codec_size(value);
    const struct codec_value *item;
    const struct codec_tensor *packed = packed_texts(value);
    const char *word;
    size_t size = 0;
    if (packed != NULL) {
        return words_of_packed(document, value, packed, false, error);
    }
    if (codec_kind_of(value) != CODEC_ARRAY) {
        codec_refuse(document, value, "an array of words", error);
        return NULL;
    }
    if (!check_count(document, value, count, error)) {
        return NULL;
    }
    for (item = codec_at(value, 0); item != NULL; item = codec_next(item)) {
        if (!codec_as_text(document, item, &word, error)) {
            return NULL;
        }
        size += strlen(word) + 1;
    }
    struct account *account = codec_document_account(document);
    char *text = account_alloc(account, size), *to = text;
    if (text == NULL) {
        return no_memory(error);
    }
    for (item = codec_at(value, 0); item != NULL; item = codec_next(item)) {
        codec_as_text(document, item, &word, error);
        to = stpcpy(to, word) + 1;
    }
    return create(account, (struct characters){text, size}, count, error);
}
