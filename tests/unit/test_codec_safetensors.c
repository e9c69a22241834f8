/* test_codec_safetensors.c - the headers of safetensors: that one which is written can be read.
 * data/values.txt has what is refused. */
#include "codec/safetensors.h"
#include "test_codec.h"

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

Test(codec_safetensors, most_tensors) {
    struct codec_header_tensor list[CODEC_MAX_TENSORS];
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
    TENSOR_ITEM("mask", flags, ATTN_BOOL, 1, 3),
    TENSOR_ITEM("weights", floats, ATTN_FLOAT32, 1, 5),
    {.op = CODEC_OP_TEXTS, .key = "tokens", .texts = words, .count = 2},
    {.op = CODEC_OP_IDS, .key = "vocabulary", .texts = words, .ids = numbers, .count = 2},
    {.op = CODEC_OP_OBJECT, .key = "top_k"},
    TENSOR_ITEM("indices", numbers, ATTN_INT64, 2, 2, 1),
    {.op = CODEC_OP_END},
    TENSOR_ITEM("lse", floats, ATTN_FLOAT32, 1, 1),
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
static void write_then_read(enum codec_type narrow, const char *order) {
    struct codec_header_tensor list[CODEC_MAX_TENSORS];
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
        const struct codec_header_tensor *tensor = &header.list[i];
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
    write_then_read(CODEC_TYPE_FP32, "tlwm");
    write_then_read(CODEC_TYPE_FP16, "tlwm");
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
