"""Draws configurations of transformers' models: every field of a config class, by its name and type.

A model must stay small, so fields that are sizes always get a small value. All other fields keep their default, or get a
value that their type allows. Names that only the code of the model reads (`getattr(config, "name", default)`) are drawn,
too. So a new field of a new version needs no line here.
"""

import dataclasses
import functools
import inspect
import re
import sys

from transformers import PreTrainedConfig

# Fields of all models that say nothing of the weights, or that would make files useless for the search.
KEPT = {"transformers_version", "architectures", "dtype", "id2label", "label2id", "problem_type", "output_hidden_states",
        "return_dict", "output_attentions", "is_encoder_decoder", "initializer_range", "torchscript", "pretraining_tp",
        "use_cache", "gradient_checkpointing", "use_mamba_kernels", "tokenizer_class", "_name_or_path"}
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
LAYER_TYPES = ("full_attention", "sliding_attention")
VOCABULARY = 96  # words


def canonical(cls, name):
    """The name that transformers uses for a field in all models: `hidden_size` for GPT-2's `n_embd`."""
    return {own: common for common, own in cls.attribute_map.items()}.get(name, name)


class Sizes:
    """The sizes that belong together in one model."""

    def __init__(self, rng):
        self.rng = rng
        self.heads = rng.choice((1, 2, 2, 3, 4, 4, 6))
        self.columns = rng.choice((2, 4, 4, 6, 8, 8, 16))
        self.hidden = self.heads * self.columns
        self.layers = rng.choice((1, 2, 2, 3))
        self.positions = rng.choice((24, 48, 64, 80))

    def kv_heads(self):
        return self.rng.choice([n for n in range(1, self.heads + 1) if self.heads % n == 0])

    def other_heads(self):
        """Another number of heads for the same columns: an encoder and its decoder may differ."""
        return self.rng.choice([self.heads] + [n for n in range(1, self.hidden + 1) if self.hidden % (2 * n) == 0])


def size_of(cls, name, default, sizes):
    """Returns the value of a field that is a size of the model, or None if the field is none."""
    rng, common = sizes.rng, canonical(cls, name)
    if isinstance(default, bool) or not (isinstance(default, int) or default is None):
        return None
    rules = (
        (r"type_vocab_size", lambda: 2), (r"max_distance$", lambda: rng.choice((33, 64, 128, 5))),
        (r"(^|_)(vocab_size(_per_layer_input)?|vocabulary_size|n_vocab|num_embeddings)$", lambda: VOCABULARY),
        (r"token_(id|index)$|_token$|_idx$|_id$", lambda: default if default is None or default < 3 else rng.randrange(3)),
        (r"(key_value_heads|num_kv_heads|n_head_kv|num_key_value_groups)$", sizes.kv_heads),
        (r"^(num_attention_heads|num_heads|n_heads?)$", lambda: sizes.heads),
        (r"(attention_heads|num_heads|n_heads?|_heads)$", sizes.other_heads),
        (r"^(hidden_size|d_model|n_embd|dim|embed_dim|hidden_dim|emb_dim)$", lambda: sizes.hidden),
        (r"(hidden_size|embed_dim|embedding_size|d_model|_dim_model|projection_dim)$", lambda: sizes.hidden),
        (r"^(head_dim|d_kv|attention_head_size|d_head|kv_channels)$",
         lambda: rng.choice((None, sizes.columns, 2, 4, 8, 12)) if default is None or default == sizes.columns
         else rng.choice((sizes.columns, 2, 4, 8, 12))),
        (r"(head_dim|head_size)$", lambda: rng.choice((sizes.columns, 4, 8))),
        (r"^(num_hidden_layers|num_layers|n_layers?)$", lambda: sizes.layers),
        (r"(layers|_depth|n_layer|num_blocks)$", lambda: rng.choice((1, 2, 3)) if default else default),
        (r"(intermediate_size|ffn_dim|ff_dim|d_ff|mlp_dim|n_inner|inner_dim|ffn_hidden_size|intermediate_dim)$",
         lambda: rng.choice((8, 16, 32))),
        (r"(max_position_embeddings|n_positions|n_ctx|max_position|seq_length|max_sequence_length|max_seq_len|"
         r"max_target_positions|max_source_positions|original_max_position_embeddings)$",
         lambda: sizes.positions if name != "original_max_position_embeddings" else rng.choice((8, 16, sizes.positions))),
        (r"(image_size|img_size|input_size)$", lambda: 16), (r"patch_size$|patch_stride$", lambda: 4),
        (r"(num_channels|in_channels|in_chans)$", lambda: 3),
        (r"^(num_mel_bins|feature_size|input_feat_per_channel)$", lambda: 16),
        (r"(num_experts_per_tok|experts_per_token|top_k_experts|moe_topk|moe_top_k)$", lambda: rng.choice((1, 2))),
        (r"^(num_local_experts|num_experts|n_routed_experts|moe_num_experts)$", lambda: 4),
        (r"groups$", lambda: sizes.heads), (r"(window|window_size|chunk_size|attention_chunk_size)$",
         lambda: rng.choice((1, 2, 3, 5, 9, 32)) if default != 0 else 0),
    )
    if default is None:  # what is not given is left to the model, except a size that one may give
        rules = [rule for rule in rules if "kv_heads" in rule[0] or "head_dim" in rule[0] or "window" in rule[0]]
        if rng.random() < 0.5:
            return None
    for pattern, draw in rules:
        if re.search(pattern, common) or re.search(pattern, name):
            return draw()
    if isinstance(default, int) and default > 40:
        return rng.choice((8, 16, 24, 32))
    return None


