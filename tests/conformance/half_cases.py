"""Draws calls in float16 and bfloat16, and compares compute_dtype of the daemon with PyTorch's math path in these types, bit by bit.
$ATTENTIOND_BIN is the daemon."""

import collections
import math
import random
import sys
import tempfile

import torch
from torch_cases import Daemon, ask

CALLS = 200
# A sum of float32 in another order now and then rounds to the next number of the type: by so much of the largest number of the result,
# and in so small a part of all numbers.
UNIT = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
MOST = 0.01


def draw(chosen):
    """Returns Q, K, V, and the options of the request and of PyTorch."""
    batch, kv_heads, group, n, m = (chosen.choice(x) for x in ((1, 2), (1, 2), (1, 3), (1, 7, 33, 150), (1, 16, 100, 400)))
    d, d_v = chosen.choice((1, 8, 33, 64, 128)), chosen.choice((4, 33, 64))
    heads = kv_heads * group
    q = chosen.choice((0.5, 1, 2)) * torch.randn(batch, heads, n, d)
    tensors, options, own = {"Q": q, "K": torch.randn(batch, kv_heads, m, d), "V": torch.randn(batch, kv_heads, m, d_v)}, {}, {}
    if chosen.random() < 0.5:
        options["scale"] = own["scale"] = chosen.choice((0.3, -0.2, 1.0))
    rule = chosen.choice(("none", "causal", "bias", "mask"))
    if rule == "causal":
        options["causal"] = own["is_causal"] = True
    elif rule == "bias":
        tensors["bias"] = torch.randn(chosen.choice((1, batch)), heads, n, m)
        own["attn_mask"] = tensors["bias"]
    elif rule == "mask":  # the function adds it
        tensors["mask"] = torch.rand(batch, 1, n, m) < 0.7
        own["attn_mask"] = torch.zeros(tensors["mask"].shape).masked_fill(~tensors["mask"], -math.inf)
    return tensors, options, own


def run(daemon, chosen, dtype, different, total):
    tensors, options, own = draw(chosen)
    request = {**options, "compute_dtype": str(dtype).removeprefix("torch.")}
    answer = ask(daemon, "/attention", tensors, request, ["output", "weights"], torch.float32)
    given = {name: x.to(dtype) if isinstance(x, torch.Tensor) else x for name, x in own.items()}
    q, k, v = (tensors[name].to(dtype) for name in "QKV")
    want = torch.ops.aten._scaled_dot_product_attention_math(q, k, v, enable_gqa=True, **given)
    for name, x in zip(("output", "weights"), want, strict=True):
        x, got = x.float(), answer[name]
        assert torch.equal(got, got.to(dtype).float()), f"{name} has numbers that are not {dtype}"
        error = float((got - x).abs().max() / x.abs().max())
        assert error <= 2 * UNIT[dtype], f"{name} {tuple(x.shape)} in {dtype} with {options} is off by {error:.2g} of the largest number"
        different[dtype, name] += int((got != x).sum())
        total[dtype, name] += x.numel()


def main():
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)  # otherwise the path computes in float32
    torch.manual_seed(1)
    chosen = random.Random(1)
    different, total = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(folder)
        for i in range(CALLS):
            run(daemon, chosen, list(UNIT)[i % 2], different, total)
        daemon.stop()
    for (dtype, name), count in total.items():
        print(f"{dtype}, {name}: {different[dtype, name]} of {count} numbers are not those of PyTorch")
    return any(different[key] > MOST * count for key, count in total.items())


if __name__ == "__main__":
    sys.exit(main())
