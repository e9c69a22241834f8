/*
 * plan_gradients.c checks what a call needs for its gradients, and cuts their computation into
 * phases of tasks, which follow the phases of the results (engine/gradient.inc).
 */
#include "softmax/plan_gradients.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/tensor.h"
#include "partition.h"
#include "plan_inputs.h"
#include "plan_results.h"
#include "softmax/cost.h"
#include "tuning.h"

enum {
    /* The most columns of a head, so that a tile takes at most about 10 ms. */
    MOST_HEAD_COLUMNS = 16384,
    /* The cost of one score beside its five products, in a plain call and in another one, and those
     * of a decay, of a share of a stick, of one term of a sum over queries, of a tile, of a call of
     * BLAS, of reading a number, and of adding a number to the gradient of a bias. */
    SCORE = 200,
    GENERAL_SCORE = 700,
    DECAY_SCORE = 150,
    STICK_SCORE = 600,
    TERM = 800,
    TILE = 100000,
    PRODUCT = 30000,
    READ_NUMBER = 12,
    SUMMED = 40,
    DOT = 4 /* a multiply-add of a dot product of a row */
};

bool gradient_is_sum(const attn_plan *plan, attn_result which) {
    return (which == ATTN_RESULT_GRAD_BIAS && plan->gradients.bias_numbers == 0) ||
           (result_is(which, RESULT_OF_BIAS) && !plan->form.projected) ||
           result_is(which, RESULT_SUM);
}

size_t sums_of_columns(const attn_plan *plan) {
    return plan_wants(plan, ATTN_WANT(GRAD_DECAY)) ? plan->batch * plan->heads * plan->m : 0;
}

size_t stick_tiles(const attn_plan *plan) {
    return plan->gradients.wanted && plan->options.normalization == ATTN_STICK_BREAKING
               ? ceil_div(plan->m, plan->gradients.tile_keys)
               : 0;
}

bool gradient_is_kept(const attn_plan *plan, int which) {
    static const uint64_t others[] = {ATTN_WANT(GRAD_NORM_Q) | ATTN_WANT(GRAD_B_Q),
                                      ATTN_WANT(GRAD_NORM_K) | ATTN_WANT(GRAD_B_K),
                                      ATTN_WANT(GRAD_NORM_V) | ATTN_WANT(GRAD_B_V)};
    return plan->gradients.wanted &&
           (plan->form.projected || (plan_wants(plan, others[which] | ATTN_WANT(GRAD_X)) &&
                                     !plan_wants(plan, ATTN_WANT(GRAD_Q) << which)));
}

bool raw_is_kept(const attn_plan *plan, int norm) {
    return plan->gradients.wanted && plan->form.projected && plan_has(plan, norm);
}

double *gradient_shared(const attn_plan *plan, const struct bindings *bindings, attn_result which) {
    double *sums = bindings->shared;
    if (sums == NULL || !result_is(which, RESULT_SHARED)) {
        return NULL;
    }
    for (int r = 0; r < (int)which; r++) {
        const struct result *before = &plan->results.of[r];
        sums += result_is((attn_result)r, RESULT_SHARED) && before->count > 0
                    ? part_numbers(before->parts)
                    : 0;
    }
    return sums;
}

/* Do all heads have this bias of a projection? */
static bool has_bias(const attn_multihead *call, int which) {
    for (size_t h = 0; h < call->count; h++) {
        const attn_projection *p = &call->projections[h];
        const attn_tensor *const biases[] = {p->b_q, p->b_k, p->b_v};
        if (biases[which] == NULL) {
            return false;
        }
    }
    return call->count > 0;
}

/* Checks that a call has the input of a gradient. */
static attn_status check_input(const attn_plan *plan, attn_result gradient, attn_error *error) {
    const bool weights = result_is(gradient, RESULT_OF_WEIGHT);
    const bool open = plan->call.layout != ATTN_PREPACKED;
    const char *need = attn_result_name(gradient) + strlen("grad_");
    bool has = plan->form.projected;
    if (result_is(gradient, RESULT_OF_BIAS) && has) {
        has = has_bias(&plan->call, result_operand(gradient));
    } else if (!weights || !result_is(gradient, RESULT_PER_HEAD)) {
        has = plan_input_of(plan, gradient) != NULL;
    }
    if (has && (open || !weights)) {
        return ATTN_OK;
    }
    return attn_fail(error, ATTN_INVALID_ARGUMENT, "results", "%s needs %s",
                     attn_result_name(gradient),
                     gradient == ATTN_RESULT_GRAD_ALIBI ? "slopes in alibi"
                     : weights && !open                 ? "weights that are not prepacked"
                                                        : need);
}

