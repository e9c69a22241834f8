"""Writes tests/data/golden_seeded.json: requests that draw their matrices or have words, and the answers to them.

A drawn embedding in an answer of /embeddings is compared to the last bit. Normals in float64 may differ in the last bit
(see golden_random.json). Words, vocabularies and ids are those of Python's str. Answers of the attention endpoints are
computed from the same draws by the formulas. The script needs a CPU with AVX2.
"""

import pathlib
import random

import numpy as np

import casefile
import formula
import seeded

FILE = pathlib.Path(__file__).resolve().parents[1] / "golden_seeded.json"
FLOAT32, FLOAT64 = 4e-6, 1e-13
LAST_BIT = 1e-15

cases = []


def numpy_seed(number):
    return {"generator": "numpy", "seed": number}


def torch_seed(number):
    return {"generator": "torch", "seed": number}


# ------------------------------------------------------------------------------------- the draws


def embedded(title, request, tolerance=0):
    """Adds a request to /embeddings and the answer to it."""
    filled = seeded.fill(request)
    expect = seeded.words(request)
    if "embedding" in filled:
        expect["embedding"] = filled["X"]
    case = {"title": title, "source": "Python", "path": "/embeddings", "request": request, "expect": expect}
    if tolerance:
        case["tolerance"] = {"embedding": tolerance}
    cases.append(case)


def every_draw():
    kinds = [{"random": "randint", "high": 7}, {"random": "randint", "low": -5, "high": 2**40},
             {"random": "randint", "low": 3, "high": 4}, {"random": "rand"}, {"random": "uniform"},
             {"random": "uniform", "low": -2.5, "high": 0.5}, {"random": "randn"}, {"random": "standard_normal"},
             {"random": "normal"}, {"random": "normal", "mean": -3, "std": 0.25}]
    for number, kind in enumerate(kinds):
        for dtype in ("float64", "float32"):
            for rows, columns in ((1, 1), (3, 5), (4, 4), (2, 17)):
                tokens = [f"w{i}" for i in range(rows)]
                normal = kind["random"] in ("randn", "standard_normal", "normal")
                request = {"tokens": tokens, "random": numpy_seed(number), "dtype": dtype,
                           "embedding": {**kind, "shape": [rows, columns]}}
                embedded("NumPy", request, LAST_BIT if normal and dtype == "float64" else 0)
                for drawn in ("float32", "float64"):
                    request = {"embedding": {**kind, "shape": [rows, columns], "dtype": drawn}, "tokens": tokens,
                               "dtype": dtype, "random": torch_seed(number)}
                    embedded("PyTorch", request, LAST_BIT if normal and (dtype, drawn) == ("float64",) * 2 else 0)


def sequences():
    """A draw depends on the draws before it, and on the half of a pair of normals that a generator keeps."""
    before = [{"random": "randn", "shape": [3]}, {"random": "randint", "high": 10, "shape": 5},
              {"random": "normal", "mean": 1, "std": 2, "shape": [2, 2, 2]}, {"random": "rand", "shape": [1, 1, 1, 3]},
              {"random": "randn", "shape": [21]}]
    for count in range(1, len(before) + 1):
        for seed in (numpy_seed(2**32 - 1), torch_seed(2**40 + 1), torch_seed(-1)):
            request = {"random": seed, "tokens": ["a", "b", "c"], "dtype": "float64",
                       "embedding": {"random": "randn", "shape": [3, 3], "discard": before[:count]}}
            embedded("after others", request, LAST_BIT)
    request = {"random": torch_seed(5), "text": "to be or not to be", "embedding_dim": 3}
    embedded("torch.nn.Embedding", request)
    embedded("torch.nn.Embedding, float64", {**request, "dtype": "float64"})
    request = {"random": numpy_seed(5), "text": "to be or not to be",
               "embedding": {"random": "randn", "shape": [9, 2], "discard": [{"random": "randn", "shape": 40000}]}}
    embedded("behind several pieces", request)


# --------------------------------------------------------------------------------------- the words


def texts():
    shown = ["one", "One, Two; THREE. four", " \t a \r\n b\u00a0c\u2003d\u3000e\u2028f\u0085g\x1ch\x1fi ", "a,b;c.d",
             ", ; . ...;x", "b a b a c", "ΟΔΥΣΣΕΥΣ ΣΑΣ, ΑΣ. Σ ΣΣ Ά.Σ Α.Σ.Β", "İstanbul ISPARTA ıI", "STRASSE Straße ẞ",
             "ÀÉÎ ÀÉ", "Привет МИР", "日本語 の 文章", "😀 😁 😀", "ǅ Ǆ ǆ ǈ", "ﬁ ﬀ K Å Ω", "zebra Äpfel apfel Zebra äpfel éclair",
             "a\u200bb a\ufeffb", "ß ẞ ss SS", "\\ \"quoted\" / it's", "x" * 3000 + " " + "y" * 70,
             "don't-self-contradict. e.g., i.e.; etc", "Ⅷ ⓐⒶ Ａｂ", "ᏣᎳᎩ ꭰ Ꭰ", "\U00010400\U00010428 \U0001E900"]
    for text in shown:
        embedded("a text", {"text": text})
    letters = "aAbBzZ0'-,.;ΣσςΑαİIiıßẞÄäéÉЖж日\u00a0\u2003\u0301 \t\n\x1d\u0085\U0001F600\U00010400"
    rng = random.Random(20250101)
    for _ in range(60):
        text = "x" + "".join(rng.choice(letters) for _ in range(rng.randint(1, 60)))
        embedded("random letters", {"text": text})
    embedded("tokens", {"tokens": ["The", "the", "", " a b ", "The", "é", "\U0001F600", "\uffff", "a,b"]})
    embedded("a given embedding", {"tokens": ["b", "a", "b"], "embedding": [[1, 2], [3, 4.5], [5, 6]]})
    embedded("more rows than words", {"text": "B a", "embedding": [[1], [2], [3]], "dtype": "float64"})


