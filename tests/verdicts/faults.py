"""Faults of kernels. Each changes the problem that a kernel computes, its computation, or its results."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault needs features of the call, results of the kernel, and a form of kernel.

    One of three functions makes it: `problem` returns what a call becomes, `inside` names a place in the computation, and
    `results` changes results. The results in `only` alone are taken."""

    name: str
    needs: tuple = ()
    has: tuple = ()  # results
    form: str | None = None
    kinds: tuple = ("float64", "float32", "bfloat16", "float16")
    problem: object = None
    inside: str | None = None
    results: object = None
    only: tuple = ()

    def suits(self, call, kernel, right):
        # A kernel that rounds P to float8 anyway has no coarser tile.
        return (set(self.needs) <= call.features and set(self.has) <= set(right) and self.form in (None, kernel.form) and
                call.kind in self.kinds and not (self.inside == "coarse tile" and kernel.weight == "float8"))

    def apply(self, call, kernel, right, run):
        """Returns the wrong results, rounded to the types of the kernel. `run` is the class that runs it."""
        if self.results:
            wrong = {name: x.copy() for name, x in right.items()}
            self.results(call, wrong)
            rounding = run(kernel, call.problem(), call.kind)
            return {name: rounding.rounded(x, "log" if name == "lse" else "result") for name, x in wrong.items()}
        problem = self.problem(call) if self.problem else call.problem()
        wrong = run(kernel, problem, call.kind, faults=frozenset((self.inside,)) if self.inside else frozenset()).results()
        return {name: wrong[name] if not self.only or name in self.only else right[name] for name in right}