attn_status plan_check_gradients(attn_plan *plan, const attn_options *o, attn_error *error) {
    const attn_upstream *up = o->upstream;
    const uint64_t linear = plan->results.wanted & RESULTS_OF(RESULT_LINEAR);
    if (linear != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                         "%s is a result of linear attention only",
                         attn_result_name((attn_result)__builtin_ctzll(linear)));
    }
    if (up != NULL && up->state != NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "grad_present_state",
                         "grad_present_state needs linear attention, which has a present_state");
    }
    plan->gradients.wanted = plan_wants(plan, RESULTS_OF(RESULT_GRADIENT));
    if (!plan->gradients.wanted && up == NULL) {
        return ATTN_OK;
    }
    if (up == NULL || (up->output == NULL && up->lse == NULL && up->weights == NULL)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "grad_output",
                         "gradients need grad_output, grad_lse or grad_weights");
    }
    if (!plan->gradients.wanted) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                         "grad_output, grad_lse and grad_weights need a result such as grad_Q");
    }
    if (up->lse != NULL && o->normalization != ATTN_SOFTMAX) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "grad_lse",
                         "grad_lse needs softmax, without which there is no lse");
    }
    for (size_t h = 0; h < plan->heads; h++) {
        const size_t columns = size_max(plan->head[h].d, plan->head[h].d_v);
        if (columns > MOST_HEAD_COLUMNS) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                             "gradients need heads of at most %d columns, not %zu",
                             MOST_HEAD_COLUMNS, columns);
        }
    }
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (plan_wants(plan, UINT64_C(1) << r) && result_is((attn_result)r, RESULT_GRADIENT) &&
            !result_is((attn_result)r, RESULT_OF_HEADS)) {
            ATTN_TRY(check_input(plan, (attn_result)r, error));
        }
    }
    plan->gradients.given = *up;
    return ATTN_OK;
}

attn_status plan_upstream(attn_plan *plan, const attn_options *o, attn_error *error) {
    struct gradients *g = &plan->gradients;
    const attn_upstream *up = o->upstream;
    attn_result_tensor output, lse, weights;
    if (!g->wanted) {
        return ATTN_OK;
    }
    g->wanted = !plan->form.empty; /* otherwise no gradient needs a score, see plan_empty.c */
    plan_shape(plan, ATTN_RESULT_OUTPUT, &output);
    plan_shape(plan, ATTN_RESULT_LSE, &lse);
    plan_shape(plan, ATTN_RESULT_WEIGHTS, &weights);
    ATTN_TRY(
        plan_bind_upstream(plan, up->output, "grad_output", &output, INPUT_GRAD_OUTPUT, error));
    ATTN_TRY(plan_bind_upstream(plan, up->lse, "grad_lse", &lse, INPUT_GRAD_LSE, error));
    return plan_bind_upstream(plan, up->weights, "grad_weights", &weights, INPUT_GRAD_WEIGHTS,
                              error);
}

