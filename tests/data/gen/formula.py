"""Computes the answer to a request with reference.py. This file turns matrices of rank 2, 3 and 4, packed heads and
projections into (batch, heads, n, d), and knows which axes an answer has.

It knows the names of the API, but not the daemon: a request is a dict of NumPy arrays and options.
"""

import numpy as np
import scipy.special

import reference

OPTIONS = ("mask", "bias", "causal", "alignment", "window", "scale", "softcap", "alibi", "sink",
           "lengths", "normalization", "top_k")


def answer(path, request):
    if path == "/softmax":
        return {"output": scipy.special.softmax(request["X"], axis=request.get("axis", -1))}
    if path == "/attention":
        return attention(request)
    return projected(request)


def options(request):
    return {name: request[name] for name in OPTIONS if name in request}


# These results of reference.attention() have an axis of heads.
WITH_HEADS = {"output", "weights", "scores", "scaled_scores", "masked_scores", "lse", "entropy", "top_k",
              "present_K", "present_V", "Q", "K", "V"}


def finish(request, stages, drop, with_heads):
    """Returns the members that `return` names, without the axes in `drop` ("batch", "heads"), which the request lacks."""
    mean = request.get("mean_over_heads", False)
    if mean:
        stages["weights"] = stages["weights"].mean(axis=1, keepdims=True)

    def strip(name, value):
        if isinstance(value, dict):
            return {k: strip(name, v) for k, v in value.items()}
        if not isinstance(value, np.ndarray):
            return value
        if name in with_heads and ("heads" in drop or (mean and name == "weights")):
            value = value[:, 0]
        return value[0] if "batch" in drop else value

    return {name: strip(name, stages[name]) for name in request.get("return", ["output", "weights"])}


def attention(request):
    q, k, v = (request.get(name, request.get("X")) for name in "QKV")
    past_k, past_v = request.get("past_K"), request.get("past_V")
    heads = request.get("heads")
    if heads:
        kv_heads = request.get("kv_heads", heads)

        def packed(x, count):
            return x if x is None else reference.split_heads(x if x.ndim == 3 else x[None], count)

        rank = q.ndim + 1
        q, k, v, past_k, past_v = (packed(q, heads), packed(k, kv_heads), packed(v, kv_heads),
                                   packed(past_k, kv_heads), packed(past_v, kv_heads))
    else:
        rank = q.ndim
        q, k, v, past_k, past_v = (x if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape)
                                   for x in (q, k, v, past_k, past_v))
    stages = reference.attention(q, k, v, past_k=past_k, past_v=past_v, **options(request))
    with_heads = set(WITH_HEADS)
    if heads:
        for name in ("output", "present_K", "present_V"):
            stages[name] = reference.join_heads(stages[name])
        with_heads -= {"output", "present_K", "present_V"}
    return finish(request, stages, {2: ("batch", "heads"), 3: ("batch",), 4: ()}[rank], with_heads)


def project(x, weights, bias, layout, heads):
    """Multiplies x (B,n,d_in) by 2-D weights, which are split into heads, or by 3-D weights. Returns (B,H,n,d)."""
    if layout == "out_in":
        weights = np.swapaxes(weights, -1, -2)
    if weights.ndim == 3:
        result = np.einsum("bni,hid->bhnd", x, weights)
        return result if bias is None else result + bias.reshape(weights.shape[0], 1, -1)
    result = x @ weights
    return reference.split_heads(result if bias is None else result + bias.reshape(-1), heads)


def projected(request):
    x = request["X"]
    context = request.get("context", x)
    drop = ("batch",) if x.ndim == 2 else ()
    x, context = (a if a.ndim == 3 else a[None] for a in (x, context))
    layout = request.get("weight_layout", "in_out")
    heads = request.get("heads")

    if isinstance(heads, list):
        every = [stages_of(request, head, x, context, layout, 1, 1) for head in heads]
        stages = {name: np.concatenate([e[name] for e in every], axis=1)
                  for name in ("weights", "scores", "scaled_scores", "masked_scores", "lse", "entropy")
                  if every[0][name] is not None}
        output = np.concatenate([e["output"][:, 0] for e in every], axis=-1)
        stages.update({name: [e[name][0, 0] for e in every] for name in "QKV"})
    else:
        single = heads is None and request["W_Q"].ndim == 2
        count = request["W_Q"].shape[0] if request["W_Q"].ndim == 3 else heads or 1
        kv_count = request["W_K"].shape[0] if request["W_K"].ndim == 3 else request.get("kv_heads", count)
        stages = stages_of(request, request, x, context, layout, count, kv_count)
        output = reference.join_heads(stages["output"])
        drop = drop + ("heads",) if single else drop

    if "W_O" in request:
        w_o = request["W_O"].T if layout == "out_in" else request["W_O"]
        output = output @ w_o + request.get("b_O", 0.0)
    stages["output"] = output
    return finish(request, stages, drop, WITH_HEADS - {"output"})


def stages_of(request, weights, x, context, layout, heads, kv_heads):
    q = project(x, weights["W_Q"], weights.get("b_Q"), layout, heads)
    k = project(context, weights["W_K"], weights.get("b_K"), layout, kv_heads)
    v = project(context, weights["W_V"], weights.get("b_V"), layout, kv_heads)
    past = [None if request.get(name) is None else
            request[name].reshape((1,) * (4 - request[name].ndim) + request[name].shape)
            for name in ("past_K", "past_V")]
    stages = reference.attention(q, k, v, past_k=past[0], past_v=past[1], **options(request))
    return {**stages, "Q": q, "K": k, "V": v}
