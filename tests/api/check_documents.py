#!/usr/bin/env python3
"""Holds every Markdown file of the repository, and llms.txt, to what it says: its links, its paths, its commands and their answers.

    check_documents.py --daemon PROGRAM [--library ARCHIVE] [FILE...]

Lines: prose has at most 120 columns. A table may have more, and so may a line that is one word, link or image.

Links: a file exists, an anchor exists, the daemon serves what is said to be its own, and any other address is https. A path
of the repository in `code` exists.

Blocks: each one stands between fences and has a language. `sh` has commands:
- Commands that need no more than the daemon and a folder are run by bash. All blocks of a document have one such folder, in
  which copies of the entries of the root and of the document's folder are found.
- `build/attentiond ...`, or `make run` with ARGS, starts a daemon on a free port. The blocks behind it, up to the end of the
  section, ask this daemon. All others ask one that has the layers of `make run`.
- The block of json or text behind them, if there is one, is what the commands print. If there is none, they end with
  status 0, and each answer to curl has the status 200.
- Commands that need the network, root, a container or a build, or have a word in capitals that the reader replaces, are not
  run. Nor is what asks a daemon that they start. Like all commands, also those in `code`, they are sound for bash, and the
  targets of make, the paths, the options of the daemon and the flags of scripts in them exist.
`python`, `js`, `go` and `c` have programs. If a block of text stands behind a program, the program is run, and prints this
text. If the language or a Python module is not installed, the program is left out, and a message says so. So a Python that
has NumPy runs the programs that need NumPy. C is compiled without warnings and linked with ARCHIVE.
`text` and `console` have what nobody runs as it stands.

FAULTS has a fault of each kind. The script finds each of them every time.
"""

import argparse
import concurrent.futures
import fnmatch
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from documents import ANY_NAME, Block, Document, Span, commands, daemon_options, without_variables
from documents_run import PORT, ROOT, Daemon, Run

COLUMNS = 120
CALL = r"(\w+=\S+ )*(make( |$)|(build/)?attentiond -|(build|tests|server|docker)/\S+ -|python3? \w+/)"  # `code` that is a command


class Tree:
    """The names of all files and folders of the repository, without what was built, and the texts of its programs."""

    def __init__(self):
        self.files, self.folders = set(), {"."}
        for folder, folders, files in os.walk(ROOT):
            where = os.path.relpath(folder, ROOT)
            folders[:] = [name for name in folders if name not in ("build", ".git", "node_modules", "__pycache__")
                          and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))]
            self.files |= {os.path.normpath(os.path.join(where, name)) for name in files}
            self.folders |= {os.path.normpath(os.path.join(where, name)) for name in folders}
        self.documents = {name: Document(name, self.read(name)) for name in sorted(self.files)
                          if name.endswith(".md") or os.path.basename(name) == "llms.txt"}
        self.make = "".join(self.read(name) for name in ("Makefile", "tests/tests.mk"))
        lists = re.findall(r"^([a-z][\w -]*):(?!=)|^\.PHONY:((?:.*\\\n)*.*)", self.make, re.M)
        self.targets = set(" ".join(map(" ".join, lists)).split())

    def read(self, name):
        return (ROOT / name).read_text(encoding="utf-8")

    def copy(self, folder):
        """Copies all files to a folder, and returns it."""
        for name in self.folders:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in filter(lambda name: (ROOT / name).is_file(), self.files):
            shutil.copy(ROOT / name, folder / name)
        return folder

    def has(self, name):
        return os.path.normpath(name) in self.files | self.folders

    @functools.cached_property
    def variables(self):
        """The variables of the environment that programs of the tests read."""
        programs = "".join(self.read(name) for name in self.files if re.match(r"tests/.*\.(py|sh|c|mjs)$", name))
        return set(re.findall(r"(?:\$\{?|environ(?:\.get\(|\[)['\"]|getenv\(\"|process\.env\.)([A-Z]\w*)", programs))

    @functools.lru_cache(maxsize=None)
    def words(self, folder):
        """Returns the words in the programs of a folder and in the names of its files. A shell function run_x has the word x."""
        names = [name for name in self.files if name.startswith(f"{folder}/")]
        programs = "".join(self.read(name) for name in names if name.endswith((".py", ".sh", ".c", ".mjs")))
        words = set(re.findall(r"[\w-]+", programs)) | set(re.split(r"[/.]", "/".join(names)))
        return words | {word.removeprefix("run_") for word in words}


# ----------------------------------------------------------------------------------------------------------------- lines
def check_lines(document):
    """Checks the lengths of lines. A link or an image counts as one word."""
    for number, (line, prose) in enumerate(zip(document.lines, document.prose.split("\n")), 1):
        words = re.sub(r"^\s*([-*+]|\d+\.) |!?\[[^\]]*\](?=\()", "", line).split()
        if len(prose) > COLUMNS and not line.lstrip().startswith("|") and len(words) > 1:
            document.fail(number, f"this line has {len(line)} columns, and {COLUMNS} are allowed")


