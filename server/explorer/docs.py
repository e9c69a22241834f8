#!/usr/bin/python3
"""Writes the page /docs, server/explorer/src/docs.html, from openapi.yaml, and beside it openapi.json, keys.js, the keys
that the explorer takes away with a rule, and llms.txt, the short reference, from llms.txt.in. The part "Check your kernel" has
the command and the examples of the guide in tests/clients/kernel.

    docs.py            writes all four
    docs.py --check    writes nothing and ends with status 1 if one of them is not what these files say

The page is complete without JavaScript. src/docs.js adds the search, the buttons, the languages, the links to the
explorer, and the anchors of keys that no link of the page needs. So they take no bytes of the page.
The description of the document has a heading for each chapter, "## Title". A paragraph that begins with bold text is
folded with those after it, under this text. A key that several paths take or return is shown once, and each of the paths
links to it. The type of a key is its x-type, or else the type of its schema. The default of a key is the last sentence
of its description, "Default: ...".
In llms.txt.in a line "- KEY: TEXT" below the heading of a path says in a few words what a key is. llms.txt has its type and
its default beside it. A key without a line gets the first sentence of its description, and no line may be about another key.
The program understands only what these files use. It ends with a message at anything else.
"""

import argparse
import collections
import html
import json
import pathlib
import re
import sys
import textwrap

import yaml

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "openapi.yaml"
KERNEL = HERE.parent.parent / "tests" / "clients" / "kernel"
PAGE = HERE / "src" / "docs.html"
IN_JSON = HERE / "src" / "openapi.json"
KEYS = HERE / "src" / "keys.js"
SHORT_FORM = HERE / "llms.txt.in"
LLMS = HERE / "src" / "llms.txt"

SERVER = "http://127.0.0.1:8080"  # the default address of the daemon
SHORT = 40  # characters; a longer default stays in the description
WIDE = 100  # characters of a line of JSON in an example
LINE = 118  # characters of a line of llms.txt
MOST = 12000  # bytes of llms.txt
METHODS = ["get", "post"]
JSON = "application/json"
REQUEST, ANSWER = "option", "result"  # the two kinds of keys, as anchors name them
PROBLEM = "application/problem+json"
ERRORS = {"Problem", "InferenceError"}  # the types of errors
SHARING = ["attention", "layers"]  # the tags whose requests and answers have shared keys
MAIN, OFTEN = "Q K V X".split(), "causal mask scale window".split()  # shared keys that the summary of "Takes" names
# The groups of shared keys, in the order of the page. The first group of each kind is open. A key that stands in no group
# comes last.
GROUPS = {
    REQUEST: {
        "Often used": "causal mask window scale dtype digits",
        "Matrices and heads": "Q K V X heads kv_heads Q_scale K_scale V_scale",
        "Words and drawn matrices": "text tokens embedding embedding_dim random",
        "Which keys a query sees": "key_padding lengths alignment sequences sequence_offsets past_K past_V past_K_scale past_V_scale",
        "What changes the scores": "bias decay softcap alibi sink",
        "How weights are made": "normalization sigmoid_bias compute_dtype",
        "Norms, rotary embedding and gate":
            "gate norm_Q norm_K norm_V norm_epsilon rotary rotary_cos rotary_sin positions",
        "Gradients": "grad_output grad_lse grad_weights",
        "Comparison with your results": "expected computed_in tolerance fail_on_difference",
        "Other inputs, results and time": "",
    },
    ANSWER: {"Steps": "output weights scores scaled_scores masked_scores lse", "Gradients": "grad_", "Other results": ""},
}


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
                made += f'<a href="{html.escape(address)}">{spans(label, where)}</a>'
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


def prose(source, where, folding=False):
    """Markdown as HTML. With folding, a paragraph that begins with bold text is folded with those after it, under this text."""
    return "\n".join(parts(source, where, folding))


