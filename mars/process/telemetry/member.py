"""What a process says of itself in the members' registry."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mars.core.settings import Settings
from mars.core.types import LeaderEpoch, MemberId
from mars.protocol.balance.smoothing import Smoothed
from mars.protocol.ports import BucketStatus, MemberInfo, PartitionReading

REPORT_INTERVAL_S = 1.0
"""How often the report is refreshed: what people and the leader see is at most this old."""

_PAGE_BYTES = resource.getpagesize()


def member_id(settings: Settings, role: str) -> MemberId:
    """The configured name, else one of host and process."""
    return MemberId(settings.member or f"{role}-{socket.gethostname()}-{os.getpid()}")


class Reporter:
    """Makes the reports of one process; rates are smoothed (`SMOOTHING_S`).

    `tell` gets each of them, too.
    """

    def __init__(
        self,
        member: MemberId,
        role: str,
        tell: Callable[[MemberInfo], None] = lambda _report: None,
    ) -> None:
        self._member = member
        self._role = role
        self._tell = tell
        self._started_ms = int(time.time() * 1000)
        self._last_s = time.monotonic()
        self._last_rows = 0
        self._last_cpu_s = time.process_time()
        self._rows_rate = Smoothed()
        self._cpu_use = Smoothed()

    def due(self) -> bool:
        """True if it is time for the next report."""
        return time.monotonic() - self._last_s >= REPORT_INTERVAL_S

    def report(
        self,
        rows_total: int,
        missing: tuple[str, ...],
        partitions: Sequence[PartitionReading] = (),
        buckets: Sequence[BucketStatus] = (),
        leader_epoch: LeaderEpoch | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> MemberInfo:
        """The report as of now; `rows_total` are the rows handled since the start.

        `leader_epoch` is given by the process that leads; `figures` are further ones of its load.
        """
        self._measure(rows_total)
        report = MemberInfo(
            id=self._member,
            role=self._role,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=self._started_ms,
            load={
                "rows_per_second": round(self._rows_rate.value, 1),
                "rows_total": rows_total,
                "cpu_use": round(self._cpu_use.value, 4),
                "cpu_seconds_total": round(self._last_cpu_s, 2),
                "resident_bytes": resident_bytes(),
                **({} if leader_epoch is None else {"leader_epoch": leader_epoch}),
                **(figures or {}),
            },
            missing=missing,
            partitions=tuple(partitions),
            buckets=tuple(buckets),
            reported_ms=int(time.time() * 1000),
        )
        self._tell(report)
        return report

    def _measure(self, rows_total: int) -> None:
        now_s, cpu_s = time.monotonic(), time.process_time()
        duration_s = max(now_s - self._last_s, 1e-3)
        self._rows_rate.add((rows_total - self._last_rows) / duration_s, duration_s)
        self._cpu_use.add((cpu_s - self._last_cpu_s) / duration_s, duration_s)
        self._last_s, self._last_rows, self._last_cpu_s = now_s, rows_total, cpu_s


def resident_bytes() -> int:
    """Resident memory now; the peak where the system does not tell (not Linux)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * _PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
