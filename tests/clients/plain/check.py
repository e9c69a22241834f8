#!/usr/bin/python3
"""check.py NAME checks what a client of this folder printed: the output and the weights that came as JSON, the same of a
causal call that came as bytes, and the error. It computes these numbers itself, and it reads all numbers of a line in their
order, so that each language may print them in its own way."""

import math
import re
import sys

Q = [[1, 0, 2], [0, 3, 1]]
K = [[1, 1, 0], [0, 2, 1], [3, 0, 1], [1, 0, 1]]
V = [[1, 2], [3, 4], [5, 6], [7, 8]]
NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"


def attention(causal):
    """Returns the output and the weights, as flat lists."""
    output, weights = [], []
    for i, q in enumerate(Q):
        scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(len(q)) for k in K]
        powers = [math.exp(score) if j <= i or not causal else 0 for j, score in enumerate(scores)]
        row = [power / sum(powers) for power in powers]
        weights += row
        output += [sum(weight * v[column] for weight, v in zip(row, V)) for column in range(len(V[0]))]
    return output, weights


def check_numbers(what, text, expected):
    got = [float(number) for number in re.findall(NUMBER, text)]
    assert len(got) == len(expected), f"{what}: {len(got)} numbers, not {len(expected)}: {text}"
    for number, number_expected in zip(got, expected):
        assert abs(number - number_expected) <= 1e-6 * max(1, abs(number_expected)), f"{what}: {number}, not {number_expected}"


def main():
    lines = sys.stdin.read().splitlines()
    said = {kind: " ".join(line for line in lines if line.startswith(kind)) for kind in ("JSON", "binary output", "binary weights")}
    output, weights = attention(causal=False)
    check_numbers("as JSON", said["JSON"], output + weights)
    output, weights = attention(causal=True)
    check_numbers("binary output", said["binary output"], output)
    check_numbers("binary weights", said["binary weights"], weights)
    assert lines[-1].startswith("error: 422 ") and "K has 2 columns but Q has 3" in lines[-1], f"the error is {lines[-1]!r}"
    print(f"{sys.argv[1]}: JSON, binary tensors and the error are right")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
