"""Writes tests/data/golden_attention.json: requests and the answers that must come back.

The answers of cases with source "PyTorch" come from scaled_dot_product_attention, nn.MultiheadAttention or softmax in
float64. The script stops if the formulas of reference.py do not agree with one of them. Cases with source "formula" use
options that PyTorch does not have, and only the formulas give their answers. Inputs have four decimals, so float32 and
float64 requests are short and read back exactly.
"""

import pathlib

import numpy as np
import torch

import casefile
import formula

FILE = pathlib.Path(__file__).resolve().parents[1] / "golden_attention.json"
FLOAT32, FLOAT64 = 2e-6, 1e-13

rng = np.random.default_rng(20170612)
cases = []


def draw(*shape, scale=1.0):
    return np.round(scale * rng.standard_normal(shape), 4)


def cast(value, dtype):
    """Converts float arrays to the dtype in which the daemon holds them."""
    return casefile.map_floats(value, lambda a: a.astype(dtype))


def tolerance(base, path, request):
    """Returns the tolerance `base`, or a larger one if the exponential of large scores is taken."""
    if path == "/softmax":
        return base
    stages = formula.answer(path, {**request, "return": ["masked_scores"]})["masked_scores"]
    largest = np.abs(stages[np.isfinite(stages)]).max(initial=0.0)
    return casefile.two_digits_up(base * max(1.0, float(largest) / 32))


def absolute(base, expect):
    """Returns absolute tolerances. A row of these results may be small because large terms cancel, for example the only
    score of a first causal query. The rounding errors are then as large as in the rest of the matrix."""
    sums = ("Q", "K", "V", "scores", "scaled_scores", "masked_scores", "output")
    sizes = {name: np.abs(np.where(np.isfinite(expect[name]), expect[name], 0.0)).max()
             for name in sums if name in expect}
    return {name: casefile.two_digits_up(base * size) for name, size in sizes.items() if size > 0}


def check_near(got, expect, limit, allowed, title):
    assert set(got) == set(expect), (title, set(got), set(expect))
    for name in got:
        theirs, ours = (np.asarray(x[name], dtype=np.float64) for x in (got, expect))
        scale = np.abs(ours).max(axis=-1, keepdims=True)
        off = np.abs(theirs - ours) - limit * scale - allowed.get(name, 0.0) * (scale > 0)
        assert theirs.shape == ours.shape and off.max() <= 0, (title, name, off.max())


def add(title, request, theirs=None, path="/attention", dtypes=("float64", "float32")):
    """Adds a case. theirs(request, torch_dtype) is PyTorch's answer: in float64 for the file, and in float32 to check
    that the tolerance can be met."""
    for dtype in dtypes:
        held = cast(cast(request, dtype), "float64")
        expect = formula.answer(path, held)
        base = FLOAT64 if dtype == "float64" else FLOAT32
        limit, allowed = tolerance(base, path, held), absolute(base, expect)
        source = "formula"
        if theirs is not None:
            source = "PyTorch"
            answer = theirs(held, torch.float64)
            check_near(answer, expect, FLOAT64 / 2, absolute(FLOAT64 / 2, expect), title)
            check_near(theirs(held, torch.float32), expect, tolerance(FLOAT32, path, held) / 2,
                       absolute(FLOAT32 / 2, expect), title)
            expect = {name: answer[name] for name in expect}
        body = cast(request, dtype)
        if dtype == "float64":
            body = {**body, "dtype": "float64"}
        else:
            expect = casefile.shorten(expect)
        cases.append({"title": f"{title}, {dtype}", "source": source, "path": path, "request": body,
                      "expect": expect, "tolerance": limit, **({"absolute": allowed} if allowed else {})})


def tensor(x, dtype):
    return None if x is None else torch.from_numpy(np.ascontiguousarray(x)).to(dtype)


# ------------------------------------------------------------- scaled_dot_product_attention


