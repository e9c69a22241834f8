"""Tests of tritonclient.http and tritonclient.http.aio, unmodified. Every call that the service answers is made, and those that
it cannot answer raise an exception with its text."""

import asyncio
import json
import unittest
import urllib.error
import urllib.request

import ml_dtypes
import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import stock

MODELS = {"attention", "self-attention", "multi-head-attention", "linear-attention", "softmax"}


def connect(url=stock.URL, **options):
    return triton.InferenceServerClient(url.removeprefix("http://"), **options)


def tensor(name, array, binary=True):
    made = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    return made.set_data_from_numpy(np.ascontiguousarray(array), binary_data=binary)


def tensors(arrays, binary=True):
    return [tensor(name, array, binary) for name, array in arrays.items()]


def wanted(*names, binary=True):
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


def results(answer):
    return {output["name"]: answer.as_numpy(output["name"]) for output in answer.get_response()["outputs"]}


def json_error(path, body):
    """Returns the status and the detail with which the JSON endpoint refuses a body."""
    request = urllib.request.Request(stock.URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request):
            raise AssertionError("the bad request was answered")
    except urllib.error.HTTPError as error:
        return str(error.code), json.load(error)["detail"]


class Metadata(unittest.TestCase):
    def setUp(self):
        self.client = connect()
        self.addCleanup(self.client.close)

    def test_live_and_ready(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        for model in MODELS:
            self.assertTrue(self.client.is_model_ready(model))
            self.assertTrue(self.client.is_model_ready(model, "1"))
        self.assertFalse(self.client.is_model_ready("bert"))
        self.assertFalse(self.client.is_model_ready("attention", "2"))

    def test_server_metadata(self):
        said = self.client.get_server_metadata()
        self.assertEqual(said["name"], "attentiond")
        self.assertRegex(said["version"], r"^\d+\.\d+\.\d+")
        self.assertLessEqual({"binary_tensor_data", "statistics"}, set(said["extensions"]))

    def test_model_metadata(self):
        for version in ("", "1"):
            said = self.client.get_model_metadata("attention", version)
            self.assertEqual((said["name"], said["versions"]), ("attention", ["1"]))
            self.assertIsInstance(said["platform"], str)
            self.assertLessEqual({"Q", "K", "V", "mask"}, {given["name"] for given in said["inputs"]})
            self.assertLessEqual({"output", "weights"}, {made["name"] for made in said["outputs"]})
            for described in said["inputs"] + said["outputs"]:
                self.assertIn(described["datatype"], ("FP32", "BOOL", "INT64", "FP64", "BYTES"))
                self.assertTrue(all(size == -1 or size > 0 for size in described["shape"]))
        self.assertEqual(self.client.get_model_config("attention")["name"], "attention")

    def test_repository(self):
        said = self.client.get_model_repository_index()
        self.assertEqual({model["name"] for model in said}, MODELS)
        self.assertEqual({model["state"] for model in said}, {"READY"})
        for change in (self.client.load_model, self.client.unload_model):
            with self.assertRaises(InferenceServerException) as caught:
                change("attention")
            self.assertIn(caught.exception.status(), ("400", "404", "405", "501"))
            self.assertIn("load", caught.exception.message())

    def test_statistics(self):
        def count(version=""):
            said = self.client.get_inference_statistics("softmax", version)["model_stats"]
            self.assertEqual([(model["name"], model["version"]) for model in said], [("softmax", "1")])
            return said[0]["inference_stats"]["success"]["count"]

        before = count()
        for _ in range(3):
            self.client.infer("softmax", [tensor("X", stock.draw(2, 3))])
        self.assertEqual(count("1"), before + 3)
        everything = self.client.get_inference_statistics()["model_stats"]
        self.assertEqual({model["name"] for model in everything}, MODELS)


class Infer(unittest.TestCase):
    def setUp(self):
        self.client = connect()
        self.addCleanup(self.client.close)

    def infer(self, model, arrays, options=None, **more):
        return results(self.client.infer(model, tensors(arrays), parameters=options, **more))

    def test_float_types(self):
        for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-13), (np.float16, 1e-6), (ml_dtypes.bfloat16, 1e-6)):
            given = stock.matrices(dtype)
            expected = stock.attention(given)
            with self.subTest(dtype=np.dtype(dtype).name):
                got = self.infer("attention", given)
                self.assertEqual(list(got), ["output", "weights"])
                for name, array in got.items():
                    stock.check(array, expected[name], dtype, tolerance)
                for chosen, limit in (("float32", 1e-6), ("float64", 1e-6 if dtype == np.float32 else tolerance)):
                    got = self.infer("attention", given, {"dtype": chosen})
                    stock.check(got["output"], expected["output"], np.dtype(chosen), limit)

    def test_mixed_float_types(self):
        given = stock.matrices(np.float32)
        given["V"] = given["V"].astype(np.float64)
        stock.check(self.infer("attention", given)["output"], stock.attention(given)["output"], np.float64)
        given["V"] = given["V"].astype(np.float16)
        stock.check(self.infer("attention", given)["output"], stock.attention(given)["output"], np.float32)

    def test_masks_and_lengths(self):
        given = stock.matrices()
        mask = stock.draw(2, 1, 5, 7, seed=4) > -0.5
        lengths = np.array([7, 3])
        expected = stock.attention(given, mask=mask, lengths=lengths)
        for mask_type in (np.bool_, np.uint8, np.int32):
            for lengths_type in (np.int64, np.int32, np.uint16):
                got = self.infer("attention", {**given, "mask": mask.astype(mask_type), "lengths": lengths.astype(lengths_type)})
                stock.check(got["output"], expected["output"])
                stock.check(got["weights"], expected["weights"])
        self.assertTrue((got["weights"][1, ..., 3:] == 0).all())

    def test_whole_numbers_as_matrices(self):
        rng = np.random.default_rng(5)
        for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
            given = {name: rng.integers(0, 4, (3, 2)).astype(dtype) for name in "QKV"}
            expected = stock.attention({name: array[None, None] for name, array in given.items()})
            with self.subTest(dtype=dtype.__name__):
                stock.check(self.infer("attention", given)["output"], expected["output"][0, 0])

    def test_options(self):
        given = stock.matrices()
        bias = stock.draw(1, 3, 5, 7, seed=6)
        got = self.infer("attention", {**given, "bias": bias}, {"causal": True, "scale": 0.25, "softcap": 2, "window": "[2, 0]"})
        expected = stock.attention(given, bias=bias, causal=True, scale=0.25, softcap=2, window=[2, 0])
        stock.check(got["output"], expected["output"])
        got = self.infer("attention", given, {"causal": "bottom_right", "alibi": True})
        stock.check(got["weights"], stock.attention(given, causal="bottom_right", alibi=True)["weights"])

    def test_timeout(self):
        """tritonclient gives microseconds."""
        given = stock.matrices(batch=1, heads=8, queries=1024, keys=1024, columns=64)
        self.infer("attention", given, timeout=30_000_000, outputs=wanted("output"))
        with self.assertRaisesRegex(InferenceServerException, r"\[503\].*timeout"):
            self.infer("attention", given, timeout=10, outputs=wanted("output"))

    def test_other_arguments(self):
        given = stock.matrices()
        expected = stock.attention(given)["output"]
        got = self.infer("attention", given, priority=1, headers={"X-Request-Id": "42"})
        stock.check(got["output"], expected)
        got = self.infer("attention", given, sequence_id=7, sequence_start=True, sequence_end=True)
        stock.check(got["output"], expected)
        got = self.infer("attention", given, {"return": '["lse", "output"]'})
        self.assertEqual(set(got), {"lse", "output"})
        stock.check(got["output"], expected)

    def test_words(self):
        embedding = stock.draw(3, 2)
        x = embedding[None, None, [1, 2, 0]]  # the words sorted are cat, the, é
        for name, words in (("tokens", ["the", "é", "cat"]), ("text", ["The é, cat."])):
            for binary in (True, False):
                given = {name: np.array([word.encode() for word in words], np.object_), "embedding": embedding}
                inputs = [tensor(key, array, binary or key != name) for key, array in given.items()]
                answer = self.client.infer("attention", inputs)
                self.assertEqual(answer.as_numpy("tokens").tolist(), ["the", "é", "cat"])
                stock.check(answer.as_numpy("output"), stock.attention({"Q": x, "K": x, "V": x})["output"][0, 0])

    def test_halves_in_json(self):
        given = stock.matrices(np.float16)
        answer = self.client.infer("attention", tensors(given, binary=False), outputs=wanted("output", binary=False))
        stock.check(answer.as_numpy("output"), stock.attention(given)["output"])

    def test_draws(self):
        """A matrix may be drawn by the service. Its description is JSON in a text."""
        drawn = '{"random": "standard_normal", "shape": [4, 4]}'
        options = {"random": '{"generator": "numpy", "seed": 42}', "W_Q": drawn, "W_K": drawn, "W_V": drawn, "dtype": "float64"}
        x = stock.draw(5, 4)
        np.random.seed(42)
        weights = {name: np.random.standard_normal((4, 4)) for name in "QKV"}
        expected = stock.attention({name: (x.astype(np.float64) @ weights[name])[None, None] for name in "QKV"})
        stock.check(self.infer("self-attention", {"X": x}, options)["output"], expected["output"][0, 0], np.float64, 1e-13)

    def test_requested_outputs(self):
        given = stock.matrices()
        expected = stock.attention(given, causal=True, top_k=2)
        names = ["lse", "weights", "masked_scores", "top_k.indices", "top_k.weights", "statistics.variance.Q"]
        got = self.infer("attention", given, {"causal": True, "top_k": 2}, outputs=wanted(*names))
        self.assertEqual(list(got), names)
        for name in names[:3]:
            stock.check(got[name], expected[name])
        self.assertEqual(got["top_k.indices"].dtype, np.int64)
        np.testing.assert_array_equal(got["top_k.indices"][..., 1:, :], expected["top_k"]["indices"][..., 1:, :])
        stock.check(got["top_k.weights"], expected["top_k"]["weights"])
        stock.check(got["statistics.variance.Q"], expected["statistics"]["variance"]["Q"], np.float64)
        self.assertEqual(got["statistics.variance.Q"].shape, ())

    def test_binary_and_json_mixed(self):
        given = stock.matrices()
        expected = stock.attention(given)
        for binary_inputs in (set(), {"K"}, {"Q", "K", "V"}):
            inputs = [tensor(name, array, name in binary_inputs) for name, array in given.items()]
            for kinds in ((True, True), (True, False), (False, True), (False, False)):
                outputs = [triton.InferRequestedOutput(name, binary_data=kind) for name, kind in zip(("weights", "output"), kinds)]
                answer = self.client.infer("attention", inputs, outputs=outputs)
                for described, binary in zip(answer.get_response()["outputs"], kinds):
                    self.assertEqual("data" not in described, binary)
                    stock.check(answer.as_numpy(described["name"]), expected[described["name"]])

    def test_ids_and_versions(self):
        given = tensors(stock.matrices())
        answer = self.client.infer("attention", given, model_version="1", request_id="request 42 \"é\"").get_response()
        self.assertEqual((answer["model_name"], answer["model_version"]), ("attention", "1"))
        self.assertEqual(answer["id"], "request 42 \"é\"")
        self.assertNotIn("id", self.client.infer("attention", given).get_response())

    def test_large_tensors(self):
        given = stock.matrices(batch=1, heads=8, queries=256, keys=300, columns=64)
        got = self.infer("attention", given)
        expected = stock.attention(given)
        stock.check(got["output"], expected["output"])
        stock.check(got["weights"], expected["weights"])

    def test_like_pytorch(self):
        """infer() equals scaled_dot_product_attention(), MultiheadAttention and softmax of the golden data, which PyTorch made."""
        cases = stock.golden_cases()
        self.assertGreater(sum(case["source"] == "PyTorch" for case in cases), 100)
        for case in cases:
            with self.subTest(case["title"]):
                given, options = stock.split(case["request"])
                stock.check_case(case, self.infer(case["path"][1:], given, options))

    def test_async(self):
        with connect(concurrency=8) as client:
            given = [stock.matrices(queries=20 + i, keys=60, columns=32) for i in range(8)]
            sent = [client.async_infer("attention", tensors(arrays), request_id=str(i)) for i, arrays in enumerate(given)]
            for i, (pending, arrays) in reversed(list(enumerate(zip(sent, given)))):
                answer = pending.get_result()
                self.assertEqual(answer.get_response()["id"], str(i))
                stock.check(answer.as_numpy("output"), stock.attention(arrays)["output"])