def parts(source, where, folding=False):
    """The paragraphs, lists and blocks of code of Markdown as a list of HTML."""
    made, folded = [], False
    for kind, content in blocks(source, where):
        if kind == "pre":
            # An answer follows the command that gets it.
            command, _, answer = content.partition("\n\n{")
            made.append(f"<pre>{text(command)}</pre>")
            if answer:
                made.append(f'<pre class="answer">{text("{" + answer)}</pre>')
        elif kind == "ul":
            made.append("<ul>" + "".join(f"<li>{spans(item, where)}" for item in content) + "</ul>")
        else:
            lead = re.match(r"\*\*([^*]+?)\.\*\* *", content) if folding else None
            if lead:
                made += ["</details>"] * folded + [fold(text(lead[1]))]
                folded, content = True, content[lead.end() :]
            made.append(f"<p>{spans(content, where)}</p>")
    return made + ["</details>"] * folded


def fold(title, anchor="", is_open=False, names=False):
    """The beginning of a part that is folded under a title. It ends with </details>. names: src/docs.js writes the names of
    the keys or types in it beside the title."""
    place = f' id="{anchor}"' if anchor else ""
    return f"<details{' open' * is_open}><summary{place}>{title}{'<small></small>' * names}</summary>"


def short(source, where):
    """Markdown as HTML for a cell of a table. A single paragraph gets no tags."""
    made = prose(source, where)
    return made[3:-4] if made.startswith("<p>") and made.count("<p>") == 1 and made.endswith("</p>") else made


def pretty(value, width, indent=""):
    """JSON for people: lines have at most width characters if no row of numbers and no text is longer."""
    flat = json.dumps(value, ensure_ascii=False)
    is_row = isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value)
    if is_row or not isinstance(value, (list, dict)) or len(indent + flat) <= width:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {pretty(item, width, inner)}" for key, item in value.items()]
    else:
        items = [pretty(item, width, inner) for item in value]
    lines = [inner + items[0]]
    for item in items[1:]:
        if "\n" in lines[-1] + item or len(f"{lines[-1]}, {item}") > width:
            lines[-1] += ","
            lines.append(inner + item)
        else:
            lines[-1] += f", {item}"
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([begin, *lines, indent + end])


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
        self.answers = self.reached([self.success(operation) for _, operation in self.all()]) | ERRORS

    def reached(self, schema):
        """The names of the types that a schema uses, by a $ref or in words."""
        known = re.compile(rf"\b({'|'.join(self.components['schemas'])})\b")
        found, new = set(), [json.dumps(schema)]
        while new:
            source = new.pop()
            words = " ".join(re.findall(r'"x-type": "[^"]*|the\s+type\s+\w+|schemas/\w+"', source))
            names = set(known.findall(words)) - found
            found |= names
            new += [json.dumps(self.components["schemas"][name]) for name in names]
        return found

    def used_by(self, wanted):
        """The names of the types that the operations use for which wanted(operation) is true."""
        types = [self.types(operation).values() for _, operation in self.all() if wanted(operation)]
        return self.reached([schema for found in types for schema, _ in found])

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


GIVEN_OR_DRAWN = re.compile(r"\s(It|They)\s+(is|are)\s+given\s+or\s+drawn\.|,\s+given\s+or\s+drawn(?=\.)")
Key = collections.namedtuple("Key", "name type default meaning")


def keys(document, schema, where, results=()):
    """The keys of an object, in the order in which the document has them. results: the names of the results that the page
    shows below, which are not listed as values of a key."""
    for name, value in schema["properties"].items():
        full, place = document.resolve(value)[0], f"{where}.{name}"
        if "description" not in full:
            raise Unknown(f"{place} has no description")
        meaning, default = default_of(full["description"].strip())
        if name in schema.get("required", []):
            default = "**required**"
        if "DrawnMatrix" in full.get("x-type", ""):
            meaning = GIVEN_OR_DRAWN.sub("", meaning)  # the type says so
        if not meaning:
            raise Unknown(f"the description of {place} says nothing but the default")
        meaning = document.linked(short(meaning, place))
        words = full.get("items", {}).get("enum", [])
        if words and set(words) <= set(results):
            meaning += " See Returns for the names."
        elif words:
            meaning += " Allowed values: " + " ".join(code(json.dumps(word)) for word in words)
        yield Key(name, typed(document, value, place), spans(default, place), meaning)


# ------------------------------------------------------------------------------------------ page


