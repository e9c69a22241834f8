/*
 * codec_tensor.c - the buffers of tensors, and their single elements. decimal.c and
 * decimal_vector.c fill the buffers with runs of numbers.
 */
#define _GNU_SOURCE /* mremap */
#include "codec/json/codec_tensor.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "codec/json/decimal.h"
#include "codec/json/number.h"

/* ------------------------------------------------------------------------------------- buffers */

enum {
    MAP_FROM = 256 * 1024,  /* bytes from which a buffer has pages of its own */
    LAST_BYTES = 16 * 1024, /* bytes by which a buffer grows if more is refused */
    POPULATE = 128 * 1024,  /* most bytes whose pages are provided before they are written */
    PAGE = 4096,
    HUGE_PAGE = 2 * 1024 * 1024, /* of x86-64 and ARM64; elsewhere it is a size like any other */
};

void codec_tensor_init(struct codec_tensor *tensor, attn_dtype dtype, int rank, void *first) {
    *tensor = (struct codec_tensor){
        .data = first,
        .borrowed = true,
        .dtype = dtype,
        .rank = rank,
        .first_null = TENSOR_NONE,
        .first_range = TENSOR_NONE,
        .first_wrong = TENSOR_NONE,
    };
    tensor->capacity = TENSOR_FIRST / attn_dtype_size(tensor->dtype);
}

/* Moves the elements from malloc's or the borrowed block to pages of their own. Both buffers exist,
 * and count, until the elements are copied. */
static bool map(struct codec_tensor *tensor, struct account *account, size_t bytes) {
    if (!account_take(account, bytes)) {
        return false;
    }
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        account_give(account, bytes);
        return false;
    }
    if (tensor->count > 0) {
        memcpy(data, tensor->data, tensor->count * attn_dtype_size(tensor->dtype));
    }
    if (!tensor->borrowed) {
        account_free(account, tensor->data);
    }
    tensor->data = data;
    tensor->borrowed = false;
    tensor->mapped = true;
    tensor->bytes = tensor->pages = bytes;
    return true;
}

/*
 * Changes the size of a buffer that has pages of its own. A large buffer must not be copied while
 * it grows, because then the old and the new one exist at the same time. realloc() may copy;
 * mremap() moves page tables only. The room in reserve costs little physical memory, because the
 * kernel provides a page when it is first written, or populate() asks for it.
 */
static bool remap(struct codec_tensor *tensor, struct account *account, size_t bytes) {
    const size_t more = bytes > tensor->bytes ? bytes - tensor->bytes : 0;
    if (!account_take(account, more)) {
        return false;
    }
    void *data = mremap(tensor->data, tensor->pages, bytes, MREMAP_MAYMOVE);
    if (data == MAP_FAILED) {
        account_give(account, more);
        return false;
    }
    account_give(account, tensor->bytes + more - bytes);
    tensor->data = data;
    tensor->bytes = tensor->pages = bytes;
    return true;
}

/* Makes the buffer `bytes` long, in malloc's heap or in pages of its own. False if out of memory;
 * the old buffer then stays. */
static bool resize(struct codec_tensor *tensor, struct account *account, size_t bytes) {
    if (tensor->mapped) {
        return remap(tensor, account, bytes);
    }
    if (bytes >= MAP_FROM) {
        return map(tensor, account, bytes);
    }
    void *data = tensor->borrowed ? account_alloc(account, bytes)
                                  : account_realloc(account, tensor->data, bytes);
    if (data == NULL) {
        return false;
    }
    if (tensor->borrowed && tensor->count > 0) {
        memcpy(data, tensor->data, tensor->count * attn_dtype_size(tensor->dtype));
    }
    tensor->data = data;
    tensor->borrowed = false;
    tensor->bytes = bytes;
    return true;
}

