/*
 * fields_foreign.c - the names that other programs have for the keys of requests and for results,
 * and what the message of an unknown name says about each.
 *
 * To add a name: add a row. Its hint must be right for every program that uses the name. Add a bad
 * request to tests/data/refusals.txt.
 */
#include "api/call/field.h"

#define ATTENTION   FIELDS_AT_ATTENTION
#define PROJECTIONS FIELDS_AT_PROJECTIONS
#define SOFTMAX     FIELDS_AT_SOFTMAX
#define LAYER       FIELDS_AT_LAYER
#define ATTENTIONS  (ATTENTION | PROJECTIONS | LAYER)
#define LINEAR      FIELDS_AT_LINEAR
#define CALLS       (ATTENTIONS | LINEAR)
#define FREE        (ATTENTION | LINEAR)
#define ALL         (CALLS | SOFTMAX | FIELDS_AT_EMBEDDINGS)

#define HEADS       "it is \"heads\" here"
#define KV_HEADS    "it is \"kv_heads\" here, the number of heads of K and V"
#define BY_SHAPES   "it follows from the shapes of the matrices: leave it out"
#define WINDOW      "it is \"window\" here: [left, right]"
#define OWN_KEY     "; w keys with the own one are [w - 1, 0]"
#define FROM_LAST   "; it counts from the last key with \"alignment\": \"bottom_right\""
#define LENGTHS     "it is \"lengths\" here, the number of valid keys of each batch item"
#define AT_THE_END  "; \"alignment\": \"bottom_right\" puts the last query at the last of them"
#define RETURNED    "\"return\" names the results here, such as [\"output\", \"weights\"]"
#define RETURN_LSE  "\"return\" names the results here, such as [\"output\", \"lse\"]"
#define SCALE       "it is \"scale\" here"
#define SOFTCAP     "it is \"softcap\" here"
#define SINK        "it is \"sink\" here, one number for each head"
#define BIAS        "it is \"bias\" here"
#define MASK        "it is \"mask\" here, where true attends"
#define OFFSETS     "it is \"sequence_offsets\" here: [[those of Q], [those of K]]"
#define BY_LENGTHS  "it follows from the lengths of \"sequences\": leave it out"
#define PAST_STATE  "it is \"past_state\" here, (d, d_v) for each head"
#define LAST_STATE  "it is \"present_state\" of /linear-attention"
#define SCALE_OF(m) "it is \"" m "_scale\" here: a number, or one for each block of " m
#define DECAY       "it is \"decay\" here"
#define LOGARITHM   "its logarithm is \"decay\" here"
#define GATE        "\"decay\" is -exp(A_log) * softplus(a + dt_bias) here"
#define ONE_MORE    ", each one more: onnxruntime's number is the length minus 1"
#define CAUSAL      "it is \"causal\" here"
#define ROTARY      "it is \"rotary\" here: true, or an object such as {\"base\": 10000}"
#define NORMALIZE   "it is \"normalize_QK\" here"
#define PAST_K      "it is \"past_K\" here"
#define PAST_V      "it is \"past_V\" here"
#define PACKED      "it is W_Q, W_K and W_V" OUT_IN
#define DIGITS      "it is \"digits\" here, the significant digits of numbers in JSON"
#define TOP         "all keys stand at the top of the body, not in an object under this name"
#define GRAD_OUTPUT "it is \"grad_output\" here"
#define GRAD_STATE  "it is \"grad_present_state\" here"
#define OUTPUT      "it is \"output\" here"
#define WEIGHTS     "it is \"weights\" here"
#define LSE         "it is \"lse\" here"
#define GRAD_(name) "it is \"grad_" name "\" here"
#define GRAD_DECAY  "it is \"grad_decay\" of /attention and /linear-attention"
#define GRAD_BETA   "it is \"grad_beta\" of /linear-attention"
#define GRAD_PAST   "it is \"grad_past_state\" of /linear-attention"
#define GRAD_SCORES "with a \"bias\" of zeros, \"grad_bias\" is the gradient by the scaled scores"
#define NO_TENSOR   "it is not one tensor of floats, so it cannot be compared"
#define ANYWHERE    (FIELDS_IN_RETURN | FIELDS_IN_EXPECTED)
#define NO_GRADIENT                                                                                \
    "only \"output\", \"lse\" and \"weights\" have gradients: grad_output, grad_lse and "          \
    "grad_weights"
