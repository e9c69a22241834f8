/* test_codec_reader.c - limits, memory, options and cuts of bodies. data/values.txt has what is
 * read out of them, and every error of content with its place. */
#include <glob.h>

#include "test_codec.h"

static attn_tensor reals(const struct codec_document *document, const char *name) {
    attn_tensor tensor = {0};
    struct codec_error error = {0};
    cr_assert(
        codec_as_reals_or_null(document, member(document, name), 1, ATTN_MAX_RANK, &tensor, &error),
        "%s", error.message);
    return tensor;
}

/* A message repeats at most 64 bytes of the client, in whole characters and without control
 * bytes. */
Test(codec_reader, long_names_are_cut) {
    char body[1000];
    size_t size = 0;
    body[size++] = '{';
    for (int twice = 0; twice < 2; twice++) {
        size += (size_t)sprintf(body + size, "%s\"x", twice ? "," : "");
        for (int i = 0; i < 100; i++)
            size += (size_t)sprintf(body + size, "\xC3\xA9");
        size += (size_t)sprintf(body + size, "\":1");
    }
    struct outcome outcome = read_sized(body, size, NULL);
    cr_expect_eq(outcome.error.status, CODEC_SYNTAX);
    cr_expect_str_eq(outcome.error.pointer, "");
    size_t echoed = 0;
    for (const char *c = outcome.error.message; *c != '\0'; c++)
        echoed += (unsigned char)*c >= 0x80;
    cr_expect_eq(echoed, 62); /* and one "x": the 64th byte would cut a character */
    cr_expect_not_null(strstr(outcome.error.message, "\xC3\xA9...\""));
}

Test(codec_reader, many_keys) {
    char *body = malloc(40000), *out = body;
    out += sprintf(out, "{");
    for (int i = 0; i < 1024; i++)
        out += sprintf(out, "%s\"k%d\":1", i > 0 ? "," : "", i);
    *out = '}';
    struct outcome outcome = read_sized(body, (size_t)(out + 1 - body), NULL);
    cr_expect_eq(outcome.error.status, CODEC_OK);
    codec_document_free(outcome.document);
    out += sprintf(out, ",\"k1024\":1}");
    expect_error_sized(body, (size_t)(out - body), NULL, CODEC_TOO_LARGE, NULL, -1,
                       "more than 1024 keys");

    free(body);
}

/* Many keys are found by a table. It must forget the keys of an object that has ended, and no
 * other. */
Test(codec_reader, a_table_of_keys, .timeout = 1200) {
    enum {
        KEYS = 3000
    };
    const struct codec_options options = {.max_keys = KEYS + 3};
    char *body = malloc(80 * KEYS), *out = body;
    out += sprintf(out, "{");
    for (int i = 0; i < KEYS; i++) /* the names in the inner objects are also those of the outer */
        out += sprintf(out, "%s\"k%d\":{\"k%d\":1,\"k1\":2}", i > 0 ? "," : "", i, i == 1 ? 0 : i);
    *out = '}';
    struct outcome outcome = read_pieces(body, (size_t)(out + 1 - body), &options, 0);
    cr_expect_eq(outcome.error.status, CODEC_OK, "%s", outcome.error.message);
    codec_document_free(outcome.document);
    for (int i = 0; i < KEYS; i += 7) {
        const int size = sprintf(out, ",\"k%d\":1}", i);
        outcome = read_pieces(body, (size_t)(out + size - body), &options, 0);
        cr_expect_not_null(strstr(outcome.error.message, "twice"), "k%d", i);
        cr_expect_eq(outcome.error.offset, (size_t)(out + 1 - body));
    }
    int size = sprintf(out, ",\"a\":{\"k5\":1,\"b\":{\"k5\":1},\"k5\":2}}");
    outcome = read_pieces(body, (size_t)(out + size - body), &options, 0);
    cr_expect_str_eq(outcome.error.message,
                     "more than 3003 keys in nested objects, which is a fixed limit");
    size = sprintf(out, ",\"a\":{\"k5\":1,\"k5\":2}}");
    outcome = read_pieces(body, (size_t)(out + size - body), &options, 0);
    cr_expect_str_eq(outcome.error.pointer, "/a/k5", "%s", outcome.error.message);

    out = body + sprintf(body, "[{}"); /* the table has room for less than 10000 keys */
    for (int i = 0; i < 10000; i++)
        out += sprintf(out, ",{\"%d\":1}", i);
    out += sprintf(out, "]");
    outcome = read_pieces(body, (size_t)(out - body), &options, 0);
    cr_expect_eq(outcome.error.status, CODEC_OK, "%s", outcome.error.message);
    codec_document_free(outcome.document);
    free(body);
}

