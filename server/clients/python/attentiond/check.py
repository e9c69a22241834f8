"""Checks an attention kernel: python3 -m attentiond check FILE.py:FUNCTION

It draws the cases of cases.txt from a seed, gives each to the function, and asks the service whether rounding explains the
results. For a wrong result it finds the smallest case that still fails, and tries what the kernel may have done in place of the right
thing. It needs NumPy; with --arrays torch the function gets tensors of PyTorch. server/clients/python/README.md says what it gives the
function and what it takes.
"""

import argparse
import collections
import importlib.util
import inspect
import math
import os
import pathlib
import pickle
import re
import select
import subprocess
import sys
import time
from xml.sax.saxutils import escape, quoteattr

import numpy

from attentiond import ServiceError
from attentiond.asking import request_of, verdicts_of
from attentiond.cases import KEYS, case_of, inputs_of, read_cases
from attentiond.daemon import Daemon
from attentiond.model import call_of, visible
from attentiond.suspicions import TILES, contradicted, explaining, parts_of, right_of

RIGHT = "equal", "rounded", "close"  # close: off by up to twice what rounding explains
COARSER = r"as a kernel that multiplies in (\w+) it would be rounded"  # in a message of the service
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold
SLIGHT = 10  # a result in float32 or float64 is close, too, up to so many times: no digit that a model needs is lost
DETAILED = 10  # wrong cases that are made smaller and explained
RESULTS = "output", "lse", "grad_Q", "grad_K", "grad_V"
RESULTS_AND_STATE = *RESULTS, "present_state"
# Each row has the names that a function may give to an argument. The argument gets what the first name stands for.
ARGUMENTS = [("q", "Q", "query"), ("k", "K", "key"), ("v", "V", "value"), ("causal", "is_causal"), ("window", "window_size"),
             ("scale", "sm_scale", "softmax_scale", "scaling"), ("softcap", "logits_soft_cap"), ("sink", "sinks", "s_aux"),
             ("alibi", "alibi_slopes", "slopes"), ("rotary",), ("mask", "attn_mask", "attention_mask"), ("bias", "attn_bias"),
             ("lengths", "seqlens", "seqused_k"), ("sequences", "cu_seqlens", "sequence_offsets"), ("update",), ("decay", "g"),
             ("beta",), ("state", "past_state", "initial_state"), ("grad_output", "dout", "do", "grad_out")]
# The program of the process that runs a function. It finds this package where it was found here.
SERVE = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent.parent)!r}); from attentiond import check; check.serve()"
LINEAR = "update", "decay", "beta", "state"  # arguments of linear attention
UPDATES = {(False, False): "linear", (True, False): "gated", (False, True): "delta", (True, True): "gated_delta"}  # by decay and beta


# ------------------------------------------------------------------------------------------------------------- the function

