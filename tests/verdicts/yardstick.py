"""What rounding explains in each row of a result. This is no formula of the service: right kernels are measured.

The error of a row is the root of the mean of the squares (RMS) of its numbers' errors. The yardstick of a row is the
largest one among these:

- the error of each right kernel that multiplies in the type that the request says, in this very row;
- the error that a simple model of rounding predicts, times the ratio of both in 90 % of the rows of this result. So a
  row in which all right kernels are lucky has no small yardstick;
- two to three times the error that the model predicts: 2 + 1 / sqrt(numbers in the row). One number of 370 is off by
  more than three times the prediction, and many rows have one number only.

The model has one random rounding for each stage of an unfused kernel: products, scale, bias, weights, products with V,
and the result. A rounding of a number x is off by u |x| / sqrt(6) on the average (u: half of the last place of 1)."""

import numpy as np
from rounding import LEAST, SIXTEEN, UNIT

MEAN = 6**-0.5
MATRICES = ("scores", "masked_scores")  # each number of them has its own yardstick


def rms(x):
    """The RMS of each row. A row of lse is one number."""
    return np.sqrt(np.mean(np.square(x), -1))


def difference(a, b):
    """a - b. Equal infinities do not differ, and NaN differs from all numbers by infinity."""
    with np.errstate(all="ignore"):
        return np.where(a == b, 0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf)).astype(np.float64)


