/*
 * test_layers_pack.c - the packing of weights: every shape in small tasks, files that change
 * meanwhile, and several requests that share the tasks of one layer.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "layer_files.h"
#include "layers/pack.h"
#include "layers/shard.h"
#include "support/wait.h"

TestSuite(layers_pack, .init = layer_folder_begin, .fini = layer_files_end, .timeout = 60);

/* A layer that has one tensor or a few, in a file without a header. */
struct made {
    struct layer_shard shard;
    struct layer_model model;
    struct layer layer;
};

/* Writes the numbers of a file, and notes what the file system says of it. */
static void put_made(struct made *made, const char *name, const void *data, size_t bytes) {
    struct stat status;
    char path[128];
    layer_file_put(name, data, bytes);
    *made = (struct made){.shard = {.folder = open(layer_folder, O_RDONLY | O_DIRECTORY),
                                    .path = (char *)(uintptr_t)name}};
    snprintf(path, sizeof path, "%s%s", layer_folder, name);
    cr_assert_eq(stat(path, &status), 0);
    shard_note(&made->shard, &status);
    made->layer.model = &made->model;
    strcpy(made->layer.name, "made");
}

/* Gives the layer a tensor (rows,columns) of the file. Its columns are the outputs. Returns it. */
static struct layer_tensor *add_tensor(struct made *made, size_t part, enum codec_type type,
                                       size_t rows, size_t columns) {
    made->layer.tensors[part] = (struct layer_tensor){
        .shard = &made->shard, .type = type, .rows = rows, .columns = columns, .count = columns};
    return &made->layer.tensors[part];
}

static void make_use(const struct made *made, attn_dtype dtype, struct layer_use *use) {
    *use = (struct layer_use){.layer = &made->layer, .packed = pack_new(&made->layer, dtype)};
    cr_assert_not_null(use->packed);
    memcpy(use->tensors, use->packed->tensors, sizeof use->tensors);
    memset(use->packed->block, 1, use->packed->bytes);
}

static void end_made(struct made *made, struct layer_use *use) {
    pack_free(use->packed);
    close(made->shard.folder);
}

/* Runs all tasks and waits. */
static bool pack_all(struct layer_use *use, char reason[static LAYERS_REASON]) {
    const size_t tasks = layer_tasks(use);
    void *scratch = malloc(layer_scratch(use));
    for (size_t i = 0; i < tasks; i++) {
        layer_task(use, scratch);
    }
    free(scratch);
    return layer_wait(use, reason);
}

static float *draw_weights(size_t count) {
    float *data = malloc(count * sizeof *data);
    cr_assert_not_null(data);
    for (size_t i = 0; i < count; i++) {
        data[i] = layer_file_number(3, i);
    }
    return data;
}

/* Packs all of a matrix at once, as the library does it. Returns owned. */
static char *pack_whole(const struct layer_tensor *t, const float *data, attn_dtype dtype) {
    const size_t inputs = pack_inputs(t), count = inputs * t->count;
    double *wide = malloc(count * sizeof *wide);
    float *narrow = malloc(count * sizeof *narrow);
    for (size_t i = 0; i < count; i++) {
        const size_t in = i / t->count, out = t->first + i % t->count;
        narrow[i] = data[t->out_in ? out * t->columns + in : in * t->columns + out];
        wide[i] = (double)narrow[i];
    }
    const attn_tensor whole = {
        dtype == ATTN_FLOAT32 ? (void *)narrow : (void *)wide, dtype, 2, {inputs, t->count}};
    attn_tensor packed;
    size_t bytes;
    cr_assert_eq(attn_prepack_bytes(&whole, ATTN_IN_OUT, &bytes, NULL), ATTN_OK);
    char *buffer = aligned_alloc(ATTN_ALIGNMENT, bytes);
    memset(buffer, 1, bytes);
    cr_assert_eq(attn_prepack(&whole, ATTN_IN_OUT, buffer, &packed, NULL), ATTN_OK);
    free(wide);
    free(narrow);
    return buffer;
}