def turned(name, x, layout):
    """Returns a matrix in the order of axes of the function. lse is (batch, heads, n) in all orders, and a state has no rows."""
    if x.ndim != 4 or name.endswith("state"):
        return x
    if layout == "bnhd":
        return x.swapaxes(1, 2)
    return x if layout == "bhnd" else x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def taken_by(function):
    """Returns the arguments that a function takes, as {what: name}, whether it takes any, and those without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C may have no signature
        return {}, False, []
    parameters = [p for p in parameters if p.kind is not p.POSITIONAL_ONLY]
    every = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters}
    taken = {row[0]: name for row in ARGUMENTS for name in row if name in names}
    return taken, every, [what for what, name in taken.items() if any(p.name == name and p.default is p.empty for p in parameters)]


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


class Unusable(ValueError):
    """Settings with which no case can run."""


class Arrays:
    """Makes the arrays of the function from those of NumPy, and back. kind: numpy, torch, or another module that makes arrays."""

    def __init__(self, kind, dtype, device):
        self.kind, self.dtype, self.device = kind, dtype, device
        try:
            self.library = importlib.import_module(kind)
        except ImportError as error:
            raise Unusable(f"--arrays {kind}: {error}") from None
        if dtype == "bfloat16" and not hasattr(self.library, dtype):
            raise Unusable(f"{kind} has no bfloat16; use --arrays torch")
        if kind != "numpy" and not hasattr(self.library, "from_dlpack") and not hasattr(self.library, "asarray"):
            raise Unusable(f"--arrays {kind}: it has neither from_dlpack nor asarray")

    def give(self, x):
        exact, coarse = x.dtype == bool, self.dtype == "bfloat16"
        if self.kind == "torch":
            made = self.library.from_numpy(numpy.ascontiguousarray(x)).to(self.device)
            return made if exact else made.to(getattr(self.library, self.dtype))
        made = x.astype(bool if exact else "float32" if coarse else self.dtype)
        if self.kind != "numpy":
            made = self.made(made)
        return made.astype(self.library.bfloat16) if coarse and not exact else made

    def made(self, x):
        """Returns an array of another library. DLPack of NumPy has no bool, and from_dlpack of some takes no memory of the host."""
        try:
            return self.library.from_dlpack(x)
        except (AttributeError, TypeError, ValueError, RuntimeError, BufferError):
            return self.library.asarray(x)

    def take(self, x):
        """Returns an array of NumPy, and the name of the type that it had."""
        if hasattr(x, "detach"):  # PyTorch
            dtype = str(x.dtype).rpartition(".")[2]
            x = x.detach()
            return (x.float() if dtype == "bfloat16" else x).cpu().numpy(), dtype
        if hasattr(x, "get") and hasattr(x, "dtype"):  # CuPy
            x = x.get()
        elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
            x = numpy.from_dlpack(x)
        x = x if isinstance(x, numpy.ma.MaskedArray) else numpy.asarray(x)
        return x, x.dtype.name


def text_of(error):
    try:
        return str(error)
    except Exception:  # its own text fails
        return "without a text"


def call(function, matrices, options, settings):
    """Calls a function with the inputs of a case. Returns {"results": {name: (array, type)}} or {"fault": why}."""
    arrays = Arrays(settings["arrays"], settings["dtype"], settings["device"])
    layout = settings["layout"]
    taken, every, needed = taken_by(function)
    usual = {"causal": False, "window": (-1, -1), "scale": matrices["Q"].shape[-1] ** -0.5, "softcap": 0.0}
    given = {**{what: value for what, value in usual.items() if what in needed}, **options}
    for name, x in matrices.items():
        given[name.lower()] = arrays.give(numpy.ascontiguousarray(turned(name, x, layout)))
    arguments = {taken.get(what, what): value for what, value in given.items() if what in taken or (every and what not in "qkv")}
    before = {name: arrays.take(x)[0].copy() for name, x in arguments.items() if hasattr(x, "dtype")}
    positional = [] if {"q", "k", "v"} <= set(taken) else [given["q"], given["k"], given["v"]]
    try:
        answer = function(*positional, **arguments)
    except Exception as error:  # whatever the kernel of somebody else may raise
        return {"fault": f"raises {type(error).__name__}: {text_of(error)}"[:200]}
    for name, x in arguments.items():
        if name in before and not numpy.array_equal(arrays.take(x)[0], before[name], equal_nan=before[name].dtype != bool):
            return {"fault": f"writes into {name}"}
    if not isinstance(answer, dict):
        answer = dict(zip(settings["returns"], answer if isinstance(answer, (tuple, list)) else [answer]))
    results = {}
    for name, x in answer.items():
        if x is None:
            continue
        try:
            x, dtype = arrays.take(x)
        except Exception as error:  # of an object of somebody else
            return {"fault": f"returns {name}, which is no array: {text_of(error)}"[:200]}
        if isinstance(x, numpy.ma.MaskedArray):
            return {"fault": f"returns {name} as a masked array"}
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
    except (Exception, SystemExit) as error:
        function, first = None, {"fault": f"{where}: {type(error).__name__}: {text_of(error)}"}
    pickle.dump(first or {"taken": taken_by(function), "torch": "torch" in sys.modules}, writer)
    writer.flush()
    while function is not None:
        try:
            asked = pickle.load(reader)
        except EOFError:
            return
        try:
            answer = call(function, *asked)
        except Unusable as error:
            answer = {"unusable": str(error)}
        pickle.dump(answer, writer)
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
        answer = self.ask((matrices, options, settings), self.timeout)
        if "unusable" in answer:
            raise Unusable(answer["unusable"])
        return answer

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


# --------------------------------------------------------------------------------------------------------------- the check

class Row:
    """What the check found for a case: `verdict` is that of the service, "skipped", or "fault", and `says` has the reason."""

    def __init__(self, case, verdict, says="", ratio=None, worst="", seconds=0.0):
        self.case, self.verdict, self.says, self.ratio, self.worst, self.seconds = case, verdict, says, ratio, worst, seconds
        self.smallest, self.suspicions, self.of_smallest, self.parts = None, [], [], None

    @property
    def right(self):
        return self.verdict in RIGHT or self.verdict == "skipped"

    @property
    def kind(self):
        """What a smaller case must share to fail in the same way: the first words of a fault, or wrong numbers."""
        return " ".join(self.says.split()[:2]) if self.verdict == "fault" else "wrong"


def rows_of_nan(case, name, x, matrices, options, settings):
    """Says which rows of the output have NaN, if that follows from the keys that they see or from their scores."""
    if name != "output" or settings["layout"] != "bhnd" or case["update"] or case["sequences"]:
        return ""
    has, sees = numpy.isnan(x).any(-1), visible(call_of(case, matrices, options))
    sees = numpy.broadcast_to(sees, (*x.shape[:-1], sees.shape[-1]))
    if numpy.array_equal(has, ~sees.any(-1)):
        return ": in each row that sees no key"
    for tile in TILES:
        if numpy.array_equal(has, ~sees[..., :tile].any(-1)):
            return f": in each row that sees none of the first {tile} keys"
    if case["scores"] in ("high", "low"):
        return f": exp of scores of {'' if case['scores'] == 'high' else '-'}200 is {'infinite' if case['scores'] == 'high' else '0'} without the maximum"
    return ""


def fault_of(case, results, matrices, options, settings):
    """Returns what is wrong with the results before they are compared, or None."""
    q, v = matrices["Q"], matrices["V"]
    shapes = {"output": (*q.shape[:-1], v.shape[-1]), "lse": q.shape[:-1] if q.ndim == 4 else (q.shape[1], q.shape[0]),
              "present_state": (len(case.numbers("sequences")) if case["sequences"] else q.shape[0], q.shape[1], q.shape[-1], v.shape[-1]),
              **{f"grad_{'past_state' if of == 'state' else of}": x.shape for of, x in matrices.items() if of not in ("mask", "grad_output")}}
    for name, (x, dtype) in results.items():
        if name not in shapes:
            return f"returns {name}, which is none of {', '.join(shapes)}"
        want = turned(name, numpy.empty(shapes[name], bool), settings["layout"]).shape
        if tuple(x.shape) != want:
            return f"returns {name} with the shape {tuple(x.shape)}, not {want}"
        if name == "output" and dtype != settings["dtype"] and dtype != settings["output_dtype"]:
            return f"returns {name} in {dtype}, not in {settings['output_dtype'] or settings['dtype']}"
        if numpy.isnan(x).any():
            at = tuple(int(i) for i in numpy.argwhere(numpy.isnan(x))[0])
            return f"returns {name} with NaN at {list(at)}{rows_of_nan(case, name, x, matrices, options, settings)}"
    return None


class Check:
    """Checks a function. client: of the service. settings: see main()."""

    def __init__(self, client, runner, **settings):
        self.client, self.runner = client, runner
        self.settings = {"arrays": None, "dtype": "float32", "device": "cpu", "layout": "bhnd", "returns": RESULTS, "seed": 1,
                         "computed_in": None, "output_dtype": None, **settings}
        self.settings["arrays"] = self.settings["arrays"] or ("torch" if runner.torch else "numpy")
        self.settings["computed_in"] = self.settings["computed_in"] or self.settings["dtype"]
        taken, every, _ = runner.taken
        self.settings["returns_gradients"] = every or "grad_output" in taken
        self.linear = any(what in taken for what in LINEAR)
        self.update = UPDATES["decay" in taken, "beta" in taken] if self.linear and "update" not in taken and not every else None
        self.looked_at = 0

    def skips(self, case):
        """Returns why a case is not run, or None."""
        taken, every, needed = self.runner.taken
        if bool(case["update"]) != self.linear:
            return "it is for linear attention" if case["update"] else "it is for softmax attention"
        if self.update not in (None, case["update"]):
            return f"the function takes no update, and what it takes is {self.update}"
        for what in needed:
            if what in absent(case):
                return f"the function needs {what}"
        needs = [what for what in ("causal", "window", "scale", "softcap", "sink", "alibi", "rotary", "mask", "bias", "lengths", "sequences",
                                   *(["update"] if self.update is None else []), "decay", "beta", "state") if case[what] and what not in taken and not every]
        without = [key for key in self.settings.get("without", ()) if key in case.keys or key in case.text().split() or key == case.name]
        if needs or without:
            return f"the function takes no {needs[0]}" if needs else f"without {without[0]}"
        return None

    def judge(self, case):
        """Runs a case, and returns its row with the inputs and the results."""
        matrices, options = inputs_of(case, self.settings["seed"], self.settings["dtype"])
        begin = time.monotonic()
        given = {name: x for name, x in matrices.items() if name != "grad_output" or self.settings["returns_gradients"]}
        answer = self.runner.run(given, options, self.settings)
        seconds = time.monotonic() - begin
        if "fault" not in answer:
            fault = fault_of(case, answer["results"], matrices, options, self.settings)
            answer = {"fault": fault} if fault else answer
        if "fault" in answer:
            return Row(case, "fault", answer["fault"], seconds=seconds), None, None
        results = {name: (numpy.ascontiguousarray(self.back(name, x, matrices)), dtype) for name, (x, dtype) in answer["results"].items()}
        request = request_of(case, matrices, options, self.settings)
        try:
            found = verdicts_of(self.client, request, results)
        except ServiceError as error:
            if error.status in (0, 401, 404):  # it does not answer, wants another key, or is something else
                raise
            return Row(case, "fault", f"the service refuses the case: {error}", seconds=seconds), None, None
        for one in found.values():
            if one["verdict"] == "wrong" and self.settings["computed_in"] in ("float32", "float64") and ratio_of(one) <= SLIGHT:
                one["verdict"] = "close"
        worst = max(found, key=lambda name: (found[name]["verdict"] not in RIGHT, found[name].get("rms_ratio") or 0))
        one = found[worst]
        index = (one.get("worst_rows") or [{"index": []}])[0]["index"]
        row = Row(case, one["verdict"], one.get("message", ""), one.get("rms_ratio"), f"{worst} {index}", seconds)
        row.returned = list(results)
        return row, (request, results, matrices, options), found

    def back(self, name, x, matrices):
        if name not in ("output", "grad_Q", "grad_K", "grad_V") or matrices["Q"].ndim != 4:
            return x
        if self.settings["layout"] == "packed":
            heads = matrices["Q" if name in ("output", "grad_Q") else "K"].shape[1]
            return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
        return turned(name, x, self.settings["layout"])

    def run(self, case):
        """Runs a case. The first wrong ones get their smallest cases and their suspicions."""
        why = self.skips(case)
        if why:
            return Row(case, "skipped", why)
        row, asked, found = self.judge(case)
        if not row.right and self.looked_at < DETAILED:
            self.looked_at += 1
            first = self.suspect(case, asked, found, row) if asked else {}
            row.smallest = self.shrink(case, row)
            if row.smallest.text() != case.text():
                small, asked, found = self.judge(row.smallest)
                again = self.suspect(row.smallest, asked, found, small) if asked and not small.right else {}
                row.of_smallest = [] if first else list(again)
                first = [says for says in first if says in again] or first
            row.suspicions = list(first)
        return row

    def shrink(self, case, row, most=40, seconds=8):
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
                if not other.right and other.kind == row.kind:
                    case, again = smaller, True
                    break
        return case

    def suspect(self, case, asked, found, row):
        """Returns what explains the results that are wrong, and notes which parts of the output are."""
        _, results, matrices, options = asked
        wrong = {name: results[name][0] for name in RESULTS_AND_STATE if name in results and found[name]["verdict"] not in RIGHT}
        if "output" in wrong:
            row.parts = parts_of(case, wrong["output"], right_of(case, matrices, options)["output"], self.settings["computed_in"])
        fine = [name for name in results if name not in wrong]
        return explaining(case, matrices, options, wrong, fine, self.settings["computed_in"]) if wrong else {}


def ratio_of(one):
    """Returns by how many times the worst row of a result is off what rounding explains."""
    return max((row["ratio"] or math.inf for row in one.get("worst_rows", ())), default=math.inf)


def absent(case):
    """Returns the arguments that a case does not have, of those that have no usual value."""
    return [what for what in ("sink", "alibi", "rotary", "mask", "bias", "lengths", "sequences", "decay", "beta", "state") if not case[what]]


def of_size(case, n, m):
    """Returns a case with another number of queries and keys. No length is larger than that of the keys."""
    lengths = ",".join(str(min(x, m)) for x in case.numbers("lengths")) if case["lengths"] else None
    return case.changed(n=n, m=None if n == m else m, lengths=lengths)


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
                yield of_size(case, max(1, round(n * part)), max(1, round(m * part)))
        if n > 1:
            yield of_size(case, n - 1, n - 1 if n == m else m)
        if m > 1 and n != m:
            yield of_size(case, n, m - 1)
    d, d_v = case.size("d"), case.size("d_v")
    for few in (16, 32):
        if d > few:
            yield case.changed(d=few, d_v=None)


# ------------------------------------------------------------------------------------------------------------- the reports

def described(row, seed):
    """Returns what is known of a wrong case, in lines."""
    lines = [row.says] if row.says else []
    if row.parts is not None:
        lines.append(row.parts)
    if row.smallest is not None:
        lines.append(f"smallest case that fails: --seed {seed} --case \"{row.smallest.line()}\"")
    lines += [f"the results are right if {says}" for says in row.suspicions[:4]]
    return lines + [f"those of the smallest case alone are right if {says}" for says in row.of_smallest[:2]]


def summary(rows):
    """Returns what the wrong cases have in common, in lines."""
    wrong, ran = [row for row in rows if not row.right], [row for row in rows if row.verdict != "skipped"]
    looked = [row for row in wrong if row.smallest is not None]
    lines = [f"{count} of {len(looked)} wrong cases are explained: {says}" for says, count in most(says for row in looked for says in row.suspicions)]
    coarser = [found[1] for row in looked if not row.suspicions for found in [re.search(COARSER, row.says)] if found]
    if not lines and 2 * len(coarser) > len(looked):
        lines = [f"{count} of {len(looked)} wrong cases would be rounded if the kernel multiplied in {of}" for of, count in most(coarser)]
    lines += [f"{count} of {len(looked)} wrong cases: {says}" for says, count in most(row.parts for row in looked if row.parts) if not lines]
    only = [key for key in KEYS if key not in ("n", "d", "heads") and wrong and all((key in row.case.keys) == (not row.right) for row in ran)]
    lines += [f"just the cases with {key} are wrong" for key in only]
    if len(wrong) > len(looked):
        lines.append(f"{len(wrong) - len(looked)} more cases are wrong; the first {len(looked)} were made smaller and explained")
    close = [row.case.name for row in ran if row.verdict == "close"]
    if close:
        names = ", ".join(close[:8]) + (" ..." if len(close) > 8 else "")
        lines.append(f"close, which is off by little more than rounding explains: {len(close)} of {len(ran)} ({names})")
    if is_coarse(rows):
        lines.append("so many close cases are wrong together: the kernel is a little less exact than its type")
    return lines


def most(found):
    """Returns what is found most often, with its count."""
    often = collections.Counter(found).most_common(5)
    return [(says, count) for says, count in often if count == often[0][1]]


def is_coarse(rows):
    """Returns whether so many cases are close that this cannot be chance."""
    ran = [row for row in rows if row.verdict != "skipped"]
    close = sum(row.verdict == "close" for row in ran)
    return close >= 5 and 4 * close > len(ran)


def refute(checker, rows, seconds=10):
    """Takes from the wrong cases the suspicions of which right cases say that they are false, unless none is left."""
    end, false = time.monotonic() + seconds, set()
    suspected = {says for row in rows if len(row.suspicions) > 1 for says in row.suspicions}
    for row in rows:
        if row.verdict in ("equal", "rounded") and suspected - false and time.monotonic() < end:
            given = inputs_of(row.case, checker.settings["seed"], checker.settings["dtype"])
            false |= {says for says in suspected - false if contradicted(row.case, *given, says, row.returned)}
    for row in rows:
        row.suspicions = [says for says in row.suspicions if says not in false] or row.suspicions


def report(row, seed, stream):
    """Prints the line of a case, and what is known of a wrong one."""
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
    print(f"{row.case.name:20} {row.verdict:8} {ratio:>9}  {row.worst if row.verdict not in ('skipped', 'fault') else row.says}", file=stream)
    for line in described(row, seed)[row.verdict == "fault":] if row.smallest is not None else ():
        print(f"    {line}", file=stream)


def junit(rows, path):
    """Writes the rows as JUnit XML."""
    parts = []
    for row in rows:
        inside = ""
        if row.verdict == "skipped":
            inside = f"<skipped message={quoteattr(row.says)}/>"
        elif not row.right:
            more = [row.says, row.parts, f"smallest case: {row.smallest.line()}" if row.smallest else "", *row.suspicions]
            text = NO_XML.sub("?", chr(10).join(filter(None, more)))
            inside = f"<failure message={quoteattr(row.verdict)}>{escape(text)}</failure>"
        parts.append(f'<testcase classname="attentiond" name={quoteattr(row.case.name)} time="{row.seconds:.3f}">{inside}</testcase>')
    wrong, skipped = sum(not row.right for row in rows), sum(row.verdict == "skipped" for row in rows)
    head = f'<testsuite name="attentiond" tests="{len(rows)}" failures="{wrong}" skipped="{skipped}">'
    pathlib.Path(path).write_text(f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n' + "\n".join(parts) + "\n</testsuite>\n", encoding="utf-8")


def check(function, url=None, cases=None, stream=None, timeout=60, api_key=None, junit_file=None, **settings):
    """Checks a function, or that of the text FILE.py:FUNCTION, with all cases. Returns the rows; all(row.right for row in rows) says that no
    result is wrong. settings: dtype, layout (bhnd, bnhd or packed), arrays (numpy, torch or another module), device, returns, seed, computed_in,
    output_dtype and without, as the command has them. With stream, it prints a table there."""
    if junit_file and not pathlib.Path(junit_file).resolve().parent.is_dir():
        raise ValueError(f"there is no folder for {junit_file}")
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
            refute(checker, rows)
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
    parser.add_argument("--url", help="of the service; default: $ATTENTIOND_URL, http://127.0.0.1:8080, or one that is started: $ATTENTIOND_BIN, or a "
                        "container of $ATTENTIOND_IMAGE")
    parser.add_argument("--dtype", choices=("float64", "float32", "float16", "bfloat16"), default="float32", help="of the inputs")
    parser.add_argument("--output-dtype", help="that of the output, if it is another one")
    parser.add_argument("--computed-in", help="the type in which the kernel multiplies, such as tf32; default: that of the inputs")
    parser.add_argument("--layout", choices=("bhnd", "bnhd", "packed"), default="bhnd",
                        help="the axes of Q, K and V: (batch, heads, n, d), (batch, n, heads, d) or (batch, n, heads·d)")
    parser.add_argument("--arrays", metavar="MODULE",
                        help="what the function gets: numpy, torch, or another module that has from_dlpack or asarray, such as "
                        "jax.numpy or cupy; default: torch if the file of the function imports it, or else numpy")
    parser.add_argument("--device", default="cpu", help="of the tensors of torch, such as cuda")
    parser.add_argument("--returns", type=lambda text: text.split(","), default=RESULTS, metavar="NAME,NAME",
                        help="the order in which the function returns its results; default: output,lse,grad_Q,grad_K,grad_V")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", action="append", metavar="NAME or LINE",
                        help="run only this case of cases.txt, or a line such as \"n-16: n=16 heads=2\"; may be given again")
    parser.add_argument("--without", action="append", default=[], metavar="KEY[=VALUE]", help="leave out cases that have it")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that one call of the function may take")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML")
    given = vars(parser.parse_args(arguments))
    where, url, names, file, timeout = (given.pop(key) for key in ("function", "url", "case", "junit", "timeout"))
    try:
        known = {case.name: case for case in read_cases()}
        cases = [known[name] if name in known else case_of(name) for name in names or ()]
        begin = time.monotonic()
        rows = check(where, url, cases or None, sys.stdout, timeout, junit_file=file, **given)
    except (ValueError, ServiceError, OSError) as error:
        sys.exit(f"attentiond check: {error}")
    wrong = [row for row in rows if not row.right]
    ran = [row for row in rows if row.verdict != "skipped"]
    own = sum(row.seconds for row in rows)
    for line in summary(rows):
        print(line)
    if not ran:
        print("no case fits the function:", *(f"{count} times {says};" for says, count in collections.Counter(row.says for row in rows).items()))
    print(f"{len(ran) - len(wrong)} of {len(ran)} cases are right, {len(rows) - len(ran)} are left out; {time.monotonic() - begin:.1f} s, "
          f"{own:.1f} s of them in the function")
    sys.exit(bool(wrong) or not ran or is_coarse(rows))
