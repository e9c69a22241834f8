/*
 * test_options_of_calls.c - every option and every result of every endpoint. The answers were
 * worked out by hand and are compared byte by byte. With scale 0 all scores are equal, so weights
 * are 1, 1/2 or 1/4 and outputs are plain means. The tests know the service by its socket only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

TestSuite(options_of_calls, .init = daemon_start_plain, .fini = daemon_end, .timeout = 120);

struct call {
    const char *name;
    const char *body;
    const char *answer; /* without the newline that ends every answer */
};

static void expect_answers(const char *path, const struct call *calls, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct client_response response;
        cr_assert(client_request(the_daemon.port, "POST", path,
                                 "Content-Type: application/json\r\n", calls[i].body,
                                 strlen(calls[i].body), &response),
                  "%s: %s: no answer", path, calls[i].name);
        size_t size = strlen(calls[i].answer);
        cr_expect(response.status == 200 && response.size == size + 1 &&
                      memcmp(response.body, calls[i].answer, size) == 0 &&
                      response.body[size] == '\n',
                  "%s: %s:\n     %d %s expected %s", path, calls[i].name, response.status,
                  response.body, calls[i].answer);
        client_response_free(&response);
    }
}

/* ----------------------------------------------------------------------------------- attention */

/* MEAN has one query and two keys, MEAN2 has two queries; all scores are 0. */
#define ONE   "\"Q\":[[1,2]],\"K\":[[1,0],[0,1]],\"V\":[[5,6],[7,8]]"
#define MEAN  ONE ",\"scale\":0"
#define MEAN2 "\"Q\":[[1,2],[3,4]],\"K\":[[1,0],[0,1]],\"V\":[[5,6],[7,8]],\"scale\":0"

/* Four equal keys with the values 1, 2, 3, 6. */
#define FOUR  "\"Q\":[[1]],\"K\":[[1],[1],[1],[1]],\"V\":[[1],[2],[3],[6]]"

