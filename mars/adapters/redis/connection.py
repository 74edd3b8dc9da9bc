"""The Redis client: its time-outs, and the one table of its errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

_SENTENCES: tuple[tuple[type[Exception], str], ...] = (
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
        exceptions.ClusterError,
        "it is a Redis Cluster, or an incomplete one; point redis.url at a single server",
    ),
    (
        exceptions.AskError,
        "it is a Redis Cluster; point redis.url at a single server",
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


@contextmanager
def translated() -> Iterator[None]:
    """Turn whatever the client raises into `Unavailable`."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        raise unavailable(error) from error


def unavailable(error: Exception) -> Unavailable:
    """The error of ours for one of the client's: what to do, and the client's own words."""
    sentence = next(text for kind, text in _SENTENCES if isinstance(error, kind))
    return Unavailable("redis", f"{sentence} ({str(error) or type(error).__name__})")


def connect(settings: RedisSettings, timeout_s: float = CALL_TIMEOUT_S) -> redis.Redis:
    """A client that connects when it is first used and never repeats a command by itself.

    Raises SettingsError if the URL cannot be read.
    """
    address = read_address(settings.url)
    options: dict[str, Any] = {
        **_credentials(settings),
        **_tls(settings),
        **_tcp(settings, timeout_s),
        "socket_timeout": timeout_s,
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "max_connections": CONNECTIONS_MAX,
        "protocol": RESP_VERSION,
    }
    if address.is_sentinel:
        client = _behind_sentinels(address, settings, options)
    else:
        client = redis.Redis.from_url(settings.url, **options)
    client.set_response_callback("INFO", fields_of)
    return client


def _behind_sentinels(
    address: StoreAddress, settings: RedisSettings, options: Mapping[str, Any]
) -> redis.Redis:
    """A client of the primary that they name."""
    ssl = {"ssl": True} if settings.url.startswith("rediss") else {}
    own = {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
    sentinels = Sentinels(
        address.servers,
        sentinel_kwargs={**options, **ssl, "username": None, "password": None}
        | {**address.credentials, **own},
    )
    return redis.Redis.from_pool(PrimaryPool(address.name, sentinels, **options, **ssl))


def fields_of(info: bytes) -> dict[str, str]:
    """What INFO says, name by name.

    The client's own parser makes a function for each answer that only the collector of cycles
    frees: four times a second in a reducer, for hours.
    """
    lines = (line.partition(":") for line in info.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}


def _credentials(settings: RedisSettings) -> dict[str, str]:
    given = {"username": settings.username, "password": settings.password}
    return {name: value for name, value in given.items() if value}


def _tcp(settings: RedisSettings, timeout_s: float) -> dict[str, Any]:
    if settings.url.startswith("unix://"):
        return {}
    return {"socket_connect_timeout": timeout_s, "socket_keepalive": True}


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
