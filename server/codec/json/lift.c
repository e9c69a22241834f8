/*
 * lift.c - the buffers of lifted arrays, the list of these arrays, and single elements.
 * decimal.c and decimal_vector.c fill the buffers with runs of numbers.
 */
#define _GNU_SOURCE /* mremap */
#include "codec/json/lift.h"

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

void lifted_init(struct lifted *lifted, attn_dtype dtype, int rank, void *first) {
    *lifted = (struct lifted){
        .data = first,
        .borrowed = true,
        .dtype = dtype,
        .rank = rank,
        .first_null = LIFT_NONE,
        .first_range = LIFT_NONE,
        .first_wrong = LIFT_NONE,
    };
    lifted->capacity = LIFT_FIRST / attn_dtype_size(lifted->dtype);
}

/* Moves the elements from malloc's or the borrowed block to pages of their own. Both buffers exist,
 * and count, until the elements are copied. */
static bool map(struct lifted *lifted, struct account *account, size_t bytes) {
    if (!account_take(account, bytes)) {
        return false;
    }
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        account_give(account, bytes);
        return false;
    }
    if (lifted->count > 0) {
        memcpy(data, lifted->data, lifted->count * attn_dtype_size(lifted->dtype));
    }
    if (!lifted->borrowed) {
        account_free(account, lifted->data);
    }
    lifted->data = data;
    lifted->borrowed = false;
    lifted->mapped = true;
    lifted->bytes = lifted->pages = bytes;
    return true;
}

/*
 * Changes the size of a buffer that has pages of its own. A large buffer must not be copied while
 * it grows, because then the old and the new one exist at the same time. realloc() may copy;
 * mremap() moves page tables only. The room in reserve costs little physical memory, because the
 * kernel provides a page when it is first written, or populate() asks for it.
 */
static bool remap(struct lifted *lifted, struct account *account, size_t bytes) {
    const size_t more = bytes > lifted->bytes ? bytes - lifted->bytes : 0;
    if (!account_take(account, more)) {
        return false;
    }
    void *data = mremap(lifted->data, lifted->pages, bytes, MREMAP_MAYMOVE);
    if (data == MAP_FAILED) {
        account_give(account, more);
        return false;
    }
    account_give(account, lifted->bytes + more - bytes);
    lifted->data = data;
    lifted->bytes = lifted->pages = bytes;
    return true;
}

/* Makes the buffer `bytes` long, in malloc's heap or in pages of its own. False if out of memory;
 * the old buffer then stays. */
static bool resize(struct lifted *lifted, struct account *account, size_t bytes) {
    if (lifted->mapped) {
        return remap(lifted, account, bytes);
    }
    if (bytes >= MAP_FROM) {
        return map(lifted, account, bytes);
    }
    void *data = lifted->borrowed ? account_alloc(account, bytes)
                                  : account_realloc(account, lifted->data, bytes);
    if (data == NULL) {
        return false;
    }
    if (lifted->borrowed && lifted->count > 0) {
        memcpy(data, lifted->data, lifted->count * attn_dtype_size(lifted->dtype));
    }
    lifted->data = data;
    lifted->borrowed = false;
    lifted->bytes = bytes;
    return true;
}

bool lifted_zeros(struct lifted *lifted, struct account *account, const size_t *shape, size_t count,
                  size_t capacity) {
    size_t bytes;
    lifted->count = 0;
    if (__builtin_mul_overflow(capacity, attn_dtype_size(lifted->dtype), &bytes)) {
        bytes = SIZE_MAX; /* refused below, like any size that is too large */
    }
    if (!resize(lifted, account, bytes)) {
        return false;
    }
    if (!lifted->mapped) {
        memset(lifted->data, 0, bytes);
    }
    memcpy(lifted->shape, shape, (size_t)lifted->rank * sizeof *shape);
    lifted->count = count;
    lifted->capacity = capacity;
    return true;
}

/* Asks the kernel for the pages of the room that has been added, all at once: that takes half the
 * time of one page after another. More room than POPULATE is left to the first writing, so that
 * physical memory stays close to what the elements take. */
static void populate(struct lifted *lifted) {
#ifdef MADV_POPULATE_WRITE
    const size_t used = (lifted->count * attn_dtype_size(lifted->dtype) + PAGE - 1) / PAGE * PAGE;
    if (lifted->mapped && lifted->bytes > used && lifted->bytes - used <= POPULATE) {
        madvise((char *)lifted->data + used, lifted->bytes - used, MADV_POPULATE_WRITE);
    }
#else
    (void)lifted;
#endif
}

/* Small buffers double, and buffers with pages of their own grow by an eighth. account_grow() does
 * not fit here, because it knows only blocks of malloc. */