static const struct call attention[] = {
    {"Q, K and V", "{" MEAN "}", "{\"output\":[[6,7]],\"weights\":[[0.5,0.5]]}"},
    {"X alone", "{\"X\":[[0,2],[0,2]]}",
     "{\"output\":[[0,2],[0,2]],\"weights\":[[0.5,0.5],[0.5,0.5]]}"},
    {"one number", "{\"X\":[[3]]}", "{\"output\":[[3]],\"weights\":[[1]]}"},
    {"d_v other than d", "{\"Q\":[[1,1]],\"K\":[[1,1]],\"V\":[[1,2,3]]}",
     "{\"output\":[[1,2,3]],\"weights\":[[1]]}"},
    {"white space", " { \"X\" : [ [ 3 ] ] } \r\n", "{\"output\":[[3]],\"weights\":[[1]]}"},
    {"escaped keys", "{\"\\u0058\":[[3]],\"scal\\u0065\":0}",
     "{\"output\":[[3]],\"weights\":[[1]]}"},

    {"rank 3", "{\"Q\":[[[1]],[[1]]],\"K\":[[[1],[1]],[[1],[1]]],\"V\":[[[1],[3]],[[5],[7]]]}",
     "{\"output\":[[[2]],[[6]]],\"weights\":[[[0.5,0.5]],[[0.5,0.5]]]}"},
    {"grouped heads", "{\"Q\":[[[1]],[[1]],[[1]],[[1]]],\"K\":[[[1]],[[1]]],\"V\":[[[3]],[[4]]]}",
     "{\"output\":[[[3]],[[3]],[[4]],[[4]]],\"weights\":[[[1]],[[1]],[[1]],[[1]]]}"},
    {"rank 4",
     "{\"Q\":[[[[1]]],[[[1]]]],\"K\":[[[[1],[1]]],[[[1],[1]]]],\"V\":[[[[1],[3]]],[[[5],[7]]]]}",
     "{\"output\":[[[[2]]],[[[6]]]],\"weights\":[[[[0.5,0.5]]],[[[0.5,0.5]]]]}"},
    {"packed heads", "{\"Q\":[[1,1]],\"K\":[[0,0],[0,0]],\"V\":[[1,2],[3,6]],\"heads\":2}",
     "{\"output\":[[2,4]],\"weights\":[[[0.5,0.5]],[[0.5,0.5]]]}"},
    {"packed heads of d_v 2", "{\"Q\":[[1,1]],\"K\":[[0,0]],\"V\":[[1,2,3,4]],\"heads\":2}",
     "{\"output\":[[1,2,3,4]],\"weights\":[[[1]],[[1]]]}"},
    {"packed grouped heads",
     "{\"Q\":[[1,1,1,1]],\"K\":[[0,0]],\"V\":[[3,4]],\"heads\":4,\"kv_heads\":2}",
     "{\"output\":[[3,3,4,4]],\"weights\":[[[1]],[[1]],[[1]],[[1]]]}"},
    {"packed batch",
     "{\"Q\":[[[1,1]],[[1,1]]],\"K\":[[[0,0]],[[0,0]]],\"V\":[[[1,2]],[[3,4]]],\"heads\":2}",
     "{\"output\":[[[1,2]],[[3,4]]],\"weights\":[[[[1]],[[1]]],[[[1]],[[1]]]]}"},

    {"every stage",
     "{" ONE ",\"scale\":2,\"causal\":true,\"return\":[\"scores\",\"scaled_scores\","
     "\"masked_scores\",\"weights\",\"lse\",\"entropy\",\"output\"]}",
     "{\"scores\":[[1,2]],\"scaled_scores\":[[2,4]],\"masked_scores\":[[2,null]],"
     "\"weights\":[[1,0]],\"lse\":[2],\"entropy\":[0],\"output\":[[5,6]]}"},
    {"the order of return", "{" MEAN ",\"return\":[\"weights\",\"output\"]}",
     "{\"weights\":[[0.5,0.5]],\"output\":[[6,7]]}"},
    {"one result", "{" MEAN ",\"return\":[\"output\"]}", "{\"output\":[[6,7]]}"},
    {"scale by default",
     "{\"Q\":[[2,0,0,0]],\"K\":[[3,1,1,1]],\"V\":[[1]],"
     "\"return\":[\"scaled_scores\"]}",
     "{\"scaled_scores\":[[3]]}"},
    {"softcap",
     "{\"Q\":[[10]],\"K\":[[10],[0],[-10]],\"V\":[[1],[1],[1]],\"softcap\":2,"
     "\"return\":[\"scores\",\"scaled_scores\"]}",
     "{\"scores\":[[100,0,-100]],\"scaled_scores\":[[2,0,-2]]}"},
    {"softcap 0",
     "{\"Q\":[[10]],\"K\":[[10]],\"V\":[[1]],\"softcap\":0,"
     "\"return\":[\"scaled_scores\"]}",
     "{\"scaled_scores\":[[100]]}"},
    {"mask of booleans", "{" MEAN ",\"mask\":[[false,true]]}",
     "{\"output\":[[7,8]],\"weights\":[[0,1]]}"},
    {"mask of numbers", "{" MEAN ",\"mask\":[[1,0]]}", "{\"output\":[[5,6]],\"weights\":[[1,0]]}"},
    {"mask for all queries", "{" MEAN2 ",\"mask\":[[0,1]],\"return\":[\"weights\"]}",
     "{\"weights\":[[0,1],[0,1]]}"},
    {"mask of rank 4", "{" MEAN2 ",\"mask\":[[[[1],[0]]]],\"return\":[\"weights\"]}",
     "{\"weights\":[[0.5,0.5],[0,0]]}"},
    {"key_padding of one batch item", "{" MEAN2 ",\"key_padding\":[true,false]}",
     "{\"output\":[[5,6],[5,6]],\"weights\":[[1,0],[1,0]]}"},
    {"key_padding of numbers, with a mask",
     "{" MEAN2 ",\"key_padding\":[[0,1]],\"mask\":[[1,0],[1,1]],\"return\":[\"weights\"]}",
     "{\"weights\":[[0,0],[0,1]]}"},
    {"key_padding of a batch, which is no mask",
     "{\"Q\":[[[[1],[1]]],[[[1],[1]]]],\"K\":[[1],[1]],\"V\":[[3],[4]],\"key_padding\":[[1,0],[0,1]"
     "]}",
     "{\"output\":[[[[3],[3]]],[[[4],[4]]]],\"weights\":[[[[1,0],[1,0]]],[[[0,1],[0,1]]]]}"},
    {"key_padding with past keys",
     "{" MEAN ",\"past_K\":[[0,0]],\"past_V\":[[1,2]],\"key_padding\":[1,0,1],\"return\":["
     "\"weights\"]}",
     "{\"weights\":[[0.5,0,0.5]]}"},
    {"K and V of all heads", "{\"Q\":[[[1]],[[1]]],\"K\":[[1],[1]],\"V\":[[1],[3]]}",
     "{\"output\":[[[2]],[[2]]],\"weights\":[[[0.5,0.5]],[[0.5,0.5]]]}"},
    {"K and V of all batch items",
     "{\"Q\":[[[[1]],[[1]]],[[[1]],[[1]]]],\"K\":[[[1]],[[1]]],\"V\":[[[3]],[[4]]],"
     "\"past_K\":[[[1]],[[1]]],\"past_V\":[[[5]],[[6]]],\"return\":[\"output\",\"present_V\"]}",
     "{\"output\":[[[[4]],[[5]]],[[[4]],[[5]]]],\"present_V\":[[[5],[3]],[[6],[4]]]}"},
    {"packed K and V of all batch items",
     "{\"Q\":[[[1,1]],[[1,1]]],\"K\":[[0]],\"V\":[[7]],\"heads\":2,\"kv_heads\":1,\"return\":["
     "\"output\"]}",
     "{\"output\":[[[7,7]],[[7,7]]]}"},
    {"nothing to attend to",
     "{" MEAN
     ",\"mask\":[[false,false]],\"return\":[\"output\",\"weights\",\"masked_scores\",\"lse\","
     "\"entropy\"]}",
     "{\"output\":[[0,0]],\"weights\":[[0,0]],\"masked_scores\":[[null,null]],\"lse\":[null],"
     "\"entropy\":[0]}"},
    {"bias", "{" MEAN ",\"bias\":[[0.5,-1]],\"return\":[\"scaled_scores\",\"masked_scores\"]}",
     "{\"scaled_scores\":[[0,0]],\"masked_scores\":[[0.5,-1]]}"},
    {"bias null", "{" MEAN ",\"bias\":[[0,null]],\"return\":[\"masked_scores\",\"weights\"]}",
     "{\"masked_scores\":[[0,null]],\"weights\":[[1,0]]}"},
    {"bias -Infinity", "{" MEAN ",\"bias\":[[-Infinity,0]]}",
     "{\"output\":[[7,8]],\"weights\":[[0,1]]}"},
    {"a bias does not undo a mask", "{" MEAN ",\"bias\":[[1000,0]],\"mask\":[[0,1]]}",
     "{\"output\":[[7,8]],\"weights\":[[0,1]]}"},
    {"causal", "{" MEAN2 ",\"causal\":true}",
     "{\"output\":[[5,6],[6,7]],\"weights\":[[1,0],[0.5,0.5]]}"},
    {"causal false", "{" MEAN ",\"causal\":false}", "{\"output\":[[6,7]],\"weights\":[[0.5,0.5]]}"},
    {"causal from the top left", "{" MEAN ",\"causal\":true}",
     "{\"output\":[[5,6]],\"weights\":[[1,0]]}"},
    {"causal to the bottom right", "{" MEAN ",\"causal\":\"bottom_right\"}",
     "{\"output\":[[6,7]],\"weights\":[[0.5,0.5]]}"},
    {"causal aligned to the bottom right",
     "{" MEAN ",\"causal\":true,\"alignment\":\"bottom_right\"}",
     "{\"output\":[[6,7]],\"weights\":[[0.5,0.5]]}"},
    {"the alignment that causal has anyway",
     "{" MEAN ",\"alignment\":\"bottom_right\",\"causal\":\"bottom_right\"}",
     "{\"output\":[[6,7]],\"weights\":[[0.5,0.5]]}"},
    {"causal aligned to the top left", "{" MEAN ",\"causal\":true,\"alignment\":\"top_left\"}",
     "{\"output\":[[5,6]],\"weights\":[[1,0]]}"},
    {"a window at the bottom right without causal",
     "{" FOUR ",\"alignment\":\"bottom_right\",\"window\":[1,0]}",
     "{\"output\":[[4.5]],\"weights\":[[0,0,0.5,0.5]]}"},
    {"a window at the end of the valid keys",
     "{" FOUR ",\"alignment\":\"bottom_right\",\"window\":[0,0],\"lengths\":3}",
     "{\"output\":[[3]],\"weights\":[[0,0,1,0]]}"},
    {"causal at the end of the valid keys of each batch item",
     "{\"Q\":[[[[0],[0]]],[[[0],[0]]]],\"K\":[[[[0],[0]]],[[[0],[0]]]],\"V\":[[[[5],[7]]],[[[5],[7]"
     "]]],"
     "\"lengths\":[2,1],\"causal\":\"bottom_right\"}",
     "{\"output\":[[[[5],[6]]],[[[0],[5]]]],\"weights\":[[[[1,0],[0.5,0.5]]],[[[0,0],[1,0]]]]}"},
    {"window of the own position", "{" MEAN2 ",\"window\":[0,0],\"return\":[\"weights\"]}",
     "{\"weights\":[[1,0],[0,1]]}"},
    {"window open to the left", "{" MEAN2 ",\"window\":[-1,0],\"return\":[\"weights\"]}",
     "{\"weights\":[[1,0],[0.5,0.5]]}"},
    {"window open to the right", "{" MEAN2 ",\"window\":[0,-1],\"return\":[\"weights\"]}",
     "{\"weights\":[[0.5,0.5],[0,1]]}"},
    {"window and causal", "{" FOUR ",\"causal\":\"bottom_right\",\"window\":[1,0]}",
     "{\"output\":[[4.5]],\"weights\":[[0,0,0.5,0.5]]}"},
    {"ALiBi of the paper, one head", "{" MEAN2 ",\"alibi\":true,\"return\":[\"masked_scores\"]}",
     "{\"masked_scores\":[[0,-0.00390625],[-0.00390625,0]]}"},
    {"ALiBi of the paper, two heads",
     "{\"Q\":[[[1]],[[1]]],\"K\":[[[0],[0]],[[0],[0]]],\"V\":[[[1],[1]],[[1],[1]]],\"alibi\":true,"
     "\"return\":[\"masked_scores\"]}",
     "{\"masked_scores\":[[[0,-0.0625]],[[0,-0.00390625]]]}"},
    {"ALiBi with a slope", "{" MEAN2 ",\"alibi\":[0.5],\"return\":[\"masked_scores\"]}",
     "{\"masked_scores\":[[0,-0.5],[-0.5,0]]}"},
    {"no ALiBi", "{" MEAN ",\"alibi\":false,\"return\":[\"masked_scores\"]}",
     "{\"masked_scores\":[[0,0]]}"},
    {"sink", "{\"Q\":[[0]],\"K\":[[1]],\"V\":[[4]],\"sink\":[0]}",
     "{\"output\":[[2]],\"weights\":[[0.5]]}"},
    {"sink of one head as a number", "{\"Q\":[[0]],\"K\":[[1]],\"V\":[[4]],\"sink\":0}",
     "{\"output\":[[2]],\"weights\":[[0.5]]}"},
    {"sink of one head as a number in float64",
     "{\"Q\":[[0]],\"K\":[[1]],\"V\":[[4]],\"sink\":0.1,\"mask\":[[false]],\"dtype\":\"float64\","
     "\"return\":[\"lse\"]}",
     "{\"lse\":[0.1]}"},
    {"sink of each head", "{\"Q\":[[[0]],[[0]]],\"K\":[[[1]]],\"V\":[[[4]]],\"sink\":[0,-1e30]}",
     "{\"output\":[[[2]],[[4]]],\"weights\":[[[0.5]],[[1]]]}"},
    {"sink in the lse",
     "{\"Q\":[[0]],\"K\":[[1]],\"V\":[[4]],\"sink\":[0],\"digits\":6,\"return\":[\"lse\"]}",
     "{\"lse\":[0.693147]}"},
    {"lengths", "{" FOUR ",\"lengths\":[2]}", "{\"output\":[[1.5]],\"weights\":[[0.5,0.5,0,0]]}"},
    {"lengths as a number", "{" FOUR ",\"lengths\":1}",
     "{\"output\":[[1]],\"weights\":[[1,0,0,0]]}"},
    {"lengths 0", "{" MEAN ",\"lengths\":[0]}", "{\"output\":[[0,0]],\"weights\":[[0,0]]}"},
    {"lengths of a batch",
     "{\"Q\":[[[[1]]],[[[1]]]],\"K\":[[[[1],[1]]],[[[1],[1]]]],\"V\":[[[[1],[3]]],[[[5],[7]]]],"
     "\"lengths\":[1,2]}",
     "{\"output\":[[[[1]]],[[[6]]]],\"weights\":[[[[1,0]]],[[[0.5,0.5]]]]}"},
    {"past keys",
     "{\"Q\":[[1]],\"K\":[[1]],\"V\":[[3]],\"past_K\":[[1]],\"past_V\":[[1]],\"causal\":true,"
     "\"return\":[\"output\",\"weights\",\"present_K\",\"present_V\"]}",
     "{\"output\":[[2]],\"weights\":[[0.5,0.5]],\"present_K\":[[1],[1]],\"present_V\":[[1],[3]]}"},
    {"present without past", "{" ONE ",\"return\":[\"present_K\",\"present_V\"]}",
     "{\"present_K\":[[1,0],[0,1]],\"present_V\":[[5,6],[7,8]]}"},
    {"past keys of packed heads",
     "{\"Q\":[[1,1]],\"K\":[[0,0]],\"V\":[[3,4]],\"past_K\":[[0,0]],\"past_V\":[[1,2]],\"heads\":2,"
     "\"return\":[\"output\",\"present_V\"]}",
     "{\"output\":[[2,3]],\"present_V\":[[1,2],[3,4]]}"},
    {"no normalization",
     "{\"Q\":[[1]],\"K\":[[2],[3]],\"V\":[[1],[1]],\"mask\":[[1,0]],\"normalization\":\"none\"}",
     "{\"output\":[[2]],\"weights\":[[2,0]]}"},
    {"normalization by its name", "{" MEAN ",\"normalization\":\"softmax\"}",
     "{\"output\":[[6,7]],\"weights\":[[0.5,0.5]]}"},
    {"statistics",
     "{\"Q\":[[1],[3]],\"K\":[[0],[2]],\"V\":[[1],[1]],\"scale\":0.5,\"return\":[\"statistics\"]}",
     "{\"statistics\":{\"variance\":{\"Q\":1,\"K\":1,\"scores\":6,\"scaled_scores\":1.5}}}"},
    {"top_k of equal keys", "{" FOUR ",\"top_k\":2,\"return\":[\"top_k\"]}",
     "{\"top_k\":{\"indices\":[[0,1]],\"weights\":[[0.25,0.25]]}}"},
    {"top_k finds the largest",
     "{" FOUR ",\"mask\":[[0,1,0,1]],\"top_k\":3,\"return\":[\"top_k\"]}",
     "{\"top_k\":{\"indices\":[[1,3,0]],\"weights\":[[0.5,0.5,0]]}}"},
    {"top_k by default", "{" FOUR ",\"return\":[\"top_k\",\"output\"]}",
     "{\"top_k\":{\"indices\":[[0,1,2,3]],\"weights\":[[0.25,0.25,0.25,0.25]]},\"output\":[[3]]}"},
    {"mean over the heads",
     "{\"Q\":[[[1]],[[1]]],\"K\":[[[0],[0]]],\"V\":[[[2],[4]]],\"mask\":[[[1,1]],[[1,0]]],"
     "\"mean_over_heads\":true}",
     "{\"output\":[[[3]],[[2]]],\"weights\":[[0.75,0.25]]}"},
    {"mean over the heads of a batch",
     "{\"Q\":[[[[1]],[[1]]]],\"K\":[[[[0],[0]]]],\"V\":[[[[2],[4]]]],\"mask\":[[[1,1]],[[1,0]]],"
     "\"mean_over_heads\":true,\"return\":[\"weights\"]}",
     "{\"weights\":[[[0.75,0.25]]]}"},
    {"float32 by default", "{\"Q\":[[0]],\"K\":[[0]],\"V\":[[0.1]],\"return\":[\"output\"]}",
     "{\"output\":[[0.1]]}"},
    {"float32 keeps 24 bits",
     "{\"Q\":[[0]],\"K\":[[0]],\"V\":[[16777217]],\"return\":[\"output\"]}",
     "{\"output\":[[16777216]]}"},
    {"float64 keeps 53 bits",
     "{\"Q\":[[0]],\"K\":[[0]],\"V\":[[16777217,0.1]],\"dtype\":\"float64\",\"return\":[\"output\"]"
     "}",
     "{\"output\":[[16777217,0.1]]}"},
    {"dtype behind the matrices",
     "{\"X\":[[16777217]],\"dtype\":\"float64\",\"return\":[\"output\"]}",
     "{\"output\":[[16777217]]}"},
    {"float64 by its range", "{\"Q\":[[0]],\"K\":[[1e300]],\"V\":[[2]],\"dtype\":\"float64\"}",
     "{\"output\":[[2]],\"weights\":[[1]]}"},
    {"digits", "{\"Q\":[[0]],\"K\":[[0],[0],[0]],\"V\":[[1],[1],[6]],\"digits\":3}",
     "{\"output\":[[2.67]],\"weights\":[[0.333,0.333,0.333]]}"},
    {"digits of float64",
     "{\"Q\":[[0]],\"K\":[[0],[0],[0]],\"V\":[[1],[1],[6]],\"dtype\":\"float64\",\"digits\":12,"
     "\"return\":[\"weights\"]}",
     "{\"weights\":[[0.333333333333,0.333333333333,0.333333333333]]}"},
    {"a huge number at a forbidden key",
     "{\"Q\":[[1]],\"K\":[[1],[3e38]],\"V\":[[2],[3e38]],"
     "\"causal\":true}",
     "{\"output\":[[2]],\"weights\":[[1,0]]}"},
};