/* Returns the least common multiple. */
static size_t common_multiple(size_t a, size_t b) {
    size_t x = a, y = b;
    assert(a > 0 && b > 0);
    while (y != 0) {
        const size_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Finds the groups. Heads and batch items that share rows of Q, K or V are of one group, and so are
 * those that share a bias whose gradient is wanted. */
static void choose_groups(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    const bool adds = plan_wants(plan, ATTN_WANT(GRAD_BIAS));
    g->bias = plan->extra.count > 0 ? plan->extra.given.bias : plan->rules.bias;
    g->bias_keys = plan->extra.count > 0 ? plan->extra.given.keys : plan->m;
    const size_t *bias = g->bias.stride;
    for (int axis = 0; adds && bias[3] != 0 && axis < plan->options.bias->rank; axis++) {
        g->bias_numbers = size_max(1, g->bias_numbers) * plan->options.bias->shape[axis];
    }
    g->items = adds && bias[0] == 0 ? plan->batch : 1;
    g->heads = adds && bias[1] == 0 ? plan->heads : 1;
    for (const struct operand *o = &plan->in.q; o <= &plan->in.v; o++) {
        g->items = o->items == 1 ? plan->batch : g->items;
        g->heads = common_multiple(g->heads, heads_of_one(plan, o));
    }
    g->groups = plan->batch / g->items * (plan->heads / g->heads);
    g->pairs = g->items * g->heads;
}

/* Returns the cost of some queries and some keys of a pair. */
static double cost_of_rows_and_keys(const attn_plan *plan, double rows, double keys) {
    const struct gradients *g = &plan->gradients;
    const double tiles = ceil(rows / (double)g->tile_rows) * ceil(keys / (double)g->tile_keys);
    const double of_dtype = plan->dtype == ATTN_FLOAT64 ? 2 : 1;
    const bool stick = plan->options.normalization == ATTN_STICK_BREAKING;
    const double score = (plan->path.plain ? SCORE : GENERAL_SCORE) +
                         (plan_has(plan, INPUT_DECAY) ? DECAY_SCORE : 0) +
                         (stick ? STICK_SCORE : 0);
    return rows * keys * of_dtype * (2.5 * plan->schedule.columns + score) + tiles * TILE;
}

/* Returns into how many parts of at least `tile` things all of them are cut. */
static size_t parts_of(size_t all, size_t tile, double parts) {
    const size_t most = ceil_div(all, tile);
    return parts < 1 ? 1 : parts > (double)most ? most : (size_t)parts;
}

/* Cuts keys and queries into blocks: so that there is work for many threads, as long
 * as tasks do not become short, and so that no task becomes long. */
static void choose_gradient_blocks(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    const double all = cost_of_rows_and_keys(plan, (double)plan->n, (double)plan->m);
    const double least = ceil(sqrt(all / TASK_MOST)), most = sqrt(all / GRADIENT_WORK);
    const double parts = fmax(least, fmin(most, (double)ceil_div(ENOUGH_GRADIENTS, g->groups)));
    g->query_blocks = parts_of(plan->n, g->tile_rows, parts);
    g->key_blocks =
        parts_of(plan->m, g->tile_keys, fmax(parts, all / TASK_MOST / (double)g->query_blocks));
    g->query_blocks =
        parts_of(plan->n, g->tile_rows,
                 fmax((double)g->query_blocks, ceil(all / TASK_MOST / (double)g->key_blocks)));
    g->rows = ceil_div(ceil_div(plan->n, g->query_blocks), g->tile_rows) * g->tile_rows;
    g->keys = ceil_div(ceil_div(plan->m, g->key_blocks), g->tile_keys) * g->tile_keys;
    g->query_blocks = ceil_div(plan->n, g->rows);
    g->key_blocks = ceil_div(plan->m, g->keys);
    g->rounds = size_max(g->query_blocks, g->key_blocks);
    const double block = cost_of_rows_and_keys(plan, (double)g->rows, (double)g->keys);
    g->pairs_per_task = parts_of(g->pairs, 1, GRADIENT_WORK / block);
}

/* Returns the numbers that begin as 0. */
static size_t sums_count(const attn_plan *plan, int which) {
    static const attn_result results[] = {ATTN_RESULT_GRAD_Q,      ATTN_RESULT_GRAD_K,
                                          ATTN_RESULT_GRAD_V,      ATTN_RESULT_GRAD_PAST_K,
                                          ATTN_RESULT_GRAD_PAST_V, ATTN_RESULT_GRAD_BIAS,
                                          ATTN_RESULT_GRAD_DECAY};
    const size_t numbers[] = {plan->in.q.numbers,      plan->in.k.numbers,
                              plan->in.v.numbers,      plan->in.past_k.numbers,
                              plan->in.past_v.numbers, plan->gradients.bias_numbers,
                              sums_of_columns(plan)};
    const bool kept = which <= SUMS_V && gradient_is_kept(plan, which);
    return kept || plan_wants(plan, UINT64_C(1) << results[which]) ? numbers[which] : 0;
}

/* Cuts a product (rows, columns) of so many multiply-adds for each number into blocks that BLAS
 * computes fast, of about BLOCK_WORK. Such a block costs `more` beside its product. */
static struct blocks cut_blocks(size_t rows, size_t columns, double depth, double more) {
    const double side = fmax(LEAST_SIDE, fmin(sqrt(BLOCK_WORK / depth), MOST_SIDE));
    struct blocks b = {.rows = size_max(1, size_min(rows, (size_t)side))};
    const double most = fmin(BLOCK_WORK / depth / (double)b.rows, BLOCK_COLUMNS);
    b.columns = size_min(columns, (size_t)fmax(side, most));
    b.across = ceil_div(columns, b.columns);
    const size_t units = ceil_div(rows, b.rows) * b.across;
    b.all = partition_units(units, (double)rows * (double)columns * depth + (double)units * more);
    return b;
}

/* Cuts the gradients of one projection: those of its input, which are wanted with `inputs` and to
 * which `depth` columns of all its projections add, of its weights and of its bias. */
static void cut_projection(attn_plan *plan, int which, bool inputs, double depth) {
    struct gradients *g = &plan->gradients;
    const struct projection *p = &plan->project[which];
    const double rows = (double)p->rows, inner = (double)p->inner, ld = (double)p->ld;
    const double calls = (double)p->count * PRODUCT;
    if (p->count == 0) {
        return;
    }
    if (inputs) {
        struct blocks *b = &g->inputs[which];
        *b = cut_blocks(p->rows, p->inner, depth, calls);
        g->cost += rows * inner * (depth + READ_NUMBER) + (double)b->all.units * calls +
                   (double)ceil_div(p->rows, b->rows) * inner * depth * READ_NUMBER;
    }
    if (plan_wants(plan, UINT64_C(1) << gradient_of_weights(which))) {
        struct blocks *b = &g->weights[which];
        const double steps = p->gap == 0 ? 1 : rows / (double)size_max(1, p->item_rows);
        const double own = (double)p->count / (double)ceil_div(p->ld, MOST_SIDE) + 1;
        *b = cut_blocks(p->inner, p->ld, rows, steps * own * PRODUCT);
        g->cost += inner * ld * (rows + READ_NUMBER) +
                   (double)b->all.units * steps * own * PRODUCT +
                   (double)ceil_div(p->ld, b->columns) * rows * inner * READ_NUMBER;
    }
    if (plan_wants(plan, UINT64_C(1) << gradient_of_bias(which))) {
        g->biases[which] = partition_units(p->ld, rows * ld * READ_NUMBER);
        g->cost += rows * ld * READ_NUMBER;
    }
}

static void cut_projections(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    const attn_tensor *const inputs[] = {plan->call.x, plan->call.context,
                                         plan->call.value_context};
    double depth[PROJECT_INPUTS] = {0};
    for (int i = 0; i < PROJECT_QKV && plan->form.projected; i++) {
        g->input[i] = inputs[i] != NULL ? i : g->input[i - 1];
        depth[g->input[i]] += (double)plan->project[i].ld;
    }
    /* Without grad_output, the gate adds nothing to the gradient of X. */
    g->input[PROJECT_GATE] = plan_has(plan, INPUT_GRAD_OUTPUT) ? PROJECT_Q : PROJECT_GATE;
    depth[g->input[PROJECT_GATE]] += (double)plan->project[PROJECT_GATE].ld;
    for (int i = 0; i < PROJECT_INPUTS && plan->form.projected; i++) {
        const bool inputs_too = i < PROJECT_QKV && plan_wants(plan, ATTN_WANT(GRAD_X) << i);
        cut_projection(plan, i, inputs_too, depth[i]);
    }
    if (plan->form.same && plan_wants(plan, ATTN_WANT(GRAD_X))) {
        g->inputs[0] = cut_blocks(plan->in.q.numbers, 1, READ_NUMBER, 0);
        g->cost += (double)plan->in.q.numbers * 3 * READ_NUMBER;
    }
    g->input[PROJECT_OUT] = PROJECT_OUT;
    cut_projection(plan, PROJECT_OUT, plan_has(plan, INPUT_GRAD_OUTPUT),
                   (double)plan->project[PROJECT_OUT].ld);
}

/* Cuts the copies of the gradients of projected Q, K and V into heads. */
static void cut_copies(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (result_is((attn_result)r, RESULT_OF_HEADS) && plan->form.projected &&
            plan_wants(plan, UINT64_C(1) << r)) {
            const struct copy_form form = copy_form_of(plan, (attn_result)r);
            const double numbers = (double)form.rows * plan->schedule.columns;
            const size_t heads = form.items * form.heads;
            g->copies[result_operand((attn_result)r)] =
                partition_units(heads, (double)heads * cost_of_copying(numbers, (double)form.rows));
        }
    }
}

/* Returns the cost of the gradient of the bias of given Q, K or V. */
static double cost_of_bias(const attn_plan *plan, attn_result which) {
    const size_t numbers[] = {plan->in.q.numbers, plan->in.k.numbers, plan->in.v.numbers};
    return SUMMED * (double)numbers[result_operand(which)];
}

/* Returns how many heads, of all batch items, share a decay. */
static double sharers_of_decay(const attn_plan *plan) {
    const struct decay *d = &plan->decay;
    return (double)plan->batch * (double)plan->heads / ((double)d->items * (double)d->heads);
}

/* Counts the tasks of GRADIENT_END for one gradient: a part of it is checked, or made of sums. */
static size_t end_tasks(const attn_plan *plan, attn_result which) {
    const struct result *result = &plan->results.of[which];
    const struct partition *prepare = plan->schedule.prepare;
    double terms = (double)plan->batch;
    size_t numbers = 0;
    for (size_t part = 0; part < result->count; part++) {
        numbers += part_numbers(&result->parts[part]);
    }
    if (numbers == 0 || !gradient_is_sum(plan, which)) {
        return ceil_div(numbers, COPY_NUMBERS);
    }
    size_t most = SIZE_MAX;
    switch (which) {
    case ATTN_RESULT_GRAD_BIAS:
    case ATTN_RESULT_GRAD_SINK:
    case ATTN_RESULT_GRAD_ALIBI:
        terms *= (double)plan->heads * (double)plan->n / (double)numbers;
        break;
    case ATTN_RESULT_GRAD_NORM_Q:
    case ATTN_RESULT_GRAD_NORM_K:
    case ATTN_RESULT_GRAD_NORM_V:
        terms = (double)prepare[result_operand(which)].tasks;
        break;
    case ATTN_RESULT_GRAD_B_Q:
    case ATTN_RESULT_GRAD_B_K:
    case ATTN_RESULT_GRAD_B_V: /* whole lines of a cache are read */
        return partition_units(ceil_div(numbers, BIAS_NUMBERS), cost_of_bias(plan, which)).tasks;
    case ATTN_RESULT_GRAD_DECAY: /* each task reads the keys after its own */
        most = 4 * plan->decay.items * plan->decay.heads;
        terms = sharers_of_decay(plan);
        break;
    default:
        break;
    }
    return size_min(most, partition_units(numbers, (double)numbers * terms * TERM).tasks);
}

/* Counts the tasks of each phase. */
static void count_tasks(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    const struct partition *prepare = plan->schedule.prepare;
    size_t *tasks = g->tasks;
    g->steps = ceil_div(g->pairs, g->pairs_per_task) * g->rounds;
    g->phases = GRADIENT_COUNT - 2 + g->starts + g->steps;
    for (int i = 0; i < SUMS_COUNT; i++) {
        g->clears[i] = ceil_div(sums_count(plan, i), COPY_NUMBERS);
        tasks[GRADIENT_OUT] += g->clears[i];
    }
    tasks[GRADIENT_OUT] += projection_tasks(g, PROJECT_OUT);
    tasks[GRADIENT_GATE] = plan->gate.backward.tasks;
    tasks[GRADIENT_START] = g->start.tasks;
    tasks[GRADIENT_STEP] = g->groups * g->key_blocks;
    for (int i = 0; i < PROJECT_INPUTS; i++) {
        tasks[GRADIENT_COPY] += i < PROJECT_QKV ? g->copies[i].tasks : 0;
        tasks[GRADIENT_PROJECT] += projection_tasks(g, i);
    }
    g->prepares[0] = sums_count(plan, SUMS_Q) > 0 && plan_prepares_rows(plan, INPUT_NORM_Q);
    g->prepares[1] = sums_count(plan, SUMS_K) > 0 && plan_prepares_rows(plan, INPUT_NORM_K);
    g->prepares[2] = sums_count(plan, SUMS_V) > 0 && plan_has(plan, INPUT_NORM_V);
    for (int i = 0; i < 3; i++) {
        tasks[GRADIENT_PREPARE] += g->prepares[i] ? prepare[PREPARE_QUERIES + i].tasks : 0;
    }
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (!result_is((attn_result)r, RESULT_GRADIENT)) {
            continue;
        }
        g->ends[r] = end_tasks(plan, (attn_result)r);
        tasks[GRADIENT_END] += g->ends[r];
        if (result_is((attn_result)r, RESULT_OF_BIAS) && plan_wants(plan, UINT64_C(1) << r) &&
            !plan->form.projected) {
            g->cost += cost_of_bias(plan, (attn_result)r);
        }
    }
    if (g->ends[ATTN_RESULT_GRAD_DECAY] > 0) { /* each task reads the keys after its own */
        g->cost += (double)g->ends[ATTN_RESULT_GRAD_DECAY] * sharers_of_decay(plan) * SUMMED *
                   (double)(plan->n + plan->m);
    }
    for (int phase = 0; phase < GRADIENT_COUNT; phase++) {
        const size_t times = phase == GRADIENT_START  ? g->starts
                             : phase == GRADIENT_STEP ? g->steps
                                                      : 1;
        g->cost += (double)tasks[phase] * (double)times * TASK_COST;
    }
}

