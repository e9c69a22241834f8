"""What a kernel may have done in place of the right thing."""

import math

import numpy

from attentiond.asking import exact, tensor
from attentiond.cases import ROTARY


def suspicions(check, case, request, results, matrices, options):
    """Yields what a kernel may have done: (a sentence, a function that returns the request and the results that its results fit)."""
    path, tensors, asked = request
    n, m, d, heads, kv = (case.size(key) for key in ("n", "m", "d", "heads", "kv_heads"))
    dtype = check.settings["dtype"]

    def with_(says, more=None, drop=(), of_tensors=None, results=None):
        given = {key: value for key, value in {**asked, **(more or {})}.items() if key not in drop}
        all_tensors = {key: value for key, value in {**tensors, **(of_tensors or {})}.items() if key not in drop}
        return says, lambda: ((path, all_tensors, given), results or {})

    def mask_of(sees):
        mask = matrices.get("mask", numpy.ones((n, m), bool))
        return {"mask": mask & sees}
    if case["update"]:
        if "state" in matrices:
            yield with_("the state before the first position is missing", drop=("past_state",))
            if d == case.size("d_v"):
                yield with_("the state is transposed", of_tensors={"past_state": tensor(matrices["state"].swapaxes(-1, -2).copy(), dtype)})
        if "decay" in matrices:
            yield with_("the gate is missing", {"update": "delta" if case["update"] == "gated_delta" else "linear"}, drop=("decay",))
        if "beta" in matrices:
            yield with_("beta is 1", of_tensors={"beta": tensor(numpy.ones_like(matrices["beta"]), dtype)})
        yield with_("the scale is 1", {"scale": 1.0})
        return
    rows, keys = numpy.arange(n)[:, None], numpy.arange(m)
    scale = options.get("scale", d ** -0.5)
    if "window" in options:
        for side, name in enumerate(("left", "right")):
            for more, says in ((1, "wider"), (-1, "narrower")):
                window = list(options["window"])
                window[side] += more
                if options["window"][side] >= 0 and window[side] >= 0 and not (side == 1 and "causal" in options):
                    yield with_(f"the window is one {says} on the {name}", {"window": window})
        yield with_("the window is missing", drop=("window",))
    if "causal" in options:
        other = True if options["causal"] == "bottom_right" else "bottom_right"
        if n != m or "lengths" in options:
            yield with_("causal has the other alignment", {"causal": other})
        yield with_("the causal mask is missing", drop=("causal",))
        yield with_("each query also sees the key after its own", {"window": [options.get("window", (-1, 0))[0], 1],
                                                                   "alignment": "bottom_right" if other is True else "top_left"}, drop=("causal",))
        if "sequences" not in options:
            at = rows + (m - n if other is True else 0)
            yield with_("no query sees its own key", of_tensors=mask_of(keys < at))
    elif "sequences" not in options:
        yield with_("there is a causal mask", {"causal": True})
    if "mask" in matrices:
        yield with_("the mask is inverted", of_tensors={"mask": ~matrices["mask"]})
        yield with_("the mask is missing", drop=("mask",))
    if "lengths" in options:
        yield with_("lengths are ignored", drop=("lengths",))
    if "sequences" in options:
        yield with_("the sequences are not separated", drop=("sequence_offsets",))
    for says, other in (("the scale is 1", 1.0), ("the scale is 1/d", 1 / d), ("the scale is applied twice", scale * scale),
                        ("the scale is 1/sqrt(d) in place of the given one", d ** -0.5)):
        if other != scale:
            yield with_(says, {"scale": other})
    if "softcap" in options:
        yield with_("the softcap is missing", drop=("softcap",))
        if "bias" in matrices:
            yield "the softcap comes after the bias", lambda: (capped_after(case, request, matrices, options), {})
    if "bias" in matrices:
        yield with_("the bias is missing", drop=("bias",))
        yield with_("the bias is multiplied by the scale", of_tensors={"bias": tensor(matrices["bias"] * numpy.float32(scale), dtype)})
    if "alibi" in matrices:
        yield with_("ALiBi has the other sign", of_tensors={"alibi": tensor(-matrices["alibi"], dtype)})
        yield with_("ALiBi is missing", drop=("alibi",))
    if kv < heads:
        axis = 1
        tiled = numpy.arange(heads) % kv
        yield with_("the key head of head h is h mod kv_heads", of_tensors={
            name: tensor(numpy.take(matrices[name], tiled, axis), dtype) for name in "KV"})
    if kv > 1:
        yield with_("the values are those of another head", of_tensors={"V": tensor(numpy.roll(matrices["V"], 1, 1), dtype)})
        yield with_("the values are those of another head", of_tensors={"V": tensor(numpy.roll(matrices["V"], -1, 1), dtype)})
    if "sink" in matrices:
        yield with_("the sink is missing", drop=("sink",)) if "lse" not in results or len(results) == 1 \
            else with_(lambda wrong: "lse lacks the sink" if set(wrong) == {"lse"} else "the sink is missing", drop=("sink",))
    if "lse" in results:
        x, kind = results["lse"]
        yield with_("lse is in base 2", results={"lse": ((x * math.log(2)).astype(numpy.float32), "float32")})
    if "output" in results and "sequences" not in options:
        yield "the output is not divided by the sum", lambda: undivided(check, request, results)
    if "rotary" in options:
        other = not options["rotary"]["interleaved"]
        yield with_(f"rotary embedding turns {'neighbouring' if other else 'half-split'} pairs of columns", {
            "rotary": {"base": ROTARY, "interleaved": other}})
        yield with_("rotary embedding is missing", drop=("rotary",))
    if "sequences" not in options:
        for tile in sorted({m % size or size for size in (16, 32, 64, 128)}):
            if tile < m:
                yield with_(f"the last {tile} keys are lost", of_tensors=mask_of(keys[None, :].repeat(n, 0) < m - tile))


def capped_after(case, request, matrices, options):
    """The request of a kernel that caps the sum of scores and bias."""
    path, tensors, asked = request
    q, k = matrices["Q"].astype(float), matrices["K"].astype(float)
    k = numpy.repeat(k, q.shape[1] // k.shape[1], 1)
    scores = options.get("scale", q.shape[-1] ** -0.5) * (q @ k.swapaxes(-1, -2))
    cap = options["softcap"]
    bias = cap * numpy.tanh((scores + matrices["bias"]) / cap) - scores
    wide = {name: tensor(x, "float64") for name, x in matrices.items() if name in tensors and name != "bias"}
    return path, {**wide, "bias": bias}, {key: value for key, value in asked.items() if key != "softcap"}


def undivided(check, request, results):
    """The request, and the output as it would be if a kernel had divided it by the sum."""
    found = exact(check.client, request, ["masked_scores", "lse"])
    largest = found["masked_scores"].max(-1)
    x, _ = results["output"]
    with numpy.errstate(over="ignore", invalid="ignore"):
        divided = x / numpy.exp(found["lse"] - largest)[..., None]
    return request, {"output": (divided.astype(numpy.float32), "float32")}
