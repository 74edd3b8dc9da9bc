"""What `redis.url` says: one server, the sentinels of one, or nodes of a cluster.

redis://host:port/db                             one server
redis+sentinel://host:port,host:port/name        sentinels, which know the primary of that name
redis+cluster://host:port,host:port              nodes of a cluster, which know the others

`rediss` instead of `redis` is TLS, with all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from mars.core.errors import SettingsError

SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")

CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")

_PORTS = dict.fromkeys(("redis", "rediss", *CLUSTER_SCHEMES), 6379) | dict.fromkeys(
    SENTINEL_SCHEMES, 26379
)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where the store is asked for; `name` is what sentinels call it, empty without them.

    `credentials` are those in the URL: of the sentinels, where it names some.
    """

    scheme: str
    servers: tuple[tuple[str, int], ...]
    name: str = ""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_sentinel(self) -> bool:
        """True if the servers are sentinels."""
        return self.scheme in SENTINEL_SCHEMES

    @property
    def is_cluster(self) -> bool:
        """True if the servers are nodes of a cluster."""
        return self.scheme in CLUSTER_SCHEMES

    def __str__(self) -> str:
        """For people, without a password."""
        servers = ", ".join(f"{host}:{port}" for host, port in self.servers)
        return (
            f"Redis {self.name} behind sentinels {servers}" if self.name else f"Redis at {servers}"
        )


def read_address(url: str) -> StoreAddress:
    """Raises SettingsError; not in the words of whoever reads it: they may hold a password."""
    try:
        return _read(url)
    except ValueError as error:
        raise SettingsError(
            "redis.url cannot be read: write redis://host:port/db, "
            "redis+sentinel://host:port,host:port/name or redis+cluster://host:port,host:port, "
            "and what is special in a password percent-encoded"
        ) from error


def _read(url: str) -> StoreAddress:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return StoreAddress(parts.scheme, ((parts.path, 0),))
    if parts.scheme not in _PORTS:
        raise ValueError("unknown scheme")
    before, _, hosts = parts.netloc.rpartition("@")
    username, _, password = before.partition(":")
    given = {"username": unquote(username), "password": unquote(password)}
    name = parts.path.strip("/") if parts.scheme in SENTINEL_SCHEMES else ""
    servers = tuple(_server(each, _PORTS[parts.scheme]) for each in hosts.split(","))
    if parts.scheme in SENTINEL_SCHEMES and not name:
        raise ValueError("no name")
    return StoreAddress(
        parts.scheme, servers, name, {key: value for key, value in given.items() if value}
    )


def _server(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or port
