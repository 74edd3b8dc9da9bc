"""/v1/keys: who may use this API."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends

from api.body import body_of
from api.documenting import problems, takes
from api.routes.streams import AWAY, BAD_BODY, IN_USE, UNKNOWN
from api.schemas import KeyList, KeyView, NewKeyRequest, NewKeyView
from api.services.all import Services
from mars.ports import ApiKey


def router(services: Services) -> APIRouter:
    """The paths of keys."""
    routes = APIRouter(prefix="/v1/keys", tags=["keys"])

    @routes.get("", responses=problems(AWAY))
    def list_keys() -> KeyList:
        """List all keys, without what would open anything."""
        return KeyList(keys=[_view(key) for key in services.access.list_all()])

    @routes.post(
        "",
        status_code=HTTPStatus.CREATED,
        responses=problems(*BAD_BODY, IN_USE, AWAY),
        openapi_extra=takes(NewKeyRequest),
    )
    def create_key(body: Annotated[NewKeyRequest, Depends(body_of(NewKeyRequest))]) -> NewKeyView:
        """Make a key; this answer is the only place where it is ever shown."""
        key, text = services.access.create(body)
        return NewKeyView(**_view(key).model_dump(), key=text)

    @routes.delete("/{key}", status_code=HTTPStatus.NO_CONTENT, responses=problems(UNKNOWN, AWAY))
    def delete_key(key: str) -> None:
        """Remove a key: it opens nothing from now on."""
        services.access.delete(key)

    return routes


def _view(key: ApiKey) -> KeyView:
    return KeyView(
        id=key.id,
        role=key.role,
        ending=key.ending,
        reads=list(key.reads),
        writes=list(key.writes),
        note=key.note,
        created=key.created_ms,
    )
