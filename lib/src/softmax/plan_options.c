/*
 * plan_options.c - resolves the options of a call against the sizes of its plan.
 *
 * To add an option: give attn_options a member before `reserved`, and a flag if its default is not
 * 0 (as `scale` has). base/check.c has its rules; OPTION_MAP there says which calls lack it. What
 * depends on sizes is resolved here. A function of scaled scores belongs in bend_row() and
 * slope_of() of engine/logits.inc, and in plan_bends() of plan.h. Others are computed in
 * engine/visible.h (which keys are seen), visible.inc (what is added to scaled scores), logits.inc
 * (scores) or a phase of schedule.c (outputs), and their derivatives in gradient_tile.inc or
 * gradient.inc. choose_paths() must know them, and cost.c if they take time. reference.c of the
 * tests has the formula, random_calls.c draws it, attention_calls.h tries it with many keys,
 * library_errors.txt has what no body can have, and lib/README.md has the formulas.
 */
#include "softmax/plan_options.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "engine/visible.h"
#include "half.h"
#include "plan_inputs.h"
#include "plan_matrices.h"
#include "plan_memory.h"
#include "softmax/plan_half.h"
#include "softmax/plan_rotary.h"

enum {
    DEFAULT_TOP_K = 5
};

/* Reads a number for each head, unless none are given. */
static attn_status read_numbers(const attn_plan *plan, const void *given, const char *name,
                                double *out, attn_error *error) {
    const struct half_type *type = plan->half.type;
    for (size_t h = 0; given != NULL && h < plan->heads; h++) {
        out[h] = number_at(given, plan_given_dtype(plan), h);
        if (!isfinite(out[h])) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s must be finite", name);
        }
        const double exact = out[h];
        out[h] = type == NULL ? exact : (double)round_to_half(type, (float)exact);
        if (isinf(out[h])) {
            return half_fail(type, name, exact, error);
        }
    }
    return ATTN_OK;
}

attn_status plan_read_numbers(const attn_plan *plan, const struct bindings *bindings,
                              attn_error *error) {
    const void *const *inputs = bindings->inputs;
    plan_frequencies(plan, bindings);
    ATTN_TRY(read_numbers(plan, inputs[INPUT_ALIBI], "alibi", bindings->slopes, error));
    return read_numbers(plan, inputs[INPUT_SINK], "sink", bindings->sinks, error);
}

/* Checks and binds a vector of one number for each head, which plan_read_numbers() reads into new
 * doubles in `out`. Does nothing if `tensor` is NULL. */
static attn_status per_head_numbers(const attn_tensor *tensor, int which, const char *name,
                                    attn_plan *plan, double **out, attn_error *error) {
    if (tensor == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(check_matrix(tensor, name, 1, 1, error));
    ATTN_TRY(check_dtype(tensor, name, plan->dtype, error));
    ATTN_TRY(check_per_head(plan, tensor->shape[0], name, error));
    plan_bind_input(plan, which, tensor->data);
    *out = plan_alloc(plan, plan->heads, sizeof **out);
    return *out == NULL ? attn_no_memory(error) : ATTN_OK;
}

/* Returns a slope of Press et al. 2021. If `heads` is a power of two, the slopes are a geometric
 * sequence whose first number and ratio are 2^(-8/heads). Otherwise they are those of the next
 * lower power of two, followed by every other slope of twice that power. */
static double paper_slope(size_t h, size_t heads) {
    size_t power = 1;
    while (power * 2 <= heads) {
        power *= 2;
    }
    if (h < power) {
        return exp2(-8.0 * (double)(h + 1) / (double)power);
    }
    return exp2(-4.0 * (double)(2 * (h - power) + 1) / (double)power);
}

static attn_status resolve_alibi(attn_plan *plan, const attn_options *o, attn_error *error) {
    if ((o->flags & ATTN_FLAG_ALIBI) == 0) {
        return per_head_numbers(o->alibi_slopes, INPUT_ALIBI, "alibi", plan, &plan->bindings.slopes,
                                error);
    }
    double *slopes = plan_alloc(plan, plan->heads, sizeof *slopes);
    if (slopes == NULL) {
        return attn_no_memory(error);
    }
    for (size_t h = 0; h < plan->heads; h++) {
        slopes[h] = paper_slope(h, plan->heads);
    }
    plan->bindings.slopes = slopes;
    return ATTN_OK;
}

static attn_status resolve_lengths(attn_plan *plan, const attn_options *o, attn_error *error) {
    ATTN_TRY(check_lengths(plan, o, plan->rules.keys, "keys", error));
    if (o->lengths_count == 0) {
        return ATTN_OK;
    }
    plan->rules.lengths = plan_alloc(plan, plan->batch, sizeof *plan->rules.lengths);
    if (plan->rules.lengths == NULL) {
        return attn_no_memory(error);
    }
    memcpy(plan->rules.lengths, o->lengths, plan->batch * sizeof *o->lengths);
    return ATTN_OK;
}

/* Decides where the queries stand: they follow the past keys, or the last query stands at the last
 * valid key of its batch item. */
static void place_queries(attn_plan *plan, const attn_options *o) {
    if ((o->flags & ATTN_FLAG_BOTTOM_RIGHT) == 0) {
        plan->form.position_offset = (int64_t)plan->form.past;
        return;
    }
    plan->form.ends = plan->rules.lengths;
    plan->form.position_offset =
        (plan->form.ends == NULL ? (int64_t)plan->rules.keys : 0) - (int64_t)plan->n;
}

static attn_status resolve_mask(attn_plan *plan, const attn_options *o, attn_error *error) {
    if (o->mask != NULL && o->mask->dtype != ATTN_BOOL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "mask", "mask must hold booleans");
    }
    ATTN_TRY(check_broadcast(o->mask, "mask", plan, &plan->rules.mask, error));
    if (o->mask != NULL) {
        plan_bind_input(plan, INPUT_MASK, o->mask->data);
    }
    if (o->bias != NULL) {
        ATTN_TRY(check_dtype(o->bias, "bias", plan->dtype, error));
        plan_bind_input(plan, INPUT_BIAS, o->bias->data);
    }
    return check_broadcast(o->bias, "bias", plan, &plan->rules.bias, error);
}