def sdpa(request, dtype):
    """Answers by scaled_dot_product_attention. The weights are its output with the identity for V."""
    q, k, v = (tensor(request.get(name, request.get("X")), dtype) for name in "QKV")
    heads = request.get("heads")
    if heads:
        kv_heads = request.get("kv_heads", heads)
        q, k, v = (x.unflatten(-1, (h, -1)).transpose(-3, -2)
                   for x, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
    n, m = q.shape[-2], k.shape[-2]
    attn_mask = None
    if request.get("bias") is not None:
        attn_mask = tensor(request["bias"], dtype)
    elif request.get("mask") is not None:
        attn_mask = torch.from_numpy(np.asarray(request["mask"]).astype(bool))
    elif request.get("causal") == "bottom_right":
        attn_mask = torch.ones(n, m, dtype=torch.bool).tril(diagonal=m - n)

    def run(value):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, value, attn_mask=attn_mask, is_causal=request.get("causal") is True,
            scale=request.get("scale"), enable_gqa=q.ndim > 2 and q.shape[-3] != k.shape[-3])

    output, weights = run(v), run(torch.eye(m, dtype=dtype).expand(*k.shape[:-2], m, m).contiguous())
    if heads:
        output = output.transpose(-3, -2).flatten(-2)
    answer = {"output": output.numpy(), "weights": weights.numpy()}
    return {name: answer[name] for name in request.get("return", answer)}


def qkv(*lead, n=5, m=None, d=4, d_v=None, kv=None, scale=1.0):
    m, d_v, kv = m or n, d_v or d, kv or lead
    return {"Q": draw(*lead, n, d, scale=scale), "K": draw(*kv, m, d, scale=scale), "V": draw(*kv, m, d_v)}


def long(*lead, n=130, m=260, **more):
    """Makes a request with more rows than a tile holds, but with a short answer. The mean of V is 1, because the mean of
    so many values around 0 would be mostly rounding error."""
    request = qkv(*lead, n=n, m=m, d=4, d_v=2, **more)
    return {**request, "V": np.round(request["V"] + 1, 4), "return": ["output"]}


def some_mask(*shape):
    """Draws a mask that has at least one key for every query."""
    mask = rng.random(shape) < 0.5
    mask[..., 0] = True
    return mask


def pytorch_attention():
    add("self-attention of one head", qkv(), sdpa)
    add("X alone is Q, K and V", {"X": draw(5, 4)}, sdpa)
    add("three heads", qkv(3), sdpa)
    add("batch of two, two heads", qkv(2, 2, n=4), sdpa)
    add("cross-attention, d_v unlike d", qkv(n=3, m=7, d=6, d_v=2), sdpa)
    add("cross-attention with heads, more queries than keys", qkv(2, 2, n=6, m=3, d=3, d_v=5), sdpa)
    add("one query, one key", qkv(n=1, m=1, d=3), sdpa)
    add("d = 1, d_v = 1", qkv(n=4, d=1), sdpa)
    add("head size 33, 17 keys", qkv(n=3, m=17, d=33, d_v=9), sdpa)
    add("causal", {**qkv(2, n=6), "causal": True}, sdpa)
    add("causal is top-left with fewer queries than keys", {**qkv(n=3, m=6), "causal": True}, sdpa)
    add("causal is top-left with more queries than keys", {**qkv(n=6, m=3), "causal": True}, sdpa)
    add("causal bottom_right, the last queries of a sequence", {**qkv(2, n=3, m=6), "causal": "bottom_right"},
        sdpa)
    add("causal bottom_right, first queries see nothing", {**qkv(n=6, m=4), "causal": "bottom_right"}, sdpa)
    add("boolean mask", {**qkv(n=4, m=6), "mask": some_mask(4, 6)}, sdpa)
    add("mask of 1 and 0", {**qkv(n=4, m=6), "mask": some_mask(4, 6).astype(int)}, sdpa)
    add("mask with a matrix for each head", {**qkv(2, 3, n=3), "mask": some_mask(3, 3, 3)}, sdpa)
    add("mask with a row for each batch item", {**qkv(2, 2, n=3, m=5), "mask": some_mask(2, 1, 1, 5)}, sdpa)
    mask = some_mask(4, 5)
    mask[1] = mask[3] = False
    add("queries that may attend to nothing get zeros", {**qkv(n=4, m=5), "mask": mask}, sdpa)
    mask = some_mask(2, 2, 3, 4)
    mask[0, 1, 2] = mask[1, 0] = False
    add("rows and a whole head without keys", {**qkv(2, 2, n=3, m=4), "mask": mask}, sdpa)
    add("bias", {**qkv(n=4, m=6), "bias": draw(4, 6)}, sdpa)
    bias = draw(4, 6)
    bias[0, 1] = bias[2, :5] = bias[3] = -np.inf
    add("bias with -inf, a row of nothing else", {**qkv(n=4, m=6), "bias": bias}, sdpa)
    add("bias with one row for each head", {**qkv(2, 2, n=3, m=4), "bias": draw(1, 2, 1, 4)}, sdpa)
    add("scale", {**qkv(2, n=4), "scale": 0.3}, sdpa)
    add("scale 0 gives the mean", {**qkv(n=3, m=4), "scale": 0}, sdpa)
    add("negative scale", {**qkv(n=4), "scale": -0.75}, sdpa)
    add("large scores, nearly one key", {**qkv(n=4, m=6, scale=6.0), "scale": 1}, sdpa)
    add("four query heads share two key heads", qkv(4, n=3, kv=(2,)), sdpa)
    add("four query heads share one key head, batch of two, causal",
        {**qkv(2, 4, n=4, kv=(2, 1), d=3), "causal": True}, sdpa)
    add("packed heads", {**qkv(n=4, d=6), "heads": 3}, sdpa)
    request = {"Q": draw(2, 3, 8), "K": draw(2, 5, 4), "V": draw(2, 5, 6), "heads": 4, "kv_heads": 2}
    add("packed heads in groups, batch of two", request, sdpa)
    float32 = ("float32",)
    add("130 queries, 260 keys", long(), sdpa)
    add("200 keys, causal", {**long(n=200, m=200), "causal": True}, sdpa, dtypes=float32)
    add("260 keys, bottom_right", {**long(), "causal": "bottom_right"}, sdpa, dtypes=float32)
    keys = np.ones((1, 260), dtype=int)
    keys[0, 40:215] = 0
    add("a mask that leaves whole tiles out", {**long(), "mask": keys}, sdpa, dtypes=float32)


