/* test_codec_safetensors.c - the headers of safetensors: what is refused, and that a header which
 * is written can be read. */
#include "codec/safetensors.h"
#include "test_codec.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

Test(codec_safetensors, lengths) {
    static const struct {
        unsigned char prefix[SAFETENSORS_PREFIX];
        uint64_t length;
    } rows[] = {{{2}, 2},
                {{0, 1}, 256},
                {{0x00, 0xE1, 0xF5, 0x05}, 100000000},
                {{0, 0, 0, 0, 0, 0, 0, 0x80}, UINT64_C(1) << 63},
                {{255, 255, 255, 255, 255, 255, 255, 255}, UINT64_MAX}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect_eq(codec_safetensors_length(rows[i].prefix), rows[i].length);
    }
}

#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define SINGLE(offsets) TENSOR("\"F32\"", "[1]", offsets) /* a tensor of four bytes */

/* Each check that a reader of the format makes, and the keys that only a strict one refuses. */
Test(codec_safetensors, headers_that_are_refused) {
    static const struct {
        const char *header, *tensor, *rule;
    } rows[] = {
        {"[]", NULL, "the body must be an object, not an empty array"},
        {"[{}]", NULL, "the body must be an object"},
        {"{\"A\":1}", "A", "A must be an object, not a number"},
        {"{\"A\":null}", "A", "A must be an object, not null"},
        {"{\"A\":{}}", "A", "must have a type, which is a string such as \"F32\""},
        {"{\"A\":{\"dtype\":\"F32\"}}", "A", "has no shape"},
        {"{\"A\":{\"dtype\":\"F32\",\"shape\":[1]}}", "A", "must have data_offsets, two offsets"},
        {"{\"A\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "A", "must have a type"},
        {"{\"A\":" TENSOR("\"FP32\"", "[1]", "[0,4]") "}", "A", "has the type \"FP32\""},
        {"{\"A\":" TENSOR("\"C64\"", "[1]", "[0,8]") "}", "A", "has the type \"C64\""},
        {"{\"A\":" TENSOR("7", "[1]", "[0,4]") "}", "A", "must have a type"},
        {"{\"A\":" TENSOR("\"F32\"", "[-1]", "[0,4]") "}", "A", "must be at least 1, not -1"},
        {"{\"A\":" TENSOR("\"F32\"", "[0]", "[0,0]") "}", "A", "must be at least 1, not 0"},
        {"{\"A\":" TENSOR("\"F32\"", "[]", "[0,4]") "}", "A", "has 0 axes"},
        {"{\"A\":" TENSOR("\"F32\"", "[1.5]", "[0,4]") "}", "A", "must be a whole number"},
        {"{\"A\":" TENSOR("\"F32\"", "\"1\"", "[0,4]") "}", "A", "has a wrong shape"},
        {"{\"A\":" TENSOR("\"F32\"", "[4294967296,4294967296]", "[0,4]") "}", "A",
         "more bytes than a file can have"},
        {"{\"A\":" TENSOR("\"F64\"", "[4503599627370496,4503599627370496]", "[0,8]") "}", "A",
         "more bytes than a file can have"},
        {"{\"A\":" SINGLE("[0,8]") "}", "A", "has 8 bytes by its data_offsets, but 4 by its dtype"},
        {"{\"A\":" SINGLE("[0,9007199254740991]") "}", "A", "has 9007199254740991 bytes by its"},
        {"{\"A\":" SINGLE("[0,9223372036854775808]") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("[-4,0]") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("[4,0]") "}", "A", "the second is not before the first"},
        {"{\"A\":" SINGLE("[4,4]") "}", "A", "has 0 bytes by its data_offsets, but 4 by its dtype"},
        {"{\"A\":" SINGLE("[0]") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("[0,4,8]") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("[0,4.5]") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("[[0,4]]") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("[]") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("4") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("\"0,4\"") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("null") "}", "A", "must have data_offsets"},
        {"{\"A\":" SINGLE("[4,8]") "}", "A",
         "begins at byte 4, but the tensors before it end at byte 0: tensors have no gaps"},
        {"{\"A\":" SINGLE("[0,4]") ",\"B\":" SINGLE("[8,12]") "}", "B",
         "begins at byte 8, but the tensors before it end at byte 4"},
        {"{\"A\":" SINGLE("[0,4]") ",\"B\":" SINGLE("[2,6]") "}", "B",
         "begins at byte 2, but the tensors before it end at byte 4"},
        {"{\"A\":" SINGLE("[0,4]") ",\"B\":" SINGLE("[9007199254740984,9007199254740988]") "}", "B",
         "begins at byte 9007199254740984"},
        {"{\"A\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"name\":\"x\"}}", "A",
         "unknown key \"name\""},
        {"{\"__metadata__\":[]}", "__metadata__", "__metadata__ must be an object"},
        {"{\"__metadata__\":{\"heads\":8}}", "heads",
         "heads must be a string, as all values of __metadata__, not a number"},
        {"{\"__metadata__\":{\"a\":null}}", "a", "a must be a string"},
        {"{\"__metadata__\":{\"a\":[1]}}", "a", "a must be a string"},
        {"{\"__metadata__\":{\"a\":{}}}", "a", "a must be a string"},
    };
    struct codec_stored list[CODEC_MAX_TENSORS];
    struct codec_safetensors header = {.list = list, .most = CODEC_MAX_TENSORS};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct codec_document *document = read_good(rows[i].header);
        struct codec_error error = {.status = CODEC_OK};
        cr_expect_not(codec_safetensors_read(document, SAFETENSORS_BODY, &header, &error), "%s",
                      rows[i].header);
        cr_expect_eq(error.status, CODEC_CONTENT, "%s", rows[i].header);
        cr_expect_not_null(strstr(error.message, rows[i].rule), "%s: %s", rows[i].header,
                           error.message);
        if (rows[i].tensor != NULL) {
            cr_expect(strstr(error.message, rows[i].tensor) != NULL ||
                          strstr(error.pointer, rows[i].tensor) != NULL,
                      "%s: %s: %s", rows[i].header, error.pointer, error.message);
        }
        codec_document_free(document);
    }
}

