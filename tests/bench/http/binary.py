"""binary.py measures binary tensors for run.py: beside the same question in JSON, beside a bare libmicrohttpd that
receives and sends as many bytes, and beside KServe's Python server with NumPy."""

import http.client
import json
import random
import re
import statistics
import struct
import sys
import time

PATH = "/v2/models/attention/infer"
FORMS = {"binary": (1, 512, 64), "long": (8, 1024, 64)}  # heads, rows, columns


def make_question(heads, rows, columns):
    """Returns the bytes of a question and the number of bytes of its JSON."""
    count = heads * rows * columns
    shape = [rows, columns] if heads == 1 else [heads, rows, columns]
    tensors = [struct.pack(f"<{count}f", *(random.gauss(0, 1) for _ in range(count))) for _ in "QKV"]
    head = json.dumps({
        "id": "1",
        "inputs": [{"name": name, "shape": shape, "datatype": "FP32",
                    "parameters": {"binary_data_size": 4 * count}} for name in "QKV"],
        "outputs": [{"name": "output", "parameters": {"binary_data": True}}],
    }).encode()  # fmt: skip
    return head + b"".join(tensors), len(head)


def ask(connection, question, head):
    connection.request("POST", PATH, question, {"Inference-Header-Content-Length": str(head)})
    response = connection.getresponse()
    answer = response.read()
    if response.status != 200:
        sys.exit(f"status {response.status}: {answer[:300]!r}")
    return response, answer


def connect(server):
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)


def floats_of(response, answer):
    """Returns the numbers of the one binary result of an answer."""
    head = int(response.headers["Inference-Header-Content-Length"])
    return struct.unpack(f"<{(len(answer) - head) // 4}f", answer[head:])


def compare(server, peer, question, head, tolerance):
    ours, theirs = (floats_of(*ask(connect(each), question, head)) for each in (server, peer))
    if len(ours) != len(theirs) or max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) > tolerance:
        sys.exit("KServe answers something else")


def work_seconds(server):
    """Returns the seconds that the tasks of the daemon have spent on a CPU."""
    connection = connect(server)
    connection.request("GET", "/metrics")
    return float(re.search(rb"^attentiond_work_seconds_total (\S+)", connection.getresponse().read(), re.M)[1])


def least(server, question, head, count):
    """Sends questions one after another. Returns the least wall clock in ms, and the least time of the attention."""
    connection, walls, computed = connect(server), [], []
    for _ in range(count):
        start = time.perf_counter()
        response, _ = ask(connection, question, head)
        walls.append((time.perf_counter() - start) * 1e3)
        timing = re.search(r"compute;dur=([\d.]+)", response.headers.get("Server-Timing", ""))
        computed.append(float(timing[1]) if timing else 0)
    return min(walls), min(computed)


def report(options, table, servers, scratch, start_echo, take_turns, ratio, tolerance):
    """Adds the rows. `servers` has the daemon and KServe. start_echo(answer) starts a bare libmicrohttpd that sends
    these bytes."""
    random.seed(2)
    questions = {kind: make_question(*form) for kind, form in FORMS.items()}
    echoes = {}
    for kind, (question, head) in questions.items():
        options.bodies[kind] = scratch / kind
        options.bodies[kind].write_bytes(question)
        options.heads[kind] = head
        _, answer = ask(connect(servers["attentiond"]), question, head)
        (scratch / f"{kind}-answer").write_bytes(answer)
        echoes[kind] = start_echo(scratch / f"{kind}-answer")
    compare(servers["attentiond"], servers["kserve"], *questions["binary"], tolerance)

    text = "Q, K, V 512×64 as binary tensors"
    before = work_seconds(servers["attentiond"])
    least(servers["attentiond"], *questions["binary"], options.singles)
    compute = (work_seconds(servers["attentiond"]) - before) / options.singles
    rates, costs = take_turns(
        options, servers | {"json": servers["attentiond"], "echo": echoes["binary"]},
        {"attentiond": "binary", "json": "matrices", "echo": "binary", "kserve": "binary"},
    )  # fmt: skip
    for name, shown, reach in (("json", "the same in JSON", 5), ("kserve", "KServe, NumPy", 10)):
        ours, theirs = (statistics.median(rates[each]) for each in ("attentiond", name))
        table.add(f"{text}, requests/s: {shown}", f"{ours:.0f}", f"{theirs:.0f}", ratio(rates, "attentiond", name), reach)
        ours, theirs = (min(costs[each]) * 1e6 for each in ("attentiond", name))
        table.add(f"{text}, µs of a core for each: {shown}", f"{ours:.0f}", f"{theirs:.0f}", theirs / ours)
    ours, theirs = min(costs["attentiond"]) * 1e6, (min(costs["echo"]) + compute) * 1e6
    table.add(f"{text}, µs of a core for each: bare libmicrohttpd and the attention alone", f"{ours:.0f}", f"{theirs:.0f}",
              ours / theirs, 1.25, at_most=True)  # fmt: skip

    wall, compute = least(servers["attentiond"], *questions["long"], options.singles)
    bare, _ = least(echoes["long"], *questions["long"], options.singles)
    table.add("Q, K, V 8×1024×64 as binary tensors, one by one, ms: bare libmicrohttpd and the attention alone",
              f"{wall:.1f}", f"{bare + compute:.1f}", wall / (bare + compute), 1.3, at_most=True)  # fmt: skip
    return {"rates": rates, "core_seconds": costs}
