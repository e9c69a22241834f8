"""Types of numbers: how a kernel rounds to them, and the file format that carries them.

Arrays hold the numbers of every type in float32 (float64: in float64), because NumPy has no bfloat16, TF32 and float8."""

import json

import numpy as np

# The largest relative error of one rounding, and the largest absolute one near 0 (of float64, what can be squared): half of
# the smallest number, or 2^-126, since many GPUs take subnormal numbers for 0. Matrices of float8 have scales.
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float8": 2.0**-4}
LEAST = {"float64": 1e-150, "float32": 2.0**-126, "tf32": 2.0**-126, "float16": 2.0**-25, "bfloat16": 2.0**-126, "float8": 2.0**-126}
LARGEST = {"float64": np.finfo(np.float64).max, "float32": float(np.finfo(np.float32).max), "float16": 65504.0,
           "bfloat16": float.fromhex("0x1.fep127"), "float8": 448.0}
SIXTEEN = ("bfloat16", "float16")
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL"}


def cut(x, bits, half):
    """Rounds float32 by its bits: `half` is added before the last `bits` are cut off."""
    x = np.ascontiguousarray(x, np.float32)
    raw = x.view(np.uint32)
    rounded = ((raw + half(raw)) & np.uint32(~((1 << bits) - 1) & 0xFFFFFFFF)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def to_even(bits):
    return lambda raw: np.uint32((1 << (bits - 1)) - 1) + ((raw >> np.uint32(bits)) & np.uint32(1))


def to_float8(x):
    """Rounds to e4m3, which has no infinity: larger numbers become 448."""
    x = np.asarray(x, np.float32)
    exponent = np.maximum(np.frexp(x)[1] - 1, -6)
    step = np.ldexp(np.float32(1), exponent - 3)
    return np.clip(np.rint(x / step) * step, np.float32(-448), np.float32(448))


def narrow(x, kind):
    """Rounds a matrix to a type. Each row of float8 has a scale, a power of 2 that makes its largest number 128 to 256."""
    if kind != "float8":
        return ROUND[kind](x)
    largest = np.abs(x).max(-1, keepdims=True, initial=0)
    power = np.exp2(8 - np.ceil(np.log2(np.where(largest > 0, largest, 1)))).astype(np.float32)
    return to_float8(x * power) / power


def to_float16(x):
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


ROUND = {
    "float64": lambda x: np.asarray(x, np.float64),
    "float32": lambda x: np.asarray(x, np.float32),
    "tf32": lambda x: cut(x, 13, to_even(13)),
    "tf32 cut": lambda x: cut(x, 13, lambda raw: np.uint32(0)),  # as tensor cores do with float32 that nobody has rounded
    "tf32 away": lambda x: cut(x, 13, lambda raw: np.uint32(1 << 12)),  # ties away from 0, as the instruction cvt.rna does
    "float16": to_float16,
    "bfloat16": lambda x: cut(x, 16, to_even(16)),
    "float8": to_float8,
}


def raw(x, kind):
    """The bytes of numbers that the type has."""
    if kind == "bfloat16":
        return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    return np.ascontiguousarray(x).astype({"float64": "<f8", "float32": "<f4", "float16": "<f2", "bool": "?"}[kind]).tobytes()


def safetensors(tensors, options):
    """Writes a file of tensors, each an array and the name of its type, and of options as texts."""
    head, parts, at = {"__metadata__": options}, [], 0
    for name, (x, kind) in tensors.items():
        parts.append(raw(x, kind))
        head[name] = {"dtype": NAMES[kind], "shape": list(x.shape), "data_offsets": [at, at + len(parts[-1])]}
        at += len(parts[-1])
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
