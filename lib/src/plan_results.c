/*
 * plan_results.c - gives every wanted result its shape, and binds results to buffers.
 *
 * To add a result: add it to the end of ATTN_RESULT_MAP, because its number is part of the ABI, to
 * the list above the map, and to RESULT_TABLE in results.h. A shape of its own belongs here. A
 * stage is kept in logits.inc and half.inc; what is one number made of all weights of a query, in
 * keep_numbers() of results.inc, and in keep_totals() of long.inc for long rows.
 * tests/support/reference.c computes it, and the tests of drawn calls ask for it and compare it:
 * attention_bounds.c has a bound of its own. lib/README.md has its bound.
 */
#include "plan_results.h"

#include <string.h>

#include "base/status.h"
#include "base/tensor.h"
#include "plan_inputs.h"
#include "plan_memory.h"
#include "recurrent/plan_linear.h"

#define NO_COLUMNS SIZE_MAX /* a result has no such axis */

/* Shapes a part of a result. Its axes are those of the batch, the heads, if the call has this axis,
 * then rows and columns. `heads` is the number of heads or key heads, or 0 for no such axis;
 * `columns` is NO_COLUMNS for no such axis. */
static void shape_part(const attn_plan *plan, attn_result which, size_t heads, size_t rows,
                       size_t columns, attn_result_tensor *part) {
    const struct form *form = &plan->form;
    *part = (attn_result_tensor){.rank = form->axis_count};
    part->dtype = which == ATTN_RESULT_TOP_K_INDICES ? ATTN_INT64 : plan->dtype;
    memcpy(part->shape, form->axes, sizeof form->axes);
    if (heads != 0 && form->has_head_axis) {
        part->shape[part->rank++] = heads;
    }
    part->shape[part->rank++] = rows;
    if (columns != NO_COLUMNS) {
        part->shape[part->rank++] = columns;
    }
}

static void shape_like(const attn_plan *plan, const attn_tensor *input, attn_result_tensor *part) {
    *part = (attn_result_tensor){.dtype = plan->dtype, .rank = input->rank};
    memcpy(part->shape, input->shape, sizeof part->shape);
}

/* Adds the parts of a result of RESULT_COPY, or of a gradient of projected Q, K or V. A present
 * result of a call without projections has the axes of its new rows. */
static void add_copies(attn_plan *plan, attn_result which) {
    const struct copy_form form = copy_form_of(plan, which);
    struct result *result = &plan->results.of[which];
    if (!plan->form.projected) {
        attn_result_tensor *part = &result->parts[result->count++];
        shape_like(plan, form.value ? plan->in.v.given : plan->in.k.given, part);
        part->shape[part->rank - 2] = form.rows;
        return;
    }
    for (size_t h = 0; h < (plan->form.per_head ? plan->heads : 1); h++) {
        shape_part(plan, which, plan->form.per_head ? 0 : form.heads, form.rows,
                   copy_columns(plan, &form, h), &result->parts[result->count++]);
    }
}

/* Shapes decays as a decay that is not broadcast. */
static void shape_decays(const attn_plan *plan, attn_result_tensor *part) {
    const struct linear *l = plan->linear;
    const bool packed = plan->form.packed, by_column = l->by_column && !packed;
    const size_t columns = l->by_column && packed ? l->states * l->d : l->states;
    shape_part(plan, ATTN_RESULT_DECAYS, packed ? 0 : l->states, plan->n,
               packed      ? columns
               : by_column ? l->d
                           : NO_COLUMNS,
               part);
}

/* Shapes present_state, states or decays. */
static void shape_linear(const attn_plan *plan, attn_result which, attn_result_tensor *part) {
    const struct linear *l = plan->linear;
    if (which == ATTN_RESULT_DECAYS) {
        shape_decays(plan, part);
        return;
    }
    shape_part(plan, which, l->states, l->d, l->d_v, part);
    const size_t more = which == ATTN_RESULT_STATES ? plan->n : l->count;
    if (which == ATTN_RESULT_STATES ||
        l->packed_sequences) { /* an axis of positions, or of sequences */
        const int at = which == ATTN_RESULT_STATES ? part->rank - 2 : 0;
        memmove(part->shape + at + 1, part->shape + at,
                (size_t)(part->rank - at) * sizeof *part->shape);
        part->shape[at] = more;
        part->rank++;
    }
}

