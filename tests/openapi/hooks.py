"""hooks.py gives Schemathesis what openapi.yaml cannot say: the exact types of bodies, and sizes that suit each other.

The types in openapi.yaml are plain. Here the exact types of exact.yaml replace them, so that requests are made from the
exact types and answers are checked against them.

Schemathesis makes requests that fit their schema. No schema can demand that all rows of a matrix have the same length, or
that K has as many columns as Q. So fit() changes a valid body before it is sent. Matrices get sizes that suit each other,
numbers get magnitudes with which the call stays within float32, and draws get a generator, sizes and parameters of the same
kind. Nothing else changes: which keys there are, how many axes a matrix has, and the options.

fit() does not change a body that fits already and whose numbers are at most 1000. Bodies that are meant to be refused are
left alone. A schema cannot say either which files there are under /assets, so a valid request gets the name of a file.
"""

import copy
import itertools
import math
import os
import pathlib

import schemathesis
import yaml
from schemathesis.core import NOT_SET
from schemathesis.core.parameters import ParameterLocation

EXACT = yaml.safe_load((pathlib.Path(__file__).parent / "exact.yaml").read_text(encoding="utf-8"))
MAX_RANK = 8
LARGEST = 1000.0  # sums of some products of such numbers are finite in float32
MAX_HEADS = 6
MAX_DRAWN = 5  # the largest size of an axis before the matrix is made to fit
SECONDS = 10.0  # enough time for any call of these sizes


@schemathesis.hook
def before_load_schema(context, raw_schema):
    raw_schema["security"].remove({})  # the tested daemon needs a key, so "no key" is no alternative
    raw_schema["components"]["schemas"].update(copy.deepcopy(EXACT))


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.operation.path == "/assets/{name}" and is_meant_to_be_valid(case, ParameterLocation.PATH):
        case.path_parameters["name"] = os.environ["ATTENTIOND_ASSET"]
    if case.body is NOT_SET:
        return
    if not is_meant_to_be_valid(case, ParameterLocation.BODY):
        spoil_nulls(case.body)
        return
    fitted = fit(case.operation.path, case.body)
    if fitted != case.body:
        case.body = fitted


def is_meant_to_be_valid(case, location):
    component = case.meta.components.get(location) if case.meta else None
    return component is not None and not component.mode.is_negative


def spoil_nulls(body):
    """null for a key means that it is absent, which may be right. A body that is meant to be refused gets an empty object in
    place of null, which is right for no key."""
    heads = body.get("heads") if isinstance(body, dict) else None
    for part in [body, *(heads if isinstance(heads, list) else [])]:
        if isinstance(part, dict):
            part.update({key: {} for key, value in part.items() if value is None})


def fit(path, body):
    body = copy.deepcopy(body)
    if "timeout" in body:
        body["timeout"] = max(body["timeout"], SECONDS)
    fit_draws(body)
    if "text" in body or "tokens" in body:
        add_x_of_words(body)
    fits = {"/softmax": fit_softmax, "/attention": fit_attention, "/self-attention": fit_projected,
            "/multi-head-attention": fit_projected}
    if path in fits:
        fits[path](body)
    if "text" in body or "tokens" in body:
        remove_x_of_words(body)
    return body


# ------------------------------------------------------------------------------------------------ arrays


def is_drawn(value):
    return isinstance(value, dict) and "shape" in value


def leaves(value):
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def sizes(value):
    """Returns the size of each axis, taken from the first element of each array."""
    if is_drawn(value):
        return value["shape"]
    found = []
    while isinstance(value, list):
        found.append(len(value))
        value = value[0]
    return found


def tame(number):
    if isinstance(number, bool) or number is None or abs(number) <= LARGEST:
        return number
    return math.fmod(number, 8)


def build(shape, numbers):
    if not shape:
        return next(numbers)
    return [build(shape[1:], numbers) for _ in range(shape[0])]


def reshape(value, shape):
    """Returns an array of this shape with the numbers of `value`, which are repeated if there are too few."""
    if is_drawn(value):
        return {**value, "shape": list(shape)}
    return build(shape, itertools.cycle([tame(leaf) for leaf in leaves(value)]))


def axis(value, back):
    """Returns the size of the `back`-th axis from the end, or 1 if the array has fewer axes."""
    shape = sizes(value)
    return shape[-back] if back <= len(shape) else 1


def divisor(number, most):
    """Returns the largest divisor of `number` that is at most `most`. `most` may be a float such as 2.0."""
    return next(d for d in range(min(number, int(most)), 0, -1) if number % d == 0)


# ------------------------------------------------------------------------------------- draws and words


