"""test_check.py tests the check of kernels with kernels in NumPy: right ones, and ones with a planted fault. Like test_attentiond.py, it asks
the daemon at $ATTENTIOND_URL."""

import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

try:
    import numpy
    from attentiond import Client, asking, cases, check, daemon, suspicions
except ModuleNotFoundError:
    numpy = None

URL = os.environ["ATTENTIOND_URL"]
KERNEL = '''
import os
import time

import numpy as np

def attention(q, k, v, causal=False, window=None, scale=None, softcap=None, sink=None, mask=None, bias=None, alibi=None, lengths=None,
              grad_output=None):
    batch, heads, n, d = q.shape
    kv, m = k.shape[1:3]
    K, V = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
    for i, length in enumerate(lengths or ()):
        K[i, :, length:] = V[i, :, length:] = 0
    scale = np.float32(d ** -0.5 if scale is None else scale)
    s = scale * (q @ K.swapaxes(-1, -2))
    if softcap is not None:
        s = np.float32(softcap) * np.tanh(s / np.float32(softcap))
    if bias is not None:
        s = s + bias
    j = np.arange(m)
    i = np.broadcast_to(np.arange(n)[:, None], (batch, 1, n, 1))
    if causal == "bottom_right":
        i = i + (np.array(lengths or [m] * batch) - n)[:, None, None, None]
    if alibi is not None:
        s = s - alibi[:, None, None] * abs(i - j).astype(np.float32)
    see = np.ones((batch, 1, n, m), bool)
    if causal:
        see = see & (j <= i)
    if window is not None:
        left, right = window
        see = see & ((j >= i - left) | (left < 0)) & ((j <= i + right) | (right < 0))
    if mask is not None:
        see = see & mask
    if lengths is not None:
        see = see & (j < np.array(lengths)[:, None, None, None])
    s = np.where(see, s, -np.inf).astype(np.float32)
    top = s.max(-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink[:, None, None])
    top = np.where(np.isinf(top), 0, top)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink[:, None, None] - top)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.where(total > 0, p / total, 0).astype(np.float32)
        lse = (top + np.log(total))[..., 0].astype(np.float32)
    output = w @ V
    return output, lse
'''
LINEAR = '''
import numpy as np

def linear(q, k, v, update, decay=None, beta=None, state=None, sequences=None):
    if sequences is not None:
        parts = [linear(*(x[a:b].swapaxes(0, 1)[None] for x in (q, k, v)), update, *(None if g is None else g[a:b].T[None] for g in (decay, beta)))
                 for a, b in zip(sequences, sequences[1:])]
        return {"output": np.concatenate([part["output"][0].swapaxes(0, 1) for part in parts]),
                "present_state": np.concatenate([part["present_state"] for part in parts])}
    batch, heads, n, d = q.shape
    S = np.zeros((batch, heads, d, v.shape[-1]), np.float32) if state is None else state.copy()
    output = np.zeros(v.shape, np.float32)
    for t in range(n):
        if decay is not None:
            S = S * np.exp(decay[:, :, t])[..., None, None]
        x = v[:, :, t]
        if beta is not None:
            x = beta[:, :, t, None] * (x - (k[:, :, t, :, None] * S).sum(-2))
        S = S + k[:, :, t, :, None] * x[..., None, :]
        output[:, :, t] = (q[:, :, t, :, None] * S).sum(-2) * np.float32(d ** -0.5)
    return {"output": output, "present_state": S.astype(np.float32)}
'''
# A text of the kernel, what stands in its place, a case, and what the check says.
FAULTS = [
    ("j >= i - left", "j >= i - left - 1", "window-16", "the window is one wider on the left"),
    ("j >= i - left", "j > i - left", "window-16", "the window is one narrower on the left"),
    ("j <= i + right", "j <= i + right + 1", "window-both", "the window is one wider on the right"),
    ("if window is not None:\n        left", "if False:\n        left", "window-15", "the window is missing"),
    ('if causal == "bottom_right":', "if False:", "bottom-more-keys", "causal has the other alignment"),
    ("if causal:\n", "if False:\n", "causal-16", "the causal mask is missing"),
    ("see & (j <= i)", "see & (j < i)", "causal-16", "no query sees its own key"),
    ("see & (j <= i)", "see & (j <= i + 1)", "causal-16", "each query also sees the key after its own"),
    ("see & mask", "see & ~mask", "mask-half", "the mask is inverted"),
    ("d ** -0.5 if scale is None else scale", "1", "n-16", "the scale is 1"),
    ("d ** -0.5 if scale is None else scale", "1 / d", "n-16", "the scale is 1/d"),
    ("s = scale * (", "s = scale * scale * (", "scale-small", "the scale is applied twice"),
    ("np.tanh(s / np.float32(softcap))\n    if bias is not None:\n        s = s + bias", "np.tanh((s + bias) / np.float32(softcap))",
     "softcap-bias", "the softcap comes after the bias"),
    ("np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)", "np.tile(k, (1, heads // kv, 1, 1)), np.tile(v, (1, heads // kv, 1, 1))",
     "kv-2-of-6", "the key head of head h is h mod kv_heads"),
    ("total = total + np.exp", "0 + np.exp", "sink", "the sink is missing"),
    ("np.log(total)", "np.log(p.sum(-1, keepdims=True))", "sink", "lse lacks the sink"),
    ("(top + np.log(total))", "((top + np.log(total)) / np.log(2))", "n-16", "lse is in base 2"),
    ("w @ V", "p.astype(np.float32) @ V", "n-16", "the output is not divided by the sum"),
    ("s - alibi", "s + alibi", "alibi", "ALiBi has the other sign"),
    ("w @ V", "w @ np.roll(V, 1, 1)", "n-16", "the values are those of another head"),
    ("    if mask is not None:", "    see[..., m - m % 16:] = False\n    if mask is not None:", "n-65", "the last key is lost"),
    ("s = np.where(see, s, -np.inf)", "s = np.where(see, s, -1e4)", "mask-row", "a hidden key has a large finite score in place of minus infinity"),
    ("np.exp(sink[:, None, None] - top)", "np.exp(np.float32(np.log(2)) * sink[:, None, None] - top)", "sink",
     "the sink is not multiplied by log2(e)"),
    ("np.exp(sink[:, None, None] - top)", "3 * np.exp(sink[:, None, None] - top)", "sink-causal", "the sink counts once for each tile"),
    ("s = s + bias", "s = s + bias.swapaxes(1, 2)", "bias", "the bias is transposed"),
    ("s - alibi[:, None, None]", "s - alibi[np.arange(heads) // (heads // kv), None, None]", "heads-alibi",
     "the slopes of ALiBi are those of the key heads"),
    ("p = np.exp(s - top)", "p = np.exp2(s - top)", "n-16", "exp2 stands for exp, without the factor log2(e)"),
    ("    for i, length in", "    lengths = lengths and [lengths[0]] * batch\n    for i, length in", "heads-lengths",
     "the length of the first batch item holds for all"),
    ("top = np.where(np.isinf(top), 0, top)", "top = np.where(np.isinf(top), 0, np.maximum(top, 0))", "low",
     "the maximum begins at 0, so a row with low scores vanishes"),
]
# The same for the kernel of linear attention.
LINEAR_FAULTS = [
    ("state.copy()", "state.swapaxes(-1, -2).copy()", "linear-state", "the state is transposed"),
    ("beta[:, :, t, None] * (x", "beta[:, :, t, None] ** 2 * (x", "linear-delta", "beta is applied twice"),
    ("np.exp(decay[:, :, t])", "np.exp2(decay[:, :, t])", "linear-gated", "the gate is in base 2"),
    ("np.exp(decay[:, :, t])", "np.exp(decay[:, :, min(t + 1, n - 1)] * (t < n - 1))", "linear-gated", "the gate is that of the next position"),
    ("for t in range(n):\n", "for t in range(n):\n        S = S * (t % 32 > 0)\n", "linear-129", "the state is lost at the end of each chunk of 32"),
]
# The same for a kernel that fails: the case, and what is wrong.
FAILURES = [
    ("d ** -0.5 if", "1 / 0 if", "n-16", "raises ZeroDivisionError: division by zero"),
    ("    kv, m = ", "    time.sleep(60)\n    kv, m = ", "n-16", "hangs: it has not returned after 2 s"),
    ("    kv, m = ", "    os._exit(3)\n    kv, m = ", "n-16", "ends its process with the status 3"),
    ("return output, lse", "return output[..., 1:], lse", "n-16", "returns output with the shape (1, 2, 16, 63), not (1, 2, 16, 64)"),
    ("return output, lse", "return output.astype(np.float64), lse", "n-16", "returns output in float64, not in float32"),
    ("return output, lse", "return output.astype(int), lse", "n-16", "returns output of the type int64"),
    ("return output, lse", "return None", "n-16", "returns nothing"),
    ("np.where(total > 0, p / total, 0)", "(p / total)", "mask-row", "returns output with NaN at [0, 0, 5, 0]: in each row that sees no key"),
    ("    kv, m = ", "    q += 1\n    kv, m = ", "n-16", "writes into q"),
]


