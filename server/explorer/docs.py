#!/usr/bin/python3
"""Writes the page /docs, server/explorer/src/docs.html, from openapi.yaml, and openapi.json beside it. The section "Check
your kernel" comes from the guide in tests/clients/kernel and from its example in Python.

    docs.py            writes both
    docs.py --check    writes nothing and ends with status 1 if one of them is not what these files say

The page needs no JavaScript. A key that several paths take or return is shown once, and each of the paths links to it.
The type of a key is its x-type, or else the type of its schema. The default of a key is the last sentence of its
description, "Default: ...".
The program understands only what these files use. It ends with a message at anything else.
"""

import argparse
import collections
import html
import json
import pathlib
import re
import sys
import urllib.parse

import yaml

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "openapi.yaml"
KERNEL = HERE.parent.parent / "tests" / "clients" / "kernel"
PAGE = HERE / "src" / "docs.html"
IN_JSON = HERE / "src" / "openapi.json"

SERVER = "http://127.0.0.1:8080"  # the default address of the daemon
# The explorer shows these paths; tests/browser/docs.test.mjs compares the list with src/request.js.
EXPLORED = ["/attention", "/self-attention", "/multi-head-attention", "/linear-attention"]
SHORT = 40  # characters; a longer default stays in the description
WIDE = 88  # characters of a line of JSON in an example
METHODS = ["get", "post"]
JSON = "application/json"
REQUEST, ANSWER = "option", "result"  # the two kinds of keys, as anchors name them
PROBLEM = "application/problem+json"
ERRORS = {"Problem", "InferenceError"}  # the types of errors


class Unknown(Exception):
    """A file has something that this program does not understand."""


# ------------------------------------------------------------------------------------------ text


def text(value):
    return html.escape(value, quote=False)


def code(value):
    return f"<code>{text(value)}</code>"


def slug(name):
    """A name as part of an anchor: self-attention for "/self-attention", Drawn-matrices for "Drawn matrices."."""
    return "-".join(re.findall(r"[A-Za-z0-9_.]*[A-Za-z0-9_]", name))


SPAN = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
# These are forms of Markdown that this script does not understand.
NOT_A_SPAN = re.compile(r"[*`\\]|(?<!\w)_\w|\w_(?!\w)|<[A-Za-z/!]|&#?\w+;|!\[|\]\(|~~")
NOT_A_BLOCK = re.compile(r"#|>|\||[+*] |\d+[.)] |```|---|===")


def spans(source, where):
    """A paragraph of Markdown as HTML: code, bold text and links."""
    made, at = "", 0
    for found in [*SPAN.finditer(source), None]:
        plain = source[at : found.start() if found else len(source)]
        if bad := NOT_A_SPAN.search(plain):
            raise Unknown(f"{where}: no Markdown for {plain[bad.start():bad.start() + 30]!r}")
        made += text(plain)
        if found:
            quoted, bold, label, address = found.groups()
            if quoted:
                made += code(quoted)
            elif bold:
                made += f"<b>{text(bold)}</b>"
            else:
                made += f'<a href="{html.escape(address)}">{text(label)}</a>'
            at = found.end()
    return made


def blocks(source, where):
    """Markdown as a list of ("p", text), ("pre", text) or ("ul", [text])."""
    found = []
    for block in re.split(r"\n[ \t]*\n", source.strip("\n")):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            inside = "\n".join(line[4:].rstrip() for line in lines)
            if found and found[-1][0] == "pre":
                inside = found.pop()[1] + "\n\n" + inside
            found.append(("pre", inside))
        elif lines[0].startswith("- "):
            items = []
            for line in lines:
                if line.startswith("- "):
                    items.append(line[2:].strip())
                elif line.startswith("  "):
                    items[-1] += " " + line.strip()
                else:
                    raise Unknown(f"{where}: a list ends without an empty line before {line!r}")
            if found and found[-1][0] == "ul":
                items = found.pop()[1] + items
            found.append(("ul", items))
        else:
            for line in lines:
                if line.startswith("- ") or NOT_A_BLOCK.match(line) or line[:1].isspace():
                    raise Unknown(f"{where}: no Markdown for the line {line!r}")
            found.append(("p", " ".join(line.strip() for line in lines)))
    return found