/* The reader of JSON refuses what is wrong before the header is looked at. */
Test(codec_safetensors, headers_that_are_no_json) {
    expect_error("{\"A\":" SINGLE("[0,4]") ",\"A\":" SINGLE("[4,8]") "}", CODEC_SYNTAX, "/A", 54,
                 "twice");
    expect_error("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", CODEC_SYNTAX, "/__metadata__/a",
                 25, "twice");
    expect_error("{\"A\":" SINGLE("[0,4]"), CODEC_SYNTAX, NULL, 53, "ends");
    expect_error("{\"A\xFF\":{}}", CODEC_SYNTAX, NULL, 3, "UTF-8");
}

/* The tensors may stand in any order, spaces may follow the header, and metadata may be empty. */
Test(codec_safetensors, headers_that_are_accepted) {
    static const struct {
        const char *text, *order;
    } rows[] = {
        {"{}", ""},
        {"{\"__metadata__\":{}}", ""},
        {"{\"__metadata__\":{\"format\":\"pt\",\"\":\"\"}}  ", ""},
        {"{\"A\":" SINGLE("[0,4]") "}     ", "A"},
        {"{\"A\":" SINGLE("[8,12]") ",\"B\":" SINGLE("[0,4]") ",\"C\":" SINGLE("[4,8]") "}", "BCA"},
        {"{\"B\":" TENSOR("\"U8\"", "[3,1]", "[4,7]") ",\"A\":" SINGLE("[0,4]") "}", "AB"},
    };
    struct codec_stored list[CODEC_MAX_TENSORS];
    struct codec_safetensors header = {.list = list, .most = CODEC_MAX_TENSORS};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct codec_document *document = read_good(rows[i].text);
        struct codec_error error;
        cr_assert(codec_safetensors_read(document, SAFETENSORS_BODY, &header, &error), "%s: %s",
                  rows[i].text, error.message);
        cr_expect_eq(header.count, strlen(rows[i].order));
        cr_expect_eq(header.metadata != NULL, strstr(rows[i].text, "meta") != NULL);
        for (size_t k = 0; k < header.count; k++) {
            cr_expect_eq(*list[k].name, rows[i].order[k], "%s", rows[i].text);
        }
        codec_document_free(document);
    }
}

