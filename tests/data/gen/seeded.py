"""Replaces the draws and the words in a request by matrices. NumPy and PyTorch draw the numbers, and Python's own str
makes the words.

This file knows what the daemon promises about draws and words, and nothing else about requests.
"""

import numpy as np
import torch

TYPES = {"float32": torch.float32, "float64": torch.float64}


def seed(random):
    (np.random.seed if random["generator"] == "numpy" else torch.manual_seed)(random["seed"])


def draw(spec, generator):
    """Draws one matrix after those that are discarded. Its dtype is the one in which it is drawn."""
    for before in spec.get("discard", []):
        draw(before, generator)
    kind, shape = spec["random"], spec["shape"]
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    low, high = spec.get("low", 0), spec.get("high", 1)
    mean, std = spec.get("mean", 0.0), spec.get("std", 1.0)
    if generator == "numpy":
        return {"randint": lambda: np.random.randint(low, high, size=shape),
                "rand": lambda: np.random.rand(*shape),
                "uniform": lambda: np.random.uniform(low, high, size=shape),
                "randn": lambda: np.random.randn(*shape),
                "normal": lambda: np.random.normal(mean, std, size=shape),
                "standard_normal": lambda: np.random.standard_normal(shape)}[kind]()
    dtype = TYPES[spec.get("dtype", "float32")]
    return {"randint": lambda: torch.randint(low, high, shape),
            "rand": lambda: torch.rand(shape, dtype=dtype),
            "uniform": lambda: torch.empty(shape, dtype=dtype).uniform_(low, high),
            "randn": lambda: torch.randn(shape, dtype=dtype),
            "normal": lambda: torch.normal(mean, std, shape, dtype=dtype),
            "standard_normal": lambda: torch.randn(shape, dtype=dtype)}[kind]().numpy()


def words(request):
    """Returns tokens, vocabulary and ids, made as notebook 001 makes them."""
    tokens = request.get("tokens")
    if tokens is None:
        tokens = request["text"].lower().replace(",", "").replace(";", "").replace(".", "").split()
    vocabulary = {word: i for i, word in enumerate(sorted(tokens))}
    return {"tokens": tokens, "vocabulary": vocabulary, "ids": np.array([vocabulary[word] for word in tokens])}


def fill(request):
    """Returns the request with arrays in place of draws, in the dtype of the request. If it has words, `embedding`
    has all rows and `X` has the rows of the words."""
    random = request.get("random")
    dtype = np.dtype(request.get("dtype", "float32"))
    spoken = words(request) if "text" in request or "tokens" in request else None
    if random is not None:
        seed(random)

    def value(name, member):
        if name == "embedding_dim":
            assert random["generator"] == "torch"
            return torch.nn.Embedding(len(spoken["tokens"]), member).weight.detach().numpy().astype(dtype)
        if name == "heads" and isinstance(member, list):
            return [{key: value(key, part) for key, part in head.items()} for head in member]
        if name != "random" and isinstance(member, dict):
            return draw(member, random["generator"]).astype(dtype)
        return np.array(member, dtype=dtype) if name == "embedding" else member

    filled = {name: value(name, member) for name, member in request.items()}
    if "embedding_dim" in filled:
        filled["embedding"] = filled.pop("embedding_dim")
    if "embedding" in filled:
        filled["X"] = filled["embedding"][spoken["ids"]]
    return {name: member for name, member in filled.items() if name not in ("random", "text", "tokens")}