class Model:
    """Predicts the variance of each number of a result of a call, for kernels that multiply in `kind`."""

    def __init__(self, problem, exact, kind, wide):
        self.p, self.exact = problem, exact
        wide_unit = UNIT["float64" if wide else "float32"]
        # A stage of 16 bits is kept in 16 bits. TF32 and float8 are types of products only.
        self.stage = UNIT[kind] if kind in SIXTEEN else wide_unit
        # Cutting digits off, as some kernels of TF32 do, has twice the error of rounding.
        product = 2 * UNIT[kind] if kind == "tf32" else UNIT[kind]
        self.weight, self.sum = product, wide_unit
        self.input = product if kind in ("tf32", "float8") else 0
        # PyTorch's math path in 16 bits rounds Q and K times the root of the scale.
        self.early = UNIT[kind] if kind in SIXTEEN else 0
        self.least = LEAST[kind]
        as_float = lambda x: np.asarray(x, np.float64)  # noqa: E731
        self.Q, self.K, self.V = (as_float(x) for x in (problem.Q, problem.K[:, problem.heads], problem.V[:, problem.heads]))
        self.w = as_float(exact["weights"])
        self.dS, self.grad, self.open = None, None if problem.grad is None else as_float(problem.grad), None
        if problem.gate is not None:
            self.open = 1 / (1 + np.exp(-as_float(problem.gate)))
            self.grad = None if self.grad is None else self.grad * self.open
        with np.errstate(all="ignore"):
            self.scores()

    def scores(self):
        """The variance of the scores, before and after the rules."""
        p, unit = self.p, MEAN**2
        s = np.asarray(self.exact["scores"], np.float64)
        terms = np.matmul(self.Q**2, (self.K**2).swapaxes(-1, -2))
        columns = self.Q.shape[-1]
        self.s = unit * (self.stage**2 * s**2 + 2 * self.input**2 * terms + self.sum**2 * (columns / 2 * terms + columns / 3 * s**2))
        scaled = p.scale * s
        inside = p.scale**2 * (self.s + unit * 2 * self.early**2 * terms) + unit * self.stage**2 * scaled**2
        self.slope, self.slope_error = 1.0, 0.0
        if p.softcap is not None:
            tanh = np.tanh(scaled / p.softcap)
            self.slope = 1 - tanh**2  # which cancels where tanh is near 1
            self.slope_error = unit * (2 * self.sum * tanh**2) ** 2 + inside * (2 * tanh * self.slope / p.softcap) ** 2
            inside = inside * self.slope**2 + unit * self.stage**2 * (p.softcap * tanh) ** 2
        masked = np.asarray(self.exact["masked_scores"], np.float64)
        masked = np.where(np.isfinite(masked), np.clip(masked, -1e150, 1e150), 0)
        self.masked = inside + unit * self.stage**2 * masked**2
        # A weight is exp(score - lse): the relative error of a weight is the error of this difference. That of a weight
        # of 0 does not matter.
        lse = np.asarray(self.exact["lse"], np.float64)[..., None]
        lse = np.where(np.isfinite(lse), np.clip(lse, -1e150, 1e150), 0)
        variance = self.masked + unit * self.sum**2 * ((masked - lse) ** 2 + lse**2)
        self.relative = np.where(self.w > 0, self.spread(np.minimum(variance, 50)), 0)

    def spread(self, variance):
        """The mean of (exp(x) - 1)^2 if x is normal with this variance. This is the variance itself, unless it is large."""
        return np.expm1(2 * variance) - 2 * np.expm1(variance / 2)

    def of(self, name):
        """The variance of the numbers of a result before its last rounding."""
        with np.errstate(all="ignore"):
            return getattr(self, "of_" + name)()

    def of_scores(self):
        return self.s

    def of_masked_scores(self):
        return self.masked

    def of_lse(self):
        exact = np.asarray(self.exact["lse"], np.float64)
        finite = np.where(np.isfinite(exact), exact, 0)
        finite = np.clip(finite, -1e150, 1e150)
        # The rounding of a number of Q for a product changes all scores of its row.
        common = (self.input**2 + self.early**2) * self.p.scale**2 * (self.Q**2 * np.matmul(self.w, self.K) ** 2).sum(-1)
        terms = self.w**2 * (self.relative + MEAN**2 * self.weight**2)  # the kernel may sum the rounded P
        return terms.sum(-1) + MEAN**2 * (common + self.sum**2 * (4 + finite**2))

    def of_weights(self):
        common = (self.w**2 * self.relative).sum(-1, keepdims=True)
        return self.w**2 * (self.relative + common + MEAN**2 * self.sum**2 * 4) + self.least**2

    def of_output(self):
        """The gate, its rounding, and that of what it multiplies."""
        if self.open is None:
            return self.of_mixed()
        o = np.asarray(self.exact["output"], np.float64)
        return self.open**2 * self.of_mixed() + MEAN**2 * 2 * self.stage**2 * o**2

    def of_grad_gate(self):
        """The products of the gradient and the output, with the slope of a rounded sigmoid."""
        mixed, grad = np.asarray(self.exact["mixed"], np.float64), np.asarray(self.p.grad, np.float64)
        slope = self.open * (1 - self.open)
        terms = grad**2 * (slope**2 * self.of_mixed() + MEAN**2 * self.stage**2 * mixed**2 * (3 * slope**2 + self.open**4))
        return terms if self.open.shape[-1] > 1 else terms.sum(-1, keepdims=True)

    def of_mixed(self):
        """The rounding of P, and the scores that change it."""
        o = np.asarray(self.exact["mixed"], np.float64)
        changed = self.w**2 * self.relative
        rounded = self.w**2 * MEAN**2 * (self.weight**2 + self.input**2 + self.sum**2 * self.w.shape[-1] / 2) + self.least**2 / 4
        moved = np.matmul(changed, self.V**2) - 2 * o * np.matmul(changed, self.V) + o**2 * changed.sum(-1, keepdims=True)
        return np.maximum(moved, 0) + np.matmul(rounded, self.V**2) + self.partial(self.w.shape[-1]) * o**2

    def partial(self, terms):
        """The variance of a sum of so many terms of one sign that are added one after another, for a sum of 1."""
        return MEAN**2 * self.sum**2 * terms / 3

    def back(self):
        """The variance of dS behind the softcap, without what a row has in common, and that of delta."""
        if self.dS is None:
            grad = self.grad
            changes = np.matmul(grad, self.V.swapaxes(-1, -2))
            delta = (self.w * changes).sum(-1, keepdims=True)
            unit = MEAN**2
            o = np.asarray(self.exact["mixed"], np.float64)
            self.delta = unit * self.weight**2 * ((grad * o) ** 2).sum(-1, keepdims=True) + \
                unit * self.weight**2 * (self.w * changes * self.w * changes).sum(-1, keepdims=True) + self.of_output_delta(grad)
            terms = np.matmul(grad**2, (self.V**2).swapaxes(-1, -2))
            inputs = unit * (2 * self.input**2 * terms + self.sum**2 * self.V.shape[-1] / 2 * terms) + self.partial(self.V.shape[-1]) * changes**2
            rest = (changes - delta) ** 2
            self.dS = self.w**2 * (unit * (self.stage**2 * changes**2 + (2 * self.weight**2 + self.input**2) * rest) + inputs + self.relative * rest)
            self.dS = self.dS * np.square(self.slope) + self.w**2 * rest * self.slope_error + self.least**2
        return self.dS, self.delta

    def of_output_delta(self, grad):
        """The part of delta that comes from the error of the output."""
        return (grad**2 * self.of_mixed()).sum(-1, keepdims=True)

    def of_grad_Q(self):
        dS, delta = self.back()
        common = delta * np.matmul(self.w * self.slope, self.K) ** 2
        return self.p.scale**2 * (np.matmul(dS, self.K**2) + common) + self.summed("grad_Q", self.w.shape[-1])

    def of_grad_K(self):
        dS, delta = self.back()
        rows = dS + self.w**2 * delta * np.square(self.slope)
        return self.p.scale**2 * self.grouped(np.matmul(rows.swapaxes(-1, -2), self.Q**2)) + self.summed("grad_K", self.w.shape[-2])

    def of_grad_V(self):
        grad = self.grad
        rows = self.w**2 * (self.relative + MEAN**2 * (self.weight**2 + self.input**2 + self.sum**2 * self.w.shape[-2] / 2)) + self.least**2 / 4
        return self.grouped(np.matmul(rows.swapaxes(-1, -2), grad**2)) + self.summed("grad_V", self.w.shape[-2])

    def summed(self, name, terms):
        return self.partial(terms) * np.asarray(self.exact[name], np.float64) ** 2

    def grouped(self, x):
        out = np.zeros((x.shape[0], self.p.K.shape[1], *x.shape[2:]))
        np.add.at(out, (slice(None), self.p.heads), x)
        return out