Test(options_of_calls, attention) {
    expect_answers("/attention", attention, COUNT(attention));
}

/* --------------------------------------------------------------------------------- projections */

#define UNIT      "[[1,0],[0,1]]"
#define UNITS     "\"W_Q\":" UNIT ",\"W_K\":" UNIT ",\"W_V\":" UNIT
#define SUMS      "\"W_Q\":[[1],[1]],\"W_K\":[[1],[1]],\"W_V\":[[1],[1]]"
#define SUM_HEAD  "{" SUMS "}"
#define UNIT_HEAD "{" UNITS "}"

static const struct call projections[] = {
    {"one head",
     "{\"X\":[[1,2]]," UNITS ",\"return\":[\"Q\",\"K\",\"V\",\"scores\",\"output\",\"weights\"]}",
     "{\"Q\":[[1,2]],\"K\":[[1,2]],\"V\":[[1,2]],\"scores\":[[5]],\"output\":[[1,2]],\"weights\":[["
     "1]]}"},
    {"key_padding",
     "{\"X\":[[1,2],[3,4]]," SUMS ",\"context\":[[1,1],[3,3]],\"key_padding\":[0,1]}",
     "{\"output\":[[6],[6]],\"weights\":[[0,1],[0,1]]}"},
    {"by default", "{\"X\":[[1,2],[3,4]]," SUMS ",\"scale\":0}",
     "{\"output\":[[5],[5]],\"weights\":[[0.5,0.5],[0.5,0.5]]}"},
    {"biases",
     "{\"X\":[[1,2]]," SUMS ",\"b_Q\":[1],\"b_K\":[2],\"b_V\":[3],\"return\":[\"Q\",\"K\",\"V\"]}",
     "{\"Q\":[[4]],\"K\":[[5]],\"V\":[[6]]}"},
    {"d_v other than d_k",
     "{\"X\":[[1,2]],\"W_Q\":[[1],[1]],\"W_K\":[[1],[1]],\"W_V\":[[1,0,1],[0,1,1]]}",
     "{\"output\":[[1,2,3]],\"weights\":[[1]]}"},
    {"out_in",
     "{\"X\":[[1,2]],\"W_Q\":[[1,1]],\"W_K\":[[1,0]],\"W_V\":[[0,1],[3,0],[0,0]],"
     "\"weight_layout\":\"out_in\",\"return\":[\"Q\",\"K\",\"V\"]}",
     "{\"Q\":[[3]],\"K\":[[1]],\"V\":[[2,3,0]]}"},
    {"in_out by its name",
     "{\"X\":[[1,2]]," SUMS ",\"weight_layout\":\"in_out\",\"return\":[\"V\"]}", "{\"V\":[[3]]}"},
    {"W_O and b_O",
     "{\"X\":[[1,2]]," UNITS ",\"W_O\":[[1,0,1],[0,1,1]],\"b_O\":[0,0,1],\"return\":[\"output\"]}",
     "{\"output\":[[1,2,4]]}"},
    {"W_O out_in",
     "{\"X\":[[1,2]]," UNITS ",\"W_O\":[[1,0],[0,1],[1,1]],\"weight_layout\":\"out_in\","
     "\"return\":[\"output\"]}",
     "{\"output\":[[1,2,3]]}"},
    {"context",
     "{\"X\":[[1,2]],\"context\":[[1],[3]],\"W_Q\":[[1],[1]],\"W_K\":[[0]],\"W_V\":[[1]]}",
     "{\"output\":[[2]],\"weights\":[[0.5,0.5]]}"},
    {"two heads from 2-D weights",
     "{\"X\":[[1,2],[3,4]]," UNITS ",\"heads\":2,\"scale\":0,\"return\":[\"Q\",\"V\",\"output\","
     "\"weights\",\"lse\"],\"digits\":3}",
     "{\"Q\":[[[1],[3]],[[2],[4]]],\"V\":[[[1],[3]],[[2],[4]]],\"output\":[[2,3],[2,3]],"
     "\"weights\":[[[0.5,0.5],[0.5,0.5]],[[0.5,0.5],[0.5,0.5]]],"
     "\"lse\":[[0.693,0.693],[0.693,0.693]]}"},
    {"two heads and W_O",
     "{\"X\":[[1,2]]," UNITS ",\"heads\":2,\"W_O\":[[1],[10]],\"return\":[\"output\"]}",
     "{\"output\":[[21]]}"},
    {"grouped heads",
     "{\"X\":[[1,2]],\"W_Q\":[[1,0],[0,1]],\"W_K\":[[1],[1]],\"W_V\":[[1],[1]],\"heads\":2,"
     "\"kv_heads\":1,\"return\":[\"Q\",\"K\",\"V\",\"output\"]}",
     "{\"Q\":[[[1]],[[2]]],\"K\":[[[3]]],\"V\":[[[3]]],\"output\":[[3,3]]}"},
    {"3-D weights",
     "{\"X\":[[1,2]],\"W_Q\":[[[1],[0]],[[0],[1]]],\"W_K\":[[[1],[0]],[[0],[1]]],"
     "\"W_V\":[[[1],[0]],[[0],[1]]],\"b_V\":[[10],[20]],\"return\":[\"Q\",\"V\",\"output\","
     "\"weights\"]}",
     "{\"Q\":[[[1]],[[2]]],\"V\":[[[11]],[[22]]],\"output\":[[11,22]],\"weights\":[[[1]],[[1]]]}"},
    {"3-D weights out_in",
     "{\"X\":[[1,2]],\"W_Q\":[[[1,0]],[[0,1]]],\"W_K\":[[[1,0]],[[0,1]]],"
     "\"W_V\":[[[1,0]],[[0,1]]],\"weight_layout\":\"out_in\",\"return\":[\"output\"]}",
     "{\"output\":[[1,2]]}"},
    {"heads of their own",
     "{\"X\":[[1,2]],\"heads\":[" SUM_HEAD "," UNIT_HEAD "],\"return\":[\"Q\",\"K\",\"V\","
     "\"scores\",\"output\",\"weights\"]}",
     "{\"Q\":[[[3]],[[1,2]]],\"K\":[[[3]],[[1,2]]],\"V\":[[[3]],[[1,2]]],\"scores\":[[[9]],[[5]]],"
     "\"output\":[[3,1,2]],\"weights\":[[[1]],[[1]]]}"},
    {"heads of their own, one, with biases and W_O",
     "{\"X\":[[1,2]],\"heads\":[{" SUMS ",\"b_Q\":[1],\"b_K\":[1],\"b_V\":[1]}],\"W_O\":[[2]],"
     "\"return\":[\"Q\",\"output\"]}",
     "{\"Q\":[[[4]]],\"output\":[[8]]}"},
    {"heads of their own of a batch",
     "{\"X\":[[[1,2]],[[3,4]]],\"heads\":[" SUM_HEAD "," UNIT_HEAD "],\"return\":[\"V\","
     "\"output\"]}",
     "{\"V\":[[[[3]],[[1,2]]],[[[7]],[[3,4]]]],\"output\":[[[3,1,2]],[[7,3,4]]]}"},
    {"mean over heads of their own",
     "{\"X\":[[1,0],[0,1]],\"heads\":[" SUM_HEAD "," UNIT_HEAD "],\"scale\":0,"
     "\"mean_over_heads\":true,\"return\":[\"weights\"]}",
     "{\"weights\":[[0.5,0.5],[0.5,0.5]]}"},
    {"a batch",
     "{\"X\":[[[1,2],[3,4]],[[5,6],[7,8]]]," SUMS ",\"scale\":0,\"return\":[\"V\",\"output\"]}",
     "{\"V\":[[[3],[7]],[[11],[15]]],\"output\":[[[5],[5]],[[13],[13]]]}"},
    {"a batch of two heads", "{\"X\":[[[1,2]],[[3,4]]]," UNITS ",\"heads\":2}",
     "{\"output\":[[[1,2]],[[3,4]]],\"weights\":[[[[1]],[[1]]],[[[1]],[[1]]]]}"},
    {"lengths of a batch",
     "{\"X\":[[[1,2],[3,4]],[[5,6],[7,8]]]," SUMS ",\"scale\":0,\"lengths\":[1,2],\"return\":["
     "\"output\"]}",
     "{\"output\":[[[3],[3]],[[13],[13]]]}"},
    {"causal", "{\"X\":[[1,2],[3,4]]," SUMS ",\"scale\":0,\"causal\":true,\"return\":[\"output\"]}",
     "{\"output\":[[3],[5]]}"},
    {"past keys",
     "{\"X\":[[1,2]]," SUMS ",\"scale\":0,\"past_K\":[[9]],\"past_V\":[[5]],\"return\":[\"output\","
     "\"weights\",\"present_K\",\"present_V\"]}",
     "{\"output\":[[4]],\"weights\":[[0.5,0.5]],\"present_K\":[[9],[3]],\"present_V\":[[5],[3]]}"},
    {"past keys of two heads",
     "{\"X\":[[1,2]]," UNITS ",\"heads\":2,\"scale\":0,\"past_K\":[[[0]],[[0]]],"
     "\"past_V\":[[[3]],[[4]]],\"return\":[\"output\",\"present_V\"]}",
     "{\"output\":[[2,3]],\"present_V\":[[[3],[1]],[[4],[2]]]}"},
    {"all other results",
     "{\"X\":[[1,1],[1,1]]," SUMS ",\"scale\":0,\"bias\":[[0,null],[0,0]],\"top_k\":1,\"return\":["
     "\"masked_scores\",\"scaled_scores\",\"entropy\",\"top_k\",\"statistics\"],\"digits\":4}",
     "{\"masked_scores\":[[0,null],[0,0]],\"scaled_scores\":[[0,0],[0,0]],\"entropy\":[0,0.6931],"
     "\"top_k\":{\"indices\":[[0],[0]],\"weights\":[[1],[0.5]]},\"statistics\":{\"variance\":{"
     "\"Q\":0,\"K\":0,\"scores\":0,\"scaled_scores\":0}}}"},
    {"a number of heads beside 3-D weights",
     "{\"X\":[[1,2]],\"W_Q\":[[[1],[0]],[[0],[1]]],\"W_K\":[[[1],[0]],[[0],[1]]],"
     "\"W_V\":[[[1],[0]],[[0],[1]]],\"heads\":2,\"return\":[\"output\"]}",
     "{\"output\":[[1,2]]}"},
};

