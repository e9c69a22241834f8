"""Checks an attention kernel: python3 -m attentiond check FILE.py:FUNCTION

It draws the cases of cases.txt from a seed, gives each to the function, and asks the service whether rounding explains the
results. For a wrong result it finds the smallest case that still fails, and tries what the kernel may have done in place of the right
thing. It needs NumPy; with --arrays torch the function gets tensors of PyTorch. server/clients/python/README.md says what it gives the
function and what it takes.
"""

import argparse
import array
import importlib.util
import inspect
import math
import os
import pathlib
import pickle
import re
import select
import shutil
import subprocess
import sys
import time
import urllib.request
import zlib
from xml.sax.saxutils import escape, quoteattr

import numpy

from attentiond import Client, ServiceError, Tensor

CASES = pathlib.Path(__file__).with_name("cases.txt")
RIGHT = "equal", "rounded"
RESULTS = "output", "lse", "grad_Q", "grad_K", "grad_V"
# Each row has the names that a function may give to an argument. The argument gets what the first name stands for.
ARGUMENTS = [("q", "Q", "query"), ("k", "K", "key"), ("v", "V", "value"), ("causal", "is_causal"), ("window", "window_size"),
             ("scale", "sm_scale", "softmax_scale", "scaling"), ("softcap", "logits_soft_cap"), ("sink", "sinks", "s_aux"),
             ("alibi", "alibi_slopes", "slopes"), ("rotary",), ("mask", "attn_mask", "attention_mask"), ("bias", "attn_bias"),
             ("lengths", "seqlens", "seqused_k"), ("sequences", "cu_seqlens", "sequence_offsets"), ("update",), ("decay", "g"),
             ("beta",), ("state", "past_state", "initial_state"), ("grad_output", "dout", "do", "grad_out")]
# The program of the process that runs a function. It finds this package where it was found here.
SERVE = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent.parent)!r}); from attentiond import check; check.serve()"
LINEAR = "update", "decay", "beta", "state"  # arguments of linear attention
ROTARY = 10000.0


# ---------------------------------------------------------------------------------------------------------------- the cases

class Case:
    """A line of the file of cases: its name, and its keys with their values as texts."""

    def __init__(self, name, keys):
        self.name, self.keys = name, dict(keys)

    def __str__(self):
        return self.name

    def __getitem__(self, key):
        return self.keys.get(key)

    def changed(self, **keys):
        """The same case with other values. None takes a key away."""
        given = {**self.keys, **{key: str(value) for key, value in keys.items() if value is not None}}
        return Case(self.name, {key: value for key, value in given.items() if keys.get(key, "") is not None})

    def size(self, key):
        others = {"m": "n", "kv_heads": "heads", "d_v": "d"}
        if key == "n" and self["sequences"]:
            return sum(self.numbers("sequences"))
        if key in others and key not in self.keys:
            return self.size(others[key])
        return int(self.keys.get(key, {"batch": 1, "heads": 1, "d": 64}.get(key, 1)))

    def numbers(self, key):
        return [int(part) for part in self[key].split(",")]

    def text(self):
        return " ".join(f"{key}={value}" for key, value in self.keys.items())


def read_cases(path=CASES):
    """Returns the cases of a file."""
    found = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, _, rest = line.partition(":")
            found.append(Case(name, (part.split("=", 1) for part in rest.split())))
    return found


def rounded(x, dtype):
    """Returns numbers as the type holds them, in float32 (or float64)."""
    if dtype == "bfloat16":
        bits = numpy.ascontiguousarray(x, numpy.float32).view(numpy.uint32)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return numpy.where(numpy.isnan(x), numpy.float32("nan"), even.astype(numpy.uint32).view(numpy.float32))
    return x.astype(dtype).astype("float64" if dtype == "float64" else "float32")


def tiny(dtype):
    """A number below which numbers of a type are denormal."""
    return {"float16": 6e-5, "float64": 2e-308}.get(dtype, 1e-38)


