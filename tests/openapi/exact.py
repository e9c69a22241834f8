"""exact.py makes the exact schemas: those of exact.yaml, whose objects have only what openapi.yaml does not say, and what
follows from the results that openapi.yaml has."""

import pathlib
import re

import yaml

LOWEST = "`null` stands for −∞"  # the description of a result has these words if it may be −∞
SINGLE, ROWS = {"type": "array", "items": {}}, {"type": "array", "items": {"type": "array", "items": {}}}


def exact_result(schema):
    """Returns the exact schema of a result. An array has a number for each query, or a row."""
    array = {key: schema.get(key) for key in ("type", "items")}
    if array not in (SINGLE, ROWS):
        return schema
    name = ("PerQuery" if array == SINGLE else "Matrix") + ("OrMinusInfinity" if LOWEST in schema["description"] else "")
    return {"$ref": f"#/components/schemas/{name}"}


def of_softmax(plain, names):
    """Returns which of these results need softmax."""
    words = re.search(r"([^.]*) need `softmax`", plain["Normalization"]["description"])[1]
    return [name for name in names if f"`{name}`" in words]


def exact_schemas(plain):
    """Returns the exact schemas by name. plain: the schemas of openapi.yaml."""
    exact = yaml.safe_load((pathlib.Path(__file__).parent / "exact.yaml").read_text(encoding="utf-8"))
    names = {}
    for name, schema in exact.items():
        if "properties" in schema and "properties" in plain.get(name, {}):
            properties = {**plain[name]["properties"], **schema["properties"]}
            exact[name] = {**plain[name], **schema, "properties": properties}
            if name.endswith("AttentionResult"):
                properties |= {key: exact_result(value) for key, value in properties.items()}
                names |= properties
            if "return" in properties:
                properties["return"] = {**properties["return"], "uniqueItems": True}
    objects = {f"#/components/schemas/{name}" for name, schema in plain.items() if schema.get("type") == "object"}
    expected = [name for name, schema in names.items() if name != "tokens" and schema.get("$ref") not in objects]
    exact["Expected"]["propertyNames"] = {"enum": expected}
    refused = {"items": {"not": {"enum": of_softmax(plain, expected)}}}
    exact["CallRules"]["allOf"][-1]["then"]["properties"]["return"] = refused
    return exact
