#!/usr/bin/python3
"""Checks three rules about names, which CONTRIBUTING.md states, in the sources of lib, server and tests.

- A name of a static function occurs in one file of a folder. The files of lib/src/kernels are an exception, because each
  of them fills the same table.
- No two files of lib and server have the same name.
- The files of lib, and those of server, do not use each other's functions and data in a circle. A call
  through a pointer does not count.

It prints a line for each offence; the status is then 1. It only reads sources, so nothing needs to be built.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAME_TABLE = "lib/src/kernels"
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)\s*")
STATIC = re.compile(r"^static\s[^;={}()]*?\b(\w+)\s*\((?!\*)", re.MULTILINE)
# A definition begins in the first column, as clang-format writes it.
DEFINITION = re.compile(r"^(?!return\b)(\w[\w\s*]*?)\b(\w+)\((?:[^;{}()]|\([^()]*\))*\)\s*\{", re.MULTILINE)
DATA = re.compile(r"^(?!static\b|extern\b|typedef\b|return\b)(?:const\s+)?\w[\w\s]*[\s*](?:const\s+)?(\w+)(?:\[[^\]]*\])*\s*=", re.MULTILINE)
WORD = re.compile(r"(?<![.\w])(?<!->)[A-Za-z_]\w*")


def read_code(path):
    """Returns the text of a file without comments and literals. A function of a template has one name: the macros
    REAL and T and the endings for float and double are left out."""
    code = ATTRIBUTE.sub("", COMMENT_OR_TEXT.sub('""', path.read_text(encoding="utf-8")))
    return re.sub(r"_f(32|64)\b", "", re.sub(r"\b(?:REAL|T)\((\w+)\)", r"\1", code))


def repeated_statics(sources):
    files = collections.defaultdict(set)
    for path, code in sources.items():
        if str(path.parent) != SAME_TABLE:
            for name in STATIC.findall(code):
                files[path.parent, name].add(path.name)
    for (folder, name), names in sorted(files.items()):
        if len(names) > 1:
            yield f"{folder}: the static function {name} is in {', '.join(sorted(names))}"


def repeated_files(sources):
    folders = collections.defaultdict(list)
    for path in sources:
        if path.parts[0] != "tests":
            folders[path.name].append(str(path.parent))
    for name, places in sorted(folders.items()):
        if len(places) > 1:
            yield f"{name}: files of this name are in {', '.join(sorted(places))}"


def uses(files):
    """Returns {file: {file: names of functions and data of the second file that the first one uses}}."""
    owner, own = {}, {}
    for path, code in files.items():
        definitions = DEFINITION.findall(code)
        data = set(DATA.findall(code))
        own[path] = {name for _, name in definitions} | data
        owner |= {name: path for kind, name in definitions if "static" not in kind.split()} | dict.fromkeys(data, path)
    graph = {path: collections.defaultdict(set) for path in files}
    for path, code in files.items():
        for name in (set(WORD.findall(code)) & owner.keys()) - own[path]:
            graph[path][owner[name]].add(name)
    return graph


def shortest_circle(graph, start):
    """Returns the files of a circle through `start`, which is the first and the last; None if there is none."""
    before, queue = {}, [start]
    for path in queue:
        for other in sorted(graph[path]):
            if other == start:
                circle = [path]
                while circle[0] != start:
                    circle.insert(0, before[circle[0]])
                return circle + [start]
            if other not in before:
                before[other] = path
                queue.append(other)
    return None


def circles(sources):
    groups = collections.defaultdict(dict)
    for path, code in sources.items():
        if path.parts[0] != "tests" and path.suffix != ".h":
            groups[path.parts[0]][path] = code
    for files in groups.values():
        yield from circles_between(uses(files))


def circles_between(graph):
    reported = set()
    for start in sorted(graph):
        circle = shortest_circle(graph, start)
        if circle and frozenset(circle) not in reported:
            reported.add(frozenset(circle))
            yield "circle: " + "; ".join(f"{a} uses {sorted(graph[a][b])[0]} of {b.name}"
                                         for a, b in zip(circle, circle[1:]))


def main():
    paths = sorted(path for top in ("lib", "server", "tests") for path in (ROOT / top).rglob("*")
                   if path.suffix in (".c", ".h", ".inc", ".cc"))
    sources = {path.relative_to(ROOT): read_code(path) for path in paths}
    offences = [*repeated_statics(sources), *repeated_files(sources), *circles(sources)]
    for offence in offences:
        print(offence)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
