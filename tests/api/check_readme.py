#!/usr/bin/env python3
"""Runs the commands and clients of README.md and the programs of lib/README.md. Each must print what the page says.

    check_readme.py README --daemon PROGRAM
    check_readme.py README --library ARCHIVE

A command is a block of shell with curl, and a block of JSON follows it. Its request is sent without curl.

A client is a block of Python or JavaScript, and a block of text follows it. A small server stands between the client and
the daemon, and the client gets its address. This server answers the first request with a 503 with Retry-After as HTML,
and the second with the same status and header and a problem document. It forwards the others. In two more runs it
answers all requests with 503, with and without Retry-After. The client must give up and print the detail; without the
header it must not send the request again. Without Node.js the client in
JavaScript is left out; `make test-browser` runs it, too. The section "Python first" is left out, because it needs packages from
PyPI; `make test-clients ARGS=readme` runs it.

A program is a block of C. The next block of text is what it prints. It is compiled without warnings and linked with the
static library.
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

ADDRESS = "http://127.0.0.1:8080"
RUN = {"python": [sys.executable, "-"], "js": ["node", "--input-type=module", "-"]}
COMPILE = [*shlex.split(os.environ.get("CC", "cc")), "-std=c17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Ilib/include"]
BUSY = {"title": "Service Unavailable", "status": 503, "detail": "too much work waits"}


class ForwardingServer(http.server.BaseHTTPRequestHandler):
    """Refuses the first `refusals` requests, and forwards the others to `daemon`."""

    daemon = ""
    refusals = 0
    seen = 0
    lasting = False  # a refusal has no Retry-After

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        ForwardingServer.seen += 1
        if ForwardingServer.seen <= ForwardingServer.refusals:
            html = ForwardingServer.seen == 1 and not ForwardingServer.lasting
            said = b"<html>busy</html>" if html else json.dumps(BUSY).encode()
            self.answer(503, "text/html" if html else "application/problem+json", said,
                        {} if ForwardingServer.lasting else {"Retry-After": "0"})
            return
        headers = {"Content-Type": self.headers["Content-Type"]}
        request = urllib.request.Request(ForwardingServer.daemon + self.path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                self.answer(response.status, response.headers["Content-Type"], response.read())
        except urllib.error.HTTPError as error:
            self.answer(error.code, error.headers["Content-Type"], error.read())

    def answer(self, status, kind, body, more=None):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def between(daemon):
    """Yields the address of a server between a client and the daemon."""
    command = [daemon, "--port", "0", "--layers", "server/models"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as process:
        try:
            ForwardingServer.daemon = process.stdout.readline().split()[-1]
            with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ForwardingServer) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                yield f"http://127.0.0.1:{server.server_port}"
                server.shutdown()
        finally:
            process.terminate()


def run(language, code, refusals, lasting=False):
    """Returns what the client prints on standard output and on standard error, and how many requests it sent."""
    ForwardingServer.refusals, ForwardingServer.seen, ForwardingServer.lasting = refusals, 0, lasting
    # Node.js 18 warns that its fetch is experimental.
    quiet = {**os.environ, "NODE_NO_WARNINGS": "1"}
    ended = subprocess.run(RUN[language], input=code, env=quiet, text=True, capture_output=True, timeout=60, check=False)
    return ended.stdout, ended.stderr, ForwardingServer.seen


def check(language, code, promised):
    """Returns what is wrong with a client, in words, or an empty text."""
    for refusals in (0, 2):
        printed, errors, seen = run(language, code, refusals)
        if printed != promised or errors:
            return f"after {refusals} refusals it printed {printed!r} and {errors!r}, not {promised!r}"
        if seen != refusals + 2:
            return f"it sent {seen} requests, not {refusals + 2}"
    for lasting, tries in ((False, 5), (True, 1)):
        _, errors, seen = run(language, code, 1000, lasting)
        if seen != tries or f"503 {BUSY['detail']}" not in errors:
            return f"with a service that stays busy it sent {seen} requests, not {tries}, and ended with {errors!r}"
    return ""


def check_command(command, promised, daemon):
    """Returns what is wrong with a curl command, in words, or an empty text."""
    words = shlex.split(command)
    body = words[words.index("-d") + 1]
    body = pathlib.Path(body[1:]).read_bytes() if body.startswith("@") else body.encode()
    request = urllib.request.Request(words[1].replace(ADDRESS, daemon), body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer = response.read().decode()
    return "" if answer == promised else f"{command!r} is answered {answer!r}, not {promised!r}"


def check_clients(text, daemon):
    """Returns the number of commands and clients, and what is wrong with them."""
    text = re.sub(r"^## Python first$.*?(?=^## )", "", text, flags=re.M | re.S)
    commands = re.findall(r"^```sh\n(curl (?:(?!^```).)*)^```\n\n```json\n(.*?)^```$", text, re.M | re.S)
    clients = re.findall(r"^```(python|js)\n((?:(?!^```).)*)^```\n\n```text\n(.*?)^```$", text, re.M | re.S)
    missing = set(RUN) - {language for language, _, _ in clients}
    failures = [f"there is no client in {language}" for language in sorted(missing)]
    failures += [] if commands else ["there is no curl command with an answer"]
    count = len(commands)
    with between(daemon) as address:
        failures += filter(None, (check_command(command, promised, ForwardingServer.daemon) for command, promised in commands))
        for language, code, promised in clients:
            if shutil.which(RUN[language][0]) is None:
                print(f"{RUN[language][0]} is not installed: the client in {language} is left out")
                continue
            count += 1
            if ADDRESS not in code:
                failures.append(f"the client in {language} does not ask {ADDRESS}")
                continue
            wrong = check(language, code.replace(ADDRESS, address), promised)
            failures += [f"the client in {language}: {wrong}"] if wrong else []
    return count, failures


def check_program(code, promised, library):
    """Returns what is wrong with a program of C, in words, or an empty text."""
    blas = subprocess.run(["pkg-config", "--libs", "openblas"], text=True, capture_output=True, check=True).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program")
        command = [*COMPILE, "-o", program, "-x", "c", "-", "-x", "none", str(library), *blas, "-lm"]
        compiled = subprocess.run(command, input=code, text=True, capture_output=True, timeout=60, check=False)
        if compiled.returncode != 0:
            return f"it does not compile:\n{compiled.stderr}"
        ended = subprocess.run([program], text=True, capture_output=True, timeout=60, check=False)
    if (ended.stdout, ended.stderr, ended.returncode) != (promised, "", 0):
        return f"it printed {ended.stdout!r} and {ended.stderr!r}, not {promised!r}, with status {ended.returncode}"
    return ""


def check_programs(text, library):
    """Returns the number of programs, and what is wrong with them."""
    blocks = re.findall(r"^```(c|text)\n(.*?)^```$", text, re.M | re.S)
    programs = [(code, after) for (kind, code), after in zip(blocks, [*blocks[1:], ("", "")]) if kind == "c"]
    failures = [] if programs else ["there is no program in C"]
    for number, (code, (kind, promised)) in enumerate(programs, 1):
        wrong = check_program(code, promised, library) if kind == "text" else "no text says what it prints"
        failures += [f"program {number}: {wrong}"] if wrong else []
    return len(programs), failures


def main():
    parser = argparse.ArgumentParser(description="Runs the clients and the programs of a document.")
    parser.add_argument("readme", type=pathlib.Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM", help="run the clients against this daemon")
    what.add_argument("--library", type=pathlib.Path, metavar="ARCHIVE", help="run the programs in C with this library")
    arguments = parser.parse_args()
    text = arguments.readme.read_text(encoding="utf-8")
    if arguments.daemon:
        kind, (count, failures) = "commands and clients", check_clients(text, arguments.daemon.resolve())
    else:
        kind, (count, failures) = "programs", check_programs(text, arguments.library.resolve())
    for failure in failures:
        print(f"{arguments.readme}: {failure}")
    if not failures:
        print(f"{count} {kind} of {arguments.readme} print what it says")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
