#!/usr/bin/python3
"""check_battery.py FOLDER COMMAND... compiles battery.c in FOLDER with COMMAND, which names the compiler and its options, and runs it: all
cases that it takes must be right. Then a window that is one narrower must be found, in the cases with a window alone, and a kernel of
linear attention that forgets the state before. If a stub in place of curl refuses all cases, their files stay: they must have the inputs
and the options of the client in Python, in each type. This needs NumPy. $ATTENTIOND_URL is the daemon."""

import json
import os
import pathlib
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parents[2] / "server" / "clients" / "python"
sys.path.insert(0, str(CLIENT))
import numpy  # noqa: E402

import attentiond  # noqa: E402
from attentiond import asking, cases  # noqa: E402

FOLDER = pathlib.Path(sys.argv[1]).resolve()
TYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# A kernel of linear attention, for the place of that of battery.c.
LINEAR = """
static const char *linear(const struct problem *p) {
    for (int s = 0; s < (p->sequences ? p->sequence_count : p->batch); s++)
        for (int h = 0; h < p->heads; h++) {
            float *S = p->present_state + (s * p->heads + h) * p->d * p->d_v;
            memset(S, 0, sizeof(float) * p->d * p->d_v);
            if (p->state)
                memcpy(S, p->state + (s * p->heads + h) * p->d * p->d_v, sizeof(float) * p->d * p->d_v);
            int first = p->sequences ? p->sequences[s] : 0, end = p->sequences ? p->sequences[s + 1] : p->n;
            for (int i = first; i < end; i++) {
                size_t at = place(p, s, p->heads, h, p->n, i);
                double a = p->decay ? exp(p->decay[at]) : 1, b = p->beta ? p->beta[at] : 1;
                for (int j = 0; j < p->d_v; j++) {
                    double u = 0, o = 0;
                    for (int c = 0; c < p->d; c++) {
                        S[c * p->d_v + j] *= a;
                        u += p->beta ? S[c * p->d_v + j] * p->K[at * p->d + c] : 0;
                    }
                    u = b * (p->V[at * p->d_v + j] - u);
                    for (int c = 0; c < p->d; c++) {
                        S[c * p->d_v + j] += p->K[at * p->d + c] * u;
                        o += S[c * p->d_v + j] * p->Q[at * p->d + c];
                    }
                    p->output[at * p->d_v + j] = o * p->scale;
                }
            }
        }
    return NULL;
}

/* Put your kernel"""
TAKEN = [case for case in cases.read_cases() if not case["update"] and not case["rotary"]]


