"""Tests of MLServer's own codecs, unmodified: the requests that they encode, and the answers that they decode. Importing
`mlserver` would bring its whole server along (66 packages), so its folder stands in for the package here."""

import importlib.util
import sys
import types
import unittest

import numpy as np
import requests

import stock

package = types.ModuleType("mlserver")
package.__path__ = importlib.util.find_spec("mlserver").submodule_search_locations
sys.modules["mlserver"] = package
from mlserver.codecs import NumpyCodec, NumpyRequestCodec, StringCodec  # noqa: E402 pylint: disable=wrong-import-position
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, RequestOutput  # noqa: E402 pylint: disable=wrong-import-position


def ask(request, model="attention"):
    """Sends a request with all its members, also those that are null."""
    return requests.post(f"{stock.URL}/v2/models/{model}/infer", data=request.model_dump_json(), timeout=60,
                         headers={"Content-Type": "application/json"})


def results(answer):
    """Returns the results of an answer by their names, as MLServer decodes them."""
    assert answer.status_code == 200, answer.text
    response = InferenceResponse.model_validate_json(answer.text)
    return {output.name: (StringCodec if output.datatype == "BYTES" else NumpyCodec).decode_output(output)
            for output in response.outputs}


def request(arrays, outputs=None, **options):
    return InferenceRequest(inputs=[NumpyCodec.encode_input(name, array) for name, array in arrays.items()], outputs=outputs,
                            parameters=Parameters(content_type="np", **options))


class MLServer(unittest.TestCase):
    def setUp(self):
        self.given = stock.matrices()
        self.expected = stock.attention(self.given, causal=True)

    def test_numpy_request_codec(self):
        x = stock.draw(4, 6)
        asked = NumpyRequestCodec.encode_request(x)
        asked.inputs[0].name = "X"  # the codec calls its one input input-1
        answer = ask(asked, "softmax")
        self.assertEqual(answer.status_code, 200, answer.text)
        got = NumpyRequestCodec.decode_response(InferenceResponse.model_validate_json(answer.text))
        wide = np.exp(x.astype(np.float64))
        stock.check(got, wide / wide.sum(-1, keepdims=True))

    def test_types(self):
        for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-13)):
            given = {name: array.astype(dtype) for name, array in self.given.items()}
            for name, array in results(ask(request(given, causal=True))).items():
                stock.check(array, stock.attention(given, causal=True)[name], dtype, tolerance)

    def test_half(self):
        given = {name: array.astype(np.float16) for name, array in self.given.items()}
        expected = stock.attention(given, causal=True)
        for name, array in results(ask(request(given, causal=True))).items():
            stock.check(array, expected[name])

    def test_mask_and_outputs(self):
        given = {**self.given, "mask": stock.draw(5, 7, seed=4) > 0}
        outputs = [RequestOutput(name="lse", parameters=Parameters(content_type="np")), RequestOutput(name="output")]
        got = results(ask(request(given, outputs)))
        self.assertEqual(set(got), {"lse", "output"})
        stock.check(got["output"], stock.attention(given, mask=given["mask"])["output"])

    def test_words(self):
        embedding = stock.draw(3, 2)
        for words in (StringCodec.encode_input("tokens", ["the", "é", "cat"]),
                      NumpyCodec.encode_input("tokens", np.array(["the", "é", "cat"])),
                      StringCodec.encode_input("text", ["The é, cat."])):
            asked = InferenceRequest(inputs=[words, NumpyCodec.encode_input("embedding", embedding)])
            got = results(ask(asked))
            self.assertEqual(got["tokens"], ["the", "é", "cat"])
            x = embedding[None, None, [1, 2, 0]]  # the words sorted are cat, the, é
            stock.check(got["output"], stock.attention({"Q": x, "K": x, "V": x})["output"][0, 0])

    def test_errors(self):
        large = {name: array.astype(np.float16) for name, array in self.given.items()}
        bad = [(request({**self.given, "K": self.given["K"][..., :3]}), 422, "K has 3 columns but Q has 4"),
               (request(self.given, casual=True), 422, "causal"),
               (request({name: self.given[name] for name in "QK"}), 422, "V is missing")]
        asked = request(large)
        asked.inputs[0].data.root[3] = 65520.0
        bad.append((asked, 422, "Q/0/0/0/3 must be a number of its datatype FP16"))
        asked = request(self.given)
        asked.inputs[0].parameters = Parameters(contents="np")
        bad.append((asked, 422, 'the input "Q": unknown key "contents"'))
        for asked, status, text in bad:
            answer = ask(asked)
            self.assertEqual(answer.status_code, status)
            self.assertIn(text, answer.json()["error"])


if __name__ == "__main__":
    unittest.main()