@functools.cache
def source_of(*names):
    """The source of some modules, as far as they exist."""
    texts = []
    for name in names:
        try:
            __import__(name)
            texts.append(inspect.getsource(sys.modules[name]))
        except (ImportError, OSError, TypeError):
            pass
    return "\n".join(texts)


def modeling_of(cls):
    """The name of the module that has the models of a config class."""
    return cls.__module__.replace("configuration_", "modeling_")


def words_of(source, name):
    """The texts with which the source compares a field."""
    found = set()
    for match in re.finditer(rf"\.{name}\s*(?:==|!=|in|not in)\s*([\[(]?[^\n:]*)", source):
        found |= set(re.findall(r"[\"']([\w-]+)[\"']", match[1]))
    return sorted(found)


def unnamed_fields(cls, source):
    """Names that a model reads of its config though the class has no such field, with their defaults."""
    known = {field.name for field in dataclasses.fields(cls)} | set(cls.attribute_map) | KEPT
    found = {}
    shared = source_of("transformers.masking_utils", "transformers.modeling_utils", "transformers.modeling_rope_utils")
    for name, default in re.findall(r"getattr\((?:self\.)?config, \"(\w+)\", ([\w.]+)\)", source + shared):
        if name not in known and not name.startswith("_"):
            found[name] = {"True": True, "False": False, "None": None}.get(
                default, float(default) if re.fullmatch(r"[\d.]+", default) else None)
    return found


def popped_sizes(cls, sizes):
    """Sizes that a class takes though it has no such field."""
    found = {}
    for name, default in re.findall(r"kwargs\.pop\(\"(\w+)\", (\d+|None)\)", source_of_class(cls)):
        value = size_of(cls, name, None if default == "None" else int(default), sizes)
        if value is not None and name not in {field.name for field in dataclasses.fields(cls)}:
            found[name] = value
    return found


def source_of_class(cls):
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return ""