void plan_shape(const attn_plan *plan, attn_result which, attn_result_tensor *part) {
    const size_t n = plan->n, heads = plan->heads;
    const struct projection *out = &plan->project[PROJECT_OUT];
    if (result_is(which, RESULT_STAGE | RESULT_PER_QUERY)) {
        shape_part(plan, which, heads, n, result_is(which, RESULT_STAGE) ? plan->m : NO_COLUMNS,
                   part);
        return;
    }
    switch (which) {
    case ATTN_RESULT_OUTPUT:
        shape_part(plan, which, plan->form.packed || plan->form.projected ? 0 : heads, n,
                   out->count > 0 ? out->ld : plan->out.ld, part);
        break;
    case ATTN_RESULT_WEIGHTS:
        shape_part(plan, which, plan_has_mean(plan) ? 0 : heads, n, plan->m, part);
        break;
    case ATTN_RESULT_STATISTICS:
        *part = (attn_result_tensor){.dtype = ATTN_FLOAT64, .rank = 1, .shape = {4}};
        break;
    case ATTN_RESULT_TOP_K_INDICES:
    case ATTN_RESULT_TOP_K_WEIGHTS:
        shape_part(plan, which, heads, n, plan->results.top_k, part);
        break;
    case ATTN_RESULT_PRESENT_STATE:
    case ATTN_RESULT_STATES:
    case ATTN_RESULT_DECAYS:
        shape_linear(plan, which, part);
        break;
    default: /* a gradient; add_weight_gradients() has those of weights */
        shape_like(plan,
                   plan->linear != NULL ? linear_input_of(plan, which) : plan_input_of(plan, which),
                   part);
    }
}

/* Adds the gradients of the weights, or of their biases, of one projection. */
static void add_weight_gradients(attn_plan *plan, attn_result which) {
    struct result *result = &plan->results.of[which];
    for (size_t h = 0; h < plan->call.count; h++) {
        const attn_projection *p = &plan->call.projections[h];
        const attn_tensor *const weights[] = {p->w_q, p->w_k, p->w_v};
        const attn_tensor *const biases[] = {p->b_q, p->b_k, p->b_v};
        const int of = result_operand(which);
        shape_like(plan, result_is(which, RESULT_OF_BIAS) ? biases[of] : weights[of],
                   &result->parts[result->count++]);
    }
}

/* Returns how many parts a wanted result has at most. */
static size_t most_parts(const attn_plan *plan, attn_result which) {
    return plan->form.per_head && result_is(which, RESULT_PER_HEAD) ? plan->heads : 1;
}

/* Is a result the gradient of weights that each head may have for itself, or of their bias? */
static bool is_of_weights(attn_result which) {
    return result_is(which, RESULT_OF_WEIGHT | RESULT_OF_BIAS) && result_is(which, RESULT_PER_HEAD);
}

static attn_status new_parts(attn_plan *plan, attn_error *error) {
    size_t count = 0;
    for (uint64_t left = plan->results.wanted; left != 0; left &= left - 1) {
        count += most_parts(plan, (attn_result)__builtin_ctzll(left));
    }
    const bool few = count <= PLAN_FEW_PARTS;
    attn_result_tensor *next =
        few ? plan->results.few : plan_alloc(plan, count, sizeof(attn_result_tensor));
    plan->bindings.parts = plan->form.per_head ? plan_alloc(plan, count, sizeof(void *)) : NULL;
    if (next == NULL || (plan->form.per_head && plan->bindings.parts == NULL)) {
        return attn_no_memory(error);
    }
    plan->results.parts = next;
    for (uint64_t left = plan->results.wanted; left != 0; left &= left - 1) {
        const attn_result which = (attn_result)__builtin_ctzll(left);
        plan->results.of[which].parts = next;
        next += most_parts(plan, which);
    }
    return ATTN_OK;
}