# ----------------------------------------------------------------------------------------------------------------- links
class Pages:
    """What the daemon serves."""

    def __init__(self, address):
        self.address = address

    @functools.lru_cache(maxsize=None)
    def get(self, path):
        """Returns the status of a GET and its text."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=30) as response:
                return response.status, response.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            return error.code, ""


LINKS = (
    r"\]\(\s*<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+[\"'][^)]*)?\)",  # [text](target)
    r"^ {0,3}\[[^\]]+\]:\s*(\S+)",  # [name]: target
    r"<\w+ [^>]*(?:src|href)=\"([^\"]*)\"",
    r"(?<!\]\()(?<!\]: )(?<!\")(https?://[^\s)>\]\"]*[^\s)>\]\".,;:])",  # an address in a sentence
)
HTTPS = r"https://[\w-]+(\.[\w-]+)*\.[A-Za-z]{2,}(:\d+)?([/?][\w/?&=%.~@:+,;()-]*)?"


def wrong_link(document, target, tree, pages):
    """Returns what is wrong with a link, in words, or None."""
    address, _, anchor = target.partition("#")
    if re.match(rf"http://(127\.0\.0\.1|localhost):{PORT}(/|$)", address):
        path = urllib.parse.urlsplit(address).path or "/"
        status, text = pages.get(path)
        if status == 404:
            return f"the daemon does not serve {path}"
        if path == "/docs" and anchor and not re.search(rf"\bid=[\"']?{re.escape(anchor)}[\"'\s>]", text):
            return f"{path} has no place #{anchor}"
    elif re.match(r"http://(127\.0\.0\.1|localhost)\b", address) or target.startswith("mailto:"):
        return None
    elif ":" in address:
        return None if re.fullmatch(HTTPS, address) else f"{target} is no well-formed address that begins with https://"
    else:
        name = os.path.normpath(os.path.join(document.folder, urllib.parse.unquote(address)))
        if address and not tree.has(name):
            return f"there is no file or folder {name}"
        name = f"{name}/README.md" if name in tree.folders else name
        there = tree.documents.get(name) if address else document
        if anchor and anchor not in (there.anchors if there else ()):
            return f"{there.name if there else name} has no heading #{anchor}"
    return None


def check_links(document, tree, pages):
    """Checks all links. Returns their number."""
    found = [match for link in LINKS for match in re.finditer(link, document.prose, re.M)]
    for match in found:
        wrong = wrong_link(document, match[1], tree, pages) if match[1] else "it leads nowhere"
        if wrong:
            document.fail(document.line(match.start(1)), f"a link is dead: {wrong}")
    names = {name.lower() for name in re.findall(r"^ {0,3}\[([^\]]+)\]:", document.prose, re.M)}
    for match in re.finditer(r"\]\[([^\]\n]+)\]", document.prose):
        if match[1].lower() not in names:
            document.fail(document.line(match.start()), f"a link is dead: nothing says what [{match[1]}] is")
    return len(found)


def check_paths(document, tree):
    """Checks that each path of the repository in `code` exists. Returns their number. A path may begin anywhere below the
    root, as `api/call/call.c` does. It need not exist if it is below build/, is a media type, has a part in capitals, stands in
    a call of a function, or stands in a command of the document, which writes it or is checked itself."""
    written = "".join(item.text for item in document.items if isinstance(item, Block) and item.language == "sh")
    words = [(span.line, word.strip("'\"@,;()")) for span in document.items
             if isinstance(span, Span) and "(" not in span.text for word in span.text.split()]
    paths = [(line, word) for line, word in words if re.fullmatch(r"(\.{1,2}/)*[\w.*-]+(/[\w.*-]+)*/[\w.*-]+\.[A-Za-z]\w*", word)]
    for line, path in paths:
        if re.match(r"(\./)?build/|(application|text|image)/", path) or re.search(ANY_NAME, path) or path in written:
            continue
        patterns = (os.path.normpath(os.path.join(document.folder, path)), path, f"*/{path}")
        if not any(fnmatch.fnmatch(name, pattern) for name in tree.files for pattern in patterns):
            document.fail(line, f"there is no file {path}")
    return len(paths)


# -------------------------------------------------------------------------------------------------------------- commands
class Soundness:
    """Checks that the names in commands exist. Paths begin in the root or in the document's folder."""

    def __init__(self, tree, program):
        self.tree, self.program = tree, program

    def check(self, document, item):
        """Checks the commands of a block, or of a span that is a command."""
        ended = subprocess.run(["bash", "-n"], input=item.text, text=True, capture_output=True, check=False)
        if ended.returncode:
            document.fail(item.line, f"bash does not understand this: {ended.stderr.strip()}")
            return
        for command in commands(item.text):
            for wrong in self.wrong(command.words, {".", document.folder}):
                document.fail(item.line + item.text.count("\n", 0, command.begin), wrong)

    def wrong(self, words, folders):
        """Yields what is wrong with a command, in words."""
        words = words[1:] if words[0] == "sudo" else words
        options = daemon_options(words)
        if options:
            yield from self.wrong_options(options)
        variables, words = without_variables(words)
        if words[:1] == ["make"]:
            yield from self.wrong_make(variables, words[1:])
        elif words and words[0].startswith("build/") and "/bin/" not in words[0]:  # a virtual environment has bin/
            yield from self.wrong_program(words[0])
        yield from self.wrong_paths(words, folders)

    def wrong_options(self, options):
        ended = subprocess.run([self.program, *options, "--help"], text=True, capture_output=True, check=False)
        if ended.returncode and not any(re.fullmatch(r"[A-Z]+", option) for option in options):
            yield f"the daemon refuses {shlex.join(options)}: {ended.stderr.strip()}"

    def wrong_make(self, variables, words):
        targets = [word for word in words if re.fullmatch(r"[a-z][\w-]*", word)]
        for target in targets:
            if target not in self.tree.targets:
                yield f"there is no target {target}: make help lists the targets"
        for variable, _, value in (word.partition("=") for word in [*variables, *words] if re.match(r"\w+=", word)):
            if not re.search(rf"\b{variable}\b", self.tree.make) and variable not in self.tree.variables:
                yield f"no target has a variable {variable}"
            if variable == "ARGS" and targets and targets[0] != "run":
                yield from self.wrong_arguments(targets[0], shlex.split(value))

    def wrong_arguments(self, target, words):
        """Yields what is wrong with ARGS. A name in it is a word of the folder whose script the target runs."""
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", self.tree.make, re.M)
        scripts = [name for name in re.findall(r"\btests/[\w./-]+", recipe[1] if recipe else "") if self.tree.has(name)]
        known = self.tree.words(os.path.dirname(scripts[-1]) if scripts else "tests")
        for word in words:
            for name in re.findall(r"^--?[a-z][\w-]*|^[A-Za-z_][\w.]*$", word):
                if not set(name.split(".")) <= known:
                    yield f"make {target} has no argument {name}"

    def wrong_program(self, path):
        name = re.escape(os.path.basename(path))
        families = "|".join(re.findall(r"\$\(O\)/(\w+_)%", self.tree.make))
        if not re.search(rf"(\$\(O\)|build/\w+)/{name}(?![\w-])|^({families})\w+$", f"{self.tree.make}\n{name}", re.M):
            yield f"no target makes {path}"

    def wrong_paths(self, words, folders):
        """Yields the paths of files that do not exist, and the flags that a script of the repository does not have."""
        script = None
        for word in words:
            path = word.partition("=")[2] if word.startswith("--") else word.lstrip("@")
            tops = [folder for folder in folders if self.tree.has(os.path.join(folder, path.partition("/")[0]))]
            places = [os.path.normpath(os.path.join(folder, path)) for folder in tops]
            found = [name for name in self.tree.files | self.tree.folders if any(fnmatch.fnmatch(name, place) for place in places)]
            if tops and "/" in path and not found and not re.search(rf"^[./]|[$:\s]|{ANY_NAME}", path):
                yield f"there is no file or folder {path}"
            flag = word.partition("=")[0]
            if "/" in path and found and found[0].endswith((".py", ".sh")):
                script = found[0]
            elif script and re.match(r"--?[a-z]", flag) and flag not in self.tree.read(script):
                yield f"{script} has no option {flag}"


