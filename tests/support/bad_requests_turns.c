/* bad_requests_turns.c - bad requests with norms, rotary embedding and extra keys. */
#include "support/bad_requests_rows.h"

/* A call with three rows of four columns. */
#define ROWS          "\"X\":[[1,2,3,4],[0,1,0,1],[1,1,0,0]]"
#define OF_ROWS(more) "{" ROWS "," more "}"
#define TURN(more)    OF_ROWS("\"rotary\":{" more "}")
#define SCALE(more)   TURN("\"scaling\":{" more "}")

const struct bad_request bad_turns[] = {
    /* --- norms */
    CONTENT("a norm of another size", OF_ROWS("\"norm_Q\":[1,1,1]"), "/norm_Q",
            "norm_Q must have the shape (4), not (3)"),
    CONTENT("a norm of two axes", OF_ROWS("\"norm_K\":[[1,1,1,1]]"), "/norm_K", "norm_K"),
    CONTENT("a negative epsilon", OF_ROWS("\"norm_epsilon\":-1"), "/norm_epsilon",
            "norm_epsilon is -1", "at least 0"),
    CONTENT("an epsilon in quotes", OF_ROWS("\"norm_epsilon\":\"1e-6\""), "/norm_epsilon",
            "a number, not a string"),
    CONTENT("a text in a norm", OF_ROWS("\"norm_Q\":[1,\"1\",1,1]"), "/norm_Q/1", "a string"),
    CONTENT("norm_Q in another case", OF_ROWS("\"norm_q\":[1,1,1,1]"), "/norm_q",
            "did you mean \"norm_Q\"?"),

    /* --- the object */
    CONTENT("rotary a number", OF_ROWS("\"rotary\":10000"), "/rotary", "true, false or an object"),
    CONTENT("an unknown key of rotary", TURN("\"theta\":1"), "/rotary/theta",
            "unknown key \"theta\""),
    CONTENT("a base of 0", TURN("\"base\":0"), "/rotary/base", "base", "greater than 0"),
    CONTENT("a base in quotes", TURN("\"base\":\"10000\""), "/rotary/base", "not a string"),
    CONTENT("no columns", TURN("\"columns\":0"), "/rotary/columns", "at least 1, not 0"),
    CONTENT("an odd number of columns", TURN("\"columns\":3"), "/rotary", "3 columns",
            "an even number"),
    CONTENT("more columns than a head has", TURN("\"columns\":6"), "/rotary", "6 columns",
            "at most 4"),
    CONTENT("an odd head", "{\"X\":[[1,2,3]],\"rotary\":true}", "/rotary", "3 columns",
            "an even number"),
    CONTENT("a negative offset", TURN("\"offset\":-1"), "/rotary/offset", "-1"),
    CONTENT("an offset that is too large", TURN("\"offset\":1073741825"), "/rotary/offset",
            "0 to 1073741824", "1073741825"),
    CONTENT("a fraction as offset", TURN("\"offset\":0.5"), "/rotary/offset", "0.5"),
    CONTENT("interleaved a number", TURN("\"interleaved\":1"), "/rotary/interleaved",
            "true or false"),

    /* --- the scaling */
    CONTENT("a scaling without a type", SCALE("\"factor\":2"), "/rotary/scaling",
            "no \"rope_type\""),
    CONTENT("a scaling that is a name", TURN("\"scaling\":\"linear\""), "/rotary/scaling",
            "an object, not \"linear\""),
    CONTENT("a factor in quotes", SCALE("\"rope_type\":\"linear\",\"factor\":\"2\""),
            "/rotary/scaling/factor", "a number, not a string"),
    CONTENT("a negative factor of attention",
            SCALE("\"rope_type\":\"linear\",\"factor\":2,\"attention_factor\":-1"), "/rotary",
            "attention_factor of rotary is -1", "at least 0"),
    CONTENT("an unknown scaling", SCALE("\"rope_type\":\"ntk\""), "/rotary/scaling/rope_type",
            "ntk", "\"yarn\""),
    CONTENT("an unknown key of a scaling", SCALE("\"rope_type\":\"linear\",\"factr\":2"),
            "/rotary/scaling/factr", "did you mean \"factor\"?"),
    CONTENT("linear without a factor", SCALE("\"rope_type\":\"linear\""), "/rotary",
            "factor of rotary is 0", "at least 1"),
    CONTENT("a factor below 1", SCALE("\"type\":\"linear\",\"factor\":0.5"), "/rotary",
            "factor of rotary is 0.5"),
    CONTENT("dynamic without positions", SCALE("\"rope_type\":\"dynamic\",\"factor\":2"), "/rotary",
            "original_positions of rotary is 0"),
    CONTENT("llama3 with limits in the wrong order",
            SCALE("\"rope_type\":\"llama3\",\"factor\":2,\"original_max_position_embeddings\":8,"
                  "\"low_freq_factor\":4,\"high_freq_factor\":1"),
            "/rotary", "high_freq_factor of rotary is 1", "low_freq_factor, which is 4"),
    CONTENT("yarn with a base of 1",
            TURN("\"base\":1,\"scaling\":{\"rope_type\":\"yarn\",\"factor\":2,"
                 "\"original_max_position_embeddings\":8}"),
            "/rotary", "base of rotary is 1", "more than 1"),
    CONTENT("yarn with limits in the wrong order",
            SCALE("\"rope_type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":8,"
                  "\"beta_fast\":1,\"beta_slow\":2"),
            "/rotary", "beta_fast of rotary is 1", "at least 2"),
    CONTENT("longrope without factors",
            SCALE("\"rope_type\":\"longrope\",\"original_max_position_embeddings\":8"), "/rotary",
            "short_factor of rotary has 0 numbers", "2 pairs"),
    CONTENT("longrope with a factor of 0",
            SCALE("\"rope_type\":\"longrope\",\"original_max_position_embeddings\":8,"
                  "\"short_factor\":[1,0],\"long_factor\":[1,1]"),
            "/rotary", "short_factor[1] of rotary is 0", "positive"),
    CONTENT("an empty list of factors", SCALE("\"rope_type\":\"longrope\",\"long_factor\":[]"),
            "/rotary/scaling/long_factor", "empty"),
    CONTENT("a text in a list of factors",
            SCALE("\"rope_type\":\"longrope\",\"short_factor\":[1,\"2\"]"),
            "/rotary/scaling/short_factor/1", "a string"),
    CONTENT("truncate a number", SCALE("\"rope_type\":\"yarn\",\"truncate\":0"),
            "/rotary/scaling/truncate", "true or false"),

    /* --- tables and positions */
    CONTENT("cosines without sines", OF_ROWS("\"rotary_cos\":[[1,1],[1,1],[1,1]]"), "/rotary_sin",
            "must be given together"),
    CONTENT("sines without cosines", OF_ROWS("\"rotary_sin\":[[0,0],[0,0],[0,0]]"), "/rotary_cos",
            "must be given together"),
    CONTENT("tables that differ",
            OF_ROWS("\"rotary_cos\":[[1,1],[1,1],[1,1]],\"rotary_sin\":[[0,0],[0,0]]"),
            "/rotary_sin", "rotary_sin"),
    CONTENT("tables of three pairs",
            OF_ROWS("\"rotary_cos\":[[1,1,1],[1,1,1],[1,1,1]],\"rotary_sin\":[[0,0,0],[0,0,0],"
                    "[0,0,0]]"),
            "/rotary_cos", "rotary_cos has 3 columns", "2"),
    CONTENT("tables that are too short",
            OF_ROWS("\"rotary_cos\":[[1,1],[1,1]],\"rotary_sin\":[[0,0],[0,0]]"), "/rotary_cos",
            "positions 0 to 1", "positions 0 to 2"),
    CONTENT("positions and no embedding", OF_ROWS("\"positions\":[0,1,2]"), "/positions",
            "without rotary"),
    CONTENT("too few positions", OF_ROWS("\"rotary\":true,\"positions\":[0,1]"), "/positions",
            "positions has 2 numbers", "3 queries"),
    CONTENT(
        "positions beyond a table",
        OF_ROWS("\"rotary_cos\":[[1,1],[1,1]],\"rotary_sin\":[[0,0],[0,0]],\"positions\":[0,1,2]"),
        ANYWHERE, "positions", "2"),
    CONTENT("a fraction as the row of a table",
            OF_ROWS("\"rotary_cos\":[[1,1],[1,1]],\"rotary_sin\":[[0,0],[0,0]],\"positions\":[0,1,"
                    "0.5]"),
            ANYWHERE, "positions", "0.5"),
    CONTENT("a negative row of a table",
            OF_ROWS("\"rotary_cos\":[[1,1],[1,1]],\"rotary_sin\":[[0,0],[0,0]],\"positions\":[0,1,"
                    "-1]"),
            ANYWHERE, "positions has -1", "positions 0 to 1"),

    /* --- names of other programs */
    CONTENT("rope_theta", OF_ROWS("\"rope_theta\":10000"), "/rope_theta",
            "it is \"rotary\": {\"base\": ...} here"),
    CONTENT("rope_scaling", OF_ROWS("\"rope_scaling\":{}"), "/rope_scaling",
            "it is \"rotary\": {\"scaling\": {...}} here"),
    CONTENT("rope_parameters", OF_ROWS("\"rope_parameters\":{}"), "/rope_parameters",
            "it is \"rotary\" here, with \"base\" for rope_theta"),
    CONTENT("position_ids", OF_ROWS("\"position_ids\":[0,1,2]"), "/position_ids",
            "it is \"positions\" here"),
    CONTENT("cos_cache", OF_ROWS("\"cos_cache\":[[1,1]]"), "/cos_cache",
            "it is \"rotary_cos\" here"),
    CONTENT("sin_cache", OF_ROWS("\"sin_cache\":[[0,0]]"), "/sin_cache",
            "it is \"rotary_sin\" here"),
    CONTENT("q_norm", OF_ROWS("\"q_norm\":[1,1,1,1]"), "/q_norm", "it is \"norm_Q\" here"),
    CONTENT("k_norm", OF_ROWS("\"k_norm\":[1,1,1,1]"), "/k_norm", "it is \"norm_K\" here"),
    CONTENT("zero_key without projections", OF_ROWS("\"zero_key\":true"), "/zero_key",
            "it is a key of /self-attention"),
    END_OF_ROWS,
};

