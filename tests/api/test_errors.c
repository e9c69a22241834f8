/*
 * test_errors.c - what the service answers to bad requests: the status, the words of `detail`, and
 * where `pointer` and `offset` lead. Every answer is a sound problem document, and after it the
 * connection takes the next request. Knows the service by its socket only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "support/client.h"
#include "support/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct bad_request {
    const char *name;
    const char *body;
    size_t size;           /* of the body */
    int status;            /* 400 or 422 */
    const char *detail[3]; /* what the detail must contain */
    const char *pointer; /* of a 422: the place, or what it is in; "" = the whole body; ANYWHERE */
    size_t offset;       /* of a 400: the byte where it stops being JSON */
};

#define ANYWHERE "*" /* a pointer that may be there or not */

#define SYNTAX_OF(name_, body_, size_, offset_)                                                    \
    { .name = name_, .body = body_, .size = size_, .status = 400, .offset = offset_ }
#define SYNTAX(name_, body_, offset_) SYNTAX_OF(name_, body_, sizeof(body_) - 1, offset_)
#define SAID(name_, body_, offset_, ...)                                                           \
    {                                                                                              \
        .name = name_, .body = body_, .size = sizeof(body_) - 1, .status = 400, .offset = offset_, \
        .detail = {                                                                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define CONTENT(name_, body_, pointer_, ...)                                                       \
    {                                                                                              \
        .name = name_, .body = body_, .size = sizeof(body_) - 1, .status = 422,                    \
        .pointer = pointer_, .detail = {                                                           \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* A call that is right but for its options: two queries, two keys, one head of two columns. */
#define QKV           "\"Q\":[[1,2],[3,4]],\"K\":[[1,0],[0,1]],\"V\":[[5,6],[7,8]]"
#define CALL(options) "{" QKV "," options "}"
#define DEEP          "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]" /* 18 arrays */

static const struct bad_request to_attention[] = {
    /* --- not JSON, or more than the reader takes: the byte where it ends */
    SYNTAX("a word", "hello", 0),
    SYNTAX("no body", "", 0),
    SYNTAX("white space only", "  \n", 3),
    SYNTAX("a form", "Q=1&K=2", 0),
    SYNTAX("the start of an object", "{", 1),
    SYNTAX("cut in a matrix", "{\"X\":[[1,2],[3", 14),
    SYNTAX("cut in a text", "{\"dtype\":\"floa", 14),
    SYNTAX("something after it", "{\"X\":[[1]]} x", 12),
    SYNTAX("two objects", "{\"X\":[[1]]}{}", 11),
    SYNTAX("single quotes", "{'X':[[1]]}", 1),
    SYNTAX("a comma too many", "{\"X\":[[1,2,]]}", 11),
    SYNTAX("a comment", "{\"X\":[[1]]/* */}", 10),
    SAID("NaN", "{\"X\":[[1,NaN]]}", 9, "NaN is not JSON: numbers must be finite"),
    SAID("NaN in the third line", "{\n \"X\": [[1, 2],\n       [3, NaN]]}", 28,
         "NaN is not JSON: numbers must be finite"),
    SAID("Infinity", "{\"X\":[[Infinity]]}", 7, "Infinity is not JSON"),
    SAID("a missing comma", "{\"X\":\n[[1 2]]}", 10, "expected ',' or ']', not '2'"),
    SAID("a missing comma behind a row", "{\"X\":[[1]\n[2]]}", 10, "expected ',' or ']', not '['"),
    SAID("a missing comma behind a member", "{\"X\":[[1]]\n\"K\":1}", 11,
         "expected ',' or '}', not '\"'"),
    SAID("a trailing comma", "{\"X\":[[1]],}", 11,
         "expected a key in double quotes after the comma, not '}'"),
    SAID("a trailing comma in a row", "{\"X\":[[1,]]}", 9,
         "expected a value after the comma, not ']'"),
    SAID("a key in single quotes", "{'X':[[1]]}", 1, "double quotes", "not a single quote"),
    SAID("a text in single quotes", "{\"X\":'a'}", 5, "not a single quote"),
    SAID("a comment of JavaScript", "{ // X\n\"X\":[[1]]}", 2, "JSON has no comments"),
    SAID("a comment of Python", "{\"X\":[[1]] # X\n}", 11, "JSON has no comments"),
    SAID("Python's True", "{\"causal\":True}", 10, "True is not JSON: write true"),
    SAID("Python's None", "{\"text\":\"\xc3\xa4\xe2\x82\xac\",\"X\":None}", 20,
         "None is not JSON: write null"),
    SYNTAX("Infinity in a bias", "{\"X\":[[1]],\"bias\":[[Infinity]]}", 20),
    SYNTAX("a leading zero", "{\"X\":[[01]]}", 8),
    SYNTAX("a plus sign", "{\"X\":[[+1]]}", 7),
    SYNTAX("no digit after the point", "{\"X\":[[1.]]}", 9),
    SYNTAX("a tab in a text", "{\"dtype\":\"a\tb\"}", 11),
    SYNTAX_OF("a NUL", "{\"X\":[[1]]}\0", 12, 11),
    SYNTAX("a byte that is no UTF-8", "{\"\xff\":1}", 2),
    SYNTAX("a byte order mark", "\xef\xbb\xbf{\"X\":[[1]]}", 0),
    SYNTAX("half a surrogate pair", CALL("\"dtype\":\"\\ud800\""), sizeof QKV + 16),
    SYNTAX("a NUL in a key", CALL("\"a\\u0000b\":1"), sizeof QKV + 3),
    SYNTAX("a NUL in a text", CALL("\"dtype\":\"float32\\u0000\""), sizeof QKV + 17),
    SYNTAX("too deep", "{\"X\":" DEEP "}", 20),
    SYNTAX("minus infinity in X", "{\"X\":[[-Infinity]]}", 7),

    /* --- JSON, but no call */
    CONTENT("an array", "[]", "", "object"),
    CONTENT("null", "null", "", "object"),
    CONTENT("a number", "3", "", "object"),
    CONTENT("a matrix", "[[1,2],[3,4]]", "", "object"),
    CONTENT("nothing asked", "{}", ANYWHERE, "Q", "X"),
    CONTENT("Q alone", "{\"Q\":[[1]]}", ANYWHERE, "K"),
    CONTENT("no V", "{\"Q\":[[1]],\"K\":[[1]]}", ANYWHERE, "V"),
    CONTENT("X and Q", CALL("\"X\":[[1]]"), ANYWHERE, "X", "Q"),
    CONTENT("X and K", "{\"X\":[[1]],\"K\":[[1]]}", ANYWHERE, "X", "K"),
    CONTENT("unknown key", CALL("\"wings\":2"), "/wings", "wings"),
    CONTENT("the name of PyTorch for mask", CALL("\"attn_mask\":[[true,true],[true,true]]"),
            "/attn_mask", "unknown key \"attn_mask\"; it is \"mask\" here, where true attends",
            "MultiheadAttention true forbids", "\"bias\" for numbers that are added"),
    CONTENT("the name of PyTorch for lengths", CALL("\"key_padding_mask\":[[true,false]]"),
            "/key_padding_mask", "it is \"lengths\" here, the number of valid keys",
            "(batch, 1, 1, keys)", "the opposite"),
    CONTENT("is_causal", CALL("\"is_causal\":true"), "/is_causal", "it is \"causal\" here"),
    CONTENT("num_heads", CALL("\"num_heads\":1"), "/num_heads", "it is \"heads\" here"),
    CONTENT("kv_num_heads", CALL("\"kv_num_heads\":1"), "/kv_num_heads", "\"kv_heads\" here"),
    CONTENT("past_value", CALL("\"past_value\":[[1,1]]"), "/past_value", "\"past_V\" here"),
    CONTENT("need_weights", CALL("\"need_weights\":true"), "/need_weights", "\"return\" names"),
    CONTENT("dropout_p", CALL("\"dropout_p\":0"), "/dropout_p", "no dropout here"),
    CONTENT("query", "{\"query\":[[1]],\"key\":[[1]],\"value\":[[1]]}", "/query",
            "it is \"Q\" here"),
    CONTENT("key", "{\"Q\":[[1]],\"key\":[[1]],\"value\":[[1]]}", "/key", "it is \"K\" here"),
    CONTENT("in_proj_weight", CALL("\"in_proj_weight\":[[1]]"), "/in_proj_weight",
            "it is W_Q, W_K and W_V of /self-attention", "\"out_in\""),
    CONTENT("a key of /self-attention", "{\"X\":[[1]],\"W_Q\":[[1]]}", "/W_Q",
            "unknown key \"W_Q\"; it is a key of /self-attention"),
    CONTENT("another key of /self-attention", "{\"X\":[[1]],\"context\":[[1]]}", "/context",
            "it is a key of /self-attention"),
    CONTENT("an unknown dtype", CALL("\"dtype\":\"float16\""), "/dtype",
            "dtype must be \"float32\" or \"float64\", not \"float16\""),
    CONTENT("a dtype that is a number", CALL("\"dtype\":32"), "/dtype",
            "dtype must be \"float32\" or \"float64\", not a number"),
    CONTENT("an unknown causal", CALL("\"causal\":\"top_left\""), "/causal",
            "causal must be true, false or \"bottom_right\", not \"top_left\""),
    CONTENT("a causal that is a number", CALL("\"causal\":1"), "/causal",
            "causal must be true, false or \"bottom_right\", not a number"),
    CONTENT("an unknown normalization", CALL("\"normalization\":\"softmx\""), "/normalization",
            "normalization must be \"softmax\" or \"none\", not \"softmx\""),
    CONTENT("an unknown result", CALL("\"return\":[\"weigths\"]"), "/return/0",
            "must be \"output\", \"weights\", ", "\"present_K\" or \"present_V\", not \"weigths\"",
            "did you mean \"weights\"?"),
    CONTENT("a longer name of a result", CALL("\"return\":[\"attention_weights\"]"), "/return/0",
            "not \"attention_weights\"; did you mean \"weights\"?"),
    CONTENT("one result without an array", CALL("\"return\":\"output\""), "/return",
            "return must be an array of names such as [\"output\", \"weights\"], not \"output\""),
    CONTENT("misspelt key", CALL("\"casual\":true"), "/casual", "casual", "causal"),
    CONTENT("key in lower case", CALL("\"past_k\":[[1,1]]"), "/past_k", "past_K"),
    CONTENT("key that wants escapes", CALL("\"a/b~c\":1"), "/a~1b~0c", ""),
    CONTENT("key of projections", CALL("\"W_Q\":[[1]]"), "/W_Q", "W_Q"),
    SYNTAX("a key twice", CALL("\"scale\":1,\"scale\":1"), 65),
    SYNTAX("a matrix twice", CALL("\"Q\":[[1,2]]"), 55),
    SYNTAX("a key twice, once escaped", CALL("\"scale\":1,\"\\u0073cale\":1"), 65),

    /* --- matrices */
    CONTENT("Q a text", "{\"Q\":\"a\",\"K\":[[1]],\"V\":[[1]]}", "/Q", "Q"),
    CONTENT("Q a number", "{\"Q\":1,\"K\":[[1]],\"V\":[[1]]}", "/Q", "Q"),
    CONTENT("Q an object", "{\"Q\":{},\"K\":[[1]],\"V\":[[1]]}", "/Q", "Q"),
    CONTENT("Q null", "{\"Q\":null,\"K\":[[1]],\"V\":[[1]]}", "/Q", "Q"),
    CONTENT("Q of booleans", "{\"X\":[[true,false]]}", "/X", "X"),
    CONTENT("null in X", "{\"X\":[[1,2],[3,null]]}", "/X/1/1", ""),
    CONTENT("a text in X", "{\"X\":[[1,2],[3,\"4\"]]}", "/X", ""),
    CONTENT("an object in X", "{\"X\":[[1,{}]]}", "/X", ""),
    CONTENT("a boolean among numbers", "{\"X\":[[1,true]]}", "/X/0/1", ""),
    CONTENT("ragged", "{\"X\":[[1,2],[3]]}", "/X/1", "1", "2"),
    CONTENT("ragged, longer", "{\"X\":[[1,2],[3,4,5]]}", "/X/1", "2"),
    CONTENT("number beside row", "{\"X\":[[1,2],3]}", "/X/1", ""),
    CONTENT("row beside number", "{\"X\":[1,[2]]}", "/X/1", ""),
    CONTENT("empty", "{\"X\":[]}", "/X", "empty"),
    CONTENT("an empty row", "{\"X\":[[]]}", "/X", "empty"),
    CONTENT("an empty second row", "{\"X\":[[1],[]]}", "/X/1", ""),
    CONTENT("rank 1", "{\"X\":[1,2]}", "/X", "X", "rank", "1"),
    CONTENT("rank 5", "{\"X\":[[[[[1]]]]]}", "/X", "X", "rank", "5"),
    CONTENT("too large for a double", "{\"X\":[[1,1e999]]}", "/X/0/1", ""),
    CONTENT("too large for float32", "{\"X\":[[1,2],[1e39,3]]}", "/X/1/0", "float32"),
    CONTENT("columns of K", "{\"Q\":[[1,2]],\"K\":[[1,2,3]],\"V\":[[1]]}", "/K",
            "K has 3 columns but Q has 2"),
    CONTENT("rows of V", "{\"Q\":[[1]],\"K\":[[1],[2],[3]],\"V\":[[1],[2]]}", "/V",
            "V has 2 rows but K has 3"),
    CONTENT("one row of V", "{\"Q\":[[1]],\"K\":[[1],[2]],\"V\":[[1]]}", "/V",
            "V has 1 row but K has 2"),
    CONTENT("a mask for two keys where one is",
            "{\"Q\":[[1]],\"K\":[[1]],\"V\":[[1]],\"mask\":[[true,true]]}", "/mask",
            "keys 1): axis 1 (keys) is 2, not 1"),
    CONTENT("ranks of Q and K", "{\"Q\":[[1]],\"K\":[[[1]]],\"V\":[[[1]]]}", "/K",
            "K has rank 3 but Q has rank 2"),
    CONTENT("heads of K", "{\"Q\":[[[1]],[[1]],[[1]]],\"K\":[[[1]],[[1]]],\"V\":[[[1]],[[1]]]}",
            "/K", "3", "2"),
    CONTENT("heads of V", "{\"Q\":[[[1]],[[1]]],\"K\":[[[1]],[[1]]],\"V\":[[[1]]]}", "/V", "V", "1",
            "2"),
    CONTENT("batch of K", "{\"Q\":[[[[1]]],[[[1]]]],\"K\":[[[[1]]]],\"V\":[[[[1]]]]}", "/K", "K",
            "1", "2"),
    CONTENT("batch of V",
            "{\"Q\":[[[[1,2]]],[[[3,4]]]],\"K\":[[[[1,2]]],[[[3,4]]]],\"V\":[[[[1,2]]]]}", "/V",
            "V has 1 batch item but Q has 2"),
    CONTENT("scores that overflow", "{\"Q\":[[1e30]],\"K\":[[1e30]],\"V\":[[1]]}", ANYWHERE,
            "scores"),

    /* --- options */
    CONTENT("mask of another shape", CALL("\"mask\":[[1,1,1]]"), "/mask", "mask", "3", "2"),
    CONTENT("mask of rank 1", CALL("\"mask\":[1,1]"), "/mask", "rank"),
    CONTENT("mask of 2", CALL("\"mask\":[[1,2],[1,1]]"), "/mask/0/1", ""),
    CONTENT("mask of null", CALL("\"mask\":[[1,null],[1,1]]"), "/mask/0/1", ""),
    CONTENT("mask a word", CALL("\"mask\":\"causal\""), "/mask", ""),
    CONTENT("bias of another shape", CALL("\"bias\":[[0,0],[0,0],[0,0]]"), "/bias", "bias", "3",
            "2"),
    CONTENT("bias of booleans", CALL("\"bias\":[[true,true],[true,true]]"), "/bias", ""),
    CONTENT("bias too large", CALL("\"bias\":[[0,1e999],[0,0]]"), "/bias/0/1", ""),
    CONTENT("causal a number", CALL("\"causal\":1"), "/causal", "causal"),
    CONTENT("causal unknown", CALL("\"causal\":\"botom_right\""), "/causal", "bottom_right"),
    CONTENT("window of one number", CALL("\"window\":3"), "/window", "window"),
    CONTENT("window of one side", CALL("\"window\":[3]"), "/window", "two"),
    CONTENT("window of three", CALL("\"window\":[1,2,3]"), "/window", "two"),
    CONTENT("window below -1", CALL("\"window\":[-2,0]"), "/window", "-2"),
    CONTENT("window between numbers", CALL("\"window\":[0.5,0]"), "/window", "0.5"),
    CONTENT("window null", CALL("\"window\":null"), "/window", ""),
    CONTENT("scale null", CALL("\"scale\":null"), "/scale", "scale"),
    CONTENT("scale a text", CALL("\"scale\":\"1\""), "/scale", "scale"),
    CONTENT("scale too large", CALL("\"scale\":1e999"), "/scale", "scale"),
    CONTENT("softcap below 0", CALL("\"softcap\":-1"), "/softcap", "softcap", "-1"),
    CONTENT("too many slopes", CALL("\"alibi\":[1,2]"), "/alibi", "2", "1"),
    CONTENT("alibi a number", CALL("\"alibi\":1"), "/alibi", "alibi"),
    CONTENT("too many sinks", CALL("\"sink\":[1,2]"), "/sink", "2", "1"),
    CONTENT("a sink without softmax", CALL("\"sink\":[1],\"normalization\":\"none\""), "/sink",
            "sink"),
    CONTENT("lengths too long", CALL("\"lengths\":[3]"), "/lengths", "3", "2"),
    CONTENT("too many lengths", CALL("\"lengths\":[1,1]"), "/lengths", "2", "1"),
    CONTENT("lengths below 0", CALL("\"lengths\":[-1]"), "/lengths", "-1"),
    CONTENT("half a key", CALL("\"lengths\":[1.5]"), "/lengths", "1.5"),
    CONTENT("past_K alone", CALL("\"past_K\":[[1,1]]"), ANYWHERE, "past_K", "past_V"),
    CONTENT("past_V alone", CALL("\"past_V\":[[1,1]]"), ANYWHERE, "past_K", "past_V"),
    CONTENT("columns of past_K", CALL("\"past_K\":[[1]],\"past_V\":[[1,1]]"), "/past_K", "past_K",
            "1", "2"),
    CONTENT("rows of past_V", CALL("\"past_K\":[[1,1]],\"past_V\":[[1,1],[1,1]]"), "/past_V",
            "past_V", "2", "1"),
    CONTENT("normalization unknown", CALL("\"normalization\":\"sofmax\""), "/normalization",
            "sofmax", "softmax"),
    CONTENT("dtype unknown", CALL("\"dtype\":\"float16\""), "/dtype", "float16", "float32"),
    CONTENT("dtype a number", CALL("\"dtype\":32"), "/dtype", "dtype"),
    CONTENT("digits 0", CALL("\"digits\":0"), "/digits", "1", "17"),
    CONTENT("digits 18", CALL("\"digits\":18"), "/digits", "18", "17"),
    CONTENT("digits in between", CALL("\"digits\":2.5"), "/digits", "2.5"),
    CONTENT("mean_over_heads a number", CALL("\"mean_over_heads\":1"), "/mean_over_heads", ""),
    CONTENT("return a word", CALL("\"return\":\"weights\""), "/return", "return"),
    CONTENT("return nothing", CALL("\"return\":[]"), "/return", "return"),
    CONTENT("return a number", CALL("\"return\":[1]"), "/return", ""),
    CONTENT("return misspelt", CALL("\"return\":[\"weigths\"]"), "/return/0", "weigths", "weights"),
    CONTENT("return twice", CALL("\"return\":[\"output\",\"output\"]"), "/return/1", "output"),
    CONTENT("return a projection", CALL("\"return\":[\"output\",\"Q\"]"), "/return", "Q"),
    CONTENT("lse without softmax", CALL("\"return\":[\"lse\"],\"normalization\":\"none\""),
            "/return", "lse"),
    CONTENT("top_k not asked for", CALL("\"top_k\":2"), "/top_k", "top_k", "return"),
    CONTENT("top_k 0", CALL("\"top_k\":0,\"return\":[\"top_k\"]"), "/top_k", "top_k", "0"),
    CONTENT("top_k a text", CALL("\"top_k\":\"2\",\"return\":[\"top_k\"]"), "/top_k", ""),
    CONTENT("heads that do not divide", "{\"X\":[[1,2,3,4]],\"heads\":3}", ANYWHERE, "4 columns",
            "3"),
    CONTENT("kv_heads that do not divide", "{\"X\":[[1,2,3,4]],\"heads\":4,\"kv_heads\":3}",
            "/kv_heads", "heads", "4", "3"),
    CONTENT("kv_heads above heads", "{\"X\":[[1,2,3,4]],\"heads\":2,\"kv_heads\":4}", "/kv_heads",
            "2", "4"),
    CONTENT("kv_heads alone", CALL("\"kv_heads\":1"), "/kv_heads", "heads"),
    CONTENT("heads 0", CALL("\"heads\":0"), "/heads", "heads", "0"),
    CONTENT("heads a text", CALL("\"heads\":\"2\""), "/heads", "heads"),
    CONTENT("heads in between", CALL("\"heads\":1.5"), "/heads", "1.5"),
    CONTENT("heads without end", CALL("\"heads\":1000000000000000000"), ANYWHERE, "heads"),
    CONTENT("heads beyond whole numbers", CALL("\"heads\":1e300"), "/heads", "heads"),
    CONTENT("heads with weights", CALL("\"heads\":[{}]"), "/heads", "heads"),
};

#define X_W_Q              "\"X\":[[1,0],[0,1]],\"W_Q\":[[1,0],[0,1]]"
#define PROJECTED(options) "{" X_W_Q ",\"W_K\":[[1,0],[0,1]],\"W_V\":[[1,0],[0,1]]," options "}"
#define ONE_HEAD           "{\"W_Q\":[[1],[1]],\"W_K\":[[1],[1]],\"W_V\":[[1],[1]]}"

static const struct bad_request to_self_attention[] = {
    SYNTAX("not JSON", "{\"X\":[[1]],}", 11),
    CONTENT("an array", "[]", "", "object"),
    CONTENT("no X", "{\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]]}", ANYWHERE, "X"),
    CONTENT("no weights", "{\"X\":[[1]]}", ANYWHERE, "W_Q"),
    CONTENT("no W_K", "{\"X\":[[1]],\"W_Q\":[[1]],\"W_V\":[[1]]}", ANYWHERE, "W_K"),
    CONTENT("Q is given", PROJECTED("\"Q\":[[1]]"), "/Q",
            "unknown key \"Q\"; Q, K and V are keys of /attention"),
    CONTENT("Q, K and V alone", "{\"Q\":[[1]],\"K\":[[1]],\"V\":[[1]]}", "/Q",
            "Q, K and V are keys of /attention"),
    CONTENT("query", "{\"query\":[[1]]}", "/query", "it is \"X\" here"),
    CONTENT("value", PROJECTED("\"value\":[[1]]"), "/value", "it is \"context\" here"),
    CONTENT("out_proj", PROJECTED("\"out_proj\":[[1]]"), "/out_proj",
            "it is W_O and b_O of /self-attention"),
    CONTENT("an unknown layout", PROJECTED("\"weight_layout\":\"out-in\""), "/weight_layout",
            "weight_layout must be \"in_out\" or \"out_in\", not \"out-in\""),
    CONTENT("weights in lower case", PROJECTED("\"w_o\":[[1],[1]]"), "/w_o", "W_O"),
    CONTENT("X of rank 4", "{\"X\":[[[[1]]]],\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]]}", "/X", "X",
            "rank", "4"),
    CONTENT("rows of W_Q",
            "{\"X\":[[1,2,3,4,5,6,7]],\"W_Q\":[[1],[2],[3],[4],[5]],\"W_K\":[[1]],\"W_V\":[[1]]}",
            "/W_Q", "W_Q has 5 rows but X has 7 columns"),
    CONTENT("rows of W_V", "{" X_W_Q ",\"W_K\":[[1,0],[0,1]],\"W_V\":[[1]]}", "/W_V",
            "W_V has 1 row but X has 2 columns"),
    CONTENT("rows of W_K under a context", PROJECTED("\"context\":[[1,2,3]]"), "/W_K",
            "W_K has 2 rows but context has 3 columns"),
    CONTENT("columns of W_K", "{" X_W_Q ",\"W_K\":[[1],[1]],\"W_V\":[[1],[1]]}", "/W_K", "W_K", "1",
            "2"),
    CONTENT("W_K of another rank", "{" X_W_Q ",\"W_K\":[[[1,0],[0,1]]],\"W_V\":[[1],[1]]}", "/W_K",
            "W_K has rank 3 but W_Q has rank 2"),
    CONTENT("W_Q of rank 1", "{\"X\":[[1]],\"W_Q\":[1],\"W_K\":[[1]],\"W_V\":[[1]]}", "/W_Q", "W_Q",
            "rank", "1"),
    CONTENT("heads of W_K",
            "{\"X\":[[1]],\"W_Q\":[[[1]],[[1]],[[1]]],\"W_K\":[[[1]],[[1]]],\"W_V\":[[[1]],[[1]]]}",
            "/W_K", "3", "2"),
    CONTENT("heads of W_Q",
            "{\"X\":[[1]],\"W_Q\":[[[1]],[[1]]],\"W_K\":[[[1]],[[1]]],\"W_V\":[[[1]],[[1]]],"
            "\"heads\":3}",
            ANYWHERE, "2", "3"),
    CONTENT("heads that do not divide", PROJECTED("\"heads\":3"), ANYWHERE, "2 columns", "3"),
    CONTENT("heads without end", PROJECTED("\"heads\":1000000000000000000"), ANYWHERE, "heads"),
    CONTENT("rows of W_O", PROJECTED("\"W_O\":[[1],[1],[1]]"), "/W_O", "W_O has 3 rows", "2"),
    CONTENT("b_Q of another size", PROJECTED("\"b_Q\":[1,2,3]"), "/b_Q", "b_Q", "3", "2"),
    CONTENT("b_V a number", PROJECTED("\"b_V\":1"), "/b_V", "b_V"),
    CONTENT("b_O of another size", PROJECTED("\"W_O\":[[1],[1]],\"b_O\":[1,2]"), "/b_O", "b_O", "2",
            "1"),
    CONTENT("b_O alone", PROJECTED("\"b_O\":[1]"), "/b_O", "b_O", "W_O"),
    CONTENT("layout unknown", PROJECTED("\"weight_layout\":\"out-in\""), "/weight_layout", "out-in",
            "out_in"),
    CONTENT("context of another rank", PROJECTED("\"context\":[[[1,2]]]"), "/context",
            "context has rank 3 but X has rank 2"),
    CONTENT("past_K alone", PROJECTED("\"past_K\":[[1,1]]"), ANYWHERE, "past_V"),
    CONTENT("mask of another shape", PROJECTED("\"mask\":[[1,1,1]]"), "/mask", "mask", "3"),
    CONTENT("return misspelt", PROJECTED("\"return\":[\"Q\",\"W\"]"), "/return/1", "W"),
    CONTENT("no heads", "{\"X\":[[1,0],[0,1]],\"heads\":[]}", "/heads", "heads"),
    CONTENT("heads that are numbers", "{\"X\":[[1,0],[0,1]],\"heads\":[2]}", "/heads", "heads"),
    CONTENT("a head that is an array", "{\"X\":[[1,0],[0,1]],\"heads\":[[\"W_Q\"]]}", "/heads/0",
            ""),
    CONTENT("a head without W_K", "{\"X\":[[1,0],[0,1]],\"heads\":[{\"W_Q\":[[1],[1]]}]}",
            "/heads/0", "W_K"),
    CONTENT("W_O of a head", "{\"X\":[[1,0],[0,1]],\"heads\":[{\"W_Q\":[[1],[1]],\"W_O\":[[1]]}]}",
            "/heads/0/W_O", "it belongs beside \"heads\""),
    CONTENT("an unknown key of a head",
            "{\"X\":[[1,0],[0,1]],\"heads\":[" ONE_HEAD ",{\"w_q\":[[1],[1]]}]}", "/heads/1/w_q",
            "w_q", "W_Q"),
    CONTENT("rows of W_K of a head",
            "{\"X\":[[1,0],[0,1]],\"heads\":[" ONE_HEAD
            ",{\"W_Q\":[[1],[1]],\"W_K\":[[1],[1],[1]],\"W_V\":[[1],[1]]}]}",
            "/heads/1/W_K", "W_K", "3 rows", "2 columns"),
    CONTENT("columns of W_K of a head",
            "{\"X\":[[1,0],[0,1]],\"heads\":[{\"W_Q\":[[1],[1]],\"W_K\":[[1,2],[1,2]],"
            "\"W_V\":[[1],[1]]}]}",
            "/heads/0/W_K", "W_K", "2", "1"),
    CONTENT("a head's W_V of rank 3",
            "{\"X\":[[1,0],[0,1]],\"heads\":[{\"W_Q\":[[1],[1]],\"W_K\":[[1],[1]],"
            "\"W_V\":[[[1],[1]]]}]}",
            "/heads/0/W_V", "rank"),
    CONTENT("null in a head",
            "{\"X\":[[1]],\"heads\":[{\"W_Q\":[[null]],\"W_K\":[[1]],"
            "\"W_V\":[[1]]}]}",
            "/heads/0/W_Q/0/0", ""),
    CONTENT("heads of their own and W_Q", "{" X_W_Q ",\"heads\":[" ONE_HEAD "]}", ANYWHERE, "W_Q",
            "heads"),
    CONTENT("heads of their own and past_K",
            "{\"X\":[[1,0],[0,1]],\"heads\":[" ONE_HEAD "],\"past_K\":[[1]],\"past_V\":[[1]]}",
            "/past_K", "past_K"),
    CONTENT("heads of their own and kv_heads",
            "{\"X\":[[1,0],[0,1]],\"heads\":[" ONE_HEAD "],\"kv_heads\":1}", "/kv_heads", "heads"),
};

/* X is drawn as it says here. */
#define DRAWN(members)   "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"X\":{" members "}}"
#define TORCHED(members) "{\"random\":{\"generator\":\"torch\",\"seed\":1},\"X\":{" members "}}"
#define GENERATOR(value) "{\"X\":[[1]],\"random\":" value "}"
#define SPOKEN(members)                                                                            \
    "{\"random\":{\"generator\":\"torch\",\"seed\":1},\"text\":\"b a\"," members "}"

/* Of /attention, but for the last ones. */
static const struct bad_request to_draws[] = {
    CONTENT("no generator", "{\"X\":{\"random\":\"randn\",\"shape\":[2,2]}}", "/X",
            "X is to be drawn", "\"random\""),
    CONTENT("random a number", GENERATOR("42"), "/random", "random must be an object"),
    CONTENT("random a text", GENERATOR("\"numpy\""), "/random", "random must be an object"),
    CONTENT("random a draw", GENERATOR("{\"random\":\"randn\",\"shape\":[2,2]}"), "/random/random",
            "unknown key \"random\""),
    CONTENT("no seed", GENERATOR("{\"generator\":\"numpy\"}"), "/random", "random has no seed"),
    CONTENT("only a seed", GENERATOR("{\"seed\":1}"), "/random", "random has no generator"),
    CONTENT("an unknown generator", GENERATOR("{\"generator\":\"nunpy\",\"seed\":1}"),
            "/random/generator", "nunpy", "\"numpy\" or \"torch\""),
    CONTENT("a generator of another kind", GENERATOR("{\"generator\":\"jax\",\"seed\":1}"),
            "/random/generator", "\"numpy\" or \"torch\"", "jax"),
    CONTENT("a misspelt seed", GENERATOR("{\"generator\":\"numpy\",\"sed\":1}"), "/random/sed",
            "did you mean \"seed\"?"),
    CONTENT("a seed in between", GENERATOR("{\"generator\":\"numpy\",\"seed\":1.5}"),
            "/random/seed", "whole number", "1.5"),
    CONTENT("a seed below 0", GENERATOR("{\"generator\":\"numpy\",\"seed\":-1}"), "/random/seed",
            "0 to 4294967295", "-1"),
    CONTENT("a seed of 33 bits", GENERATOR("{\"generator\":\"numpy\",\"seed\":4294967296}"),
            "/random/seed", "4294967296"),
    CONTENT("a seed beyond exact numbers",
            GENERATOR("{\"generator\":\"torch\",\"seed\":9007199254740994}"), "/random/seed",
            "not exact"),
    CONTENT("a seed that may have been another",
            GENERATOR("{\"generator\":\"torch\",\"seed\":9007199254740993}"), "/random/seed",
            "9007199254740991"),
    CONTENT("an empty object", DRAWN(""), "/X", "no \"random\"", "X must be an array"),
    CONTENT("a misspelt random", DRAWN("\"randm\":\"randn\",\"shape\":[2,2]"), "/X/randm",
            "did you mean \"random\"?"),
    CONTENT("no distribution", DRAWN("\"shape\":[2,2]"), "/X", "no \"random\""),
    CONTENT("an unknown distribution", DRAWN("\"random\":\"rand_n\",\"shape\":[2,2]"), "/X/random",
            "rand_n", "did you mean \"randn\"?"),
    CONTENT("a distribution of another kind", DRAWN("\"random\":\"poisson\",\"shape\":[2,2]"),
            "/X/random", "\"randint\"", "poisson"),
    CONTENT("a distribution that is a number", DRAWN("\"random\":1,\"shape\":[2,2]"), "/X/random",
            "\"randint\"", "not a number"),
    CONTENT("no shape", DRAWN("\"random\":\"randn\""), "/X", "X has no shape"),
    CONTENT("size instead of shape", DRAWN("\"random\":\"randn\",\"size\":[2,2]"), "/X/size",
            "unknown key \"size\"; it is \"shape\" here"),
    CONTENT("an empty shape", DRAWN("\"random\":\"randn\",\"shape\":[]"), "/X/shape", "empty"),
    CONTENT("a shape of 0", DRAWN("\"random\":\"randn\",\"shape\":[2,0]"), "/X/shape/1", "not 0"),
    CONTENT("a shape below 0", DRAWN("\"random\":\"randn\",\"shape\":[-1,2]"), "/X/shape/0", "-1"),
    CONTENT("a shape in between", DRAWN("\"random\":\"randn\",\"shape\":[2.5]"), "/X/shape/0",
            "2.5"),
    CONTENT("a shape of texts", DRAWN("\"random\":\"randn\",\"shape\":[\"2\"]"), "/X/shape", ""),
    CONTENT("a shape of shapes", DRAWN("\"random\":\"randn\",\"shape\":[[2,2]]"), "/X/shape",
            "rank"),
    CONTENT("a shape that is null", DRAWN("\"random\":\"randn\",\"shape\":null"), "/X/shape", ""),
    CONTENT("a shape of 5 axes", DRAWN("\"random\":\"randn\",\"shape\":[1,1,1,1,1]"), "/X/shape",
            "5 axes", "4"),
    CONTENT("more elements than can be counted",
            DRAWN("\"random\":\"randn\",\"shape\":[4294967296,4294967296]"), "/X/shape",
            "than can be counted"),
    CONTENT("a shape of rank 1", DRAWN("\"random\":\"randn\",\"shape\":[3]"), "/X", "rank"),
    CONTENT("randint without high", DRAWN("\"random\":\"randint\",\"shape\":[2,2]"), "/X",
            "X has no high"),
    CONTENT("randint of nothing", DRAWN("\"random\":\"randint\",\"high\":0,\"shape\":[2,2]"),
            "/X/high", "high", "0"),
    CONTENT("randint the wrong way round",
            DRAWN("\"random\":\"randint\",\"low\":3,\"high\":2,\"shape\":[2,2]"), "/X/high", "3",
            "2"),
    CONTENT("randint in between", DRAWN("\"random\":\"randint\",\"high\":2.5,\"shape\":[2,2]"),
            "/X/high", "2.5", "whole"),
    CONTENT("randint beyond exact numbers",
            DRAWN("\"random\":\"randint\",\"high\":1e17,\"shape\":[2,2]"), "/X/high", "not exact"),
    CONTENT("randint of null", DRAWN("\"random\":\"randint\",\"high\":null,\"shape\":[2,2]"),
            "/X/high", "number"),
    CONTENT("uniform the wrong way round",
            DRAWN("\"random\":\"uniform\",\"low\":2,\"high\":1,\"shape\":[2,2]"), "/X/high", "2",
            "1"),
    CONTENT("uniform, low above 1", TORCHED("\"random\":\"uniform\",\"low\":2,\"shape\":[2,2]"),
            "/X", "high must not be less than low"),
    CONTENT("uniform out of range",
            DRAWN("\"random\":\"uniform\",\"low\":-1e38,\"high\":1e38,\"shape\":[2,2]"), "/X/low",
            "1e37"),
    CONTENT("a std below 0", DRAWN("\"random\":\"normal\",\"std\":-1,\"shape\":[2,2]"), "/X/std",
            "std", "-1"),
    CONTENT("a mean out of range", TORCHED("\"random\":\"normal\",\"mean\":1e99,\"shape\":[2,2]"),
            "/X/mean", "1e37"),
    CONTENT("rand with low", DRAWN("\"random\":\"rand\",\"low\":1,\"shape\":[2,2]"), "/X/low",
            "rand has no low", "uniform"),
    CONTENT("randn with std", DRAWN("\"random\":\"randn\",\"std\":2,\"shape\":[2,2]"), "/X/std",
            "randn has no std", "normal"),
    CONTENT("normal with high", DRAWN("\"random\":\"normal\",\"high\":2,\"shape\":[2,2]"),
            "/X/high", "normal has no high"),
    CONTENT("randint with mean",
            DRAWN("\"random\":\"randint\",\"high\":2,\"mean\":2,\"shape\":[2,2]"), "/X/mean",
            "randint has no mean"),
    CONTENT("numpy in float32", DRAWN("\"random\":\"randn\",\"dtype\":\"float32\",\"shape\":[2,2]"),
            "/X/dtype", "float64"),
    CONTENT("torch in float16",
            TORCHED("\"random\":\"randn\",\"dtype\":\"float16\",\"shape\":[2,2]"), "/X/dtype",
            "float16"),
    CONTENT(
        "a discard that is no array",
        DRAWN(
            "\"random\":\"randn\",\"shape\":[2,2],\"discard\":{\"random\":\"randn\",\"shape\":2}"),
        "/X/discard", "an array of draws"),
    CONTENT("a discard of numbers", DRAWN("\"random\":\"randn\",\"shape\":[2,2],\"discard\":[3]"),
            "/X/discard", "an array of draws"),
    CONTENT(
        "a bad draw to discard",
        DRAWN("\"random\":\"randn\",\"shape\":[2,2],\"discard\":[{\"random\":\"rand\",\"shape\":2},"
              "{\"random\":\"rand\"}]"),
        "/X/discard/1", "no shape"),
    CONTENT(
        "a discard in a discard",
        DRAWN("\"random\":\"randn\",\"shape\":[2,2],\"discard\":[{\"random\":\"rand\",\"shape\":2,"
              "\"discard\":[]}]"),
        "/X/discard/0/discard", "unknown key \"discard\""),
    CONTENT("a mask of randn",
            "{\"X\":[[1]],\"random\":{\"generator\":\"numpy\",\"seed\":1},\"mask\":{\"random\":"
            "\"randn\","
            "\"shape\":[1,1]}}",
            "/mask", "randint"),
    CONTENT("a mask of 0, 1 and 2",
            "{\"X\":[[1]],\"random\":{\"generator\":\"numpy\",\"seed\":1},\"mask\":{\"random\":"
            "\"randint\","
            "\"high\":3,\"shape\":[1,1]}}",
            "/mask", "0 and 1"),
    CONTENT("drawn lengths", CALL("\"lengths\":{\"random\":\"randint\",\"high\":2,\"shape\":1}"),
            "/lengths", "lengths"),
    CONTENT("a drawn scale", CALL("\"scale\":{\"random\":\"rand\",\"shape\":1}"), "/scale",
            "number"),
    CONTENT("a drawn nothing", CALL("\"wings\":{\"random\":\"rand\",\"shape\":1}"), "/wings",
            "unknown key"),
    CONTENT("shapes that do not fit",
            "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"Q\":[[1,2]],\"V\":[[1]],\"K\":{"
            "\"random\":"
            "\"randn\",\"shape\":[1,3]}}",
            "/K", "K has 3 columns but Q has 2"),

    /* --- words in place of X */
    CONTENT("text alone", "{\"text\":\"a b\"}", "/text", "text needs embedding"),
    CONTENT("tokens alone", "{\"tokens\":[\"a\"]}", "/tokens", "tokens needs embedding"),
    CONTENT("text and tokens", SPOKEN("\"tokens\":[\"a\"],\"embedding_dim\":2"), "/tokens",
            "text or tokens, not both"),
    CONTENT("text and X", SPOKEN("\"X\":[[1]],\"embedding_dim\":2"), "/text", "place of X",
            "X is given"),
    CONTENT("text and K", SPOKEN("\"K\":[[1]],\"embedding_dim\":2"), "/text", "K is given"),
    CONTENT("embedding and its dim", SPOKEN("\"embedding\":[[1],[2]],\"embedding_dim\":2"),
            "/embedding_dim", "not both"),
    CONTENT("an embedding of no words", CALL("\"embedding\":[[1]]"), "/embedding",
            "without text or tokens"),
    CONTENT("an embedding_dim of no words", CALL("\"embedding_dim\":1"), "/embedding_dim",
            "without text or tokens"),
    CONTENT("embedding_dim without random", "{\"text\":\"a\",\"embedding_dim\":2}",
            "/embedding_dim", "embedding_dim is to be drawn"),
    CONTENT("embedding_dim of numpy",
            "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"text\":\"a\",\"embedding_dim\":2}",
            "/embedding_dim", "torch.nn.Embedding", "numpy"),
    CONTENT("embedding_dim 0", SPOKEN("\"embedding_dim\":0"), "/embedding_dim", "not 0"),
    CONTENT("embedding_dim in between", SPOKEN("\"embedding_dim\":1.5"), "/embedding_dim", "1.5"),
    CONTENT("words that heads do not divide", SPOKEN("\"embedding_dim\":3,\"heads\":2"), "/text",
            "X has 3 columns", "heads = 2"),
    CONTENT("tokens that heads do not divide",
            "{\"tokens\":[\"a\"],\"embedding\":[[1,2,3]],\"heads\":2}", "/tokens",
            "X has 3 columns", "heads = 2"),
    CONTENT("an embedding of rank 1", SPOKEN("\"embedding\":[1,2]"), "/embedding", "rank"),
    CONTENT("an embedding with null", SPOKEN("\"embedding\":[[1],[null]]"), "/embedding/1/0", ""),
    CONTENT("too few rows", SPOKEN("\"embedding\":[[1]]"), "/embedding",
            "the word \"b\" has the id 1", "1 row"),
    CONTENT(
        "a long word without a row",
        "{\"tokens\":[\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\u00e9\","
        "\"a\"],\"embedding\":[[1]]}",
        "/embedding",
        "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" has the id 1"),
    CONTENT("no words", "{\"text\":\"\",\"embedding\":[[1]]}", "/text", "no words"),
    CONTENT("marks only", "{\"text\":\" , ;. \",\"embedding\":[[1]]}", "/text", "no words"),
    CONTENT("text a list", "{\"text\":[\"a\"],\"embedding\":[[1]]}", "/text", "string"),
    CONTENT("tokens a text", "{\"tokens\":\"a\",\"embedding\":[[1]]}", "/tokens",
            "an array of words"),
    CONTENT("tokens of numbers", "{\"tokens\":[1,2],\"embedding\":[[1]]}", "/tokens",
            "an array of words"),
    CONTENT("no tokens", "{\"tokens\":[],\"embedding\":[[1]]}", "/tokens", "no words"),
    CONTENT("a token that is none", "{\"tokens\":[\"a\",null],\"embedding\":[[1]]}", "/tokens/1",
            "string"),
    CONTENT("a misspelt embedding", "{\"text\":\"a\",\"embeding\":[[1]]}", "/embeding",
            "embedding"),
};

static const struct bad_request to_drawn_heads[] = {
    CONTENT(
        "a draw in a head",
        "{\"X\":[[1]],\"random\":{\"generator\":\"torch\",\"seed\":1},\"heads\":[{\"W_Q\":[[1]],"
        "\"W_K\":{\"random\":\"rand\",\"shape\":[1,1],\"hight\":2},\"W_V\":[[1]]}]}",
        "/heads/0/W_K/hight", "did you mean \"high\"?"),
    CONTENT("a mask of another kind in a head",
            "{\"X\":[[1]],\"random\":{\"generator\":\"torch\",\"seed\":1},\"heads\":[{\"W\":{"
            "\"random\":"
            "\"rand\",\"shape\":[1,1]}}]}",
            "/heads/0/W", "unknown key"),
    CONTENT("text and no weights", SPOKEN("\"embedding_dim\":2"), ANYWHERE, "W_Q is missing"),
    CONTENT("words of another width",
            SPOKEN("\"embedding_dim\":2,\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]]"), "/W_Q",
            "W_Q has 1 row but X has 2 columns"),
};

static const struct bad_request to_embeddings[] = {
    SYNTAX("not JSON", "{\"text\":\"a", 10),
    CONTENT("no words", "{}", ANYWHERE, "text is missing"),
    CONTENT("an array", "[]", "", "object"),
    CONTENT("X", "{\"text\":\"a\",\"X\":[[1]]}", "/X", "unknown key \"X\""),
    CONTENT("an embedding alone", "{\"embedding\":[[1]]}", "/embedding", "without text or tokens"),
    CONTENT("digits 0", "{\"text\":\"a\",\"digits\":0}", "/digits", "17"),
    CONTENT("too few rows", "{\"tokens\":[\"a\",\"a\",\"b\"],\"embedding\":[[1],[2]]}",
            "/embedding", "\"b\" has the id 2", "2 rows"),
};

static const struct bad_request to_softmax[] = {
    SYNTAX("not JSON", "[1,2", 4),
    CONTENT("no object", "[1,2]", "", "object"),
    CONTENT("no X", "{}", ANYWHERE, "X"),
    CONTENT("X in lower case", "{\"x\":[1]}", "/x", "x"),
    CONTENT("the name of PyTorch for axis", "{\"X\":[1],\"dim\":0}", "/dim", "\"axis\" here"),
    CONTENT("X a number", "{\"X\":1}", "/X", "X"),
    CONTENT("X a text", "{\"X\":\"1\"}", "/X", "X"),
    CONTENT("X empty", "{\"X\":[]}", "/X", "empty"),
    CONTENT("X ragged", "{\"X\":[[[1]],[[1],[2]]]}", "/X/1", ""),
    CONTENT("more than a float32 in X", "{\"X\":[0,1e39]}", "/X/1", "1e39"),
    CONTENT("rank 9", "{\"X\":[[[[[[[[[1]]]]]]]]]}", "/X", "8"),
    CONTENT("axis 2 of 2", "{\"X\":[[1]],\"axis\":2}", "/axis", "axis", "2"),
    CONTENT("axis -3 of 2", "{\"X\":[[1]],\"axis\":-3}", "/axis", "-3"),
    CONTENT("axis in between", "{\"X\":[[1]],\"axis\":0.5}", "/axis", "0.5"),
    CONTENT("axis without end", "{\"X\":[[1]],\"axis\":1e300}", "/axis", "axis"),
    CONTENT("text", "{\"text\":\"a\"}", "/text", "unknown key \"text\""),
    CONTENT("drawn of rank 5",
            "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"X\":{\"random\":\"rand\",\"shape\":"
            "[1,1,1,1,"
            "1]}}",
            "/X/shape", "4"),
    CONTENT("an option of attention", "{\"X\":[[1]],\"mask\":[[1]]}", "/mask", "mask"),
    CONTENT("digits 0", "{\"X\":[[1]],\"digits\":0}", "/digits", "17"),
};

static const struct table {
    const char *path;
    const struct bad_request *rows;
    size_t count;
} tables[] = {
    {"/attention", to_attention, COUNT(to_attention)},
    {"/self-attention", to_self_attention, COUNT(to_self_attention)},
    {"/multi-head-attention", to_self_attention, COUNT(to_self_attention)},
    {"/softmax", to_softmax, COUNT(to_softmax)},
    {"/attention", to_draws, COUNT(to_draws)},
    {"/multi-head-attention", to_drawn_heads, COUNT(to_drawn_heads)},
    {"/embeddings", to_embeddings, COUNT(to_embeddings)},
};

static const char *const computing[] = {"/attention", "/self-attention", "/multi-head-attention",
                                        "/softmax"};

static struct server_process server;

static void start(void) {
    cr_assert(server_spawn(&server, NULL), "the daemon does not start");
}

static void stop(void) {
    cr_expect(server_stop(&server) == 0, "the daemon does not end with status 0");
}

TestSuite(errors, .timeout = 120);

/* One answer to one bad request, with what to say if it is wrong. */
static void expect_text(const char *got, const char *expected, const char *what, const char *name) {
    cr_expect(got != NULL && strstr(got, expected) != NULL, "%s: the %s \"%s\" does not say \"%s\"",
              name, what, got != NULL ? got : "(none)", expected);
}

/* The members that every problem has, whatever went wrong. The answer is parsed into *problem. */
static void expect_problem(const struct client_response *response, int status, const char *name,
                           struct cJSON **problem) {
    char media_type[64] = "", id[160] = "";
    double number = 0;
    *problem = json_parse(response->body, response->size);
    cr_expect(response->status == status, "%s: status %d, not %d: %s", name, response->status,
              status, response->body);
    client_header(response, "Content-Type", media_type, sizeof media_type);
    client_header(response, "X-Request-Id", id, sizeof id);
    cr_expect(strcmp(media_type, "application/problem+json") == 0, "%s: media type \"%s\"", name,
              media_type);
    cr_expect(json_is_object(*problem), "%s: no problem document: %s", name, response->body);
    expect_text(json_text(json_get(*problem, "type")), "about:blank", "type", name);
    cr_expect(json_number(json_get(*problem, "status"), &number) && (int)number == status,
              "%s: the member status is %g", name, number);
    const char *request_id = json_text(json_get(*problem, "request_id"));
    cr_expect(request_id != NULL && id[0] != '\0' && strcmp(request_id, id) == 0,
              "%s: request_id \"%s\" in the body, \"%s\" in the header", name,
              request_id != NULL ? request_id : "(none)", id);
}

static void expect_pointer(const char *got, const char *expected, const char *name) {
    size_t size = strlen(expected);
    if (strcmp(expected, ANYWHERE) == 0)
        return;
    if (size == 0)
        cr_expect(got == NULL || got[0] == '\0', "%s: pointer \"%s\"", name, got);
    else
        cr_expect(got != NULL && strncmp(got, expected, size) == 0 &&
                      (got[size] == '\0' || got[size] == '/'),
                  "%s: pointer \"%s\", not \"%s\"", name, got != NULL ? got : "(none)", expected);
}

/* The line and the column are those of the offset. */
static void expect_place(const struct cJSON *problem, const struct bad_request *row,
                         const char *name) {
    double line = 0, column = 0, lines = 1, columns = 1;
    for (size_t i = 0; i < row->offset; i++) {
        lines += row->body[i] == '\n';
        columns =
            row->body[i] == '\n' ? 1 : columns + (((unsigned char)row->body[i] & 0xC0) != 0x80);
    }
    cr_expect(json_number(json_get(problem, "line"), &line) && line == lines &&
                  json_number(json_get(problem, "column"), &column) && column == columns,
              "%s: line %g column %g, not %g and %g", name, line, column, lines, columns);
}

static void expect_row(const struct bad_request *row, const char *path,
                       const struct client_response *response) {
    char name[96];
    struct cJSON *problem;
    snprintf(name, sizeof name, "%s: %s", path, row->name);
    expect_problem(response, row->status, name, &problem);
    for (size_t i = 0; i < COUNT(row->detail) && row->detail[i] != NULL; i++)
        expect_text(json_text(json_get(problem, "detail")), row->detail[i], "detail", name);
    double offset = -1;
    if (row->status == 422)
        expect_pointer(json_text(json_get(problem, "pointer")), row->pointer, name);
    else {
        cr_expect(json_number(json_get(problem, "offset"), &offset) &&
                      (size_t)offset == row->offset,
                  "%s: offset %g, not %zu: %s", name, offset, row->offset, response->body);
        expect_place(problem, row, name);
    }
    json_free(problem);
}

/* All rows in one test: the names are in the messages, and a daemon for each row would be slow. */
Test(errors, say_what_is_wrong_and_where, .init = start, .fini = stop) {
    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct bad_request *row = &tables[t].rows[i];
            struct client_response response;
            bool answered = client_request(server.port, "POST", tables[t].path,
                                           "Content-Type: application/json\r\n", row->body,
                                           row->size, &response);
            cr_assert(answered, "%s: %s: no answer", tables[t].path, row->name);
            expect_row(row, tables[t].path, &response);
            client_response_free(&response);
        }
}

/* ---------------------------------------------------------------- one connection for all of it */

static void post_on(struct client_connection *connection, const char *path, const char *body,
                    size_t size, struct client_response *response) {
    char head[256];
    int head_size =
        snprintf(head, sizeof head,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 path, size);
    cr_assert(client_send(connection, head, (size_t)head_size) &&
              client_send(connection, body, size) && client_receive(connection, false, response));
}

Test(errors, leave_the_connection_usable, .init = start, .fini = stop) {
    static const char good[] = "{\"X\":[[1]]}";
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, server.port));
    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct bad_request *row = &tables[t].rows[i];
            post_on(&connection, tables[t].path, row->body, row->size, &response);
            cr_expect(response.status == row->status, "%s: %s: status %d", tables[t].path,
                      row->name, response.status);
            client_response_free(&response);
            post_on(&connection, "/attention", good, strlen(good), &response);
            cr_expect(response.status == 200 &&
                          strcmp(response.body, "{\"output\":[[1]],\"weights\":[[1]]}\n") == 0,
                      "%s: %s: afterwards %d %s", tables[t].path, row->name, response.status,
                      response.body);
            client_response_free(&response);
        }
    client_close(&connection);
}

/* -------------------------------------------------------------- paths, methods and media types */

struct bad_head {
    const char *method, *path, *headers;
    int status;
    const char *detail;
    const char *allow;
};

static const struct bad_head heads[] = {
    {"GET", "/nowhere", NULL, 404, "/nowhere", NULL},
    {"POST", "/atention", NULL, 404, "/atention", NULL},
    {"POST", "/Attention", NULL, 404, "/Attention", NULL},
    {"POST", "/attention/", NULL, 404, "/attention/", NULL},
    {"GET", "/attention/1", NULL, 404, "/attention/1", NULL},
    {"GET", "/health", NULL, 404, "/health", NULL},
    {"GET", "/attention", NULL, 405, "GET", "POST"},
    {"PUT", "/self-attention", NULL, 405, "PUT", "POST"},
    {"DELETE", "/multi-head-attention", NULL, 405, "DELETE", "POST"},
    {"GET", "/softmax?X=1", NULL, 405, "GET", "POST"},
    {"GET", "/embeddings", NULL, 405, "GET", "POST"},
    {"POST", "/health/live", NULL, 405, "POST", "GET, HEAD"},
    {"POST", "/health/ready", NULL, 405, "POST", "GET, HEAD"},
    {"DELETE", "/version", NULL, 405, "DELETE", "GET, HEAD"},
    {"PUT", "/openapi.yaml", NULL, 405, "PUT", "GET, HEAD"},
    {"POST", "/", NULL, 405, "POST", "GET, HEAD"},
    {"DELETE", "/docs", NULL, 405, "DELETE", "GET, HEAD"},
    {"POST", "/assets/a.js", NULL, 405, "POST", "GET, HEAD"},
    {"GET", "/assets/main.js", NULL, 404, "main.js", NULL},
    {"GET", "/assets/", NULL, 404, "/assets/", NULL},
    {"GET", "/assets/a/b", NULL, 404, "/assets/a/b", NULL},
    {"GET", "/assets/..%2Findex.html", NULL, 404, "/assets/../index.html", NULL},
    {"GET", "/docs/", NULL, 404, "/docs/", NULL},
    {"POST", "/attention", "Content-Type: text/plain\r\n", 415, "text/plain", NULL},
    {"POST", "/attention", "Content-Type: text/plain; charset=utf-8\r\n", 415, "text/plain", NULL},
    {"POST", "/attention", "Content-Type: application/octet-stream\r\n", 415, "application/json",
     NULL},
    {"POST", "/attention", "Content-Type: application/jsonl\r\n", 415, "application/jsonl", NULL},
    {"POST", "/attention", "Content-Type: json\r\n", 415, "application/json", NULL},
    {"POST", "/self-attention", "Content-Type: application/xml\r\n", 415, "application/xml", NULL},
    {"POST", "/multi-head-attention", "Content-Type: multipart/form-data; boundary=x\r\n", 415,
     "multipart/form-data", NULL},
    {"POST", "/softmax", "Content-Type: application/x-yaml\r\n", 415, "application/x-yaml", NULL},
    {"POST", "/embeddings", "Content-Type: text/html\r\n", 415, "text/html", NULL},
    {"POST", "/softmax", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", 415,
     "gzip", NULL},
};

Test(errors, unknown_paths_methods_and_media_types, .init = start, .fini = stop) {
    static const char body[] = "{\"X\":[[1]]}";
    for (size_t i = 0; i < COUNT(heads); i++) {
        const struct bad_head *row = &heads[i];
        struct client_response response;
        struct cJSON *problem;
        char allow[64] = "", name[128];
        bool has_body = strcmp(row->method, "GET") != 0 && strcmp(row->method, "DELETE") != 0;
        snprintf(name, sizeof name, "%s %s %.40s", row->method, row->path,
                 row->headers != NULL ? row->headers : "");
        bool answered =
            client_request(server.port, row->method, row->path, row->headers,
                           has_body ? body : NULL, has_body ? strlen(body) : 0, &response);
        cr_assert(answered, "%s: no answer", name);
        expect_problem(&response, row->status, name, &problem);
        expect_text(json_text(json_get(problem, "detail")), row->detail, "detail", name);
        bool has_allow = client_header(&response, "Allow", allow, sizeof allow);
        cr_expect(has_allow == (row->allow != NULL), "%s: Allow: %s", name, allow);
        if (row->allow != NULL)
            cr_expect(strcmp(allow, row->allow) == 0, "%s: Allow: %s", name, allow);
        json_free(problem);
        client_response_free(&response);
    }
}

/* curl -d sends a form's media type unless told otherwise, and some clients send none. */
static const char *const accepted[] = {
    NULL,
    "Content-Type: application/json\r\n",
    "Content-Type: application/json; charset=utf-8\r\n",
    "Content-Type: Application/JSON;charset=UTF-8\r\n",
    "Content-Type: application/x-www-form-urlencoded\r\n",
    "Content-Type: application/json\r\nContent-Encoding: identity\r\n",
};

Test(errors, media_types_of_json_and_of_curl_are_none, .init = start, .fini = stop) {
    static const char body[] = "{\"X\":[0]}";
    for (size_t i = 0; i < COUNT(accepted); i++) {
        struct client_response response;
        cr_assert(client_request(server.port, "POST", "/softmax", accepted[i], body, strlen(body),
                                 &response));
        cr_expect(response.status == 200 && strcmp(response.body, "{\"output\":[1]}\n") == 0,
                  "%s: %d %s", accepted[i], response.status, response.body);
        client_response_free(&response);
    }
}

/* -------------------------------------------------------------------------------------- limits */

/* A body of about `numbers` * 2 bytes that is a sound question on every path. Returned owned. */
static char *long_question(const char *path, size_t rows, size_t columns) {
    char *text = malloc(4 * (rows * columns + 2 * rows + columns) + 256), *at = text;
    cr_assert(text != NULL);
    at += sprintf(at, "{\"X\":[");
    for (size_t i = 0; i < rows; i++) {
        at += sprintf(at, "%s[", i > 0 ? "," : "");
        for (size_t j = 0; j < columns; j++)
            at += sprintf(at, "%s1", j > 0 ? "," : "");
        at += sprintf(at, "]");
    }
    at += sprintf(at, "]");
    bool projected = strcmp(path, "/attention") != 0 && strcmp(path, "/softmax") != 0;
    for (size_t w = 0; projected && w < 3; w++) {
        at += sprintf(at, ",\"W_%c\":[", "QKV"[w]);
        for (size_t j = 0; j < columns; j++)
            at += sprintf(at, "%s[1]", j > 0 ? "," : "");
        at += sprintf(at, "]");
    }
    sprintf(at, "}");
    return text;
}

static void expect_refused(unsigned port, const char *path, const char *headers, const char *body,
                           const char *said) {
    struct client_response response;
    struct cJSON *problem;
    cr_assert(client_request(port, "POST", path, headers, body, strlen(body), &response),
              "%s: no answer", path);
    expect_problem(&response, 413, path, &problem);
    expect_text(json_text(json_get(problem, "detail")), said, "detail", path);
    json_free(problem);
    client_response_free(&response);
}

static void expect_answered(unsigned port, const char *path, const char *body) {
    struct client_response response;
    cr_assert(client_request(port, "POST", path, NULL, body, strlen(body), &response));
    cr_expect(response.status == 200, "%s: %d %s", path, response.status, response.body);
    client_response_free(&response);
}

Test(errors, body_over_its_limit) {
    static const char *const arguments[] = {"--max-body", "1024", NULL};
    cr_assert(server_spawn(&server, arguments));
    for (size_t i = 0; i < COUNT(computing); i++) {
        char *small = long_question(computing[i], 10, 10),
             *large = long_question(computing[i], 25, 25);
        cr_assert(strlen(small) < 1024 && strlen(large) > 1024);
        expect_answered(server.port, computing[i], small);
        expect_refused(server.port, computing[i], NULL, large, "1024");
        expect_answered(server.port, computing[i], small);
        free(small);
        free(large);
    }
    stop();
}

/* The length of a chunked body is known only when it is too late to refuse it by its headers. */
Test(errors, chunked_body_over_its_limit) {
    static const char *const arguments[] = {"--max-body", "1024", NULL};
    static const char head[] = "POST /attention HTTP/1.1\r\nHost: localhost\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    struct client_connection connection;
    struct client_response response;
    struct cJSON *problem;
    cr_assert(server_spawn(&server, arguments));
    cr_assert(client_open(&connection, server.port));
    cr_assert(client_send(&connection, head, strlen(head)));
    char *large = long_question("/attention", 25, 25), size_line[32];
    bool taken = true; /* refused before the end is fine */
    for (size_t at = 0, size = strlen(large); taken && at < size; at += 100) {
        size_t part = size - at < 100 ? size - at : 100;
        int line = snprintf(size_line, sizeof size_line, "%zx\r\n", part);
        taken = client_send(&connection, size_line, (size_t)line) &&
                client_send(&connection, large + at, part) && client_send(&connection, "\r\n", 2);
    }
    if (taken)
        client_send(&connection, "0\r\n\r\n", 5);
    cr_assert(client_receive(&connection, false, &response));
    expect_problem(&response, 413, "chunked", &problem);
    expect_text(json_text(json_get(problem, "detail")), "1024", "detail", "chunked");
    json_free(problem);
    client_response_free(&response);
    client_close(&connection);
    free(large);
    stop();
}

Test(errors, work_over_its_limit) {
    static const char *const arguments[] = {"--max-work", "1000000", NULL};
    cr_assert(server_spawn(&server, arguments));
    for (size_t i = 0; i + 1 < COUNT(computing); i++) { /* a softmax is no work to speak of */
        char *small = long_question(computing[i], 4, 4),
             *large = long_question(computing[i], 300, 300);
        expect_answered(server.port, computing[i], small);
        expect_refused(server.port, computing[i], NULL, large, "1000000");
        free(small);
        free(large);
    }
    stop();
}
