/*
 * partial_gradients.c makes the gradients of linear attention: each row is the sum of the partial
 * gradients of the heads, tiles and sequences that have the same input.
 */
#include "recurrent/partial_gradients.h"

#include "base/status.h"
#include "base/tensor.h"
#include "partition.h"
#include "recurrent/schedule_linear.h"

/* A row of a gradient. */
struct row {
    enum linear_input input;
    struct gradient_rows of;
    size_t item, head, row;
    size_t place; /* its first number in the gradient */
};

/* Adds the partial gradients of a sequence, or of a position of a batch item. Returns false if it
 * has none, because the row is a position of no sequence. */
static bool add_partials(const struct state_tile *s, const struct row *r, size_t item,
                         double *sum) {
    const struct gradient_rows *of = &r->of;
    const struct linear *l = s->l;
    const size_t each = of->owners / of->heads;
    if (!of->per_sequence && l->item_rows != NULL && r->row >= l->item_rows[item]) {
        return false;
    }
    for (size_t owner = r->head * each; owner < (r->head + 1) * each; owner++) {
        for (size_t tile = 0; tile < of->tiles; tile++) {
            const double *partial =
                r->input == LINEAR_PAST
                    ? partial_of_state(s, item, owner, r->row)
                    : partial_of_row(s, r->input, of, tile,
                                     of->per_sequence ? item : item * s->plan->n + r->row, owner);
            s->kernels->axpy_f64(sum, partial, of->width, 1);
        }
    }
    return true;
}

/* Makes the gradient by a row x of Q or K of that by r x, where r = 1 / sqrt(x x + epsilon):
 * r grad - r^3 (x grad) x. */
static void norm_backward(const struct state_tile *s, const struct row *r, double *sum, double *x) {
    const int input = r->input == LINEAR_Q ? INPUT_Q : INPUT_K;
    const void *row = at_number(s->plan, s->bindings->inputs[input], r->place);
    const double norm = norm_of(s, row);
    double product;
    read_doubles(s, row, r->of.width, norm, x);
    s->kernels->double_dots_f64(&product, x, sum, r->of.width, 1, r->of.width);
    s->kernels->axpy_f64(sum, x, r->of.width, -product);
    s->kernels->spread_f64(sum, sum, r->of.width, norm, false);
}

static attn_status make_row(const struct state_tile *s, const struct row *r, double *sum) {
    const struct gradient_rows *of = &r->of;
    const attn_result_tensor *part = &s->plan->results.of[of->which].parts[0];
    char *data = s->bindings->results[of->which];
    const size_t size = attn_dtype_size(s->plan->dtype);
    bool any = false;
    memset(sum, 0, of->width * sizeof *sum);
    if (of->items > 1) {
        any = add_partials(s, r, r->item, sum);
    }
    for (size_t item = 0; of->items == 1 && item < of->sequences; item++) {
        any = add_partials(s, r, item, sum) || any;
    }
    if (any && r->input <= LINEAR_K && s->l->given.normalize_qk) {
        norm_backward(s, r, sum, sum + of->width);
    }
    if (tile_round(s, sum, of->width, data + r->place * size)) {
        return ATTN_OK;
    }
    size_t bad = 0;
    while (isfinite(number_at(data, s->plan->dtype, r->place + bad))) {
        bad++;
    }
    return gradient_not_finite(part, of->which, r->place + bad, s->error);
}

attn_status partial_gradients_task(const struct state_tile *s, size_t task, double *scratch) {
    const struct partition *sums = s->l->gradients.sums;
    struct row r = {.input = LINEAR_Q};
    while (task >= sums[r.input].tasks) {
        task -= sums[r.input++].tasks;
    }
    const struct gradient_rows *of = &r.of;
    size_t unit, end;
    r.of = linear_gradient_rows(s->plan, r.input);
    for (units_of_task(&sums[r.input], task, &unit, &end); unit < end; unit++) {
        r.row = unit % of->rows;
        r.head = unit / of->rows % of->heads;
        r.item = unit / of->rows / of->heads;
        r.place = r.item * of->stride[0] + r.head * of->stride[1] + r.row * of->stride[2];
        ATTN_TRY(make_row(s, &r, scratch));
    }
    return ATTN_OK;
}