static const struct {
    size_t rows, columns;
    bool out_in;
    size_t first, count; /* outputs */
} shapes[] = {
    {3, 5, false, 0, 5},         {5, 3, true, 0, 5},
    {64, 64, false, 0, 64},      {4097, 70, false, 0, 70},
    {5000, 100, false, 3, 70},   {200, 10000, true, 64, 130},
    {65, 4096, true, 0, 65},     {1, 300000, false, 0, 300000},
    {300000, 1, false, 0, 1},    {30, 9000, false, 100, 8900},
    {9000, 30, true, 100, 8900},
};

Test(layers_pack, every_shape_like_the_whole) {
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct made made;
        struct layer_use use;
        char reason[LAYERS_REASON];
        const size_t numbers = shapes[i].rows * shapes[i].columns;
        float *data = draw_weights(numbers + 7);
        put_made(&made, "numbers", data, (numbers + 7) * sizeof *data);
        struct layer_tensor *t =
            add_tensor(&made, LAYER_W_K, CODEC_TYPE_FP32, shapes[i].rows, shapes[i].columns);
        t->offset = 7 * sizeof *data;
        t->out_in = shapes[i].out_in;
        t->first = shapes[i].first;
        t->count = shapes[i].count;
        for (int dtype = ATTN_FLOAT32; dtype <= ATTN_FLOAT64; dtype++) {
            char *expected = pack_whole(t, data + 7, (attn_dtype)dtype);
            make_use(&made, (attn_dtype)dtype, &use);
            cr_expect(pack_all(&use, reason), "shape %zu: %s", i, reason);
            cr_expect_eq(memcmp(use.tensors[LAYER_W_K].data, expected, use.packed->bytes), 0,
                         "shape %zu", i);
            cr_expect_eq(layer_tasks(&use), 0);
            pack_free(use.packed);
            free(expected);
        }
        close(made.shard.folder);
        free(data);
    }
}

/* The numbers of 8 bits are multiplied by the scale of their block. A part of a matrix may begin
 * inside of a block, and the blocks at the edges are smaller. */
Test(layers_pack, scales_of_blocks_of_a_matrix_of_8_bits) {
    enum {
        ROWS = 300,
        COLUMNS = 2200,
        NUMBERS = ROWS * COLUMNS,
        SCALES = 4096
    };
    static const unsigned char e4m3[] = {0x38, 0x40, 0x30, 0xBC};
    static const float numbers[] = {1, 2, 0.5F, -1.5F};
    static const size_t sides[][2] = {
        {128, 128}, {1, COLUMNS}, {ROWS, COLUMNS}, {7, 32}, {128, COLUMNS}};
    unsigned char *file = malloc(NUMBERS + SCALES * sizeof(float));
    float *scales = malloc(SCALES * sizeof *scales), *expected = malloc(NUMBERS * sizeof *expected);
    for (size_t i = 0; i < SCALES; i++) {
        scales[i] = (float)(i % 1000 + 1) / 64;
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        file[i] = e4m3[i % 7 % COUNT(e4m3)];
    }
    memcpy(file + NUMBERS, scales, SCALES * sizeof *scales);
    for (size_t c = 0; c < COUNT(sides); c++) {
        const size_t columns = (COLUMNS - 1) / sides[c][1] + 1;
        struct made made;
        struct layer_use use;
        char reason[LAYERS_REASON];
        put_made(&made, "numbers", file, NUMBERS + SCALES * sizeof *scales);
        struct layer_tensor *t = add_tensor(&made, LAYER_W_Q, CODEC_TYPE_FP8_E4M3, ROWS, COLUMNS);
        t->out_in = true;
        t->first = 60;
        t->count = 240;
        t->scales = (struct layer_scales){&made.shard, CODEC_TYPE_FP32, NUMBERS,
                                          columns,     sides[c][0],     sides[c][1]};
        for (size_t i = 0; i < NUMBERS; i++) {
            expected[i] = numbers[i % 7 % COUNT(numbers)] *
                          scales[i / COLUMNS / sides[c][0] * columns + i % COLUMNS / sides[c][1]];
        }
        for (int dtype = ATTN_FLOAT32; dtype <= ATTN_FLOAT64; dtype++) {
            char *packed = pack_whole(t, expected, (attn_dtype)dtype);
            make_use(&made, (attn_dtype)dtype, &use);
            cr_expect(pack_all(&use, reason), "blocks %zu: %s", c, reason);
            cr_expect_eq(memcmp(use.tensors[LAYER_W_Q].data, packed, use.packed->bytes), 0,
                         "blocks %zu", c);
            free(packed);
            pack_free(use.packed);
        }
        close(made.shard.folder);
    }
    free(file);
    free(scales);
    free(expected);
}

