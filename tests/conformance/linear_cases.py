"""Draws calls of linear attention, of forgetting attention and of stick-breaking attention, and compares the daemon with
functions of flash-linear-attention (the files naive.py) and of transformers (Qwen3-Next), which are plain PyTorch and run in
float64 here. Usage: linear_cases.py FOLDER. The packages are kept in FOLDER, and $ATTENTIOND_BIN is the daemon."""

import importlib
import inspect
import math
import pathlib
import random
import sys
import tempfile
from typing import NamedTuple

import torch
from asked import TOLERANCES, Count, Daemon, ask, compare
from eager import in_float64
from packages import fetched
from transformers.models.qwen3_next import modeling_qwen3_next

# The packages and their SHA-256. Only a few files of fla_core are loaded, because all others need Triton. These few need
# einops.
PACKAGES = {
    "fla_core-0.6.0.tar.gz": "cdd5b7ff6d5c0e5c08fde73f2624d76e0b506f8684af4e316bc7f2d8bfd9a623",
    "einops-0.8.2.tar.gz": "609da665570e5e265e27283aab09e7f279ade90c4f01bcfca111f3d3e13f2827"}
CALLS = 40  # of each function
LINEAR_TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-13}  # of the largest number of a result
GRADIENT_TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}  # of the largest number of all gradients: terms may cancel in one
STRONG = 1000  # a decay whose gate is 0
MINIMUM = 1200
# The names of the daemon's tensors in the functions.
NAMES = {"Q": ("q", "query"), "K": ("k", "key"), "V": ("v", "value"), "decay": ("g", "gk"), "beta": ("beta",),
         "past_state": ("initial_state",)}


class Peer(NamedTuple):
    """A function. Its parameters say which tensors and options it takes."""

    module: str  # a folder of flash-linear-attention, or that of transformers
    name: str
    update: str  # "" for attention that has scores and weights of its own
    second: str = "present_state"  # its second result
    columns: bool = False  # a decay for each column of K
    grouped: str = ""  # the matrix that may have more heads than K: Q or V
    rows_first: bool = True  # the axis of the rows stands before that of the heads
    multiple: int = 0  # n must be a multiple of this, or of chunk_size if it has one
    forgets: bool = True  # it can take a decay of −∞; the others subtract sums of decays, and then −∞ gives NaN


PEERS = [
    Peer("gated_delta_rule", "naive_recurrent_gated_delta_rule", "gated_delta"),
    Peer("gated_delta_rule", "naive_chunk_gated_delta_rule", "gated_delta", forgets=False),
    Peer("delta_rule", "delta_rule_recurrence", "delta", rows_first=False),
    Peer("delta_rule", "delta_rule_chunkwise", "delta", rows_first=False, multiple=32),
    Peer("delta_rule", "delta_rule_parallel", "delta", "weights", rows_first=False, multiple=128),
    Peer("gla", "naive_recurrent_gla", "gated", columns=True),
    Peer("simple_gla", "naive_chunk_simple_gla", "gated", forgets=False),
    Peer("simple_gla", "naive_recurrent_simple_gla", "gated"),
    Peer("simple_gla", "naive_parallel_simple_gla", "gated", "weights", forgets=False),
    Peer("kda", "naive_recurrent_kda", "gated_delta", columns=True, grouped="V"),
    Peer("kda", "naive_chunk_kda", "gated_delta", columns=True, grouped="V", multiple=64, forgets=False),
    Peer("retention", "naive_retention", "gated", "", rows_first=False),
    Peer("linear_attn", "naive_recurrent_linear_attn", "linear"),
    Peer("linear_attn", "naive_chunk_linear_attn", "linear", "", multiple=64),
    Peer("transformers", "torch_chunk_gated_delta_rule", "gated_delta", grouped="V", forgets=False),
    Peer("transformers", "torch_recurrent_gated_delta_rule", "gated_delta", grouped="V"),
    Peer("forgetting_attn", "naive_forgetting_attn", "", "", grouped="Q", forgets=False),
    Peer("stickbreaking_attn", "naive_stickbreaking_attn", "", "", grouped="Q")]


