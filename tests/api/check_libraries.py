#!/usr/bin/env python3
"""Checks each row of tests/clients/kernel/NAMES.md: what other libraries compute, and the request that computes the same here.
It needs no packages.

    check_libraries.py --daemon PROGRAM

A section of the page has the Python of a request and a table: the names there, a sentence, and the keys of the row, which take
the place of those of the request. A row with several pieces of code has several requests, and its last one says how their
results, output_1, lse_2 and so on, make the result of the library.
libraries.py computes the call of each row in the convention of the library. For each row:
- The results of the request in float64 agree with the computed ones, and the verdict on them is that rounding explains them.
- Without each one of the keys of the row, the answer differs or is an error. So each key is needed, and the check can fail.
- The names there, sent as keys, are keys here, too, or refused by an error that names a key of the row. One letter is no name.
"""

import argparse
import ast
import math
import pathlib
import random
import re
import sys
import urllib.error
import urllib.request
import json

import arrays
import libraries
from arrays import Array
from documents_run import ROOT, Daemon

PAGE = ROOT / "tests/clients/kernel/NAMES.md"
CLOSE, OTHER = 1e-10, 1e-6  # of the largest number of a result: float64 beside plain loops, and a key that is needed
FUNCTIONS = {name: getattr(arrays, name) for name in
             ("arange", "broadcast_to", "concatenate", "cumsum", "exp", "log", "sqrt")}


class Wrong(Exception):
    """What is wrong with a row, in words."""


def rows_of(page):
    """Yields the section of each row, its path, the keys of its request with their code, and its three columns."""
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        path = re.search(r"The path is `(/[a-z-]+)`", text)
        block = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S)
        request = keys_of(block[1].partition("=")[2].strip())
        for there, here, code in re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \|$", text, re.M):
            if (there, code) != ("there", "keys"):
                yield title, path[1] if path else "/attention", request, there, here, re.findall(r"`([^`]+)`", code)


def keys_of(code):
    """Returns the keys of a dict in Python, each with the code of its value."""
    value = ast.parse(code, mode="eval").body
    return {key.value: ast.unparse(item) for key, item in zip(value.keys, value.values)}


def plain(value):
    """Returns what JSON can hold."""
    if isinstance(value, Array):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def drawn(name):
    """Returns a function that draws arrays, always the same for a name."""
    chosen = random.Random(name)
    return lambda *shape: Array(shape, [chosen.uniform(-1.5, 1.5) for _ in range(math.prod(shape))])


def numbers_of(value):
    return [number for item in value for number in numbers_of(item)] if isinstance(value, list) else [-math.inf if value is None else value]


def difference(got, right):
    """Returns the largest difference of two nested lists, by the largest number."""
    got, right = numbers_of(got), numbers_of(right)
    if len(got) != len(right):
        return math.inf
    finite = [abs(number) for number in right if math.isfinite(number)]
    return max((0 if a == b else abs(a - b) for a, b in zip(got, right)), default=0) / max(finite, default=1)