/* Makes key_padding the mask, or keeps it beside the mask. Its shape is (batch..., keys), or (keys)
 * for all batch items. */
static attn_status resolve_padding(attn_plan *plan, const attn_options *o, attn_error *error) {
    static const char name[] = "key_padding";
    const attn_tensor *t = o->key_padding;
    if (t == NULL) {
        return ATTN_OK;
    }
    if (tensor_lacks_data(t) || t->dtype != ATTN_BOOL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s must hold booleans", name);
    }
    size_t items = 0;
    attn_error refused; /* what follows says more */
    if (t->rank < 1 || t->rank > 1 + MOST_AXES || t->shape[t->rank - 1] != plan->rules.keys ||
        check_batch(t, name, 1, &plan->form, &items, &refused) != ATTN_OK) {
        char got[SHAPE_TEXT], want[SHAPE_TEXT];
        attn_tensor keys = {.rank = plan->form.axis_count};
        memcpy(keys.shape, plan->form.axes, sizeof plan->form.axes);
        keys.shape[keys.rank++] = plan->rules.keys;
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "%s has the shape %s, not %s: it must have one element for each key of "
                         "each batch item%s; what each query may see is a mask",
                         name, shape_text(t, got), shape_text(&keys, want),
                         plan->form.past > 0 ? ", with the past keys" : "");
    }
    const size_t item = items == 1 ? 0 : plan->rules.keys;
    plan_bind_input(plan, INPUT_KEY_PADDING, t->data);
    plan->rules.padding = t->data != NULL;
    plan->rules.padding_item = item;
    if (plan->rules.mask.given) {
        plan->rules.padding_too = plan->rules.padding;
    } else {
        plan_bind_input(plan, INPUT_MASK, t->data);
        plan->rules.mask =
            (struct broadcast){.given = plan->rules.padding, .stride = {item, 0, 0, 1}};
    }
    return ATTN_OK;
}

/* Writes the shape that the decay of one batch item has, with `heads` heads. Returns its rank. */
static int decay_shape(const attn_plan *plan, size_t heads, size_t shape[2]) {
    const bool packed = plan->form.packed, headed = packed || plan->form.has_head_axis;
    shape[packed || !headed ? 0 : 1] = plan->m;
    if (headed) {
        shape[packed ? 1 : 0] = heads;
    }
    return headed ? 2 : 1;
}

static attn_status refuse_decay(const attn_plan *plan, const attn_tensor *t, attn_error *error) {
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    attn_tensor all = {.rank = plan->form.axis_count};
    memcpy(all.shape, plan->form.axes, sizeof plan->form.axes);
    all.rank += decay_shape(plan, plan->heads, all.shape + all.rank);
    return attn_fail(error, ATTN_SHAPE_MISMATCH, "decay",
                     "decay has the shape %s, not %s: it must have one number for each key%s%s%s",
                     shape_text(t, got), shape_text(&all, want),
                     plan->form.past > 0 ? " and each past key" : "",
                     all.rank > 1 ? " of each head, or of one head for all" : "",
                     plan->form.packed ? "; beside packed rows the heads follow the keys" : "");
}

int plan_decay_axis(const attn_plan *plan, const attn_tensor *t) {
    const struct form *form = &plan->form;
    const size_t *end = t->shape + t->rank;
    int ones = 0; /* the first batch axes, which may be left out */
    if (!form->packed) {
        return t->rank - 1;
    }
    while (ones < form->axis_count && form->axes[ones] == 1) {
        ones++;
    }
    const bool further = t->rank >= form->axis_count - ones + 3 && end[-1] == 1 &&
                         end[-3] == plan->m && (end[-2] == plan->heads || end[-2] == 1);
    return t->rank - 2 - further;
}