/* The time of a task is that of its numbers, of which it may have 2^18. */
Test(layers_pack, every_shape_in_small_tasks) {
    static const size_t sizes[][2] = {{250000, 64}, {64, 250000}, {1, 1 << 24},
                                      {1 << 24, 1}, {4096, 4096}, {8191, 65}};
    for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
        struct made made;
        struct layer_use use;
        const size_t rows = sizes[i / 2][0], columns = sizes[i / 2][1];
        put_made(&made, "numbers", "", 0);
        struct layer_tensor *t = add_tensor(&made, LAYER_W_O, CODEC_TYPE_FP16, rows, columns);
        t->out_in = i % 2 == 1;
        t->count = t->out_in ? rows : columns;
        use =
            (struct layer_use){.layer = &made.layer, .packed = pack_new(&made.layer, ATTN_FLOAT32)};
        cr_assert_not_null(use.packed);
        cr_expect_leq(layer_scratch(&use), (size_t)1 << 22, "%zu x %zu", rows, columns);
        cr_expect_geq(layer_tasks(&use), rows * columns >> 18, "%zu x %zu", rows, columns);
        end_made(&made, &use);
    }
}

/* A vector is a part of the tensor of a fused one, and the table of relative bias has rows. */
Test(layers_pack, vectors_in_parts) {
    struct made made;
    struct layer_use use;
    char reason[LAYERS_REASON];
    const size_t numbers = 700000;
    float *data = draw_weights(numbers);
    put_made(&made, "numbers", data, numbers * sizeof *data);
    struct layer_tensor *part = add_tensor(&made, LAYER_B_V, CODEC_TYPE_FP32, 1, numbers);
    part->first = part->count = 300000;
    add_tensor(&made, LAYER_RELATIVE_BIAS, CODEC_TYPE_FP32, 9000, 40)->offset = 400;
    make_use(&made, ATTN_FLOAT64, &use);
    cr_expect_eq(layer_tasks(&use), 4);
    cr_assert(pack_all(&use, reason), "%s", reason);
    const double *vector = use.tensors[LAYER_B_V].data;
    const double *table = use.tensors[LAYER_RELATIVE_BIAS].data;
    for (size_t i = 0; i < 300000; i++) {
        cr_assert_eq(vector[i], (double)data[300000 + i], "%zu", i);
    }
    for (size_t i = 0; i < 360000; i++) {
        cr_assert_eq(table[i], (double)data[100 + i], "%zu", i);
    }
    cr_expect_eq(use.tensors[LAYER_RELATIVE_BIAS].shape[0], 9000);
    cr_expect_eq(use.tensors[LAYER_B_V].rank, 1);
    end_made(&made, &use);
    free(data);
}

/* ---------------------------------------------------------------------------- files that change */

enum change {
    CHANGE_NOTHING,
    CHANGE_NUMBERS, /* in place; the time of the last change is set back */
    CHANGE_TIME,    /* of the last change */
    CHANGE_LONGER,
    CHANGE_SHORTER,
    CHANGE_REPLACED, /* by a file of the same bytes */
    CHANGE_REMOVED,
    CHANGES
};

static void change_file(const char *name, enum change change) {
    char path[128];
    struct stat status;
    const float number = 7;
    snprintf(path, sizeof path, "%s%s", layer_folder, name);
    cr_assert_eq(stat(path, &status), 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* the file system counts in ticks */
    const int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0);
    const off_t size = status.st_size;
    struct timespec times[] = {status.st_atim, status.st_mtim};
    times[1].tv_sec -= change == CHANGE_TIME;
    if (change == CHANGE_NUMBERS || change == CHANGE_TIME) {
        cr_assert(change == CHANGE_TIME || pwrite(fd, &number, sizeof number, size - 4) > 0);
        cr_assert_eq(futimens(fd, times), 0);
    } else if (change == CHANGE_LONGER || change == CHANGE_SHORTER) {
        cr_assert_eq(ftruncate(fd, change == CHANGE_LONGER ? size + 4 : size - 4), 0);
    } else if (change == CHANGE_REPLACED) {
        char *bytes = malloc((size_t)size);
        cr_assert_eq(pread(fd, bytes, (size_t)size, 0), size);
        layer_file_put(name, bytes, (size_t)size);
        free(bytes);
    } else if (change == CHANGE_REMOVED) {
        layer_file_remove(name);
    }
    close(fd);
}