def fit_draw(draw, generator):
    shape = draw["shape"] if isinstance(draw["shape"], list) else [draw["shape"]]
    draw["shape"] = [1 + (int(size) - 1) % MAX_DRAWN for size in shape]
    for name in ("low", "high", "mean", "std"):
        if name in draw:
            draw[name] = tame(draw[name])
    low, high = draw.get("low", 0), draw.get("high", 1)
    if draw["random"] == "randint" and low >= high:
        draw["low"] = high - 1
    if draw["random"] == "uniform" and low > high:
        draw["low"] = high
    if generator == "numpy":
        draw.pop("dtype", None)
    for before in draw.get("discard", []):
        fit_draw(before, generator)


def fit_draws(body):
    """Makes the drawn matrices small, and adds a generator if there are any."""
    heads = body["heads"] if isinstance(body.get("heads"), list) else []
    draws = [value for part in [body, *heads] for value in part.values() if is_drawn(value)]
    if draws:
        body.setdefault("random", {"generator": "numpy", "seed": 1})
    for draw in draws:
        fit_draw(draw, body["random"]["generator"])


def words(body):
    if "tokens" in body:
        return body["tokens"]
    return body["text"].lower().replace(",", "").replace(";", "").replace(".", "").split()


def add_x_of_words(body):
    """Gives the embedding a row for each word, and adds an X of the size that the words will have."""
    count = len(words(body))
    if "embedding_dim" in body:
        body["embedding_dim"] = 1 + (int(body["embedding_dim"]) - 1) % MAX_DRAWN
        body["X"] = [[0] * body["embedding_dim"]] * count
    elif "embedding" in body:
        rows, columns = sizes(body["embedding"])
        body["embedding"] = reshape(body["embedding"], [max(rows, count), columns])
        body["X"] = [[0] * columns] * count


def remove_x_of_words(body):
    """Removes this X, and gives the embedding as many columns as X was given."""
    x = body.pop("X", None)
    if "embedding_dim" in body:
        body["embedding_dim"] = axis(x, 1)
    elif "embedding" in body:
        body["embedding"] = reshape(body["embedding"], [axis(body["embedding"], 2), axis(x, 1)])


# ----------------------------------------------------------------------------------------------- options


def fit_options(body, batch, heads, queries, keys):
    full = [batch, heads, queries, keys]
    for name in ("scale", "softcap"):
        if name in body:
            body[name] = tame(body[name])
    for name in ("mask", "bias"):
        if name in body:
            shape = sizes(body[name])
            wanted = [1 if size == 1 else full[back] for back, size in zip(range(-len(shape), 0), shape)]
            body[name] = reshape(body[name], wanted)
    if "key_padding" in body:
        flat = batch == 1 and len(sizes(body["key_padding"])) == 1
        body["key_padding"] = reshape(body["key_padding"], [keys] if flat else [batch, keys])
    for name in ("mask", "key_padding"):
        if isinstance(body.get(name), list):  # elements must be all booleans or all numbers
            first = leaves(body[name])[0]
            body[name] = build(sizes(body[name]), map(type(first), leaves(body[name])))
    for name in ("alibi", "sink"):
        listed = isinstance(body.get(name), list) or is_drawn(body.get(name))
        if listed or (name in body and name == "sink" and heads > 1):
            body[name] = reshape(body[name], [heads])
        elif name in body:
            body[name] = tame(body[name])
    if "lengths" in body:
        one = not isinstance(body["lengths"], list) and batch == 1
        lengths = itertools.cycle([min(length, keys) for length in leaves(body["lengths"])])
        body["lengths"] = build([] if one else [batch], lengths)


# ---------------------------------------------------------------------------------------------- requests


def fit_softmax(body):
    shape = sizes(body["X"])[:MAX_RANK]
    body["X"] = reshape(body["X"], shape)
    if "axis" in body:
        body["axis"] = max(-len(shape), min(body["axis"], len(shape) - 1))


