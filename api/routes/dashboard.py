"""The dashboard: a page and its parts, as they lie in `api/static`.

Everything comes from this process, nothing from elsewhere: the headers tell the browser to refuse
the rest. The page talks to /v1 only.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

STATIC = Path(__file__).parent.parent / "static"

MEDIA_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""What is served; stated here because machines differ in what they know."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Asked for again each time, answered 304: after an update nobody runs half of the old one.
    "Cache-Control": "no-cache",
}


def router() -> APIRouter:
    """The paths of the dashboard; they are no part of the described interface."""
    routes = APIRouter(include_in_schema=False)
    parts = assets()

    @routes.get("/")
    async def page(request: Request) -> Response:
        return _served(parts["index.html"], request)

    @routes.get("/static/{path:path}")
    async def part(path: str, request: Request) -> Response:
        # Looked up, never joined to a folder: no path leads out of it.
        if path not in parts:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return _served(parts[path], request)

    return routes


def assets() -> dict[str, Path]:
    """All files of the dashboard by their path below /static/."""
    return {
        path.relative_to(STATIC).as_posix(): path
        for path in STATIC.rglob("*")
        if path.suffix in MEDIA_TYPES
    }


def _served(path: Path, request: Request) -> Response:
    """The file, or word that the browser has it already."""
    kind, headers = MEDIA_TYPES[path.suffix], dict(HEADERS)
    found = FileResponse(path, media_type=kind, headers=headers, stat_result=path.stat())
    tag = found.headers["etag"]
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={**headers, "ETag": tag})
    return found
