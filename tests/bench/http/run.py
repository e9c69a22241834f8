"""run.py measures attentiond over HTTP beside a bare libmicrohttpd, FastAPI and Node.js.

wrk measures the requests per second. Each server has its turn alone for some seconds, then the next
server, for some rounds. A ratio is the median of the rounds' ratios. An open loop (build/.../load)
measures latencies at a share of each server's own rate. Prints a table and writes OUT, as JSON.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import binary
import capacity
import instructions

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MIB = 1 << 20
TOLERANCE = 1e-5
ROWS, COLUMNS = 512, 64
HUGE_HEADS, HUGE_ROWS = 8, 8192
END = b"0\r\n\r\n"  # the last bytes of an answer in chunks
CONNECTIONS = {"notebook": 32, "matrices": 8, "binary": 8}
SHARES = (0.5, 0.8)  # shares of a server's rate at which its latencies are measured
SMALL_RATE = 500  # small requests per second beside the huge one
PEERS = {"declared": "FastAPI, declared model, orjson, NumPy", "raw": "FastAPI, raw body, orjson, NumPy",
         "node": "Node.js, onnxruntime-node"}  # fmt: skip


# ----------------------------------------------------------------------------------------- servers


def pin(cores):
    return ["taskset", "-c", ",".join(map(str, cores))]


class Server:
    """A program that listens on `port`. All of its processes are a group of their own."""

    def __init__(self, command, environment, cores, port=None):
        command = [*pin(cores), *map(str, command)]
        self.process = subprocess.Popen(
            command, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE if port is None else subprocess.DEVNULL,
        )  # fmt: skip
        self.port = port
        if port is None:  # the server takes a free port and prints it
            line = self.process.stdout.readline()
            if ":" not in line:
                sys.exit(f"{' '.join(command)} does not start")
            self.port = int(line.rsplit(":", 1)[1])

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def await_port(self):
        for _ in range(600):
            with contextlib.suppress(OSError), self.connect():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"{' '.join(self.process.args)} does not start")

    def processes(self):
        """Yields the folders in /proc of all processes of the server."""
        waiting = [self.process.pid]
        while waiting:
            folder = Path(f"/proc/{waiting.pop()}")
            waiting += map(int, (folder / "task" / folder.name / "children").read_text().split())
            yield folder

    def memory(self, field):
        """Returns the memory in bytes: VmRSS is the present one, VmHWM the peak so far."""
        found = (re.search(rf"{field}:\s+(\d+) kB", (folder / "status").read_text())
                 for folder in self.processes())  # fmt: skip
        return sum(int(match[1]) * 1024 for match in found)

    def cpu(self):
        """Returns the seconds of CPU that the server has used so far."""
        stats = ((folder / "stat").read_text().rsplit(")", 1)[1] for folder in self.processes())
        ticks = sum(sum(map(int, stat.split()[11:13])) for stat in stats)
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def start_servers(options, stack, environment):
    """Returns {name: server} without the echo, which needs the daemon's answer first."""
    count, servers = str(options.threads), {}

    def start(name, command, port=None):
        servers[name] = Server(command, environment, options.cores, port)
        stack.callback(servers[name].end)

    start("attentiond", daemon_command(options))
    for app in ("declared", "raw"):
        port = free_port()
        start(app, [
            options.python, "-m", "uvicorn", f"fastapi_server:{app}", "--app-dir", HERE / "peers",
            "--port", port, "--workers", count, "--loop", "uvloop", "--http", "httptools",
            "--no-access-log", "--log-level", "warning",
        ], port)  # fmt: skip
    port = free_port()
    start("kserve", [options.kserve, HERE / "peers/kserve_server.py", port, count], port)
    port = free_port()
    start("node", ["node", HERE / "peers/node_server.js", port, count,
                   options.node / "attention.onnx"], port)  # fmt: skip
    for server in servers.values():
        server.await_port()
    time.sleep(3)  # their workers may still be loading
    return servers


