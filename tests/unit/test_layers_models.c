/*
 * test_layers_models.c - the models of a folder: which files are models, what changes them, how
 * many are taken, and names that stand for layers of two models.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layer_files.h"
#include "layers/folder.h"
#include "support/descriptors.h"

static void open_models(void) {
    layer_folder_begin();
    layer_files_open(1 << 20);
}

TestSuite(layers_models, .init = open_models, .fini = layer_files_end, .timeout = 60);

static void make_folder(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", layer_folder, name);
    cr_assert_eq(mkdir(path, 0700), 0);
}

/* Expects that a layer or a model is served (NULL), is not listed (""), or is refused for a reason
 * with this text. */
static void expect_reason(const char *name, const char *text) {
    const char *reason = layer_file_reason(name);
    if (text == NULL) {
        cr_expect(reason != NULL && reason[0] == '\0', "%s: %s", name,
                  reason == NULL ? "not listed" : reason);
    } else if (text[0] == '\0') {
        cr_expect_null(reason, "%s: %s", name, reason);
    } else {
        cr_expect(reason != NULL && strstr(reason, text) != NULL, "%s: %s", name,
                  reason == NULL ? "not listed" : reason);
    }
}

/* Returns the columns of X of a layer, or 0. */
static size_t d_model_of(const char *name) {
    layers_refresh(the_layers);
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer *layer = layers_find(catalogue, name);
    const size_t d_model = layer == NULL ? 0 : layer->d_model;
    layers_give(the_layers, catalogue);
    return d_model;
}

/* Writes an index of two files: NAME-1.safetensors with layer a, and NAME-2.safetensors with b. */
static void put_sharded(const char *name, size_t inputs) {
    char path[128], text[1024];
    const char *slash = strrchr(name, '/'), *own = slash == NULL ? name : slash + 1;
    int size = sprintf(text, "{\"weight_map\":{");
    for (int i = 0; i < 6; i++) {
        size += sprintf(text + size, "%s\"%c.h.0.W_%c\":\"%s-%d.safetensors\"", i > 0 ? "," : "",
                        i < 3 ? 'a' : 'b', "QKV"[i % 3], own, i / 3 + 1);
    }
    sprintf(text + size, "}}");
    snprintf(path, sizeof path, "%s-1.safetensors", name);
    layer_file_model(path, "a.", 1, inputs, 2, 1);
    snprintf(path, sizeof path, "%s-2.safetensors", name);
    layer_file_model(path, "b.", 1, inputs, 2, 2);
    snprintf(path, sizeof path, "%s.safetensors.index.json", name);
    layer_file_text(path, text);
}

/* ------------------------------------------------------------------------------------ the forms */

Test(layers_models, have_the_names_of_their_files_and_folders) {
    make_folder("alone");
    make_folder("two");
    layer_file_model("one.safetensors", "", 1, 2, 2, 0);
    layer_file_model("alone/model.safetensors", "", 1, 2, 2, 0);
    layer_file_model("two/x.safetensors", "", 1, 2, 2, 0);
    layer_file_model("two/y.safetensors", "", 1, 2, 2, 0);
    layer_file_model(".hidden.safetensors", "", 1, 2, 2, 0);
    layer_file_text("readme.txt", "no model");
    static const char *const served[] = {"one.h.0", "alone.h.0", "two.x.h.0", "two.y.h.0"};
    for (size_t i = 0; i < COUNT(served); i++) {
        expect_reason(served[i], NULL);
    }
    expect_reason("alone.model.h.0", "");
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    cr_expect_eq(catalogue->count, 4);
    layers_give(the_layers, catalogue);
}