/* Each limit is reached by the good end of a body, and exceeded by the bad one. What is in matrices
 * counts neither as bytes nor as values. Empty arrays have no commas, but each of them is a value,
 * and so is the outermost array. A tensor costs a struct and a buffer. The keys of closed objects
 * do not count. */
Test(codec_reader, limits) {
    static const struct {
        struct codec_options options;
        const char *start, *piece;
        size_t pieces;
        const char *good, *bad, *message;
    } rows[] = {
        {{.max_bytes = 20},
         "{\"a\": [1,2,3,4,5,6,7,8,9], \"bc\": \"d",
         "",
         0,
         "efgh\"}",
         "efghi\"}",
         "more than 20 bytes outside of its matrices"},
        {{.max_values = 5},
         "{\"a\":1,\"b\":[1,2,3,4,5,6,7],\"c\":\"\",\"d\":{}",
         "",
         0,
         "}",
         ",\"e\":null}",
         "more than 5 values"},
        {{0}, "[", "\"\",", 65536 - 2, "[1,2]]", "[1,2],\"\"]", "more than 65536 values"},
        {{0},
         "[",
         "[[[[[[[[[[[[[[]]]]]]]]]]]]]],",
         65536 / 14,
         "\"\"]",
         "1.5,\"\"]",
         "more than 65536 values"},
        {{0}, "[\"\"", ",[1]", 4096, "]", ",[1]]", "more than 4096 arrays of numbers"},
        {{0}, "[", "{\"a\":{\"b\":1},\"c\":2},", 1500, "1]", NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *body = malloc(rows[i].pieces * strlen(rows[i].piece) + 200);
        char *out = stpcpy(body, rows[i].start);
        for (size_t k = 0; k < rows[i].pieces; k++) {
            out = stpcpy(out, rows[i].piece);
        }
        strcpy(out, rows[i].good);
        struct outcome outcome = read_pieces(body, strlen(body), &rows[i].options, 0);
        cr_expect_eq(outcome.error.status, CODEC_OK, "%s", outcome.error.message);
        codec_document_free(outcome.document);
        if (rows[i].bad != NULL) {
            strcpy(out, rows[i].bad);
            expect_error_sized(body, strlen(body), &rows[i].options, CODEC_TOO_LARGE, NULL, -1,
                               rows[i].message);
        }
        free(body);
    }
    const struct codec_options few = {.max_bytes = 20};
    expect_error_sized("{\"a\":\"123456789012345678901\xFF\"}", 30, &few, CODEC_TOO_LARGE, NULL, -1,
                       "more than 20 bytes");
    expect_error_sized("{\"a\":\"12345678901234\xFF\"}", 23, &few, CODEC_SYNTAX, NULL, 20, "UTF-8");
}

/* Reads a body with an account that may hold `most` bytes. All of them must be given back. Returns
 * the most that the account held. */
static size_t read_within(const char *body, size_t most, enum codec_status status) {
    struct budget budget = {.max_request = most, .max_total = 2 * most};
    struct account account;
    account_open(&account, &budget, 0);
    const struct codec_options options = {
        .dtype_key = "dtype", .infinity_keys = codec_bias, .account = &account};
    struct outcome outcome = read_pieces(body, strlen(body), &options, 1000);
    cr_expect_eq(outcome.error.status, status, "%.9s in %zu bytes", body, most);
    cr_expect_eq(account.refusal, status == CODEC_OK ? ACCOUNT_NOT_REFUSED : ACCOUNT_OVER_REQUEST);
    codec_document_free(outcome.document);
    cr_expect_eq(account.held, 0);
    const size_t peak = account.peak;
    account_close(&account);
    cr_expect_eq(budget.used, 0);
    return peak;
}

/* Memory is counted for everything that a body may consist of: numbers, a matrix, texts and
 * objects. */
Test(codec_reader, memory_is_counted_and_limited) {
    enum {
        SIZE = 200000
    };
    static const char *const pieces[] = {"1.25,", "[1],", "\"text\",", "{},", "[[\"a\"]],"};
    char *body = malloc(SIZE + 100);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        char *out = body + sprintf(body, "{\"a\":[");
        const size_t count = i == 0 ? SIZE / 5 : 4000;
        for (size_t j = 0; j < count; j++) {
            out = stpcpy(out, pieces[i]);
        }
        strcpy(out - 1, "],\"dtype\":\"float64\"}");
        const size_t needed = read_within(body, (size_t)1 << 30, CODEC_OK);
        cr_expect_gt(needed, strlen(body));
        for (size_t part = 1; part < 4; part++) {
            read_within(body, needed * part / 4, CODEC_NO_MEMORY);
        }
    }
    free(body);
}

