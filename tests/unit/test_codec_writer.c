/* test_codec_writer.c - the JSON text that is written of items, byte for byte. */
#include <math.h>

#include "test_codec.h"

/* Writes the items into exactly the room that they need at most. The caller frees the text. */
static struct codec_buffer write_text(const struct codec_item *items, size_t count, int digits) {
    const size_t bytes = codec_items_bytes(items, count, digits, SIZE_MAX);
    struct codec_buffer buffer = {.data = malloc(bytes + CODEC_ROOM)};
    cr_assert_not_null(buffer.data);
    buffer.size = (size_t)(codec_write(buffer.data, items, count, digits) - buffer.data);
    cr_assert_leq(buffer.size, bytes);
    return buffer;
}

/* Expects the same text from a writer, however many bytes are read at a time. */
static void expect_pieces(const struct codec_item *items, size_t count, int digits,
                          const char *expected) {
    static const size_t rooms[] = {1, 2, 7, 1000, 70000};
    const size_t length = strlen(expected);
    for (size_t i = 0; i < COUNT(rooms); i++) {
        struct codec_writer *writer = codec_writer_create(items, count, digits);
        char *text = malloc(length + rooms[i]);
        size_t size = 0, part;
        cr_assert(writer != NULL && text != NULL);
        do {
            part = codec_writer_read(writer, text + size, rooms[i]);
            size += part;
            cr_assert_leq(size, length);
        } while (part == rooms[i]);
        cr_expect_eq(size, length, "%zu bytes in pieces of %zu", size, rooms[i]);
        cr_expect_eq(memcmp(text, expected, size), 0);
        cr_expect_eq(codec_writer_read(writer, text, rooms[i]), 0, "it has ended");
        codec_writer_free(writer);
        free(text);
    }
}

static void expect_text(const struct codec_item *items, size_t count, int digits,
                        const char *expected) {
    struct codec_buffer buffer = write_text(items, count, digits);
    cr_expect_eq(buffer.size, strlen(expected), "%.*s", (int)buffer.size, buffer.data);
    cr_expect_eq(strncmp(buffer.data, expected, buffer.size), 0, "%.*s, not %s", (int)buffer.size,
                 buffer.data, expected);
    free(buffer.data);
    expect_pieces(items, count, digits, expected);
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
        {.op = CODEC_OP_NUMBER, .number = (double)NAN},
        {.op = CODEC_OP_END},
        {.op = CODEC_OP_NUMBER, .key = "c", .number = 3},
        {.op = CODEC_OP_END},
    };
    expect_text(items, COUNT(items), 0,
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

/* The bound holds for the longest numbers in many shapes, and it is not much too large for a row of
 * them. */
Test(codec_writer, text_bytes) {
    static const float floats[] = {-1.17549435e-38f, -3.40282347e38f, -1.20000003e14f,
                                   -1.00000003e13f,  -1.23456799e14f, -INFINITY};
    static const double doubles[] = {-2.2250738585072014e-308, -1.7976931348623157e308,
                                     -1.2345678901234567e-5,   -INFINITY,
                                     -1.0000000000000002e-4,   -12345678901234567e6};
    static const int64_t integers[] = {INT64_MIN, INT64_MIN, INT64_MIN,
                                       INT64_MIN, INT64_MIN, INT64_MIN};
    static const unsigned char bools[6] = {0};
    static const struct {
        int rank;
        size_t shape[ATTN_MAX_RANK];
    } shapes[] = {{0, {0}},       {1, {6}},
                  {2, {6, 1}},    {2, {2, 3}},
                  {3, {3, 1, 2}}, {8, {1, 1, 1, 1, 1, 1, 6, 1}},
                  {1, {0}},       {2, {100, 0}},
                  {2, {0, 100}},  {3, {20, 0, SIZE_MAX / 64}}};
    const void *const data[] = {[ATTN_FLOAT32] = floats,
                                [ATTN_FLOAT64] = doubles,
                                [ATTN_INT64] = integers,
                                [ATTN_BOOL] = bools};
    static const attn_dtype dtypes[] = {ATTN_FLOAT32, ATTN_FLOAT64, ATTN_INT64, ATTN_BOOL};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        for (size_t j = 0; j < 4; j++) {
            for (int digits = 0; digits <= 17; digits++) {
                struct codec_item item = {.op = CODEC_OP_TENSOR};
                item.tensor = (attn_tensor){
                    .data = data[dtypes[j]], .dtype = dtypes[j], .rank = shapes[i].rank};
                memcpy(item.tensor.shape, shapes[i].shape, sizeof shapes[i].shape);
                struct codec_buffer buffer = write_text(&item, 1, digits);
                cr_expect_leq(buffer.size - 1, codec_text_bytes(&item.tensor, digits),
                              "shape %zu, dtype %zu, %d digits: %.*s", i, j, digits,
                              (int)buffer.size, buffer.data);
                free(buffer.data);
            }
        }
    }

    const attn_tensor row = {.data = floats, .rank = 1, .shape = {1000}};
    cr_expect_eq(codec_text_bytes(&row, 0), 3 + 1000 * 17);
    const attn_tensor scalar = {.data = doubles, .dtype = ATTN_FLOAT64};
    cr_expect_eq(codec_text_bytes(&scalar, 3), 11);
    const attn_tensor large = {.rank = 2, .shape = {SIZE_MAX / 16, 1}};
    cr_expect_eq(codec_text_bytes(&large, 0), SIZE_MAX);
    const attn_tensor overflow = {.rank = 3, .shape = {SIZE_MAX / 2, 4, 0}};
    cr_expect_eq(codec_text_bytes(&overflow, 0), SIZE_MAX);
}

