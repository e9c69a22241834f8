"""Draws calls of com.microsoft.LinearAttention, and compares onnxruntime on the CPU with the daemon in float32 and float64.
$ATTENTIOND_BIN is the daemon."""

import os
import random
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx_cases import Daemon, Failure, as_lists

CALLS = 300
TOLERANCE = 1e-5  # of the largest number of a result; onnxruntime computes in float32
RULES = ("linear", "gated", "delta", "gated_delta")
# The heads of queries, of keys, and of values and states. ONNX's own operator has only those whose last two are the same.
HEADS = ((1, 1, 1), (4, 4, 4), (4, 2, 2), (6, 1, 1), (2, 2, 4), (1, 1, 3), (4, 1, 2), (2, 1, 4), (2, 4, 4))
RESULTS = ("output", "present_state")


def draw(chosen, numbers, rule):
    """Returns the inputs of a call and the attributes of its node. Rows of K have the length 1, as the delta rule needs."""
    batch, n, d, d_v = (chosen.choice(x) for x in ((1, 2), (1, 2, 7, 33, 64, 130), (1, 5, 16, 64), (1, 3, 16, 48)))
    queries, keys, states = chosen.choice(HEADS)
    normal = numbers.standard_normal
    k = normal((batch, n, keys, d))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    inputs = {"query": normal((batch, n, queries * d)), "key": k.reshape(batch, n, keys * d),
              "value": normal((batch, n, states * d_v))}
    if chosen.random() < 0.5:
        inputs["past_state"] = normal((batch, states, d, d_v))
    if "gated" in rule:
        columns = states * chosen.choice((1, d))
        decay = -chosen.choice((0, 1e-3, 0.1, 5, 200)) * numbers.random((batch, n, columns))
        forgets = numbers.random(decay.shape) < chosen.choice((0, 0, 0.1))
        inputs["decay"] = np.where(forgets, -np.inf, decay)
    if "delta" in rule:
        inputs["beta"] = chosen.choice((1, 1.9)) * numbers.random((batch, n, chosen.choice((1, states))))
    attributes = {"q_num_heads": queries, "kv_num_heads": states, "update_rule": rule, "scale": chosen.choice((0.0, 0.3)),
                  "chunk_size": chosen.choice((16, 64))}
    return {name: x.astype(np.float32) for name, x in inputs.items()}, attributes


def computed(inputs, attributes):
    """Returns the results of onnxruntime."""
    names = [name if name in inputs else "" for name in ("query", "key", "value", "past_state", "decay", "beta")]
    node = helper.make_node("LinearAttention", names, RESULTS, domain="com.microsoft", **attributes)
    infos = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in some] for some in (inputs, RESULTS)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "call", *infos), opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(RESULTS, session.run(RESULTS, inputs)))


def request_of(inputs, attributes):
    names = {"query": "Q", "key": "K", "value": "V"}
    options = {"heads": attributes["q_num_heads"], "kv_heads": attributes["kv_num_heads"], "update": attributes["update_rule"]}
    if attributes["scale"]:
        options["scale"] = attributes["scale"]
    gates = {"decay", "beta"}  # if there are as many heads as rows, a last axis of 1 says that the heads follow the rows
    shaped = {name: x[..., None] if name in gates and x.shape[1] == x.shape[2] == attributes["kv_num_heads"] else x for name, x in inputs.items()}
    return {**options, **{names.get(name, name): as_lists(x) for name, x in shaped.items()}, "return": list(RESULTS)}


def run(daemon, inputs, attributes):
    """Raises Failure if a result is not that of onnxruntime."""
    want, request = computed(inputs, attributes), request_of(inputs, attributes)
    for dtype in ("float32", "float64"):
        answer = daemon.ask("/linear-attention", {"dtype": dtype, **request})
        for name in RESULTS:
            got = np.array(answer[name])
            if got.shape != want[name].shape:
                raise Failure(f"{name} has shape {got.shape}, not {want[name].shape}")
            error = np.abs(got - want[name]).max() / np.abs(want[name]).max()
            if not error <= TOLERANCE:
                raise Failure(f"{name} in {dtype} is off by {error:.2g} of its largest number")


def main():
    chosen, numbers = random.Random(1), np.random.default_rng(1)
    passed, failed = 0, 0
    daemon = Daemon(os.environ["ATTENTIOND_BIN"])
    for i in range(CALLS):
        inputs, attributes = draw(chosen, numbers, RULES[i % len(RULES)])
        try:
            run(daemon, inputs, attributes)
            passed += 1
        except Failure as failure:
            print(f"onnxruntime, call {i}, {attributes}, {({name: x.shape for name, x in inputs.items()})}: {failure}")
            failed += 1
    failed += daemon.stop() != 0
    print(f"onnxruntime {onnxruntime.__version__}: {passed} passed, {failed} failed, 0 skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