class Compression(unittest.TestCase):
    given = stock.matrices(queries=40, keys=60, columns=16)

    def test_compressed(self):
        expected = stock.attention(self.given)
        with connect(stock.COMPRESSING_URL) as client:
            for asked in (None, "gzip", "deflate"):
                for answered in (None, "gzip", "deflate"):
                    for binary in (True, False):
                        with self.subTest(request=asked, response=answered, binary=binary):
                            answer = client.infer("attention", tensors(self.given, binary), outputs=wanted("output", binary=binary),
                                                  request_compression_algorithm=asked, response_compression_algorithm=answered)
                            stock.check(answer.as_numpy("output"), expected["output"])

    def test_answers_are_compressed(self):
        body, length = triton.InferenceServerClient.generate_request_body(tensors(self.given), outputs=wanted("output", binary=False))
        headers = {"Inference-Header-Content-Length": str(length), "Accept-Encoding": "gzip"}
        request = urllib.request.Request(stock.COMPRESSING_URL + "/v2/models/attention/infer", body, headers)
        with urllib.request.urlopen(request) as response:
            self.assertEqual(response.headers["Content-Encoding"], "gzip")
            said = response.read()
        answer = triton.InferenceServerClient.parse_response_body(said, content_encoding="gzip")
        stock.check(answer.as_numpy("output"), stock.attention(self.given)["output"])

    def test_without_the_option(self):
        with connect() as client:
            with self.assertRaises(InferenceServerException) as caught:
                client.infer("attention", tensors(self.given), request_compression_algorithm="gzip")
        self.assertEqual(caught.exception.status(), "415")
        self.assertIn("--compression", caught.exception.message())