def fit_attention(body):
    """Makes the sizes fit. Q decides the rank, the batch and the heads, K the keys and their heads. The rank of K, V and
    their past rows is that of K or, if that is lower, of Q."""
    alone = "X" in body
    q, k, v = (body["X"],) * 3 if alone else (body["Q"], body["K"], body["V"])
    packed = "heads" in body
    rank = min(len(sizes(q)), 3 if packed else 4)
    kv_rank = min(len(sizes(k)), rank)
    batch = axis(q, 3) if packed and rank == 3 else axis(q, 4) if rank == 4 else 1
    if packed:
        heads = body["heads"] = min(int(body["heads"]), MAX_HEADS)
        kv_heads = heads if alone else divisor(heads, body.get("kv_heads", heads))
        if "kv_heads" in body:
            body["kv_heads"] = kv_heads
        d, d_v = max(1, axis(q, 1) // heads), max(1, axis(v, 1) // kv_heads)
        lead = lambda count, axes: [batch][: axes - 2]
        columns = lambda count, each: count * each
    else:
        heads = axis(q, 3) if rank >= 3 else 1
        kv_heads = heads if alone else divisor(heads, axis(k, 3) if kv_rank >= 3 else 1)
        d, d_v = axis(q, 1), axis(v, 1)
        lead = lambda count, axes: [batch, count][4 - axes :]
        columns = lambda count, each: each
    if alone:
        d_v = d
        body["X"] = reshape(q, [*lead(heads, rank), axis(q, 2), columns(heads, d)])
    else:
        body["Q"] = reshape(q, [*lead(heads, rank), axis(q, 2), columns(heads, d)])
        body["K"] = reshape(k, [*lead(kv_heads, kv_rank), axis(k, 2), columns(kv_heads, d)])
        body["V"] = reshape(v, [*lead(kv_heads, kv_rank), axis(k, 2), columns(kv_heads, d_v)])
    past = axis(body["past_K"], 2) if "past_K" in body else 0
    for name, each in (("past_K", d), ("past_V", d_v)):
        if name in body:
            body[name] = reshape(body[name], [*lead(kv_heads, kv_rank), past, columns(kv_heads, each)])
    fit_options(body, batch, heads, axis(q, 2), axis(k, 2) + past)


def fit_weight(body, name, stack, rows, columns, out_in):
    if name in body:
        body[name] = reshape(body[name], [*stack, *((columns, rows) if out_in else (rows, columns))])


def fit_bias(body, name, stack, columns):
    if name in body:
        flat = len(sizes(body[name])) == 1 or not stack
        body[name] = reshape(body[name], [math.prod(stack) * columns] if flat else [*stack, columns])


def fit_triple(body, stacks, d_model, d_context, d, d_v, out_in):
    """Makes W_Q, W_K, W_V and their biases fit. `stacks` has the axes that come before the two of each weight."""
    for letter, rows, columns, stack in zip("QKV", (d_model, d_context, d_context), (d, d, d_v), stacks):
        fit_weight(body, f"W_{letter}", stack, rows, columns, out_in)
        fit_bias(body, f"b_{letter}", stack, columns)


def fit_projected(body):
    x, context = body["X"], body.get("context", body["X"])
    out_in = body.get("weight_layout") == "out_in"
    last = 2 if out_in else 1  # the axis of the columns of a weight, counted from the end
    batched = len(sizes(x)) == 3
    batch = [axis(x, 3)] if batched else []
    d_model, d_context = axis(x, 1), axis(context, 1)
    body["X"] = reshape(x, [*batch, axis(x, 2), d_model])
    if "context" in body:
        body["context"] = reshape(context, [*batch, axis(context, 2), d_context])

    if isinstance(body.get("heads"), list):
        heads = kv_heads = len(body["heads"])
        head_axis = True
        width = 0
        for head in body["heads"]:
            d, d_v = axis(head["W_Q"], last), axis(head["W_V"], last)
            fit_triple(head, ([], [], []), d_model, d_context, d, d_v, out_in)
            width += d_v
    else:
        stacked = len(sizes(body["W_Q"])) == 3
        head_axis = stacked or "heads" in body
        heads = axis(body["W_Q"], 3) if stacked else min(int(body.get("heads", 1)), MAX_HEADS)
        most = axis(body["W_K"], 3) if stacked else body.get("kv_heads", heads)
        kv_heads = divisor(heads, most)
        if "heads" in body:
            body["heads"] = heads
        if "kv_heads" in body:
            body["kv_heads"] = kv_heads
        d, d_v = axis(body["W_Q"], last), axis(body["W_V"], last)
        if stacked:
            fit_triple(body, ([heads], [kv_heads], [kv_heads]), d_model, d_context, d, d_v, out_in)
        else:
            d, d_v = max(1, d // heads), max(1, d_v // kv_heads)
            for letter, rows, columns in zip("QKV", (d_model, d_context, d_context),
                                             (heads * d, kv_heads * d, kv_heads * d_v)):
                fit_weight(body, f"W_{letter}", [], rows, columns, out_in)
                fit_bias(body, f"b_{letter}", [], columns)
        width = heads * d_v

    if "W_O" in body:
        d_out = axis(body["W_O"], last)
        fit_weight(body, "W_O", [], width, d_out, out_in)
        fit_bias(body, "b_O", [], d_out)
    past = axis(body["past_K"], 2) if "past_K" in body else 0
    for name, each in (("past_K", d), ("past_V", d_v)):
        if name in body:
            body[name] = reshape(body[name], [*batch, *([kv_heads] if head_axis else []), past, each])
    fit_options(body, math.prod(batch), heads, axis(x, 2), axis(context, 2) + past)