def run(changes, *names, path=os.environ["PATH"]):
    """Compiles the program after changes, and returns its exit status and what it prints."""
    text = (HERE / "battery.c").read_text(encoding="utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, f"battery.c does not have {old} once"
        text = text.replace(old, new)
    (FOLDER / "battery.c").write_text(text, encoding="utf-8")
    subprocess.run([*sys.argv[2:], "-I", str(HERE), "battery.c", "-lm", "-o", "battery"], cwd=FOLDER, check=True)
    done = subprocess.run(["./battery", "--cases", str(cases.CASES), *names], cwd=FOLDER, capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": path})
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word needs no quotes


def file_of(case):
    """Returns the tensors of the file of a case, as (type, shape, bytes), and its options."""
    path = FOLDER / f"{case}.safetensors"
    body = path.read_bytes()
    path.unlink()
    start = 8 + struct.unpack_from("<Q", body)[0]
    head = json.loads(body[8:start])
    options = {name: value(text) for name, text in head.pop("__metadata__").items()}
    return {name: (x["dtype"], tuple(x["shape"]), body[start + x["data_offsets"][0]:start + x["data_offsets"][1]])
            for name, x in head.items()}, options


def numbers(x):
    """Returns the numbers of a tensor of a file as whole numbers that follow each other as the numbers of its type do."""
    dtype, _, data = x
    bits = numpy.frombuffer(data, {"F32": "<i4", "BOOL": "u1"}.get(dtype, "<i2")).astype(numpy.int64)
    return numpy.where(bits < 0, -(bits & (0x7FFFFFFF if dtype == "F32" else 0x7FFF)), bits)


def compare(dtype):
    """Compares what the program draws with what the client draws. Only what log, exp and a norm make may differ, by the last bit."""
    stub = FOLDER / "stub" / "curl"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text("#!/bin/sh\necho no >battery.json\n", encoding="utf-8")
    stub.chmod(0o755)
    status, said = run({'"F32"': f'"{dtype}"', "    if (p->update)\n": "    if (p)\n        return NULL;\n    if (p->update)\n"},
                       path=f"{stub.parent}:{os.environ['PATH']}")
    assert status == 1 and said.count(" refused  no\n") == len(cases.read_cases()), said
    for case in cases.read_cases():
        matrices, options = cases.inputs_of(case, 1, TYPES[dtype])
        path, tensors, asked = asking.request_of(case, matrices, options, {"dtype": TYPES[dtype], "computed_in": TYPES[dtype]})
        found, given = file_of(case)
        assert given == json.loads(json.dumps({**asked, "fail_on_difference": True})), f"{case}: the options are {given}, not {asked}"
        inputs = {name: x for name, x in found.items() if not name.startswith("expected.")}
        assert set(inputs) == set(tensors), f"{case}: the inputs are {set(inputs)}, not {set(tensors)}"
        for name, x in tensors.items():
            x = (lambda kind, shape, data: (kind, tuple(shape), bytes(data)))(*attentiond._tensor(name, x))
            assert inputs[name][:2] == x[:2], f"{case}: {name} is {inputs[name][:2]}, not {x[:2]}"
            off = abs(numbers(inputs[name]) - numbers(x)).max()
            bits = 1 if name == "decay" or (name == "K" and case["beta"]) else 0
            same = inputs[name][2] == x[2] or bits or numpy.isnan(matrices[name]).any()
            assert off <= bits and same, f"{case}: {name} is off by {off} bits"


def main():
    status, said = run({})
    assert status == 0 and said.endswith(f"\n{len(TAKEN)} of {len(TAKEN)} cases are right, {len(cases.read_cases()) - len(TAKEN)} are left out\n"), said
    assert f"[All {len(cases.read_cases())} cases]" in (HERE / "README.md").read_text(encoding="utf-8"), "README.md has another number of cases"
    assert said.count("left out: the kernel takes no rotary") == sum(case["rotary"] is not None for case in cases.read_cases()), said
    status, said = run({"j < at - p->left": "j <= at - p->left"})
    wrong = {line.split()[0] for line in said.splitlines() if line.split()[1:] == ["wrong"]}
    want = {case.name for case in TAKEN if case["window"] and case.numbers("window")[0] >= 0}
    assert status == 1 and wrong == want, f"{wrong} are wrong, not {want}: {said}"
    assert "\n    output is off by " in said and "\n    window-16.safetensors has the inputs and the results\n" in said, said
    for name in want:
        assert file_of(name)[1]["window"] == list(next(case for case in TAKEN if case.name == name).numbers("window"))
    assert not list(FOLDER.glob("*.safetensors")), "files of right cases stay"
    status, said = run({}, "n-16", "rotary")
    assert (status, said.count("\n")) == (0, 3) and said.endswith("1 of 1 cases are right, 1 are left out\n"), said
    changes = {"/* Put your kernel": LINEAR, 'return "it is for linear attention";': "return linear(p);",
               '"output lse grad_Q grad_K grad_V"': '"output present_state"'}
    names = [case.name for case in cases.read_cases() if case["update"]]
    status, said = run(changes, *names)
    assert status == 0 and said.endswith(f"\n{len(names)} of {len(names)} cases are right, 0 are left out\n"), said
    status, said = run({**changes, "/* Put your kernel": LINEAR.replace("if (p->state)", "if (0)")}, *names)
    wrong = {line.split()[0] for line in said.splitlines() if line.endswith(" wrong")}
    assert status == 1 and wrong == {case.name for case in cases.read_cases() if case["state"]}, said
    for dtype in TYPES:
        compare(dtype)
        status, said = run({'"F32"': f'"{dtype}"'}, *[case.name for case in TAKEN])
        assert status == 0, said
    print(f"battery: {len(TAKEN)} cases are right in each type, a planted fault is found, and the inputs are those of the client in Python")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"battery: {error}")
