/*
 * cost.c estimates what each part of a run costs. The unit is a multiply-add of plain attention
 * with many queries: one core of the machine on which the numbers were measured (Zen 5, AVX-512)
 * does about 80 of them in a nanosecond. All other work is counted as the multiply-adds that take
 * as long. Calls are admitted, cut into tasks and handed out by these numbers, so nothing that
 * takes time may be left out. `make bench` compares them with the time of random calls of every
 * kind (tests/bench/bench_costs.c).
 */
#include "softmax/cost.h"

#include <math.h>

#include "base/tensor.h"
#include "engine/visible.h"
#include "partition.h"
#include "softmax/plan_empty.h"

/* The cost of one score or of one number. */
enum {
    PLAIN = 40,         /* softmax of a plain call, in vectors */
    GENERAL = 100,      /* softmax in double, for bias, ALiBi and plan_bends() */
    LONG = 160,         /* softmax of a long row, in double */
    ROW_PRODUCT = 200,  /* added if the products are made row by row */
    BLAS_PRODUCT = 400, /* added if BLAS makes them, divided by the number of queries */
    MASK = 20,          /* reading a byte of a mask */
    DECAY = 100,        /* adding a decay to a sum, and the sum to a score */
    BEND = 120,         /* tanh of softcap */
    ROUND = 60,         /* rounding a number to a compute_dtype */
    ROUND_KEY = 20,     /* the same for a number of a packed key, once for a block */
    SIGMOID = 150,      /* exp and a division */
    STICK = 400,        /* exp twice, a logarithm and sums that wait for each other */
    LOGARITHM = 270,    /* what the entropy of a long row costs less: it is made of a moment */
    MOMENT = 60,        /* adding a number to a variance */
    SELECT = 150,       /* comparing a number for top_k */
    ROUNDING = 1000,    /* drawing the rounding errors of a score */
    SORT = 600,         /* one level of the heap, for each of the k numbers of top_k */
    COPY = 20,          /* copying a number */
    PACK = 40,          /* copying a number transposed */
    ROTATE = 80,        /* normalising and rotating a number */
    ANGLE = 2400,       /* cos and sin of an angle */
    MERGE = 60,         /* merging a number */
    READ = 4,           /* reading a byte of the inputs from memory */
    FRESH = 20,         /* clearing a byte of results and workspace, which the system does first */
};

/* The cost of a call and of its larger parts. */
enum {
    CALL = 80000,            /* making a plan: its checks and its memory */
    HEAD = 1000,             /* a head of a plan */
    OWN_HEAD = 25000,        /* a head of a plan, if it has projections of its own */
    BLOCK = 15000,           /* the two products of a block and a tile */
    ANY_ROW = 2000,          /* a row of scores, however it is computed */
    ROW = 1000,              /* a row of a tile of a plain call */
    GENERAL_ROW = 3000,      /* a row of a tile in double */
    MATERIALIZED_ROW = 5000, /* a row of a tile whose stages are kept */
    PRODUCT = 20000,         /* a product of a projection */
    TOTAL = 2000,            /* merging the sums of one part of a row */
};

enum {
    LEAST_ROWS = 8 /* of a block, if there are so many queries */
};

/* The cost of finding top_k, for each key. Forbidden keys have the weight 0 there. */
static double cost_of_top_k(const attn_plan *plan) {
    const double levels = log2((double)plan->m + 1);
    return !plan_wants_top_k(plan)
               ? 0
               : SELECT + SORT * levels * (double)plan->results.top_k / (double)plan->m;
}