class Check:
    """Sends the requests of rows, and counts them."""

    def __init__(self, address):
        self.address, self.sent, self.without, self.names = address, 0, 0, 0

    def ask(self, path, body):
        request = urllib.request.Request(self.address + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def send(self, path, codes, names, results):
        """Sends the request of a row, and returns its answer. Values are computed of the names."""
        body = {key: plain(eval(code, {**FUNCTIONS, **names})) for key, code in codes.items()}  # pylint: disable=eval-used
        returned = list(body.get("expected", results))
        compared = {"computed_in": "float32"} if "expected" in body else {}
        body |= {"dtype": "float64", "return": [*returned, *(["comparison"] if compared else [])], **compared}
        return body, *self.ask(path, body)

    def one(self, path, codes, added, names):
        """Checks a row with one request."""
        body, status, answer = self.send(path, codes, names, ())
        self.sent += 1
        if status != 200:
            raise Wrong(f"the status is {status}: {answer.get('detail')}")
        for name, right in body["expected"].items():
            off = difference(answer[name], right)
            if not off <= CLOSE:
                raise Wrong(f"{name} is off by {off:.3g} of its largest number")
        verdict = answer["comparison"]["verdict"]
        if verdict not in ("equal", "rounded"):
            raise Wrong(f"the verdict is {verdict}")
        for key in added - {"expected"}:
            self.without += 1
            rest = {name: code for name, code in codes.items() if name != key}
            if key in self.base:
                rest[key] = self.base[key]
            try:
                _, status, answer = self.send(path, rest, names, ())
            except (AssertionError, NameError):  # the array has another shape
                continue
            if status == 200 and all(difference(answer[name], right) <= OTHER for name, right in body["expected"].items()):
                raise Wrong(f"it does not need {key}")

    def several(self, path, codes, result, names):
        """Checks a row with several requests, of whose results the last piece of code makes that of the library."""
        right, _, formula = result.partition(" == ")
        made = {}
        for place, code in enumerate(codes, 1):
            wanted = [name.rpartition("_")[0] for name in re.findall(rf"\b[a-z]+_{place}\b", formula)]
            _, status, answer = self.send(path, code, names, wanted)
            self.sent += 1
            if status != 200:
                raise Wrong(f"the status of request {place} is {status}: {answer.get('detail')}")
            made |= {f"{name}_{place}": libraries.array(answer[name]) for name in wanted}
        value = eval(formula, {**FUNCTIONS, **names, **made})  # pylint: disable=eval-used
        off = difference(value.tolist(), names[right].tolist())
        if not off <= CLOSE:
            raise Wrong(f"{right} is off by {off:.3g} of its largest number")

    def hints(self, path, there, words):
        """Sends each name as a key: the service has it too, or says what it is, and names one of these words."""
        for name in re.findall(r"`(\w\w+)`", there):
            self.names += 1
            _, answer = self.ask(path, {"Q": [[1]], "K": [[1]], "V": [[1]], name: "?"})
            said = re.search(rf'unknown key "{name}"(.*)', answer.get("detail", ""), re.S)
            named = set(re.findall(r"\w+", said[1])) if said else {name}
            if not named & words:
                raise Wrong(f"the service says of {name} {said[0] if said else 'that it has it'!r}, and names none of {sorted(words)}")

    def row(self, title, path, request, there, here, codes):
        """Checks a row."""
        function = libraries.CALLS.get(title, {}).get(there)
        if not function:
            raise Wrong("libraries.py does not compute it")
        names, self.base = function(drawn(f"{title} {there}")), request
        parts = [{} if code == "request" else keys_of(f"{{{code}}}") for code in codes if "==" not in code.partition('"')[0]]
        if len(parts) == len(codes) == 1:
            self.one(path, {**request, **parts[0]}, set(parts[0]), names)
        else:
            alone = {key: code for key, code in request.items() if key != "expected"}
            self.several(path, [{**alone, **part} for part in parts], codes[-1], names)
        added = {key for part in parts for key in part} or set(request)
        results = set(keys_of({**request, **parts[0]}.get("expected", "{}"))) | {"return"} | set(re.findall(r"([a-z]+)_\d", codes[-1]))
        self.hints(path, there, added | results | set(re.findall(r"`(\w+)`", here)))


def main():
    parser = argparse.ArgumentParser(description="Checks the names of other libraries and what they are here.")
    parser.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM", required=True)
    daemon = Daemon(parser.parse_args().daemon.absolute(), [], ROOT)
    failures, rows = [], list(rows_of(PAGE.read_text(encoding="utf-8")))
    check = Check(f"http://127.0.0.1:{daemon.free}")
    try:
        for row in rows:
            try:
                check.row(*row)
            except (Wrong, AssertionError, NameError, SyntaxError, TypeError) as error:
                failures.append(f"NAMES.md: {row[0]}: {row[3]}: {error}")
    finally:
        wrong = daemon.close()
    failures += [wrong] if wrong else []
    known = {(title, there) for title, calls in libraries.CALLS.items() for there in calls}
    failures += [f"NAMES.md has no row {there} in {title}" for title, there in known - {(row[0], row[3]) for row in rows}]
    print("\n".join(failures) if failures else
          f"{len(rows)} rows of {len(libraries.CALLS)} sections: {check.sent} requests have the results of the libraries, "
          f"{check.without} without a key have others, and {check.names} names have their hints")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
