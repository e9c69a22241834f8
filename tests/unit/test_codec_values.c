/*
 * test_codec_values.c - what is read out of bodies, and what each refusal says: the rows of
 * tests/data/values.txt.
 */
#include "codec/binary.h"
#include "codec/safetensors.h"
#include "support/rows.h"
#include "test_codec.h"

enum {
    LINE = 1024, /* bytes of a result */
    MOST = 8     /* numbers of a list, and words of a row */
};

/* What a row asks for: words, and the value that it is about. */
struct ask {
    struct codec_document *document;
    const struct codec_value *value;
    char *words[MOST];
    size_t count;
};

/* Returns a number among the words; "max" and "min" are the ends of int64_t. */
static int64_t number_of(const struct ask *ask, size_t word) {
    cr_assert_lt(word, ask->count);
    const char *text = ask->words[word];
    return strcmp(text, "max") == 0   ? INT64_MAX
           : strcmp(text, "min") == 0 ? INT64_MIN
                                      : strtoll(text, NULL, 10);
}

/* ---------------------------------------------------------------------------------- the results */

static void print_tensor(char *out, const attn_tensor *t) {
    static const char *const types[] = {
        [ATTN_FLOAT32] = "float32", [ATTN_FLOAT64] = "float64", [ATTN_BOOL] = "bool"};
    size_t count = 0;
    out += sprintf(out, "%s ", types[t->dtype]);
    for (int axis = 0; axis < t->rank; axis++) {
        out += sprintf(out, "%s%zu", axis > 0 ? "x" : "", t->shape[axis]);
    }
    attn_tensor_count(t, &count);
    for (size_t i = 0; i < count; i++) {
        out += sprintf(out, "%s%.17g", i > 0 ? "," : ": ",
                       t->dtype == ATTN_FLOAT32   ? (double)((const float *)t->data)[i]
                       : t->dtype == ATTN_FLOAT64 ? ((const double *)t->data)[i]
                                                  : (double)((const unsigned char *)t->data)[i]);
    }
}

static bool ask_kind(const struct ask *ask, char *out, struct codec_error *error) {
    static const char *const kinds[] = {
        [CODEC_NULL] = "null",     [CODEC_BOOL] = "bool",   [CODEC_NUMBER] = "number",
        [CODEC_TEXT] = "text",     [CODEC_ARRAY] = "array", [CODEC_OBJECT] = "object",
        [CODEC_TENSOR] = "tensor",
    };
    (void)error;
    if (ask->value == NULL) {
        strcpy(out, "none");
    } else {
        sprintf(out, "%s %zu", kinds[codec_kind_of(ask->value)], codec_size(ask->value));
    }
    return true;
}

static bool ask_bool(const struct ask *ask, char *out, struct codec_error *error) {
    bool truth;
    const bool good = codec_as_bool(ask->document, ask->value, &truth, error);
    strcpy(out, good && truth ? "true" : "false");
    return good;
}

static bool ask_number(const struct ask *ask, char *out, struct codec_error *error) {
    double number = 0;
    const bool good = codec_as_number(ask->document, ask->value, &number, error);
    sprintf(out, "%.17g", number);
    return good;
}

static bool ask_text(const struct ask *ask, char *out, struct codec_error *error) {
    const char *text = "";
    const bool good = codec_as_text(ask->document, ask->value, &text, error);
    snprintf(out, LINE, "%s", text);
    return good;
}

static bool ask_integer(const struct ask *ask, char *out, struct codec_error *error) {
    int64_t number = 0;
    const bool good = codec_as_integer(ask->document, ask->value, number_of(ask, 1),
                                       number_of(ask, 2), &number, error);
    sprintf(out, "%lld", (long long)number);
    return good;
}

/* The last word is how many numbers there is room for. */
static bool ask_integers(const struct ask *ask, char *out, struct codec_error *error) {
    int64_t list[MOST] = {0};
    size_t count = 0;
    const size_t most = (size_t)number_of(ask, 3);
    const bool good = codec_as_integers(ask->document, ask->value, number_of(ask, 1),
                                        number_of(ask, 2), list, most, &count, error);
    out += sprintf(out, "%zu", count);
    for (size_t i = 0; good && i < MOST && i <= most && i < count; i++) {
        out += sprintf(out, "%s%lld", i > 0 ? "," : ": ", (long long)list[i]);
    }
    return good;
}

/* The other words are the choices. */
static bool ask_choice(const struct ask *ask, char *out, struct codec_error *error) {
    size_t choice = 0;
    const bool good =
        codec_as_choice(ask->document, ask->value, (const char *const *)ask->words + 1,
                        ask->count - 1, &choice, error);
    sprintf(out, "%zu", choice);
    return good;
}

