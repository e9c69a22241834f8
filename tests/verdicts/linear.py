"""Linear attention: its calls, kernels, faults, and what rounding explains, as the files of softmax attention have them."""

import json

import numpy as np
from faults import Fault, one_element, one_row, shifted, times
from kernels import Kernel
from rounding import ROUND, SIXTEEN, UNIT, narrow
from yardstick import MEAN, Yardstick

PATH = "/linear-attention"
RULES = ("linear", "gated", "delta", "gated_delta")
KERNELS = (
    Kernel("recurrent, 16-bit results", SIXTEEN, "recurrent", log="input"),
    Kernel("chunks of 16, 16-bit", SIXTEEN, "chunked", weight="input", block=16, log="input"),
    Kernel("chunks of 64, 16-bit", SIXTEEN, "chunked", weight="input", block=64, log="input"),
    Kernel("recurrent, float32", ("float32", *SIXTEEN), "recurrent", result="float32"),
    Kernel("chunks of 64, float32", ("float32",), "chunked", block=64),
    Kernel("chunks of 64, tf32", ("float32",), "chunked", product="tf32", weight="tf32", block=64, computed_in="tf32"),
    Kernel("recurrent, float64", ("float64",), "recurrent"),
    Kernel("chunks of 16, float64", ("float64",), "chunked", block=16),
)


class Call:
    """A drawn call: Q and K (batch, heads, n, d), V (batch, heads, n, d_v), decay and beta (batch, heads, n)."""

    path, grad, small = PATH, None, True

    def __init__(self, rng, kind, wanted=()):
        self.rng, self.kind, self.wanted = rng, kind, set(wanted)
        self.features, self.tensors, self.options = set(), {}, {}
        size = lambda least, most: int(np.exp(rng.uniform(np.log(least), np.log(most + 1))))  # noqa: E731
        self.heads, self.n = int(rng.integers(1, 4)), size(66 if "rows" in self.wanted else 1, 100 if kind == "float64" else 300)
        d, d_v = size(1, 64), size(1, 64)
        rules = [rule for rule in RULES if ("gated" in rule or "decay" not in self.wanted) and ("delta" in rule or "beta" not in self.wanted)]
        self.rule = self.options["update"] = str(rng.choice(rules))
        Q, K, V = (rng.standard_normal((1, self.heads, self.n, columns)) for columns in (d, d, d_v))
        if "delta" in self.rule:
            K /= np.linalg.norm(K, axis=-1, keepdims=True)  # other keys would let the state grow without end
        V = V * 10 ** rng.uniform(-3, 3) if rng.random() < 0.3 else V + 5 * (rng.random() < 0.3)
        self.Q, self.K, self.V = (self.give(name, x) for name, x in zip("QKV", (Q, K, V)))
        shape = (1, self.heads, self.n)
        self.decay = self.give("decay", -rng.exponential(10 ** rng.uniform(-3, 0), shape)) if "gated" in self.rule else None
        self.beta = self.give("beta", rng.uniform(0, 1, shape)) if "delta" in self.rule else None
        self.past = self.give("past_state", rng.standard_normal((1, self.heads, d, d_v))) \
            if rng.random() < 0.4 or "past" in self.wanted else None
        self.scale = self.options["scale"] = float(np.float32(d**-0.5))
        self.features |= {name for name, has in {"decay": self.decay is not None, "beta": self.beta is not None, "rows": self.n >= 66,
                                                 "past": self.past is not None}.items() if has}

    def give(self, name, x):
        self.tensors[name] = (ROUND[self.kind](x), self.kind)
        return self.tensors[name][0]

    def problem(self, **changes):
        fields = {name: getattr(self, name) for name in ("Q", "K", "V", "decay", "beta", "past", "scale")}
        return {**fields, **changes}

    def texts(self):
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.options.items()}

    def __str__(self):
        sizes = f"heads {self.heads}, n {self.n}, d {self.K.shape[-1]}, d_v {self.V.shape[-1]}"
        return f"{PATH} {self.kind}, {sizes}, {self.options}, {sorted(self.features)}"