def daemon_command(options):
    return [options.folder / "attentiond", "--port", "0", "--io-threads", options.threads,
            "--workers", options.threads]  # fmt: skip


# ---------------------------------------------------------------------------------------- requests


def request_of(body):
    head = (
        "POST /attention HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def exchange(connection, request):
    """Returns status, head and body of the answer. Python's own client would take too much time."""
    connection.sendall(request)
    stream = bytearray()
    while (end := stream.find(b"\r\n\r\n")) < 0:
        stream += receive(connection)
    head, start = stream[:end].decode("latin-1"), end + 4
    length = re.search(r"(?i)^content-length: *(\d+)", head, re.MULTILINE)
    if length:
        size = start + int(length[1])
        while len(stream) < size:
            stream += receive(connection)
        body = stream[start:]
    else:
        body = bytearray()
        while True:  # chunks
            while (end := stream.find(b"\r\n", start)) < 0:
                stream += receive(connection)
            size = int(stream[start:end], 16)
            start = end + 2
            while len(stream) < start + size + 2:
                stream += receive(connection)
            body += stream[start : start + size]
            del stream[: start + size + 2]
            start = 0
            if size == 0:
                break
    return int(head.split()[1]), head, body


def receive(connection):
    piece = connection.recv(1 << 20)
    if not piece:
        sys.exit("a server closed the connection before the end of its answer")
    return piece


def ask(server, body):
    with server.connect() as connection:
        status, _, answer = exchange(connection, request_of(body))
    if status != 200:
        sys.exit(f"status {status}: {answer[:300]!r}")
    return bytes(answer)


def draw_matrix(rows, columns):
    """Draws float32 numbers, which are written with all digits that Python and JavaScript print."""
    single = struct.Struct("f")
    return [[single.unpack(single.pack(random.gauss(0, 1)))[0] for _ in range(columns)]
            for _ in range(rows)]  # fmt: skip


def make_bodies():
    random.seed(1)
    notebook = json.loads((ROOT / "tests/notebooks/000-attention.request.json").read_text())
    matrices = {name: draw_matrix(ROWS, COLUMNS) for name in ("Q", "K", "V")}
    matrices["return"] = ["output"]
    return {"notebook": json.dumps(notebook).encode(), "matrices": json.dumps(matrices).encode()}


def huge_body():
    """Makes a request with X (8,8192,64) for Q, K and V. Its numbers are short; it has some 20 MB."""
    row = json.dumps([(j * 37 % 17 - 8) / 8 for j in range(COLUMNS)])
    other = json.dumps([(j * 29 % 19 - 9) / 8 for j in range(COLUMNS)])
    head = "[" + ", ".join(row if i % 3 else other for i in range(HUGE_ROWS)) + "]"
    return ('{"X": [' + ", ".join([head] * HUGE_HEADS) + '], "return": ["output"]}').encode()


def difference(a, b):
    if isinstance(a, list):
        if len(a) != len(b):
            return float("inf")
        return max(map(difference, a, b))
    return abs(a - b)


def compare_answers(servers, bodies):
    """Ends the program unless all peers answer as the daemon does."""
    for kind, body in bodies.items():
        ours = json.loads(ask(servers["attentiond"], body))
        for name in PEERS:
            theirs = json.loads(ask(servers[name], body))
            off = [difference(ours[key], theirs[key]) for key in ours]
            if not max(off) <= TOLERANCE or ours.keys() != theirs.keys():
                sys.exit(f"{kind}: {name} answers something else (off by {max(off):.3g})")


# -------------------------------------------------------------------------------------------- load


def closed_loop(options, server, kind, seconds):
    """Sends as many requests as it can. Returns requests per second, and seconds of CPU for each."""
    head = options.heads.get(kind, "")  # bytes of JSON before binary tensors
    environment = os.environ | {"BODY": str(options.bodies[kind]), "HEAD": str(head)}
    path = binary.PATH if head else "/attention"
    command = [*pin(options.load_cores), "wrk", "-t2", "--timeout=60s", f"-c{CONNECTIONS[kind]}",
               f"-d{seconds}s", "-s", str(HERE / "post.lua"),
               f"http://127.0.0.1:{server.port}{path}"]  # fmt: skip
    before = server.cpu()
    said = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    used = server.cpu() - before
    result = re.search(r"^result (\d+) (\d+) (\d+)$", said.stdout, re.MULTILINE)
    requests, microseconds, errors = map(int, result.groups())
    if errors or not requests:
        sys.exit(f"{kind}: {errors} of {requests} requests failed\n{said.stdout}")
    return requests / microseconds * 1e6, used / requests


def take_turns(options, servers, kinds):
    """Sends requests of the kind kinds[name] to each server. Returns {name: [figure of each round]}
    for requests per second, and for seconds of CPU for a request. One round before the first is not
    counted."""
    rates, costs = {name: [] for name in kinds}, {name: [] for name in kinds}
    for turn in range(options.rounds + 1):
        for name, kind in kinds.items():
            rate, cost = closed_loop(options, servers[name], kind, options.seconds if turn else 1)
            if turn:
                rates[name].append(rate)
                costs[name].append(cost)
    return rates, costs


def ratio(values, name, other):
    return statistics.median(a / b for a, b in zip(values[name], values[other], strict=True))


# ------------------------------------------------------------------------------------- one by one


def work_of(server):
    """Returns the ms that all requests so far have taken to decode, compute and encode."""
    sums = r'^attentiond_stage_duration_seconds_sum{stage="(?:decode|compute|encode)"} (\S+)'
    return sum(map(float, re.findall(sums, capacity.get(server, "/metrics"), re.MULTILINE))) * 1e3


def one_by_one(server, body, count):
    """Sends requests one after another. Returns the median of the wall clock in ms."""
    request, view = request_of(body), memoryview(bytearray(8 * MIB))
    walls = []
    with server.connect() as connection:
        for _ in range(count):
            start, size, wanted = time.perf_counter(), 0, 1
            connection.sendall(request)
            while size < wanted and view[max(0, size - 5) : size] != END:
                # The client's own time counts, so the memory is there already.
                size += connection.recv_into(view[size:]) or sys.exit("no answer")
                if wanted == 1:
                    head = bytes(view[:1024]).split(b"\r\n\r\n")[0].decode("latin-1")
                    length = re.search(r"(?i)^content-length: *(\d+)", head, re.MULTILINE)
                    wanted = len(head) + 4 + int(length[1]) if length else len(view)
            walls.append((time.perf_counter() - start) * 1e3)
    return statistics.median(walls)


def start_to_ready(options, environment, count):
    """Returns the seconds from exec to the first 200 of /health/ready."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        server = Server(daemon_command(options), environment, options.cores)
        with server.connect() as connection:
            request = b"GET /health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            if exchange(connection, request)[0] != 200:
                sys.exit("attentiond listens, but is not ready")
        times.append(time.perf_counter() - start)
        server.end()
    return statistics.median(times)


# ---------------------------------------------------------------------------------------- open loop


def open_loop(options, server, kind, rate, seconds):
    """Returns latencies in ms from the moment when a request was due. `rate` are due each second."""
    command = [*pin(options.load_cores), str(options.folder / "load"), "127.0.0.1",
               str(server.port), "/attention", "--body", str(options.bodies[kind]),
               "--rate", f"{rate:.3f}", "--seconds", str(seconds),
               "--connections", str(2 * CONNECTIONS[kind])]  # fmt: skip
    said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    latency = said["latency_200"]
    if set(said["statuses"]) != {"200"} or not latency["count"]:
        sys.exit(f"{kind}: not all requests succeeded: {said}")
    if said["unsent"] > latency["count"] / 100:
        print(f"{kind}: {said['unsent']} of the requests due were not sent", file=sys.stderr)
    return {"rate": rate, "count": latency["count"], "unsent": said["unsent"]} | {
        name: latency[name] / 1e3 for name in ("p50", "p99", "p99.9")
    }


def beside_huge(options, server):
    """Returns latencies of small requests, alone and while a huge job always runs."""
    body, stop, walls = request_of(huge_body()), threading.Event(), []

    def send_huge():
        while not stop.is_set():
            start = time.perf_counter()
            with server.connect() as connection:
                status, _, _ = exchange(connection, body)
            if status != 200:
                sys.exit(f"the huge job got a {status}")
            walls.append(time.perf_counter() - start)

    seconds = 2 * options.seconds
    unloaded = open_loop(options, server, "notebook", SMALL_RATE, seconds)
    sender = threading.Thread(target=send_huge)
    sender.start()
    time.sleep(0.5)
    loaded = open_loop(options, server, "notebook", SMALL_RATE, seconds)
    stop.set()
    sender.join()
    return {"unloaded": unloaded, "loaded": loaded, "huge_seconds": statistics.median(walls)}


# ------------------------------------------------------------------------------------------- table


class Table:
    """The report. A row has the name of a figure, our figure, theirs, the ratio, and the target."""

    def __init__(self):
        self.rows = []
        print("| what | attentiond | beside | ratio | to reach | |\n|---|---|---|---|---|---|")

    def add(self, what, ours, theirs="", value=None, reach=None, at_most=False, is_ratio=True):
        good = reach is None or (value <= reach if at_most else value >= reach)
        sign = "" if reach is None else ("≤ " if at_most else "≥ ") + f"{reach:g}"
        shown = f"{value:.2f}" if value is not None and is_ratio else ""
        verdict = "" if reach is None else "reached" if good else "**not reached**"
        print(f"| {what} | {ours} | {theirs} | {shown} | {sign} | {verdict} |", flush=True)
        self.rows.append({"what": what, "ours": ours, "theirs": theirs, "ratio": value,
                          "reach": reach, "at_most": at_most, "reached": good})  # fmt: skip


def report_rates(table, kind, rates, costs, reaches, texts):
    ours, cost = (statistics.median(values["attentiond"]) for values in (rates, costs))
    for name, reach in reaches.items():
        theirs = statistics.median(rates[name])
        table.add(f"{texts[kind]}, requests/s: {texts[name]}", f"{ours:.0f}", f"{theirs:.0f}",
                  ratio(rates, "attentiond", name), reach)  # fmt: skip
    for name in reaches:
        table.add(f"{texts[kind]}, µs of a core for each: {texts[name]}", f"{cost * 1e6:.1f}",
                  f"{statistics.median(costs[name]) * 1e6:.1f}",
                  ratio(costs, name, "attentiond"))  # fmt: skip


def run(options, stack, environment):
    texts = PEERS | {"echo": "bare libmicrohttpd", "notebook": "first notebook",
                     "matrices": f"Q, K, V {ROWS}×{COLUMNS}"}  # fmt: skip
    servers = start_servers(options, stack, environment)
    idle = {name: server.memory("VmRSS") for name, server in servers.items()}
    bodies = make_bodies()
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    options.bodies = {kind: scratch / kind for kind in bodies}
    for kind, body in bodies.items():
        options.bodies[kind].write_bytes(body)
    compare_answers(servers, bodies)
    for kind in bodies:
        (scratch / f"{kind}-answer").write_bytes(ask(servers["attentiond"], bodies[kind]))

    def start_echo(answer):
        command = [options.folder / "echo", options.threads, answer]
        server = Server(command, environment, options.cores)
        stack.callback(server.end)
        return server

    servers["echo"] = start_echo(scratch / "notebook-answer")
    table = Table()
    options.heads = {}
    tensors = binary.report(options, table, servers, scratch, start_echo, take_turns, ratio, TOLERANCE)
    if options.binary:
        return {"binary": tensors, "table": table.rows}
    rates, costs = {}, {}
    rates["matrices"], costs["matrices"] = take_turns(
        options, servers, dict.fromkeys(["attentiond", *PEERS], "matrices")
    )
    peak = {name: servers[name].memory("VmHWM") for name in idle}
    rates["notebook"], costs["notebook"] = take_turns(
        options, servers, dict.fromkeys(["attentiond", "echo", *PEERS], "notebook")
    )
    reaches = {"notebook": {"echo": 0.6, "declared": None, "raw": None, "node": 1.6},
               "matrices": {"declared": 10, "raw": None, "node": 4}}  # fmt: skip
    for kind, wanted in reaches.items():
        report_rates(table, kind, rates[kind], costs[kind], wanted, texts)

    before = work_of(servers["attentiond"])
    wall = one_by_one(servers["attentiond"], bodies["matrices"], options.singles)
    work = (work_of(servers["attentiond"]) - before) / options.singles
    bare = one_by_one(start_echo(scratch / "matrices-answer"), bodies["matrices"], options.singles)
    table.add(f"{texts['matrices']}, one by one, ms: bare libmicrohttpd, and decode + compute + encode",
              f"{wall:.2f}", f"{bare:.2f} + {work:.2f}", wall / (bare + work), 1.15, at_most=True)  # fmt: skip

    latencies = report_latencies(options, table, servers, rates, texts)
    huge = beside_huge(options, servers["attentiond"])
    before, after = huge["unloaded"]["p99"], huge["loaded"]["p99"]
    table.add("first notebook while a huge job runs, p99 in ms: alone", f"{after:.2f}",
              f"{before:.2f}", after / before, 5, at_most=True)  # fmt: skip
    ready = start_to_ready(options, environment, options.singles // 5)
    table.add("start to ready, ms", f"{ready * 1e3:.0f}", "", ready * 1e3, 100, at_most=True,
              is_ratio=False)  # fmt: skip
    report_memory(table, idle, peak)
    return {"binary": tensors, "rates": rates, "core_seconds": costs, "latencies": latencies, "huge": huge,
            "idle_bytes": idle, "peak_bytes": peak, "table": table.rows}  # fmt: skip


def report_latencies(options, table, servers, rates, texts):
    found = {}
    for kind, turns in rates.items():
        for name in ("attentiond", *PEERS):
            for share in SHARES:
                rate = share * statistics.median(turns[name])
                found[f"{kind} {name} {share}"] = open_loop(
                    options, servers[name], kind, rate, options.seconds
                )
        for share in SHARES:
            ours = found[f"{kind} attentiond {share}"]
            theirs = (found[f"{kind} {name} {share}"] for name in PEERS)
            shown = ", ".join(f"{t['p50']:.2f} / {t['p99']:.2f}" for t in theirs)
            table.add(
                f"{texts[kind]}, p50 / p99 in ms at {share:.0%} of its own rate: FastAPI, raw, Node.js",
                f"{ours['p50']:.2f} / {ours['p99']:.2f}", shown,
            )  # fmt: skip
    return found


def report_memory(table, idle, peak):
    def mib(values, name):
        return f"{values[name] / MIB:.0f}"

    def per_request(name):
        return f"{(peak[name] - idle[name]) / MIB / CONNECTIONS['matrices']:.1f}"

    table.add("idle memory, MiB: FastAPI, raw, Node.js", mib(idle, "attentiond"),
              ", ".join(mib(idle, name) for name in PEERS), idle["attentiond"] / MIB, 40,
              at_most=True, is_ratio=False)  # fmt: skip
    table.add(f"memory for each of {CONNECTIONS['matrices']} requests of Q, K, V {ROWS}×{COLUMNS} "
              "at once, MiB: FastAPI, raw, Node.js", per_request("attentiond"),
              ", ".join(map(per_request, PEERS)))  # fmt: skip


# -------------------------------------------------------------------------------------------- main


def share_cores():
    """Returns the cores of the servers and of the load. They differ if there are four cores."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[:2], cores[2:4]) if len(cores) >= 4 else (cores[:2], cores[:2])


def clean_environment():
    """Returns the environment without presets for one of the servers."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not re.match(r"(ATTENTION|ATTENTIOND|OPENBLAS|OMP|ORT|NODE|UVICORN|WEB)_", name)
    }
    # NumPy has one thread, because each worker has one core.
    return environment | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def cpu_name():
    """Returns the name of the CPU, with its family and model, because some names are those of many CPUs."""
    pattern = r"^cpu family\s*: (.*)\nmodel\s*: (.*)\nmodel name\s*: (.*)$"
    found = re.search(pattern, Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{found[3]} (family {found[1]}, model {found[2]})" if found else platform.machine()


def versions_of(options):
    names = ("fastapi", "uvicorn", "orjson", "numpy")
    code = f"import importlib.metadata as m; print(*map(m.version, {names}))"
    said, node = (
        subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True)
        for command in ([options.python, "-c", code], ["node", "--version"])
    )
    package = json.loads((HERE / "peers/package.json").read_text())
    return (dict(zip(names, said.stdout.split(), strict=True))
            | {"node": node.stdout.strip()} | package["dependencies"])  # fmt: skip


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build/release",
                        help="where attentiond, echo and load are")  # fmt: skip
    parser.add_argument("--python", default=sys.executable, help="Python with the packages of the peers")
    parser.add_argument("--kserve", default=sys.executable, help="Python with KServe")
    parser.add_argument("--binary", action="store_true", help="measure binary tensors only")
    parser.add_argument("--capacity", action="store_true", help="measure what one core serves, without the peers")
    parser.add_argument("--instructions", action="store_true", help="count the instructions of a small request (needs valgrind)")
    parser.add_argument("--node", type=Path, help="folder of node_modules and attention.onnx")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench-http.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=4, help="seconds of each turn")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 second")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 3, 1
    options.singles = 25 if options.quick else 101
    options.cores, options.load_cores = share_cores()
    options.threads = len(options.cores)
    return options


def run_capacity(options, stack):
    """Measures the daemon alone. Returns what belongs into the report."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("--capacity needs two cores: one for the daemon and one for the load")
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    random.seed(3)
    capacity.write_layer(scratch / "layers")
    flags = ["--workers", "1", "--io-threads", "1"]
    command = [options.folder / "attentiond", "--port", "0", "--layers", scratch / "layers", *flags]
    server = Server(command, clean_environment(), cores[:1])
    stack.callback(server.end)
    version = json.loads(capacity.get(server, "/version"))
    data = {"cpu": cpu_name(), "version": version}
    print(f"attentiond {version['version']} {' '.join(flags)} on one core of {cpu_name()}, kernels {version['kernels']}; "
          f"the load on another core; {options.rounds} rounds of {options.seconds} s\n")  # fmt: skip
    return data | {"capacity": capacity.report(options, server, pin(cores[1:2]), make_bodies(), scratch)}


def run_instructions(options, stack):
    """Counts the instructions of the daemon alone. Returns what belongs into the report."""
    request = request_of(make_bodies()["notebook"])
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    command = [options.folder / "attentiond", "--port", "0", "--io-threads", "1", "--workers", "1"]

    def send(port, count):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for _ in range(count):
                exchange(connection, request)

    return {"instructions": instructions.report(command, clean_environment(), send, scratch)}


def main():
    options = arguments()
    if options.capacity or options.instructions:
        with contextlib.ExitStack() as stack:
            data = (run_capacity if options.capacity else run_instructions)(options, stack)
        options.out.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        return
    os.sched_setaffinity(0, options.load_cores)
    environment = clean_environment() | {"NODE_PATH": str(options.node / "node_modules")}
    versions = versions_of(options)
    apart = "cores of its own" if options.cores != options.load_cores else "the same cores"
    print(f"{cpu_name()}; every server on {options.threads} cores with as many threads (attentiond,"
          " libmicrohttpd) or processes (FastAPI, Node.js); the load on", apart)  # fmt: skip
    print(", ".join(f"{name} {version}" for name, version in versions.items()), end="\n\n")
    data = {"cpu": cpu_name(), "cores": options.threads, "versions": versions,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "load": apart, "rounds": options.rounds, "seconds": options.seconds}  # fmt: skip
    with contextlib.ExitStack() as stack:
        data |= run(options, stack, environment)
    options.out.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
