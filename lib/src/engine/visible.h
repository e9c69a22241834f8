/*
 * visible.h says which keys a query may see by its position: causal, window and lengths decide.
 */
#ifndef ATTN_VISIBLE_H
#define ATTN_VISIBLE_H

#include "plan.h"

/* Sets the keys [*from, *to) that query i of batch item b may see. */
static inline void visible_keys(const attn_plan *p, size_t b, size_t i, size_t *from, size_t *to) {
    const int64_t at = (p->merged ? 0 : (int64_t)i) + p->shift;
    int64_t first = 0, end = (int64_t)p->m;
    if (p->lengths != NULL && (int64_t)p->lengths[b] < end) {
        end = (int64_t)p->lengths[b];
    }
    if (p->causal != ATTN_CAUSAL_NONE && at + 1 < end) {
        end = at + 1;
    }
    if (p->window[1] >= 0 && p->window[1] < end - at - 1) {
        end = at + p->window[1] + 1;
    }
    if (p->window[0] >= 0 && p->window[0] < at) {
        first = at - p->window[0];
    }
    end = end < 0 ? 0 : end;
    *from = (size_t)(first < end ? first : end);
    *to = (size_t)end;
}

#endif
