"""What is answered instead: problem documents (RFC 9457)."""

from __future__ import annotations

from typing import Annotated

from mars.client.answers.base import Answer, says


class MemberProblem(Answer, frozen=True, omit_defaults=True):
    """What is wrong with one member of a body, or one query parameter."""

    member: str
    detail: str
    line: Annotated[int | None, says("of the member's query, counted from 1")] = None
    column: Annotated[int | None, says("of the member's query, counted from 1")] = None


class Problem(Answer, frozen=True, omit_defaults=True):
    """A problem document (RFC 9457)."""

    title: str = ""
    status: int = 0
    detail: str = ""
    line: Annotated[int | None, says("of the query, counted from 1")] = None
    column: Annotated[int | None, says("of the query, counted from 1")] = None
    errors: list[MemberProblem] | None = None
    service: Annotated[str | None, says("which server is not available")] = None
