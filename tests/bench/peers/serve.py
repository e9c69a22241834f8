"""serve.py LIBRARY THREADS runs one library in a process of its own, as bench_attention --serve runs ours.

First it prints {"versions": ..., "variants": [...]}. The variants are the ways in which the library
can compute a call. Then it reads lines "VARIANT CALL". It answers each with the seconds of one sample,
or with "- REASON" if that variant cannot compute the call. The result of a variant is first compared
with the formula in float64. Inputs are made once, outside of the timing; so are outputs, if the
library can write to given memory. "VARIANT numbers CALL" asks for numbers of the results of linear
attention, which has no formula here: peers.py compares them with ours.
"""

import functools
import gc
import json
import sys
import time

import numpy as np

# A right result is within 1e-6 of the formula in float32, and within 1e-14 in float64. A result that is
# farther away has a wrong mask or head, or was computed in a narrower type than the call asks for.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}
SPREAD = 997  # numbers of each result that are sent, spread over all of them; as many as print_numbers()
CHECKED_ROWS = 64  # rows of queries, spread over all rows, because the formula in float64 is slow
LARGEST_SCORES = 1 << 30  # bytes; no user would keep more scores than this only to discard them

FOR_LIFE = []  # objects that must last as long as the process

FIELDS = ("heads", "kv_heads", "n", "m", "d", "d_v", "d_model", "float64", "weights", "mask",
          "causal", "window", "packed", "prepacked", "gradients", "linear", "gated", "delta")  # fmt: skip


class Cannot(Exception):
    """A variant that cannot compute the call. The text says why."""


def numbers_of_bench(shape, scale=1.0):
    """Returns the numbers that make_numbers() of bench_attention makes: those of a congruential generator."""
    count, factor, add = int(np.prod(shape)), 1664525, 1013904223
    states = np.array([(12345 * factor + add) % 2**32], np.uint32)
    while len(states) < count:  # one half gives the other: it is so many steps ahead
        states = np.concatenate([states, states * np.uint32(factor) + np.uint32(add)])
        factor, add = factor * factor % 2**32, (factor * add + add) % 2**32
    numbers = states[:count].view(np.int32) / 2147483648.0 * 1.7 * scale
    return numbers.astype(np.float32).reshape(shape)


