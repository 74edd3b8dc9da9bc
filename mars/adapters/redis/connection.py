"""The Redis client: its time-outs, and the one table of its errors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError

from mars.adapters.redis.addresses import StoreAddress, read_address
from mars.adapters.redis.sentinels import SENTINEL_TIMEOUT_S, PrimaryPool, Sentinels
from mars.core.errors import Unavailable
from mars.core.settings import RedisSettings

CALL_TIMEOUT_S = 5.0
"""How long a connection or an answer may take. The longest script (compacting a full log) needs
tens of milliseconds; whoever waits longer than this should look at the server instead."""

BELL_TIMEOUT_S = 1.0
"""The same for the doorbell's connection, for which nobody should wait long."""

CONNECTIONS_MAX = 64
"""Connections of one process: more than it has threads that call at the same time."""

RESP_VERSION = 2
"""The older protocol does all that is needed, with one round trip less per connection."""

RUN_SECTIONS = ("server", "replication")
"""What INFO is asked for: `run_id_of` takes it."""

_SENTENCES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (
        exceptions.AuthenticationError,
        "it refuses the credentials; check redis.username and redis.password",
    ),
    (
        exceptions.NoPermissionError,
        "the user may not do this; give it all commands on the keys and channels mars:*",
    ),
    (exceptions.BusyLoadingError, "it is still loading its data set; wait until it is ready"),
    (
        exceptions.ReadOnlyError,
        "it is a read-only replica; point redis.url at the primary",
    ),
    (
        exceptions.OutOfMemoryError,
        "its memory limit is reached; raise maxmemory or lower cluster.log_bytes_max",
    ),
    (
        (
            exceptions.ClusterError,
            exceptions.ClusterCrossSlotError,
            exceptions.RedisClusterException,
        ),
        "the cluster is incomplete, or no node of it answers; check its nodes, and that redis.url "
        "names some as redis+cluster://host:port,host:port",
    ),
    (
        (exceptions.AskError, exceptions.TryAgainError),
        "a slot of the cluster lies elsewhere, or is being moved: wait; if it stays so, write "
        "redis.url as redis+cluster://host:port,host:port",
    ),
    (
        MasterNotFoundError,
        "no sentinel names a primary that lives; check that they run, and in redis.url their "
        "addresses, the name of the primary, and their password if they want one",
    ),
    (exceptions.TimeoutError, f"no answer within {CALL_TIMEOUT_S:.0f} s; check that it runs"),
    (exceptions.ConnectionError, "no connection; check that it runs and that redis.url is right"),
    (exceptions.ResponseError, "it refused the command; check its version and its log"),
    (exceptions.RedisError, "the call failed; check the server's log"),
    (OSError, "no connection; check that it runs and that redis.url is right"),
)

ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)
"""Whatever the client raises."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn whatever the client raises into `Unavailable`."""
    try:
        yield
    except ERRORS as error:
        raise unavailable(error) from error


def unavailable(error: Exception) -> Unavailable:
    """The error of ours for one of the client's: what to do, and the client's own words."""
    sentence = next(text for kind, text in _SENTENCES if isinstance(error, kind))
    return Unavailable("redis", f"{sentence} ({str(error) or type(error).__name__})")


def connect(
    settings: RedisSettings,
    timeout_s: float = CALL_TIMEOUT_S,
    node: tuple[str, int] | None = None,
) -> redis.Redis:
    """A client that connects when it is first used and never repeats a command by itself.

    `node`: of a cluster, to which it connects. Raises SettingsError if the URL cannot be read.
    """
    address = read_address(settings.url)
    options: dict[str, Any] = {
        **_options(settings, timeout_s),
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
    }
    if node is not None:
        options |= {"host": node[0], "port": node[1], **_ssl(settings)}
        client = redis.Redis(**options)
    elif address.is_sentinel:
        client = _behind_sentinels(address, settings, options)
    else:
        client = redis.Redis.from_url(settings.url, **options)
    client.set_response_callback("INFO", fields_of)
    return client


def _behind_sentinels(
    address: StoreAddress, settings: RedisSettings, options: Mapping[str, Any]
) -> redis.Redis:
    """A client of the primary that they name."""
    own = {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    sentinels = Sentinels(
        address.servers,
        sentinel_kwargs={**options, **_ssl(settings), "username": None, "password": None}
        | {**address.credentials, **own},
    )
    return redis.Redis.from_pool(PrimaryPool(address.name, sentinels, **options, **_ssl(settings)))


def at_node(settings: RedisSettings, timeout_s: float) -> dict[str, Any]:
    """How nodes of a cluster are connected to."""
    return {**_options(settings, timeout_s), **_ssl(settings)}


def _options(settings: RedisSettings, timeout_s: float) -> dict[str, Any]:
    return {
        **_credentials(settings),
        **_tls(settings),
        **_tcp(settings, timeout_s),
        "socket_timeout": timeout_s,
        "health_check_interval": 0,
        "max_connections": CONNECTIONS_MAX,
        "protocol": RESP_VERSION,
    }


def fields_of(info: bytes) -> dict[str, str]:
    """What INFO says, name by name.

    The client's own parser makes a function for each answer that only the collector of cycles
    frees: four times a second in a reducer, for hours.
    """
    lines = (line.partition(":") for line in info.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}


def _credentials(settings: RedisSettings) -> dict[str, str]:
    """Those in the URL of a cluster come first, as the client has it with the URL of a server."""
    address = read_address(settings.url)
    given = {"username": settings.username, "password": settings.password}
    own = address.credentials if address.is_cluster else {}
    return {name: value for name, value in given.items() if value} | {**own}


def _tcp(settings: RedisSettings, timeout_s: float) -> dict[str, Any]:
    if settings.url.startswith("unix://"):
        return {}
    return {"socket_connect_timeout": timeout_s, "socket_keepalive": True}


def _ssl(settings: RedisSettings) -> dict[str, Any]:
    return {"ssl": True} if settings.url.startswith("rediss") else {}


def _tls(settings: RedisSettings) -> dict[str, str]:
    if not settings.url.startswith("rediss"):
        return {}
    given = {
        "ssl_ca_certs": settings.tls_ca_location,
        "ssl_certfile": settings.tls_certificate_location,
        "ssl_keyfile": settings.tls_key_location,
    }
    return {name: value for name, value in given.items() if value}


def run_id_of(info: Mapping[str, str]) -> str:
    """The id of a server and of the history that it holds; the scripts put it together, too.

    A server that becomes a replica of another one, and is promoted again, has what that one held
    and its own run id. Only its replication id is another one then.
    """
    return f"{info['run_id']}{info['master_replid']}"


def run_id_of_all(ids: Iterable[str]) -> str:
    """The id of a store: that of its server, or another one as soon as any of its servers has."""
    first, *others = sorted(ids)
    return hashlib.sha256("".join([first, *others]).encode()).hexdigest() if others else first
