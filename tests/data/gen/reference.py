"""Attention in NumPy float64, written from the formulas and from nothing else.

The golden data is compared with this file. It is slow and simple on purpose: masks are built element
by element, and heads and batches are plain loops over rank-4 arrays. It shares no code with the
library, and knows nothing of JSON or dtypes.
"""

import math

import numpy as np


def alibi_slopes(heads):
    """Returns the slopes of Press et al. 2021. For a power of two they are a geometric sequence. For other
    counts they are those of the next lower power, and then every other one of the next higher power."""
    power = 2 ** int(math.floor(math.log2(heads)))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    if power < heads:
        slopes += [2.0 ** (-8.0 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return np.array(slopes[:heads])


def first_position(b, n, m, past, causal, alignment, lengths):
    """Returns the position of query 0 of a batch item. The last query stands at the last valid key, or query 0 follows
    the past keys."""
    length = m if lengths is None else lengths[b]
    return length - n if "bottom_right" in (causal, alignment) else past


def allowed(batch, heads, n, m, past=0, mask=None, causal=False, alignment=None, window=None, lengths=None):
    """Returns an array (batch, heads, n, m) of booleans, true if this query may attend to this key."""
    left, right = window if window is not None else (-1, -1)
    yes = np.ones((batch, heads, n, m), dtype=bool)
    for b in range(batch):
        for i in range(n):
            for j in range(m):
                position = i + first_position(b, n, m, past, causal, alignment, lengths)
                if causal and j > position:
                    yes[b, :, i, j] = False
                if left >= 0 and j < position - left:
                    yes[b, :, i, j] = False
                if right >= 0 and j > position + right:
                    yes[b, :, i, j] = False
                if lengths is not None and j >= lengths[b]:
                    yes[b, :, i, j] = False
    if mask is not None:
        yes &= np.broadcast_to(np.asarray(mask).astype(bool), yes.shape)
    return yes


def softmax_rows(x, sink=None):
    """Returns the weights and the log of the denominator over the last axis. `sink` (H) joins the
    denominator."""
    weights = np.zeros_like(x)
    lse = np.full(x.shape[:-1], -np.inf)
    for index in np.ndindex(*x.shape[:-1]):
        row = x[index]
        logits = row if sink is None else np.append(row, sink[index[1]])
        top = logits.max()
        if top == -np.inf:
            continue
        total = np.exp(logits - top).sum()
        lse[index] = top + math.log(total)
        weights[index] = np.exp(row - top) / total
    return weights, lse


def attention(q, k, v, mask=None, bias=None, causal=False, alignment=None, window=None, scale=None,
              softcap=0.0, alibi=None, sink=None, lengths=None, past_k=None, past_v=None,
              normalization="softmax", top_k=5):
    """Computes attention of q (B,H,n,d), k (B,H_kv,m,d) and v (B,H_kv,m,d_v). Returns every stage by its name."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    statistics_k = k
    past = 0
    if past_k is not None:
        past = past_k.shape[2]
        k = np.concatenate([np.asarray(past_k, dtype=np.float64), k], axis=2)
        v = np.concatenate([np.asarray(past_v, dtype=np.float64), v], axis=2)
    batch, heads, n, d = q.shape
    kv_heads, m = k.shape[1], k.shape[2]
    group = heads // kv_heads
    scale = 1.0 / math.sqrt(d) if scale is None else scale

    scores = np.empty((batch, heads, n, m))
    for b in range(batch):
        for h in range(heads):
            scores[b, h] = q[b, h] @ k[b, h // group].T
    scaled = scale * scores
    if softcap > 0:
        scaled = softcap * np.tanh(scaled / softcap)

    masked = scaled.copy()
    if bias is not None:
        masked = masked + np.broadcast_to(np.asarray(bias, dtype=np.float64), masked.shape)
    if alibi is not None:
        slopes = alibi_slopes(heads) if alibi is True else np.asarray(alibi, dtype=np.float64)
        for b in range(batch):
            first = first_position(b, n, m, past, causal, alignment, lengths)
            for i in range(n):
                for j in range(m):
                    masked[b, :, i, j] += -slopes * abs(first + i - j)
    masked[~allowed(batch, heads, n, m, past, mask, causal, alignment, window, lengths)] = -np.inf

    if normalization == "softmax":
        weights, lse = softmax_rows(masked, sink)
    else:
        weights, lse = np.where(masked == -np.inf, 0.0, masked), None

    output = np.empty((batch, heads, n, v.shape[3]))
    for b in range(batch):
        for h in range(heads):
            output[b, h] = weights[b, h] @ v[b, h // group]

    positive = np.where(weights > 0, weights, 1.0)
    order = np.argsort(-weights, axis=-1, kind="stable")[..., : min(top_k, m)]
    return {
        "output": output,
        "weights": weights,
        "scores": scores,
        "scaled_scores": scaled,
        "masked_scores": masked,
        "lse": lse,
        "entropy": (weights * -np.log(positive)).sum(axis=-1) + 0.0,
        "top_k": {"indices": order, "weights": np.take_along_axis(weights, order, axis=-1)},
        "statistics": {"variance": {"Q": q.var(), "K": statistics_k.var(), "scores": scores.var(),
                                    "scaled_scores": scaled.var()}},
        "present_K": k,
        "present_V": v,
    }


def split_heads(x, heads):
    """Converts (B,n,H*d) to (B,H,n,d)."""
    batch, n, width = x.shape
    return x.reshape(batch, n, heads, width // heads).transpose(0, 2, 1, 3)


def join_heads(x):
    """Converts (B,H,n,d) to (B,n,H*d)."""
    batch, heads, n, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, n, heads * d)
