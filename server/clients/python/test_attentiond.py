"""test_attentiond.py tests the client against the daemon at $ATTENTIOND_URL: ATTENTIOND_URL=http://127.0.0.1:8080 python3 -m unittest
It tests tries, time-outs and broken answers against tests/clients/own/stub.py, if $ATTENTIOND_STUB_URL has its address."""

import array
import math
import os
import unittest

import attentiond
from attentiond import Client, ServiceError, Tensor

URL = os.environ["ATTENTIOND_URL"]
STUB = os.environ.get("ATTENTIOND_STUB_URL")


def matrix(rows, columns, seed):
    """Returns numbers that float32 holds exactly."""
    return [[math.floor(math.sin(seed + i * columns + j) * 1024) / 512 for j in range(columns)] for i in range(rows)]


Q, K, V = matrix(3, 4, 1), matrix(5, 4, 20), matrix(5, 2, 50)
GIVEN = {"Q": Q, "K": K, "V": V}
MASK = [[(i + j) % 3 != 0 for j in range(5)] for i in range(3)]


def attention(sees):
    """Returns the masked scores, the weights and the output, where a query i sees a key j if sees(i, j)."""
    scores = [[sum(a * b for a, b in zip(q, k)) / 2 if sees(i, j) else -math.inf for j, k in enumerate(K)] for i, q in enumerate(Q)]
    powers = [[math.exp(score) for score in row] for row in scores]
    weights = [[power / sum(row) for power in row] for row in powers]
    output = [[sum(weight * v[column] for weight, v in zip(row, V)) for column in range(2)] for row in weights]
    return scores, weights, output


def flat(value):
    return [number for row in value for number in row]


def tensor(rows, dtype="F32"):
    return Tensor(dtype, (len(rows), len(rows[0])), array.array(attentiond.TYPES[dtype][0], flat(rows)))


