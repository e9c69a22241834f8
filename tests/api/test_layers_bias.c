/*
 * test_layers_bias.c - the relative bias of stored layers of T5 over a socket. Their weights are
 * zeros, and row k of the table is k and k + 100, so each masked score of the first head is the
 * bucket of the distance from the query to the key, plus the bias of the request.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "support/expect.h"
#include "support/layer_folder.h"

#define LAYER   "block.0.layer.0.SelfAttention"
#define ENCODER "/layers/m.encoder." LAYER "/attention"
#define DECODER "/layers/m.decoder." LAYER "/attention"

static void start_t5(void) {
    static float numbers[2][128]; /* the matrices of a stack, and its table */
    for (size_t i = 0; i < 2 * 64; i++) {
        const size_t row = i % 64 / 2;
        numbers[i / 64][64 + i % 64] = (float)(row + i % 2 * 100);
    }
    layer_folder_begin();
    layer_file_text("m.config.json",
                    "{\"model_type\":\"t5\",\"num_heads\":2,\"d_model\":4,\"d_kv\":2,"
                    "\"relative_attention_num_buckets\":32}");
    layer_file_described("m.safetensors", "encoder." LAYER "., decoder." LAYER ".",
                         "q.weight 4x4, k.weight 4x4, v.weight 4x4, o.weight 4x4, "
                         "relative_attention_bias.weight 32x2",
                         "", *numbers);
    layer_folder_serve((const char *const[]){NULL});
}

TestSuite(layers_bias, .init = start_t5, .fini = layer_folder_stop, .timeout = 1200);

/* In an encoder the keys up to the query are in the buckets 0, 1, 2 ..., and those after it in 17,
 * 18 ... In a decoder all keys are before the query. The number of past keys is neither that of the
 * queries nor the columns of a head. Where a row has one head only, it is the first one. */
Test(layers_bias, counts_from_the_position_of_the_query) {
#define X    "\"X\":[[1,2,3,4],[3,4,5,6],[5,6,7,8]]"
#define TWO  "\"X\":[[[1,2,3,4],[3,4,5,6]],[[1,2,3,4],[3,4,5,6]]]"
#define FIVE "[[0,0],[0,0],[0,0],[0,0],[0,0]]"
#define PAST ",\"past_K\":[" FIVE "," FIVE "],\"past_V\":[" FIVE "," FIVE "]"
    static const struct {
        const char *path, *members, *scores;
    } rows[] = {
        {ENCODER, X, "[[[0,17,18],[1,0,17],[2,1,0]],[[100,117,118],[101,100,117],[102,101,100]]]"},
        {ENCODER, X ",\"alignment\":\"bottom_right\"", "[[[0,17,18],[1,0,17],[2,1,0]],"},
        {ENCODER, X ",\"lengths\":[2]", "[[[0,17,null],[1,0,null],[2,1,null]],"},
        {ENCODER, X ",\"lengths\":[2],\"alignment\":\"bottom_right\"",
         "[[[17,18,null],[0,17,null],[1,0,null]],"},
        {ENCODER, X ",\"lengths\":[1],\"causal\":\"bottom_right\"",
         "[[[null,null,null],[null,null,null],[0,null,null]],"},
        {ENCODER, X ",\"lengths\":[2],\"alignment\":\"bottom_right\",\"bias\":[[50,0,0]]",
         "[[[67,18,null],[50,17,null],[51,0,null]],"},
        {ENCODER, X ",\"bias\":[[[50,0,0]],[[0,9,0]]]",
         "[[[50,17,18],[51,0,17],[52,1,0]],[[100,126,118],[101,109,117],[102,110,100]]]"},
        {ENCODER,
         TWO ",\"lengths\":[1,2],\"alignment\":\"bottom_right\",\"bias\":[[[[50,0]]],[[[0,9]]]]",
         "[[[[67,null],[50,null]],[[167,null],[150,null]]],"
         "[[[0,26],[1,9]],[[100,126],[101,109]]]]"},
        {ENCODER, TWO ",\"lengths\":[1,2],\"alignment\":\"bottom_right\",\"bias\":[[50,0]]",
         "[[[[67,null],[50,null]],[[167,null],[150,null]]],"
         "[[[50,17],[51,0]],[[150,117],[151,100]]]]"},
        {ENCODER, TWO ",\"lengths\":[1,2],\"alignment\":\"bottom_right\",\"bias\":[[[[50,0]]]]",
         "[[[[67,null],[50,null]],[[167,null],[150,null]]],"
         "[[[50,17],[51,0]],[[150,117],[151,100]]]]"},
        {ENCODER, TWO ",\"bias\":[[[[50,0]]],[[[0,9]]]]",
         "[[[[50,17],[51,0]],[[150,117],[151,100]]],[[[0,26],[1,9]],[[100,126],[101,109]]]]"},
        {DECODER, X, "[[[0,null,null],[1,0,null],[2,1,0]],"},
        {DECODER, X PAST,
         "[[[5,4,3,2,1,0,null,null],[6,5,4,3,2,1,0,null],[7,6,5,4,3,2,1,0]],"
         "[[105,104,103,102,101,100,null,null],"},
        {DECODER, X PAST ",\"dtype\":\"float64\",\"bias\":[[0.5,-1,0.25,2,0,-0.75,1,0.125]]",
         "[[[5.5,3,3.25,4,1,-0.75,null,null],[6.5,4,4.25,5,2,0.25,1,null],"
         "[7.5,5,5.25,6,3,1.25,2,0.125]],[[105.5,103,"},
        {DECODER, X PAST ",\"dtype\":\"float64\",\"bias\":[[[[[0.5,-1,0.25,2,0,-0.75,1,0.125]]]]]",
         "[[[5.5,3,3.25,4,1,-0.75,null,null],[6.5,4,4.25,5,2,0.25,1,null],"
         "[7.5,5,5.25,6,3,1.25,2,0.125]],[[105.5,103,"},
        {DECODER, X PAST ",\"dtype\":\"float64\",\"bias\":[0.5,-1,0.25,2,0,-0.75,1,0.125]",
         "[[[5.5,3,3.25,4,1,-0.75,null,null],[6.5,4,4.25,5,2,0.25,1,null],"
         "[7.5,5,5.25,6,3,1.25,2,0.125]],[[105.5,103,"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[1024];
        snprintf(body, sizeof body, "{\"return\":[\"masked_scores\"],%s}", rows[i].members);
        expect_answer("POST", rows[i].path, NULL, body, 200, rows[i].scores);
    }
}

/* A bias of the request that fits no call is refused as it is for every other call. */
Test(layers_bias, refuses_what_is_no_bias) {
    static const char *const rows[][2] = {
        {"[[[[[[[[[0]]]]]]]]]", "bias"}, {"[[1,2,3]]", "bias"}, {"[[[0]],[[0]],[[0]]]", "bias"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"X\":[[1,2,3,4],[8,7,6,5]],\"bias\":%s}", rows[i][0]);
        expect_answer("POST", DECODER, NULL, body, 422, rows[i][1]);
    }
}

/* The layer adds a bias to that of the request. */
Test(layers_bias, has_no_gradient) {
    expect_answer("POST", ENCODER, NULL,
                  "{" X
                  ",\"bias\":[[0]],\"grad_lse\":[[1,1,1],[1,1,1]],\"return\":[\"grad_bias\"]}",
                  422, "grad_bias: the layer m.encoder." LAYER " has a relative bias of its own");
}
