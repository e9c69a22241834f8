"""Config.json files as models on a hub have them, made small. Only sizes change, and only those that a file has: a key that
is not there is left to the class of transformers, and a key that no class knows stays.
"""

import copy
import json
import re

LAYERS = 2
COLUMNS = 8  # of a head

COUNTS = (  # keys and their new values; the first pattern that fits is taken
    (r"^(num_hidden_layers|num_layers|n_layers?|encoder_layers|decoder_layers|num_decoder_layers|depth)$", "layers"),
    (r"(vocab_size|vocabulary_size)$", 96),
    (r"^(intermediate_size|ffn_hidden_size|encoder_ffn_dim|decoder_ffn_dim|ffn_dim|d_ff|hidden_dim|n_inner|"
     r"moe_intermediate_size|shared_expert_intermediate_size|mlp_hidden_size|intermediate_size_mlp|"
     r"moe_shared_expert_intermediate_size)$", 16),
    (r"^(num_local_experts|num_experts|n_routed_experts|moe_num_experts)$", 4),
    (r"^(num_experts_per_tok|experts_per_token|experts_per_tok|moe_topk|top_k_experts)$", 2),
    (r"^(n_group|topk_group)$", 1),
    (r"_token_id$|_token_index$", 3),
    (r"^(conv_dim|num_codevectors_per_group|mamba_num_heads|mamba_head_dim|ssm_state_size|q_lora_rank|kv_lora_rank)$", 8),
)
HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
HIDDEN = ("hidden_size", "n_embd", "dim", "d_model", "embed_dim")
HEAD_SIZES = ("head_dim", "d_kv")


def first(config, names):
    return next((name for name in names if isinstance(config.get(name), int)), None)


def smaller(config, outer=None):
    """Returns a copy whose model is small. `outer` has the keys around this object."""
    config = copy.deepcopy(config)
    layers = first(config, ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers", "depth"))
    kept = min(config[layers], most_layers(config)) if layers else None
    shrink_heads(config)
    for key, value in config.items():
        if isinstance(value, dict) and key not in ("rope_scaling", "rope_parameters", "quantization_config"):
            config[key] = smaller(value, config)
        elif key == "conv_dim":
            config[key] = [16] * len(value)
        elif isinstance(value, list) and layers and key in ("layer_types", "attention_layers", "no_rope_layers",
                                                            "mlp_layer_types", "layers_block_type"):
            config[key] = value[:kept]
        elif isinstance(value, int) and not isinstance(value, bool):
            for pattern, new in COUNTS:
                if re.search(pattern, key):
                    config[key] = min(value, kept or LAYERS) if new == "layers" else min(value, new)
                    break
    if "attention_types" in config:
        config["attention_types"] = [[config["attention_types"][0][0], kept // 2]]
    return config


def most_layers(config):
    """Two layers, or as many as a pattern of them takes."""
    pattern = next((config[key] for key in ("sliding_window_pattern", "_sliding_window_pattern", "full_attention_interval")
                    if isinstance(config.get(key), int)), 0)
    kinds = config.get("layer_types") or []
    return max(LAYERS, pattern, *(kinds.index(kind) + 1 for kind in set(kinds)), LAYERS)


def shrink_heads(config):
    heads, kv, hidden, size = (first(config, names) for names in (HEADS, KV_HEADS, HIDDEN, HEAD_SIZES))
    if heads is None or hidden is None:
        return
    many, old = config[heads], config[hidden]
    few = next(n for n in (4, 3, 5, 7, 2, many) if many % n == 0)
    if kv and config[kv] != many:
        ratio = many // config[kv]
        few = ratio * min(config[kv], 2 if ratio <= 8 else 1)
        config[kv] = few // ratio
    elif kv:
        config[kv] = few
    columns, rope = COLUMNS, config.get("rope_scaling") or config.get("rope_parameters") or {}
    if config.get("partial_rotary_factor", 1) != 1:
        columns = 40
    if config.get("rotary_dim"):
        config["rotary_dim"] = columns // 2
    if isinstance(rope.get("mrope_section"), list):
        columns = 2 * sum(rope["mrope_section"]) // 4
        rope["mrope_section"] = [count // 4 for count in rope["mrope_section"]]
    for key in ("short_factor", "long_factor"):
        if isinstance(rope.get(key), list):
            rope[key] = rope[key][:int(columns * config.get("partial_rotary_factor", 1)) // 2]
    apart = size and many * config[size] != old
    if size:
        config[size] = columns
    for key, value in config.items():
        if key in HEADS and isinstance(value, int):
            config[key] = few
        elif isinstance(value, int) and not isinstance(value, bool) and value == old and old > 64 and "position" not in key:
            config[key] = few * columns + 16 * bool(apart)


def type_of(config):
    """The model_type of a file that has none, by its class."""
    names = {"GPT2": "gpt2", "OpenAIGPT": "openai-gpt", "Bert": "bert"}
    return next((kind for start, kind in names.items()
                 if any(name.startswith(start) for name in config.get("architectures") or [])), None)
