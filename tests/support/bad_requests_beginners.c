/* bad_requests_beginners.c - requests that are probably meant otherwise, and other mistakes of
 * people who use the service for the first time. */
#include "support/bad_requests_rows.h"

#define TO_BIAS "numbers that are added to scores belong in \"bias\""
#define EXAMPLE                                                                                    \
    "; the body must be JSON, such as {\"Q\": [[1, 2]], \"K\": [[1, 2]], \"V\": [[1, 2]]}"
#define WITH_SEED                                                                                  \
    "it stands in \"random\": {\"generator\": \"numpy\", \"seed\": 42} here, for matrices that"

const struct bad_request bad_calls[] = {
    /* --- no JSON; the message has a body that the endpoint takes */
    SAID("nothing", "", 0, "the body is empty" EXAMPLE),
    SAID("spaces", "  ", 2, "nothing but white space" EXAMPLE),
    SAID("a form", "Q=1&K=2", 0, "expected a value, not 'Q'" EXAMPLE),
    SAID("parts of a form", "--x\r\nContent-Disposition: form-data", 1,
         "expected a digit after '-', not '-'" EXAMPLE),
    SAID("a page", "<html></html>", 0, "expected a value, not '<'" EXAMPLE),
    SAID("UTF-16 with a mark", "\xff\xfe{\0\"\0Q\0", 0,
         "not the byte 0xFF, which begins UTF-16: JSON is UTF-8"),
    SAID("UTF-16 of the other order with a mark", "\xfe\xff\0{", 0,
         "not the byte 0xFE, which begins UTF-16: JSON is UTF-8"),
    SAID("UTF-16", "{\0\"\0Q\0", 1, "not the byte 0x00: is the body UTF-16? JSON is UTF-8"),
    SAID("UTF-16 of the other order", "\0{\0\"\0Q", 0,
         "not the byte 0x00: is the body UTF-16? JSON is UTF-8"),
    SAID("gzip without its header", "\x1f\x8b\x08", 0,
         "is the body compressed? Its Content-Encoding must say so"),
    SAID("a file of NumPy", "\x93NUMPY", 0, "is the body binary? Its Content-Type must say so"),
    SAID("curly quotes", "{\xe2\x80\x9cQ\xe2\x80\x9d: [[1]]}", 1,
         "is it a curly quote? JSON has straight ones"),

    /* --- masks */
    CONTENT("a mask of zeros", CALL("\"mask\":[[0,0],[0,0]]"), "/mask",
            "mask is 0 everywhere, which would hide every key", "write false in place of 0",
            TO_BIAS),
    CONTENT("a mask of 0.0 for all queries", CALL("\"mask\":[[0.0,-0.0]]"), "/mask",
            "mask is 0 everywhere", TO_BIAS),
    CONTENT("a mask of zeros in float64", CALL("\"mask\":[[[0]]],\"dtype\":\"float64\""), "/mask",
            "mask is 0 everywhere"),
    CONTENT("a key_padding of zeros", CALL("\"key_padding\":[0,0]"), "/key_padding",
            "key_padding is 0 everywhere", "here 1 or true says that the key exists"),
    CONTENT("a mask that can only be zeros",
            CALL("\"random\":{\"generator\":\"numpy\",\"seed\":1},\"mask\":{\"random\":"
                 "\"randint\",\"high\":1,\"shape\":[2,2]}"),
            "/mask", "mask holds 0 and 1: draw it with randint, low 0 and high 2"),
    CONTENT("a mask that is added", CALL("\"mask\":[[0,-1e9],[0,0]]"), "/mask/0/1",
            "mask/0/1 must be true, false, 1 or 0, not about -1e+09; " TO_BIAS),
    CONTENT("a mask of -10000", CALL("\"mask\":[[0,-10000],[0,0]]"), "/mask/0/1",
            "mask/0/1 must be true, false, 1 or 0, not -10000; " TO_BIAS),
    CONTENT("a key_padding of 2", CALL("\"key_padding\":[1,2]"), "/key_padding/1",
            "key_padding/1 must be true, false, 1 or 0, not 2; here 1 or true says that the key "
            "exists"),
    CONTENT("a mask for keys alone", CALL("\"mask\":[true,false]"), "/mask",
            "mask must have rank 2 to 4, not 1; one element for each key is a \"key_padding\""),

    CONTENT("a matrix without rows", "{\"Q\":[1,2],\"K\":[[1,2]],\"V\":[[1,2]]}", "/Q",
            "Q must have rank 2 to 4, not 1; a matrix of one row is [[1, 2]]"),

    /* --- names */
    CONTENT(
        "tempature", CALL("\"tempature\":2"), "/tempature",
        "unknown key \"tempature\", which may be \"temperature\"; there is no temperature here: "
        "divide \"scale\" by it"),
    CONTENT("seed", CALL("\"seed\":2"), "/seed", WITH_SEED),
    CONTENT("seed in a matrix", "{\"X\":{\"random\":\"randn\",\"shape\":[2,2],\"seed\":1}}",
            "/X/seed",
            "it stands once, in \"random\": {\"generator\": \"numpy\", \"seed\": 42} of the body"),
    CONTENT("an object with data", "{\"X\":{\"data\":[[1]]}}", "/X/data",
            "a matrix is a list of rows here"),
    CONTENT("options in an object", CALL("\"options\":{\"causal\":true}"), "/options",
            "all keys stand at the top of the body"),
    CONTENT("all in an object", "{\"inputs\":{" QKV "}}", "/inputs",
            "all keys stand at the top of the body"),
    CONTENT("return_weights", CALL("\"return_weights\":true"), "/return_weights",
            "\"return\" names the results here"),
    CONTENT("JSON in a string", "\"{\\\"X\\\":[[1]]}\"", "",
            "the body is a string with JSON in it: send the object itself"),
    END_OF_ROWS,
};