class Call:
    """A line of the grid: its fields as attributes, its inputs, and the expected results."""

    def __init__(self, line):
        fields = dict(part.split("=") for part in line.split())
        for name in FIELDS:
            setattr(self, name, int(fields.pop(name, 0)))
        if fields:
            raise ValueError(f"no such call: {line}")
        if self.window >= self.n - 1:  # such a window forbids no key that causal allows
            self.window = 0
        self.d_v = self.d_v or self.d
        heads, kv_heads, n, m, d, d_v = self.heads, self.kv_heads, self.n, self.m, self.d, self.d_v
        self.type = np.float64 if self.float64 else np.float32
        self.scale = 1 / np.sqrt(d)
        self.group = heads // kv_heads
        self.score_bytes = heads * n * m * np.dtype(self.type).itemsize
        if self.linear:
            self.make_linear()
            return
        random = np.random.default_rng(1)

        def draw(*shape):  # the variance is about 1
            return (random.random(shape, dtype=self.type) - self.type(0.5)) * self.type(3.4)

        def draw_heads(*shape):  # (count,rows,d); a packed one is (rows,count,d) in memory
            count, rows, columns = shape
            return draw(rows, count, columns).swapaxes(0, 1) if self.packed else draw(*shape)

        if self.d_model:
            self.x = draw(n, self.d_model)
            # With this scale the variance of projections is about 1, too.
            self.w = [draw(self.d_model, columns) / self.type(np.sqrt(self.d_model))
                      for columns in (heads * d, kv_heads * d, kv_heads * d_v)]  # fmt: skip
            self.w_o = draw(heads * d_v, self.d_model) / self.type(np.sqrt(heads * d_v))
        else:
            self.q, self.k = draw_heads(heads, n, d), draw_heads(kv_heads, m, d)
            self.v = draw_heads(kv_heads, m, d_v)
            self.grad_output = draw_heads(heads, n, d_v) if self.gradients else None
        i, j = np.arange(n)[:, None], np.arange(m)
        self.allowed = None  # or bool (n,m)
        if self.causal:
            self.allowed = (j <= i) & (j >= i - (self.window or m))
        if self.mask:
            self.allowed = (np.arange(n * m) % 7 != 0).reshape(n, m)

    def make_linear(self):
        """Makes the same inputs as plan_linear() of bench_attention, with a batch axis."""
        rows, each = (1, self.n, self.heads * self.d), (1, self.n, self.heads)
        self.inputs = {
            "query": numbers_of_bench(rows),
            "key": numbers_of_bench(rows, 1 / np.sqrt(self.d)),
            "value": numbers_of_bench((1, self.n, self.heads * self.d_v)),
        }
        self.state = (1, self.heads, self.d, self.d_v)
        if self.n == 1:
            self.inputs["past_state"] = numbers_of_bench(self.state)
        if self.gated:
            self.inputs["decay"] = np.float32(-0.1) * np.abs(numbers_of_bench(each, 1 / 1.7))
        if self.delta:
            self.inputs["beta"] = np.abs(numbers_of_bench(each, 1 / 1.7))

    @staticmethod
    def joined(t):
        """Converts (heads,rows,d) to (1,rows,heads·d)."""
        return np.ascontiguousarray(t.swapaxes(0, 1)).reshape(1, t.shape[1], -1)

    def bias(self):
        """Returns the mask as numbers (n,m) to add to the scores."""
        return np.where(self.allowed, 0, -np.inf).astype(self.type)

    @functools.cached_property
    def rows(self):
        return np.unique(np.linspace(0, self.n - 1, CHECKED_ROWS).astype(int))

    @functools.cached_property
    def expected(self):
        """Computes output and weights of `rows` by the formula."""
        if self.d_model:
            q, k, v = (
                (self.x.astype(float) @ w).reshape(self.n, heads, -1).swapaxes(0, 1)
                for w, heads in zip(self.w, (self.heads, self.kv_heads, self.kv_heads), strict=True)
            )
        else:
            q, k, v = self.q, self.k, self.v
        outputs, weights = [], []
        for h in range(self.heads):
            keys, values = (t[h // self.group].astype(float) for t in (k, v))
            scores = q[h][self.rows].astype(float) @ keys.T * self.scale
            if self.allowed is not None:
                scores[~self.allowed[self.rows]] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            weights.append(scores / scores.sum(-1, keepdims=True))
            outputs.append(weights[-1] @ values)
        output = np.stack(outputs)
        if self.d_model:
            output = output.swapaxes(0, 1).reshape(len(self.rows), -1) @ self.w_o
        return output, np.stack(weights)

    def gradients_of(self, h):
        """Computes the gradients of Q, K and V of a head by the formula."""
        q, k, v, grad = (t[h].astype(float) for t in (self.q, self.k, self.v, self.grad_output))
        p = q @ k.T * self.scale
        if self.allowed is not None:
            p[~self.allowed] = -np.inf
        p -= p.max(-1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(-1, keepdims=True)
        s = grad @ v.T
        s -= (p * s).sum(-1, keepdims=True)
        s *= p
        return s @ k * self.scale, s.T @ q * self.scale, p.T @ grad

    def check(self, output, weights, *gradients):
        """Raises AssertionError unless these arrays are the expected ones. They may have any rank."""
        wanted = self.expected
        if self.d_model:
            output = output.reshape(self.n, self.d_model)
        elif self.packed:
            output = output.reshape(self.n, self.heads, self.d_v).swapaxes(0, 1)
        else:
            output = output.reshape(self.heads, self.n, self.d_v)
        pairs = [(output[..., self.rows, :], wanted[0])]
        if self.weights:
            weights = weights.reshape(self.heads, self.n, self.m)
            pairs.append((weights[:, self.rows], wanted[1]))
        for h in (0, self.heads - 1) if gradients else ():
            pairs += [(got.reshape(self.heads, *right.shape)[h], right)
                      for got, right in zip(gradients, self.gradients_of(h), strict=True)]  # fmt: skip
        for got, right in pairs:
            error = np.abs(got - right).max() / max(1, np.abs(right).max())
            # NaN fails this comparison, too.
            assert error <= TOLERANCE[self.type], f"wrong result: off by {error:.3g}"


def only(condition, reason):
    if not condition:
        raise Cannot(reason)


def keeps_scores(call):
    only(call.weights or call.score_bytes <= LARGEST_SCORES, "scores of more than 1 GiB")


# ------------------------------------------------------------------------------------------- NumPy
# A variant is a function of a call that returns two functions: the first computes the call, the second returns output
# and weights.


def numpy_peer(_threads):
    def matmul(call):
        only(not call.d_model, "attention alone")
        only(call.group == 1 or not call.packed, "no grouped heads side by side")
        q = call.q.reshape(call.kv_heads, call.group * call.n, call.d)
        bias = None if call.allowed is None else np.tile(call.bias(), (call.group, 1))
        if call.packed:
            result = np.empty((call.n, call.heads, call.d_v), call.type)
            output = result.swapaxes(0, 1)
        else:
            result = output = np.empty((*q.shape[:2], call.d_v), call.type)
        # Scores of one head at a time stay in the cache. Small scores are computed all at once.
        at_once = call.weights or call.score_bytes <= 1 << 18
        step = call.kv_heads if at_once else 1
        buffer = np.empty((step, call.group * call.n, call.m), call.type)
        scale = call.type(call.scale)

        def run():
            for h in range(0, call.kv_heads, step):
                scores = np.matmul(q[h : h + step], call.k[h : h + step].swapaxes(1, 2), out=buffer)
                scores *= scale
                if bias is not None:
                    scores += bias
                scores -= scores.max(-1, keepdims=True)
                np.exp(scores, out=scores)
                scores /= scores.sum(-1, keepdims=True)
                np.matmul(scores, call.v[h : h + step], out=output[h : h + step])

        return run, lambda: (result, buffer)

    return {"NumPy": np.__version__}, {"matmul": matmul}


# ----------------------------------------------------------------------------------------- PyTorch


def pytorch_peer(threads):
    import torch
    from torch.nn.functional import linear, scaled_dot_product_attention

    torch.set_num_threads(threads)
    mode = torch.inference_mode()
    mode.__enter__()
    FOR_LIFE.append(mode)  # the mode ends with its object
    tensor = torch.from_numpy

    def around(call, core, repeat=False):
        """core(q, k, v) returns output and weights for 4-D tensors. Projections are added around it."""
        results = []

        def join(output):
            return output.transpose(1, 2).reshape(call.n, call.heads * call.d_v)

        if not call.d_model:
            q, k, v = (tensor(t)[None] for t in (call.q, call.k, call.v))
            if repeat:
                k, v = (t.repeat_interleave(call.group, 1) for t in (k, v))

            def run():
                output, weights = core(q, k, v)
                results[:] = join(output) if call.packed else output, weights
        else:
            only(call.group == 1, "heads of one kind")
            x = tensor(call.x)
            w_in = tensor(np.ascontiguousarray(np.hstack(call.w).T))
            w_out = tensor(np.ascontiguousarray(call.w_o.T))
            widths = [call.heads * d for d in (call.d, call.d, call.d_v)]

            def run():
                parts = linear(x, w_in).split(widths, 1)
                q, k, v = (t.view(1, call.n, call.heads, -1).transpose(1, 2) for t in parts)
                output, weights = core(q, k, v)
                results[:] = linear(join(output), w_out), weights

        return run, lambda: [r if r is None else r.numpy() for r in results]

    def sdpa(call, repeat=False, bias=False):
        only(not call.weights, "returns no weights")
        only(call.group > 1 or not repeat, "no groups to repeat")
        options = {}
        if call.causal and not call.window:
            options["is_causal"] = True
        elif call.allowed is not None:
            options["attn_mask"] = tensor(call.bias() if bias else call.allowed)
        only("attn_mask" in options or not bias, "no mask")
        if call.group > 1 and not repeat:
            options["enable_gqa"] = True
        attend = functools.partial(scaled_dot_product_attention, **options)
        return around(call, lambda q, k, v: (attend(q, k, v), None), repeat)

    def matmul(call):
        keeps_scores(call)
        kv, n, m, d, d_v = call.kv_heads, call.group * call.n, call.m, call.d, call.d_v
        dtype = tensor(np.empty(0, call.type)).dtype
        scores, weights = torch.empty(kv, n, m, dtype=dtype), torch.empty(kv, n, m, dtype=dtype)
        output = torch.empty(kv, n, d_v, dtype=dtype)
        bias, beta = scores, 0
        if call.allowed is not None:
            bias, beta = tensor(np.tile(call.bias(), (call.group, 1))), 1

        def core(q, k, v):
            q, k, v = q.reshape(kv, n, d), k.reshape(kv, m, d), v.reshape(kv, m, d_v)
            torch.baddbmm(bias, q, k.mT, beta=beta, alpha=call.scale, out=scores)
            torch.softmax(scores, -1, out=weights)
            torch.bmm(weights, v, out=output)
            return output.view(1, call.heads, call.n, d_v), weights

        return around(call, core)

    def backward(call):
        """The forward and the backward pass, as training runs them."""
        only(call.group == 1 and not call.packed, "heads apart only")
        only(not call.window and not call.mask, "no mask but causal")
        results = []
        with torch.inference_mode(False):
            q, k, v, grad = (tensor(t)[None].clone()
                             for t in (call.q, call.k, call.v, call.grad_output))  # fmt: skip
            inputs = [t.requires_grad_() for t in (q, k, v)]

        def run():
            with torch.inference_mode(False):
                output = scaled_dot_product_attention(q, k, v, is_causal=bool(call.causal))
                results[:] = output, None, *torch.autograd.grad(output, inputs, grad)

        return run, lambda: [r if r is None else r.detach().numpy() for r in results]

    def multihead(call, fast):
        only(call.d_model, "projections only")
        square = call.group == 1 and call.d_v == call.d and call.heads * call.d == call.d_model
        only(square, "square projections only")
        # PyTorch takes the fast path only with biases.
        module = torch.nn.MultiheadAttention(
            call.d_model, call.heads, bias=fast, batch_first=True, dtype=tensor(call.x).dtype
        ).eval()
        module.in_proj_weight.copy_(tensor(np.hstack(call.w).T))
        module.out_proj.weight.copy_(tensor(call.w_o.T))
        x, results, needed = tensor(call.x)[None], [], bool(call.weights)

        def run():
            torch.backends.mha.set_fastpath_enabled(fast)
            results[:] = module(x, x, x, need_weights=needed, average_attn_weights=False)

        return run, lambda: [r if r is None else r.numpy() for r in results]

    return {"PyTorch": torch.__version__}, {
        "sdpa": sdpa,
        "sdpa-repeated": functools.partial(sdpa, repeat=True),
        "sdpa-bias": functools.partial(sdpa, bias=True),
        "matmul": matmul,
        "backward": backward,
        "multihead": functools.partial(multihead, fast=False),
        "multihead-fast": functools.partial(multihead, fast=True),
    }


# ------------------------------------------------------------------------------------- onnxruntime


def onnxruntime_peer(threads):
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    settings.log_severity_level = 4

    class Graph:
        """An ONNX graph that is being made: its nodes, its inputs and its outputs."""

        def __init__(self, call):
            self.call = call
            self.nodes, self.inputs, self.constants, self.outputs = [], {}, {}, {}
            self.values = {}  # OrtValues to bind instead of new ones

        def node(self, operator, inputs, outputs, domain="", **attributes):
            self.nodes.append(
                helper.make_node(operator, inputs, outputs, domain=domain, **attributes)
            )

        def ends(self, output="Y"):
            """Returns the function that runs the graph, and the one that returns output and weights."""
            kind = lambda a: helper.np_dtype_to_tensor_dtype(np.dtype(a))
            info = helper.make_tensor_value_info
            graph = helper.make_graph(
                self.nodes,
                "attention",
                [info(name, kind(a.dtype), a.shape) for name, a in self.inputs.items()],
                [info(name, kind(self.call.type), s) for name, s in self.outputs.items()],
                [numpy_helper.from_array(a, name) for name, a in self.constants.items()],
            )
            opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
            model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
            )
            binding = session.io_binding()
            # The values borrow the arrays that `self.inputs` owns.
            new = onnxruntime.OrtValue
            for name, array in self.inputs.items():
                value = self.values.get(name) or new.ortvalue_from_numpy(array)
                binding.bind_ortvalue_input(name, value)
                self.values[name] = value
            for name, shape in self.outputs.items():
                value = self.values.get(name)
                value = value or new.ortvalue_from_shape_and_type(shape, self.call.type)
                binding.bind_ortvalue_output(name, value)
                self.values[name] = value

            def read():
                return [self.values[n].numpy() if n in self.outputs else None
                        for n in (output, "W")]  # fmt: skip

            return functools.partial(session.run_with_iobinding, binding), read

    def start(call, joined):
        """Makes a graph with Q, K, V: (1,heads,n,d), or joined (1,n,heads·d) like projections."""
        graph = Graph(call)
        if call.d_model:
            only(joined, "projections give joined heads")
            graph.inputs["X"] = call.x[None]
            for name, w in zip("QKV", call.w, strict=True):
                graph.constants["W_" + name] = w
                graph.node("MatMul", ["X", "W_" + name], [name])
            graph.constants["W_O"] = call.w_o  # finish() multiplies by it
            graph.outputs["Z"] = (1, call.n, call.d_model)
        else:
            only(joined or not call.packed, "heads apart only")
            for name, t in (("Q", call.q), ("K", call.k), ("V", call.v)):
                graph.inputs[name] = call.joined(t) if joined else np.ascontiguousarray(t[None])
            shape = (1, call.heads, call.n, call.d_v)
            graph.outputs["Y"] = (1, call.n, call.heads * call.d_v) if joined else shape
        if call.weights:
            graph.outputs["W"] = (1, call.heads, call.n, call.m)
        return graph

    def finish(graph, joined=True):
        """Does the same as ends(), and separates joined heads as the check needs them."""
        call = graph.call
        if call.d_model:
            graph.node("MatMul", ["Y", "W_O"], ["Z"])
            return graph.ends("Z")
        run, read = graph.ends()
        if not joined or call.packed:
            return run, read

        def apart():
            output, weights = read()
            return output.reshape(call.n, call.heads, call.d_v).swapaxes(0, 1), weights

        return run, apart

    def attention(call, joined=False, bias=False):
        only(not call.float64, "rounds the scale to float32")
        only(not joined or call.d_model or call.packed, "joined heads only")
        graph = start(call, joined)
        attributes = {"scale": call.scale}
        if joined:
            attributes |= {"q_num_heads": call.heads, "kv_num_heads": call.kv_heads}
        mask = call.allowed is not None
        if call.causal and not call.window:  # opset 25 has windows, but onnxruntime has none yet
            attributes["is_causal"], mask = 1, False
        only(mask or not bias, "no mask")
        if mask:
            graph.inputs["mask"] = call.bias() if bias else call.allowed
        outputs = ["Y"]
        if call.weights:
            outputs, attributes["qk_matmul_output_mode"] = ["Y", "", "", "W"], 3
        graph.node("Attention", ["Q", "K", "V"] + ["mask"] * mask, outputs, **attributes)
        return finish(graph, joined)

    def multihead(call, apart=False):
        """com.microsoft MultiHeadAttention. K and V are joined, or (1,heads,m,d)."""
        only(call.group == 1, "has no grouped heads")
        only(not call.weights, "returns scores, not weights")
        only(not call.float64, "float32 only")
        only(not apart or not (call.d_model or call.packed), "joined heads")
        graph = start(call, True)
        attributes = {"num_heads": call.heads, "scale": call.scale}
        inputs = ["Q", "K", "V"]
        if apart:
            graph.inputs["K"], graph.inputs["V"] = call.k[None], call.v[None]
        if call.causal and not call.window:
            attributes["unidirectional"] = 1
        elif call.allowed is not None:
            graph.inputs["bias"] = call.bias()[None, None]
            inputs += ["", "", "bias"]
        graph.node("MultiHeadAttention", inputs, ["Y"], "com.microsoft", **attributes)
        return finish(graph)

    def packed(call):
        """com.microsoft Attention: one product projects Q, K and V."""
        only(call.d_model and call.group == 1, "projections only")
        only(not call.weights and not call.float64, "float32 without weights only")
        graph = Graph(call)
        graph.inputs["X"] = call.x[None]
        graph.constants["W_QKV"] = np.ascontiguousarray(np.hstack(call.w))
        graph.constants["W_O"] = call.w_o
        widths = [w.shape[1] for w in call.w]
        graph.constants["B"] = np.zeros(sum(widths), call.type)  # without it onnxruntime crashes
        attributes = {"num_heads": call.heads}
        if call.d_v != call.d:
            attributes["qkv_hidden_sizes"] = widths
        graph.node("Attention", ["X", "W_QKV", "B"], ["Y"], "com.microsoft", **attributes)
        graph.outputs["Z"] = (1, call.n, call.d_model)
        return finish(graph)

    def grouped(call):
        """com.microsoft GroupQueryAttention. The keys of a single query are in the cache already."""
        only(not call.weights and not call.d_model and not call.mask, "attention alone")
        only(not call.float64, "float32 only")
        only(call.d % 8 == 0, "heads of 8, 16, 24 ... columns only")
        only(call.d_v == call.d, "values as wide as keys only")
        graph = start(call, True)
        counts = {"num_heads": call.heads, "kv_num_heads": call.kv_heads, "scale": call.scale}
        if call.window:
            counts["local_window_size"] = call.window + 1  # the query's own position counts
        if not call.causal and call.n > 1:
            counts["causal"] = 0
        inputs, outputs = ["Q", "K", "V", "", ""], ["Y", "present_K", "present_V"]
        shape = (1, call.kv_heads, call.m, call.d)
        if call.n == 1:
            inputs[3:] = ["past_K", "past_V"]
            for name, t in (("K", call.k), ("V", call.v)):
                graph.inputs[name] = np.ascontiguousarray(t[:, -1].reshape(1, 1, -1))
                past, present = "past_" + name, "present_" + name
                graph.inputs[past] = t[None].copy()
                # Past and present share memory, as its users do it.
                value = onnxruntime.OrtValue.ortvalue_from_numpy(graph.inputs[past])
                graph.values[past] = graph.values[present] = value
        else:
            only(call.n == call.m, "queries must be the keys' own")
        graph.inputs["lengths"] = np.array([call.m - 1], np.int32)
        graph.constants["total"] = np.array(call.m, np.int32)
        graph.outputs |= {"present_K": shape, "present_V": shape}
        graph.node("GroupQueryAttention", inputs + ["lengths", "total"], outputs,
                   "com.microsoft", **counts)  # fmt: skip
        return finish(graph)

    def linear(call):
        """com.microsoft LinearAttention. It has no other form than the packed one."""
        graph = Graph(call)
        graph.inputs = call.inputs
        names = ["query", "key", "value", "past_state", "decay", "beta"]
        rule = "_".join(["gated"] * call.gated + ["delta"] * call.delta) or "linear"
        heads = {"q_num_heads": call.heads, "kv_num_heads": call.heads}
        graph.node("LinearAttention", [name if name in call.inputs else "" for name in names], ["Y", "W"],
                   "com.microsoft", update_rule=rule, **heads)  # fmt: skip
        graph.outputs = {"Y": (1, call.n, call.heads * call.d_v), "W": call.state}
        return graph.ends()

    def matmul(call):
        keeps_scores(call)
        only(not call.d_model, "attention alone")
        graph = start(call, False)
        group = (call.kv_heads, call.group * call.n, call.d)
        graph.inputs["Q"] = call.q.reshape(group)
        graph.inputs["K"], graph.inputs["V"] = call.k, call.v
        graph.outputs["Y"] = (*group[:2], call.d_v)
        if call.weights:
            graph.outputs["W"] = (call.kv_heads, call.group * call.n, call.m)
        # An attribute is a float32, so a float64 scale is an input (a constant would be fused).
        alpha, scores = (1.0, "P") if call.float64 else (call.scale, "S")
        graph.node("FusedMatMul", ["Q", "K"], [scores], "com.microsoft", transB=1, alpha=alpha)
        if call.float64:
            graph.inputs["scale"] = np.array([call.scale])
            graph.node("Mul", ["P", "scale"], ["S"])
        if call.allowed is not None:
            graph.inputs["bias"] = np.tile(call.bias(), (call.group, 1))
            graph.node("Add", ["S", "bias"], ["M"])
        graph.node("Softmax", ["S" if call.allowed is None else "M"], ["W"], axis=-1)
        graph.node("MatMul", ["W", "V"], ["Y"])
        return finish(graph, joined=False)

    return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}, {
        "Attention": attention,
        "LinearAttention": linear,
        "Attention-bias": functools.partial(attention, bias=True),
        "Attention-joined": functools.partial(attention, joined=True),
        "MultiHeadAttention": multihead,
        "MultiHeadAttention-apart": functools.partial(multihead, apart=True),
        "packed Attention": packed,
        "GroupQueryAttention": grouped,
        "matmul": matmul,
    }


# ---------------------------------------------------------------------------------------- OpenVINO


def openvino_peer(threads):
    import openvino
    import openvino.opset13 as op

    core = openvino.Core()
    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(threads),
        "INFERENCE_PRECISION_HINT": "f32",  # the default is bfloat16 if the CPU has it
    }

    def start(call, arrays):
        only(not call.float64, "computes float64 as float32")
        return [op.parameter(a.shape, a.dtype.type) for a in arrays]

    def finish(parameters, arrays, results):
        model = openvino.Model(results, parameters)
        request = core.compile_model(model, "CPU", config).create_infer_request()
        for i, array in enumerate(arrays):
            request.set_input_tensor(i, openvino.Tensor(array, shared_memory=True))
        outputs = [np.zeros(tuple(r.get_output_shape(0)), np.float32) for r in results]
        for i, array in enumerate(outputs):
            request.set_output_tensor(i, openvino.Tensor(array, shared_memory=True))

        def run():
            request.start_async()
            request.wait()

        def read(_borrowed=arrays):
            return outputs[0], outputs[1] if len(outputs) > 1 else None

        return run, read

    def around(call, core_of, arrays, mask=None):
        """core_of(q, k, v, mask) returns nodes (output, weights). Projections are added around it."""
        arrays = [np.ascontiguousarray(a) for a in arrays + ([] if mask is None else [mask])]
        parameters = start(call, arrays)
        masks = [] if mask is None else parameters[-1:]
        if not call.d_model and not call.packed:
            results = core_of(*parameters[:3], *masks)
        else:
            apart = [op.constant(np.array([1, -1, call.heads, d]))
                     for d in (call.d, call.d, call.d_v)]  # fmt: skip
            turn = op.constant(np.array([0, 2, 1, 3]))
            qkv = parameters[:3]
            if call.d_model:
                qkv = [op.matmul(parameters[0], op.constant(w), False, False) for w in call.w]
            qkv = [op.transpose(op.reshape(t, heads, False), turn)
                   for t, heads in zip(qkv, apart, strict=True)]  # fmt: skip
            output, *weights = core_of(*qkv, *masks)
            joined = op.constant(np.array([call.n, call.heads * call.d_v]))
            output = op.reshape(op.transpose(output, turn), joined, False)
            if call.d_model:
                output = op.matmul(output, op.constant(call.w_o), False, False)
            results = [output, *weights]
        return finish(parameters, arrays, [op.result(r) for r in results])

    def sdpa(call, repeat=False, bias=False):
        only(not call.weights, "returns no weights")
        only(call.group == 1 or not (call.d_model or call.packed), "heads of one kind")
        only(call.group > 1 or not repeat, "no groups to repeat")
        causal = bool(call.causal and not call.window)
        mask = None
        if call.allowed is not None and not causal:
            mask = call.bias() if bias else call.allowed
        only(mask is not None or not bias, "no mask")
        if call.d_model:
            arrays = [call.x]
        elif call.packed:
            arrays = [call.joined(t) for t in (call.q, call.k, call.v)]
        elif repeat:
            arrays = [call.q[None], *(np.repeat(t, call.group, 0)[None] for t in (call.k, call.v))]
        elif call.group > 1:  # a group becomes a batch item whose heads share their keys
            arrays = [call.q.reshape(call.kv_heads, call.group, call.n, call.d),
                      call.k[:, None], call.v[:, None]]  # fmt: skip
        else:
            arrays = [call.q[None], call.k[None], call.v[None]]

        def core_of(q, k, v, mask=None):
            more = () if mask is None else (mask,)
            return [op.scaled_dot_product_attention(q, k, v, *more, causal=causal)]

        return around(call, core_of, arrays, mask)

    def matmul(call):
        keeps_scores(call)
        only(call.group == 1 or not (call.d_model or call.packed), "heads of one kind")
        if call.d_model:
            arrays = [call.x]
        elif call.packed:
            arrays = [call.joined(t) for t in (call.q, call.k, call.v)]
        else:
            group = (1, call.kv_heads, call.group * call.n, call.d)
            arrays = [call.q.reshape(group), call.k[None], call.v[None]]
        mask = None if call.allowed is None else np.tile(call.bias(), (call.group, 1))

        def core_of(q, k, v, bias=None):
            scores = op.multiply(op.matmul(q, k, False, True),
                                 op.constant(np.float32(call.scale)))  # fmt: skip
            weights = op.softmax(scores if bias is None else op.add(scores, bias), -1)
            return [op.matmul(weights, v, False, False)] + [weights] * bool(call.weights)

        return around(call, core_of, arrays, mask)

    return {"OpenVINO": openvino.__version__.split("-")[0]}, {
        "sdpa": sdpa,
        "sdpa-repeated": functools.partial(sdpa, repeat=True),
        "sdpa-bias": functools.partial(sdpa, bias=True),
        "matmul": matmul,
    }


