"""Is it there? One honest question to each server, answered with None or with what is missing.

Each opens a connection of its own and closes it: for the start of processes, not for every call. A
sentence names the server, the address and what to look at, never a password.
"""

from __future__ import annotations

import logging
import socket
import time
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from redis import exceptions as redis_exceptions

from mars.adapters.redis.addresses import read_address
from mars.adapters.redis.connection import ERRORS
from mars.adapters.redis.servers import open_servers
from mars.core.settings import KafkaSettings, Settings, ZooKeeperSettings

TIMEOUT_S = 5.0
"""How long an answer may take, unless told otherwise."""

KAFKA_PORT = 9092
ZOOKEEPER_PORT = 2181
"""What the clients take when an address names no port."""

silent = logging.getLogger("mars.adapters.probe.silent")
silent.addHandler(logging.NullHandler())
silent.propagate = False


def kafka_ready(settings: Settings, timeout_s: float = TIMEOUT_S) -> str | None:
    """Whether a bootstrap server answers a metadata request that names a broker."""
    where = f"Kafka at {settings.kafka.bootstrap}"
    deadline = time.monotonic() + timeout_s
    if not any_listens(settings.kafka.bootstrap, KAFKA_PORT, timeout_s):
        return f"{where} is not listening; check that it runs and kafka.bootstrap"
    try:
        # librdkafka writes what it thinks of each failed attempt to our standard error.
        client = AdminClient(kafka_properties(settings.kafka), logger=silent)
        left = max(deadline - time.monotonic(), 0.1)
        return None if client.list_topics(timeout=left).brokers else f"{where} has no broker yet"
    except (KafkaException, ValueError) as error:
        return f"{where} does not answer ({error}); check kafka.security_protocol and its log"


def redis_ready(settings: Settings, timeout_s: float = TIMEOUT_S) -> str | None:
    """Whether it answers PING."""
    where = str(read_address(settings.redis.url))
    servers = open_servers(settings.redis, timeout_s)
    try:
        for client in servers.each():
            client.ping()
    except redis_exceptions.AuthenticationError:
        return f"{where} refuses the name or password; check redis.username and redis.password"
    except ERRORS as error:
        return f"{where} does not answer ({error}); check that it runs and redis.url"
    else:
        return None
    finally:
        servers.close()


def zookeeper_ready(settings: Settings, timeout_s: float = TIMEOUT_S) -> str | None:
    """Whether it opens a session."""
    where = f"ZooKeeper at {settings.zookeeper.hosts}"
    if not any_listens(settings.zookeeper.hosts, ZOOKEEPER_PORT, timeout_s):
        return f"{where} is not listening; check that it runs and zookeeper.hosts"
    client = _zookeeper_client(settings.zookeeper, timeout_s)
    try:
        client.start(timeout=timeout_s)
    except (KazooException, KazooTimeoutError, OSError) as error:
        return f"{where} opens no session ({error}); check its log and the TLS settings"
    else:
        return None
    finally:
        client.stop()
        client.close()


def kafka_properties(kafka: KafkaSettings) -> dict[str, str | int | float | bool]:
    """librdkafka's properties for a connection; those of `kafka.extra` win."""
    named = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": kafka.security_protocol,
        "sasl.mechanism": kafka.sasl_mechanism,
        "sasl.username": kafka.sasl_username,
        "sasl.password": kafka.sasl_password,
        "ssl.ca.location": kafka.ssl_ca_location,
        "ssl.certificate.location": kafka.ssl_certificate_location,
        "ssl.key.location": kafka.ssl_key_location,
        "ssl.key.password": kafka.ssl_key_password,
    }
    return {**{name: value for name, value in named.items() if value}, **kafka.extra}


def _zookeeper_client(zookeeper: ZooKeeperSettings, timeout_s: float) -> KazooClient:
    return KazooClient(
        hosts=zookeeper.hosts,
        timeout=timeout_s,
        logger=silent,
        use_ssl=zookeeper.use_tls,
        ca=zookeeper.tls_ca_location or None,
        certfile=zookeeper.tls_certificate_location or None,
        keyfile=zookeeper.tls_key_location or None,
        keyfile_password=zookeeper.tls_key_password or None,
    )


def any_listens(hosts: str, default_port: int, timeout_s: float) -> bool:
    """Whether a connection can be opened to one of `host:port,host/path`."""
    for address in hosts.partition("/")[0].split(","):
        parts = urlsplit(f"//{address.strip()}")
        try:
            port = parts.port or default_port
            socket.create_connection((parts.hostname or "", port), timeout_s).close()
        except (OSError, ValueError):
            continue
        return True
    return False
