"""stock.py has what the tests of stock clients share: the address of the daemon, drawn matrices, the golden data as tensors,
and comparisons."""

import json
import os
import pathlib
import sys

import numpy as np

DATA = pathlib.Path(__file__).parents[2] / "data"
sys.path.insert(0, str(DATA / "gen"))
import reference  # noqa: E402 pylint: disable=wrong-import-position,import-error

URL = os.environ["ATTENTIOND_URL"]
# The daemon at this address has the option --compression yes.
COMPRESSING_URL = os.environ["ATTENTIOND_COMPRESSING_URL"]
SAFETENSORS = "application/vnd.safetensors"


def draw(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def matrices(dtype=np.float32, batch=2, heads=3, queries=5, keys=7, columns=4):
    """Returns Q, K and V of rank 4."""
    return {"Q": draw(batch, heads, queries, columns, seed=1, dtype=dtype),
            "K": draw(batch, heads, keys, columns, seed=2, dtype=dtype),
            "V": draw(batch, heads, keys, columns, seed=3, dtype=dtype)}


def attention(tensors, **options):
    """Computes the stages of attention in float64. `options` are those of reference.attention()."""
    return reference.attention(tensors["Q"], tensors["K"], tensors["V"], **options)


def check(got, expected, dtype=np.float32, tolerance=1e-6):
    """Compares a result. float16 and bfloat16 may also differ by half a unit of their last digit."""
    assert got.dtype == dtype, f"the result is {got.dtype}, not {np.dtype(dtype)}"
    half = {"float16": 2.0 ** -11, "bfloat16": 2.0 ** -8}.get(np.dtype(dtype).name, 0)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance + half, atol=tolerance)


def nested(value):
    """Returns a list of lists of numbers as an array of float64, in which null is -inf. Returns None for other values."""
    try:
        array = np.array(value, dtype=np.float64) if value and isinstance(value, list) else None
    except (TypeError, ValueError):
        return None
    return array if array is None else np.where(np.isnan(array), -np.inf, array)


def split(request):
    """Returns the tensors and the options of a JSON request, as binary requests have them. The float type of the tensors says
    what `dtype` would say."""
    dtype = np.float64 if request.get("dtype") == "float64" else np.float32
    types = {"mask": np.bool_, "lengths": np.int64}
    tensors, options = {}, {}
    for name, value in request.items():
        array = None if name in ("return", "window", "dtype") else nested(value)
        if array is not None:
            tensors[name] = array.astype(types.get(name, dtype))
        elif name != "dtype":
            options[name] = json.dumps(value) if isinstance(value, list) else value
    return tensors, options


def flat(value, name):
    """Returns the results of an answer by their dotted names, as arrays."""
    if isinstance(value, dict):
        return {key: array for part in value for key, array in flat(value[part], f"{name}.{part}").items()}
    array = nested(value)
    return {name: np.array(value, dtype=np.float64) if array is None else array}


def golden_cases(sources=("PyTorch", "formula")):
    return [case for case in json.loads((DATA / "golden_attention.json").read_text(encoding="utf-8")) if case["source"] in sources]


def check_case(case, results):
    """Compares results with a case of the golden data. The tolerance is that of the case."""
    expected = {}
    for name, value in case["expect"].items():
        expected |= flat(value, name)
    assert set(results) == set(expected), f"{case['title']}: {sorted(results)}, not {sorted(expected)}"
    for name, array in expected.items():
        got = results[name].astype(np.float64)
        assert got.shape == array.shape, f"{case['title']}: {name} is {got.shape}, not {array.shape}"
        absolute = case.get("absolute", {}).get(name.split(".", maxsplit=1)[0], 0)
        finite = np.where(np.isinf(array), 0, array)
        allowed = absolute + case["tolerance"] * np.abs(finite).max(axis=-1 if array.ndim else None, keepdims=True)
        near = (got == array) | (np.abs(got - finite) <= allowed)
        assert near.all(), f"{case['title']}: {name} is {got[~near][0]}, not {array[~near][0]}"