/* A file that an index may name is no model. Without the index it is one. */
Test(layers_models, may_have_several_files) {
    put_sharded("m", 2);
    layer_file_model("m.safetensors", "c.", 1, 2, 2, 0); /* the index has the same name */
    layer_file_model("mm-1.safetensors", "", 1, 2, 2, 0);
    expect_reason("m-1.a.h.0", "");
    expect_reason("mm-1.h.0", NULL);
    expect_reason("m.safetensors", "m.safetensors.index.json would have the same name");
    expect_reason("m.safetensors.index.json", "m.safetensors would have the same name");
    layer_file_remove("m.safetensors");
    expect_reason("m.a.h.0", NULL);
    expect_reason("m.b.h.0", NULL);
    layer_file_remove("m.safetensors.index.json");
    expect_reason("m.a.h.0", "");
    expect_reason("m-1.a.h.0", NULL);
    expect_reason("m-2.b.h.0", NULL);
}

/* The names of indices may begin with those of others, and have as many dashes as they can. */
Test(layers_models, may_have_names_of_many_dashes) {
    put_sharded("a", 2);
    put_sharded("a-b", 2);
    put_sharded("a--", 2);
    layer_file_model("a-b.safetensors", "", 1, 2, 2, 0);
    layer_file_model("-a-.safetensors", "", 1, 2, 2, 0);
    layer_file_model("b-a-b-1.safetensors", "", 1, 2, 2, 0);
    expect_reason("a.a.h.0", NULL);
    expect_reason("a-b.b.h.0", NULL);
    expect_reason("a--.a.h.0", NULL);
    expect_reason("a-b-1.a.h.0", "");
    expect_reason("a---1.a.h.0", "");
    expect_reason("a-b.h.0", ""); /* "a" may name the file */
    expect_reason("-a-.h.0", NULL);
    expect_reason("b-a-b-1.h.0", NULL);
}

/* The settings of a model may be in the metadata of any of its files. */
Test(layers_models, have_the_metadata_of_one_of_their_files) {
    layer_file_described("m-1.safetensors", "", "x 1", NULL, NULL);
    layer_file_model("m-2.safetensors", "", 1, 2, 2, 0);
    layer_file_text("m.safetensors.index.json",
                    "{\"weight_map\":{\"x\":\"m-1.safetensors\",\"y\":\"m-2.safetensors\"}}");
    expect_reason("m.h.0", NULL);
}

/* The files of a model in a folder of its own are those of this folder. */
Test(layers_models, are_read_again_when_one_file_changes) {
    make_folder("sub");
    put_sharded("sub/m", 2);
    put_sharded("n", 2);
    cr_expect_eq(d_model_of("sub.b.h.0"), 2);
    cr_expect_eq(d_model_of("n.b.h.0"), 2);
    layer_file_model("sub/m-2.safetensors", "b.", 1, 3, 2, 2);
    cr_expect_eq(d_model_of("sub.b.h.0"), 3);
    cr_expect_eq(d_model_of("sub.a.h.0"), 2);
    cr_expect_eq(d_model_of("n.b.h.0"), 2);
    layer_file_model("n-2.safetensors", "b.", 1, 5, 2, 2);
    cr_expect_eq(d_model_of("n.b.h.0"), 5);
    cr_expect_eq(d_model_of("sub.b.h.0"), 3);
    layer_file_remove("n-1.safetensors");
    expect_reason("n.safetensors.index.json", "n-1.safetensors cannot be opened");
}

