"""Writes docs/reference/python.md: `python -m mars.client.reference > docs/reference/python.md`.

Signatures, descriptions, members and errors are those of the code: of `Client`, of the answers that
it gives, and of `mars.core.errors`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mars.client import answers
from mars.client.answers import __all__ as answer_names
from mars.client.blocking import Client
from mars.client.calls.inside import InsideCalls
from mars.client.calls.keys import KeyCalls
from mars.client.calls.queries import QueryCalls
from mars.client.calls.results import ResultCalls
from mars.client.calls.service import ServiceCalls
from mars.client.calls.streams import StreamCalls
from mars.client.calls.tasks import TaskCalls
from mars.client.notebook import query
from mars.core import errors

TREE: Final = re.compile(r"^ *[│├└─ ]*(\w+)  +(\S.*)$")

HEAD: Final = """
# Python reference
This page is written by `python -m mars.client.reference > docs/reference/python.md`, from the code.
[From Python](../start/python.md) says how to begin.

- `mars.client.Client` has each call of the [REST interface](rest.md), typed. Use it in a `with`, or
  close it.
- `mars.aio.AsyncClient` has the same calls, each to be awaited, for programs with an event loop.
- Times are milliseconds since 1970. Answers may grow members that this release does not know; it
  ignores them.
- Every call raises `Unavailable` if the API does not answer, and a kind of `RequestError` if it
  refuses.
"""

ANSWERS: Final = """
## Answers
In `mars.client.answers`: frozen classes, one for each kind of JSON object.
"""

ERRORS: Final = """
## Errors
In `mars.core.errors`. The text of each is a sentence that says what to do.

| error | meaning |
| --- | --- |
"""

WIDTH: Final = 80
"""Of a signature that stands on one line."""

SECTIONS: Final[Mapping[type, str]] = {
    StreamCalls: "Streams",
    TaskCalls: "Tasks",
    InsideCalls: "Inside a task",
    ResultCalls: "Results",
    QueryCalls: "Queries",
    KeyCalls: "Keys",
    ServiceCalls: "The service",
}
"""The calls of a client, by what they are about."""

INTERNAL: Final = frozenset(
    {
        "Fenced",
        "Interrupted",
        "LocalClusterError",
        "OutputRefused",
        "SnapshotLost",
        "SourceMadeAnew",
        "TaskAtFault",
        "TaskLimit",
        "TopicRefused",
    }
)
"""What stays within processes."""


def document() -> str:
    """The whole page."""
    parts = [HEAD.lstrip(), _function("mars.query", query), _function("Client", Client.__init__)]
    parts.append(_function("close", Client.close))
    parts += map(_section, Client.__bases__)
    parts += [ANSWERS, *(_answer(name) for name in answer_names), ERRORS + "\n".join(_errors())]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def _section(calls: type) -> str:
    said = [_function(name, call) for name, call in vars(calls).items() if name[0] != "_"]
    return f"## {SECTIONS[calls]}\n" + "\n".join(said)


def _function(name: str, call: Callable[..., object]) -> str:
    """Its signature, as it is called, and what it says of itself."""
    signature = inspect.signature(call)
    returned = "" if name == "Client" else f" -> {signature.return_annotation}"
    parts = list(_parameters(signature))
    line = f"{name}({', '.join(parts)}){returned}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"
    return f"```text\n{line}\n```\n{_words(call)}\n"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Each with its type and default; behind a star those that are named."""
    starred = False
    for name, one in signature.parameters.items():
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        stars = "**" if one.kind is one.VAR_KEYWORD else ""
        default = "" if one.default is one.empty else f" = {one.default!r}"
        if name != "self":
            yield f"{stars}{name}: {one.annotation}{default}"


def _words(thing: object) -> str:
    """Its docstring as paragraphs of one line each."""
    paragraphs = inspect.cleandoc(getattr(thing, "__doc__", None) or "").split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs)


def _answer(name: str) -> str:
    """A class of answers: what it is, and a table of its members."""
    kind = getattr(answers, name)
    fields = getattr(kind, "__struct_fields__", getattr(kind, "__dataclass_fields__", ()))
    members = [_member(kind, member) for member in fields]
    if not members:
        return ""  # the base of all, and the type of a row
    methods = [
        f"\n`{each}{'' if isinstance(found, property) else '()'}`: {_words(found)}\n"
        for each, found in vars(kind).items()
        if each[0] != "_" and (inspect.isfunction(found) or isinstance(found, property))
    ]
    table = "| member | type | meaning |\n| --- | --- | --- |\n" + "\n".join(members)
    return f"### {name}\n{_words(kind)}\n\n{table}\n{''.join(methods)}"


def _member(kind: type, name: str) -> str:
    """A row of the table: its type without, and its meaning from, what is said of it."""
    annotations = (vars(one).get("__annotations__", {}) for one in kind.__mro__)
    told = next(each[name] for each in annotations if name in each)
    tree = ast.parse(told, mode="eval").body
    meaning = ""
    match tree:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, *notes])):
            tree, meaning = inner, "; ".join(filter(None, map(_note, notes)))
    return f"| `{name}` | `{ast.unparse(tree)}` | {meaning} |".replace(" | None`", " or None`")


def _note(note: ast.expr) -> str:
    """What `says` or `one_of` say of a member."""
    match note:
        case ast.Call(func=ast.Name(id="says"), args=[text]):
            return str(ast.literal_eval(text))
        case ast.Call(func=ast.Name(id="one_of"), args=values):
            return ", ".join(f"`{ast.literal_eval(one)}`" for one in values)
    return ""


def _errors() -> Iterator[str]:
    """Those of the tree that the module of errors draws."""
    for line in (errors.__doc__ or "").splitlines():
        found = TREE.match(line)
        if found and found[1] not in INTERNAL:
            yield f"| `{found[1]}` | {found[2]} |"


if __name__ == "__main__":
    sys.stdout.write(document())
