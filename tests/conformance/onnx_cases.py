"""Sends the daemon every test case of the ONNX operators Attention, RotaryEmbedding, LinearAttention and
FlexAttention, as JSON.

    ATTENTIOND_BIN=build/attentiond onnx_cases.py [-v] [NAME...]

The cases are those that the PyPI package onnx generates for the operators' own conformance tests
(opsets 23 to 27, and 1 of ai.onnx.preview). Each becomes one POST /attention or /linear-attention, and passes if every
output of the operator comes back: Y of RotaryEmbedding is present_K of a call whose rows of K are turned.
Half-precision inputs are widened to float32. The answer to these must also be what ONNX's reference implementation
computes from the widened inputs, within the tolerance of float32.
The status is 0 only if all cases pass and at least MINIMUM of them ran.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

# The operators, and how the names of their cases begin.
OPERATORS = {
    "Attention": "test_attention", "RotaryEmbedding": "test_rotary_embedding",
    "LinearAttention": "test_linear_attention", "FlexAttention": "test_flexattention",
}  # fmt: skip
PATHS = {"LinearAttention": "/linear-attention"}  # all others are /attention
MINIMUM = 120

# Maps the name of a case to the reason why the daemon cannot express it. A case in this table is an
# error if it passes, or if the package does not have it.
SKIPPED = {"test_flexattention_prob_mod": "prob_mod halves the weights, which no option does"}

# The allowed difference, relative to the largest expected number of the row. The operator rounds
# every stage to its type, so half precision may differ by two of its units: 2 * 2**-10, 2 * 2**-7.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2}

KNOWN_ATTRIBUTES = {
    "interleaved", "is_causal", "kv_num_heads", "left_window_size", "num_heads", "prob_mod",
    "q_num_heads", "qk_matmul_output_mode", "right_window_size", "rotary_embedding_dim", "scale",
    "score_mod", "softcap", "softmax_precision", "update_rule",
}  # fmt: skip


class Failure(Exception):
    """An answer that differs from the output of the operator. The text says where."""


class Daemon:
    """A daemon on a free port, and one connection to it."""

    def __init__(self, program):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ATTENTIOND_")}
        self.process = subprocess.Popen(
            [program, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment
        )
        line = self.process.stdout.readline()
        address = re.search(r"http://([0-9.]+):([0-9]+)$", line.rstrip())
        if address is None:
            self.stop()
            sys.exit(f"{program} does not say where it listens: {line!r}")
        self.connection = http.client.HTTPConnection(address[1], int(address[2]), timeout=60)

    def ask(self, path, request):
        try:
            self.connection.request(
                "POST", path, json.dumps(request), {"Content-Type": "application/json"}
            )
            response = self.connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Failure(f"no answer: {error!r}") from error
        if response.status != 200:
            raise Failure(f"status {response.status}: {body.decode(errors='replace').strip()}")
        try:
            return json.loads(body, parse_constant=refuse)
        except ValueError as error:
            raise Failure(f"the answer is not JSON: {error}") from error

    def stop(self):
        """Stops the daemon. Returns its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def refuse(word):
    raise ValueError(f"{word} is not JSON")


def as_lists(array):
    """Returns nested lists with null for -inf. Each float32 is exactly a Python float."""
    if array.dtype == np.bool_:
        return array.tolist()
    if np.isnan(array).any() or np.isposinf(array).any():
        raise Failure("an input holds NaN or Infinity: JSON has no such number")
    lists = array.astype(object)
    lists[np.isneginf(array)] = None
    return lists.tolist()


def widen(array):
    """Converts all types but bool, integers and float64 to float32."""
    kept = array.dtype.kind in "biu" or array.dtype == np.float64
    return array if kept else array.astype(np.float32)


def pack(array):
    """Converts (batch, heads, n, d) to (batch, n, heads * d)."""
    return array.transpose(0, 2, 1, 3).reshape(array.shape[0], array.shape[2], -1)


