"""Writes tests/notebooks/*.request.json and *.expected.json: the five notebooks as HTTP requests.

The script repeats each notebook with its own seed and order of draws, and asserts every number that the notebook
prints. Then it writes what the daemon must answer. If a notebook prints a number, the expected file holds the printed
number. All other numbers are computed by NumPy in float64 from the inputs in the request, and the script stops if
PyTorch does not agree.
"""

import ast
import json
import pathlib

import numpy as np
import scipy.special
import torch

import casefile
import printed
import reference
import seeded

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "notebooks"
HALF_UNIT = 0.5e-8  # half a unit of the last of the eight decimals that NumPy prints

FLOAT32 = 2e-6
FLOAT64 = 1e-13


def case(name, title, request, expect, path="/attention", note=None, **allowance):
    """Writes one case. The allowance has decimals, absolute and tolerance. Each is one number, or a dict with a number for
    members of `expect`."""
    assert allowance, name
    body = {"path": path, "title": title, "notebook": name[:3]}
    if note:
        body["note"] = note
    float64 = request.get("dtype") == "float64"
    exact = float64 or "decimals" in allowance or "absolute" in allowance
    body["expect"] = expect if exact else casefile.shorten(expect)
    # The shortest digits of a float32 mean a different number if they are read as float64.
    assert not (float64 and any(getattr(m, "dtype", None) == np.float32 for m in request.values())), name
    body.update(allowance)
    casefile.write(FOLDER / f"{name}.request.json", request)
    casefile.write(FOLDER / f"{name}.expected.json", body)


def one(x):
    """Converts (n,d) to (1,1,n,d)."""
    return np.asarray(x, dtype=np.float64)[None, None]


def attend(q, k, v, **options):
    """Computes the reference for Q, K, V of rank 2, and checks it against PyTorch if PyTorch has the options."""
    stages = reference.attention(one(q), one(k), one(v), **options)
    stages = {name: (s[0, 0] if isinstance(s, np.ndarray) else s) for name, s in stages.items()}
    if set(options) <= {"causal", "scale"}:
        theirs = torch.nn.functional.scaled_dot_product_attention(
            *(torch.from_numpy(one(x)) for x in (q, k, v)),
            is_causal=bool(options.get("causal")), scale=options.get("scale"))
        assert casefile.error(theirs[0, 0].numpy(), stages["output"]) < 1e-13
    return stages


def pick(stages, names):
    return {name: stages[name] for name in names}


def grown(base, stages, names):
    """Returns the tolerance `base`, or a larger one for the results of the exponential: these carry the rounding error of the
    scores, which grows with the scores."""
    growth = max(1.0, float(np.abs(stages["scaled_scores"]).max()) / 32)
    after = casefile.two_digits_up(base * growth)
    late = [n for n in names if n in ("weights", "output", "lse", "entropy")]
    if after == base or not late:
        return base
    return {n: after if n in late else base for n in names}


def as_written(x):
    """Returns the float64 that the shortest digits of a float32 mean."""
    return np.array([float(str(value)) for value in x.ravel()]).reshape(x.shape)


def drawn(kind, *shape, **more):
    """Returns the request for a matrix that the daemon draws."""
    return {"random": kind, **more, "shape": list(shape)}


def assert_draws(request, matrices):
    """Asserts that a request draws the numbers that the notebook drew."""
    filled = seeded.fill(request)
    for name, matrix in matrices.items():
        assert np.array_equal(filled[name], matrix), name


# ------------------------------------------------------------------ 000: attention from scratch


