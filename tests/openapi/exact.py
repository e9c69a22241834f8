"""exact.py makes the exact schemas: those of exact.yaml, whose objects have only what openapi.yaml does not say."""

import pathlib

import yaml


def exact_schemas(plain):
    """Returns the exact schemas by name. plain: the schemas of openapi.yaml."""
    exact = yaml.safe_load((pathlib.Path(__file__).parent / "exact.yaml").read_text(encoding="utf-8"))
    for name, schema in exact.items():
        if "properties" in schema and "properties" in plain.get(name, {}):
            properties = {**plain[name]["properties"], **schema["properties"]}
            exact[name] = {**plain[name], **schema, "properties": properties}
    return exact