class Asyncio(unittest.TestCase):
    def test_everything(self):
        for url in (stock.URL, stock.COMPRESSING_URL):
            asyncio.run(self.ask(url))

    async def ask(self, url):
        async with triton_aio.InferenceServerClient(url.removeprefix("http://")) as client:
            self.assertTrue(await client.is_server_live())
            self.assertTrue(await client.is_server_ready())
            self.assertTrue(await client.is_model_ready("attention"))
            self.assertEqual((await client.get_server_metadata())["name"], "attentiond")
            self.assertEqual((await client.get_model_metadata("multi-head-attention"))["name"], "multi-head-attention")
            self.assertEqual((await client.get_model_config("attention"))["name"], "attention")
            self.assertEqual({model["name"] for model in await client.get_model_repository_index()}, MODELS)
            said = (await client.get_inference_statistics())["model_stats"]
            self.assertEqual({model["name"] for model in said}, MODELS)
            with self.assertRaisesRegex(InferenceServerException, "load"):
                await client.load_model("attention")

            given = [stock.matrices(queries=10 + i, columns=32) for i in range(8)]
            answers = await asyncio.gather(*(client.infer("attention", tensors(arrays), request_id=str(i))
                                             for i, arrays in enumerate(given)))
            for i, (answer, arrays) in enumerate(zip(answers, given)):
                self.assertEqual(answer.get_response()["id"], str(i))
                stock.check(answer.as_numpy("output"), stock.attention(arrays)["output"])
            with self.assertRaisesRegex(InferenceServerException, "V"):
                await client.infer("attention", tensors({name: given[0][name] for name in "QK"}))