def notebook_000():
    shown = printed.sections("000")
    words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    np.random.seed(42)
    w_q, w_k, w_v = (np.random.randint(3, size=(3, 3)) for _ in range(3))
    q, k, v = words @ w_q, words @ w_k, words @ w_v
    scores = q @ k.transpose()
    weights = scipy.special.softmax(scores / k.shape[1] ** 0.5, axis=1)
    attention = weights @ v

    for name, value in [("words", words), ("W_Q", w_q), ("W_K", w_k), ("W_V", w_v), ("Q", q), ("K", k),
                        ("V", v), ("scores", scores), ("first_scores", scores[0])]:
        assert np.array_equal(value, printed.array(shown[name])), name
    printed.check(weights, shown["weights"], 9)
    for name, value in [("first_weights", weights[0]), ("first_attention", attention[0]),
                        ("attention", attention), ("summary_attention", attention)]:
        printed.check(value, shown[name], 8)

    seen_weights, seen_output = printed.array(shown["weights"]), printed.array(shown["attention"])
    matrices = {"Q": q, "K": k, "V": v}
    weight_matrices = {"X": words, "W_Q": w_q, "W_K": w_k, "W_V": w_v}
    stages = attend(q, k, v)
    assert casefile.error(stages["weights"], weights) < 1e-14
    shown_decimals = {"output": 8, "weights": 9}

    case("000-attention", "the printed output and weights, from Q, K and V alone", matrices,
         {"output": seen_output, "weights": seen_weights}, decimals=shown_decimals, tolerance=FLOAT32)
    names = ["scores", "weights", "output"]
    case("000-attention-float64", "the printed scores, weights and output, to every printed digit",
         {**matrices, "dtype": "float64", "return": names},
         {"scores": scores, "weights": seen_weights, "output": seen_output}, decimals=shown_decimals)
    names = ["output", "weights", "scores", "scaled_scores", "lse", "entropy", "statistics"]
    case("000-attention-stages", "every stage, to the last digits of float64",
         {**matrices, "dtype": "float64", "return": names}, pick(stages, names), tolerance=FLOAT64)

    names = ["Q", "K", "V", "scores", "scaled_scores", "weights", "output"]
    for suffix, dtype in (("-float64", {"dtype": "float64"}), ("", {})):
        allowance = FLOAT32 if not dtype else {"scaled_scores": FLOAT64}
        title = "the whole notebook: words and weight matrices in, every matrix out"
        case("000-self-attention" + suffix, title + (", in float64" if dtype else ""),
             {**weight_matrices, **dtype, "return": names},
             {"Q": q, "K": k, "V": v, "scores": scores, "scaled_scores": stages["scaled_scores"],
              "weights": seen_weights, "output": seen_output},
             path="/self-attention", decimals=shown_decimals, tolerance=allowance)
    case("000-summary", "the summary cell: from words to the output of attention",
         {**weight_matrices, "return": ["output"]},
         {"output": printed.array(shown["summary_attention"])},
         path="/self-attention", decimals=8, tolerance=FLOAT32)

    numpy_42 = {"generator": "numpy", "seed": 42}
    draws = {name: drawn("randint", 3, 3, high=3) for name in ("W_Q", "W_K", "W_V")}
    assert_draws({"random": numpy_42, **draws}, {"W_Q": w_q, "W_K": w_k, "W_V": w_v})
    names = ["Q", "K", "V", "scores", "weights", "output"]
    for suffix, dtype in (("-float64", {"dtype": "float64"}), ("", {})):
        title = "the whole notebook from its seed: W_Q, W_K and W_V are drawn"
        case("000-seeded" + suffix, title + (", in float64" if dtype else ""),
             {"random": numpy_42, "X": words, **draws, **dtype, "return": names},
             {"Q": q, "K": k, "V": v, "scores": scores, "weights": seen_weights, "output": seen_output},
             path="/self-attention", decimals=shown_decimals, tolerance={} if dtype else FLOAT32)

    names = ["scores", "weights", "output"]
    first = {"scores": printed.array(shown["first_scores"])[None],
             "weights": printed.array(shown["first_weights"])[None],
             "output": printed.array(shown["first_attention"])[None]}
    decimals = {"weights": 8, "output": 8}
    case("000-first-word", "the first word only: one query and all keys",
         {"Q": q[:1], "K": k, "V": v, "dtype": "float64", "return": names}, first, decimals=decimals)
    case("000-first-word-context", "the first word as X, all words as context",
         {"X": words[:1], "context": words, "W_Q": w_q, "W_K": w_k, "W_V": w_v, "dtype": "float64",
          "return": names}, first, path="/self-attention", decimals=decimals)


# ------------------------------------------- 001: a sentence, self-attention and several heads


