"""Tests of requests that are safetensors, made and read by the package safetensors and sent by requests."""

import json
import struct
import unittest

import ml_dtypes
import numpy as np
import requests
from safetensors import safe_open
from safetensors.numpy import load, save

import stock


def post(path, tensors, options=None, headers=None, url=stock.URL):
    headers = {"Content-Type": stock.SAFETENSORS, **(headers or {})}
    return requests.post(url + path, save(tensors, options), headers=headers, timeout=60)


def ask(path, tensors, options=None):
    """Returns the results by their names."""
    response = post(path, tensors, options)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == stock.SAFETENSORS, response.headers
    return load(response.content)


def header(data):
    """Returns the header of an answer, and where its tensors begin."""
    size, = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + size]), 8 + size


class Types(unittest.TestCase):
    def test_float_types(self):
        for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-13), (np.float16, 1e-6)):
            given = stock.matrices(dtype)
            expected = stock.attention(given)
            with self.subTest(dtype=np.dtype(dtype).name):
                got = ask("/attention", given)
                self.assertEqual(set(got), {"output", "weights"})
                for name, array in got.items():
                    stock.check(array, expected[name], dtype, tolerance)
                got = ask("/attention", given, {"dtype": "float64", "return": '["output"]'})
                self.assertEqual(set(got), {"output"})
                stock.check(got["output"], expected["output"], np.float64, 1e-6 if dtype == np.float32 else tolerance)

    def test_bfloat16(self):
        """safetensors.numpy writes bfloat16, but it cannot read it."""
        given = stock.matrices(ml_dtypes.bfloat16)
        expected = stock.attention(given)["output"]
        stock.check(ask("/attention", given, {"dtype": "float32"})["output"], expected)
        data = post("/attention", given).content
        described, start = header(data)
        self.assertEqual(described["output"]["dtype"], "BF16")
        begin, end = described["output"]["data_offsets"]
        got = np.frombuffer(data[start + begin:start + end], ml_dtypes.bfloat16).reshape(described["output"]["shape"])
        stock.check(got, expected, ml_dtypes.bfloat16)

    def test_float8(self):
        """Numbers of 8 bits are widened, and the results are float32."""
        for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            with self.subTest(dtype=np.dtype(dtype).name):
                given = stock.matrices(dtype)
                stock.check(ask("/attention", given)["output"], stock.attention(given)["output"])

    def test_masks_and_lengths(self):
        given = stock.matrices()
        mask = stock.draw(2, 1, 5, 7, seed=4) > -0.5
        lengths = np.array([7, 3])
        expected = stock.attention(given, mask=mask, lengths=lengths)
        for mask_type in (np.bool_, np.uint8, np.int64):
            for lengths_type in (np.int64, np.int32, np.uint8):
                got = ask("/attention", {**given, "mask": mask.astype(mask_type), "lengths": lengths.astype(lengths_type)})
                stock.check(got["output"], expected["output"])
                stock.check(got["weights"], expected["weights"])

    def test_odd_places(self):
        """A mask of an odd number of bytes stands between matrices, so these are not aligned."""
        given = {name: array[0, 0] for name, array in stock.matrices(np.float64, queries=3, keys=5).items()}
        mask = np.array([[True, False, True, True, True]] * 3)
        header, data = {}, b""
        for name, kind, array in (("mask", "BOOL", mask), *((name, "F64", given[name]) for name in "VKQ")):
            header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
            data += array.tobytes()
        text = json.dumps(header).encode()
        response = requests.post(stock.URL + "/attention", struct.pack("<Q", len(text)) + text + data,
                                 headers={"Content-Type": stock.SAFETENSORS}, timeout=60)
        self.assertEqual(response.status_code, 200, response.text)
        expected = stock.attention({name: array[None, None] for name, array in given.items()}, mask=mask)
        stock.check(load(response.content)["output"], expected["output"][0, 0], np.float64, 1e-13)

    def test_like_pytorch(self):
        for case in stock.golden_cases():
            with self.subTest(case["title"]):
                given, options = stock.split(case["request"])
                texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
                stock.check_case(case, ask(case["path"], given, texts))