bool lifted_room(struct lifted *lifted, struct account *account) {
    if (lifted->count < lifted->capacity) {
        return true;
    }
    const size_t width = attn_dtype_size(lifted->dtype), bytes = lifted->capacity * width;
    size_t step = bytes >= MAP_FROM ? bytes / 8 : bytes;
    if (!resize(lifted, account, bytes + step / width * width)) {
        /* The whole step is refused near the limit, although the rest of the array may fit. */
        step = step < LAST_BYTES ? step : LAST_BYTES;
        if (step < LAST_BYTES || !resize(lifted, account, bytes + step)) {
            return false;
        }
    }
    lifted->capacity += step / width;
    populate(lifted);
    return true;
}

/* Reserves addresses for a long array whose size is known. Its pages are provided, and counted,
 * while its elements arrive. It begins at a huge page if it has as many bytes, because a huge page
 * takes a fifth of the time of its small ones. False if out of memory. */
static bool reserve_pages(struct lifted *lifted, struct account *account, size_t bytes) {
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
    lifted->data = data;
    lifted->borrowed = false;
    lifted->mapped = true;
    lifted->pages = size;
    return true;
}

bool lifted_room_for(struct lifted *lifted, struct account *account, size_t needed, size_t total) {
    const size_t width = attn_dtype_size(lifted->dtype), whole = total * width;
    const size_t step = whole >= HUGE_PAGE ? HUGE_PAGE : POPULATE;
    if (needed <= lifted->capacity) {
        return true;
    }
    if (whole < MAP_FROM) {
        lifted->capacity = total;
        return resize(lifted, account, whole);
    }
    if (!lifted->mapped && !reserve_pages(lifted, account, whole)) {
        return false;
    }
    const size_t steps = (needed * width + step - 1) / step * step;
    const size_t bytes = steps < whole ? steps : whole;
    if (!account_take(account, bytes - lifted->bytes)) {
        return false;
    }
    lifted->bytes = bytes;
    lifted->capacity = bytes / width;
    populate(lifted);
    return true;
}

bool lifted_trim(struct lifted *lifted, struct account *account) {
    const size_t bytes = lifted->count * attn_dtype_size(lifted->dtype);
    if (lifted->borrowed && bytes <= sizeof lifted->few) {
        memmove(lifted->few, lifted->data, bytes);
        lifted->data = lifted->few;
        lifted->capacity = lifted->count;
        return true;
    }
    const bool done = resize(lifted, account, bytes);
    lifted->capacity = lifted->count;
    return done || !lifted->borrowed; /* a buffer that is too long is good, a borrowed one is not */
}

void lifted_free(struct lifted *lifted, struct account *account) {
    if (lifted->mapped) {
        munmap(lifted->data, lifted->pages);
        account_give(account, lifted->bytes);
    } else if (!lifted->borrowed) {
        account_free(account, lifted->data);
    }
    lifted->data = NULL;
    lifted->mapped = false;
    lifted->bytes = 0;
    lifted_drop_sides(lifted, account);
}

void lifted_drop_sides(struct lifted *lifted, struct account *account) {
    account_free(account, lifted->sides.list);
    lifted->sides = (struct lifted_sides){0};
}

/* ----------------------------------------------------------------------------- single elements */

/* Notes on which side of its double the text of the next number lies. False if out of memory. */
static bool note_side(struct lifted *lifted, struct account *account, int side) {
    struct lifted_sides *sides = &lifted->sides;
    size_t *list =
        account_grow(account, sides->list, &sides->capacity, sides->count + 1, sizeof *list);
    if (list == NULL) {
        return false;
    }
    sides->list = list;
    list[sides->count++] = 2 * lifted->count + (side > 0);
    return true;
}

bool lifted_add_number(struct lifted *lifted, struct account *account, const char *text,
                       size_t size) {
    double *out = (double *)lifted->data + lifted->count;
    if (!number_read_double(text, size, out)) {
        if (lifted->first_range == LIFT_NONE) {
            lifted->first_range = lifted->count;
            memcpy(lifted->range_text, text, size < LIFT_TEXT ? size : LIFT_TEXT);
        }
    } else if (decimal_is_open(*out)) {
        const int side = number_side(text, size, *out);
        if (side != 0 && !note_side(lifted, account, side)) {
            return false;
        }
    }
    lifted->count++;
    return true;
}

void lifted_add_null(struct lifted *lifted, bool infinite) {
    if (lifted->first_null == LIFT_NONE) {
        lifted->first_null = lifted->count;
        lifted->infinite = infinite;
    }
    ((double *)lifted->data)[lifted->count++] = -(double)INFINITY;
}

void lifted_add_bool(struct lifted *lifted, bool value) {
    ((unsigned char *)lifted->data)[lifted->count++] = value;
}

const char *lifted_add_run(struct lifted *lifted, const char *text, const char *end, size_t *added,
                           bool *after) {
#ifdef DECIMAL_VECTOR
    if (vector_has_digits()) {
        return decimal_add_run_vector(lifted, text, end, added, after);
    }
#endif
    return decimal_add_run(lifted, text, end, added, after);
}
