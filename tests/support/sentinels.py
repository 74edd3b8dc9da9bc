"""A primary with its replica, and three sentinels that put the one in the other's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from mars.adapters.probe import redis_ready
from mars.core.settings import RedisSettings, Settings
from mars.local.network import HOST
from mars.local.servers import ValkeyServer, find_valkey
from tests.support.cluster import wait_for

NAME = "mymaster"
SENTINELS = 3
QUORUM = 2
DOWN_AFTER_MS = 1_000
READY_S = 60.0
STOP_S = 10.0
REPLICATION = ("--repl-diskless-sync-delay", "0", "--repl-backlog-ttl", "0")


class SentinelServer(ValkeyServer):
    """A sentinel of the primary at a port."""

    def __init__(self, data: Path, primary: int, password: str = "") -> None:
        super().__init__(data)
        self.primary = primary
        self.password = password

    def prepare(self) -> None:
        """Its configuration, which it writes to."""
        super().prepare()
        lines = [
            f"bind {HOST}",
            f"port {self.port}",
            f"dir {self.data}",
            f"sentinel monitor {NAME} {HOST} {self.primary} {QUORUM}",
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} 6000",
            *([f"requirepass {self.password}"] if self.password else []),
        ]
        (self.data / "sentinel.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def command(self) -> Sequence[str]:
        """The same binary, otherwise."""
        return [find_valkey(), str(self.data / "sentinel.conf"), "--sentinel"]

    def missing(self) -> str | None:
        """Whether it answers PING."""
        own = RedisSettings(url=self.url, password=self.password)
        return redis_ready(Settings(redis=own))

    def ask(self, *words: object) -> Any:
        """One of its commands."""
        return self._call("SENTINEL", *words)

    def allow(self, user: str, password: str, *rights: str) -> None:
        """Make a user that may do so much."""
        self._call("ACL", "SETUSER", user, "on", f">{password}", *rights)

    def _call(self, *words: object) -> Any:
        password = self.password or None
        client = redis.Redis(HOST, self.port, password=password, decode_responses=True)
        try:
            return client.execute_command(*words)
        finally:
            client.close()


class Guarded:
    """The servers by the ports that they have; `url` is what Mars is given."""

    def __init__(self, servers: Sequence[ValkeyServer], sentinels: Sequence[SentinelServer]):
        self.servers = {server.port: server for server in servers}
        self.sentinels = sentinels
        addresses = ",".join(f"{HOST}:{sentinel.port}" for sentinel in sentinels)
        self.url = f"redis+sentinel://{addresses}/{NAME}"

    def primary(self) -> int:
        """Where the sentinels say that it is, all of them."""
        found = {self._named(sentinel) for sentinel in self.sentinels}
        return found.pop() if len(found) == 1 else 0

    @staticmethod
    def _named(sentinel: SentinelServer) -> int:
        _, port = sentinel.ask("GET-MASTER-ADDR-BY-NAME", NAME)
        return int(port)

    def client(self, port: int) -> redis.Redis:
        """A connection of the test's own."""
        return redis.Redis(HOST, port, decode_responses=True)

    def point_to(self, port: int) -> None:
        """Let all name another server, of which no server hears: as where a network is split."""
        for sentinel in self.sentinels:
            sentinel.ask("REMOVE", NAME)
            sentinel.ask("MONITOR", NAME, HOST, port, QUORUM)

    def promoted(self, before: int) -> int:
        """Wait until all sentinels name another one, and it takes writes."""
        port = wait_for("another primary", lambda: self._other(before))
        wait_for("it to be one", lambda: self._role(port) == "master")
        return port

    def _other(self, before: int) -> int:
        found = self.primary()
        return found if found != before else 0

    def follows(self, port: int) -> None:
        """Wait until this one is a replica that holds what the primary does."""

        def synchronised() -> bool:
            info: Any = self._info(port)
            return (info.get("role"), info.get("master_link_status")) == ("slave", "up")

        wait_for("a replica", synchronised)

    def _role(self, port: int) -> str:
        return str(self._info(port)["role"])

    def _info(self, port: int) -> dict[str, Any]:
        client = self.client(port)
        try:
            return client.info("replication")
        except redis.RedisError:
            return {"role": "none"}
        finally:
            client.close()


@contextmanager
def guarded(folder: Path, password: str = "") -> Iterator[Guarded]:
    """All five, ready for a fail-over; ended afterwards. `password`: of the sentinels."""
    with ExitStack() as stack:
        primary = ValkeyServer(folder / "first", options=REPLICATION)
        _start(stack, primary)
        follow = ("--replicaof", f"{HOST} {primary.port}")
        replica = ValkeyServer(folder / "second", options=[*REPLICATION, *follow])
        _start(stack, replica)
        sentinels = [
            SentinelServer(folder / f"sentinel{number}", primary.port, password)
            for number in range(SENTINELS)
        ]
        for sentinel in sentinels:
            _start(stack, sentinel)
        found = Guarded([primary, replica], sentinels)
        found.follows(replica.port)
        wait_for("sentinels that know all", lambda: all(map(_knows_all, sentinels)))
        yield found


def _start(stack: ExitStack, server: ValkeyServer) -> None:
    def stop() -> None:
        server.resume()
        server.stop(STOP_S)

    stack.callback(stop)
    server.start()
    server.wait_ready(READY_S)


def _knows_all(sentinel: SentinelServer) -> bool:
    others = sentinel.ask("SENTINELS", NAME)
    return len(others) == SENTINELS - 1 and len(sentinel.ask("REPLICAS", NAME)) == 1
