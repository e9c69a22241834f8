"""What the cases of PyTorch and of attention kernels share: requests in safetensors, comparisons, and the count of cases."""

import collections
import json
import pathlib
import sys

import torch
from safetensors.torch import load, save

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from eager import SAFETENSORS, Daemon  # noqa: E402,F401 pylint: disable=wrong-import-position,unused-import

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}


class Skipped(Exception):
    """The case is left out, for the reason that the exception has."""


def ask(daemon, path, tensors, options, results, dtype):
    """Returns the results of a request whose numbers are sent in `dtype`."""
    body = save({name: x.detach().to(x.dtype if x.dtype == torch.bool else dtype).contiguous().clone() for name, x in tensors.items()},
                {name: json.dumps(x) for name, x in {**options, "return": results}.items()})
    status, answer = daemon.send("POST", path, body, {"Content-Type": SAFETENSORS})
    assert status == 200, answer.decode(errors="replace").strip()
    return load(answer)


def largest(x):
    """Returns the largest magnitude; 0 without numbers."""
    return float(x.abs().max()) if x.numel() else 0.0


def compare(name, got, want, tolerance, least=1.0):
    """Compares tensors, by the largest number of all, or by `least` if that is larger. Numbers that PyTorch does not have (NaN) are zeros here: those of a row whose
    keys are all forbidden."""
    want = [x.nan_to_num(nan=0) for x in want]
    most = max(least, *(largest(x) for x in want))
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape, f"{name} has shape {tuple(x.shape)}, not {tuple(y.shape)}"
        error = largest(x - y) / most
        assert error <= tolerance, f"{name} {tuple(x.shape)} is off by {error:.2g} of the largest number, {most:.3g}"


class Count:
    """Counts the cases that passed, by the name of their test, and the others."""

    def __init__(self):
        self.passed, self.failed, self.skipped = collections.Counter(), 0, collections.Counter()

    def run(self, name, case, function, *args, **kwargs):
        """Runs a case. `case` says which one it is."""
        try:
            function(*args, **kwargs)
            self.passed[name] += 1
        except Skipped as reason:
            self.skipped[str(reason)] += 1
        except AssertionError as error:
            print(f"{name} {case}: {error}")
            self.failed += 1

    def print(self, minimum):
        """Prints the counts, and returns true if a case failed or fewer than `minimum` passed."""
        print(*(f"{name}: {count}" for name, count in self.passed.items()),
              *(f"left out, {reason}: {count}" for reason, count in self.skipped.items()), sep="\n")
        passed = sum(self.passed.values())
        print(f"{passed} passed, {self.failed} failed, {sum(self.skipped.values())} skipped")
        return self.failed > 0 or passed < minimum
