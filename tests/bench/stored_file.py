"""Prints how long a daemon with a file of 1 GiB takes from its start to its first answers, and what memory it needs.

    ATTENTIOND_BIN=build/attentiond stored_file.py

The file has 16 layers of 2048 columns and 16 heads. RssAnon is the memory of the process itself, and RssFile the pages
of files, which the system may take back. The packed weights are those of GET /metrics.
"""

import http.client
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import time

LAYERS, COLUMNS, ROWS = 16, 2048, 8


def write(path):
    size, header = 4 * COLUMNS * COLUMNS, {"__metadata__": {"heads": "16"}}
    for layer in range(LAYERS):
        for index, name in enumerate(("W_Q", "W_K", "W_V", "W_O")):
            begin = (4 * layer + index) * size
            header[f"{layer}.{name}"] = {"dtype": "F32", "shape": [COLUMNS] * 2, "data_offsets": [begin, begin + size]}
    text = json.dumps(header).encode()
    numbers = struct.pack("<4f", 0.01, -0.02, 0.03, -0.01) * (size // 16)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(4 * LAYERS):
            file.write(numbers)


def ask(connection, layer):
    X = [[(row * 7 + column * 3) % 11 / 11 for column in range(COLUMNS)] for row in range(ROWS)]
    connection.request("POST", f"/layers/large.{layer}/attention", json.dumps({"X": X, "return": ["output"]}))
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text


def report(what, begin, process, connection):
    now = time.perf_counter() - begin
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    anonymous, files = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024 for name in ("RssAnon", "RssFile"))
    connection.request("GET", "/metrics")
    packed = re.search(r"^attentiond_layers_packed_bytes (\S+)", connection.getresponse().read().decode(), re.M)[1]
    print(f"{what}: {now:.3f} s after the start, RssAnon {anonymous:.0f} MiB, RssFile {files:.0f} MiB, "
          f"packed weights {float(packed) / 2**20:.0f} MiB")


with tempfile.TemporaryDirectory() as folder:
    write(pathlib.Path(folder) / "large.safetensors")
    begin = time.perf_counter()
    process = subprocess.Popen([os.environ["ATTENTIOND_BIN"], "--port", "0", "--layers", folder],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        report("ready", begin, process, connection)
        for layer in range(4):
            ask(connection, layer)
            report(f"answer of layer {layer}", begin, process, connection)
    finally:
        process.kill()
        process.wait()