def pad_mask(mask, keys):
    """Pads a short mask: in the operator no query attends to the keys beyond it."""
    forbidden = False if mask.dtype == np.bool_ else -np.inf
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
    mask = np.pad(mask, missing, constant_values=forbidden)
    return mask[np.newaxis] if mask.ndim == 1 else mask


def add_masks(request, inputs, attributes):
    """Adds mask, bias, causal, window and lengths to the request."""
    packed = inputs["Q"].ndim == 3
    axis = 1 if packed else 2
    keys = inputs["K"].shape[axis]
    if "past_key" in inputs:
        keys += inputs["past_key"].shape[2]
    mask, bias = None, None
    if "attn_mask" in inputs:
        given = pad_mask(inputs["attn_mask"], keys)
        mask, bias = (given, None) if given.dtype == np.bool_ else (None, given)
    if "nonpad_kv_seqlen" in inputs:  # the last query of an item then stands at its last valid key
        request["lengths"] = inputs["nonpad_kv_seqlen"].tolist()
        request["alignment"] = "bottom_right"
    if attributes.get("is_causal", 0):
        request["causal"] = True
    if {"left_window_size", "right_window_size"} & set(attributes):
        request["window"] = [attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
    if mask is not None:
        request["mask"] = as_lists(mask)
    if bias is not None:
        request["bias"] = as_lists(bias)


def stage(attributes):
    """Returns the result that is qk_matmul_output. Mode 0 is Q sqrt(scale) (K sqrt(scale))^T, scaled."""
    mode = attributes.get("qk_matmul_output_mode", 0)
    if mode == 0 and attributes.get("softcap", 0) > 0:
        raise Failure("qk_matmul_output is scaled but not soft-capped; the daemon has no such result")
    return ["scaled_scores", "scaled_scores", "masked_scores", "weights"][mode]


def rotary_request(inputs, attributes):
    """Returns the request for RotaryEmbedding, and the output of the operator for its result."""
    rotary = {"interleaved": attributes.get("interleaved", 0) != 0}
    if attributes.get("rotary_embedding_dim", 0) > 0:
        rotary["columns"] = attributes["rotary_embedding_dim"]
    rows = inputs["input"]
    request = {"X": as_lists(rows), "rotary": rotary, "return": ["present_K"]}
    if rows.ndim == 3:
        request["heads"] = attributes["num_heads"]
    for name, key in [
        ("cos_cache", "rotary_cos"), ("sin_cache", "rotary_sin"), ("position_ids", "positions"),
    ]:  # fmt: skip
        if name in inputs:
            request[key] = as_lists(inputs[name])
    return request, {"present_K": "output"}


def attention_request(inputs, outputs, attributes):
    """Returns the request for Attention, and the output of the operator for each result."""
    request = {name: as_lists(inputs[name]) for name in "QKV"}
    packed = inputs["Q"].ndim == 3
    for attribute, option in [("q_num_heads", "heads"), ("kv_num_heads", "kv_heads")]:
        if packed:
            request[option] = attributes[attribute]
    for option in ("scale", "softcap"):
        if option in attributes:
            request[option] = attributes[option]
    for name, option in [("past_key", "past_K"), ("past_value", "past_V")]:
        if name in inputs:
            request[option] = as_lists(pack(inputs[name]) if packed else inputs[name])
    add_masks(request, inputs, attributes)
    results = {"Y": "output", "present_key": "present_K", "present_value": "present_V"}
    if "qk_matmul_output" in outputs:
        results["qk_matmul_output"] = stage(attributes)
    wanted = {results[name]: name for name in outputs}
    request["return"] = list(wanted)
    return request, wanted


def linear_request(inputs, attributes):
    """Returns the request for LinearAttention, and the output of the operator for each result."""
    names = {"query": "Q", "key": "K", "value": "V"}
    request = {names.get(name, name): as_lists(array) for name, array in inputs.items()}
    for name, array in inputs.items():  # if there are as many heads as rows, a last axis of 1 says that the heads follow the rows
        if name in ("decay", "beta") and array.shape[1] == array.shape[2] == attributes["kv_num_heads"]:
            request[name] = as_lists(array[..., None])
    request["heads"], request["kv_heads"] = attributes["q_num_heads"], attributes["kv_num_heads"]
    request["update"] = attributes.get("update_rule", b"gated_delta").decode()
    if attributes.get("scale", 0) != 0:
        request["scale"] = attributes["scale"]
    request["return"] = ["output", "present_state"]
    return request, {name: name for name in request["return"]}


def score_options(graph, opsets, shape):
    """Returns the options that do what a score_mod does to scores of this shape."""
    numbers = [onnx.numpy_helper.to_array(x) for x in graph.initializer]
    if [node.op_type for node in graph.node] == ["Div", "Tanh", "Mul"] and len(numbers) == 1:
        return {"softcap": float(numbers[0])}
    modify = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets)).run
    scores = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    bias, modified = (modify(None, {graph.input[0].name: x})[0] for x in (0 * scores, scores))
    if not np.array_equal(modified, scores + bias):
        raise Failure("score_mod does more than to add a bias")
    causal = np.where(np.tri(*shape[-2:]), 0, -np.inf)
    return {"causal": True} if np.all(bias == causal) else {"bias": as_lists(bias)}