# --------------------------------------------------------------------- nn.MultiheadAttention


def mha(request, dtype):
    x, heads = tensor(request["X"], dtype), request["heads"]
    context = x if request.get("context") is None else tensor(request["context"], dtype)
    width, inner = x.shape[-1], context.shape[-1]
    names = ("W_Q", "W_K", "W_V")
    layer = torch.nn.MultiheadAttention(
        width, heads, bias="b_Q" in request, kdim=inner, vdim=inner, batch_first=True,
        add_zero_attn="sink" in request, dtype=dtype)
    with torch.no_grad():
        weights = [tensor(request[name], dtype) for name in names]
        if inner == width:
            layer.in_proj_weight.copy_(torch.cat(weights))
        else:
            for name, w in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), weights):
                getattr(layer, name).copy_(w)
        layer.out_proj.weight.copy_(tensor(request["W_O"], dtype))
        if "b_Q" in request:
            layer.in_proj_bias.copy_(torch.cat([tensor(request[b], dtype) for b in ("b_Q", "b_K", "b_V")]))
            layer.out_proj.bias.copy_(tensor(request["b_O"], dtype))
        # A boolean mask of PyTorch's layer says who may not attend.
        attn_mask = padding = None
        n, m = x.shape[-2], context.shape[-2]
        if request.get("causal"):
            attn_mask = ~torch.ones(n, m, dtype=torch.bool).tril()
        elif request.get("mask") is not None:
            attn_mask = ~torch.from_numpy(request["mask"])
        elif request.get("bias") is not None:
            attn_mask = tensor(request["bias"], dtype)
        if "lengths" in request:
            padding = torch.arange(m)[None, :] >= torch.tensor(request["lengths"])[:, None]
        output, weights = layer(x, context, context, key_padding_mask=padding, attn_mask=attn_mask,
                                need_weights=True, average_attn_weights=bool(request.get("mean_over_heads")))
        bare, none = layer(x, context, context, key_padding_mask=padding, attn_mask=attn_mask, need_weights=False)
    assert none is None and torch.allclose(bare, output, rtol=1e-4, atol=1e-5)
    weights = weights.numpy()
    return {"output": output.numpy(), "weights": weights[..., :m]}  # without the key of add_zero_attn


def layer(width=8, inner=None, bias=True):
    """Draws the parameters of an nn.MultiheadAttention, as (out, in) like torch.nn.Linear."""
    inner = inner or width
    shapes = {"W_Q": (width, width), "W_K": (width, inner), "W_V": (width, inner), "W_O": (width, width)}
    parameters = {name: draw(*shape, scale=shape[-1] ** -0.5) for name, shape in shapes.items()}
    if bias:
        parameters.update({name: draw(width, scale=0.3) for name in ("b_Q", "b_K", "b_V", "b_O")})
    return {**parameters, "weight_layout": "out_in"}


