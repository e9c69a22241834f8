/*
 * state.c - what every file of the reader does with its state: it says what is wrong and where, and
 * it adds values to the document. It knows what is open and what is allowed next, but it scans no
 * text.
 */
#include "codec/json/reader.h"

#include <stdarg.h>
#include <string.h>

#include "codec/error.h"

/* -------------------------------------------------------------------------------------- errors */

/* Begins the error and finds its line. The place of an error is in the current line, or it is where
 * the current string, an open frame or the frame that was closed last began. */
static void set_error(struct codec_reader *reader, enum codec_status status, size_t offset) {
    struct reader_line line = reader->line;
    for (size_t i = 0; i <= reader->depth && i < reader->deepest; i++) {
        if (reader->frames[i].offset == offset) {
            line = reader->frames[i].line;
            break;
        }
    }
    if (reader->string.line.number > 0 && reader->string.offset == offset) {
        line = reader->string.line;
    }
    reader->error =
        (struct codec_error){.status = status,
                             .has_offset = true,
                             .no_json = reader->depth == 0 && reader->expect == READER_EXPECT_VALUE,
                             .offset = offset,
                             .line = line.number,
                             .column = offset - line.margin + 1};
}

bool reader_syntax(struct codec_reader *reader, size_t offset, const char *format, ...) {
    va_list args;
    set_error(reader, CODEC_SYNTAX, offset);
    va_start(args, format);
    codec_error_message(&reader->error, format, args);
    va_end(args);
    return false;
}

void reader_point(struct codec_reader *reader, size_t levels) {
    reader->error.has_pointer = true;
    for (size_t i = 0; i < levels; i++) {
        const struct reader_frame *frame = &reader->frames[i];
        const struct reader_key *key = frame->is_object ? &reader->keys.list[frame->key] : NULL;
        if (key != NULL ? !codec_pointer_name(&reader->error, key->name, key->size)
                        : !codec_pointer_index(&reader->error, frame->count)) {
            return;
        }
    }
}

bool reader_content(struct codec_reader *reader, size_t levels, size_t offset, const char *format,
                    ...) {
    va_list args;
    set_error(reader, CODEC_CONTENT, offset);
    va_start(args, format);
    codec_error_message(&reader->error, format, args);
    va_end(args);
    reader_point(reader, levels);
    return false;
}

/* Returns what a byte outside of ASCII probably says about the body, or an empty text. `first`: it
 * is the first byte of the body. */
static const char *byte_hint(unsigned char byte, bool first) {
    return byte == 0                ? ": is the body UTF-16? JSON is UTF-8"
           : byte >= 0xFE           ? ", which begins UTF-16: JSON is UTF-8"
           : first && byte == 0x1F  ? ": is the body compressed? Its Content-Encoding must say so"
           : byte == 0xE2 && !first ? ": is it a curly quote? JSON has straight ones"
           : first                  ? ": is the body binary? Its Content-Type must say so"
                                    : "";
}

bool reader_unexpected(struct codec_reader *reader, size_t offset, unsigned char byte) {
    bool in_object = reader->depth > 0 && reader->frames[reader->depth - 1].is_object;
    const char *wanted = NULL;
    switch (reader->expect) {
    case READER_EXPECT_VALUE:
        wanted = reader->depth == 0 ? "expected a value"
                 : in_object        ? "expected a value after the colon"
                                    : "expected a value after the comma";
        break;
    case READER_EXPECT_VALUE_OR_END:
        wanted = "expected a value or ']'";
        break;
    case READER_EXPECT_KEY:
        wanted = "expected a key in double quotes after the comma";
        break;
    case READER_EXPECT_KEY_OR_END:
        wanted = "expected a key in double quotes or '}'";
        break;
    case READER_EXPECT_COLON:
        wanted = "expected ':' after the key";
        break;
    case READER_EXPECT_COMMA_OR_END:
        wanted = in_object ? "expected ',' or '}'" : "expected ',' or ']'";
        break;
    case READER_EXPECT_NOTHING:
        wanted = "expected nothing more after the JSON value";
        break;
    }
    if (byte == '\'') {
        return reader_syntax(reader, offset, "%s, not a single quote", wanted);
    }
    if (byte == '/' || byte == '#') {
        return reader_syntax(reader, offset, "%s, not '%c': JSON has no comments", wanted, byte);
    }
    if (byte > 0x20 && byte < 0x7F) {
        return reader_syntax(reader, offset, "%s, not '%c'", wanted, byte);
    }
    const char *hint = byte_hint(byte, offset == 0);
    reader_syntax(reader, offset, "%s, not the byte 0x%02X%s", wanted, byte, hint);
    reader->error.no_json &= hint[0] == '\0'; /* it may be JSON in another form */
    return false;
}

bool reader_is_under(const struct codec_reader *reader, const char *name) {
    const size_t level = reader->options.key_level;
    if (name != NULL && name[0] == '\0') {
        return true;
    }
    if (name == NULL || reader->depth < level || !reader->frames[level - 1].is_object) {
        return false;
    }
    const struct reader_key *key = &reader->keys.list[reader->frames[level - 1].key];
    return strcmp(key->name, name) == 0;
}

/* ------------------------------------------------------------------------------------ document */

bool reader_refuse_bytes(struct codec_reader *reader) {
    codec_error_set(&reader->error, CODEC_TOO_LARGE,
                    "the body has more than %zu bytes outside of its matrices, which is a fixed "
                    "limit",
                    reader->options.max_bytes);
    return false;
}

struct codec_value *reader_add(struct codec_reader *reader, enum codec_kind kind) {
    const struct reader_frame *frame =
        reader->depth > 0 ? &reader->frames[reader->depth - 1] : NULL;
    const char *name =
        frame != NULL && frame->is_object ? reader->keys.list[frame->key].name : NULL;
    struct codec_value *value =
        codec_make_value(reader->document, frame != NULL ? frame->value : NULL, name, kind);
    if (value == NULL) {
        codec_no_memory(&reader->error);
    }
    reader->root = frame != NULL ? reader->root : value;
    reader->held = kind == CODEC_ARRAY && !reader->options.settings ? reader->held + 1 : 0;
    return value;
}
