/* attention_laws.c - see attention_laws.h. */
#include "attention_laws.h"

#include <criterion/criterion.h>

static const struct {
    size_t heads, n, m, d, d_v;
} sizes[] = {
    {2, 4, 5, 3, 2},       /* so small that it is computed in double */
    {2, 2, 300, 64, 40},   /* products are made row by row */
    {2, 9, 130, 33, 65},   /* keys are packed only if two query heads share them */
    {2, 100, 150, 64, 64}, /* several blocks of queries and tiles of keys */
    {2, 120, 40, 16, 128}, /* more queries than keys */
    {2, 3, 8200, 5, 4},    /* keys are split into parts, which are merged */
};

const uint64_t all_ways[WAYS] = {ATTN_WANT(OUTPUT), ATTN_WANT(OUTPUT) | ATTN_WANT(LSE),
                                 ATTN_WANT(WEIGHTS), TILED, STAGES};

struct call draw_law_call(unsigned kind, size_t size, int dtype) {
    const size_t heads = sizes[size].heads, d = sizes[size].d, d_v = sizes[size].d_v,
                 less = too_slow(heads, sizes[size].n, sizes[size].m, d + d_v) ? 8 : 1,
                 n = (sizes[size].n - 1) / less + 1, m = sizes[size].m / less;
    return draw_call(kind, (attn_dtype)dtype, heads, n, m, d, d_v);
}

void expect_within_bounds(const struct worst *worst) {
    cr_assert(worst->error <= 1, "%s of row %zu is off by %g times its bound", worst->what,
              worst->row, worst->error);
}

size_t all_rows(const struct call *c) {
    return c->batch * c->heads * c->n;
}
