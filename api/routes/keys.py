"""/v1/keys: who may use this API."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Response

from api.http.answering import respond
from api.http.body import body_of
from api.http.documenting import gives, problems, takes
from api.routes.streams import AWAY, BAD_BODY, IN_USE, UNKNOWN
from api.schemas import NewKeyRequest
from api.services.all import Services
from mars.client.answers import Key, Keys, NewKey
from mars.protocol.ports import ApiKey


def router(services: Services) -> APIRouter:
    """The paths of keys."""
    routes = APIRouter(prefix="/v1/keys", tags=["keys"])

    @routes.get("", responses=gives(Keys) | problems(AWAY))
    def list_keys() -> Response:
        """List all keys, without what would open anything."""
        return respond(Keys(keys=[_view(key) for key in services.access.list_all()]))

    @routes.post(
        "",
        status_code=HTTPStatus.CREATED,
        responses=gives(NewKey, status=HTTPStatus.CREATED) | problems(*BAD_BODY, IN_USE, AWAY),
        openapi_extra=takes(NewKeyRequest),
    )
    def create_key(body: Annotated[NewKeyRequest, Depends(body_of(NewKeyRequest))]) -> Response:
        """Make a key; this answer is the only place where it is ever shown."""
        key, text = services.access.create(body)
        made = NewKey(**msgspec.structs.asdict(_view(key)), key=text)
        return respond(made, status=HTTPStatus.CREATED)

    @routes.delete("/{key}", status_code=HTTPStatus.NO_CONTENT, responses=problems(UNKNOWN, AWAY))
    def delete_key(key: str) -> None:
        """Remove a key: it opens nothing from now on."""
        services.access.delete(key)

    return routes


def _view(key: ApiKey) -> Key:
    return Key(
        id=key.id,
        role=key.role,
        ending=key.ending,
        reads=list(key.reads),
        writes=list(key.writes),
        note=key.note,
        created=key.created_ms,
    )
