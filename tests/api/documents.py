"""What a document in Markdown consists of, and what the commands in it consist of. check_documents.py checks both."""

import dataclasses
import os
import re
import shlex

RUN = ("sh", "python", "js", "go", "c")  # the languages of blocks that a reader runs
ANY_NAME = r"(^|/)[A-Z_]+(/|$|\.(?!md$))"  # a part of a path in capitals stands for any name
NO_NAMES = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "HUP", "TERM", "INT"}


@dataclasses.dataclass
class Heading:
    """A heading, which begins a section."""

    level: int
    line: int


@dataclasses.dataclass
class Span:
    """A piece of `code` in a sentence."""

    text: str
    line: int


@dataclasses.dataclass
class Block:
    """A block of code, with the paragraph before it, and the block that has what it prints."""

    language: str
    text: str
    line: int  # that of its first line of code
    before: str
    answer: "Block" = None
    is_answer: bool = False


class Document:
    """The headings, blocks and spans of a text in their order, its anchors, and its prose with all code made blank."""

    def __init__(self, name, text):
        self.name, self.folder = name, os.path.dirname(name)
        self.failures, self.items = [], []
        self.anchors = set(re.findall(r"<\w+ (?:id|name)=\"([^\"]+)\"", text))
        self.lines = text.split("\n")
        self.prose = "\n".join(self.read_lines())
        self.prose = re.sub(r"(?<!`)(`+)(?!`)((?:[^\n]|\n(?!\s*\n))+?)(?<!`)\1(?!`)", self.read_span, self.prose)
        self.items.sort(key=lambda item: item.line)
        self.find_answers()

    def fail(self, line, message):
        self.failures.append(f"{self.name}:{line}: {message}")

    def line(self, offset):
        """Returns the number of the line of a place in the prose."""
        return self.prose.count("\n", 0, offset) + 1

    def read_lines(self):
        """Takes headings and blocks out of the text. Returns its lines; those of blocks are blank."""
        kept, fence, began, indented = [], None, 0, False
        for number, line in enumerate(self.lines, 1):
            mark = re.match(r"( *)(`{3,}|~{3,})\s*(\S*)", line)
            if fence is None and mark:
                fence, began = mark, number + 1
            elif fence is not None:
                if mark and mark[2].startswith(fence[2]) and not mark[3]:
                    code = [each.removeprefix(fence[1]) + "\n" for each in self.lines[began - 1:number - 1]]
                    self.items.append(Block(fence[3], "".join(code), began, self.paragraph(began - 2)))
                    fence = None
            elif line.startswith("    ") and (indented or self.begins_code(kept)):
                if not indented:
                    self.fail(number, "this code stands between no fences: write ``` with a language before it, and ``` after it")
                indented = True
            else:
                indented = indented and not line.strip()
                self.read_heading(line, number)
                kept.append(line)
                continue
            kept.append("")
        if fence is not None:
            self.fail(began - 1, "this block has no end")
        return kept

    def paragraph(self, end):
        """Returns the paragraph that ends before this line, or an empty text if a block stands there."""
        lines = "\n".join(self.lines[:end]).rstrip().rpartition("\n\n")[2]
        return "" if lines.endswith(("```", "~~~")) else lines

    @staticmethod
    def begins_code(kept):
        """Returns whether an indented line after these lines is code. In a list it is a part of its item."""
        last = next((line for line in reversed(kept) if line.strip()), "")
        return bool(kept) and not kept[-1].strip() and not re.match(r" +\S|[-*+] |\d+[.)] ", last)

    def read_heading(self, line, number):
        heading = re.match(r"(#{1,6}) +(.*?)(?: +#+)?$", line)
        if heading:
            self.items.append(Heading(len(heading[1]), number))
            words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)|<[^>]*>", r"\1", heading[2])
            anchor = name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            count = 0
            while anchor in self.anchors:
                count += 1
                anchor = f"{name}-{count}"
            self.anchors.add(anchor)

    def read_span(self, match):
        self.items.append(Span(" ".join(match[2].split()), self.line(match.start())))
        return re.sub(r"[^\n]", " ", match[0])

    def find_answers(self):
        """Finds what each block prints: the block behind it, if at most a line such as "It prints:" stands between them."""
        blocks = [item for item in self.items if isinstance(item, Block)]
        for block, after in zip(blocks, blocks[1:]):
            between = " ".join(" ".join(self.lines[block.line + block.text.count("\n"):after.line - 2]).split())
            said = len(between) < 120 and re.search(r"\b(prints?|answers?)\b.*:$", between)
            if block.language in RUN and after.language in ("json", "text") and (said or not between):
                block.answer, after.is_answer = after, True


@dataclasses.dataclass
class Command:
    """A command: its words without quotes and redirections, and its place in the text."""

    words: list
    begin: int
    end: int


TOKEN = re.compile(r"""
    (?P<space>(?:[ \t]|\\\n)+) | (?P<comment>\#[^\n]*) |
    (?P<redirect>\d*(?:>>|>&|<<<|<&|&>|>|<)) | (?P<end>&&|\|\||[\n;|&()]) |
    (?P<word>(?:'[^']*' | "(?:\\.|\$\([^()]*\)|[^"\\])*" | \$\([^()]*\) | \\. | [^\s'"\\;|&()<>])+) | (?P<other>.)""", re.X | re.S)
HERE = re.compile(r"<<(-?\s*['\"]?(\w+)['\"]?[^\n]*\n)(.*?\n\2\n)", re.S)  # a here-document
BEFORE_COMMANDS = {"do", "then", "else", "elif", "if", "while", "until", "!", "{", "time", "exec", "command"}
NO_COMMANDS = {"for", "case", "done", "fi", "esac", "in", "}"}


def unquoted(word):
    try:
        return "".join(shlex.split(word))
    except ValueError:
        return word


def commands(text):
    """Returns the commands of a text for a shell, also those whose output is a word of another one."""
    text = HERE.sub(lambda match: f"< {match[1]}{' ' * len(match[3])}", text)
    found, words, begin, skip = [], [], 0, False
    for token in [*TOKEN.finditer(text), None]:
        kind = token.lastgroup if token else "end"
        if kind == "redirect":
            skip = True
        elif kind == "word":
            begin = begin if words else token.start()
            if not skip and (words or token[0] not in BEFORE_COMMANDS):
                words.append(token[0])
            skip = False
            for inner in re.findall(r"\$\(([^()]*)\)", token[0]):
                found += commands(inner)
        elif kind == "end":
            if words and words[0] not in NO_COMMANDS:
                found.append(Command([unquoted(word) for word in words], begin, token.start() if token else len(text)))
            words = []
    return found


def without_variables(words):
    """Returns the variables before a command, and its own words."""
    count = next((place for place, word in enumerate(words) if not re.match(r"\w+=", word)), len(words))
    return words[:count], words[count:]


def placeholder(words):
    """Returns the word that the reader must replace, or None."""
    return next((word for word in words if re.search(ANY_NAME, word) and word not in NO_NAMES), None)


def daemon_options(words):
    """Returns the options that a command gives to the daemon, or None if it calls another program."""
    variables, words = without_variables(words)
    if words[:1] == ["make"] and "run" in words[1:]:
        given = [word.removeprefix("ARGS=") for word in [*variables, *words] if word.startswith("ARGS=")]
        return shlex.split(given[-1]) if given else []
    return words[1:] if words and words[0] in ("attentiond", "build/attentiond") else None


def starts_daemon(words):
    options = daemon_options(words)
    return options is not None and not {"--help", "--version", "--health-check"} & set(options)
