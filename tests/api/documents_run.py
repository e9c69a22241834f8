"""Runs the blocks of a document, each as a reader would, and compares what they print. check_documents.py calls it."""

import ast
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from documents import Heading, Span, commands, daemon_options, placeholder, starts_daemon, without_variables

ROOT = pathlib.Path(__file__).resolve().parents[2]
PORT = "8080"  # the port of the daemon in the documents
# The languages of blocks that are not run.
SHOWN = {"text", "console", "json", "ini", "toml", "xml", "yaml", "html", "diff", "java", "php", "rust", "ts"}
COMPILER = shlex.split(os.environ.get("CC", "cc"))
COMPILE = [*COMPILER, "-std=c17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Ilib/include"]
PROGRAMS = {"python": sys.executable, "js": "node", "go": "go", "c": COMPILER[0]}
# The packages that a program imports, which are not part of its language.
PACKAGES = {"js": r"(?:from|import) +['\"](?!node:)([^'\"]+)['\"]", "go": r"^\s*(?:import )?\"([\w-]+\.[^\"]+)\"$"}
# A block with one of these commands needs the network, root, a container, another machine, a package or a file of functions.
OUTSIDE = set(""". apt apt-get brew cargo dask dnf docker git go java journalctl javac kubectl ldconfig mvn nginx node npm npx
    nvcc pacman pip pip3 podman podman-compose python python3 ray rustc scp ssh sudo systemctl""".split())
# These commands need no more than a folder and the daemon. The first ones are bash's own.
BUILTIN = set("[ cd echo export false printf read test true wait".split())
LOCAL = BUILTIN | set("""attentiond base64 cat cc chmod cmp cp curl cut diff grep gunzip gzip head jq ln ls make mkdir mktemp mv
    openssl pkg-config rm sed seq sleep sort tail tee touch tr uniq wc xxd zstd""".split())
ABSENT = "the block at line {} is not run, and starts the daemon that this asks"
# Each curl says the status of its answer on standard error.
PRELUDE = "curl() { command curl -sS -w '%{stderr}status %{http_code}\\n' \"$@\"; }\nset -eo pipefail\n"


class Daemon:
    """A daemon on a free port. `port` is the one that the document gives it."""

    def __init__(self, program, options, folder, variables=()):
        named = re.search(r"--port[ =](\d+)", " ".join(options))
        self.port = named[1] if named else PORT
        if named:  # the last option holds
            options = [*options, "--port", "0"]
        self.log = tempfile.TemporaryFile("w+")  # pylint: disable=consider-using-with
        # A build that checks memory on a busy machine is slow.
        environment = {**os.environ, "ATTENTIOND_PORT": "0", "ATTENTIOND_COMPUTE_TIMEOUT": "3600",
                       **dict(word.split("=", 1) for word in variables)}
        self.process = subprocess.Popen([program, *options], cwd=folder, env=environment,  # pylint: disable=consider-using-with
                                        text=True, stdout=subprocess.PIPE, stderr=self.log)
        self.first = self.process.stdout.readline()
        self.free = self.first.strip().rpartition(":")[2] if "://" in self.first else None

    def placed(self, text):
        """Returns the text with the port of this daemon in the place of that of the document."""
        return re.sub(rf"\b(127\.0\.0\.1|localhost):{self.port}\b", rf"\1:{self.free}", text)

    def replaced(self, text):
        return re.sub(rf"\b(127\.0\.0\.1|localhost):{self.free}\b", rf"\1:{self.port}", text)

    def close(self):
        """Ends the daemon. Returns what is wrong with it, in words, or None."""
        self.process.terminate()
        self.process.stdout.close()
        self.process.wait()
        self.log.seek(0)
        with self.log:
            said = self.log.read()
        if self.free and self.process.returncode == 0:
            return None
        return f"the daemon {'ended' if self.free else 'did not start: it ended'} with {self.process.returncode}: {said}"


