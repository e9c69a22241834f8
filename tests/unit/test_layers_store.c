/*
 * test_layers_store.c - the memory of packed weights, the life of catalogues, and the room that the
 * descriptions of layers may take.
 */
#define _DEFAULT_SOURCE /* mincore() */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include "layer_files.h"
#include "layers/packed_cache.h"
#include "support/wait.h"

TestSuite(layers_store, .init = layer_folder_begin, .fini = layer_files_end, .timeout = 60);

/* Finds a layer in the newest catalogue, which keeps it while its file stays. */
static const struct layer *layer_named(const char *name) {
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer *layer = layers_find(catalogue, name);
    layers_give(the_layers, catalogue);
    cr_assert_not_null(layer, "%s", name);
    return layer;
}

/* Makes the models a, b and c, each with the layer h.0 of the same size, and opens the store so
 * that `count` of them and `more` bytes fit. */
static size_t open_for(size_t count, int more) {
    layer_file_model("a.safetensors", "", 1, 64, 16, 1);
    layer_file_model("b.safetensors", "", 1, 64, 16, 2);
    layer_file_model("c.safetensors", "", 1, 64, 16, 3);
    layer_files_open(1);
    const size_t bytes = layer_packed_bytes(layer_named("a.h.0"), ATTN_FLOAT32);
    layers_close(the_layers);
    layer_files_open(count * bytes + (size_t)more);
    return bytes;
}

static enum layer_status begin_use(const char *name, struct layer_use *use) {
    return layer_begin(the_layers, layer_named(name), ATTN_FLOAT32, use);
}

/* Uses a layer and ends the use. */
static void use_briefly(const char *name) {
    struct layer_use use = {0};
    cr_assert_eq(begin_use(name, &use), LAYER_OK, "%s", name);
    layer_end(the_layers, &use);
}

static bool is_packed(const char *name) {
    return layer_named(name)->packed[ATTN_FLOAT32] != NULL;
}

/* Waits until the packed weights take so many bytes. */
static void await_bytes(size_t bytes) {
    WAIT_UNTIL(layers_load(the_layers).packed == bytes);
}

/* ------------------------------------------------------------------------------- packed weights */

Test(layers_store, takes_a_layer_of_exactly_its_memory) {
    struct layer_use use = {0};
    const size_t bytes = open_for(1, 0);
    cr_expect_eq(begin_use("a.h.0", &use), LAYER_OK);
    cr_expect_eq(layers_load(the_layers).packed, bytes);
    layer_end(the_layers, &use);
    layers_close(the_layers);
    open_for(1, -1);
    cr_expect_eq(begin_use("a.h.0", &use), LAYER_BUSY);
    cr_expect_null(use.packed);
    cr_expect_eq(layers_load(the_layers).packed, 0);
}

Test(layers_store, never_drops_weights_that_are_in_use) {
    struct layer_use a = {0}, b = {0}, c = {0};
    char reason[LAYERS_REASON];
    const size_t bytes = open_for(2, 0);
    cr_assert(layer_file_use("a.h.0", ATTN_FLOAT32, &a, reason), "%s", reason);
    const struct layer_packed *packed = a.packed;
    use_briefly("b.h.0");
    cr_expect_eq(begin_use("c.h.0", &c), LAYER_OK); /* takes the place of b */
    cr_expect(is_packed("a.h.0") && !is_packed("b.h.0") && is_packed("c.h.0"));
    cr_expect_eq(begin_use("b.h.0", &b), LAYER_BUSY);
    cr_expect_eq(layer_named("a.h.0")->packed[ATTN_FLOAT32], packed);
    await_bytes(2 * bytes);
    layer_end(the_layers, &c);
    cr_expect_eq(begin_use("b.h.0", &b), LAYER_OK); /* takes the place of c */
    cr_expect(is_packed("a.h.0") && is_packed("b.h.0") && !is_packed("c.h.0"));
    layer_end(the_layers, &b);
    layer_end(the_layers, &a);
}