static bool ask_real(const struct ask *ask, char *out, struct codec_error *error) {
    attn_tensor tensor;
    double element;
    const bool good = codec_as_real(ask->document, ask->value, &element, &tensor, error);
    if (good) {
        print_tensor(out, &tensor);
    }
    return good;
}

static bool ask_matrix(const struct ask *ask, char *out, struct codec_error *error) {
    attn_tensor tensor;
    const int least = (int)number_of(ask, 1), most = (int)number_of(ask, 2);
    const char *what = ask->words[0];
    const bool good =
        strcmp(what, "reals") == 0
            ? codec_as_reals(ask->document, ask->value, least, most, &tensor, error)
        : strcmp(what, "or_null") == 0
            ? codec_as_reals_or_null(ask->document, ask->value, least, most, &tensor, error)
            : codec_as_mask(ask->document, ask->value, least, most, &tensor, error);
    if (good) {
        print_tensor(out, &tensor);
    }
    return good;
}

/* The words and then the vocabulary, each with its id. */
static bool ask_words(const struct ask *ask, char *out, struct codec_error *error) {
    const size_t held = test_account()->held;
    const struct codec_value *text = member(ask->document, "text");
    struct codec_words *words =
        text != NULL ? codec_words_of_text(ask->document, text, error)
                     : codec_words_of_tokens(ask->document, member(ask->document, "tokens"), error);
    if (words == NULL) {
        return false;
    }
    cr_expect_geq(test_account()->held, held + words->count * 32 + words->text_bytes);
    for (size_t i = 0; i < words->count; i++) {
        out += sprintf(out, "%s=%d ", words->words[i], (int)words->ids[i]);
    }
    *out = '\0';
    for (size_t i = 0; i < words->different; i++) {
        out += sprintf(out, "%s%s=%d", i > 0 ? " " : "/ ", words->sorted[i],
                       (int)words->sorted_ids[i]);
    }
    codec_words_free(words);
    return true;
}

/* The spec of a tensor of a type "t" and a shape "s". */
static bool ask_spec(const struct ask *ask, char *out, struct codec_error *error) {
    struct codec_tensor_spec spec = {.bytes = 0};
    const bool good =
        codec_as_spec(ask->document, member(ask->document, "t"), member(ask->document, "s"), "W\"Q",
                      codec_safetensors_types, &spec, error);
    sprintf(out, "%zu", spec.bytes);
    return good;
}

/* The tensors of the header of a body, or of a file with so many bytes after it. */
static bool ask_header(const struct ask *ask, char *out, struct codec_error *error) {
    struct codec_header_tensor list[MOST];
    struct codec_safetensors header = {.list = list, .most = MOST};
    const size_t bytes =
        strcmp(ask->words[1], "body") == 0 ? SAFETENSORS_BODY : (size_t)number_of(ask, 1);
    if (!codec_safetensors_read(ask->document, bytes, &header, error)) {
        return false;
    }
    out += sprintf(out, "%s", header.metadata != NULL ? "metadata" : "tensors");
    for (size_t i = 0; i < header.count; i++) {
        const struct codec_header_tensor *t = &list[i];
        out += sprintf(out, " %s %s %d axes", t->name,
                       t->type == CODEC_TYPE_COUNT ? "other" : codec_safetensors_types[t->type],
                       t->rank);
        for (int axis = 0; axis < t->rank; axis++) {
            out += sprintf(out, "%s%zu", axis > 0 ? "x" : " ", t->shape[axis]);
        }
        out += sprintf(out, " %zu+%zu", t->begin, t->bytes);
    }
    return true;
}

/* ------------------------------------------------------------------------------------- the rows */

static const struct {
    const char *word;
    bool (*ask)(const struct ask *ask, char *out, struct codec_error *error);
} asks[] = {
    {"kind", ask_kind},      {"bool", ask_bool},       {"number", ask_number},
    {"text", ask_text},      {"integer", ask_integer}, {"integers", ask_integers},
    {"choice", ask_choice},  {"real", ask_real},       {"reals", ask_matrix},
    {"or_null", ask_matrix}, {"mask", ask_matrix},     {"words", ask_words},
    {"spec", ask_spec},      {"header", ask_header},
};

