"""Writes docs/reference/rest.md: `python -m api.reference > docs/reference/rest.md`.

Paths, words, parameters and statuses are those of /openapi.json; roles those of the gate.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, cast

from api.app import create_app
from api.http.documenting import KEPT_OUT
from api.http.errors import TITLE_OF
from api.http.gate import role_needed
from api.services.all import Services

Description = dict[str, Any]

AWAY: Final = HTTPStatus.SERVICE_UNAVAILABLE

_INTRODUCTION: Final = """
# REST reference
This page is written by `python -m api.reference > docs/reference/rest.md`, from the description
that the API itself gives: `/docs` in a browser, `/openapi.json` for programs; both have every field
of requests and answers.

- Requests and answers are JSON, times are milliseconds since 1970. Members that a request does not
  know are refused.
- Errors are problem documents (RFC 9457): `title`, `status`, `detail`, and for SQL `line` and
  `column`, counted from 1.
- Roles matter where the API asks for [keys](../operate/access.md). Each may do what
  those before it may: reader, operator, admin.
- `mars.client` has each call as a typed method, `mars.aio` for event loops: see the
  [notebook](../start/client.ipynb).

```bash
curl -s -X POST "$MARS_API/v1/tasks/validate" -H "Content-Type: application/json" \\
  -d '{"sql": "SELECT count(*) FROM nowhere WINDOWING 60 s"}'
curl -s "$MARS_API/v1/tasks"
```
"""

_STREAMS_OF_EVENTS: Final = """
## Events
Results of a task and a preview come as server-sent events if they are asked for with
`Accept: text/event-stream`. A client of results that was cut off names the last `id` that it has in
`Last-Event-ID` and gets what came since.
"""


def describe() -> Description:
    """/openapi.json, without anything that runs."""
    application = create_app(cast("Services", None), version="0", body_bytes_max=1)
    described: Description = application.openapi()
    return described


def document() -> str:
    """The whole page."""
    found = describe()
    parts = [_INTRODUCTION.strip(), _statuses(found)]
    parts += [_section(found, tag["name"], tag["description"]) for tag in found["tags"]]
    return "\n\n".join([*parts, _STREAMS_OF_EVENTS.strip()]) + "\n"


def _operations(found: Description) -> Iterator[tuple[str, str, Description]]:
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation


def _statuses(found: Description) -> str:
    """What refusals mean, said once for all paths."""
    used = {
        int(status) for *_, operation in _operations(found) for status in operation["responses"]
    }
    lines = [
        f"| {status} | {TITLE_OF[HTTPStatus(status)]} |"
        for status in sorted(used)
        if HTTPStatus(status) in TITLE_OF
    ]
    everywhere = ", ".join(str(status.value) for status in (*KEPT_OUT, AWAY))
    return (
        "| status | means |\n| --- | --- |\n"
        + "\n".join(lines)
        + f"\n\n{everywhere} may come from "
        "any path that needs a role, and are not listed below."
    )


def _section(found: Description, tag: str, what: str) -> str:
    lines = [
        _line(method, path, operation)
        for method, path, operation in _operations(found)
        if tag in operation["tags"]
    ]
    title = f"## {tag.capitalize()}: {what}"
    return f"{title}\n| call | does | role | answers |\n| --- | --- | --- | --- |\n" + "\n".join(
        lines
    )


def _line(method: str, path: str, operation: Description) -> str:
    role = role_needed(method, path)
    does = " ".join(operation["description"].split("\n\n")[0].split())
    does += _parameters(operation)
    told = [
        status
        for status in sorted(operation["responses"])
        if role is None or HTTPStatus(int(status)) not in (*KEPT_OUT, AWAY)
    ]
    shown = role.value if role is not None else "-"
    return f"| `{method} {path}` | {does} | {shown} | {', '.join(told)} |"


def _parameters(operation: Description) -> str:
    """` Takes ?limit, ?order.`; headers by their names."""
    signs = {"query": "?", "header": ""}
    named = [
        f"`{signs[each['in']]}{each['name']}`"
        for each in operation.get("parameters", [])
        if each["in"] in signs
    ]
    return f" Takes {', '.join(named)}." if named else ""


if __name__ == "__main__":
    sys.stdout.write(document())
