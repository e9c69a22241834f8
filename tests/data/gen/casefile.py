"""Writes cases as JSON, with one matrix row on a line and the fewest digits.

A float32 array is written with the shortest digits that read back as the same float32, and a float64
array with the shortest that read back as the same float64. -inf becomes null, as in the answers of
the daemon, or -Infinity if the case is about that spelling.
"""

import json
import math

import numpy as np


class Infinity:
    """A matrix whose -inf is written as Python's json module writes it."""

    def __init__(self, matrix):
        self.matrix = matrix


def number_text(x, infinity):
    if isinstance(x, (bool, np.bool_)):
        return "true" if x else "false"
    if isinstance(x, (int, np.integer)):
        return str(int(x))
    if math.isinf(x) and x < 0:
        return infinity
    assert math.isfinite(x), x
    text = str(x) if isinstance(x, np.floating) else repr(x)
    return text[:-2] if text.endswith(".0") else text


def array_text(array, indent, infinity):
    if array.ndim == 1:
        return "[" + ", ".join(number_text(x, infinity) for x in array) + "]"
    pad = " " * (indent + 2)
    rows = [pad + array_text(row, indent + 2, infinity) for row in array]
    return "[\n" + ",\n".join(rows) + "\n" + " " * indent + "]"


def text(value, indent=0, infinity="null"):
    if isinstance(value, Infinity):
        return text(value.matrix, indent, "-Infinity")
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return array_text(value, indent, infinity)
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        rows = [pad + json.dumps(k) + ": " + text(v, indent + 2, infinity) for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
    if isinstance(value, (list, tuple)):
        if any(isinstance(x, (dict, np.ndarray)) for x in value):
            rows = [pad + text(x, indent + 2, infinity) for x in value]
            return "[\n" + ",\n".join(rows) + "\n" + " " * indent + "]"
        return "[" + ", ".join(text(x, 0, infinity) for x in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return number_text(value[()] if isinstance(value, np.ndarray) else value, infinity)


def write(path, value):
    path.write_text(text(value) + "\n", encoding="utf-8")


def map_floats(value, change):
    """Applies `change` to every float array in nested dicts and lists."""
    if isinstance(value, dict):
        return {k: map_floats(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [map_floats(v, change) for v in value]
    if isinstance(value, (np.ndarray, np.floating)) and np.asarray(value).dtype.kind == "f":
        return change(np.asarray(value))
    return value


def shorten(expect, digits=10):
    """Rounds the expected values of float32 cases: 10 digits are far more than the tolerance needs."""
    return map_floats(expect, lambda a: np.array(
        [float(f"{x:.{digits}g}") for x in a.ravel()], dtype=np.float64).reshape(a.shape))


def two_digits_up(x):
    """Rounds up to two significant digits, so that tolerances are readable."""
    step = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / step * (1 - 1e-12)) * step:.1e}")


def error(got, expect):
    """Returns the largest difference, relative to the largest expected number of its row. The C test
    measures in the same way. Rows of zeros must be equal."""
    got, expect = np.atleast_1d(got), np.atleast_1d(expect)
    assert got.shape == expect.shape, (got.shape, expect.shape)
    finite = np.isfinite(expect)
    assert np.array_equal(finite, np.isfinite(got))
    difference = np.abs(np.where(finite, got, 0.0) - np.where(finite, expect, 0.0))
    scale = np.abs(np.where(finite, expect, 0.0)).max(axis=-1, keepdims=True)
    assert not np.any((difference > 0) & (scale == 0))
    return float((difference / np.where(scale == 0, 1.0, scale)).max())
