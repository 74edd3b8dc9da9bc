"""Query parameters that a path does not know: a name with a slip would change nothing, silently."""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute

from api.http.errors import WrongMembers, shown
from mars.client.answers import MemberProblem


async def known_only(request: Request) -> None:
    """Raises WrongMembers that names each unknown parameter, and those that there are.

    Of the interface only: probes and scrapers have parameters of their own.
    """
    if not (request.scope["query_string"] and request.scope["path"].startswith("/v1/")):
        return
    route: APIRoute = request.scope["route"]
    names = [each.alias for each in route.dependant.query_params]
    unknown = sorted(request.query_params.keys() - set(names))
    if unknown:
        known = ", ".join(names) or "none"
        raise WrongMembers(
            [
                MemberProblem(
                    member=shown(name),
                    detail=f"query parameter {shown(name)} is unknown; known here: {known}",
                )
                for name in unknown
            ]
        )