def rope(rng, sizes, columns, original):
    """The parameters of one rotary embedding."""
    kind = rng.choice(ROPE_TYPES[:-1] if rng.random() < 0.95 else ROPE_TYPES)
    drawn = {"rope_type": kind, "rope_theta": rng.choice((10000.0, 10000, 100.0, 500000.0, 1e6, 37.5))}
    share = rng.choice((None,) * 6 + (1.0, 0.5, 0.25, 0.75))
    if share is not None:
        drawn["partial_rotary_factor"] = share
    if kind in ("linear", "dynamic", "yarn", "llama3") or (kind == "longrope" and rng.random() < 0.5):
        drawn["factor"] = rng.choice((1.0, 2.0, 4.0, 8.0, 1.7, 3))
    if kind in ("yarn", "longrope", "llama3") or (kind != "default" and rng.random() < 0.2):
        drawn["original_max_position_embeddings"] = original
    if kind in ("yarn", "longrope") and rng.random() < 0.3:
        drawn["attention_factor"] = rng.choice((0.5, 1.0, 1.3, 2.0))
    if kind == "yarn":
        for name, values in (("beta_fast", (32.0, 8.0, 4)), ("beta_slow", (1.0, 0.5, 2)), ("mscale", (1.0, 0.7)),
                             ("mscale_all_dim", (1.0, 0.8)), ("truncate", (True, False))):
            if rng.random() < 0.35:
                drawn[name] = rng.choice(values)
    if kind == "llama3":
        drawn |= {"low_freq_factor": rng.choice((1.0, 2.0)), "high_freq_factor": rng.choice((4.0, 8.0))}
    if kind == "longrope":
        half = int(columns * (share or 1.0)) // 2
        for name in ("short_factor", "long_factor"):
            drawn[name] = [round(rng.uniform(1.0, 4.0), 3) for _ in range(half)]
    return drawn