def prose(source, where, anchors=""):
    """Markdown as HTML. With anchors, a paragraph that begins with bold text has the anchor anchors-TEXT."""
    made = []
    for kind, content in blocks(source, where):
        if kind == "pre":
            made.append(f'<pre tabindex="0">{text(content)}</pre>')
        elif kind == "ul":
            made.append("<ul>" + "".join(f"<li>{spans(item, where)}" for item in content) + "</ul>")
        else:
            lead = re.match(r"\*\*([^*]+)\*\*", content) if anchors else None
            anchor = f' id="{anchors}-{slug(lead[1]).lower()}"' if lead else ""
            made.append(f"<p{anchor}>{spans(content, where)}</p>")
    return "\n".join(made)


def short(source, where):
    """Markdown as HTML for a cell of a table. A single paragraph gets no tags."""
    made = prose(source, where)
    return made[3:-4] if made.startswith("<p>") and made.count("<p>") == 1 and made.endswith("</p>") else made


def pretty(value, width, indent=""):
    """JSON for people: a row of numbers is on one line, and so is every value that has at most width characters."""
    flat = json.dumps(value, ensure_ascii=False)
    rows = isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value)
    room = width - (len(indent) or len(f"curl {SERVER}"))
    if rows or not isinstance(value, (list, dict)) or len(flat) <= room:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        lines = [f"{json.dumps(key, ensure_ascii=False)}: {pretty(item, width, inner)}" for key, item in value.items()]
        if not lines:
            return "{}"
        return f"{{\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}}}"
    return f"[\n{inner}" + f",\n{inner}".join(pretty(item, width, inner) for item in value) + f"\n{indent}]"


def explorer_link(path, body):
    """The address of the explorer with this request in it, see src/address.js. It repeats the text of the example, which
    therefore takes few bytes in a compressed page."""
    return f"./#example=own&amp;path={path}&amp;body=" + urllib.parse.quote(json.dumps(body), safe='/{}[]":, ')


# ------------------------------------------------------------------------------------------ document


class Document:
    def __init__(self, path):
        self.root = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.paths = self.root["paths"]
        self.components = self.root["components"]
        types = [self.types(operation) for _, operation in self.all()]
        whole = [schema for each in types for schema, _ in each.values()]
        # The types of objects within requests, answers and errors.
        self.objects = {
            name: schema
            for name, schema in self.components["schemas"].items()
            if "properties" in schema and schema not in whole
        }
        self.answers = set(ERRORS)  # the names of the types that an answer may have
        self.find_answers([self.success(operation) for _, operation in self.all()])

    def find_answers(self, schema):
        """Adds the types that a schema uses to self.answers."""
        for name in re.findall(r'schemas/(\w+)"', json.dumps(schema)):
            if name not in self.answers:
                self.answers.add(name)
                self.find_answers(self.components["schemas"][name])

    def all(self):
        """Every operation, as ((path, method), operation)."""
        for path, item in self.paths.items():
            for method, operation in item.items():
                if method not in METHODS:
                    raise Unknown(f"{path}: {method}")
                yield (path, method), operation

    def success(self, operation):
        """The response 200 of an operation; empty if it only answers with errors."""
        return self.resolve(operation["responses"].get("200", {}))[0]

    def types(self, operation):
        """The types of the JSON that an operation takes and returns: {kind: (schema, name)}."""
        found = {}
        for kind, side in ((REQUEST, operation.get("requestBody", {})), (ANSWER, self.success(operation))):
            media = side.get("content", {}).get(JSON)
            if media:
                schema, name = self.resolve(media["schema"])
                if kind == ANSWER and (schema.get("type") == "array" or "x-type" in schema):
                    continue  # the description of the operation says what it holds
                found[kind] = schema, name
                if "properties" not in schema:
                    raise Unknown(f"{operation['operationId']}: its {kind}s are no type with properties")
        return found

    def linked(self, made):
        """HTML in which the name of a type is a link to the type, except in code and in links."""
        names = "|".join(self.objects)
        return re.sub(rf"\b({names})\b(?![^<]*</(?:code|pre|a)>|[^<>]*>)", r'<a href="#\1">\1</a>', made)

    def resolve(self, node):
        """The node that a $ref leads to, and its name. A node without $ref is returned as it is."""
        name = None
        while "$ref" in node:
            place = node["$ref"].split("/")
            if place[:2] != ["#", "components"] or len(place) != 4 or len(node) > 1:
                raise Unknown(f"a $ref: {node}")
            name = place[3]
            node = self.components[place[2]][name]
        return node, name