/* Two rows of three columns, and weights that fit. */
#define X     "\"X\":[[1,2,3],[4,5,6]]"
#define W_2_3 "[[1,2,3],[4,5,6]]"
#define W_3_2 "[[1,2],[3,4],[5,6]]"
#define TORCH                                                                                      \
    "; transposed it would fit: the weights of torch.nn.Linear need \"weight_layout\": \"out_in\""
#define DEFAULT          "; transposed it would fit: is \"weight_layout\" \"in_out\", the default?"
#define OUT_IN           "\"weight_layout\":\"out_in\""
#define W(q, k, v, more) "{" X ",\"W_Q\":" q ",\"W_K\":" k ",\"W_V\":" v "," more "\"heads\":1}"

const struct bad_request bad_weights[] = {
    SAID("nothing", "", 0, "{\"X\": [[1]], \"W_Q\": [[1]], \"W_K\": [[1]], \"W_V\": [[1]]}"),
    CONTENT("W_Q of PyTorch", W(W_2_3, W_3_2, W_3_2, ""), "/W_Q",
            "W_Q has 2 rows but X has 3 columns" TORCH),
    CONTENT("W_K of PyTorch", W(W_3_2, W_2_3, W_3_2, ""), "/W_K",
            "W_K has 2 rows but X has 3 columns" TORCH),
    CONTENT("W_V of PyTorch", W(W_3_2, W_3_2, W_2_3, ""), "/W_V",
            "W_V has 2 rows but X has 3 columns" TORCH),
    CONTENT("W_O of PyTorch", W(W_3_2, W_3_2, W_3_2, "\"W_O\":" W_3_2 ","), "/W_O",
            "W_O has 3 rows but the heads together have 2 columns" TORCH),
    CONTENT("stacked weights of PyTorch",
            "{" X ",\"W_Q\":[" W_2_3 "],\"W_K\":[" W_2_3 "],\"W_V\":[" W_2_3 "]}", "/W_Q",
            "W_Q has 2 rows but X has 3 columns" TORCH),
    CONTENT("weights of PyTorch for a head",
            "{" X ",\"heads\":[{\"W_Q\":" W_3_2 ",\"W_K\":" W_2_3 ",\"W_V\":" W_3_2 "}]}",
            "/heads/0/W_K", "heads/0/W_K has 2 rows but X has 3 columns" TORCH),
    CONTENT("weights of PyTorch under a context",
            W(W_3_2, "[[1],[2]]", W_3_2, "\"context\":[[1],[2]],"), "/W_K",
            "W_K has 2 rows but context has 1 column" TORCH),
    CONTENT("weights that are not out_in", W(W_3_2, W_3_2, W_3_2, OUT_IN ","), "/W_Q",
            "W_Q has 2 columns (out_in) but X has 3 columns" DEFAULT),
    CONTENT("seed", "{" X ",\"seed\":1}", "/seed", WITH_SEED),
    END_OF_ROWS,
};

const struct bad_request bad_logits[] = {
    SAID("nothing", "", 0, "the body must be JSON, such as {\"X\": [[1, 2]]}"),
    CONTENT("tempature", "{\"X\":[1],\"tempature\":2}", "/tempature",
            "which may be \"temperature\"; there is no temperature here: divide X by it first"),
    CONTENT("logits", "{\"logits\":[1]}", "/logits", "it is \"X\" here"),
    END_OF_ROWS,
};