/* The cost of one score without the multiply-adds of its products. */
static double cost_of_score(const attn_plan *plan) {
    const struct path *path = &plan->path;
    double cost = path->long_rows ? LONG : path->plain && !path->materialized ? PLAIN : GENERAL;
    cost += path->without_blas ? ROW_PRODUCT : BLAS_PRODUCT / (double)plan->n;
    cost += plan->rules.mask.given ? MASK : 0;
    cost += plan->rules.padding_too ? MASK : 0;
    cost += plan->rules.bias.given ? MASK : 0;
    cost += plan_has(plan, INPUT_DECAY) ? DECAY : 0;
    cost += plan_bends(plan) ? BEND : 0;
    cost += plan->options.rounding != NULL ? ROUNDING : 0;
    if (plan->half.type != NULL) { /* scores that are a result are a product of their own */
        const bool raw = plan_wants(plan, ATTN_WANT(SCORES) | ATTN_WANT(STATISTICS));
        cost += 4 * ROUND + (raw ? plan->schedule.columns / 2 : 0);
        cost += ROUND_KEY * (double)plan->head[0].d / (double)size_min(plan->n, LEAST_ROWS);
    }
    cost += plan->options.normalization == ATTN_SIGMOID          ? SIGMOID
            : plan->options.normalization == ATTN_STICK_BREAKING ? STICK
                                                                 : 0;
#define COST_OF(of, name, kinds, cost) +(plan_wants(plan, ATTN_WANT(name)) ? (cost) : 0)
    cost += 0 RESULT_TABLE(COST_OF, );
    cost -= path->long_rows && plan_wants(plan, ATTN_WANT(ENTROPY)) ? LOGARITHM : 0;
    return cost + cost_of_top_k(plan);
}

/* Returns whether the keys and values of one head stay in a cache from one block of queries to the
 * next. */
static bool stay_in_cache(const attn_plan *plan) {
    const double numbers = (double)plan->m * plan->schedule.read_columns;
    return numbers * (double)dtype_size(plan->dtype) <= 1 << 21;
}

/* The cost of one number of a key or value for one query. A key that is not in the cache is read
 * from memory once for each block of queries. */
static double cost_of_product(const attn_plan *plan) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    const double of_dtype = plan->dtype == ATTN_FLOAT64 ? 2 : 1;
    const double rows = (double)size_min(plan->n, t->rows);
    const double read = stay_in_cache(plan) ? 0 : 4 * of_dtype * READ / rows;
    if (path->long_rows) {
        return of_dtype * (plan->schedule.read_columns > 2048 ? 20 : 6) + read;
    }
    return of_dtype * (path->without_blas ? 3.5 : 0.8) + read;
}

static double tiles_of_row(const attn_plan *plan) {
    return ceil((double)plan->m / (double)plan->tiling.keys);
}

double cost_of_row(const attn_plan *plan) {
    const struct path *path = &plan->path;
    const double row = path->long_rows || path->materialized ? MATERIALIZED_ROW
                       : path->plain                         ? ROW
                                                             : GENERAL_ROW;
    return (double)plan->m *
               (plan->schedule.read_columns * cost_of_product(plan) + cost_of_score(plan)) +
           (path->materialized && !path->long_rows ? 1 : tiles_of_row(plan)) * row + ANY_ROW;
}

static double cost_of_blocks(const attn_plan *plan) {
    return (double)plan->batch * (double)plan->heads * (double)plan->tiling.blocks *
           tiles_of_row(plan) * BLOCK;
}

double cost_of_attending(const attn_plan *plan) {
    const double rows = (double)plan->batch * (double)plan->heads * (double)plan->n;
    return rows * cost_of_row(plan) + cost_of_blocks(plan);
}

/* The share of all scores that causal, window and lengths leave to be computed. It is estimated
 * from some rows of each batch item. */
static double visible_share(const attn_plan *plan) {
    enum {
        ROWS = 32,
        FEW_ROWS = 5,
        ITEMS = 64 /* if there are more batch items, only FEW_ROWS of each are counted */
    };
    const bool few = plan->rules.lengths != NULL && plan->batch > ITEMS;
    const size_t rows = size_min(plan->n, few ? FEW_ROWS : ROWS);
    const size_t items = plan->rules.lengths == NULL ? 1 : plan->batch;
    double seen = 0;
    for (size_t r = 0; r < rows; r++) {
        const size_t i = r * (plan->n - 1) / (rows > 1 ? rows - 1 : 1);
        for (size_t b = 0; b < items; b++) {
            size_t from, to;
            visible_keys(plan, b, i, &from, &to);
            seen += (double)(to - from);
        }
    }
    return seen / ((double)items * (double)rows * (double)plan->m);
}

/* The cost of PHASE_ATTEND if only `share` of all scores is visible. A row has a least cost, even
 * if it sees no key. */