Test(options_of_calls, self_attention) {
    expect_answers("/self-attention", projections, COUNT(projections));
}

Test(options_of_calls, multi_head_attention_is_the_same) {
    expect_answers("/multi-head-attention", projections, COUNT(projections));
}

/* ------------------------------------------------------------------------------------- softmax */

static const struct call softmaxes[] = {
    {"a row", "{\"X\":[5,5]}", "{\"output\":[0.5,0.5]}"},
    {"one number", "{\"X\":[-3]}", "{\"output\":[1]}"},
    {"rows", "{\"X\":[[0,0],[1,1],[-1,-1]]}", "{\"output\":[[0.5,0.5],[0.5,0.5],[0.5,0.5]]}"},
    {"the first axis", "{\"X\":[[0,1000],[0,0],[0,0],[0,0]],\"axis\":0}",
     "{\"output\":[[0.25,1],[0.25,0],[0.25,0],[0.25,0]]}"},
    {"the last axis from behind", "{\"X\":[[0,1000],[0,0]],\"axis\":-1}",
     "{\"output\":[[0,1],[0.5,0.5]]}"},
    {"an axis in the middle", "{\"X\":[[[1,2],[1,2]],[[3,4],[3,4]]],\"axis\":1}",
     "{\"output\":[[[0.5,0.5],[0.5,0.5]],[[0.5,0.5],[0.5,0.5]]]}"},
    {"rank 8", "{\"X\":[[[[[[[[0,0]]]]]]]],\"axis\":7}", "{\"output\":[[[[[[[[0.5,0.5]]]]]]]]}"},
    {"large numbers", "{\"X\":[3e38,3e38,-3e38]}", "{\"output\":[0.5,0.5,0]}"},
    {"masked scores", "{\"X\":[[5,null],[5,5],[null,null]]}",
     "{\"output\":[[1,0],[0.5,0.5],[0,0]]}"},
    {"digits", "{\"X\":[0,1],\"digits\":4}", "{\"output\":[0.2689,0.7311]}"},
    {"float64", "{\"X\":[0,1],\"dtype\":\"float64\",\"digits\":12}",
     "{\"output\":[0.26894142137,0.73105857863]}"},
};

