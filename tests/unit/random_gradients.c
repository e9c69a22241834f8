/* random_gradients.c - see random_gradients.h. */
#include "random_gradients.h"

#include <criterion/criterion.h>
#include <string.h>

/* Lists the inputs that have gradients, and returns their count. */
static size_t list_inputs(const struct call *c, struct input inputs[INPUTS]) {
    const attn_options *o = &c->options;
    const attn_multihead *m = &c->multihead;
    const struct input all[] = {
        {ATTN_RESULT_GRAD_Q, c->tensor_q, 0},
        {ATTN_RESULT_GRAD_K, c->tensor_k, 0},
        {ATTN_RESULT_GRAD_V, c->tensor_v, 0},
        {ATTN_RESULT_GRAD_PAST_K, o->past_k, 0},
        {ATTN_RESULT_GRAD_PAST_V, o->past_v, 0},
        {ATTN_RESULT_GRAD_BIAS, o->bias, 0},
        {ATTN_RESULT_GRAD_SINK, o->sink, 0},
        {ATTN_RESULT_GRAD_ALIBI, o->alibi_slopes, 0},
        {ATTN_RESULT_GRAD_NORM_Q, o->norm_q, 0},
        {ATTN_RESULT_GRAD_NORM_K, o->norm_k, 0},
        {ATTN_RESULT_GRAD_NORM_V, o->norm_v, 0},
        {ATTN_RESULT_GRAD_X, m->x, 0},
        {ATTN_RESULT_GRAD_CONTEXT, m->context, 0},
        {ATTN_RESULT_GRAD_VALUE_CONTEXT, m->value_context, 0},
        {ATTN_RESULT_GRAD_W_O, m->w_o, 0},
        {ATTN_RESULT_GRAD_B_O, m->b_o, 0},
        {ATTN_RESULT_GRAD_BIAS_K, m->bias_k, 0},
        {ATTN_RESULT_GRAD_BIAS_V, m->bias_v, 0},
        {ATTN_RESULT_GRAD_B_Q, o->b_q, 0},
        {ATTN_RESULT_GRAD_B_K, o->b_k, 0},
        {ATTN_RESULT_GRAD_B_V, o->b_v, 0},
        {ATTN_RESULT_GRAD_DECAY, o->decay, 0},
        {ATTN_RESULT_GRAD_GATE, o->gate, 0},
        {ATTN_RESULT_GRAD_W_G, o->w_g, 0},
        {ATTN_RESULT_GRAD_B_G, o->b_g, 0},
    };
    size_t count = 0;
    for (size_t i = 0; i < COUNT(all); i++) {
        if (all[i].tensor != NULL) {
            inputs[count++] = all[i];
        }
    }
    for (size_t h = 0; h < m->count; h++) {
        const attn_projection *p = &c->projections[h], *first = &c->projections[0];
        const bool own = m->per_head; /* a gradient needs the biases of all heads */
        inputs[count++] = (struct input){ATTN_RESULT_GRAD_W_Q, p->w_q, h};
        inputs[count++] = (struct input){ATTN_RESULT_GRAD_W_K, p->w_k, h};
        inputs[count++] = (struct input){ATTN_RESULT_GRAD_W_V, p->w_v, h};
        const attn_tensor *const b[] = {p->b_q, p->b_k, p->b_v}, *const any[] = {first->b_q,
                                                                                 first->b_k,
                                                                                 first->b_v};
        for (int i = 0; i < 3; i++) {
            if (any[i] != NULL && (!own || b[i] != NULL)) {
                inputs[count++] = (struct input){(attn_result)(ATTN_RESULT_GRAD_B_Q + i), b[i], h};
            }
        }
    }
    return count;
}

/* Draws the gradient of a result, with its shape. */
static const attn_tensor *draw_upstream(struct call *c, const attn_plan *plan, attn_result which) {
    const attn_result_tensor *t = attn_plan_tensor(plan, which, 0);
    const attn_tensor shape = attn_as_tensor(t);
    return tensor_of(c, draw_normals(c, count_of(&shape), 1), t->rank, t->shape);
}

