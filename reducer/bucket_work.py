"""Claims, audits, snapshots and commits, done by threads that may wait for Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import assert_never

from mars.core.errors import Fenced, MarsError, TaskAtFault, Unavailable
from mars.core.types import MemberId, TaskName
from mars.process.life import ServiceHealth
from mars.process.snapshots import read_snapshots
from mars.process.telemetry import logs, tracing
from mars.protocol.ports import Claim, ResultSink
from mars.protocol.reducer.events import (
    AuditEmissions,
    BucketClaimed,
    BucketCommitted,
    BucketFailed,
    ClaimBucket,
    CommitTransaction,
    EmissionsAudited,
    Event,
    ReadSnapshots,
    ReleaseBucket,
    WriteDraft,
)
from reducer.metering import Metering
from reducer.serial_pool import SerialPool

LAST_COMMITS_S = 5.0
"""How long commits that are under way may take once the process is to stop."""

Slow = ClaimBucket | AuditEmissions | ReadSnapshots | CommitTransaction | WriteDraft | ReleaseBucket


class BucketWork:
    """Does slow instructions in the background; `tell` gets each outcome, from another thread."""

    def __init__(
        self,
        member: MemberId,
        sink: ResultSink,
        tell: Callable[[Event], None],
        threads: int,
        metering: Metering,
        services: ServiceHealth,
    ) -> None:
        self._member = member
        self._sink = sink
        self._tell = tell
        self._metering = metering
        self._services = services
        self._pool = SerialPool(threads)
        self._log = logs.logger("reducer")

    def start(self, instruction: Slow) -> None:
        """Do it after everything else of the same bucket."""
        self._pool.submit(instruction.bucket, lambda: self._run(instruction))

    def close(self) -> None:
        """Let running commits end, then throw all producers away.

        A commit that waits for a broker that is away is given up: its outcome is unknown, and the
        next owner finds out.
        """
        self._pool.drain(LAST_COMMITS_S)
        self._sink.close()
        self._pool.close()

    def _run(self, instruction: Slow) -> None:
        try:
            with self._metering.busy(instruction.bucket):
                outcome = self._do(instruction)
        except Fenced as problem:
            outcome = self._failed(instruction, problem, fenced=True)
        except TaskAtFault as problem:
            outcome = self._failed(instruction, problem, culprit=TaskName(problem.task))
        except Unavailable as problem:
            self._services.lost(problem)
            outcome = self._failed(instruction, problem)
        except MarsError as problem:
            outcome = self._failed(instruction, problem)
        except Exception as problem:  # noqa: BLE001 -- an unknown outcome like any other (R8)
            logs.error(self._log, "unexpected error", trace=True, bucket=instruction.bucket)
            outcome = self._failed(instruction, problem)
        if outcome is not None:
            self._tell(outcome)

    @staticmethod
    def _failed(
        instruction: Slow,
        problem: Exception,
        *,
        fenced: bool = False,
        culprit: TaskName | None = None,
    ) -> Event | None:
        if isinstance(instruction, ReleaseBucket):
            return None
        return BucketFailed(instruction.bucket, instruction.term, fenced, str(problem), culprit)

    def _do(self, instruction: Slow) -> Event | None:
        match instruction:
            case ClaimBucket(bucket=bucket, term=term, epoch=epoch, store_epoch=store_epoch):
                claim = Claim(bucket, epoch, store_epoch, uuid.uuid4().hex, self._member)
                return BucketClaimed(bucket, term, self._sink.claim(claim))
            case AuditEmissions(bucket=bucket, term=term, emissions=emissions):
                found = (self._sink.audit(emission, bucket) for emission in emissions)
                return EmissionsAudited(bucket, term, tuple(text for text in found if text))
            case CommitTransaction(bucket=bucket, term=term, transaction=transaction, next=start):
                return BucketCommitted(bucket, term, self._sink.commit(transaction, start))
            case WriteDraft(bucket=bucket, results=results, next=start):
                self._sink.draft(bucket, results, start)
                tracing.drafted(self._log, bucket, results)
                return None
            case ReadSnapshots():
                return read_snapshots(self._sink, instruction)
            case ReleaseBucket(bucket=bucket):
                self._sink.release(bucket)
                return None
            case _:
                assert_never(instruction)
