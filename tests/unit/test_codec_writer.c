/* test_codec_writer.c - items to JSON text, byte for byte. */
#include <math.h>

#include "test_codec.h"

static void expect_text(const struct codec_item *items, size_t count, int digits,
                        const char *expected) {
    struct codec_buffer buffer = {0};
    cr_assert(codec_write(&buffer, items, count, digits));
    cr_expect_eq(buffer.size, strlen(expected), "%.*s", (int)buffer.size, buffer.data);
    cr_expect_eq(strncmp(buffer.data, expected, buffer.size), 0, "%.*s, not %s", (int)buffer.size,
                 buffer.data, expected);
    cr_expect_leq(buffer.size, buffer.capacity);
    free(buffer.data);
}

static void expect_tensor(attn_tensor tensor, int digits, const char *expected) {
    struct codec_item item = {.op = CODEC_OP_TENSOR, .tensor = tensor};
    expect_text(&item, 1, digits, expected);
}

Test(codec_writer, structure) {
    const float numbers[] = {1, 2.5f};
    const struct codec_item items[] = {
        {.op = CODEC_OP_OBJECT},
        {.op = CODEC_OP_TENSOR, .key = "a", .tensor = {.data = numbers, .rank = 1, .shape = {2}}},
        {.op = CODEC_OP_ARRAY, .key = "b"},
        {.op = CODEC_OP_NUMBER, .number = 0.1},
        {.op = CODEC_OP_OBJECT},
        {.op = CODEC_OP_END},
        {.op = CODEC_OP_ARRAY},
        {.op = CODEC_OP_END},
        {.op = CODEC_OP_TEXT, .text = "x"},
        {.op = CODEC_OP_BOOL, .number = 1},
        {.op = CODEC_OP_BOOL},
        {.op = CODEC_OP_NULL},
        {.op = CODEC_OP_END},
        {.op = CODEC_OP_NUMBER, .key = "c", .number = 3},
        {.op = CODEC_OP_END},
    };
    expect_text(items, sizeof items / sizeof items[0], 0,
                "{\"a\":[1,2.5],\"b\":[0.1,{},[],\"x\",true,false,null],\"c\":3}\n");
    expect_text(items + 3, 1, 0, "0.1\n");
}

Test(codec_writer, text) {
    const struct codec_item items[] = {
        {.op = CODEC_OP_OBJECT},
        {.op = CODEC_OP_TEXT,
         .key = "k\"\n",
         .text = "a\"b\\c/\b\f\n\r\t\x01\x1F\x7F\xC3\xA9\xF0\x9F\x98\x80"},
        {.op = CODEC_OP_TEXT, .key = "", .text = ""},
        {.op = CODEC_OP_END},
    };
    expect_text(
        items, 4, 0,
        "{\"k\\\"\\n\":\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7F\xC3\xA9\xF0\x9F\x98\x80\","
        "\"\":\"\"}\n");
}

