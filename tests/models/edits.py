"""Edits of saved models by hand: config.json, and files as other programs write them."""

import copy
import json

import torch
from safetensors.torch import load_file, save_file

from eager import print_of

# The names of the projections to Q, K and V and of the output behind a common prefix.
NAMES = (("self.query", "self.key", "self.value", "output.dense"), ("q_lin", "k_lin", "v_lin", "out_lin"),
         ("attention.query", "attention.key", "attention.value", "output.dense"),
         ("q_proj", "k_proj", "v_proj", "out_proj"), ("q_proj", "k_proj", "v_proj", "o_proj"))


def edit_config(rng, config, types):
    """Changes one or two things of a config.json. Returns what was changed, in words."""
    def other():
        return rng.choice((None, True, False, 0, 1, 2, -1, 3, 0.5, 1e30, "2", "full_attention", [], [2], {}, {"factor": 2}))
    done = []
    for _ in range(rng.choice((1, 1, 2))):
        way = rng.choice(("type", "type", "number", "remove", "remove", "add", "rope4", "model_type", "nest"))
        keys = [key for key in config if key not in ("architectures", "transformers_version", "dtype", "model_type")]
        if way in ("type", "number", "remove") and keys:
            key = rng.choice(keys)
            if way == "remove":
                done.append(f"{key} removed")
                del config[key]
            else:
                config[key] = other() if way == "type" else rng.choice((0, 1, 2, 3, 4, 6, 8, 64, -2, 0.25, True, False))
                done.append(f"{key} = {config[key]!r}")
        elif way == "add":
            key = rng.choice(("use_alibi", "attention_bias_new", "sliding_window", "window_size", "layer_types", "alibi",
                              "num_key_value_heads", "head_dim", "rotary_pct", "partial_rotary_factor", "is_decoder",
                              "attn_logit_softcapping", "final_logit_softcapping", "scale_attn_weights", "rope_theta",
                              "query_pre_attn_scalar", "attention_multiplier", "num_attention_heads", "is_causal",
                              "rope_scaling", "rope_parameters", "use_sliding_window", "max_window_layers", "causal",
                              "position_embedding_type", "attention_dropout", "qk_norm", "logit_scale", "per_layer_config",
                              "rms_norm_eps", "layer_norm_eps", "num_heads", "n_head", "scale", "heads", "kv_heads",
                              "tie_weights_", "unsloth_fixed", "_commit_hash", "ignore_index", "encoder_width", "n_special",
                              "rotary_interleaved", "use_yarn", "block_sparse", "has_relative_attention_bias", "no_bias"))
            config[key] = other()
            done.append(f"{key} added = {config[key]!r}")
        elif way == "rope4" and isinstance(config.get("rope_parameters"), dict):
            rope = config.pop("rope_parameters")
            flat = next((value for value in rope.values() if isinstance(value, dict)), rope)
            config["rope_theta"] = flat.get("rope_theta", 10000.0)
            kind = flat.get("rope_type", "default")
            if kind != "default":
                config["rope_scaling"] = {("type" if rng.random() < 0.5 else "rope_type"): kind} | {
                    key: value for key, value in flat.items() if key not in ("rope_type", "rope_theta")}
            done.append("rope_parameters in the form of transformers 4")
        elif way == "model_type":
            config["model_type"] = rng.choice(types)
            done.append(f"model_type = {config['model_type']}")
        elif way == "nest" and "rope_parameters" in config:
            kinds = rng.choice((["full_attention"], ["full_attention", "sliding_attention"]))
            config["rope_parameters"] = {kind: copy.deepcopy(config["rope_parameters"]) for kind in kinds}
            done.append(f"rope_parameters nested in {kinds}")
    return ", ".join(done) or "nothing"


def projections(tensors):
    """Finds the attentions in a file: for each one the names of its four projections."""
    for name in list(tensors):
        for names in NAMES:
            if name.endswith(f".{names[0]}.weight"):
                prefix = name.removesuffix(f"{names[0]}.weight")
                if all(f"{prefix}{other}.weight" in tensors for other in names):
                    yield prefix, names
                    break


def edit_files(rng, folder, model, stored):
    """Writes the tensors as an older version or another program writes them. The model stays the one to compare with.
    Returns what was done, or "" if the file has no such tensors, and the parameters that each new tensor is made of."""
    path = folder / "model.safetensors"
    tensors = load_file(path) if path.exists() else {}
    parameters = {print_of(parameter.to(stored)): name for name, parameter in model.named_parameters()}
    found = list(projections(tensors))
    known = [names for names in found if all(print_of(tensors[f"{names[0]}{part}.weight"]) in parameters
                                             for part in names[1])]
    if not known:
        return "", {}
    way = rng.choice((prune, as_torch, in_few_bits))
    done, parts = way(rng, tensors, known, parameters, model, folder)
    if done:
        save_file(tensors, path, {"format": "pt"})
    return done, parts