Test(options_of_calls, softmax) {
    expect_answers("/softmax", softmaxes, COUNT(softmaxes));
}

/* ----------------------------------------------------------------------------- headers and GET */

static const struct {
    const char *path, *media_type, *body; /* body NULL: another test checks it */
} resources[] = {
    {"/health/live", "application/json", "{\"status\":\"live\"}\n"},
    {"/health/ready", "application/json", "{\"status\":\"ready\"}\n"},
    {"/version", "application/json", NULL},
    {"/openapi.yaml", "application/yaml", NULL},
};

/* An answer to HEAD has the headers of GET, also Content-Length, and no body (RFC 9110). */
Test(options_of_calls, get_and_head) {
    for (size_t i = 0; i < COUNT(resources); i++) {
        char length[32];
        struct client_response whole = daemon_ask("GET", resources[i].path, NULL);
        cr_expect(whole.status == 200, "%s: %d", resources[i].path, whole.status);
        expect_header(&whole, resources[i].path, "Content-Type", resources[i].media_type);
        if (resources[i].body != NULL)
            cr_expect(strcmp(whole.body, resources[i].body) == 0, "%s", whole.body);
        snprintf(length, sizeof length, "%zu", whole.size);
        struct client_response head = daemon_ask("HEAD", resources[i].path, NULL);
        cr_expect(head.status == 200 && head.size == 0, "HEAD %s: %d, %zu bytes", resources[i].path,
                  head.status, head.size);
        expect_header(&head, resources[i].path, "Content-Type", resources[i].media_type);
        expect_header(&head, resources[i].path, "Content-Length", length);
        client_response_free(&whole);
        client_response_free(&head);
    }
}

