"""What a process says of itself in the members' registry."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from mars.ports import BucketStatus, MemberInfo, PartitionReading
from mars.settings import Settings
from mars.types import LeaderEpoch, MemberId

REPORT_INTERVAL_S = 1.0
"""How often the report is refreshed: what people and the leader see is at most this old."""

_PAGE_BYTES = resource.getpagesize()


def member_id(settings: Settings, role: str) -> MemberId:
    """The configured name, else one of host and process."""
    return MemberId(settings.member or f"{role}-{socket.gethostname()}-{os.getpid()}")


class Reporter:
    """Makes the reports of one process; rates are over the time since the report before."""

    def __init__(self, member: MemberId, role: str) -> None:
        self._member = member
        self._role = role
        self._started_ms = int(time.time() * 1000)
        self._last_s = time.monotonic()
        self._last_rows = 0

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
    ) -> MemberInfo:
        """The report as of now; `rows_total` are the rows handled since the start.

        `leader_epoch` is given by the process that leads.
        """
        now = time.monotonic()
        rate = (rows_total - self._last_rows) / max(now - self._last_s, 1e-3)
        self._last_s, self._last_rows = now, rows_total
        return MemberInfo(
            id=self._member,
            role=self._role,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=self._started_ms,
            load={
                "rows_per_second": round(rate, 1),
                "rows_total": rows_total,
                "cpu_seconds_total": round(time.process_time(), 2),
                "resident_bytes": _resident_bytes(),
                **({} if leader_epoch is None else {"leader_epoch": leader_epoch}),
            },
            missing=missing,
            partitions=tuple(partitions),
            buckets=tuple(buckets),
            reported_ms=int(time.time() * 1000),
        )


def _resident_bytes() -> int:
    """Resident memory now; the peak where the system does not tell (not Linux)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * _PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