Test(layers_store, takes_back_weights_before_the_end_of_a_use) {
    struct layer_use a = {0}, b = {0};
    char reason[LAYERS_REASON];
    open_for(1, 0);
    cr_assert(layer_file_use("a.h.0", ATTN_FLOAT32, &a, reason), "%s", reason);
    cr_expect_eq(begin_use("b.h.0", &b), LAYER_BUSY);
    layer_give_weights(the_layers, &a);
    cr_expect(is_packed("a.h.0")); /* until the memory is needed */
    cr_expect_eq(begin_use("b.h.0", &b), LAYER_OK);
    cr_expect_not(is_packed("a.h.0"));
    cr_expect_str_eq(a.layer->name, "a.h.0");
    layer_end(the_layers, &b);
    layer_end(the_layers, &a);
}

Test(layers_store, drops_what_was_not_used_for_the_longest_time) {
    struct layer_use a = {0}, b = {0};
    open_for(2, 0);
    use_briefly("a.h.0");
    use_briefly("b.h.0");
    use_briefly("a.h.0");
    use_briefly("c.h.0");
    cr_expect(is_packed("a.h.0") && !is_packed("b.h.0") && is_packed("c.h.0"));
    layers_unload(the_layers, layer_named("c.h.0"));
    cr_assert_eq(begin_use("a.h.0", &a), LAYER_OK);
    cr_assert_eq(begin_use("b.h.0", &b), LAYER_OK);
    layer_end(the_layers, &b);
    layer_end(the_layers, &a); /* the use of a has ended last */
    use_briefly("c.h.0");
    cr_expect(is_packed("a.h.0") && !is_packed("b.h.0") && is_packed("c.h.0"));
}

Test(layers_store, shares_the_weights_of_requests) {
    struct layer_use one = {0}, two = {0};
    const size_t bytes = open_for(1, 0);
    cr_assert_eq(begin_use("a.h.0", &one), LAYER_OK);
    cr_assert_eq(begin_use("a.h.0", &two), LAYER_OK);
    cr_expect_eq(one.packed, two.packed);
    layer_end(the_layers, &one);
    cr_expect_eq(begin_use("b.h.0", &one), LAYER_BUSY);
    layer_end(the_layers, &two);
    cr_expect_eq(begin_use("b.h.0", &one), LAYER_OK);
    layer_end(the_layers, &one);
    await_bytes(bytes);
}

Test(layers_store, unloads_at_the_end_of_the_last_use) {
    struct layer_use use = {0}, other = {0};
    const size_t bytes = open_for(3, 0);
    cr_assert_eq(begin_use("a.h.0", &use), LAYER_OK);
    layers_unload(the_layers, layer_named("a.h.0"));
    cr_expect(is_packed("a.h.0"));
    cr_expect_eq(layers_load(the_layers).packed, bytes);
    layer_end(the_layers, &use);
    cr_expect_not(is_packed("a.h.0"));
    await_bytes(0);
    cr_assert_eq(begin_use("a.h.0", &use), LAYER_OK);
    layers_unload(the_layers, layer_named("a.h.0"));
    cr_assert_eq(begin_use("a.h.0", &other), LAYER_OK); /* a new use wants the weights after all */
    layer_end(the_layers, &use);
    layer_end(the_layers, &other);
    cr_expect(is_packed("a.h.0"));
    layers_unload(the_layers, layer_named("a.h.0"));
    await_bytes(0);
}

/* Returns whether a folder was opened since this function was called before. */
static bool was_opened(int events) {
    union {
        struct inotify_event first;
        char bytes[4096];
    } read_now;
    bool opened = false;
    while (read(events, &read_now, sizeof read_now) > 0) {
        opened = true;
    }
    return opened;
}

/* A thread frees what is dropped, and does not wait for its next scan of the folder, which is up to
 * a second later. So a round ends without a scan. The first round does not count, because the
 * thread may just have begun. */
