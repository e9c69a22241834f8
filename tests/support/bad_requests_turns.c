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

    /* --- the object */
    CONTENT("rotary a number", OF_ROWS("\"rotary\":10000"), "/rotary", "true, false or an object"),
    CONTENT("an unknown key of rotary", TURN("\"theta\":1"), "/rotary/theta",
            "unknown key \"theta\""),
    CONTENT("a base of 0", TURN("\"base\":0"), "/rotary/base", "base", "greater than 0"),
    CONTENT("an odd number of columns", TURN("\"columns\":3"), "/rotary", "3 columns",
            "an even number"),
    CONTENT("more columns than a head has", TURN("\"columns\":6"), "/rotary", "6 columns",
            "at most 4"),
    CONTENT("an odd head", "{\"X\":[[1,2,3]],\"rotary\":true}", "/rotary", "3 columns",
            "an even number"),
    CONTENT("a negative offset", TURN("\"offset\":-1"), "/rotary/offset", "-1"),
    CONTENT("an offset that is too large", TURN("\"offset\":1073741825"), "/rotary",
            "offset of rotary is 1073741825", "1073741824"),
    CONTENT("a fraction as offset", TURN("\"offset\":0.5"), "/rotary/offset", "0.5"),
    CONTENT("interleaved a number", TURN("\"interleaved\":1"), "/rotary/interleaved",
            "true or false"),

    /* --- the scaling */
    CONTENT("a scaling without a type", SCALE("\"factor\":2"), "/rotary/scaling",
            "no \"rope_type\""),
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
    CONTENT("truncate a number", SCALE("\"rope_type\":\"yarn\",\"truncate\":0"),
            "/rotary/scaling/truncate", "true or false"),

    /* --- tables and positions */
    CONTENT("cosines without sines", OF_ROWS("\"rotary_cos\":[[1,1],[1,1],[1,1]]"), "/rotary_sin",
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
    CONTENT("a value context with other rows", PROJECTED("\"value_context\":[[1,2]]"),
            "/value_context", "value_context has 1 row", "2"),
    CONTENT("a value context of another width", PROJECTED("\"value_context\":[[1],[2]]"), "/W_V",
            "W_V has 2 rows", "1 column"),
    END_OF_ROWS,
};
