#!/usr/bin/env python3
"""Trains the model server/models/story.safetensors, and writes what tests expect of it. It needs NumPy alone:

    python3 -m venv build/story && build/story/bin/pip install numpy
    build/story/bin/python tests/models/train_story.py              (about 15 minutes on one core)
    build/story/bin/python tests/models/train_story.py --expected   (only what is computed with the trained weights)

The model is a transformer of two layers that has attention and nothing else, as in Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits": x = embedding[word] + positions[i]; then x = x + attention(x) in layer 0 and in
layer 1; then the scores of the next word are x · unembedding[word]. It has no norms, no biases and no MLP. Its
language is story.py. Each step of the training draws new sequences, so nothing is learned by heart.

In the first steps, five of the six heads are led: a second loss asks each to look at what LOOKS names, such as a
pronoun at whom it stands for. The later steps have the loss of the next words alone, so a head keeps doing only what
helps to predict them. Left alone from the first step, the heads of a layer would share all work, and no prediction
would fail if one head were switched off. Heads of this kind are found in models that nobody led: Olsson et al. 2022,
"In-context Learning and Induction Heads", for names that come again, and Clark et al. 2019, "What Does BERT Look At?",
for pronouns.

The seed is fixed, but other processors and versions of NumPy add in another order. So another machine makes other
weights that do the same. The weights are rounded to float16, and everything that is said of the model is measured
afterwards.
"""

import argparse
import json
import pathlib
import random
import struct

import numpy as np
import story

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "server/models/story.safetensors"
EXPECTED = ROOT / "tests/data/golden_story.json"
REQUEST = ROOT / "tests/models/anna.json"
LAYERS, HEADS, COLUMNS = 2, 3, 96  # COLUMNS: d_model
HEAD = COLUMNS // HEADS  # columns of a head
SEED, STEPS, BATCH, RATE = 1, 8000, 64, 4e-3
STORIES = 0.75  # the share of stories; the others are repetitions
LED, WEIGHT = 0.4, 0.3  # the share of the steps in which heads are led, and the weight of the loss that leads them
LOOKS = {(0, 0): "before", (0, 1): "pronouns", (1, 0): "names", (1, 1): "subjects", (1, 2): "articles"}
NAMES = [["word before", "pronouns", "left alone"], ["repeated names", "said of whom", "articles"]]  # for pages
TEXT = "Anna Smith slept . Anna"
IDS = {word: i for i, word in enumerate(story.WORDS)}


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def flat(x):
    return x.reshape(-1, x.shape[-1])


def split(x):
    """(batch, n, COLUMNS) becomes (batch, HEADS, n, HEAD)."""
    return x.reshape(*x.shape[:2], HEADS, HEAD).transpose(0, 2, 1, 3)


def join(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], COLUMNS)


def forward(p, ids, off=()):
    """Returns x (batch, n, COLUMNS) after both layers, and what each layer computed. off: pairs (layer, head)."""
    n = ids.shape[1]
    later = np.triu(np.full((n, n), -np.inf, p["positions"].dtype), 1)
    x = p["embedding"][ids] + p["positions"][:n]
    layers = []
    for layer in range(LAYERS):
        q, k, v = (split(x @ p[f"{layer}.W_{name}"]) for name in "QKV")
        weights = softmax(q @ k.swapaxes(2, 3) * HEAD**-0.5 + later)
        for head in (head for where, head in off if where == layer):
            weights[:, head] = 0
        heads = join(weights @ v)
        layers.append((x, q, k, v, weights, heads))
        x = x + heads @ p[f"{layer}.W_O"]
    return x, layers


def gradients(p, ids, looks, lead):
    """Returns the mean cross-entropy of the next words and its gradients. To these it adds the gradients of the loss
    that leads heads, `lead` times −ln of the weight at the right places. ids: (batch, n + 1). looks: (layer, head) →
    (batch, n, n), 1 at the right places."""
    ids, following = ids[:, :-1], ids[:, 1:, None]
    x, layers = forward(p, ids)
    d_scores = softmax(x @ p["unembedding"].T)
    chosen = np.take_along_axis(d_scores, following, 2)
    loss = -np.log(chosen).mean()
    np.put_along_axis(d_scores, following, chosen - 1, 2)
    d_scores /= ids.size
    g = {"unembedding": flat(d_scores).T @ flat(x)}
    dx = d_scores @ p["unembedding"]
    for layer, (x, q, k, v, weights, heads) in reversed(list(enumerate(layers))):
        g[f"{layer}.W_O"] = flat(heads).T @ flat(dx)
        d_heads = split(dx @ p[f"{layer}.W_O"].T)
        d_weights = d_heads @ v.swapaxes(2, 3)
        for head in (head for where, head in looks if where == layer and lead):
            look = looks[layer, head]
            found = np.maximum((weights[:, head] * look).sum(-1, keepdims=True), 1e-4)
            d_weights[:, head] -= lead * look / found / np.count_nonzero(look.any(-1))
        d_logits = weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True)) * HEAD**-0.5
        parts = {"Q": d_logits @ k, "K": d_logits.swapaxes(2, 3) @ q, "V": weights.swapaxes(2, 3) @ d_heads}
        for name, part in parts.items():
            g[f"{layer}.W_{name}"] = flat(x).T @ flat(join(part))
            dx = dx + join(part) @ p[f"{layer}.W_{name}"].T
    g["positions"] = dx.sum(0)
    g["embedding"] = np.zeros_like(p["embedding"])
    np.add.at(g["embedding"], ids, dx)
    return loss, g


