"""peers.py measures the calls of bench_attention beside PyTorch, onnxruntime, OpenVINO and NumPy.

Every library has a process of its own (serve.py), and all have the same number of threads. They take
turns: one sample of each, then the next round. A library may have several variants to compute a call.
Its time is the median of its best variant. The script prints a table and writes OUT.json, OUT.svg and OUT.png.
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LIBRARIES = ("pytorch", "onnxruntime", "openvino", "numpy")
SLOW = 0.2  # seconds; a call that takes longer has fewer rounds
SLOW_ROUNDS = 3
LOOKS = 3  # samples by which the variants are chosen
LINEAR_TOLERANCE = 1e-5  # of the largest number; a peer may sum 4096 positions in float32
DROPPED = 2.0  # a variant that takes this many times as long as its library's best has no turns


class Child:
    """A program that reads lines and answers each with one line."""

    def __init__(self, command, environment, greets):
        self.command, self.environment, self.greets = command, environment, greets
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command, env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.greeting = self.process.stdout.readline() if self.greets else ""
        if self.greets and not self.greeting:
            sys.exit(f"{' '.join(map(str, self.command))} does not start")

    def ask(self, line):
        """Returns the answer, or "- died" if there is none. A new process then takes the next line."""
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.end()
            self.start()
        return answer or "- died"

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def clean_environment(threads):
    """Returns the environment without presets for the threads or kernels of a library."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not re.match(r"(OPENBLAS|GOTO|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|ORT|OV|BENCH)_", name)
    }
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BENCH_THREADS"):
        environment[name] = str(threads)
    return environment


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def measure(line, ours, peers, rounds, factor):
    """Returns our samples of a call, and {library: {variant: samples or reason}}."""

    def ask(library, variant):
        """Returns seconds, or a text that says why there are none."""
        answer = peers[library][0].ask(f"{variant}\t{line}")
        if "wrong result" in answer or "died" in answer:
            print(f"{line}: {library} {variant} {answer}", file=sys.stderr)
        return answer if answer.startswith("-") else float(answer)

    def first_look(library, variant):
        """Returns the best of a few samples, so that a disturbed one does not decide."""
        sample = ask(library, variant)
        for _ in range(LOOKS - 1):
            if not isinstance(sample, str) and sample < SLOW:
                again = ask(library, variant)
                sample = again if isinstance(again, str) else min(sample, again)
        return sample

    def ask_ours():
        answer = ours.ask(line)
        if answer.startswith("- "):
            sys.exit(f"bench_attention ended at: {line}")
        return float(answer)

    first = ask_ours()
    times, results, taking = [], {}, {}
    for library, (_, variants) in peers.items():
        results[library] = {variant: first_look(library, variant) for variant in variants}
        seconds = {v: s for v, s in results[library].items() if not isinstance(s, str)}
        for variant, sample in seconds.items():
            results[library][variant] = [sample]
            if sample <= factor * min(seconds.values()):
                taking[library, variant] = sample
                results[library][variant] = []
    for turn in range(rounds):
        if turn < SLOW_ROUNDS or first < SLOW:
            times.append(ask_ours())
        for (library, variant), sample in list(taking.items()):
            if turn < SLOW_ROUNDS or sample < SLOW:
                answer = ask(library, variant)
                if isinstance(answer, str):
                    results[library][variant] = answer
                    del taking[library, variant]
                else:
                    results[library][variant].append(answer)
    return times, results


