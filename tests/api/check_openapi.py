#!/usr/bin/python3
"""Holds openapi.yaml to the service, and the service to openapi.yaml.

    check_openapi.py openapi.yaml [--table TABLE.json] [--exchanges DIR] [--daemon PROGRAM]
                     [--spec-validator]

The document has plain types, as generators of clients need them, and tests/openapi/exact.yaml has exact schemas for some
of them. A value fits if it fits both the plain type and the exact schema.

The script always checks the document itself. Every $ref resolves, every component is used, every schema is a valid JSON
Schema 2020-12, and every example fits its schema. A plain schema is not `true` or `false`, has nothing beside a $ref, does
not combine schemas, and gives no key of a request a default. Every key is described, with the same words in all requests.
Plain and exact schemas have the same keys, types and words.

--table: the file is what print_table prints. Its routes are exactly the methods and paths of the document, and its keys are
exactly the keys of each request, with the same ranks, ranges, choices and draws. Its results are exactly those of each
answer, with the same words on −∞ and softmax. The table of options in
README.md has such keys only, and the explorer has controls for such keys and choices only.
--exchanges: the folder has a JSON file for each recorded exchange, with "method", "path", "status", "media_type" and
"body". Each exchange is documented, and its body fits. Each status that the document promises for a POST endpoint has
occurred. If the status is 200, the member "request", if there is one, fits the schema of the request.
--daemon: runs the program on a free port of 127.0.0.1 and sends it every example of a request. The document has an example
of each answer under the same name, and the program gives this answer. The program also gives the examples of errors,
except for the 503, which only a busy service gives.
--spec-validator: checks the document with openapi-spec-validator from PyPI, too.

The script needs Debian's python3-yaml and python3-jsonschema (4.10 or later), and no other host.
"""

import argparse
import collections
import contextlib
import http.client
import importlib.metadata
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import jsonschema
import yaml

SPEC_VALIDATOR = "0.9.0"

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/openapi"))
from exact import LOWEST, exact_schemas, of_softmax  # noqa: E402

LAYERS = ROOT / "server/models"  # the stored layers of the examples
JSON, PROBLEM = "application/json", "application/problem+json"
INFERENCE = "/v2"  # the root of the Open Inference Protocol, whose errors are no problem documents
VERSION = "/versions/1"  # it may follow the name of a model
# Generators of clients make no good type of these keywords, so a plain schema does not use them.
NOT_PLAIN = {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "const", "contains", "prefixItems", "dependentRequired",
             "dependentSchemas", "patternProperties", "uniqueItems", "nullable", "default", "title"}
