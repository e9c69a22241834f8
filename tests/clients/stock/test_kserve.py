"""Tests of KServe's own client, kserve.InferenceRESTClient, unmodified. It wants `application/json` as the type of an error, and
it sends the name of the model and an id with each request."""

import unittest

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput
from kserve.utils.numpy_codec import from_np_dtype

import stock


def request(arrays, binary=True, outputs=None, request_id=None, model="attention", **options):
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), from_np_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=inputs, request_id=request_id, parameters=options, request_outputs=outputs)


class KServe(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = InferenceRESTClient(RESTConfig(protocol="v2"))
        self.addAsyncCleanup(self.client.close)
        self.given = stock.matrices()
        self.expected = stock.attention(self.given, causal=True)

    async def test_ready(self):
        self.assertIs(await self.client.is_server_live(stock.URL), True)
        self.assertIs(await self.client.is_server_ready(stock.URL), True)
        self.assertIs(await self.client.is_model_ready(stock.URL, "attention"), True)
        self.assertIs(await self.client.is_model_ready(stock.URL, "bert"), False)

    async def test_infer(self):
        for binary_in in (True, False):
            for binary_out in (True, False):
                asked = request(self.given, binary_in, request_id="42", causal=True, binary_data_output=binary_out)
                headers = {}
                answer = await self.client.infer(stock.URL, asked, "attention", response_headers=headers)
                self.assertEqual((answer.id, answer.model_name), ("42", "attention"))
                self.assertEqual("inference-header-content-length" in headers, binary_out)
                for output, name in zip(answer.outputs, ("output", "weights"), strict=True):
                    self.assertEqual(output.name, name)
                    stock.check(output.as_numpy(), self.expected[name])

    async def test_outputs_and_types(self):
        given = {**{name: array.astype(np.float64) for name, array in self.given.items()},
                 "mask": stock.draw(5, 7, seed=4) > 0, "lengths": np.array([7, 3])}
        expected = stock.attention(given, mask=given["mask"], lengths=given["lengths"])
        outputs = [RequestedOutput("weights", {"binary_data": True}), RequestedOutput("output")]
        answer = await self.client.infer(stock.URL, request(given, outputs=outputs), "attention")
        self.assertEqual([output.name for output in answer.outputs], ["weights", "output"])
        for output in answer.outputs:
            stock.check(output.as_numpy(), expected[output.name], np.float64, 1e-13)

    async def test_half(self):
        given = {name: array.astype(np.float16) for name, array in self.given.items()}
        answer = await self.client.infer(stock.URL, request(given, causal=True, binary_data_output=True), "attention")
        stock.check(answer.outputs[0].as_numpy(), stock.attention(given, causal=True)["output"], np.float16)

    async def test_like_pytorch(self):
        for case in stock.golden_cases(["PyTorch"]):
            with self.subTest(case["title"]):
                given, options = stock.split(case["request"])
                model = case["path"][1:]
                answer = await self.client.infer(stock.URL, request(given, model=model, binary_data_output=True, **options), model)
                stock.check_case(case, {output.name: output.as_numpy() for output in answer.outputs})

    async def test_errors(self):
        bad = [(request({**self.given, "K": self.given["K"][..., :3]}), "attention", 422, "K has 3 columns but Q has 4"),
               (request({name: self.given[name] for name in "QK"}), "attention", 422, "V"),
               (request(self.given, casual=True), "attention", 422, "causal"),
               (request(self.given), "bert", 404, "bert")]
        for asked, model, status, text in bad:
            with self.assertRaises(httpx.HTTPStatusError) as caught:
                await self.client.infer(stock.URL, asked, model)
            self.assertEqual(caught.exception.response.status_code, status)
            self.assertIn(text, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
