/*
 * visible.h says which keys a query may see by its position: causal, window and lengths decide.
 */
#ifndef ATTN_VISIBLE_H
#define ATTN_VISIBLE_H

#include "plan.h"

/* Sets the keys [*from, *to) that a query at position `at` of batch item b may see. */
static inline void visible_by(const struct rules *r, size_t b, int64_t at, size_t *from,
                              size_t *to) {
    int64_t first = 0, end = (int64_t)r->keys;
    if (r->lengths != NULL && (int64_t)r->lengths[b] < end) {
        end = (int64_t)r->lengths[b];
    }
    if (r->causal && at + 1 < end) {
        end = at + 1;
    }
    if (r->window[1] >= 0 && r->window[1] < end - at - 1) {
        end = at + r->window[1] + 1;
    }
    if (r->window[0] >= 0 && r->window[0] < at) {
        first = at - r->window[0];
    }
    end = end < 0 ? 0 : end;
    *from = (size_t)(first < end ? first : end);
    *to = (size_t)end;
}

/* The same for query i of a plan. */
static inline void visible_keys(const attn_plan *p, size_t b, size_t i, size_t *from, size_t *to) {
    visible_by(&p->rules, b, plan_position(p, b, i), from, to);
}

#endif