Test(codec_reader, errors_stay) {
    struct codec_reader *reader = codec_reader_create(NULL);
    struct codec_document *document;
    cr_expect_eq(codec_reader_feed(reader, "[1,,", 4), CODEC_SYNTAX);
    struct codec_error first = *codec_reader_error(reader);
    cr_expect_eq(codec_reader_feed(reader, "[}", 2), CODEC_SYNTAX);
    cr_expect_eq(codec_reader_finish(reader, &document), CODEC_SYNTAX);
    cr_expect_null(document);
    cr_expect_eq(memcmp(&first, codec_reader_error(reader), sizeof first), 0);
    codec_reader_free(reader);
    codec_reader_free(NULL);
    codec_document_free(NULL);
}

/* The keys of the service mean something only if they are given, and others can be given. */
Test(codec_reader, keys_are_given) {
    static const char *const low[] = {"low", "lower", NULL};
    const struct codec_options none = {0}, others = {.dtype_key = "type", .infinity_keys = low};
    const char *body = "{\"dtype\":\"float64\",\"K\":[[1]]}";
    struct outcome outcome = read_sized(body, strlen(body), &none);
    cr_assert_not_null(outcome.document, "%s", outcome.error.message);
    cr_expect_eq(codec_document_dtype(outcome.document), ATTN_FLOAT32);
    codec_document_free(outcome.document);

    body = "{\"K\":[[1]],\"low\":[-Infinity],\"lower\":[-Infinity],\"type\":\"float64\"}";
    outcome = read_sized(body, strlen(body), &others);
    cr_assert_not_null(outcome.document, "%s", outcome.error.message);
    cr_expect_eq(codec_document_dtype(outcome.document), ATTN_FLOAT64);
    codec_document_free(outcome.document);

    body = "{\"bias\":[-Infinity]}";
    expect_error_sized(body, strlen(body), &none, CODEC_SYNTAX, NULL, 9,
                       "-Infinity is not JSON: numbers must be finite");
    expect_error_sized(body, strlen(body), &others, CODEC_SYNTAX, NULL, 9,
                       "-Infinity is not JSON: only \"low\" and \"lower\" take it");
    body = "{\"low\":[1,NaN]}";
    expect_error_sized(body, strlen(body), &others, CODEC_SYNTAX, NULL, 10,
                       "NaN is not JSON: \"low\" takes finite numbers, null and -Infinity");
    body = "{\"low\":-inf}";
    expect_error_sized(body, strlen(body), &others, CODEC_SYNTAX, NULL, 7,
                       "-inf is not JSON: \"low\" takes finite numbers, null and -Infinity");
    body = "{\"low\":[1],\"X\":[NaN]}";
    expect_error_sized(body, strlen(body), &others, CODEC_SYNTAX, NULL, 16,
                       "NaN is not JSON: numbers must be finite");
}

/* A text becomes the value that it is as JSON, or stays a text. What is left of a text that is no
 * JSON does not reach the next one. A text that cannot be read for want of memory is no text. */
