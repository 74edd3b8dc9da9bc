"""One run of a contestant over a full topic: sampled while it goes, checked when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from bench.contestants import DELAY_S, Contestant, Workload
from bench.errors import BenchError
from bench.load import Load
from bench.measures import Sample
from bench.processes import Memory, Use, Watched, look
from bench.rows import WindowResult, by_window, decode_results
from bench.topics import Topics

SAMPLE_S = 0.5
"""Between two looks: dozens of them in a run, at a thousandth of its CPU."""

SETTLE_S = 4.0
"""Silence in the output, beyond the contestant's commit interval, after which it is checked."""

WARM_MESSAGES = 500_000
"""Read from the topic before a run, so that each finds a broker that is equally warm."""

STALL_S = 120.0
"""A run in which nothing moves for this long has failed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out. `last_offsets`: of each window's results the highest, by partition."""

    windows: Mapping[int, WindowResult]
    last_offsets: Mapping[int, Mapping[int, int]]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class RawRun:
    """All that was seen of a run."""

    samples: Sequence[Sample]
    watched: Sequence[Watched]
    memory: Mapping[str, Memory]
    outcome: Outcome


def run_once(
    contestant: Contestant, load: Load, name: str, meanwhile: Callable[[Contestant], None]
) -> RawRun:
    """Start a contestant, measure it, end it. `meanwhile` is called once rows are being taken.

    Raises MarsError when it fails.
    """
    plan = load.plan
    workload = Workload(name, plan.topic, plan.format, plan.window_ms // 1000)
    with contestant.running() as bootstrap:
        topics = Topics(bootstrap)
        _warm(topics, plan.topic)
        measuring = _Measuring(contestant, load, workload, topics, meanwhile)
        contestant.submit(workload)
        measuring.until_done()
        memory = {name: use.memory for name, use in look(contestant.watched()).items()}
        watched = contestant.watched()
        outcome = check(load, topics, workload.output, contestant.delay_s)
        contestant.withdraw()
    return RawRun(measuring.samples, watched, memory, outcome)


def _warm(topics: Topics, topic: str) -> None:
    """Read the beginning of the topic and throw it away."""
    seen = 0
    for messages in topics.read(topic, topics.ends(topic)):
        seen += len(messages)
        if seen >= WARM_MESSAGES:
            return


@dataclass(slots=True)
class _Measuring:
    """The looks at one run; time begins when this is made, just before the query is submitted."""

    contestant: Contestant
    load: Load
    workload: Workload
    topics: Topics
    meanwhile: Callable[[Contestant], None]
    samples: list[Sample] = field(default_factory=list)
    _begun: float = field(default_factory=time.monotonic)
    _changed: float = field(default_factory=time.monotonic)

    def until_done(self) -> None:
        """Look until all rows are taken and the output has been silent for long enough.

        Raises BenchError when nothing moves any more before that.
        """
        told = False
        silence = self.contestant.commit_interval_s + SETTLE_S
        while True:
            self._look()
            last = self.samples[-1]
            if not told and last.rows > 0:
                self.meanwhile(self.contestant)
                told = True
            still = time.monotonic() - self._changed
            if last.rows >= self.load.rows and any(last.committed.values()) and still > silence:
                return
            if still > STALL_S:
                raise BenchError(
                    f"{self.contestant.name} has not moved for {STALL_S:.0f} s at {last.rows:,} of "
                    f"{self.load.rows:,} rows; look at its logs."
                )
            time.sleep(SAMPLE_S)

    def _look(self) -> None:
        uses: Mapping[str, Use] = look(self.contestant.watched())
        sample = Sample(
            at_s=time.monotonic() - self._begun,
            rows=self.contestant.messages_taken() * self.load.plan.rows_per_message,
            cpu_s={name: use.cpu_s for name, use in uses.items()},
            rss_bytes={name: use.memory.now_bytes for name, use in uses.items()},
            committed=self.topics.ends(self.workload.output),
        )
        before = self.samples[-1] if self.samples else None
        if before is None or (before.rows, before.committed) != (sample.rows, sample.committed):
            self._changed = time.monotonic()
        self.samples.append(sample)


def check(load: Load, topics: Topics, output: str, delay_s: float = DELAY_S) -> Outcome:
    """Read all that is committed and hold it against what was produced."""
    last_offsets: dict[int, dict[int, int]] = {}
    frames = []
    for messages in topics.read(output, topics.ends(output)):
        results = decode_results(message.value() or b"" for message in messages)
        frames.append(results)
        starts = results["start"].to_list()
        for message, start in zip(messages, starts, strict=True):
            # Offsets of a partition only grow, so the last one seen is the highest.
            last_offsets.setdefault(start, {})[message.partition() or 0] = message.offset() or 0
    windows = by_window(pl.concat(frames)) if frames else {}
    return Outcome(windows, last_offsets, problems(load, windows, delay_s))


def problems(load: Load, found: Mapping[int, WindowResult], delay_s: float = DELAY_S) -> list[str]:
    """What is wrong with the results, a sentence each; none when they are right.

    Every closed window must be there and whole. Others may be: a contestant may close the last
    ones because nothing comes any more, a part of the groups at a time.
    """
    said = []
    closed = {window.start_ms for window in load.closed_windows(delay_s * 1000)}
    for window in load.windows:
        start, result = window.start_ms, found.get(window.start_ms)
        if result is None:
            if start in closed:
                said.append(f"window {start} is missing")
        elif result.doubled:
            said.append(f"window {start} has {result.doubled} rows for groups that have one")
        elif result.rows > window.rows or (start in closed and result.rows < window.rows):
            said.append(f"window {start} counts {result.rows} rows of {window.rows}")
        elif start in closed and result.checksum != window.checksum:
            said.append(f"window {start} counts the right number of the wrong groups")
    unknown = found.keys() - {window.start_ms for window in load.windows}
    said.extend(f"window {start} has no rows" for start in sorted(unknown))
    return said