def notebook_001():
    shown = printed.sections("001")
    sentence = shown["sentence"].strip().strip('"').lower()
    for mark in ",;.":
        sentence = sentence.replace(mark, "")
    listofwords = sentence.split()
    vocab = {s: i for i, s in enumerate(sorted(listofwords))}
    torch.manual_seed(123)
    sentence_int = torch.tensor([vocab[s] for s in listofwords])
    assert sentence_int.tolist() == printed.array(shown["sentence_int"]).astype(int).tolist()

    d, d_q, d_v, h = 64, 32, 48, 4
    embed = torch.nn.Embedding(num_embeddings=22, embedding_dim=d)
    embedded = embed(sentence_int).detach()
    w_q, w_k, w_v = torch.rand(d, d_q), torch.rand(d, d_q), torch.rand(d, d_v)
    mw_q, mw_k, mw_v = torch.rand(h, d_q, d), torch.rand(h, d_q, d), torch.rand(h, d_v, d)
    printed.check(embedded.numpy(), shown["embedded_sentence"], 4)
    printed.check(w_q.numpy(), shown["W_Q"], 4)
    printed.check(embedded[1].numpy(), shown["x_1"], 4)
    x = embedded.numpy()
    x64 = x.astype(np.float64)

    # The notebook calls the scores W and the outputs Y.
    w = embedded @ embedded.T
    y = w @ embedded
    vanilla = attend(x, x, x, normalization="none", scale=1.0)
    assert casefile.error(w.numpy(), vanilla["scores"]) < FLOAT32
    assert casefile.error(y.numpy(), vanilla["output"]) < FLOAT32
    names = ["scores", "weights", "output"]
    case("001-vanilla", "vanilla attention: W = X Xᵀ, Y = W X, no scaling and no softmax",
         {"X": x, "normalization": "none", "scale": 1, "return": names}, pick(vanilla, names),
         tolerance=FLOAT32)

    softened = attend(x, x, x)
    w2 = torch.softmax(w / torch.sqrt(torch.tensor(d).float()), dim=-1)
    y2 = w2 @ embedded
    assert casefile.error(w2.numpy(), softened["weights"]) < 1e-5
    assert casefile.error(y2.numpy(), softened["output"]) < 1e-5
    names = ["scaled_scores", "weights", "output"]
    case("001-vanilla-softmax", "softmax(W / sqrt(d)) X", {"X": x, "return": names},
         pick(softened, names), tolerance=grown(FLOAT32, softened, names))
    softened_32 = softened
    written = as_written(x)
    softened = attend(written, written, written)
    names = ["weights", "output"]
    case("001-vanilla-softmax-float64", "softmax(W / sqrt(d)) X, in float64",
         {"X": written, "dtype": "float64", "return": names}, pick(softened, names),
         tolerance=grown(FLOAT64, softened, names))

    q, k, v = (x64 @ m.numpy().astype(np.float64) for m in (w_q, w_k, w_v))
    single = attend(q, k, v)
    theirs = torch.softmax((embedded @ w_q) @ (embedded @ w_k).T / torch.sqrt(torch.tensor(d_q).float()), -1)
    names = ["weights", "output"]
    allowance = grown(FLOAT32, single, names)
    assert casefile.error(theirs.numpy(), single["weights"]) < allowance["weights"] / 2
    assert casefile.error((theirs @ (embedded @ w_v)).numpy(), single["output"]) < allowance["output"] / 2
    assert single["weights"].shape == (22, 22) and single["output"].shape == (22, 48)
    case("001-self-attention", "one head, d_q = d_k = 32 and d_v = 48",
         {"X": x, "W_Q": w_q.numpy(), "W_K": w_k.numpy(), "W_V": w_v.numpy()}, pick(single, names),
         path="/self-attention", tolerance=allowance)
    single_32 = single
    written = [as_written(m.numpy()) for m in (w_q, w_k, w_v)]
    single = attend(*(as_written(x) @ m for m in written))
    case("001-self-attention-float64", "one head, d_q = d_k = 32 and d_v = 48, in float64",
         {"X": as_written(x), **dict(zip(("W_Q", "W_K", "W_V"), written)), "dtype": "float64"},
         pick(single, names), path="/self-attention", tolerance=grown(FLOAT64, single, names))

    m_q = torch.bmm(mw_q, embedded.T.repeat(h, 1, 1)).permute(0, 2, 1)
    heads = [np.einsum("nd,hkd->hnk", x64, m.numpy().astype(np.float64)) for m in (mw_q, mw_k, mw_v)]
    assert casefile.error(m_q.numpy(), heads[0]) < FLOAT32 and m_q.shape == (4, 22, 32)
    assert casefile.error((mw_q @ embedded[1]).numpy(), heads[0][:, 1]) < FLOAT32
    many = reference.attention(*(part[None] for part in heads))
    theirs = torch.nn.functional.scaled_dot_product_attention(*(torch.from_numpy(p) for p in heads))
    assert casefile.error(theirs.numpy(), many["output"][0]) < 1e-12
    expect = {"Q": heads[0], "weights": many["weights"][0], "output": reference.join_heads(many["output"])[0]}
    assert expect["output"].shape == (22, 4 * 48)
    case("001-multi-head",
         "four heads with weights (h, d_q, d), and their attention, which the notebook leaves as an exercise",
         {"X": x, "W_Q": mw_q.numpy(), "W_K": mw_k.numpy(), "W_V": mw_v.numpy(), "weight_layout": "out_in",
          "return": list(expect)},
         expect, path="/multi-head-attention", tolerance=grown(FLOAT32, many, list(expect)))

    notebook_001_seeded(shown, x, [w_q, w_k, w_v], [mw_q, mw_k, mw_v], vanilla, softened_32, single_32, many)

    x_values = np.arange(-5, 5, 0.1)
    e_x = np.exp(x_values - np.max(x_values))
    y_values = e_x / e_x.sum(axis=0)
    theirs = torch.nn.functional.softmax(torch.from_numpy(x_values), dim=-1).numpy()
    assert casefile.error(theirs, y_values) < 1e-14
    case("001-softmax-curve", "the softmax curve that the notebook plots", {"X": x_values, "dtype": "float64"},
         {"output": y_values}, path="/softmax", tolerance=FLOAT64)
    x_values = x_values.astype(np.float32)
    y_values = scipy.special.softmax(x_values.astype(np.float64))
    case("001-softmax-curve-float32", "the softmax curve of a torch.Tensor, which is float32", {"X": x_values},
         {"output": y_values}, path="/softmax", tolerance=FLOAT32)