def check_linear(line, ours, peers):
    """Exits unless every peer that has linear attention computes the same numbers as we do."""
    own = [float(x) for x in ours.ask(f"numbers {line}").split()]
    halves = slice(len(own) // 2), slice(len(own) // 2, None)  # the output, and the present state
    for library, (child, variants) in peers.items():
        if "LinearAttention" not in variants:
            continue
        answer = child.ask(f"LinearAttention\tnumbers {line}")
        if answer.startswith("- "):
            sys.exit(f"{line}: {library} {answer}")
        theirs = [float(x) for x in answer.split()]
        for half in halves:
            largest = max(map(abs, own[half]))
            error = max(abs(a - b) for a, b in zip(own[half], theirs[half], strict=True))
            if not error <= LINEAR_TOLERANCE * largest:
                sys.exit(f"{line}: {library} has a wrong result, off by {error / largest:.3g}")


def gemm_share(line, seconds, ours):
    """Returns the operations of a call in a second, divided by those of sgemm; see shape_flops()."""
    fields = fields_of({"call": line})
    if "linear" not in fields or "delta" in fields or fields["n"] < 512:
        return None
    columns = fields.get("d_v", fields["d"])
    flops = 4 * fields["heads"] * fields["n"] * fields["d"] * columns
    rate = statistics.median(float(ours.ask("gemm")) for _ in range(LOOKS))
    return flops / seconds / rate


def fields_of(entry):
    """Returns the numbers in the line of a call, by their names."""
    return {name: int(value) for name, value in (f.split("=") for f in entry["call"].split())}


def entry_of(group, line, times, results):
    """Returns what the JSON has of a call. The ratio is the median of the turns, as in bench_attention."""
    best = min(
        ((statistics.median(samples), library, variant)
         for library, variants in results.items()
         for variant, samples in variants.items() if not isinstance(samples, str)),
        default=None,
    )  # fmt: skip
    entry = {"group": group, "call": line, "ours": statistics.median(times)}
    entry |= {"fastest": None, "ratio": None}
    if best:
        _, library, variant = best
        turns = zip(results[library][variant], times, strict=False)
        entry["fastest"] = f"{library} {variant}"
        entry["ratio"] = statistics.median(theirs / own for theirs, own in turns)
    entry["peers"] = {
        library: {v: s if isinstance(s, str) else statistics.median(s) for v, s in variants.items()}
        for library, variants in results.items()
    }
    return entry


def report(entry):
    cells = []
    for variants in entry["peers"].values():
        best = min((s for s in variants.values() if not isinstance(s, str)), default=None)
        cells.append(f"{best * 1e6:12.2f}" if best else f"{'-':>12}")
    ratio = f"{entry['ratio']:6.2f}" if entry["ratio"] else f"{'-':>6}"
    share = f"  {entry['gemm']:.2f} of sgemm" if entry.get("gemm") else ""
    print(f"{entry['call']:<62} {entry['ours'] * 1e6:12.2f} {' '.join(cells)} {ratio}  "
          f"{entry['fastest'] or ''}{share}", flush=True)  # fmt: skip


def summarise(entries):
    """Prints the mean and the worst ratio of each group of calls. A call may be in several groups."""
    entries = [entry for entry in entries if entry["ratio"]]
    groups = {"all": entries, "n = 2 ... 64": [e for e in entries if 1 < fields_of(e)["n"] <= 64]}
    for entry in entries:
        groups.setdefault(entry["group"], []).append(entry)
    print("speed of libattention divided by that of the fastest peer:")
    for group, members in groups.items():
        if members:
            ratios = [entry["ratio"] for entry in members]
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            worst = min(members, key=lambda entry: entry["ratio"])
            print(f"{group:<12} {len(ratios):3} calls, geometric mean {mean:.2f}, "
                  f"{sum(r >= 1.15 for r in ratios)} at 1.15 or more, "
                  f"{sum(r < 0.97 for r in ratios)} below 0.97, "
                  f"worst {worst['ratio']:.2f}: {worst['call']} ({worst['fastest']})")  # fmt: skip


# ------------------------------------------------------------------------------------------- chart

# Okabe and Ito's colours, which colour-blind readers can distinguish. Each line has a marker, too.
STYLES = [("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#000000", "v"),
          ("#E69F00", "P")]  # fmt: skip
SCATTERED = ("models", "drawn")  # groups whose calls are single points in the chart


def panel_and_line(entry):
    """Returns the place of a call in the chart: (panel, line, x)."""
    f = fields_of(entry)
    if entry["group"] in SCATTERED:
        kind = "projections" if "d_model" in f else "causal" if "causal" in f else "plain"
        kind += ", prepacked" if "prepacked" in f else ", weights" if "weights" in f else ""
        return entry["group"], kind, f["n"]
    heads = str(f["heads"]) + (f" / {f['kv_heads']} key" if f["kv_heads"] != f["heads"] else "")
    heads += " head" if heads == "1" else " heads"
    if "linear" in f:
        rule = " ".join(name for name in ("gated", "delta") if name in f) or "linear"
        return f"linear attention, {heads}", f"{rule}, d {f['d']}", f["n"]
    if "d_model" in f:
        line = "with weights" if "weights" in f else "output only"
        return f"projections, {heads}, d_model {f['d_model']}", line, f["n"]
    if f["n"] == 1 and f["m"] != 1:
        return "one query, by keys", f"{heads}, d {f['d']}", f["m"]
    for names in (("gradients", "causal"), ("gradients",), ("causal", "window"), ("causal",),
                  ("mask",), ("weights",), ("float64",), ("packed",)):  # fmt: skip
        if all(name in f for name in names):
            return f"{heads}, d {f['d']}, with", " + ".join(names), f["n"]
    return heads, f"d {f['d']}", f["n"]


def draw(data, out):
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "bench-peers"
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    panels = {}
    for entry in data["calls"]:
        if entry["ratio"]:
            panel, line, x = panel_and_line(entry)
            panels.setdefault(panel, {}).setdefault(line, []).append((x, entry["ratio"]))
    if not panels:
        return
    columns = min(4, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure, axes = pyplot.subplots(
        rows, columns, squeeze=False, sharey=True, layout="constrained",
        figsize=(max(7, 3.4 * columns), 3 * rows + 1),
    )  # fmt: skip
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (panel, lines) in zip(axes.flat, panels.items(), strict=False):
        axis.set_title(panel, fontsize=10)
        axis.set_xscale("log", base=4 if len(lines) > 2 else 10)
        axis.set_yscale("log", base=2)
        axis.axhline(1, color="#666666", linewidth=1)
        for i, (line, points) in enumerate(lines.items()):
            colour, marker = STYLES[i % len(STYLES)]
            axis.plot(*zip(*sorted(points), strict=True), color=colour, marker=marker,
                      markersize=4, linewidth=0 if panel in SCATTERED else 1.4,
                      label=line)  # fmt: skip
        ticks = sorted({x for points in lines.values() for x, _ in points})
        if panel in SCATTERED:
            ticks = [16, 64, 256, 1024, 3000]
        axis.set_xticks(ticks, [str(x) for x in ticks], rotation=45, fontsize=8)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.minorticks_off()
        axis.yaxis.set_major_formatter(plain)
        axis.tick_params(axis="y", labelleft=True, labelsize=8)
        axis.grid(True, color="#dddddd", linewidth=0.6)
        axis.legend(fontsize=8, framealpha=0.7, edgecolor="none")
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    figure.suptitle("Speed-up of libattention over the fastest peer, by n (above 1: faster)")
    figure.supxlabel(
        f"{data['cpu']}, {data['threads']} threads, {data['date'][:10]}\n{versions}", fontsize=8
    )
    for suffix in ("svg", "png"):
        figure.savefig(f"{out}.{suffix}", dpi=150)


# -------------------------------------------------------------------------------------------- main


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default=ROOT / "build/release/bench_attention",
                        help="the program bench_attention")  # fmt: skip
    parser.add_argument("--out", default=ROOT / "build/bench-peers", help="results, without .json")
    parser.add_argument("--only", help="only calls that match this extended regular expression")
    parser.add_argument("--seed", type=int, help="draw from this seed, and leave the grid out")
    parser.add_argument("--shapes", type=int, help="draw so many calls, and leave the grid out")
    parser.add_argument("--peers", default=",".join(LIBRARIES), help="only these libraries")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each variant")
    parser.add_argument("--quick", action="store_true", help="3 rounds, fewer variants")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--draw", action="store_true", help="only draw the chart, from OUT.json")
    return parser.parse_args()


def list_calls(bench, options, environment):
    """Returns the seed and [(group, line)] of the chosen calls. bench_attention chooses them."""
    command = [bench, "--list"]
    for name in ("seed", "shapes", "only"):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name}", str(value)]
    answer = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE,
                            env=environment)  # fmt: skip
    if answer.returncode != 0:
        sys.exit(1)  # bench_attention has said why
    first, *lines = answer.stdout.splitlines()
    calls, group = [], None
    for line in lines:
        if line.startswith("# "):
            group = line[2:]
        else:
            calls.append((group, line))
    if not calls:
        sys.exit(f"no call has {options.only!r}")
    return int(first.removeprefix("# seed ")), calls