@unittest.skipIf(numpy is None, "NumPy is missing")
class Test(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.cases = {case.name: case for case in cases.read_cases()}

    def write(self, text, name="kernel.py"):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text, encoding="utf-8")
        return path

    def rows(self, text, names, function="attention", **settings):
        return check.check(f"{self.write(text)}:{function}", URL, [self.cases[name] for name in names], **settings)

    def test_right_kernel_in_all_cases(self):
        rows = check.check(f"{self.write(KERNEL)}:attention", URL)
        self.assertEqual([row.case.name for row in rows if not row.right], [])
        left_out = {row.says for row in rows if row.verdict == "skipped"}
        self.assertEqual(left_out, {"it is for linear attention", "the function takes no rotary", "the function takes no sequences"})
        self.assertGreater(sum(row.verdict in check.RIGHT for row in rows), 70)

    def test_right_kernel_of_linear_attention(self):
        rows = check.check(f"{self.write(LINEAR)}:linear", URL)
        self.assertEqual([row.case.name for row in rows if not row.right], [])
        self.assertEqual(sum(row.verdict in check.RIGHT for row in rows), sum(case["update"] is not None for case in self.cases.values()))
        for old, new, name, says in LINEAR_FAULTS:
            with self.subTest(says):
                self.assertIn(says, self.rows(LINEAR.replace(old, new), [name], "linear")[0].suspicions)

    def test_what_a_function_takes(self):
        """Without `update` it has the rule of its arguments. An argument without a default gets the usual value, or cases that have it."""
        gated = LINEAR.replace("update, decay=None, beta=None, state=None", "decay, state=None").replace("beta is not None", "False")
        ran = [row.case["update"] for row in check.check(f"{self.write(gated)}:linear", URL) if row.verdict != "skipped"]
        self.assertEqual(set(ran), {"gated"})
        needing = KERNEL.replace("window=None, scale=None, softcap=None", "window, scale, softcap").replace(
            "causal=False, window, scale, softcap, sink=None", "window, scale, lengths, causal=False, softcap=None, sink=None")
        needing = needing.replace("bias=None, alibi=None, lengths=None", "bias=None, alibi=None")
        rows = self.rows(needing, ["n-16", "lengths", "lengths-causal"])
        self.assertEqual([(row.verdict in check.RIGHT, row.says if row.verdict == "skipped" else "") for row in rows],
                         [(False, "the function needs lengths"), (True, ""), (True, "")])

    def test_unusual_functions(self):
        """One without a signature or without names, one whose error has no text, one that returns a masked array, and a slightly coarse one."""
        plain = f"{KERNEL}\nimport functools, numpy\n\nclass Bare:\n    __signature__ = 1\n    def __call__(self, *given):\n        return attention(*given)\n\n"
        plain += "bare = Bare()\n\ndef unnamed(a, b, c, /):\n    return attention(a, b, c)\n\ndef masked(q, k, v):\n    return numpy.ma.array(attention(q, k, v)[0])\n\n"
        plain += "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n\ndef mute(q, k, v):\n    raise Mute\n\n"
        plain += "def loud(q, k, v):\n    raise ValueError(chr(27) + '[1m')\n\ndef coarse(q, k, v):\n    return attention(q, k, v)[0] * numpy.float32(1 + 2e-6)\n"
        path = self.write(plain)
        case = [self.cases["n-16"]]
        for name in ("bare", "unnamed"):
            self.assertIn(check.check(f"{path}:{name}", URL, case)[0].verdict, check.RIGHT, name)
        for name, says in (("masked", "returns output as a masked array"), ("mute", "raises Mute: without a text")):
            self.assertEqual(check.check(f"{path}:{name}", URL, case)[0].says, says)
        report = pathlib.Path(self.folder.name, "report.xml")
        check.check(f"{path}:loud", URL, case, junit_file=report)
        self.assertIn("?[1m", xml.etree.ElementTree.parse(report).getroot()[0][0].text)
        with self.assertRaisesRegex(ValueError, "there is no folder for"):
            check.check(f"{path}:loud", URL, case, junit_file="/no/such/report.xml")
        rows = check.check(f"{path}:coarse", URL, [self.cases[f"n-{n}"] for n in (15, 16, 17, 63, 64, 65)])
        self.assertEqual({row.verdict for row in rows}, {"close"})
        self.assertTrue(check.is_coarse(rows))

    def test_names_of_arguments(self):
        readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
        table = readme[readme.index("| argument, or"):readme.index("It returns `output`")]
        self.assertEqual([name for names in check.ARGUMENTS for name in names if f"`{name}`" not in table], [])

    def test_each_suspicion_explains_itself(self):
        """The results of the model with a switch, taken for those of a kernel, are explained by the sentence of the switch."""
        for line in ("window: n=19 m=35 heads=4 kv_heads=2 d=8 causal=bottom_right window=9,0 sink=0.5",
                     "bias: n=19 batch=2 heads=4 kv_heads=2 d=8 bias=normal alibi=true softcap=2 scale=1",
                     "lengths: n=19 m=35 batch=3 d=8 lengths=20,35,3 mask=half", "rotary: n=19 heads=2 d=8 rotary=half causal=true",
                     "packed: sequences=7,20,3 heads=2 d=8 causal=true", "low: n=19 d=8 d_v=12 scores=low",
                     "delta: update=gated_delta n=19 heads=2 d=8 decay=drawn beta=drawn state=normal",
                     "gated: update=gated sequences=17,5,2 d=8 decay=drawn"):
            case = cases.case_of(line)
            matrices, options = cases.inputs_of(case, 1, "float32")
            right = suspicions.right_of(case, matrices, options)
            for says, change in suspicions.suspicions(case, matrices, options):
                with numpy.errstate(all="ignore"):
                    try:
                        results = change()
                    except (ValueError, IndexError):
                        continue
                moved = {of: x for of, x in results.items() if of in right and x.shape == right[of].shape and numpy.isfinite(x).all()
                         and not suspicions.near(x, right[of], None, "float32")}
                if moved:
                    given = {of: x[0].swapaxes(0, 1) if case["sequences"] and of != "present_state" and x.ndim == 4 else x[0] if case["sequences"]
                             and of == "lse" else x for of, x in moved.items()}
                    with self.subTest(f"{case}: {says}"):
                        self.assertIn(says, suspicions.explaining(case, matrices, options, given, [], "float32"))

    def test_lines_of_cases(self):
        """A line is right or refused, and that of a smallest case fails again."""
        for line, says in (("n-16: n=16 windw=3,0", "windw is no key of a case"), ("n=16 window=3", "window=3 is no value of window"),
                           ("nosuch", "nosuch is neither the name of a case"), ("n=33 scores=falling", "scores=falling is no value"), ("a: n", "neither"), ("a: update=gated heads=4 kv_heads=2", "no kv_heads")):
            with self.assertRaisesRegex(ValueError, says):
                cases.case_of(line)
        wrong = KERNEL.replace("s - alibi", "s + alibi").replace("d ** -0.5 if", "d ** -0.49 if")
        for name in ("alibi", "n-65", "heads-lengths"):
            row, = self.rows(wrong, [name])
            again, = check.check(f"{self.write(wrong)}:attention", URL, [cases.case_of(row.smallest.line())])
            self.assertEqual((again.verdict, again.case.text()), ("wrong", row.smallest.text()))

    def test_orders_of_axes(self):
        turned = {
            "bnhd": "o, lse = attention(q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2)); return o.swapaxes(1, 2), lse",
            "packed": "b, n = q.shape[:2]; f = lambda x: x.reshape(b, n, 3, 64).swapaxes(1, 2); o, lse = attention(f(q), f(k), f(v)); "
                      "return o.swapaxes(1, 2).reshape(b, n, -1), lse",
        }
        case = cases.Case("three heads", {"n": "17", "heads": "3", "batch": "2"})
        for layout, body in turned.items():
            text = f"{KERNEL}\ndef other(q, k, v):\n    {body}\n"
            row, = check.check(f"{self.write(text)}:other", URL, [case], layout=layout)
            self.assertIn(row.verdict, check.RIGHT, f"{layout}: {row.says}")

    def test_same_numbers_everywhere(self):
        """The head of cases.txt has these numbers for programs in other languages."""
        head = cases.CASES.read_text(encoding="utf-8")
        numbers = [f"{x:.8g}" for x in cases.inputs_of(self.cases["one"], 1, "float32")[0]["Q"].ravel()[:3]]
        self.assertIn(f"begins with {numbers[0]}, {numbers[1]} and {numbers[2]} for the seed 1", head)
        readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
        self.assertIn(f"draws the {len(self.cases)} cases of", readme)
        drawn = cases.inputs_of(cases.Case("large", {"n": "2000"}), 1, "float64")[0]["Q"]
        self.assertLess(abs(drawn.mean()) + abs(drawn.std() - 1), 0.01)

    def test_gradients_of_a_state(self):
        """A function turns the axes of Q, K, V and the output, and returns gradients of other matrices, too."""
        case = cases.Case("state", {"update": "gated", "n": "1", "heads": "2", "d": "8", "decay": "0.5", "state": "normal"})
        text = """
import numpy as np

def linear(q, k, v, update, decay, state, grad_output):
    q, k, v, dout = (x[:, 0] for x in (q, k, v, grad_output))
    S = np.exp(decay)[..., None] * state + k[..., None] * v[..., None, :]
    grad = q[..., None] * dout[..., None, :] * np.float32(8 ** -0.5)
    decayed = np.exp(decay)[..., None] * grad
    return {"output": np.float32(8 ** -0.5) * np.einsum("bhc,bhcd->bhd", q, S)[:, None], "present_state": S, "grad_past_state": decayed,
            "grad_decay": (decayed * state).sum((-1, -2))[..., None]}
"""
        row, = check.check(f"{self.write(text)}:linear", URL, [case], layout="bnhd")
        self.assertIn(row.verdict, check.RIGHT, row.says)
        row, = check.check(f"{self.write(text.replace('decayed * state', 'grad * state'))}:linear", URL, [case], layout="bnhd")
        self.assertEqual((row.verdict, row.worst.split()[0]), ("wrong", "grad_decay"))

    def test_faults_are_found_and_explained(self):
        for old, new, name, says in FAULTS:
            with self.subTest(says):
                self.assertEqual(KERNEL.count(old), 1, old)
                row, = self.rows(KERNEL.replace(old, new), [name])
                self.assertEqual(row.verdict, "wrong")
                self.assertIn(says, row.suspicions)
                self.assertLessEqual(row.smallest.size("n") * row.smallest.size("m"), row.case.size("n") * row.case.size("m"))

    def test_kernels_that_fail(self):
        for old, new, name, says in FAILURES:
            with self.subTest(says):
                rows = self.rows(KERNEL.replace(old, new, 1), [name, "one"], timeout=2)
                self.assertEqual((rows[0].verdict, rows[0].says), ("fault", says))
                self.assertEqual(len(rows), 2, "the next case goes on")

    def test_arrays_of_other_libraries(self):
        """A library that has no more than DLPack, one that is asked for its memory as CuPy is, and modules that are no libraries."""
        self.write("""
import numpy as np

class Array:
    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **settings):
        return self.x.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

class Far:
    def __init__(self, x):
        self.x, self.dtype = x, x.dtype

    def get(self):
        return self.x

def from_dlpack(x):
    if x.dtype == bool:
        raise BufferError("bool")
    return Array(x)

def asarray(x):
    assert x.dtype == bool
    return Array(x)
""", "library.py")
        text = f"""{KERNEL}
def other(q, k, v, mask=None):
    from library import Array, Far
    output, lse = attention(*(np.from_dlpack(x) for x in (q, k, v)), mask=None if mask is None else mask.x)
    return Array(output), Far(lse)
"""
        for row in self.rows(text, ["n-16", "mask-half"], "other", arrays="library"):
            self.assertIn(row.verdict, check.RIGHT, row.says)
        row, = self.rows(KERNEL.replace("return output, lse", "return [[1], [1, 2]], lse"), ["n-16"])
        self.assertRegex(f"{row.verdict} {row.says}", "^fault returns output, which is no array: ")
        for settings, says in (({"arrays": "none"}, "--arrays none: No module named 'none'"),
                               ({"arrays": "json"}, "--arrays json: it has neither from_dlpack nor asarray"),
                               ({"dtype": "bfloat16"}, "numpy has no bfloat16; use --arrays torch")):
            with self.assertRaisesRegex(ValueError, f"^{says}$"):
                self.rows(KERNEL, ["n-16"], **settings)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is missing")
    def test_torch(self):
        text = """
import torch

def attention(q, k, v, is_causal=False, scale=None):
    s = (q.float() @ k.float().transpose(-1, -2)) * (scale or q.shape[-1] ** -0.5)
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:]).triu(1).bool(), float("-inf"))
    return (torch.softmax(s, -1) @ v.float()).to(q.dtype)
"""
        for dtype in "float32", "bfloat16":
            for row in self.rows(text, ["n-65", "causal-65", "scale-small"], dtype=dtype):
                self.assertIn(row.verdict, check.RIGHT, row.says)

    @unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is missing")
    def test_fixture_of_pytest(self):
        self.write(KERNEL.replace("see & (j <= i)", "see & (j < i)"))
        readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
        program = re.search(r"^from my_kernel import attention\n.*?(?=^```)", readme, re.M | re.S)[0].replace("my_kernel", "kernel")
        path = self.write(program, "test_kernel.py")
        done = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider",
                               *(f"{path}::test_attention[{name}]" for name in ("n-16", "causal-16", "rotary"))], capture_output=True, text=True,
                              check=False, env={**os.environ, "PYTHONPATH": str(pathlib.Path(check.__file__).parents[1])})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("1 failed, 1 passed, 1 skipped", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^causal-16: wrong\noutput is off by .*\nsmallest case that fails: --seed 1 --case \"causal-16: .*causal=true.*\n"
                                      r"(the results are right if .*\n)*the results are right if no query sees its own key$")

    def test_function_of_this_process(self):
        names = {}
        exec(KERNEL, names)  # noqa: S102: the text above
        row, = check.check(names["attention"], URL, [self.cases["n-17"]])
        self.assertIn(row.verdict, check.RIGHT)

    def test_smallest_case(self):
        row, = self.rows(KERNEL.replace("output = w @ V", "output = w @ V\n    output[..., 32:, :] *= 1.5"), ["n-129"])
        self.assertGreater(row.smallest.size("n"), 32)  # the rows from 32 on are wrong
        self.assertLess(row.smallest.size("n"), 129)

    def test_command(self):
        path, report = self.write(KERNEL.replace("see & (j <= i)", "see & (j < i)")), pathlib.Path(self.folder.name, "junit.xml")
        out = io.StringIO()
        with self.assertRaises(SystemExit) as end, unittest.mock.patch("sys.stdout", out):
            check.main([f"{path}:attention", "--url", URL, "--junit", str(report), "--case", "n-16", "--case", "causal-16", "--case", "rotary"])
        self.assertEqual(end.exception.code, 1)
        self.assertRegex(out.getvalue(), r"(?m)^causal-16 +wrong .*\n(.*\n)*.*smallest case that fails: --seed 1 --case \"causal-16: n=\d+ causal=true")
        self.assertIn("1 of 2 cases are right, 1 are left out", out.getvalue())
        suite = xml.etree.ElementTree.parse(report).getroot()
        self.assertEqual((suite.get("tests"), suite.get("failures"), suite.get("skipped")), ("3", "1", "1"))
        self.assertIn("no query sees its own key", suite.find("testcase/failure").text)

    def test_wrong_command(self):
        for where, says in (("kernel.py", "is not FILE.py:FUNCTION"), ("none.py:f", "there is no Python file none.py"),
                            (f"{self.write('x = 1')}:f", "has no function f")):
            with self.assertRaises(SystemExit) as end:
                check.main([where, "--url", URL])
            self.assertRegex(str(end.exception.code), re.escape(says))
        with self.assertRaises(SystemExit) as end:
            check.main([f"{self.write(KERNEL)}:attention", "--url", "http://127.0.0.1:1"])
        self.assertRegex(str(end.exception.code), "no answer from http://127.0.0.1:1")

    def engines(self, podman):
        """Puts stubs of docker and podman in the place of all programs. They write down how they are called."""
        log = pathlib.Path(self.folder.name, "log")
        for name, script in ("docker", "echo no daemon >&2; echo \"Run 'docker run --help'\" >&2; exit 1"), ("podman", podman):
            path = self.write(f'#!/bin/sh\necho {name} "$@" >>{log}\n{script}\n', name)
            path.chmod(0o755)
        unset = unittest.mock.patch.dict(os.environ, {"PATH": self.folder.name, "no_proxy": "*"})
        unset.start()
        self.addCleanup(unset.stop)
        for name in "ATTENTIOND_URL", "ATTENTIOND_BIN", "ATTENTIOND_IMAGE":
            os.environ.pop(name, None)
        usual = unittest.mock.patch("attentiond.daemon.USUAL", "http://127.0.0.1:1")
        usual.start()
        self.addCleanup(usual.stop)
        return log

    def test_container(self):
        """Without a service and a program, the check starts a container, and ends it."""
        at = URL.removeprefix("http://")
        log = self.engines(f'case $1 in run) echo 5f3a;; port) echo {at};; kill) exit 1;; esac')
        names = {}
        exec(KERNEL, names)  # noqa: S102: the text above
        row, = check.check(names["attention"], cases=[self.cases["n-17"]])
        self.assertIn(row.verdict, check.RIGHT)
        run = "run -d --rm --pull={} -p 127.0.0.1::8080 --read-only --cap-drop=ALL {}"
        self.assertEqual(log.read_text().splitlines(), [
            f"docker {run.format('never', 'attentiond')}", f"podman {run.format('never', 'attentiond')}", "podman port 5f3a 8080", "podman kill 5f3a"])
        os.environ["ATTENTIOND_IMAGE"] = "registry/attentiond:1"
        daemon.Daemon().close()
        self.assertIn(f"podman {run.format('missing', 'registry/attentiond:1')}", log.read_text())

    def test_nothing_can_be_started(self):
        self.engines("echo no such image >&2; exit 125")
        with self.assertRaises(ValueError) as error:
            daemon.Daemon()
        self.assertEqual(str(error.exception), "there is no service: nothing answers at http://127.0.0.1:1, ATTENTIOND_BIN is not set, there is no "
                         "program attentiond, docker does not run the image attentiond (no daemon), podman does not run the image attentiond "
                         "(no such image). Start one, name it with --url, or set ATTENTIOND_BIN to the program, or ATTENTIOND_IMAGE to the name "
                         "of an image")
        pathlib.Path(self.folder.name, "podman").unlink()
        with self.assertRaisesRegex(ValueError, "there is no podman"):
            daemon.Daemon()
        os.environ["ATTENTIOND_BIN"] = "/bin/true"
        with self.assertRaisesRegex(ValueError, "^/bin/true has not started$"):
            daemon.Daemon()

    def test_the_model_is_right_in_all_cases(self):
        """The service finds the results of the model right, digit by digit."""
        client = Client(URL)
        for dtype in ("float64", "float32", "float16", "bfloat16"):
            for case in self.cases.values():
                with self.subTest(f"{case} in {dtype}"):
                    matrices, options = cases.inputs_of(case, 1, dtype)
                    request = asking.request_of(case, matrices, options, {"dtype": dtype, "computed_in": "float64"})
                    results = suspicions.right_of(case, matrices, options)
                    if case["sequences"]:
                        results["output"] = results["output"][0].swapaxes(0, 1)
                        results = {of: x for of, x in results.items() if of in ("output", "present_state")}
                    found = asking.verdicts_of(client, request, {name: (numpy.ascontiguousarray(x), "float64") for name, x in results.items()})
                    self.assertEqual({name: one["verdict"] for name, one in found.items() if one["verdict"] not in check.RIGHT}, {})


if __name__ == "__main__":
    unittest.main()
