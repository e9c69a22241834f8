#!/usr/bin/python3
"""Checks that docker/grafana-dashboard.json fits the metrics of the daemon.

    check-dashboard.py DASHBOARD --daemon PROGRAM [--prometheus]

- Each panel has an id of its own, a title, a description and a unit, and panels do not overlap.
- The daemon exports each metric and each label that an expression names.
- The dashboard shows each exported metric, unless LEFT_OUT has it.
- With --prometheus, promtool checks the metrics too. A Prometheus scrapes the daemon, which gets requests meanwhile, and
  every expression must then yield numbers. This needs Debian's prometheus.

The programs listen on free ports of 127.0.0.1. The script needs no other host, and without --prometheus no package.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

LEFT_OUT = {"process_virtual_memory_bytes": "most of it is address space that no thread ever touches"}

COLUMNS = 24
SECONDS = 60  # Prometheus may take this long to start and to collect enough samples
VARIABLES = {"$__rate_interval": "5s", "$job": "attentiond", "$instance": ".*"}
OF_PROMETHEUS = {"job", "instance", "le"}  # labels that scraping adds, or that only buckets have


# --------------------------------------------------------------------------------------------- dashboard


def check_panels(panels, fail):
    """Checks the ids, texts, units and places of the panels."""
    ids = [panel["id"] for panel in panels]
    for doubled in sorted({number for number in ids if ids.count(number) > 1}):
        fail(f"two panels have the id {doubled}")
    for panel in panels:
        place, name = panel["gridPos"], f"panel {panel['id']}"
        if not panel.get("title"):
            fail(f"{name} has no title")
        if panel["type"] != "row" and not (panel.get("description") and panel.get("targets")):
            fail(f"{name} lacks a description or an expression")
        if panel["type"] != "row" and "unit" not in panel["fieldConfig"]["defaults"]:
            fail(f"{name} has no unit")
        if place["x"] < 0 or place["w"] < 1 or place["h"] < 1 or place["x"] + place["w"] > COLUMNS:
            fail(f"{name} does not stand in the {COLUMNS} columns")
    for one, other in itertools.combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        if (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
                and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]):
            fail(f"the panels {one['id']} and {other['id']} overlap")


def expressions(dashboard):
    """Yields (where, expression) for each panel and annotation."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['id']} ({panel['title']}) {target['refId']}", target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]


def variable_queries(dashboard):
    """Yields (where, metric, label) for each variable that is read from metrics."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((\w+)(?:{.*})?, *(\w+)\)", variable["query"]["query"])
            yield (f"variable {variable['name']}", *(match.groups() if match else ("", "")))


# ----------------------------------------------------------------------------------------------- metrics


def read_metrics(text):
    """Returns the names of the families on a page of metrics, and the labels of each name that has a sample."""
    families, samples = set(), {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            families.add(line.split()[2])
        elif not line.startswith("#"):
            name, labels = re.fullmatch(r"(\w+)(?:{(.*)})? \S+", line).groups()
            samples.setdefault(name, set()).update(re.findall(r"(\w+)=\"", labels or ""))
    return families, samples


def names_in(expression):
    """Returns the metrics and the labels that an expression names. Labels are in selectors and after "by"."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    labels = set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", bare))
    for group in re.findall(r"\b(?:by|without) *\(([^)]*)\)", bare):
        labels |= set(re.findall(r"\w+", group))
    bare = re.sub(r"{[^}]*}|\[[^]]*\]|\b(?:by|without) *\([^)]*\)", "", bare)
    words = set(re.findall(r"\b[a-zA-Z_:][\w:]*\b(?! *\()", bare))
    return words - {"or", "and", "unless", "by", "without"}, labels


