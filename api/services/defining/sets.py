"""Sets of tasks: made as they stand in one request.

    all tasks, read once ─▶ each one checked ─▶ something wrong: all of it is told, nothing is done
                               │
                               ▼ create, change, remove
    output topics ─▶ registry, many in a transaction ─▶ control log ─▶ those to be removed likewise

Of a set nothing is kept but its name, in the definitions of the tasks that it made. So what a crash
has left undone is what the same request finds to do when it comes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from api.schemas import TaskSetRequest
from api.services.beginning import Beginnings
from api.services.compiling import TaskCompiler
from api.services.context import BucketCount, ClusterContext, Ports
from api.services.defining.making import TaskMaker
from api.services.defining.set_steps import Action, SetReading, SetStep, Wrong, refuse
from api.services.operation.restoring import check_whole
from api.services.tasks import (
    ATTEMPTS_MAX,
    UNDECIDED_POLL_S,
    UNDECIDED_WAITS_MAX,
    too_many,
    undecided,
)
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import Conflict, TopicRefused
from mars.core.types import TaskName
from mars.protocol.ports import TaskWrite, put_copies

Kept = Mapping[TaskName, tuple[TaskDefinition, int]]
"""All definitions, each with the registry's version of it."""


class SetService:
    """What the path /v1/tasks does to many definitions at once."""

    def __init__(
        self,
        ports: Ports,
        compiler: TaskCompiler,
        maker: TaskMaker,
        buckets: BucketCount,
        cluster: ClusterContext,
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._maker = maker
        self._buckets = buckets
        self._tasks_max = cluster.tasks_max
        self._beginnings = Beginnings(ports, cluster)

    def apply(self, request: TaskSetRequest) -> list[SetStep]:
        """Make the tasks so, unless it is a dry run; what that does to each of them.

        Raises WrongMembers, Forbidden or Conflict that name all that is wrong, and then nothing was
        done; Conflict where others change the same tasks all the time, and TopicRefused.
        """
        check_whole(self._ports)
        reading = SetReading(self._ports, self._compiler, self._maker, self._beginnings, request)
        done: dict[TaskName, SetStep] = {}
        waits = attempts = 0
        while attempts < ATTEMPTS_MAX:
            kept = self._ports.registry.versioned_tasks()
            steps = reading.steps(kept)
            self._check_number(kept, steps)
            ahead = [step for step in steps if step.action is not Action.UNCHANGED]
            told = {step.name: step for step in steps} | done
            if request.dry_run or not ahead:
                return list(told.values())
            if any(step.waits for step in ahead):
                self._wait(waits, ahead)
                waits += 1
                continue
            attempts += 1
            carried_out = self._carried_out(ahead)
            if len(carried_out) == len(ahead):
                return list(told.values())
            done |= {step.name: step for step in carried_out}
        raise Conflict("others kept changing tasks of the set: look at them, then try again")

    def _wait(self, waits: int, ahead: Iterable[SetStep]) -> None:
        """Until the leader has begun the versions before. Raises Conflict after too long a time."""
        if waits >= UNDECIDED_WAITS_MAX:
            refuse(
                [
                    Wrong(step.place, step.name, undecided(step.before))
                    for step in ahead
                    if step.waits and step.before is not None
                ]
            )
        self._ports.sleep(UNDECIDED_POLL_S)

    def _check_number(self, kept: Kept, steps: Iterable[SetStep]) -> None:
        """Raises Conflict where there would be more tasks than there may be."""
        live = {name for name, one in kept.items() if one[0].state is not TaskState.DELETED}
        wanted = {step.name for step in steps if step.action is not Action.REMOVE}
        gone = {step.name for step in steps if step.action is Action.REMOVE}
        if wanted - live and len((live | wanted) - gone) > self._tasks_max:
            raise too_many(self._tasks_max)

    def _carried_out(self, steps: Sequence[SetStep]) -> list[SetStep]:
        """What of it was: the rest is no longer as it was read. Tasks are removed at last."""
        made = [step for step in steps if step.action is not Action.REMOVE]
        removed = [step for step in steps if step.action is Action.REMOVE]
        self._ensure_outputs(made)
        done = self._written(made)
        if len(done) == len(made):
            # As for one task: first the copies, so that none comes back to life.
            self._ports.control.put_tasks([step.after for step in removed])
            done += self._written(removed)
        return done

    def _written(self, steps: Sequence[SetStep]) -> list[SetStep]:
        writes = [TaskWrite(step.after, step.expected) for step in steps]
        done = list(steps[: self._ports.registry.write_tasks(writes)])
        put_copies(self._ports.control, [step.after for step in done])
        return done

    def _ensure_outputs(self, steps: Sequence[SetStep]) -> None:
        """Raises WrongMembers for topics that Kafka refuses."""
        topics = {step.name: self._compiler.output_topic(step.after) for step in steps}
        found = self._ports.admin.ensure_outputs(
            dict.fromkeys(topics.values()), self._buckets.of_results
        )
        refused = {topic: info for topic, info in found.items() if isinstance(info, TopicRefused)}
        refuse(
            [
                Wrong(step.place, step.name, refused[topics[step.name]])
                for step in steps
                if topics[step.name] in refused
            ]
        )