/* NAME.config.json belongs to NAME.safetensors, and config.json to the other files beside it. */
Test(layers_models, follow_their_config) {
    static const char tensors[] = "W_Q 4x4, W_K 4x4, W_V 4x4";
    static const struct {
        const char *file, *text, *reason[3]; /* a, b, sub */
    } steps[] = {
        {"none", "", {"heads is not known", "heads is not known", "heads is not known"}},
        {"a.config.json", "{\"heads\":2}", {NULL, "heads is not known", "heads is not known"}},
        {"config.json", "{\"heads\":3}", {NULL, "3 heads", "heads is not known"}},
        {"a.config.json", "{\"heads\":5}", {"5 heads", "3 heads", "heads is not known"}},
        {"sub/config.json", "{\"heads\":1}", {"5 heads", "3 heads", NULL}},
        {"sub/config.json", "{\"heads\":", {"5 heads", "3 heads", "config.json is not JSON"}},
    };
    static const char *const models[][2] = {
        {"a.attention", "a"}, {"b.attention", "b"}, {"sub.attention", "sub"}};
    make_folder("sub");
    layer_file_described("a.safetensors", "", tensors, "", NULL);
    layer_file_described("b.safetensors", "", tensors, "", NULL);
    layer_file_described("sub/x.safetensors", "", tensors, "", NULL);
    for (size_t i = 0; i < COUNT(steps); i++) {
        layer_file_text(steps[i].file, steps[i].text);
        for (size_t k = 0; k < COUNT(models); k++) {
            const char *reason = layer_file_reason(models[k][0]);
            reason = reason != NULL ? reason : layer_file_reason(models[k][1]);
            const char *want = steps[i].reason[k];
            cr_expect(reason != NULL &&
                          (want == NULL ? reason[0] == '\0' : strstr(reason, want) != NULL),
                      "step %zu, %s: %s", i, models[k][0], reason == NULL ? "not listed" : reason);
        }
    }
}

Test(layers_models, refuse_an_index_that_is_wrong) {
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"{", "is not JSON as it should be"},
        {"[1]", "has no object \"weight_map\""},
        {"{}", "has no object \"weight_map\""},
        {"{\"weight_map\":{}}", "has no object \"weight_map\""},
        {"{\"weight_map\":[\"x-1.safetensors\"]}", "has no object \"weight_map\""},
        {"{\"weight_map\":{\"a\":1}}", "names a file that is not x-*.safetensors"},
        {"{\"weight_map\":{\"a\":\"y-1.safetensors\"}}", "names a file that is not x-*"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"}}", "names a file that is not x-*"},
        {"{\"weight_map\":{\"a\":\"x-1.bin\"}}", "names a file that is not x-*"},
        {"{\"weight_map\":{\"a\":\"x-/../y.safetensors\"}}", "names a file that is not x-*"},
        {"{\"weight_map\":{\"a\":\"x-9.safetensors\"}}", "x-9.safetensors cannot be opened"},
        {"{\"weight_map\":{\"a\":\"x-1.safetensors\",\"b\":\"x-2.safetensors\"}}",
         "two of its files have the tensor h.0.W_K"},
    };
    layer_file_model("x-1.safetensors", "", 1, 2, 2, 0);
    layer_file_model("x-2.safetensors", "", 1, 2, 2, 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        layer_file_text("x.safetensors.index.json", rows[i].text);
        expect_reason("x.safetensors.index.json", rows[i].reason);
    }
    char *text = malloc(1 << 16);
    int size = sprintf(text, "{\"weight_map\":{");
    for (int i = 0; i < 257; i++) {
        size += sprintf(text + size, "\"t%d\":\"x-%d.safetensors\",", i, i);
    }
    sprintf(text + size, "\"u\":\"x-7.safetensors\"}}");
    layer_file_text("x.safetensors.index.json", text);
    expect_reason("x.safetensors.index.json", "names 257 files; at most 256 are read");
    free(text);
}

