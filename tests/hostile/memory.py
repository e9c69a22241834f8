"""Promise 20: with any bodies, memory stays within --total-memory and what the daemon needs beside it."""
import json
from concurrent.futures import ThreadPoolExecutor
from hostile import *

MIB = 1 << 20
LIMIT, TOTAL = 8 * MIB, 128 * MIB
BESIDE = 64 * MIB  # for the buffers of BLAS and the arenas of malloc, with a margin: the peak of all memory was 135 MiB


def fill(head, piece, tail, size=LIMIT):
    """Returns a body of this size."""
    return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail


def sequences():
    """Returns a body with as many sequences of different lengths, of which each has a plan, as are possible."""
    lengths = [(q, k) for q in range(1, 33) for k in range(1, 33)]
    rows = {"random": "rand", "shape": [sum(q for q, _ in lengths), 1]}  # of Q, and as many of K and V
    return json.dumps({"random": {"generator": "torch", "seed": 1}, "Q": rows, "K": rows, "V": rows, "grad_output": rows,
                       "return": ["grad_Q", "grad_K", "grad_V"], "sequences": list(zip(*lengths))}).encode()


BODIES = {
    "float64 digits": fill(b'{"dtype":"float64","X":[[0', b",0", b"]]}"),
    "rows of one": fill(b'{"X":[[0]', b",[0]", b"]}"),
    "empty objects": fill(b'{"X":[{}', b",{}", b"]}"),
    "strings": fill(b'{"return":["a"', b',"a"', b"]}"),
    "keys": fill(b'{"a":1', b',"a":1', b"}"),
    "one string": fill(b'{"return":"', b"a", b'"}'),
    "nesting": fill(b'{"X":', b"[", b"}"),
    "one number": fill(b'{"X":[[1', b"0", b"]]}"),
    # At most 1 MiB is parsed as a tree.
    "empty objects, 1 MiB": fill(b'{"X":[{}', b",{}", b"]}", MIB - 16),
    "draws, 1 MiB": fill(b'{"random":{"generator":"torch","seed":1},"X":{"random":"rand","shape":[9,9],"discard":[{"random":"rand","shape":200}',
                         b',{"random":"rand","shape":1}', b"]}}", MIB - 16),
    "strings, 1 MiB": fill(b'{"return":["a"', b',"a"', b"]}", MIB - 16),
    "sequences": sequences(),
}

for name, content in BODIES.items():
    for parallel in (1, 64):
        with Daemon("--max-body", LIMIT, "--total-memory", TOTAL) as daemon:
            with open(NOTEBOOK, "rb") as notebook:
                daemon.post("/attention", notebook.read())
            base = daemon.rss()
            with ThreadPoolExecutor(parallel) as pool:
                statuses = [a[0] for a in pool.map(lambda _: daemon.post("/attention", content), range(2 * parallel))]
            peak = daemon.rss("VmHWM")
            left = daemon.metric("attentiond_memory_bytes")
            kinds = {s: statuses.count(s) for s in sorted(set(statuses))}
            check(20, f"{parallel} x {len(content) / MIB:.0f} MiB of {name.partition(',')[0]}", f"{(peak - base) / MIB:.0f} MiB over {base / MIB:.0f} MiB, {kinds}, "
                  f"{left:.0f} bytes left over", f"<= {(TOTAL + BESIDE) / MIB:.0f} MiB, 4xx and 503, 0",
                  peak - base <= TOTAL + BESIDE and left == 0 and set(statuses) <= {200, 400, 413, 422, 503})
finish()
