"""Reads what the notebooks print. printed/NNN.txt has these cells word for word.

Each section starts with "== name". NumPy and PyTorch both print nested brackets. "..." means that rows
or columns are left out.
"""

import pathlib
import re

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "printed"
TOKEN = re.compile(r"\[|\]|\.\.\.|-inf|[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def sections(notebook):
    text = (FOLDER / f"{notebook}.txt").read_text(encoding="utf-8")
    return dict(part.split("\n", 1) for part in text.split("== ")[1:])


def nested(text):
    """Returns nested lists of floats, with Ellipsis where the notebook leaves something out."""
    stack = [[]]
    for token in TOKEN.findall(text):
        if token == "[":
            stack.append([])
        elif token == "]":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(Ellipsis if token == "..." else float(token))
    assert len(stack) == 1 and len(stack[0]) == 1, text
    return stack[0][0]


def array(text):
    return np.array(nested(text))


def check(actual, text, decimals):
    """Asserts that `actual` would print as `text`. Numbers that the notebook leaves out are not compared."""
    compare(np.asarray(actual), nested(text), decimals)


def compare(actual, shown, decimals):
    if not isinstance(shown, list):
        assert actual == shown or abs(actual - shown) <= 0.5000001 * 10.0 ** -decimals, (actual, shown)
        return
    if Ellipsis in shown:
        cut = shown.index(Ellipsis)
        tail = shown[cut + 1 :]
        assert len(actual) > len(shown) - 1
        compare(actual[len(actual) - len(tail) :], tail, decimals)
        actual, shown = actual[:cut], shown[:cut]
    assert len(actual) == len(shown), (len(actual), len(shown))
    for a, s in zip(actual, shown):
        compare(a, s, decimals)
