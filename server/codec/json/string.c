/*
 * string.c - strings, from quote to quote. Control characters, escapes and UTF-8 are checked byte
 * by byte, because a chunk may end anywhere. The string goes into the document without its escapes.
 * A key is compared with the other keys of its object. What a key means is not known here.
 */
#include "codec/json/reader.h"

#include <string.h>

#include "codec/error.h"

/* ---------------------------------------------------------------------------- escapes and keys */

static bool is_hex(unsigned char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

static unsigned hex_value(char c) {
    return (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

static size_t put_utf8(char *out, unsigned code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, code >>= 6) {
        out[i] = (char)(0x80 | (code & 0x3F));
    }
    out[0] = (char)((0xF00 >> size & 0xF0) | code);
    return size;
}

/* Returns the slot of the key with this index, or the free slot where the search for it ends. */
static uint32_t *slot_of(const struct codec_reader *reader, uint32_t hash, size_t index) {
    size_t i = hash & (reader->keys.slot_count - 1);
    while (reader->keys.slots[i] != 0 && reader->keys.slots[i] != index + 1) {
        i = (i + 1) & (reader->keys.slot_count - 1);
    }
    return &reader->keys.slots[i];
}

/* The keys leave the table in the reverse order of their arrival. So each leaves it as it was
 * before, and no search ends too early. */
void reader_drop_keys(struct codec_reader *reader, size_t first) {
    while (reader->keys.count > first) {
        reader->keys.count--;
        if (reader->keys.slots != NULL) {
            *slot_of(reader, reader->keys.list[reader->keys.count].hash, reader->keys.count) = 0;
        }
    }
}

static bool is_same_key(const struct codec_reader *reader, size_t index,
                        const struct reader_key *key) {
    const struct reader_key *other = &reader->keys.list[index];
    return other->hash == key->hash && other->size == key->size &&
           memcmp(other->name, key->name, key->size) == 0;
}

/* Returns the index of the same key in the innermost object, or the number of keys. A few
 * keys are compared one by one. */
static size_t find_key(const struct codec_reader *reader, const struct reader_key *key) {
    const size_t first = reader->frames[reader->depth - 1].first_key,
                 mask = reader->keys.slot_count - 1;
    if (reader->keys.slots == NULL) {
        size_t i = first;
        while (i < reader->keys.count && !is_same_key(reader, i, key)) {
            i++;
        }
        return i;
    }
    for (size_t i = key->hash & mask; reader->keys.slots[i] != 0; i = (i + 1) & mask) {
        const size_t index = reader->keys.slots[i] - 1;
        if (index >= first && is_same_key(reader, index, key)) {
            return index;
        }
    }
    return reader->keys.count;
}

/* Adds a name to the keys of the innermost object. */
static bool add_key(struct codec_reader *reader, const char *name, size_t size) {
    struct reader_frame *frame = &reader->frames[reader->depth - 1];
    if (reader->keys.count == reader->options.max_keys) {
        codec_error_set(&reader->error, CODEC_TOO_LARGE,
                        "more than %zu keys in nested objects, which is a fixed limit",
                        reader->options.max_keys);
        return false;
    }
    if (reader->keys.count == reader->keys.capacity) {
        const bool few = reader->keys.list == reader->few;
        struct reader_key *keys =
            account_grow(reader->options.account, few ? NULL : reader->keys.list,
                         &reader->keys.capacity, reader->keys.count + 1, sizeof *keys);
        if (keys == NULL) {
            return codec_no_memory(&reader->error);
        }
        reader->keys.list = few ? memcpy(keys, reader->few, sizeof reader->few) : keys;
    }

    /* A table begins with another hash in each run, so that no file can fill one of its slots. */
    const uint32_t basis = 2166136261u ^ (uint32_t)((uintptr_t)reader->keys.slots >> 12);
    struct reader_key key = {.hash = basis, .size = size, .name = name};
    for (size_t i = 0; i < size; i++) {
        key.hash = (key.hash ^ (unsigned char)name[i]) * 16777619u; /* FNV-1a */
    }

    frame->key = find_key(reader, &key);
    if (frame->key < reader->keys.count) {
        char quoted[CODEC_QUOTE_SIZE];
        codec_quote(quoted, name, size);
        reader_syntax(reader, reader->string.offset, "the object has the key \"%s\" twice", quoted);
        reader_point(reader, reader->depth);
        return false;
    }
    if (reader->keys.slots != NULL) {
        *slot_of(reader, key.hash, reader->keys.count) = (uint32_t)reader->keys.count + 1;
    }
    reader->keys.list[reader->keys.count++] = key;
    return true;
}

/* ------------------------------------------------------------------------------------- strings */

bool reader_begin_string(struct codec_reader *reader, size_t offset) {
    bool is_key = reader->expect == READER_EXPECT_KEY || reader->expect == READER_EXPECT_KEY_OR_END;
    if (!is_key && !reader_wants_value(reader)) {
        return reader_unexpected(reader, offset, '"');
    }
    if (reader->tensor != NULL) {
        return reader_refuse_element(reader, offset, "a string");
    }
    reader->inside = READER_INSIDE_STRING;
    reader->string.state = READER_STRING_PLAIN;
    reader->string.is_key = is_key;
    reader->string.offset = offset;
    reader->string.line = reader->line;
    reader->string.high = 0;
    document_begin_text(reader->document);
    return reader_count(reader, 1);
}

/* Adds characters without escapes to the string. */
static bool add_characters(struct codec_reader *reader, const char *bytes, size_t size) {
    return document_extend_text(reader->document, bytes, size) || codec_no_memory(&reader->error);
}

/* Ends the string. */
static bool end_string(struct codec_reader *reader) {
    size_t size;
    reader->inside = READER_INSIDE_NOTHING;
    reader->string.text = document_end_text(reader->document, &size);
    if (reader->string.text == NULL) {
        return codec_no_memory(&reader->error);
    }
    if (reader->string.is_key) {
        return add_key(reader, reader->string.text, size);
    }
    struct codec_value *value = reader_add(reader, CODEC_TEXT);
    if (value != NULL) {
        codec_set_text(value, reader->string.text);
    }
    return value != NULL;
}

/* Begins a character beyond ASCII. RFC 3629 gives the range of its second byte. False if no
 * character begins with this byte. */
static bool begin_utf8(struct codec_reader *reader, unsigned char byte) {
    if (byte < 0xC2 || byte > 0xF4) {
        return false;
    }
    reader->string.continuations = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    reader->string.next_min = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    reader->string.next_max = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    reader->string.state = READER_STRING_CONTINUATION;
    return true;
}

/* Ends a \u escape, whose four digits are complete; `offset` is the place of its backslash. */
static bool end_escape(struct codec_reader *reader, size_t offset) {
    bool is_low = reader->string.code >= 0xDC00 && reader->string.code < 0xE000;
    if (reader->string.code == 0) {
        return reader_syntax(reader, offset, "\\u0000 is not accepted in strings");
    }
    if (reader->string.high != 0 && !is_low) {
        return reader_syntax(reader, offset,
                             "\\u%04x must be followed by a low surrogate, not \\u%04x",
                             reader->string.high, reader->string.code);
    }
    if (reader->string.high == 0 && is_low) {
        return reader_syntax(reader, offset, "the low surrogate \\u%04x has no high one before it",
                             reader->string.code);
    }
    if (reader->string.code >= 0xD800 && reader->string.code < 0xDC00) {
        reader->string.high = reader->string.code;
        reader->string.state = READER_STRING_LOW_BACKSLASH;
        return true;
    }
    char character[4];
    const unsigned low = is_low ? 0x10000 + ((reader->string.high - 0xD800) << 10) - 0xDC00 : 0;
    reader->string.high = 0;
    reader->string.state = READER_STRING_PLAIN;
    return add_characters(reader, character, put_utf8(character, low + reader->string.code));
}

/* Takes one byte of a string that is not plain, or that continues an escape or a character. */
static bool string_byte(struct codec_reader *reader, unsigned char byte, size_t offset) {
    static const char from[] = "\"\\/bfnrtu", to[] = "\"\\/\b\f\n\r\t";
    const char *escape;
    switch (reader->string.state) {
    case READER_STRING_PLAIN:
        if (byte == '\\') {
            reader->string.state = READER_STRING_ESCAPE;
        } else if (byte < 0x20) {
            return reader_syntax(reader, offset,
                                 "the control character 0x%02X must be escaped in a string", byte);
        } else if (byte >= 0x80 && !begin_utf8(reader, byte)) {
            return reader_syntax(reader, offset, "the byte 0x%02X is not valid UTF-8", byte);
        }
        return byte == '\\' || add_characters(reader, (const char *)&byte, 1);
    case READER_STRING_ESCAPE:
        reader->string.code = 0;
        reader->string.digits = 0;
        reader->string.state = byte == 'u' ? READER_STRING_HEX : READER_STRING_PLAIN;
        escape = byte != 0 ? strchr(from, byte) : NULL;
        if (escape == NULL) {
            return reader_syntax(reader, offset,
                                 "the escape must be one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
        }
        return byte == 'u' || add_characters(reader, &to[escape - from], 1);
    case READER_STRING_HEX:
        if (!is_hex(byte)) {
            return reader_syntax(reader, offset, "expected four hexadecimal digits after \\u");
        }
        reader->string.code = reader->string.code << 4 | hex_value((char)byte);
        return ++reader->string.digits < 4 || end_escape(reader, offset - 5);
    case READER_STRING_LOW_BACKSLASH:
    case READER_STRING_LOW_U:
        if (byte != (reader->string.state == READER_STRING_LOW_U ? 'u' : '\\')) {
            return reader_syntax(reader, offset, "\\u%04x must be followed by a low surrogate",
                                 reader->string.high);
        }
        reader->string.code = 0;
        reader->string.digits = 0;
        reader->string.state =
            reader->string.state == READER_STRING_LOW_U ? READER_STRING_HEX : READER_STRING_LOW_U;
        return true;
    case READER_STRING_CONTINUATION:
        if (byte < reader->string.next_min || byte > reader->string.next_max) {
            return reader_syntax(reader, offset, "the byte 0x%02X is not valid UTF-8", byte);
        }
        reader->line.margin++;
        reader->string.next_min = 0x80;
        reader->string.next_max = 0xBF;
        if (--reader->string.continuations == 0) {
            reader->string.state = READER_STRING_PLAIN;
        }
        return add_characters(reader, (const char *)&byte, 1);
    }
    return true;
}

/* Copies a run of plain characters at once, before it looks at the byte that follows. Otherwise an
 * error of the limit or of that byte would depend on where a chunk has cut the run. */
const char *reader_scan_string(struct codec_reader *reader, const char *p, const char *end) {
    while (p < end) {
        const char *run = p;
        if (reader->string.state == READER_STRING_PLAIN) {
            while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' &&
                   *p != '\\') {
                p++;
            }
        }
        if (p > run) {
            const size_t size = (size_t)(p - run);
            if (!reader_count(reader, size) || !add_characters(reader, run, size)) {
                return NULL;
            }
            continue;
        }
        bool quote = *p == '"' && reader->string.state == READER_STRING_PLAIN;
        if (!quote && !string_byte(reader, (unsigned char)*p, reader_offset(reader, p))) {
            return NULL;
        }
        if (!reader_count(reader, 1)) {
            return NULL;
        }
        p++;
        if (quote) {
            return end_string(reader) ? p : NULL;
        }
    }
    return p;
}
