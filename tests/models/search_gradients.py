"""Compares the daemon's gradients with those of PyTorch's autograd in float64, for calls that are drawn with every option and form.
search_gradients.py [--calls N] [--seed S] [--seconds T] [--case SEED] [--verbose]"""

import argparse
import collections
import json
import math
import random
import sys
import tempfile
import time

import torch
from eager import SAFETENSORS, Daemon
from safetensors.torch import load, save

# The most that a gradient may differ, by the largest gradient of its call.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}


def stacked(rows):
    """Joins matrices (batch, rows, columns) of heads to (batch, heads, rows, columns), padded with columns of zeros."""
    widest = max(x.shape[-1] for x in rows)
    return torch.stack([torch.nn.functional.pad(x, (0, widest - x.shape[-1])) for x in rows], 1)


class Call:
    """A drawn call: its tensors and options as the request has them, and its results by the formulas.

    `given` has the tensors, and `inputs` what has a gradient: the same, or projected rows. Heads with weights of their own have a list
    of tensors. Inside, Q is (batch, heads, n, d), and K and V have all keys in their rows. Everything is computed in `dtype`."""

    def __init__(self, seed, dtype=torch.float64):
        self.dtype = dtype
        self.draw, self.numbers = random.Random(seed), torch.Generator().manual_seed(seed)
        self.given, self.inputs, self.options, self.upstream = {}, {}, {}, {}
        self.draw_sizes()
        if self.projected:
            self.draw_projections()
        else:
            self.draw_matrices()
        self.draw_rules()
        self.draw_rotation()
        self.draw_gate()
        self.results = self.compute()
        self.draw_loss()

    # ------------------------------------------------------------------------------------------------------------- draws
    def chance(self, one_in):
        return self.draw.randrange(one_in) == 0

    def size(self, most):
        """Draws a size from 1 on. Small sizes are frequent."""
        return int((most + 1) ** self.draw.random())

    def normal(self, *shape, size=1.0):
        """Draws numbers that float32 has, too."""
        return (torch.randn(shape, generator=self.numbers) * size).to(self.dtype).requires_grad_()

    def give(self, name, *shape, size=1.0):
        self.given[name] = self.inputs[name] = self.normal(*shape, size=size)
        return self.given[name]

    def draw_sizes(self):
        long = self.chance(20)
        self.projected, self.batched, self.alone = self.chance(2), self.chance(2), False
        self.batch = self.draw.randint(1, 3) if self.batched else 1
        self.kv_heads = self.draw.randint(1, 3)
        self.heads = self.kv_heads * self.draw.choice((1, 1, 2, 3))
        self.n, self.m = self.size(300 if long else 24), self.size(700 if long else 24)
        self.d, self.d_v = self.size(150 if long else 20), self.size(150 if long else 20)
        self.past = self.size(12) if self.chance(3) else 0
        self.style, self.extra = None, 0

    def leading(self, batch, heads):
        """The leading axes of a tensor that has an axis for the batch if there is one, and for the heads if there is one."""
        return (batch,) * self.batched + (heads,) * self.headed

    def draw_matrices(self):
        """Draws Q, K and V, or X."""
        self.packed = self.chance(3)
        self.headed = self.packed or self.batched or self.chance(2)
        if not self.headed:
            self.heads = self.kv_heads = 1
        self.alone = self.chance(5)
        if self.alone:
            self.kv_heads, self.m, self.d_v = self.heads, self.n, self.d
        if self.packed:
            self.options["heads"] = self.heads
            if self.kv_heads != self.heads or self.chance(2):
                self.options["kv_heads"] = self.kv_heads
        dropped = 0 if self.alone or self.chance(2) else self.draw.randint(0, self.batched if self.packed else self.batched + self.headed)
        if dropped == 1 + self.batched:  # K has no axis for the heads
            self.kv_heads = 1

        def shape(heads, rows, columns, first=0):
            return (*(self.batch,) * self.batched, rows, heads * columns)[first:] if self.packed \
                else (*self.leading(self.batch, heads), rows, columns)[first:]
        if self.alone:
            x = self.give("X", *shape(self.heads, self.n, self.d))
            self.inputs.update({name: x.clone() for name in "QKV"})
        else:
            self.give("Q", *shape(self.heads, self.n, self.d))
            self.give("K", *shape(self.kv_heads, self.m, self.d, dropped))
            self.give("V", *shape(self.kv_heads, self.m, self.d_v, dropped))
        if self.past:
            self.give("past_K", *shape(self.kv_heads, self.past, self.d, dropped))
            self.give("past_V", *shape(self.kv_heads, self.past, self.d_v, dropped))
        for name, heads, columns in ("b_Q", self.heads, self.d), ("b_K", self.kv_heads, self.d), ("b_V", self.kv_heads, self.d_v):
            if self.chance(4):
                self.give(name, *((heads, columns) if self.chance(2) else (heads * columns,)))
        self.shared = dropped > 0

    def draw_projections(self):
        self.packed, self.shared, self.alone = False, False, False
        self.style = self.draw.choice(("columns", "stacked", "list"))
        self.headed = self.style != "columns" or self.chance(2)
        if not self.headed:
            self.heads = self.kv_heads = 1
        if self.style == "list":
            self.kv_heads, self.past = self.heads, 0
        elif self.headed and (self.style == "columns" or self.chance(2)):
            self.options["heads"] = self.heads
            if self.kv_heads != self.heads or self.chance(2):
                self.options["kv_heads"] = self.kv_heads
        even = self.style != "list" or self.chance(2)
        self.ds, self.d_vs = ([d if even else self.size(20) for _ in range(self.heads)] for d in (self.d, self.d_v))
        self.d, self.d_v = max(self.ds), max(self.d_vs)
        self.out_in = self.chance(2)
        if self.out_in or self.chance(2):
            self.options["weight_layout"] = "out_in" if self.out_in else "in_out"
        inner = self.draw_inputs()
        for name, heads, columns, rows in zip("QKV", (self.heads, self.kv_heads, self.kv_heads), (self.ds, self.ds, self.d_vs), inner):
            self.draw_weights(name, heads, columns, rows)
        if self.past:
            self.give("past_K", *self.leading(self.batch, self.kv_heads), self.past, self.d)
            self.give("past_V", *self.leading(self.batch, self.kv_heads), self.past, self.d_v)
        if self.chance(2):
            total, columns = sum(self.d_vs), self.size(20)
            self.give("W_O", *((columns, total) if self.out_in else (total, columns)), size=total ** -0.5)
            if self.chance(2):
                self.give("b_O", columns)
        self.draw_extra_keys()

    def draw_inputs(self):
        """Draws X, context and value_context. Returns the columns of the inputs of Q, K and V."""
        inner = [self.size(24)] * 3
        items = (self.batch,) * self.batched
        self.give("X", *items, self.n, inner[0])
        if self.chance(2):
            inner[1:] = [self.size(24)] * 2
            self.give("context", *items, self.m, inner[1])
        else:
            self.m = self.n
        if self.chance(3):
            inner[2] = self.size(24)
            self.give("value_context", *items, self.m, inner[2])
        return inner

    def draw_weights(self, name, heads, columns, rows):
        def shape(columns):
            return (columns, rows) if self.out_in else (rows, columns)
        size, biased = rows ** -0.5, self.chance(2)
        if self.style == "list":
            self.given["W_" + name] = self.inputs["W_" + name] = [self.normal(*shape(d), size=size) for d in columns]
            if biased:
                self.given["b_" + name] = self.inputs["b_" + name] = [self.normal(d) for d in columns]
        elif self.style == "stacked":
            self.give("W_" + name, heads, *shape(columns[0]), size=size)
            if biased:
                self.give("b_" + name, *((heads, columns[0]) if self.chance(2) else (heads * columns[0],)))
        else:
            self.give("W_" + name, *shape(heads * columns[0]), size=size)
            if biased:
                self.give("b_" + name, heads * columns[0])

    def draw_extra_keys(self):
        biased, zero = self.chance(4), self.chance(4)
        self.extra = biased + zero
        if zero:
            self.options["zero_key"] = True
        for name, columns in (("bias_K", self.ds), ("bias_V", self.d_vs)) if biased else ():
            columns = columns[:self.kv_heads]
            rows = self.headed and self.style != "list" and self.chance(2)
            self.give(name, *((self.kv_heads, columns[0]) if rows else (sum(columns),)))

    def broadcast(self):
        """Draws a shape that is broadcast to (batch, heads, n, m)."""
        full = (self.batch, self.heads, self.n, self.past + self.m)
        return [1 if self.chance(4) else size for size in full[self.draw.randint(0, 2):]]

    def forbidden(self, shape):
        """Draws what is forbidden: sometimes all."""
        share = 1 if self.chance(5) else self.draw.random() / 2
        return torch.rand(shape, generator=self.numbers) < share

    def draw_rules(self):
        options, keys = self.options, self.past + self.m
        if self.chance(3):
            mask = ~self.forbidden(self.broadcast())
            if mask.any() or self.chance(2):
                self.given["mask"] = mask
        if self.chance(3):
            with torch.no_grad():
                bias = self.give("bias", *self.broadcast())
                if self.chance(2):
                    bias[self.forbidden(bias.shape)] = -torch.inf
        if self.chance(2):
            options["causal"] = self.draw.choice((True, False, "bottom_right"))
        if self.chance(3) and options.get("causal") != "bottom_right":
            options["alignment"] = self.draw.choice(("top_left", "bottom_right"))
        if self.chance(3):
            options["window"] = [self.draw.randint(-1, 20) for _ in range(2)]
        if self.chance(3):
            scales = [0 if self.chance(5) else self.draw.uniform(-1, 1) * self.d ** -0.5 for _ in range(self.heads)]
            options["scale"] = scales if self.chance(2) else scales[0]
        if self.chance(3):
            options["softcap"] = self.draw.uniform(0.5, 5)
        if self.chance(3):
            options["normalization"] = self.draw.choice(("softmax", "none", "sigmoid"))
            if options["normalization"] == "sigmoid" and self.chance(2):
                options["sigmoid_bias"] = -math.log(keys)
        self.softmax = options.get("normalization", "softmax") == "softmax"
        if self.chance(3) and self.extra == 0:
            self.give("alibi", self.heads, size=0.3)
        if self.chance(3) and self.softmax:
            self.give("sink", self.heads)
        if self.chance(3):
            options["lengths"] = [self.draw.randint(0, keys) for _ in range(self.batch)]
        if self.chance(3):
            exists = ~self.forbidden((self.batch, keys))
            self.given["key_padding"] = exists[0] if self.batch == 1 and self.chance(2) else exists

    def draw_rotation(self):
        alike, alike_v = (len(set(sizes)) == 1 for sizes in (self.ds, self.d_vs)) if self.projected else (True, True)
        for name, heads, d, fits in ("norm_Q", self.heads, self.d, alike), ("norm_K", self.kv_heads, self.d, alike), \
                ("norm_V", self.kv_heads, self.d_v, alike_v):
            columns = d * (heads if self.chance(3) else 1)
            if self.chance(4) and columns > 1 and fits:  # the norm of one number is its sign, whose gradient cancels
                self.give(name, columns, size=0.5)
        if {"norm_Q", "norm_K", "norm_V"} & set(self.given) and self.chance(2):
            self.options["norm_epsilon"] = self.draw.choice((0, 1e-3))
        if self.d > 1 and alike and self.chance(3):
            self.draw_rotary()

    def draw_rotary(self):
        first = int(self.positions().min())
        pairs = self.d // 2
        rotary = {"interleaved": True} if self.chance(2) else {}
        if self.d % 2 or self.chance(2):
            pairs = self.draw.randint(1, pairs)
            rotary["columns"] = 2 * pairs
        rotary["offset"] = max(0, -first) + (0 if self.chance(2) else self.draw.randint(1, 50))
        most = rotary["offset"] + self.n + self.past + self.m
        items = (self.batch,) * (self.batched and not self.shared and self.chance(2))
        if self.n == self.m and self.chance(2):
            self.given["positions"] = torch.randint(0, most, (*items, self.n), generator=self.numbers).to(self.dtype)
        if self.chance(3):
            for name in "rotary_cos", "rotary_sin":
                self.given[name] = self.normal(*items, most, pairs, size=0.7).detach()
        elif self.chance(2):
            rotary["base"] = self.draw.uniform(2, 100)
        self.options["rotary"] = rotary
        self.pairs, self.turning, self.divisor = pairs, pairs, 1
        if "rotary_cos" not in self.given and self.chance(3):
            self.turning = self.draw.randint(1, pairs)
            rotary["scaling"] = {"rope_type": "proportional"}
            if self.turning < pairs or self.chance(2):  # half a pair more is rounded down
                rotary["scaling"]["partial_rotary_factor"] = min(1, (self.turning + 0.5) / pairs)
            if self.chance(2):
                self.divisor = rotary["scaling"]["factor"] = self.draw.uniform(1, 4)

    def draw_gate(self):
        """Draws the output gate, or its projection: a number for each number of the outputs of the heads, or one for each head."""
        if not self.chance(3):
            return
        few, flat = self.chance(3), self.packed or self.projected
        d_vs = self.d_vs if self.projected else [self.d_v] * self.heads
        total = self.heads if few else sum(d_vs)
        if self.projected and self.chance(2):
            rows, biased = self.given["X"].shape[-1], self.chance(2)
            stack = self.style == "stacked" and self.chance(2)
            columns = total // self.heads if stack else total
            shape = (columns, rows) if self.out_in else (rows, columns)
            self.give("W_G", *(self.heads,) * stack, *shape, size=rows ** -0.5)
            if biased:
                self.give("b_G", *((self.heads, columns) if stack and self.chance(2) else (total,)), size=3)
            return
        shape = ((self.batch,) * self.batched + (self.n, total)) if flat else (*self.leading(self.batch, self.heads), self.n, 1 if few else self.d_v)
        self.give("gate", *shape[1 if self.batched and self.chance(4) else 0:], size=3)

    def draw_loss(self):
        """Draws the gradients of results, and the gradients that are wanted."""
        names = [name for name in self.results if self.chance(2)] or ["output"]
        for name in names:
            self.upstream[name] = self.normal(*self.results[name].shape).detach()
        self.wanted = list(self.inputs) if self.chance(2) else self.draw.sample(
            sorted(self.inputs), self.draw.randint(1, len(self.inputs)))
        self.options["return"] = ["grad_" + name for name in self.wanted]
        if self.options.get("mean_over_heads") or self.chance(4):
            self.options["return"].append("weights")
        if self.chance(2):
            self.options["return"].append("output")

    # ---------------------------------------------------------------------------------------------------------- formulas
    def split(self, x, heads):
        """Returns a matrix as (batch, heads, rows, columns)."""
        if self.packed:
            x = x.unflatten(-1, (heads, -1)).transpose(-2, -3)
        elif not self.headed:
            x = x.unsqueeze(-3)
        return x[(None,) * (4 - x.dim())]

    def form(self, x):
        """Drops the axes that the results do not have."""
        x = x if self.headed else x[:, 0]
        return x if self.batched else x[0]

    def project(self, name, heads, x):
        """Returns (batch, heads, rows, columns). Shorter rows of a head are padded with zeros."""
        weights, biases = self.given["W_" + name], self.given.get("b_" + name)
        x = x if self.batched else x[None]
        if self.style == "columns":
            weights = weights.T if self.out_in else weights
            rows = (x @ weights + (0 if biases is None else biases)).unflatten(-1, (heads, -1)).transpose(1, 2)
        else:
            biases = [0] * heads if biases is None else biases
            biases = biases.view(heads, -1) if isinstance(biases, torch.Tensor) else biases
            rows = [x @ (w.T if self.out_in else w) + b for w, b in zip(weights, biases)]
            rows = stacked(rows)
        return rows

    def kept(self, name, x, columns):
        """Keeps the rows of a projected Q, K or V as an input, in the form of the results. Returns them as (batch, heads, rows, columns)."""
        if not self.projected:
            return x
        if self.style == "list":
            rows = [row[..., :d].clone() for row, d in zip(x.unbind(1), getattr(self, columns))]
            if not self.batched:
                rows = [row[0] for row in rows]
            self.inputs[name] = rows
            return stacked([row if self.batched else row[None] for row in rows])
        self.inputs[name] = self.form(x)
        return self.split(self.inputs[name], x.shape[1])

    def rows(self):
        """Returns Q and the new rows of K and V."""
        heads = self.heads, self.kv_heads, self.kv_heads
        if not self.projected:
            biases = [self.given["b_" + name].view(count, 1, -1) if "b_" + name in self.given else 0 for name, count in zip("QKV", heads)]
            return [self.split(self.inputs[name], count) + bias for name, count, bias in zip("QKV", heads, biases)]
        inputs = [self.given["X"]]
        inputs.append(self.given.get("context", inputs[-1]))
        inputs.append(self.given.get("value_context", inputs[-1]))
        return [self.project(*each) for each in zip("QKV", heads, inputs)]

    def positions(self):
        """Returns the positions of the queries, (batch, n)."""
        bottom = "bottom_right" in (self.options.get("alignment"), self.options.get("causal"))
        lengths = torch.tensor(self.options.get("lengths", [self.past + self.m] * self.batch))
        first = lengths - self.n if bottom else torch.full((self.batch,), self.past)
        return first[:, None] + torch.arange(self.n)

    def norm(self, x, name):
        weights = self.given.get(name)
        if weights is None:
            return x
        d = x.shape[-1]
        whole = weights.numel() != d
        squares = x.square().mean((1, 3) if whole else 3, keepdim=True)
        return x / (squares + (self.options.get("norm_epsilon") or 1e-6)).sqrt() * (weights.view(-1, 1, d) if whole else weights)

    def turn(self, x, positions):
        """Turns rows (batch, heads, rows, d) at positions (batch or 1, rows)."""
        rotary = self.options.get("rotary")
        if rotary is None:
            return x
        if "positions" in self.given:
            positions = self.given["positions"]
            positions = positions if positions.dim() == 2 else positions[None]
        else:
            positions = positions + rotary["offset"]
        if "rotary_cos" in self.given:
            tables = [self.given[name] for name in ("rotary_cos", "rotary_sin")]
            items = max(positions.shape[0], tables[0].shape[0] if tables[0].dim() == 3 else 1)
            rows = positions.long().expand(items, -1)
            cos, sin = ((t if t.dim() == 3 else t[None]).expand(items, -1, -1)[torch.arange(items)[:, None], rows][:, None] for t in tables)
        else:
            frequencies = rotary.get("base", 10000) ** (-torch.arange(self.pairs).to(self.dtype) / self.pairs) / self.divisor
            frequencies[self.turning:] = 0
            angles = positions[:, None, :, None] * frequencies
            cos, sin = angles.cos(), angles.sin()
        turned = x[..., :2 * self.pairs]
        a, b = (turned[..., ::2], turned[..., 1::2]) if rotary.get("interleaved") else turned.chunk(2, -1)
        both = a * cos - b * sin, b * cos + a * sin
        both = torch.stack(both, -1).flatten(-2) if rotary.get("interleaved") else torch.cat(both, -1)
        return torch.cat((both, x[..., 2 * self.pairs:]), -1)

    def all_keys(self, k, v):
        """Puts past keys before, and extra keys after K and V."""
        def extra(name, columns):
            rows = []
            if "bias_K" in self.given:
                given = self.given[name].reshape(-1).split(columns[:self.kv_heads])
                rows.append(stacked([x[None, None] for x in given]))
            if "zero_key" in self.options:
                rows.append(torch.zeros(1, self.kv_heads, 1, max(columns)).to(self.dtype))
            return [row.expand(self.batch, -1, -1, -1) for row in rows]
        if self.past:
            k, v = (torch.cat((self.split(self.given[name], self.kv_heads), x), 2) for name, x in (("past_K", k), ("past_V", v)))
        if self.extra:
            k, v = (torch.cat((x, *extra(*each)), 2) for x, each in ((k, ("bias_K", self.ds)), (v, ("bias_V", self.d_vs))))
        return [x.repeat_interleave(self.heads // x.shape[1], 1) for x in (k, v)]

    def allowed(self, at):
        """Returns which query may attend to which key, (batch, heads, n, m) or less of it."""
        keys, options = torch.arange(self.past + self.m), self.options
        allowed = torch.ones(self.batch, self.heads, self.n, len(keys), dtype=torch.bool)
        left, right = options.get("window", (-1, -1))
        right = min(right, 0) if right >= 0 and options.get("causal") else 0 if options.get("causal") else right
        if right >= 0:
            allowed = allowed & (keys <= at + right)
        if left >= 0:
            allowed = allowed & (keys >= at - left)
        if "lengths" in options:
            allowed = allowed & (keys < torch.tensor(options["lengths"])[:, None, None, None])
        if "key_padding" in self.given:
            allowed = allowed & self.given["key_padding"].view(-1, 1, 1, len(keys))
        if "mask" in self.given:
            allowed = allowed & self.given["mask"]
        if "bias" in self.given:
            allowed = allowed & (self.given["bias"] != -torch.inf)
        return torch.nn.functional.pad(allowed, (0, self.extra), value=True)

    def masked_scores(self, q, k, at):
        d = torch.tensor(self.ds if self.projected else [self.d] * self.heads).to(self.dtype)
        given = torch.tensor(self.options.get("scale", 0), dtype=self.dtype)
        scale = given.view(-1, 1, 1) if "scale" in self.options else d[:, None, None].rsqrt()
        scores = scale * (q @ k.transpose(-1, -2))
        if "softcap" in self.options:
            scores = self.options["softcap"] * torch.tanh(scores / self.options["softcap"])
        if "bias" in self.given:
            bias = self.given["bias"]
            bias = torch.where(bias == -torch.inf, 0, bias).expand(*bias.shape[:-1], self.past + self.m)
            scores = scores + torch.nn.functional.pad(bias, (0, self.extra))
        if "alibi" in self.given:
            scores = scores - self.given["alibi"][:, None, None] * (at - torch.arange(k.shape[-2])).abs()
        return scores

    def weigh(self, scores):
        """Returns the weights and, if there is one, the lse of each row."""
        if not self.softmax:
            none = self.options["normalization"] == "none"
            weights = scores if none else torch.sigmoid(scores + self.options.get("sigmoid_bias", 0))
            return torch.where(self.may, weights, 0), None
        most = scores.detach().masked_fill(~self.may, -torch.inf).amax(-1, keepdim=True)
        sink = self.given["sink"][:, None, None] if "sink" in self.given else None
        if sink is not None:
            most = most.maximum(sink.detach())
        most = most.masked_fill(most == -torch.inf, 0)
        powers = torch.where(self.may, torch.where(self.may, scores, most) - most, -torch.inf).exp()
        total = powers.sum(-1, keepdim=True) + (0 if sink is None else (sink - most).exp())
        safe = torch.where(total == 0, 1, total)
        return powers / safe, torch.where(total == 0, 0, most + safe.log())[..., 0]

    def gate(self):
        """Returns the output gate as (batch, heads, n, columns)."""
        gate = self.given.get("gate")
        if "W_G" in self.given:
            x, weights = self.given["X"], self.given["W_G"]
            weights = weights.transpose(-1, -2) if self.out_in else weights
            weights = weights if weights.dim() == 2 else torch.cat(weights.unbind(0), -1)
            gate = x @ weights + self.given.get("b_G", torch.zeros(1, dtype=self.dtype)).flatten()
        if not self.packed and not self.projected:
            return gate if self.headed else gate.unsqueeze(-3)
        gate = gate if gate.dim() == 3 else gate[None]
        if gate.shape[-1] == self.heads:
            return gate.transpose(1, 2)[..., None]
        return stacked(gate.split(self.d_vs if self.projected else self.d_v, -1))

    def compute(self):
        """Returns output, weights and lse in the forms of the answer."""
        at = self.positions()
        q, k, v = self.rows()
        q = self.kept("Q", self.turn(self.norm(q, "norm_Q"), at), "ds")
        k = self.kept("K", self.turn(self.norm(k, "norm_K"), (self.past + torch.arange(self.m))[None]), "ds")
        k, v = self.all_keys(k, self.kept("V", self.norm(v, "norm_V"), "d_vs"))
        at = at[:, None, :, None]
        self.may = self.allowed(at)
        weights, lse = self.weigh(self.masked_scores(q, k, at))
        output = weights @ v
        if {"gate", "W_G"} & set(self.given):
            output = torch.sigmoid(self.gate()) * output
        if self.projected:
            output = torch.cat([x[..., :d] for x, d in zip(output.unbind(1), self.d_vs)], -1)
            if "W_O" in self.given:
                output = output @ (self.given["W_O"].T if self.out_in else self.given["W_O"]) + self.given.get("b_O", 0)
            output = output if self.batched else output[0]
        elif self.packed:
            output = output.transpose(1, 2).flatten(-2)
            output = output if self.batched else output[0]
        else:
            output = self.form(output)
        results = {"output": output}
        if lse is not None:
            results["lse"] = self.form(lse)
        if self.headed and self.chance(6):
            self.options["mean_over_heads"] = True
            weights = weights.mean(1)
            results["weights"] = weights if self.batched else weights[0]
        else:
            results["weights"] = self.form(weights)
        return results

    # ------------------------------------------------------------------------------------------------------- comparison
    def gradients(self):
        """Returns the gradients by all inputs, with their names in the answer."""
        loss = sum((self.upstream[name] * self.results[name]).sum() for name in self.upstream)
        names, tensors = [], []
        for name, given in self.inputs.items():
            for i, x in enumerate(given if isinstance(given, list) else [given]):
                names.append(f"grad_{name}.{i}" if isinstance(given, list) else f"grad_{name}")
                tensors.append(x)
        if not loss.requires_grad:
            return {name: torch.zeros_like(x) for name, x in zip(names, tensors)}
        grads = torch.autograd.grad(loss, tensors, allow_unused=True)
        return {name: torch.zeros_like(x) if g is None else g for name, x, g in zip(names, tensors, grads)}

    def body(self, dtype):
        tensors, options = {}, dict(self.options)
        given = {**self.given, **{"grad_" + name: x for name, x in self.upstream.items()}}
        for name, x in given.items():
            if not isinstance(x, list):
                tensors[name] = x.detach().to(x.dtype if x.dtype == torch.bool else dtype).contiguous()
        options = {"dtype": str(dtype).rsplit(".", maxsplit=1)[-1], **options}
        if self.style == "list":
            lists = {name: x for name, x in self.given.items() if isinstance(x, list)}
            options["heads"] = [{name: x[h].tolist() for name, x in lists.items()} for h in range(self.heads)]
            return json.dumps({**options, **{name: x.tolist() for name, x in tensors.items()}}).encode(), "application/json"
        return save(tensors, {name: x if name == "dtype" else json.dumps(x) for name, x in options.items()}), SAFETENSORS

    def exact_zeros(self, answer):
        """Yields the names of gradients that are not zero in rows of a query without a key, or of a key without a query."""
        queries, keys = self.may.any(-1), self.may.any(-2)
        for name, may in ("Q", queries), ("K", keys[..., self.past:self.past + self.m]), ("V", keys[..., self.past:self.past + self.m]), \
                ("past_K", keys[..., :self.past]), ("past_V", keys[..., :self.past]):
            got, norm = answer.get("grad_" + name), self.given.get("norm_" + name)
            columns = 0 if got is None else got.shape[-1] // (1 if got.ndim > 3 else self.heads if name == "Q" else self.kv_heads)
            if got is None or (norm is not None and norm.numel() != columns):  # a norm over all heads mixes them
                continue
            got = self.split(got, self.heads if name == "Q" else self.kv_heads)
            if got.shape[0] == 1:
                may = may.any(0, keepdim=True)
            may = may.unflatten(1, (got.shape[1], -1)).any(2)
            if got[~may.expand(got.shape[:3])].any():
                yield f"grad_{name} is not zero where nothing is attended to"


PATHS = "/attention", "/multi-head-attention"


def terms_of(call):
    """Returns the largest sum of the terms that the loss has from one row, which cancel if a query has a single key."""
    return max(float((given * call.results[name]).detach().abs().nan_to_num(0).sum(-1).max()) for name, given in call.upstream.items())


def own_error(seed, name, want):
    """Returns the error of PyTorch's gradient in float32. It is large if the call amplifies the rounding of its inputs."""
    return float((Call(seed, torch.float32).gradients()[name] - want).abs().max())


def compare(call, seed, daemon, dtype):
    """Returns the faults, and {name: error by the largest gradient}."""
    expected = call.gradients()
    body, kind = call.body(dtype)
    status, answer = daemon.send("POST", PATHS[call.projected], body, {"Content-Type": kind, "Accept": SAFETENSORS})
    if status != 200:
        return [f"{status} {answer.decode(errors='replace').strip()}"], {}
    answer = load(answer)
    names = {name for name in answer if name.startswith("grad_")}
    wanted = {name for name in expected if name.split(".")[0] in call.options["return"]}
    if names != wanted:
        return [f"the answer has {sorted(names)}, not {sorted(wanted)}"], {}
    faults, errors = [], {}
    # The terms of the loss may cancel in all gradients. Float64 has digits enough for that.
    least = max(0.1, terms_of(call)) if dtype == torch.float32 else 0.1
    largest = max(least, *(float(x.abs().max()) for x in expected.values()))
    for name in sorted(wanted):
        want = expected[name]
        got = answer[name].double()
        if got.shape != want.shape:
            faults.append(f"{name} has shape {tuple(got.shape)}, not {tuple(want.shape)}")
            continue
        error = float((got - want).abs().max())
        errors[name.split(".")[0]] = error / largest if largest else error
        # The gradient of a slope is a sum of numbers that cancel, each multiplied by a distance.
        distances = max(1, (call.past + max(call.n, call.m)) / 10) if name == "grad_alibi" and dtype == torch.float32 else 1
        bound = TOLERANCES[dtype] * largest * distances
        if not error <= bound and not (dtype == torch.float32 and error <= 4 * own_error(seed, name, want)):
            faults.append(f"{name} is off by {error:.3g}; the largest gradient is {largest:.3g}, and the largest of {name} "
                          f"{float(want.abs().max()):.3g}")
    if "output" in answer:
        want = call.results["output"].detach()
        largest, error = max(1.0, float(want.abs().max())), float((answer["output"].double() - want).abs().max())
        errors["output"] = error / largest
        if not error <= TOLERANCES[dtype] * largest:
            faults.append(f"output is off by {error:.3g}; its largest number is {largest:.3g}")
    return faults + list(call.exact_zeros(answer)), errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1, help="of the first call")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--verbose", action="store_true", help="print each wrong request")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    worst, wrong, compared = collections.defaultdict(lambda: (0.0, 0)), 0, 0
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(folder)
        for seed in range(arguments.seed, arguments.seed + arguments.calls):
            if time.monotonic() > end:
                break
            for dtype in TOLERANCES:
                call = Call(seed)
                faults, errors = compare(call, seed, daemon, dtype)
                compared += len(errors)
                for name, error in errors.items():
                    worst[dtype, name] = max(worst[dtype, name], (error, seed))
                for fault in faults:
                    print(f"seed {seed} {dtype}: {fault}", flush=True)
                    if arguments.verbose:
                        print({name: [tuple(y.shape) for y in x] if isinstance(x, list) else tuple(x.shape)
                               for name, x in {**call.given, **call.upstream}.items()}, call.options)
                wrong += bool(faults)
        daemon.stop()
    for dtype in TOLERANCES:
        print(dtype, *(f"{name} {error:.2g} ({seed})" for (of, name), (error, seed) in sorted(worst.items(), key=str) if of is dtype))
    print(f"{compared} gradients of {seed + 1 - arguments.seed} calls: {wrong} wrong; the largest errors are "
          + ", ".join(f"{max(e for (of, _), (e, _) in worst.items() if of is dtype):.2g} in {dtype}" for dtype in TOLERANCES))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
