"""hooks.py gives Schemathesis what openapi.yaml cannot say: the exact types of bodies, and sizes that suit each other.

The types in openapi.yaml are plain. Here the exact types of exact.yaml replace them, so that requests are made from the
exact types and answers are checked against them.

Schemathesis makes requests that fit their schema. No schema can demand that all rows of a matrix have the same length, or
that K has as many columns as Q. So fit() changes a valid body before it is sent. Matrices get sizes that suit each other,
numbers get magnitudes with which the call stays within float32, and draws get a generator, sizes and parameters of the same
kind. Which keys there are, how many axes a matrix has, and the options do not change. Only tables and positions of rotary
embedding are removed if they cannot suit the sizes, and so is alibi if a key has no position. Expected results are removed.
Matrices of packed sequences get two axes, and what these do not have is removed.

fit() does not change a body that fits already and whose numbers are at most 1000. Bodies that are meant to be refused are
left alone. A schema cannot say either which files there are under /assets and which layers are stored, so a valid request
gets the name of a file or of a layer.

A schema says nothing of the tensors in the Open Inference Protocol and in safetensors. So a valid body of these is made
anew: from its shapes and numbers, matrices are made for the JSON endpoint, fit() fits them, and they become tensors.
"""

import copy
import itertools
import json
import math
import os
import pathlib
import struct

import schemathesis
from exact import exact_schemas
from hypothesis import strategies
from schemathesis.core import NOT_SET
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

MAX_RANK = 8
LARGEST = 1000.0  # sums of some products of such numbers are finite in float32
MAX_HEADS = 6
MAX_DRAWN = 5  # the largest size of an axis before the matrix is made to fit
SECONDS = 10.0  # enough time for any call of these sizes

INFER = "/v2/models/{model}/infer"
STORED, STORED_ATTENTION = "/layers/{name}", "/layers/{name}/attention"
MODEL, LAYER = "small", "small.attention"  # run.sh stores this model, which has one layer
EXAMPLE_LAYER = "story.1"  # that of the examples in openapi.yaml, which run.sh stores, too
FILE = pathlib.Path(__file__).parents[1] / "data/layers/small.safetensors"
LAYER_HEADS, LAYER_COLUMNS = 2, 4
HEADER = "Inference-Header-Content-Length"
SAFETENSORS, OCTETS = "application/vnd.safetensors", "application/octet-stream"
# The matrices that each endpoint gets as tensors.
MATRICES = {
    "/attention": ["Q", "K", "V"],
    "/self-attention": ["X", "W_Q", "W_K", "W_V"],
    "/multi-head-attention": ["X", "W_Q", "W_K", "W_V"],
    "/linear-attention": ["Q", "K", "V"],
    "/softmax": ["X"],
    "/embeddings": ["embedding"],
    STORED_ATTENTION: ["X"],
}
# The options that tensors have beside them, and a value of each. A text stands for this value, too, in JSON.
OPTIONS = {"causal": True, "scale": 0.5, "window": [1, 0], "digits": 3, "dtype": "float64"}
OF_ALL = {"digits", "dtype"}  # the options of every endpoint
ENDPOINTS_OF_ALL_OPTIONS = MATRICES.keys() - {"/linear-attention", "/softmax", "/embeddings"}
# The names of types in safetensors and in the protocol, and the format of their elements.
TYPES = {"F32": ("FP32", "<f"), "F64": ("FP64", "<d"), "F16": ("FP16", "<e")}

# The arrays of numbers of exact.yaml.
ARRAYS = [
    "Indices", "Leaves",
    *(f"Mask{rank}" for rank in ("Row", *range(2, 9))),
    *(f"{name}{kind}" for name in ("Vector", *(f"Matrix{rank}" for rank in range(2, 9))) for kind in ("", "OrMinusInfinity")),
]

# The tensors of a binary body as JSON, before write_tensors() makes its bytes.
RECIPES = strategies.fixed_dictionaries({
    "type": strategies.sampled_from(sorted(TYPES)),
    "inputs": strategies.lists(min_size=1, max_size=4, elements=strategies.fixed_dictionaries({
        "shape": strategies.lists(strategies.integers(1, 4), min_size=2, max_size=2),
        "data": strategies.lists(strategies.floats(-8, 8, width=16), min_size=1, max_size=8),
    })),
    "parameters": strategies.fixed_dictionaries({}, optional={
        name: strategies.just(json.dumps(value)) for name, value in OPTIONS.items()}),
})
NO_RECIPE = {"type": "F32", "inputs": [], "parameters": {}}
for name in (SAFETENSORS, OCTETS):
    schemathesis.openapi.media_type(name, RECIPES.map(lambda recipe: json.dumps(recipe).encode()))


