"""Sends the daemon the samples that PyTorch's own tests (OpInfo) have for attention and softmax, forward and backward, in float32 and
float64. Samples with dropout are left out. $ATTENTIOND_BIN is the daemon."""

import math
import sys
import tempfile

import torch
from asked import TOLERANCES, Count, Daemon, Skipped, ask, compare
from torch.testing._internal.common_methods_invocations import op_db

PROJECTED = 10  # The scores of projected samples reach hundreds, and the exponential multiplies their rounding.
MHA = ("query", "key", "value", "embed_dim", "heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "dropout_p",
       "out_proj_weight", "out_proj_bias")
MINIMUM = 100


def mask_of(given, forbids):
    """Returns the key and the value for an attn_mask. A boolean one forbids where it equals `forbids`."""
    return {} if given is None else {"mask": given != forbids} if given.dtype == torch.bool else {"bias": given}


def attention(sample):
    options = dict(sample.kwargs)
    if options.pop("dropout_p", 0):
        raise Skipped("dropout")
    q, (k, v) = sample.input, sample.args
    request = {"Q": q, "K": k, "V": v, "causal": options.pop("is_causal", False), **mask_of(options.pop("attn_mask", None), False)}
    options.pop("enable_gqa", None)  # heads are shared if there are fewer of them
    return "/attention", request, {"output": lambda result: result}, options


def multihead(sample):
    """The first axis of X is that of the rows, and the second one that of the batch."""
    given = {**dict(zip(MHA, (sample.input, *sample.args))), **sample.kwargs}
    if given.pop("training") and given["dropout_p"]:
        raise Skipped("dropout")
    del given["dropout_p"], given["embed_dim"]
    request = {name: x.transpose(0, -2) for name, x in
               zip(("X", "context", "value_context"), (given.pop(name) for name in ("query", "key", "value")))}
    separate = [given.pop(f"{letter}_proj_weight") for letter in "qkv"]
    joined = given.pop("in_proj_weight")
    weights = separate if given.pop("use_separate_proj_weight") else joined.chunk(3)
    request.update(zip(("W_Q", "W_K", "W_V"), weights))
    request.update(zip(("b_Q", "b_K", "b_V"), given.pop("in_proj_bias").chunk(3)))
    request.update({"W_O": given.pop("out_proj_weight"), "b_O": given.pop("out_proj_bias")})
    bias_k, bias_v = given.pop("bias_k"), given.pop("bias_v")
    if bias_k is not None:
        request.update({"bias_K": bias_k.flatten(), "bias_V": bias_v.flatten()})
    mask = given.pop("attn_mask")
    if mask is not None and mask.dim() == 3:
        mask = mask.unflatten(0, (-1, given["heads"]))
    request.update(**mask_of(mask, True), weight_layout="out_in", heads=given.pop("heads"), zero_key=given.pop("add_zero_attn"),
                   mean_over_heads=True)
    return "/multi-head-attention", request, {"output": lambda x: x.transpose(0, -2), "weights": lambda x: x}, given


def softmax(sample):
    """The softmax of a bias, whose axis is the last one. Its backward pass has no other way."""
    options = dict(sample.kwargs)
    dim = options.pop("dim", sample.args[0] if sample.args else None)
    options.pop("dtype", None)
    mask, x = options.pop("mask", None), sample.input
    rows = x.movedim(dim, -1) if x.dim() else x.reshape(1, 1)
    rows = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    request = {"Q": torch.zeros(len(rows), 1), "K": torch.zeros(rows.shape[1], 1), "V": torch.zeros(rows.shape[1], 1), "bias": rows}
    if mask is not None:
        mask = mask.expand(x.shape)
        request["mask"] = mask.movedim(dim, -1).reshape(rows.shape) if x.dim() else mask.reshape(1, 1)

    def back(result):
        return result.view(x.movedim(dim, -1).shape).movedim(-1, dim) if x.dim() else result.view(())
    return "/attention", request, {"weights": back}, options


OPERATORS = {"nn.functional.scaled_dot_product_attention": attention, "nn.functional.multi_head_attention_forward": multihead,
             "softmax": softmax, "masked.softmax": softmax, "torch.ops.aten._safe_softmax.default": softmax}


def tensors_of(sample):
    """Returns all tensors with numbers of a sample."""
    found = [sample.input, *sample.args, *sample.kwargs.values()]
    return [x for x in found if isinstance(x, torch.Tensor) and x.is_floating_point()]


def run(daemon, operator, sample, dtype):
    """Compares the results of a sample, and the gradients of all its tensors."""
    tensors = [x.requires_grad_() for x in tensors_of(sample)]
    path, request, results, unknown = OPERATORS[operator.name](sample)
    assert not any(x is not None and x is not False for x in unknown.values()), f"unknown: {unknown}"
    expected = operator(sample.input, *sample.args, **sample.kwargs)
    expected = dict(zip(results, expected if isinstance(expected, tuple) else (expected,)))
    sent = {name: x for name, x in request.items() if isinstance(x, torch.Tensor)}
    options = {name: x for name, x in request.items() if name not in sent}
    inputs = {name: x for name, x in sent.items() if x.requires_grad}
    # `back` turns a result into that of PyTorch, so its gradient turns the gradient of PyTorch's into that of the result.
    upstream, loss = {}, 0
    generator = torch.Generator().manual_seed(1)
    tolerance = TOLERANCES[dtype] * (PROJECTED if "W_Q" in request else 1)
    answer = ask(daemon, path, sent, options, list(results), dtype)
    for name, back in results.items():
        compare(name, [back(answer[name])], [expected[name].detach()], tolerance)
        gradient = torch.randn(expected[name].shape, generator=generator, dtype=dtype)
        result = torch.zeros_like(answer[name], requires_grad=True)
        upstream["grad_" + name] = torch.autograd.grad((back(result) * gradient).sum(), result)[0]
        loss = loss + (expected[name] * gradient).sum()
    answer = ask(daemon, path, {**sent, **upstream}, options, [*results, *("grad_" + name for name in inputs)], dtype)
    # The gradients by the tensors of the request go back to those of the sample by the way in which the request was made.
    total = sum((x * answer["grad_" + name]).sum() for name, x in inputs.items())
    own = torch.autograd.grad(total, tensors, allow_unused=True)
    want = torch.autograd.grad(loss, tensors, allow_unused=True)
    got, want = ([torch.zeros_like(x) if g is None else g for x, g in zip(tensors, grads)] for grads in (own, want))
    compare("the gradient", got, want, tolerance)


def main():
    count = Count()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(folder)
        for operator in (x for x in op_db if x.name in OPERATORS):
            for dtype in TOLERANCES:
                for i, sample in enumerate(operator.sample_inputs("cpu", dtype, requires_grad=False)):
                    count.run(operator.name, f"{operator.variant_test_name} {dtype}, sample {i}", run, daemon, operator, sample, dtype)
        daemon.stop()
    return count.print(MINIMUM)


if __name__ == "__main__":
    sys.exit(main())
