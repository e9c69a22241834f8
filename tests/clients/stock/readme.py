"""readme.py MODULE URL runs the blocks of Python in the section "NumPy, PyTorch, Triton" of server/clients/README.md that import
MODULE, which is numpy or torch. Each must print what the block of text behind it says. Its `answer` must be attention of its Q, K
and V, which are computed again here in float64."""

import contextlib
import io
import pathlib
import re
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parents[3]
PAGE = "server/clients/README.md"
sys.path[:0] = [str(ROOT / "tests" / "data" / "gen"), str(ROOT / "server" / "clients" / "python")]
import reference  # noqa: E402 pylint: disable=wrong-import-position,import-error

ADDRESS = "127.0.0.1:8080"


def array(value):
    """Returns an array or a tensor as an array of float64 of rank 4."""
    value = value if isinstance(value, np.ndarray) else value.double().numpy()
    return value.astype(np.float64).reshape((1,) * (4 - value.ndim) + value.shape)


def run(code, promised):
    """Runs a block, and checks its answer."""
    assert ADDRESS in code, f"the block does not ask {ADDRESS}"
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(code.replace(ADDRESS, sys.argv[2].removeprefix("http://")), names)  # pylint: disable=exec-used
    assert printed.getvalue() == promised, f"the block printed {printed.getvalue()!r}, not {promised!r}"
    expected = reference.attention(*(array(names[name]) for name in "QKV"), causal="causal" in code)
    for name, result in names["answer"].items():
        limit = 2.0 ** -8 if "bfloat16" in str(result.dtype) else 1e-6
        np.testing.assert_allclose(array(result).reshape(expected[name].shape), expected[name], rtol=limit, atol=1e-6)


def main():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    section = re.search(r"^## NumPy, PyTorch, Triton$(.*?)(?=^## |\Z)", text, re.M | re.S)
    blocks = re.findall(r"^```python\n((?:(?!```)[^\n]*\n)*)```\n\n```text\n(.*?)^```$", section[1] if section else "", re.M | re.S)
    chosen = [(code, promised) for code, promised in blocks if f"import {sys.argv[1]}" in code]
    assert chosen, f"the section has no block with {sys.argv[1]}"
    for code, promised in chosen:
        lines = [line for line in code.splitlines() if line]
        assert len(lines) <= 10, f"the block has {len(lines)} lines"
        run(code, promised)
    print(f"{PAGE}: the Python with {sys.argv[1]} does what it says")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"{PAGE}: {error}")
