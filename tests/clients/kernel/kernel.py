"""kernel.py writes kernel.safetensors for a kernel in Triton. Without a GPU, set TRITON_INTERPRET=1."""

import torch
import triton
import triton.language as tl
from safetensors.torch import save_file


@triton.jit
def product(a, b):
    return tl.dot(a, b, input_precision="ieee")  # "tf32" is the default, and its results are wrong


@triton.jit
def attention(Q, K, V, dO, O, LSE, dQ, dK, dV, scale, N: tl.constexpr, D: tl.constexpr):
    """Put your kernel in the place of this one, which has one block."""
    rows = tl.arange(0, N)
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    q, k, v, do = tl.load(Q + at), tl.load(K + at), tl.load(V + at), tl.load(dO + at)
    scores = scale * product(q, tl.trans(k))
    largest = tl.max(scores, 1)
    lse = largest + tl.log(tl.sum(tl.exp(scores - largest[:, None]), 1))
    weights = tl.exp(scores - lse[:, None])
    changes = product(do, tl.trans(v))
    changes = scale * weights * (changes - tl.sum(weights * changes, 1)[:, None])
    tl.store(O + at, product(weights, v))
    tl.store(LSE + rows, lse)
    tl.store(dQ + at, product(changes, k))
    tl.store(dK + at, product(tl.trans(changes), q))
    tl.store(dV + at, product(tl.trans(weights), do))


N, D = 16, 16
torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
inputs = {name: torch.randn(N, D, device=device) for name in ("Q", "K", "V", "grad_output")}
shapes = {"output": (N, D), "lse": (N,), "grad_Q": (N, D), "grad_K": (N, D), "grad_V": (N, D)}
results = {f"expected.{name}": torch.empty(shape, device=device) for name, shape in shapes.items()}
attention[(1,)](*inputs.values(), *results.values(), D**-0.5, N, D)
options = {"dtype": "float64", "return": '["comparison"]', "fail_on_difference": "true"}
save_file({**inputs, **results}, "kernel.safetensors", options)