# ----------------------------------------------------------------------------------- whole requests


def call(title, path, request):
    filled = seeded.fill(request)
    filled = casefile.map_floats(filled, lambda a: a.astype(np.float64))
    filled.pop("embedding", None)
    double = request.get("dtype") == "float64"
    if "mask" in filled:
        filled["mask"] = np.asarray(filled["mask"]).astype(bool)
    expect = formula.answer(path, filled)
    if "text" in request or "tokens" in request:
        expect = {"tokens": seeded.words(request)["tokens"], **expect}
    expect = expect if double else casefile.shorten(expect)
    base = FLOAT64 if double else FLOAT32
    cases.append({"title": title, "source": "formula", "path": path, "request": request, "expect": expect,
                  "tolerance": base, "absolute": base})


def rand(*shape, **more):
    return {"random": "rand", "shape": list(shape), **more}


def randn(*shape, **more):
    return {"random": "randn", "shape": list(shape), **more}


def bits(*shape):
    return {"random": "randint", "high": 2, "shape": list(shape)}


def whole_requests():
    for generator in (numpy_seed, torch_seed):
        for number, dtype in enumerate(({}, {"dtype": "float64"})):
            start = {"random": generator(number), **dtype}
            call("Q, K, V", "/attention", {"V": randn(4, 3), "K": randn(4, 6), "Q": randn(2, 6), **start})
            call("X alone", "/attention", {**start, "X": rand(2, 3, 4, 5), "causal": True})
            call("every place", "/attention",
                 {**start, "sink": randn(2), "bias": rand(3, 6), "Q": randn(2, 3, 4), "past_V": rand(2, 2, 2),
                  "past_K": rand(2, 2, 4), "mask": bits(2, 3, 6), "K": rand(2, 4, 4), "V": randn(2, 4, 2),
                  "alibi": rand(2), "return": ["output", "weights", "masked_scores"]})
            call("a mask of many pieces", "/attention",
                 {**start, "X": randn(3, 2), "mask": {**bits(3, 3), "discard": [randn(7), bits(20000)]}})
            call("projections", "/self-attention",
                 {"X": randn(5, 8), "W_V": rand(8, 6), "W_K": rand(8, 4), "W_Q": rand(8, 4), "b_Q": randn(4),
                  "b_K": randn(4), "b_V": randn(6), "W_O": rand(6, 3), "b_O": rand(3), "heads": 2, **start})
            call("a context", "/multi-head-attention",
                 {**start, "context": randn(2, 3, 5), "X": randn(2, 2, 4), "weight_layout": "out_in",
                  "W_Q": rand(3, 2, 4), "W_K": rand(3, 2, 5), "W_V": rand(3, 4, 5)})
            call("heads of their own", "/multi-head-attention",
                 {"heads": [{"W_Q": rand(4, size), "W_K": rand(4, size), "W_V": rand(4, 2)} for size in (1, 3)],
                  "X": randn(3, 4), **start})
            for shape in ([5], [2, 3], [2, 1, 2, 2]):
                call("softmax", "/softmax", {"X": {"random": "uniform", "low": -9, "high": 9, "shape": shape}, **start})
            call("words", "/attention",
                 {"text": "Ein Rabe, ein Rabe.", **start, "embedding": randn(4, 3), "causal": True})
            call("tokens and weights", "/self-attention",
                 {"W_Q": rand(3, 2), "tokens": ["b", "a", "c"], "embedding": rand(5, 3), **start, "W_K": rand(3, 2),
                  "W_V": rand(3, 2)})
    call("an embedding of PyTorch", "/self-attention",
         {"W_Q": rand(16, 2), "text": "x y x", "random": torch_seed(3), "embedding_dim": 16, "W_K": rand(16, 2),
          "W_V": rand(16, 2)})
    call("a given embedding", "/attention", {"tokens": ["b", "a"], "embedding": np.array([[1.0, 2], [3, 4]])})


def main():
    every_draw()
    sequences()
    texts()
    whole_requests()
    casefile.write(FILE, cases)
    print(f"{len(cases)} cases, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
