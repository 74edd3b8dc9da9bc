"""The health check of a container: what counts as well, and what it says otherwise."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus

import pytest

from mars.adapters.zookeeper.reports import MemberReport
from mars.core.errors import Unavailable
from mars.core.settings import ApiSettings
from mars.core.types import MemberId
from mars.local.network import HOST, free_port
from mars.process.health import Look, api_problem, member_problem
from mars.protocol.ports import MemberInfo

MAPPER = MemberInfo(id=MemberId("mapper-1"), role="mapper", host="here", pid=1, started_ms=0)


def looks(*answers: list[MemberReport] | Unavailable) -> Look:
    """One answer after another, the last one for ever."""
    left = list(answers)

    def look() -> list[MemberReport]:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    return look


def written(times: int, *missing: str) -> list[MemberReport]:
    return [MemberReport(replace(MAPPER, missing=missing), (7, times))]


def problem(look: Look, patience_s: float = 0.05) -> str:
    return member_problem(look, patience_s, pause_s=0.001)


def test_a_member_that_writes_again_and_misses_nothing_is_well() -> None:
    assert problem(looks(written(1), written(2)), patience_s=5) == ""


def test_a_member_that_was_made_again_counts_as_written() -> None:
    again = [MemberReport(MAPPER, (9, 1))]
    assert problem(looks(written(1), again), patience_s=5) == ""


def test_a_report_that_stays_as_it_is_is_named() -> None:
    assert problem(looks(written(1))) == "mapper-1 does not refresh its report; see its log"


def test_what_a_member_waits_for_is_named() -> None:
    look = looks(written(1, "kafka"), written(2, "kafka", "redis"))
    assert problem(look) == "mapper-1 waits for kafka, redis"


def test_a_member_that_finds_its_server_in_time_is_well() -> None:
    assert problem(looks(written(1, "redis"), written(2, "redis"), written(3)), 5) == ""


def test_a_process_that_is_no_member_is_not_well() -> None:
    assert "registered" in problem(looks([]))


def test_a_zookeeper_that_is_away_is_named_and_waited_for() -> None:
    away = Unavailable("zookeeper", "no connection")
    assert "no connection" in problem(looks(away))
    assert problem(looks(away, written(1), written(2)), patience_s=5) == ""


def test_one_member_that_hangs_among_others_is_noticed() -> None:
    other = MemberId("mapper-2")
    hanging = MemberReport(replace(MAPPER, id=other), (8, 1))
    look = looks([*written(1), hanging], [*written(2), hanging])
    assert problem(look).startswith("mapper-2 does not")


@pytest.fixture
def readyz() -> Iterator[Callable[[HTTPStatus], ApiSettings]]:
    """A server that answers /readyz with a status."""
    servers: list[http.server.HTTPServer] = []

    def serve(status: HTTPStatus) -> ApiSettings:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = status if self.path == "/readyz" else HTTPStatus.NOT_FOUND
                self.send_response(found)
                self.end_headers()
                self.wfile.write(b"redis: waiting")

            def log_message(self, format: str, *args: object) -> None: ...

        server = http.server.HTTPServer((HOST, 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return ApiSettings(host="0.0.0.0", port=server.server_address[1])

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_api_is_well_when_it_is_ready(
    readyz: Callable[[HTTPStatus], ApiSettings],
) -> None:
    assert api_problem(readyz(HTTPStatus.OK)) == ""


def test_an_api_that_is_not_ready_says_why(readyz: Callable[[HTTPStatus], ApiSettings]) -> None:
    assert "redis: waiting" in api_problem(readyz(HTTPStatus.SERVICE_UNAVAILABLE))


def test_an_api_that_does_not_listen_is_not_well() -> None:
    assert "does not answer" in api_problem(ApiSettings(port=free_port()))
