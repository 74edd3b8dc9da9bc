"""What all answers have in common.

Each shape is declared here once: clients decode it, the API encodes it and describes it in
/openapi.json, where the class's docstring and `says` are its words.

**Defaults are for answers of older releases** (and of proxies). This release sends every member, so
OpenAPI requires every member, with a default or without. Only of a class with `omit_defaults` those
that may be null are left out where they are, and are not required.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Object = Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": True})]
"""A JSON object with any members."""

Row = Object
"""A result row by column."""


class Answer(msgspec.Struct, frozen=True):
    """What comes back; unknown members are ignored."""


def says(description: str) -> Meta:
    """What OpenAPI says of a member."""
    return Meta(description=description)


def one_of(*values: str) -> Meta:
    """Which texts a member may have. Clients take others, too: a newer release may have more."""
    return Meta(extra_json_schema={"enum": list(values)})
