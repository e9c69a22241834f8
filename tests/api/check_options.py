#!/usr/bin/env python3
"""Holds the documents to the options of the daemon, and the daemon to the documents.

    check_options.py --daemon PROGRAM

- The table of options in server/README.md has the rows of --help: each flag, its variable and its default, in the
  same order.
- The daemon has every flag and every variable that is named in README.md, server/README.md, openapi.yaml or a file of
  docker/. It accepts the options in the commands of the documents, and the variables that the image sets.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

README = pathlib.Path("README.md")
MANUAL = pathlib.Path("server/README.md")
OPENAPI = pathlib.Path("openapi.yaml")
DOCKER = sorted(path for path in pathlib.Path("docker").rglob("*") if path.is_file() and path.suffix != ".json")

# The manual gives these defaults in words, because they depend on the machine or are not values.
CORES = os.sysconf("SC_NPROCESSORS_ONLN")
IN_WORDS = {
    "one a core": str(min(CORES, 64)),
    "one a core, at most 4": str(min(CORES, 4)),
    "standard error": "none",
    "none": "none",
}


def options_of_help(daemon):
    """Returns each flag with its variable and default, or with None and None if it takes no value."""
    text = subprocess.run([daemon, "--help"], text=True, capture_output=True, check=True).stdout
    rows = re.findall(r"^  (--\S+) .*\n(?: {4,}(ATTENTIOND_\w+), default (.+?), )?", text, re.M)
    return {flag: (variable or None, default or None) for flag, variable, default in rows}


def options_of_manual(text):
    rows = re.findall(r"^\| `(--[a-z-]+)` \| `(\w+)` \| (.+?) \|", text, re.M)
    return {flag: (variable, default) for flag, variable, default in rows}


def is_default(told, default):
    """The manual quotes values, and it may write a number in another way."""
    if not told.startswith("`"):
        return IN_WORDS.get(told) == default
    told = told.strip("`")
    try:
        return float(told) == float(default)
    except ValueError:
        return told == default


def check_table(table, options):
    """Yields what is wrong with the table of the manual, in words."""
    valued = {flag: row for flag, row in options.items() if row[0] is not None}
    if list(table) != list(valued):
        yield f"{MANUAL}: the table of options has {' '.join(table)}, but --help has {' '.join(valued)}"
    for flag, (variable, told) in table.items():
        known, default = valued.get(flag, (variable, told))
        if variable != known:
            yield f"{MANUAL}: {flag} has the variable {variable}, but in --help it is {known}"
        if flag in valued and not is_default(told, default):
            yield f"{MANUAL}: {flag} has the default {told}, but in --help it is {default}"


def flags_named(path, text):
    """Yields the flags in those parts of a document that are about the daemon, not about other programs."""
    if path == OPENAPI:
        return re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
    named = re.findall(r"`(--[a-z][a-z-]*)", text)
    for started in re.findall(r"attentiond((?: --[a-z][a-z-]*(?: [^-\s`]\S*)?)+)|ARGS=\"([^\"]+)", text):
        named += re.findall(r"--[a-z][a-z-]*", " ".join(started))
    return named + re.findall(r"\"/attentiond\", \"(--[a-z-]+)", text)


def check_names(path, options):
    """Yields the flags and variables that a document names and the daemon does not have."""
    text = path.read_text(encoding="utf-8")
    variables = {variable for variable, _ in options.values()}
    yield from (f"{path}: there is no option {flag}" for flag in flags_named(path, text) if flag not in options)
    for variable in re.findall(r"\bATTENTIOND_[A-Z_]+\b", text):
        if variable not in variables:
            yield f"{path}: there is no variable {variable}"


def check_values(daemon):
    """Yields the values that the documents give to options and the daemon refuses."""
    starts = []
    for path in (README, MANUAL):
        text = path.read_text(encoding="utf-8")
        started = re.findall(r'ARGS="([^"]+)"', text) + re.findall(r"build/attentiond( --.+)", text)
        starts += [(path, arguments.split(), {}) for arguments in started]
    for path in DOCKER:
        named = re.findall(r'\b(ATTENTIOND_[A-Z_]+)=([^\s"$]+)', path.read_text(encoding="utf-8"))
        starts += [(path, [], {variable: value}) for variable, value in named]
    for path, arguments, variables in starts:
        ended = subprocess.run([daemon, *arguments, "--help"], env={**os.environ, **variables}, text=True,
                               capture_output=True, check=False)
        if ended.returncode != 0:
            yield f"{path}: {' '.join(arguments)}{variables or ''}: {ended.stderr.strip()}"


def main():
    parser = argparse.ArgumentParser(description="Holds the documents to the options of the daemon.")
    parser.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM", required=True)
    daemon = parser.parse_args().daemon.resolve()
    options = options_of_help(daemon)
    table = options_of_manual(MANUAL.read_text(encoding="utf-8"))
    failures = list(check_table(table, options))
    for path in [README, MANUAL, OPENAPI, *DOCKER]:
        failures += check_names(path, options)
    failures += check_values(daemon)
    for failure in failures:
        print(failure)
    if not failures:
        print(f"{len(table)} options are as the documents say")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