Test(layers_store, frees_unloaded_weights_before_the_next_look) {
    bool looked = true;
    const int events = inotify_init1(IN_NONBLOCK);
    open_for(3, 0);
    cr_assert_geq(inotify_add_watch(events, layer_folder, IN_OPEN | IN_ONLYDIR), 0);
    for (int round = 0; round < 8 && looked; round++) {
        was_opened(events);
        use_briefly("a.h.0");
        layers_unload(the_layers, layer_named("a.h.0"));
        await_bytes(0);
        looked = was_opened(events) || round == 0;
    }
    cr_expect_not(looked, "weights are freed only when the folder is looked at");
    close(events);
}

/* Weights that cannot be allocated take no room from others. (A sanitizer would report them.) */
Test(layers_store, gives_back_the_room_of_weights_without_memory) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    cr_skip_test("a sanitizer reports such an allocation");
#endif
    static struct layer_shard shard;
    struct layer_use use = {0};
    struct layer_model model = {.count = 1};
    struct layer layer = {.model = &model};
    model.layers = &layer;
    layer.tensors[0] = (struct layer_tensor){
        .shard = &shard, .rows = (size_t)1 << 28, .columns = 1 << 28, .count = 1 << 28};
    layer_file_model("a.safetensors", "", 1, 64, 16, 1);
    layer_files_open(layer_packed_bytes(&layer, ATTN_FLOAT32));
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(layer_begin(the_layers, &layer, ATTN_FLOAT32, &use), LAYER_NO_MEMORY);
        cr_expect_null(use.packed);
        cr_expect_eq(layers_load(the_layers).packed, 0);
    }
    use_briefly("a.h.0");
}

/* Returns how many pages of a block are in memory. */
static size_t count_pages(const char *block, size_t bytes) {
    static unsigned char pages[1 << 16];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)block + page - 1) / page * page;
    const size_t whole = ((uintptr_t)block + bytes) / page - from / page;
    size_t count = 0;
    cr_assert_leq(whole, COUNT(pages));
    cr_assert_eq(mincore((void *)from, whole * page, pages), 0);
    for (size_t i = 0; i < whole; i++) {
        count += pages[i] & 1;
    }
    return count;
}

/* A store that frees nothing itself would take the pieces away from this test. */
Test(layers_store, frees_dropped_weights_in_pieces) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct layer_model model = {.count = 1};
    struct layer layer = {.model = &model};
    struct packed_cache cache = {.most = SIZE_MAX};
    model.layers = &layer;
    for (int i = 0; i < 3; i++) { /* the shapes of a layer of 49 MiB; it needs no file */
        static struct layer_shard shard;
        layer.tensors[i] = (struct layer_tensor){
            .shard = &shard, .rows = 4096, .columns = 1040, .first = 0, .count = 1040};
    }
    struct layer_packed *packed = pack_new(&layer, ATTN_FLOAT32);
    cr_assert_not_null(packed);
    const char *block = packed->block;
    const size_t bytes = packed->bytes, page = (size_t)sysconf(_SC_PAGESIZE);
    memset(packed->block, 1, bytes);
    cr_assert(packed_cache_make_room(&cache, bytes));
    layer.packed[ATTN_FLOAT32] = packed;
    packed_cache_keep(&cache, packed);
    packed_cache_drop(&cache, packed);
    cr_expect_null(layer.packed[ATTN_FLOAT32]);
    cr_expect(cache.used == 0 && cache.kept == 0 && cache.dropped == bytes);
    pthread_mutex_lock(&mutex);
    size_t pieces = 0;
    while (cache.dropped > 0) {
        const size_t before = cache.dropped;
        cr_assert(packed_cache_free_chunk(&cache, &mutex));
        pieces++;
        cr_expect_leq(before - cache.dropped, (size_t)16 << 20);
        if (cache.dropped > 0) {
            const size_t left = count_pages(block, bytes);
            cr_expect_leq(left, cache.dropped / page + 1, "%zu pages of %zu", left,
                          cache.dropped / page);
        }
    }
    cr_expect_eq(pieces, (bytes - 1) / ((size_t)16 << 20) + 1);
    cr_expect_not(packed_cache_free_chunk(&cache, &mutex));
    pthread_mutex_unlock(&mutex);
}