/* Somebody who puts another file there than a safetensors file is told what it is. */
Test(layers_models, of_other_forms_are_named) {
    make_folder("a");
    make_folder("b");
    make_folder("d"); /* whose name a model has */
    layer_file_text("a/optimizer.pt", "");
    layer_file_text("training_args.bin", "");
    layer_file_text("a/pytorch_model-1.bin", "");
    layer_file_text("a/pytorch_model-2.bin", "");
    layer_file_text("b/pytorch_model.bin", "");
    layer_file_model("b/x.safetensors", "", 1, 4, 2, 1);
    layer_file_text("c.gguf", "");
    layer_file_text("b.pth", "");
    layer_file_model("d.safetensors", "", 1, 4, 2, 1);
    layer_file_text("d.bin", "");
    layer_file_text("e.safetensors", "GGUF\3______");
    layer_file_text("f.safetensors", "PK\3\4______");
    layer_file_tensors(
        "g.safetensors",
        "{\"q_proj.qweight\":{\"dtype\":\"I32\",\"shape\":[0],\"data_offsets\":[0,0]}}", NULL, 0);
    layer_file_text("g.config.json", "{\"quantization_config\":{\"quant_method\":\"gptq\"}}");
    layer_file_tensors(
        "h.safetensors",
        "{\"a.lm_head\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"a.q_proj.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        NULL, 0);
    expect_reason("h", "it is an adapter (LoRA), which has no weights of an attention");
    expect_reason(
        "a", "pytorch_model-1.bin is a pickle of PyTorch, which may run code; only safetensors");
    expect_reason("b.h.0", NULL);
    expect_reason("training_args", "");
    expect_reason("c", "c.gguf is a file of llama.cpp");
    expect_reason("d.h.0", NULL);
    expect_reason("e", "e.safetensors is a GGUF file of llama.cpp, and no safetensors file");
    expect_reason("f", "a zip archive, as torch.save() writes it");
    expect_reason("g", "that is known; its quant_method is gptq");
}

/* ----------------------------------------------------------------------------------- the limits */

/* The files of the operator may hold more than the body of a request. The largest models have
 * 50,000 tensors and more. */
Test(layers_models, may_have_many_tensors) {
    enum {
        TENSORS = 50000
    };
    static const float data[12];
    char *header = malloc(TENSORS * 80), *index = malloc(TENSORS * 80), *config = malloc(1 << 16);
    int size = sprintf(header, "{\"__metadata__\":{\"a\":\"b\"}"), map = 0;
    map += sprintf(index, "{\"weight_map\":{\"a.W_Q\":\"m-1.safetensors\"");
    for (int i = 0; i < TENSORS; i++) {
        size += sprintf(header + size,
                        ",\"experts.%d\":{\"dtype\":\"F8_E4M3\",\"shape\":[0],\"data_offsets\":"
                        "[0,0]}",
                        i);
        map += sprintf(index + map, ",\"experts.%d\":\"m-1.safetensors\"", i);
    }
    for (int i = 0; i < 3; i++) {
        size += sprintf(header + size,
                        ",\"a.W_%c\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[%d,%d]}",
                        "QKV"[i], 16 * i, 16 * i + 16);
    }
    sprintf(header + size, "}");
    sprintf(index + map, "}}");
    size = sprintf(config, "{\"heads\":1");
    for (int i = 0; i < 1500; i++) {
        size += sprintf(config + size, ",\"_%d\":null", i);
    }
    sprintf(config + size, "}");
    layer_file_tensors("m-1.safetensors", header, data, sizeof data);
    layer_file_text("config.json", config);
    layer_file_text("m.safetensors.index.json", index);
    expect_reason("m.safetensors.index.json", NULL);
    expect_reason("m.a", NULL);
    free(header);
    free(index);
    free(config);
}

/* A header may take much memory although it is short. */
Test(layers_models, take_memory_within_a_limit) {
    const size_t size = (size_t)6 << 20;
    char *header = malloc(size + 64), *end = header + sprintf(header, "{\"a\":[{},");
    while (end < header + size) {
        end += sprintf(end, "[1],");
    }
    sprintf(end, "1]}");
    layer_file_tensors("deep.safetensors", header, NULL, 0);
    expect_reason("deep", "reading it takes more than 67108864 bytes of memory");
    free(header);
}

/* Layers take more memory than the names of their tensors. */
Test(layers_models, have_layers_within_a_limit) {
    enum {
        LAYERS = 29000
    };
    char *header = malloc((size_t)16 << 20), *end = header;
    for (int i = 0; i < LAYERS; i++) {
        end += sprintf(end,
                       ",\"%x.c_attn.weight\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,"
                       "0]},\"%x.c_proj.weight\":{\"dtype\":\"U8\",\"shape\":[0],"
                       "\"data_offsets\":[0,0]}",
                       i, i);
    }
    header[0] = '{';
    strcpy(end, "}");
    layer_file_tensors("m.safetensors", header, NULL, 0);
    expect_reason("m", "reading it takes more than 67108864 bytes of memory");
    free(header);
}