static double cost_of_visible(const attn_plan *plan, double share) {
    const struct path *path = &plan->path;
    if (plan_wants(plan, STAGES_OF_ALL_KEYS) || (path->materialized && !path->long_rows)) {
        share = 1; /* all scores are computed */
    }
    const double rows = (double)plan->batch * (double)plan->heads * (double)plan->n;
    const double row = cost_of_row(plan), least = plan->path.plain ? ROW : GENERAL_ROW;
    return rows * (fmax(share * row, least) + (1 - share) * (double)plan->m * cost_of_top_k(plan)) +
           cost_of_blocks(plan);
}

double cost_of_preparing(const attn_plan *plan, enum prepare what) {
    const double angles = (double)plan->rotary.columns / 2 * ANGLE;
    const double head = (double)plan->head[0].d * ROTATE + ROW, keys = (double)plan->m;
    switch (what) {
    case PREPARE_QUERIES:
        return angles + (double)plan->in.q.heads * head;
    case PREPARE_KEYS:
        return angles + (double)plan->kv_heads * head;
    case PREPARE_VALUES:
        return (double)plan->in.v.heads * ((double)plan->head[0].d_v * ROTATE + ROW);
    case PREPARE_EXTRA:
        return ROW + 2 * COPY * (double)(plan->project[PROJECT_K].ld + plan->project[PROJECT_V].ld);
    case PREPARE_MASK:
        return ROW + keys * (COPY + MASK);
    case PREPARE_BIAS:
        return ROW + keys * COPY;
    default:
        return ROW + fmin(keys, DECAY_KEYS) * 2 * DECAY;
    }
}

double cost_of_packing(const attn_plan *plan) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    const double numbers = (double)t->tiles * (double)t->keys * plan->schedule.columns / 2;
    return path->packs
               ? (double)plan->in.k.items * (double)plan->kv_heads * (numbers * PACK + BLOCK)
               : 0;
}

double cost_of_copying(double numbers, double rows) {
    return HEAD + numbers * COPY + rows * 400;
}

/* The cost of the moments of Q and K. */
static double cost_of_moments(const attn_plan *plan) {
    const double numbers =
        (double)plan->in.q.numbers + (double)plan->in.k.numbers + (double)plan->in.past_k.numbers;
    return plan_wants(plan, ATTN_WANT(STATISTICS)) ? numbers * MOMENT : 0;
}

double cost_of_merging(const attn_plan *plan) {
    const struct schedule *s = &plan->schedule;
    const double rows = (double)plan->batch * (double)plan->heads * (double)plan->n;
    const double each = (double)s->merge.parts * TOTAL + (double)s->merge.partial * MERGE;
    return plan->path.splits_keys ? rows * (ROW + (double)plan->tiling.splits * each) : 0;
}

double cost_of_ranking(const attn_plan *plan) {
    const struct tiling *t = &plan->tiling;
    const struct schedule *s = &plan->schedule;
    const double rows = (double)plan->batch * (double)plan->heads * (double)plan->n;
    const double levels = log2((double)t->splits + 1), length = log2((double)s->rank.run + 1);
    const double begin = s->rank.parts > 1 ? 64 * (double)t->splits * length * 200 : 0;
    return s->rank.run == 0
               ? 0
               : rows * (ROW + (double)s->rank.parts * (begin + (double)t->splits * 1000) +
                         (double)plan->results.top_k * (500 + levels * 300));
}

double cost_of_projecting(const struct projection *p, size_t rows, size_t columns) {
    enum {
        WEIGHT = 24,     /* reading a number of the weights from memory */
        WIDTH = 16,      /* columns that fill a vector; a matrix of fewer columns costs as much */
        ONE_COLUMN = 50, /* a number of one column, if there are fewer than WIDTH in all */
        MOST = 320       /* the most that the numbers of such a row cost together */
    };
    columns = size_min(columns, p->ld);
    const double numbers = (double)columns, matrices = numbers * (double)p->count / (double)p->ld;
    const double each =
        columns >= WIDTH ? fmax(numbers, WIDTH * matrices) : fmin(numbers * ONE_COLUMN, MOST);
    return (double)p->inner * ((double)rows * each + numbers * WEIGHT);
}