def pytorch_multihead():
    def add_layer(title, request):
        add("nn.MultiheadAttention, " + title, request, mha, path="/multi-head-attention")

    add_layer("weights of each head", {"X": draw(5, 8), **layer(), "heads": 4})
    add_layer("mean of the weights", {"X": draw(5, 8), **layer(), "heads": 2, "mean_over_heads": True})
    add_layer("no biases", {"X": draw(4, 6), **layer(6, bias=False), "heads": 3})
    add_layer("batch of two", {"X": draw(2, 4, 8), **layer(), "heads": 2})
    add_layer("batch of two, mean of the weights",
              {"X": draw(2, 3, 6), **layer(6), "heads": 2, "mean_over_heads": True})
    add_layer("context of the same width", {"X": draw(3, 6), "context": draw(5, 6), **layer(6), "heads": 2})
    add_layer("context with kdim and vdim",
              {"X": draw(3, 6), "context": draw(5, 4), **layer(6, inner=4), "heads": 2})
    add_layer("batch of two with kdim and vdim",
              {"X": draw(2, 3, 4), "context": draw(2, 5, 6), **layer(4, inner=6), "heads": 2})
    add_layer("causal mask", {"X": draw(5, 6), **layer(6), "heads": 3, "causal": True})
    add_layer("attn_mask turned round", {"X": draw(4, 6), **layer(6), "heads": 2, "mask": some_mask(4, 4)})
    add_layer("float attn_mask", {"X": draw(4, 6), **layer(6), "heads": 2, "bias": draw(4, 4)})
    add_layer("key_padding_mask as lengths", {"X": draw(3, 4, 6), **layer(6), "heads": 2, "lengths": [4, 1, 3]})
    add_layer("add_zero_attn as a sink of 0",
              {"X": draw(4, 6), **layer(6), "heads": 2, "sink": np.array([0.0, 0.0])})


def pytorch_softmax():
    def softmax(request, dtype):
        x = tensor(request["X"], dtype)
        return {"output": torch.softmax(x, dim=request.get("axis", -1)).numpy()}

    for title, request in [
        ("vector", {"X": draw(7)}),
        ("rows", {"X": draw(3, 5)}),
        ("columns", {"X": draw(3, 5), "axis": 0}),
        ("middle axis of rank 3", {"X": draw(2, 4, 3), "axis": 1}),
        ("axis -3 of rank 5", {"X": draw(2, 1, 3, 2, 2), "axis": -3}),
        ("numbers far apart", {"X": np.array([[1000.0, 999.0, -1000.0], [-5000.0, -5000.0, -5001.0]])}),
    ]:
        add("softmax, " + title, request, softmax, path="/softmax")


# -------------------------------------------------------------------- what PyTorch does not have