bool codec_tensor_zeros(struct codec_tensor *tensor, struct account *account, const size_t *shape,
                        size_t count, size_t capacity) {
    size_t bytes;
    tensor->count = 0;
    if (__builtin_mul_overflow(capacity, attn_dtype_size(tensor->dtype), &bytes)) {
        bytes = SIZE_MAX; /* refused below, like any size that is too large */
    }
    if (!resize(tensor, account, bytes)) {
        return false;
    }
    if (!tensor->mapped) {
        memset(tensor->data, 0, bytes);
    }
    memcpy(tensor->shape, shape, (size_t)tensor->rank * sizeof *shape);
    tensor->count = count;
    tensor->capacity = capacity;
    return true;
}

/* Asks the kernel for the pages of the room that has been added, all at once: that takes half the
 * time of one page after another. More room than POPULATE is left to the first writing, so that
 * physical memory stays close to what the elements take. */
static void populate(struct codec_tensor *tensor) {
#ifdef MADV_POPULATE_WRITE
    const size_t used = (tensor->count * attn_dtype_size(tensor->dtype) + PAGE - 1) / PAGE * PAGE;
    if (tensor->mapped && tensor->bytes > used && tensor->bytes - used <= POPULATE) {
        madvise((char *)tensor->data + used, tensor->bytes - used, MADV_POPULATE_WRITE);
    }
#else
    (void)tensor;
#endif
}

/* Small buffers double, and buffers with pages of their own grow by an eighth. account_grow() does
 * not fit here, because it knows only blocks of malloc. */
bool codec_tensor_room(struct codec_tensor *tensor, struct account *account) {
    if (tensor->count < tensor->capacity) {
        return true;
    }
    const size_t width = attn_dtype_size(tensor->dtype), bytes = tensor->capacity * width;
    size_t step = bytes >= MAP_FROM ? bytes / 8 : bytes;
    if (!resize(tensor, account, bytes + step / width * width)) {
        /* The whole step is refused near the limit, although the rest of the tensor may fit. */
        step = step < LAST_BYTES ? step : LAST_BYTES;
        if (step < LAST_BYTES || !resize(tensor, account, bytes + step)) {
            return false;
        }
    }
    tensor->capacity += step / width;
    populate(tensor);
    return true;
}

/* Reserves addresses for a long tensor whose size is known. Its pages are provided, and counted,
 * while its elements arrive. It begins at a huge page if it has as many bytes, because a huge page
 * takes a fifth of the time of its small ones. False if out of memory. */
static bool reserve_pages(struct codec_tensor *tensor, struct account *account, size_t bytes) {
    const size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    const size_t slack = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    if (bytes > account_room(account)) {
        return account_take(account, bytes); /* is refused */
    }
    char *data = mmap(NULL, size + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return false;
    }
    if (slack > 0) {
        const size_t before = (slack - (uintptr_t)data % slack) % slack;
        if (before > 0) {
            munmap(data, before);
        }
        data += before;
        if (slack > before) {
            munmap(data + size, slack - before);
        }
        madvise(data, size, MADV_HUGEPAGE);
    }
    tensor->data = data;
    tensor->borrowed = false;
    tensor->mapped = true;
    tensor->pages = size;
    return true;
}

bool codec_tensor_room_for(struct codec_tensor *tensor, struct account *account, size_t needed,
                           size_t total) {
    const size_t width = attn_dtype_size(tensor->dtype), whole = total * width;
    const size_t step = whole >= HUGE_PAGE ? HUGE_PAGE : POPULATE;
    if (needed <= tensor->capacity) {
        return true;
    }
    if (whole < MAP_FROM) {
        tensor->capacity = total;
        return resize(tensor, account, whole);
    }
    if (!tensor->mapped && !reserve_pages(tensor, account, whole)) {
        return false;
    }
    const size_t steps = (needed * width + step - 1) / step * step;
    const size_t bytes = steps < whole ? steps : whole;
    if (!account_take(account, bytes - tensor->bytes)) {
        return false;
    }
    tensor->bytes = bytes;
    tensor->capacity = bytes / width;
    populate(tensor);
    return true;
}

