"""Who leads: the oldest of the candidates, which are ephemeral numbered nodes.

A reign belongs to one *generation* of the connection: it ends for good at the first sign of a loss,
long before ZooKeeper lets the session expire and another candidate takes over. After a reconnect
this process stands for election anew, behind the others, and leads with a new epoch if at all.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from mars.adapters.zookeeper.connection import Link, ZooKeeperConnection
from mars.adapters.zookeeper.paths import CANDIDATE_PREFIX, Paths
from mars.core.types import LeaderEpoch, MemberId


@dataclass(frozen=True, slots=True)
class Reign:
    """A leadership: its epoch, and what must not have changed for it to hold.

    `epoch_version` is ZooKeeper's version of the epoch's node as this reign wrote it.
    """

    epoch: LeaderEpoch
    epoch_version: int
    candidate: str
    generation: int

    def check(self, transaction: TransactionRequest, paths: Paths) -> None:
        """Let a transaction do nothing unless this leadership holds as ZooKeeper knows it."""
        transaction.check(paths.candidate(self.candidate), 0)
        transaction.check(paths.leader_epoch, self.epoch_version)


class Candidacy:
    """Stands for election as long as the process lives."""

    def __init__(self, connection: ZooKeeperConnection, paths: Paths, member: MemberId) -> None:
        self._connection = connection
        self._paths = paths
        self._member = member
        self._nonce = uuid.uuid4().hex
        self._candidate: str | None = None
        self._generation: int | None = None
        self._reign: Reign | None = None
        self._former_life = True

    @property
    def reign(self) -> Reign | None:
        """The present reign of this process, None from the moment the connection is lost."""
        reign, link = self._reign, self._connection.link
        holds = reign is not None and link.connected and link.generation == reign.generation
        return reign if holds else None

    def renew(self, link: Link) -> None:
        """Be a candidate in the present generation, and reign if it is the oldest one."""
        if not link.connected:
            return
        if self._generation != link.generation:
            self._reign = None
            self._candidate = self._stand_anew()
            self._generation = link.generation
        candidates = self._candidates()
        if self._candidate not in candidates:
            self.abdicate()
            return
        place = candidates.index(self._candidate)
        self._watch(candidates[max(place - 1, 0)])
        if place == 0 and self._reign is None:
            self._take_over(self._candidate, link)

    def abdicate(self) -> None:
        """End the reign, and stand anew."""
        self._reign = None
        self._generation = None
        self._connection.wake()

    def outgrow(self, floor: LeaderEpoch) -> None:
        """Have the next reign begin above an epoch that ZooKeeper does not remember."""
        node = self._paths.leader_epoch
        raw, stat = self._connection.call(lambda client: client.get_async(node))
        if int(raw or b"0") < floor:
            self._connection.transact(
                lambda some: some.set_data(node, b"%d" % floor, stat.version), BadVersionError
            )
        self.abdicate()

    def withdraw(self) -> None:
        """End the reign and the candidacy, if there is a connection."""
        self._reign = None
        if self._candidate is not None:
            self._delete(self._candidate)

    def _stand_anew(self) -> str:
        for path in (self._paths.election, self._paths.leader_epoch, self._paths.assignment):
            self._connection.ensure(path)
        for name in self._candidates():
            if self._nonce in name or (self._former_life and self._is_former(name)):
                self._delete(name)
        # Later candidates of our name are those of another process that runs at the same time.
        self._former_life = False
        # Numbers begin anew in a ZooKeeper that has lost everything: no name comes twice.
        stand = uuid.uuid4().hex[:8]
        prefix = self._paths.candidate(f"{CANDIDATE_PREFIX}{self._nonce}-{stand}-")
        made: str = self._connection.call(
            lambda client: client.create_async(
                prefix, self._member.encode(), ephemeral=True, sequence=True
            )
        )
        return made.rpartition("/")[2]

    def _is_former(self, name: str) -> bool:
        """Whether the candidate is of our former life; it would hold the place till it expires."""
        path = self._paths.candidate(name)
        (found,) = self._connection.found([self._connection.send(lambda c: c.get_async(path))])
        return found is not None and found[0] == self._member.encode()

    def _candidates(self) -> list[str]:
        """The oldest one first."""
        names: list[str] = self._connection.call(
            lambda client: client.get_children_async(self._paths.election)
        )
        return sorted(names, key=lambda name: int(name.rpartition("-")[2]))

    def _watch(self, name: str) -> None:
        path = self._paths.candidate(name)
        stat = self._connection.call(
            lambda client: client.exists_async(path, watch=self._connection.wake)
        )
        if stat is None:
            self._connection.wake()  # it went in between: look again

    def _take_over(self, candidate: str, link: Link) -> None:
        node = self._paths.leader_epoch
        raw, stat = self._connection.call(lambda client: client.get_async(node))
        epoch = LeaderEpoch(int(raw or b"0") + 1)
        if self._wrote_epoch(candidate, epoch, stat):
            self._reign = Reign(epoch, stat.version + 1, candidate, link.generation)
        # Have it noticed that this process leads, or look again at why it does not.
        self._connection.wake()

    def _wrote_epoch(self, candidate: str, epoch: LeaderEpoch, stat: ZnodeStat) -> bool:
        def build(transaction: TransactionRequest) -> None:
            transaction.check(self._paths.candidate(candidate), 0)
            transaction.set_data(self._paths.leader_epoch, b"%d" % epoch, stat.version)

        return self._connection.transact(build, BadVersionError, NoNodeError)

    def _delete(self, name: str) -> None:
        path = self._paths.candidate(name)
        try:
            self._connection.call(lambda client: client.delete_async(path), NoNodeError)
        except NoNodeError:
            pass