@schemathesis.hook
def before_load_schema(context, raw_schema):
    raw_schema["security"].remove({})  # the tested daemon needs a key, so "no key" is no alternative
    schemas = raw_schema["components"]["schemas"]
    schemas.update(copy.deepcopy(exact_schemas(schemas)))
    for name in ARRAYS:  # how an empty matrix fits the others, fit() does not know
        schemas[name]["minItems"] = 1


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.operation.path == "/assets/{name}" and is_meant_to_be_valid(case, ParameterLocation.PATH):
        case.path_parameters["name"] = os.environ["ATTENTIOND_ASSET"]
    if case.operation.path in (STORED, STORED_ATTENTION):
        name_layer(case)
    if case.body is NOT_SET or case.operation.path == STORED:
        return
    if not is_meant_to_be_valid(case, ParameterLocation.BODY):
        spoil_harmless(case.body)
        if is_example(case):
            remove_expected(case.body)
        return
    if case.operation.path == INFER:
        fit_inference(case)
    if case.operation.path == INFER or case.media_type == SAFETENSORS:
        return
    fitted = fit(case.operation.path, case.body)
    if fitted != case.body:
        case.body = fitted
    if case.operation.path == STORED_ATTENTION and len(sizes(fitted.get("X"))) == 4:
        case.path_parameters["name"] = MODEL


def is_meant_to_be_valid(case, location):
    component = case.meta.components.get(location) if case.meta else None
    return component is not None and not component.mode.is_negative


def is_example(case):
    """Returns whether the tool has filled an example of openapi.yaml with values for the keys that it does not have."""
    return case.meta is not None and case.meta.phase.name == TestPhase.EXAMPLES and isinstance(case.body, dict)


def name_layer(case):
    """Gives the case the name of a stored layer."""
    component = case.meta.components.get(ParameterLocation.PATH) if case.meta else None
    if component is None or not component.mode.is_negative:
        case.path_parameters["name"] = EXAMPLE_LAYER if is_example(case) else LAYER


def spoil_harmless(body):
    """null for a key means that it is absent, and an array without numbers is a matrix without rows. Both may be right. A
    body that is meant to be refused gets an object in place of them that is right for no key."""
    heads = body.get("heads") if isinstance(body, dict) else None
    for part in [body, *(heads if isinstance(heads, list) else [])]:
        if isinstance(part, dict):
            part.update({key: {"wrong": 1} for key, value in part.items()
                         if value is None or (isinstance(value, list) and not leaves(value))})


def fit(path, body):
    body = copy.deepcopy(body)
    if "timeout" in body:
        body["timeout"] = max(body["timeout"], SECONDS)
    remove_expected(body)
    add_needed_results(body)
    fit_draws(body)
    if "text" in body or "tokens" in body:
        add_x_of_words(body)
    fits = {"/softmax": fit_softmax, "/attention": fit_attention, "/linear-attention": fit_linear, "/self-attention": fit_projected,
            "/multi-head-attention": fit_projected, STORED_ATTENTION: fit_stored}
    if path in fits:
        fits[path](body)
    if "text" in body or "tokens" in body:
        remove_x_of_words(body)
    return body


def add_needed_results(body):
    """Names the results without which top_k and mean_over_heads are refused. As rules of exact.yaml they would be so many
    that the tool could not make requests any more."""
    if "top_k" in body and "top_k" not in body.setdefault("return", []):
        body["return"].append("top_k")
    if body.get("mean_over_heads") and "return" in body and "weights" not in body["return"]:
        body["return"].append("weights")


def remove_expected(body):
    """Removes expected results, which would have to have the shapes of the results. Weights are returned in place of their
    comparison."""
    for key in ("expected", "computed_in", "tolerance", "fail_on_difference"):
        body.pop(key, None)
    if isinstance(body.get("return"), list):
        names = ["weights" if name == "comparison" else name for name in body["return"]]
        body["return"] = list(dict.fromkeys(names))


# ----------------------------------------------------------------------------------------------- tensors


def endpoint_of(case):
    """Returns the JSON endpoint of a case with tensors, or None if its path names no model."""
    path = case.operation.path
    if path == INFER:
        model = case.path_parameters["model"]
        path = STORED_ATTENTION if model == LAYER else f"/{model}"
    return path if path in MATRICES else None


def fit_inference(case):
    """Gives the case a valid body of the protocol as JSON, or the length of the JSON before the tensors."""
    if case.path_parameters.get("model") == EXAMPLE_LAYER:  # its matrices would not fit
        case.path_parameters["model"] = LAYER
    path = endpoint_of(case)
    if is_meant_to_be_valid(case, ParameterLocation.HEADER) and case.headers:
        case.headers.pop(HEADER, None)
    if path and case.media_type == OCTETS and not case.meta.generation.mode.is_negative:
        case.headers[HEADER] = str(binary_inference(path, recipe_of(case.body))[0])
    elif path and case.media_type == "application/json":
        case.body = inference(path, case.body)


@schemathesis.serializer(SAFETENSORS, OCTETS)
def write_tensors(context, body):
    """Makes the bytes of a recipe. A body that is meant to be refused stays a recipe, which is no valid body."""
    case, path = context.case, endpoint_of(context.case)
    if case.operation.path == STORED and not case.meta.generation.mode.is_negative:
        return FILE.read_bytes()
    if path and not case.meta.generation.mode.is_negative:
        recipe = recipe_of(body)
        return safetensors(path, recipe) if case.media_type == SAFETENSORS else binary_inference(path, recipe)[1]
    return body if isinstance(body, bytes) else b""