/* Looks at the folder, of which `most` files are taken. Returns the models as text: their names, a
 * question mark after those with a config, and the reason of the line ".". Owned. */
static char *scan(struct folder_seen *seen, size_t most) {
    const int folder = open(layer_folder, O_RDONLY | O_DIRECTORY);
    size_t count;
    struct model_source *list = folder_scan(folder, most, seen, &count);
    char *text = calloc(count + 1, 400), *end = text;
    cr_assert(list != NULL && text != NULL);
    for (size_t i = 0; i < count; i++) {
        end += sprintf(end, "%s%s%s ", list[i].name, list[i].config[0] != '\0' ? "?" : "",
                       list[i].name[0] == '.' ? list[i].reason : "");
    }
    free(list);
    close(folder);
    return text;
}

#define LEFT_OUT(count)                                                                            \
    "." count " files and folders in this folder are left out: at most 10 are taken, those that "  \
    "were there before and then by name; this limit is fixed "

/* Entries of the last scan stay, settings come before tensors, and the rest is counted. */
Test(layers_models, beyond_the_limit_are_left_out_with_a_reason) {
    struct folder_seen seen = {0};
    const struct {
        const char *put, *remove, *models;
    } steps[] = {
        {"z.safetensors", NULL, "sub z "},
        {"sub/y.safetensors", NULL, "sub z "},
        {"sub/config.json", NULL, "sub? z "},
        {"k0.config.json", NULL, "sub? z "},
        {"k1.config.json", NULL, "sub? z "},
        {"k2.config.json", NULL, "sub? z "},
        {"k3.config.json", NULL, "sub? z "},
        {"k4.config.json", NULL, "sub? z "},
        {"k5.config.json", NULL, "sub? z "}, /* ten: the folder counts, too */
        {"a.safetensors", NULL, LEFT_OUT("1") "sub? z "},
        {"b.config.json", NULL, LEFT_OUT("2") "sub? z "},
        {"b.safetensors", NULL, LEFT_OUT("3") "sub? z "},
        {NULL, "k0.config.json", LEFT_OUT("2") "sub? z "}, /* b's config, and not a, is taken */
        {NULL, "k1.config.json", LEFT_OUT("1") "a sub? z "},
        {NULL, "k2.config.json", "a b? sub? z "},
        {"a.config.json", NULL, LEFT_OUT("1") "a b? sub? z "},
        {"sub/a.safetensors", NULL, LEFT_OUT("2") "a b? sub? z "},
        {NULL, "z.safetensors", LEFT_OUT("1") "a? b? sub? "},
    };
    char *text;
    make_folder("sub");
    for (size_t i = 0; i < COUNT(steps); i++) {
        if (steps[i].put != NULL) {
            layer_file_text(steps[i].put, "");
        } else {
            layer_file_remove(steps[i].remove);
        }
        text = scan(&seen, 10);
        cr_expect_str_eq(text, steps[i].models, "step %zu: %s", i, text);
        free(text);
    }
    folder_forget(&seen); /* without a memory, settings come first, and then names */
    layer_file_text("z.safetensors", "");
    text = scan(&seen, 10);
    cr_expect_str_eq(text, LEFT_OUT("2") "a? b? sub? ", "%s", text);
    free(text);
    for (int i = 0; i < 60; i++) { /* more than are kept at one time */
        char name[32];
        snprintf(name, sizeof name, "%c%d.safetensors", i % 2 == 0 ? 'A' : 'y', i);
        layer_file_text(name, "");
    }
    text = scan(&seen, 10);
    cr_expect_not_null(strstr(text, "a? b? sub? "), "%s", text);
    cr_expect_eq(strncmp(text, ".62 files", 9), 0, "%s", text);
    free(text);
    folder_forget(&seen);
}

