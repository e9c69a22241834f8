/*
 * plan_inputs.c - the one list of the inputs that are matrices of numbers: their names, their
 * gradients, and the members of a plan that have the tensor. It binds them. Runs copy inputs in
 * another type: plan_half.c and plan_widened.c say why.
 */
#include "plan_inputs.h"

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "plan_memory.h"

/* An input. Its tensor is a member of a plan, const attn_tensor *, at this offset. */
struct input {
    const char *name;
    attn_result gradient; /* ATTN_RESULT_COUNT: none */
    size_t tensor;
};

#define INPUT(name, gradient, tensor)                                                              \
    { name, ATTN_RESULT_##gradient, offsetof(attn_plan, tensor) }

/* A matrix that stands for another one, too, is followed by that one, and they share a copy. */
static const struct input inputs[] = {
    [INPUT_Q] = INPUT("Q", GRAD_Q, in.q.given),
    [INPUT_K] = INPUT("K", GRAD_K, in.k.given),
    [INPUT_V] = INPUT("V", GRAD_V, in.v.given),
    [INPUT_X] = INPUT("X", GRAD_X, call.x),
    [INPUT_CONTEXT] = INPUT("context", GRAD_CONTEXT, call.context),
    [INPUT_VALUE_CONTEXT] = INPUT("value_context", GRAD_VALUE_CONTEXT, call.value_context),
    [INPUT_B_Q] = INPUT("b_Q", GRAD_B_Q, options.b_q),
    [INPUT_B_K] = INPUT("b_K", GRAD_B_K, options.b_k),
    [INPUT_B_V] = INPUT("b_V", GRAD_B_V, options.b_v),
    [INPUT_PAST_K] = INPUT("past_K", GRAD_PAST_K, options.past_k),
    [INPUT_PAST_V] = INPUT("past_V", GRAD_PAST_V, options.past_v),
    [INPUT_BIAS] = INPUT("bias", GRAD_BIAS, options.bias),
    [INPUT_DECAY] = INPUT("decay", GRAD_DECAY, options.decay),
    [INPUT_NORM_Q] = INPUT("norm_Q", GRAD_NORM_Q, options.norm_q),
    [INPUT_NORM_K] = INPUT("norm_K", GRAD_NORM_K, options.norm_k),
    [INPUT_NORM_V] = INPUT("norm_V", GRAD_NORM_V, options.norm_v),
    [INPUT_ROTARY_COS] = INPUT("rotary_cos", COUNT, rotary.given.cos),
    [INPUT_ROTARY_SIN] = INPUT("rotary_sin", COUNT, rotary.given.sin),
    [INPUT_BIAS_K] = INPUT("bias_K", GRAD_BIAS_K, call.bias_k),
    [INPUT_BIAS_V] = INPUT("bias_V", GRAD_BIAS_V, call.bias_v),
    [INPUT_GATE] = INPUT("gate", GRAD_GATE, options.gate),
    [INPUT_GRAD_OUTPUT] = INPUT("grad_output", COUNT, gradients.given.output),
    [INPUT_GRAD_LSE] = INPUT("grad_lse", COUNT, gradients.given.lse),
    [INPUT_GRAD_WEIGHTS] = INPUT("grad_weights", COUNT, gradients.given.weights),
    [INPUT_POSITIONS] = INPUT("positions", COUNT, rotary.given.positions),
    [INPUT_SINK] = INPUT("sink", GRAD_SINK, options.sink),
    [INPUT_ALIBI] = INPUT("alibi", GRAD_ALIBI, options.alibi_slopes),
    INPUT("W_O", GRAD_W_O, call.w_o),
    INPUT("b_O", GRAD_B_O, call.b_o),
    INPUT("W_G", GRAD_W_G, options.w_g),
    INPUT("b_G", GRAD_B_G, options.b_g),
};

void plan_bind_input(attn_plan *plan, int which, const void *data) {
    plan->bindings.inputs[which] = data;
    plan->given |= (uint64_t)(data != NULL) << which;
}

static const attn_tensor *tensor_of(const attn_plan *plan, const struct input *input) {
    return *(const attn_tensor *const *)((const char *)plan + input->tensor);
}

const attn_tensor *plan_input_of(const attn_plan *plan, attn_result gradient) {
    const struct input *input = inputs;
    while (input->gradient != gradient) {
        input++;
    }
    return tensor_of(plan, input);
}

attn_status plan_bind_upstream(attn_plan *plan, const attn_tensor *given, const char *name,
                               const attn_result_tensor *result, int which, attn_error *error) {
    if (given == NULL) {
        return ATTN_OK;
    }
    if (tensor_lacks_data(given)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s is missing", name);
    }
    ATTN_TRY(check_dtype(given, name, plan->dtype, error));
    ATTN_TRY(check_open_shape(given, name, result->rank, result->shape, error));
    plan_bind_input(plan, which, given->data);
    return ATTN_OK;
}

/* Adds an input of `count` numbers, if it is bound. A rounded one that is also the input before it
 * shares the copy of that. */
static void add_copy(attn_plan *plan, struct copies *c, const char *name, size_t which,
                     size_t count) {
    const float *from = *bound_input(&plan->bindings, which);
    if (from == NULL) {
        return;
    }
    struct copied_input *input = &c->inputs[c->count++];
    *input = (struct copied_input){.which = which, .from = from, .name = name, .count = count};
    if (plan->half.type != NULL && c->count > 1 && input[-1].from == from &&
        input[-1].count == count) {
        input->at = input[-1].at;
        return;
    }
    input->at = c->numbers;
    if (!size_add(c->numbers, copied_numbers(count), &c->numbers)) {
        c->numbers = SIZE_MAX; /* no memory holds so many */
    }
}

/* Adds the weights of a projection. */
static void add_weights(attn_plan *plan, struct copies *c, int projection) {
    static const char *const w[] = {"W_Q", "W_K", "W_V", "W_G", "W_O"};
    static const char *const b[] = {"b_Q", "b_K", "b_V", "b_G", "b_O"};
    const struct projection *p = &plan->project[projection];
    const size_t panel = size_max(1, p->panel);
    for (size_t i = 0; i < p->count; i++) {
        const struct weight_matrix *matrix = &p->matrices[i];
        const size_t which = INPUT_COUNT + matrix->weights;
        add_copy(plan, c, w[projection], which, p->inner * ceil_div(matrix->cols, panel) * panel);
        c->inputs[c->count - 1].panel = p->panel;
        c->inputs[c->count - 1].columns = matrix->cols;
        add_copy(plan, c, b[projection], which + 1, matrix->cols);
    }
}

attn_status plan_copy_inputs(attn_plan *plan, attn_error *error) {
    struct copies *copies = &plan->copies;
    const uint64_t tables = UINT64_C(1) << INPUT_ROTARY_COS | UINT64_C(1) << INPUT_ROTARY_SIN,
                   rounded = (UINT64_C(1) << INPUT_ROUNDED) - 1,
                   widened = ((UINT64_C(1) << INPUT_COPIED) - 1) & ~tables;
    uint64_t left = plan->given & (plan->half.type != NULL ? rounded : widened);
    const size_t most = (size_t)__builtin_popcountll(left) + plan->weights;
    size_t count = 0;
    copies->inputs =
        most <= FEW_COPIES ? copies->few : plan_alloc(plan, most, sizeof *copies->inputs);
    if (copies->inputs == NULL) {
        return attn_no_memory(error);
    }
    for (; left != 0; left &= left - 1) {
        const int i = __builtin_ctzll(left);
        const attn_tensor *tensor = tensor_of(plan, &inputs[i]);
        if (tensor != NULL) {                  /* otherwise it is the input before it */
            attn_tensor_count(tensor, &count); /* fits: it was checked */
        }
        add_copy(plan, copies, plan->form.same && i == INPUT_Q ? "X" : inputs[i].name, (size_t)i,
                 count);
    }
    for (int i = 0; i < PROJECT_COUNT; i++) {
        add_weights(plan, copies, i);
    }
    return ATTN_OK;
}
