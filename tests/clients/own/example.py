#!/usr/bin/python3
"""example.py README LANGUAGE FILE COMMAND... writes the program in a README.md, the first block in this language, to a file, with
the address $ATTENTIOND_URL in it. It runs the command, which must print what the block of text behind the program says."""

import os
import pathlib
import re
import subprocess
import sys

ADDRESS = "http://127.0.0.1:8080"


def main():
    readme, language, file, *command = sys.argv[1:]
    text = pathlib.Path(readme).read_text(encoding="utf-8")
    found = re.search(rf"^```{language}\n((?:(?!^```).)*)^```\n\n```text\n(.*?)^```$", text, re.M | re.S)
    if found is None or ADDRESS not in found[1]:
        return f"{readme} has no program in {language} that asks {ADDRESS}"
    pathlib.Path(file).write_text(found[1].replace(ADDRESS, os.environ["ATTENTIOND_URL"]), encoding="utf-8")
    ended = subprocess.run(command, text=True, stdout=subprocess.PIPE, timeout=120, check=False)
    if ended.returncode or ended.stdout != found[2]:
        return f"{readme}: the program in {language} prints {ended.stdout!r}, not {found[2]!r}"
    return None


if __name__ == "__main__":
    sys.exit(main())