/* Returns the value at a pointer such as "/a/0"; NULL if there is none. */
static const struct codec_value *find_value(const struct codec_document *document, char *pointer) {
    const struct codec_value *value = codec_root(document);
    for (char *name = strtok(pointer, "/"); name != NULL; name = strtok(NULL, "/")) {
        char *escape = strstr(name, "~1");
        if (escape != NULL) {
            *escape = '/';
            memmove(escape + 1, escape + 2, strlen(escape + 2) + 1);
        }
        value = codec_kind_of(value) == CODEC_OBJECT ? codec_get(value, name)
                                                     : codec_at(value, strtoul(name, NULL, 10));
    }
    return value;
}

static void print_error(char *out, const struct codec_error *error) {
    static const char *const names[] = {[CODEC_OK] = "ok",
                                        [CODEC_SYNTAX] = "syntax",
                                        [CODEC_CONTENT] = "content",
                                        [CODEC_TOO_LARGE] = "too large",
                                        [CODEC_NO_MEMORY] = "no memory"};
    out += sprintf(out, "! %s", names[error->status]);
    if (error->has_offset) {
        out += sprintf(out, " %zu", error->offset);
    }
    if (error->has_pointer) {
        out += sprintf(out, " %s", error->pointer);
    }
    sprintf(out, ": %s", error->message);
}

/* Asks for the value at a pointer, or for one that needs none. */
static void answer_row(struct codec_document *document, char *row, char out[LINE]) {
    struct ask ask = {.document = document};
    struct codec_error error = {.status = CODEC_OK};
    char *pointer = NULL;
    for (char *word = strtok(row, " "); word != NULL; word = strtok(NULL, " ")) {
        if (word[0] == '/') {
            pointer = word;
        } else {
            cr_assert_lt(ask.count, MOST);
            ask.words[ask.count++] = word;
        }
    }
    ask.value = pointer != NULL ? find_value(document, pointer) : NULL;
    cr_assert(ask.count > 0 && ask.words[0] != NULL);
    size_t i = 0;
    while (i < COUNT(asks) && strcmp(asks[i].word, ask.words[0]) != 0) {
        i++;
    }
    cr_assert_lt(i, COUNT(asks), "%s", ask.words[0]);
    if (!asks[i].ask(&ask, out, &error)) {
        print_error(out, &error);
    }
}

/* Reads the body of a row, in all cuts. Writes the error, or the dtype of the document. */
static struct codec_document *read_row(const char *body, size_t size, char out[LINE]) {
    struct outcome outcome = read_sized(body, size, NULL);
    if (outcome.document == NULL) {
        print_error(out, &outcome.error);
    } else {
        strcpy(out, codec_document_dtype(outcome.document) == ATTN_FLOAT64 ? "float64" : "float32");
    }
    return outcome.document;
}

Test(codec_values, are_those_of_their_rows) {
    static struct rows rows;
    static char row[ROWS_BYTES], expected[ROWS_BYTES], got[ROWS_BYTES];
    struct codec_document *document = NULL;
    const size_t held = test_account()->held;
    size_t count = 0;
    rows_open(&rows, "values.txt");
    while (rows_next(&rows)) {
        char *result = strstr(rows.line, " => "), *body;
        if (rows.line[0] == '=') {
            codec_document_free(document);
            document = read_row(row, rows_expand(&rows, rows.line + 2, row), got);
            cr_assert_not_null(document, "line %u: %s", rows.number, got);
            continue;
        }
        cr_assert_not_null(result, "line %u", rows.number);
        *result = '\0';
        const size_t size = rows_expand(&rows, rows.line, row);
        rows_expand(&rows, result + strlen(" => "), expected);
        body = strstr(row, ": ");
        if (body == NULL) {
            answer_row(document, row, got);
        } else { /* the row has a body of its own */
            *body = '\0';
            body += 2;
            struct codec_document *own = read_row(body, size - (size_t)(body - row), got);
            if (own != NULL && strcmp(row, "read") != 0) {
                answer_row(own, row, got);
            }
            codec_document_free(own);
        }
        cr_expect_str_eq(got, expected, "line %u: %s", rows.number, got);
        count++;
    }
    codec_document_free(document);
    rows_close(&rows);
    cr_expect_eq(test_account()->held, held);
    cr_expect_gt(count, 250);
}

Test(codec_values, words_do_not_need_their_document) {
    struct codec_error error;
    struct codec_document *document = read_good("{\"text\":\"b a b\"}");
    struct codec_words *words = codec_words_of_text(document, member(document, "text"), &error);
    codec_document_free(document);
    cr_assert_not_null(words);
    cr_expect_str_eq(words->words[2], "b");
    cr_expect_str_eq(words->sorted[0], "a");
    codec_words_free(words);
}
