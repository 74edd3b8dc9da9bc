"""Connections that send half a request, or too many of them, on a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from api.http import connections
from api.http.connections import bounded

ANSWER_S = 60.0


async def application(_scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    monkeypatch.setattr(connections, "BODY_S", 0.5)
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application, http=bounded(3), lifespan="off", log_config=None, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()
    server.should_exit = True
    thread.join()
    listening.close()


def connected(address: tuple[str, int], sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(address, timeout=ANSWER_S)
    made.sendall(sent)
    return made


def closed(one: socket.socket) -> bool:
    """Whether the other end closes it, and answers nothing."""
    with one:
        try:
            return one.recv(100) == b""
        except ConnectionResetError:
            return True


def answered(one: socket.socket) -> bool:
    """Whether a whole answer comes: its head and its body may come apart."""
    answer = b""
    while not answer.endswith(b"\r\n\r\nok"):
        more = one.recv(1_000)
        if not more:
            return False
        answer += more
    return True


WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    ],
)
def test_half_a_request_is_cut_off(address: tuple[str, int], half: bytes) -> None:
    assert closed(connected(address, half))


def test_a_byte_now_and_then_does_not_buy_time(address: tuple[str, int]) -> None:
    one = connected(address, b"GET / HTTP/1.1\r\nX: ")
    one.settimeout(0.05)
    sent = 0
    try:
        while sent < ANSWER_S / 0.05:
            one.sendall(b"x")
            sent += 1
            try:
                if one.recv(1) == b"":
                    break
            except TimeoutError:
                continue
    except OSError:
        pass
    one.close()
    assert sent < ANSWER_S / 0.05


def test_whole_requests_are_answered_one_after_the_other(address: tuple[str, int]) -> None:
    with connected(address, WHOLE) as one:
        for _ in range(3):
            assert answered(one)
            one.sendall(WHOLE)
        assert answered(one)
        one.sendall(WHOLE[:10])
        assert closed(one)


def test_more_connections_than_there_may_be_are_closed_at_once(address: tuple[str, int]) -> None:
    kept = []
    for _ in range(3):
        kept.append(connected(address, WHOLE))
        assert answered(kept[-1])
    assert closed(connected(address, WHOLE))
    kept.pop().close()
    for one in kept:
        one.sendall(WHOLE)
        assert answered(one)
        one.close()
