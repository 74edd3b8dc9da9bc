"""Query parameters that a path does not know, or that are given twice.

A name with a slip would change nothing, and of two values one, silently.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from fastapi.routing import APIRoute

from api.http.errors import WrongMembers, shown
from mars.client.answers import MemberProblem


async def known_only(request: Request) -> None:
    """Raises WrongMembers that names each parameter that is unknown, or given more than once.

    Of the interface only: probes and scrapers have parameters of their own.
    """
    if not (request.scope["query_string"] and request.scope["path"].startswith("/v1/")):
        return
    route: APIRoute = request.scope["route"]
    names = [each.alias for each in route.dependant.query_params]
    counts = Counter(name for name, _value in request.query_params.multi_items())
    known = ", ".join(names) or "none"
    wrong = dict.fromkeys(counts.keys() - set(names), f"is unknown; known here: {known}")
    repeated = [name for name in names if counts[name] > 1]
    wrong |= {name: f"is given {counts[name]} times; give it once" for name in repeated}
    if wrong:
        raise WrongMembers(
            [
                MemberProblem(member=shown(name), detail=f"query parameter {shown(name)} {what}")
                for name, what in sorted(wrong.items())
            ]
        )