MANY = {"number": "numbers", "integer": "integers", "string": "strings", "boolean": "booleans", "object": "objects"}


def bounds(schema):
    """The bounds of a number, in words."""
    names = "minimum", "maximum", "exclusiveMinimum"
    low, high, above = (str(schema.get(name, "")).replace("-", "−") for name in names)
    if low and high:
        return f" {low} to {high}"
    return f" &gt; {above}" if above else f" ≥ {low}" if low else f" ≤ {high}" if high else ""


def typed(document, schema, where):
    """The type of a value, in words. x-type is used if the schema has it."""
    if "x-type" in schema:
        return document.linked(spans(schema["x-type"], where))
    if "$ref" in schema:
        schema, name = document.resolve(schema)
        return document.linked(name) if name in document.objects else typed(document, schema, where)
    if "enum" in schema:
        return " or ".join(code(json.dumps(value, ensure_ascii=False)) for value in schema["enum"])
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array":
        if items.get("type") == "array":
            return "matrix"
        if "enum" in items or not items:
            return "array of strings" if items else "array"
        one, _, more = typed(document, items, where).partition(" ")
        size = f" {schema['minItems']}" if "minItems" in schema and schema["minItems"] == schema.get("maxItems") else ""
        return f"array of{size} {MANY.get(one, one)} {more}".rstrip()
    if kind == "object":
        inner = schema.get("additionalProperties")
        if not isinstance(inner, dict):
            return "object"
        one = typed(document, inner, where)
        return f"object of {MANY.get(one, one)}"
    if kind in ("number", "integer"):
        return kind + bounds(schema)
    if kind in ("string", "boolean"):
        return kind
    raise Unknown(f"{where} has no type and no x-type")


def default_of(description):
    """A description without its last sentence, "Default: VALUE.", and VALUE.

    If VALUE is long, the sentence stays in the description, and the second result is the part of VALUE before a comma.
    """
    found = re.search(r"(?:^|\s)Default:\s+([^.]+)\.$", description)
    if not found:
        return description, ""
    value = " ".join(found[1].split())
    if len(value) <= SHORT:
        return description[: found.start()], f"`{value}`" if value.isdigit() else value
    first, comma, _ = value.partition(",")
    return description, first if comma and len(first) <= SHORT else ""


Key = collections.namedtuple("Key", "name type default meaning")


def keys(document, schema, where):
    """The keys of an object, in the order in which the document has them."""
    for name, value in schema["properties"].items():
        full, place = document.resolve(value)[0], f"{where}.{name}"
        if "description" not in full:
            raise Unknown(f"{place} has no description")
        meaning, default = default_of(full["description"].strip())
        if name in schema.get("required", []):
            default = "**required**"
        if not meaning:
            raise Unknown(f"the description of {place} says nothing but the default")
        meaning = document.linked(short(meaning, place))
        words = full.get("items", {}).get("enum", [])
        if words:
            meaning += " Allowed values: " + " ".join(code(json.dumps(word)) for word in words)
        yield Key(name, typed(document, value, place), spans(default, place), meaning)


# ------------------------------------------------------------------------------------------ page


def table(label, anchors, heads, rows):
    """A table. Each name in the first column has an anchor; that of a shared option or result is a link, too. Rows with the
    same cells become one row with all names."""
    merged = {}
    for name, *cells in rows:
        anchor = f"{anchors}-{slug(name)}"
        shown = f'<a id="{anchor}" href="#{anchor}">{text(name)}</a>'
        if anchors not in ("option", "result"):
            shown = f'<span id="{anchor}">{text(name)}</span>'
        merged.setdefault(tuple(cells), []).append(shown)
    lines = [f'<tr><th scope="row">{" ".join(names)}<td>{"<td>".join(cells)}' for cells, names in merged.items()]
    head = "".join(f'<th scope="col">{head}' for head in heads)
    return "\n".join([f'<table aria-label="{html.escape(label)}">', f"<tr>{head}", *lines, "</table>"])


