#!/usr/bin/env python3
"""house.py prints what each file of lib/ and server/ owns: the first sentence of its head, by folder.

A head begins with the name of its file. A file whose head says "see NAME" is left out, because NAME stands beside it.
"""

import pathlib
import re

KINDS = {".c", ".cc", ".css", ".h", ".inc", ".js", ".S", ".sh"}


def sentence(path):
    """Returns the first sentence of the head of a file without the file's name, or None."""
    text = re.sub(r"\s*\n(?: ?\*|//|#)?\s*", " ", path.read_text(encoding="utf-8")[:2000])
    head = re.search(re.escape(path.name) + r"(?: [A-Z]+)?:?(?: -)? (.+?)(?:[.;](?: |$)| ?\*/)", text[:600] + " ")
    return head and head[1]


def main():
    folder = None
    files = [path for room in ("lib", "server") for path in pathlib.Path(room).rglob("*") if path.suffix in KINDS]
    for path in sorted(files, key=lambda path: (path.parent, path.name)):
        owns = sentence(path)
        if owns is None or not re.match(r"see \w+\.\w+", owns):
            if path.parent != folder:
                folder = path.parent
                print(f"\n{folder}")
            print(f"  {path.name:24} {owns or 'HAS NO HEAD'}")


if __name__ == "__main__":
    main()
