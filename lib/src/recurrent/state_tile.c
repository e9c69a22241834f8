/* state_tile.c - reads the gates of a tile, and writes its results, see state_tile.h. */
#include "recurrent/state_tile.h"

#include "base/status.h"
#include "base/tensor.h"

const double *tile_gates(const struct state_tile *s, size_t i, double *gates) {
    const size_t d = s->l->d, count = decays_of(s->l);
    const void *decays = count == 0 ? NULL : gate_of(s, INPUT_DECAY, i);
    for (size_t c = 0; c < count; c++) {
        gates[c] = exp(number_at(decays, s->plan->dtype, c));
    }
    for (size_t c = count; count > 0 && c < d; c++) {
        gates[c] = gates[0];
    }
    return count == 0 ? NULL : gates;
}

bool tile_round(const struct state_tile *s, const double *from, size_t count, void *to) {
    int bad = 0; /* the loops are plain, so that a compiler can make vectors of them */
    if (s->plan->dtype == ATTN_FLOAT64) {
        memcpy(to, from, count * sizeof *from);
        for (size_t i = 0; i < count; i++) {
            bad |= !(from[i] - from[i] == 0);
        }
        return !bad;
    }
    float *rounded = to;
    for (size_t i = 0; i < count; i++) {
        const float x = (float)from[i];
        bad |= !(x - x == 0);
        rounded[i] = x;
    }
    return !bad;
}

double tile_long_norm(const double *row, size_t d) {
    const double shrink = 0x1p-600; /* no square overflows after this */
    double sum = 0;
    for (size_t i = 0; i < d; i++) {
        sum += row[i] * shrink * (row[i] * shrink);
    }
    return shrink / sqrt(sum);
}

attn_status tile_not_finite(const struct state_tile *s, const char *name, size_t h, size_t i) {
    return attn_fail(s->error, ATTN_NOT_FINITE, name,
                     "%s is not a finite %s at %s %zu, head %zu, position %zu: the values are too "
                     "large%s",
                     name, s->plan->dtype == ATTN_FLOAT32 ? "float32" : "float64",
                     s->l->packed_sequences ? "sequence" : "batch item", s->sequence->item, h, i,
                     s->l->corrects ? ", or a beta times the squared length of its row of K is "
                                      "above 2, so that the state grows"
                                    : "");
}
