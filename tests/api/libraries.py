"""What other libraries compute: for each row of tests/clients/kernel/NAMES.md the arguments of a small call and its results.

CALLS has a section for each section of the page. A section has a function for each row, under the words of the row's first
column. It draws the arguments and computes the results by plain loops, in the convention of the library: the order of axes,
which key a query sees, the base of logarithms. It returns all that the formulas of the row name. To add a row: write it into
the page and a function here.
"""

import itertools
import math

from arrays import Array

# The batch, the queries, the keys, the heads of Q, those of K and V, the columns of Q and K, and those of V.
SIZES = {"b": 2, "n": 3, "m": 5, "h": 4, "h_k": 2, "d": 4, "d_v": 3}
B, N, M, H, HK, D, DV = SIZES.values()
FLOAT32_MIN = -3.4028234663852886e38
QUERIES, KEYS = [2, 0, 3, 1], [4, 2, 3, 0]  # the lengths of packed sequences
TABLE, USED = [[3, 0], [5, 1]], [3, 4]  # pages of two keys, and the valid keys of each batch item


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def array(lists):
    """Makes an array of nested lists."""
    shape, flat = [], lists
    while isinstance(flat, list):
        shape.append(len(flat))
        flat = flat[0] if flat else None
    for _ in shape[1:]:
        lists = [number for part in lists for number in part]
    return Array(shape, lists)


def swapped(x):
    """(batch, n, heads, d) as (batch, heads, n, d), and back."""
    return x.transpose(0, 2, 1, 3)