def prune(rng, tensors, known, parameters, model, folder):
    """Removes heads of some layers, as prune_heads() of transformers 4 did. In the model the output projection then gets
    nothing from them."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    heads = getattr(model.config, "num_attention_heads", 1)
    gone, parts = {}, {}
    modules = dict(model.named_parameters())
    for index, (prefix, names) in enumerate(known):
        weights = [tensors[f"{prefix}{part}.weight"] for part in names]
        rows = weights[0].shape[0]
        if heads < 2 or rows % heads or any(weight.shape[0] != rows for weight in weights[:3]) or rng.random() < 0.3:
            continue
        head = rng.randrange(heads)
        columns = torch.arange(rows) // (rows // heads)
        kept = columns != head
        output = parameters[print_of(weights[3])]
        for part in names:
            for kind in (".weight", ".bias"):
                name = f"{prefix}{part}{kind}"
                if name in tensors and not (part == names[3] and kind == ".bias"):
                    parts[name] = [parameters.get(print_of(tensors[name]), output)]
                    tensors[name] = (tensors[name][:, kept] if part == names[3] else tensors[name][kept]).contiguous()
        with torch.no_grad():
            modules[output][:, ~kept] = 0
        gone[str(index)] = [head]
    if gone:
        config["pruned_heads"] = gone
        path.write_text(json.dumps(config, indent=1))
    return f"pruned_heads = {gone}" if gone else "", parts


def as_torch(rng, tensors, known, parameters, model, folder):
    """Joins the projections to Q, K and V as torch.nn.MultiheadAttention has them."""
    parts = {}
    for prefix, names in known:
        weights = [tensors[f"{prefix}{part}.weight"] for part in names]
        if any(weight.shape != weights[0].shape for weight in weights[:3]):
            continue
        made = {"in_proj_weight": [f"{prefix}{part}.weight" for part in names[:3]],
                "out_proj.weight": [f"{prefix}{names[3]}.weight"],
                "in_proj_bias": [f"{prefix}{part}.bias" for part in names[:3]],
                "out_proj.bias": [f"{prefix}{names[3]}.bias"]}
        for name, sources in made.items():
            if all(source in tensors for source in sources):
                old = [tensors.pop(source) for source in sources]
                parts[prefix + name] = [parameters[print_of(tensor)] for tensor in old if print_of(tensor) in parameters]
                tensors[prefix + name] = torch.cat(old)
    return "the names of torch.nn.MultiheadAttention" if parts else "", parts


def in_few_bits(rng, tensors, known, parameters, model, folder):
    """Stores projections in 8 bits with scales: one for the whole, for each row or for each block. The model gets the
    numbers that this makes. Scales have few digits, so products of them are exact in float32."""
    parts, modules = {}, dict(model.named_parameters())
    kind, sides = rng.choice((torch.float8_e4m3fn, torch.float8_e5m2)), (rng.choice((1, 4, 7, 128)), rng.choice((32, 48, 128)))
    way, stored = rng.choice(("whole", "rows", "blocks")), rng.choice((torch.float32, torch.bfloat16))
    ending = "_scale_inv" if way == "blocks" or rng.random() < 0.5 else "_scale"
    for name in [f"{prefix}{part}.weight" for prefix, names in known for part in names]:
        weight = tensors[name].float()
        parameter = parameters.get(print_of(tensors[name]))
        if parameter is None or rng.random() < 0.2:
            continue
        rows, columns = weight.shape
        block = {"whole": weight.shape, "rows": (1, columns), "blocks": sides}[way]
        index = (torch.arange(rows) // block[0])[:, None], (torch.arange(columns) // block[1])[None]
        counts = index[0].max() + 1, index[1].max() + 1
        scale = (torch.rand(counts) * 0.1 + 1e-3).bfloat16().float()
        small = (weight / scale[index]).to(kind)
        with torch.no_grad():
            modules[parameter].copy_(small.float() * scale[index])
        if way == "whole":
            scale = scale.reshape(rng.choice(((), (1,), (1, 1))))
        tensors[name], tensors[name + ending], parts[name] = small, scale.to(stored), [parameter]
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if way == "blocks" and sides != (128, 128) or rng.random() < 0.7:
        config["quantization_config"] = {"quant_method": "fp8"} | ({"weight_block_size": sides} if way == "blocks" else {})
        path.write_text(json.dumps(config, indent=1))
    return f"weights of 8 bits, scales of the {way}" if parts else "", parts
