/*
 * fuzz_coding.c reads a compressed body of any bytes, whole and in pieces. Both ways must give the
 * same bytes or the same fault, and never more bytes than there is room for. The first byte of the
 * input gives the coding and the size of the pieces.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "http/coding.h"

enum {
    MOST = 1 << 20 /* inflated bytes; the rest is not looked at */
};

struct outcome {
    char bytes[MOST + 4096];
    size_t size;
    int status;
};

/* Reads the body in pieces of `step` bytes, and at most `room` inflated bytes at a time. */
static void inflate_all(enum coding coding, const uint8_t *data, size_t size, size_t step,
                        size_t room, struct outcome *out) {
    struct coding_reader *reader = coding_reader_create(coding);
    const char *text;
    fuzz_require(reader != NULL, "out of memory");
    out->size = 0;
    out->status = 0;
    for (size_t at = 0; at < size && out->status == 0 && out->size < MOST;) {
        size_t left = step < size - at ? step : size - at, part = room;
        const size_t end = at + left;
        while (part == room && out->size < MOST) {
            part = coding_read(reader, data + end - left, &left, out->bytes + out->size, room);
            fuzz_require(part <= room, "%zu bytes in a room of %zu", part, room);
            out->size += part;
        }
        fuzz_require(left == 0 || part == room, "%zu bytes are left over", left);
        out->status = coding_fault(reader, &text);
        at = end;
    }
    if (out->size < MOST) {
        coding_end(reader);
        out->status = coding_fault(reader, &text);
    }
    fuzz_require(out->status == 0 || out->status == 400 || out->status == 413, "%d", out->status);
    fuzz_require(coding_memory(reader) < 9 << 20, "%zu bytes", coding_memory(reader));
    coding_reader_free(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct outcome whole, pieces;
    if (size == 0) {
        return 0;
    }
    const enum coding coding = (data[0] & 1) != 0      ? CODING_ZSTD
                               : (data[0] & 0x80) != 0 ? CODING_DEFLATE
                                                       : CODING_GZIP;
    inflate_all(coding, data + 1, size - 1, SIZE_MAX, 4096, &whole);
    inflate_all(coding, data + 1, size - 1, 1 + (data[0] >> 1), 61, &pieces);
    const bool cut = whole.size >= MOST || pieces.size >= MOST;
    fuzz_require(cut || whole.status == pieces.status, "%d and %d", whole.status, pieces.status);
    fuzz_require(
        whole.status != 0 || cut ||
            (whole.size == pieces.size && memcmp(whole.bytes, pieces.bytes, whole.size) == 0),
        "%zu and %zu bytes", whole.size, pieces.size);
    return 0;
}