/* Returns the bytes of a part, or SIZE_MAX if they do not fit a size_t. */
static size_t part_bytes(const attn_result_tensor *part) {
    size_t bytes = 1;
    return size_mul_shape(&bytes, part->rank, part->shape) &&
                   size_mul(bytes, dtype_size(part->dtype), &bytes)
               ? bytes
               : SIZE_MAX;
}

bool plan_add_bytes(attn_plan *plan, const attn_result_tensor *part) {
    size_t *all = &plan->results.bytes;
    const size_t bytes = part_bytes(part);
    if (!size_add(*all, bytes, all) || !size_align(all)) {
        *all = SIZE_MAX;
    }
    return bytes < SIZE_MAX;
}

attn_status plan_results(attn_plan *plan, attn_error *error) {
    ATTN_TRY(new_parts(plan, error));
    for (uint64_t left = plan->results.wanted; left != 0; left &= left - 1) {
        const int r = __builtin_ctzll(left);
        if (result_is((attn_result)r, RESULT_PROJECTED) && !plan->form.projected) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                             "%s is a result of calls with projections only",
                             attn_result_name((attn_result)r));
        }
        struct result *result = &plan->results.of[r];
        if (result_is((attn_result)r, RESULT_COPY) ||
            (result_is((attn_result)r, RESULT_OF_HEADS) && plan->form.projected)) {
            add_copies(plan, (attn_result)r);
        } else if (is_of_weights((attn_result)r) && plan->form.projected) {
            add_weight_gradients(plan, (attn_result)r);
        } else {
            plan_shape(plan, (attn_result)r, &result->parts[result->count++]);
        }
        for (size_t p = 0; p < plan->results.of[r].count; p++) {
            if (!plan_add_bytes(plan, &plan->results.of[r].parts[p])) {
                return attn_too_large(error);
            }
        }
    }
    return ATTN_OK;
}

size_t plan_row_numbers(const attn_plan *plan, attn_result which) {
    attn_result_tensor row = plan->results.of[which].parts[0];
    row.shape[0] = 1;
    return result_is(which, RESULT_PER_QUERY) ? 1 : part_numbers(&row);
}

size_t attn_plan_parts(const attn_plan *plan, attn_result result) {
    return (unsigned)result < ATTN_RESULT_COUNT ? plan->results.of[result].count : 0;
}

const attn_result_tensor *attn_plan_tensor(const attn_plan *plan, attn_result result, size_t part) {
    return part < attn_plan_parts(plan, result) ? &plan->results.of[result].parts[part] : NULL;
}

void plan_bind_part(const attn_plan *plan, struct bindings *bindings, attn_result which,
                    size_t part, void *data) {
    if (part == 0) {
        bindings->results[which] = data;
    } else {
        bindings->parts[&plan->results.of[which].parts[part] - plan->results.parts] = data;
    }
}

attn_status attn_plan_bind(attn_plan *plan, attn_result result, size_t part, void *data) {
    if (part >= attn_plan_parts(plan, result) || data == NULL) {
        return ATTN_INVALID_ARGUMENT;
    }
    plan->results.of[result].parts[part].data = data;
    plan_bind_part(plan, &plan->bindings, result, part, data);
    return ATTN_OK;
}

bool attn_plan_results_bytes(const attn_plan *plan, size_t *bytes) {
    const bool fits = plan->results.bytes != SIZE_MAX;
    *bytes = fits ? plan->results.bytes : *bytes;
    return fits;
}

attn_status attn_plan_bind_all(attn_plan *plan, void *buffer) {
    if (buffer == NULL || (uintptr_t)buffer % ATTN_ALIGNMENT != 0) {
        return ATTN_INVALID_ARGUMENT;
    }
    if (plan->results.bytes == SIZE_MAX) {
        return ATTN_TOO_LARGE;
    }
    char *next = buffer;
    for (uint64_t left = plan->results.wanted; left != 0; left &= left - 1) {
        const attn_result which = (attn_result)__builtin_ctzll(left);
        for (size_t p = 0; p < plan->results.of[which].count; p++) {
            size_t bytes = part_bytes(&plan->results.of[which].parts[p]);
            attn_plan_bind(plan, which, p, next);
            size_align(&bytes);
            next += bytes;
        }
    }
    return ATTN_OK;
}