def notebook_001_seeded(shown, x, one, four, vanilla, softened, single, many):
    """Writes each step of the notebook as one request that has only the sentence and the seed."""
    tokens = ast.literal_eval(shown["listofwords"])
    start = {"random": {"generator": "torch", "seed": 123}, "text": shown["sentence"].strip().strip('"'),
             "embedding_dim": 64}
    said = {"tokens": tokens}
    shapes = [(64, 32), (64, 32), (64, 48)]
    draws = {name: drawn("rand", *shape) for name, shape in zip(("W_Q", "W_K", "W_V"), shapes)}
    assert_draws({**start, **draws}, {"X": x, **dict(zip(draws, one))})
    case("001-seeded-embeddings", "the sentence as words, vocabulary, ids and embedding", start,
         {**said, "vocabulary": ast.literal_eval(shown["vocab"]),
          "ids": printed.array(shown["sentence_int"]).astype(int), "embedding": x},
         path="/embeddings", decimals={})

    names = ["scores", "weights", "output"]
    case("001-seeded-vanilla", "from the sentence to vanilla attention",
         {**start, "normalization": "none", "scale": 1, "return": names}, {**said, **pick(vanilla, names)},
         tolerance=FLOAT32)
    names = ["weights", "output"]
    case("001-seeded-vanilla-softmax", "from the sentence to softmax(W / sqrt(d)) X", start,
         {**said, **pick(softened, names)}, tolerance=grown(FLOAT32, softened, names))
    case("001-seeded", "from the sentence to the attention of one head", {**start, **draws},
         {**said, **pick(single, names)}, path="/self-attention", tolerance=grown(FLOAT32, single, names))

    shapes = [(4, 32, 64), (4, 32, 64), (4, 48, 64)]
    heads = {name: drawn("rand", *shape) for name, shape in zip(("W_Q", "W_K", "W_V"), shapes)}
    heads["W_Q"] = {**heads["W_Q"], "discard": list(draws.values())}
    assert_draws({**start, **heads}, {"X": x, **dict(zip(heads, four))})
    expect = {"weights": many["weights"][0], "output": reference.join_heads(many["output"])[0]}
    case("001-seeded-multi-head",
         "from the sentence to four heads; the weights of the single head are drawn first and discarded",
         {**start, **heads, "weight_layout": "out_in"}, {**said, **expect}, path="/multi-head-attention",
         tolerance=grown(FLOAT32, many, names))