Test(codec_safetensors, most_tensors) {
    struct codec_stored list[CODEC_MAX_TENSORS];
    struct codec_safetensors header = {.list = list, .most = CODEC_MAX_TENSORS};
    for (int count = CODEC_MAX_TENSORS; count <= CODEC_MAX_TENSORS + 1; count++) {
        char text[8192] = "{\"__metadata__\":{\"a\":\"b\"}";
        size_t size = strlen(text);
        for (int i = 0; i < count; i++) {
            size += (size_t)sprintf(text + size,
                                    ",\"T%d\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":"
                                    "[%d,%d]}",
                                    i, 2 * i, 2 * i + 2);
        }
        strcpy(text + size, "}");
        struct codec_document *document = read_good(text);
        struct codec_error error;
        cr_expect_eq(codec_safetensors_read(document, SAFETENSORS_BODY, &header, &error),
                     count == CODEC_MAX_TENSORS);
        if (count > CODEC_MAX_TENSORS) {
            cr_expect_not_null(strstr(error.message, "more than 64 tensors"), "%s", error.message);
        }
        codec_document_free(document);
    }
}

/* ---------------------------------------------------------------------------- writing a header */

static const float floats[6] = {1, 2, 3};
static const int64_t numbers[2] = {3, 4};
static const unsigned char flags[3] = {1, 0, 1};
static const char *const words[] = {"b", "a \"\\\xC3\xA9\n"};

static const struct codec_item answer[] = {
    {.op = CODEC_OP_OBJECT},
    {.op = CODEC_OP_TENSOR,
     .key = "mask",
     .tensor = {.data = flags, .dtype = ATTN_BOOL, .rank = 1, .shape = {3}}},
    {.op = CODEC_OP_TENSOR,
     .key = "weights",
     .tensor = {.data = floats, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {5}}},
    {.op = CODEC_OP_TEXTS, .key = "tokens", .texts = words, .count = 2},
    {.op = CODEC_OP_IDS, .key = "vocabulary", .texts = words, .ids = numbers, .count = 2},
    {.op = CODEC_OP_OBJECT, .key = "top_k"},
    {.op = CODEC_OP_TENSOR,
     .key = "indices",
     .tensor = {.data = numbers, .dtype = ATTN_INT64, .rank = 2, .shape = {2, 1}}},
    {.op = CODEC_OP_END},
    {.op = CODEC_OP_TENSOR,
     .key = "lse",
     .tensor = {.data = floats, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {1}}},
    {.op = CODEC_OP_END}};

/* Writes the header of an answer. The caller frees the buffer and the results. */
static void write(const struct codec_item *items, size_t count, enum codec_type narrow,
                  struct codec_buffer *buffer, struct codec_results *results) {
    struct codec_items list;
    codec_items_begin(&list, test_account());
    for (size_t i = 0; i < count; i++) {
        codec_add(&list, items[i]);
    }
    cr_assert(codec_results_make(results, items, count, narrow, test_account()));
    cr_assert(codec_safetensors_write(buffer, results, &list));
    codec_items_free(&list);
}

