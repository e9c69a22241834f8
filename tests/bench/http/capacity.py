"""capacity.py measures for run.py what one core serves: the daemon alone, with one worker and one I/O thread on one core.
`load` has another core."""

import json
import random
import re
import statistics
import struct
import subprocess
import sys
import urllib.request

SAFETENSORS = "application/vnd.safetensors"
BYTES = ("B", "kB", "MB")
ROWS, COLUMNS, HEADS = 128, 384, 12  # a layer of MiniLM's size, and the words of a text


def draw(*shape):
    count = 1
    for size in shape:
        count *= size
    return shape, struct.pack(f"<{count}f", *(random.gauss(0, 1) for _ in range(count)))


def safetensors(metadata, **tensors):
    """Returns the bytes of a safetensors file. A tensor is its shape and its bytes."""
    header, begin = {"__metadata__": metadata}, 0
    for name, (shape, numbers) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + len(numbers)]}
        begin += len(numbers)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(numbers for _, numbers in tensors.values())


def requests(bodies):
    """Yields for each request its name, path, type, body and number of connections. `bodies` has those in JSON."""
    output = {"return": '["output"]'}
    yield "first notebook, JSON", "/attention", "application/json", bodies["notebook"], 32
    yield "Q, K, V 512×64, JSON", "/attention", "application/json", bodies["matrices"], 8
    for name, shape in (("Q, K, V 512×64, binary", (512, 64)), ("Q, K, V 8×1024×64, binary", (8, 1024, 64))):
        body = safetensors(output, **{matrix: draw(*shape) for matrix in "QKV"})
        yield name, "/attention", SAFETENSORS, body, 8
    yield (f"stored layer of {HEADS} heads, X {ROWS}×{COLUMNS}, binary", "/layers/one.0/attention", SAFETENSORS,
           safetensors(output, X=draw(ROWS, COLUMNS)), 8)  # fmt: skip


def write_layer(folder):
    folder.mkdir()
    weights = {f"0.{name}": draw(COLUMNS, COLUMNS) for name in ("W_Q", "W_K", "W_V", "W_O")}
    (folder / "one.safetensors").write_bytes(safetensors({"heads": str(HEADS)}, **weights))


def get(server, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}") as answer:
        return answer.read().decode()


def held(server):
    """Returns how many requests have ended, and the sum of the most memory that each of them has held."""
    page = get(server, "/metrics")
    return [float(re.search(rf"^attentiond_request_memory_bytes_{name} (\S+)", page, re.M)[1]) for name in ("count", "sum")]


def load(command, seconds, rate=None):
    command = [*command, "--seconds", str(seconds), *(["--rate", f"{rate:.3f}"] if rate else [])]
    said = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    if set(said["statuses"]) != {"200"} or said["ends"]["whole"] != said["sent"]:
        sys.exit(f"not all requests succeeded: {said}")
    return said


def shown(number, units=("",)):
    """Writes a number in three digits, with the unit that fits."""
    for unit in units:
        if number < 1000 or unit == units[-1]:
            break
        number /= 1000
    return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}".strip()


def report(options, server, pin, bodies, scratch):
    """Prints the table. Returns its rows."""
    print("| request | its body | requests/s | p50 ms | p99 ms | memory of a request |\n|---|---|---|---|---|---|")
    rows = []
    for name, path, type_, body, connections in requests(bodies):
        (scratch / "body").write_bytes(body)
        command = [*pin, str(options.folder / "load"), "127.0.0.1", str(server.port), path,
                   "--body", str(scratch / "body"), "--type", type_, "--connections"]  # fmt: skip
        load([*command, str(connections)], 1)
        begin = held(server)
        rates = [load([*command, str(connections)], options.seconds)["answered"] / options.seconds
                 for _ in range(options.rounds)]  # fmt: skip
        count, memory = (now - then for now, then in zip(held(server), begin, strict=True))
        rate = statistics.median(rates)
        half = [load([*command, str(2 * connections)], options.seconds, rate / 2)["latency_200"]
                for _ in range(options.rounds)]  # fmt: skip
        late = {point: statistics.median(one[point] for one in half) for point in ("p50", "p99")}
        rows.append({"request": name, "body": len(body), "rates": rates, "memory": memory / count,
                     "latency": late})  # fmt: skip
        print("|", name, "|", shown(len(body), BYTES), "|", shown(rate), "|", shown(late["p50"] / 1e3), "|",
              shown(late["p99"] / 1e3), "|", shown(memory / count, BYTES), "|", flush=True)  # fmt: skip
    return rows
