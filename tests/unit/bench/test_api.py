"""How the API is measured: clients that ask a server, and the tables of what they found."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.api import ApiReport, PathFigures, grids
from bench.environment import environment
from bench.errors import BenchError
from bench.http_clients import Asked, ask
from bench.report import section
from bench.results import newest, save

BODY = b"abc"


class Handler(socketserver.StreamRequestHandler):
    """Answers each request of a connection: 200 for /right, else 404."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            while self.rfile.readline().strip():
                pass
            status = b"200 OK" if b" /right " in line else b"404 Not Found"
            self.wfile.write(b"HTTP/1.1 %s\r\nContent-Length: 3\r\n\r\n%s" % (status, BODY))


@pytest.fixture
def port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_clients_ask_until_the_time_is_over(port: int) -> None:
    found = ask(Asked("127.0.0.1", port, "/right", clients=3, seconds=0.3))
    assert found.bytes == len(BODY)
    assert len(found.took_s) > 3
    assert all(0 < took < 5 for took in found.took_s)


def test_clients_at_a_pace_wait_after_each_answer(port: int) -> None:
    found = ask(Asked("127.0.0.1", port, "/right", clients=2, seconds=0.3, pause_s=1.0))
    assert len(found.took_s) == 2


def test_an_answer_that_is_none_ends_the_measurement(port: int) -> None:
    with pytest.raises(BenchError, match=r"GET /wrong answered HTTP/1\.1 404 Not Found"):
        ask(Asked("127.0.0.1", port, "/wrong", clients=2, seconds=5))


def test_report_is_saved_read_again_and_shown(tmp_path: Path) -> None:
    figures = PathFigures("/v1/tasks", 2_048, 3.0, 9.0, 40.0, 80.0, 300.0)
    quiet = msgspec.structs.replace(figures, paced_p99_ms=4.0)
    report = ApiReport(
        environment(), 200, 20, (figures,), (400.0, 700.0, 500.0), quiet_paths=(quiet,)
    )
    save(report, "api", tmp_path)
    assert newest(ApiReport, "api", tmp_path) == report
    assert [grid.rows[0] for grid in grids(report)] == [
        ["`/v1/tasks`", "2.0", "3.0", "9.0", "40.0", "80.0", "300"],
        ["`/v1/tasks`", "2.0", "3.0", "4.0", "40.0", "80.0", "300"],
        ["3 openings", "500", "700"],
    ]
    assert "GET" in section(report)
