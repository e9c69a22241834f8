/*
 * family_words.c - what the name of a key says by its words: whether it may decide attention, and
 * whether a flag says only what the model type does without it. The keys of files on a hub are not
 * those of transformers: programs that train and convert models leave their own.
 */
#include "layers/search.h"

#include <stdio.h>
#include <string.h>

/* Returns whether a name has one of the words of a text. A space is after each. An underscore
 * stands for the begin or the end of a part of the name. */
static bool has_word(const char *name, const char *words) {
    char parts[256], word[32] = "";
    bool found = false;
    snprintf(parts, sizeof parts, "_%s_", name); /* a longer name is cut */
    for (; *words != '\0' && !found; words += strlen(word) + 1) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(words, " "), words);
        found = strstr(parts, word) != NULL;
    }
    return found;
}

bool family_words_speak(const struct search *s, const char *name) {
    /* They say how a model is computed or trained. */
    static const char how[] =
        "drop flash implementation attn_impl prob softmax_in sdpa memory_efficient dtype upcast "
        "cache softmax_fusion final_logit ";
    static const char attention[] =
        "alibi attn attention directional causal head kv layer_type layers_block block_type "
        "layer_pattern logn mla_ mqa gqa ntk nope prefix_lm qk rope rotary softcap soft_cap "
        "softmax sliding window clip_q differential dilat extend interpol sparse temperature "
        "theta yarn layout bias _att _gat _key _mask _mup _pos_ _posi_ _position posemb _quant "
        "_query _queries _rpe _scal _sink _swa_ _value _xpos _is_encoder_ ";
    static const char normed[] = "_att attn attention head _key qk _query kv _q_ _k_ _v_ ";
    /* They name another part of the model, unless they also speak of what is in `inside`. */
    static const char elsewhere[] =
        "activation adapter classif _cls_ conv _emb_ embed expert ffn image initial _init_ "
        "instruction keys_to_ignore label lm_head logit loss mamba mask_channel mask_time "
        "masked_lm mlp moe pixel pooler projector prompt regression residual reward rout token "
        "_value_head_ ";
    static const char inside[] =
        "_att attn attention _pos_ _position rope rotary _sink sliding softcap soft_cap window ";
    const size_t size = strlen(name);
    if (has_word(name, how)) {
        return false;
    }
    const bool other = has_word(name, elsewhere) && !has_word(name, inside);
    if (strstr(name, "norm") != NULL || strstr(name, "epsilon") != NULL ||
        (size >= 3 && strcmp(name + size - 3, "eps") == 0)) {
        /* Other norms are before or behind an attention. */
        return !other && (search_is(s, MODEL_NORMS) || has_word(name, normed));
    }
    return !other && has_word(name, attention);
}

/* Returns whether a name has no other words than this one, but for those that say nothing. */
static bool says_only(const char *name, const char *word) {
    static const char nothing[] =
        " use is has with enable apply add attention attn self qkv q k v o proj linear rope rotary "
        "emb embed embedding embeddings position ";
    char rest[64];
    const size_t before = (size_t)(strstr(name, word) - name);
    if (snprintf(rest, sizeof rest, "%.*s_%s", (int)before, name, name + before + strlen(word)) >=
        (int)sizeof rest) {
        return false;
    }
    for (char *left = NULL, *part = strtok_r(rest, "_", &left); part != NULL;
         part = strtok_r(NULL, "_", &left)) {
        if (!search_has_name(nothing, part)) {
            return false;
        }
    }
    return true;
}

bool family_words_no_news(const struct search *s, const char *name, const char *value) {
    static const char no[] = "no_ non_ not_ without disable skip ";
    const struct model_type *type = s->type;
    const unsigned all = strstr(name, "qkv") != NULL ? BIAS_QKV : BIAS_ALL;
    const unsigned biases = family_models_biases(s);
    const struct {
        const char *word;
        bool on, off; /* whether it does, and whether it does not; both are false if it depends */
    } features[] = {
        {"alibi", search_is(s, MODEL_ALIBI), !search_is(s, MODEL_ALIBI)},
        {"interleaved", search_is(s, MODEL_INTERLEAVED), !search_is(s, MODEL_INTERLEAVED)},
        {"interleave", search_is(s, MODEL_INTERLEAVED), !search_is(s, MODEL_INTERLEAVED)},
        {"mrope", false, true},
        {"multi_query", false, true},
        {"rel_pos", type->relative != MODEL_NOT_RELATIVE, type->relative == MODEL_NOT_RELATIVE},
        {"rotary", search_is(s, MODEL_ROTARY), !search_is(s, MODEL_ROTARY)},
        {"rope", search_is(s, MODEL_ROTARY), !search_is(s, MODEL_ROTARY)},
        {"gate", search_is(s, MODEL_GATED), !search_is(s, MODEL_GATED)},
        {"tie", false, true},
        {"relative", type->relative != MODEL_NOT_RELATIVE, type->relative == MODEL_NOT_RELATIVE},
        {"shared", false, true},
        {"quant", false, true},
        {"logn", false, true},
        {"softcap", false, !family_models_uses(s, "attn_logit_softcapping")},
        {"sink", search_is(s, MODEL_SINKS), !search_is(s, MODEL_SINKS)},
        {"qk_norm", search_is(s, MODEL_NORMS), !search_is(s, MODEL_NORMS)},
        {"qk_layernorm", search_is(s, MODEL_NORMS), !search_is(s, MODEL_NORMS)},
        {"sliding", false, type->slides == MODEL_NEVER_SLIDES},
        {"window", false, type->slides == MODEL_NEVER_SLIDES},
        {"swa", false, type->slides == MODEL_NEVER_SLIDES},
        {"bias", (biases & all) == all, (biases & all) == 0},
    };
    if (strncmp(name, "mtp", 3) == 0) { /* layers behind the others */
        return true;
    }
    for (size_t i = 0; i < COUNT(features) && !has_word(name, no); i++) {
        if (strstr(name, features[i].word) != NULL) {
            return strcmp(value, "true") == 0
                       ? features[i].on && says_only(name, features[i].word)
                       : (strcmp(value, "false") == 0 || strcmp(value, "0") == 0) &&
                             features[i].off;
        }
    }
    return false;
}

/* Keys that change nothing with one value, and are not understood with another one. */
static const struct {
    const char *name, *value;
} fixed[] = {
    {"interpolate_factor", "1"},
    {"is_causal", "true"},
    {"is_decoder", "false"},
    {"partial_rotary_factor", "1"},
    {"position_embedding_type", "\"absolute\""},
    {"pruned_heads", "{}"},
    {"full_attn_mod", "1"}, /* every layer has attention */
    {"relative_attention_num_buckets", "32"},
    {"scale_attn_weights", "true"},
    {"scalable_attention", "true"}, /* umt5 has a relative bias in each layer */
    {"use_bidirectional_attention", "false"},
    {"use_sliding_window", "false"},
};

const char *family_words_fixed(const char *name) {
    for (size_t i = 0; i < COUNT(fixed); i++) {
        if (strcmp(fixed[i].name, name) == 0) {
            return fixed[i].value;
        }
    }
    return NULL;
}