def begin(rng):
    """Draws the first weights. The positions begin as sines and cosines (Vaswani et al. 2017)."""
    words, wide = len(story.WORDS), COLUMNS**-0.5
    angles = np.arange(story.LENGTH)[:, None] * 1000.0 ** (-np.arange(0, COLUMNS, 2) / COLUMNS)
    p = {"embedding": 0.5 * rng.standard_normal((words, COLUMNS)),
         "positions": np.hstack([np.sin(angles), np.cos(angles)]),
         "unembedding": wide * rng.standard_normal((words, COLUMNS))}
    for layer in range(LAYERS):
        for name in "QKVO":
            p[f"{layer}.W_{name}"] = (0.5 if name == "O" else 1) * wide * rng.standard_normal((COLUMNS, COLUMNS))
    return {name: tensor.astype(np.float32) for name, tensor in p.items()}


def draw_batch(draw):
    """Draws ids (BATCH, LENGTH + 1), and for the heads of LOOKS where they should look."""
    batch, looks = [], {head: np.zeros((BATCH, story.LENGTH, story.LENGTH), np.float32) for head in LOOKS}
    for item in range(BATCH):
        words, places = story.story(draw) if draw.random() < STORIES else story.repetition(draw)
        batch.append([IDS[word] for word in words])
        for head, name in LOOKS.items():
            for i, back in places.get(name, {}).items():
                looks[head][item, i, back] = 1
    return np.array(batch), looks


def train(steps):
    """Returns the trained weights. Adam, with a rate that rises for 200 steps and then falls as a cosine."""
    draw = random.Random(SEED)
    p = begin(np.random.default_rng(SEED))
    mean, square = ({name: np.zeros_like(tensor) for name, tensor in p.items()} for _ in range(2))
    for step in range(1, steps + 1):
        ids, looks = draw_batch(draw)
        loss, g = gradients(p, ids, looks, WEIGHT * (step <= LED * steps))
        rate = RATE * min(1, step / 200) * (0.52 + 0.5 * np.cos(np.pi * step / steps))
        for name, tensor in p.items():
            mean[name] += 0.1 * (g[name] - mean[name])
            square[name] += 0.02 * (g[name] ** 2 - square[name])
            tensor -= rate * (mean[name] / (1 - 0.9**step)) / (np.sqrt(square[name] / (1 - 0.98**step)) + 1e-8)
        if step % 500 == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)
    return p


def save(p):
    """Writes the weights in float16, with the words and what the daemon must know."""
    texts = {"heads": str(HEADS), "causal": "true", "names": json.dumps(NAMES), "words": json.dumps(story.WORDS)}
    header, end, bodies = {"__metadata__": texts}, 0, []
    for name, tensor in sorted(p.items()):
        bodies.append(tensor.astype("<f2").tobytes())
        header[name] = {"dtype": "F16", "shape": tensor.shape, "data_offsets": [end, end + len(bodies[-1])]}
        end += len(bodies[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    MODEL.parent.mkdir(exist_ok=True)
    MODEL.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(bodies))
    print(f"{MODEL} has {MODEL.stat().st_size} bytes")


def load():
    """Reads the weights as float64."""
    data = MODEL.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    del header["__metadata__"]
    return {name: np.frombuffer(data[start:][slice(*one["data_offsets"])], "<f2").astype(float).reshape(one["shape"])
            for name, one in header.items()}


def expect(p):
    """Writes the weights of all heads for TEXT, how likely each word is to come next with some heads off, and a request
    that asks what the last word of TEXT looks at in layer 1."""
    def rounded(array):
        return [rounded(part) if part.ndim else round(float(part), 9) for part in array]

    ids = np.array([[IDS[word] for word in TEXT.split()]])
    cases = []
    for off in ((), ((0, 0),), ((1, 0),), ((0, 1), (1, 2))):
        x, _ = forward(p, ids, off)
        cases.append({"off": off, "next": rounded(softmax(x[0, -1] @ p["unembedding"].T))})
    layers = forward(p, ids)[1]
    x = [[round(float(number), 3) for number in row] for row in layers[1][0][0]]
    request = {"X": x[-1:], "context": x, "alignment": "bottom_right", "return": ["weights"], "digits": 2}
    REQUEST.write_text(json.dumps(request) + "\n", encoding="utf-8")
    weights = [rounded(weights[0]) for *_, weights, _ in layers]
    EXPECTED.write_text(json.dumps({"text": TEXT, "weights": weights, "cases": cases}) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--expected", action="store_true", help="do not train")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    if not arguments.expected:
        save(train(arguments.steps))
    expect(load())


if __name__ == "__main__":
    main()
