"""What may be set, section by section, with its default. Units are the ends of names: `_s`, `_ms`,
`_bytes`. Passwords and what may hold one are never part of `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

import msgspec

MIB = 1024 * 1024

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$")]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How Kafka is reached, and how our own topics are made in it."""

    bootstrap: str = "127.0.0.1:9092"
    """`host:port`, several with commas."""
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"] = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_ca_location: str = ""
    """File of the authorities to trust; empty: those of the machine."""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = field(default="", repr=False)
    replication_factor: Positive = 1
    """Copies of each topic that Mars makes: 1 is all a single broker has; a cluster wants 3."""
    results_partitions: Natural = 0
    """Partitions of a new output topic; 0: as many as buckets, so that no two share one."""
    extra: dict[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """Further librdkafka properties, handed on as they are."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How Redis (or Valkey) is reached."""

    url: str = field(default="redis://127.0.0.1:6379/0", repr=False)
    """`redis://host:port/db`, `redis+sentinel://host:port,host:port/name` or
    `redis+cluster://host:port,host:port`; `rediss` for TLS."""
    username: str = ""
    password: str = field(default="", repr=False)
    tls_ca_location: str = ""
    tls_certificate_location: str = ""
    tls_key_location: str = ""


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """How ZooKeeper is reached."""

    hosts: str = "127.0.0.1:2181"
    """`host:port`, several with commas."""
    session_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """How long a silent process keeps its place: longer than a pause of Python."""
    digest_username: str = ""
    """With a name, nodes are made readable and writable for it alone (scheme `digest`)."""
    digest_password: str = field(default="", repr=False)
    use_tls: bool = False
    tls_ca_location: str = ""
    tls_certificate_location: str = ""
    tls_key_location: str = ""
    tls_key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What all processes of a namespace must agree on; fixed when the namespace is made."""

    buckets: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 8
    """Units of ownership: 8 keep four local reducers busy; a cluster wants 64. A reducer can own
    some 1,000: for each it has a client of Kafka, of 1.4 MB and three threads, and a process can
    have 1,024 of those (the C library's thread-local keys)."""
    log_bytes_max: Positive = 256 * MIB
    """Bytes of partials, uncompressed, a task may hold in Redis: four tasks fill 1 GiB at most."""


@dataclass(frozen=True, slots=True)
class MapperSettings:
    """How much a mapper reads before it writes."""

    batch_rows_max: Positive = 100_000
    """Rows of a batch: past this, larger batches no longer shrink keys noticeably."""
    batch_bytes_max: Positive = 64 * MIB
    """Raw bytes held per reader: with decoding, about 300 MiB of memory at the most."""
    linger_ms_max: Natural = 1_000
    """Longest wait for a batch to fill; part of the close latency of a busy topic."""
    rest_ms_max: Natural = 500
    """The same near the end of the topic, where it is 10 ms for each of its tasks, up to 2 s, if
    that is longer. Rows that may close a window do not wait at all; others are so much fresher in
    the answers about open windows, for some CPU time a batch."""
    poll_ms: Positive = 50
    """Longest wait for records in one poll: how late an idle mapper notices anything else."""
    capacity: Share = 1.0
    """Of a core, what this mapper may use: less where a container is limited to less, so that more
    mappers are asked for once it is busy by that measure. The engine on Spark heeds it not."""


@dataclass(frozen=True, slots=True)
class ReducerSettings:
    """How a reducer looks for work, and how it emits."""

    poll_ms: Positive = 200
    """Between two looks at the logs when no doorbell rings. A lost ring costs this much latency,
    and up to a second if the task rang just before."""
    transaction_timeout_ms: Positive = 60_000
    """After which the broker aborts a transaction whose owner is silent; see Kafka's maximum."""
    progress_interval_ms: Positive = 10_000
    """Age at which progress is committed without rows, so that a replay stays short; where a window
    is about to close then, it comes with its rows."""
    large_task_rows: Positive = 50_000
    """Due rows from which a task gets a transaction of its own, after the others."""
    draft_rows_min: Natural = 1_000
    """Rows of a bucket from which they are written to Kafka shortly before their window closes, in
    a transaction that is committed then; fewer take milliseconds. 0: never."""
    capacity: Share = 1.0
    """Of a core, what this reducer may use: its one loop uses one at most. Less where a container
    is limited to less, so that the leader gives it less to do."""
    snapshot_every_ms: Positive = 900_000
    """Time (15 min) after which open panes are saved in Kafka, and again each time it has passed:
    windows of up to ten minutes never are; of a longer one the loss of Redis makes read again what
    came since, which is seconds of work, not the day that the window may have been open. Where many
    rows have come they are saved sooner, once in a minute at most."""


StrategyName = Literal["auto", "hash", "weighted", "greedy", "split"]


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """When buckets move because of load, and what is asked for of whoever starts processes.

    Use is CPU seconds a second, of one core: a reducer has one loop.
    """

    enabled: bool = True
    """False: buckets move only when reducers come and go."""
    strategy: StrategyName = "auto"
    """How buckets are spread: `hash` by their number (nothing moves because of use), `greedy` by
    measured use, `weighted` by use in parts of `reducer.capacity`, `split` like it, while others
    merge the log of a bucket that needs more than a processor; `auto`: as suits what the leader
    measures, without restart."""
    imbalance_max: Share = 0.10
    """Standard deviation of the reducers' use above which buckets move (UIT): below, a move's pause
    of about a second costs more than the evenness is worth."""
    gain_min: Share = 0.02
    """Of a core, by which a move must relieve the busier of two reducers: less is noise."""
    cooldown_s: Seconds = 30.0
    """After any move: three time constants of the figures, which tell of the new state by then."""
    bucket_rest_s: Seconds = 60.0
    """How long a bucket that has moved stays at least, so that none goes to and fro."""
    backlog_high: Share = 0.80
    """Part of a reducer's room in the store that may lie unread and grow before it is relieved."""
    backlog_low: Share = 0.50
    """Part below which a reducer is light, and gets back what was taken from it."""
    use_low: Share = 0.30
    """Mean use below which fewer members are asked for (LUT)."""
    use_high: Share = 0.75
    """Mean use above which more are asked for (UUT): the rest is for bursts and for recovery."""
    use_target: Share = 0.55
    """Mean use that is aimed at then (TUT): about the middle, so that neither end is near."""
    fewer_after_s: Seconds = 60.0
    """How long fewer members must have been enough before they are asked for: a lull is no end."""


@dataclass(frozen=True, slots=True)
class BulkSettings:
    """How Spark is reached, and how much of a history it takes at once."""

    master: str = "local[*]"
    """`local[*]` (the cores of this machine), `spark://host:port`, `yarn` or `k8s://...`."""
    driver_memory_mb: Positive = 1024
    """Heap of the driver, MiB. With `local[*]` it is the only Java machine: the partials of some
    chunks pass through it, tens of megabytes each."""
    executor_memory_mb: Positive = 1024
    """Heap of each executor on a cluster, MiB: it holds the shuffle's blocks."""
    executor_overhead_mb: Positive = 1024
    """Memory of each executor beside its heap, MiB: a Python process of about 300 per core."""
    chunk_rows: Positive = 2_000_000
    """Messages of one chunk of a backfill: seconds of work, and larger ones no longer shrink keys
    noticeably."""
    chunks_ahead: Positive = 2
    """Chunks mapped at once, so that no core waits for the last task of a chunk or for Redis."""
    task_rows: Positive = 250_000
    """Most messages of one Spark task: about half a second of a core, with 20 ms to start it."""
    task_bytes: Positive = 64 * MIB
    """Most bytes of one Spark task; what it holds at a time is a fraction of it."""
    history_rows_min: Natural = 100_000
    """Messages from which a new task's history is Spark's; fewer, a mapper reads in a second."""
    catch_up_rows_min: Positive = 5_000_000
    """Messages by which a task must be behind before Spark helps: mappers need ten seconds."""
    files: tuple[str, ...] = ()
    """Folders (absolute paths or URIs: `/srv/history`, `s3://logs/2026`) below which files of
    histories and queries are read. Empty: none is, for who reads files through Mars reads what its
    processes may."""
    files_never: tuple[str, ...] = ()
    """Folders whose files are not read although they lie below one of those, for passwords lie
    there. That of this file always is one of them."""
    spark: dict[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """Further properties of Spark (`spark.executor.instances`), handed on as they are."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where the REST interface listens."""

    host: str = "127.0.0.1"
    """This machine only; in a container `0.0.0.0`, behind something that asks who is there."""
    port: Port = 8080
    access: Literal["auto", "on", "off"] = "auto"
    """Whether requests need a key. `auto`: unless it listens on loopback, where whoever is on this
    machine may do everything. `off` is for what something else guards."""
    hosts: tuple[str, ...] = ()
    """Names of hosts by which it may be called, beside those of this machine and `host`, where
    nobody is asked for a key: else any page in a browser could call it by a name of its own."""
    tls_certificate_location: str = ""
    """File (PEM) of the certificate and those above it; with one, only HTTPS is answered."""
    tls_key_location: str = ""
    """File (PEM) of its private key."""
    tls_key_password: str = field(default="", repr=False)
    requests_per_second: Positive = 100
    """Of each key (and each address that shows none), where keys are asked for: a busy dashboard
    makes about ten."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks (`10.0.0.5`, `10.0.0.0/8`) of proxies before it: of these, and of
    nobody else, it believes for whom they ask (`X-Forwarded-For`, `X-Forwarded-Proto`)."""
    connections_max: Positive = 1_000
    """Connections at a time, some kilobytes and a file each; more are closed as they come."""
    tasks_max: Positive = 1_000
    """Tasks of the namespace: each takes a place in every log, list and rebalance."""
    body_bytes_max: Positive = 1 * MIB
    """Longest request: a definition is some kilobytes."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where mappers, reducers and bulk processes answer Prometheus; the API does on its own port.

    Nobody is asked for a key there, and there are figures only.
    """

    host: str = "127.0.0.1"
    port: Port = 0
    """0: nowhere. Processes on one machine need a port each; `/metrics` of the API has the most
    important figures of all of them."""


@dataclass(frozen=True, slots=True)
class TrackerSettings:
    """Whether it is proven, beside the protocol, that each partial stored was counted."""

    enabled: bool = False
    """Off costs nothing. On, each batch costs some notes, and a progress record half a kilobyte."""
    deadline_ms: Annotated[int, msgspec.Meta(ge=1_000)] = 30_000
    """How long a batch may take from the log into a commit before it is looked into: some times
    reducer.progress_interval_ms."""


@dataclass(frozen=True, slots=True)
class LoggingSettings:
    """What processes write to their standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    """`text` for a person, `json` (one object a line) for a collector."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it. `member` names a process (`mapper-1`); empty: it finds a name of its own."""

    namespace: Name = "default"
    member: str = ""
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    redis: RedisSettings = field(default_factory=RedisSettings)
    zookeeper: ZooKeeperSettings = field(default_factory=ZooKeeperSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    mapper: MapperSettings = field(default_factory=MapperSettings)
    reducer: ReducerSettings = field(default_factory=ReducerSettings)
    balance: BalanceSettings = field(default_factory=BalanceSettings)
    bulk: BulkSettings = field(default_factory=BulkSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)
    logging: LoggingSettings = field(default_factory=LoggingSettings)


SECTIONS = tuple(item.name for item in fields(Settings) if item.name not in {"namespace", "member"})