# -------------------------------------------------------------------------------------------------------------- all of it
class Check:
    """Checks documents with one daemon."""

    def __init__(self, tree, shared, program, library, scratch):
        self.tree, self.shared, self.program, self.library, self.scratch = tree, shared, program, library, scratch
        self.copy = tree.copy(pathlib.Path(scratch, "tree"))
        self.soundness = Soundness(tree, program)
        self.pages = Pages(f"http://127.0.0.1:{shared.free}")

    def document(self, document):
        """Checks a document. Returns the numbers of its links, paths, and blocks that were run, and what was left out."""
        check_lines(document)
        links, paths = check_links(document, self.tree, self.pages), check_paths(document, self.tree)
        for item in document.items:
            if isinstance(item, Block) and item.language == "sh" or isinstance(item, Span) and re.match(CALL, item.text):
                self.soundness.check(document, item)
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            run = Run(document, folder, self.copy, self.shared, self.program, self.library)
            run.all()
        return links, paths, run.count, run.left_out

    def faults(self):
        """Returns the faults that are not found, and what is found beside them."""
        failures = []
        for text, words in FAULTS:
            document = Document("README.md", f"# A fault\n\n{text}\n")
            self.document(document)
            if len(document.failures) != 1 or not re.search(words, document.failures[0]):
                failures.append(f"{sys.argv[0]}: the fault in {text!r} is not found, or not it alone: {document.failures}")
        return failures


