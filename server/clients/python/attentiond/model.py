"""Attention in float64 as a kernel computes it, with a switch for each thing that kernels get wrong. It judges nothing: the service does that.
The check compares wrong results with those of this model to say what the kernel may have done."""

import dataclasses
import math
import typing

import numpy

LN2 = math.log(2)


@dataclasses.dataclass
class Call:
    """What a kernel gets, in float64: q (batch, heads, n, d), and k and v likewise. The fields after `sink` are the switches."""

    q: numpy.ndarray
    k: numpy.ndarray
    v: numpy.ndarray
    grad: typing.Optional[numpy.ndarray]
    scale: float
    causal: object = False
    window: tuple = (-1, -1)
    softcap: float = 0.0
    lengths: typing.Optional[list] = None
    starts: typing.Optional[list] = None  # of packed sequences, with the number of all rows
    mask: typing.Optional[numpy.ndarray] = None
    bias: typing.Optional[numpy.ndarray] = None
    alibi: typing.Optional[numpy.ndarray] = None
    sink: typing.Optional[numpy.ndarray] = None
    rotary: typing.Optional[dict] = None
    head_of: typing.Optional[numpy.ndarray] = None  # the key head of each head
    value_of: typing.Optional[numpy.ndarray] = None  # the same for the values
    nearer: int = 0  # the keys before the own one that `causal` hides; -1: the next one is seen, too
    cap: str = ""  # "after": of the sum with the bias; "unscaled": of q·k; "undivided": tanh(s); "small": not multiplied back
    logits: float = 1.0  # multiplies all of them
    fill: float = -math.inf  # the score of a hidden key
    seen: typing.Optional[typing.Callable] = None  # changes who sees whom
    counts: typing.Optional[numpy.ndarray] = None  # how often each key counts
    zeros: int = 0  # keys with the score 0 behind the last one, up to a multiple of this
    zeros_hidden: bool = False  # unless `causal` hides them
    sinks: typing.Optional[numpy.ndarray] = None  # how often the sink counts for each query
    rescale: tuple = ()  # (tile, what is not rescaled: "output", "sum" or both)
    least: float = -math.inf  # the running maximum begins here
    undivided: bool = False
    lse: str = ""  # "base 2", "no maximum", "no sink"
    delta: float = 1.0  # multiplies the sum that the gradient subtracts
    slope: bool = True  # the derivative of the softcap is there
    grad_scale: float = 1.0  # multiplies the gradients by Q and K
    only_head: typing.Optional[int] = None  # the head of each group whose gradient by K and V counts,
    only_of: str = "KV"  # or by one of them
    power: float = 2.0  # of rotary embedding: pair i turns by base^(-power i / d)
    turns: tuple = (1, 1)  # multiply the positions of Q and K there
    first: object = 0  # is added to the positions of Q; "row": these are the rows

    def but(self, **changes):
        return dataclasses.replace(self, **changes)


def call_of(case, matrices, options):
    """Returns the call of a case."""
    wide = {name: x.astype(float) for name, x in matrices.items() if x.dtype != bool}
    packed = "sequences" in options
    q, k, v, grad = (wide[name].swapaxes(0, 1)[None] if packed else wide[name].copy() for name in ("Q", "K", "V", "grad_output"))
    k, v = (numpy.nan_to_num(x, nan=0.0) for x in (k, v))  # behind lengths
    return Call(q=q, k=k, v=v, grad=grad, scale=options.get("scale", q.shape[-1] ** -0.5), causal=options.get("causal", False),
                window=options.get("window", (-1, -1)), softcap=options.get("softcap", 0.0), lengths=options.get("lengths"),
                starts=options.get("sequences"), mask=matrices.get("mask"), bias=wide.get("bias"), alibi=wide.get("alibi"),
                sink=wide.get("sink"), rotary=options.get("rotary"))


def positions(c):
    """Returns the positions of the queries (batch, 1, n, 1) and of the keys (m), and which are in one sequence."""
    (batch, _, n, _), m = c.q.shape, c.k.shape[2]
    if c.starts is not None:
        own = numpy.searchsorted(c.starts, numpy.arange(n), "right") - 1
        at = numpy.arange(n) - numpy.array(c.starts)[own]
        return at[None, None, :, None], at, own[:, None] == own
    i = numpy.broadcast_to(numpy.arange(n)[None, None, :, None], (batch, 1, n, 1))
    if c.causal == "bottom_right":
        i = i + (numpy.array(c.lengths or [m] * batch) - n)[:, None, None, None]
    return i, numpy.arange(m), numpy.ones((n, m), bool)


