"""What the check asks the service: the verdict on the results of a case."""

import array

import numpy

from attentiond import Tensor
from attentiond.cases import rounded


def tensor(x, dtype):
    """Returns an array of a type, as the client sends it."""
    if x.dtype == bool:
        return x
    if dtype == "bfloat16":
        bits = numpy.ascontiguousarray(rounded(x, dtype), numpy.float32).view(numpy.uint32) >> 16
        return Tensor("BF16", x.shape, array.array("H", bits.astype(numpy.uint16).tobytes()))
    return x.astype(dtype)


def request_of(case, matrices, options, settings):
    """Returns the path, the tensors and the options of the request whose results a kernel should have."""
    matrices, options = dict(matrices), dict(options)
    if options.pop("update", None):
        path, matrices = "/linear-attention", {"past_state" if name == "state" else name: x for name, x in matrices.items()}
        options["update"] = case["update"]
    else:
        path = "/attention"
    if "sequences" in options:
        options["sequence_offsets"] = [options.pop("sequences")]
    tensors = {name: tensor(x, settings["dtype"]) for name, x in matrices.items()}
    return path, tensors, {**options, "dtype": "float64", "return": ["comparison"], "computed_in": settings["computed_in"]}


def verdicts_of(client, request, results):
    """Returns the comparison of each result. results: {name: (array, type)}."""
    path, tensors, options = request
    if not any(name.startswith("grad_") for name in results):
        tensors = {name: x for name, x in tensors.items() if name != "grad_output"}
    expected = {f"expected.{name}": tensor(x, dtype) for name, (x, dtype) in results.items()}
    return client.compare(path, {**tensors, **expected}, options)["results"]