def flex_request(inputs, attributes, opsets):
    """Returns the request for FlexAttention, and the output of the operator for its result."""
    if "prob_mod" in attributes:
        raise Failure("no option modifies the weights")
    request = {name: as_lists(inputs[name]) for name in "QKV"}
    if "scale" in attributes:
        request["scale"] = attributes["scale"]
    if "score_mod" in attributes:
        shape = (*inputs["Q"].shape[:3], inputs["K"].shape[2])
        request.update(score_options(attributes["score_mod"], opsets, shape))
    request["return"] = ["output"]
    return request, {"output": "Y"}


def request_of(model, inputs, outputs, attributes):
    """Returns the request, and the output of the operator for each result."""
    unknown = set(attributes) - KNOWN_ATTRIBUTES
    if unknown:
        raise Failure(f"unknown attributes: {sorted(unknown)}")
    operator = model.graph.node[0].op_type
    if operator == "RotaryEmbedding":
        return rotary_request(inputs, attributes)
    if operator == "LinearAttention":
        return linear_request(inputs, attributes)
    if operator == "FlexAttention":
        return flex_request(inputs, attributes, model.opset_import)
    return attention_request(inputs, outputs, attributes)


def as_array(result, lists, dtype):
    """Returns the numbers of dtype that the daemon computed. null is -inf, in masked scores only."""
    try:
        array = np.array(lists, dtype=np.float64).astype(dtype)  # None becomes NaN
    except (TypeError, ValueError) as error:
        raise Failure(f"{result} is not an array of numbers: {error}") from error
    if result == "masked_scores":
        array[np.isnan(array)] = -np.inf
    elif np.isnan(array).any():
        raise Failure(f"{result} holds null")
    return array.astype(np.float64)