def only_formulas():
    stages = ["scores", "scaled_scores", "masked_scores", "weights", "output"]
    both = ("float64", "float32")
    add("every stage, causal", {**qkv(2, n=3), "causal": True, "return": stages + ["lse", "entropy"]})
    add("statistics", {**qkv(2, n=4, m=3), "return": ["statistics"]})
    add("entropy of rows with one key and none",
        {**qkv(n=3, m=3), "mask": np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1]]), "return": ["entropy", "lse"]})
    add("top_k", {**qkv(2, n=3, m=6), "top_k": 3, "return": ["top_k", "output"]})
    add("top_k of more keys than there are", {**qkv(n=2, m=3), "top_k": 9, "return": ["top_k"]}, dtypes=("float64",))
    add("top_k of equal weights goes to the first keys",
        {**qkv(n=3, m=6), "scale": 0, "mask": np.array([[1, 0, 1, 1, 1, 1], [1] * 6, [0, 1, 0, 0, 0, 1]]), "top_k": 4,
         "return": ["top_k"]}, dtypes=("float64",))
    add("mean over heads", {**qkv(2, 3, n=3), "mean_over_heads": True})
    add("softcap", {**qkv(2, n=4, scale=2.0), "softcap": 1.5, "return": stages}, dtypes=both)
    add("softcap comes before bias and mask",
        {**qkv(n=4, scale=2.0), "softcap": 2, "bias": draw(4, 4), "causal": True, "return": stages})
    add("bias and mask together", {**qkv(n=4, m=5), "bias": draw(4, 5), "mask": some_mask(4, 5), "return": stages})
    add("mask and causal together", {**qkv(2, n=4), "mask": some_mask(2, 4, 4), "causal": True})

    for window in ([1, 1], [0, 0], [-1, 1], [2, -1]):
        add(f"window {window}", {**qkv(n=5), "window": window}, dtypes=("float64",))
    add("window with causal", {**qkv(2, n=6), "window": [2, 3], "causal": True})
    add("window that leaves the last queries nothing", {**qkv(n=6, m=3), "window": [1, 0]})
    add("window with bottom_right", {**qkv(n=3, m=6), "window": [1, -1], "causal": "bottom_right"})

    add("ALiBi, four heads", {**qkv(4, n=3), "alibi": True, "causal": True, "return": ["masked_scores", "weights"]})
    add("ALiBi in both directions, three heads", {**qkv(3, n=3), "alibi": True})
    add("ALiBi with slopes and bottom_right",
        {**qkv(2, n=2, m=5), "alibi": np.array([0.5, 0.125]), "causal": "bottom_right"})
    add("ALiBi of one head", {**qkv(n=4), "alibi": np.array([0.25])}, dtypes=("float64",))

    add("sink", {**qkv(2, n=3), "sink": np.array([0.5, -1.25]), "return": ["weights", "output", "lse"]})
    add("sink far above the scores",
        {**qkv(2, n=2), "sink": np.array([800.0, 30.0]), "return": ["weights", "output", "lse"]})
    add("sink and queries without keys",
        {**qkv(2, n=3), "sink": np.array([0.5, 2.0]), "mask": np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]])})

    add("lengths", {**qkv(3, 2, n=2, m=4, d=3), "lengths": [4, 1, 3]})
    add("lengths, one item without keys", {**qkv(2, 1, n=2, m=3), "lengths": [0, 2]})
    add("lengths with causal", {**qkv(2, 1, n=4, d=3), "lengths": [2, 4], "causal": True})

    past = {"past_K": draw(3, 4), "past_V": draw(3, 2)}
    request = {**qkv(n=2, d_v=2), **past, "causal": True}
    add("past keys", {**request, "return": ["output", "weights", "present_K", "present_V"]})
    add("past keys without causal", {**qkv(n=2, d_v=2), **past})
    add("past keys with a window", {**request, "window": [2, 0]})
    add("past keys with ALiBi", {**request, "alibi": np.array([0.5])}, dtypes=("float64",))
    add("past keys in groups, batch of two, lengths",
        {**qkv(2, 4, n=2, kv=(2, 2)), "past_K": draw(2, 2, 3, 4), "past_V": draw(2, 2, 3, 4), "causal": True,
         "lengths": [5, 4], "return": ["output", "weights", "present_K"]})
    add("past keys of packed heads",
        {**qkv(n=2, d=4), "heads": 2, "past_K": draw(3, 4), "past_V": draw(3, 4), "causal": True,
         "return": ["output", "weights", "present_V"]}, dtypes=("float64",))

    add("no normalization", {**qkv(2, n=3), "normalization": "none", "return": stages})
    add("no normalization, causal and bias",
        {**qkv(n=4), "normalization": "none", "causal": True, "bias": draw(4, 4)})
    add("no normalization, X alone, scale 1", {"X": draw(4, 3), "normalization": "none", "scale": 1})

    request = {**qkv(n=3, m=4), "mask": np.array([[1, 1, 0, 1]] * 3)}
    for name in ("K", "V"):
        request[name] = request[name].copy()
        request[name][2] = [3e38, -3e38, 3e38, 3e38]
    add("a forbidden key and value near the end of float32", request)

    for title, more in [
        ("a narrow window", {"window": [3, 1]}),
        ("a causal window and ALiBi", {"window": [100, -1], "causal": True, "alibi": np.array([0.03])}),
        ("sink and softcap", {"sink": np.array([1.5]), "softcap": 1, "causal": True}),
    ]:
        add(f"200 keys, {title}", {**long(n=200, m=200), **more, "return": ["output", "lse"]}, dtypes=("float32",))
    add("200 keys, lengths, two heads share one key head",
        {**long(2, 2, n=40, m=200, kv=(2, 1)), "lengths": [200, 70]}, dtypes=("float32",))

    request = {**qkv(2, 4, n=3, m=4, kv=(2, 2), d=3, d_v=2), "causal": "bottom_right", "window": [2, 0], "softcap": 3,
               "alibi": True, "sink": draw(4), "lengths": [4, 3], "bias": draw(4, 1, 4), "mask": some_mask(2, 1, 3, 4),
               "scale": 0.9, "return": stages + ["lse"]}
    add("all options at once", request)