/* A request never gets weights of another file than the one whose header was read. Weights that
 * were packed before stay. */
Test(layers_pack, a_file_that_has_changed_is_refused) {
    layer_files_open(1 << 20);
    for (int change = CHANGE_NOTHING; change < CHANGES; change++) {
        char name[32], layer[32], reason[LAYERS_REASON];
        struct layer_use packed, use;
        snprintf(name, sizeof name, "m%d.safetensors", change);
        snprintf(layer, sizeof layer, "m%d.h.0", change);
        layer_file_model(name, "", 2, 4, 4, 1);
        cr_assert_str_eq(layer_file_reason(layer), "");
        cr_assert(layer_file_use(layer, ATTN_FLOAT32, &packed, reason));
        layer_end(the_layers, &packed);
        change_file(name, (enum change)change);
        cr_expect(layer_file_use(layer, ATTN_FLOAT32, &packed, reason), "change %d: %s", change,
                  reason);
        cr_expect_eq(layer_file_use(layer, ATTN_FLOAT64, &use, reason), change == CHANGE_NOTHING,
                     "change %d", change);
        cr_expect_eq(use.unreadable, change != CHANGE_NOTHING);
        cr_expect_not_null(strstr(reason, change == CHANGE_NOTHING ? "" : "its file has changed"),
                           "change %d: %s", change, reason);
        layer_end(the_layers, &use);
        layer_end(the_layers, &packed);
        const char *now = layer_file_reason(layer);
        cr_expect_eq(now == NULL,
                     change == CHANGE_LONGER || change == CHANGE_SHORTER ||
                         change == CHANGE_REMOVED,
                     "change %d: %s", change, now == NULL ? "not listed" : now);
        if (now != NULL) { /* the new catalogue has the new file */
            cr_expect(layer_file_use(layer, ATTN_FLOAT64, &use, reason), "change %d: %s", change,
                      reason);
            layer_end(the_layers, &use);
        }
    }
}

/* Waits until no weights are packed. */
static void await_no_packed(void) {
    WAIT_UNTIL(layers_load(the_layers).packed == 0);
}

/* A failure of the file is not one of the layer: the next request reads it anew. */
Test(layers_pack, a_file_that_cannot_be_opened_is_tried_again) {
    struct layer_use use;
    char reason[LAYERS_REASON];
    struct rlimit limit;
    layer_files_open(1 << 20);
    layer_file_model("m.safetensors", "", 1, 4, 4, 1);
    cr_assert_str_eq(layer_file_reason("m.h.0"), "");
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, limit.rlim_max}), 0);
    cr_expect_not(layer_file_use("m.h.0", ATTN_FLOAT32, &use, reason));
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect(use.unreadable);
    cr_expect_str_eq(reason, "W_Q of the layer m.h.0 cannot be read: Too many open files");
    layer_end(the_layers, &use);
    await_no_packed(); /* the thread of the store frees the weights */
    cr_expect(layer_file_use("m.h.0", ATTN_FLOAT32, &use, reason), "%s", reason);
    layer_end(the_layers, &use);
}

/* A number that the dtype of the request does not have is a fault of the layer. After a failure no
 * more tasks are run. */
Test(layers_pack, a_number_that_is_not_finite_is_refused) {
    static const double numbers[] = {1, 1e300, 3, 4, 5, 6};
    for (int i = 0; i < 4; i++) {
        struct made made;
        struct layer_use use;
        char reason[LAYERS_REASON];
        const bool narrow = i % 2 == 0, matrix = i < 2;
        put_made(&made, "numbers", numbers, sizeof numbers);
        for (int part = 0; part < 2; part++) {
            add_tensor(&made, (matrix ? LAYER_W_V : LAYER_NORM_Q) + (size_t)part, CODEC_TYPE_FP64,
                       matrix ? 3 : 1, matrix ? 2 : 6);
        }
        make_use(&made, narrow ? ATTN_FLOAT32 : ATTN_FLOAT64, &use);
        cr_expect_eq(pack_all(&use, reason), !narrow);
        cr_expect_eq(use.packed->done, narrow ? 1 : 2);
        cr_expect_eq(pack_has_failed(use.packed), narrow);
        cr_expect_not(use.unreadable);
        char wanted[128] = "";
        if (narrow) {
            snprintf(
                wanted, sizeof wanted,
                "%s of the layer made has a number that is not finite in the dtype of the request",
                matrix ? "W_V" : "norm_Q");
        }
        cr_expect_str_eq(reason, wanted);
        end_made(&made, &use);
    }
}

