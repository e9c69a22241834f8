#!/usr/bin/env python3
"""Checks the trained model of server/models with the daemon, and what the documents say of it. It needs no packages.

    check_story.py --daemon PROGRAM

The daemon must serve the two layers and give the file to pages. Its weights, and the words that come next with some
heads off, must be those of NumPy in tests/data/golden_story.json. server/layers/README.md must have the figures that are
measured here in repetitions (story.py) that the training has not drawn: how often the model predicts the next word where a
row of words comes again, with all heads and without one, and the mean weights of the two heads.
"""

import argparse
import array
import contextlib
import hashlib
import json
import pathlib
import random
import struct
import subprocess
import sys
import urllib.request

import story

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "server/models/story.safetensors"
SENTENCE = ("In a row of random words that comes twice, head 0 of layer 1 gives {induction_weight} of its weight to what followed "
            "the same word before, and head 0 of layer 0 gives {previous_weight} to the previous word. The model predicts "
            "{all} % of {cases} next words. Without head 0 of layer 1 it predicts {induction} %, and without head 0 of layer 0 "
            "{previous} %.")
SEED, SEQUENCES = 2026, 100
PREVIOUS, INDUCTION = (0, 0), (1, 0)  # (layer, head)
CLOSE = 1e-5  # float32 beside NumPy's float64


def unpack(data):
    """Returns the metadata and the tensors of a safetensors file: name → (shape, numbers)."""
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    texts = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (start + offset for offset in entry["data_offsets"])
        code, size = {"F16": ("e", 2), "F32": ("f", 4), "I64": ("q", 8)}[entry["dtype"]]
        tensors[name] = entry["shape"], struct.unpack(f"<{(end - begin) // size}{code}", data[begin:end])
    return texts, tensors


def pack(texts, tensors):
    """Makes a safetensors file with float32 numbers."""
    header, body = {"__metadata__": texts}, b""
    for name, (shape, numbers) in tensors.items():
        part = array.array("f", numbers).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(part)]}
        body += part
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


