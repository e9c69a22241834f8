#!/usr/bin/python3
"""check.py NAME FILE checks what a client printed. It is one line of JSON with the `output` and the `weights` of the first
notebook, the output of the same call with `drawn` matrices, and `status`, `detail` and `pointer` of the answer to a bad
request."""

import json
import pathlib
import sys

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"


def expected(name):
    return json.loads((NOTEBOOKS / f"{name}.expected.json").read_text(encoding="utf-8"))


def check_matrix(what, got, notebook, key):
    """Compares a matrix with the tolerance of the notebook: half a unit of the last decimal, and a part of the largest number of
    the row."""
    rows, half = notebook["expect"][key], 0.5 * 10.0 ** -notebook["decimals"][key]
    assert [len(row) for row in got] == [len(row) for row in rows], f"{what} has another shape: {got}"
    for row, row_expected in zip(got, rows):
        allowed = half + notebook["tolerance"] * max(map(abs, row_expected))
        for number, number_expected in zip(row, row_expected):
            assert abs(number - number_expected) <= allowed, f"{what} has {number}, not {number_expected}"


def main():
    name, file = sys.argv[1:]
    said = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    given, drawn = expected("000-attention"), expected("000-seeded")
    check_matrix("output", said["output"], given, "output")
    check_matrix("weights", said["weights"], given, "weights")
    check_matrix("the output of drawn matrices", said["drawn"], drawn, "output")
    assert said["status"] == 422, f"the status of the bad request is {said['status']}"
    assert said["pointer"] == "/K", f"the pointer is {said['pointer']}"
    assert "K has 3 columns" in said["detail"], f"the detail is {said['detail']}"
    print(f"{name}: the notebook, drawn matrices and the error are right")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