Test(codec_writer, tensors) {
    const float floats[] = {1, -0.5f, 0.1f, 1e-20f, 3, 100000, 0, -0.0f};
    const double doubles[] = {0.1, 1e300, -INFINITY, NAN, INFINITY, 1.0 / 3};
    const int64_t integers[] = {0, -1, INT64_MAX, INT64_MIN};
    const unsigned char bools[] = {1, 0, 0, 1};

    expect_tensor((attn_tensor){.data = floats, .rank = 0}, 0, "1\n");
    expect_tensor((attn_tensor){.data = floats, .rank = 1, .shape = {8}}, 0,
                  "[1,-0.5,0.1,1e-20,3,100000,0,-0]\n");
    expect_tensor((attn_tensor){.data = floats, .rank = 2, .shape = {4, 2}}, 0,
                  "[[1,-0.5],[0.1,1e-20],[3,100000],[0,-0]]\n");
    expect_tensor((attn_tensor){.data = floats, .rank = 3, .shape = {2, 2, 2}}, 0,
                  "[[[1,-0.5],[0.1,1e-20]],[[3,100000],[0,-0]]]\n");
    expect_tensor((attn_tensor){.data = floats, .rank = 4, .shape = {1, 2, 1, 1}}, 0,
                  "[[[[1]],[[-0.5]]]]\n");
    expect_tensor((attn_tensor){.data = floats, .rank = 8, .shape = {1, 1, 1, 1, 1, 1, 2, 1}}, 0,
                  "[[[[[[[[1],[-0.5]]]]]]]]\n");
    expect_tensor((attn_tensor){.data = doubles, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {6}}, 0,
                  "[0.1,1e300,null,null,null,0.3333333333333333]\n");
    expect_tensor((attn_tensor){.data = doubles, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {6}}, 3,
                  "[0.1,1e300,null,null,null,0.333]\n");
    expect_tensor((attn_tensor){.data = integers, .dtype = ATTN_INT64, .rank = 2, .shape = {2, 2}},
                  3, "[[0,-1],[9223372036854775807,-9223372036854775808]]\n");
    expect_tensor((attn_tensor){.data = bools, .dtype = ATTN_BOOL, .rank = 2, .shape = {2, 2}}, 0,
                  "[[true,false],[false,true]]\n");
    expect_tensor((attn_tensor){.data = NULL, .rank = 1, .shape = {0}}, 0, "[]\n");
    expect_tensor((attn_tensor){.data = NULL, .rank = 2, .shape = {2, 0}}, 0, "[[],[]]\n");
    expect_tensor((attn_tensor){.data = NULL, .rank = 2, .shape = {0, 3}}, 0, "[]\n");
}

/* Rows longer than one look at the buffer's room, and many rows. */
Test(codec_writer, large) {
    enum {
        ROWS = 50,
        COLUMNS = 1500
    };
    float *numbers = malloc(sizeof(float) * ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        numbers[i] = (float)(random_bits() >> 40) / 16777216.0f - 0.5f;
    struct codec_item item = {
        .op = CODEC_OP_TENSOR,
        .tensor = {.data = numbers, .rank = 2, .shape = {ROWS, COLUMNS}},
    };
    struct codec_buffer buffer = {0};
    cr_assert(codec_write(&buffer, &item, 1, 0));
    struct outcome outcome = read_pieces(buffer.data, buffer.size, NULL, 0);
    cr_assert_not_null(outcome.document, "%s", outcome.error.message);
    attn_tensor tensor;
    struct codec_error error;
    cr_assert(
        codec_as_reals(outcome.document, codec_root(outcome.document), 2, 2, &tensor, &error));
    cr_assert(tensor.shape[0] == ROWS && tensor.shape[1] == COLUMNS);
    cr_assert_eq(memcmp(tensor.data, numbers, sizeof(float) * ROWS * COLUMNS), 0);
    codec_document_free(outcome.document);
    free(buffer.data);
    free(numbers);
}

Test(codec_writer, appends) {
    struct codec_buffer buffer = {0};
    struct codec_item item = {.op = CODEC_OP_NUMBER, .number = 1};
    cr_assert(codec_write(&buffer, &item, 1, 0));
    cr_assert(codec_write(&buffer, &item, 1, 0));
    cr_expect_eq(buffer.size, 4);
    cr_expect_arr_eq(buffer.data, "1\n1\n", 4);
    free(buffer.data);
}

Test(codec_writer, unbalanced_items_are_refused) {
    struct codec_buffer buffer = {0};
    struct codec_item end = {.op = CODEC_OP_END};
    cr_expect_not(codec_write(&buffer, &end, 1, 0));
    struct codec_item deep[70];
    for (int i = 0; i < 70; i++)
        deep[i] = (struct codec_item){.op = CODEC_OP_ARRAY};
    cr_expect_not(codec_write(&buffer, deep, 70, 0));
    free(buffer.data);
}