def inputs_of(case, seed, dtype):
    """Draws the matrices of a case: Q (batch, heads, n, d), K and V likewise; with `sequences` (n, heads, d). Returns them by the names
    of the service, with the options as a function gets them."""
    rng = numpy.random.default_rng([seed, zlib.crc32(case.name.encode())])
    batch, heads, kv, n, m, d, d_v = (case.size(key) for key in ("batch", "heads", "kv_heads", "n", "m", "d", "d_v"))
    packed = case["sequences"] is not None

    def draw(rows, count, columns):
        return rng.standard_normal((rows, count, columns) if packed else (batch, count, rows, columns))
    q, k, v, grad = draw(n, heads, d), draw(m, kv, d), draw(m, kv, d_v), draw(n, heads, d_v)
    kind, _, tile = (case["scores"] or "").partition(":")
    scale = float(case["scale"] or d ** -0.5)
    if kind == "equal":
        q[:] = 0
    elif kind == "huge":
        k[..., min(1, m - 1), :] *= 40
    elif kind == "falling":
        q[..., 0], k[..., 0] = 1, -100 / scale * (numpy.arange(m) // int(tile))
    if case["V"] == "ones":
        v[:] = 1
    elif case["V"] == "onehot":
        v[:] = numpy.arange(m)[:, None] % d_v == numpy.arange(d_v)
    if case["inputs"] == "tiny":
        q, k, v = (x * tiny(dtype) for x in (q, k, v))
    if case["beta"]:
        k /= numpy.linalg.norm(k, axis=-1, keepdims=True)  # a correction with longer keys lets the state grow without end
    if case["inputs"] == "signed_zero":
        for x in (q, k, v):
            x[rng.random(x.shape) < 0.5] = -0.0
    matrices = {"Q": q, "K": k, "V": v, "grad_output": grad}
    options = {}
    if case["causal"]:
        options["causal"] = "bottom_right" if case["causal"] == "bottom_right" else True
    if case["window"]:
        options["window"] = tuple(case.numbers("window"))
    for key in "scale", "softcap":
        if case[key]:
            options[key] = float(case[key])
    if case["sink"]:
        matrices["sink"] = numpy.full(heads, float(case["sink"])) + numpy.arange(heads) / 8
    if case["alibi"]:
        power = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)] + [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
        matrices["alibi"] = numpy.array(slopes)
    if case["rotary"]:
        options["rotary"] = {"base": ROTARY, "interleaved": case["rotary"] == "interleaved"}
    if case["bias"]:
        matrices["bias"] = rng.standard_normal((heads, n, m))
    if case["mask"]:
        kind, _, at = case["mask"].partition(":")
        mask = numpy.ones((n, m), bool)
        if kind == "half":
            mask = (rng.random((n, m)) < 0.5) | numpy.eye(n, m, dtype=bool)
        elif kind == "first":
            mask[:, :int(at)] = False
        else:
            mask[min(int(at), n - 1)] = False
        matrices["mask"] = mask
    if case["lengths"]:
        options["lengths"] = case.numbers("lengths")
        for b, length in enumerate(options["lengths"]):
            if case["behind"] == "nan":
                k[b, :, length:], v[b, :, length:] = numpy.nan, numpy.nan
    if packed:
        options["sequences"] = [int(x) for x in numpy.cumsum([0, *case.numbers("sequences")])]
    if case["update"]:
        options["update"] = case["update"]
        gates = (n, heads) if packed else (batch, heads, n)
        if case["decay"]:
            drawn = -numpy.log1p(numpy.exp(rng.standard_normal(gates)))
            with numpy.errstate(divide="ignore"):
                matrices["decay"] = drawn if case["decay"] == "drawn" else numpy.full(gates, numpy.log(float(case["decay"])))
        if case["beta"]:
            matrices["beta"] = rng.random(gates) if case["beta"] == "drawn" else numpy.full(gates, float(case["beta"]))
        if case["state"]:
            matrices["state"] = rng.standard_normal((batch, heads, d, d_v))
    return {name: x if x.dtype == bool else rounded(x, dtype) for name, x in matrices.items()}, options


# ------------------------------------------------------------------------------------------------------------- the function

def turned(name, x, layout, back=False):
    """Returns a matrix in the order of axes of the function, or back in that of the service. lse is (batch, heads, n) in all orders."""
    if x.ndim != 4 and not (back and layout == "packed" and x.ndim == 3 and name != "lse"):
        return x
    if layout == "bnhd":
        return x.swapaxes(1, 2)
    return x if layout == "bhnd" else x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def taken_by(function):
    """Returns the arguments that a function takes, as {what: name}, and whether it takes any."""
    parameters = inspect.signature(function).parameters.values()
    every = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters}
    return {row[0]: name for row in ARGUMENTS for name in row if name in names}, every


def load(where):
    """Returns the function of FILE.py:NAME."""
    path, _, name = where.rpartition(":")
    if not path or not name:
        raise ValueError(f"{where} is not FILE.py:FUNCTION")
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location("attentiond_kernel", path)
    if spec is None or not pathlib.Path(path).exists():
        raise ValueError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{path} has no function {name}")
    return function


