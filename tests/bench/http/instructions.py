"""instructions.py counts the instructions that one more request of the first notebook takes.

The daemon runs under callgrind, with one I/O thread and one worker, and a client sends equal requests
over one connection: first REQUESTS of them, then twice as many. The difference is what REQUESTS
requests take, in the program and in each library. Callgrind knows no AVX-512, so the numbers are
those of the AVX2 kernels, and it counts each step of a `rep stos`, with which memory is cleared.
"""

import collections
import re
import signal
import subprocess
from pathlib import Path

REQUESTS = 1000


def objects_of(path):
    """Returns the instructions of each object of a file of callgrind."""
    names, counts, name, called = {}, collections.Counter(), "", False
    for line in path.read_text(errors="replace").splitlines():
        if match := re.match(r"c?ob=\((\d+)\)(?: (.*))?$", line):
            names[match[1]] = match[2] or names[match[1]]
            name = names[match[1]] if line[0] == "o" else name
        elif line.startswith("calls="):
            called = True  # the next line has what the called function takes
        elif re.match(r"[-+*\d]\S* \d", line):
            counts[Path(name).name] += 0 if called else int(line.split()[1])
            called = False
    return counts


def count(command, environment, send, path, requests):
    command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={path}", *map(str, command)]
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)
    send(int(process.stdout.readline().rsplit(":", 1)[1]), requests)
    process.send_signal(signal.SIGTERM)
    process.wait()
    return objects_of(path)


def report(command, environment, send, scratch):
    """Prints a table. `send` sends so many requests to a port."""
    once, twice = (count(command, environment, send, scratch / "callgrind", n * REQUESTS) for n in (1, 2))
    each = {name: round((twice[name] - once[name]) / REQUESTS) for name in twice}
    print("| object | instructions for each request |\n|---|---|")
    for name, number in sorted(each.items(), key=lambda item: -item[1]):
        if number > 0:
            print(f"| {name} | {number} |")
    return each