def rope_parameters(rng, cls, values, sizes):
    columns = values.get("head_dim") or values.get("d_kv") or sizes.columns
    original = values.get("original_max_position_embeddings") or rng.choice((8, 16, sizes.positions))
    labels = getattr(cls, "_rope_type_labels", None) or values.get("layer_types")
    nested = rng.random() < (0.6 if labels else 0.1)
    if "mrope_section" in getattr(cls, "ignore_keys_at_rope_validation", ()):
        first, second = rng.randrange(columns // 2), rng.randrange(columns // 2)
        section = [min(first, second), abs(first - second), columns // 2 - max(first, second)]
        return rope(rng, sizes, columns, original) | {"mrope_section": section}
    if not nested:
        return rope(rng, sizes, columns, original)
    names = dict.fromkeys(labels if rng.random() < 0.5 and isinstance(labels, (list, tuple)) else LAYER_TYPES)
    return {name: rope(rng, sizes, columns, original) for name in names}


def add_own_keys(rng, drawn, source):
    """Draws the keys of rope_parameters that only this model reads."""
    names = set(re.findall(r"config\.rope_parameters(?:\.get\(|\[)\"(\w+)\"", source))
    same = rng.choice((None, 0.1, 1.25))
    for name in sorted(names - {"rope_type", "rope_theta", "partial_rotary_factor", "factor", "mrope_section",
                                "original_max_position_embeddings"}):
        if name not in LAYER_TYPES and rng.random() < 0.8:
            drawn.setdefault(name, same or rng.choice((0.0, 0.1, 0.5, 1.25)))


def number_near(rng, name, default):
    if re.search(r"eps|epsilon", name):
        return rng.choice((1e-12, 1e-6, 1e-5, 1e-3, 0.1))
    if re.search(r"drop|prob", name):
        return rng.choice((0.0, 0.1, 0.5, 1.0))
    values = [0.0, 0.1, 0.5, 1.0, 2.0, 3, 7.5]
    if default:
        values += [default * 2, default / 2, default * 1.5, -default]
    return rng.choice(values)


def other_value(rng, cls, name, kind, default, values, sizes, source):
    """Draws another value for a field that is no size. Returns the default if nothing else can be drawn."""
    if re.search(r"(^|_)layer_types$|^layers_block_type$", name):
        kinds = words_of(source, name) or LAYER_TYPES
        kinds = LAYER_TYPES if rng.random() < 0.7 else (*LAYER_TYPES, "chunked_attention", *kinds)
        return [rng.choice(kinds) for _ in range(sizes.layers)]
    if name == "attention_types":
        return [[[rng.choice(("global", "local"))], 1] for _ in range(sizes.layers)]
    if name == "per_layer_config":
        change = rng.choice([{"sliding_window": 2}, {"num_key_value_heads": 1}, {"num_attention_heads": 1},
                             {"attention_bias": True}, {"intermediate_size": 8}, {"head_dim": 4}])
        return {rng.randrange(sizes.layers): change}
    literals = re.findall(r"[\"']([\w-]+)[\"']", kind) if "Literal" in kind else []
    if literals or isinstance(default, str):
        words = literals or words_of(source, name)
        if re.search("position_embedding_type|position_embeddings_type", name):
            words = sorted({*words, "absolute", "relative_key", "relative_key_query", "rotary"})
        return rng.choice(words) if words else default
    if default is None and kind == "any":
        return rng.choice((True, 1, 2, 4, 0.5))
    if isinstance(default, bool) or (default is None and "bool" in kind):
        return not default
    if isinstance(default, float) or (default is None and "float" in kind):
        return number_near(rng, name, default)
    if isinstance(default, int) or (default is None and re.search(r"\bint\b", kind)):
        return rng.choice((0, 1) if name == "chunk_size_feed_forward" else (0, 1, 2, 3, 4, 5, 8))
    if isinstance(default, (list, tuple)) and default and all(type(value) is int for value in default):
        return [rng.choice((1, 2, 3, 4, 8)) for _ in default]
    if default is None and re.search(r"list\[int\]", kind):
        return sorted(rng.sample(range(sizes.layers + 1), rng.randrange(sizes.layers + 1)))
    return default


def plain_defaults(cls):
    """The default of each field, as an instance without arguments has it, or as the class says."""
    defaults = {}
    try:
        instance = cls()
    except Exception:  # whatever a class needs, its fields' own defaults do
        instance = None
    for field in dataclasses.fields(cls):
        value = None if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        defaults[field.name] = value if value is not None or instance is None else getattr(instance, field.name, None)
        if value is None and isinstance(defaults[field.name], (dict, list, PreTrainedConfig)):
            defaults[field.name] = None
    return defaults


def draw(rng, cls, change=None, sizes=None):
    """Draws the keyword arguments of a config class. `change` is the share of other fields that leave their default."""
    sizes = sizes or Sizes(rng)
    change = rng.choice((0.0, 0.03, 0.1, 0.1, 0.3)) if change is None else change
    source, defaults = source_of(cls.__module__, modeling_of(cls)), plain_defaults(cls)
    kinds = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    extra = {name: default for name, default in unnamed_fields(cls, source).items() if rng.random() < change / 8}
    values = {}
    for name, default in {**defaults, **extra}.items():
        if name in KEPT or name.startswith("_"):
            continue
        if name in cls.sub_configs_defaults:
            sub = cls.sub_configs_defaults[name]
            if sub.optional and rng.random() < 0.5:
                continue
            sub_class = sub.get_config_class(sub.model_type) if not dataclasses.is_dataclass(sub.config_class) \
                else sub.config_class
            values[name] = {**draw(rng, sub_class, change, Sizes(rng) if rng.random() < 0.5 else sizes),
                            "model_type": sub_class.model_type}
            continue
        size = size_of(cls, name, default, sizes)
        if re.search("image_size|img_size", name) and isinstance(default, (list, tuple)):
            size = [16] * len(default)
        elif isinstance(default, (list, tuple)) and any(type(value) is int and value > 40 for value in default):
            size = [min(value, 16) for value in default]
        if size is not None:
            values[name] = size
        elif name not in ("rope_parameters", "rope_scaling") and (
                name in extra or rng.random() < (0.5 if "layer_types" in name else change)):
            value = other_value(rng, cls, name, kinds.get(name, "any"), default, values, sizes, source)
            if value != default:
                values[name] = value
        if name == "attention_types" and name not in values:
            values[name] = [[["global"], 1]] * sizes.layers
    if rng.random() < 0.7:
        values |= popped_sizes(cls, sizes)
    if rng.random() < change / 4:
        values["per_layer_config"] = other_value(rng, cls, "per_layer_config", "", None, values, sizes, source)
    needed = "mrope_section" in getattr(cls, "ignore_keys_at_rope_validation", ())
    if "rope_parameters" in defaults and (needed or rng.random() < 0.6):
        values["rope_parameters"] = rope_parameters(rng, cls, values, sizes)
        add_own_keys(rng, values["rope_parameters"], source)
    return values