static double cost_of_projection(const struct projection *p) {
    if (p->count == 0 || p->rows == 0) {
        return 0;
    }
    const double down = ceil((double)p->rows / (double)p->task_rows);
    const double matrices = (double)size_max(p->count, p->across);
    const double steps = ceil((double)p->inner / (double)p->tile_inner);
    return cost_of_projecting(p, p->rows, p->ld) + down * matrices * steps * PRODUCT +
           (double)p->rows * (double)p->ld * 100;
}

/* The cost of memory: inputs are read from it once, and results and workspace are written to fresh
 * memory. */
static double cost_of_memory(const attn_plan *plan) {
    const double size = (double)dtype_size(plan->dtype);
    const bool once = stay_in_cache(plan); /* otherwise cost_of_product counts keys and values */
    const double inputs =
        plan->form.projected
            ? 0
            : (double)plan->in.q.numbers +
                  (once ? (double)plan->in.k.numbers + (double)plan->in.v.numbers : 0);
    const double past = (double)plan->in.past_k.numbers + (double)plan->in.past_v.numbers;
    return (inputs + past) * size * READ +
           ((double)plan->results.bytes + (double)plan->schedule.workspace.bytes) * FRESH;
}

/* The cost of scores, and of all that is made of them but the output projection. */
static double cost_of_scores(const attn_plan *plan) {
    const struct schedule *s = &plan->schedule;
    const struct gradients *g = &plan->gradients;
    const double share = visible_share(plan);
    const double again = (s->weigh.tasks > 0) + (s->weigh.mean_parts > 0); /* PHASE_WEIGH */
    const double scores =
        (double)plan->batch * (double)plan->heads * (double)plan->n * (double)plan->m;
    const double rounding = g->wanted && plan->options.rounding != NULL ? 2 * ROUNDING * scores : 0;
    /* A tile of queries takes the keys that any of them sees. */
    const double tiles = fmin(1, share + (double)g->tile_rows / (double)plan->m);
    return cost_of_packing(plan) + cost_of_moments(plan) + cost_of_visible(plan, share) +
           cost_of_merging(plan) + again * cost_of_attending(plan) + cost_of_ranking(plan) +
           g->cost + (g->dense_cost + rounding) * tiles +
           (g->wanted ? (double)s->scratch.bytes * FRESH : 0);
}

double cost_of_plan(const attn_plan *plan) {
    const struct schedule *s = &plan->schedule;
    double cost = CALL + (double)plan->heads * (plan->form.per_head ? OWN_HEAD : HEAD) +
                  cost_of_memory(plan) + s->input_cost + plan->gate.cost +
                  (plan->form.empty ? plan_cost_of_fills(plan) : cost_of_scores(plan));
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        cost += (double)s->tasks[phase] * TASK_COST;
    }
    for (int i = 0; i < PROJECT_COUNT; i++) {
        cost +=
            (i == PROJECT_OUT && s->tasks[PHASE_OUT] == 0) || (i == PROJECT_GATE && !plan->gate.is)
                ? 0
                : cost_of_projection(&plan->project[i]);
    }
    return cost;
}

double cost_of_rounded_inputs(const attn_plan *plan) {
    return (double)plan->copies.numbers * (ROUND + sizeof(float) * FRESH) +
           (double)plan->schedule.tasks[PHASE_ROUND] * TASK_COST;
}

double cost_of_softmax(const attn_plan *plan) {
    enum {
        EXP = 120,   /* the exp and the division of a number of 4 bytes */
        APART = 350, /* added to EXP if the numbers of a slice lie apart */
        FLAT = 800,  /* divided by the number of columns, added instead if these are few */
        SLICE = 5000 /* beginning a unit of work */
    };
    const struct slices *s = &plan->slices;
    const double size = (double)dtype_size(plan->dtype);
    const double numbers = (double)s->outer * (double)s->count * (double)s->inner;
    const double parts = (double)s->outer * (double)s->across * (double)s->chunks;
    double tasks = 0, each = EXP * size / 4;
    if (s->inner > 1) {
        each += (double)s->columns > 16 ? APART : FLAT / (double)s->columns;
    }
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        tasks += (double)plan->schedule.tasks[phase];
    }
    return CALL + tasks * TASK_COST + numbers * size * FRESH +
           (s->chunks > 1 ? 2 : 1) * (numbers * each + parts * SLICE);
}
