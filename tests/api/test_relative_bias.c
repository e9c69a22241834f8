/*
 * test_relative_bias.c - a stored layer of T5 over a socket. Its weights are zeros and number k of
 * its table is k, so each masked score is the bucket of the distance from the query to the key,
 * plus the bias of the request.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"

#define LAYER "encoder.block.0.layer.0.SelfAttention"
#define PATH  "/layers/m." LAYER

enum {
    WEIGHTS = 16, /* numbers of q, k, v and o */
    BUCKETS = 32
};

static char folder[64];

static void write_file(const char *name, const void *bytes, size_t size) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

static void put_t5(void) {
    static const char config[] =
        "{\"model_type\":\"t5\",\"num_heads\":1,\"d_model\":2,\"d_kv\":2,"
        "\"relative_attention_num_buckets\":32,\"relative_attention_max_distance\":128}";
    static const char *const names[] = {"q", "k", "v", "o"};
    float numbers[WEIGHTS + BUCKETS] = {0};
    char header[1024];
    size_t size, used = 0;
    for (size_t i = 0; i < 4; i++) {
        used += (size_t)sprintf(header + used,
                                "%c\"" LAYER ".%s.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],"
                                "\"data_offsets\":[%zu,%zu]}",
                                i == 0 ? '{' : ',', names[i], 16 * i, 16 * (i + 1));
    }
    sprintf(header + used,
            ",\"" LAYER ".relative_attention_bias.weight\":{\"dtype\":\"F32\",\"shape\":[32,1],"
            "\"data_offsets\":[64,192]}}");
    for (size_t k = 0; k < BUCKETS; k++) {
        numbers[WEIGHTS + k] = (float)k;
    }
    char *file = binary_file(header, numbers, sizeof numbers, &size);
    write_file("m.config.json", config, strlen(config));
    write_file("m.safetensors", file, size);
    free(file);
}

static void start(void) {
    strcpy(folder, "/tmp/layers-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    put_t5();
    const char *const options[] = {"--layers", folder, NULL};
    daemon_start_with(options);
}

static void end(void) {
    char command[128];
    daemon_end();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(relative_bias, .init = start, .fini = end, .timeout = 60);

/* Keys up to the query are in the buckets 0, 1, 2 ..., and those after it in 17, 18 ... */
Test(relative_bias, counts_from_the_position_of_the_query) {
#define TWO "{\"X\":[[[1,2],[3,4],[5,6]],[[1,2],[3,4],[5,6]]],\"return\":[\"masked_scores\"]"
#define TOP "[[0,17,18],[1,0,17],[2,1,0]]"
    static const char *const cases[][2] = {
        {TWO "}", "[[" TOP "],[" TOP "]]"},
        {TWO ",\"alignment\":\"bottom_right\"}", "[[" TOP "],[" TOP "]]"},
        {TWO ",\"lengths\":[3,2]}", "[[" TOP "],[[[0,17,null],[1,0,null],[2,1,null]]]]"},
        {TWO ",\"lengths\":[3,2],\"alignment\":\"bottom_right\"}",
         "[[" TOP "],[[[17,18,null],[0,17,null],[1,0,null]]]]"},
        {TWO ",\"lengths\":[3,1],\"causal\":\"bottom_right\"}",
         "[[[[0,null,null],[1,0,null],[2,1,0]]],[[[null,null,null],[null,null,null],[0,null,null]]]"
         "]"},
        {TWO ",\"lengths\":[2,3],\"alignment\":\"bottom_right\",\"bias\":[[100,0,0]]}",
         "[[[[117,18,null],[100,17,null],[101,0,null]]],[[[100,17,18],[101,0,17],[102,1,0]]]]"},
        {TWO ",\"lengths\":[2,3],\"alignment\":\"bottom_right\",\"bias\":[[[[100,0,0]]]]}",
         "[[[[117,18,null],[100,17,null],[101,0,null]]],[[[100,17,18],[101,0,17],[102,1,0]]]]"},
        {TWO
         ",\"lengths\":[2,3],\"alignment\":\"bottom_right\",\"bias\":[[[[100,0,0]]],[[[0,0,0]]]]}",
         "[[[[117,18,null],[100,17,null],[101,0,null]]],[" TOP "]]"},
    };
    for (int status = 0; status != 200;) {
        struct client_response response = daemon_ask("GET", PATH, "");
        status = response.status;
        client_response_free(&response);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_difference difference;
        struct cJSON *is = daemon_ask_json(PATH "/attention", cases[i][0], strlen(cases[i][0]));
        struct cJSON *want = json_parse(cases[i][1], strlen(cases[i][1]));
        cr_expect(json_near(json_get(is, "masked_scores"), want, 0, 0, &difference), "case %zu", i);
        json_free(is);
        json_free(want);
    }
}