# ------------------------------------------------------------------- 002: heads of any size


def notebook_002():
    # The notebook has no seed and prints only shapes. These shapes are asserted here.
    np.random.seed(2)
    sentence = np.random.randint(2, size=(5, 7))
    w_q, w_k, w_v = (np.random.randint(2, size=(7, 3)) for _ in range(3))
    q, k, v = sentence @ w_q, sentence @ w_k, sentence @ w_v
    weights = scipy.special.softmax(q @ k.transpose() / 3**0.5, axis=1)
    stages = attend(q, k, v)
    assert q.shape == k.shape == v.shape == (5, 3)
    assert weights.shape == (5, 5) and (weights @ v).shape == (5, 3)
    assert casefile.error(stages["weights"], weights) < 1e-14
    names = ["Q", "K", "V", "weights", "output"]
    expect = {"Q": q, "K": k, "V": v, **pick(stages, ["weights", "output"])}
    matrices = {"X": sentence, "W_Q": w_q, "W_K": w_k, "W_V": w_v}
    case("002-attention-head", "a head of size 3 on a window (5, 7): Q, K, V and output (5, 3), weights (5, 5)",
         {**matrices, "dtype": "float64", "return": names}, expect, path="/self-attention",
         tolerance={"weights": FLOAT64, "output": FLOAT64})
    case("002-attention-head-float32", "the head of size 3 in float32", {**matrices, "return": names}, expect,
         path="/self-attention", tolerance={"weights": FLOAT32 * 4, "output": FLOAT32 * 4})

    sizes = [3, 2, 4]
    heads = [{name: np.random.randint(2, size=(7, size)) for name in ("W_Q", "W_K", "W_V")} for size in sizes]
    parts = [[sentence @ head[name] for name in ("W_Q", "W_K", "W_V")] for head in heads]
    every = [attend(*part) for part in parts]
    output = np.concatenate([head["output"] for head in every], axis=1)
    assert output.shape == (5, sum(sizes))
    weights = np.stack([head["weights"] for head in every])
    case("002-heads-of-any-size", "three heads of sizes 3, 2 and 4, concatenated to (5, 9)",
         {"X": sentence, "heads": heads, "dtype": "float64"}, {"output": output, "weights": weights},
         path="/multi-head-attention", tolerance=FLOAT64)
    case("002-heads-of-any-size-steps", "the projections of each head, with the size of that head",
         {"X": sentence, "heads": heads, "dtype": "float64", "return": ["Q", "K", "V", "output"]},
         {"Q": [p[0] for p in parts], "K": [p[1] for p in parts], "V": [p[2] for p in parts],
          "output": output}, path="/multi-head-attention", tolerance={"output": FLOAT64})
    w_o = np.random.randint(2, size=(sum(sizes), 4))
    case("002-heads-of-any-size-joined", "the same heads and W_O, which projects (5, 9) to (5, 4)",
         {"X": sentence, "heads": heads, "W_O": w_o, "dtype": "float64", "return": ["output"]},
         {"output": output @ w_o}, path="/multi-head-attention", tolerance=FLOAT64)
    notebook_002_seeded(matrices, heads, {"output": stages["output"], "weights": stages["weights"]},
                        {"output": output, "weights": np.stack([head["weights"] for head in every])})


def notebook_002_seeded(matrices, heads, one, many):
    """Writes a request that draws the same numbers from our seed. The weights of the three heads come after those of the single
    head."""
    start = {"random": {"generator": "numpy", "seed": 2}, "X": drawn("randint", 5, 7, high=2)}
    weights = {name: drawn("randint", 7, 3, high=2) for name in ("W_Q", "W_K", "W_V")}
    parts = [{name: drawn("randint", *matrix.shape, high=2) for name, matrix in head.items()} for head in heads]
    parts[0]["W_Q"] = {**parts[0]["W_Q"], "discard": list(weights.values())}
    assert_draws({**start, **weights}, matrices)
    for got, head in zip(seeded.fill({**start, "heads": parts})["heads"], heads):
        assert all(np.array_equal(got[name], head[name]) for name in head)
    case("002-seeded", "a head of size 3, the sentence and the weights drawn from our seed",
         {**start, **weights, "dtype": "float64"}, one, path="/self-attention", tolerance=FLOAT64)
    case("002-seeded-heads-of-any-size", "the three heads, all numbers drawn from our seed",
         {**start, "heads": parts, "dtype": "float64"}, many, path="/multi-head-attention", tolerance=FLOAT64)