# These keys differ between requests or between answers. All others are described with the same words everywhere.
NOT_THE_SAME = {"X", "heads", "return", "tokens", "output", "b_Q", "b_K", "b_V"}
# A request that is not correct HTTP gets one of these statuses, whatever its path is.
ANSWERED_ANYWHERE = {400, 411, 413, 414, 415, 417, 431, 501, 505}
# If a POST endpoint documents one of these statuses, a test provokes it. (A 503 needs a busy or stopping service.)
PROVOKED = {"200", "400", "404", "409", "413", "415", "422", "501"}
# The requests to which the examples of errors are the answers: (response, name of the example) -> method, path, headers, body.
FITTING = '{"Q": [[1]], "K": [[1]], "V": [[1]]'
TO_PROVOKE = {
    ("BadRequest", ""): ("POST", "/attention", {}, '{"Q":[[1]],}'),
    ("NotFound", ""): ("GET", "/atention", {}, None),
    ("MethodNotAllowed", ""): ("GET", "/attention", {}, None),
    ("TooLarge", ""): ("POST", "/attention", {"Content-Length": "70000000", "Expect": "100-continue"}, None),
    ("Different", ""): ("POST", "/attention", {}, json.dumps({
        "Q": [[1, 2]], "K": [[1, 0], [0, 1]], "V": [[5, 6], [7, 8]], "scale": 0, "return": ["output"],
        "expected": {"output": [[6, 8]]}, "fail_on_difference": True})),
    ("UnsupportedMediaType", ""): ("POST", "/attention", {"Content-Type": "text/plain"}, FITTING + "}"),
    ("Unprocessable", "shapes"): ("POST", "/attention", {}, json.dumps({"Q": [[0] * 64], "K": [[0] * 48], "V": [[0]]})),
    ("Unprocessable", "misspelt"): ("POST", "/attention", {}, FITTING + ', "casual": true}'),
    ("Unauthorized", ""): ("GET", "/version", {}, None),
    ("NotHttp", ""): ("get", "/version", {}, None),
    ("InferenceRefused", ""): ("POST", "/v2/models/attention/infer", {}, json.dumps({"inputs": [
        {"name": name, "shape": [1, size], "datatype": "FP32", "data": [0] * size} for name, size in (("Q", 2), ("K", 3), ("V", 1))]})),
    ("InferenceDifferent", ""): ("POST", "/v2/models/attention/infer", {}, json.dumps({
        "parameters": {"fail_on_difference": True}, "inputs": [
            {"name": name, "shape": [1, 1], "datatype": "FP32", "data": [number]}
            for name, number in (("Q", 1), ("K", 2), ("V", 3), ("expected.output", 4))]})),
    ("InferenceUnauthorized", ""): ("GET", "/v2/models/stats", {}, None),
    ("InferenceNotImplemented", ""): ("POST", "/v2/repository/models/softmax/load", {}, ""),
}
NEED_KEYS = {("Unauthorized", ""), ("InferenceUnauthorized", "")}
NOT_PROVOKED = {("Unavailable", ""), ("InferenceUnavailable", "")}
MOST_AXES = 8
PLAIN_KINDS = {"bool": "boolean", "count": "integer", "integer": "integer", "number": "number", "seconds": "number"}
LONG_ROW = 8  # numbers; some schemas limit longer lists, but no test makes those too long


def is_json(media_type):
    return media_type == "application/json" or media_type.endswith("+json")


def thinned(value):
    """Returns the value with a few numbers of each long row: the first, the last, the smallest, the largest, a whole one
    and one that is not whole. A schema cannot tell the others from these, and validating them would take nearly all the
    time."""
    if isinstance(value, dict):
        return {key: thinned(member) for key, member in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) <= LONG_ROW or any(type(item) not in (int, float) for item in value):
        return [thinned(item) for item in value]
    kept = [value[0], value[-1], min(value), max(value)]
    for whole in (True, False):
        kept += [item for item in value if float(item).is_integer() == whole][:1]
    return kept


def without_nulls(request):
    """Returns the body of a request without the keys whose value is null, which count as absent."""
    if not isinstance(request, dict):
        return request
    kept = {key: value for key, value in request.items() if value is not None}
    if isinstance(kept.get("heads"), list):
        kept["heads"] = [without_nulls(head) for head in kept["heads"]]
    return kept


