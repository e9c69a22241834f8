"""Kernels of attention, computed as hardware computes them: where each of them rounds, and in which order it sums.

A product in a type of 16 bits has exact products of its inputs and sums in float32, as tensor cores do."""

import dataclasses
import math

import numpy as np
from rounding import LARGEST, ROUND, SIXTEEN, narrow

LOG2_E = math.log2(math.e)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a kernel does. `form` is "unfused" (each matrix is made and rounded) or "tiled" (online softmax)."""

    name: str
    types: tuple  # of the inputs
    form: str = "tiled"
    inner: str | None = None  # the type of sums and exponentials; None: float32, or that of float64 inputs
    product: str | None = None  # what the inputs of all products are rounded to
    weight: str | None = None  # what P and dS are rounded to before they are multiplied; "input": the type of the inputs
    result: str = "input"  # the type of the results
    log: str | None = None  # the type of lse; None: that of the sums
    order: str = "blas"  # of sums: "blas", "naive" (one after another) or "pairwise"
    block: int = 64  # keys in a tile
    splits: int = 1  # parts of the keys that are merged at the end
    alike: bool = False  # the sums are those of the rounded P, as in a product with a column of ones
    early: bool = False  # the roots of the scale are multiplied into Q and K, as PyTorch's math path does
    base2: bool = False  # exp2, with log2(e) folded into the scale
    computed_in: str | None = None  # what the request says; "input": the type of the inputs
    sent: str | None = None  # the type of the numbers in the file, if it is not that of the results

    def type_of(self, field, kind):
        """The name of a type, for inputs of the type `kind`."""
        value = getattr(self, field)
        if value is None and field in ("inner", "log"):
            return "float64" if kind == "float64" else "float32"
        return kind if value == "input" else value

    def result_type(self, name, kind):
        return self.type_of("log" if name == "lse" else "result", kind)

    def said(self, name, kind):
        """The type in which the request says that the result was computed."""
        return self.type_of("computed_in", kind) or self.result_type(name, kind)


WIDE, HALF = ("float32", "bfloat16", "float16"), SIXTEEN
KERNELS = (
    Kernel("unfused in the type", HALF, "unfused", log="input"),
    Kernel("unfused, scaled inputs", HALF, "unfused", early=True, log="input"),
    Kernel("tiled, blocks of 16", HALF, weight="input", block=16),
    Kernel("tiled, blocks of 64", HALF, weight="input", block=64),
    Kernel("tiled, blocks of 128", HALF, weight="input", block=128),
    Kernel("split keys", HALF, weight="input", block=64, splits=4),
    Kernel("exp2", HALF, weight="input", block=64, base2=True),
    Kernel("16-bit P, float32 results", HALF, weight="input", result="float32", computed_in="input"),
    Kernel("float32 P, 16-bit results", HALF, result="input"),
    Kernel("float32 sums of 16-bit inputs", HALF, "unfused", result="float32"),
    Kernel("tf32", ("float32",), product="tf32", computed_in="tf32"),
    Kernel("tf32, ties away", ("float32",), product="tf32 away", block=128, computed_in="tf32"),
    Kernel("tf32, cut off", ("float32",), product="tf32 cut", computed_in="tf32"),
    Kernel("tf32, unfused", ("float32",), "unfused", product="tf32", computed_in="tf32"),
    Kernel("float32, unfused", ("float32",), "unfused"),
    Kernel("float32, one after another", WIDE, "unfused", order="naive", result="float32"),
    Kernel("float32, pairwise", WIDE, "unfused", order="pairwise", result="float32"),
    Kernel("float32, blocks of 16", ("float32",), block=16),
    Kernel("float32, blocks of 128, exp2", ("float32",), block=128, base2=True),
    Kernel("float32, split keys", ("float32",), block=32, splits=3),
    Kernel("float32, sent as float64", ("float32",), block=64, computed_in="float32", sent="float64"),
    Kernel("float8 P", HALF, weight="float8", block=64, computed_in="float8"),
    Kernel("float8 P, float32 results", HALF, weight="float8", block=128, result="float32", computed_in="float8"),
    Kernel("float8 P, sums of rounded P", HALF, weight="float8", alike=True, computed_in="float8"),
    Kernel("float8 products", HALF, product="float8", weight="float8", block=64, computed_in="float8"),
    Kernel("float64, blocks of 32", ("float64",), block=32),
    Kernel("float64, one after another", ("float64",), "unfused", order="naive"),
    Kernel("float64, unfused", ("float64",), "unfused"),
)


@dataclasses.dataclass
class Problem:
    """What is computed: Q (batch, heads, n, d), K and V (batch, key heads, m, ...), and the rules.

    `heads` has the key head of each query head. `bias` and `allowed` are broadcast to (batch, heads, n, m)."""

    Q: np.ndarray
    K: np.ndarray
    V: np.ndarray
    heads: np.ndarray
    allowed: np.ndarray
    scale: float
    bias: np.ndarray | None = None
    softcap: float | None = None
    sink: np.ndarray | None = None
    grad: np.ndarray | None = None
    gate: np.ndarray | None = None  # (batch, heads, n, columns or 1)

    def changed(self, **fields):
        return dataclasses.replace(self, **fields)


# The faults that stand inside of a computation. The other ones change a problem or results.
NO_FAULT = frozenset()


class Run:
    """One kernel on one problem."""

    def __init__(self, kernel, problem, kind, exact=None, faults=NO_FAULT):
        self.kernel, self.problem, self.faults = kernel, problem, faults
        self.kind = kind
        self.inner = exact or {"float64": np.float64, "float32": np.float32}[kernel.type_of("inner", kind)]
        self.exact = exact is not None
        as_inner = self.inner
        self.Q, self.grad = problem.Q.astype(as_inner), None if problem.grad is None else problem.grad.astype(as_inner)
        self.K, self.V = (x.astype(as_inner)[:, problem.heads] for x in (problem.K, problem.V))
        self.bias = None if problem.bias is None else problem.bias.astype(as_inner)
        self.ungated, self.open = self.grad, None
        if problem.gate is not None:  # the gradient of what is multiplied by the gate
            gate = problem.gate.astype(as_inner)
            self.open = 1 / (1 + np.exp(-gate)) if self.exact or kernel.form == "tiled" else self.rounded(1 / (1 + np.exp(-gate)))
            self.closed = 1 - self.open if kernel.form == "unfused" and not self.exact else 1 / (1 + np.exp(gate))
            self.grad = None if self.grad is None else self.rounded(self.grad * self.open)

    def rounded(self, x, field="result"):
        """Rounds to a type of the kernel."""
        kind = self.kernel.type_of(field, self.kind)
        return x if self.exact or kind is None else ROUND[kind](x).astype(self.inner)

    def weighed(self, x):
        """Rounds P or dS for a product."""
        if self.exact or self.kernel.weight is None:
            return x
        return narrow(x, self.kernel.type_of("weight", self.kind)).astype(self.inner)

    def product(self, a, b):
        """a b, with the kernel's rounding of both and its order of sums."""
        if not self.exact and self.kernel.product:
            a, b = narrow(a, self.kernel.product), narrow(b.swapaxes(-1, -2), self.kernel.product).swapaxes(-1, -2)
        if self.exact or self.kernel.order == "blas":
            return np.matmul(a, b)
        terms = lambda k: a[..., :, k, None] * b[..., None, k, :]  # noqa: E731
        return self.summed(terms, 0, a.shape[-1], self.kernel.order == "pairwise")

    def summed(self, terms, first, end, pairwise):
        if pairwise and end - first > 8:
            middle = (first + end) // 2
            return self.summed(terms, first, middle, True) + self.summed(terms, middle, end, True)
        total = terms(first)
        for k in range(first + 1, end):
            total += terms(k)
        return total

    def total(self, x):
        """The sum of each row."""
        if not self.exact and self.kernel.order == "naive" and x.shape[-1] > 0:
            return np.cumsum(x, -1)[..., -1:]
        return x.sum(-1, keepdims=True)

    def gated(self, mixed):
        """The output, and the gradient of the gate, of the values that the weights mix."""
        self.mixed = mixed
        out = {"output": mixed if self.open is None else self.rounded(mixed * self.open)}
        if self.open is not None and self.ungated is not None:
            grad = self.rounded(self.rounded(self.ungated * mixed) * self.open * self.closed)
            out["grad_gate"] = grad if self.open.shape[-1] > 1 or grad.shape[-1] == 1 else self.rounded(grad.sum(-1, keepdims=True))
        return out

    def grouped(self, x):
        """Adds what the query heads of a key head give."""
        groups = self.problem.K.shape[1]
        out = np.zeros((x.shape[0], groups, *x.shape[2:]), x.dtype)
        for h, g in enumerate(self.problem.heads):
            if "last head only" in self.faults:
                out[:, g] = x[:, h]
            else:
                out[:, g] += x[:, h]
        return out

    def results(self):
        with np.errstate(all="ignore"):
            return self.unfused() if self.exact or self.kernel.form == "unfused" else self.tiled()

    # -------------------------------------------------------------------------------------------------------- unfused
    def unfused(self):
        p, r = self.problem, self.rounded
        scale = self.inner(p.scale)
        if self.kernel.early:
            self.Q, self.K, scale = r(self.Q * np.sqrt(scale)), r(self.K * np.sqrt(scale)), self.inner(1)
        scores = r(self.product(self.Q, self.K.swapaxes(-1, -2)))
        scaled = r(scores * scale)
        slope = None
        if p.softcap is not None:
            tanh = np.tanh(scaled / self.inner(p.softcap))
            scaled, slope = r(self.inner(p.softcap) * tanh), 1 - tanh * tanh
        masked = scaled if self.bias is None else self.clipped(r(scaled + self.bias))
        if "softcap after bias" in self.faults:
            masked = r(self.inner(p.softcap) * np.tanh((scores * scale + self.bias) / self.inner(p.softcap)))
        masked = np.where(p.allowed, masked, -np.inf)
        largest, sums, e = self.softmax(masked)
        share = np.where(sums > 0, e / np.where(sums > 0, sums, 1), 0)
        weights = r(share)
        out = {"scores": scores, "masked_scores": masked, "weights": weights, **self.gated(r(self.product(weights, self.V))),
               "lse": r(self.logarithm(masked, largest, sums, e), "log")[..., 0]}
        if "undivided" in self.faults:
            out.update(self.gated(r(self.product(r(e), self.V))))
        if self.grad is not None:
            changes = r(self.product(self.grad, self.V.swapaxes(-1, -2)))
            delta = self.total(weights * changes)
            back = r(weights * (changes - (0 if "no delta" in self.faults else delta)))
            if slope is not None and "no slope" not in self.faults:
                back = r(back * slope)
            back = r(back * scale)
            out.update(self.gradients(back, weights, 1))
        if self.kernel.early:
            out.pop("scores")
            for name in {"grad_Q", "grad_K"} & set(out):
                out[name] = r(out[name] * np.sqrt(self.inner(p.scale)))
        return out

    def clipped(self, x):
        """A kernel adds the least number of its type without an overflow."""
        least = x.dtype.type(-np.inf if self.exact else -LARGEST[self.kernel.type_of("result", self.kind)])
        return np.maximum(x, least)

    def softmax(self, masked):
        largest = masked.max(-1, keepdims=True, initial=-np.inf)
        if self.problem.sink is not None:
            largest = np.maximum(largest, self.sink())
        largest = np.where(np.isfinite(largest), largest, 0).astype(self.inner)
        e = np.exp(masked - largest)
        sums = self.total(e)
        if self.problem.sink is not None:
            sums = sums + np.exp(self.sink() - largest)
        return largest, sums, e

    def sink(self):
        return self.problem.sink.astype(self.inner)[None, :, None, None]

    def logarithm(self, masked, largest, sums, e):
        if "lse without sink" in self.faults:
            sums = e.sum(-1, keepdims=True)
        if "lse of half" in self.faults:
            sums = e[..., : max(1, e.shape[-1] // 2)].sum(-1, keepdims=True)
        return largest + np.log(sums)

    def gradients(self, back, weights, scale):
        r, grad_scale = self.rounded, 1 / self.inner(self.problem.scale or 1) if "no scale in grad_Q" in self.faults else self.inner(1)
        scale = self.inner(scale)
        half = back.shape[-2] // 2 if "half of the rows" in self.faults else 0
        return {"grad_Q": r(grad_scale * scale * self.product(back, self.K)),
                "grad_K": r(self.grouped(scale * self.product(back.swapaxes(-1, -2)[..., half:], self.Q[..., half:, :]))),
                "grad_V": r(self.grouped(self.product(weights.swapaxes(-1, -2), self.grad)))}

    # ---------------------------------------------------------------------------------------------------------- tiled
    def tiled(self):
        p, m = self.problem, self.K.shape[-2]
        parts = [self.part(first, min(m, first + -(-m // self.kernel.splits))) for first in range(0, m, -(-m // self.kernel.splits))]
        largest, sums, output = self.merged(parts)
        if p.sink is not None:
            top = np.maximum(largest, self.sink())
            sums, output = sums * np.exp(largest - top) + np.exp(self.sink() - top), output * np.exp(largest - top)
            largest = top
        if "undivided" not in self.faults:
            output = np.where(sums > 0, output / np.where(sums > 0, sums, 1), 0)
        output = self.rounded(output)
        gated = self.gated(output)
        lse = np.where(sums > 0, largest + np.log(sums), -np.inf)
        out = {**gated, "lse": self.rounded(self.logged(lse), "log")[..., 0]}
        if self.grad is not None:
            out.update(self.backward(lse, output))
        return out

    def logged(self, lse):
        """lse as the kernel writes it, which a fault may change."""
        p, m = self.problem, self.K.shape[-2]
        if "lse without sink" in self.faults:
            return Run(self.kernel, p.changed(sink=None), self.kind).results()["lse"][..., None]
        if "lse of half" in self.faults:
            first = np.arange(m) < max(1, m // 2)
            return Run(self.kernel, p.changed(allowed=p.allowed & first), self.kind).results()["lse"][..., None]
        return lse

    def scored(self, first, end):
        """The masked scores of the keys [first, end). A kernel with exp2 has them in base 2, until merged() turns back."""
        p, inner = self.problem, self.inner
        base = LOG2_E if self.kernel.base2 else 1.0
        scores = self.product(self.Q, self.K[..., first:end, :].swapaxes(-1, -2))
        if p.softcap is None:
            scores = scores * inner(p.scale * base)
        elif "softcap after bias" in self.faults:
            bias = self.bias[..., first:end] if self.bias.shape[-1] > 1 else self.bias
            scores = inner(p.softcap * base) * np.tanh((scores * inner(p.scale) + bias) / inner(p.softcap))
        else:
            scores = inner(p.softcap * base) * np.tanh(scores * inner(p.scale / p.softcap))
        if self.bias is not None and "softcap after bias" not in self.faults:
            bias = self.bias[..., first:end] if self.bias.shape[-1] > 1 else self.bias
            bias = np.where(np.isinf(bias), bias, np.maximum(bias * inner(base), -np.finfo(inner).max))
            scores = np.where(np.isinf(bias), -np.inf, np.maximum(scores + bias, -np.finfo(inner).max))
        allowed = p.allowed[..., first:end] if p.allowed.shape[-1] > 1 else p.allowed
        return np.where(allowed, scores, inner(-np.inf))

    def part(self, first, end):
        """Online softmax over the keys [first, end)."""
        power = np.exp2 if self.kernel.base2 else np.exp
        shape = (*self.Q.shape[:-1], 1)
        largest, sums = np.full(shape, -np.inf, self.inner), np.zeros(shape, self.inner)
        output = np.zeros((*self.Q.shape[:-1], self.V.shape[-1]), self.inner)
        tiles = list(range(first, end, self.kernel.block))
        for number, at in enumerate(tiles):
            stop = min(end, at + self.kernel.block)
            scores = self.scored(at, stop)
            top = np.maximum(largest, scores.max(-1, keepdims=True))
            safe = np.where(np.isfinite(top), top, 0)
            before = power(np.where(np.isfinite(largest), largest - safe, -np.inf))
            if "stale maximum" in self.faults and number == len(tiles) - 1:
                before = np.where(before > 0, self.inner(1), before)
            e = power(scores - safe)
            coarse = "coarse tile" in self.faults and number == 0
            rounded = (ROUND["float8"](e) if coarse else self.weighed(e)).astype(self.inner)
            sums = sums * before + self.total(rounded if self.kernel.alike else e)
            output = output * before + self.product(rounded, self.V[..., at:stop, :])
            largest = top
        if self.kernel.base2:
            largest = largest * self.inner(math.log(2))
        return np.where(np.isfinite(largest), largest, 0), sums, output

    def merged(self, parts):
        if len(parts) == 1:
            return parts[0]
        logs = [np.where(sums > 0, top + np.log(sums), -np.inf) for top, sums, _ in parts]
        largest = np.maximum.reduce(logs)
        largest = np.where(np.isfinite(largest), largest, 0)
        factors = [np.exp(log - largest) for log in logs]
        return largest, sum(factors), sum(f * o / np.where(s > 0, s, 1) for f, (_, s, o) in zip(factors, parts))

    def backward(self, lse, output):
        p, m = self.problem, self.K.shape[-2]
        scores = self.scored(0, m)
        base = self.inner(LOG2_E if self.kernel.base2 else 1)
        weights = (np.exp2 if self.kernel.base2 else np.exp)(scores - np.where(np.isfinite(lse), lse, 0) * base)
        changes = self.product(self.grad, self.V.swapaxes(-1, -2))
        delta = (self.grad * output).sum(-1, keepdims=True)
        back = weights * (changes - (0 if "no delta" in self.faults else delta))
        if p.softcap is not None and "no slope" not in self.faults:
            scaled = self.product(self.Q, self.K.swapaxes(-1, -2)) * self.inner(p.scale / p.softcap)
            back = back * (1 - np.tanh(scaled) ** 2)
        return self.gradients(self.weighed(back), self.weighed(weights), p.scale)


EXACT = Kernel("exact", (), "unfused")


def exact(problem, kind):
    """The results in float64, and for float64 inputs in the wider type of the machine."""
    run = Run(EXACT, problem, kind, np.longdouble if kind == "float64" else np.float64)
    return {**run.results(), "mixed": run.mixed}
