"""Wires a reducer process together and runs it: `python -m reducer --config FILE`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from mars.adapters.kafka import (
    KafkaControlLog,
    KafkaIncidentLog,
    KafkaProgressLog,
    KafkaSink,
    KafkaTopicAdmin,
)
from mars.adapters.kafka.names import Names
from mars.adapters.redis import RedisNoteBox, RedisPartialLog
from mars.core.errors import TopicRefused, Unavailable
from mars.core.garbage import settle_garbage_collection
from mars.core.settings import Settings
from mars.core.types import Topic
from mars.process.command import settings_from_command_line
from mars.process.life import Life
from mars.process.serving import Process, serve
from mars.process.tasks import TaskSource
from mars.process.telemetry import logs
from mars.process.telemetry.incidents import IncidentTeller
from mars.process.telemetry.member import Reporter
from mars.process.tracking import Outbox
from mars.protocol.balance.placement import SpreadLimits
from mars.protocol.balance.relief import PressLimits
from mars.protocol.balance.scaling import ScaleLimits
from mars.protocol.balance.steering import SteeringLimits
from mars.protocol.balance.strategies import Strategy
from mars.protocol.ports import TopicInfo
from mars.protocol.reducer.commit_plan import OwnerLimits
from mars.protocol.reducer.machine import ReducerMachine
from reducer.assisting import AssistLoop
from reducer.leader import LeaderLoop
from reducer.lookout import LeaderPorts
from reducer.loop import ReducerLoop
from reducer.tracking import TrackerLoop

COMMIT_THREADS_MAX = 8
"""Buckets that claim, audit or commit at the same time: they mostly wait for Kafka."""

ASK_S = 5.0
"""Longest answer of a Kafka that is reached, for a reducer that doubts it."""


def run(settings: Settings) -> int:
    """Run a reducer until it is asked to stop. Returns the exit code."""
    return serve(settings, "reducer", lambda process: _Reducer(process).serve())


class _Reducer:
    """The parts of one reducer process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._settings = process.settings
        self._services = process.services
        self._coordinator = process.coordinator
        self._buckets = process.buckets
        self._member = process.member
        self._admin = KafkaTopicAdmin(process.settings)
        self._registry = process.registry()
        self._teller = IncidentTeller(KafkaIncidentLog(process.settings, self._admin))

    def serve(self) -> None:
        life = self._process.life
        self._services.insist(life, "kafka", lambda: self._admin.ensure_internal(self._buckets))
        if life.stopping:
            return
        self._teller.start(life)
        log = RedisPartialLog.open(self._settings, self._buckets)
        # Whoever cannot reach it must not be given buckets, which would stand still.
        self._services.insist(life, "redis", log.identity)
        reporter = self._process.join()
        self._process.start_over_when_cut_off({"kafka": self._ask_kafka, "redis": log.identity})
        leading = self._leader(log)
        # They go on until our own buckets have been given away, and so longer than `life`.
        reign = Life()
        assistant = AssistLoop(log)
        beside = [
            _started("leader", leading.run, reign),
            _started("assistant", assistant.run, reign),
        ]
        tracker = self._tracker(log) if self._settings.tracker.enabled else None
        if tracker is not None:
            beside.append(_started("tracker", tracker.run, reign))
        settle_garbage_collection()
        logs.info(
            logs.logger("reducer"), "reducer runs", member=self._member, buckets=self._buckets
        )
        try:
            self._loop(log, reporter, leading, tracker, assistant).run(life)
        finally:
            if not life.stopping:
                life.stop()
            reign.stop()
            for thread in beside:
                thread.join()
            self._coordinator.close()
            log.close()

    def _ask_kafka(self) -> None:
        """Ask for something small. Raises Unavailable sooner than other questions do."""
        deadline_s = time.monotonic() + ASK_S

        def give_up() -> None:
            if time.monotonic() > deadline_s:
                raise Unavailable("kafka", f"no answer within {ASK_S:.0f} s")

        self._admin.describe(Names(self._settings.namespace).progress, give_up)

    def _tracker(self, log: RedisPartialLog) -> TrackerLoop:
        box = RedisNoteBox.open(self._settings)
        return TrackerLoop(
            self._member,
            self._settings.tracker.deadline_ms,
            self._buckets,
            outbox=Outbox(box, self._coordinator),
            box=box,
            log=log,
            progress=KafkaProgressLog(self._settings, self._admin),
            tell=self._teller.tell,
        )

    def _leader(self, log: RedisPartialLog) -> LeaderLoop:
        return LeaderLoop(
            LeaderPorts(
                self._buckets,
                log=log,
                progress=KafkaProgressLog(self._settings, self._admin),
                control=KafkaControlLog(self._settings, self._admin),
                registry=self._registry,
                coordinator=self._coordinator,
                admin=self._admin,
                services=self._services,
                limits=_steering(self._settings),
                tell=self._teller.tell,
            )
        )

    def _loop(
        self,
        log: RedisPartialLog,
        reporter: Reporter,
        leading: LeaderLoop,
        tracker: TrackerLoop | None,
        assistant: AssistLoop,
    ) -> ReducerLoop:
        limits = self._settings.reducer
        machine = ReducerMachine(
            self._member,
            OwnerLimits(
                progress_interval_ms=limits.progress_interval_ms,
                large_task_rows=limits.large_task_rows,
                log_bytes_max=self._settings.cluster.log_bytes_max,
                buckets=self._buckets,
                snapshot_every_ms=limits.snapshot_every_ms,
                tracked=tracker is not None,
                draft_rows_min=limits.draft_rows_min,
            ),
        )
        turn = threading.Lock()
        return ReducerLoop(
            self._member,
            machine,
            log=log,
            sink=KafkaSink(self._settings, self._member, turn, self._admin),
            registry=self._registry,
            coordinator=self._coordinator,
            tasks=TaskSource(self._registry, self._settings.namespace, self._output_topics),
            reporter=reporter,
            services=self._services,
            poll_s=limits.poll_ms / 1000,
            threads=min(COMMIT_THREADS_MAX, self._buckets),
            turn=turn,
            balance=lambda: leading.balance,
            capacity=limits.capacity,
            tell=self._teller.tell,
            tracker=tracker,
            assistant=assistant,
        )

    def _output_topics(self, topics: Iterable[Topic]) -> dict[Topic, TopicInfo | TopicRefused]:
        """What the output topics are; one that was deleted is made again."""
        wanted = self._settings.kafka.results_partitions or self._buckets
        return self._admin.ensure_outputs(topics, wanted)


def _started(name: str, run: Callable[[Life], None], life: Life) -> threading.Thread:
    thread = threading.Thread(target=run, args=(life,), name=name)
    thread.start()
    return thread


def _steering(settings: Settings) -> SteeringLimits:
    """The section [balance] as the leader takes it."""
    given = settings.balance
    return SteeringLimits(
        enabled=given.enabled,
        strategy=None if given.strategy == "auto" else Strategy(given.strategy),
        cooldown_s=given.cooldown_s,
        bucket_rest_s=given.bucket_rest_s,
        fewer_after_s=given.fewer_after_s,
        room_bytes=settings.cluster.log_bytes_max,
        spread=SpreadLimits(given.imbalance_max, given.gain_min),
        press=PressLimits(given.backlog_high, given.backlog_low, given.use_high),
        scale=ScaleLimits(given.use_low, given.use_high, given.use_target),
    )


if __name__ == "__main__":
    raise SystemExit(run(settings_from_command_line("reducer")))