Test(codec_reader, texts_that_are_json) {
    static const char *const whole[] = {"", NULL};
    static const struct {
        const char *text, *const *infinity_keys;
        enum codec_kind kind;
    } rows[] = {{"\"abc", NULL, CODEC_TEXT},
                {"[\"a\",[2,", NULL, CODEC_TEXT},
                {"{\"a\":[1,2],\"b\"", NULL, CODEC_TEXT},
                {"\"a\"", NULL, CODEC_TEXT},
                {"1", NULL, CODEC_NUMBER},
                {"[2, 0]", NULL, CODEC_TENSOR},
                {"[\"a\"]", NULL, CODEC_ARRAY},
                {" {\"a\":null} ", NULL, CODEC_OBJECT},
                {"true", NULL, CODEC_BOOL},
                {"null", NULL, CODEC_NULL},
                {"", NULL, CODEC_TEXT},
                {"[2,]", NULL, CODEC_TEXT},
                {"text", NULL, CODEC_TEXT},
                {"'text'", NULL, CODEC_TEXT},
                {"1 2", NULL, CODEC_TEXT},
                {"NaN", NULL, CODEC_TEXT},
                {"[-Infinity]", NULL, CODEC_TEXT},
                {"-Infinity", whole, CODEC_NUMBER},
                {"[[-Infinity,0]]", whole, CODEC_TENSOR},
                {"{\"a\":[-Infinity]}", whole, CODEC_OBJECT},
                {"[NaN]", whole, CODEC_TEXT},
                {"[-Infinit]", whole, CODEC_TEXT},
                {"[-Infinityx]", whole, CODEC_TEXT}};
    const size_t count = COUNT(rows);
    for (size_t most = 0, read = 0; read < count; most += 64) {
        struct budget budget = {.max_request = SIZE_MAX / 2, .max_total = SIZE_MAX / 2};
        struct account account;
        account_open(&account, &budget, 0);
        struct codec_options options = {.account = &account};
        struct codec_document *document = read_pieces("{}", 2, &options, 0).document;
        account.most = account.held + most;
        for (read = 0; read < count; read++) {
            struct codec_error error;
            struct codec_value *value = codec_make_value(document, NULL, NULL, CODEC_NULL);
            options.infinity_keys = rows[read].infinity_keys;
            if (value == NULL || !codec_set_json(document, value, "\"no JSON", &options, &error) ||
                !codec_set_json(document, value, rows[read].text, &options, &error)) {
                cr_expect(account.refusal != ACCOUNT_NOT_REFUSED);
                break;
            }
            const char *text;
            cr_expect_eq(codec_kind_of(value), rows[read].kind, "%s", rows[read].text);
            cr_expect(rows[read].kind != CODEC_TEXT ||
                          (codec_as_text(document, value, &text, &error) &&
                           strcmp(text, read == 3 ? "a" : rows[read].text) == 0),
                      "%s", rows[read].text);
        }
        codec_document_free(document);
        cr_expect_eq(account.held, 0);
        account_close(&account);
    }
}

/* The keys may be members of objects at another level. In {"a":[{"k":1}]} the inner object has the
 * level 3. The dtype is always that of the outermost object. */
Test(codec_reader, keys_of_another_level) {
    static const char *const low[] = {"low", NULL};
    static const struct {
        size_t level;
        const char *body;
        attn_dtype dtype;
        long offset; /* where -Infinity is refused; -1: the body is accepted */
    } rows[] = {
        {0, "{\"low\":[-Infinity],\"type\":\"float64\"}", ATTN_FLOAT64, -1},
        {1, "{\"type\":\"float64\",\"low\":[-Infinity]}", ATTN_FLOAT64, -1},
        {1, "{\"type\":\"float65\",\"low\":[1]}", ATTN_FLOAT32, -1},
        {1, "{\"type\":64,\"low\":[1]}", ATTN_FLOAT32, -1},
        {1, "{\"type\":[\"float64\"],\"low\":[1]}", ATTN_FLOAT32, -1},
        {1, "{\"a\":[{\"type\":\"float64\"}],\"low\":[1]}", ATTN_FLOAT32, -1},
        {1, "{\"a\":[{\"low\":[-Infinity]}]}", ATTN_FLOAT32, 14},
        {2, "{\"a\":{\"type\":\"float64\",\"low\":[-Infinity]}}", ATTN_FLOAT32, -1},
        {3, "{\"a\":[{\"x\":1},{\"low\":[-Infinity,0]}],\"type\":\"float64\"}", ATTN_FLOAT64, -1},
        {3, "{\"type\":\"float64\",\"low\":[-Infinity]}", ATTN_FLOAT32, 25},
        {3, "{\"a\":[{\"c\":{\"low\":[-Infinity]}}]}", ATTN_FLOAT32, 19},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct codec_options options = {
            .key_level = rows[i].level, .dtype_key = "type", .infinity_keys = low};
        if (rows[i].offset >= 0) {
            expect_error_sized(rows[i].body, strlen(rows[i].body), &options, CODEC_SYNTAX, NULL,
                               rows[i].offset, "-Infinity is not JSON");
            continue;
        }
        struct outcome outcome = read_sized(rows[i].body, strlen(rows[i].body), &options);
        cr_assert_not_null(outcome.document, "%s: %s", rows[i].body, outcome.error.message);
        cr_expect_eq(codec_document_dtype(outcome.document), rows[i].dtype, "%zu %s", rows[i].level,
                     rows[i].body);
        codec_document_free(outcome.document);
    }
}