# ----------------------------------------------------------------- 003: a masked attention head


def notebook_003():
    shown = printed.sections("003")
    q, k, v = (printed.array(shown[name]) for name in "qkv")
    assert q.shape == k.shape == v.shape == (4, 8)
    stages = attend(q, k, v, causal=True)
    variance = printed.array(shown["variances"])
    assert np.array_equal(variance[:2], printed.array(shown["scaled_variances"])[:2])

    # Each printed number of q, k and v is wrong by up to half a unit of the eighth decimal. These are first-order bounds
    # of the difference that this makes to the results, plus the half unit of the printed result.
    size = {name: np.abs(m).sum(axis=1) for name, m in (("q", q), ("k", k), ("v", v))}
    score_error = HALF_UNIT * float((size["q"][:, None] + size["k"][None, :]).max())
    scaled_error = score_error / np.sqrt(8)
    weight_error = scaled_error / 2  # |dw| <= 2 w (1 - w) max|ds|
    output_error = HALF_UNIT + float(2 * scaled_error * (stages["weights"] @ np.abs(v)).max())
    spread = {"Q": 2 * HALF_UNIT * np.abs(q - q.mean()).mean(), "K": 2 * HALF_UNIT * np.abs(k - k.mean()).mean(),
              "scores": 2 * score_error * np.abs(stages["scores"] - stages["scores"].mean()).mean()}
    absolute = {"scores": HALF_UNIT + score_error, "scaled_scores": HALF_UNIT + scaled_error,
                "masked_scores": HALF_UNIT + scaled_error, "weights": HALF_UNIT + weight_error,
                "output": HALF_UNIT + output_error, "statistics": max(spread.values())}
    absolute = {name: casefile.two_digits_up(bound) for name, bound in absolute.items()}

    scaled = printed.array(shown["scores"]) / np.sqrt(8)  # the notebook prints only the masked ones
    names = ["scores", "scaled_scores", "masked_scores", "weights", "output", "statistics"]
    expect = {
        "scores": printed.array(shown["scores"]),
        "scaled_scores": np.round(scaled, 8),
        "masked_scores": printed.array(shown["masked"]),
        "weights": printed.array(shown["weights"]),
        "output": printed.array(shown["output"]),
        "statistics": {"variance": {"Q": variance[0], "K": variance[1], "scores": variance[2],
                                    "scaled_scores": printed.array(shown["scaled_variances"])[2]}},
    }
    for name in names[:-1]:
        finite = np.isfinite(expect[name])
        assert np.array_equal(finite, np.isfinite(stages[name]))
        assert np.abs(stages[name][finite] - expect[name][finite]).max() <= absolute[name], name
    for name, value in stages["statistics"]["variance"].items():
        assert abs(value - expect["statistics"]["variance"][name]) <= absolute["statistics"], name

    note = ("expect holds the numbers that the notebook prints. The notebook computed them from all digits of q, k and "
            "v, but it prints only eight decimals of these. So absolute is the change of each result that half a unit of "
            "the eighth decimal in every input can cause")
    matrices = {"Q": q, "K": k, "V": v}
    case("003-masked-head", "a causal head: every number that the notebook prints",
         {**matrices, "causal": True, "dtype": "float64", "return": names}, expect, note=note, absolute=absolute)
    case("003-masked-head-float32", "a causal head in float32: every number that the notebook prints",
         {**matrices, "causal": True, "return": names}, expect, note=note, absolute=absolute,
         tolerance=grown(FLOAT32, stages, names))
    case("003-masked-head-computed", "the causal head, compared with float64 results of the printed inputs",
         {**matrices, "causal": True, "dtype": "float64", "return": names}, pick(stages, names),
         tolerance=FLOAT64)

    seeds = {name: drawn("randn", 4, 8) for name in "QKV"}
    names = ["scores", "scaled_scores", "masked_scores", "weights", "output", "statistics"]
    request = {"random": {"generator": "numpy", "seed": 3}, **seeds, "causal": True, "dtype": "float64"}
    filled = seeded.fill(request)
    stages_of_3 = attend(*(filled[name] for name in "QKV"), causal=True)
    case("003-seeded", "the notebook's steps, with inputs drawn from our seed", {**request, "return": names},
         pick(stages_of_3, names), tolerance=FLOAT64)

    keep = np.tril(np.ones((4, 4), dtype=int))
    infinities = np.where(keep == 1, 0.0, -np.inf)
    names = ["masked_scores", "weights", "output"]
    for suffix, title, option in [
        ("mask", "the notebook's np.tril(np.ones((L, L))) as a mask of 1 and 0", {"mask": keep}),
        ("bias", "the notebook's mask of 0 and -inf as a bias, -inf as null", {"bias": infinities}),
        ("bias-infinity", "the notebook's mask of 0 and -inf as a bias, -inf as Python writes it",
         {"bias": casefile.Infinity(infinities)})]:
        case("003-masked-head-" + suffix, title, {**matrices, **option, "dtype": "float64", "return": names},
             pick(stages, names), tolerance=FLOAT64)


