"""Of several bulk processes one works: what a process does when its turn comes and when it goes."""

from __future__ import annotations

from mapper.bulk.loop import BulkLoop
from mars.adapters.memory.admin import MemoryTopicAdmin
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.bulk import MemoryBulkEngine
from mars.adapters.memory.coordinator import MemoryCoordinator, MemoryEnsemble
from mars.adapters.memory.partial_log import MemoryPartialLog
from mars.adapters.memory.registry import MemoryRegistry, MemoryShelf
from mars.core.types import MemberId
from mars.process.life import ServiceHealth
from mars.process.tasks import TaskSource
from mars.process.telemetry.member import Reporter
from mars.protocol.backfill.events import Event, Instruction, Ticked
from mars.protocol.backfill.machine import BackfillLimits, BackfillMachine
from mars.protocol.ports import MemberInfo

EARLIER_MS = 1


class WatchedMachine(BackfillMachine):
    """Notes whether it works or was stopped, in order."""

    def __init__(self) -> None:
        super().__init__(BackfillLimits(buckets=2, chunk_rows=100, ahead=1, catch_up_rows_min=100))
        self.calls: list[str] = []

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, Ticked):
            self.calls.append("ticked")
        return super().handle(event)

    def stop(self) -> list[Instruction]:
        self.calls.append("stopped")
        return super().stop()


class EagerReporter(Reporter):
    """Reports, and so looks whose turn it is, every round."""

    def due(self) -> bool:
        return True


def test_the_machine_is_stopped_once_when_the_turn_passes_to_another_process() -> None:
    ensemble, broker = MemoryEnsemble(), MemoryBroker()
    member, other = MemberId("bulk-2"), MemberId("bulk-1")
    machine, registry = WatchedMachine(), MemoryRegistry(MemoryShelf())
    reporter = EagerReporter(member, "bulk")
    coordinator = MemoryCoordinator(ensemble, member)
    coordinator.join(reporter.report(0, ()))
    loop = BulkLoop(
        member,
        machine,
        engine=MemoryBulkEngine(broker),
        log=MemoryPartialLog(lambda: 0),
        registry=registry,
        coordinator=coordinator,
        admin=MemoryTopicAdmin(broker),
        tasks=TaskSource(registry, "default"),
        reporter=reporter,
        services=ServiceHealth("bulk"),
        jobs=1,
    )

    loop.round(0.0)
    assert (loop.working, machine.calls) == (True, ["ticked"])

    earlier = MemberInfo(other, "bulk", "elsewhere", 1, EARLIER_MS)
    MemoryCoordinator(ensemble, other).join(earlier)
    loop.round(0.0)
    loop.round(0.0)

    assert (loop.working, machine.calls) == (False, ["ticked", "stopped"])