/* The number is found in whatever row it stands: in one of rows that lie apart, or of blocks. */
Test(layers_pack, a_number_that_is_not_finite_is_found_in_each_row) {
    for (size_t i = 0; i < 6; i++) {
        double numbers[6] = {1, 2, 3, 4, 5, 6};
        const struct layer_tensor tensors[] = {
            {.rows = 3, .columns = 2, .first = 1, .count = 1},
            {.rows = 6,
             .columns = 1,
             .out_in = true,
             .first = 1,
             .count = 3,
             .block = 1,
             .stride = 2},
        };
        numbers[i] = 1e300;
        for (size_t k = 0; k < COUNT(tensors); k++) {
            struct made made;
            struct layer_use use;
            char reason[LAYERS_REASON];
            put_made(&made, "numbers", numbers, sizeof numbers);
            made.layer.tensors[LAYER_W_V] = tensors[k];
            made.layer.tensors[LAYER_W_V].shard = &made.shard;
            made.layer.tensors[LAYER_W_V].type = CODEC_TYPE_FP64;
            make_use(&made, ATTN_FLOAT32, &use);
            cr_expect_eq(pack_all(&use, reason), i % 2 == 0, "number %zu of %zu", i, k);
            end_made(&made, &use);
        }
    }
}

/* -------------------------------------------------------------------------- requests that share */

enum {
    SHARERS = 4,
    ROUNDS = 40
};

struct sharer {
    struct layer_use use;
    pthread_barrier_t *start;
    const char *expected;
    bool good, same;
};

static void *share(void *sharer_) {
    struct sharer *s = sharer_;
    char reason[LAYERS_REASON];
    void *scratch = malloc(layer_scratch(&s->use));
    pthread_barrier_wait(s->start);
    const size_t tasks = layer_tasks(&s->use);
    for (size_t i = 0; i < tasks; i++) {
        layer_task(&s->use, scratch);
    }
    s->good = layer_wait(&s->use, reason);
    s->same = memcmp(s->use.tensors[LAYER_W_Q].data, s->expected, s->use.packed->bytes) == 0;
    free(scratch);
    return NULL;
}

/* Each task is run once, and nobody goes on before the last one has ended. A request that is never
 * woken lets the test run into its timeout. */
Test(layers_pack, requests_wait_for_the_tasks_of_others) {
    const size_t rows = 20000, columns = 64;
    float *data = draw_weights(rows * columns);
    struct made made;
    put_made(&made, "numbers", data, rows * columns * sizeof *data);
    add_tensor(&made, LAYER_W_Q, CODEC_TYPE_FP32, rows, columns);
    char *expected = pack_whole(&made.layer.tensors[LAYER_W_Q], data, ATTN_FLOAT32);
    for (int round = 0; round < ROUNDS; round++) {
        struct layer_use use;
        pthread_t threads[SHARERS];
        struct sharer sharers[SHARERS];
        pthread_barrier_t start;
        make_use(&made, ATTN_FLOAT32, &use);
        pthread_barrier_init(&start, NULL, SHARERS);
        for (int i = 0; i < SHARERS; i++) {
            sharers[i] = (struct sharer){.use = use, .start = &start, .expected = expected};
            cr_assert_eq(pthread_create(&threads[i], NULL, share, &sharers[i]), 0);
        }
        for (int i = 0; i < SHARERS; i++) {
            pthread_join(threads[i], NULL);
            cr_expect(sharers[i].good && sharers[i].same, "round %d, request %d", round, i);
        }
        cr_expect_eq(use.packed->done, use.packed->tasks);
        cr_expect_eq(use.packed->begun, use.packed->tasks);
        pthread_barrier_destroy(&start);
        pack_free(use.packed);
    }
    close(made.shard.folder);
    free(expected);
    free(data);
}