#define WEIGHTS         "\"W_Q\":[[1,0],[0,1]],\"W_K\":[[1,0],[0,1]],\"W_V\":[[1,0],[0,1]]"
#define PROJECTED(more) "{\"X\":[[1,2],[3,4]]," WEIGHTS "," more "}"

const struct bad_request bad_extra_keys[] = {
    CONTENT("bias_K alone", PROJECTED("\"bias_K\":[1,1]"), "/bias_K",
            "bias_K and bias_V must be given together"),
    CONTENT("bias_V alone", PROJECTED("\"bias_V\":[1,1]"), "/bias_V",
            "bias_K and bias_V must be given together"),
    CONTENT("bias_K of another size", PROJECTED("\"bias_K\":[1,1,1],\"bias_V\":[1,1]"), "/bias_K",
            "bias_K", "3", "2"),
    CONTENT("bias_V with a row for each of two heads",
            PROJECTED("\"bias_K\":[1,1],\"bias_V\":[[1],[1]]"), "/bias_V", "bias_V"),
    CONTENT("zero_key a number", PROJECTED("\"zero_key\":1"), "/zero_key", "true or false"),
    CONTENT("alibi beside a key without a position", PROJECTED("\"zero_key\":true,\"alibi\":true"),
            "/alibi", "alibi", "zero_key"),
    CONTENT("alibi beside bias_K", PROJECTED("\"bias_K\":[1,1],\"bias_V\":[1,1],\"alibi\":[0.5]"),
            "/alibi", "alibi", "bias_K"),
    CONTENT("bias_K with three axes", PROJECTED("\"bias_K\":[[[1,1]]],\"bias_V\":[1,1]"), "/bias_K",
            "rank 1 to 2, not 3"),
    CONTENT("a boolean in bias_K", PROJECTED("\"bias_K\":[1,true],\"bias_V\":[1,1]"), "/bias_K/1",
            "a boolean"),
    CONTENT("bias_K in a head",
            "{\"X\":[[1]],\"heads\":[{\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]],\"bias_K\":[1]}]}",
            "/heads/0/bias_K", "it belongs beside \"heads\""),
    CONTENT(
        "rotary and heads of two sizes",
        "{\"X\":[[1]],\"rotary\":true,\"heads\":[{\"W_Q\":[[1,0]],\"W_K\":[[1,0]],\"W_V\":[[1]]},"
        "{\"W_Q\":[[1,0,1,0]],\"W_K\":[[1,0,1,0]],\"W_V\":[[1]]}]}",
        "/rotary", "head 0 has 2 columns and head 1 has 4"),
    CONTENT("add_zero_attn", PROJECTED("\"add_zero_attn\":true"), "/add_zero_attn",
            "it is \"zero_key\" here"),
    CONTENT("add_bias_kv", PROJECTED("\"add_bias_kv\":true"), "/add_bias_kv",
            "give \"bias_K\" and \"bias_V\" here"),
    CONTENT("bias_k in another case", PROJECTED("\"bias_k\":[1,1]"), "/bias_k",
            "did you mean \"bias_K\"?"),
    CONTENT("a value context with other rows", PROJECTED("\"value_context\":[[1,2]]"),
            "/value_context", "value_context has 1 row", "2"),
    CONTENT("a value context of another width", PROJECTED("\"value_context\":[[1],[2]]"), "/W_V",
            "W_V has 2 rows", "1 column"),
    END_OF_ROWS,
};