def times(name, factor, first):
    """Multiplies the last rows of a result. `first` is the share of the rows before them, or minus their number."""
    def change(call, results):
        rows = results[name].shape[-2]
        at = int(rows * first) if first > 0 else max(rows // 2, rows + first)
        results[name][..., at:, :] *= factor
    return change


def gradients(factor):
    def change(_, results):
        for name in "QKV":
            results["grad_" + name] *= factor
    return change


def rules(**changes):
    """Other rules for who attends to whom. Each change is a function of the call."""
    return lambda call: call.problem(allowed=call.allowed(**{name: change(call) for name, change in changes.items()}))


def window(side, step):
    def change(call):
        wide = list(call.window)
        wide[side] = max(0, wide[side] + step)
        return wide
    return rules(window=change)


def lost(keys):
    """Some keys are never seen."""
    return lambda call: call.problem(allowed=call.allowed() & ~keys(np.arange(call.m)))


def scale(change):
    return lambda call: call.problem(scale=change(call))


def small_head(_, results):
    output = results["output"]
    sizes = np.abs(output).max(axis=(0, 2, 3))
    output[:, np.argmin(sizes)] = 0


def half_of_weights(_, results):
    results["weights"][..., results["weights"].shape[-1] // 2:] = 0


def scores_beside_finite(call, results):
    """The scores that no finite number hides are off by one tenth."""
    shown = ~np.broadcast_to(call.finite, results["masked_scores"].shape)
    results["masked_scores"][shown] *= 1.1


def lse_beside_padding(call, results):
    padded = np.broadcast_to(call.finite.all(-1), results["lse"].shape)
    results["lse"][~padded] += 1


def base2(_, results):
    results["lse"] *= np.log2(np.e)


def ungated(call, results):
    return results["output"] * (1 + np.exp(-call.gate.astype(np.float64)))


def some_row(call, x):
    return tuple(call.rng.integers(size) for size in x.shape[:-1])


def one_row(name):
    def change(call, results):
        x = results[name]
        at = some_row(call, x)
        x[at] = x[(*at[:-1], (at[-1] + 1) % x.shape[-2])]
    return change


def one_element(name):
    """One number is off by the size of its row."""
    def change(call, results):
        x = results[name]
        at = some_row(call, x)
        x[(*at, call.rng.integers(x.shape[-1]))] += np.abs(x[at]).max(initial=0)
    return change


def shifted(name):
    def change(_, results):
        results[name] = np.roll(results[name], 1, -2)
    return change


def transposed(name):
    """A square block of the matrix is transposed."""
    def change(_, results):
        x = results[name]
        side = min(16, *x.shape[-2:])
        x[..., :side, :side] = x[..., :side, :side].swapaxes(-1, -2).copy()
    return change


def not_a_number(call, results):
    name = call.rng.choice(sorted(results))
    results[name].reshape(-1)[call.rng.integers(results[name].size)] = np.nan


def other_heads(call):
    return call.problem(heads=np.arange(len(call.heads)) % call.groups)


def other_value(call):
    return call.problem(V=np.roll(call.V, 1, 1))


OUTPUT, GRADIENTS = ("output",), ("grad_Q", "grad_K", "grad_V")
SMALL = {"needs": ("gradients", "small loss"), "has": GRADIENTS}
FAULTS = (
    Fault("second half of output x 1.2", ("rows",), OUTPUT, results=times("output", 1.2, 0.5)),
    Fault("second half of output x 1.05", ("rows",), OUTPUT, results=times("output", 1.05, 0.5)),
    Fault("second half of output x 1.02", ("rows",), OUTPUT, results=times("output", 1.02, 0.5)),
    Fault("second half of weights 0", (), ("weights",), results=half_of_weights),
    Fault("last 128 rows of grad_K x 1.3", ("gradients",), ("grad_K",), results=times("grad_K", 1.3, -128)),
    Fault("a small head is 0", ("heads", "groups", "unequal heads"), OUTPUT, results=small_head),
    Fault("masked_scores beside a finite mask", ("finite mask",), ("masked_scores",), results=scores_beside_finite),
    Fault("lse beside a padded row", ("finite mask", "padded row"), ("lse",), results=lse_beside_padding),
    Fault("lse without half of the keys", (), ("lse",), inside="lse of half", only=("lse",)),
    Fault("lse in base 2", (), ("lse",), results=base2),
    Fault("gradients of a small loss are 0", **SMALL, results=gradients(0)),
    Fault("gradients of a small loss have the other sign", **SMALL, results=gradients(-1)),
    Fault("gradients of a small loss are a tenth", **SMALL, results=gradients(0.1)),
    Fault("window one wider on the left", ("window",), problem=window(0, 1)),
    Fault("window one narrower on the left", ("window",), problem=window(0, -1)),
    Fault("window one wider on the right", ("window",), problem=window(1, 1)),
    Fault("window one narrower on the right", ("window",), problem=window(1, -1)),
    Fault("other alignment of causal", ("causal", "lengths differ"),
          problem=rules(offset=lambda call: 0 * call.offset if call.causal == "bottom_right" else (call.lengths - call.n)[:, None, None])),
    Fault("not causal", ("causal",), problem=rules(causal=lambda call: None)),
    Fault("causal without the diagonal", ("causal",), problem=rules(offset=lambda call: call.offset - 1)),
    Fault("each 128th key lost", ("128 keys",), problem=lost(lambda keys: keys % 128 == 127)),
    Fault("the last tile of 64 keys lost", ("128 keys",), problem=lost(lambda keys: keys >= (keys.size - 1) // 64 * 64)),
    Fault("padding behind the length is seen", ("lengths",), problem=rules(lengths=lambda call: np.full(call.batch, call.m))),
    Fault("scale is 1", problem=scale(lambda call: 1.0)),
    Fault("scale is 1/d", problem=scale(lambda call: 1 / call.d)),
    Fault("scale twice", problem=scale(lambda call: call.scale * call.d**-0.5)),
    Fault("softcap after the bias", ("softcap", "bias"), inside="softcap after bias"),
    Fault("softcap forgotten", ("softcap",), problem=lambda call: call.problem(softcap=None)),
    Fault("bias forgotten", ("bias",), problem=lambda call: call.problem(bias=None)),
    Fault("key head = h mod key heads", ("groups", "repeats"), problem=other_heads),
    Fault("grad_K and grad_V of the last head only", ("repeats", "gradients"), GRADIENTS, inside="last head only"),
    Fault("sink missing", ("sink",), problem=lambda call: call.problem(sink=None)),
    Fault("lse without the sink", ("sink",), ("lse",), inside="lse without sink", only=("lse",)),
    Fault("output not divided by the sum", (), OUTPUT, inside="undivided", only=OUTPUT),
    Fault("gate forgotten", ("gate",), problem=lambda call: call.problem(gate=None), only=("output", "grad_Q", "grad_K", "grad_V")),
    Fault("gate without its sigmoid", ("gate",), OUTPUT, results=lambda call, results: results.update(output=ungated(call, results) * call.gate)),
    Fault("rows of closed gates x 1.2", ("gate", "closed rows", "rows"), OUTPUT, results=times("output", 1.2, 0.5)),
    Fault("gate of another head", ("gate", "heads"), problem=lambda call: call.problem(gate=np.roll(call.gate, 1, 1))),
    Fault("grad_gate without the slope", ("gate", "gradients"), ("grad_gate",),
          results=lambda call, results: results.update(grad_gate=results["grad_gate"] * (1 + np.exp(call.gate)))),
    Fault("mask inverted", ("mask",), problem=rules(mask=lambda call: ~call.mask)),
    Fault("V of another head", ("groups",), problem=other_value),
    Fault("one row of output is the next one", (), OUTPUT, results=one_row("output")),
    Fault("one row of grad_Q is the next one", ("gradients",), ("grad_Q",), results=one_row("grad_Q")),
    Fault("one number of output", (), OUTPUT, results=one_element("output")),
    Fault("one number of grad_V", ("gradients",), ("grad_V",), results=one_element("grad_V")),
    Fault("rows of output shifted by one", (), OUTPUT, results=shifted("output")),
    Fault("a block of output transposed", (), OUTPUT, results=transposed("output")),
    Fault("a block of scores transposed", (), ("scores",), results=transposed("scores")),
    Fault("stale maximum in the last tile", ("128 keys",), OUTPUT, form="tiled", inside="stale maximum"),
    Fault("delta forgotten", ("gradients",), GRADIENTS, inside="no delta"),
    Fault("slope of softcap forgotten", ("gradients", "softcap"), GRADIENTS, inside="no slope"),
    Fault("scale forgotten in grad_Q", ("gradients",), GRADIENTS, inside="no scale in grad_Q"),
    Fault("grad_K of half of the rows", ("gradients",), GRADIENTS, inside="half of the rows", only=("grad_K",)),
    Fault("a tile of P in float8", (), OUTPUT, form="tiled", kinds=("float32", "float16", "float64"), inside="coarse tile"),
    Fault("NaN in one number", results=not_a_number),
)