/* ---------------------------------------------------------------------------------- the buckets */

/* The buckets of transformers' T5Attention, from its formula by hand: with 32 buckets, 8 distances
 * on either side have their own, and those up to 128 share 8. */
Test(layers_pack, buckets_of_relative_bias) {
    static const struct {
        int64_t distance;
        size_t both, before;
    } rows[] = {{0, 0, 0},      {1, 17, 0},    {-1, 1, 1},     {7, 23, 0},    {-7, 7, 7},
                {8, 24, 0},     {-8, 8, 8},    {-11, 8, 11},   {-12, 9, 12},  {12, 25, 0},
                {-15, 9, 15},   {-17, 10, 16}, {-19, 10, 17},  {-22, 10, 18}, {-23, 11, 18},
                {-31, 11, 21},  {-45, 12, 23}, {-46, 13, 24},  {-90, 14, 29}, {-91, 15, 29},
                {-113, 15, 31}, {91, 31, 0},   {-128, 15, 31}, {5000, 31, 0}, {-5000, 15, 31}};
    struct layer layer = {.max_distance = 128};
    layer.tensors[LAYER_RELATIVE_BIAS].rows = 32;
    for (size_t i = 0; i < COUNT(rows); i++) {
        layer.bidirectional = true;
        cr_expect_eq(layer_bucket(&layer, rows[i].distance), rows[i].both, "%lld: %zu",
                     (long long)rows[i].distance, layer_bucket(&layer, rows[i].distance));
        layer.bidirectional = false;
        cr_expect_eq(layer_bucket(&layer, rows[i].distance), rows[i].before, "%lld: %zu",
                     (long long)rows[i].distance, layer_bucket(&layer, rows[i].distance));
    }
}

/* Tensors of odd sizes follow one another in the block, and each begins at an aligned place. */
Test(layers_pack, tensors_begin_at_aligned_places) {
    struct layer_model model = {.count = 0};
    struct layer_shard shard = {.folder = -1};
    struct layer layer = {.model = &model};
    for (size_t part = LAYER_B_Q; part <= LAYER_B_O; part++) {
        layer.tensors[part] = (struct layer_tensor){
            .shard = &shard, .type = CODEC_TYPE_FP32, .rows = 1, .columns = part, .count = part};
    }
    for (int dtype = 0; dtype < 2; dtype++) {
        struct layer_packed *packed = pack_new(&layer, (attn_dtype)dtype);
        cr_assert_not_null(packed);
        cr_expect_eq(packed->bytes, 4 * ATTN_ALIGNMENT);
        for (size_t i = 0; i < 4; i++) {
            cr_expect_eq(packed->tensors[LAYER_B_Q + i].data, packed->block + i * ATTN_ALIGNMENT);
        }
        pack_free(packed);
    }
}

/* A call gets each tensor of its layer in its place, and the key of zeros that torch's
 * add_zero_attn asks for. */
Test(layers_pack, a_call_has_the_tensors_of_its_layer) {
    for (int zero = 0; zero < 2; zero++) {
        static const char numbers[LAYER_PARTS];
        const struct layer layer = {.heads = 3, .kv_heads = 1, .zero_key = zero != 0};
        struct layer_use use = {.layer = &layer};
        attn_multihead m = {0};
        attn_options o = {.results = ATTN_WANT(LSE)};
        for (size_t part = 0; part < LAYER_PARTS; part++) {
            use.tensors[part].data = numbers + part;
        }
        layer_fill(&use, &m, &o);
        const attn_tensor *const places[LAYER_RELATIVE_BIAS] = {
            use.projection.w_q, use.projection.w_k,
            use.projection.w_v, m.w_o,
            use.projection.b_q, use.projection.b_k,
            use.projection.b_v, m.b_o,
            o.norm_q,           o.norm_k,
            o.norm_v,           m.bias_k,
            m.bias_v,           o.sink};
        for (size_t part = 0; part < LAYER_RELATIVE_BIAS; part++) {
            cr_expect_eq(places[part], &use.tensors[part], "part %zu", part);
        }
        cr_expect_eq(m.zero_key, zero != 0);
        cr_expect_eq(o.heads, 3);
        cr_expect_eq(o.kv_heads, 1);
        cr_expect_eq(o.results, ATTN_WANT(LSE));
    }
}