class Run:
    """One kernel on one problem. The delta rules are computed one position after another by all kernels."""

    def __init__(self, kernel, problem, kind, exact=None, faults=frozenset()):
        self.kernel, self.kind, self.faults, self.exact = kernel, kind, faults, exact is not None
        self.inner = exact or (np.float64 if kind == "float64" else np.float32)
        given = {name: None if x is None else np.asarray(x, self.inner) for name, x in problem.items()}
        self.Q, self.K, self.V, self.beta, self.scale = (given[name] for name in ("Q", "K", "V", "beta", "scale"))
        self.decay = np.zeros(self.Q.shape[:-1], self.inner) if given["decay"] is None else given["decay"]
        self.start = np.zeros((*self.Q.shape[:2], self.Q.shape[-1], self.V.shape[-1]), self.inner) if given["past"] is None else given["past"]

    def rounded(self, x, field="result"):
        return x if self.exact else ROUND[self.kernel.type_of(field, self.kind)](x)

    def narrowed(self, x, field):
        kind = self.kernel.type_of(field, self.kind)
        return x if self.exact or kind is None else narrow(x, kind).astype(self.inner)

    def product(self, a, b):
        return np.matmul(self.narrowed(a, "product"), self.narrowed(b, "product"))

    def results(self):
        with np.errstate(all="ignore"):
            output, state = self.chunked() if self.kernel.form == "chunked" and self.beta is None else self.recurrent()
        return {"output": self.rounded(output), "present_state": self.rounded(state)}

    def recurrent(self, square=False):
        """With `square`, returns the sums of the squares of the terms instead, for yardsticks."""
        S, rows = self.start.copy(), []
        Q, K, V, scale = (x * x if square else x for x in (self.Q, self.K, self.V, self.scale))
        S = S * S if square else S
        for i in range(Q.shape[-2]):
            q, k, v = Q[..., i, :, None], K[..., i, :, None], V[..., i, None, :]
            S = S * np.exp(self.decay[..., i] * (2 if square else 1))[..., None, None]
            if "sees itself too late" in self.faults:
                rows.append(scale * (q * S).sum(-2))
            if "forgets at 64" in self.faults and i % 64 == 0:
                S = np.zeros_like(S)
            if self.beta is not None:
                beta = self.beta[..., i, None, None]
                v = beta * beta * (v + (k * S).sum(-2, keepdims=True)) if square else beta * (v - (k * S).sum(-2, keepdims=True))
            S = S + k * v
            if "sees itself too late" not in self.faults:
                rows.append(scale * (q * S).sum(-2))
        return np.stack(rows, -2), S

    def chunked(self):
        S, rows = self.start, []
        for at in range(0, self.Q.shape[-2], self.kernel.block):
            part = slice(at, at + self.kernel.block)
            q, k, v, G = self.Q[..., part, :], self.K[..., part, :], self.V[..., part, :], np.cumsum(self.decay[..., part], -1)[..., None]
            if "forgets at 64" in self.faults and at % 64 == 0:
                S = np.zeros_like(S)
            seen = np.tri(q.shape[-2], k=-1 if "sees itself too late" in self.faults else 0, dtype=bool)
            A = np.where(seen, self.product(q, k.swapaxes(-1, -2)) * np.exp(np.where(seen, G - G.swapaxes(-1, -2), 0)), 0)
            rows.append(self.scale * (self.product(self.narrowed(A, "weight"), v) + np.exp(G) * self.product(q, self.narrowed(S, "weight"))))
            last = G[..., -1:, :]
            S = S * np.exp(last) + self.product(self.narrowed(k * np.exp(last - G), "weight").swapaxes(-1, -2), v)
        return np.concatenate(rows, -2), S


EXACT = Kernel("exact", (), "recurrent")


def exact(problem, kind):
    return Run(EXACT, problem, kind, np.longdouble if kind == "float64" else np.float64).results()


class Model:
    """Predicts the variance of a result: a rounding of each term in the type of the products, and of each sum."""

    def __init__(self, problem, _, kind, wide):
        run = Run(EXACT, problem, kind, np.float64)
        steps = UNIT["float64" if wide else "float32"] ** 2 * run.Q.shape[-2]
        output, state = run.recurrent(square=True)
        self.variance = {"output": MEAN**2 * (UNIT[kind] ** 2 + steps) * output, "present_state": MEAN**2 * (UNIT[kind] ** 2 + steps) * state}

    def of(self, name):
        return self.variance[name]


class LinearYardstick(Yardstick):
    Model = Model


def without(**changes):
    return lambda call: call.problem(**changes)


def state_again(call, results):
    results["present_state"] *= np.exp(call.decay[..., -1])[..., None, None]


FAULTS = (
    Fault("linear: decay forgotten", ("decay",), problem=without(decay=None)),
    Fault("linear: beta forgotten", ("beta",), problem=without(beta=None)),
    Fault("linear: past_state forgotten", ("past",), problem=without(past=None)),
    Fault("linear: scale is 1", problem=without(scale=1.0)),
    Fault("linear: the state is lost after 64 rows", ("rows",), inside="forgets at 64"),
    Fault("linear: a row does not see itself", inside="sees itself too late"),
    Fault("linear: present_state decays twice", ("decay",), results=state_again),
    Fault("linear: second half of output x 1.05", ("rows",), results=times("output", 1.05, 0.5)),
    Fault("linear: one row of output is the next one", results=one_row("output")),
    Fault("linear: one number of present_state", results=one_element("present_state")),
    Fault("linear: rows of output shifted by one", results=shifted("output")),
)