# --------------------------------------------------------------------- 004: step by step


def notebook_004():
    # The notebook has no seed and prints no numbers. The seed is ours.
    np.random.seed(4)
    embeddings = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
    w_q, w_k, w_v = (np.random.randn(4, 3) for _ in range(3))

    def steps(w_q, w_k, w_v):
        """Computes the notebook's self_attention() step by step."""
        q, k, v = np.dot(embeddings, w_q), np.dot(embeddings, w_k), np.dot(embeddings, w_v)
        scores = np.dot(q, k.T)
        scaled_scores = scores / np.sqrt(3)
        weights = np.exp(scaled_scores) / np.sum(np.exp(scaled_scores), axis=-1, keepdims=True)
        stages = attend(q, k, v)
        assert casefile.error(stages["weights"], weights) < 1e-14
        return {"Q": q, "K": k, "V": v, "scores": scores, "scaled_scores": scaled_scores,
                "weights": weights, "output": np.dot(weights, v)}

    expect = steps(w_q, w_k, w_v)
    case("004-step-by-step", "embeddings (3, 4), d_k = 3: every step",
         {"X": embeddings, "W_Q": w_q, "W_K": w_k, "W_V": w_v, "dtype": "float64", "return": list(expect)},
         expect, path="/self-attention", tolerance=FLOAT64)
    request = {"random": {"generator": "numpy", "seed": 4}, "X": embeddings,
               **{name: drawn("randn", 4, 3) for name in ("W_Q", "W_K", "W_V")}, "dtype": "float64"}
    assert_draws(request, {"W_Q": w_q, "W_K": w_k, "W_V": w_v})
    case("004-seeded", "every step, with weights drawn from our seed", {**request, "return": list(expect)}, expect,
         path="/self-attention", tolerance=FLOAT64)
    w_q, w_k, w_v = (w.astype(np.float32) for w in (w_q, w_k, w_v))
    expect = steps(*(w.astype(np.float64) for w in (w_q, w_k, w_v)))
    case("004-step-by-step-float32", "embeddings (3, 4), d_k = 3: every step, in float32",
         {"X": embeddings, "W_Q": w_q, "W_K": w_k, "W_V": w_v, "return": list(expect)}, expect,
         path="/self-attention", tolerance=grown(FLOAT32, expect, list(expect)))


def list_cases():
    """Returns the part of README.md below its last heading."""
    rows = ["| case | path | what it shows |", "|---|---|---|"]
    for file in sorted(FOLDER.glob("*.expected.json")):
        body = json.loads(file.read_text(encoding="utf-8"))
        name = file.name.removesuffix(".expected.json")
        rows.append(f"| `{name}` | `{body['path']}` | {body['title']} |")
    readme = FOLDER / "README.md"
    head = readme.read_text(encoding="utf-8").split("## The cases")[0]
    readme.write_text(head + "## The cases\n\n" + "\n".join(rows) + "\n", encoding="utf-8")


def main():
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for notebook in (notebook_000, notebook_001, notebook_002, notebook_003, notebook_004):
        notebook()
    list_cases()
    files = sorted(FOLDER.glob("*.json"))
    print(f"{len(files) // 2} cases, {sum(f.stat().st_size for f in files)} bytes")


if __name__ == "__main__":
    main()