Test(options_of_calls, a_query_string_is_ignored) {
    struct client_response response = daemon_ask("GET", "/health/live?from=probe", NULL);
    cr_expect(response.status == 200);
    client_response_free(&response);
}

/* The same compiler makes the tests and the daemon. */
#ifdef __clang__
#define COMPILER "clang "
#else
#define COMPILER "GCC "
#endif

Test(options_of_calls, version_names_what_runs) {
    double threads = 0;
    struct client_response response = daemon_ask("GET", "/version", NULL);
    struct cJSON *version = json_parse(response.body, response.size);
    const char *name = json_text(json_get(version, "name"));
    const char *number = json_text(json_get(version, "version"));
    const char *compiler = json_text(json_get(version, "compiler"));
    const char *blas = json_text(json_get(version, "blas"));
    const char *core = json_text(json_get(version, "blas_core"));
    const char *kernels = json_text(json_get(version, "kernels"));
    cr_expect(name != NULL && strcmp(name, "attentiond") == 0, "%s", response.body);
    cr_expect(number != NULL && strcmp(number, "0.1.0") == 0, "%s", response.body);
    cr_expect(compiler != NULL && strstr(compiler, COMPILER) == compiler &&
                  strspn(compiler + strlen(COMPILER), "0123456789.") >= 4,
              "%s", response.body);
    cr_expect(blas != NULL && strncmp(blas, "OpenBLAS ", 9) == 0, "%s", response.body);
    cr_expect(core != NULL && core[0] != '\0', "%s", response.body);
    cr_expect(kernels != NULL && kernels[0] != '\0', "%s", response.body);
    cr_expect(json_number(json_get(version, "threads"), &threads) && threads >= 1, "%s",
              response.body);
    json_free(version);
    client_response_free(&response);
}

