"""What FastAPI cannot find out by itself for /openapi.json: bodies and problem documents."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.errors import PROBLEM_MEDIA_TYPE, TITLE_OF
from api.gate import role_needed
from api.preview_schemas import PREVIEW_REQUESTS
from api.query_schemas import QUERY_REQUESTS
from api.schemas import REQUESTS, Problem

REFERENCE = "#/components/schemas/{model}"

KEPT_OUT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)

Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: HTTPStatus) -> Responses:
    """The declaration of problem documents with these statuses."""
    return {
        status.value: {
            "description": TITLE_OF[status],
            "content": {
                PROBLEM_MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(model="Problem")}}
            },
        }
        for status in statuses
    }


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """The declaration of a JSON body."""
    schema = {"$ref": REFERENCE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


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
    _, extra = models_json_schema(
        [
            *((model, "validation") for model in (*REQUESTS, *QUERY_REQUESTS, *PREVIEW_REQUESTS)),
            (Problem, "serialization"),
        ],
        ref_template=REFERENCE,
    )
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(extra["$defs"])
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
