"""What people and stored data see of Mars, as texts to be compared before and after a change.

    python -m tests.surface write FOLDER      one file for each part
    python -m tests.surface compare FOLDER    what has changed since; exit code 1 if anything has

A change of the house (names, files, classes) changes none of it. Records and definitions are told
by their members and not by the names of their classes.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from msgspec import inspect

from api.reference import describe
from mars.adapters.kafka.wire import Epochs
from mars.adapters.redis.keys import TaskKeys, mailbox_key, store_key
from mars.cli import cli
from mars.core.definitions import TaskDefinition
from mars.core.plan import Stream
from mars.core.settings import Settings
from mars.core.types import MemberId, TaskName
from mars.engine.codec import result_headers
from mars.engine.codec.dead import DeadRange, DeadRow
from mars.protocol.ports import Assignment, Claim, Incident, MemberInfo, Progress

ROOT = Path(__file__).parents[1]
CODE = ("mars", "mapper", "reducer", "api")

STORED: Mapping[str, Any] = {
    "progress": Progress,
    "claim": Claim,
    "epochs": Epochs,
    "task": TaskDefinition,
    "stream": Stream,
    "member": MemberInfo,
    "assignment": Assignment,
    "incident": Incident,
    "dead row": DeadRow,
    "dead range": DeadRange,
}
"""What lies in Kafka and ZooKeeper as JSON."""

METRIC = re.compile(r"\"(mars_[a-z_]+)\"")
LOGGING = {"debug", "info", "warning", "error"}


def openapi() -> str:
    """All paths, bodies and answers."""
    return json.dumps(describe(), indent=1, sort_keys=True)


def commands() -> str:
    """`--help` of every command."""
    return "\n\n".join(_helps(cli, click.Context(cli, info_name="mars", max_content_width=100)))


def _helps(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"$ {context.command_path} --help\n{command.get_help(context)}"
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            one = command.get_command(context, name)
            if one is not None:
                yield from _helps(one, click.Context(one, parent=context, info_name=name))


def metrics() -> str:
    """Names of metrics in the code."""
    names = {name for path in _modules() for name in METRIC.findall(path.read_text("utf-8"))}
    return "\n".join(sorted(names))


def settings() -> str:
    """All settings with their defaults."""
    return json.dumps(asdict(Settings()), default=str, indent=1, sort_keys=True)


def log_lines() -> str:
    """The text and the keys of each line that a process may log."""
    return "\n".join(sorted({line for path in _modules() for line in _logged(path)}))


def _logged(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="logs"), attr=level),
                args=[_, text, *_],
                keywords=given,
            ) if level in LOGGING:
                keys = " ".join(f"{one.arg}=" if one.arg else "**" for one in given)
                yield f"{level:7} {ast.unparse(text)}  {keys}".rstrip()


def headers() -> str:
    """Headers of result rows."""
    found = vars(result_headers).items()
    return "\n".join(
        sorted(value for _name, value in found if isinstance(value, str) and "mars-" in value[:5])
    )


def redis_keys() -> str:
    """Keys of one task, and of all."""
    keys = TaskKeys.of("default", TaskName("a"))
    own = [
        getattr(keys, name) for name, each in vars(TaskKeys).items() if isinstance(each, property)
    ]
    shared = [store_key("default"), store_key("ns"), mailbox_key("default", MemberId("reducer-1"))]
    return "\n".join(sorted([*own, *shared]))


def records() -> str:
    """Members of what is stored, one a line."""
    return "\n".join(
        f"{name}: {line}"
        for name, kind in STORED.items()
        for line in _members(inspect.type_info(kind))
    )


def _members(kind: inspect.Type, path: str = "", seen: tuple[object, ...] = ()) -> Iterator[str]:
    """`emission.first int`, say; a type that holds itself is followed once."""
    match kind:
        case (
            inspect.StructType(cls=cls, fields=fields)
            | inspect.DataclassType(cls=cls, fields=fields)
        ):
            if cls in seen:
                return
            for field in fields:
                inside = f"{path}.{field.encode_name}".lstrip(".")
                needed = "" if field.required else " (optional)"
                yield f"{inside}{needed}"
                yield from _members(field.type, inside, (*seen, cls))
        case inspect.UnionType(types=types):
            for one in types:
                yield from _members(one, path, seen)
        case inspect.DictType(value_type=value):
            yield from _members(value, f"{path}{{}}", seen)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            yield from _members(item, f"{path}[]", seen)
        case inspect.EnumType(cls=cls):
            yield f"{path} = {' | '.join(sorted(str(one.value) for one in cls))}"
        case _:
            yield f"{path} : {type(kind).__name__.removesuffix('Type').lower()}"


def _modules() -> Iterator[Path]:
    for folder in CODE:
        yield from sorted((ROOT / folder).rglob("*.py"))


PARTS: Mapping[str, Callable[[], str]] = {
    "openapi.json": openapi,
    "commands.txt": commands,
    "metrics.txt": metrics,
    "settings.json": settings,
    "log-lines.txt": log_lines,
    "result-headers.txt": headers,
    "redis-keys.txt": redis_keys,
    "records.txt": records,
}


def write(folder: Path) -> None:
    """Write down what is seen now."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        (folder / name).write_text(part().rstrip() + "\n", "utf-8")


def differences(folder: Path) -> Iterator[str]:
    """Lines of a diff between what was written down and what is seen now."""
    for name, part in PARTS.items():
        before = (folder / name).read_text("utf-8").splitlines()
        yield from difflib.unified_diff(
            before, part().rstrip().splitlines(), f"before/{name}", f"now/{name}", lineterm="", n=1
        )


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    if asked.what == "write":
        write(asked.folder)
        return 0
    found = list(differences(asked.folder))
    told = found or ["Nothing that people or stored data see has changed."]
    sys.stdout.write("\n".join(told) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
