"""The proxies that the fault suite rests on do to a link what they say."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.cluster import wait_for
from tests.support.kafka_proxy import ADD_PARTITIONS_TO_TXN, END_TXN, KafkaLink, parse_request
from tests.support.proxy import HOST, Link, Way
from tests.support.redis_proxy import Fate, RedisLink

ANSWER_S = 5.0
SILENCE_S = 0.2

Answer = Callable[[bytes], bytes]


class Server:
    """Answers each piece that it gets, on any number of connections."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.got = bytearray()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                self.got += data
                connection.sendall(self._answer(data))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(ANSWER_S)


@contextlib.contextmanager
def client(link: Link) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, link.port), ANSWER_S) as connection:
        connection.settimeout(ANSWER_S)
        yield connection


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.fixture
def echo() -> Iterator[Server]:
    server = Server(lambda data: data)
    yield server
    server.close()


@pytest.fixture
def link(echo: Server) -> Iterator[Link]:
    made = Link(echo.port)
    yield made
    made.close()


def test_a_healthy_link_carries_both_ways(link: Link) -> None:
    with client(link) as one, client(link) as other:
        one.sendall(b"a" * 200_000)
        other.sendall(b"b")

        assert other.recv(10) == b"b"
        received = 0
        while received < 200_000:
            received += len(one.recv(65_536))


def test_a_cut_link_ends_connections_and_refuses_new_ones(link: Link) -> None:
    with client(link) as one:
        one.sendall(b"a")
        assert one.recv(1) == b"a"

        link.cut()

        assert closed(one)
    with client(link) as one:
        assert closed(one)
    link.heal()
    with client(link) as one:
        one.sendall(b"b")
        assert one.recv(1) == b"b"


def test_a_stalled_link_stays_open_and_delivers_late(link: Link) -> None:
    with client(link) as one:
        link.stall()
        one.sendall(b"a")
        one.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            one.recv(1)

        link.heal()

        one.settimeout(ANSWER_S)
        assert one.recv(1) == b"a"


@pytest.mark.parametrize("way", Way)
def test_a_deaf_link_loses_one_direction_for_good(link: Link, echo: Server, way: Way) -> None:
    with client(link) as one:
        link.deafen(way)
        one.sendall(b"a")
        if way is Way.DOWN:
            wait_for("what was sent", lambda: bytes(echo.got) == b"a", seconds=ANSWER_S)
        one.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            one.recv(1)
        assert bytes(echo.got) == (b"" if way is Way.UP else b"a")

        link.heal()

        one.settimeout(ANSWER_S)
        assert closed(one)


def test_a_slow_link_delivers_after_its_delay(link: Link) -> None:
    with client(link) as one:
        link.delay_s = SILENCE_S
        one.sendall(b"a")
        one.settimeout(SILENCE_S / 2)
        with pytest.raises(TimeoutError):
            one.recv(1)

        one.settimeout(ANSWER_S)
        assert one.recv(1) == b"a"


# -------------------------------------------------------------------------------------- Redis


def test_the_answer_to_one_command_is_lost_after_the_server_has_done_it(echo: Server) -> None:
    link = RedisLink(echo.port)
    link.watch(b"EVALSHA", lambda: Fate.LOST)
    with client(link) as one:
        one.sendall(b"PING")
        assert one.recv(10) == b"PING"

        one.sendall(b"EVALSHA 1")

        assert closed(one)
        assert bytes(echo.got) == b"PINGEVALSHA 1"
    link.close()


def test_a_held_command_arrives_late(echo: Server) -> None:
    link = RedisLink(echo.port)
    link.hold(b"EVALSHA")
    with client(link) as one, client(link) as other:
        one.sendall(b"EVALSHA 1")
        wait_for("the command", lambda: link.held)
        other.sendall(b"PING")
        assert other.recv(10) == b"PING"
        assert bytes(echo.got) == b"PING"

        link.release()

        assert one.recv(10) == b"EVALSHA 1"
    link.close()


# -------------------------------------------------------------------------------------- Kafka


def request(api: int, correlation: int, name: str = "producer") -> bytes:
    body = struct.pack(">hhih", api, 1, correlation, len(name)) + name.encode() + b"body"
    return struct.pack(">i", len(body)) + body