/* --------------------------------------------------------------------------------------- dtype */

/* The dtype may stand before the numbers and behind them, in bodies of any size. */
Test(codec_reader, a_dtype_at_both_ends) {
    enum {
        ROWS = 70000
    };
    static const char dtype[] = "\"dtype\":\"float64\"";
    char *body = malloc(ROWS * 60);
    for (int last = 0; last < 2; last++) {
        for (int wide = 0; wide < 2; wide++) {
            for (size_t rows = 1; rows <= ROWS; rows *= ROWS - 1) {
                char *out = body;
                out += sprintf(out, "{%s%s\"K\":[", wide && !last ? dtype : "",
                               wide && !last ? "," : "");
                for (size_t i = 0; i < rows; i++) {
                    out += sprintf(out, "%s[0.1, 16777217,1.00000005960464477539062500001]",
                                   i > 0 ? "," : "");
                }
                out += sprintf(out, "]%s%s}", wide && last ? "," : "", wide && last ? dtype : "");
                struct outcome outcome = read_pieces(body, (size_t)(out - body), NULL, 70000);
                cr_assert_not_null(outcome.document, "%s", outcome.error.message);
                const attn_tensor k = reals(outcome.document, "K");
                cr_assert(k.dtype == (wide ? ATTN_FLOAT64 : ATTN_FLOAT32) && k.shape[0] == rows);
                for (size_t i = 0; i < rows && wide; i++) {
                    const double *row = (const double *)k.data + 3 * i;
                    cr_assert(row[0] == 0.1 && row[1] == 16777217 && row[2] == 0x1.000001p0);
                }
                for (size_t i = 0; i < rows && !wide; i++) {
                    const float *row = (const float *)k.data + 3 * i;
                    cr_assert(row[0] == 0.1f && row[1] == 16777216 && row[2] == 0x1.000002p0f);
                }
                codec_document_free(outcome.document);
            }
        }
    }
    free(body);
}

static char *file_text(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size);
    cr_assert_eq(fread(text, 1, *size, file), *size);
    fclose(file);
    return text;
}

/* The bodies of the notebooks give the same values and the same tensors, bit for bit, in all
 * cuts. */
Test(codec_reader, notebooks_in_cuts) {
    static const size_t cuts[] = {1, 7, 64, 1000};
    glob_t files;
    cr_assert_eq(glob(TESTS_DIR "/notebooks/*.request.json", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        size_t size;
        char *text = file_text(files.gl_pathv[i], &size);
        struct codec_document *whole = read_pieces(text, size, NULL, 0).document;
        cr_assert_not_null(whole, "%s", files.gl_pathv[i]);
        char *expected = dump(whole);
        codec_document_free(whole);
        for (size_t j = 0; j < COUNT(cuts); j++) {
            struct codec_document *cut = read_cuts(text, size, NULL, cuts[j], false).document;
            cr_assert_not_null(cut, "%s in cuts of %zu", files.gl_pathv[i], cuts[j]);
            char *actual = dump(cut);
            cr_expect_eq(strcmp(actual, expected), 0, "%s in cuts of %zu", files.gl_pathv[i],
                         cuts[j]);
            free(actual);
            codec_document_free(cut);
        }
        free(expected);
        free(text);
    }
    globfree(&files);
}

/* A large matrix grows through every kind of buffer and keeps all its elements. */
Test(codec_reader, large_matrix) {
    enum {
        ROWS = 700,
        COLUMNS = 1000
    };
    char *body = malloc(ROWS * COLUMNS * 12 + 100), *out = body;
    out += sprintf(out, "{\"K\":[");
    for (int i = 0; i < ROWS; i++) {
        out += sprintf(out, i > 0 ? ",[" : "[");
        for (int j = 0; j < COLUMNS; j++)
            out += sprintf(out, "%s%d.5", j > 0 ? ", " : "", i * COLUMNS + j);
        *out++ = ']';
    }
    out += sprintf(out, "]}");
    struct outcome outcome = read_pieces(body, (size_t)(out - body), NULL, 70000);
    cr_assert_not_null(outcome.document, "%s", outcome.error.message);
    attn_tensor tensor = reals(outcome.document, "K");
    cr_assert(tensor.rank == 2 && tensor.shape[0] == ROWS && tensor.shape[1] == COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        cr_assert_eq(((const float *)tensor.data)[i], (float)i + 0.5f);
    codec_document_free(outcome.document);
    free(body);
}