/* The bound holds for random numbers and for a row of the longest. */
Test(codec_writer, bound_of_text) {
    enum {
        COUNT = 20000
    };
    float *numbers = malloc(COUNT * sizeof *numbers);
    for (int i = 0; i < COUNT; i++) {
        do {
            uint32_t bits = (uint32_t)random_bits() | 0x80000000;
            memcpy(&numbers[i], &bits, sizeof bits);
        } while (!isfinite(numbers[i]));
    }
    for (int digits = 0; digits <= 17; digits += 3) {
        struct codec_item item = {
            .op = CODEC_OP_TENSOR,
            .tensor = {.data = numbers, .rank = 2, .shape = {COUNT / 4, 4}},
        };
        struct codec_buffer buffer = write_text(&item, 1, digits);
        cr_expect_leq(buffer.size - 1, codec_text_bytes(&item.tensor, digits));
        free(buffer.data);
    }
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = -100000026e6f;
    }
    struct codec_item row = {
        .op = CODEC_OP_TENSOR,
        .tensor = {.data = numbers, .rank = 1, .shape = {COUNT}},
    };
    struct codec_buffer buffer = write_text(&row, 1, 0);
    cr_expect_eq(buffer.size, COUNT * 17 + 2, "%zu", buffer.size);
    cr_expect_lt(codec_text_bytes(&row.tensor, 0), buffer.size + 3);
    free(buffer.data);
    free(numbers);
}

/* Writes a matrix whole and in pieces, and reads it again. */
static void write_and_read(size_t rows, size_t columns) {
    const size_t count = rows * columns;
    float *numbers = malloc(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)(random_bits() >> 40) / 16777216.0f - 0.5f;
    struct codec_item item = {
        .op = CODEC_OP_TENSOR,
        .tensor = {.data = numbers, .rank = 2, .shape = {rows, columns}},
    };
    struct codec_buffer buffer = write_text(&item, 1, 0);
    char *whole = strndup(buffer.data, buffer.size);
    expect_pieces(&item, 1, 0, whole);
    free(whole);
    struct outcome outcome = read_pieces(buffer.data, buffer.size, NULL, 0);
    cr_assert_not_null(outcome.document, "%s", outcome.error.message);
    attn_tensor tensor;
    struct codec_error error;
    cr_assert(
        codec_as_reals(outcome.document, codec_root(outcome.document), 2, 2, &tensor, &error));
    cr_assert(tensor.shape[0] == rows && tensor.shape[1] == columns);
    cr_assert_eq(memcmp(tensor.data, numbers, count * sizeof *numbers), 0);
    codec_document_free(outcome.document);
    free(buffer.data);
    free(numbers);
}

/* Rows are longer than a piece, or several of them are in one, which may end inside of a row. */
Test(codec_writer, rows_and_pieces) {
    write_and_read(50, 1500);
    write_and_read(3000, 3);
    write_and_read(300, 100);
    write_and_read(4, 256);
}