def run(options):
    environment = clean_environment(options.threads)
    bench = str(options.bench)
    seed, calls = list_calls(bench, options, environment)
    header = (ROOT / "lib/include/attention.h").read_text()
    data = {
        "cpu": cpu_name(),
        "threads": options.threads,
        "seed": seed,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"libattention": re.search(r'ATTN_VERSION\s+"(.*?)"', header)[1]},
        "calls": [],
    }
    ours = Child([bench, "--serve"], environment, False)
    peers = {}
    for library in options.peers.split(","):
        command = [sys.executable, str(HERE / "serve.py"), library, str(options.threads)]
        child = Child(command, environment, True)
        greeting = json.loads(child.greeting)
        data["versions"] |= greeting["versions"]
        peers[library] = child, greeting["variants"]
    print(f"{data['cpu']}, {options.threads} threads, seed {seed}; microseconds, "
          "ratio = fastest peer / ours")  # fmt: skip
    print(f"{'call':<62} {'ours':>12} {' '.join(f'{p:>12}' for p in peers)} {'ratio':>6}  fastest")
    rounds, factor = (3, 1.25) if options.quick else (options.rounds, DROPPED)
    last = None
    for group, line in calls:
        if group != last:
            print(f"# {group}")
        last = group
        if group == "linear":
            check_linear(line, ours, peers)
        entry = entry_of(group, line, *measure(line, ours, peers, rounds, factor))
        entry["gemm"] = gemm_share(line, entry["ours"], ours)
        data["calls"].append(entry)
        report(entry)
        # The file is written after each call, so an interrupted run leaves its results.
        Path(f"{options.out}.json").write_text(json.dumps(data, indent=1) + "\n")
    for child in (ours, *(child for child, _ in peers.values())):
        child.end()
    summarise(data["calls"])


def main():
    options = arguments()
    if not options.draw:
        run(options)
    draw(json.loads(Path(f"{options.out}.json").read_text()), options.out)


if __name__ == "__main__":
    main()