class Errors(unittest.TestCase):
    def setUp(self):
        self.client = connect()
        self.addCleanup(self.client.close)
        self.given = {"Q": stock.draw(2, 3), "K": stock.draw(4, 3), "V": stock.draw(4, 2)}

    def refuse(self, inputs, *parts, model="attention", statuses=("400", "422"), **more):
        """Sends a bad request. The exception must have one of these statuses and these parts of the service's text."""
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer(model, inputs, **more)
        self.assertIn(caught.exception.status(), statuses)
        for part in parts:
            self.assertIn(part, caught.exception.message())
        self.assertNotIn("an exception occurred in the client", caught.exception.message())

    def refuse_as_json(self, arrays, options=None, model="attention"):
        """Sends a bad request in both forms. The status and the text must be those of the JSON endpoint."""
        body = {**{name: array.tolist() for name, array in arrays.items()}, **(options or {})}
        status, detail = json_error(f"/{model}", body)
        for binary in (True, False):
            self.refuse(tensors(arrays, binary), detail, model=model, statuses=(status,), parameters=options)

    def test_as_json(self):
        self.refuse_as_json({**self.given, "Z": stock.draw(2, 2)})
        self.refuse_as_json({name: self.given[name] for name in "QK"})
        self.refuse_as_json({**self.given, "K": stock.draw(6, 2)})
        self.refuse_as_json({**self.given, "V": stock.draw(5, 2)})
        self.refuse_as_json({**self.given, "mask": np.ones((3, 3), np.bool_)})
        self.refuse_as_json(self.given, {"casual": True})
        self.refuse_as_json(self.given, {"causal": 3})
        self.refuse_as_json(self.given, {"scale": "large"})
        self.refuse_as_json({"X": stock.draw(2, 2)}, {"axis": 5}, model="softmax")

    def test_inputs(self):
        self.refuse([*tensors(self.given), tensor("Q", self.given["Q"])], "Q")
        self.refuse([*tensors(self.given), tensor("Q", self.given["Q"], binary=False)], "Q")
        self.refuse(tensors({**self.given, "Q": np.array([["a"]], dtype=np.object_)}), "BYTES")
        self.refuse(tensors({**self.given, "lengths": np.array([2.5], np.float32)}), "lengths")
        self.refuse(tensors({**self.given, "Q": np.full((2, 3), np.nan, np.float32)}), "Q")

    def test_sizes(self):
        inputs = tensors(self.given)
        inputs[1].set_shape([4, 4])
        self.refuse(inputs, "K", "48", "64")
        inputs = tensors(self.given, binary=False)
        inputs[1].set_shape([4, 4])
        self.refuse(inputs, "K", "12", "16")

    def test_outputs(self):
        self.refuse(tensors(self.given), "wieghts", "weights", outputs=wanted("wieghts"))

    def test_nan(self):
        given = {**self.given, "K": np.full((4, 3), np.nan, np.float32)}
        self.refuse(tensors(given), "K", "NaN")
        self.refuse(tensors(given, binary=False), "NaN")

    def test_what_is_not_here(self):
        """Other servers have these. The exception says that this one does not."""
        shared = triton.InferInput("Q", [2, 3], "FP32")
        shared.set_shared_memory("region", 24)
        self.refuse([shared, *tensors(self.given)[1:]], "Q", "shared memory")
        self.refuse(tensors(self.given), "options belong in the body", query_params={"causal": "true"})
        self.refuse(tensors(self.given), "classification", outputs=[triton.InferRequestedOutput("output", class_count=3)])
        for ask in (self.client.get_trace_settings, self.client.get_log_settings, self.client.get_system_shared_memory_status):
            with self.assertRaisesRegex(InferenceServerException, "/v2/"):
                ask()

    def test_models(self):
        self.refuse(tensors(self.given), "bert", model="bert", statuses=("404",))
        self.refuse(tensors(self.given), "2", model_version="2", statuses=("400", "404"))
        for ask in (self.client.get_model_metadata, self.client.get_model_config, self.client.get_inference_statistics):
            with self.assertRaisesRegex(InferenceServerException, "bert") as caught:
                ask("bert")
            self.assertEqual(caught.exception.status(), "404")


if __name__ == "__main__":
    unittest.main()
