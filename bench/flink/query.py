"""The statements and the configuration that Flink gets."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mars.core.plan import Field, FieldType, Format
from mars.local.flows import FIELDS

PARALLELISM = 2
"""One subtask of each kind a core."""

TASK_HEAP = "1400m"
"""Of the task manager's JVM: two windows of 185,000 groups and their checkpoints, with air."""

MANAGED_MEMORY = "192m"
"""For the buffers of window aggregation; off the heap."""

NETWORK_MEMORY = "64m"
"""Two subtasks exchange with two: some hundred buffers of 32 KiB."""

MANAGER_HEAP = "320m"
"""Of the job manager's JVM."""

_STATEMENTS = Path(__file__).with_name("job.sql")


@dataclass(frozen=True, slots=True)
class Query:
    """What differs between runs. `earliest`: from the beginning of the topic, else its end."""

    name: str
    bootstrap: str
    topic: str
    output: str
    format: Format
    window_s: int
    delay_s: int
    earliest: bool


_TYPES = {
    FieldType.STRING: "STRING",
    FieldType.INT64: "BIGINT",
    FieldType.FLOAT64: "DOUBLE",
    FieldType.BOOL: "BOOLEAN",
    FieldType.TIMESTAMP_MS: "BIGINT",
}
"""Of the generator's fields; the event time is made of milliseconds in the statements."""


def columns(fields: Sequence[Field]) -> str:
    """The fields as a column list; names may be reserved words, so all are quoted."""
    return ", ".join(f"`{field.name}` {_TYPES[field.type]}" for field in fields)


def statements(query: Query) -> str:
    """The SQL script of a query."""
    return string.Template(_STATEMENTS.read_text("utf-8")).substitute(
        name=query.name,
        bootstrap=query.bootstrap,
        topic=query.topic,
        output=query.output,
        format="json" if query.format is Format.JSON else "json-lines",
        window_s=str(query.window_s),
        delay_s=str(query.delay_s),
        columns=columns(FIELDS),
        start="earliest-offset" if query.earliest else "latest-offset",
    )


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a person who tunes Flink for a purpose changes."""

    checkpoint_s: float
    """Results can be read as committed at a checkpoint, not before."""
    watermark_interval_ms: int = 200
    """How often sources say how far they are; 200 is the default."""


def configuration(tuning: Tuning, folder: Path, rpc_port: int, rest_port: int) -> Mapping[str, str]:
    """All settings of the cluster, by name. `folder` holds checkpoints and temporary files."""
    return {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": str(rpc_port),
        "jobmanager.bind-host": "127.0.0.1",
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": str(rest_port),
        "execution.target": "remote",
        "io.tmp.dirs": str(folder / "tmp"),
        "taskmanager.numberOfTaskSlots": str(PARALLELISM),
        "parallelism.default": str(PARALLELISM),
        **_memory(),
        # Exactly once, with state on the heap: the fastest there is.
        "state.backend.type": "hashmap",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.interval": f"{round(tuning.checkpoint_s * 1000)} ms",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.num-retained": "1",
        # No copies between chained operators; counts are summed before they are exchanged.
        "pipeline.object-reuse": "true",
        "pipeline.auto-watermark-interval": f"{tuning.watermark_interval_ms} ms",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "table.local-time-zone": "UTC",
        # The figures that are read while it runs are otherwise up to 10 s old.
        "metrics.fetcher.update-interval": "400 ms",
    }


def _memory() -> Mapping[str, str]:
    """The parts of the task manager's memory; a start script would compute them."""
    return {
        "taskmanager.cpu.cores": str(PARALLELISM),
        "taskmanager.memory.task.heap.size": _less(TASK_HEAP, 128),
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.network.min": NETWORK_MEMORY,
        "taskmanager.memory.network.max": NETWORK_MEMORY,
        "taskmanager.memory.managed.size": MANAGED_MEMORY,
        "taskmanager.memory.jvm-metaspace.size": "192m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
    }


def _less(size: str, megabytes: int) -> str:
    return f"{int(size.removesuffix('m')) - megabytes}m"
