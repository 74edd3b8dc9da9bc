"""All that Mars says to people, from its code, in one list: to be read, aloud if possible.

    python -m tests.messages            all of it, by kind and file
    python -m tests.messages raised     one kind, or several

Kinds: `raised` (what an error says), `logged`, `help` (of commands and options), `described` (the
REST interface of itself), `said` (any other sentence: of `why`, of warnings, of commands),
`dashboard`. Values in a text stand in braces. A text is a literal of three words or more; names,
statements in SQL and docstrings are none.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from inspect import cleandoc
from pathlib import Path

import click

from mars.cli import cli
from tests.house import ROOT, Source, sources

STATIC = ROOT / "api" / "static"

WORD = re.compile(r"[A-Za-z][a-z]*(?:'[a-z]+)?")
WORDS_MIN = 3
PROSE = re.compile(r"[a-z{}'\"`,.:;)]+ [a-z{('\"`]+")
MARKUP = re.compile(r"^\s*(?:SELECT|INSERT|UPDATE|CREATE|WITH|COPY|DESCRIBE)\b|^[\w.-]+=|^<")

JS_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
JS_COMMENT = re.compile(r"^\s*//.*$|\s//\s.*$", re.MULTILINE)
CODE_OF_PAGES = re.compile(r"^[\w/.#?=&${}()-]+$")

SCHEMAS = {"api/schemas.py", "api/preview_schemas.py", "api/query_schemas.py"}
LOGGERS = {"logs", "LOG", "_log", "_logger", "log"}
LOGGED = {"debug", "info", "warning", "error", "exception"}


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """One text, and where it stands."""

    kind: str
    place: str
    line: int
    text: str


def is_prose(text: str) -> bool:
    """Whether somebody is meant to read it."""
    words = [word for word in WORD.findall(re.sub(r"\{[^}]*\}", " ", text)) if word]
    return len(words) >= WORDS_MIN and bool(PROSE.search(text)) and not MARKUP.match(text)


def messages() -> list[Message]:
    """All of them, by kind and file."""
    found = [message for source in sources() for message in of_module(source, source.name)]
    return sorted([*found, *of_commands(), *of_the_dashboard()])


def of_module(source: Source, name: str) -> Iterator[Message]:
    """The texts of one module of Python."""
    kinds = _kinds(source.tree)
    skipped = _skipped(source.tree)
    described = "described" if name in SCHEMAS else "said"
    for node, text in _texts(source.tree, skipped):
        if is_prose(text):
            yield Message(kinds.get(node, described), name, node.lineno, text)


def _texts(tree: ast.AST, skipped: set[ast.AST]) -> Iterator[tuple[ast.expr, str]]:
    """Literals, the longest first: texts that are added up are one."""
    for child in ast.iter_child_nodes(tree):
        if child in skipped:
            continue
        match child:
            case ast.Constant(value=str(text)):
                yield child, text
            case ast.JoinedStr() | ast.BinOp(op=ast.Add()) if (
                joined := _joined(child)
            ) is not None:
                yield child, joined
                yield from _texts(_values(child), skipped)
            case _:
                yield from _texts(child, skipped)


def _joined(node: ast.expr) -> str | None:
    """The text of a literal with its values in braces; None for what is none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_part(part) for part in parts)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            first, second = _joined(left), _joined(right)
            if first is None and second is None:
                return None
            return (first or f"{{{ast.unparse(left)}}}") + (second or f"{{{ast.unparse(right)}}}")
    return None


def _part(part: ast.expr) -> str:
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
    return ""


def _values(node: ast.expr) -> ast.AST:
    """What stands in the braces of a text: it may hold texts of its own."""
    inside = [one.value for one in ast.walk(node) if isinstance(one, ast.FormattedValue)]
    return ast.Tuple(elts=inside, ctx=ast.Load())


def _kinds(tree: ast.AST) -> dict[ast.AST, str]:
    """What the texts within an error that is raised, or a line of a log, are for."""
    kinds: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call() as call):
                kinds |= dict.fromkeys(ast.walk(call), "raised")
            case ast.Call() if _logs(node):
                kinds |= dict.fromkeys(ast.walk(node), "logged")
            case ast.Call(func=ast.Attribute(attr="error")):
                kinds |= dict.fromkeys(ast.walk(node), "raised")
            case ast.keyword(arg="help"):
                kinds |= dict.fromkeys(ast.walk(node), "help")
    return kinds


def _logs(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id=log), attr=level):
            return log in LOGGERS and level in LOGGED
    return False


def _skipped(tree: ast.AST) -> set[ast.AST]:
    """Docstrings, also those of attributes; annotations; texts that only a bug shows."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Assert():
                found.add(node)
            case (
                ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation)
            ):
                found.add(annotation)
    return found


def of_commands() -> Iterator[Message]:
    """What `--help` says of each command; what it says of options stands in the modules."""
    return _said_of(cli, "mars")


def _said_of(command: click.Command, path: str) -> Iterator[Message]:
    for number, paragraph in enumerate(cleandoc(command.help or "").split("\n\n"), 1):
        if paragraph:
            yield Message("help", path, number, " ".join(paragraph.split()))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            if one is not None:
                yield from _said_of(one, f"{path} {name}")


def of_the_dashboard() -> Iterator[Message]:
    """The texts of its pages."""
    for path in sorted(STATIC.rglob("*.js")):
        if "vendor" not in path.parts:
            yield from _of_script(path)
    page = STATIC / "index.html"
    reader = _Texts()
    reader.feed(page.read_text("utf-8"))
    for line, text in reader.found:
        yield Message("dashboard", str(page.relative_to(ROOT)), line, text)


def _of_script(path: Path) -> Iterator[Message]:
    for number, line in enumerate(JS_COMMENT.sub("", path.read_text("utf-8")).splitlines(), 1):
        for plain, template in JS_TEXT.findall(line):
            text = plain or template
            if " " in text.strip() and not CODE_OF_PAGES.match(text) and WORD.search(text):
                yield Message("dashboard", str(path.relative_to(ROOT)), number, text)


class _Texts(HTMLParser):
    """What stands between the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.found.append((self.getpos()[0], " ".join(data.split())))


def main() -> None:
    """Print them."""
    wanted = set(sys.argv[1:])
    place = ("", "")
    for message in messages():
        if wanted and message.kind not in wanted:
            continue
        if (message.kind, message.place) != place:
            place = (message.kind, message.place)
            sys.stdout.write(f"\n{message.kind}: {message.place}\n")
        sys.stdout.write(f"{message.line:5}  {' '.join(message.text.split())}\n")


if __name__ == "__main__":
    main()