Test(options_of_calls, openapi_is_the_file) {
    size_t size = 0;
    char *file = json_read_file(TESTS_DIR "/../openapi.yaml", &size);
    cr_assert(file != NULL);
    struct client_response response = daemon_ask("GET", "/openapi.yaml", NULL);
    cr_expect(response.size == size && memcmp(response.body, file, size) == 0,
              "%zu bytes are served, the file has %zu, or they differ", response.size, size);
    free(file);
    client_response_free(&response);
}

static void expect_post(const char *path, const char *body, const char *answer) {
    struct client_response response;
    cr_assert(client_request(the_daemon.port, "POST", path, NULL, body, strlen(body), &response));
    cr_expect(response.status == 200 && strcmp(response.body, answer) == 0, "%s: %d %s", path,
              response.status, response.body);
    client_response_free(&response);
}

Test(options_of_calls, of_models_with_and_without_the_version) {
    static const char body[] = "{\"inputs\":[{\"name\":\"X\",\"datatype\":\"FP32\",\"shape\":[2,2],"
                               "\"data\":[0,0,1,1]}],\"parameters\":{\"axis\":1,\"digits\":1}}";
    static const char answer[] =
        "{\"model_name\":\"softmax\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"output\","
        "\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[0.5,0.5,0.5,0.5]}]}\n";
    static const char models[] =
        "[{\"name\":\"attention\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"},"
        "{\"name\":\"self-attention\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"},"
        "{\"name\":\"multi-head-attention\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"},"
        "{\"name\":\"softmax\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"}]\n";
    expect_post("/v2/models/softmax/infer", body, answer);
    expect_post("/v2/models/softmax/versions/1/infer", body, answer);
    expect_post("/v2/repository/index", "{\"ready\":true}", models);
}