def table_of_keys(label, anchors, rows, answer=False):
    """A table of keys. The keys of answers have no defaults."""
    if answer:
        return table(label, anchors, ["Key", "Type", "Meaning"], [(row.name, row.type, row.meaning) for row in rows])
    return table(label, anchors, ["Key", "Type", "Default", "Meaning"], rows)


def listed(names):
    """Names as part of a sentence."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


class Page:
    def __init__(self, document):
        self.document = document
        self.contents = []  # (title, anchor, [(name, anchor)])
        self.shown = {}  # {name of a type: (path, anchor)} of the types that the page has so far
        self.shared = {REQUEST: {}, ANSWER: {}}  # {paths: [Key]} of the keys that several types have
        self.find_shared()

    def add(self, title, anchor, anchors, names):
        self.contents.append((title, anchor, [(name, f"{anchors}-{slug(name)}") for name in names]))

    def find_shared(self):
        """A key is shared if several types of the first tag have it with the same type, default and meaning."""
        types, owners = {}, collections.defaultdict(list)
        first = self.document.root["tags"][0]["name"]
        for (path, _), operation in self.document.all():
            if operation["tags"] != [first]:
                continue
            for kind, (schema, name) in self.document.types(operation).items():
                types.setdefault((kind, name), (schema, []))[1].append(path)
        for (kind, name), (schema, paths) in types.items():
            for key in keys(self.document, schema, name):
                owners[kind, key].append(paths)
        for (kind, key), paths in owners.items():
            if len(paths) > 1:
                if any(key.name in {row.name for row in rows} for rows in self.shared[kind].values()):
                    raise Unknown(f"{key.name} has two meanings, and several types have each")
                self.shared[kind].setdefault(tuple(sum(paths, [])), []).append(key)

    def keys_of(self, path, anchor, kind, schema, name):
        """The keys that a path takes or returns as HTML, and those that only this path has as [(name, anchor)]."""
        if name in self.shown:
            before, place = self.shown[name]
            return [f'<p>These are the keys of <a href="#{place}">{before}</a>.</p>'], []
        anchors = anchor if kind == REQUEST else f"{anchor}-{ANSWER}"
        self.shown[name] = path, anchor
        shared = {paths: rows for paths, rows in self.shared[kind].items() if path in paths}
        own = [row for row in keys(self.document, schema, name) if row not in sum(shared.values(), [])]
        made = [table_of_keys(f"{kind.capitalize()}s of {path}", anchors, own, kind == ANSWER)] if own else []
        if shared:
            rows = sum(shared.values(), [])
            links = " ".join(f'<a href="#{kind}-{slug(row.name)}">{text(row.name)}</a>' for row in rows)
            made.append(f'<p>{"Also these" if own else "These"} <a href="#{kind}s">shared {kind}s</a>:</p>')
            made.append(f'<p class="keys">{links}</p>')
        return made, [(row.name, f"{anchors}-{slug(row.name)}") for row in own]

    def examples(self, path, method, operation):
        answers = self.document.success(operation).get("content", {})
        address = SERVER + path
        for each in (self.document.resolve(parameter)[0] for parameter in operation["parameters"]):
            address = address.replace(f"{{{each['name']}}}", each.get("example", ""))
        contents = operation.get("requestBody", {"content": {}})["content"]
        if JSON not in contents:
            curl = "curl -T FILE" if contents else "curl" if method == "get" else f"curl -X {method.upper()}"
            examples = [media["example"] for media in answers.values() if "example" in media]
            for answer in examples:
                shown = answer.rstrip() if isinstance(answer, str) else pretty(answer, WIDE)
                yield f'<h4>Example</h4>\n<pre tabindex="0">{curl} {address}</pre>'
                yield f'<pre tabindex="0" class="answer">{text(shown)}</pre>'
            return
        questions, answers = contents[JSON]["examples"], answers[JSON]["examples"]
        if list(questions) != list(answers):
            raise Unknown(f"{path}: the examples of requests and of answers have different names")
        yield "<h4>Examples</h4>"
        for name, question in questions.items():
            question, answer = (self.document.resolve(example)[0] for example in (question, answers[name]))
            body = text(pretty(question["value"], WIDE).replace("'", "'\\''"))
            anchor = f"{slug(path)}-example-{name}"
            link = ""
            if path in EXPLORED:
                link = f"<a href='{explorer_link(path, question['value'])}'>Open in the explorer</a>"
            title = f'<h5 id="{anchor}"><a href="#{anchor}">{spans(question["summary"], anchor)}</a></h5>'
            yield f'<div class="title">{title}{link}</div>'
            yield f'<pre tabindex="0">curl {address} -d \'{body}\'</pre>'
            yield f'<pre tabindex="0" class="answer">{text(pretty(answer["value"], WIDE))}</pre>'

    def operation(self, path, method, operation):
        anchor, where = slug(path) or "explorer", operation["operationId"]
        label = f"<small>{method.upper()}</small> {text(path)}"
        parameters = [self.document.resolve(parameter)[0] for parameter in operation.get("parameters", [])]
        lines = [
            f'<h3 id="{anchor}"><a href="#{anchor}">{label}</a></h3>',
            f'<p class="lede">{spans(operation["summary"], where)}</p>',
            self.document.linked(prose(operation["description"], where)),
        ]
        types, entries = self.document.types(operation), []
        in_path = [
            (each["name"], typed(self.document, each["schema"], where), "required", short(each["description"], where))
            for each in parameters
            if each["in"] == "path"
        ]
        if in_path:
            lines += ["<h4>Takes in its path</h4>", table_of_keys(f"Parts of {path}", anchor, in_path)]
        for kind, head in ((REQUEST, "Takes"), (ANSWER, "Returns")):
            if kind in types:
                made, own = self.keys_of(path, anchor, kind, *types[kind])
                lines += [f"<h4>{head}</h4>", *made]
                entries += own
        success = self.document.success(operation)
        if ANSWER not in types and success:
            media = ", ".join(map(code, success["content"]))
            lines += ["<h4>Returns</h4>", f"<p>{short(success['description'], where)} {media}</p>"]
        errors = [status.replace("default", "other") for status in operation["responses"] if status[0] not in "23"]
        links = " ".join(f'<a href="#error-{status}">{status}</a>' for status in errors)
        lines += ["<h4>Errors</h4>", f"<p>{links}</p>"]
        lines += self.examples(path, method, operation)
        self.contents.append((label, anchor, entries if REQUEST in types else []))
        return lines

    def shared_keys(self, kind, title):
        lines = [f'<h2 id="{kind}s">{title}</h2>']
        for paths, rows in self.shared[kind].items():
            label = f"{title} of {listed(paths)}"
            lines += [f"<h3>Of {listed(paths)}</h3>", table_of_keys(label, kind, rows, kind == ANSWER)]
        self.add(title, f"{kind}s", kind, [row.name for rows in self.shared[kind].values() for row in rows])
        return lines

    def objects(self):
        lines = ['<h2 id="types">Types</h2>']
        for name, schema in self.document.objects.items():
            if name != "Problem":  # the section about errors has this type
                rows = list(keys(self.document, schema, name))
                self.add(name, name, name, [row.name for row in rows])
                lines += self.object(name, schema, rows)
        return lines

    def object(self, name, schema, rows):
        return [
            f'<h3 id="{name}"><a href="#{name}">{name}</a></h3>',
            self.document.linked(prose(schema["description"], name)),
            table_of_keys(name, name, rows, name in self.document.answers),
        ]

    def errors(self):
        """The section about errors, with each status once."""
        other = {self.document.resolve(operation["responses"]["default"])[1] for _, operation in self.document.all()}
        rows = []
        for name, response in self.document.components["responses"].items():
            media = response.get("content", {}).get(PROBLEM)
            if media:
                examples = [example["value"] for example in media.get("examples", {}).values()]
                examples = examples or [media["example"]]
                status = "other" if name in other else str(examples[0]["status"])
                title = "" if name in other else f"<b>{text(examples[0]['title'])}.</b> "
                details = "".join(f"<p><q>{text(example['detail'])}</q></p>" for example in examples)
                rows.append((status, f"<p>{title}{short(response['description'], name)}</p>{details}"))
                if status == "422":
                    problem = pretty(examples[-1], WIDE)
        rows += self.only_of_inference({row[0] for row in rows})
        schema = self.document.objects["Problem"]
        keys_of_problem = list(keys(self.document, schema, "Problem"))
        self.add("Errors", "errors", "error", sorted(row[0] for row in rows))
        self.add("Problem", "Problem", "Problem", [row.name for row in keys_of_problem])
        return [
            '<h2 id="errors">Errors</h2>',
            table("Errors", "error", ["Status", "Meaning, and an example of its <code>detail</code>"], sorted(rows)),
            *self.object("Problem", schema, keys_of_problem),
            f'<pre tabindex="0">{text(problem)}</pre>',
        ]

    def only_of_inference(self, known):
        """The rows of statuses that no response with a problem document has."""
        rows = {}
        for _, operation in self.document.all():
            for status, response in operation["responses"].items():
                if status[0] in "45" and status not in known:
                    response, name = self.document.resolve(response)
                    error = response["content"][JSON]["example"]["error"]
                    meaning = f"<p>{short(response['description'], name)}</p><p><q>{text(error)}</q></p>"
                    rows[status] = (status, meaning)
        return list(rows.values())

    def headers(self):
        """The section about headers: those of requests, with the paths that read them, and those of answers."""
        asked, told, scheme = {}, {}, self.document.components["securitySchemes"]["key"]
        if (scheme["type"], scheme["scheme"]) != ("http", "bearer"):
            raise Unknown(f"a way to authenticate: {scheme}")
        operations = list(self.document.all())
        responses = list(self.document.components["responses"].values())
        for (path, _), operation in operations:
            if operation.get("security") != []:
                asked.setdefault("Authorization", ("<code>Bearer KEY</code>", scheme, []))[2].append(path)
            for each in (self.document.resolve(parameter)[0] for parameter in operation["parameters"]):
                if each["in"] == "header":
                    kind = typed(self.document, each["schema"], each["name"])
                    asked.setdefault(each["name"], (kind, each, []))[2].append(path)
            responses += operation["responses"].values()
        for response in responses:
            for name, header in self.document.resolve(response)[0].get("headers", {}).items():
                told[name] = self.document.resolve(header)[0]
        rows = []
        for name, (value, each, paths) in asked.items():
            where = "all" if len(paths) == len(operations) else ", ".join(paths)
            rows.append((name, value, f"<p>{short(each['description'], name)}</p><p>Paths: {where}</p>"))
        answers = [
            (name, code(str(header["example"])) if "example" in header else "", short(header["description"], name))
            for name, header in told.items()
        ]
        self.add("Headers", "headers", "header", asked)
        return [
            '<h2 id="headers">Headers</h2>',
            table("Headers of requests", "header", ["Header of the request", "Value", "Meaning"], rows),
            table("Headers of answers", "answer", ["Header of the answer", "Example", "Meaning"], answers),
        ]

    def kernel(self):
        """The beginning of the guide "Check your kernel", the end of its example in Python, and the names of all examples."""
        guide = GUIDE.match((KERNEL / "README.md").read_text(encoding="utf-8"))
        if not guide:
            raise Unknown("tests/clients/kernel/README.md: no title, paragraph, table and command")
        example = (KERNEL / "kernel.py").read_text(encoding="utf-8").rstrip().rsplit("\n\n\n", 1)[-1]
        files = [f"{code(file)} ({text(name)})" for name, file in re.findall(r"^\| (\w+) \| \[([\w.]+)\]", guide["table"], re.M)]
        self.contents.append((text(guide["title"]), "kernel", []))
        return [
            f'<h2 id="kernel">{text(guide["title"])}</h2>',
            prose(guide["about"], "README.md"),
            f'<pre tabindex="0">{text(example)}</pre>',
            f'<pre tabindex="0">{text(guide["command"])}</pre>',
            f"<p>This is the end of {code('kernel.py')}, and the command. {code('tests/clients/kernel')} of the sources explains the "
            f"file. It has whole examples: {listed(files)}.</p>",
        ]

    def tag(self, name):
        tag = next(each for each in self.document.root["tags"] if each["name"] == name)
        lines = [f'<h2 id="tag-{name}">{name.capitalize()}</h2>', prose(tag["description"], name)]
        for (path, method), operation in self.document.all():
            if operation["tags"] == [name]:
                lines += self.operation(path, method, operation)
        return lines

    def make(self):
        info = self.document.root["info"]
        about = self.document.linked(prose(info["description"], "info", "about"))
        leads = [lead.rstrip(".") for lead in re.findall(r'id="about-[^"]*"><b>([^<]*)', about)]
        self.contents.append(("Overview", "overview", [(lead, f"about-{slug(lead).lower()}") for lead in leads]))
        first, *others = [tag["name"] for tag in self.document.root["tags"]]
        lines = self.tag(first)
        lines += self.kernel()
        lines += self.shared_keys(REQUEST, "Options")
        lines += self.shared_keys(ANSWER, "Results")
        lines += self.objects()
        lines += self.errors()
        lines += self.headers()
        for name in others:
            lines += self.tag(name)
        groups = []
        for title, anchor, names in self.contents:
            links = " ".join(f'<a href="#{place}">{text(name)}</a>' for name, place in names)
            kind = "topics" if anchor == "overview" else "keys" if anchor in LISTED else None
            groups.append(f'<li><a href="#{anchor}">{title}</a>' + (f'<p class="{kind}">{links}</p>' if kind else ""))
        page = TEMPLATE
        for name, value in {
            "summary": spans(info["summary"], "info"),
            "version": text(info["version"]),
            "contents": "\n".join(groups),
            "about": about,
            "server": SERVER,
            "reference": "\n".join(lines),
        }.items():
            page = page.replace(f"{{{name}}}", value)
        check_anchors(page)
        return page


GUIDE = re.compile(r"# (?P<title>.+?)\n\n(?P<about>.+?)\n\n(?P<table>\|.+?)\n\n.*?\n```sh\n(?P<command>curl .+?)\n```\n", re.S)

LISTED = ("options", "results", "errors", "headers")  # the sections whose entries the contents list

TEMPLATE = """<!doctype html>
<!-- Made from openapi.yaml and tests/clients/kernel by docs.py: run make docs. -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{summary}">
<title>attentiond: API reference</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs.css">
</head>
<body>
<a class="skip" href="#reference">Skip to the reference</a>
<header>
<div class="top"><a class="brand" href="./">attentiond {version}</a>
<nav aria-label="Site"><a href="./">Explorer</a><a href="openapi.yaml">openapi.yaml</a></nav></div>
<h1>API reference</h1>
<p class="lede">{summary}</p>
<p>The examples use <code>{server}</code>, which is the default address of the service.</p>
</header>
<div class="columns">
<nav class="contents" aria-label="Contents">
<ul>
{contents}
</ul>
</nav>
<main id="reference" tabindex="-1">
<h2 id="overview">Overview</h2>
{about}
{reference}
</main>
</div>
</body>
</html>
"""


def check_anchors(page):
    """Fails if an anchor is there twice, or if a link within the page leads to no anchor."""
    anchors = collections.Counter(re.findall(r' id="([^"]*)"', page))
    for anchor, count in anchors.items():
        if count > 1:
            raise Unknown(f"the anchor {anchor} stands for {count} places")
    for link in re.findall(r'href="#([^"]*)"', page):
        if link not in anchors:
            raise Unknown(f"a link leads to {link}, which is not there")


def in_json(value, levels=3):
    """The document as JSON. Each path and each type has a line of its own, so that changes of several people merge."""
    if levels == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    members = (f"{json.dumps(key)}:{in_json(member, levels - 1)}" for key, member in value.items())
    return "{\n" + ",\n".join(members) + "\n}"


def main():
    parser = argparse.ArgumentParser(description="Writes the page /docs and openapi.json.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if one of them is not up to date")
    arguments = parser.parse_args()
    try:
        page = Page(Document(DOCUMENT)).make()
    except Unknown as error:
        sys.exit(f"docs.py does not understand this: {error}")
    document = in_json(yaml.safe_load(DOCUMENT.read_text(encoding="utf-8"))) + "\n"
    if not arguments.check:
        PAGE.write_text(page, encoding="utf-8")
        IN_JSON.write_text(document, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page or IN_JSON.read_text(encoding="utf-8") != document:
        sys.exit("server/explorer/src/docs.html or openapi.json is not what openapi.yaml and tests/clients/kernel say: run make docs")


if __name__ == "__main__":
    main()
