/*
 * visible.h says which keys a query may see by its position: causal, window and lengths decide.
 */
#ifndef ATTN_VISIBLE_H
#define ATTN_VISIBLE_H

#include "plan.h"

/* Returns the position of query i of batch item b. This is the only place that knows it: causal,
 * window, ALiBi and rotary embedding count from here. */
static inline int64_t plan_position(const attn_plan *plan, size_t b, size_t i) {
    const int64_t end = plan->form.ends == NULL ? 0 : (int64_t)plan->form.ends[b];
    return (plan->form.merged ? 0 : (int64_t)i) + plan->form.position_offset + end;
}

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

/* Is a key of a batch item excluded by lengths or key_padding, with past keys counted, and does no
 * result show its numbers? With `shared` it must be excluded for all batch items. */
static inline bool plan_ignores(const attn_plan *plan, const struct bindings *bindings, bool shared,
                                size_t item, size_t key) {
    const struct rules *rules = &plan->rules;
    const unsigned char *padding = bindings->inputs[INPUT_KEY_PADDING];
    const uint64_t shown = ATTN_WANT(K) | ATTN_WANT(V) | ATTN_WANT(PRESENT_K) |
                           ATTN_WANT(PRESENT_V) | ATTN_WANT(SCORES) | ATTN_WANT(SCALED_SCORES) |
                           ATTN_WANT(STATISTICS);
    if (plan_wants(plan, shown) || key >= rules->keys) {
        return false;
    }
    for (size_t b = shared ? 0 : item; b < (shared ? plan->batch : item + 1); b++) {
        const bool exists = !rules->padding || padding[b * rules->padding_item + key] != 0;
        if (exists && (rules->lengths == NULL || key < rules->lengths[b])) {
            return false;
        }
    }
    return true;
}

#endif
