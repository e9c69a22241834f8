"""The cases of cases.txt, and the matrices that are drawn for them."""

import math
import pathlib
import re

import numpy

CASES = pathlib.Path(__file__).with_name("cases.txt")
ROTARY = 10000.0  # the base of rotary embedding
NUMBER, COUNT, LIST = r"-?\d+(\.\d*)?(e-?\d+)?", r"[1-9]\d{0,5}", r"\d{1,6}(,\d{1,6}){0,14}"
# The keys of a case, and the forms of their values.
KEYS = {**dict.fromkeys(("batch", "heads", "kv_heads", "n", "m", "d", "d_v"), COUNT), **dict.fromkeys(("scale", "softcap", "sink"), NUMBER),
        "causal": "true|bottom_right", "window": r"(-1|\d+),(-1|\d+)", "alibi": "true", "rotary": "half|interleaved", "lengths": LIST,
        "sequences": LIST, "bias": "normal", "mask": r"half|first:\d+|row:\d+", "scores": r"equal|huge|low|high|falling:[1-9]\d*|rising:[1-9]\d*",
        "V": "ones|onehot", "inputs": "tiny|signed_zero", "behind": "nan", "update": "linear|gated|delta|gated_delta",
        "decay": f"drawn|{NUMBER}", "beta": f"drawn|{NUMBER}", "state": "normal"}


class Case:
    """A line of the file of cases: its name, and its keys with their values as texts."""

    def __init__(self, name, keys):
        keys = [*(keys.items() if isinstance(keys, dict) else keys)]
        self.name, self.keys = name, dict(keys)
        if len(self.keys) < len(keys):
            raise ValueError(f"{name} has a key twice")
        for key, value in self.keys.items():
            if key not in KEYS:
                raise ValueError(f"{key} is no key of a case; the keys are {', '.join(KEYS)}")
            if not re.fullmatch(KEYS[key], value):
                raise ValueError(f"{key}={value} is no value of {key}; these are {KEYS[key]}")
        if "update" in self.keys and "kv_heads" in self.keys:
            raise ValueError("a case with update has no kv_heads")
        if self.size("heads") % self.size("kv_heads") != 0:
            raise ValueError(f"{self.size('kv_heads')} kv_heads do not divide {self.size('heads')} heads")

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

    def line(self):
        """The line of a file, from which the same numbers are drawn."""
        return f"{self.name}: {self.text()}"


def read_cases(path=CASES):
    """Returns the cases of a file."""
    found = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            found.append(case_of(line))
    return found


def case_of(line):
    """Returns the case of a line, NAME: KEY=VALUE KEY=VALUE, or without a name."""
    head, colon, rest = line.partition(":")
    if "=" in head:
        head, colon, rest = "given", ":", line
    parts = [part.partition("=")[::2] for part in rest.split()]
    if not colon or not all(value for _, value in parts):
        raise ValueError(f"{line} is neither the name of a case nor a line such as \"n-16: n=16 heads=2\"")
    return Case(head, parts)


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


def bits(text, shape):
    """Returns 64 drawn bits for each element of an array, as the head of cases.txt says."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2 ** 64
    z = numpy.uint64(state) + numpy.arange(1, math.prod(shape) + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
    return (z ^ z >> numpy.uint64(31)).reshape(shape)


def inputs_of(case, seed, dtype):
    """Draws the matrices of a case: Q (batch, heads, n, d), K and V likewise; with `sequences` (n, heads, d). Returns them by the names
    of the service, with the options as a function gets them."""
    batch, heads, kv, n, m, d, d_v = (case.size(key) for key in ("batch", "heads", "kv_heads", "n", "m", "d", "d_v"))
    packed = case["sequences"] is not None

    def uniform(what, shape):
        return (bits(f"{seed} {case.name} {what}", shape) >> numpy.uint64(11)) * 2.0 ** -53

    def normal(what, shape):
        z = bits(f"{seed} {case.name} {what}", shape)
        parts = sum((z >> numpy.uint64(16 * i) & numpy.uint64(0xFFFF)).astype(float) for i in range(4))
        return (parts - 131070) * (math.sqrt(3) / 65536)

    def rows(what, count, of, columns):
        return normal(what, (count, of, columns) if packed else (batch, of, count, columns))
    q, k, v, grad = rows("Q", n, heads, d), rows("K", m, kv, d), rows("V", m, kv, d_v), rows("grad_output", n, heads, d_v)
    kind, _, tile = (case["scores"] or "").partition(":")
    scale = float(case["scale"] or d ** -0.5)
    if kind == "equal":
        q[:] = 0
    elif kind == "huge":
        k[..., min(1, m - 1), :] *= 40
    elif kind in ("low", "high"):
        q[..., 0], k[..., 0] = 1, (-200 if kind == "low" else 200) / scale
    elif kind in ("falling", "rising"):
        q[..., 0], k[..., 0] = 1, (-100 if kind == "falling" else 100) / scale * (numpy.arange(m) // int(tile))
    if case["V"] == "ones":
        v[:] = 1
    elif case["V"] == "onehot":
        v[:] = numpy.arange(m)[:, None] % d_v == numpy.arange(d_v)
    if case["inputs"] == "tiny":
        q, k, v = (x * tiny(dtype) for x in (q, k, v))
    if case["beta"]:
        k /= numpy.linalg.norm(k, axis=-1, keepdims=True)  # a correction with longer keys lets the state grow without end
    if case["inputs"] == "signed_zero":
        for name, x in zip("QKV", (q, k, v)):
            x[uniform(f"-0 {name}", x.shape) < 0.5] = -0.0
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
        matrices["bias"] = normal("bias", (heads, n, m))
    if case["mask"]:
        kind, _, at = case["mask"].partition(":")
        mask = numpy.ones((n, m), bool)
        if kind == "half":
            mask = (uniform("mask", (n, m)) < 0.5) | numpy.eye(n, m, dtype=bool)
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
            drawn = -numpy.log1p(numpy.exp(normal("decay", gates)))
            matrices["decay"] = drawn if case["decay"] == "drawn" else numpy.full(gates, math.log(float(case["decay"]) or 2e-87))
        if case["beta"]:
            matrices["beta"] = uniform("beta", gates) if case["beta"] == "drawn" else numpy.full(gates, float(case["beta"]))
        if case["state"]:
            matrices["state"] = normal("state", (batch, heads, d, d_v))
    return {name: x if x.dtype == bool else rounded(x, dtype) for name, x in matrices.items()}, options
