#!/usr/bin/env python3
"""Holds the documents to the options of the daemon, and the daemon to the documents.

    check_options.py --daemon PROGRAM [--write]

- The table of options in server/README.md is what --help says; --write makes it anew. A default that depends on the
  machine is left out.
- The daemon has every flag and every variable that is named in README.md, server/README.md, openapi.yaml or a file of
  docker/, and accepts the variables that docker/ sets. check_documents.py gives it the options in commands.
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

TABLE = re.compile(r"^\| flag .*\n(?:\|.*\n)+", re.M)


def options_of_help(daemon):
    """Returns the flag, the meaning, the variable, the default and the values of each option."""
    text = subprocess.run([daemon, "--help"], text=True, capture_output=True, check=True).stdout
    return re.findall(r"^  (--\S+) +(.*)\n(?: {4,}(ATTENTIOND_\w+), default (.+?), (.+)\n)?", text, re.M)


def make_table(options):
    rows = ["| flag | environment | default | values | meaning |", "|---|---|---|---|---|"]
    for flag, meaning, variable, default, values in options:
        default = "" if "the default is" in meaning else default if default == "none" else f"`{default}`"
        if variable:
            rows.append(f"| `{flag}` | `{variable}` | {default} | " + values.replace("|", " or ") + f" | {meaning} |")
    return "\n".join(rows) + "\n"


def flags_named(path, text):
    """Yields the flags in those parts of a document that are about the daemon, not about other programs."""
    if path == OPENAPI:
        return re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
    named = re.findall(r"`(--[a-z][a-z-]*)", text)
    for started in re.findall(r"attentiond((?: --[a-z][a-z-]*(?: [^-\s`]\S*)?)+)|ARGS=\"([^\"]+)", text):
        named += re.findall(r"--[a-z][a-z-]*", " ".join(started))
    return named + re.findall(r"\"/attentiond\", \"(--[a-z-]+)", text)


def check_names(path, flags, variables):
    """Yields the flags and variables that a document names and the daemon does not have."""
    text = path.read_text(encoding="utf-8")
    yield from (f"{path}: there is no option {flag}" for flag in flags_named(path, text) if flag not in flags)
    for variable in re.findall(r"\bATTENTIOND_[A-Z_]+\b", text):
        if variable not in variables:
            yield f"{path}: there is no variable {variable}"


def check_values(daemon):
    """Yields the values that files of docker/ give to variables and the daemon refuses."""
    for path in DOCKER:
        for variable, value in re.findall(r'\b(ATTENTIOND_[A-Z_]+)=([^\s"$]+)', path.read_text(encoding="utf-8")):
            ended = subprocess.run([daemon, "--help"], env={**os.environ, variable: value}, text=True, capture_output=True, check=False)
            if ended.returncode != 0:
                yield f"{path}: {variable}={value}: {ended.stderr.strip()}"


def main():
    parser = argparse.ArgumentParser(description="Holds the documents to the options of the daemon.")
    parser.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM", required=True)
    parser.add_argument("--write", action="store_true", help="write the table of server/README.md")
    args = parser.parse_args()
    daemon = args.daemon.resolve()
    options = options_of_help(daemon)
    manual, table = MANUAL.read_text(encoding="utf-8"), make_table(options)
    if args.write:
        MANUAL.write_text(TABLE.sub(lambda _: table, manual), encoding="utf-8")
    failures = []
    if not args.write and TABLE.findall(manual) != [table]:
        failures.append(f"{MANUAL}: the table of options is not what --help says: {sys.argv[0]} --daemon {daemon} --write")
    for path in [README, MANUAL, OPENAPI, *DOCKER]:
        failures += check_names(path, {row[0] for row in options}, {row[2] for row in options})
    failures += check_values(daemon)
    for failure in failures:
        print(failure)
    if not failures:
        print(f"{len(options)} options are as the documents say")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