#define NO_PAGES                                                                                   \
    "there are no pages here: give the rows of K and V in their order, and their number in "       \
    "\"lengths\" or \"sequences\""
#define NO_RESULT "it changes no result: leave it out"
#define OUT_IN    " of /self-attention, with \"weight_layout\": \"out_in\""

/* Dropout does not renormalise, and a mask does: the quotient of the two sums undoes it. */
#define NO_DROPOUT                                                                                 \
    "equal requests have equal answers here, so nothing is dropped at random: leave it out; with " \
    "a \"mask\" of what is kept, output * exp(lse - lse without the mask) / (1 - p) has dropout, " \
    "before W_O"

/* Rows of names that stand for the same key: SAME_2 makes two rows. */
#define SAME_1(where, hint, a)                                                                     \
    { a, where, hint }
#define SAME_2(where, hint, a, ...)  SAME_1(where, hint, a), SAME_1(where, hint, __VA_ARGS__)
#define SAME_3(where, hint, a, ...)  SAME_1(where, hint, a), SAME_2(where, hint, __VA_ARGS__)
#define SAME_4(where, hint, a, ...)  SAME_1(where, hint, a), SAME_3(where, hint, __VA_ARGS__)
#define SAME_5(where, hint, a, ...)  SAME_1(where, hint, a), SAME_4(where, hint, __VA_ARGS__)
#define SAME_6(where, hint, a, ...)  SAME_1(where, hint, a), SAME_5(where, hint, __VA_ARGS__)
#define SAME_7(where, hint, a, ...)  SAME_1(where, hint, a), SAME_6(where, hint, __VA_ARGS__)
#define SAME_8(where, hint, a, ...)  SAME_1(where, hint, a), SAME_7(where, hint, __VA_ARGS__)
#define SAME_9(where, hint, a, ...)  SAME_1(where, hint, a), SAME_8(where, hint, __VA_ARGS__)
#define SAME_10(where, hint, a, ...) SAME_1(where, hint, a), SAME_9(where, hint, __VA_ARGS__)

/* The names of PyTorch, ONNX, flash-attention, flash-linear-attention, JAX and
 * Transformers. If a name means different things in several of them, its hint is right for all of
 * them. Some names of gradients are those of other results. */
