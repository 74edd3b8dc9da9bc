"""The embedded cluster of one data folder: checked, started, and taken down whatever happens."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mars.core.errors import LocalClusterError
from mars.core.settings import (
    KafkaSettings,
    RedisSettings,
    Settings,
    ZooKeeperSettings,
    load,
    to_toml,
)
from mars.local import jars
from mars.local.java import find_java
from mars.local.network import HOST, PortWish, check_ports, free_port
from mars.local.roles import ApiProcess, RoleCommand, RoleProcess, role_command
from mars.local.scaling import ScaleAdvice, ScaleBounds
from mars.local.servers import KafkaServer, ValkeyServer, ZooKeeperServer, find_valkey
from mars.local.state import end_leftovers, locked
from mars.local.supervisor import Addresses, Report, Scaling, Supervisor

BYTES_NEEDED = 1024 * 1024 * 1024
"""Free disk below which nothing is started: Kafka stops for good when its disk is full."""

PROCESSES_MAX = 64
"""Mappers, or reducers, on one machine: more than it has any use for."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What `mars up` was asked for. A port of 0 takes a free one.

    None leaves `buckets` and `api_port` to the configuration (and buckets to the folder's own).
    """

    data: Path
    mappers: int = 2
    reducers: int = 2
    bulk: int = 1
    buckets: int | None = None
    api_port: int | None = None
    kafka_port: int = 9092
    zookeeper_port: int = 2181
    redis_port: int = 6379
    config: Path | None = None
    autoscale: ScaleBounds | None = None


@contextmanager
def running(
    options: ClusterOptions,
    report: Report,
    stop_asked: threading.Event,
    *,
    at_once: Callable[[], bool] = lambda: False,
    command: RoleCommand = role_command,
) -> Iterator[Supervisor]:
    """A cluster that is ready inside of the `with`, and gone after it.

    Raises LocalClusterError, and supervisor.StopAsked when `stop_asked` is set during the start;
    nothing runs then. While it stops, `at_once` is asked whether to stop waiting.
    """
    check_machine()
    data = make_folder(options.data)
    with locked(data):
        with _disk_errors(data):
            end_leftovers(data)
            chosen, settings = _choose(options, data)
            _write_private(data / "mars.toml", to_toml(settings))
            supervisor = _supervisor(chosen, settings, report, stop_asked, command)
        try:
            with _disk_errors(data):
                supervisor.start()
            with _scaled(supervisor, chosen, command):
                yield supervisor
        finally:
            supervisor.stop(at_once)


@contextmanager
def _scaled(
    supervisor: Supervisor, options: ClusterOptions, command: RoleCommand
) -> Iterator[None]:
    """With as many mappers and reducers as the leader wants, if that was asked for."""
    if options.autoscale is None:
        yield
        return
    advice = ScaleAdvice(supervisor.addresses.api, options.autoscale)
    supervisor.scaling = Scaling(
        advice.targets, lambda role, number: _worker(options.data, role, number, command)
    )
    advice.start()
    try:
        yield
    finally:
        advice.stop()


def check_machine() -> None:
    """Raises LocalClusterError that says what to install."""
    find_java()
    find_valkey()


def make_folder(data: Path) -> Path:
    """The data folder as an absolute path, with room in it. Raises LocalClusterError."""
    folder = data.absolute()
    try:
        if not folder.exists():
            # Rows lie in it, passwords and logs: they are its owner's. One that is there stays
            # as it was made.
            folder.mkdir(mode=0o700, parents=True)
        (folder / "logs").mkdir(exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise LocalClusterError(
            f"{folder} cannot be written ({error.strerror}); name another folder with --data."
        ) from error
    free = shutil.disk_usage(folder).free
    if free < BYTES_NEEDED:
        raise LocalClusterError(
            f"The disk of {folder} has {free >> 20} MiB left and {BYTES_NEEDED >> 20} are needed; "
            "free some, or name a folder on another disk with --data."
        )
    return folder


@contextmanager
def _disk_errors(data: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocalClusterError(
            f"{error.filename or data}: {error.strerror}; free some room or name another folder "
            "with --data."
        ) from error


def _choose(options: ClusterOptions, data: Path) -> tuple[ClusterOptions, Settings]:
    """The options with an absolute folder and free ports, and the settings that follow."""
    base = load(options.config)
    api_port = base.api.port if options.api_port is None else options.api_port
    chosen = replace(
        options,
        data=data,
        api_port=api_port or free_port(),
        kafka_port=options.kafka_port or free_port(),
        zookeeper_port=options.zookeeper_port or free_port(),
        redis_port=options.redis_port or free_port(),
    )
    settings = _settings(chosen, base)
    check_ports(
        [
            PortWish("Kafka", chosen.kafka_port, "--kafka-port"),
            PortWish("ZooKeeper", chosen.zookeeper_port, "--zookeeper-port"),
            PortWish("Valkey", chosen.redis_port, "--redis-port"),
            PortWish("the API", settings.api.port, "--api-port", settings.api.host),
        ]
    )
    return chosen, settings


def _settings(options: ClusterOptions, base: Settings) -> Settings:
    """Those of `--config`, with the addresses of the servers that are about to start."""
    return replace(
        base,
        member="",
        kafka=KafkaSettings(
            bootstrap=f"{HOST}:{options.kafka_port}",
            results_partitions=base.kafka.results_partitions,
            extra=base.kafka.extra,
        ),
        redis=RedisSettings(url=f"redis://{HOST}:{options.redis_port}/0"),
        zookeeper=ZooKeeperSettings(
            hosts=f"{HOST}:{options.zookeeper_port}",
            session_timeout_s=base.zookeeper.session_timeout_s,
        ),
        cluster=replace(base.cluster, buckets=_buckets(options, base)),
        api=replace(base.api, port=options.api_port or base.api.port),
    )


def _buckets(options: ClusterOptions, base: Settings) -> int:
    """B is fixed when a namespace is made: that of the folder's last run, if it had one."""
    written = options.data / "mars.toml"
    if not written.exists():
        return options.buckets or base.cluster.buckets
    before = load(written, {}).cluster.buckets
    if options.buckets not in {None, before}:
        raise LocalClusterError(
            f"The data in {options.data} was made with {before} buckets, which cannot be changed; "
            f"leave --buckets out, or name another folder with --data."
        )
    return before


def _supervisor(
    options: ClusterOptions,
    settings: Settings,
    report: Report,
    stop_asked: threading.Event,
    command: RoleCommand,
) -> Supervisor:
    data, logs = options.data, options.data / "logs"
    servers = [
        ValkeyServer(
            data / "redis",
            options.redis_port,
            log=logs / "redis.log",
            log_bytes_max=settings.cluster.log_bytes_max,
        ),
        ZooKeeperServer(data / "zookeeper", options.zookeeper_port, log=logs / "zookeeper.log"),
        KafkaServer(data / "kafka", options.kafka_port, log=logs / "kafka.log"),
    ]
    within = options.autoscale.within if options.autoscale is not None else int
    names = [("mapper", index) for index in range(1, within(options.mappers) + 1)]
    names += [("reducer", index) for index in range(1, within(options.reducers) + 1)]
    names += [("bulk", index) for index in range(1, options.bulk + 1)]
    workers = [_worker(data, role, index, command) for role, index in names]
    scheme = "https" if settings.api.tls_certificate_location else "http"
    addresses = Addresses(
        api=f"{scheme}://{_reachable(settings.api.host)}:{settings.api.port}",
        kafka=settings.kafka.bootstrap,
        zookeeper=settings.zookeeper.hosts,
        redis=settings.redis.url,
        namespace=settings.namespace,
    )
    api = ApiProcess(settings.api, data / "mars.toml", logs / "api.log", command)
    return Supervisor(data, addresses, servers, [*workers, api], report, stop_asked)


def _worker(data: Path, role: str, number: int, command: RoleCommand) -> RoleProcess:
    name = f"{role}-{number}"
    return RoleProcess(name, role, data / "mars.toml", data / "logs" / f"{name}.log", command)


def _reachable(host: str) -> str:
    """A host to connect to, for one to listen on."""
    return HOST if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 -- compared, not bound


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read: settings may hold passwords."""
    with open(path, "w", encoding="utf-8", opener=_private_opener) as file:
        file.write(text)


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def fetch_jars(show: jars.Show | None = None) -> None:
    """Fetch what the servers need, if it is not there. Raises LocalClusterError."""
    jars.ensure("kafka", show)
