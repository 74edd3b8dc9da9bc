"""How long after its end a window can be read: rows come at a steady rate, results are timed.

The latency of a result row is the time from the end of its window, plus the delay that the query
grants to late rows, to the moment at which a consumer that reads what is committed has it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from bench.contestants import DELAY_S, OUTPUT_PARTITIONS, Contestant, Workload
from bench.load import PARTITIONS
from bench.measures import Sample, rss_total_peak, spread
from bench.pacing import Pace, Pacer, Sent
from bench.processes import look
from bench.results import LatencyRun, Percentiles, WindowLatency, percentiles, process_figures
from bench.rows import by_window, decode_results, window_ends
from bench.topics import Topics, checked, reader
from mars.core.plan import Format

WARM_UP_S = 20
"""Windows that begin sooner after the first row are not measured: virtual machines warm up."""

READ_MESSAGES = 10_000
READ_S = 0.005
"""Of one read: what is added to a latency at the most by measuring it."""

BROKER_WAIT_MS = 20
"""How long the broker may hold an empty read."""

AFTER_S = 2
"""How long rows go on after the last measured window could close."""

QUIET_S = 3
"""Silence of the output after the last row was sent, after which it is over."""


class LatencyPlan(msgspec.Struct, frozen=True):
    """What is measured."""

    rate: int
    window_s: int
    seconds: int
    groups: int

    @property
    def window_ms(self) -> int:
        """Size of the windows."""
        return self.window_s * 1000

    @property
    def windows(self) -> int:
        """How many are measured."""
        return max(1, self.seconds // self.window_s)


@dataclass(frozen=True, slots=True)
class Arrival:
    """Results that one read brought, at epoch seconds."""

    at_s: float
    values: Sequence[bytes]


def run_once(
    contestant: Contestant,
    plan: LatencyPlan,
    name: str,
    show: Callable[[str], None],
) -> LatencyRun:
    """Start a contestant, measure it, end it. Raises MarsError when it fails."""
    workload = Workload(name, f"bench.paced.{name}", Format.JSON, plan.window_s, earliest=False)
    with contestant.running() as bootstrap:
        Topics(bootstrap).make(workload.topic, PARTITIONS)
        contestant.submit(workload)
        pace = Pace(bootstrap, workload.topic, PARTITIONS, plan.rate, plan.groups, plan.window_ms)
        pacer, timing = Pacer(pace), _Timing(contestant, plan, show)
        consumer = _consumer(bootstrap, workload.output)
        try:
            pacer.begin()
            timing.begin()
            timing.read(consumer, until_s=timing.last_end_s + DELAY_S + AFTER_S)
            sent = pacer.finish()
            timing.read_to_silence(consumer)
            run = timing.figures(sent)
        finally:
            pacer.stop()
            consumer.close()
        contestant.withdraw()
    return run


def _consumer(bootstrap: str, output: str) -> Consumer:
    consumer = reader(bootstrap, BROKER_WAIT_MS)
    consumer.assign(
        [TopicPartition(output, number, OFFSET_END) for number in range(OUTPUT_PARTITIONS)]
    )
    return consumer


@dataclass(slots=True)
class _Timing:
    """The results of one run as they come."""

    contestant: Contestant
    plan: LatencyPlan
    show: Callable[[str], None]
    arrivals: list[Arrival] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    first_start_ms: int = 0
    _begun_s: float = 0.0
    _next_look_s: float = 0.0

    def begin(self) -> None:
        """The first row goes out now; fix which windows are measured."""
        size = self.plan.window_ms
        self._begun_s = time.time()
        self.first_start_ms = -(-round((self._begun_s + WARM_UP_S) * 1000) // size) * size
        # In the middle of windows, when no result is due: looking takes milliseconds.
        self._next_look_s = (self.first_start_ms + size / 2) / 1000

    @property
    def starts(self) -> range:
        """Of the measured windows."""
        size = self.plan.window_ms
        return range(self.first_start_ms, self.first_start_ms + self.plan.windows * size, size)

    @property
    def last_end_s(self) -> float:
        """End of the last measured window."""
        return (self.starts[-1] + self.plan.window_ms) / 1000

    def read(self, consumer: Consumer, until_s: float) -> None:
        """Read until a time, and look at the processes once a window."""
        while (now := time.time()) < until_s:
            self._read_once(consumer)
            if now >= self._next_look_s:
                self._look(now)

    def read_to_silence(self, consumer: Consumer) -> None:
        """Read until nothing has come for QUIET_S."""
        deadline = time.time() + QUIET_S
        while time.time() < deadline:
            if self._read_once(consumer):
                deadline = time.time() + QUIET_S

    def _read_once(self, consumer: Consumer) -> bool:
        messages = checked(consumer.consume(READ_MESSAGES, timeout=READ_S))
        if messages:
            values = [message.value() or b"" for message in messages]
            self.arrivals.append(Arrival(time.time(), values))
        return bool(messages)

    def _look(self, now: float) -> None:
        self._next_look_s += self.plan.window_s
        uses = look(self.contestant.watched())
        self.samples.append(
            Sample(
                at_s=now - self._begun_s,
                rows=0,
                cpu_s={name: use.cpu_s for name, use in uses.items()},
                rss_bytes={name: use.memory.now_bytes for name, use in uses.items()},
                committed={},
            )
        )
        self.show(f"{max(0.0, self.last_end_s - now):.0f} s to go")

    def problems(self, sent: Sent) -> list[str]:
        """What is wrong with the measured windows, a sentence each."""
        values = [value for arrival in self.arrivals for value in arrival.values]
        found = by_window(decode_results(values)) if values else {}
        said = []
        for start in self.starts:
            result, rows = found.get(start), sent.windows.get(start, 0)
            if result is None:
                said.append(f"window {start} did not come")
            elif result.doubled or result.rows != rows:
                said.append(
                    f"window {start} counts {result.rows} rows of {rows}, {result.doubled} groups "
                    "came more than once"
                )
        return said

    def figures(self, sent: Sent) -> LatencyRun:
        """All that is told of the run."""
        frame = latencies(self.arrivals, DELAY_S * 1000).filter(
            pl.col("window_end").is_between(
                self.starts[0] + self.plan.window_ms, self.starts[-1] + self.plan.window_ms
            )
        )
        memory = {name: use.memory for name, use in look(self.contestant.watched()).items()}
        watched = self.contestant.watched()
        first_s, last_s = self.samples[0].at_s, self.samples[-1].at_s
        processes = process_figures(watched, memory, self.samples, first_s, last_s)
        cpu_s = sum(process.cpu_s for process in processes)
        return LatencyRun(
            contestant=self.contestant.name,
            version=self.contestant.version,
            settings=dict(self.contestant.settings()),
            overall=summary(frame),
            windows=tuple(
                WindowLatency(int(key[0]), summary(part))
                for key, part in frame.sort("window_end").group_by(
                    "window_end", maintain_order=True
                )
            ),
            rows_sent=sent.rows,
            cores_busy=cpu_s / (last_s - first_s) if last_s > first_s else 0.0,
            rss_peak_bytes=rss_total_peak(self.samples, [each.name for each in watched]),
            processes=processes,
            producer_behind_s=sent.behind_s,
            problems=tuple(self.problems(sent)),
        )


def latencies(arrivals: Sequence[Arrival], delay_ms: int) -> pl.DataFrame:
    """Columns window_end, latency_ms, rows: one row for each read and window."""
    found: list[tuple[int, float, int]] = []
    for arrival in arrivals:
        counts: Mapping[int, int] = Counter(window_ends(arrival.values))
        found.extend(
            (end, arrival.at_s * 1000 - end - delay_ms, rows) for end, rows in counts.items()
        )
    schema = {"window_end": pl.Int64, "latency_ms": pl.Float64, "rows": pl.Int64}
    return pl.DataFrame(found, schema=schema, orient="row")


def summary(frame: pl.DataFrame) -> Percentiles:
    """Percentiles over rows; columns as `latencies` gives them."""
    values: npt.NDArray[np.float64] = frame["latency_ms"].to_numpy()
    weights: npt.NDArray[np.int64] = frame["rows"].to_numpy()
    return percentiles(spread(values, weights))