class Arrays:
    """Makes the arrays of the function from those of NumPy, and back."""

    def __init__(self, kind, dtype, device):
        self.kind, self.dtype, self.device = kind, dtype, device
        if kind == "torch":
            import torch
            self.torch = torch
        elif dtype == "bfloat16":
            raise ValueError("NumPy has no bfloat16; use --arrays torch")

    def give(self, name, x):
        exact = x.dtype == bool
        if self.kind == "numpy":
            return x.copy() if exact else x.astype(self.dtype)
        made = self.torch.from_numpy(numpy.ascontiguousarray(x)).to(self.device)
        return made if exact else made.to(getattr(self.torch, self.dtype))

    def take(self, name, x):
        """Returns an array of NumPy, and the name of the type that it had."""
        if self.kind == "torch" and isinstance(x, self.torch.Tensor) or hasattr(x, "detach"):
            dtype = str(x.dtype).rpartition(".")[2]
            x = x.detach()
            return (x.float() if dtype == "bfloat16" else x).cpu().numpy(), dtype
        if hasattr(x, "__dlpack__") and not isinstance(x, numpy.ndarray):
            x = numpy.from_dlpack(x)
        x = numpy.asarray(x)
        return x, x.dtype.name


def call(function, matrices, options, settings):
    """Calls a function with the inputs of a case. Returns {"results": {name: (array, type)}} or {"fault": why}."""
    arrays = Arrays(settings["arrays"], settings["dtype"], settings["device"])
    layout = settings["layout"]
    taken, every = taken_by(function)
    given, before = dict(options), {}
    for name, x in matrices.items():
        given[name.lower()] = arrays.give(name, numpy.ascontiguousarray(turned(name, x, layout)))
    arguments = {taken.get(what, what): value for what, value in given.items() if what in taken or (every and what not in "qkv")}
    before = {name: arrays.take(name, x)[0].copy() for name, x in arguments.items() if hasattr(x, "dtype")}
    positional = [] if {"q", "k", "v"} <= set(taken) else [given["q"], given["k"], given["v"]]
    try:
        answer = function(*positional, **arguments)
    except Exception as error:  # whatever the kernel of somebody else may raise
        return {"fault": f"raises {type(error).__name__}: {error}"[:200]}
    for name, x in arguments.items():
        if name in before and not numpy.array_equal(arrays.take(name, x)[0], before[name], equal_nan=before[name].dtype != bool):
            return {"fault": f"writes into {name}"}
    if not isinstance(answer, dict):
        answer = dict(zip(settings["returns"], answer if isinstance(answer, (tuple, list)) else [answer]))
    results = {}
    for name, x in answer.items():
        if x is None:
            continue
        x, dtype = arrays.take(name, x)
        if dtype not in ("float64", "float32", "float16", "bfloat16"):
            return {"fault": f"returns {name} of the type {dtype}"}
        results[name] = x, dtype
    return {"results": results} if results else {"fault": "returns nothing"}