/* Cuts the queries that get their `delta` into tasks. Sticks need scores and dP of rows then, and
 * each phase has some of the keys of all rows. */
static void cut_start(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    const double of_dtype = plan->dtype == ATTN_FLOAT64 ? 2 : 1;
    const double key = stick_tiles(plan) > 0
                           ? of_dtype * (DOT * plan->schedule.columns + GENERAL_SCORE + STICK_SCORE)
                           : 0;
    const double row = plan->schedule.columns * 20 + 2000 +
                       (plan_has(plan, INPUT_GRAD_WEIGHTS) ? cost_of_row(plan) : 0);
    const size_t rows = plan->batch * plan->heads * plan->n;
    const double fit = START_WORK / fmax(key, 1) / (double)g->tile_keys;
    g->start_keys = size_max(1, (size_t)fmin(fit, (double)plan->m)) * g->tile_keys;
    g->starts = key > 0 ? ceil_div(plan->m, g->start_keys) : 1;
    const double all = (double)rows * (row + (double)plan->m * key);
    g->start = partition_units(rows, all / (double)g->starts);
    g->cost = all + plan->schedule.input_cost;
}

void plan_cut_gradients(attn_plan *plan, size_t d) {
    struct gradients *g = &plan->gradients;
    const size_t size = dtype_size(plan->dtype), panel = plan->tiling.panel;
    if (!g->wanted) {
        return;
    }
    g->tile_keys = size_max(64, size_min(TILE_KEYS, PANELS_BYTES / (d * size) / 64 * 64));
    g->tile_keys = size_min(g->tile_keys, plan->m);
    g->tile_rows = size_min(d > MOST_KEPT ? LONG_QUERIES : TILE_ROWS, plan->n);
    g->ld = ceil_div(g->tile_keys, panel) * panel;
    choose_groups(plan);
    choose_gradient_blocks(plan);
    cut_start(plan);
    g->dense_cost = (double)plan->batch * (double)plan->heads *
                    cost_of_rows_and_keys(plan, (double)plan->n, (double)plan->m);
    cut_projections(plan);
    cut_copies(plan);
    count_tasks(plan);
}