const struct codec_foreign fields_foreign[] = {
    {"attn_mask", ATTENTIONS,
     "it is \"mask\" here, where true attends (as in scaled_dot_product_attention and ONNX; in "
     "torch.nn.MultiheadAttention true forbids), or \"bias\" for numbers that are added"},
    {"attention_mask", ATTENTIONS,
     "it is \"key_padding\" here if its shape is (batch, keys), and \"mask\" if it says for each "
     "query which keys it attends to; in both, true or 1 attends; numbers that are added are "
     "\"bias\""},
    {"key_padding_mask", ATTENTIONS,
     "it is \"key_padding\" here, where true or 1 says that the key exists (in "
     "torch.nn.MultiheadAttention true says the opposite)"},
    SAME_2(ATTENTIONS, MASK, "block_mask", "custom_mask"),
    SAME_3(ATTENTIONS, "it is \"mask\" here, true at these keys of each query", "sparse_indices",
           "gather_kv_indices", "topk_indices"),
    {"attention_chunk_size", ATTENTIONS,
     "it is \"mask\" here, true where query and key stand in the same chunk"},
    SAME_2(ATTENTIONS, BIAS, "attn_bias", "attention_bias"),
    {"position_bias", ATTENTIONS, BIAS "; T5 also has \"scale\": 1"},
    SAME_2(CALLS, CAUSAL, "is_causal", "use_causal_mask"),
    {"unidirectional", ATTENTIONS, CAUSAL},
    {"use_causal_mask_bottom_right", ATTENTIONS, "it is \"causal\": \"bottom_right\" here"},
    {"diagonal_alignment", ATTENTIONS,
     "it is \"alignment\" here: \"top_left\" or \"bottom_right\""},
    {"score_mod", ATTENTIONS,
     "a function cannot be sent: give the numbers that it adds to the scores in \"bias\", what it "
     "forbids in \"mask\", and the bound of its tanh in \"softcap\""},
    {"mask_mod", ATTENTIONS, "a function cannot be sent: give what it allows in \"mask\""},
    SAME_5(CALLS, HEADS, "num_heads", "q_num_heads", "nhead", "n_heads", "num_attention_heads"),
    SAME_3(CALLS, KV_HEADS, "kv_num_heads", "num_kv_heads", "num_key_value_heads"),
    {"num_v_heads", LINEAR, "it is \"kv_heads\" here, the number of heads of V"},
    {"num_k_heads", LINEAR,
     "it follows from the columns of K, whose heads are as wide as those of Q: leave it out"},
    {"enable_gqa", ATTENTIONS,
     "grouped heads need no switch here: give K and V fewer heads than Q, or \"kv_heads\""},
    SAME_4(CALLS, RETURNED, "need_weights", "output_attentions", "return_attn_probs",
           "return_attention_scores"),
    SAME_5(ATTENTIONS, RETURN_LSE, "return_lse", "return_softmax_lse", "return_aux",
           "generate_stats", "is_inference"),
    {"qk_matmul_output_mode", ATTENTIONS,
     "\"return\" names the steps here, such as \"scaled_scores\", \"masked_scores\" and "
     "\"weights\""},
    {"average_attn_weights", ATTENTIONS,
     "it is \"mean_over_heads\" here, and its default is false"},
    SAME_10(ATTENTIONS, NO_DROPOUT, "dropout", "dropout_p", "dropout_rate", "attention_dropout",
            "attn_dropout", "attn_drop", "attn_pdrop", "attention_probs_dropout_prob",
            "dropout_mask", "training"),
    SAME_4(CALLS, BY_SHAPES, "embed_dim", "head_dim", "kdim", "vdim"),
    {"batch_first", CALLS,
     "the batch is always the first axis here, as with batch_first=True: leave it out"},
    {"softmax_precision", ATTENTIONS, "it is \"dtype\" here: \"float32\" or \"float64\""},
    SAME_4(CALLS, SCALE, "softmax_scale", "sm_scale", "scaling", "scale_softmax"),
    {"attn_scale", ATTENTIONS, SCALE ", and without it 1 / sqrt(columns of a head of Q), not 1"},
    {"mscale_all_dim", ATTENTIONS,
     "\"scale\" has the factor (0.1 * mscale_all_dim * ln(factor) + 1)^2 here"},
    SAME_4(FREE, SCALE_OF("Q"), "q_descale", "descale_q", "scale_q", "query_scale"),
    SAME_8(FREE, SCALE_OF("K"), "k_descale", "descale_k", "scale_k", "key_scale", "key_scales",
           "key_block_scales", "k_scale_cache", "k_scale_inv"),
    SAME_8(FREE, SCALE_OF("V"), "v_descale", "descale_v", "scale_v", "value_scale", "value_scales",
           "value_block_scales", "v_scale_cache", "v_scale_inv"),
    SAME_2(CALLS, "only \"Q\", \"K\", \"V\" and past keys and values have scales beside them",
           "X_scale", "scale_kv"),
    SAME_2(FREE, "the weights are not rounded to 8 bits here: leave it out", "scale_s",
           "descale_s"),
    {"temperature", ATTENTIONS,
     "there is no temperature here: divide \"scale\" by it; the default of \"scale\" is "
     "1 / sqrt(columns of a head of Q)"},
    {"temperature", SOFTMAX, "there is no temperature here: divide X by it first"},
    SAME_4(ATTENTIONS, SOFTCAP, "logits_soft_cap", "attn_logit_softcapping", "attn_logit_softcap",
           "logit_cap"),
    SAME_2(ATTENTIONS, WINDOW FROM_LAST, "window_size", "window_left"),
    SAME_2(ATTENTIONS, WINDOW OWN_KEY, "sliding_window", "local_window_size"),
    SAME_2(ATTENTIONS, WINDOW "; the left bound of cuDNN counts the own key, so left is 1 less",
           "diagonal_band_left_bound", "sliding_window_length"),
    SAME_3(ATTENTIONS, WINDOW, "left_window_size", "right_window_size",
           "diagonal_band_right_bound"),
    {"alibi_slopes", ATTENTIONS, "it is \"alibi\" here"},
    {"use_alibi_mask", ATTENTIONS, "it is \"alibi\": true here"},
    {"log_fgate", ATTENTION, "it is \"decay\" here"},
    SAME_5(ATTENTIONS, SINK, "sinks", "learnable_sink", "head_sink", "s_aux", "sink_token"),
    {"smooth_softmax", ATTENTIONS, "it is \"sink\": 0 here, which adds 1 to each sum of exp"},
    {"seqlens_k", ATTENTIONS, LENGTHS ONE_MORE AT_THE_END},
    SAME_3(ATTENTIONS, LENGTHS AT_THE_END, "nonpad_kv_seqlen", "seq_len_kv", "kv_len_arr"),
    {"seq_lens", ATTENTIONS, LENGTHS ", or \"sequences\" of /attention if the rows are packed"},
    {"cache_seqlens", ATTENTIONS, LENGTHS ", new ones included" AT_THE_END},
    {"key_value_seq_lengths", ATTENTIONS, LENGTHS},
    SAME_9(ATTENTION, OFFSETS, "cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_kv",
           "cu_seq_q", "cu_seq_k", "cu_seq_lens_q", "cu_seq_lens_k", "cumulative_sequence_length"),
    {"qo_indptr", ATTENTION, OFFSETS},
    {"kv_indptr", ATTENTION, OFFSETS ", in rows: count the keys of pages"},
    SAME_7(ATTENTION, BY_LENGTHS, "max_seqlen_q", "max_seqlen_k", "max_seqlen_kv", "max_length_q",
           "max_length_k", "max_q", "max_k"),
    {"seqlens", FREE, "it is \"sequences\" here: [[5, 3, 8]]"},
    {"seqused_k", ATTENTION,
     LENGTHS "; of packed rows leave the unused ones out of K and V: the second list of "
             "\"sequences\" has their lengths"},
    {"cu_seqlens", LINEAR, "it is \"sequence_offsets\" here: [[0, 5, 8]]"},
    {"attention_mask", LINEAR,
     "a position without a token is beyond its length in \"lengths\" here"},
    SAME_6(LINEAR, PAST_STATE, "initial_state", "initial_states", "h0", "state", "recurrent_state",
           "last_recurrent_state"),
    {"output_final_state", LINEAR,
     "\"return\" names the results here, such as [\"output\", \"present_state\"]"},
    {"g", FREE, DECAY},
    {"gk", LINEAR, DECAY},
    SAME_2(FREE, DECAY, "log_decay", "log_gate"),
    {"g_gamma", LINEAR, DECAY ", one number for each head"},
    {"slope_rate", LINEAR, "its negative is \"decay\" here, one number for each head"},
    {"gamma", LINEAR, LOGARITHM},
    {"gates", FREE, LOGARITHM},
    {"fgate_logit", FREE, "its log-sigmoid is \"decay\" here"},
    {"alpha", LINEAR, LOGARITHM},
    {"forget_gate", FREE, LOGARITHM},
    SAME_2(LINEAR, GATE, "A_log", "dt_bias"),
    {"dt", LINEAR, "\"V\" is dt * x here, and \"decay\" is dt * A"},
    {"feature_map", LINEAR, "give Q and K after it: leave it out"},
    {"allow_neg_eigval", LINEAR, "\"beta\" may be above 1: leave it out"},
    {"stick_breaking", ATTENTIONS, "it is \"normalization\": \"stick_breaking\" here"},
    {"update_rule", LINEAR, "it is \"update\" here"},
    SAME_2(LINEAR, NORMALIZE, "use_qk_l2norm_in_kernel", "use_qk_l2norm"),
    {"head_first", LINEAR, "the heads stand before the rows here: leave it out"},
    {"chunk_size", LINEAR, "the engine chooses the chunks: leave it out"},
    {"past_key_values", ATTENTIONS,
     "they are \"past_K\" and \"past_V\" here, the rows of one layer"},
    SAME_10(ATTENTIONS, NO_PAGES, "block_table", "block_tables", "page_table", "page_size",
            "kv_indices", "kv_last_page_len", "paged_kv_cache", "paged_kv_indices",
            "paged_kv_last_page_len", "paged_attention_k_table"),
    {"paged_attention_v_table", ATTENTIONS, NO_PAGES},
    SAME_2(ATTENTION, "\"Q\" is [q_nope, q_pe] here, side by side in each head", "q_nope", "q_pe"),
    SAME_2(ATTENTION, "\"K\" is [k_nope, k_pe] here, side by side in each head", "k_nope", "k_pe"),
    SAME_4(ATTENTION, "\"K\" is [ckv, kpe] here, one head for all of Q, and \"V\" is ckv", "ckv",
           "kpe", "ckv_cache", "kpe_cache"),
    {"qv", ATTENTION,
     "\"Q\" is [q, qv] and \"K\" is [k, v] here, side by side; the default \"scale\" counts both"},
    {"lambda_init", ATTENTIONS,
     "two requests make differential attention: their \"output\" is subtracted"},
    SAME_4(ATTENTIONS, NO_RESULT, "num_splits", "deterministic", "pack_gqa", "kernel_options"),
    {"past_key", ATTENTIONS, PAST_K},
    {"past_value", ATTENTIONS, PAST_V},
    {"query", FREE, "it is \"Q\" here"},
    {"key", FREE, "it is \"K\" here"},
    {"value", FREE, "it is \"V\" here"},
    {"query", PROJECTIONS, "it is \"X\" here"},
    {"hidden_states", PROJECTIONS, "it is \"X\" here"},
    {"key", PROJECTIONS, "it is \"context\" here, from which K and V are projected"},
    {"value", PROJECTIONS,
     "it is \"value_context\" here, or \"context\" if K and V are projected from one matrix"},
    {"bias_k", ATTENTION,
     "it is \"bias_K\" of /self-attention, one more key, or \"b_K\" here, which is added to K"},
    {"bias_v", ATTENTION,
     "it is \"bias_V\" of /self-attention, one more value, or \"b_V\" here, which is added to V"},
    {"add_zero_attn", PROJECTIONS, "it is \"zero_key\" here"},
    {"add_bias_kv", PROJECTIONS, "give \"bias_K\" and \"bias_V\" here"},
    {"encoder_hidden_states", PROJECTIONS, "it is \"context\" here"},
    {"in_proj_weight", ATTENTIONS, PACKED},
    {"biases", PROJECTIONS, "they are b_Q, b_K, b_V and b_O here"},
    {"in_proj_bias", ATTENTIONS, "it is b_Q, b_K and b_V of /self-attention"},
    {"q_proj_weight", ATTENTIONS, "it is W_Q" OUT_IN},
    {"k_proj_weight", ATTENTIONS, "it is W_K" OUT_IN},
    {"v_proj_weight", ATTENTIONS, "it is W_V" OUT_IN},
    {"out_proj", ATTENTIONS, "it is W_O and b_O" OUT_IN},
    {"out_proj.weight", ATTENTIONS, "it is W_O" OUT_IN},
    {"out_proj.bias", ATTENTIONS, "it is b_O of /self-attention"},
    {"position_ids", ATTENTIONS, "it is \"positions\" here"},
    {"cos_cache", ATTENTIONS, "it is \"rotary_cos\" here"},
    {"sin_cache", ATTENTIONS, "it is \"rotary_sin\" here"},
    {"do_rotary", ATTENTIONS, ROTARY},
    {"rotary_interleaved", ATTENTIONS, "it is \"rotary\": {\"interleaved\": true} here"},
    {"rotary_embedding_dim", ATTENTIONS, "it is \"rotary\": {\"columns\": ...} here"},
    {"rope_theta", ATTENTIONS, "it is \"rotary\": {\"base\": ...} here"},
    {"rope_scaling", ATTENTIONS, "it is \"rotary\": {\"scaling\": {...}} here"},
    {"rope_parameters", ATTENTIONS,
     "it is \"rotary\" here, with \"base\" for rope_theta and the rest in \"scaling\""},
    {"q_norm", ATTENTIONS, "it is \"norm_Q\" here"},
    {"k_norm", ATTENTIONS, "it is \"norm_K\" here"},
    {"v_norm", ATTENTIONS, "it is \"norm_V\" here"},
    {"return_weights", CALLS, RETURNED},
    SAME_4(CALLS, GRAD_OUTPUT, "dout", "do", "dO", "grad_out"),
    SAME_3(LINEAR, GRAD_STATE, "dht", "grad_final_state", "grad_state"),
    SAME_3(ATTENTIONS, NO_GRADIENT, "grad_scores", "grad_entropy", "grad_top_k"),
    SAME_2(ALL, DIGITS, "precision", "decimals"),
    {"include", CALLS, RETURNED},
    {"seed", ALL,
     "it stands in \"random\": {\"generator\": \"numpy\", \"seed\": 42} here, for "
     "matrices that are drawn"},
    {"generator", ALL, "it stands in \"random\": {\"generator\": \"numpy\", \"seed\": 42} here"},
    SAME_5(ALL, TOP, "inputs", "data", "options", "parameters", "attention"),
    {"logits", SOFTMAX, "it is \"X\" here"},
    {"dim", SOFTMAX, "it is \"axis\" here"},
    {"input", SOFTMAX, "it is \"X\" here"},
    {"input", FIELDS_AT_EMBEDDINGS, "it is \"text\" here"},
};