def recipe_of(body):
    """Returns the recipe that a body is, or one for a body that Schemathesis has made in another way."""
    try:
        return json.loads(body)
    except (TypeError, ValueError):
        return NO_RECIPE


def parts(path, body):
    """Returns matrices that fit each other, and options, for a body of the Open Inference Protocol."""
    inputs = body["inputs"] or [{"shape": [2, 2], "data": [1, 2]}]
    question = {}
    for name, given in zip(MATRICES[path], itertools.cycle(inputs)):
        numbers = [leaf for leaf in leaves(given.get("data")) if type(leaf) in (int, float)]
        shape = [1 + (int(size) - 1) % MAX_DRAWN for size in [1, *given["shape"]][-2:]]
        question[name] = reshape([math.fmod(number, 8) for number in numbers] or [1], shape)
    for name, value in (body.get("parameters") or {}).items():
        if name in (OPTIONS.keys() if path in ENDPOINTS_OF_ALL_OPTIONS else OF_ALL):
            right = type(value) in (type(OPTIONS[name]), float) and not isinstance(value, str) and name != "digits"
            question[name] = value if right else OPTIONS[name]
    if path == "/embeddings":
        question["text"] = "to be or not"
    fitted = fit(path, question)
    matrices = {name: fitted.pop(name) for name in MATRICES[path]}
    return matrices, fitted


