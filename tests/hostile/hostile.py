"""The daemon, the load generator and the checks of the hostile tests.

A check prints "promise N: what: figure (target)". A test ends with `finish`, and its status is 1 if a check failed. Some
targets depend on the speed of the machine and on its other work. If such a target is missed, the line says MISSED, and
the check fails only with STRICT=yes. The daemon has all cores but the last one, and the generator has the last one.
Otherwise each would measure the other.
"""
import atexit
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

OUT = os.path.abspath(os.environ.get("HOSTILE_BUILD", "build/release"))
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECONDS = float(os.environ.get("SECONDS_EACH") or "3")
STRICT = os.environ.get("STRICT") == "yes"
CORES = sorted(os.sched_getaffinity(0))
DAEMON_CORES = CORES[:-1] or CORES
LOAD_CORES = CORES[-1:]
FOLDER = tempfile.mkdtemp(prefix="hostile-")
NOTEBOOK = os.path.join(TESTS, "notebooks", "000-attention.request.json")
failures = 0
running = []


@atexit.register
def clean():
    for process in running:
        if process.poll() is None:
            process.kill()
    shutil.rmtree(FOLDER)


def check(promise, what, figure, target, met, in_time=True):
    """Prints one line. `figure` and `target` are for the reader. `met` decides on any machine, `in_time` with STRICT=yes."""
    global failures
    failed = not met or (STRICT and not in_time)
    failures += failed
    verdict = "  FAILED" if failed else "" if in_time else "  MISSED"
    print(f"promise {promise}: {what}: {figure} ({target}){verdict}", flush=True)


def finish():
    sys.exit(failures > 0)


def environment():
    """Returns the environment of a daemon that is started by hand, without the presets of a development machine."""
    return {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}


def allow_files(count):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = hard == resource.RLIM_INFINITY or hard >= count
    resource.setrlimit(resource.RLIMIT_NOFILE, (count if enough else hard, hard))
    return count if enough else hard


class Daemon:
    def __init__(self, *options, files=None, cores=None, prefix=()):
        self.log = open(os.path.join(FOLDER, "daemon.log"), "ab")

        def prepare():
            os.sched_setaffinity(0, cores or DAEMON_CORES)
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        count = str(len(cores or DAEMON_CORES))
        command = [*prefix, os.path.join(OUT, "attentiond"), "--port", "0", "--io-threads", count, "--workers", count]
        self.process = subprocess.Popen(
            [*command, *map(str, options)], stdout=subprocess.PIPE, stderr=self.log, env=environment(), preexec_fn=prepare)
        running.append(self.process)
        line = self.process.stdout.readline().decode()
        self.port = int(re.search(r":(\d+)$", line.strip()).group(1))
        self.pid = self.process.pid

    def get(self, path, timeout=10):
        """Sends a request on a connection of its own. Returns the status and the body."""
        return self.ask(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path.encode(), timeout)

    def post(self, path, body, timeout=60):
        return self.ask(request(path, body, "Connection: close\r\n"), timeout)

    def ask(self, message, timeout=10):
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            connection.sendall(message)
            answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        body = join_chunks(body) if b"\r\nTransfer-Encoding: chunked" in head else body
        return (int(head.split(b" ")[1]) if head else 0), body

    def metric(self, name):
        text = self.get("/metrics")[1].decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    def rss(self, key="VmRSS"):
        """Returns the resident memory in bytes, or with "VmHWM" its peak so far."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(key)) * 1024

    def files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu(self):
        return cpu_of(self.pid)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=30):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def stop(self):
        self.signal(signal.SIGTERM)
        status = self.wait()
        if status is None:
            self.process.kill()
        self.process.stdout.close()
        self.log.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()


def cpu_of(pid):
    """Returns the seconds of CPU that a process has used so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def join_chunks(text):
    """Returns the body of these chunks."""
    body, at = [], 0
    while at < len(text):
        line = text.index(b"\r\n", at) + 2
        size = int(text[at:line], 16)
        body.append(text[line:line + size])
        at = line + size + 2 if size else len(text)
    return b"".join(body)


def request(path, body, headers=""):
    return f"POST {path} HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def start_load(daemon, path, *options, cores=None):
    command = [os.path.join(OUT, "load"), "127.0.0.1", str(daemon.port), path, *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE,
                               preexec_fn=lambda: os.sched_setaffinity(0, cores or LOAD_CORES))
    running.append(process)
    return process


def end_load(process):
    text = process.communicate()[0]
    if process.returncode != 0:
        sys.exit("the load generator failed")
    return json.loads(text)


def load(daemon, path, *options):
    return end_load(start_load(daemon, path, *options))


def write(name, body):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as file:
        file.write(body)
    return path


def matrix(rows, columns, heads=0):
    """Returns small numbers as JSON, always the same ones."""
    def plane(h):
        return [[(i * 31 + j * 17 + h * 7) % 10 for j in range(columns)] for i in range(rows)]
    return plane(0) if heads == 0 else [plane(h) for h in range(heads)]


def body(**call):
    return json.dumps(call, separators=(",", ":")).encode()


# The time of the workers decides the rate R of this request. It has 2 x 2048 x 2048 x 8 multiply-adds and only 32 KB of JSON.
def standard_body():
    return body(X=matrix(2048, 8), **{"return": ["lse"]})


class Probe(threading.Thread):
    """Asks /health/live ten times in a second on one connection, as a supervisor would."""

    def __init__(self, daemon):
        super().__init__()
        self.daemon_port, self.times, self.bad, self.reopened = daemon.port, [], 0, -1
        self.ending = threading.Event()

    def run(self):
        connection = None
        while not self.ending.wait(0.1):
            begun = time.monotonic()
            try:
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", self.daemon_port), 5)
                    self.reopened += 1
                connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
                if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                    raise OSError("no 200")
                self.times.append(time.monotonic() - begun)
            except OSError:
                self.bad += 1
                connection = None
        if connection:
            connection.close()

    def p99(self):
        """Returns the p99 in milliseconds."""
        ordered = sorted(self.times) or [float("inf")]
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000


@contextlib.contextmanager
def healthy(daemon, during):
    """Checks promise 5: /health/live is answered meanwhile."""
    probe = Probe(daemon)
    probe.start()
    try:
        yield
    finally:
        probe.ending.set()
        probe.join()
    good = probe.bad == 0 and probe.reopened == 0
    check(5, f"/health/live, {during}", f"{len(probe.times)} times 200, {probe.bad} not, p99 {probe.p99():.1f} ms",
          "always 200 on one connection, p99 <= 50 ms", good, probe.p99() <= 50)