def table(anchors, heads, rows):
    """A table. With anchors, each name in the first column has an anchor. Rows with the same cells become one row with all
    names."""
    merged = {}
    for name, *cells in rows:
        merged.setdefault(tuple(cells), []).append(name)
    lines = [f"<tr>{names_of(anchors, names)}<td>{'<td>'.join(cells)}" for cells, names in merged.items()]
    head = "".join(f"<th>{head}" for head in heads)
    return "\n".join([f"<table><tr>{head}", *lines, "</table>"])


def names_of(anchors, names):
    """The first cell of a row."""
    if not anchors:
        return f"<th>{' '.join(map(text, names))}"
    one, *more = [f' id="{anchors}-{slug(name)}">{text(name)}' for name in names]
    return f"<th{one}" if not more else f"<th>{' '.join(f'<span{each}</span>' for each in (one, *more))}"


def table_of_keys(anchors, rows, answer=False):
    """A table of keys. The keys of answers have no defaults."""
    if answer:
        return table(anchors, ["Key", "Type", "Meaning"], [(row.name, row.type, row.meaning) for row in rows])
    return table(anchors, ["Key", "Type", "Default", "Meaning"], rows)


def listed(names):
    """Names as part of a sentence."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def links_to(kind, rows):
    return " ".join(f'<a href="#{kind}-{slug(row.name)}">{text(row.name)}</a>' for row in rows)


class Page:
    def __init__(self, document):
        self.document = document
        self.contents = []  # (title, anchor, [(name, anchor)])
        self.shown = {}  # {name of a type: (path, anchor)} of the types that the page has so far
        self.shared = {REQUEST: {}, ANSWER: {}}  # {Key: paths} of the keys that several types have
        self.find_shared()
        self.chapters = {}  # the texts of the description by their headings
        before, *chapters = re.split(r"^## ", document.root["info"]["description"], flags=re.M)
        if before.strip():
            raise Unknown("the description has a text before its first heading")
        for part in chapters:
            title, _, content = part.partition("\n")
            self.chapters[title.strip()] = content

    def chapter(self, title, anchor):
        """The beginning of a chapter: its heading, and its text in the description if it has one."""
        self.contents.append((text(title), anchor, []))
        lines = [f'<h2 id="{anchor}">{text(title)}</h2>']
        if title in self.chapters:
            lines.append(self.document.linked(prose(self.chapters.pop(title), title, True)))
        return lines

    def find_shared(self):
        """A key is shared if several types have it with the same type, default and meaning."""
        types, owners = {}, collections.defaultdict(list)
        for (path, _), operation in self.document.all():
            if operation["tags"][0] in SHARING:
                for kind, (schema, name) in self.document.types(operation).items():
                    types.setdefault((kind, name), (schema, []))[1].append(path)
        for (kind, name), (schema, paths) in types.items():
            for key in keys(self.document, schema, name):
                owners[kind, key].append(paths)
        for (kind, key), paths in owners.items():
            if len(paths) > 1:
                if any(key.name == row.name for row in self.shared[kind]):
                    raise Unknown(f"{key.name} has two meanings, and several types have each")
                self.shared[kind][key] = sum(paths, [])

    def keys_of(self, path, anchor, kind, schema, name, results):
        """The keys that a path takes or returns as HTML, folded. results: the names of what it returns."""
        verb = "Takes" if kind == REQUEST else "Returns"
        if name in self.shown:
            raise Unknown(f"{path}: another path has one of its types, but not all")
        self.shown[name] = path, anchor
        shared = [row for row, paths in self.shared[kind].items() if path in paths]
        own = [row for row in keys(self.document, schema, name, results) if row not in shared]
        made = [table_of_keys("", own, kind == ANSWER)] if own else []
        main = [row for row in shared if kind == REQUEST and row.name in MAIN]
        others = [row for row in self.shared[kind] if row not in shared]
        every = f'<a href="#{kind}s">shared {kind}s</a>'
        if len(shared) > len(others):
            if main:
                made.insert(0, f"<p>Inputs: {links_to(kind, main)}</p>")
            exceptions = f", except {links_to(kind, others)}" if others else ""
            made.append(f'<p class="except">{"Also all" if own else "All"} {every}{exceptions}.</p>')
        elif shared:
            made.append(f'<p class="keys">{"Also these" if own else "These"} {every}: {links_to(kind, shared)}</p>')
        if "requestBody" in self.document.paths[path].get("post", {}):
            often = [row.name for row in shared if row.name in OFTEN]
            if kind == REQUEST and often:
                # The inputs come first. Other shared keys stand in the chapter about them.
                names = " ".join([row.name for row in main + own] + often)
                return [fold(f"{verb}<small>{names} …</small>"), *made, "</details>"]
            return [fold(verb, names=True), *made, "</details>"]
        return [f"<p>{verb}:", *made]

    def examples(self, path, method, operation):
        """The examples of a path as a list of HTML."""
        answers = self.document.success(operation).get("content", {})
        address = SERVER + path
        for each in (self.document.resolve(parameter)[0] for parameter in operation["parameters"]):
            address = address.replace(f"{{{each['name']}}}", each.get("example", ""))
        contents = operation.get("requestBody", {"content": {}})["content"]
        if JSON not in contents:
            curl = f"curl {address}" + (" -T FILE" if contents else "" if method == "get" else " -d '{}'")
            examples = [media["example"] for media in answers.values() if "example" in media]
            for answer in examples:
                shown = answer.rstrip() if isinstance(answer, str) else pretty(answer, WIDE)
                yield f'<pre>{curl}</pre>\n<pre class="answer">{text(shown)}</pre>'
            return
        questions, answers = contents[JSON]["examples"], answers[JSON]["examples"]
        if list(questions) != list(answers):
            raise Unknown(f"{path}: the examples of requests and of answers have different names")
        for name, question in questions.items():
            question, answer = (self.document.resolve(example)[0] for example in (question, answers[name]))
            body = text(pretty(question["value"], WIDE).replace("'", "'\\''"))
            title = f"<h4>{spans(question['summary'], name)}</h4>"
            curl = f"<pre>curl {address} -d '{body}'</pre>"
            yield f'{title}\n{curl}\n<pre class="answer">{text(pretty(answer["value"], WIDE))}</pre>'

    def described(self, description, where):
        """The description of a path. What follows its first paragraph, and the code that this one announces, is folded."""
        made = [self.document.linked(part) for part in parts(description, where)]
        end = 2 if made[0].endswith(":</p>") else 1
        return made[:end] + ([fold("More about it"), *made[end:], "</details>"] if made[end:] else [])

    def operation(self, path, method, operation):
        """A path. It is folded if it takes no keys."""
        anchor, where = slug(path) or "explorer", operation["operationId"]
        label = f"<b>{method.upper()}</b> {text(path)}"
        types, summary = self.document.types(operation), spans(operation["summary"], where)
        parameters = [self.document.resolve(parameter)[0] for parameter in operation.get("parameters", [])]
        lines = self.described(operation["description"], where)
        examples = list(self.examples(path, method, operation))
        same = {self.shown.get(name) for _, name in types.values()} - {None}  # the path that takes and returns the same
        first, more = ([], examples) if same else (examples[:1], examples[1:])
        lines += first
        if more:
            lines += [fold(f"{'More examples' if first else 'Examples'} <small>{len(more)}</small>"), *more, "</details>"]
        if REQUEST in types:
            self.contents[-1][2].append((label, anchor))
            lines = [f'<h3 id="{anchor}">{label} <small>{summary}</small></h3>', *lines]
        else:
            lines = [fold(f"{label} <small>{summary}</small>", anchor), *lines]
        for each in parameters:
            if each["in"] == "path":
                lines.append(f"<p>{code(each['name'])} in the path: {short(each['description'], where)}</p>")
        results = types[ANSWER][0]["properties"] if ANSWER in types else ()
        if same:
            other, place = same.pop()
            lines.append(f'<p>Takes and returns the keys of <a href="#{place}">{other}</a>.</p>')
        else:
            for kind, schema in types.items():
                lines += self.keys_of(path, anchor, kind, *schema, results)
        success = self.document.success(operation)
        if ANSWER not in types and success:
            media = ", ".join(map(code, success["content"]))
            lines.append(f"<p>Returns {media}. {short(success['description'], where)}</p>")
        errors = [status.replace("default", "other") for status in operation["responses"] if status[0] not in "23"]
        links = " ".join(f'<a href="#error-{status}">{status}</a>' for status in errors)
        lines.insert(-1 if lines[-1] == "</details>" else len(lines), f"<p>Errors: {links}</p>")
        if REQUEST not in types:
            lines.append("</details>")
        return lines

    def shared_keys(self, kind, title):
        """The chapter of the shared keys of a kind, in groups."""
        rest = {row.name: row for row in self.shared[kind]}
        lines = self.chapter(title, f"{kind}s")
        for number, (group, names) in enumerate(GROUPS[kind].items()):
            wanted = [name for name in rest if name.startswith("grad_")] if names == "grad_" else names.split() or list(rest)
            rows = [rest.pop(name) for name in wanted if name in rest]
            lines += [fold(group, is_open=number == 0, names=True), table_of_keys(kind, rows, kind == ANSWER), "</details>"]
        return lines

    def objects(self):
        """The types, in three groups that are folded."""
        groups = {"Of requests": [], "Of answers": [], "Of the Open Inference Protocol": []}
        others = self.document.used_by(lambda operation: operation["tags"] != ["inference"])
        for name, schema in self.document.objects.items():
            if name != "Problem":  # the chapter about errors has this type
                answer = "Of answers" if name in self.document.answers else "Of requests"
                groups[answer if name in others else "Of the Open Inference Protocol"] += self.object(name, schema)
        lines = self.chapter("Types", "types")
        for title, made in groups.items():
            lines += [fold(title, names=True), *made, "</details>"]
        return lines

    def object(self, name, schema):
        return [
            fold(name, name),
            self.document.linked(prose(schema["description"], name)),
            table_of_keys("", list(keys(self.document, schema, name)), name in self.document.answers),
            "</details>",
        ]

    def errors(self):
        """The chapter about errors, with each status once."""
        other = {self.document.resolve(operation["responses"]["default"])[1] for _, operation in self.document.all()}
        rows = []
        for name, response in self.document.components["responses"].items():
            media = response.get("content", {}).get(PROBLEM)
            if media:
                examples = [example["value"] for example in media.get("examples", {}).values()]
                examples = examples or [media["example"]]
                status = "other" if name in other else str(examples[0]["status"])
                title = "Of HTTP itself" if name in other else text(examples[0]["title"])
                details = "".join(f"<p><q>{text(example['detail'])}</q>" for example in examples)
                rows.append((status, title, f"<p>{short(response['description'], name)}</p>{details}"))
                if status == "422":
                    problem = pretty(examples[-1], WIDE)
        rows += self.only_of_inference({row[0] for row in rows})
        lines = self.chapter("Errors", "errors")
        lines.append(f"<pre>{text(problem)}</pre>")
        for status, title, meaning in sorted(rows):
            lines += [fold(f"<code>{status}</code> {title}", f"error-{status}", status == "422"), meaning, "</details>"]
        return lines + self.object("Problem", self.document.objects["Problem"])

    def only_of_inference(self, known):
        """The rows of statuses that no response with a problem document has."""
        rows = {}
        for _, operation in self.document.all():
            for status, response in operation["responses"].items():
                if status[0] in "45" and status not in known:
                    response, name = self.document.resolve(response)
                    error = response["content"][JSON]["example"]["error"]
                    meaning = f"<p>{short(response['description'], name)}</p><p><q>{text(error)}</q>"
                    rows[status] = (status, "Not Implemented", meaning)
        return list(rows.values())

    def headers(self):
        """The chapter about headers: those of requests, with the paths that read them, and those of answers."""
        asked, told, scheme = {}, {}, self.document.components["securitySchemes"]["key"]
        if (scheme["type"], scheme["scheme"]) != ("http", "bearer"):
            raise Unknown(f"a way to authenticate: {scheme}")
        operations = list(self.document.all())
        responses = list(self.document.components["responses"].values())
        for (path, method), operation in operations:
            named = f"{method.upper()} {path}"
            if operation.get("security") != []:
                asked.setdefault("Authorization", ("<code>Bearer KEY</code>", scheme, []))[2].append(named)
            for each in (self.document.resolve(parameter)[0] for parameter in operation["parameters"]):
                if each["in"] == "header":
                    kind = typed(self.document, each["schema"], each["name"])
                    asked.setdefault(each["name"], (kind, each, []))[2].append(named)
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
        return [
            *self.chapter("Headers", "headers"),
            fold("Headers of requests"),
            table("", ["Header of the request", "Value", "Meaning"], rows),
            "</details>",
            fold("Headers of answers"),
            table("", ["Header of the answer", "Example", "Meaning"], answers),
            "</details>",
        ]

    def kernel(self):
        """The command of the guide "Check your kernel", and the languages of its examples."""
        guide = GUIDE.match((KERNEL / "README.md").read_text(encoding="utf-8"))
        if not guide:
            raise Unknown("tests/clients/kernel/README.md: no title, table and command")
        names = re.findall(r"^\| (\w+) \| \[", guide["table"], re.M)
        return [
            fold(text(guide["title"]), "kernel"),
            "<p>Let a test of your kernel write its inputs and its results to a file, and send it:",
            f"<pre>{text(guide['command'])}</pre>",
            f"<p>{code('tests/clients/kernel')} of the sources explains the file, and has whole examples in {text(listed(names))}.</p>",
            "</details>",
        ]

    def tag(self, name, title, anchor):
        """The chapter of the paths that have a tag."""
        tag = next(each for each in self.document.root["tags"] if each["name"] == name)
        lines = [*self.chapter(title, anchor), prose(tag["description"], name)]
        for (path, method), operation in self.document.all():
            if operation["tags"] == [name]:
                lines += self.operation(path, method, operation)
        return lines

    def make(self):
        info = self.document.root["info"]
        lines = self.chapter("Quick start", "start")
        lines += self.chapter("Overview", "overview")
        lines += self.tag("attention", "Endpoints", "endpoints")
        lines += self.shared_keys(REQUEST, "Options")
        lines += self.shared_keys(ANSWER, "Results")
        lines += self.errors()
        lines += self.chapter("Binary tensors", "binary-tensors")
        lines += [*self.chapter("Compare your own results", "compare"), *self.kernel()]
        lines += self.tag("layers", "Stored layers", "layers-stored")
        lines += self.tag("inference", "Open Inference Protocol", "inference")
        lines += self.headers()
        lines += self.objects()
        lines += self.tag("service", "Service", "service")
        lines += self.tag("pages", "Pages", "pages")
        for title in self.chapters:
            raise Unknown(f"the description has the chapter {title}, which the page does not show")
        groups = []
        for title, anchor, names in self.contents:
            links = "".join(f'<li><a href="#{place}">{name}</a>' for name, place in names)
            groups.append(f'<li><a href="#{anchor}">{title}</a>' + (f"<ul>{links}</ul>" if links else ""))
        page = TEMPLATE
        for name, value in {
            "summary": spans(info["summary"], "info"),
            "version": text(info["version"]),
            "contents": "\n".join(groups),
            "reference": "\n".join(lines),
        }.items():
            page = page.replace(f"{{{name}}}", value)
        check_anchors(page)
        return page


GUIDE = re.compile(r"# (?P<title>.+?)\n\n.+?\n\n(?P<table>\|.+?)\n\n.*?\n```sh\n(?P<command>curl .+?)\n```\n", re.S)

TEMPLATE = """<!doctype html>
<!-- by make docs -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{summary}">
<title>attentiond: API reference</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs.css">
<script type="module" src="docs.js"></script>
</head>
<body>
<a class="skip" href="#reference">Skip to the reference</a>
<header>
<div class="top"><a class="brand" href="./">attentiond {version}</a>
<nav aria-label="Site"><a href="./">Explorer</a><a href="openapi.yaml">openapi.yaml</a><a href="llms.txt">llms.txt</a></nav></div>
<h1>API reference</h1>
<p class="lede">{summary}</p>
</header>
<div class="columns">
<div class="side"><div id="find" role="search"></div>
<nav aria-label="Contents">
<ul>
{contents}
</ul>
</nav></div>
<main id="reference" tabindex="-1">
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


