"""Runs the backward tests that flash-attention and xformers have in their packages on PyPI. Their kernels need a GPU, so the
daemon takes the place of every kernel. The tests draw the inputs and have the references, which are computed in float64 here.
What a test compares must agree within the tolerances of this folder. Usage: kernel_cases.py FOLDER. The packages are kept in
FOLDER, and $ATTENTIOND_BIN is the daemon."""

import contextlib
import importlib
import logging
import pathlib
import sys
import tempfile
import types
import warnings
from unittest import mock

import torch
from asked import TOLERANCES, Count, Daemon, Skipped, ask, compare
from packages import fetched
from torch.overrides import TorchFunctionMode

# The packages and their SHA-256.
PACKAGES = {
    "flash_attn-2.8.3.post2.tar.gz": "d0f9f0b08a986cdeadbffcf5ec8b3a8f514366c68ad1853d3ab061bc83cc340b",
    "xformers-0.0.35.tar.gz": "f7fc183a58e4bf0e2ae339a18fb1b1d4a37854c0f2545b4f360fef001646ab76"}
LARGEST = 1 << 23  # multiplications of the forward pass of a case
MINIMUM = 3000


# ----------------------------------------------------------------------------------------------- stubs
class Stub(types.ModuleType):
    """A module that is not there. Everything in it returns its first argument, as a decorator may."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: args[0]


class Marks:
    """pytest.mark. A function keeps its parameters as `cases`."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: lambda function: function

    @staticmethod
    def parametrize(names, argvalues, ids=None):
        names = [name.strip() for name in names.split(",")]
        rows = [dict(zip(names, x if len(names) > 1 else (x,))) for x in argvalues]

        def keep(function):
            function.cases = [{**row, **case} for row in rows for case in getattr(function, "cases", [{}])]
            return function
        return keep


def stubs(*names, **packages):
    """Returns stubs of modules by their names, and of packages whose modules are in folders. One of them is pytest."""
    made = {name: Stub(name) for name in (*names, *packages, "pytest")}
    for name, folder in packages.items():
        made[name].__path__ = [str(folder)]
    for name, module in made.items():
        parent, _, child = name.rpartition(".")
        if parent in made:
            setattr(made[parent], child, module)
    made["pytest"].mark, made["pytest"].skip = Marks(), skip
    return made


def skip(reason):
    raise Skipped(reason)


# ------------------------------------------------------------------------------ the daemon as a kernel
class Widened(TorchFunctionMode):
    """Everything is computed in float64 on the CPU, whatever a test asks for. Its draws are numbers of half precision, which no dtype
    rounds."""

    DRAWS = (torch.rand, torch.randn, torch.randn_like)
    CASTS = (torch.Tensor.float, torch.Tensor.half)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def widened(x):
            return torch.float64 if isinstance(x, torch.dtype) and x.is_floating_point else "cpu" if x == "cuda" else x
        args, kwargs = [widened(x) if isinstance(x, (torch.dtype, str)) else x for x in args], kwargs or {}
        kwargs = {name: widened(x) if isinstance(x, (torch.dtype, str)) else x for name, x in kwargs.items()}
        result = (torch.Tensor.double if function in self.CASTS else function)(*args, **kwargs)
        return result.half().double() if function in self.DRAWS else result


class Kernel:
    """The daemon, asked in one dtype. It takes tensors of float64 and returns them. `largest` is the largest number of the latest
    gradients."""

    def __init__(self, daemon, dtype):
        self.daemon, self.dtype, self.largest = daemon, dtype, 1.0

    def ask(self, tensors, options, results):
        with torch._C.DisableTorchFunction():  # pylint: disable=protected-access
            answer = ask(self.daemon, "/attention", tensors, options, results, self.dtype)
        answer = {name: x.double() for name, x in answer.items()}
        self.largest = max(1.0, *(float(x.abs().max()) for name, x in answer.items() if name.startswith("grad_")), 0)
        return answer

    def close(self, got, want, msg="a result", **_):
        """Takes the place of assert_close and its like. Gradients are compared by the largest number of all, and an output, which has
        a gradient, by its own."""
        least = 1.0 if got.requires_grad else self.largest
        compare(msg, [got.detach().double()], [want.detach().double()], TOLERANCES[self.dtype], least)


