/* band.c - writes the results of a band, see band.h. */
#include "engine/band.h"

#include "status.h"
#include "tensor.h"

bool band_round(const struct band *s, const double *from, size_t count, void *to) {
    const attn_dtype dtype = s->plan->dtype;
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        put_number(to, dtype, i, from[i]);
        finite = finite && isfinite(number_at(to, dtype, i));
    }
    return finite;
}

attn_status band_not_finite(const struct band *s, const char *name, size_t h, size_t i) {
    return attn_fail(s->error, ATTN_NOT_FINITE, name,
                     "%s is not a finite %s at %s %zu, head %zu, position %zu: the values are too "
                     "large%s",
                     name, s->plan->dtype == ATTN_FLOAT32 ? "float32" : "float64",
                     s->l->sequences ? "sequence" : "batch item", s->line->item, h, i,
                     s->l->corrects ? ", or a beta times the squared length of its row of K is "
                                      "above 2, so that the state grows"
                                    : "");
}