class Document:
    def __init__(self, path):
        self.root = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.exact = exact_schemas(self.root["components"]["schemas"])
        self.errors = []
        self.validators = {}

    def fail(self, message):
        self.errors.append(message)

    def components(self, exact):
        """Returns the components of the document. With `exact`, the exact schemas replace the plain ones."""
        components = self.root["components"]
        return {**components, "schemas": {**components["schemas"], **self.exact}} if exact else components

    def resolve(self, node, exact=False):
        """Returns the node, or the node that its $ref points at."""
        seen = set()
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            reference = node["$ref"]
            if not reference.startswith("#/") or reference in seen:
                raise LookupError(reference)
            seen.add(reference)
            node = {**self.root, "components": self.components(exact)}
            for token in reference[2:].split("/"):
                token = token.replace("~1", "/").replace("~0", "~")
                try:
                    node = node[int(token) if isinstance(node, list) else token]
                except (KeyError, IndexError, ValueError, TypeError):
                    raise LookupError(reference) from None
        return node

    def validator(self, schema, exact):
        """Returns the validator of a schema. The schema refers to "#/components/...", so the components are put beside it."""
        if (id(schema), exact) not in self.validators:
            self.validators[id(schema), exact] = jsonschema.Draft202012Validator(
                {**schema, "components": self.components(exact)}
            )
        return self.validators[id(schema), exact]

    def fits(self, value, schema, where, forms=(True, False)):
        value = thinned(value)
        for exact in forms:
            error = jsonschema.exceptions.best_match(self.validator(schema, exact).iter_errors(value))
            if error is not None:
                place = "/".join(str(token) for token in error.absolute_path)
                message = error.message if len(error.message) < 300 else error.message[:300] + " ..."
                self.fail(f"{where}: /{place}: {message}{' (exact.yaml)' if exact else ''}")

    def operations(self):
        for path, item in self.root["paths"].items():
            for method, operation in item.items():
                if method in METHODS:
                    yield method.upper(), path, operation