class Forms(unittest.TestCase):
    given = stock.matrices()
    texts = {"causal": "true", "window": "[2, 0]", "scale": "0.25"}
    expected = stock.attention(given, causal=True, window=[2, 0], scale=0.25)

    def body(self):
        return {**{name: array.tolist() for name, array in self.given.items()}, "causal": True, "window": [2, 0], "scale": 0.25}

    def test_options(self):
        stock.check(ask("/attention", self.given, self.texts)["output"], self.expected["output"])

    def test_nested_results(self):
        got = ask("/attention", self.given, {**self.texts, "return": '["top_k", "statistics", "lse"]', "top_k": "2"})
        names = {f"statistics.variance.{name}" for name in ("Q", "K", "scores", "scaled_scores")}
        self.assertEqual(set(got), {"top_k.indices", "top_k.weights", "lse", *names})
        self.assertEqual(got["top_k.indices"].dtype, np.int64)
        stock.check(got["statistics.variance.Q"], self.expected["statistics"]["variance"]["Q"], np.float64)
        stock.check(got["lse"], self.expected["lse"])

    def test_question_as_json(self):
        for accept in (stock.SAFETENSORS, f"{stock.SAFETENSORS}, */*;q=0.1"):
            response = requests.post(stock.URL + "/attention", json=self.body(), headers={"Accept": accept}, timeout=60)
            self.assertEqual((response.status_code, response.headers["Content-Type"]), (200, stock.SAFETENSORS))
            stock.check(load(response.content)["output"], self.expected["output"])

    def test_answer_as_json(self):
        response = post("/attention", self.given, self.texts, {"Accept": "application/json"})
        self.assertEqual((response.status_code, response.headers["Content-Type"]), (200, "application/json"))
        stock.check(np.array(response.json()["output"], dtype=np.float32), self.expected["output"])

    def test_other_endpoints(self):
        x = stock.draw(3, 4)
        powers = np.exp(x.astype(np.float64))
        stock.check(ask("/softmax", {"X": x}, {"axis": "0"})["output"], powers / powers.sum(axis=0))
        embedding = stock.draw(6, 3)
        response = post("/embeddings", {"embedding": embedding}, {"text": "to be or not to be"})
        self.assertEqual(response.status_code, 200, response.text)
        np.testing.assert_array_equal(load(response.content)["embedding"], embedding[[5, 1, 3, 2, 5, 1]])
        described, _ = header(response.content)
        self.assertEqual(json.loads(described["__metadata__"]["tokens"]), "to be or not to be".split())

    def test_a_file(self):
        """The answer is a file that safetensors opens, so that a program can keep it."""
        path = stock.DATA.parents[1] / "build" / "clients" / "answer.safetensors"
        path.write_bytes(post("/attention", self.given, self.texts).content)
        with safe_open(path, framework="np") as file:
            self.assertEqual(set(file.keys()), {"output", "weights"})
            stock.check(file.get_tensor("weights"), self.expected["weights"])
        path.unlink()

    def test_compression(self):
        response = post("/attention", self.given, self.texts, {"Accept-Encoding": "gzip"}, stock.COMPRESSING_URL)
        self.assertEqual(response.status_code, 200)
        stock.check(load(response.content)["output"], self.expected["output"])


class Errors(unittest.TestCase):
    given = {"Q": stock.draw(2, 3), "K": stock.draw(4, 3), "V": stock.draw(4, 2)}

    def refuse(self, response, status, *parts):
        self.assertEqual((response.status_code, response.headers["Content-Type"]), (status, "application/problem+json"))
        for part in parts:
            self.assertIn(part, response.json()["detail"])

    def test_as_json(self):
        """The status and the text are those of a JSON question."""
        for change, options in (({"Z": stock.draw(2, 2)}, {}), ({"K": stock.draw(6, 2)}, {}), ({"V": stock.draw(5, 2)}, {}),
                                ({"mask": np.ones((3, 3), np.bool_)}, {}), ({}, {"casual": True}), ({}, {"causal": 3}),
                                ({}, {"scale": "large"}), ({}, {"window": [1, 2, 3]})):
            given = {**self.given, **change}
            body = {**{name: array.tolist() for name, array in given.items()}, **options}
            expected = requests.post(stock.URL + "/attention", json=body, timeout=60)
            texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
            with self.subTest(expected.json()["detail"]):
                self.refuse(post("/attention", given, texts), expected.status_code, expected.json()["detail"])

    def test_missing(self):
        self.refuse(post("/attention", {name: self.given[name] for name in "QK"}), 422, "V")

    def test_numbers(self):
        self.refuse(post("/attention", {**self.given, "Q": np.full((2, 3), np.nan, np.float32)}), 422, "Q")
        self.refuse(post("/attention", {**self.given, "Q": self.given["Q"].astype(np.complex64)}), 422, "Q", "C64")

    def test_malformed(self):
        good = save(self.given)
        size, = struct.unpack_from("<Q", good)
        bad = {"empty": b"", "short": good[:-1], "longer": good + b"\0", "a length only": good[:8],
               "a huge header": struct.pack("<Q", 1 << 60) + good[8:], "no JSON": good[:8] + b"[" * size + good[8 + size:]}
        for name, body in bad.items():
            with self.subTest(name):
                response = requests.post(stock.URL + "/attention", body, headers={"Content-Type": stock.SAFETENSORS}, timeout=60)
                self.refuse(response, 413 if name == "a huge header" else 400)
                self.assertGreater(len(response.json()["detail"]), 10)


if __name__ == "__main__":
    unittest.main()