def function_of(peer, place):
    """Returns the function. The package flash-linear-attention itself is not imported."""
    if peer.module == "transformers":
        return inspect.unwrap(getattr(modeling_qwen3_next, peer.name))
    spec = importlib.util.spec_from_file_location(peer.module, place / "fla" / "ops" / peer.module / "naive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, peer.name)


def relative_options(peer, n, chosen):
    """Returns the options of forgetting or stick-breaking attention, and those of the function."""
    if peer.module == "forgetting_attn":
        window = chosen.choice((None, 1, 5, 40))
        return {"causal": True, **({"window": [window - 1, -1]} if window else {})}, {"window_size": window}
    current = chosen.random() < 0.5
    options = {"causal": True} if current else {"mask": torch.ones(n, n, dtype=torch.bool).tril(-1)}
    return {"normalization": "stick_breaking", **options}, {"attend_current": current}


def options_of(peer, parameters, chosen):
    """Returns the options of linear attention, and those of the function."""
    options, own = {"update": peer.update} if peer.update else {}, {}
    if "scale" in parameters and chosen.random() < 0.5:
        options["scale"] = own["scale"] = chosen.choice((0.3, -1.5))
    if "chunk_size" in parameters:
        own["chunk_size"] = chosen.choice((16, 32, 64))
    if "use_qk_l2norm_in_kernel" in parameters and chosen.random() < 0.5:
        options.update(normalize_QK=True, norm_epsilon=1e-6)
        own["use_qk_l2norm_in_kernel"] = True
    if "output_final_state" in parameters:
        own["output_final_state"] = True
    return options, own


def tensors_of(peer, parameters, multiple, chosen, strong=STRONG):
    """Returns the tensors of a call, in float64 but with numbers of float32. Rows of K have the length 1, as the delta rule needs,
    and are now and then all the same."""
    batch, heads, group, d, d_v = (chosen.choice(x) for x in ((1, 2), (1, 2, 3), (1, 2, 3), (1, 5, 16, 64), (1, 3, 16, 48)))
    n = multiple * chosen.choice((1, 2, 3)) if multiple else chosen.choice((1, 2, 7, 33, 64, 65, 130))
    queries, states = (heads * (group if peer.grouped == name else 1) for name in "QV")
    keys = torch.randn(batch, heads, chosen.choice((1, n, n, n)), d).expand(batch, heads, n, d)
    tensors = {"Q": torch.randn(batch, queries, n, d), "K": torch.nn.functional.normalize(keys, dim=-1),
               "V": torch.randn(batch, states, n, d_v)}
    if parameters.keys() & set(NAMES["decay"]):
        decay = -chosen.choice((0, 1e-3, 0.1, 2, strong)) * torch.rand(batch, max(queries, states), n, *([d] if peer.columns else []))
        forgotten = torch.rand(decay.shape) < chosen.choice((0, 0, 0.1)) * peer.forgets
        tensors["decay"] = decay.masked_fill(forgotten, -math.inf)
    if "beta" in parameters:
        tensors["beta"] = chosen.choice((1, 1.9)) * torch.rand(batch, states, n)
    if "initial_state" in parameters and chosen.random() < 0.5:
        tensors["past_state"] = torch.randn(batch, states, d, d_v)
    return {name: x.double() for name, x in tensors.items()}


def retention(heads, n):
    """Returns the decays of retention, one for each head. If there are as many heads as rows, they need all axes."""
    decays = torch.tensor([math.log1p(-2.0**(-5 - head)) for head in range(heads)], dtype=torch.float64)
    return decays.view(1, heads, 1) if heads == n else decays


def computed(peer, function, tensors, own):
    """Returns the results of the function."""
    def turned(name, x):
        return x.transpose(1, 2) if peer.rows_first and name not in ("past_state", "weights", "present_state") else x
    parameters = inspect.signature(function).parameters
    given = {next(x for x in NAMES[name] if x in parameters): turned(name, x) for name, x in tensors.items()}
    with in_float64():
        results = function(**given, **own)
    names = ["output", peer.second] if peer.second else ["output"]
    results = {name: turned(name, x) for name, x in zip(names, results if isinstance(results, tuple) else [results])}
    if peer.second == "weights" and "beta" in tensors:  # those of beta · V
        results["weights"] = results["weights"] * tensors["beta"].unsqueeze(-2)
    return results


def ask_and_compare(daemon, path, sent, options, own, want, tolerances, least=1e-30):
    """Asks for results in both dtypes, and compares them with those of the function."""
    for dtype, tolerance in tolerances.items():
        answer = ask(daemon, path, sent, options, list(want), dtype)
        for name, x in want.items():
            assert x.dtype == torch.float64, f"{name} of the function is {x.dtype}"
            case = f"{name} in {dtype} with {options} {own} {({name: tuple(x.shape) for name, x in sent.items()})}:"
            compare(case, [answer[name].double()], [x], tolerance, least)


def run_gradients(daemon, peer, function, chosen):
    """Compares the gradients of a loss, the sum of drawn numbers times results, with those of autograd. A function that
    subtracts sums of decays has exponents above 0, and so NaN in its gradients, if a decay is strong."""
    parameters = inspect.signature(function).parameters
    options, own = options_of(peer, parameters, chosen)
    multiple = peer.multiple and own.get("chunk_size", peer.multiple)
    tensors = tensors_of(peer, parameters, multiple, chosen, STRONG if peer.forgets else 1)
    tensors = {name: x.contiguous().requires_grad_() for name, x in tensors.items()}
    results = {name: x for name, x in computed(peer, function, tensors, own).items() if name != "weights"}
    given = {name: torch.randn(x.shape).double() for name, x in results.items()}
    loss = sum((given[name] * x).sum() for name, x in results.items())
    want = dict(zip([f"grad_{name}" for name in tensors], torch.autograd.grad(loss, list(tensors.values()))))
    sent = {name: x.detach() for name, x in tensors.items()} | {f"grad_{name}": x for name, x in given.items()}
    if peer.module == "retention":
        sent["decay"] = retention(*tensors["Q"].shape[1:3])
    least = max(float(x.abs().max()) for x in want.values())
    ask_and_compare(daemon, "/linear-attention", sent, options, own, want, GRADIENT_TOLERANCES, least)


def run(daemon, peer, function, chosen):
    parameters = inspect.signature(function).parameters
    options, own = options_of(peer, parameters, chosen)
    tensors = tensors_of(peer, parameters, peer.multiple and own.get("chunk_size", peer.multiple), chosen)
    if not peer.update:
        for known, more in zip((options, own), relative_options(peer, tensors["Q"].shape[2], chosen)):
            known.update(more)
    want = computed(peer, function, tensors, own)
    if peer.module == "retention":
        tensors["decay"] = retention(*tensors["Q"].shape[1:3])
    sent = dict(tensors)
    if "mask" in options:
        sent["mask"] = options.pop("mask")
    path, tolerances = ("/linear-attention", LINEAR_TOLERANCES) if peer.update else ("/attention", TOLERANCES)
    ask_and_compare(daemon, path, sent, options, own, want, tolerances)


def main():
    places = [fetched(pathlib.Path(sys.argv[1]), *package) for package in PACKAGES.items()]
    sys.path.append(str(places[1]))
    count = Count()
    torch.manual_seed(1)
    torch.set_num_threads(1)  # The calls are small, and threads that wait for each other are slow on a busy machine.
    with tempfile.TemporaryDirectory() as layers:
        daemon = Daemon(layers)
        for peer in PEERS:
            function, chosen = function_of(peer, places[0]), random.Random(1)
            for i in range(CALLS):
                count.run(f"{peer.module}, {peer.name}", f"call {i}", run, daemon, peer, function, chosen)
                if peer.update:
                    count.run(f"{peer.module}, {peer.name}", f"gradients {i}", run_gradients, daemon, peer, function, chosen)
        daemon.stop()
    return count.print(MINIMUM)


if __name__ == "__main__":
    sys.exit(main())
