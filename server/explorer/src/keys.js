// keys.js has the keys that only softmax has, and those that only states have. make docs writes it.
export const OF_SCORES =
  'alibi alignment b_K b_Q b_V bias compute_dtype gate grad_lse grad_weights key_padding mask mean_over_heads norm_K norm_Q norm_V normalization past_K past_K_scale past_V past_V_scale positions rotary rotary_cos rotary_sin sigmoid_bias sink softcap top_k window';
export const OF_STATES = 'beta grad_present_state normalize_QK past_state update';