void codec_tensor_trim(struct codec_tensor *tensor, struct account *account) {
    if (!tensor->borrowed) { /* if it fails, the buffer stays, which is too long */
        resize(tensor, account, tensor->count * attn_dtype_size(tensor->dtype));
    }
    tensor->capacity = tensor->count;
}

void codec_tensor_free(struct codec_tensor *tensor, struct account *account) {
    if (tensor->mapped) {
        munmap(tensor->data, tensor->pages);
        account_give(account, tensor->bytes);
    } else if (!tensor->borrowed) {
        account_free(account, tensor->data);
    }
    tensor->data = NULL;
    tensor->mapped = false;
    tensor->bytes = 0;
    codec_tensor_drop_sides(tensor, account);
}

void codec_tensor_drop_sides(struct codec_tensor *tensor, struct account *account) {
    account_free(account, tensor->sides.list);
    tensor->sides = (struct codec_tensor_sides){0};
}

/* ----------------------------------------------------------------------------- single elements */

/* Notes on which side of its double the text of the next number lies. False if out of memory. */
static bool note_side(struct codec_tensor *tensor, struct account *account, int side) {
    struct codec_tensor_sides *sides = &tensor->sides;
    size_t *list =
        account_grow(account, sides->list, &sides->capacity, sides->count + 1, sizeof *list);
    if (list == NULL) {
        return false;
    }
    sides->list = list;
    list[sides->count++] = 2 * tensor->count + (side > 0);
    return true;
}

bool codec_tensor_add_number(struct codec_tensor *tensor, struct account *account, const char *text,
                             size_t size) {
    double *out = (double *)tensor->data + tensor->count;
    if (!number_read_double(text, size, out)) {
        if (tensor->first_range == TENSOR_NONE) {
            tensor->first_range = tensor->count;
            memcpy(tensor->range_text, text, size < TENSOR_TEXT ? size : TENSOR_TEXT);
        }
    } else if (decimal_is_open(*out)) {
        const int side = number_side(text, size, *out);
        if (side != 0 && !note_side(tensor, account, side)) {
            return false;
        }
    }
    tensor->count++;
    return true;
}

void codec_tensor_add_null(struct codec_tensor *tensor, bool infinite) {
    if (tensor->first_null == TENSOR_NONE) {
        tensor->first_null = tensor->count;
        tensor->infinite = infinite;
    }
    ((double *)tensor->data)[tensor->count++] = -(double)INFINITY;
}

void codec_tensor_add_bool(struct codec_tensor *tensor, bool value) {
    ((unsigned char *)tensor->data)[tensor->count++] = value;
}

static const char *add_run(struct codec_tensor *tensor, const char *text, const char *end,
                           size_t *added, bool *after) {
#ifdef DECIMAL_VECTOR
    if (vector_has_digits()) {
        return decimal_add_run_vector(tensor, text, end, added, after);
    }
#endif
    return decimal_add_run(tensor, text, end, added, after);
}

const char *codec_tensor_add_run(struct codec_tensor *tensor, const char *text, const char *end,
                                 size_t *added, bool *after) {
    const char *stop = text;
    *added = 0;
    *after = false;
    if (end - text >= DECIMAL_MARGIN) {
        stop = add_run(tensor, text, end, added, after);
    }
    const size_t left = (size_t)(end - stop);
    if (*after || left >= DECIMAL_MARGIN || tensor->count == tensor->capacity) {
        return stop;
    }
    /* The loops stop before the last bytes. These are read from a copy with zeros behind it, where
     * no number ends. */
    char copy[2 * DECIMAL_MARGIN] = {0};
    size_t more;
    memcpy(copy, stop, left);
    const char *next = add_run(tensor, copy, copy + left + DECIMAL_MARGIN - 1, &more, after);
    *added += more;
    return stop + (next - copy);
}
