#!/usr/bin/env python3
"""Checks the trained model of server/models with the daemon, and what the documents say of it. It needs no packages.

    check_story.py --daemon PROGRAM

The daemon must serve the two layers and give the file to pages. Its weights, and the words that come next with some
heads off, must be those of NumPy in tests/data/golden_story.json. server/layers/README.md must have the figures that
are measured here in stories and repetitions (story.py) that the training has not drawn: how much of its weight each
head gives to what it looks at, and how likely the right words are with all heads and without this one.
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
SEED, SEQUENCES = 2026, 100  # of each kind
# A row of the table of server/layers/README.md: the head, the name of its places in story.py, what it looks at, and what
# the model expects less without it.
HEADS = (
    ((0, 0), "before", "the word before", "a row of random words that goes on"),
    ((0, 1), "pronouns", "whom or what a pronoun stands for", "after “too”, what fits the pronoun"),
    ((1, 0), "names", "what came after the same name before", "a surname that comes again"),
    ((1, 1), "subjects", "from “was” and “too”: of whom they speak", "after “too”, what fits the pronoun"),
    ((1, 2), "articles", "from “the”: what was named before", "a noun that comes again"),
)
TOTAL = "The model predicts {} % of the {} next words of these stories."
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
        self.ids = {word: i for i, word in enumerate(self.words)}
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
             for a, b in zip(self.row("embedding", self.ids[word]), self.row("positions", place))]
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
    if len(data) > 1_000_000:
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


def fitting(one):
    """Returns the adjectives that fit a noun or a name."""
    kinds = {kind for kind, nouns in story.NOUNS.items() if one in nouns} or {"man"}  # names are those of people
    return {word for of, words in story.ADJECTIVES if kinds & set(of) for word in words}


class Measure:
    """Sequences that the training has not drawn, and what the model makes of them."""

    def __init__(self, model):
        draw = random.Random(SEED)
        self.model = model
        self.stories = [story.story(draw) for _ in range(SEQUENCES)]
        self.repetitions = [story.repetition(draw) for _ in range(SEQUENCES)]
        self.whole = self.run(self.stories, ())

    def run(self, sequences, off):
        return self.model.run([words[:-1] for words, _ in sequences], off)

    def weight(self, layer, head, name):
        """Returns the mean weight that a head gives to the right places of the stories."""
        n, heads, found = story.LENGTH, self.model.heads, []
        for item, (_, looks) in enumerate(self.stories):
            for i, back in looks[name].items():
                row = self.whole[1][layer][((item * heads + head) * n + i) * n:][:n]
                found.append(sum(row[j] for j in back))
        return sum(found) / len(found)

    def expected(self, name, off):
        """Returns how likely the right words are where a head of this name matters: a mean in percent."""
        sequences = self.repetitions if name == "before" else self.stories
        right = []  # the place in all sequences, and the right words
        for item, (words, looks) in enumerate(sequences):
            for i, back in looks["names" if name == "before" else "subjects" if name == "pronouns" else name].items():
                if name not in ("pronouns", "subjects"):
                    right.append((item * story.LENGTH + i, {words[i + 1]}))
                elif words[i] == "too":
                    right.append((item * story.LENGTH + i, fitting(words[looks["pronouns"][back[0]][0]])))
        x = self.whole[0] if not off and name != "before" else self.run(sequences, off)[0]
        rows = [number for at, _ in right for number in x[at * self.model.columns:(at + 1) * self.model.columns]]
        shares, count = self.model.scores(rows, "weights")["weights"], len(self.model.words)
        return 100 * sum(shares[row * count + self.model.ids[word]]
                         for row, (_, words) in enumerate(right) for word in words) / len(right)

    def lines(self):
        """Yields the lines of server/layers/README.md."""
        for (layer, head), name, at, what in HEADS:
            yield (f"| {layer}.{head} | {at} | {self.weight(layer, head, name):.2f} | {what} | "
                   f"{self.expected(name, ()):.0f} % | {self.expected(name, [(layer, head)]):.0f} % |")
        found = self.model.scores(self.whole[0], "top_k", top_k="1")["top_k.indices"]
        right = [self.model.ids[word] for words, _ in self.stories for word in words[1:]]
        yield TOTAL.format(f"{100 * sum(a == b for a, b in zip(found, right)) / len(right):.0f}", f"{len(right):,}")


def figure_faults(model):
    """Yields what server/layers/README.md should say."""
    page = " ".join((ROOT / "server/layers/README.md").read_text(encoding="utf-8").split())
    for line in Measure(model).lines():
        print(line)
        if line not in page:
            yield f"server/layers/README.md does not say: {line}"


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
        faults = [*listing_faults(model), *expected_faults(model), *figure_faults(model)]
    for fault in faults:
        print(fault)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
