"""What FastAPI cannot find out by itself for /openapi.json: bodies, answers, problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.components import REFERENCE, REFERENCES, components, name_of
from api.http.errors import PROBLEM_MEDIA_TYPE, TITLE_OF
from api.http.gate import role_needed
from api.preview_schemas import PREVIEW_REQUESTS
from api.query_schemas import QUERY_REQUESTS
from api.schemas import REQUESTS
from mars.client.answers import Answer, Problem

EVENT_STREAM = "text/event-stream"
TEXT: Mapping[str, Any] = {"schema": {"type": "string"}}

KEPT_OUT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)

Responses = dict[int | str, dict[str, Any]]


def gives(
    *kinds: type[Answer], status: HTTPStatus = HTTPStatus.OK, says: str | None = None
) -> Responses:
    """The declaration of an answer of one of these kinds."""
    refers = [_reference(kind) for kind in kinds]
    schema = refers[0] if len(refers) == 1 else {"anyOf": refers}
    declared = {"content": {"application/json": {"schema": schema}}}
    return {status.value: declared if says is None else {"description": says, **declared}}


def gives_or_streams(kind: type[Answer], says: str) -> Responses:
    """The declaration of an answer, and of the events that are sent where they are asked for."""
    declared = gives(kind, says=says)
    declared[HTTPStatus.OK.value]["content"][EVENT_STREAM] = TEXT
    return declared


def problems(*statuses: HTTPStatus) -> Responses:
    """The declaration of problem documents with these statuses."""
    content = {PROBLEM_MEDIA_TYPE: {"schema": _reference(Problem)}}
    return {
        status.value: {"description": TITLE_OF[status], "content": content} for status in statuses
    }


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """The declaration of a JSON body."""
    content = {"application/json": {"schema": {"$ref": REFERENCE.format(name=model.__name__)}}}
    return {"requestBody": {"required": True, "content": content}}


def _reference(kind: type[Answer]) -> dict[str, str]:
    return {"$ref": REFERENCE.format(name=name_of(kind))}


def install(app: FastAPI) -> None:
    """Serve a description of `app` that names every body and every problem document."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    # FastAPI's own way to extend it.
    app.openapi = described  # type: ignore[method-assign]


def _described(app: FastAPI) -> dict[str, Any]:
    description = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    _, requests = models_json_schema(
        [(model, "validation") for model in (*REQUESTS, *QUERY_REQUESTS, *PREVIEW_REQUESTS)],
        ref_template=REFERENCE.format(name="{model}"),
    )
    named = REFERENCES.findall(json.dumps(description["paths"]))
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    schemas.update({**requests["$defs"], **components(set(named))})
    _without_fastapis_own_errors(description)
    _with_keys(description)
    return description


def _with_keys(description: dict[str, Any]) -> None:
    """Where a key may be asked for, and what is answered without one."""
    description["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "made by mars key create"}
    }
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            if role_needed(method.upper(), path) is not None:
                operation["security"] = [{"key": []}]
                for status, response in problems(*KEPT_OUT).items():
                    operation["responses"].setdefault(str(status), response)


def _without_fastapis_own_errors(description: dict[str, Any]) -> None:
    """FastAPI declares its own 422 wherever there is a parameter; ours are declared, or none."""
    for operations in description["paths"].values():
        for operation in operations.values():
            content = operation["responses"].get("422", {}).get("content", {})
            if "application/json" in content:
                del operation["responses"]["422"]
    for own in ("HTTPValidationError", "ValidationError"):
        description["components"]["schemas"].pop(own, None)