class Test(unittest.TestCase):
    def setUp(self):
        self.client = Client(URL + "/", timeout=30)

    def near(self, got, expected, bound=1e-5):
        self.assertEqual(len(got), len(expected))
        for number, right in zip(got, expected):
            self.assertTrue(number == right or abs(number - right) <= bound, f"{number} is not {right}")

    def refused(self, status, text, ask):
        with self.assertRaises(ServiceError) as caught:
            ask()
        self.assertEqual(caught.exception.status, status)
        self.assertIn(text, caught.exception.detail)
        return caught.exception

    def test_json(self):
        names = ["masked_scores", "weights", "output"]
        answer = self.client.ask("/attention", {**GIVEN, "causal": True, "return": names})
        for name, expected in zip(names, attention(lambda i, j: j <= i)):
            self.near(flat(answer[name]), flat(expected))
        bias = [[0 if sees else -math.inf for sees in row] for row in MASK]
        answer = self.client.ask("/attention", {**GIVEN, "bias": bias})
        self.near(flat(answer["weights"]), flat(attention(lambda i, j: MASK[i][j])[1]))
        self.assertIn("version", self.client.ask("/version"))

    def test_null_in_a_comparison(self):
        expected = {"output": [matrix(2, 2, 9) + [[1, -math.inf]]]}
        answer = self.client.ask("/attention", {**{name: [rows] for name, rows in GIVEN.items()}, "expected": expected})
        self.assertEqual(answer["comparison"]["results"]["output"]["head_errors"], [None])  # it is +∞ here

    def test_comparison_of_bytes(self):
        expected = attention(lambda i, j: True)[2]
        for output, right in (expected, True), ([[number + 1 for number in row] for row in expected], False):
            given = {**{name: tensor(rows) for name, rows in GIVEN.items()}, "expected.output": tensor(output)}
            self.assertIs(self.client.compare("/attention", given, {"scale": 0.5})["within_tolerance"], right)

    def test_tensors(self):
        for dtype, bound in (("F32", 1e-5), ("F64", 1e-13)):
            given = {**{name: tensor(rows, dtype) for name, rows in GIVEN.items()}, "mask": tensor(MASK, "BOOL")}
            results = self.client.tensors("/attention", given, {"return": ["masked_scores", "weights", "output"]})
            for name, expected in zip(("masked_scores", "weights", "output"), attention(lambda i, j: MASK[i][j])):
                self.assertEqual((results[name].dtype, results[name].shape), (dtype, [3, len(expected[0])]))
                self.near(results[name].data, flat(expected), bound)

    def test_quantised(self):
        """A byte of F4 has 1 and -2; the scales are powers of two in F8_E8M0."""
        given = {"Q": tensor([[0.0, 0.0]]), "K": Tensor("I8", [1, 2], array.array("b", [1, 1])), "V": Tensor("F4", [1, 2], array.array("B", [0xC2])),
                 "V_scale": Tensor("F8_E8M0", [1, 2], array.array("B", [128, 126]))}
        self.assertEqual(list(self.client.tensors("/attention", given, {"return": ["output"]})["output"].data), [2, -1])
        with self.assertRaisesRegex(ValueError, "V: the data has the length 1, which does not fit the shape .1, 1."):
            self.client.tensors("/attention", {"V": Tensor("F4", [1, 1], array.array("B", [0]))})

    def test_whole_numbers_and_options(self):
        lengths = Tensor("I64", (1,), array.array("q", [4]))
        given = {**{name: tensor(rows) for name, rows in GIVEN.items()}, "lengths": lengths}
        options = {"causal": "bottom_right", "window": [2, 0], "top_k": 2, "return": ["weights", "top_k", "statistics"]}
        results = self.client.tensors("/attention", given, options)
        weights = attention(lambda i, j: i - 1 <= j <= i + 1 < 5)[1]
        self.near(results["weights"].data, flat(weights))
        best = [sorted(range(5), key=lambda j: -row[j])[:2] for row in weights]  # pylint: disable=cell-var-from-loop
        self.assertEqual(results["top_k.indices"], Tensor("I64", [3, 2], array.array("q", flat(best))))
        self.assertEqual(results["statistics.variance.Q"].shape, [])

    @unittest.skipIf(attentiond.numpy is None, "NumPy is not installed")
    def test_numpy(self):
        numpy = attentiond.numpy
        for dtype, bound in (("float32", 1e-5), ("float64", 1e-13), (">f8", 1e-13), ("float16", 1e-2)):
            given = {name: numpy.array(rows, dtype) for name, rows in GIVEN.items()}
            given["K"] = given["K"].T.copy().T  # the bytes are not in the order of the rows
            given.update(mask=numpy.array(MASK), lengths=numpy.array([5]))
            results = self.client.tensors("/attention", given, {"scale": numpy.float32(0.5)})
            expected = attention(lambda i, j: MASK[i][j])
            self.assertEqual(results["output"].dtype, numpy.dtype(dtype).newbyteorder("="))
            self.assertEqual(results["weights"].shape, (3, 5))
            self.near(results["weights"].ravel(), flat(expected[1]), bound)
            results["output"] += 1  # it can be written
        answer = self.client.ask("/attention", {name: numpy.array(rows) for name, rows in GIVEN.items()})
        self.near(flat(answer["output"]), flat(attention(lambda i, j: True)[2]))
        with self.assertRaisesRegex(TypeError, "Q has the type complex128"):
            self.client.tensors("/attention", {"Q": numpy.ones((2, 2), complex)})

    def test_errors(self):
        for ask in (lambda: self.client.ask("/attention", {**GIVEN, "K": [[1]]}),
                    lambda: self.client.tensors("/attention", {name: tensor(GIVEN[name] if name != "K" else [[1]]) for name in GIVEN})):
            error = self.refused(422, "K has 1 column but Q has 4", ask)
            self.assertEqual(error.pointer, "/K")
            self.assertTrue(error.request_id)
            self.assertEqual(str(error), f"422 {error.detail} /K")
        self.refused(422, "inputs is missing", lambda: self.client.ask("/v2/models/attention/infer", {}))
        self.refused(404, "there is nothing at /nothing", lambda: self.client.ask("/nothing"))
        self.refused(0, "http://127.0.0.1:1", lambda: Client("http://127.0.0.1:1").ask("/attention", GIVEN))
        with self.assertRaisesRegex(ValueError, "^the API key has a character that cannot be sent$"):
            Client(URL, "key\r\nX: y").ask("/version")
        with self.assertRaises(ValueError):
            self.client.ask("/attention", {"X": [[math.nan]]})
        for beyond in 2 ** 53 + 1, -2 ** 53 - 1:
            with self.assertRaisesRegex(ValueError, f"^{beyond} is an integer beyond 2.53, which loses digits in JSON$"):
                self.client.ask("/attention", {"X": Q, "past_length": beyond})
        self.refused(422, "heads must be", lambda: self.client.ask("/attention", {"X": Q, "heads": 2 ** 53}))
        with self.assertRaises(ValueError):
            self.client.tensors("/attention", {"X": tensor(Q)}, {"scale": math.nan})
        for wrong, message in ((Tensor("F32", (2, 3), array.array("f", [1])), "the length 1, which does not fit the shape .2, 3."),
                               (Tensor("F32", (1,), [1]), 'no array.array."f"., which F32 needs'),
                               (Tensor("F32", (1,), array.array("d", [1])), 'no array.array."f"., which F32 needs'),
                               (Tensor("F8", (1,), array.array("f", [1])), "the type F8, which is none of F32, F64, I64,")):
            with self.assertRaisesRegex((TypeError, ValueError), "Q.*" + message):
                self.client.tensors("/attention", {"Q": wrong})

    @unittest.skipUnless(STUB, "there is no stub")
    def test_stub(self):
        def at(kind, timeout=30.0):
            return lambda: Client(f"{STUB}/{kind}", "secret\n", timeout).ask("/attention", GIVEN)

        def tensors_at(kind):
            return Client(f"{STUB}/{kind}").tensors("/attention", {name: tensor(rows) for name, rows in GIVEN.items()})

        order = Client(f"{STUB}/order")
        order.ask("/attention", {"K": K, "causal": False, **GIVEN, "scale": 0.5})
        order.tensors("/attention", {name: tensor(rows) for name, rows in GIVEN.items()}, {"causal": True})
        self.refused(200, "the answer has more than 1048576 bytes",
                     lambda: Client(f"{STUB}/large", max_answer=1 << 20).ask("/attention", GIVEN))
        expected = attention(lambda i, j: True)[2]
        for kind in ("busy", "late", "key", "chunked", "reused", "reused", "open", "open", "early"):
            self.near(flat(at(kind, 5)()["output"]), flat(expected))
        self.near(tensors_at("chunked")["output"].data, flat(expected))
        self.refused(503, "too much work waits", at("always"))
        self.refused(503, "too much work waits", at("lasting"))
        self.refused(502, "Bad Gateway", at("html"))
        self.refused(200, "not JSON", at("html"))
        for kind in ("silent", "drip", "drip", "drip"):
            self.refused(0, "timed out", at(kind, 0.5))
        long = {"X": Tensor("F32", (1 << 17, 64), array.array("f", bytes(1 << 25)))}
        self.refused(0, "timed out", lambda: Client(f"{STUB}/slow", timeout=0.5).tensors("/attention", long))
        for ask in (at("closed"), at("cut"), lambda: tensors_at("cut")):
            self.refused(0, "no answer", ask)
        self.assertEqual(tensors_at("half")["output"].dtype, "BF16")
        self.refused(302, "Found", at("moved"))
        self.refused(307, "Temporary Redirect", at("moved"))
        self.refused(200, "not JSON", at("deep"))
        self.refused(422, "Unprocessable", at("deep"))
        self.refused(200, "cannot be read", lambda: tensors_at("deep"))
        self.assertEqual(self.refused(422, "Unprocessable", at("lists")).pointer, "")
        for _ in range(15):
            self.refused(200, "cannot be read", lambda: tensors_at("broken"))


if __name__ == "__main__":
    unittest.main()
