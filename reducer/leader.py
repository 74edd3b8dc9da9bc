"""The leader thread: stands for election and leads, one reign after the other."""

from __future__ import annotations

from mars.core.errors import MarsError, Unavailable
from mars.core.types import LeaderEpoch
from mars.process.life import Life
from mars.process.outliving import Outliving
from mars.process.telemetry import logs
from mars.protocol.ports import Balance
from reducer.lookout import KnownTasks, LeaderPorts
from reducer.reign import LeaderReign, ReignEnded

LOOK_INTERVAL_S = 0.25
"""Between two looks: how late the leader notices a lost store, a dead reducer or a new task."""

LOOK_S_A_LANE, LOOK_S_MAX = 0.0025, 1.0
"""The same for each lane of each task, and at the most, while there is nothing to do: each look
reads the heads of all. Four a second were half of all heads that the store gave for a hundred
tasks, and of 20 tasks over 200 partitions a head takes five times as long."""

_log = logs.logger("leader")


class LeaderLoop:
    """Looks, decides and acts while this process leads."""

    def __init__(self, ports: LeaderPorts) -> None:
        self._ports = ports
        self._known = KnownTasks()
        self._reign: LeaderReign | None = None
        ports.registry.watch_tasks(self._known.changed.set)

    @property
    def balance(self) -> Balance | None:
        """What this process makes of the loads while it leads; read by another thread."""
        reign = self._reign
        return None if reign is None else reign.balance

    def run(self, life: Life) -> None:
        """Stand for election and lead, until asked to stop."""
        self._ports.coordinator.campaign()
        Outliving("the leader", life.wait).paced(life, lambda: self.pause_s, self._round)

    @property
    def pause_s(self) -> float:
        """Until the next look."""
        if self._reign is None or self._known.changed.is_set():
            return LOOK_INTERVAL_S
        return min(max(LOOK_INTERVAL_S, self._reign.at_rest * LOOK_S_A_LANE), LOOK_S_MAX)

    def _round(self) -> None:
        epoch = self._ports.coordinator.leading()
        if epoch is None:
            self._reign = None
            return
        if self._reign is None or self._reign.epoch != epoch:
            self._reign = self._begin(epoch)
            logs.info(_log, "leading", leader_epoch=epoch)
        self._lead(self._reign)

    def _begin(self, epoch: LeaderEpoch) -> LeaderReign:
        return LeaderReign(self._ports, epoch, self._known)

    def _lead(self, reign: LeaderReign) -> None:
        try:
            reign.lead()
        except Unavailable as problem:
            self._ports.services.lost(problem)
        except MarsError as problem:
            logs.error(_log, "the leader cannot go on and tries again", problem=str(problem))
        except ReignEnded:
            self._reign = self._begin(reign.epoch)
        except Exception:  # noqa: BLE001 -- a leader that dies silently would stop everything
            logs.error(_log, "unexpected error, the leader tries again", trace=True)
            self._reign = self._begin(reign.epoch)