/* Writes the answer, and reads its header again. */
static void write_and_read(enum codec_type narrow, const char *order) {
    struct codec_stored list[CODEC_MAX_TENSORS];
    struct codec_safetensors header = {.list = list, .most = CODEC_MAX_TENSORS};
    struct codec_buffer buffer = {0};
    struct codec_results results = {0};
    struct codec_error error;
    const char *text;
    write(answer, COUNT(answer), narrow, &buffer, &results);
    const char *start = buffer.data;
    const size_t length = codec_safetensors_length((const unsigned char *)start);
    cr_assert_eq(length, buffer.size - SAFETENSORS_PREFIX);
    cr_expect_eq(length % 8, 0);
    cr_expect_eq(start[SAFETENSORS_PREFIX], '{');
    struct outcome outcome = read_sized(start + SAFETENSORS_PREFIX, length, NULL);
    cr_assert_not_null(outcome.document, "%s", outcome.error.message);
    cr_assert(codec_safetensors_read(outcome.document, SAFETENSORS_BODY, &header, &error), "%s",
              error.message);
    cr_assert(header.count == results.count && results.list != NULL);
    for (size_t i = 0; i < header.count; i++) {
        const struct codec_stored *tensor = &header.list[i];
        cr_expect_eq(tensor->begin % codec_type_size(tensor->type), 0);
        cr_expect_eq(*tensor->name, order[i], "%s", tensor->name);
        cr_expect_str_eq(tensor->name, results.list[i].name);
        cr_expect_eq(tensor->type, results.list[i].type);
        cr_expect_eq(tensor->bytes, results.list[i].bytes);
        cr_expect_eq(tensor->rank, results.list[i].tensor.rank);
    }
    cr_assert(codec_as_text(outcome.document, codec_get(header.metadata, "tokens"), &text, &error));
    cr_expect_str_eq(text, "[\"b\",\"a \\\"\\\\\xC3\xA9\\n\"]");
    cr_assert(
        codec_as_text(outcome.document, codec_get(header.metadata, "vocabulary"), &text, &error));
    cr_expect_str_eq(text, "{\"b\":3,\"a \\\"\\\\\xC3\xA9\\n\":4}");
    cr_expect_eq(codec_size(header.metadata), 2);
    codec_document_free(outcome.document);
    codec_results_free(&results);
    account_free(test_account(), buffer.data);
}

/* Wide tensors come first, and those of one width by their names. */
Test(codec_safetensors, a_header_that_was_written_is_read) {
    write_and_read(CODEC_TYPE_FP32, "tlwm");
    write_and_read(CODEC_TYPE_FP16, "tlwm");
}

Test(codec_safetensors, an_answer_without_texts_has_no_metadata) {
    struct codec_buffer buffer = {0};
    struct codec_results results = {0};
    write(answer + 1, 2, CODEC_TYPE_FP32, &buffer, &results);
    static const char expected[] =
        "{\"weights\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]},"
        "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[20,23]}}";
    const size_t size = sizeof expected - 1;
    cr_assert_geq(buffer.size, SAFETENSORS_PREFIX + size);
    cr_expect_arr_eq(buffer.data + SAFETENSORS_PREFIX, expected, size);
    for (size_t i = SAFETENSORS_PREFIX + size; i < buffer.size; i++) {
        cr_expect_eq(buffer.data[i], ' ');
    }
    codec_results_free(&results);
    account_free(test_account(), buffer.data);
}

/* The tensors begin at a multiple of eight, however long the header is. */
Test(codec_safetensors, headers_of_any_length) {
    static const char name[] = "0123456789abcdef";
    for (size_t size = 1; size < sizeof name; size++) {
        struct codec_buffer buffer = {0};
        struct codec_results results = {0};
        const struct codec_item item = {
            .op = CODEC_OP_TENSOR,
            .key = name + sizeof name - 1 - size,
            .tensor = {.data = floats, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {5}}};
        write(&item, 1, CODEC_TYPE_FP32, &buffer, &results);
        cr_expect_eq(buffer.size % 8, 0, "%s", item.key);
        cr_expect_eq(codec_safetensors_length((const unsigned char *)buffer.data),
                     buffer.size - SAFETENSORS_PREFIX);
        codec_results_free(&results);
        account_free(test_account(), buffer.data);
    }
}

/* Lists the tensors of a file that has so many bytes after its header, as text. Owned. */
static char *list_file(const char *header, size_t bytes) {
    struct codec_document *document = read_good(header);
    struct codec_stored list[4];
    struct codec_safetensors read = {.list = list, .most = 4};
    struct codec_error error = {0};
    const bool good = codec_safetensors_read(document, bytes, &read, &error);
    char *text = malloc(1000), *end = text;
    *text = '\0';
    for (size_t i = 0; good && i < read.count; i++) {
        end += sprintf(end, "%s:%s/%d", list[i].name,
                       list[i].type == CODEC_TYPE_COUNT ? "other"
                                                        : codec_safetensors_types[list[i].type],
                       list[i].rank);
        for (int axis = 0; axis < list[i].rank; axis++) {
            end += sprintf(end, ",%zu", list[i].shape[axis]);
        }
        end += sprintf(end, "@%zu+%zu ", list[i].begin, list[i].bytes);
    }
    if (!good) {
        strcpy(text, error.message);
    } else if (read.metadata != NULL) {
        strcpy(end, "metadata");
    }
    codec_document_free(document);
    return text;
}

