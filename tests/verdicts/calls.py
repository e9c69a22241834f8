"""Draws calls of attention: tensors, the options of the request, and the same as a problem for the kernels."""

import json

import numpy as np
from kernels import Problem
from rounding import LARGEST, ROUND

MOST = {"float64": 96, "float32": 300, "bfloat16": 300, "float16": 300}  # rows of an ordinary call
LONG = (1024, 2048)


class Call:
    """A drawn call. `wanted` names what a fault needs: such a call has it.

    `features` names what the call has. `finite` has the keys that a finite bias hides."""

    path = "/attention"

    def __init__(self, rng, kind, wanted=()):
        self.rng, self.kind, self.wanted = rng, kind, set(wanted)
        self.options, self.tensors, self.features = {}, {}, set()
        self.draw_sizes()
        self.draw_matrices()
        self.draw_rules()
        self.draw_rest()

    def chance(self, share, feature=None):
        hit = self.rng.random() < share or feature in self.wanted
        if hit and feature:
            self.features.add(feature)
        return hit

    def size(self, least, most):
        """Draws a size. Small sizes are frequent."""
        return int(np.exp(self.rng.uniform(np.log(least), np.log(most + 1))))

    def rounded(self, x):
        return ROUND[self.kind](x)

    def give(self, name, x):
        """Puts a matrix into the request."""
        self.tensors[name] = (x, self.kind)
        return x

    def draw_sizes(self):
        self.batch = 2 if self.chance(0.15) else 1
        self.groups = self.rng.choice((1, 2, 3)) if not self.chance(0, "groups") else 2
        repeats = self.rng.choice((1, 1, 2, 3)) if not self.chance(0, "repeats") else 2
        if self.chance(0, "heads") and self.groups * repeats == 1:
            repeats = 2
        least, most = (20 if "rows" in self.wanted else 1), MOST[self.kind]
        self.n, self.m = self.size(least, most), self.size(least, most)
        if self.chance(0.4):
            self.m = self.n
        if "lengths differ" in self.wanted and self.n == self.m:
            self.m = self.n + int(self.rng.integers(1, 50))
        self.d, self.d_v = self.size(1, 128), self.size(1, 128)
        if self.kind != "float64" and (self.chance(0.02) or "128 keys" in self.wanted and self.chance(0.2)):
            self.batch, self.groups, repeats = 1, 1, max(1, 2 * ("heads" in self.wanted))
            self.n = self.m = int(self.rng.integers(*LONG))
            self.d, self.d_v = min(self.d, 64), min(self.d_v, 64)
        elif "128 keys" in self.wanted:
            self.m = max(self.m, int(self.rng.integers(129, 300)))
        self.heads = np.repeat(np.arange(self.groups), repeats)
        self.small = self.batch * len(self.heads) * self.n * self.m <= 200000
        self.features |= {name for name, has in {"groups": self.groups > 1, "repeats": repeats > 1, "heads": len(self.heads) > 1,
                                                 "128 keys": self.m > 128, "rows": self.n >= 20, "lengths differ": self.n != self.m}.items() if has}

    def draw_matrices(self):
        def normal(*shape):
            return self.rng.standard_normal(shape)
        Q, K = normal(self.batch, len(self.heads), self.n, self.d), normal(self.batch, self.groups, self.m, self.d)
        V = normal(self.batch, self.groups, self.m, self.d_v)
        if self.chance(0.15, "large scores"):  # some hundreds
            Q *= np.sqrt(self.rng.uniform(30, 300))
        elif self.chance(0.3):
            Q *= self.rng.uniform(0.1, 4)
        if self.chance(0.2, "mean of K"):
            K += 3
        if self.chance(0.25, "mean of V"):
            V += 5
        if self.chance(0.1):
            V[..., self.rng.integers(self.d_v)] *= 100
        if self.chance(0.3, "unequal heads"):
            sizes = 10 ** self.rng.uniform(-3, 3, self.groups)
            if "unequal heads" in self.wanted and self.groups > 1:
                sizes[0], sizes[1] = 1e-3, 1e1
            V *= sizes[:, None, None]
            if self.chance(0.3):
                Q *= 10 ** self.rng.uniform(-3, 0, len(self.heads))[:, None, None]
        self.Q, self.K, self.V = (self.give(name, self.rounded(x)) for name, x in zip("QKV", (Q, K, V)))

    def draw_rules(self):
        """Draws who may attend to whom, and what is added to the scores."""
        batch, n, m = self.batch, self.n, self.m
        lengths = np.full(batch, m)
        if self.chance(0.12, "lengths"):
            lengths = self.rng.integers(max(1, m // 3), m + 1, batch)
            self.options["lengths"] = lengths.tolist()
        keys, at = np.arange(m), np.arange(n)[:, None]
        offset = np.zeros((batch, 1, 1), int)
        causal = None
        if self.chance(0.35, "causal"):
            causal = self.options["causal"] = "bottom_right" if self.chance(0.4) else True
            if causal == "bottom_right":
                offset = (lengths - n)[:, None, None]
        self.offset, self.causal, self.window = offset, causal, [-1, -1]
        self.lengths = lengths
        if self.chance(0.15, "window"):
            self.window = [int(self.rng.integers(0, max(2, m // 3))) for _ in range(2)]
            self.options["window"] = self.window
        self.mask = None
        if self.chance(0.12, "mask"):
            self.mask = self.rng.random((batch, 1, n, m)) < self.rng.choice((0.5, 0.9))
            self.tensors["mask"] = (self.mask, "bool")
        self.keys, self.at = keys, at
        self.draw_bias()

    def allowed(self, lengths=None, offset=None, causal="own", window=None, mask="own"):
        """Who may attend to whom, (batch, heads or 1, n, m), by the rules of the call or by others."""
        lengths = self.lengths if lengths is None else lengths
        offset = self.offset if offset is None else offset
        left, right = self.window if window is None else window
        place = self.at + offset  # (batch, n, 1)
        allowed = np.broadcast_to(self.keys < lengths[:, None, None], (self.batch, self.n, self.m)).copy()
        if self.causal if causal == "own" else causal:
            allowed &= self.keys <= place
        if left >= 0:
            allowed &= self.keys >= place - left
        if right >= 0:
            allowed &= self.keys <= place + right
        mask = self.mask if isinstance(mask, str) else mask
        return allowed[:, None] if mask is None else allowed[:, None] & mask

    def draw_bias(self):
        """Draws a bias. Some hide keys with a finite number: -1e9, or the least number of the type."""
        self.bias, self.finite = None, np.zeros((1, 1, 1, 1), bool)
        if not self.chance(0.2, "bias") and not self.chance(0.12, "finite mask"):
            return
        heads = len(self.heads) if self.chance(0.3) else 1
        bias = self.rng.standard_normal((1, heads, self.n, self.m)) if "bias" in self.features else np.zeros((1, 1, self.n, self.m))
        if self.chance(0.3, "finite mask"):
            hidden = self.rng.random((self.n, self.m)) < 0.3
            if self.chance(0.5, "padded row"):
                hidden[self.rng.integers(self.n)] = True
            self.finite = hidden[None, None]
            least = self.rng.random() < 0.4
            value = -LARGEST[self.kind] if least else -3e4 if self.kind == "float16" else -1e9
            self.features.add("least number" if least else "-1e9")
            bias = np.where(hidden, value, bias)
        self.bias = self.give("bias", self.rounded(bias))

    def draw_rest(self):
        scale = self.d**-0.5
        if self.chance(0.2):
            scale *= self.rng.uniform(0.3, 2)
        self.scale = self.options["scale"] = float(np.float32(scale))
        self.softcap = self.sink = self.grad = self.gate = None
        if self.chance(0.12, "softcap"):
            self.softcap = self.options["softcap"] = float(np.float32(self.rng.uniform(2, 50)))
        if self.chance(0.12, "sink"):
            self.sink = self.give("sink", self.rounded(self.rng.standard_normal(len(self.heads)) * 2))
        if self.chance(0.12, "gate"):
            self.draw_gate()
        if self.chance(0.5, "gradients"):
            self.draw_loss()

    def draw_gate(self):
        """Draws an output gate. Rows of some are nearly closed, so their numbers are small."""
        few = self.chance(0.3, "gate of a head")
        gate = 2 * self.rng.standard_normal((self.batch, len(self.heads), self.n, 1 if few else self.d_v))
        if self.chance(0.4, "closed rows"):
            gate[..., self.n // 2:, :] -= self.rng.uniform(4, 9)
        self.gate = self.give("gate", self.rounded(gate))

    def draw_loss(self):
        low, high = (-7, 0) if self.kind == "float16" else (-8, 4)
        if "small loss" in self.wanted:
            high = low + 3
        self.loss = 10 ** self.rng.uniform(low, high)
        grad = self.rng.standard_normal((self.batch, len(self.heads), self.n, self.d_v))
        if self.chance(0.2):
            grad += 1
        self.grad = self.give("grad_output", self.rounded(grad * self.loss))
        if self.loss < 1e-5:
            self.features.add("small loss")

    def problem(self, **changes):
        fields = {"Q": self.Q, "K": self.K, "V": self.V, "heads": self.heads, "allowed": self.allowed(), "scale": self.scale, "bias": self.bias,
                  "softcap": self.softcap, "sink": self.sink, "grad": self.grad, "gate": self.gate}
        return Problem(**{**fields, **changes})

    def texts(self):
        """The options as a file has them."""
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.options.items()}

    def __str__(self):
        return (f"{self.kind}, batch {self.batch}, heads {len(self.heads)}/{self.groups}, n {self.n}, m {self.m}, d {self.d}, d_v {self.d_v}, "
                f"{self.options}, {sorted(self.features)}")