SOFTMAX = f"curl http://127.0.0.1:{PORT}/softmax -d '{{\"X\": [1]}}'"
# Each text has one fault. The message has these words.
FAULTS = [
    ("word " * 25, "this line has 125 columns"),
    ("[a](nowhere.md)", "no file or folder nowhere.md"),
    ("[a](readme.md)", "no file or folder readme.md"),
    ("![a](server/none.png)", "no file or folder server/none.png"),
    ("## Here\n[a](#there)", "README.md has no heading #there"),
    ("[a](tests/README.md#nothing)", "tests/README.md has no heading #nothing"),
    (f"<http://127.0.0.1:{PORT}/nothing>", "the daemon does not serve /nothing"),
    (f"[a](http://127.0.0.1:{PORT}/docs#nothing)", "/docs has no place #nothing"),
    ("[a](http://example.org/)", "begins with https"),
    ("[a][b]", r"nothing says what \[b\] is"),
    ("See `tests/api/none.c`.", "no file tests/api/none.c"),
    ("Run `make nothing`.", "no target nothing"),
    ('Run `make test-clients ARGS="nonesuch"`.', "make test-clients has no argument nonesuch"),
    ("Run `make test NOTHING=1`.", "no target has a variable NOTHING"),
    ("Run `attentiond --nothing 1`.", "the daemon refuses --nothing 1"),
    ('Run `make run ARGS="--workers no"`.', "the daemon refuses --workers no"),
    ("```sh\nmake nothing\n```", "README.md:4: there is no target nothing"),
    ("```sh\nmake test (\n```", "bash does not understand"),
    ("```sh\nsudo cp lib/nothing.h .\n```", "no file or folder lib/nothing.h"),
    ("```sh\nbuild/release/nothing\n```", "no target makes build/release/nothing"),
    ("```sh\npython3 tests/models/hidden_states.py --nothing\n```", "has no option --nothing"),
    ("```sh\nnothing\n```", "it is unknown whether nothing needs"),
    ("```sh\ncat nothing\n```", "ended with 1"),
    (f"```sh\n{SOFTMAX.replace('softmax', 'nothing')}\n```", "the statuses 404"),
    (f"```sh\n{SOFTMAX}\n```\n\n```json\n{{\"output\":[2]}}\n```",
     r'README.md:4: .* line 8 says:\n\{"output":\[2\]\}\nIt printed:\n\{"output":\[1\]\}\n'),
    ("```sh\nbuild/attentiond --api-key-file nothing\n```", "the daemon did not start"),
    (f"Run `make run ARGS=\"--max-work 1\"`.\n\n```sh\n{SOFTMAX}\n```", "the statuses 413"),
    ("```python\nprint(1)\n```\n\n```text\n2\n```", r"It printed:\n1\n"),
    ("```python\nprint(\n```", "no Python"),
    ("```json\n{\n```", "no JSON"),
    ("```\n1\n```", "has no language"),
    ("```nothing\n1\n```", "a block of nothing is unknown"),
    ("```sh\n", "has no end"),
    ("a\n\n    make test", "between no fences"),
]


def main():
    parser = argparse.ArgumentParser(description="Holds the Markdown files to what they say.")
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE", help="check only these files")
    parser.add_argument("--daemon", type=pathlib.Path, metavar="PROGRAM", required=True)
    parser.add_argument("--library", type=pathlib.Path, metavar="ARCHIVE", help="link the programs in C with this library")
    arguments = parser.parse_args()
    tree = Tree()
    chosen = [os.path.relpath(file.resolve(), ROOT) for file in arguments.files]
    if set(chosen) - set(tree.documents):
        parser.error("a FILE is no document of the repository")
    documents = [tree.documents[name] for name in chosen or tree.documents]
    program, library = (path and path.absolute() for path in (arguments.daemon, arguments.library))
    shared = Daemon(program, ["--layers", "server/models"], ROOT)
    try:
        with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            check = Check(tree, shared, program, library, scratch)
            faults = pool.submit(check.faults)
            links, paths, blocks, left_out = zip(*pool.map(check.document, documents))
            failures = faults.result() + [failure for document in documents for failure in document.failures]
    finally:
        wrong = shared.close()
    failures += [wrong] if wrong else []
    for line in [*sum(left_out, []), *failures]:
        print(line.rstrip())
    if not failures:
        print(f"{sum(links)} links, {sum(paths)} paths and {sum(blocks)} blocks of {len(documents)} documents are as they say")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