class Attention(torch.autograd.Function):
    """The output of a kernel and the gradients of all its tensors. Those of rank 4, except a bias, have the rows before the heads."""

    @staticmethod
    def forward(ctx, kernel, options, names, *tensors):
        ctx.kernel, ctx.options, ctx.names = kernel, options, names
        ctx.save_for_backward(*tensors)
        sent = {name: swapped(name, x) for name, x in zip(names, tensors)}
        return swapped("output", kernel.ask(sent, options, ["output"])["output"])

    @staticmethod
    def backward(ctx, gradient):
        given = {**dict(zip(ctx.names, ctx.saved_tensors)), "grad_output": gradient}
        sent = {name: swapped(name, x) for name, x in given.items()}
        answer = ctx.kernel.ask(sent, ctx.options, ["grad_" + name for name in ctx.names])
        gradients = (torch.empty_like(given[name]).copy_(swapped(name, answer["grad_" + name])) for name in ctx.names)
        return None, None, None, *gradients


def swapped(name, x):
    return x.transpose(1, 2) if x.dim() == 4 and name != "bias" else x


# -------------------------------------------------------------------------------------- flash-attention
class Flash:
    """The test of the backward pass in flash_attn_triton_amd. Its reference has the formulas of the gradients."""

    NAME = "flash-attention"

    def __init__(self, place):
        package = "flash_attn.flash_attn_triton_amd."
        absent = stubs("triton", "triton.language", package + "fwd_prefill", package + "bwd_prefill_split", flash_attn=place / "flash_attn")
        with mock.patch.dict(sys.modules, absent):
            importlib.import_module(package + "utils").arch_supports_fp8 = lambda: False
            self.module = importlib.import_module(package + "test")
        self.tests = [self.module.test_op_prefill_bwd_impl]

    def check(self, _, __, case):
        check_size(case["BATCH"] * case["HQ"], case["N_CTX_Q"], case["N_CTX_K"], 2 * case["D_HEAD"])

    def arguments(self, case):
        return case

    def patches(self, kernel):
        def backward(do, q, k, v, o, lse, dq, dk, dv, scale, alibi, causal, layout, queries, keys, *_):
            tensors = {"Q": q, "K": k, "V": v, "grad_output": do}
            options = {"scale": scale, **({"causal": "bottom_right"} if causal else {})}
            if layout == "thd":
                options["sequence_offsets"] = [queries.tolist(), keys.tolist()]
            answer = kernel.ask({name: swapped(name, x) for name, x in tensors.items()}, options,
                                ["output", "grad_Q", "grad_K", "grad_V"])
            output, *gradients = (swapped(name, answer[name]) for name in ("output", "grad_Q", "grad_K", "grad_V"))
            kernel.close(output, o, "output")
            for place, gradient in zip((dq, dk, dv), gradients):
                place.copy_(gradient)
            delta = (output * do).sum(-1)
            return delta if layout == "thd" else delta.transpose(1, 2)
        yield mock.patch.object(self.module, "attention_prefill_backward_triton_split_impl", backward)
        yield mock.patch.object(torch.testing, "assert_close", kernel.close)