def check_names(dashboard, page, fail):
    """Compares the metrics and labels of the dashboard with a page of metrics. Returns the number of metrics."""
    families, samples = read_metrics(page)
    used = set()
    for where, expression in expressions(dashboard):
        metrics, labels = names_in(expression)
        known = set().union(OF_PROMETHEUS, *(samples.get(metric, ()) for metric in metrics))
        used |= metrics
        for metric in sorted(metrics - set(samples)):
            fail(f"{where}: the daemon exports no {metric}")
        for label in sorted(labels - known):
            fail(f"{where}: no metric in it has the label {label}")
    for where, metric, label in variable_queries(dashboard):
        used.add(metric)
        if metric not in samples or label not in OF_PROMETHEUS | samples[metric]:
            fail(f"{where}: the daemon exports no label {label!r} of {metric!r}")
    shown = used | {re.sub("_(bucket|sum|count)$", "", name) for name in used}
    for family in sorted(families - shown - set(LEFT_OUT)):
        fail(f"{family} is exported but not shown")
    for family in sorted(set(LEFT_OUT) & shown | set(LEFT_OUT) - families):
        fail(f"{family} is in LEFT_OUT, but it is shown or not exported at all")
    return len(families)


# ---------------------------------------------------------------------------------------------- programs


@contextlib.contextmanager
def running(command, **options):
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


def get(url, body=None):
    """Returns the text of the answer, with any status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def keep_busy(address):
    """Sends a good request, a bad one, and one that is later than its time limit."""
    for body in (b'{"X": [[1, 2], [3, 4]]}', b'{"X": 1}', b'{"X": [[1, 2], [3, 4]], "timeout": 1e-9}'):
        get(f"{address}/attention", body)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class NoExpression(Exception):
    pass


def query(prometheus, expression):
    """Returns the present values of an expression."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    parameters = urllib.parse.urlencode({"query": expression})
    answer = json.loads(get(f"{prometheus}/api/v1/query?{parameters}"))
    if answer["status"] != "success":
        raise NoExpression(f"{expression}: {answer['error']}")
    return [float(series["value"][1]) for series in answer["data"]["result"]]


def missing(dashboard, prometheus):
    """Yields a sentence for each expression that has no number now. An annotation shows changes, so it may have none."""
    for where, expression in expressions(dashboard):
        values = query(prometheus, expression)
        if not where.startswith("annotation") and not any(value == value for value in values):
            yield f"{where}: yields no number: {expression}"


def check_with_prometheus(dashboard, address, fail):
    tool = subprocess.run(["promtool", "check", "metrics"], input=get(f"{address}/metrics"), text=True)
    if tool.returncode != 0:
        fail("promtool reports errors in the metrics")
    job = {"job_name": VARIABLES["$job"], "static_configs": [{"targets": [address.partition("://")[2]]}]}
    with tempfile.TemporaryDirectory() as folder:
        config, log = pathlib.Path(folder, "prometheus.yml"), pathlib.Path(folder, "log")
        config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
        port = free_port()
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                   f"--web.listen-address=127.0.0.1:{port}"]
        end = time.monotonic() + SECONDS
        with log.open("w") as output, running(command, stdout=output, stderr=output) as process:
            faults = ["Prometheus does not start"]
            while faults and process.poll() is None and time.monotonic() < end:
                keep_busy(address)
                time.sleep(0.2)
                # Prometheus does not listen, or does not answer in JSON, until it is ready.
                with contextlib.suppress(OSError, ValueError):
                    faults = list(missing(dashboard, f"http://127.0.0.1:{port}"))
        for fault in faults:
            fail(fault)
        if process.returncode not in (0, -15):
            print(log.read_text(), file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dashboard", type=pathlib.Path)
    parser.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM", required=True)
    parser.add_argument("--prometheus", action="store_true")
    arguments = parser.parse_args()
    dashboard = json.loads(arguments.dashboard.read_text(encoding="utf-8"))
    errors = []

    check_panels(dashboard["panels"], errors.append)
    with running([arguments.daemon.resolve(), "--port", "0"], stdout=subprocess.PIPE) as daemon:
        address = daemon.stdout.readline().split()[-1]
        keep_busy(address)
        count = check_names(dashboard, get(f"{address}/metrics"), errors.append)
        if arguments.prometheus and not errors:
            try:
                check_with_prometheus(dashboard, address, errors.append)
            except NoExpression as error:
                errors.append(str(error))
    for error in errors:
        print(error, file=sys.stderr)
    done = f"{len(dashboard['panels'])} panels, {len(list(expressions(dashboard)))} expressions, {count} metrics"
    print(f"{len(errors)} errors" if errors else f"{arguments.dashboard.name} is right: {done}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
