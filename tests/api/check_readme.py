#!/usr/bin/env python3
"""Runs the curl commands and the clients of README.md. Each must print exactly what README says it prints.

    check_readme.py README --daemon PROGRAM

A curl command is a block of shell that is followed by a block of JSON. Its request is sent to the daemon without curl.
A client is a block of Python or JavaScript that is followed by a block of text. Its address is replaced by that of a small
server between the client and the daemon. This server answers the first request with a 503 and HTML, the second with a 503
and a problem document, and passes on the others. In one more run it answers every request with a 503, and the client must
give up and print the detail.
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import urllib.error
import urllib.request

ADDRESS = "http://127.0.0.1:8080"
RUN = {"python": [sys.executable, "-"], "js": ["node", "--input-type=module", "-"]}
BUSY = {"title": "Service Unavailable", "status": 503, "detail": "too much work waits"}


class Between(http.server.BaseHTTPRequestHandler):
    """Refuses the first `refusals` requests and passes on the others to `daemon`."""

    daemon = ""
    refusals = 0
    seen = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Between.seen += 1
        if Between.seen <= Between.refusals:
            html = Between.seen == 1
            said = b"<html>busy</html>" if html else json.dumps(BUSY).encode()
            self.answer(503, "text/html" if html else "application/problem+json", said, {"Retry-After": "0"})
            return
        request = urllib.request.Request(Between.daemon + self.path, body, {"Content-Type": self.headers["Content-Type"]})
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
    """Gives the address of a server between a client and the daemon."""
    with subprocess.Popen([daemon, "--port", "0"], text=True, stdout=subprocess.PIPE) as process:
        try:
            Between.daemon = process.stdout.readline().split()[-1]
            with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                yield f"http://127.0.0.1:{server.server_port}"
                server.shutdown()
        finally:
            process.terminate()


def run(language, code, refusals):
    """Returns what the client prints on standard output and standard error, and how many requests it sent."""
    Between.refusals, Between.seen = refusals, 0
    # Node.js 18 warns that its fetch is experimental.
    quiet = {**os.environ, "NODE_NO_WARNINGS": "1"}
    ended = subprocess.run(RUN[language], input=code, env=quiet, text=True, capture_output=True, timeout=60, check=False)
    return ended.stdout, ended.stderr, Between.seen


def check(language, code, promised):
    """Returns what is wrong with a client, in words, or nothing."""
    for refusals in (0, 2):
        printed, errors, seen = run(language, code, refusals)
        if printed != promised or errors:
            return f"after {refusals} refusals it printed {printed!r} and {errors!r}, not {promised!r}"
        if seen != refusals + 2:
            return f"it sent {seen} requests, not {refusals + 2}"
    _, errors, seen = run(language, code, 1000)
    if seen != 5 or f"503 {BUSY['detail']}" not in errors:
        return f"with a service that stays busy it sent {seen} requests and ended with {errors!r}"
    return ""


def check_curl(command, promised, daemon):
    """Returns what is wrong with a curl command, in words, or nothing."""
    words = shlex.split(command)
    body = words[words.index("-d") + 1].encode()
    request = urllib.request.Request(words[1].replace(ADDRESS, daemon), body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer = response.read().decode()
    return "" if answer == promised else f"{command!r} is answered {answer!r}, not {promised!r}"


def main():
    parser = argparse.ArgumentParser(description="Runs the commands and clients of README.md against the daemon.")
    parser.add_argument("readme", type=pathlib.Path)
    parser.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM", required=True)
    arguments = parser.parse_args()
    text = arguments.readme.read_text(encoding="utf-8")
    clients = re.findall(r"^```(python|js)\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.M | re.S)
    curls = re.findall(r"^```sh\n(curl .*?)^```\n\n```json\n(.*?)^```$", text, re.M | re.S)
    missing = set(RUN) - {language for language, _, _ in clients}
    failures = [f"there is no client in {language}" for language in sorted(missing)]
    failures += [] if curls else ["there is no curl command with an answer"]
    with between(arguments.daemon.resolve()) as address:
        failures += filter(None, (check_curl(command, promised, Between.daemon) for command, promised in curls))
        for language, code, promised in clients:
            if ADDRESS not in code:
                failures.append(f"the client in {language} does not ask {ADDRESS}")
                continue
            wrong = check(language, code.replace(ADDRESS, address), promised)
            failures += [f"the client in {language}: {wrong}"] if wrong else []
    for failure in failures:
        print(f"{arguments.readme}: {failure}")
    if not failures:
        print(f"{len(curls)} commands and {len(clients)} clients of README print what it says")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