# ------------------------------------------------------------------------------------------ llms.txt


class ShortForm:
    """llms.txt, the reference for programs that read texts and for people who paste it. Its text is llms.txt.in, in which a
    name in braces stands for what the document says, such as {members of Rotary}."""

    LINE_OF_KEYS = re.compile(r"- (\w+(?:, \w+)*): ")

    def __init__(self, document, template):
        self.document, self.template = document, template
        self.schemas = document.components["schemas"]
        self.requests, self.results = {}, {}
        for (path, _), operation in document.all():
            types = document.types(operation)
            if REQUEST in types:
                keys = self.requests[path] = types[REQUEST][0]["properties"]
                wanted = keys["return"]["items"]["enum"] if "return" in keys else []
                self.results.update((name, value) for name, value in types[ANSWER][0]["properties"].items()
                                    if name in wanted and not name.startswith("grad_"))

    def make(self):
        known = {path for line in re.findall("^### POST (.+)", self.template, re.M) for path in line.split(", ")}
        if missing := set(self.requests) - known:
            raise Unknown(f"llms.txt.in has no heading for {missing.pop()}")
        made = "".join(map(self.chapter, re.split(r"^(?=##)", self.template, flags=re.M)))
        if len(made.encode()) > MOST:
            raise Unknown(f"llms.txt has {len(made.encode())} bytes, and {MOST} are allowed: shorten llms.txt.in")
        return made

    def chapter(self, chapter):
        """A heading with what follows it. That of a path has its keys, and that of results their names."""
        lines, path = chapter.splitlines(), re.match(r"### POST (/[\w{}/-]+)", chapter)
        keys = self.requests[path[1]] if path else self.results if chapter.startswith("## Results") else None
        if keys is not None:
            own = [name for line in lines if (found := self.LINE_OF_KEYS.match(line)) for name in found[1].split(", ")]
            if wrong := set(own) - set(keys):
                raise Unknown(f"llms.txt.in: no {'key' if path else 'result'} has the name {wrong.pop()} below {lines[0]}")
            shared, rest = self.shared(path[1], own) if path else ("", [name for name in keys if name not in own])
            lines[-1:] = [*(f"- {name}: {self.first_sentence(keys[name])}" for name in rest), ""]
            lines = [line.replace("{shared}", shared) for line in lines]
        if path and keys:
            lines = [self.LINE_OF_KEYS.sub(lambda found: f"- {found[1]}{self.kind(keys, found[1])}: ", line) for line in lines]
        whole = re.sub(r"\{(\w+|\w+ of [\w.]+)\}", self.fact, "\n".join(lines) + "\n")
        return re.sub(r"(.*?)(^```.*?^```\n|\Z)", lambda found: wrapped(found[1]) + found[2], whole, flags=re.M | re.S)

    def shared(self, path, own):
        """The keys of a path that a path above it has, in words, and those that neither that path nor the lines have."""
        keys, found = self.requests[path], [("", [name for name in self.requests[path] if name not in own])]
        for base, others in self.requests.items():
            if base == path:
                break
            same = [name for name in keys if name not in own and self.said(keys, name) == self.said(others, name)]
            missing = [name for name in others if name not in keys]
            words = f"all keys of {base} but {' '.join(missing)}" if len(missing) < len(same) else " ".join(same)
            found.append((f"Also {words}.", [name for name in keys if name not in own + same]))
        return min(found, key=lambda each: (len(each[1]), len(each[0])))

    def said(self, keys, name):
        return self.document.resolve(keys[name])[0]["description"].strip() if name in keys else None

    def first_sentence(self, schema):
        description, _ = default_of(self.document.resolve(schema)[0]["description"].strip())
        return " ".join(re.split(r"\.\s", description)[0].split())

    def kind(self, keys, names):
        """The type and the default of keys, in parentheses. A matrix, an array and an object of one form have no type."""
        kinds = set()
        for name in names.split(", "):
            kind = html.unescape(re.sub("<[^>]*>", "", typed(self.document, keys[name], name))).replace('" or "', "|")
            kind = re.sub(r", (array|matrix) or DrawnMatrix$", r" or \1", kind)
            kind = re.sub(r',? or DrawnMatrix$| of Inference\w+| −?\d+ to \d+|\s[≥>]\s−?\d+|"', "", kind)
            default = default_of(self.said(keys, name))[1]
            default = f"= {default.strip('`')}" if re.fullmatch("`[^`]*`|[−0-9].*", default) else ""
            kinds.add(" ".join(["" if kind in ("matrix", "array", "Random", "Tolerance") else kind, default]).strip())
        if len(kinds) > 1:
            raise Unknown(f"llms.txt.in: {names} have different types or defaults: {', '.join(kinds)}")
        return f" ({kind})" if (kind := kinds.pop()) else ""

    def fact(self, found):
        """What the document says of a name in braces. {name} and {model} are parts of paths."""
        what, _, name = found[1].rpartition(" of ")
        info = self.document.root["info"]
        if what == "members":
            return " ".join(self.schemas[name]["properties"])
        if what == "values":
            schema, _, member = name.partition(".")
            return " ".join(self.schemas[schema]["properties"][member]["enum"])
        if what == "description":
            return " ".join(self.schemas[name]["description"].split())
        if name == "steps":
            overview = re.search(r"^## Overview\n(.*?)^## ", info["description"], re.M | re.S)[1]
            return next(content for kind, content in blocks(overview, "Overview") if kind == "pre")
        if name == "problem":
            *_, example = self.document.components["responses"]["Unprocessable"]["content"][PROBLEM]["examples"].values()
            return f"`{json.dumps({key: example['value'][key] for key in ('detail', 'pointer')})}`"
        if name not in ("version", "summary", "name", "model"):
            raise Unknown(f"llms.txt.in: {found[0]}")
        return info.get(name, found[0])


