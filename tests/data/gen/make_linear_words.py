"""Writes ../golden_linear_words.json: the requests of the explorer's example "Without softmax" and another one, with the
numbers that the page must show.

Everything comes from the plain recurrence in NumPy float64. The output is linear in V, so the recurrence for V = I
gives the implied weights. The recurrence without corrections gives the weights before corrections. If only the words up
to t correct, and then only those before t, the difference is what word t has changed.
"""

import math
from pathlib import Path

import numpy as np

import casefile

WORDS = ["door", "open", "cat", "in", "door", "shut", "cat", "out"]
DOOR, CAT, SHUT, OUT = [0.96, 0.28, 0, 0], [0, 0.28, 0.96, 0], [0.8, 0.6, 0, 0], [0, 0.6, 0.8, 0]
A_DOOR, A_CAT = [0.28, 0, 0, 0.96], [0, 0, 0.28, 0.96]
Q = 2.0 * np.array([DOOR, SHUT, CAT, OUT, DOOR, SHUT, CAT, OUT])
K = np.array([A_DOOR, DOOR, A_CAT, CAT, A_DOOR, SHUT, A_CAT, OUT])
V = np.array([[0, 0, 1], [1, 0, 0], [0, 0, -1], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, 0, -1], [0, -1, 0]])
DECAY = np.array([-0.05, -0.05, -0.1, -0.05, -0.36, -0.05, -0.1, -0.05])
BETA = np.array([0.2, 1, 0.2, 1, 0.2, 0.9, 0.2, 0.9])
RULES = ["linear", "gated", "delta", "gated_delta"]


def recurrence(q, k, v, scale, gates, beta, past, last):
    """Returns the outputs and the states of a head. Only the words up to `last` correct."""
    state = past.copy()
    outputs, states = [], []
    for t in range(len(q)):
        state = gates[t][:, None] * state
        value = v[t] if beta is None else beta[t] * (v[t] - (state.T @ k[t] if t <= last else 0))
        state = state + np.outer(k[t], value)
        outputs.append(scale * state.T @ q[t])
        states.append(state)
    return np.array(outputs), np.array(states)


def head(q, k, v, scale, gates, beta, past):
    """Returns what the page shows of a head. changes[t] has what word t changed in each weight."""
    n, d = k.shape
    every = np.ones((n, d)) if gates is None else np.broadcast_to(gates, (n, d))
    output, states = recurrence(q, k, v, scale, every, beta, past, n)
    by_words = [recurrence(q, k, np.eye(n), scale, every, beta, np.zeros((d, n)), t)[0] for t in range(-1, n)]
    lower = np.tril(np.ones((n, n)))
    changes = [lower * (after - before) for before, after in zip(by_words, by_words[1:])]
    found = {"scores": q @ k.T, "scaled_scores": scale * q @ k.T, "weights": by_words[-1], "states": states, "output": output}
    if gates is not None:
        found["gates"] = gates
    if beta is not None:
        found |= {"uncorrected": by_words[0], "corrections": by_words[-1] - by_words[0], "changes": np.array(changes)}
    return found


def softmax():
    scores = Q @ K.T
    scaled = scores / 2
    masked = np.where(np.tril(np.ones((8, 8))) == 1, scaled, -np.inf)
    weights = np.exp(masked) / np.exp(masked).sum(-1, keepdims=True)
    return {"scores": scores, "scaled_scores": scaled, "masked_scores": masked, "weights": weights, "output": weights @ V}


def words(update):
    """Returns the case of a rule for the eight words."""
    given = {"Q": Q, "K": K, "V": V, "dtype": "float64"}
    if update == "softmax":
        return {"id": "005-softmax", "path": "/attention", "request": given | {"causal": True}, "expect": [softmax()]}
    gated, delta = update.startswith("gated"), update.endswith("delta")
    request = given | {"update": update} | ({"decay": DECAY} if gated else {}) | ({"beta": BETA} if delta else {})
    gates = np.exp(DECAY)[:, None] if gated else None
    name = "005" if update == "gated_delta" else f"005-{update}"
    expect = head(Q, K, V, 0.5, gates, BETA if delta else None, np.zeros((4, 3)))
    return {"id": name, "path": "/linear-attention", "request": request, "expect": [expect]}


def heads():
    """Returns a case of two heads with a gate for each column, rows of length 1, and a state from before."""
    rng = np.random.default_rng(34)
    drawn = lambda *shape: rng.normal(size=shape).round(3)  # noqa: E731
    q, k, v, past = drawn(2, 5, 3), drawn(2, 5, 3), drawn(2, 5, 2), drawn(2, 3, 2)
    decay, beta = -np.abs(drawn(2, 5, 3)), rng.uniform(0.1, 1.5, size=(2, 5)).round(3)
    request = {"dtype": "float64", "Q": q, "K": k, "V": v, "decay": decay, "beta": beta, "past_state": past, "scale": 0.7,
               "normalize_QK": True}
    norm = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)  # noqa: E731
    expect = [head(norm(q[h]), norm(k[h]), v[h], 0.7, np.exp(decay[h]), beta[h], past[h]) for h in range(2)]
    return {"id": "heads", "path": "/linear-attention", "request": request, "expect": expect}


if __name__ == "__main__":
    assert all(math.isclose(x @ x, 1) for x in K)
    cases = [words(update) for update in ["softmax", *RULES]] + [heads()]
    casefile.write(Path(__file__).resolve().parent.parent / "golden_linear_words.json", {"words": WORDS, "cases": cases})
