"""The components of /openapi.json that describe answers, from the classes of `client.answers`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any

import msgspec

from mars.client import answers

REFERENCE = "#/components/schemas/{name}"
REFERENCES = re.compile(REFERENCE.format(name=r"(\w+)"))

Schema = dict[str, Any]

NAMES: Mapping[str, str] = {
    "Column": "NamedType",
    "ComputedColumn": "NamedExpression",
    "FieldOfRecord": "FieldView",
    "Keys": "KeyList",
    "OpenWindow": "WindowRows",
    "Queries": "QueryList",
    "Streams": "StreamList",
    "TaskVersion": "VersionView",
    "Tasks": "TaskList",
    **{
        name: f"{name}View"
        for name in (
            *("Assisted", "AssistantChange", "Backfill", "Balance", "Bucket", "BucketLoad"),
            *("Cluster", "Incident", "Key", "Leader", "Lent", "Member", "Move", "NewKey", "Order"),
            *("Output", "Owner", "Partition", "Plan", "Preview", "Query", "Stream"),
            *("StrategyChange", "Task", "Wanted", "Window"),
        )
    },
}
"""What a class is called in /openapi.json, where that is not its name: it has been so, and people
may have made clients of it."""


def name_of(kind: type[answers.Answer]) -> str:
    """The component that describes a class."""
    return NAMES.get(kind.__name__, kind.__name__)


def components(names: set[str]) -> dict[str, Schema]:
    """The components of these names, and all that they refer to."""
    kinds = [kind for kind in vars(answers).values() if _is_answer(kind) and name_of(kind) in names]
    _, found = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    for name, component in found.items():
        _complete(component, omits=getattr(answers, name).__struct_config__.omit_defaults)
    return {NAMES.get(name, name): _renamed(component) for name, component in found.items()}


def _is_answer(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, answers.Answer)


def _complete(component: Schema, *, omits: bool) -> None:
    """Requires what is always sent, whatever clients take for it from an older release."""
    members: dict[str, Schema] = component["properties"]
    component["description"] = cleandoc(component["description"])
    component["title"] = NAMES.get(component["title"], component["title"])
    for name, member in members.items():
        if not (omits and member.get("default", "") is None):
            member.pop("default", None)
        if not any("$ref" in each for each in (member, *member.get("anyOf", ()))):
            member["title"] = name.replace("_", " ").title()  # as those of requests have one
    component["required"] = [name for name, member in members.items() if "default" not in member]


def _renamed(component: Schema) -> Schema:
    """With references to what classes are called here."""
    text = REFERENCES.sub(
        lambda found: REFERENCE.format(name=NAMES.get(found[1], found[1])), json.dumps(component)
    )
    renamed: Schema = json.loads(text)
    return renamed
