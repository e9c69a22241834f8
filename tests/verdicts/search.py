"""Searches for verdicts that are wrong: right kernels that are called wrong, and faults that are called right.

search.py [--calls N] [--seed S] [--only NUMBER] [--kernel NAME] [--fault NAME] [--learn] [--no-computed-in]

Each call draws tensors and options, a right kernel of their type, and two faults of that kernel. All three results are sent
as `expected` with `fail_on_difference`. A fault counts if it moves a row of a result by more than four times what
rounding explains (yardstick.py). $ATTENTIOND_BIN is the daemon."""

import argparse
import collections
import http.client
import json
import os
import subprocess
import sys
import time

import calls
import faults
import kernels
import linear
import numpy as np
from rounding import safetensors
from yardstick import Yardstick, difference

COUNTS = 4  # a fault counts if it moves a row by more than so many yardsticks
VERDICTS = ("equal", "rounded", "close", "wrong")
TYPES = ("bfloat16",) * 6 + ("float16",) * 5 + ("float32",) * 6 + ("float64",) * 3
DEAR = 3_000_000  # multiply-adds from which on no kernel adds one number after another
MATRICES = ("scores", "masked_scores", "weights")
FAULTS, KERNELS = faults.FAULTS + linear.FAULTS, kernels.KERNELS + linear.KERNELS