/* The log says once what is left out, and again when this changes. */
Test(layers_models, beyond_the_limit_are_logged) {
    char reason[LAYERS_REASON];
    const struct layers_options options = {
        .folder = layer_folder, .memory = 1, .files = 2, .warn = layer_files_warn};
    struct layers *usual = the_layers;
    layer_file_model("b.safetensors", "", 1, 2, 2, 0);
    layer_file_model("c.safetensors", "", 1, 2, 2, 0);
    the_layers = layers_open(&options, reason);
    cr_assert_not_null(the_layers);
    expect_reason("c.h.0", NULL);
    cr_expect_eq(layer_warnings, 0);
    for (unsigned i = 1; i < 4; i++) {
        char name[32], text[128];
        snprintf(name, sizeof name, "a%u.safetensors", i);
        layer_file_model(name, "", 1, 2, 2, 0);
        snprintf(text, sizeof text, "%u files and folders in this folder are left out", i);
        expect_reason(".", text);
        expect_reason("c.h.0", NULL);
        cr_expect_eq(layer_warnings, i);
        cr_expect_not_null(strstr(layer_warning, text), "%s", layer_warning);
    }
    layer_file_model("b.safetensors", "", 1, 3, 2, 0); /* what is left out is the same */
    cr_expect_eq(d_model_of("b.h.0"), 3);
    cr_expect_eq(layer_warnings, 3);
    layer_file_remove("a1.safetensors");
    layer_file_remove("a2.safetensors");
    layer_file_remove("a3.safetensors");
    expect_reason(".", "");
    layers_close(the_layers);
    the_layers = usual;
}

/* No file stays open: `before` has the descriptor of opendir() and two more entries, so three files
 * may be open at a time. While there are no descriptors, what was served stays. */
Test(layers_models, need_few_descriptors) {
    char name[64];
    expect_reason("m", "");
    const size_t before = count_descriptors(0);
    const struct rlimit limit = {before, before};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "m%d.safetensors", i);
        layer_file_model(name, "", 1, 2, 2, 0);
    }
    for (int i = 0; i < 100; i++) {
        struct layer_use use = {0};
        char reason[LAYERS_REASON];
        snprintf(name, sizeof name, "m%d.h.0", i);
        expect_reason(name, NULL);
        cr_expect(layer_file_use(name, ATTN_FLOAT32, &use, reason), "%s", reason);
        layer_end(the_layers, &use);
    }
    cr_expect_eq(count_descriptors(0), before);
    layer_file_model("m7.safetensors", "", 1, 3, 2, 0);
    int fds[8], count = 0;
    while (count < 8 && (fds[count] = open("/dev/null", O_RDONLY)) >= 0) {
        count++;
    }
    cr_assert_lt(count, 8);
    cr_expect_eq(d_model_of("m7.h.0"), 2);
    while (count > 0) {
        close(fds[--count]);
    }
    cr_expect_eq(d_model_of("m7.h.0"), 3);
}

/* ------------------------------------------------------------------------------------ the names */

/* Returns how many layers a name stands for, or SIZE_MAX if it is ambiguous. */
static size_t count_under(const char *name) {
    size_t count;
    const struct layer_model *other;
    layers_refresh(the_layers);
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer *first = layers_under(catalogue, name, &count, &other);
    cr_expect_eq(first == NULL, count == 0);
    layers_give(the_layers, catalogue);
    return other != NULL ? SIZE_MAX : count;
}