# ---------------------------------------------------------------------------------------- sampling

PEERS = {
    "pytorch": pytorch_peer,
    "onnxruntime": onnxruntime_peer,
    "openvino": openvino_peer,
    "numpy": numpy_peer,
}


def sample(run):
    """Returns the seconds of one run. It repeats the run for 10 ms, as bench_attention does."""
    seconds, more = 0, 1
    gc.disable()
    while seconds < 0.01:
        run()  # this run is not timed, so no sample begins with a cold cache
        start = time.perf_counter()
        for _ in range(more):
            run()
        seconds, repeats = time.perf_counter() - start, more
        more *= 4
    gc.enable()
    return seconds / repeats


def rest():
    """Returns when the threads of this process have stopped spinning, so others can use the cores."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 0.0005:
            return
    raise RuntimeError("the threads of this peer do not rest")


def prepared(name, variant, call):
    """Returns the variant's two functions, or the reason why it has none, in the library's words."""
    try:
        only(call.gradients == (name == "backward"), "other results")
        only(call.linear == (name == "LinearAttention"), "another kind of attention")
        run, read = variant(call)
        run()
        if not call.linear:
            call.check(*read())
        return run, read  # `read` owns the memory that a library only borrows
    except Cannot as error:
        return f"- {error}"
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"- {reason[:300]}"


def spread(array):
    """Returns numbers of a result as text, as print_numbers() of bench_attention prints them."""
    flat = array.reshape(-1)
    return " ".join(f"{flat[i * (len(flat) - 1) // (SPREAD - 1)]:.9g}" for i in range(SPREAD))


def main():
    library, threads = sys.argv[1], int(sys.argv[2])
    versions, variants = PEERS[library](threads)
    print(json.dumps({"versions": versions, "variants": list(variants)}), flush=True)
    last, call, runs = None, None, {}
    for line in sys.stdin:
        name, _, text = line.strip().partition("\t")
        numbers, text = text.startswith("numbers "), text.removeprefix("numbers ")
        if text != last:
            runs.clear()  # the memory of this call is freed before the next call takes its own
            call = None
            last, call = text, Call(text)
        if name not in runs:
            runs[name] = prepared(name, variants[name], call)
            rest()  # NumPy's threads spin after the check
        if isinstance(runs[name], str):
            answer = runs[name]
        elif numbers:
            answer = " ".join(map(spread, runs[name][1]()))
        else:
            answer = f"{sample(runs[name][0]):.9g}"
        rest()
        print(answer, flush=True)


if __name__ == "__main__":
    main()
