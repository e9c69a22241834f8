"""What a kernel may have done in place of the right thing: each suspicion is a sentence and a call of model.py. A suspicion explains wrong
results if they lie much closer to those of its call than to the right ones."""

import math

import numpy

from attentiond import model
from attentiond.model import LN2

TILES = 16, 32, 64, 128
# A suspicion explains a result if the difference is at most this share of its size, for each type in which kernels multiply.
NEAR = {"float64": 1e-9, "float32": 1e-4, "tf32": 5e-3, "float16": 1e-2, "bfloat16": 5e-2, "float8": 0.3, "float8_e5m2": 0.4}


def suspicions(case, matrices, options):
    """Yields pairs of a sentence and a function that returns the results of such a kernel."""
    if case["update"]:
        call = model.linear_call_of(case, matrices, options)
        for says, changes in of_linear(call):
            yield says, lambda changes=changes: model.linear(call.but(**changes))
        return
    call = model.call_of(case, matrices, options)
    for says, changes in of_softmax(call):
        yield says, lambda changes=changes: model.attention(call.but(**changes))
    right = model.attention(call)
    for says, change in of_lse(right, call):
        yield says, change


def right_of(case, matrices, options):
    """Returns the results that the kernel should have."""
    if case["update"]:
        return model.linear(model.linear_call_of(case, matrices, options))
    return model.attention(model.call_of(case, matrices, options))


def of_lse(right, call):
    """Yields what may be wrong with lse alone."""
    lse = right["lse"]
    yield "lse is in base 2", lambda: {"lse": lse / LN2}
    yield "lse has the other sign", lambda: {"lse": -lse}
    yield "lse is the sum, without the logarithm", lambda: {"lse": numpy.exp(lse)}
    yield "lse lacks the maximum", lambda: model.attention(call.but(lse="no maximum"))
    if call.sink is not None:
        yield "lse lacks the sink", lambda: model.attention(call.but(lse="no sink"))


def other_order(c):
    """Returns the value of `causal` with the other alignment."""
    return True if c.causal == "bottom_right" else "bottom_right"


def of_softmax(c):
    """Yields pairs of a sentence and changes of the call."""
    for part in (of_window, of_order, of_masks, of_scores, of_bias, of_heads, of_sink, of_tiles, of_gradients):
        yield from part(c)