Test(options_of_calls, the_name_of_a_request_comes_back) {
    struct client_response response =
        daemon_ask("GET", "/health/live", "X-Request-Id: lesson-4/step-2\r\n");
    expect_header(&response, "GET /health/live", "X-Request-Id", "lesson-4/step-2");
    client_response_free(&response);
}

/* The server replaces a name that would not fit into a line of the log, and gives one to a request
 * without a name. */
Test(options_of_calls, a_request_without_a_fit_name_gets_one) {
    static char long_name[160];
    snprintf(long_name, sizeof long_name, "X-Request-Id: %0129d\r\n", 0);
    const char *const unfit[] = {NULL, "X-Request-Id: two words\r\n", "X-Request-Id:\r\n",
                                 long_name};
    char made[COUNT(unfit)][160];
    for (size_t i = 0; i < COUNT(unfit); i++) {
        struct client_response response = daemon_ask("GET", "/health/live", unfit[i]);
        made[i][0] = '\0';
        client_header(&response, "X-Request-Id", made[i], sizeof made[i]);
        size_t size = strlen(made[i]);
        cr_expect(size >= 1 && size <= 128 && strpbrk(made[i], " \t") == NULL, "\"%s\"", made[i]);
        for (size_t other = 0; other < i; other++)
            cr_expect(strcmp(made[i], made[other]) != 0, "%s twice", made[i]);
        client_response_free(&response);
    }
}

Test(options_of_calls, timing_names_its_four_parts) {
    static const char *const parts[] = {"decode;dur=", "queue;dur=", "compute;dur=", "encode;dur="};
    static const char body[] = "{\"X\":[[1]]}";
    struct client_response response;
    char timing[256] = "";
    cr_assert(
        client_request(the_daemon.port, "POST", "/attention", NULL, body, strlen(body), &response));
    client_header(&response, "Server-Timing", timing, sizeof timing);
    const char *at = timing;
    for (size_t i = 0; i < COUNT(parts) && at != NULL; i++) {
        at = strstr(at, parts[i]);
        cr_expect(at != NULL && strtod(at + strlen(parts[i]), NULL) >= 0, "no %s in \"%s\"",
                  parts[i], timing);
    }
    client_response_free(&response);
}

/* The same question gets the same bytes, whatever was asked in between. */
Test(options_of_calls, the_same_question_gets_the_same_bytes) {
    static const char body[] = "{\"X\":[[0.1,0.7,-0.3],[0.9,0.2,0.4],[-0.8,0.5,0.6]]}";
    struct client_response first, again;
    cr_assert(
        client_request(the_daemon.port, "POST", "/attention", NULL, body, strlen(body), &first));
    expect_answers("/softmax", softmaxes, COUNT(softmaxes));
    cr_assert(
        client_request(the_daemon.port, "POST", "/attention", NULL, body, strlen(body), &again));
    cr_expect(first.status == 200 && first.size == again.size &&
                  memcmp(first.body, again.body, first.size) == 0,
              "%s%s", first.body, again.body);
    client_response_free(&first);
    client_response_free(&again);
}
