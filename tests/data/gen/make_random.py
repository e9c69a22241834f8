"""Writes tests/data/golden_random.json: what np.random and torch draw from a seed, as bits.

A case has a generator, a seed, and draws that follow each other. A draw is
[distribution, dtype, a, b, count, hash, first, last]: the FNV-1a hash of all its bytes, and the bits of its
first and last element. Whole numbers are written as float64.

The last bit of normals in float64 depends on the C library, so its log, log1p, sin and cos are hashed, too. The script
needs a CPU with AVX2, because PyTorch draws other float32 normals without it.
"""

import math
import pathlib
import struct

import numpy as np
import torch

FILE = pathlib.Path(__file__).resolve().parents[1] / "golden_random.json"
DTYPES = {"float32": (np.float32, torch.float32), "float64": (np.float64, torch.float64)}
PROBES = 20000


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def numpy_draw(distribution, _, a, b, count):
    if distribution == "randint":
        return np.random.randint(a, b, count).astype(np.float64)
    if distribution == "uniform":
        return np.random.random_sample(count) if (a, b) == (0, 1) else np.random.uniform(a, b, count)
    return np.random.randn(count) if (a, b) == (0, 1) else np.random.normal(a, b, count)


def torch_draw(distribution, dtype, a, b, count):
    if distribution == "randint":
        return torch.randint(a, b, (count,)).numpy().astype(np.float64)
    if distribution == "uniform":
        return torch.empty(count, dtype=DTYPES[dtype][1]).uniform_(a, b).numpy()
    return torch.empty(count, dtype=DTYPES[dtype][1]).normal_(a, b).numpy()


def draw_text(generator, draw):
    distribution, dtype, a, b, count = draw
    values = (numpy_draw if generator == "numpy" else torch_draw)(*draw)
    wide = "float64" if distribution == "randint" else dtype
    assert values.dtype == DTYPES[wide][0] and np.isfinite(values).all()
    bits = [f"{int(x):0{2 * values.itemsize}x}" for x in values[[0, -1]].view(f"u{values.itemsize}")]
    return f'["{distribution}", "{dtype}", {a!r}, {b!r}, {count}, "{fnv1a(values.tobytes())}", "{bits[0]}", "{bits[1]}"]'


def case_text(generator, seed, draws):
    (np.random.seed if generator == "numpy" else torch.manual_seed)(seed)
    lines = ",\n    ".join(draw_text(generator, draw) for draw in draws)
    return f'  {{"generator": "{generator}", "seed": "{seed % 2**64}", "draws": [\n    {lines}]}}'


def dtypes(generator):
    return ["float64"] if generator == "numpy" else ["float32", "float64"]


def kinds(generator):
    """Yields each distribution of this generator, with its simplest parameters."""
    yield "randint", "float64", 0, 10
    for dtype in dtypes(generator):
        yield "uniform", dtype, 0, 1
        yield "normal", dtype, 0, 1


def mixture(generator):
    """Generators keep a normal from one draw for the next one. These draws have all other distributions in between."""
    few, many = dtypes(generator)[0], dtypes(generator)[-1]
    return [
        ("normal", few, 0, 1, 1), ("randint", few, 0, 10, 12), ("normal", few, 0, 1, 3), ("uniform", few, 0, 1, 5),
        ("normal", many, 0, 1, 2), ("normal", few, 5, 2, 15), ("normal", few, 0, 1, 16), ("normal", many, 0, 1, 1),
        ("uniform", many, -1, 1, 7), ("normal", many, 0, 1, 17), ("randint", many, 0, 2**40, 3), ("normal", few, 0, 1, 7),
        ("normal", few, 0, 1, 33), ("normal", many, -1, 0.5, 31), ("normal", many, 0, 1, 9), ("randint", few, 3, 4, 6),
        ("normal", few, 0, 1, 32), ("uniform", few, 0, 1, 1),
    ]  # fmt: skip


def ranges():
    """Yields ranges of whole numbers: around each power of two at which NumPy or PyTorch changes its method."""
    for power in (0, 1, 2, 8, 16, 24, 27, 28, 31, 32, 33, 40, 52, 53):
        for size in (2**power - 1, 2**power, 2**power + 1):
            if 0 < size <= 2**53:
                yield 0, size
    yield from [(-5, 5), (-(2**31), 2**31), (-(2**53), 2**53), (-(2**53), -(2**53) + 1), (2**53 - 1, 2**53)]


# For some of these ranges a sum in float64 lies halfway between two floats unless the tiny end of the range is taken into
# account. Other ranges have ends to which values are rounded, or are tiny or huge.
UNIFORMS = [(-1, 1), (-0.3, 1.7), (0.1, 0.3), (-1e-20, 1.5), (1e-20, 1.5), (16777216, 16777218),
            (9007199254740992, 9007199254740994), (2.5, 2.5), (0, 1e-38), (1e-45, 1e-40), (-1e37, 1e37)]  # fmt: skip
NORMALS = [(5, 0), (-2.5, 0.125), (1000, 0.001), (0.3, 1.7), (1e-20, 1.5), (0, 1e-38), (1e37, 1e37)]
LONG = [1000, 16383, 16384, 16385, 16399, 32769, 100003]


def cases():
    seeds = {"numpy": [0, 1, 42, 123, 2**32 - 1]}
    seeds["torch"] = seeds["numpy"] + [2**32, 2**63, 2**64 - 1, -1, -123, -(2**63)]
    for generator in ("numpy", "torch"):
        for seed in seeds[generator]:
            yield generator, seed, mixture(generator)
        for kind in kinds(generator):
            yield generator, 0, [(*kind, count) for count in range(1, 41)]
            yield generator, 42, [(*kind, count) for count in LONG]
        yield generator, 123, [("randint", "float64", *r, 50) for r in ranges()]
        for dtype in dtypes(generator):
            yield generator, 1, [("uniform", dtype, *r, 500) for r in UNIFORMS]
            yield generator, 1, [("normal", dtype, *r, count) for r in NORMALS for count in (15, 500)]


def libm():
    """Hashes the C library's functions, with the same arguments as tests/unit/test_random.c."""
    xs = [(i + 0.5) / PROBES for i in range(PROBES)]
    values = [f(x) for x in xs for f in (math.log, lambda x: math.log1p(-x))]
    values += [f(6.283185307179586 * x) for x in xs for f in (math.sin, math.cos)]
    return fnv1a(struct.pack(f"<{len(values)}d", *values))


assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
text = ",\n".join(case_text(*case) for case in cases())
FILE.write_text(
    f'{{"source": "NumPy {np.__version__}, PyTorch {torch.__version__.split("+")[0]}", "libm": "{libm()}", "cases": [\n'
    f"{text}\n]}}\n"
)