def formulas_projected():
    def add_heads(title, request, path="/multi-head-attention", **more):
        add(title, request, path=path, **more)

    def weights(*lead, d_in=5, d=3, d_v=4, d_context=None):
        return {"W_Q": draw(*lead, d_in, d, scale=0.5), "W_K": draw(*lead, d_context or d_in, d, scale=0.5),
                "W_V": draw(*lead, d_context or d_in, d_v, scale=0.5)}

    every = ["Q", "K", "V", "scores", "weights", "output"]
    add_heads("one head with biases", {"X": draw(4, 5), **weights(), "b_Q": draw(3), "b_K": draw(3), "b_V": draw(4),
                                       "return": every}, path="/self-attention")
    add_heads("one head, batch of two, W_O", {"X": draw(2, 3, 5), **weights(), "W_O": draw(4, 2), "b_O": draw(2),
                                              "return": every}, path="/self-attention")
    add_heads("weights for each head, d_v unlike d_k",
              {"X": draw(4, 5), **weights(3), "b_Q": draw(3, 3), "b_K": draw(3, 3), "b_V": draw(3, 4),
               "W_O": draw(12, 3), "causal": True, "return": every})
    add_heads("2-D weights split by heads and kv_heads",
              {"X": draw(4, 5), "W_Q": draw(5, 12, scale=0.5), "W_K": draw(5, 6, scale=0.5),
               "W_V": draw(5, 4, scale=0.5), "heads": 4, "kv_heads": 2, "return": every})
    add_heads("3-D weights in groups, out_in",
              {"X": draw(3, 5), "W_Q": draw(4, 3, 5), "W_K": draw(2, 3, 5), "W_V": draw(2, 2, 5),
               "weight_layout": "out_in", "alibi": True, "causal": True})
    add_heads("heads of sizes of their own, with biases and a context",
              {"X": draw(3, 5), "context": draw(4, 6),
               "heads": [{**weights(d=d, d_v=d_v, d_context=6), "b_Q": draw(d), "b_K": draw(d), "b_V": draw(d_v)}
                         for d, d_v in ((2, 3), (4, 1), (1, 2))],
               "W_O": draw(6, 4), "b_O": draw(4), "return": ["output", "weights", "lse"]})
    add_heads("past keys, projected already",
              {"X": draw(2, 5), "W_Q": draw(5, 6, scale=0.5), "W_K": draw(5, 6, scale=0.5),
               "W_V": draw(5, 4, scale=0.5), "heads": 2, "past_K": draw(2, 3, 3), "past_V": draw(2, 3, 2), "causal": True,
               "return": ["output", "weights", "present_K", "present_V"]})
    add_heads("batch of two, heads, lengths, mean of the weights",
              {"X": draw(2, 3, 4), "W_Q": draw(4, 4), "W_K": draw(4, 4), "W_V": draw(4, 6), "heads": 2,
               "lengths": [3, 2], "mean_over_heads": True, "return": ["weights", "output", "statistics"]})


def formulas_at_the_end():
    """The last query of each batch item stands at its last valid key. A length may be less than the queries."""
    wanted = ["masked_scores", "weights", "output", "lse"]
    add("causal bottom_right with lengths",
        {**qkv(3, 2, n=3, m=5), "causal": "bottom_right", "lengths": [5, 4, 1], "return": wanted})
    add("window at the end of the lengths, without causal",
        {**qkv(2, 1, n=3, m=6), "alignment": "bottom_right", "window": [1, 1], "lengths": [6, 2], "return": wanted})
    add("ALiBi at the end of the lengths, with past keys",
        {**qkv(2, 2, n=2, m=3), "past_K": draw(2, 2, 2, 4), "past_V": draw(2, 2, 2, 4), "alignment": "bottom_right",
         "alibi": True, "lengths": [4, 5], "return": wanted})


def main():
    for part in (pytorch_attention, pytorch_multihead, pytorch_softmax, only_formulas, formulas_projected,
                 formulas_at_the_end):
        part()
    casefile.write(FILE, cases)
    sources = [c["source"] for c in cases]
    print(f"{sources.count('PyTorch')} cases of PyTorch, {sources.count('formula')} of formulas, "
          f"{FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