class Yardstick:
    """What rounding explains in each row of the results of one kernel."""

    Model = Model

    def __init__(self, problem, exact, kernel, kind):
        self.problem, self.exact, self.kernel, self.kind = problem, exact, kernel, kind
        self.models, self.size, self.rows = {}, {}, {}

    def predicted(self, name):
        """The predicted RMS of each number."""
        if name not in self.size:
            said = self.kernel.said(name, self.kind)
            if said not in self.models:
                self.models[said] = self.Model(self.problem, self.exact, said, self.kind == "float64")
            kind = self.kernel.result_type(name, self.kind)
            x = np.asarray(self.exact[name], np.float64)
            x = np.where(np.isfinite(x), np.clip(x, -1e150, 1e150), 0)
            with np.errstate(over="ignore"):
                size = self.models[said].of(name) + (MEAN * UNIT[kind] * x) ** 2 + (LEAST[kind] * MEAN) ** 2
            self.size[name] = np.sqrt(size)
        return self.size[name]

    def of_rows(self, name, x):
        """The RMS of each row of differences. Numbers of score matrices are divided by what is predicted for each."""
        with np.errstate(all="ignore"):
            x = x / self.predicted(name) if name in MATRICES else x
        return rms(x[..., None] if name == "lse" else x)

    def measure(self, name, kernels_results):
        """Makes the yardstick of a result from those of right kernels."""
        predicted = self.of_rows(name, self.predicted(name))
        with np.errstate(all="ignore"):
            errors = [self.of_rows(name, difference(x, self.exact[name])) for x in kernels_results]
            errors = [np.where(np.isfinite(e), e, 0) for e in errors]
            largest = np.maximum.reduce(errors) if errors else np.zeros_like(predicted)
            ratios = largest / predicted
            usual = np.quantile(ratios, 0.9) if ratios.size else 0
        numbers = 1 if name == "lse" else self.exact[name].shape[-1]
        self.rows[name] = np.maximum(largest, predicted * max(2 + numbers**-0.5, usual))

    def moved(self, name, a, b):
        """How far two results are apart, row by row, in units of the yardstick."""
        with np.errstate(all="ignore"):
            return np.nan_to_num(self.of_rows(name, difference(a, b)) / self.rows[name], nan=np.inf, posinf=np.inf)

    def beside_model(self, name, x):
        """The largest error of a row, in units of what the model predicts for it."""
        with np.errstate(all="ignore"):
            return float((self.of_rows(name, difference(x, self.exact[name])) / self.of_rows(name, self.predicted(name))).max(initial=0))