def of_window(c):
    """Yields what may be wrong with the window."""
    n, m = c.q.shape[2], c.k.shape[2]
    for side, name in enumerate(("left", "right")):
        if c.window[side] < 0 or (side == 1 and c.causal):
            continue
        for more, says in ((1, "wider"), (-1, "narrower")):
            window = list(c.window)
            window[side] += more
            if window[side] >= 0:
                yield f"the window is one {says} on the {name}", {"window": window}
        yield f"the window is open on the {name}", {"window": [-1 if i == side else x for i, x in enumerate(c.window)]}
        yield f"the window is half as wide on the {name}", {"window": [x // 2 if i == side else x for i, x in enumerate(c.window)]}
    if c.window != (-1, -1):
        yield "the window is missing", {"window": (-1, -1)}
        yield "the window is mirrored", {"window": c.window[::-1]}
        if n != m or c.lengths:
            other = other_order(c)
            yield "the window has the other alignment", {"seen": lambda c, i, j, sees: model.visible(c.but(seen=None, window=(-1, -1))) & model.visible(
                c.but(seen=None, causal=other, nearer=-10 ** 6))}
        for tile in TILES[:3]:
            if m > tile:
                yield "the window begins at a whole tile", {"seen": lambda c, i, j, sees, tile=tile: model.visible(
                    c.but(seen=None, window=(-1, c.window[1]))) & (j >= numpy.maximum(i - c.window[0], 0) // tile * tile)}
            for rows in TILES:
                if n > rows or m > tile:
                    yield "the first tile of the window is lost", {"seen": lambda c, i, j, sees, rows=rows, tile=tile: sees & (
                        j >= -(-numpy.maximum(i // rows * rows - c.window[0], 0) // tile) * tile)}


def of_order(c):
    """Yields what may be wrong with the order of queries and keys."""
    n, m = c.q.shape[2], c.k.shape[2]
    if c.causal:
        other = other_order(c)
        if n != m or c.lengths:
            yield "causal has the other alignment", {"causal": other}
            if c.lengths and c.causal == "bottom_right":
                yield "causal counts from the last row of K, not from the last valid key", {
                    "seen": lambda c, i, j, sees: (j <= numpy.arange(n)[:, None] + m - n) & model.visible(c.but(seen=None, causal=False))}
        yield "the causal mask is missing", {"causal": False}
        yield "each query also sees the key after its own", {"nearer": -1}
        yield "no query sees its own key", {"nearer": 1}
        for tile in TILES:
            if n > tile or m > tile:
                yield f"the causal mask is one of whole tiles of {tile}", {"seen": lambda c, i, j, sees, tile=tile: (
                    j // tile <= i // tile) & model.visible(c.but(seen=None, causal=False))}
    else:
        yield "there is a causal mask", {"causal": True}


def of_masks(c):
    """Yields what may be wrong with what hides keys."""
    batch, n, m = len(c.q), c.q.shape[2], c.k.shape[2]
    if c.mask is not None:
        yield "the mask is inverted", {"mask": ~c.mask}
        yield "the mask is missing", {"mask": None}
        if n == m:
            yield "the mask is transposed", {"mask": c.mask.T}
    if c.lengths:
        yield "lengths are ignored", {"lengths": None}
        yield "the length of the first batch item holds for all", {"lengths": [c.lengths[0]] * batch}
        yield "the lengths are those of the item before", {"lengths": c.lengths[-1:] + c.lengths[:-1]}
        yield "one key more than lengths says counts", {"lengths": [min(x + 1, m) for x in c.lengths]}
        yield "the last key that lengths gives is lost", {"lengths": [max(x - 1, 0) for x in c.lengths]}
        yield "the longest length holds for all", {"lengths": [max(c.lengths)] * batch}
    if c.starts:
        yield "the sequences are not separated", {"starts": None}
        for by, says in ((1, "first row of each sequence belongs to the one before"), (-1, "last row of each sequence belongs to the next")):
            yield f"the {says}", {"starts": [0, *(min(max(x + by, 0), n) for x in c.starts[1:-1]), n]}
        longest = max(b - a for a, b in zip(c.starts, c.starts[1:]))

        def beyond(c, i, j, sees):
            begin = numpy.array(c.starts)[numpy.searchsorted(c.starts, numpy.arange(n), "right") - 1][:, None]
            keys = numpy.arange(m)
            own = (keys >= begin) & (keys < begin + longest)
            return own & (keys <= numpy.arange(n)[:, None]) if c.causal else own
        yield "a sequence sees the keys of the next ones, as many as the longest has", {"seen": beyond}
        first = numpy.searchsorted(c.starts, numpy.arange(n), "right") - 1
        yield "a sequence also sees the keys of the one before", {"seen": lambda c, i, j, sees: sees | (first[:, None] == first + 1)}
    for fill in (-1e4, -1e5, -1e9, -1e30):
        yield "a hidden key has a large finite score in place of minus infinity", {"fill": fill}


def of_scores(c):
    """Yields what may be wrong with the scale and the scores."""
    heads, d, d_v = c.q.shape[1], c.q.shape[3], c.v.shape[3]
    root = d ** -0.5
    for says, scale in (("1", 1.0), ("1/d", 1 / d), ("1/sqrt(d), not the given one", root), ("1/sqrt(d_v)", d_v ** -0.5), ("sqrt(d)", d ** 0.5),
                        ("1/sqrt(heads * d)", (heads * d) ** -0.5), ("1/sqrt of the next power of 2", 2.0 ** (-math.ceil(math.log2(d)) / 2))):
        if abs(scale - c.scale) > 1e-9:
            yield f"the scale is {says}", {"scale": scale}
    yield "the scale is applied twice", {"scale": c.scale ** 2}
    yield "the scale is its inverse", {"scale": 1 / c.scale}
    yield "exp2 stands for exp, without the factor log2(e)", {"logits": LN2}
    yield "the factor log2(e) stands before exp", {"logits": 1 / LN2}
    if c.softcap:
        yield "the softcap is missing", {"softcap": 0.0}
        yield "the softcap comes before the scale", {"cap": "unscaled"}
        yield "the scores are not divided by the softcap", {"cap": "undivided"}
        yield "the result of tanh is not multiplied by the softcap", {"cap": "small"}
        yield "the softcap has the factor log2(e) on one side only", {"softcap": c.softcap * LN2}
        yield "the softcap has the factor log2(e) on one side only", {"softcap": c.softcap / LN2}
        yield "the softcap has no scale", {"scale": 1.0}
        if c.bias is not None or c.alibi is not None:
            yield "the softcap comes after the bias", {"cap": "after"}


def of_bias(c):
    """Yields what may be wrong with the bias and ALiBi."""
    (heads, n), (kv, m) = c.q.shape[1:3], c.k.shape[1:3]
    if c.bias is not None:
        yield "the bias is missing", {"bias": None}
        yield "the bias has the other sign", {"bias": -c.bias}
        yield "the bias is multiplied by the scale", {"bias": c.bias * c.scale}
        yield "the bias is divided by the scale", {"bias": c.bias / c.scale}
        yield "the bias is added twice", {"bias": 2 * c.bias}
        yield "the bias is not multiplied by log2(e)", {"bias": c.bias * LN2}
        yield "the bias is multiplied by log2(e) twice", {"bias": c.bias / LN2}
        yield "the bias of the first head is that of all", {"bias": c.bias[:1].repeat(heads, 0)}
        yield "the bias is that of the key head", {"bias": c.bias[numpy.arange(heads) // (heads // kv)]}
        yield "the bias is that of the head before", {"bias": numpy.roll(c.bias, 1, 0)}
        yield "the bias is transposed", {"bias": c.bias.reshape(heads, m, n).swapaxes(1, 2)}
        if n == m:
            yield "the bias is transposed", {"bias": c.bias.swapaxes(1, 2)}
        yield "the bias of the first query is that of all", {"bias": c.bias[:, :1].repeat(n, 1)}
    if c.alibi is not None:
        group = heads // kv
        yield "ALiBi is missing", {"alibi": None}
        yield "ALiBi has the other sign", {"alibi": -c.alibi}
        yield "ALiBi is not multiplied by log2(e)", {"alibi": c.alibi * LN2}
        yield "ALiBi is multiplied by the scale", {"alibi": c.alibi * c.scale}
        yield "ALiBi is divided by the scale", {"alibi": c.alibi / c.scale}
        yield "the slopes of ALiBi are those of the key heads", {"alibi": c.alibi[numpy.arange(heads) // group]}
        yield "the slopes of ALiBi are those of the key heads", {"alibi": c.alibi[numpy.arange(heads) // group * group]}
        yield "the slopes of ALiBi are one head off", {"alibi": numpy.roll(c.alibi, 1)}
        yield "the slopes of ALiBi are one head off", {"alibi": numpy.roll(c.alibi, -1)}
        yield "the slope of ALiBi of the first head is that of all", {"alibi": c.alibi[:1].repeat(heads)}
        yield "the slopes of ALiBi are in the other order", {"alibi": c.alibi[::-1]}
        yield "the slopes of ALiBi are 2^(-8 h / heads), without the rule for other numbers of heads", {
            "alibi": 2.0 ** (-8 * (numpy.arange(heads) + 1) / heads)}


def of_heads(c):
    """Yields what may be wrong with heads and batch items."""
    (batch, heads), kv = c.q.shape[:2], c.k.shape[1]
    if kv < heads:
        group = heads // kv
        tiled = numpy.arange(heads) % kv
        yield "the key head of head h is h mod kv_heads", {"head_of": tiled}
        yield "the value head of head h is h mod kv_heads", {"value_of": tiled}
        yield "all heads use the first key head", {"head_of": numpy.zeros(heads, int)}
        yield "the key heads are those of min(h, kv_heads - 1)", {"head_of": numpy.minimum(numpy.arange(heads), kv - 1)}
        if c.grad is not None:
            for head, says in ((-1, "last"), (0, "first")):
                yield f"the gradients of K and V are those of the {says} head of each group, not the sum", {"only_head": head}
                for name in "KV":
                    yield f"the gradient of {name} is that of the {says} head of each group, not the sum", {"only_head": head, "only_of": name}
    if kv > 1:
        own = numpy.arange(heads) // (heads // kv)
        for by in (1, -1):
            yield "the values are those of another head", {"value_of": (own + by) % kv}
            yield "the keys are those of another head", {"head_of": (own + by) % kv, "value_of": own}
            yield "keys and values are those of another head", {"head_of": (own + by) % kv}
    n, m = c.q.shape[2], c.k.shape[2]
    if kv > 1 and n < m:
        rows = numpy.arange(kv)[:, None] * n + numpy.arange(m)
        for name, x in (("k", c.k), ("v", c.v)):
            yield f"the heads of {name.upper()} are read as if they had as many rows as Q", {name: x.reshape(batch, kv * m, -1)[:, rows]}
    if batch > 1:
        for says, change in (("keys and values", {"k": c.k[:1].repeat(batch, 0), "v": c.v[:1].repeat(batch, 0)}),
                             ("keys", {"k": c.k[:1].repeat(batch, 0)}), ("values", {"v": c.v[:1].repeat(batch, 0)})):
            yield f"the {says} of the first batch item are those of all", change


def of_sink(c):
    """Yields what may be wrong with the sink."""
    heads, (kv, m) = c.q.shape[1], c.k.shape[1:3]
    if c.sink is not None:
        yield "the sink is missing", {"sink": None}
        yield "the sink is not multiplied by log2(e)", {"sink": c.sink * LN2}
        yield "the sink is multiplied by log2(e) twice", {"sink": c.sink / LN2}
        yield "the sink is multiplied by the scale", {"sink": c.sink * c.scale}
        yield "the sink of the first head is that of all", {"sink": c.sink[:1].repeat(heads)}
        yield "the sink is that of the key head", {"sink": c.sink[numpy.arange(heads) // (heads // kv)]}
        yield "the sinks are one head off", {"sink": numpy.roll(c.sink, 1)}
        yield "the sink is counted as a weight, not as a logit", {"sink": numpy.log(numpy.abs(c.sink))}
        for tile in TILES:
            tiles = -(-m // tile)
            if tiles > 1:
                yield "the sink counts once for each tile", {"sinks": float(tiles)}
                i, _, _ = model.positions(c)
                if c.causal:
                    yield "the sink counts once for each tile", {"sinks": 1.0 + numpy.clip(i, 0, m - 1) // tile}
        yield "the sink is counted twice", {"sinks": 2.0}


def of_tiles(c):
    """Yields what may be wrong with tiles, and the sum of a row."""
    batch, (kv, m, d), d_v = len(c.k), c.k.shape[1:], c.v.shape[3]
    if c.rotary is not None:
        yield f"rotary embedding turns {'half-split pairs' if c.rotary['interleaved'] else 'neighbouring pairs'} of columns", {
            "rotary": {**c.rotary, "interleaved": not c.rotary["interleaved"]}}
        yield "rotary embedding is missing", {"rotary": None}
        yield "rotary embedding turns by base^(-i/d), not base^(-2i/d)", {"power": 1.0}
        yield "rotary embedding turns the other way", {"turns": (-1, -1)}
        yield "rotary embedding turns Q the other way", {"turns": (-1, 1)}
        yield "rotary embedding turns Q alone", {"turns": (1, 0)}
        yield "rotary embedding turns K alone", {"turns": (0, 1)}
        yield "the positions of rotary embedding begin at the first row of Q", {"first": "row"}
        yield "the positions of Q are one too large for rotary embedding", {"first": 1}
        yield "the base of rotary embedding is another one", {"rotary": {**c.rotary, "base": 500000.0}}
        yield "the base of rotary embedding is another one", {"rotary": {**c.rotary, "base": 1000000.0}}
    for tile in TILES:
        if m > tile:
            for what, says in (("output", "the accumulated output is"), ("sum", "the sum is"), ("output and sum", "output and sum are")):
                yield f"{says} not rescaled when the maximum changes", {"rescale": (tile, what)}
            over = m % tile
            if over:
                lost = {"seen": lambda c, i, j, sees, over=over: sees & (numpy.arange(m) < m - over)}
                yield f"the last {over} keys are lost" if over > 1 else "the last key is lost", lost
                counts = numpy.ones(m)
                counts[m - tile:m - over] = 2
                yield "the last tile begins earlier, so some keys count twice", {"counts": counts}
            last = numpy.ones(m)
            last[(m - 1) // tile * tile:] = 2
            yield "the last tile counts twice", {"counts": last}
            first = numpy.ones(m)
            first[:tile] = 2
            yield "the first tile counts twice", {"counts": first}
            yield f"the first {tile} keys are lost", {"seen": lambda c, i, j, sees, tile=tile: sees & (numpy.arange(m) >= tile)}
            yield f"the last {tile} keys are lost", {"seen": lambda c, i, j, sees, tile=tile: sees & (numpy.arange(m) < m - tile)}
        if m % tile:
            yield "the keys behind the last one count, with the score 0, up to a whole tile", {"zeros": tile}
            yield "the keys behind the last one count, with the score 0, up to a whole tile", {"zeros": tile, "zeros_hidden": True}
        if c.lengths:
            def behind(c, i, j, sees, tile=tile):
                whole = -(-numpy.array(c.lengths)[:, None, None, None] // tile) * tile
                return model.visible(c.but(seen=None, lengths=None)) & (j < whole)
            yield "the keys behind lengths count up to a whole tile", {"seen": behind}
    if m > 1:
        yield "the last key is lost", {"seen": lambda c, i, j, sees: sees & (numpy.arange(m) < m - 1)}
        yield "the first key is lost", {"seen": lambda c, i, j, sees: sees & (numpy.arange(m) > 0)}
    if d_v > d:
        begin = numpy.arange(m)[:, None] * d + numpy.arange(d_v)
        yield "the rows of V are read as if they had d columns, not d_v", {"v": c.v.reshape(batch, kv, m * d_v)[..., begin]}
    yield "the maximum begins at 0, so a row with low scores vanishes", {"least": 0.0}
    yield "the output is not divided by the sum", {"undivided": True}


def of_gradients(c):
    """Yields what may be wrong with the gradients."""
    if c.grad is not None:
        yield "the gradient lacks the sum that softmax subtracts (delta)", {"delta": 0.0}
        yield "the gradient subtracts that sum (delta) twice", {"delta": 2.0}
        yield "the gradients of Q and K lack the scale", {"grad_scale": 1 / c.scale}
        yield "the gradients of Q and K have the scale twice", {"grad_scale": c.scale}
        yield "the gradients of Q and K have the factor ln(2)", {"grad_scale": LN2}
        yield "the gradients of Q and K have the factor log2(e)", {"grad_scale": 1 / LN2}
        if c.softcap:
            yield "the gradient lacks the derivative of the softcap", {"slope": False}


def of_linear(c):
    """Yields pairs of a sentence and changes of a call of linear attention."""
    n, d = c.q.shape[2:]
    yield "a position does not see itself", {"order": "read first"}
    if c.state is not None:
        yield "the state before the first position is missing", {"state": None}
        if d == c.v.shape[-1]:
            yield "the state is transposed", {"state": c.state.swapaxes(-1, -2)}
    if c.decay is not None:
        yield "the gate is missing", {"decay": None}
        yield "the gate is taken as it is, without exp", {"decay": numpy.log(numpy.abs(c.decay) + 1e-300)}
        yield "the gate is applied twice", {"decay": 2 * c.decay}
        yield "the gate is in base 2", {"decay": c.decay * LN2}
        yield "the state decays after the new row is added", {"order": "decay last"}
        yield "the output reads the state without the decay of its own position", {"order": "read before"}
        if c.beta is not None:
            yield "the correction reads the state before it decays", {"order": "old state"}
        none = numpy.zeros_like(c.decay[:, :, :1])
        yield "the gate is that of the position before", {"decay": numpy.concatenate([none, c.decay[:, :, :-1]], 2)}
        yield "the gate is that of the next position", {"decay": numpy.concatenate([c.decay[:, :, 1:], none], 2)}
    if c.beta is not None:
        yield "beta is 1", {"beta": numpy.ones_like(c.beta)}
        yield "beta is applied twice", {"beta": c.beta ** 2}
        yield "beta multiplies the new values, but not the correction", {"v": c.v * c.beta[..., None], "beta": numpy.ones_like(c.beta)}
        yield "the correction is missing", {"v": c.v * c.beta[..., None], "beta": None}
        yield "beta is missing, and so is the correction", {"beta": None}
    for says, scale in (("1", 1.0), ("1/d", 1 / d), ("applied twice", c.scale ** 2)):
        if abs(scale - c.scale) > 1e-9:
            yield f"the scale is {says}", {"scale": scale}
    if len(c.starts) > 2:
        yield "the state goes on from one sequence to the next", {"starts": [0, n]}
    for chunk in TILES:
        if n > chunk:
            yield f"the state is lost at the end of each chunk of {chunk}", {"chunk": chunk}
            if c.beta is None and c.decay is not None:
                yield "the part of the state before a chunk lacks the gate of the own position", {"order": "own gate", "chunk": chunk}


def near(x, y, right, computed_in):
    """Returns whether x is near y and, unless `right` is None, much closer to it than to what is right."""
    x, y, right = (numpy.asarray(part, float) for part in (x, y, 0 if right is None else right))
    if x.shape != y.shape or not numpy.array_equal(numpy.isinf(x), numpy.isinf(y)):
        return False
    with numpy.errstate(invalid="ignore", over="ignore"):
        off, own = numpy.nan_to_num(x - y, nan=0, posinf=0), numpy.nan_to_num(x - right, nan=0)
        size = numpy.where(numpy.isfinite(y), y, 0)
    own = numpy.where(numpy.isinf(x) & numpy.isinf(right), 0, own) if right.ndim else numpy.full(x.shape, numpy.inf)
    rest, moved, whole = (math.sqrt((part.astype(float) ** 2).mean()) for part in (off, numpy.clip(own, -1e30, 1e30), size))
    return rest <= NEAR[computed_in] * whole + 1e-30 and rest <= 0.1 * moved


def explaining(case, matrices, options, wrong, fine, computed_in):
    """Returns the sentences that explain the wrong results, or the most important one of them: {sentence: names of the results}. Those of
    `fine` are right, so what changes them explains nothing."""
    right, found = right_of(case, matrices, options), {}
    with numpy.errstate(all="ignore"):
        for says, change in suspicions(case, matrices, options):
            try:
                results = {name: x for name, x in change().items() if name in right}
            except (ValueError, IndexError):  # the change does not fit the case
                continue
            names = [name for name in wrong if name in results and near(in_axes(case, wrong[name]), results[name], right[name], computed_in)]
            if any(name in results and not near(right[name], results[name], None, computed_in) for name in fine):
                continue
            if names and len(names) >= len(found.get(says, [])):
                found[says] = names
        whole = {says: names for says, names in found.items() if len(names) == len(wrong)}
        if whole:
            return whole
        found = {says: names for says, names in found.items() if names[0] == next(iter(wrong))}
        for name, x in wrong.items():
            says, y = factor(name, in_axes(case, x), right.get(name))
            if says and near(in_axes(case, x), y, right[name], computed_in):
                found[says] = [name]
    return found


def factor(name, x, right):
    """Returns a sentence about the factor between a result and the right one, and the right one with this factor."""
    if right is None or x.shape != right.shape or not numpy.isfinite(x).all() or not numpy.isfinite(right).all() or not right.any():
        return None, None
    by = float((x * right).sum() / (right * right).sum())
    return f"{name} is {by:.4g} times what is right", by * right


def contradicted(case, matrices, options, says, names):
    """Returns whether a kernel of which a sentence is true would have other results than right ones in a case."""
    right, moved = None, []
    with numpy.errstate(all="ignore"):
        for other, change in suspicions(case, matrices, options):
            if other == says:
                right = right_of(case, matrices, options) if right is None else right
                try:
                    results = change()
                except (ValueError, IndexError):
                    continue
                moved.append(any(name in results and not near(right[name], results[name], None, "bfloat16") for name in names if name in right))
    return bool(moved) and all(moved)


def in_axes(case, x):
    """Returns a result in the axes of the model, (batch, heads, n, d)."""
    return x.swapaxes(0, 1)[None] if case["sequences"] and x.ndim == 3 else x[None] if case["sequences"] and x.ndim == 2 else x


def parts_of(case, x, right, computed_in):
    """Says which heads, rows or columns of the output are wrong, if not all are, or returns None."""
    x, right = in_axes(case, numpy.asarray(x, float)), numpy.asarray(right, float)
    size = math.sqrt((right ** 2).mean()) or 1
    bad = abs(x - right) > 10 * NEAR[computed_in] * size
    if not bad.any() or abs(x - right).max() < 100 * NEAR[computed_in] * size:
        return None
    says = []
    for axis, name in enumerate(("batch item", "head", "row", "column")):
        there = bad.any(tuple(other for other in range(4) if other != axis))
        at, count = numpy.flatnonzero(there), len(there)
        if len(at) == count:
            continue
        if len(at) == 1:
            says.append(f"the last {name}" if at[0] == count - 1 else f"{name} {at[0]} of {count}")
        elif at[-1] - at[0] + 1 == len(at):
            says.append(f"{name}s from {at[0]} on, of {count}" if at[-1] == count - 1 else f"{name}s {at[0]} to {at[-1]} of {count}")
        elif len(at) <= 4 and name != "column":
            says.append(f"{name}s {', '.join(str(i) for i in at)} of {count}")
        elif len(set(numpy.diff(at))) == 1:
            says.append(f"one of {numpy.diff(at)[0]} {name}s from {at[0]} on")
    if not says:
        return None
    return f"only this is wrong: {', '.join(says)}" + (", which is all zeros" if not x[bad].any() else "")
