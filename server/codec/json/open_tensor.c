/*
 * open_tensor.c - the open tensor of the reader, from its first element to its last bracket: what
 * fits into it, and its shape. codec_tensor.h converts and keeps the elements.
 */
#include "codec/json/reader.h"

#include "codec/error.h"
#include "codec/json/number.h"

bool reader_refuse_element(struct codec_reader *reader, size_t offset, const char *what) {
    const struct codec_tensor *tensor = reader->tensor;
    const char *others = tensor->dtype == ATTN_BOOL ? "booleans" : "numbers";
    if (reader->depth - reader->base < (size_t)tensor->rank) {
        others = "arrays";
    }
    return reader_content(reader, reader->depth, offset, "%s stands where all others are %s", what,
                          others);
}

bool reader_begin_tensor(struct codec_reader *reader, bool is_bool) {
    size_t rank = reader->held;
    reader->base = reader->depth - rank;
    if (rank > ATTN_MAX_RANK) {
        return reader_content(reader, reader->base, reader->frames[reader->base].offset,
                              "an array of numbers must have rank 1 to %d, not %zu", ATTN_MAX_RANK,
                              rank);
    }
    if (document_tensor_count(reader->document) == reader->options.max_arrays) {
        codec_error_set(&reader->error, CODEC_TOO_LARGE,
                        "the body has more than %zu arrays of numbers, which is a fixed limit",
                        reader->options.max_arrays);
        return false;
    }
    reader->tensor =
        document_new_tensor(reader->document, reader->frames[reader->base].value,
                            is_bool ? ATTN_BOOL : ATTN_FLOAT64, (int)rank, reader->first);
    if (reader->tensor == NULL) {
        return codec_no_memory(&reader->error);
    }
    reader->held = 0;
    return true;
}

bool reader_add_element(struct codec_reader *reader, enum reader_scalar kind, const char *text,
                        size_t size, size_t offset) {
    static const char *const names[] = {[READER_SCALAR_NUMBER] = "a number",
                                        [READER_SCALAR_NULL] = "null",
                                        [READER_SCALAR_TRUE] = "a boolean",
                                        [READER_SCALAR_FALSE] = "a boolean",
                                        [READER_SCALAR_MINUS_INFINITY] = "-Infinity"};
    struct codec_tensor *tensor = reader->tensor;
    bool is_bool = kind == READER_SCALAR_TRUE || kind == READER_SCALAR_FALSE;
    if (reader->depth - reader->base < (size_t)tensor->rank ||
        is_bool != (tensor->dtype == ATTN_BOOL)) {
        return reader_refuse_element(reader, offset, names[kind]);
    }

    if (!codec_tensor_room(tensor, reader->options.account)) {
        return codec_no_memory(&reader->error);
    }
    if (is_bool) {
        codec_tensor_add_bool(tensor, kind == READER_SCALAR_TRUE);
    } else if (kind == READER_SCALAR_NUMBER) {
        return codec_tensor_add_number(tensor, reader->options.account, text, size) ||
               codec_no_memory(&reader->error);
    } else {
        codec_tensor_add_null(tensor, kind == READER_SCALAR_MINUS_INFINITY);
    }
    return true;
}

/* Ends a row of numbers as long as the rows before it, whose bracket is at p, and begins the next
 * one, if only a comma and at most one space lie between them. Returns where the next one begins,
 * or p. */
static const char *next_row(struct codec_reader *reader, const char *p, const char *end) {
    const struct codec_tensor *tensor = reader->tensor;
    struct reader_frame *row = &reader->frames[reader->depth - 1];
    const char *next = end - p > 3 ? p + 2 + (p[2] == ' ') : p;
    if (next == p || *p != ']' || p[1] != ',' || *next != '[' || tensor->rank < 2 ||
        row->count != tensor->shape[tensor->rank - 1]) {
        return p;
    }
    row[-1].count++;
    row->offset = reader_offset(reader, next);
    row->line = reader->line;
    row->count = 0;
    reader->expect = READER_EXPECT_VALUE_OR_END;
    return next + 1;
}

const char *reader_scan_run(struct codec_reader *reader, const char *p, const char *end) {
    struct codec_tensor *tensor = reader->tensor;
    if (tensor->dtype == ATTN_BOOL || reader->depth - reader->base != (size_t)tensor->rank ||
        reader->options.integers) { /* a run does not tell how its numbers are written */
        return p;
    }
    while (true) {
        size_t added;
        bool after;
        const char *stop = codec_tensor_add_run(tensor, p, end, &added, &after);
        if (added > 0) {
            reader->frames[reader->depth - 1].count += added;
            reader->expect = after ? READER_EXPECT_COMMA_OR_END : READER_EXPECT_VALUE;
        }
        p = after ? next_row(reader, stop, end) : stop;
        if (p == stop) {
            return p;
        }
    }
}

static bool end_tensor(struct codec_reader *reader) {
    struct codec_tensor *tensor = reader->tensor;
    reader->tensor = NULL;
    if (tensor->borrowed && !document_keep(reader->document, tensor)) {
        return codec_no_memory(&reader->error);
    }
    codec_tensor_trim(tensor, reader->options.account);
    return true;
}

bool reader_end_row(struct codec_reader *reader) {
    struct codec_tensor *tensor = reader->tensor;
    const struct reader_frame *row = &reader->frames[reader->depth - 1];
    size_t level = reader->depth - 1 - reader->base;
    size_t count = row->count, usual = tensor->shape[level];

    reader->depth--;
    if (count == 0) {
        return reader_content(reader, reader->depth, row->offset, "the row is empty");
    }
    if (usual != 0 && count != usual) {
        const char *what = tensor->dtype == ATTN_BOOL ? "boolean" : "number";
        if (level + 1 < (size_t)tensor->rank) {
            what = "row";
        }
        return reader_content(reader, reader->depth, row->offset,
                              "the row has %zu %s%s, but the rows before it have %zu", count, what,
                              count == 1 ? "" : "s", usual);
    }
    tensor->shape[level] = count;
    return reader->depth > reader->base || end_tensor(reader);
}