def compare(result, got, expected, tolerance):
    """Checks that the difference is at most tolerance * the largest finite |expected| of the row. -inf and rows of
    zeros must be equal."""
    if got.shape != expected.shape:
        raise Failure(f"{result} has shape {got.shape}, not {expected.shape}")
    finite = np.isfinite(expected)
    scale = np.max(np.abs(np.where(finite, expected, 0)), axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(got == expected, 0, np.abs(got - expected))
        share = np.where(error == 0, 0, error / scale)
    if np.all(share <= tolerance):
        return
    worst = np.unravel_index(np.argmax(np.where(np.isnan(share), np.inf, share)), share.shape)
    raise Failure(
        f"{result}{list(map(int, worst))} is {got[worst]:.9g}, not {expected[worst]:.9g}: "
        f"off by {share[worst]:.2g} of its row, {tolerance:g} allowed"
    )


def run(daemon, case):
    """Raises Failure unless the daemon gives what the operator gives."""
    node = case.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    input_names, output_names = ([n for n in names if n] for names in (node.input, node.output))
    for values, expected in case.data_sets:
        kind = values[0].dtype.name
        inputs = dict(zip(input_names, map(widen, values), strict=True))
        outputs = dict(zip(output_names, expected, strict=True))
        request, wanted = request_of(case.model, inputs, outputs, attributes)
        dtype = "float64" if kind == "float64" else "float32"
        answer = daemon.ask(PATHS.get(node.op_type, "/attention"), {"dtype": dtype, **request})
        if list(answer) != list(wanted):
            raise Failure(f"the answer holds {list(answer)}, not {list(wanted)}")
        answer = {wanted[name]: as_array(name, lists, dtype) for name, lists in answer.items()}
        tries = [(outputs, TOLERANCE[kind])]
        if kind not in ("float32", "float64"):
            exact = ReferenceEvaluator(case.model).run(output_names, inputs)
            tries.append((dict(zip(output_names, exact, strict=True)), TOLERANCE["float32"]))
        for outputs, tolerance in tries:
            for name, array in outputs.items():
                array = array.astype(np.float64)
                if name in ("present_key", "present_value"):
                    # This result is a copy, so nothing may differ. It has the form of K and V.
                    array = pack(array) if inputs["Q"].ndim == 3 else array
                    compare(name, answer[name], array, 0)
                else:
                    compare(name, answer[name], array, tolerance)


def collect():
    """Returns the cases that are one node of an operator of OPERATORS. The package has each a second
    time, with the same data and the node expanded into primitive operators; these are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases overflow on purpose
        found = [c for c in collect_testcases(None) if c.name.startswith(tuple(OPERATORS.values()))]
    cases = [c for c in found if [n.op_type for n in c.model.graph.node][0] in OPERATORS]
    names = {c.name for c in cases}
    strays = [c.name for c in found if re.sub("_expanded(_ver[0-9]+)?$", "", c.name) not in names]
    if strays or len(names) != len(cases):
        sys.exit(f"these cases are not one node, or two have the same name: {strays}")
    return cases


def main():
    parser = argparse.ArgumentParser(description="Test cases of ONNX operators, over HTTP.")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print the cases that pass")
    parser.add_argument("names", nargs="*", metavar="NAME", help="run these cases only")
    arguments = parser.parse_args()
    program = os.environ.get("ATTENTIOND_BIN") or sys.exit("ATTENTIOND_BIN names no daemon")
    cases = collect()
    missing = (set(SKIPPED) | set(arguments.names)) - {c.name for c in cases}
    passed, failed, skipped = 0, 0, 0
    for name in sorted(missing):
        print(f"{name}: onnx {onnx.__version__} has no such case")
        failed += 1
    daemon = Daemon(program)
    try:
        for case in cases:
            if arguments.names and case.name not in arguments.names:
                continue
            problem = None
            try:
                run(daemon, case)
            except Failure as failure:
                problem = str(failure)
            if case.name in SKIPPED and problem is None:
                problem = "is in the table SKIPPED, but passes"
            elif case.name in SKIPPED:
                print(f"{case.name}: skipped: {SKIPPED[case.name]}")
                skipped += 1
                continue
            failed += problem is not None
            passed += problem is None
            if problem is not None or arguments.verbose:
                print(f"{case.name}: {problem or 'passed'}")
    finally:
        status = daemon.stop()
    if status != 0:
        print(f"the daemon ended with status {status}")
        failed += 1
    if passed + failed < MINIMUM and not arguments.names:
        print(f"only {passed + failed} cases ran; there must be at least {MINIMUM}")
        failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