Test(layers_models, never_share_the_name_of_a_layer) {
    layer_file_model("m.safetensors", "v2.", 3, 2, 2, 0);
    expect_reason("m.v2.h.1", NULL);
    cr_expect_eq(count_under("m.v2"), 3);
    layer_file_model("m.v2.safetensors", "", 2, 3, 2, 0);
    expect_reason("m.v2.h.0", "its name also stands for a layer of the model m");
    expect_reason("m.v2.h.1", "its name also stands for a layer of the model m");
    expect_reason("m.v2.h.2", NULL); /* only m has it */
    cr_expect_eq(count_under("m"), 3);
    cr_expect_eq(count_under("m.v2"), SIZE_MAX);
    cr_expect_eq(count_under("m.v2.h"), SIZE_MAX);
    cr_expect_eq(count_under("m.v2.h.1"), 0);
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    size_t refused = 0;
    for (size_t i = 0; i < catalogue->count; i++) {
        const struct layer_model *model = catalogue->models[i];
        for (size_t k = 0; k < model->count; k++) {
            const char *other = i == 0 ? "the model m.v2:" : "the model m:";
            refused += strstr(layers_reason(catalogue, &model->layers[k]), other) != NULL;
        }
    }
    cr_expect_eq(refused, 4);
    layers_give(the_layers, catalogue);
    layer_file_remove("m.safetensors");
    expect_reason("m.v2.h.1", NULL);
    expect_reason("m.v2.h.2", "");
    cr_expect_eq(count_under("m.v2"), 2);
    cr_expect_eq(d_model_of("m.v2.h.1"), 3);
}

/* A layer may have the name of all layers of another model, or of a part of them. */
Test(layers_models, never_share_the_name_of_several_layers) {
    layer_file_described("m.safetensors", "v2., v2.h., v2b.", "W_Q 1x1, W_K 1x1, W_V 1x1",
                         "\"heads\":\"1\"", NULL);
    expect_reason("m.v2", NULL);
    expect_reason("m.v2.h", NULL);
    cr_expect_eq(count_under("m"), 3);
    cr_expect_eq(count_under("m.v2"), 1); /* and not v2b */
    layer_file_model("m.v2.safetensors", "", 1, 2, 2, 0);
    expect_reason("m.v2", "its name also stands for a layer of the model m.v2");
    expect_reason("m.v2.h", "its name also stands for a layer of the model m.v2");
    expect_reason("m.v2.h.0", NULL);
    layer_file_remove("m.v2.safetensors");
    layer_file_model("m.v2.x.safetensors", "", 1, 2, 2, 0);
    expect_reason("m.v2", NULL); /* m.v2.x has no layer of which m has another part */
    expect_reason("m.v2.h", NULL);
    expect_reason("m.v2.x.h.0", NULL);
    cr_expect_eq(count_under("m.v2.x"), 1);
}

/* The other way round: the longer name is the layer, and the shorter one has layers below it. */
Test(layers_models, never_share_a_name_with_a_model_of_a_shorter_name) {
    layer_file_model("m.safetensors", "v2.", 2, 2, 2, 0);
    layer_file_described("m.v2.safetensors", "h.", "W_Q 1x1, W_K 1x1, W_V 1x1", "\"heads\":\"1\"",
                         NULL);
    expect_reason("m.v2.h", "its name also stands for a layer of the model m:");
    expect_reason("m.v2.h.1", NULL);
    layer_file_text("m.v2.config.json", "{\"strange_head\":1}"); /* its own fault comes first */
    expect_reason("m.v2.h", "strange_head (1)");
}

Test(layers_models, with_names_that_no_path_has_are_refused) {
    char name[256], longest[256];
    memset(longest, 'a', 128);
    strcpy(longest + 128, ".safetensors");
    memset(name, 'a', 128);
    strcpy(name + 128, "-.safetensors"); /* it comes before the other one */
    layer_file_model(longest, "", 1, 2, 2, 0);
    layer_file_model(name, "", 1, 2, 2, 0);
    layer_file_model("a b.safetensors", "", 1, 2, 2, 0);
    layer_file_model("\xC3\xA9.safetensors", "", 1, 2, 2, 0);
    expect_reason(name, "the name of a model has 1 to 128");
    expect_reason(longest, NULL);
    longest[128] = '\0';
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer_model *model = layers_find_model(catalogue, longest);
    cr_assert_not_null(model);
    cr_expect_str_eq(model->reason, "");
    cr_expect_eq(catalogue->count, 4);
    layers_give(the_layers, catalogue);
    expect_reason("a b.safetensors", "the name of a model has 1 to 128");
    expect_reason("??.safetensors", "the name of a model has 1 to 128");
}