def texts(options):
    """Returns options as texts: those that are no text become JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}


def packed(kind, matrices):
    return b"".join(struct.pack(TYPES[kind][1], leaf) for matrix in matrices.values() for leaf in leaves(matrix))


def safetensors(path, recipe):
    kind, (matrices, options) = recipe["type"], parts(path, recipe)
    header, end = {"__metadata__": texts(options)}, 0
    for name, matrix in matrices.items():
        begin, end = end, end + math.prod(sizes(matrix)) * struct.calcsize(TYPES[kind][1])
        header[name] = {"dtype": kind, "shape": sizes(matrix), "data_offsets": [begin, end]}
    written = json.dumps(header).encode()
    return struct.pack("<Q", len(written)) + written + packed(kind, matrices)


def binary_inference(path, recipe):
    """Returns the length of the JSON, and the body."""
    (name, letter), (matrices, options) = TYPES[recipe["type"]], parts(path, recipe)
    size = struct.calcsize(letter)
    inputs = [{"name": key, "datatype": name, "shape": sizes(matrix),
               "parameters": {"binary_data_size": math.prod(sizes(matrix)) * size}} for key, matrix in matrices.items()]
    parameters = {**texts(options), "binary_data_output": len(matrices) != 1}
    header = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    return len(header), header + packed(recipe["type"], matrices)


def without_lists(value):
    """Empties all lists, because JSON with a list of different types is refused wherever it stands."""
    if isinstance(value, dict):
        return {name: without_lists(each) for name, each in value.items()}
    return [] if isinstance(value, list) else value


def inference(path, body):
    """Returns a body of the protocol as JSON. It keeps what has nothing to do with the sizes of its tensors."""
    matrices, options = parts(path, body)
    made = {**body, "inputs": [{"name": name, "datatype": "FP32", "shape": sizes(matrix), "data": leaves(matrix)}
                               for name, matrix in matrices.items()]}
    if body.get("parameters"):
        made["parameters"] = {
            name: without_lists(value) for name, value in body["parameters"].items()
            if name in ("binary_data_output", "priority", "headers") or name.startswith("triton_")
        } | texts(options)
    for key, value in ("model_name", LAYER if path == STORED_ATTENTION else path[1:]), ("model_version", "1"):
        if body.get(key) is not None:
            made[key] = value
    if body.get("outputs"):
        made["outputs"] = [without_lists({**body["outputs"][0], "name": "output"})]
        for output in made["outputs"]:
            (output.get("parameters") or {}).pop("classification", None)
    return made


# ------------------------------------------------------------------------------------------------ arrays


def is_drawn(value):
    return isinstance(value, dict) and "shape" in value


def leaves(value):
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def sizes(value):
    """Returns the size of each axis, taken from the first element of each array."""
    if is_drawn(value):
        return value["shape"]
    found = []
    while isinstance(value, list):
        found.append(len(value))
        value = value[0]
    return found


def tame(number):
    if isinstance(number, bool) or number is None or abs(number) <= LARGEST:
        return number
    return math.fmod(number, 8)


def build(shape, numbers):
    if not shape:
        return next(numbers)
    return [build(shape[1:], numbers) for _ in range(shape[0])]


def reshape(value, shape):
    """Returns an array of this shape with the numbers of `value`, which are repeated if there are too few."""
    if is_drawn(value):
        return {**value, "shape": list(shape)}
    return build(shape, itertools.cycle([tame(leaf) for leaf in leaves(value)]))


def axis(value, back):
    """Returns the size of the `back`-th axis from the end, or 1 if the array has fewer axes."""
    shape = sizes(value)
    return shape[-back] if back <= len(shape) else 1


def divisor(number, most):
    """Returns the largest divisor of `number` that is at most `most`. `most` may be a float such as 2.0."""
    return next(d for d in range(min(number, int(most)), 0, -1) if number % d == 0)


# ------------------------------------------------------------------------------------- draws and words


def fit_draw(draw, generator):
    shape = draw["shape"] if isinstance(draw["shape"], list) else [draw["shape"]]
    draw["shape"] = [1 + (int(size) - 1) % MAX_DRAWN for size in shape]
    for name in ("low", "high", "mean", "std"):
        if name in draw:
            draw[name] = tame(draw[name])
    low, high = draw.get("low", 0), draw.get("high", 1)
    if draw["random"] == "randint" and low >= high:
        draw["low"] = high - 1
    if draw["random"] == "uniform" and low > high:
        draw["low"] = high
    if generator == "numpy":
        draw.pop("dtype", None)
    for before in draw.get("discard", []):
        fit_draw(before, generator)


def fit_draws(body):
    """Makes the drawn matrices small, and adds a generator if there are any."""
    heads = body["heads"] if isinstance(body.get("heads"), list) else []
    draws = [value for part in [body, *heads] for value in part.values() if is_drawn(value)]
    if draws:
        body.setdefault("random", {"generator": "numpy", "seed": 1})
    for draw in draws:
        fit_draw(draw, body["random"]["generator"])


def words(body):
    if "tokens" in body:
        return body["tokens"]
    return body["text"].lower().replace(",", "").replace(";", "").replace(".", "").split()


def add_x_of_words(body):
    """Gives the embedding a row for each word, and adds an X of the size that the words will have."""
    count = len(words(body))
    if "embedding_dim" in body:
        body["embedding_dim"] = 1 + (int(body["embedding_dim"]) - 1) % MAX_DRAWN
        body["X"] = [[0] * body["embedding_dim"]] * count
    elif "embedding" in body:
        rows, columns = sizes(body["embedding"])
        body["embedding"] = reshape(body["embedding"], [max(rows, count), columns])
        body["X"] = [[0] * columns] * count


def remove_x_of_words(body):
    """Removes this X, and gives the embedding as many columns as X was given."""
    x = body.pop("X", None)
    if "embedding_dim" in body:
        body["embedding_dim"] = axis(x, 1)
    elif "embedding" in body:
        body["embedding"] = reshape(body["embedding"], [axis(body["embedding"], 2), axis(x, 1)])


# ----------------------------------------------------------------------------------------------- options


SCALING = {"factor": 2, "original_max_position_embeddings": 8, "low_freq_factor": 1, "high_freq_factor": 4}


def turns(body):
    return body.get("rotary") not in (None, False) or "rotary_cos" in body


def head_columns(body, d):
    """Returns how many columns a head has: an even number if rows turn."""
    return d + d % 2 if turns(body) else d


def fit_scaling(scaling, pairs):
    kind = scaling.setdefault("rope_type", scaling.get("type", "linear"))
    if "type" in scaling:  # both names say the same
        scaling["type"] = kind
    for name, value in scaling.items():
        if type(value) in (int, float):
            scaling[name] = tame(value)
    for name, least in SCALING.items():
        if name in scaling or kind != "default":
            scaling[name] = max(scaling.get(name, least), least)
    if "low_freq_factor" in scaling:
        scaling["high_freq_factor"] = scaling["low_freq_factor"] + scaling.get("high_freq_factor", 1)
    for name, least in (("beta_slow", 1), ("beta_fast", 10)):
        if name in scaling:
            scaling[name] = least + scaling[name] % 8
    part = scaling.pop("partial_rotary_factor", 1)
    if kind == "proportional":  # at least one pair turns
        scaling["partial_rotary_factor"] = min(1, max(part, 1.5 / pairs))
    for name in ("short_factor", "long_factor"):
        if name in scaling or kind == "longrope":
            factors = itertools.cycle([0.5 + abs(tame(factor)) for factor in scaling.get(name, [1])])
            scaling[name] = build([pairs], factors)


def fit_turns(body, d, d_v, batch, queries, new_keys, past):
    """Makes the norms and the rotary embedding fit. `batch` has the size of the batch axis of K, or is empty."""
    for name, columns in (("norm_Q", d), ("norm_K", d), ("norm_V", d_v)):
        if name in body:
            body[name] = reshape(body[name], [columns])
    if body.get("rotary") is False and ("rotary_cos" in body or "rotary_sin" in body):
        del body["rotary"]  # the tables turn it on
    rotary = body["rotary"] if isinstance(body.get("rotary"), dict) else {}
    if "base" in rotary:
        rotary["base"] = max(tame(rotary["base"]), 2)
    if "columns" in rotary:
        rotary["columns"] = max(2, min(rotary["columns"], d) // 2 * 2)
    if "offset" in rotary:
        rotary["offset"] = int(rotary["offset"]) % 10
    pairs = rotary.get("columns", d) // 2
    if rotary.get("scaling"):
        fit_scaling(rotary["scaling"], pairs)
    if queries != new_keys:
        body.pop("positions", None)
    rows = rotary.get("offset", 0) + past + queries + new_keys
    at_the_end = "bottom_right" in (body.get("causal"), body.get("alignment"))
    for name in ("rotary_cos", "rotary_sin"):
        if at_the_end and ("lengths" in body or queries > past + new_keys):  # there may be positions below 0
            body.pop(name, None)
        elif name in body:
            body[name] = reshape(body[name], [*batch, rows, pairs])
    if not turns(body):
        body.pop("positions", None)
    if "positions" in body:
        shape = [*batch, queries] if len(sizes(body["positions"])) == 2 else [queries]
        if "rotary_cos" in body:
            body["positions"] = build(shape, itertools.cycle(range(rows)))
        elif is_drawn(body["positions"]):
            body["positions"] = reshape(body["positions"], shape)
        else:
            body["positions"] = build(shape, itertools.cycle([tame(leaf) for leaf in leaves(body["positions"])]))


def fit_options(body, batch, heads, queries, keys, decay=()):
    """Makes the options fit. `decay` is the shape of decays."""
    full = [batch, heads, queries, keys]
    if body.get("causal") == "bottom_right" and "alignment" in body:
        body["alignment"] = "bottom_right"
    if "compute_dtype" in body:
        body["compute_dtype"] = "bfloat16"  # products of such numbers are too large for float16
    if "softcap" in body:
        body["softcap"] = tame(body["softcap"])
    for name in ("mask", "bias"):
        if name in body:
            shape = sizes(body[name])[-4:]
            wanted = [1 if size == 1 else full[back] for back, size in zip(range(-len(shape), 0), shape)]
            body[name] = reshape(body[name], wanted)
    if "key_padding" in body:
        flat = len(sizes(body["key_padding"])) == 1
        body["key_padding"] = reshape(body["key_padding"], [keys] if flat else [batch, keys])
    for name in ("mask", "key_padding"):
        if isinstance(body.get(name), list):  # elements must be all booleans or all numbers
            first, *_ = elements = leaves(body[name])
            elements = [type(first)(element) for element in elements]
            if not isinstance(first, bool) and not any(elements):  # numbers that are all 0 are refused
                elements[0] = 1
            body[name] = build(sizes(body[name]), iter(elements))
    if "decay" in body:
        body["causal"] = body.get("causal") or True
        if is_drawn(body["decay"]):
            body["decay"]["shape"] = decay
        else:
            below = itertools.cycle([None if leaf is None else -abs(math.fmod(leaf, 8)) for leaf in leaves(body["decay"])])
            body["decay"] = build(decay, below)
    for name in ("alibi", "scale", "sink"):
        listed = isinstance(body.get(name), list) or is_drawn(body.get(name))
        if listed or (name in body and name == "sink" and heads > 1):
            body[name] = reshape(body[name], [heads])
        elif name in body:
            body[name] = tame(body[name])
    if "lengths" in body:
        one = not isinstance(body["lengths"], list) and batch == 1
        lengths = itertools.cycle([min(length, keys) for length in leaves(body["lengths"])])
        body["lengths"] = build([] if one else [batch], lengths)


GRADIENTS = ("grad_output", "grad_lse", "grad_weights", "grad_present_state")


def inputs_of(body):
    """Returns the names of what a body can have gradients of."""
    heads = body["heads"] if isinstance(body.get("heads"), list) else []
    own = set.intersection(*map(set, heads)) if heads else set()
    return {"Q", "K", "V"} | own | {name for name in body if name != "alibi" or not isinstance(body[name], bool)}


def fit_gradients(body, output, first, heads, rows, keys):
    """Makes the gradients of results fit, and `return`. `output` is the shape of the output. `first` and `heads` have the
    axes of lse before the queries, and `keys` is the number of columns of weights."""
    lse, of_heads = [*first, *heads, rows], [] if body.get("mean_over_heads") else heads
    if body.get("normalization", "softmax") != "softmax" or len(lse) > 3:
        body.pop("grad_lse", None)
    if len(lse) > 3:
        body.pop("grad_weights", None)
    for name, shape in zip(GRADIENTS, (output, lse, [*first, *of_heads, rows, keys])):
        if is_drawn(body.get(name)):
            body[name] = reshape(body[name], shape)
        elif name in body:
            body[name] = build(shape, itertools.cycle([math.fmod(leaf, 8) for leaf in leaves(body[name])]))
    if not any(body.get(name) for name in ("norm_Q", "norm_K", "norm_V", "normalize_QK")):
        body.pop("norm_epsilon", None)
    if "norm_epsilon" in body:
        body["norm_epsilon"] = max(body["norm_epsilon"], 1e-3)
    given, inputs = any(name in body for name in GRADIENTS), inputs_of(body)
    if given or "return" in body:
        default = ["output"] if "sequences" in body or "sequence_offsets" in body else ["output", "weights"]
        names = [name for name in body.get("return", default)
                 if not name.startswith("grad_") or (given and name.removeprefix("grad_") in inputs)]
        more = ["grad_V"] if given and not any(name.startswith("grad_") for name in names) else []
        body["return"] = names + more or ["output"]


# ---------------------------------------------------------------------------------------------- requests


def fit_softmax(body):
    shape = sizes(body["X"])[:MAX_RANK]
    body["X"] = reshape(body["X"], shape)
    if "axis" in body:
        body["axis"] = max(-len(shape), min(body["axis"], len(shape) - 1))


NOT_PACKED = ("mask", "bias", "lengths", "key_padding", "past_K", "past_V", "past_K_scale", "past_V_scale", "grad_weights", "top_k", "mean_over_heads",
              "past_state", "grad_present_state")
OF_PACKED = ("output", "lse", "entropy", "present_state", "decays")


def pack(body):
    """Makes the rows of Q, K and V, or of X, packed rows. Returns the key of their sequences, or None."""
    keys = [key for key in ("sequences", "sequence_offsets") if key in body]
    if not keys:
        return None
    for name in (*NOT_PACKED, *keys[1:]):
        body.pop(name, None)
    for name in "XQKV":
        if name in body:
            body[name] = reshape(body[name], [axis(body[name], 2), axis(body[name], 1)])
    if "return" in body:
        names = [name for name in body["return"] if name in OF_PACKED or name.startswith("grad_")]
        body["return"] = names or ["output"]
    return keys[0]


def fit_sequences(body, key, queries, keys):
    """Makes two sequences of these rows."""
    lists = body[key] if len(body[key]) == 2 or queries == keys else body[key] * 2
    firsts = [min(each[-1], rows) for each, rows in zip(lists, (queries, keys))]
    if "X" in body or "positions" in body:
        firsts = firsts[:1]
    offsets = key == "sequence_offsets"
    body[key] = [[0, first, rows] if offsets else [first, rows - first] for first, rows in zip(firsts, (queries, keys))]


def fit_scales(body):
    """Makes the axes of scales divide those of their matrices."""
    for name in [name for name in body if name.endswith("_scale")]:
        whole, own = sizes(body[name.removesuffix("_scale")]), sizes(body[name])
        if isinstance(body[name], list) or is_drawn(body[name]):
            own = [1] * (len(whole) - len(own)) + own[max(0, len(own) - len(whole)):]
            body[name] = reshape(body[name], [divisor(size, part) for size, part in zip(whole, own)])
        if not is_drawn(body[name]):
            body[name] = small(body[name]) if isinstance(body[name], list) else tame(body[name])


def fit_attention(body):
    """Makes the sizes fit. Q decides the rank, the batch and the heads, K the keys and their heads. The rank of K, V and
    their past rows is that of K or, if that is lower, of Q."""
    alone, sequences = "X" in body, pack(body)
    q, k, v = (body["X"],) * 3 if alone else (body["Q"], body["K"], body["V"])
    packed = "heads" in body
    rank = min(len(sizes(q)), 3 if packed else 4)
    kv_rank = min(len(sizes(k)), rank)
    batch = axis(q, 3) if packed and rank == 3 else axis(q, 4) if rank == 4 else 1
    if packed:
        heads = body["heads"] = min(int(body["heads"]), MAX_HEADS)
        kv_heads = heads if alone else divisor(heads, body.get("kv_heads", heads))
        if "kv_heads" in body:
            body["kv_heads"] = kv_heads
        d, d_v = head_columns(body, max(1, axis(q, 1) // heads)), max(1, axis(v, 1) // kv_heads)
        lead = lambda count, axes: [batch][: axes - 2]
        columns = lambda count, each: count * each
    else:
        heads = axis(q, 3) if rank >= 3 else 1
        kv_heads = heads if alone else divisor(heads, axis(k, 3) if kv_rank >= 3 else 1)
        d, d_v = head_columns(body, axis(q, 1)), axis(v, 1)
        lead = lambda count, axes: [batch, count][4 - axes :]
        columns = lambda count, each: each
    if alone:
        d_v = d
        body["X"] = reshape(q, [*lead(heads, rank), axis(q, 2), columns(heads, d)])
    else:
        body["Q"] = reshape(q, [*lead(heads, rank), axis(q, 2), columns(heads, d)])
        body["K"] = reshape(k, [*lead(kv_heads, kv_rank), axis(k, 2), columns(kv_heads, d)])
        body["V"] = reshape(v, [*lead(kv_heads, kv_rank), axis(k, 2), columns(kv_heads, d_v)])
    past = axis(body["past_K"], 2) if "past_K" in body else 0
    for name, each in (("past_K", d), ("past_V", d_v)):
        if name in body:
            body[name] = reshape(body[name], [*lead(kv_heads, kv_rank), past, columns(kv_heads, each)])
    fit_scales(body)
    kv_batch = lead(kv_heads, kv_rank)[: kv_rank - (2 if packed else 3)]
    for name, count, each in (("b_Q", heads, d), ("b_K", kv_heads, d), ("b_V", kv_heads, d_v)):
        fit_bias(body, name, [count], each)
    fit_turns(body, d, d_v, kv_batch, axis(q, 2), axis(k, 2), past)
    keys = axis(k, 2) + past
    decay = [*lead(1, rank), keys, *last_heads(keys, heads)] if packed else [*lead(heads, rank), keys]
    fit_options(body, batch, heads, axis(q, 2), keys, decay)
    if sequences:
        fit_sequences(body, sequences, axis(q, 2), axis(k, 2))
    rows, first = axis(q, 2), lead(heads, rank)
    axes = [*first, *([heads] if packed else [])]  # before the queries; the last one is that of the heads
    output = [*first, rows, columns(heads, d_v)]
    if "gate" in body:
        body["gate"] = reshape(body["gate"], output)
    fit_gradients(body, output, axes[:-1], axes[-1:], rows, axis(k, 2) + past)


def last_heads(rows, heads):
    """Returns the axes of gates behind the rows of packed matrices. If there are as many heads as rows, an axis of 1 says the order."""
    return [heads, 1] if rows == heads else [heads]


def small(value):
    """Returns numbers below 1, so that a state does not grow."""
    return value if is_drawn(value) else reshape([math.fmod(leaf, 8) / 8 for leaf in leaves(value)], sizes(value))


def fit_linear(body):
    """Makes K and V as long as Q, and then the sizes fit. Gates are at most 1, and have the axes of the states."""
    for name in "XQKV":
        if name in body:
            rows = axis(body["Q" if "Q" in body else name], 2)
            body[name] = small(reshape(body[name], [*sizes(body[name])[-4:-2], rows, axis(body[name], 1)]))
    fit_attention(body)
    q, k, v = (body["X"],) * 3 if "X" in body else (body["Q"], body["K"], body["V"])
    rows, packed, rank = axis(q, 2), "heads" in body, len(sizes(q))
    heads = body.get("kv_heads", body["heads"]) if packed else max(axis(k, 3), axis(v, 3))
    batch = sizes(q)[: -2 if packed else -3]
    d = axis(q, 1) // (body["heads"] if packed else 1)
    d_v = axis(v, 1) // (heads if packed else 1)
    gates = [*batch, *([rows, *last_heads(rows, heads)] if packed else [heads, rows] if rank > 2 else [rows])]
    if "decay" in body and is_drawn(body["decay"]):
        body["decay"] = {"random": "uniform", "low": -2, "high": 0, "shape": gates}
    elif "decay" in body:
        found = [leaf if leaf is None else -abs(tame(leaf)) for leaf in leaves(body["decay"])]
        body["decay"] = build(gates, itertools.cycle(found))
    if "beta" in body:
        body["beta"] = reshape(small(body["beta"]), gates)
    for name in ("past_state", "grad_present_state"):
        if name in body:
            body[name] = reshape(small(body[name]), [*batch, *([heads] if packed or rank > 2 else []), d, d_v])
    if "causal" in body:
        body["causal"] = True
    if "update" in body:
        body["update"] = ("linear", "gated", "delta", "gated_delta")[("decay" in body) + 2 * ("beta" in body)]
    if "return" in body and "decay" not in body:
        body["return"] = [name for name in body["return"] if name != "decays"] or ["output"]


def fit_weight(body, name, stack, rows, columns, out_in):
    if name in body:
        body[name] = reshape(body[name], [*stack, *((columns, rows) if out_in else (rows, columns))])


def fit_bias(body, name, stack, columns):
    if name in body:
        flat = len(sizes(body[name])) == 1 or not stack
        body[name] = reshape(body[name], [math.prod(stack) * columns] if flat else [*stack, columns])


def fit_triple(body, stacks, inputs, d, d_v, out_in):
    """Makes W_Q, W_K, W_V and their biases fit. `stacks` has the axes that come before the two of each weight, and `inputs`
    the number of columns of the matrix that each weight projects."""
    for letter, rows, columns, stack in zip("QKV", inputs, (d, d, d_v), stacks):
        fit_weight(body, f"W_{letter}", stack, rows, columns, out_in)
        fit_bias(body, f"b_{letter}", stack, columns)


def fit_projected(body):
    x, context = body["X"], body.get("context", body["X"])
    values = body.get("value_context", context)
    out_in = body.get("weight_layout") == "out_in"
    last = 2 if out_in else 1  # the axis of the columns of a weight, counted from the end
    batched = len(sizes(x)) == 3
    batch = [axis(x, 3)] if batched else []
    inputs = [axis(x, 1), axis(context, 1), axis(values, 1)]
    body["X"] = reshape(x, [*batch, axis(x, 2), inputs[0]])
    if "context" in body:
        body["context"] = reshape(context, [*batch, axis(context, 2), inputs[1]])
    if "value_context" in body:
        body["value_context"] = reshape(values, [*batch, axis(context, 2), inputs[2]])

    if isinstance(body.get("heads"), list):
        heads = kv_heads = len(body["heads"])
        head_axis = True
        width = 0
        keys = 0
        equal = turns(body) or "norm_Q" in body or "norm_K" in body  # these need heads of one size
        for head in body["heads"]:
            first = body["heads"][0] if equal else head
            d = head_columns(body, axis(first["W_Q"], last))
            d_v = axis((body["heads"][0] if "norm_V" in body else head)["W_V"], last)
            fit_triple(head, ([], [], []), inputs, d, d_v, out_in)
            keys, width = keys + d, width + d_v
        extra = ([keys], [width])
    else:
        stacked = len(sizes(body["W_Q"])) == 3
        head_axis = stacked or "heads" in body
        heads = axis(body["W_Q"], 3) if stacked else min(int(body.get("heads", 1)), MAX_HEADS)
        most = axis(body["W_K"], 3) if stacked else body.get("kv_heads", heads)
        kv_heads = divisor(heads, most)
        if "heads" in body:
            body["heads"] = heads
        if "kv_heads" in body:
            body["kv_heads"] = kv_heads
        d, d_v = head_columns(body, axis(body["W_Q"], last)), axis(body["W_V"], last)
        if stacked:
            fit_triple(body, ([heads], [kv_heads], [kv_heads]), inputs, d, d_v, out_in)
        else:
            d, d_v = head_columns(body, max(1, d // heads)), max(1, d_v // kv_heads)
            for letter, rows, columns in zip("QKV", inputs, (heads * d, kv_heads * d, kv_heads * d_v)):
                fit_weight(body, f"W_{letter}", [], rows, columns, out_in)
                fit_bias(body, f"b_{letter}", [], columns)
        width = heads * d_v
        extra = ([kv_heads, d], [kv_heads, d_v])
    for name, shape in zip(("bias_K", "bias_V"), extra):
        if name in body:
            body[name] = reshape(body[name], shape if len(sizes(body[name])) == 2 else [math.prod(shape)])
    if "bias_K" in body or body.get("zero_key"):  # these keys have no positions for alibi
        body.pop("alibi", None)
        body.pop("decay", None)

    if "W_O" in body:
        d_out = axis(body["W_O"], last)
        fit_weight(body, "W_O", [], width, d_out, out_in)
        fit_bias(body, "b_O", [], d_out)
    if "W_G" in body:
        body.pop("gate", None)
        fit_weight(body, "W_G", [], inputs[0], width, out_in)
        fit_bias(body, "b_G", [], width)
    if "gate" in body:
        body["gate"] = reshape(body["gate"], [*batch, axis(x, 2), width])
    past = axis(body["past_K"], 2) if "past_K" in body else 0
    for name, each in (("past_K", d), ("past_V", d_v)):
        if name in body:
            body[name] = reshape(body[name], [*batch, *([kv_heads] if head_axis else []), past, each])
    fit_scales(body)
    fit_turns(body, d, d_v, batch, axis(x, 2), axis(context, 2), past)
    keys = axis(context, 2) + past
    fit_options(body, math.prod(batch), heads, axis(x, 2), keys, [*batch, *([heads] if head_axis else []), keys])
    extras = ("bias_K" in body) + bool(body.get("zero_key"))
    output = [*batch, axis(x, 2), d_out if "W_O" in body else width]
    fit_gradients(body, output, batch, [heads] if head_axis else [], axis(x, 2), axis(context, 2) + past + extras)


def fit_stored(body):
    """Makes the sizes fit the stored layer. If X has four axes, the first one counts the layers, of which there is one."""
    x, context = body["X"], body.get("context", body["X"])
    batch = [axis(x, 3)] if len(sizes(x)) > 2 else []
    body["X"] = reshape(x, [*[1][: len(sizes(x)) - 3], *batch, axis(x, 2), LAYER_COLUMNS])
    for name in ("context", "value_context"):
        if name in body:
            body[name] = reshape(body[name], [*batch, axis(context, 2), LAYER_COLUMNS])
    past, d = axis(body["past_K"], 2) if "past_K" in body else 0, LAYER_COLUMNS // LAYER_HEADS
    for name in ("past_K", "past_V"):
        if name in body:
            body[name] = reshape(body[name], [*batch, LAYER_HEADS, past, d])
    fit_scales(body)
    fit_turns(body, d, d, batch, axis(x, 2), axis(context, 2), past)
    fit_options(body, math.prod(batch), LAYER_HEADS, axis(x, 2), axis(context, 2) + past)
    first = [*([1] if len(sizes(x)) == 4 else []), *batch]
    output = [*first, axis(x, 2), LAYER_COLUMNS]
    fit_gradients(body, output, first, [LAYER_HEADS], axis(x, 2), axis(context, 2) + past)
