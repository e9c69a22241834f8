"""Writes tests/data/layers/small.safetensors: the stored layer of the examples in openapi.yaml, with two heads.

    make_layer.py

It needs nothing but Python.
"""

import json
import pathlib
import struct

WEIGHTS = {
    "W_Q": [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]],
    "W_K": [[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 0]],
    "W_V": [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]],
}
header, data = {"__metadata__": {"heads": "2"}}, b""
for name, rows in WEIGHTS.items():
    numbers = struct.pack("<16f", *(number for row in rows for number in row))
    header[name] = {"dtype": "F32", "shape": [4, 4], "data_offsets": [len(data), len(data) + len(numbers)]}
    data += numbers
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
path = pathlib.Path(__file__).parents[1] / "layers" / "small.safetensors"
path.write_bytes(struct.pack("<Q", len(text)) + text + data)