# --------------------------------------------------------------------------------------------- xformers
class Xformers:
    """The tests of backward passes of memory_efficient_attention. PyTorch differentiates their reference."""

    NAME = "xformers"
    SHAPE = "opBW_device_dtype_biasT_B_Mq_Mkv_H_K_Kv"
    MASKS = {
        "NoneType": {}, "BlockDiagonalMask": {},
        "LowerTriangularMask": {"causal": True}, "BlockDiagonalCausalMask": {"causal": True},
        "BlockDiagonalCausalLocalAttentionMask": {"causal": True},
        "LowerTriangularFromBottomRightMask": {"causal": "bottom_right"},
        "LowerTriangularFromBottomRightLocalAttentionMask": {"causal": "bottom_right"},
        "BlockDiagonalCausalFromBottomRightMask": {"causal": "bottom_right"},
        "BlockDiagonalCausalLocalAttentionFromBottomRightMask": {"causal": "bottom_right"},
        "LocalAttentionFromBottomRightMask": {"alignment": "bottom_right"}}

    def __init__(self, place):
        logging.getLogger("xformers").setLevel(logging.ERROR)  # it says that its kernels are not built
        sys.path.insert(0, str(place))
        self.fmha = importlib.import_module("xformers.ops.fmha")
        reference = importlib.import_module("xformers.attn_bias_utils")
        for kernel in {*self.fmha.ALL_BW_OPS, *self.fmha.ALL_FW_OPS}:
            kernel.SUPPORTED_DEVICES = {"cpu"}
            kernel.is_available = kernel.not_supported_reasons = classmethod(lambda *_: [])
        for kernel in self.fmha.ALL_BW_OPS:
            kernel.is_available = classmethod(lambda _: True)
        with mock.patch.dict(sys.modules, stubs("scipy", "scipy.stats", "tests.utils", tests=place / "tests")):
            self.module = importlib.import_module("tests.test_mem_eff_attention")
        self.module.use_cpu_ref = lambda device: False
        self.module.sample_random_supported_fw = lambda *_, **__: self.fmha.cutlass.FwOp
        self.module.ref_attention_for_test = reference.ref_attention
        self.module.ref_attention_bmhk_for_test = reference.ref_attention_bmhk
        self.tests = [self.module.test_backward, self.module.test_backward_gqa, self.module.test_custom_scale]
        self.seen = set()

    def check(self, kernel, test, case):
        """The kernel and the dtype of a case make no difference here."""
        _, _, _, *shape = case.get(self.SHAPE, (None,) * 3)
        key = (kernel, test, *shape, *(x for name, x in case.items() if not name.startswith("opBW")))
        if key in self.seen:
            raise Skipped("the same case with another kernel or dtype")
        self.seen.add(key)
        if shape:
            _, batch, queries, keys, heads, *columns = shape
            check_size(batch * heads, queries, keys, sum(columns))

    def arguments(self, case):
        """A test that wants a GPU gets the name of one."""
        return {name: (x[0], "cuda", *x[2:]) if name == self.SHAPE else x for name, x in case.items()}

    def masked(self, mask):
        """Returns the options of a mask. One that is block diagonal stands for packed sequences."""
        options = dict(self.MASKS[type(mask).__name__])
        if hasattr(mask, "q_seqinfo"):
            options["sequence_offsets"] = [mask.q_seqinfo.seqstart_py, mask.k_seqinfo.seqstart_py]
        if hasattr(mask, "_window_size"):
            options["window"] = [mask._window_size - 1, -1]
        elif hasattr(mask, "window_left"):
            options["window"] = [mask.window_left, mask.window_right]
        return options

    def patches(self, kernel):
        def attend(query, key, value, attn_bias=None, p=0.0, scale=None, op=None):
            tensors = dict(zip("QKV", (query, key, value)))
            options = {} if scale is None else {"scale": scale}
            if isinstance(attn_bias, torch.Tensor):
                tensors["bias"] = attn_bias
            else:
                options.update(self.masked(attn_bias))
            if "sequence_offsets" not in options:
                return Attention.apply(kernel, options, list(tensors), *tensors.values())
            rows = [x.squeeze(0) for x in tensors.values()]
            return Attention.apply(kernel, options, list(tensors), *rows).unsqueeze(0)
        yield mock.patch.object(self.module.xformers.ops, "memory_efficient_attention", attend)
        yield mock.patch.object(self.fmha, "memory_efficient_attention", attend)
        yield mock.patch.object(self.module, "assert_allclose", kernel.close)


def check_size(heads, queries, keys, columns):
    if heads * columns * max(queries * keys, 8 * (queries + keys)) > LARGEST:
        raise Skipped("too large")


def run(suite, kernel, test, case):
    suite.check(kernel, test, case)
    with contextlib.ExitStack() as stack:
        for patch in suite.patches(kernel):
            stack.enter_context(patch)
        stack.enter_context(Widened())
        test(**suite.arguments(case))


def main():
    suites = [make(fetched(pathlib.Path(sys.argv[1]), *package)) for make, package in zip((Flash, Xformers), PACKAGES.items())]
    count = Count()
    warnings.simplefilter("ignore", UserWarning)  # The tests cause some.
    torch.set_num_threads(1)  # The calls are small, and threads that wait for each other are slow on a busy machine.
    with tempfile.TemporaryDirectory() as layers:
        daemon = Daemon(layers)
        for dtype in TOLERANCES:
            kernel = Kernel(daemon, dtype)
            for suite in suites:
                for test in suite.tests:
                    for case in test.cases:
                        count.run(f"{suite.NAME}, {test.__name__}", f"{dtype} {case}", run, suite, kernel, test, case)
        daemon.stop()
    return count.print(MINIMUM)


if __name__ == "__main__":
    sys.exit(main())