/* Draws the results whose gradients are given. */
static void draw_loss(struct call *c, const attn_plan *plan, attn_upstream *up) {
    const bool softmax = c->options.normalization == ATTN_SOFTMAX;
    const bool output = !rng_chance(&c->rng, 8), packed = c->options.sequences != NULL;
    up->lse = softmax && rng_chance(&c->rng, 2) ? draw_upstream(c, plan, ATTN_RESULT_LSE) : NULL;
    up->weights =
        !packed && rng_chance(&c->rng, 3) ? draw_upstream(c, plan, ATTN_RESULT_WEIGHTS) : NULL;
    if (output || (up->lse == NULL && up->weights == NULL)) {
        up->output = draw_upstream(c, plan, ATTN_RESULT_OUTPUT);
    }
}

size_t ask_for_gradients(struct call *c, uint64_t seed, attn_upstream *up,
                         struct input inputs[INPUTS]) {
    const uint64_t drawn = c->options.results;
    const bool softmax = c->options.normalization == ATTN_SOFTMAX;
    c->options.results = ATTN_WANT(OUTPUT) | (softmax ? ATTN_WANT(LSE) : 0);
    c->options.results |= c->options.sequences == NULL ? ATTN_WANT(WEIGHTS) : 0;
    attn_plan *shapes = plan_random_call(c, seed);
    *up = (attn_upstream){0};
    draw_loss(c, shapes, up);
    attn_plan_free(shapes);
    c->options.upstream = up;
    c->options.results = drawn;
    const size_t count = list_inputs(c, inputs);
    for (size_t i = 0; i < count; i++) {
        c->options.results |= UINT64_C(1) << inputs[i].gradient;
    }
    return count;
}

void widen_call(struct call *c) {
    cr_assert_eq(c->dtype, ATTN_FLOAT32);
    c->dtype = ATTN_FLOAT64;
    for (size_t t = 0; t < c->tensor_count; t++) {
        attn_tensor *tensor = c->tensors[t];
        if (tensor->dtype == ATTN_FLOAT32) {
            const size_t count = count_of(tensor);
            double *wide = keep_block(c, count * sizeof *wide);
            for (size_t i = 0; i < count; i++) {
                wide[i] = tensor_number(tensor, i);
            }
            tensor->data = wide;
            tensor->dtype = ATTN_FLOAT64;
        }
    }
}

void bind_all(struct call *c, attn_plan *plan) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < attn_plan_parts(plan, (attn_result)r); part++) {
            const attn_tensor t = attn_as_tensor(attn_plan_tensor(plan, (attn_result)r, part));
            size_t bytes;
            cr_assert(attn_tensor_bytes(&t, &bytes));
            void *data = memset(keep_block(c, bytes), 0xff, bytes);
            cr_assert_eq(attn_plan_bind(plan, (attn_result)r, part, data), ATTN_OK);
        }
    }
}

void bind_and_run(struct call *c, attn_plan *plan) {
    attn_error error = {0};
    bind_all(c, plan);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
}

void expect_same_parts(uint64_t seed, const attn_plan *a, const attn_plan *b, uint64_t results,
                       const char *what) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < attn_plan_parts(a, (attn_result)r); part++) {
            const attn_result_tensor *x = attn_plan_tensor(a, (attn_result)r, part),
                                     *y = attn_plan_tensor(b, (attn_result)r, part);
            const attn_tensor t = attn_as_tensor(x);
            size_t bytes;
            cr_assert(attn_tensor_bytes(&t, &bytes));
            cr_expect((results >> r & 1) == 0 || memcmp(x->data, y->data, bytes) == 0,
                      "seed %llu: %s %s", (unsigned long long)seed,
                      attn_result_name((attn_result)r), what);
        }
    }
}

void expect_any_order(struct call *c, uint64_t seed, const attn_plan *plan) {
    attn_error error = {0};
    attn_plan *backwards = plan_random_call(c, seed);
    bind_all(c, backwards);
    cr_assert_eq(run_backwards(backwards, &error), ATTN_OK, "%s", error.message);
    expect_same_parts(seed, plan, backwards, UINT64_MAX, "depends on the order of tasks");
    attn_plan_free(backwards);
}