const size_t fields_foreign_count = sizeof fields_foreign / sizeof *fields_foreign;

const struct codec_foreign fields_foreign_results[] = {
    {"out", ANYWHERE, OUTPUT},
    {"attn_output", ANYWHERE, OUTPUT},
    {"attn_weights", ANYWHERE, WEIGHTS},
    {"logsumexp", ANYWHERE, LSE},
    {"softmax_lse", ANYWHERE, LSE},
    {"dQ", ANYWHERE, GRAD_("Q")},
    {"dK", ANYWHERE, GRAD_("K")},
    {"dV", ANYWHERE, GRAD_("V")},
    {"dq", ANYWHERE, GRAD_("Q")},
    {"dk", ANYWHERE, GRAD_("K")},
    {"dv", ANYWHERE, GRAD_("V")},
    {"dg", ANYWHERE, GRAD_DECAY},
    {"grad_g", ANYWHERE, GRAD_DECAY},
    {"db", ANYWHERE, GRAD_BETA},
    {"dh0", ANYWHERE, GRAD_PAST},
    {"grad_initial_state", ANYWHERE, GRAD_PAST},
    {"grad_query", ANYWHERE, GRAD_("Q")},
    {"grad_key", ANYWHERE, GRAD_("K")},
    {"grad_value", ANYWHERE, GRAD_("V")},
    {"grad_scores", ANYWHERE, GRAD_SCORES},
    {"dbeta", ANYWHERE, GRAD_BETA},
    {"grad_h0", ANYWHERE, GRAD_PAST},
    {"state", ANYWHERE, LAST_STATE},
    {"final_state", ANYWHERE, LAST_STATE},
    {"top_k", FIELDS_IN_EXPECTED, NO_TENSOR},
    {"statistics", FIELDS_IN_EXPECTED, NO_TENSOR},
    {"comparison", FIELDS_IN_EXPECTED, NO_TENSOR},
};

const size_t fields_foreign_results_count =
    sizeof fields_foreign_results / sizeof *fields_foreign_results;