def visible(c):
    """Returns which query sees which key, (batch, heads or 1, n, m)."""
    i, j, sees = positions(c)
    if c.causal:
        sees = sees & (j <= i - c.nearer)
    left, right = c.window
    sees = sees & ((j >= i - left) | (left < 0)) & ((j <= i + right) | (right < 0))
    if c.mask is not None:
        sees = sees & c.mask
    if c.lengths is not None:
        sees = sees & (j < numpy.array(c.lengths)[:, None, None, None])
    return sees if c.seen is None else c.seen(c, i, j, sees)


def rotated(x, at, rotary, power):
    """Returns rows that rotary embedding has turned."""
    half = x.shape[-1] // 2
    angles = at[..., None] * rotary["base"] ** (-power * numpy.arange(half) / x.shape[-1])
    cos, sin = numpy.cos(angles), numpy.sin(angles)
    if rotary["interleaved"]:
        a, b = x[..., 0::2], x[..., 1::2]
        return numpy.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)
    a, b = x[..., :half], x[..., half:]
    return numpy.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def logits_of(c, q, k):
    """Returns the logits before keys are hidden, and the derivative of the softcap."""
    i, j, _ = positions(c)
    raw = q @ k.swapaxes(-1, -2)
    slope = numpy.ones_like(raw)
    if not c.softcap or c.cap == "after":
        s = c.scale * raw
    else:
        inner = raw if c.cap == "unscaled" else c.scale * raw
        t = numpy.tanh(inner if c.cap == "undivided" else inner / c.softcap)
        s = t * (1 if c.cap == "small" else c.softcap) * (c.scale if c.cap == "unscaled" else 1)
        slope = 1 - t * t
    if c.bias is not None:
        s = s + c.bias
    if c.alibi is not None:
        s = s - c.alibi[:, None, None] * abs(i - j)
    if c.softcap and c.cap == "after":
        t = numpy.tanh(s / c.softcap)
        s, slope = c.softcap * t, 1 - t * t
    return c.logits * s, slope


def unscaled(s, v, sink, tile, what):
    """Returns output and lse of a kernel that goes through tiles of keys and does not rescale what it has when the maximum changes."""
    out, total = numpy.zeros((*s.shape[:-1], v.shape[-1])), numpy.zeros((*s.shape[:-1], 1))
    before = numpy.full_like(total, -math.inf)
    for at in range(0, s.shape[-1], tile):
        part = s[..., at:at + tile]
        now = numpy.maximum(before, part.max(-1, keepdims=True))
        safe = numpy.where(numpy.isinf(now), 0, now)
        begun = ~numpy.isinf(before)
        alpha = numpy.where(begun, numpy.exp(before - safe), 0)
        e = numpy.exp(part - safe)
        out = out * (begun if "output" in what else alpha) + e @ v[:, :, at:at + tile]
        total = total * (begun if "sum" in what else alpha) + e.sum(-1, keepdims=True)
        before = now
    top = numpy.where(numpy.isinf(before), 0, before)
    total = total + numpy.exp(sink - top)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.where(total > 0, out / total, 0), (top + numpy.log(total))[..., 0]


def softmax(c, s, v, sees):
    """Returns output, lse and weights (None with `rescale`), from logits and values."""
    m = s.shape[-1]
    s = numpy.where(sees, s, c.fill)
    if c.zeros and m % c.zeros:
        more = -m % c.zeros
        i, _, _ = positions(c)
        extra = numpy.where(numpy.arange(m, m + more) <= i, 0.0, c.fill) if c.zeros_hidden and c.causal else 0.0
        s = numpy.concatenate([s, numpy.broadcast_to(extra, (*s.shape[:-1], more))], -1)
        v = numpy.concatenate([v, numpy.zeros((*v.shape[:2], more, v.shape[-1]))], 2)
    if c.counts is not None:
        s = s + numpy.log(c.counts)
    sink = numpy.full(1, -math.inf) if c.sink is None else c.sink
    sink = numpy.broadcast_to(c.logits * sink[:, None, None], (s.shape[1], 1, 1))
    if c.rescale:
        return (*unscaled(s, v, sink, *c.rescale), None)
    top = numpy.maximum(numpy.maximum(s.max(-1, keepdims=True), sink), c.least)
    top = numpy.where(numpy.isinf(top), 0, top)
    e = numpy.exp(s - top)
    of_sink = numpy.exp(sink - top) * (1 if c.sinks is None else c.sinks)
    if c.least > -math.inf:  # what float32 does not hold is 0
        e = numpy.where(e < 1e-45, 0, e)
    whole = e.sum(-1, keepdims=True)
    total = whole + of_sink
    with numpy.errstate(divide="ignore", invalid="ignore"):
        w = numpy.where(total > 0, e / total, 0)
        lse = numpy.log(whole if c.lse == "no sink" else total)
        lse = (lse if c.lse == "no maximum" else top + lse)[..., 0] / (LN2 if c.lse == "base 2" else 1)
    return (e if c.undivided else w) @ v, lse, w[..., :m]