/* The header of a file may have tensors that no body has: empty ones, of any rank or type. */
Test(codec_safetensors, headers_of_files) {
    static const struct {
        const char *header;
        size_t bytes;
        const char *text;
    } rows[] = {
        {"{}", 0, ""},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, "metadata"},
        {"{\"b\":" SINGLE("[4,8]") ",\"a\":" SINGLE("[0,4]") "}", 8,
         "a:F32/1,1@0+4 b:F32/1,1@4+4 "},
        {"{\"a\":" TENSOR("\"F32\"", "[0]", "[0,0]") ",\"b\":" SINGLE("[0,4]") "}", 4,
         "a:F32/1,0@0+0 b:F32/1,1@0+4 "},
        {"{\"b\":" SINGLE("[0,4]") ",\"c\":" TENSOR("\"F32\"", "[0]", "[0,0]") "}", 4,
         "c:F32/1,0@0+0 b:F32/1,1@0+4 "},
        {"{\"b\":" SINGLE("[0,4]") ",\"c\":" TENSOR("\"F32\"", "[2,0]", "[4,4]") "}", 4,
         "b:F32/1,1@0+4 c:F32/2,2,0@4+0 "},
        {"{\"a\":" TENSOR("\"F32\"", "[]", "[0,4]") "}", 4, "a:F32/0@0+4 "},
        {"{\"a\":" TENSOR("\"F8_E4M3\"", "[3]", "[0,3]") "}", 3, "a:other/1,3@0+3 "},
        {"{\"a\":" TENSOR("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "a:F32/-1@0+4 "},
        {"[]", 0, "the body must be an object"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ must be an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "must be a string"},
        {"{\"a\":1}", 0, "the tensor \"a\" is no object"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "the tensor \"a\" has no dtype"},
        {"{\"a\":" TENSOR("7", "[1]", "[0,4]") "}", 4, "the tensor \"a\" has no dtype"},
        {"{\"a\":" TENSOR("\"F32\"", "[-1]", "[0,4]") "}", 4, "the tensor \"a\" has no shape"},
        {"{\"a\":" TENSOR("\"F32\"", "\"x\"", "[0,4]") "}", 4, "the tensor \"a\" has no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "must have data_offsets"},
        {"{\"a\":" SINGLE("[4,0]") "}", 4, "must have data_offsets"},
        {"{\"a\":" SINGLE("[-4,0]") "}", 4, "must have data_offsets"},
        {"{\"a\":" SINGLE("[0,4,8]") "}", 4, "must have data_offsets"},
        {"{\"a\":" SINGLE("[0]") "}", 4, "must have data_offsets"},
        {"{\"a\":" SINGLE("[0,8]") "}", 8, "has another number of bytes"},
        {"{\"a\":" TENSOR("\"F32\"", "[4294967296,4294967296]", "[0,0]") "}", 0,
         "has another number of bytes"},
        {"{\"a\":" SINGLE("[4,8]") "}", 8, "begins at byte 4, but the tensors before it end at"},
        {"{\"a\":" SINGLE("[0,4]") ",\"b\":" SINGLE("[0,4]") "}", 8, "begins at byte 0, but the"},
        {"{\"a\":" SINGLE("[0,4]") "}", 8, "the tensors have 4 bytes, but the file has 8 bytes"},
        {"{\"a\":" SINGLE("[0,4]") "}", 0, "the tensors have 4 bytes, but the file has 0 bytes"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *text = list_file(rows[i].header, rows[i].bytes);
        cr_expect(rows[i].text[0] == '\0' ? text[0] == '\0' : strstr(text, rows[i].text) != NULL,
                  "%s: %s", rows[i].header, text);
        free(text);
    }
}