def nodes(node, path=""):
    """Yields all nodes of the document with their places, except those inside examples."""
    yield path, node
    if isinstance(node, dict):
        for key, child in node.items():
            if key not in ("value", "example"):
                yield from nodes(child, f"{path}/{key}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from nodes(child, f"{path}/{index}")


def check_references(document):
    used = set()
    for place, node in nodes(document.root):
        if not isinstance(node, dict) or "$ref" not in node:
            continue
        try:
            document.resolve(node)
            used.add(node["$ref"])
        except LookupError as error:
            document.fail(f"{place}: {error.args[0]} points at nothing")
        if len(node) > 1:
            document.fail(f"{place}: a $ref stands alone, not beside {', '.join(sorted(set(node) - {'$ref'}))}")
    # A key with more than one type has no $ref. Its description names the types, as in "the type DrawnMatrix".
    for _, node in nodes(document.root):
        if isinstance(node, dict) and isinstance(node.get("description"), str):
            used |= {f"#/components/schemas/{name}" for name in re.findall(r"the\s+type\s+(\w+)", node["description"])}
    # No operation refers to this response, because it answers requests that are no operation.
    used.add("#/components/responses/MethodNotAllowed")
    # Security schemes are used by name, without a $ref.
    for choice in document.root.get("security", []):
        used |= {f"#/components/securitySchemes/{name}" for name in choice}
    for kind, components in document.root["components"].items():
        for name in components:
            if f"#/components/{kind}/{name}" not in used:
                document.fail(f"#/components/{kind}/{name} is used nowhere")


def check_exact_references(document):
    used = set(document.root["components"]["schemas"])
    for place, node in nodes(document.exact):
        if isinstance(node, dict) and "$ref" in node:
            try:
                document.resolve({"$ref": node["$ref"]}, exact=True)
                used.add(node["$ref"].rpartition("/")[2])
            except LookupError as error:
                document.fail(f"exact.yaml{place}: {error.args[0]} points at nothing")
    for name in sorted(set(document.exact) - used):
        document.fail(f"exact.yaml: {name} is used nowhere")


def exact_properties(schema):
    """Returns the properties of an exact schema. If a property differs between cases, only its name counts."""
    cases = {name: {} for part in schema.get("anyOf", []) for name in part.get("properties", {})}
    return {**cases, **schema.get("properties", {})}


def without_null(exact):
    """Returns an exact schema without its alternative null, which plain types leave out."""
    choices = [choice for choice in exact.get("anyOf", []) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 and len(exact["anyOf"]) == 2 and len(exact) == 1 else exact


def check_agreement(document, plain, exact, place):
    """Checks that the type, the words, the bounds and the properties that both schemas have are the same."""
    exact = without_null(exact)
    if plain.get("$ref", exact.get("$ref")) != exact.get("$ref"):
        document.fail(f"{place}: it is {plain['$ref']} here and another type in exact.yaml")
    if "$ref" in plain:
        return
    while set(exact) == {"$ref"}:
        exact = without_null(document.resolve(exact, exact=True))
    for keyword in ("type", "enum", "required", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum",
                    "additionalProperties"):
        if keyword in plain and keyword in exact and plain[keyword] != exact[keyword]:
            document.fail(f"{place}: {keyword} is {plain[keyword]} here and {exact[keyword]} in exact.yaml")
    properties = exact_properties(exact)
    if "properties" in plain:
        for name in sorted(set(plain["properties"]) ^ set(properties)):
            document.fail(f"{place}: {name} is only {'here' if name in plain['properties'] else 'in exact.yaml'}")
        for name in set(plain["properties"]) & set(properties):
            if properties[name] is plain["properties"][name] and not {"type", "$ref"} & set(properties[name]):
                document.fail(f"{place}: {name} has no type here, and none in exact.yaml")
            check_agreement(document, plain["properties"][name], properties[name], f"{place}/{name}")
    if "items" in plain and isinstance(exact.get("items"), dict):
        check_agreement(document, plain["items"], exact["items"], f"{place}/items")


def check_plain(document):
    schemas = document.root["components"]["schemas"]
    meanings = {}
    for name, schema in schemas.items():
        for place, node in nodes(schema, f"#/components/schemas/{name}"):
            if isinstance(node, bool) and not place.endswith(("additionalProperties", "x-nullable")):
                document.fail(f"{place}: {node} is not a plain schema")
            if isinstance(node, dict) and not place.endswith("/properties"):
                for keyword in sorted(NOT_PLAIN & set(node)):
                    document.fail(f"{place}: {keyword} is not plain")
                if isinstance(node.get("type"), list):
                    document.fail(f"{place}: several types are not plain")
        if name.endswith("Request") and schema.get("additionalProperties") is not False:
            document.fail(f"#/components/schemas/{name}: a request has the key additionalProperties: false")
        for key, value in schema.get("properties", {}).items():
            if "description" not in document.resolve(value):
                document.fail(f"#/components/schemas/{name}: {key} has no description")
            elif name.endswith(("Request", "Result")) and key not in NOT_THE_SAME:
                kind = "Request" if name.endswith("Request") else "Result"
                text = {keyword: value[keyword] for keyword in value if keyword != "x-order"}
                if meanings.setdefault((kind, key), text) != text:
                    document.fail(f"#/components/schemas/{name}: {key} is described in other words elsewhere")
        if name in document.exact:
            check_agreement(document, schema, document.exact[name], f"#/components/schemas/{name}")


def check_schemas(document):
    roots = [(f"#/components/schemas/{name}", schema)
             for name, schema in document.root["components"]["schemas"].items()]
    roots += [(f"exact.yaml/{name}", schema) for name, schema in document.exact.items()]
    roots += [(f"{place}/schema", node["schema"]) for place, node in nodes(document.root)
              if isinstance(node, dict) and isinstance(node.get("schema"), dict)]
    for place, schema in roots:
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.exceptions.SchemaError as error:
            document.fail(f"{place}: not a valid schema: {error.message}")


def check_examples(document):
    """Checks the examples beside schemas (of bodies, parameters and headers) and inside them. Returns their number."""
    count = 0
    for place, node in nodes(document.root):
        if not isinstance(node, dict):
            continue
        examples = node.get("examples")
        if isinstance(node.get("schema"), dict):
            found = {"example": node["example"]} if "example" in node else {}
            for name, example in (examples or {}).items():
                found[name] = document.resolve(example)["value"]
            for name, value in found.items():
                document.fits(value, node["schema"], f"{place}: example {name}")
            count += len(found)
    for name, schema in document.exact.items():
        for value in schema.get("examples", []):
            document.fits(value, schema, f"exact.yaml/{name}: example {json.dumps(value)}", forms=(True,))
            count += 1
    if count == 0:
        document.fail("the document holds no example")
    return count


def differences(document, where, served, documented):
    """Reports what is served or documented only, or served twice."""
    for name in sorted(set(served) - set(documented)):
        document.fail(f"{where}{name} is served but not documented")
    for name in sorted(set(documented) - set(served)):
        document.fail(f"{where}{name} is documented but not served")
    for name, times in collections.Counter(served).items():
        if times > 1:
            document.fail(f"{where}{name} is served {times} times")


def forms(document, schema, depth=0):
    """Yields the exact schemas that a value may fit without lists around it, each with the number of these lists."""
    schema = document.resolve(schema, exact=True)
    parts = schema.get("anyOf", [])
    if schema.get("type") == "array" and depth < MOST_AXES:
        for items in [schema["items"]] if "items" in schema else [part["items"] for part in parts]:
            yield from forms(document, items, depth + 1)
    elif parts:
        for part in parts:
            yield from forms(document, part, depth)
    else:
        yield depth, schema


def check_row(document, row, schema, where):
    """Holds the exact schema of a key to its row."""
    found = list(forms(document, schema))
    numbers = [(depth, form) for depth, form in found if "properties" not in form]
    ranks = {depth for depth, _ in numbers} - {0}
    drawn = any("random" in form.get("properties", {}) for _, form in found)
    wanted = {
        "choices": (row["choices"], [choice for _, form in numbers if row["choices"] for choice in form.get("enum", [])]),
        "the draw": (row["drawn"] != "", drawn),
    }
    if row["kind"] == "integer" and row["key"] != "axis":  # how far an axis may go depends on the rank
        wanted["the range"] = ((row["least"], row["most"]), (numbers[0][1]["minimum"], numbers[0][1]["maximum"]))
    elif row["kind"] != "integer" and row["most"] > 0:
        served = set(range(row["least"], row["most"] + 1))
        wanted["the ranks"] = (served & ranks if where.startswith("heads") else served, ranks)  # the bias of one head is a vector
    if row["kind"] in PLAIN_KINDS:
        wanted["the type"] = (PLAIN_KINDS[row["kind"]], numbers[0][1].get("type"))
    for what, (served, documented) in wanted.items():
        if served != documented:
            document.fail(f"{where}: {what} is {served}, and {documented} in exact.yaml")


def check_table(document, path):
    table = json.loads(path.read_text(encoding="utf-8"))
    rows = table["fields"]
    differences(document, "", table["routes"], [f"{method} {path}" for method, path, _ in document.operations()])
    objects = {"heads": {"$ref": "#/components/schemas/HeadProjection"}}
    for _, place, operation in document.operations():
        if any(place in row["at"] for row in rows):
            objects[place] = operation["requestBody"]["content"][JSON]["schema"]
    for place, schema in objects.items():
        here = [row for row in rows if place in row["at"]]
        differences(document, f"{place}: the key ", [row["key"] for row in here], document.resolve(schema)["properties"])
        exact = document.exact[schema["$ref"].rpartition("/")[2]]["properties"]  # check_agreement() compares its keys
        for row in here:
            if row["key"] in exact:
                check_row(document, row, exact[row["key"]], f"{place}: {row['key']}")
        names = [row["key"] for row in here] + [name["name"] for name in table["foreign"] if place in name["at"]]
        for name in sorted({name for name in names if names.count(name) > 1}):
            document.fail(f"{place}: {name} has two meanings: a key, or a name of other programs")
    check_results(document, table["results"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    options = re.findall(r"^\| ((?:`\w+`, )*`\w+`) \|", readme, re.M)
    for key in sorted(set(re.findall(r"\w+", " ".join(options))) - {row["key"] for row in rows}):
        document.fail(f"README.md has an option {key} in its table, which no request has")
    if not options:
        document.fail("README.md has no table of options")
    explorer = json.loads((ROOT / "server/explorer/src/parts/options.json").read_text(encoding="utf-8"))
    known = {row["key"] for row in rows} | {choice for row in rows for choice in row["choices"]}
    for name in {name for option in explorer for name in (option["key"], *option.get("values", {}))} - {"", "true"}:
        if name not in known:
            document.fail(f"options.json has a control for {name}, which no request has")
    lists = dict(re.findall(r"const (MATRICES|GRADIENTS|PROJECTIONS|OF_SOFTMAX) = \[(.*?)\];",
                            (ROOT / "server/explorer/src/request.js").read_text(encoding="utf-8"), re.S))
    names = {name: set(re.findall(r"'(\w+)'", listed)) for name, listed in lists.items()}
    differences(document, "request.js: /softmax: ", {row["key"] for row in rows if "/softmax" in row["at"]}, names["OF_SOFTMAX"])
    for name in sorted((names["MATRICES"] | names["GRADIENTS"] | names["PROJECTIONS"]) - {row["key"] for row in rows if row["drawn"]}):
        document.fail(f"request.js has a matrix {name}, which no request has")


def check_results(document, rows):
    """Compares the results of each endpoint with those of its answer, and what is said of them with the table."""
    said = set(of_softmax(document.root["components"]["schemas"], [row["name"] for row in rows]))
    differences(document, "Normalization: needs softmax: ", {row["name"] for row in rows if row["softmax"]}, said)
    for _, place, operation in document.operations():
        here = {row["name"]: row for row in rows if place in row["at"]}
        if here:
            schema = document.resolve(operation["responses"]["200"]["content"][JSON]["schema"])
            differences(document, f"{place}: the result ", list(here), set(schema["properties"]) - {"tokens", "layers"})
            for name in set(here) & set(schema["properties"]):
                if bool(here[name]["lowest"]) != (LOWEST in schema["properties"][name].get("description", "")):
                    document.fail(f"{place}: the result {name} may be −∞ here or in the table alone")


def path_item(document, path):
    """Returns the item of this path, or of the first path whose {name} stands for a part of it."""
    paths = document.root["paths"]
    for template in [path, *paths]:
        parts = (re.escape(part) for part in re.split(r"{\w+}", template))
        name = f"[^/]+(?:{VERSION})?" if "{model}" in template else "[^/]+"
        if template in paths and re.fullmatch(name.join(parts), path):
            return paths[template]
    return None


def is_inference(path):
    return path == INFERENCE or path.startswith(f"{INFERENCE}/")


def documented_response(document, method, path, status):
    """Returns the operation and the response that the document has for this exchange; None for no response."""
    item = path_item(document, path)
    operation = (item or {}).get("get" if method == "HEAD" else method.lower())
    if operation is not None:
        key = str(status)
        if key not in operation["responses"] and status in ANSWERED_ANYWHERE:
            key = "default"
        return operation["operationId"], document.resolve(operation["responses"].get(key))
    responses = document.root["components"]["responses"]
    name, expected = ("unknown path", 404) if item is None else ("unknown method", 405)
    if is_inference(path) and status in ANSWERED_ANYWHERE | {401, expected}:
        return name, responses["InferenceRefused"]
    if status == 401:
        return "without a key", responses["Unauthorized"]
    if status == expected:
        return name, responses["NotFound" if item is None else "MethodNotAllowed"]
    return name, responses["BadRequest"] if status in ANSWERED_ANYWHERE else None


def check_exchange(document, name, exchange):
    """Checks an exchange. Returns its operation and status, which are counted."""
    method, status, media_type = exchange["method"], exchange["status"], exchange["media_type"]
    # A target may be absolute (RFC 9112, 3.2.2).
    path = re.sub(r"^https?://[^/]*", "", exchange["path"], flags=re.IGNORECASE).partition("?")[0]
    if status == 308:  # the document has the address without a slash at its end, which the answer leads to
        path = path.removesuffix("/")
    where = f"{name}: {method} {path} {status}"
    if method == "OPTIONS" and status == 204:  # a browser asks this before it sends the request of a page
        return "preflight", str(status)
    operation, response = documented_response(document, method, path, status)
    if response is None:
        document.fail(f"{where} is not documented")
        return operation, str(status)
    if "content" not in response:
        if media_type or exchange["body"] is not None:
            document.fail(f"{where}: a body of {media_type!r} is not documented")
        return operation, str(status)
    media = response["content"].get((media_type or "").partition(";")[0])
    if media is None:
        document.fail(f"{where}: the media type {media_type!r} is not documented")
    elif method == "HEAD":
        if exchange["body"] is not None:
            document.fail(f"{where}: an answer to HEAD has no body")
    elif is_json(media_type):
        document.fits(exchange["body"], media["schema"], where)
        if media_type == PROBLEM and (exchange["body"] or {}).get("status") != status:
            document.fail(f"{where}: the problem's own status differs")
    if status == 200 and method == "POST" and "request" in exchange:
        body = path_item(document, path)["post"].get("requestBody")
        if body is not None:
            document.fits(without_nulls(exchange["request"]), body["content"][JSON]["schema"],
                          f"{where}: answered, but the request")
    return operation, str(status)


def check_exchanges(document, folder):
    files = sorted(folder.glob("*.json"))
    counts = collections.Counter()
    for file in files:
        try:
            exchange = json.loads(file.read_text(encoding="utf-8"))
            counts[check_exchange(document, file.name, exchange)] += 1
        except (ValueError, KeyError, AttributeError) as error:
            document.fail(f"{file.name}: not a recorded exchange: {error!r}")
    for (operation, status), count in sorted(counts.items()):
        print(f"{operation:28} {status:>5} {count:6}")
    if not files:
        document.fail(f"{folder} holds no recorded exchange")
    for method, path, operation in document.operations():
        for status in sorted(PROVOKED & set(operation["responses"])):
            if method == "POST" and counts[operation["operationId"], status] == 0:
                document.fail(f"{method} {path}: {status} is documented, but no test provoked it")
    return len(files)


def near(got, expected):
    """Returns whether both have the same members in the same order. Numbers may differ in the last digits of a float32."""
    if isinstance(expected, dict):
        return (isinstance(got, dict) and list(got) == list(expected)
                and all(near(got[key], expected[key]) for key in expected))
    if isinstance(expected, list):
        return (isinstance(got, list) and len(got) == len(expected)
                and all(map(near, got, expected)))
    if isinstance(expected, (int, float)) and isinstance(got, (int, float)):
        return math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-7)
    return got == expected


def example_path(document, path, operation):
    """Returns the path with the examples of its parameters."""
    for parameter in map(document.resolve, operation.get("parameters", [])):
        if parameter["in"] == "path" and "example" in parameter:
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    return path


def ask(method, url, question):
    """Returns the answer to a request, whose body is empty if `question` is None."""
    body = b"" if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, body if method == "POST" else None, {"Content-Type": JSON}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


@contextlib.contextmanager
def running(program, *options):
    """Runs the program and yields its port."""
    with subprocess.Popen([program, "--port", "0", *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            if "http://" not in line:
                sys.exit(f"{program} does not say where it listens: {line!r}")
            yield int(line.split()[-1].rpartition(":")[2])
        finally:
            process.terminate()


def check_answers(document, port):
    """Sends the examples of requests, and the requests of the Open Inference Protocol that have no body. Returns their
    number."""
    count = 0
    for method, path, operation in document.operations():
        url = f"http://127.0.0.1:{port}{example_path(document, path, operation)}"
        if "requestBody" not in operation:
            answer = operation["responses"].get("200", {}).get("content", {}).get(JSON, {})
            if is_inference(path) and "example" in answer:
                got = ask(method, url, None)
                if got != answer["example"]:
                    document.fail(f"{path}: the answer is {json.dumps(got)}")
                count += 1
            continue
        answers = operation["responses"]["200"]["content"][JSON]["examples"]
        questions = operation["requestBody"]["content"][JSON]["examples"]
        if set(answers) != set(questions):
            document.fail(f"{path}: the examples of questions and answers differ in names")
        for name in set(answers) & set(questions):
            got = ask(method, url, document.resolve(questions[name])["value"])
            if not near(got, document.resolve(answers[name])["value"]):
                document.fail(f"{path}: example {name}: the answer is {json.dumps(got)}")
            count += 1
    return count


def check_problems(document, port, port_with_keys):
    """Provokes the examples of errors. Returns their number."""
    examples = {}
    for response, node in document.root["components"]["responses"].items():
        content = node.get("content", {})
        media = content.get(PROBLEM, content.get(JSON, {}))
        found = {name: example["value"] for name, example in media.get("examples", {}).items()}
        found |= {"": media["example"]} if "example" in media else {}
        examples |= {(response, name): example for name, example in found.items()}
    for place in sorted(set(examples) ^ set(TO_PROVOKE) ^ NOT_PROVOKED):
        document.fail(f"{'/'.join(place)}: an example without a request that provokes it, or the reverse")
    for place in sorted(set(examples) & set(TO_PROVOKE)):
        method, path, headers, body = TO_PROVOKE[place]
        example = examples[place]
        asked = port_with_keys if place in NEED_KEYS else port
        connection = http.client.HTTPConnection("127.0.0.1", asked, timeout=60)
        connection.request(method, path, body, {"X-Request-Id": example.get("request_id", "-"), **headers})
        got = json.load(connection.getresponse())
        connection.close()
        if got != example:
            document.fail(f"{'/'.join(place)}: the example of an error is {json.dumps(got)}")
    return len(TO_PROVOKE)


def check_spec(document):
    try:
        import openapi_spec_validator
    except ImportError:
        sys.exit(f"--spec-validator needs: pip install openapi-spec-validator=={SPEC_VALIDATOR}")
    version = importlib.metadata.version("openapi-spec-validator")
    if version != SPEC_VALIDATOR:
        sys.exit(f"--spec-validator needs openapi-spec-validator {SPEC_VALIDATOR}, this is {version}")
    for error in openapi_spec_validator.OpenAPIV31SpecValidator(document.root).iter_errors():
        document.fail(f"OpenAPI 3.1: /{'/'.join(map(str, error.absolute_path))}: {error.message}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("document", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--exchanges", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM")
    parser.add_argument("--spec-validator", action="store_true")
    arguments = parser.parse_args()

    document = Document(arguments.document)
    check_references(document)
    check_exact_references(document)
    check_schemas(document)
    check_plain(document)
    if document.errors:  # the other checks would fail for the same reason
        return report(document, "")
    done = f"{check_examples(document)} examples"
    if arguments.table:
        check_table(document, arguments.table)
        done += ", routes and keys"
    if arguments.exchanges:
        done += f", {check_exchanges(document, arguments.exchanges)} exchanges"
    if arguments.daemon:
        program = arguments.daemon.resolve()
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("a-key-of-more-than-16-characters\n")
            keys.flush()
            with running(program, "--layers", LAYERS) as port, running(program, "--api-key-file", keys.name) as port_with_keys:
                done += f", {check_answers(document, port)} answers"
                done += f", {check_problems(document, port, port_with_keys)} errors"
    if arguments.spec_validator:
        check_spec(document)
        done += ", OpenAPI 3.1"
    return report(document, done)


def report(document, done):
    for error in document.errors:
        print(error, file=sys.stderr)
    print(f"{len(document.errors)} errors" if document.errors else f"openapi.yaml is right: {done}")
    return 1 if document.errors else 0


if __name__ == "__main__":
    sys.exit(main())