def wrapped(source):
    """Markdown whose paragraphs and items have lines of at most LINE characters. Code is not cut."""
    joined = re.sub(r"(?<=[^\n])\n(?![\n#]|- |\Z)(?:  |> )?", " ", source)
    joined = re.sub("`[^`]+`", lambda found: found[0].replace(" ", "\0"), joined)
    indent = {"- ": "  ", "> ": "> "}
    lines = (textwrap.fill(line, LINE, subsequent_indent=indent.get(line[:2], ""), break_long_words=False, break_on_hyphens=False)
             for line in joined.splitlines())
    return "".join(line.replace("\0", " ") + "\n" for line in lines)


def in_json(value, levels=3):
    """The document as JSON. Each path and each type has a line of its own, so that changes of several people merge."""
    if levels == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    members = (f"{json.dumps(key)}:{in_json(member, levels - 1)}" for key, member in value.items())
    return "{\n" + ",\n".join(members) + "\n}"


def in_script(document):
    """The keys that softmax or linear attention has alone, as a module."""
    softmax, states = (set(document["components"]["schemas"][name]["properties"]) for name in ("AttentionRequest", "LinearAttentionRequest"))
    made = "// keys.js has the keys that only softmax has, and those that only states have. make docs writes it.\n"
    for name, names in ("OF_SCORES", softmax - states), ("OF_STATES", states - softmax):
        text = f"'{' '.join(sorted(names))}';"
        made += f"export const {name} ={' ' if len(text) < WIDE else chr(10) + '  '}{text}\n"
    return made


def main():
    parser = argparse.ArgumentParser(description="Writes the page /docs, openapi.json, keys.js and llms.txt.")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if one of them is not up to date")
    arguments = parser.parse_args()
    try:
        page = Page(Document(DOCUMENT)).make()
        short_form = ShortForm(Document(DOCUMENT), SHORT_FORM.read_text(encoding="utf-8")).make()
    except Unknown as error:
        sys.exit(f"docs.py does not understand this: {error}")
    document = yaml.safe_load(DOCUMENT.read_text(encoding="utf-8"))
    made_of = {PAGE: page, IN_JSON: in_json(document) + "\n", KEYS: in_script(document), LLMS: short_form}
    for path, made in made_of.items():
        if not arguments.check:
            path.write_text(made, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != made:
            sys.exit(f"server/explorer/src/{path.name} is not what openapi.yaml, llms.txt.in and tests/clients/kernel say: run make docs")


if __name__ == "__main__":
    main()