class Run:
    """Runs the blocks of a document in their order, in a folder that has the entries of the root and of the document's folder.
    These are copies: `tree` has a copy of all files of the repository, and what a block does to them changes nothing else."""

    def __init__(self, document, folder, tree, shared, program, library):
        self.document, self.folder, self.shared = document, pathlib.Path(folder), shared
        self.program, self.library = program, library
        # The daemon that this section started, or the command that would start it, and the level and the line of that place.
        self.own, self.waiting, self.own_level, self.own_line = None, None, 0, 0
        self.absent = False  # whether this section starts a daemon that cannot be started here
        self.level, self.count, self.left_out, self.saved = 0, 0, [], set()
        # All documents share the folders of the tree. Files beside them are copied again, because a document writes such files.
        for entry in [*tree.iterdir(), *(tree / document.folder).iterdir()]:
            here = self.folder / entry.name
            if entry.is_dir() and not here.exists():
                here.symlink_to(entry)
            elif entry.is_file() and not here.exists():
                shutil.copy(entry, here)
        (self.folder / "build").mkdir()
        for built in filter(None, (program, library)):
            (self.folder / "build" / built.name).symlink_to(built)
        self.environment = {**os.environ, "PATH": f"{self.folder}/build:{os.environ['PATH']}", "HOME": str(folder),
                            "LC_ALL": "C.UTF-8", "no_proxy": "*", "NODE_NO_WARNINGS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                            "GOCACHE": str(ROOT / "build/clients/gocache")}

    def all(self):
        try:
            for item in self.document.items:
                if isinstance(item, Heading):
                    if item.level <= self.own_level:
                        self.close_own()
                    self.level = item.level
                elif isinstance(item, Span):
                    words = next((command.words for command in commands(item.text)), [])
                    if starts_daemon(words) and daemon_options(words):
                        self.waiting, self.own_level, self.own_line = words, self.level, item.line
                else:
                    self.block(item)
        finally:
            self.close_own()

    def start(self, words):
        """Starts a daemon for the rest of the section. `make run` without options is the one that all documents share."""
        self.close_own()
        variables, _ = without_variables(words)
        if "make" in words:
            variables = ["ATTENTIOND_LAYERS=server/models/", *(word for word in variables if not word.startswith("ARGS="))]
        if "make" not in words or daemon_options(words):
            self.own = Daemon(self.program, daemon_options(words), self.folder, variables)
            if not self.own.free:
                self.close_own()

    def close_own(self):
        own, self.own, self.waiting, self.absent = self.own, None, None, False
        wrong = own.close() if own else None
        if wrong:
            self.document.fail(self.own_line, wrong)

    def service(self):
        """Returns the daemon that a block of this section asks."""
        if self.waiting:
            self.start(self.waiting)
        return self.own or self.shared

    def leave_out(self, block, reason):
        self.left_out.append(f"{self.document.name}:{block.line}: left out, because {reason}")

    def block(self, block):
        saved = re.search(r"\b[Ss]ave (?:this|it)[^`]*`([\w.-]+)`", block.before)
        if saved:
            (self.folder / saved[1]).write_text(block.text, encoding="utf-8")
            self.saved.add(saved[1])
        if block.language == "sh":
            self.shell(block)
        elif block.language in PROGRAMS:
            self.any_program(block)
        elif block.language == "json" and not block.is_answer:
            try:
                json.loads(block.text)
            except ValueError as error:
                self.document.fail(block.line, f"this is no JSON: {error}")
        elif not block.language:
            self.document.fail(block.line - 1, "this block has no language: sh is for commands, and text for what is not run")
        elif block.language not in SHOWN:
            self.document.fail(block.line - 1, f"a block of {block.language} is unknown: sh is for commands, the programs are "
                               f"{', '.join(PROGRAMS)}, and what is not run is {', '.join(sorted(SHOWN))}")

    # ----------------------------------------------------------------------------------------------------------- commands
    def shell(self, block):
        """Runs commands, if they need no more than a folder and the daemon."""
        found = commands(block.text)
        called = [words for words in (without_variables(command.words)[1] for command in found) if words]
        names = [words[0] if re.match(r"\./|build/", words[0]) else os.path.basename(words[0]) for words in called]
        inline = {words[0] for words in called if words[0] in ("python3", "node") and words[1:2]
                  and (words[1] in {"-c", *self.saved} or words[1:3] == ["-m", "json.tool"])}
        builds = [words for words in called if words[0] == "make" and daemon_options(words) is None
                  or words[0].startswith("build/") and words[0] != "build/attentiond"]
        outside = [name for name in names if name in OUTSIDE - inline] + [words[0] for words in builds]
        starts = [command for command in found if starts_daemon(command.words)]
        replaced = next(filter(None, (placeholder(words) for words in called)), None)
        if outside or replaced:
            if block.answer or replaced and "curl" in names:
                self.leave_out(block, f"{outside[0]} needs more than a folder and the daemon" if outside
                               else f"{replaced} stands for any name")
            if starts and daemon_options(starts[-1].words):
                self.close_own()
                self.absent, self.own_level, self.own_line = True, self.level, block.line
            return
        own = re.findall(r"^\s*([\w-]+) *\(\)", block.text, re.M)
        unknown = [name for name in names if name not in {*LOCAL, *inline, *own} and "/" not in name]
        missing = [name for name in names if name not in {*BUILTIN, *own, "make"} and "/" not in name and not self.finds(name)]
        missing += [name for name in re.findall(r"\bbuild/[\w.]+", block.text) if not (self.folder / name).exists()]
        if unknown:
            self.document.fail(block.line, f"it is unknown whether {unknown[0]} needs more than a folder and the daemon: add it to "
                               "LOCAL or OUTSIDE in tests/api/documents_run.py, or write console, which is not run, in place of sh")
        elif missing:
            self.leave_out(block, f"there is no {missing[0]}")
        else:
            self.in_parts(block, starts)

    def finds(self, program):
        return shutil.which(program, path=self.environment["PATH"])

    def in_parts(self, block, starts):
        """Runs what stands before the start of a daemon, starts it, and runs what stands behind."""
        if not starts:
            self.script(block, block.text, block.answer)
            return
        before, after = block.text[:starts[-1].begin], block.text[starts[-1].end:].lstrip("&")
        if commands(before):
            self.script(block, before, None)
        self.own_level, self.own_line = self.level, block.line + before.count("\n")
        self.start(starts[-1].words)
        if commands(after):
            self.script(block, after, block.answer)
        elif block.answer and self.own:
            self.compare(block, self.own.replaced(self.own.first), "", block.answer)

    def script(self, block, text, answer):
        """Runs a script and compares what it prints."""
        asked = re.findall(r"https?://([\w.-]+(?::\d+)?)", text) if "curl" in text else []
        service = self.service() if asked or "attentiond" in text else self.shared
        others = [host for host in asked if host not in (f"127.0.0.1:{service.port}", f"localhost:{service.port}")]
        if others or asked and self.absent:
            self.leave_out(block, f"{others[0]} is not the daemon" if others else ABSENT.format(self.own_line))
            return
        export = f"export ATTENTIOND_PORT={service.free} ATTENTIOND_URL=http://127.0.0.1:{service.free}"
        ended = self.call(["bash", "-c", f"{export}\n{PRELUDE}{service.placed(text)}"])
        statuses, errors = re.findall(r"^status (\d+)$", ended.stderr, re.M), re.sub(r"^status \d+\n", "", ended.stderr, flags=re.M)
        self.count += 1
        if answer:
            self.compare(block, service.replaced(ended.stdout), errors, answer, quiet=False)
        elif ended.returncode or set(statuses) - {"200"}:
            self.document.fail(block.line, f"these commands ended with {ended.returncode}, and the answers of the daemon have the "
                               f"statuses {' '.join(statuses) or '-'}. They printed:\n{ended.stdout}{errors}")

    def call(self, command, text=None, folder=None):
        try:
            return subprocess.run(command, input=text, cwd=folder or self.folder, env=self.environment, text=True, encoding="utf-8",
                                  errors="replace", capture_output=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "it did not end in 600 s\n")

    def compare(self, block, printed, errors, answer, quiet=True):
        """Compares what was printed with the answer. A program that is quiet prints no errors."""
        if printed != answer.text or quiet and errors:
            self.document.fail(block.line, f"this does not print what line {answer.line} says:\n{answer.text}"
                               f"It printed:\n{printed}{errors}")

    # ----------------------------------------------------------------------------------------------------------- programs
    def any_program(self, block):
        """Runs a program, if a block says what it prints."""
        if block.language == "python":
            try:
                ast.parse(block.text)
            except SyntaxError as error:
                self.document.fail(block.line, f"this is no Python: {error}")
                return
        asks = re.search(r"\b(127\.0\.0\.1|localhost):\d", block.text)
        needs = ABSENT.format(self.own_line) if asks and self.absent else self.needs(block)
        if block.answer and needs:
            self.leave_out(block, needs)
        elif block.answer:
            service = self.service() if asks else self.shared
            ended = self.run_program(block.language, service.placed(block.text))
            self.count += 1
            said = f"It ended with {ended.returncode}.\n" if ended.returncode else ""
            self.compare(block, service.replaced(ended.stdout), ended.stderr + said, block.answer)

    def needs(self, block):
        """Returns why a program cannot be run here, in words, or None."""
        if block.language == "python":
            nodes = list(ast.walk(ast.parse(block.text)))
            modules = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
            modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
            missing = [name for name in modules if importlib.util.find_spec(name.partition(".")[0]) is None]
            return f"this Python has no module {missing[0]}" if missing else None
        if not shutil.which(PROGRAMS[block.language]):
            return f"there is no {PROGRAMS[block.language]}"
        if block.language == "c":
            return None if self.library else "no library is given"
        package = re.search(PACKAGES[block.language], block.text, re.M)
        return f"it needs the package {package[1]}" if package else None

    def run_program(self, language, code):
        if language in ("python", "js"):
            return self.call([sys.executable, "-"] if language == "python" else ["node", "--input-type=module", "-"], code)
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, f"main.{language}"), os.path.join(folder, "program")
            pathlib.Path(source).write_text(code, encoding="utf-8")
            command = ["go", "build", "-o", program, source]
            if language == "c":
                blas = self.call(["pkg-config", "--libs", "openblas"]).stdout.split()
                command = [*COMPILE, "-o", program, source, str(self.library), *blas, "-lm"]
            made = self.call(command)
            return made if made.returncode else self.call([program], folder=folder)