class Daemon:
    """A daemon, and one connection to it."""

    def __init__(self):
        self.process = subprocess.Popen([os.environ["ATTENTIOND_BIN"], "--port", "0", "--workers", "1"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path, body):
        """Returns the status and the answer."""
        headers = {"Content-Type": "application/vnd.safetensors", "Accept": "application/json"}
        for attempt in range(2):
            try:
                self.connection.request("POST", path, body, headers)
                response = self.connection.getresponse()
                return response.status, json.loads(response.read())
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self.connection.close()  # the daemon ends connections that are idle for a while
                if attempt:
                    raise
        return None

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()
        self.connection.close()


def dear(kernel, call):
    if call.path == linear.PATH:
        return False
    work = call.batch * len(call.heads) * call.n * call.m * (call.d + call.d_v) * (2.5 if call.grad is not None else 1)
    return kernel.order != "blas" and work > DEAR


def possible(kernel, call):
    """The least number times log2(e) overflows."""
    return not (kernel.base2 and "least number" in call.features)


class Refused(Exception):
    """The daemon computed nothing. The exception has its reason."""


class Trial:
    """One drawn call with its kernel, and what is asked of the daemon."""

    def __init__(self, seed, number, options):
        self.number, self.options = number, options
        for attempt in range(50):
            self.rng = np.random.default_rng((seed, number, attempt))
            if self.draw():
                return
        raise RuntimeError(f"call {number} of seed {seed}: no kernel has finite results")

    def draw(self):
        """Draws a call. Returns false if a matrix or a result of the kernel overflows."""
        rng = self.rng
        self.first = FAULTS[rng.integers(len(FAULTS))]
        if self.options.fault:
            self.first = next(fault for fault in FAULTS if fault.name == self.options.fault)
        self.linear = self.first in linear.FAULTS
        suits = [k for k in self.family() if self.options.kernel in (None, k.name)]
        kinds = [k for k in TYPES if k in self.first.kinds and any(k in kernel.types for kernel in suits)]
        if not kinds:
            return False
        kind = kinds[rng.integers(len(kinds))]
        self.call = (linear.Call if self.linear else calls.Call)(rng, kind, self.first.needs)
        suits = [k for k in suits if kind in k.types and not dear(k, self.call) and possible(k, self.call)]
        form = "unfused" if set(MATRICES) & set(self.first.has) else self.first.form
        suits = [k for k in suits if form in (None, k.form)] or suits
        if not suits:
            return False
        self.kernel = suits[rng.integers(len(suits))]
        self.dtype = "float32" if kind != "float64" and rng.random() < 0.1 else "float64"
        self.problem = self.call.problem()
        if not all(np.isfinite(getattr(self.call, name)).all() for name in "QKV"):
            return False
        self.exact = (linear if self.linear else kernels).exact(self.problem, kind)
        self.right = self.shown(self.run(self.kernel).results())
        return all(np.isfinite(difference(x, self.exact[name])).all() for name, x in self.right.items())

    def family(self):
        return linear.KERNELS if self.linear else kernels.KERNELS

    def run(self, kernel):
        return (linear if self.linear else kernels).Run(kernel, self.problem, self.call.kind)

    def shown(self, results):
        """The results that are sent. Matrices of all queries and keys are left out where they are large."""
        return {name: x for name, x in results.items() if name not in MATRICES or self.call.small}

    def yardstick(self):
        """Measures all kernels that multiply in the same type."""
        kind = self.call.kind
        yard = (linear.LinearYardstick if self.linear else Yardstick)(self.problem, self.exact, self.kernel, kind)
        mates = {}
        said = {name: self.kernel.said(name, kind) for name in self.right}
        for kernel in self.family():
            if kind in kernel.types and (kernel is self.kernel or not dear(kernel, self.call)) and possible(kernel, self.call) and \
                    any(kernel.said(name, kind) == said[name] for name in said):
                mates[kernel] = self.right if kernel is self.kernel else self.run(kernel).results()
        for name in self.right:
            yard.measure(name, [results[name] for kernel, results in mates.items() if kernel.said(name, kind) == said[name] and name in results])
        return yard

    def faults(self):
        """The fault that the call was drawn for, and another one that suits it."""
        suits = [f for f in (linear if self.linear else faults).FAULTS if f.suits(self.call, self.kernel, self.right)]
        chosen = [self.first] if self.first in suits else []
        others = [f for f in suits if f is not self.first]
        if others and not self.options.fault:
            chosen += [others[self.rng.integers(len(others))]]
        return chosen

    def body(self, results):
        """A request that compares results of the kernel."""
        kind, tensors = self.call.kind, dict(self.call.tensors)
        for name, x in results.items():
            tensors["expected." + name] = (x, self.kernel.sent or self.kernel.result_type(name, kind))
        options = {**self.call.texts(), "dtype": self.dtype, "return": '["comparison"]', "fail_on_difference": "true"}
        if self.kernel.computed_in and not self.options.no_computed_in:
            options["computed_in"] = self.kernel.type_of("computed_in", kind)
        return safetensors(tensors, options)


def figure(x):
    return x if x is None else f"{x:.3g}"


class Report:
    """Counts verdicts, and prints what is wrong with them."""

    def __init__(self, options):
        self.options = options
        self.kernels, self.faults = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
        self.ratios, self.models, self.failures = collections.defaultdict(list), collections.defaultdict(list), 0

    def fail(self, trial, what, text):
        self.failures += 1
        more = "".join(f' --{name} "{value}"' for name in ("kernel", "fault") if (value := getattr(self.options, name)))
        print(f"call {trial.number} (make search-verdicts SEED={self.options.seed} ARGS='--only {trial.number}{more}'): {what}\n"
              f"    kernel: {trial.kernel.name}; {trial.call}" + (text and "\n" + text), flush=True)

    def lines(self, trial, yard, results, beside, answer):
        """For each result the row that moved most, its movement in yardsticks, and what the service says of it."""
        out = []
        for name in results:
            moved = yard.moved(name, results[name], beside[name])
            if moved.size == 0:
                continue
            at = np.unravel_index(np.argmax(moved), moved.shape)
            said = answer.get(name, {})
            worst = (said.get("worst_rows") or [{}])[0]
            says = f"{said.get('verdict')}, rms_ratio {figure(said.get('rms_ratio'))}, worst row {worst.get('index')} {figure(worst.get('ratio'))}"
            out.append(f"    {name}: row {[int(i) for i in at]} is off by {moved[at]:.3g} of what rounding explains ({yard.rows[name][at]:.3g}); "
                       f"the service says {says}")
        return "\n".join(out)

    def right(self, trial, yard, status, answer):
        comparison = answer["comparison"]
        verdict = comparison["verdict"]
        self.kernels[trial.kernel.name][verdict] += 1
        self.kernels[trial.kernel.name]["200"] += status == 200
        for name, result in comparison["results"].items() if self.options.learn else ():
            if result.get("worst_rows"):
                self.ratios[trial.kernel.name, name].append(result["worst_rows"][0]["ratio"])
            self.models[trial.kernel.name, name].append(yard.beside_model(name, trial.right[name]))
        if verdict == "wrong" or (status != 200 and verdict != "close") or (self.options.verbose and verdict == "close"):
            self.fail(trial, f"a right kernel is {verdict}, status {status}",
                      self.lines(trial, yard, trial.right, trial.exact, comparison["results"]))

    def fault(self, trial, fault, yard, wrong, status, answer):
        comparison = answer["comparison"]
        moved = max((float(yard.moved(name, wrong[name], trial.right[name]).max(initial=0)) for name in wrong), default=0)
        verdict = comparison["verdict"]
        counts = self.faults[fault.name]
        if moved <= COUNTS:
            counts["nothing" if moved == 0 else "little"] += 1
            return
        counts["counts"] += 1
        counts[verdict] += 1
        counts["200"] += status == 200
        if verdict in ("equal", "rounded") or status == 200:
            self.fail(trial, f"the fault \"{fault.name}\" is {verdict}, status {status}",
                      self.lines(trial, yard, wrong, trial.right, comparison["results"]))

    def print(self):
        print(f"\n{'right kernel':32} {'calls':>6} " + " ".join(f"{v:>8}" for v in VERDICTS))
        total = collections.Counter()
        for kernel in KERNELS:
            counts = self.kernels[kernel.name]
            total.update(counts)
            self.line(f"{kernel.name:32}", counts)
        self.line(f"{'all':32}", total)
        print(f"\n{'fault':52} {'small':>6} {'none':>6} {'counts':>6} " + " ".join(f"{v:>8}" for v in reversed(VERDICTS)) + "      200")
        for fault in FAULTS:
            counts = self.faults[fault.name]
            calls = counts["counts"]
            shares = " ".join(f"{100 * counts[v] / calls:7.2f}%" if calls else f"{'':8}" for v in (*reversed(VERDICTS), "200"))
            print(f"{fault.name:52} {counts['little']:6} {counts['nothing']:6} {calls:6} {shares}")
        if self.options.learn:
            self.print_ratios()
        calls = sum(total[v] for v in VERDICTS)
        good = total["equal"] + total["rounded"]
        counted = sum(c["counts"] for c in self.faults.values())
        print(f"\n{calls} right kernels, {100 * good / max(1, calls):.3f} % equal or rounded (99.9 % are wanted), {total['wrong']} wrong; "
              f"{counted} faults count, {sum(c['equal'] + c['rounded'] for c in self.faults.values())} equal or rounded, "
              f"{sum(c['200'] for c in self.faults.values())} with status 200")
        return self.failures > 0 or good < 0.999 * calls

    def line(self, name, counts):
        calls = sum(counts[v] for v in VERDICTS)
        print(f"{name} {calls:6} " + " ".join(f"{100 * counts[v] / calls:7.2f}%" if calls else f"{'':8}" for v in VERDICTS))

    def print_ratios(self):
        """Prints how the worst rows of the calls are distributed."""
        for what, found in ("the service's ratio of the worst row", self.ratios), ("error of the worst row by the model", self.models):
            print(f"\n{what:50} {'calls':>6} {'50 %':>9} {'99 %':>9} {'99.9 %':>9} {'100 %':>9}")
            for (kernel, name), ratios in sorted(found.items()):
                ratios = [np.inf if r is None else r for r in ratios]
                figures = " ".join(f"{x:9.3g}" for x in np.quantile(ratios, (0.5, 0.99, 0.999, 1)))
                print(f"{kernel:32} {name:17} {len(ratios):6} {figures}")


def ask(daemon, trial, results):
    status, answer = daemon.ask(trial.call.path, trial.body(results))
    if status not in (200, 409):
        raise Refused(f"status {status}: {answer.get('detail')}")
    return status, answer


def run(daemon, trial, report):
    yard = trial.yardstick()
    report.right(trial, yard, *ask(daemon, trial, trial.right))
    for fault in trial.faults():
        with np.errstate(all="ignore"):
            wrong = trial.shown(fault.apply(trial.call, trial.kernel, trial.right, type(trial.run(trial.kernel))))
        report.fault(trial, fault, yard, wrong, *ask(daemon, trial, wrong))


def main():
    parser = argparse.ArgumentParser(prog="search.py")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one call alone")
    parser.add_argument("--kernel", help="one kernel alone")
    parser.add_argument("--fault", help="one fault alone")
    parser.add_argument("--learn", action="store_true", help="print the ratios of right kernels")
    parser.add_argument("--verbose", action="store_true", help="print the right kernels that are close, too")
    parser.add_argument("--no-computed-in", action="store_true", help="do not send computed_in")
    options = parser.parse_args()
    daemon, report, begin = Daemon(), Report(options), time.monotonic()
    for number in range(options.calls) if options.only is None else [options.only]:
        trial = Trial(options.seed, number, options)
        try:
            run(daemon, trial, report)
        except Refused as reason:
            report.fail(trial, reason, "")
    daemon.stop()
    bad = report.print()
    print(f"{time.monotonic() - begin:.0f} s")
    return bad


if __name__ == "__main__":
    sys.exit(main())