def serve():
    """The process that runs the function: it reads pickled calls from its input, and writes what they return. So a function that hangs or
    crashes ends this process alone."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints is no answer
    where = pickle.load(reader)
    try:
        function, first = load(where), None
    except Exception as error:
        function, first = None, {"fault": f"{where}: {type(error).__name__}: {error}"}
    pickle.dump(first or {"taken": taken_by(function), "torch": "torch" in sys.modules}, writer)
    writer.flush()
    while function is not None:
        try:
            asked = pickle.load(reader)
        except EOFError:
            return
        pickle.dump(call(function, *asked), writer)
        writer.flush()


class Runner:
    """Runs a function: one that is given as FILE.py:FUNCTION in a process of its own, and another one here."""

    def __init__(self, function, timeout):
        self.function, self.timeout, self.process = function, timeout, None
        if callable(function):
            self.taken, self.torch = taken_by(function), "torch" in sys.modules
        else:
            self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        found = self.ask(self.function, 10 * self.timeout)
        if "fault" in found:
            self.close()
            raise ValueError(found["fault"])
        self.taken, self.torch = found["taken"], found["torch"]

    def ask(self, what, timeout):
        try:
            pickle.dump(what, self.process.stdin)
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                self.close()
                return {"fault": f"hangs: it has not returned after {timeout:g} s"}
            return pickle.load(self.process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            status = self.process.wait()
            self.close()
            return {"fault": f"ends its process with the status {status}"}

    def run(self, matrices, options, settings):
        if callable(self.function):
            return call(self.function, matrices, options, settings)
        if self.process is None:
            self.start()
        return self.ask((matrices, options, settings), self.timeout)

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


# -------------------------------------------------------------------------------------------------------------- the service

def tensor(x, dtype):
    """Returns an array of a type, as the client sends it."""
    if x.dtype == bool:
        return x
    if dtype == "bfloat16":
        bits = numpy.ascontiguousarray(rounded(x, dtype), numpy.float32).view(numpy.uint32) >> 16
        return Tensor("BF16", x.shape, array.array("H", bits.astype(numpy.uint16).tobytes()))
    return x.astype(dtype)


def request_of(case, matrices, options, settings):
    """Returns the path, the tensors and the options of the request whose results a kernel should have."""
    matrices, options = dict(matrices), dict(options)
    if options.pop("update", None):
        path, matrices = "/linear-attention", {"past_state" if name == "state" else name: x for name, x in matrices.items()}
        options["update"] = case["update"]
    else:
        path = "/attention"
    if "sequences" in options:
        options["sequence_offsets"] = [options.pop("sequences")]
    tensors = {name: tensor(x, settings["dtype"]) for name, x in matrices.items()}
    return path, tensors, {**options, "dtype": "float64", "return": ["comparison"], "computed_in": settings["computed_in"]}


def verdicts_of(client, request, results):
    """Returns the comparison of each result. results: {name: (array, type)}."""
    path, tensors, options = request
    if not any(name.startswith("grad_") for name in results):
        tensors = {name: x for name, x in tensors.items() if name != "grad_output"}
    expected = {f"expected.{name}": tensor(x, dtype) for name, (x, dtype) in results.items()}
    plain = {name: Tensor(*typed(x)) if not isinstance(x, Tensor) else x for name, x in {**tensors, **expected}.items()}
    return client.compare(path, plain, options)["results"]


def typed(x):
    codes = {"float64": ("F64", "d"), "float32": ("F32", "f"), "float16": ("F16", "H"), "bool": ("BOOL", "B")}
    name, code = codes[x.dtype.name]
    return name, x.shape, array.array(code, x.tobytes())


# --------------------------------------------------------------------------------------------------------------- the check

class Row:
    """What the check found for a case: `verdict` is that of the service, "skipped", or "fault", and `says` has the reason."""

    def __init__(self, case, verdict, says="", ratio=None, worst="", seconds=0.0):
        self.case, self.verdict, self.says, self.ratio, self.worst, self.seconds = case, verdict, says, ratio, worst, seconds
        self.smallest, self.suspicions = None, []

    @property
    def right(self):
        return self.verdict in RIGHT or self.verdict == "skipped"

    @property
    def kind(self):
        """What a smaller case must share to fail in the same way: the first words of a fault, or wrong numbers."""
        return " ".join(self.says.split()[:2]) if self.verdict == "fault" else "wrong"


def fault_of(case, results, matrices, settings):
    """Returns what is wrong with the results before they are compared, or None. Results come back in the order of axes of the service."""
    q, v = matrices["Q"], matrices["V"]
    shapes = {"output": (*q.shape[:-1], v.shape[-1]), "lse": q.shape[:-1] if q.ndim == 4 else (q.shape[1], q.shape[0]),
              "grad_Q": q.shape, "grad_K": matrices["K"].shape, "grad_V": v.shape,
              "present_state": (q.shape[0], q.shape[1], q.shape[-1], v.shape[-1])}
    for name, (x, dtype) in results.items():
        if name not in shapes:
            return f"returns {name}, which is none of {', '.join(shapes)}"
        want = shapes[name]
        if name not in ("lse", "present_state"):
            want = turned(name, numpy.empty(want, bool), settings["layout"]).shape
        if tuple(x.shape) != want:
            return f"returns {name} with the shape {tuple(x.shape)}, not {want}"
        if name == "output" and dtype != settings["dtype"] and dtype != settings["output_dtype"]:
            return f"returns {name} in {dtype}, not in {settings['output_dtype'] or settings['dtype']}"
        if numpy.isnan(x).any():
            at = tuple(int(i) for i in numpy.argwhere(numpy.isnan(x))[0])
            return f"returns {name} with NaN at {list(at)}"
    return None


class Check:
    """Checks a function. client: of the service. settings: see main()."""

    def __init__(self, client, runner, **settings):
        self.client, self.runner = client, runner
        self.settings = {"arrays": None, "dtype": "float32", "device": "cpu", "layout": "bhnd", "returns": RESULTS, "seed": 1,
                         "computed_in": None, "output_dtype": None, **settings}
        self.settings["arrays"] = self.settings["arrays"] or ("torch" if runner.torch else "numpy")
        self.settings["computed_in"] = self.settings["computed_in"] or self.settings["dtype"]
        taken, every = runner.taken
        self.settings["returns_gradients"] = every or "grad_output" in taken
        self.linear = any(what in taken for what in LINEAR)

    def skips(self, case):
        """Returns why a case is not run, or None."""
        taken, every = self.runner.taken
        if bool(case["update"]) != self.linear:
            return "it is for linear attention" if case["update"] else "it is for softmax attention"
        needs = [what for what in ("causal", "window", "softcap", "sink", "alibi", "rotary", "mask", "bias", "lengths", "sequences", "update",
                                   "decay", "beta", "state") if case[what] and what not in taken and not every]
        if case["scale"] and "scale" not in taken and not every:
            needs.append("scale")
        without = [key for key in self.settings.get("without", ()) if key in case.keys or key in case.text().split() or key == case.name]
        if needs or without:
            return f"the function takes no {needs[0]}" if needs else f"without {without[0]}"
        return None

    def judge(self, case, seed=None):
        """Runs a case, and returns its row with the inputs and the results."""
        seed = self.settings["seed"] if seed is None else seed
        matrices, options = inputs_of(case, seed, self.settings["dtype"])
        begin = time.monotonic()
        given = {name: x for name, x in matrices.items() if name != "grad_output" or self.settings["returns_gradients"]}
        answer = self.runner.run(given, options, self.settings)
        seconds = time.monotonic() - begin
        if "fault" not in answer:
            fault = fault_of(case, answer["results"], matrices, self.settings)
            answer = {"fault": fault} if fault else answer
        if "fault" in answer:
            return Row(case, "fault", answer["fault"], seconds=seconds), None, None
        results = {name: (numpy.ascontiguousarray(self.back(name, x, matrices)), dtype) for name, (x, dtype) in answer["results"].items()}
        request = request_of(case, matrices, options, self.settings)
        try:
            found = verdicts_of(self.client, request, results)
        except ServiceError as error:
            return Row(case, "fault", f"the service refuses the case: {error}", seconds=seconds), None, None
        worst = max(found, key=lambda name: (not found[name]["verdict"] in RIGHT, found[name].get("rms_ratio") or 0))
        one = found[worst]
        index = (one.get("worst_rows") or [{"index": []}])[0]["index"]
        row = Row(case, one["verdict"], one.get("message", ""), one.get("rms_ratio"), f"{worst} {index}", seconds)
        return row, (request, results, matrices, options), found

    def back(self, name, x, matrices):
        if name in ("lse", "present_state") or matrices["Q"].ndim != 4:
            return x
        if self.settings["layout"] == "packed":
            heads = matrices["Q" if name in ("output", "grad_Q") else "K"].shape[1]
            return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
        return turned(name, x, self.settings["layout"], back=True)

    def run(self, case):
        """Runs a case. A wrong one gets its smallest case and its suspicions."""
        why = self.skips(case)
        if why:
            return Row(case, "skipped", why)
        row, asked, found = self.judge(case)
        if not row.right:
            if asked:
                row.suspicions = self.suspect(case, asked, found)
            row.smallest = self.shrink(case, row)
            if row.smallest.text() != case.text() and not row.suspicions:
                small, asked, found = self.judge(row.smallest)
                row.suspicions = self.suspect(row.smallest, asked, found) if asked else []
        return row

    def shrink(self, case, row, most=40, seconds=20):
        """Returns the smallest case that fails as this one does: a fault of the same kind, or results that are wrong."""
        end = time.monotonic() + seconds
        if row.kind.startswith("hangs"):
            return case  # each try would take as long
        tries, again = 0, True
        while again:
            again = False
            for smaller in smaller_cases(case):
                tries += 1
                if tries > most or time.monotonic() > end:
                    return case
                other, _, _ = self.judge(smaller)
                if not other.right and other.verdict != "close" and other.kind == row.kind:
                    case, again = smaller, True
                    break
        return case

    def suspect(self, case, asked, found):
        """Returns what explains all results that are wrong."""
        request, results, matrices, options = asked
        wrong = {name: results[name] for name in results if found[name]["verdict"] not in RIGHT}
        explained = []
        for says, change in suspicions(self, case, request, results, matrices, options):
            try:
                other, given = change()
                given = {name: given.get(name, wrong[name]) for name in wrong}
                verdicts = verdicts_of(self.client, other, given)
            except (ServiceError, KeyError, ValueError):
                continue
            if all(verdicts[name]["verdict"] in RIGHT for name in wrong):
                explained.append(says(wrong) if callable(says) else says)
        return explained


def smaller_cases(case):
    """Yields cases that are smaller, or have an option less, the most welcome ones first."""
    for key in ("batch", "heads"):
        if case.size(key) > 1 and not (key == "batch" and case["lengths"]):
            yield case.changed(**{key: None}, **({"kv_heads": None} if key == "heads" else {}))
    if case["heads"] and case.size("kv_heads") < case.size("heads"):
        yield case.changed(heads=2, kv_heads=1) if case.size("heads") > 2 else case.changed(kv_heads=None)
    for key in ("bias", "alibi", "rotary", "softcap", "scale", "sink", "mask", "window", "scores", "V", "inputs", "behind", "causal", "state"):
        if case[key] and not (key == "scale" and case["softcap"]):
            yield case.changed(**{key: None})
    if case["lengths"] and not case["behind"]:
        yield case.changed(lengths=None)
    if case["sequences"]:
        lengths = case.numbers("sequences")
        for at in range(len(lengths)):
            if len(lengths) > 1:
                yield case.changed(sequences=",".join(str(x) for i, x in enumerate(lengths) if i != at))
        for at, length in enumerate(lengths):
            if length > 1:
                yield case.changed(sequences=",".join(str(length // 2 if i == at else x) for i, x in enumerate(lengths)))
    else:
        n, m = case.size("n"), case.size("m")
        for part in (0.25, 0.5, 0.75):
            if max(n, m) > 1:
                few = case.changed(n=max(1, round(n * part)), m=max(1, round(m * part)))
                yield few.changed(m=None) if n == m else few
        if n > 1:
            yield case.changed(n=n - 1, m=m - 1 if n == m and m > 1 else m)
        if m > 1 and n != m:
            yield case.changed(m=m - 1)
    d, d_v = case.size("d"), case.size("d_v")
    for few in (16, 32):
        if d > few:
            yield case.changed(d=few, d_v=None)


def suspicions(check, case, request, results, matrices, options):
    """Yields what a kernel may have done: (a sentence, a function that returns the request and the results that its results fit)."""
    path, tensors, asked = request
    n, m, d, heads, kv = (case.size(key) for key in ("n", "m", "d", "heads", "kv_heads"))
    dtype = check.settings["dtype"]

    def with_(says, more=None, drop=(), of_tensors=None, results=None):
        given = {key: value for key, value in {**asked, **(more or {})}.items() if key not in drop}
        all_tensors = {key: value for key, value in {**tensors, **(of_tensors or {})}.items() if key not in drop}
        return says, lambda: ((path, all_tensors, given), results or {})

    def mask_of(sees):
        mask = matrices.get("mask", numpy.ones((n, m), bool))
        return {"mask": mask & sees}
    if case["update"]:
        if "state" in matrices:
            yield with_("the state before the first position is missing", drop=("past_state",))
            if d == case.size("d_v"):
                yield with_("the state is transposed", of_tensors={"past_state": tensor(matrices["state"].swapaxes(-1, -2).copy(), dtype)})
        if "decay" in matrices:
            yield with_("the gate is missing", {"update": "delta" if case["update"] == "gated_delta" else "linear"}, drop=("decay",))
        if "beta" in matrices:
            yield with_("beta is 1", of_tensors={"beta": tensor(numpy.ones_like(matrices["beta"]), dtype)})
        yield with_("the scale is 1", {"scale": 1.0})
        return
    rows, keys = numpy.arange(n)[:, None], numpy.arange(m)
    scale = options.get("scale", d ** -0.5)
    if "window" in options:
        for side, name in enumerate(("left", "right")):
            for more, says in ((1, "wider"), (-1, "narrower")):
                window = list(options["window"])
                window[side] += more
                if options["window"][side] >= 0 and window[side] >= 0 and not (side == 1 and "causal" in options):
                    yield with_(f"the window is one {says} on the {name}", {"window": window})
        yield with_("the window is missing", drop=("window",))
    if "causal" in options:
        other = True if options["causal"] == "bottom_right" else "bottom_right"
        if n != m or "lengths" in options:
            yield with_("causal has the other alignment", {"causal": other})
        yield with_("the causal mask is missing", drop=("causal",))
        yield with_("each query also sees the key after its own", {"window": [options.get("window", (-1, 0))[0], 1],
                                                                   "alignment": "bottom_right" if other is True else "top_left"}, drop=("causal",))
        if "sequences" not in options:
            at = rows + (m - n if other is True else 0)
            yield with_("no query sees its own key", of_tensors=mask_of(keys < at))
    elif "sequences" not in options:
        yield with_("there is a causal mask", {"causal": True})
    if "mask" in matrices:
        yield with_("the mask is inverted", of_tensors={"mask": ~matrices["mask"]})
        yield with_("the mask is missing", drop=("mask",))
    if "lengths" in options:
        yield with_("lengths are ignored", drop=("lengths",))
    if "sequences" in options:
        yield with_("the sequences are not separated", drop=("sequence_offsets",))
    for says, other in (("the scale is 1", 1.0), ("the scale is 1/d", 1 / d), ("the scale is applied twice", scale * scale),
                        ("the scale is 1/sqrt(d) in place of the given one", d ** -0.5)):
        if other != scale:
            yield with_(says, {"scale": other})
    if "softcap" in options:
        yield with_("the softcap is missing", drop=("softcap",))
        if "bias" in matrices:
            yield "the softcap comes after the bias", lambda: (capped_after(case, request, matrices, options), {})
    if "bias" in matrices:
        yield with_("the bias is missing", drop=("bias",))
        yield with_("the bias is multiplied by the scale", of_tensors={"bias": tensor(matrices["bias"] * numpy.float32(scale), dtype)})
    if "alibi" in matrices:
        yield with_("ALiBi has the other sign", of_tensors={"alibi": tensor(-matrices["alibi"], dtype)})
        yield with_("ALiBi is missing", drop=("alibi",))
    if kv < heads:
        axis = 1
        tiled = numpy.arange(heads) % kv
        yield with_("the key head of head h is h mod kv_heads", of_tensors={
            name: tensor(numpy.take(matrices[name], tiled, axis), dtype) for name in "KV"})
    if kv > 1:
        yield with_("the values are those of another head", of_tensors={"V": tensor(numpy.roll(matrices["V"], 1, 1), dtype)})
        yield with_("the values are those of another head", of_tensors={"V": tensor(numpy.roll(matrices["V"], -1, 1), dtype)})
    if "sink" in matrices:
        yield with_("the sink is missing", drop=("sink",)) if "lse" not in results or len(results) == 1 \
            else with_(lambda wrong: "lse lacks the sink" if set(wrong) == {"lse"} else "the sink is missing", drop=("sink",))
    if "lse" in results:
        x, kind = results["lse"]
        yield with_("lse is in base 2", results={"lse": ((x * math.log(2)).astype(numpy.float32), "float32")})
    if "output" in results and "sequences" not in options:
        yield "the output is not divided by the sum", lambda: undivided(check, request, results)
    if "rotary" in options:
        other = not options["rotary"]["interleaved"]
        yield with_(f"rotary embedding turns {'neighbouring' if other else 'half-split'} pairs of columns", {
            "rotary": {"base": ROTARY, "interleaved": other}})
        yield with_("rotary embedding is missing", drop=("rotary",))
    if "sequences" not in options:
        for tile in sorted({m % size or size for size in (16, 32, 64, 128)}):
            if tile < m:
                yield with_(f"the last {tile} keys are lost", of_tensors=mask_of(keys[None, :].repeat(n, 0) < m - tile))


def exact(client, request, names):
    """Returns results of a request in float64, as arrays."""
    path, tensors, options = request
    given = {key: value for key, value in options.items() if key != "computed_in"}
    found = client.tensors(path, {name: x for name, x in tensors.items() if name != "grad_output"}, {**given, "return": names})
    codes = {"F64": "<f8", "F32": "<f4"}
    return {name: x if not isinstance(x, Tensor) else numpy.frombuffer(x.data, codes[x.dtype]).reshape(x.shape) for name, x in found.items()}


def capped_after(case, request, matrices, options):
    """The request of a kernel that caps the sum of scores and bias."""
    path, tensors, asked = request
    q, k = matrices["Q"].astype(float), matrices["K"].astype(float)
    k = numpy.repeat(k, q.shape[1] // k.shape[1], 1)
    scores = options.get("scale", q.shape[-1] ** -0.5) * (q @ k.swapaxes(-1, -2))
    cap = options["softcap"]
    bias = cap * numpy.tanh((scores + matrices["bias"]) / cap) - scores
    wide = {name: tensor(x, "float64") for name, x in matrices.items() if name in tensors and name != "bias"}
    return path, {**wide, "bias": bias}, {key: value for key, value in asked.items() if key != "softcap"}


def undivided(check, request, results):
    """The request, and the output as it would be if a kernel had divided it by the sum."""
    found = exact(check.client, request, ["masked_scores", "lse"])
    largest = found["masked_scores"].max(-1)
    x, _ = results["output"]
    with numpy.errstate(over="ignore", invalid="ignore"):
        divided = x / numpy.exp(found["lse"] - largest)[..., None]
    return request, {"output": (divided.astype(numpy.float32), "float32")}


# -------------------------------------------------------------------------------------------------------------- the daemon

class Daemon:
    """The service: that of a URL, one that answers at the usual address, or one that is started for the check."""

    def __init__(self, url=None, api_key=None):
        self.process, self.url = None, url or os.environ.get("ATTENTIOND_URL")
        if self.url is None and answers("http://127.0.0.1:8080"):
            self.url = "http://127.0.0.1:8080"
        if self.url is None:
            self.start()
        self.client = Client(self.url, api_key)

    def start(self):
        program = os.environ.get("ATTENTIOND_BIN") or shutil.which("attentiond")
        if program is None:
            raise ValueError("no service answers at http://127.0.0.1:8080: start one, name it with --url, or set ATTENTIOND_BIN to the "
                             "program attentiond")
        self.process = subprocess.Popen([program, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = re.search(r":(\d+)$", self.process.stdout.readline().strip())
        if found is None:
            raise ValueError(f"{program} has not started")
        self.url = f"http://127.0.0.1:{found[1]}"

    def close(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process.stdout.close()


def answers(url):
    try:
        with urllib.request.urlopen(f"{url}/health/live", timeout=1) as response:
            return response.status == 200
    except (OSError, ValueError):
        return False


# ------------------------------------------------------------------------------------------------------------- the reports

def report(row, seed, stream):
    """Prints the line of a case, and what is known of a wrong one."""
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
    print(f"{row.case.name:20} {row.verdict:8} {ratio:>9}  {row.worst if row.verdict not in ('skipped', 'fault') else row.says}", file=stream)
    if not row.right:
        if row.verdict != "fault":
            print(f"    {row.says}", file=stream)
        if row.smallest is not None:
            print(f"    seed {seed}, smallest case that fails: {row.smallest.text()}", file=stream)
        for says in row.suspicions:
            print(f"    the results are right if {says}", file=stream)


def junit(rows, path):
    """Writes the rows as JUnit XML."""
    parts = []
    for row in rows:
        inside = ""
        if row.verdict == "skipped":
            inside = f"<skipped message={quoteattr(row.says)}/>"
        elif not row.right:
            more = [row.says, f"smallest case: {row.smallest.text()}" if row.smallest else "", *row.suspicions]
            inside = f"<failure message={quoteattr(row.verdict)}>{escape(chr(10).join(filter(None, more)))}</failure>"
        parts.append(f'<testcase classname="attentiond" name={quoteattr(row.case.name)} time="{row.seconds:.3f}">{inside}</testcase>')
    wrong, skipped = sum(not row.right for row in rows), sum(row.verdict == "skipped" for row in rows)
    head = f'<testsuite name="attentiond" tests="{len(rows)}" failures="{wrong}" skipped="{skipped}">'
    pathlib.Path(path).write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n' + "\n".join(parts) + "\n</testsuite>\n", encoding="utf-8")


def check(function, url=None, cases=None, stream=None, timeout=60, api_key=None, junit_file=None, **settings):
    """Checks a function, or that of the text FILE.py:FUNCTION, with all cases. Returns the rows; all(row.right for row in rows) says that no
    result is wrong. settings: dtype, layout (bhnd, bnhd or packed), arrays (numpy or torch), device, returns, seed, computed_in,
    output_dtype and without, as the command has them. With stream, it prints a table there."""
    daemon, rows = Daemon(url, api_key), []
    try:
        runner = Runner(function, timeout)
        try:
            checker = Check(daemon.client, runner, **settings)
            cases = read_cases() if cases is None else cases
            for number, case in enumerate(cases):
                if stream is not None and stream.isatty():
                    print(f"{number}/{len(cases)} {case.name}", end="\r", file=stream, flush=True)
                rows.append(checker.run(case))
                if stream is not None and rows[-1].verdict != "skipped":
                    report(rows[-1], checker.settings["seed"], stream)
        finally:
            runner.close()
    finally:
        daemon.close()
        if junit_file:
            junit(rows, junit_file)
    return rows


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="attentiond check", description=__doc__.split("\n\n")[0])
    parser.add_argument("function", metavar="FILE.py:FUNCTION")
    parser.add_argument("--url", help="of the service; default: $ATTENTIOND_URL, http://127.0.0.1:8080, or one that is started")
    parser.add_argument("--dtype", choices=("float64", "float32", "float16", "bfloat16"), default="float32", help="of the inputs")
    parser.add_argument("--output-dtype", help="that of the output, if it is another one")
    parser.add_argument("--computed-in", help="the type in which the kernel multiplies, such as tf32; default: that of the inputs")
    parser.add_argument("--layout", choices=("bhnd", "bnhd", "packed"), default="bhnd",
                        help="the axes of Q, K and V: (batch, heads, n, d), (batch, n, heads, d) or (batch, n, heads·d)")
    parser.add_argument("--arrays", choices=("numpy", "torch"), help="default: torch if the file of the function imports it")
    parser.add_argument("--device", default="cpu", help="of the tensors of torch, such as cuda")
    parser.add_argument("--returns", type=lambda text: text.split(","), default=RESULTS, metavar="NAME,NAME",
                        help="the order in which the function returns its results; default: output,lse,grad_Q,grad_K,grad_V")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", action="append", help="run only this case, or a line KEY=VALUE KEY=VALUE; may be given again")
    parser.add_argument("--without", action="append", default=[], metavar="KEY[=VALUE]", help="leave out cases that have it")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that one call of the function may take")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML")
    given = vars(parser.parse_args(arguments))
    where, url, names, file, timeout = (given.pop(key) for key in ("function", "url", "case", "junit", "timeout"))
    known = {case.name: case for case in read_cases()}
    cases = [known[name] if name in known else Case("given", (part.split("=", 1) for part in name.split())) for name in names or ()]
    try:
        begin = time.monotonic()
        rows = check(where, url, cases or None, sys.stdout, timeout, os.environ.get("ATTENTIOND_API_KEY"), file, **given)
    except (ValueError, ServiceError, OSError) as error:
        sys.exit(f"attentiond check: {error}")
    wrong = [row for row in rows if not row.right]
    ran = [row for row in rows if row.verdict != "skipped"]
    own = sum(row.seconds for row in rows)
    print(f"{len(ran) - len(wrong)} of {len(ran)} cases are right, {len(rows) - len(ran)} are left out; {time.monotonic() - begin:.1f} s, "
          f"{own:.1f} s of them in the function")
    sys.exit(bool(wrong) or not ran)