class Model:
    """The model, with the attention of the daemon at `address`."""

    def __init__(self, address):
        self.address = address
        self.texts, self.tensors = unpack(MODEL.read_bytes())
        self.words = json.loads(self.texts["words"])
        self.heads = int(self.texts["heads"])
        self.columns = self.tensors["embedding"][0][1]

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=10) as response:
            return response.headers["Content-Type"], response.read()

    def ask(self, path, texts, tensors):
        """Returns the results of a request, each as its numbers."""
        request = urllib.request.Request(self.address + path, pack(texts, tensors),
                                         {"Content-Type": "application/vnd.safetensors"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return {name: numbers for name, (_, numbers) in unpack(response.read())[1].items()}

    def row(self, name, at):
        return self.tensors[name][1][at * self.columns:(at + 1) * self.columns]

    def run(self, texts, off=()):
        """Returns what leaves layer 1, and the weights of each layer. texts: lists of as many words. off: pairs (layer,
        head)."""
        n = len(texts[0])
        x = [a + b for words in texts for place, word in enumerate(words)
             for a, b in zip(self.row("embedding", self.words.index(word)), self.row("positions", place))]
        weights = []
        for layer in range(2):
            mask = [(layer, head) not in off for head in range(self.heads) for _ in range(n * n)]
            answer = self.ask(f"/layers/story.{layer}/attention", {"return": '["output", "weights"]'},
                              {"X": ([len(texts), n, self.columns], x), "mask": ([self.heads, n, n], mask)})
            weights.append(answer["weights"])
            x = [a + b for a, b in zip(x, answer["output"])]
        return x, weights

    def scores(self, x, result, **texts):
        """Asks for a result of the scores of all words. An attention with the unembedding as its keys has them."""
        count = len(self.words)
        return self.ask("/attention", {"scale": "1", "return": json.dumps([result]), **texts},
                        {"Q": ([len(x) // self.columns, self.columns], x), "K": self.tensors["unembedding"],
                         "V": ([count, 1], [0] * count)})


def listing_faults(model):
    """Yields what is wrong with the list of layers and with the file for pages."""
    listed = json.loads(model.get("/layers")[1])
    found = [(layer["name"], layer["heads"], layer["d_model"], layer["causal"]) for layer in listed["layers"]]
    if listed["refused"] or found != [(f"story.{layer}", model.heads, model.columns, True) for layer in range(2)]:
        yield f"/layers lists {listed}"
    data = MODEL.read_bytes()
    path = f"/assets/story-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
    if model.get(path) != ("application/vnd.safetensors", data):
        yield f"{path} is not the file of the model"
    if len(data) > 200_000:
        yield f"the file has {len(data)} bytes"
    if model.words != story.WORDS:
        yield "the words of the file are not those of story.py"


def expected_faults(model):
    """Yields where the daemon differs from NumPy."""
    expected = json.loads((ROOT / "tests/data/golden_story.json").read_text(encoding="utf-8"))
    words = expected["text"].split()
    for case in expected["cases"]:
        off = [tuple(pair) for pair in case["off"]]
        x, weights = model.run([words], off)
        pairs = list(zip(model.scores(x[-model.columns:], "weights")["weights"], case["next"]))
        if not off:
            flat = [number for layer in expected["weights"] for head in layer for row in head for number in row]
            pairs += zip([number for layer in weights for number in layer], flat)
        worst = max(abs(a - b) for a, b in pairs)
        if worst > CLOSE:
            yield f"without {off} a number differs by {worst} from that of NumPy"


def measure(model):
    """Returns the figures of the model: shares of right predictions in percent, and mean weights."""
    draw = random.Random(SEED)
    drawn = [story.repetition(draw) for _ in range(SEQUENCES)]
    texts = [words[:-1] for words, _ in drawn]
    n = story.LENGTH
    # The places of the second and later rows, and what follows there.
    places = [(item, i) for item, (_, again) in enumerate(drawn) for i in range(again, n)]

    def right(x):
        rows = [number for item, i in places for number in x[(item * n + i) * model.columns:][:model.columns]]
        found = model.scores(rows, "top_k", top_k="1")["top_k.indices"]
        hits = sum(model.words[at] == drawn[item][0][i + 1] for at, (item, i) in zip(found, places))
        return f"{100 * hits / len(places):.1f}"

    def weight(numbers, head, item, i, j):
        return numbers[((item * model.heads + head) * n + i) * n + j]

    x, (first, second) = model.run(texts)
    previous = [weight(first, PREVIOUS[1], item, i, i - 1) for item in range(SEQUENCES) for i in range(1, n)]
    # The words after the earlier places of the present word.
    induction = [sum(weight(second, INDUCTION[1], item, i, j + 1) for j in range(i) if texts[item][j] == texts[item][i])
                 for item, i in places]
    return {"cases": f"{len(places):,}", "all": right(x), "induction": right(model.run(texts, [INDUCTION])[0]),
            "previous": right(model.run(texts, [PREVIOUS])[0]),
            "induction_weight": f"{sum(induction) / len(induction):.2f}",
            "previous_weight": f"{sum(previous) / len(previous):.2f}"}


def sentence_faults(model):
    """Yields what the sentence of server/layers/README.md should say."""
    sentence = SENTENCE.format(**measure(model))
    print(sentence)
    if sentence not in " ".join((ROOT / "server/layers/README.md").read_text(encoding="utf-8").split()):
        yield f"server/layers/README.md does not say: {sentence}"


@contextlib.contextmanager
def serving(program):
    command = [program, "--port", "0", "--layers", str(MODEL.parent)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--daemon", required=True, metavar="PROGRAM")
    with serving(parser.parse_args().daemon) as address:
        model = Model(address)
        faults = [*listing_faults(model), *expected_faults(model), *sentence_faults(model)]
    for fault in faults:
        print(fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
