"""The gate before all paths: who asks, may they, and how often; and a line of what they did.

request ──own name? own page?──▶ key ──▶ bucket of tokens ──▶ role ──▶ path
                403                401          429            403
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.callers import ANYBODY, Caller, acting
from api.http.errors import TooManyRequests, problem_of, render
from api.services.access import AccessPolicy
from api.services.all import Services
from api.services.requests import RequestFigures
from mars.core.errors import Forbidden, MarsError, NotAuthenticated
from mars.process.telemetry import logs
from mars.protocol.ports import Role
from mars.protocol.ports.access import without_secrets

LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

CHECKS = frozenset({"/v1/tasks/validate"})
"""Paths that take a POST because they take a body, and change nothing. A preview is none: it shows
rows of a topic, where a reader sees results, and keeps a processor busy."""

CHALLENGE = 'Bearer realm="mars"'

CHALLENGE_OF_ADDRESSES = f'{CHALLENGE}, Basic realm="mars (any name, a key as the password)"'
"""A browser whose user opens a path by its address understands Basic and asks for a key."""

ASKED_BY_PAGE = ("x-requested-with", "XMLHttpRequest")
"""The usual header of a page that asks its user itself: Basic would open a second dialog."""

OWN_PAGE = frozenset({"same-origin", "none"})
"""What a browser says of a request that comes from our own pages, or from its address line."""

AUDIT = logs.logger("audit")


def role_needed(method: str, path: str) -> Role | None:
    """What one must be for a request; None: anybody (pages, descriptions, health)."""
    if not (path.startswith("/v1/") or path == "/metrics"):
        return None
    if path == "/v1/keys" or path.startswith("/v1/keys/"):
        return Role.ADMIN
    if looks_only(method, path):
        return Role.READER
    if path.startswith(("/v1/tasks", "/v1/queries")):
        return Role.OPERATOR
    return Role.ADMIN


def looks_only(method: str, path: str) -> bool:
    """Whether a request changes nothing."""
    return method in LOOKS or (method == "POST" and path in CHECKS)


class Gate:
    """ASGI middleware: lets requests in, as `api.callers` for what they reach."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, self._services.metrics.requests)
        try:
            visit.caller = await self._admitted(visit)
        except MarsError as error:
            answer = render(problem_of(error), _headers(error, visit.headers))
            visit.answered(answer.status_code)
            await answer(scope, receive, send)
            return
        with acting(visit.caller):
            await visit.through(self._app, receive, send)

    async def _admitted(self, visit: _Visit) -> Caller:
        """Who asks. Raises Forbidden, NotAuthenticated, TooManyRequests, Unavailable."""
        access = self._services.access
        _check_host(visit, access.policy)
        _check_origin(visit)
        needed = role_needed(visit.method, visit.path)
        if needed is None or not access.policy.on:
            return ANYBODY
        if access.ring.stale:
            await run_in_threadpool(access.ring.refresh)
        visit.caller = await self._caller(visit)
        self._check_rate(f"key {visit.caller.key}")
        if not visit.caller.role.covers(needed):
            raise Forbidden(
                f"key {visit.caller.key} has the role {visit.caller.role}, and {visit.method} "
                f"{visit.shown_path} needs {needed}: use another key, or ask an admin for one"
            )
        return visit.caller

    async def _caller(self, visit: _Visit) -> Caller:
        access, shown = self._services.access, visit.headers.get("authorization")
        try:
            return access.caller(shown)
        except NotAuthenticated:
            self._check_rate(visit.address)
            if shown is None:
                raise
        await run_in_threadpool(access.ring.look_again)
        return access.caller(shown)

    def _check_rate(self, who: str) -> None:
        wait_s = self._services.access.wait_s(who)
        if wait_s > 0:
            raise TooManyRequests(
                f"{who} may ask {self._services.access.policy.requests_per_second} times a second "
                "(api.requests_per_second): ask again later",
                wait_s,
            )


class _Visit:
    """One request on its way, as far as the gate is concerned."""

    def __init__(self, scope: Scope, figures: RequestFigures) -> None:
        self._scope = scope
        self._figures = figures
        self._began_s = time.perf_counter()
        self._begun = False
        """Whether an answer has."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = Headers(scope=scope)
        self.caller: Caller | None = None
        client = scope.get("client")
        self.address: str = client[0] if client else "unknown"
        raw: bytes = scope.get("raw_path") or self.path.encode("ascii", "backslashreplace")
        # As it came, percent-encoded: a decoded one could hold the end of a line.
        # A whole key in it is a mistake, and its secret must not stay in a log.
        hidden = without_secrets(self.path)
        shown = raw.decode("latin-1") if hidden == self.path else quote(hidden)
        self.shown_path = ascii(shown)[1:-1]

    async def through(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        """Hands the request on, and notes with which status its answer begins.

        That of a bug is made outside of the gate, from the exception that passes through here.
        """

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.answered(message["status"])
            await send(message)

        try:
            await app(self._scope, receive, watched)
        except Exception:
            if not self._begun:
                self.answered(HTTPStatus.INTERNAL_SERVER_ERROR.value)
            raise

    def answered(self, status: int) -> None:
        """Count it; a line of the audit log, if it changed something or was kept out."""
        self._begun = True
        self._figures.answered(self.method, status, time.perf_counter() - self._began_s)
        kept_out = status in {
            HTTPStatus.UNAUTHORIZED,
            HTTPStatus.FORBIDDEN,
            HTTPStatus.TOO_MANY_REQUESTS,
        }
        if looks_only(self.method, self.path) and not kept_out:
            return
        who = self.caller
        logs.info(
            AUDIT,
            "request",
            key=(who and who.key) or "none",
            role=who.role if who and who.key else "none",
            address=self.address,
            method=self.method,
            path=self.shown_path,
            status=status,
        )


def _check_host(visit: _Visit, policy: AccessPolicy) -> None:
    """Raise Forbidden where nobody is asked for a key and it is called by a strange name."""
    if policy.hosts is None:
        return
    host = visit.headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    name = name.lower().removesuffix(".")
    if name not in policy.hosts and not (policy.addresses and _is_address(name)):
        raise Forbidden(
            "this API asks for no keys, so it answers only to host names that it knows, and was "
            f"called by {name[:80]!a}: call it by {', '.join(sorted(policy.hosts))}, name the host "
            "in "
            'api.hosts, or set api.access to "on" (with keys)'
        )


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _check_origin(visit: _Visit) -> None:
    """A page of somebody else must not change anything with what a browser knows of its user."""
    if visit.method in LOOKS:
        return
    site = visit.headers.get("sec-fetch-site")
    origin = visit.headers.get("origin")
    if site is not None:
        ours = site in OWN_PAGE
    else:
        ours = origin is None or origin.partition("://")[2] == visit.headers.get("host")
    if not ours:
        raise Forbidden("this request comes from a page of another site, and Mars refuses those")


def _headers(error: MarsError, asked: Headers) -> Mapping[str, str]:
    match error:
        case NotAuthenticated():
            name, value = ASKED_BY_PAGE
            by_page = asked.get(name) == value
            return {"WWW-Authenticate": CHALLENGE if by_page else CHALLENGE_OF_ADDRESSES}
        case TooManyRequests():
            return {"Retry-After": str(math.ceil(error.wait_s))}
        case _:
            return {}
