/*
 * plan_inputs.c - the one list of the inputs that are matrices of numbers: their names, their
 * gradients, and the members of a plan that have the tensor and the numbers. Runs copy inputs in
 * another type: plan_narrow.c and plan_wide.c say why.
 */
#include "plan_build.h"

#include "status.h"
#include "tensor.h"

/* An input. It has places in a plan, which are offsets, and 0 for none. */
struct input {
    const char *name;
    attn_result gradient; /* ATTN_RESULT_COUNT: none */
    size_t tensor;        /* the given one: const attn_tensor * */
    /* Where the engine reads them: const void *. Lists of weights have no such place, and neither
     * has what is read as one number for each head. */
    size_t numbers;
};

#define INPUT(name, gradient, tensor, numbers)                                                     \
    { name, ATTN_RESULT_##gradient, offsetof(attn_plan, tensor), offsetof(attn_plan, numbers) }
#define WITHOUT_PLACE(name, gradient, tensor)                                                      \
    { name, ATTN_RESULT_##gradient, offsetof(attn_plan, tensor), 0 }

/* A matrix that stands for another one, too, is followed by that one, and they share a copy. */
static const struct input inputs[] = {
    INPUT("Q", GRAD_Q, in.q.given, in.q.data),
    INPUT("K", GRAD_K, in.k.given, in.k.data),
    INPUT("V", GRAD_V, in.v.given, in.v.data),
    INPUT("X", GRAD_X, call.x, project[PROJECT_Q].x),
    INPUT("context", GRAD_CONTEXT, call.context, project[PROJECT_K].x),
    INPUT("value_context", GRAD_VALUE_CONTEXT, call.value_context, project[PROJECT_V].x),
    INPUT("b_Q", GRAD_B_Q, options.b_q, in.q.bias),
    INPUT("b_K", GRAD_B_K, options.b_k, in.k.bias),
    INPUT("b_V", GRAD_B_V, options.b_v, in.v.bias),
    INPUT("past_K", GRAD_PAST_K, options.past_k, in.past_k.data),
    INPUT("past_V", GRAD_PAST_V, options.past_v, in.past_v.data),
    INPUT("bias", GRAD_BIAS, options.bias, rules.bias.data),
    INPUT("decay", GRAD_DECAY, options.decay, decay.data),
    INPUT("norm_Q", GRAD_NORM_Q, options.norm_q, norm_q.weights),
    INPUT("norm_K", GRAD_NORM_K, options.norm_k, norm_k.weights),
    INPUT("rotary_cos", COUNT, rotary.given.cos, rotary.cos),
    INPUT("rotary_sin", COUNT, rotary.given.sin, rotary.sin),
    INPUT("bias_K", GRAD_BIAS_K, call.bias_k, extra.k),
    INPUT("bias_V", GRAD_BIAS_V, call.bias_v, extra.v),
    WITHOUT_PLACE("sink", GRAD_SINK, options.sink),
    WITHOUT_PLACE("alibi", GRAD_ALIBI, options.alibi_slopes),
    WITHOUT_PLACE("W_O", GRAD_W_O, call.w_o),
    WITHOUT_PLACE("b_O", GRAD_B_O, call.b_o),
    /* A compute_dtype rounds none of these: positions are no matrix of the call, and it has no
     * gradients. */
    INPUT("positions", COUNT, rotary.given.positions, rotary.positions),
    INPUT("grad_output", COUNT, gradients.given.output, gradients.upstream.output),
    INPUT("grad_lse", COUNT, gradients.given.lse, gradients.upstream.lse),
    INPUT("grad_weights", COUNT, gradients.given.weights, gradients.upstream.weights),
};

enum {
    INPUTS = sizeof inputs / sizeof *inputs,
    EXACT_INPUTS = 4, /* the last ones, which a compute_dtype does not round */
    ALIGNED = ATTN_ALIGNMENT / sizeof(float)
};

static const attn_tensor *tensor_of(const attn_plan *plan, const struct input *input) {
    return *(const attn_tensor *const *)((const char *)plan + input->tensor);
}

/* Returns where the engine reads the numbers of an input. If there are extra keys, it reads a bias
 * that is made of the given one. */
static const void **place_of(attn_plan *plan, const struct input *input) {
    return input->gradient == ATTN_RESULT_GRAD_BIAS && plan->extra.count > 0
               ? &plan->extra.given.bias.data
               : (const void **)((char *)plan + input->numbers);
}

const attn_tensor *plan_input_of(const attn_plan *plan, attn_result gradient) {
    const struct input *input = inputs;
    while (input->gradient != gradient) {
        input++;
    }
    return tensor_of(plan, input);
}

/* Adds an input of `count` numbers, if it is given. One that is also the input before it shares the
 * copy of that. */
static void add_copy(struct copies *c, const char *name, const void **place, size_t count) {
    if (*place == NULL) {
        return;
    }
    struct copied_input *input = &c->inputs[c->count++];
    *input = (struct copied_input){.place = place, .from = *place, .name = name, .count = count};
    if (c->count > 1 && input[-1].from == input->from && input[-1].count == count) {
        input->at = input[-1].at;
        return;
    }
    input->at = c->numbers;
    if (!size_add(c->numbers, ceil_div(count, ALIGNED) * ALIGNED, &c->numbers)) {
        c->numbers = SIZE_MAX; /* no memory holds so many */
    }
}

/* Adds the weights of a projection. */
static void add_weights(struct copies *c, struct projection *p, int which) {
    static const char *const w[] = {"W_Q", "W_K", "W_V", "W_O"};
    static const char *const b[] = {"b_Q", "b_K", "b_V", "b_O"};
    const size_t panel = size_max(1, p->panel);
    for (size_t i = 0; i < p->count; i++) {
        struct piece *piece = &p->pieces[i];
        add_copy(c, w[which], &piece->w, p->inner * ceil_div(piece->cols, panel) * panel);
        add_copy(c, b[which], &piece->b, piece->cols);
    }
}

attn_status plan_copy_inputs(attn_plan *plan, bool exact, struct copies *copies,
                             attn_error *error) {
    const size_t most = exact ? INPUTS : INPUTS - EXACT_INPUTS;
    size_t pieces = 0, count = 0;
    for (int i = 0; i < PROJECT_COUNT; i++) {
        pieces += plan->project[i].count;
    }
    copies->inputs = plan_alloc(plan, most + 2 * pieces, sizeof *copies->inputs);
    if (copies->inputs == NULL) {
        return attn_no_memory(error);
    }
    for (size_t i = 0; i < most; i++) {
        const attn_tensor *tensor = tensor_of(plan, &inputs[i]);
        if (tensor != NULL && tensor->dtype == ATTN_FLOAT64) {
            continue; /* positions are as wide as the copies */
        }
        if (tensor != NULL) { /* otherwise it is not given, or it is the input before it */
            attn_tensor_count(tensor, &count); /* fits: it was checked */
        }
        if (inputs[i].numbers != 0) {
            const char *name = plan->form.same && i == 0 ? "X" : inputs[i].name;
            add_copy(copies, name, place_of(plan, &inputs[i]), count);
        }
    }
    for (int i = 0; i < PROJECT_COUNT; i++) {
        add_weights(copies, &plan->project[i], i);
    }
    return ATTN_OK;
}