static attn_status resolve_decay(attn_plan *plan, const attn_options *o, attn_error *error) {
    const attn_tensor *t = o->decay;
    const bool packed = plan->form.packed;
    size_t shape[2], items = 0;
    int last = decay_shape(plan, plan->heads, shape);
    if (t == NULL) {
        return ATTN_OK;
    }
    if (tensor_lacks_data(t)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "decay", "decay is missing");
    }
    ATTN_TRY(check_dtype(t, "decay", plan->dtype, error));
    if (t->rank < last || t->rank > last + MOST_AXES) {
        return refuse_decay(plan, t, error);
    }
    const size_t *own = packed ? t->shape + plan_decay_axis(plan, t) : t->shape + t->rank - last;
    const int heads_axis = last < 2 ? -1 : packed ? 1 : 0;
    for (int axis = 0; axis < last; axis++) {
        if (own[axis] != shape[axis] && !(axis == heads_axis && own[axis] == 1)) {
            return refuse_decay(plan, t, error);
        }
    }
    if (packed) {
        ATTN_TRY(check_square(t, "decay", plan_decay_axis(plan, t), plan->form.axis_count, error));
        last = t->rank - plan_decay_axis(plan, t);
    }
    ATTN_TRY(check_batch(t, "decay", last, &plan->form, &items, error));
    const size_t heads = heads_axis < 0 ? 1 : own[heads_axis];
    plan_bind_input(plan, INPUT_DECAY, t->data);
    plan->decay = (struct decay){.items = items, .heads = heads};
    plan->decay.stride[0] = items == 1 ? 0 : heads * plan->m;
    plan->decay.stride[1] = heads == 1 ? 0 : packed ? 1 : plan->m;
    plan->decay.stride[2] = packed ? heads : 1;
    return ATTN_OK;
}

/* Returns a mask or a bias with a row for all keys. It has one row for each item, head and query
 * only where the rules differ between them; *rows gets these counts. */
static struct broadcast extended_rows(const attn_plan *plan, bool items, bool heads, bool queries,
                                      struct extended *rows) {
    *rows =
        (struct extended){items ? plan->batch : 1, heads ? plan->heads : 1, queries ? plan->n : 1};
    const size_t head = rows->rows * plan->m;
    return (struct broadcast){
        true, {items ? rows->heads * head : 0, heads ? head : 0, queries ? plan->m : 0, 1}};
}

/* Replaces all rules by one mask and one bias, in which the extra keys are allowed and get no bias.
 * The run makes them. */
static void extend_rules(attn_plan *plan) {
    const struct rules *g = &plan->extra.given;
    const size_t *mask = g->mask.stride, *bias = g->bias.stride;
    if (plan->extra.count == 0) {
        return;
    }
    plan->extra.given = plan->rules;
    plan->rules = (struct rules){.window = {-1, -1}, .keys = plan->m};
    const bool placed = g->causal || g->window[0] >= 0 || g->window[1] >= 0;
    if (placed || g->lengths != NULL || g->mask.given) {
        const bool items = g->lengths != NULL || g->padding_too || mask[0] != 0;
        plan->rules.mask =
            extended_rows(plan, items, mask[1] != 0, placed || mask[2] != 0, &plan->extra.mask);
    }
    if (g->bias.given) {
        plan->rules.bias =
            extended_rows(plan, bias[0] != 0, bias[1] != 0, bias[2] != 0, &plan->extra.bias);
    }
}

attn_status plan_options(attn_plan *plan, const attn_options *o, attn_error *error) {
    plan->rules.causal = o->causal;
    plan->options = *o;
    plan->bindings.rounding = o->rounding;
    plan->rules.keys = present_rows(plan);
    bool windowed = (o->flags & ATTN_FLAG_WINDOW) != 0;
    plan->rules.window[0] = windowed ? o->window[0] : -1;
    plan->rules.window[1] = windowed ? o->window[1] : -1;
    plan->results.wanted = o->results != 0 ? o->results : ATTN_WANT(OUTPUT);
    plan->results.mean = plan_has_mean(plan) && plan_wants(plan, ATTN_WANT(WEIGHTS));
    plan->results.top_k = o->top_k != 0 ? o->top_k : DEFAULT_TOP_K;
    if (plan->results.top_k > plan->m) {
        plan->results.top_k = plan->m;
    }
    ATTN_TRY(plan_scale(plan, o, error));
    ATTN_TRY(resolve_alibi(plan, o, error));
    ATTN_TRY(per_head_numbers(o->sink, INPUT_SINK, "sink", plan, &plan->bindings.sinks, error));
    ATTN_TRY(resolve_lengths(plan, o, error));
    place_queries(plan, o);
    ATTN_TRY(resolve_mask(plan, o, error));
    ATTN_TRY(resolve_padding(plan, o, error));
    ATTN_TRY(resolve_decay(plan, o, error));
    extend_rules(plan);
    return plan_rotary(plan, o, error);
}

int64_t attn_plan_position(const attn_plan *plan, size_t item, size_t query) {
    return plan_position(plan, item, query);
}
