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
        Outliving("the leader", life.wait).until(life, LOOK_INTERVAL_S, self._round)

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