def spread(x, *sizes):
    """Each number of x for a block of these sizes."""
    shape = [count * size for count, size in zip(x.shape, sizes)]
    return Array(shape, [x.at([index // size for index, size in zip(place, sizes)]) for place in itertools.product(*map(range, shape))])


def one_head(q, k, v, scale, change, sees, sink):
    """Softmax attention of one head of one batch item: the rows of the output, the natural logarithms of sums, and the weights."""
    out, lse, weights = [], [], []
    for i, row in enumerate(q):
        terms = {j: math.exp(change(scale * dot(row, key), i, j)) for j, key in enumerate(k) if sees(i, j)}
        total = sum(terms.values()) + (0 if sink is None else math.exp(sink))
        weights.append([terms.get(j, 0) / total if total else 0 for j in range(len(k))])
        out.append([dot(weights[-1], column) for column in zip(*v)] if v else [0] * DV)
        lse.append(math.log(total) if total else -math.inf)
    return out, lse, weights


def softmax_attention(q, k, v, scale=None, change=lambda score, item, head, i, j: score, sees=lambda item, head, i, j: True, sink=None):
    """q (batch, heads, n, d), k and v with fewer heads: the output, the logarithms (batch, heads, n) and the weights."""
    group = q.shape[1] // k.shape[1]
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    results = [[one_head(q[item, head].tolist(), k[item, head // group].tolist(), v[item, head // group].tolist(), scale,
                         lambda score, i, j, at=(item, head): change(score, *at, i, j),
                         lambda i, j, at=(item, head): sees(*at, i, j), None if sink is None else sink[head])
                for head in range(q.shape[1])] for item in range(q.shape[0])]
    return [array([[head[part] for head in item] for item in results]) for part in range(3)]


def capped(cap):
    return lambda score, item, head, i, j: cap * math.tanh(score / cap)


def offsets(lengths):
    """Where each sequence begins, and the number of all rows."""
    return array([sum(lengths[:count]) for count in range(len(lengths) + 1)])


def packed(q, k, v, queries, keys, sees=lambda i, j, n, m: True):
    """q (rows, heads, d): the output (rows, heads, d_v) and the logarithms (heads, rows), one sequence after the other."""
    out, lse, at, key = [], [[] for _ in range(q.shape[1])], 0, 0
    for n, m in zip(queries, keys):
        here = lambda item, head, i, j, n=n, m=m: sees(i, j, n, m)
        item = (swapped(x[None]) for x in (q[at:at + n], k[key:key + m], v[key:key + m]))
        some, logs, _ = softmax_attention(*item, sees=here) if n else (Array((1, q.shape[1], 0, DV), []), array([[[]] * q.shape[1]]), None)
        out += swapped(some)[0].tolist() if n else []
        for head, numbers in enumerate(lse):
            numbers += logs[0, head].numbers if n else []
        at, key = at + n, key + m
    return array(out), array(lse)


def gradient(loss, x, step=1e-3):
    """The gradient of a function of an array, by differences of the fourth order."""
    def moved(place, by):
        return loss(Array(x.shape, [number + by * (index == place) for index, number in enumerate(x.numbers)]))
    return Array(x.shape, [(8 * (moved(place, step) - moved(place, -step)) - moved(place, 2 * step) + moved(place, -2 * step))
                           / (12 * step) for place in range(len(x.numbers))])


# ------------------------------------------------------------------------------------------------------- FlashAttention
def flash(draw, rules=None, **given):
    """(batch, n, heads, d), the natural logarithm (batch, heads, n). `given` are arguments that the result needs not."""
    q, k, v = draw(B, N, H, D), draw(B, M, HK, D), draw(B, M, HK, DV)
    out, lse, _ = softmax_attention(swapped(q), swapped(k), swapped(v), **(rules or {}))
    return {**SIZES, "q": q, "k": k, "v": v, "out": swapped(out), "lse": lse, **given}


def flash_qv(draw):
    """Scores are q · k + qv · v, and the scale counts both: 1/√(d + d_v)."""
    q, qv, k, v = draw(B, N, H, D), draw(B, N, H, DV), draw(B, M, HK, D), draw(B, M, HK, DV)
    second = lambda score, item, head, i, j: score + dot(qv[item, i, head].numbers, v[item, j, head // (H // HK)].numbers) / math.sqrt(D + DV)
    out, lse, _ = softmax_attention(swapped(q), swapped(k), swapped(v), 1 / math.sqrt(D + DV), second)
    return {**SIZES, "q": q, "qv": qv, "k": k, "v": v, "out": swapped(out), "lse": lse}


def flash_packed(draw):
    """Rows of all sequences, causal from the last key of each."""
    q, k, v = draw(sum(QUERIES), H, D), draw(sum(KEYS), HK, D), draw(sum(KEYS), HK, DV)
    out, lse = packed(q, k, v, QUERIES, KEYS, lambda i, j, n, m: j <= i + m - n)
    return {**SIZES, "q": q, "k": k, "v": v, "out": out, "lse": lse, "cu_seqlens_q": offsets(QUERIES), "cu_seqlens_k": offsets(KEYS)}


def pages_of(cache, heads=HK):
    """The keys of each batch item, found in their pages (page, key, heads, d), as (batch, heads, keys, d)."""
    return swapped(array([[[cache[page, key, head].tolist() for head in range(heads)] for page in pages for key in range(2)]
                          for pages in TABLE]))


def flash_used(draw):
    """Keys behind the used ones do not exist, and the last query stands at the last used key."""
    return flash(draw, {"sees": lambda item, head, i, j: j < USED[item] and j <= i + USED[item] - N}, cache_seqlens=array(USED))


def flash_pages(draw):
    q, k_cache, v_cache = draw(B, N, H, D), draw(6, 2, HK, D), draw(6, 2, HK, DV)
    out, lse, _ = softmax_attention(swapped(q), pages_of(k_cache), pages_of(v_cache), sees=lambda item, head, i, j: j < USED[item])
    return {**SIZES, "q": q, "k_cache": k_cache, "v_cache": v_cache, "page_table": array(TABLE), "cache_seqlens": array(USED),
            "out": swapped(out), "lse": lse}


def flash_backward(draw):
    """The gradients of the sum of dout · out."""
    names = flash(draw)
    dout, inputs = draw(B, N, H, DV), [names[name] for name in "qkv"]

    def loss(q, k, v):
        return dot(swapped(softmax_attention(*map(swapped, (q, k, v)))[0]).numbers, dout.numbers)
    for place, name in enumerate(("dq", "dk", "dv")):
        names[name] = gradient(lambda x, place=place: loss(*inputs[:place], x, *inputs[place + 1:]), inputs[place])
    return {**names, "dout": dout}


def flash_descale(draw):
    """Heads of Q are scaled by the number of their key head."""
    names = flash(draw, q_descale=draw(B, HK), k_descale=draw(B, HK), v_descale=draw(B, HK))
    q, k, v = (names[name] * spread(names[f"{name}_descale"][:, None, :, None], 1, 1, size, 1) for name, size in (("q", H // HK), ("k", 1), ("v", 1)))
    out, lse, _ = softmax_attention(swapped(q), swapped(k), swapped(v))
    return {**names, "out": swapped(out), "lse": lse}


SLOPES, SINKS = [0.5, 0.25, 0.7, 0.1], [0.3, -1, 2, 0]
FLASH = {
    "`q`, `k`, `v`": flash,
    "`softmax_scale`": lambda draw: flash(draw, {"scale": 0.3}, softmax_scale=0.3),
    "`causal`": lambda draw: flash(draw, {"sees": lambda item, head, i, j: j <= i + M - N}),
    "`window_size`": lambda draw: flash(draw, {"sees": lambda item, head, i, j: i + M - N - 1 <= j <= i + M - N + 0}, window_size=(1, 0)),
    "`softcap`": lambda draw: flash(draw, {"change": capped(0.7)}, softcap=0.7),
    "`alibi_slopes`": lambda draw: flash(
        draw, {"change": lambda score, item, head, i, j: score - SLOPES[head] * abs(i + M - N - j)}, alibi_slopes=array(SLOPES)),
    "`learnable_sink`": lambda draw: flash(draw, {"sink": SINKS}, learnable_sink=array(SINKS)),
    "`qv`": flash_qv,
    "`cu_seqlens_q`, `cu_seqlens_k`": flash_packed,
    "`cache_seqlens`": flash_used,
    "`page_table`, `block_table`": flash_pages,
    "`q_descale`, `k_descale`, `v_descale`": flash_descale,
    "`dout`": flash_backward,
}


# ----------------------------------------------------------------------------------------------------------- FlashInfer
def infer_results(q, k, v, **rules):
    """(n, heads, d), and the logarithm to base 2 (n, heads)."""
    out, lse, _ = softmax_attention(*(swapped(x[None]) for x in (q, k, v)), **rules)
    return {"out": swapped(out)[0], "lse": lse[0].transpose(1, 0) / math.log(2)}


def infer(draw, rules=None, **given):
    q, k, v = draw(N, H, D), draw(M, HK, D), draw(M, HK, DV)
    return {**SIZES, "q": q, "k": k, "v": v, **infer_results(q, k, v, **(rules or {})), **given}


def infer_ragged(draw):
    q, k, v = draw(sum(QUERIES), H, D), draw(sum(KEYS), HK, D), draw(sum(KEYS), HK, DV)
    out, lse = packed(q, k, v, QUERIES, KEYS)
    return {**SIZES, "q": q, "k": k, "v": v, "out": out, "lse": lse.transpose(1, 0) / math.log(2),
            "qo_indptr": offsets(QUERIES), "kv_indptr": offsets(KEYS)}


def infer_pages(draw):
    """The pages of a sequence are kv_indices[kv_indptr[i]:kv_indptr[i + 1]], and the last one is filled in part."""
    indptr, indices, last = [0, 2, 3], [4, 1, 2], [1, 2]
    q, k_cache, v_cache = draw(4, H, D), draw(6, 2, HK, D), draw(6, 2, HK, DV)
    k, v, kv_len = [], [], []
    for item, filled in enumerate(last):
        pages = indices[indptr[item]:indptr[item + 1]]
        rows = [(page, key) for page in pages for key in range(filled if page == pages[-1] else 2)]
        k, v = k + [k_cache[row].tolist() for row in rows], v + [v_cache[row].tolist() for row in rows]
        kv_len.append(len(rows))
    out, lse = packed(q, array(k), array(v), [1, 3], kv_len)
    return {**SIZES, "q": q, "k_cache": k_cache, "v_cache": v_cache, "out": out, "lse": lse.transpose(1, 0) / math.log(2),
            "qo_indptr": array([0, 1, 4]), "kv_indptr": array(indptr), "kv_indices": array(indices), "kv_last_page_len": array(last),
            "page_size": 2}


def infer_scales(draw):
    names = infer(draw, q_scale=0.7, k_scale=0.8, v_scale=1.3)
    return {**names, **infer_results(names["q"] * 0.7, names["k"] * 0.8, names["v"] * 1.3)}


def infer_block_scales(draw):
    """A number for two columns of K, and for three of V, times one for the whole matrix."""
    names = infer(draw, key_block_scales=draw(M, HK, D // 2), value_block_scales=draw(M, HK, DV // 3), k_scale=0.8, v_scale=1.3)
    k = names["k"] * spread(names["key_block_scales"], 1, 1, 2) * 0.8
    return {**names, **infer_results(names["q"], k, names["v"] * spread(names["value_block_scales"], 1, 1, 3) * 1.3)}


def infer_row_scales(draw):
    """A number for each key and head."""
    names = infer(draw, k_scale_cache=draw(M, HK), v_scale_cache=draw(M, HK))
    k, v = (names[name] * names[f"{name}_scale_cache"][..., None] for name in "kv")
    return {**names, **infer_results(names["q"], k, v)}


CUSTOM = [[True, False, True, True, False], [False, True, False, False, False], [True, True, True, False, True]]
INFER = {
    "`return_lse`": infer,
    "`sm_scale`": lambda draw: infer(draw, {"scale": 0.3}, sm_scale=0.3),
    "`logits_soft_cap`": lambda draw: infer(draw, {"change": capped(0.7)}, logits_soft_cap=0.7),
    "`causal`": lambda draw: infer(draw, {"sees": lambda item, head, i, j: j <= i + M - N}),
    "`window_left`": lambda draw: infer(draw, {"sees": lambda item, head, i, j: i + M - N - 1 <= j <= i + M - N}, window_left=1),
    "`custom_mask`": lambda draw: infer(draw, {"sees": lambda item, head, i, j: CUSTOM[i][j]}, custom_mask=array(CUSTOM)),
    "`qo_indptr`, `kv_indptr`": infer_ragged,
    "`kv_indices`, `kv_last_page_len`": infer_pages,
    "`q_scale`, `k_scale`, `v_scale`": infer_scales,
    "`key_block_scales`, `value_block_scales`": infer_block_scales,
    "vLLM: `k_scale_cache`, `v_scale_cache`": infer_row_scales,
}


# ---------------------------------------------------------------------------------------------------------------- cuDNN
def cudnn(draw, rules=None, **given):
    """(batch, heads, n, d), statistics (batch, heads, n, 1), and a scale of 1 unless attn_scale is given."""
    q, k, v = draw(B, H, N, D), draw(B, HK, M, D), draw(B, HK, M, DV)
    o, stats, _ = softmax_attention(q, k, v, **{"scale": 1, **(rules or {})})
    return {**SIZES, "q": q, "k": k, "v": v, "o": o, "stats": stats[..., None], **given}


def cudnn_pages(draw):
    """Containers (page, heads, key, d), and tables (batch, 1, pages, 1)."""
    q, k, v = draw(B, H, N, D), draw(6, HK, 2, D), draw(6, HK, 2, DV)
    o, stats, _ = softmax_attention(q, pages_of(swapped(k)), pages_of(swapped(v)), 1, sees=lambda item, head, i, j: j < USED[item])
    return {**SIZES, "q": q, "container_k": k, "container_v": v, "o": o, "stats": stats[..., None], "seq_len_kv": array(USED).reshape(B, 1, 1, 1),
            "paged_attention_k_table": array(TABLE).reshape(B, 1, 2, 1)}


def cudnn_descale(draw, m, *shapes):
    """Scales with as many axes as q, k and v, each of which divides that of the matrix into blocks."""
    inputs = [draw(B, H, N, D), draw(B, HK, m, D), draw(B, HK, m, DV)]
    scales = [draw(*shape) for shape in shapes]
    q, k, v = (x * spread(scale, *(size // count for size, count in zip(x.shape, scale.shape))) for x, scale in zip(inputs, scales))
    o, stats, _ = softmax_attention(q, k, v, 1)
    return {**SIZES, **dict(zip(("q", "k", "v", "descale_q", "descale_k", "descale_v"), inputs + scales)), "o": o, "stats": stats[..., None]}


def biased(bias):
    return lambda score, item, head, i, j: score + bias.at((item, head, i, j))


def cudnn_bias(draw):
    bias = draw(1, H, N, M)
    return cudnn(draw, {"change": biased(bias)}, bias=bias)


CUDNN = {
    "`generate_stats`": cudnn,
    "`attn_scale`": lambda draw: cudnn(draw, {"scale": 0.3}, attn_scale=0.3),
    "`bias`": cudnn_bias,
    "`use_causal_mask`": lambda draw: cudnn(draw, {"sees": lambda item, head, i, j: j <= i}),
    "`use_causal_mask_bottom_right`": lambda draw: cudnn(draw, {"sees": lambda item, head, i, j: j <= i + M - N}),
    "`diagonal_band_left_bound`, `diagonal_band_right_bound`": lambda draw: cudnn(
        draw, {"sees": lambda item, head, i, j: i - 2 < j <= i + 1}, diagonal_band_left_bound=2, diagonal_band_right_bound=1),
    "`diagonal_alignment`": lambda draw: cudnn(
        draw, {"sees": lambda item, head, i, j: i + M - N - 2 < j <= i + M - N + 1}, diagonal_band_left_bound=2, diagonal_band_right_bound=1),
    "`use_alibi_mask`": lambda draw: cudnn(draw, {
        "change": lambda score, item, head, i, j: score - 2**(-8 * (head + 1) / H) * (i - j), "sees": lambda item, head, i, j: j <= i}),
    "`seq_len_kv`": lambda draw: cudnn(
        draw, {"sees": lambda item, head, i, j: j < USED[item]}, seq_len_kv=array(USED).reshape(B, 1, 1, 1)),
    "`sink_token`": lambda draw: cudnn(draw, {"sink": SINKS}, sink_token=array(SINKS).reshape(1, H, 1, 1)),
    "`descale_q`, `descale_k`, `descale_v`": lambda draw: cudnn_descale(draw, M, *[(1, 1, 1, 1)] * 3),
    "`descale_q`, `descale_k`, `descale_v` of MXFP8": lambda draw: cudnn_descale(
        draw, 6, (B, H, N, D // 2), (B, HK, 6, D // 2), (B, HK, 2, DV)),
    "`paged_attention_k_table`": cudnn_pages,
}


# -------------------------------------------------------------------------------------------------------------- PyTorch
def torch(draw, rules=None, scale=None, **given):
    """(batch, heads, n, d). Causal attention counts from the first key."""
    query, key, value = draw(B, H, N, D), draw(B, HK, M, D), draw(B, HK, M, DV)
    out, lse, _ = softmax_attention(query, key, value, **{"scale": scale, **(rules or {})})
    return {**SIZES, "query": query, "key": key, "value": value, "scale": scale, "out": out, "lse": lse, **given}


def torch_bias(draw, name):
    bias = draw(B, H, N, M)
    return torch(draw, {"change": biased(bias)}, **{name: bias})


def torch_dropout(draw):
    """Weights are dropped after softmax, and the rest is divided by 1 − p."""
    names, keep = torch(draw), Array((B, H, N, M), [chance < 0.4 for chance in draw(B, H, N, M).numbers])
    weights = softmax_attention(names["query"], names["key"], names["value"])[2]
    dropped = weights * keep / 0.75
    out = [[[[dot(dropped[item, head, i].numbers, names["value"][item, head // 2, :, c].numbers) for c in range(DV)] for i in range(N)]
            for head in range(H)] for item in range(B)]
    return {**names, "keep": keep, "p": 0.25, "out": array(out)}


TORCH = {
    "`attn_mask` of booleans": lambda draw: torch(draw, {"sees": lambda item, head, i, j: CUSTOM[i][j]}, attn_mask=array(CUSTOM)),
    "`attn_mask` of numbers": lambda draw: torch_bias(draw, "attn_mask"),
    "`is_causal`": lambda draw: torch(draw, {"sees": lambda item, head, i, j: j <= i}),
    "`scale`": lambda draw: torch(draw, scale=0.3),
    "`enable_gqa`": torch,
    "`dropout_p`": torch_dropout,
}


def varlen(draw, sees=lambda i, j, n, m: True, **given):
    """(rows, heads, d). Windows count from the last key of each sequence."""
    query, key, value = draw(sum(QUERIES), H, D), draw(sum(KEYS), HK, D), draw(sum(KEYS), HK, DV)
    out, lse = packed(query, key, value, QUERIES, KEYS, sees)
    return {**SIZES, "query": query, "key": key, "value": value, "out": out, "lse": lse, "cu_seq_q": offsets(QUERIES),
            "cu_seq_k": offsets(KEYS), **given}


def varlen_used(draw):
    names, used = varlen(draw), [2, 2, 1, 0]
    rows = [row + key for row, count in zip(names["cu_seq_k"].numbers, used) for key in range(count)]
    out, lse = packed(names["query"], names["key"][array(rows)], names["value"][array(rows)], QUERIES, used)
    return {**names, "seqused_k": array(used), "out": out, "lse": lse}


def varlen_pages(draw):
    query, key, value = draw(3, H, D), draw(6, 2, HK, D), draw(6, 2, HK, DV)
    found = [[[cache[TABLE[item][row // 2], row % 2].tolist() for row in range(count)] for item, count in enumerate(USED)] for cache in (key, value)]
    out, lse = packed(query, *(array(sum(rows, [])) for rows in found), [1, 2], USED)
    return {**SIZES, "query": query, "key": key, "value": value, "out": out, "lse": lse, "cu_seq_q": offsets([1, 2]),
            "block_table": array(TABLE), "seqused_k": array(USED)}


VARLEN = {
    "`cu_seq_q`, `cu_seq_k`": varlen,
    "`window_size`": lambda draw: varlen(draw, lambda i, j, n, m: i + m - n - 1 <= j <= i + m - n, window_size=(1, 0)),
    "`seqused_k`": varlen_used,
    "`block_table`": varlen_pages,
}
DOCUMENTS = [0, 0, 1, 1, 1]


def flex_documents(draw):
    query, key, value = draw(B, H, M, D), draw(B, HK, M, D), draw(B, HK, M, DV)
    out, lse, _ = softmax_attention(query, key, value, sees=lambda item, head, i, j: DOCUMENTS[i] == DOCUMENTS[j] and i >= j)
    return {**SIZES, "query": query, "key": key, "value": value, "out": out, "lse": lse, "document": array(DOCUMENTS)}


def flex_bias(draw):
    """score_mod adds a number that depends on the distance."""
    table = draw(N + M)
    change = lambda score, item, head, i, j: score + table.numbers[j - i + N]
    return torch(draw, {"change": change}, bias=array([[table.numbers[j - i + N] for j in range(M)] for i in range(N)]))


FLEX = {
    "`score_mod` that adds": flex_bias,
    "`score_mod` of tanh": lambda draw: torch(draw, {"change": capped(0.7)}, cap=0.7),
    "`block_mask`, `mask_mod`": lambda draw: torch(draw, {"sees": lambda item, head, i, j: CUSTOM[i][j]}, allowed=array(CUSTOM)),
    "`mask_mod` of documents": flex_documents,
}


# ----------------------------------------------------------------------------------------------------------------- ONNX
def onnx(draw, rules=None, **given):
    """(batch, heads, n, d) without a past, and causal attention counts from the first key."""
    q, k, v = draw(B, H, N, D), draw(B, HK, M, D), draw(B, HK, M, DV)
    y, _, weights = softmax_attention(q, k, v, **(rules or {}))
    return {**SIZES, "Q": q, "K": k, "V": v, "Y": y, "weights": weights, **given}


def side_by_side(x):
    """(batch, heads, n, d) as (batch, n, heads · d)."""
    return swapped(x).reshape(x.shape[0], x.shape[2], -1)


def onnx_rank3(draw):
    names = onnx(draw)
    return {**names, **{name: side_by_side(names[name]) for name in "QKVY"}, "q_num_heads": H, "kv_num_heads": HK}


def onnx_bias(draw):
    bias = draw(1, H, N, M)
    return onnx(draw, {"change": biased(bias)}, attn_mask=bias)


def onnx_past(draw):
    """The past stands before the new keys, and is_causal counts it: a query sees i + p."""
    past_key, past_value, key, value, query = draw(B, HK, 2, D), draw(B, HK, 2, DV), draw(B, HK, N, D), draw(B, HK, N, DV), draw(B, H, N, D)
    k, v = (array([[past[item, head].tolist() + new[item, head].tolist() for head in range(HK)] for item in range(B)])
            for past, new in ((past_key, key), (past_value, value)))
    y = softmax_attention(query, k, v, sees=lambda item, head, i, j: j <= i + 2)[0]
    return {**SIZES, "Q": query, "K": key, "V": value, "Y": y, "past_key": past_key, "past_value": past_value}


ONNX = {
    "`q_num_heads`, `kv_num_heads`": onnx_rank3,
    "`attn_mask` of booleans": lambda draw: onnx(draw, {"sees": lambda item, head, i, j: CUSTOM[i][j]}, attn_mask=array(CUSTOM)),
    "`attn_mask` of numbers": onnx_bias,
    "`is_causal`": lambda draw: onnx(draw, {"sees": lambda item, head, i, j: j <= i}),
    "`past_key`, `past_value`": onnx_past,
    "`nonpad_kv_seqlen`": lambda draw: onnx(
        draw, {"sees": lambda item, head, i, j: j < USED[item] and j <= i + USED[item] - N}, nonpad_kv_seqlen=array(USED)),
    "`left_window_size`, `right_window_size`": lambda draw: onnx(
        draw, {"sees": lambda item, head, i, j: i - 1 <= j <= i + 2}, left_window_size=1, right_window_size=2),
    "`softcap`": lambda draw: onnx(draw, {"change": capped(0.7)}, softcap=0.7),
    "`qk_matmul_output_mode`": onnx,
}


def group_query(draw, rules=None, n=N, causal=lambda item, i, j: j <= i, turn=lambda x: x, **given):
    """com.microsoft.GroupQueryAttention: (batch, n, heads · d), always causal."""
    m = M if n == 1 else n
    query, key, value = draw(B, H, n, D), draw(B, HK, m, D), draw(B, HK, m, DV)
    sees = (rules or {}).pop("sees", lambda i, j: True)
    output = softmax_attention(turn(query), turn(key), value, sees=lambda item, head, i, j: causal(item, i, j) and sees(i, j), **(rules or {}))[0]
    names = {"query": query, "key": key[:, :, -n:], "value": value[:, :, -n:], "output": output}
    return {**SIZES, **{name: side_by_side(x) for name, x in names.items()}, "num_heads": H, "kv_num_heads": HK, "present_key": key,
            "present_value": value, **given}


def group_query_rotary(draw):
    """Column c of the first half turns with column c of the second half."""
    half = D // 2
    angles = [[row / 3**pair for pair in range(half)] for row in range(N)]

    def turned(row, i):
        cos, sin = ([function(angle) for angle in angles[i]] * 2 for function in (math.cos, math.sin))
        return [x * cos[c] + y * sin[c] for c, (x, y) in enumerate(zip(row, [-x for x in row[half:]] + row[:half]))]

    def turn(x):
        return array([[[turned(row, i) for i, row in enumerate(head)] for head in item] for item in x.tolist()])
    tables = [array([[function(x) for x in row] for row in angles]) for function in (math.cos, math.sin)]
    return group_query(draw, turn=turn, cos_cache=tables[0], sin_cache=tables[1])


def group_query_bias(draw):
    bias = draw(1, H, N, N)
    return group_query(draw, {"change": biased(bias)}, attention_bias=bias)


GROUP_QUERY = {
    "`num_heads`, `kv_num_heads`": group_query,
    "`seqlens_k`": lambda draw: group_query(draw, n=1, causal=lambda item, i, j: j < USED[item], seqlens_k=array([used - 1 for used in USED])),
    "`local_window_size`": lambda draw: group_query(draw, {"sees": lambda i, j: i - j < 2}, local_window_size=2),
    "`attention_bias`": group_query_bias,
    "`head_sink`": lambda draw: group_query(draw, {"sink": SINKS}, head_sink=array(SINKS)),
    "`smooth_softmax`": lambda draw: group_query(draw, {"sink": [0] * H}),
    "`do_rotary`, `cos_cache`, `sin_cache`": group_query_rotary,
}


# --------------------------------------------------------------------------------------------------------- transformers
def hugging(draw, rules=None, **given):
    """Queries, keys and values (batch, heads, n, d), and the output (batch, n, heads, d)."""
    names = torch(draw, rules)
    return {**names, "attn_output": swapped(names["out"]), **given}


def hugging_square(draw, sees, **given):
    """As many keys as queries."""
    query, key, value = draw(B, H, M, D), draw(B, HK, M, D), draw(B, HK, M, DV)
    out, _, _ = softmax_attention(query, key, value, sees=lambda item, head, i, j: sees(i, j))
    return {**SIZES, "n": M, "query": query, "key": key, "value": value, "attn_output": swapped(out), **given}


def hugging_t5(draw):
    bias = draw(1, H, N, M)
    return hugging(draw, {"scale": 1, "change": biased(bias)}, position_bias=bias)


HUGGING = {
    "`scaling`": lambda draw: hugging(draw, {"scale": 0.3}, scaling=0.3),
    "`softcap`": lambda draw: hugging(draw, {"change": capped(0.7)}, softcap=0.7),
    "`s_aux`": lambda draw: hugging(draw, {"sink": SINKS}, s_aux=array(SINKS)),
    "`attention_mask` of numbers": lambda draw: hugging(
        draw, {"sees": lambda item, head, i, j: CUSTOM[i][j]},
        attention_mask=array([[[[0 if seen else FLOAT32_MIN for seen in row] for row in CUSTOM]]])),
    "`position_bias`": hugging_t5,
    "`sliding_window`, causal": lambda draw: hugging_square(draw, lambda i, j: i - 2 < j <= i, sliding_window=2),
    "`sliding_window`, bidirectional": lambda draw: hugging_square(draw, lambda i, j: abs(i - j) <= 2, sliding_window=2),
    "`attention_chunk_size`": lambda draw: hugging_square(draw, lambda i, j: i // 2 == j // 2 and j <= i, attention_chunk_size=2),
}


# ----------------------------------------------------------------------------------------------------- latent attention
ROPE, LATENT = 2, 3  # the columns of the part with positions, and of the latent rows
INDICES = [[0, 3, -1], [4, -1, -1], [2, 1, 0]]


def absorbed(draw, scale=0.3, sees=lambda item, head, i, j: True, **given):
    """All heads share one latent row for each key, which is the value, too."""
    q_nope, q_pe, ckv, kpe = draw(N, H, LATENT), draw(N, H, ROPE), draw(M, LATENT), draw(M, ROPE)
    positions = lambda score, item, head, i, j: score + scale * dot(q_pe[i, head].numbers, kpe[j].numbers)
    out, _, _ = softmax_attention(q_nope.transpose(1, 0, 2)[None], ckv[None, None], ckv[None, None], scale, positions, sees)
    return {**SIZES, "r": ROPE, "q_nope": q_nope, "q_pe": q_pe, "ckv": ckv, "kpe": kpe, "sm_scale": scale, "out": swapped(out)[0], **given}


def not_absorbed(draw):
    """Keys of each head beside one part with positions for all heads."""
    q_nope, q_pe, k_nope, k_pe, v = draw(N, H, D), draw(N, H, ROPE), draw(M, H, D), draw(M, ROPE), draw(M, H, DV)
    scale = (D + ROPE)**-0.5
    positions = lambda score, item, head, i, j: score + scale * dot(q_pe[i, head].numbers, k_pe[j].numbers)
    out, _, _ = softmax_attention(*(x.transpose(1, 0, 2)[None] for x in (q_nope, k_nope, v)), scale, positions)
    return {**SIZES, "r": ROPE, "q_nope": q_nope, "q_pe": q_pe, "k_nope": k_nope, "k_pe": k_pe, "v": v, "out": swapped(out)[0]}


LATENTS = {
    "`q_nope`, `q_pe`, `ckv`, `kpe`": absorbed,
    "`mscale_all_dim`": lambda draw: absorbed(
        draw, (0.1 * 0.7 * math.log(40) + 1)**2 * (D + ROPE)**-0.5, mscale_all_dim=0.7, factor=40, d_nope=D, d_rope=ROPE, sm_scale=0.3),
    "`sparse_indices`, `gather_kv_indices`": lambda draw: absorbed(
        draw, sees=lambda item, head, i, j: j in INDICES[i], sparse_indices=array(INDICES)),
    "`k_nope`, `k_pe`": not_absorbed,
}


# ----------------------------------------------------------------------------------------------- differential attention
def differential(draw):
    """(softmax(q1 k1ᵀ / √d) − λ softmax(q2 k2ᵀ / √d)) v."""
    q1, k1, q2, k2, v = draw(B, H, N, D), draw(B, H, M, D), draw(B, H, N, D), draw(B, H, M, D), draw(B, H, M, DV)
    first, second = (softmax_attention(q, k, v)[2] for q, k in ((q1, k1), (q2, k2)))
    weights = first - 0.4 * second
    out = [[[[dot(weights[item, head, i].numbers, v[item, head, :, c].numbers) for c in range(DV)] for i in range(N)] for head in range(H)]
           for item in range(B)]
    return {**SIZES, "q1": q1, "k1": k1, "q2": q2, "k2": k2, "v": v, "lam": 0.4, "out": array(out)}


DIFFERENTIAL = {"`lambda_init`": differential}


# ----------------------------------------------------------------------------------------------------- linear attention
STEPS = 5


def recurrence(q, k, v, decay=lambda item, t, head, row: 0, beta=None, state=None, scale=None):
    """fla: (batch, t, heads, d), and states (batch, heads, d, d_v). Value heads may be more than heads of q and k."""
    group, scale = v.shape[2] // q.shape[2], q.shape[3]**-0.5 if scale is None else scale
    out, states = [[[None] * v.shape[2] for _ in range(STEPS)] for _ in range(B)], [[None] * v.shape[2] for _ in range(B)]
    for item in range(B):
        for head in range(v.shape[2]):
            s = state[item, head].tolist() if state else [[0.0] * DV for _ in range(q.shape[3])]
            for t in range(STEPS):
                query, key, value = (x.tolist() for x in (q[item, t, head // group], k[item, t, head // group], v[item, t, head]))
                s = [[math.exp(decay(item, t, head, row)) * number for number in numbers] for row, numbers in enumerate(s)]
                if beta:
                    value = [beta.at((item, t, head)) * (number - dot(key, column)) for number, column in zip(value, zip(*s))]
                s = [[number + x * y for number, y in zip(numbers, value)] for x, numbers in zip(key, s)]
                out[item][t][head] = [scale * dot(query, column) for column in zip(*s)]
            states[item][head] = s
    return array(out), array(states)


def fla(draw, heads=2, decay=None, **given):
    q, k, v = draw(B, STEPS, heads, D), draw(B, STEPS, heads, D), draw(B, STEPS, 2, DV)
    rules = {"decay": decay} if decay else {}
    o, final_state = recurrence(q, k, v, beta=given.get("beta"), state=given.get("initial_state"), **rules)
    return {"q": q, "k": k, "v": v, "o": o, "final_state": final_state, **given}


def sigmoid(x):
    return Array(x.shape, [1 / (1 + math.exp(-number)) for number in x.numbers])


def fla_gates(draw, columns=False, **given):
    name, g = ("gk" if columns else "g"), Array((B, STEPS, 2, *[D] * columns), [-abs(x) for x in draw(B, STEPS, 2, *[D] * columns).numbers])
    return fla(draw, decay=lambda item, t, head, row: g.at((item, t, head, row) if columns else (item, t, head)), **{name: g}, **given)


def unit(rows):
    """Each row divided by its length."""
    last = rows.shape[-1]
    lengths = [math.sqrt(dot(rows.numbers[i:i + last], rows.numbers[i:i + last]) + 1e-6) for i in range(0, len(rows.numbers), last)]
    return Array(rows.shape, [number / lengths[index // last] for index, number in enumerate(rows.numbers)])


def fla_unit(draw):
    names = fla(draw, beta=sigmoid(draw(B, STEPS, 2)))
    o, final_state = recurrence(unit(names["q"]), unit(names["k"]), names["v"], beta=names["beta"])
    return {**names, "o": o, "final_state": final_state}


def gated_delta_net(draw):
    """FlashInfer: gates are made of A_log, a, dt_bias and b, and states are (batch, value heads, d_v, d)."""
    q, k, v, initial_state = draw(B, STEPS, 1, D), draw(B, STEPS, 1, D), draw(B, STEPS, 2, DV), draw(B, 2, DV, D)
    a, b, a_log, dt_bias = draw(B, STEPS, 2), draw(B, STEPS, 2), draw(2), draw(2)
    decay = lambda item, t, head, row: -math.exp(a_log.at((head,))) * math.log(1 + math.exp(a.at((item, t, head)) + dt_bias.at((head,))))
    o, state = recurrence(unit(q), unit(k), v, decay, sigmoid(b), initial_state.transpose(0, 1, 3, 2))
    return {"q": q, "k": k, "v": v, "initial_state": initial_state, "a": a, "b": b, "A_log": a_log, "dt_bias": dt_bias, "o": o,
            "final_state": state.transpose(0, 1, 3, 2)}


def mamba(draw):
    """Mamba-2: h = exp(A dt) h + dt x Bᵀ, y = h C + D x, where h is (d_v, d) and heads share B and C."""
    x, dt, a, b, c, skip = draw(B, STEPS, 2, DV), sigmoid(draw(B, STEPS, 2)), draw(2), draw(B, STEPS, 1, D), draw(B, STEPS, 1, D), draw(2)
    a = Array((2,), [-abs(number) for number in a.numbers])
    y = [[[None] * 2 for _ in range(STEPS)] for _ in range(B)]
    for item in range(B):
        for head in range(2):
            state = [[0.0] * D for _ in range(DV)]
            for t in range(STEPS):
                step, row = dt.at((item, t, head)), x[item, t, head].numbers
                state = [[math.exp(a.at((head,)) * step) * number + step * value * key for number, key in zip(numbers, b[item, t, 0].numbers)]
                         for value, numbers in zip(row, state)]
                y[item][t][head] = [dot(numbers, c[item, t, 0].numbers) + skip.at((head,)) * value for numbers, value in zip(state, row)]
    return {"x": x, "dt": dt, "A": a, "B": b, "C": c, "D": skip, "y": array(y)}


def retention(draw, scale, factors, **given):
    """o_i is the sum of factor^(i − j) (q_i · k_j) v_j over j ≤ i."""
    names = fla(draw)
    q, k, v = (names[name] for name in "qkv")
    o = [[[[sum(scale * factors[head]**(i - j) * dot(q[item, i, head].numbers, k[item, j, head].numbers) * v.at((item, j, head, c))
                for j in range(i + 1)) for c in range(DV)] for head in range(2)] for i in range(STEPS)] for item in range(B)]
    return {**names, "o": array(o), **given}


LINEAR = {
    "`q`, `k`, `v`": fla,
    "`g`": fla_gates,
    "`gk`": lambda draw: fla_gates(draw, columns=True),
    "`beta`": lambda draw: fla_gates(draw, beta=sigmoid(draw(B, STEPS, 2))),
    "`initial_state`, `output_final_state`": lambda draw: fla(draw, initial_state=draw(B, 2, D, DV)),
    "`use_qk_l2norm_in_kernel`": fla_unit,
    "RetNet: `gamma`": lambda draw: retention(draw, D**-0.5, [0.9, 0.7], gamma=array([0.9, 0.7])),
    "Lightning attention: `slope_rate`": lambda draw: retention(
        draw, 1, [math.exp(-0.5), math.exp(-0.1)], slope_rate=array([0.5, 0.1]).reshape(2, 1, 1)),
    "FlashInfer: `A_log`, `a`, `dt_bias`, `b`": gated_delta_net,
    "Mamba-2: `A`, `dt`, `B`, `C`, `D`": mamba,
}

CALLS = {
    "FlashAttention 2, 3 and 4": FLASH,
    "FlashInfer": INFER,
    "cuDNN": CUDNN,
    "PyTorch: scaled_dot_product_attention": TORCH,
    "PyTorch: varlen_attn": VARLEN,
    "PyTorch: flex_attention": FLEX,
    "ONNX: Attention": ONNX,
    "ONNX Runtime: GroupQueryAttention": GROUP_QUERY,
    "transformers: AttentionInterface": HUGGING,
    "Latent attention (MLA) and chosen keys (DSA)": LATENTS,
    "Differential attention": DIFFERENTIAL,
    "Linear attention: fla, RetNet, Mamba-2": LINEAR,
}
