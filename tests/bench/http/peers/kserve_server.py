"""kserve_server.py PORT WORKERS serves the model "attention" with KServe's Python server and NumPy, one worker for each
core. Inputs and outputs are binary tensors of the Open Inference Protocol."""

import sys

import kserve
import numpy as np


def attend(q, k, v):
    weights = q @ np.swapaxes(k, -1, -2)
    weights *= np.float32(1 / np.sqrt(q.shape[-1]))
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    return weights @ v


class Attention(kserve.Model):
    def __init__(self):
        super().__init__("attention")
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):
        inputs = {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
        result = attend(inputs["Q"], inputs["K"], inputs["V"])
        output = kserve.InferOutput("output", list(result.shape), "FP32")
        output.set_data_from_numpy(result, binary_data=True)
        return kserve.InferResponse(payload.id, self.name, [output], use_binary_outputs=True)


if __name__ == "__main__":
    port, workers = map(int, sys.argv[1:3])
    server = kserve.ModelServer(http_port=port, workers=workers, enable_grpc=False, enable_latency_logging=False)
    server.start([Attention()])