/* ----------------------------------------------------------------------------------- catalogues */

Test(layers_store, gives_back_catalogues_that_are_not_needed) {
    open_for(3, 0);
    for (int i = 0; i < 3; i++) {
        layers_refresh(the_layers); /* nothing has changed */
    }
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer_model *model = layers_find_model(catalogue, "a");
    cr_expect_eq(model->users, 1, "%zu", model->users);
    cr_expect_eq(catalogue->users, 2, "%zu", catalogue->users); /* the store's, and this one */
    layer_file_remove("b.safetensors");
    layers_refresh(the_layers);
    cr_expect_eq(catalogue->users, 1, "%zu", catalogue->users);
    cr_expect_eq(model->users, 2, "%zu", model->users);
    layers_give(the_layers, catalogue);
    catalogue = layers_take(the_layers);
    WAIT_UNTIL(((volatile const struct layer_model *)model)->users == 1); /* the old one ends */
    layers_give(the_layers, catalogue);
}

Test(layers_store, keeps_a_layer_in_use_without_its_file) {
    struct layer_use use = {0};
    char reason[LAYERS_REASON];
    const size_t bytes = open_for(3, 0);
    cr_assert(layer_file_use("a.h.0", ATTN_FLOAT32, &use, reason), "%s", reason);
    const float first = ((const float *)use.tensors[LAYER_W_Q].data)[0];
    layer_file_remove("a.safetensors");
    layers_refresh(the_layers);
    cr_expect_null(layer_file_reason("a.h.0"));
    cr_expect_eq(layers_load(the_layers).packed, bytes);
    cr_expect_eq(((const float *)use.tensors[LAYER_W_Q].data)[0], first);
    cr_expect_str_eq(use.layer->name, "a.h.0");
    layer_end(the_layers, &use);
    await_bytes(0);
}

/* --------------------------------------------------------------------------------- descriptions */

/* Expects how many layers are served, and how many entries are refused. */
static void expect_load(size_t layers, size_t refused) {
    layers_refresh(the_layers);
    const struct layers_load load = layers_load(the_layers);
    cr_expect(load.layers == layers && load.refused == refused, "%zu and %zu", load.layers,
              load.refused);
}

Test(layers_store, leaves_out_models_beyond_the_room_for_descriptions) {
    char reason[LAYERS_REASON];
    const size_t most =
        15 * (sizeof(struct layer) + sizeof(struct layers_entry)) + 2 * sizeof(struct layer_model);
    const struct layers_options options = {
        .folder = layer_folder, .memory = 1 << 20, .descriptions = most, .warn = layer_files_warn};
    layer_file_model("m.safetensors", "", 10, 4, 4, 1);
    the_layers = layers_open(&options, reason);
    cr_assert_not_null(the_layers, "%s", reason);
    expect_load(10, 0);
    cr_expect_str_eq(layer_warning, "");
    /* The served models stay, though the new name stands before theirs. */
    layer_file_model("a.safetensors", "", 10, 4, 4, 2);
    expect_load(10, 1);
    cr_expect_str_eq(layer_file_reason("m.h.9"), "");
    cr_expect_not_null(strstr(layer_file_reason("a"), "for the descriptions of all layers"));
    cr_expect_not_null(strstr(layer_warning, "1 files"), "%s", layer_warning);
    layer_warning[0] = '\0';
    layer_file_model("b.safetensors", "", 3, 4, 4, 3); /* a small one fits */
    expect_load(13, 1);
    cr_expect_str_eq(layer_warning, "");
    layer_file_remove("m.safetensors");
    expect_load(13, 0);
    cr_expect_str_eq(layer_file_reason("a.h.0"), "");
}