def answer(correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


@pytest.fixture
def broker() -> Iterator[Server]:
    """Answers each request with its correlation id and its own address."""
    servers: list[Server] = []

    def respond(data: bytes) -> bytes:
        body = b"at " + HOST.encode() + struct.pack(">i", servers[0].port)
        return answer(parse_request(data).correlation, body)

    servers.append(Server(respond))
    yield servers[0]
    servers[0].close()


@pytest.fixture
def kafka(broker: Server) -> Iterator[KafkaLink]:
    made = KafkaLink(broker.port)
    yield made
    made.close()


def answered(kafka: KafkaLink, correlation: int) -> bytes:
    return answer(correlation, b"at " + HOST.encode() + struct.pack(">i", kafka.port))


def test_a_header_is_read_with_and_without_a_client_id() -> None:
    found = parse_request(request(END_TXN, 7, "reducer-1-bucket-3"))

    assert (found.api, found.version, found.correlation) == (END_TXN, 1, 7)
    assert found.client == "reducer-1-bucket-3"
    nameless = struct.pack(">ihhih", 10, END_TXN, 1, 7, -1)
    assert parse_request(nameless).client == ""


def test_answers_name_the_proxy_instead_of_the_broker(kafka: KafkaLink) -> None:
    with client(kafka) as one:
        one.sendall(request(3, 1))

        assert one.recv(100) == answered(kafka, 1)


def test_the_answer_to_a_chosen_request_is_lost(kafka: KafkaLink, broker: Server) -> None:
    kafka.lose_answers(lambda request: request.api == END_TXN)
    with client(kafka) as one:
        one.sendall(request(3, 1))
        assert one.recv(100) == answered(kafka, 1)

        one.sendall(request(END_TXN, 2))

        assert closed(one)
    assert bytes(broker.got) == request(3, 1) + request(END_TXN, 2)
    assert [lost.correlation for lost in kafka.lost] == [2]


def test_what_is_dropped_never_arrives(kafka: KafkaLink, broker: Server) -> None:
    kafka.hold(lambda request: b"body" in request.frame and request.api == END_TXN)
    with client(kafka) as one:
        one.sendall(request(END_TXN, 1))
        wait_for("the request", lambda: kafka.held)

        one.sendall(request(3, 2))
        kafka.drop_all()

        assert closed(one)
    assert not broker.got
    assert not kafka.held[0].forwarded.is_set()


def test_a_held_request_arrives_in_the_middle_of_the_next_transaction(
    kafka: KafkaLink, broker: Server
) -> None:
    held, rows, more = (
        request(END_TXN, 1),
        request(ADD_PARTITIONS_TO_TXN, 2),
        request(ADD_PARTITIONS_TO_TXN, 3),
    )
    kafka.hold(lambda request: request.api == END_TXN and not kafka.held)
    with client(kafka) as one:
        one.sendall(held)
        one.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            one.recv(1)
    with client(kafka) as other:
        for number in (1, 2):
            other.sendall(request(ADD_PARTITIONS_TO_TXN, number, "another"))
            assert other.recv(100) == answered(kafka, number)
        other.sendall(rows)
        assert other.recv(100) == answered(kafka, 2)
        assert not kafka.held[0].forwarded.is_set()

        other.sendall(more)

        assert other.recv(100) == answered(kafka, 3)
    assert kafka.held[0].forwarded.wait(ANSWER_S)
    wait_for("the held request to be read", lambda: held in broker.got, seconds=ANSWER_S)
    assert bytes(broker.got).index(rows) < bytes(broker.got).index(held)


def test_a_held_request_arrives_at_the_latest_before_the_next_one_ends(
    kafka: KafkaLink, broker: Server
) -> None:
    kafka.hold(lambda request: request.api == END_TXN and not kafka.held)
    with client(kafka) as one, client(kafka) as other:
        one.sendall(request(END_TXN, 1))
        wait_for("it to be held", lambda: kafka.held)
        other.sendall(request(END_TXN, 2))  # the same transaction: sent again for want of an answer
        assert other.recv(100) == answered(kafka, 2)
        other.sendall(request(ADD_PARTITIONS_TO_TXN, 3))
        assert other.recv(100) == answered(kafka, 3)
        assert not kafka.held[0].forwarded.is_set()

        other.sendall(request(END_TXN, 4))

        assert other.recv(100) == answered(kafka, 4)
        assert kafka.held[0].forwarded.is_set()