def attention(c):
    """Returns the results of a call, in the axes of q."""
    group = c.q.shape[1] // c.k.shape[1]
    heads = numpy.arange(c.q.shape[1]) // group
    head_of = heads if c.head_of is None else c.head_of
    value_of = head_of if c.value_of is None else c.value_of
    q, k, v = c.q, c.k[:, head_of], c.v[:, value_of]
    if c.rotary is not None:
        i, j, _ = positions(c)
        at = (i[..., 0] + c.first) if c.first != "row" else numpy.arange(q.shape[2])
        q, k = rotated(q, at * c.turns[0], c.rotary, c.power), rotated(k, j * c.turns[1], c.rotary, c.power)
    s, slope = logits_of(c, q, k)
    output, lse, w = softmax(c, s, v, visible(c))
    results = {"output": output, "lse": lse}
    if w is None or c.grad is None or c.rotary is not None:
        return results
    d_w = c.grad @ v.swapaxes(-1, -2)
    d_s = w * (d_w - c.delta * (c.grad * output).sum(-1, keepdims=True)) * c.logits * (slope if c.slope else 1)
    results["grad_Q"] = c.grad_scale * c.scale * d_s @ k
    counted = numpy.ones(len(heads), bool) if c.only_head is None else numpy.arange(len(heads)) % group == c.only_head % group
    for name, of_heads, of in (("grad_K", c.grad_scale * c.scale * d_s.swapaxes(-1, -2) @ q, head_of), ("grad_V", w.swapaxes(-1, -2) @ c.grad, value_of)):
        results[name] = numpy.stack([of_heads[:, (of == h) & (counted | (name[-1] not in c.only_of))].sum(1) for h in range(c.k.shape[1])], 1)
    return results


@dataclasses.dataclass
class LinearCall:
    """What a kernel of linear attention gets. The fields after `state` are the switches."""

    q: numpy.ndarray
    k: numpy.ndarray
    v: numpy.ndarray
    scale: float
    decay: typing.Optional[numpy.ndarray]  # (batch, heads, n)
    beta: typing.Optional[numpy.ndarray]
    starts: list
    state: typing.Optional[numpy.ndarray]
    order: str = ""  # "read first", "read before", "old state", "decay last", "own gate"
    chunk: int = 0  # the state is lost at its end, or "own gate" is about it

    def but(self, **changes):
        return dataclasses.replace(self, **changes)


def linear_call_of(case, matrices, options):
    wide = {name: x.astype(float) for name, x in matrices.items()}
    packed = "sequences" in options

    def rows(x):
        return x.swapaxes(0, 1)[None] if packed and x is not None else x
    q, k, v = (rows(wide[name]) for name in "QKV")
    return LinearCall(q=q, k=k, v=v, scale=options.get("scale", q.shape[-1] ** -0.5), decay=rows(wide.get("decay")), beta=rows(wide.get("beta")),
                      starts=options.get("sequences", [0, q.shape[2]]), state=wide.get("state"))


def linear(c):
    """Returns the results of a call of linear attention."""
    batch, heads, n, d = c.k.shape
    output, states = numpy.zeros((batch, heads, n, c.v.shape[-1])), []
    first = numpy.zeros((batch, heads, d, c.v.shape[-1])) if c.state is None else c.state
    ones = numpy.ones((batch, heads, 1, 1))
    s, since, alive = first, first, ones
    for t in range(n):
        while t == c.starts[len(states) + 1]:  # a sequence may be empty
            states.append(s)
            s = numpy.zeros_like(first)
        if c.chunk and t % c.chunk == 0:
            s = s if c.order == "own gate" or t == 0 else numpy.zeros_like(first)
            since, alive = s, ones
        gate = ones if c.decay is None else numpy.exp(c.decay[:, :, t])[..., None, None]
        kt, before = c.k[:, :, t, :, None], s
        if c.order != "decay last":
            s = gate * s
        u = c.v[:, :, t, None, :]
        if c.beta is not None:
            u = c.beta[:, :, t, None, None] * (u - (kt * (before if c.order == "old state" else s)).sum(-2, keepdims=True))
        now = s + kt * u
        now = gate * now if c.order == "decay last" else now
        read = s if c.order == "read first" else before + kt * u if c.order == "read before" else now
        if c.order == "own gate":  # the part of the state before the chunk lacks the gate of the position
            read = now - alive * gate * since + alive * since
            alive = alive * gate
        output[:, :, t] = c.scale * (c.q[:, :, t, :, None] * read).sum(-2)
        s = now
    states += [s] + [numpy.zeros_like(first)] * (len(c.starts) - 2 - len(states))
    return {"output": output, "present_state": numpy.concatenate(states)}
