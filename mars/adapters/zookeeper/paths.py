"""The names of the nodes of a namespace."""

from __future__ import annotations

from dataclasses import dataclass

from mars.core.types import MemberId, StreamName, TaskName
from mars.protocol.ports import QueryId
from mars.protocol.ports.keys import KeyId

CANDIDATE_PREFIX = "candidate-"


@dataclass(frozen=True, slots=True)
class Paths:
    """All below `/mars/<namespace>`."""

    namespace: str

    @property
    def root(self) -> str:
        """Where everything of a namespace is."""
        return f"/mars/{self.namespace}"

    @property
    def fixed(self) -> str:
        """What was fixed when the namespace was made: B."""
        return f"{self.root}/namespace"

    @property
    def whole(self) -> str:
        """There if all streams and tasks of the namespace are: it goes with them, if ever."""
        return f"{self.root}/whole"

    @property
    def streams(self) -> str:
        """Parent of the streams."""
        return f"{self.root}/streams"

    def stream(self, name: StreamName) -> str:
        """One stream."""
        return f"{self.streams}/{name}"

    @property
    def tasks(self) -> str:
        """Parent of the tasks; each change of one also writes this node, so one watch is enough."""
        return f"{self.root}/tasks"

    def task(self, name: TaskName) -> str:
        """One task."""
        return f"{self.tasks}/{name}"

    @property
    def queries(self) -> str:
        """Parent of the ad-hoc queries; written at each change of one, as `tasks` is."""
        return f"{self.root}/queries"

    def query(self, query: QueryId) -> str:
        """One query."""
        return f"{self.queries}/{query}"

    @property
    def keys(self) -> str:
        """Parent of the API keys; written at each change of one, as `tasks` is."""
        return f"{self.root}/keys"

    def key(self, key: KeyId) -> str:
        """What is known of one key."""
        return f"{self.keys}/{key}"

    @property
    def members(self) -> str:
        """Parent of the roles, which are the parents of the members."""
        return f"{self.root}/members"

    def role(self, role: str) -> str:
        """Parent of the members of one role."""
        return f"{self.members}/{role}"

    def member(self, role: str, member: MemberId) -> str:
        """A live process; ephemeral."""
        return f"{self.role(role)}/{member}"

    @property
    def election(self) -> str:
        """Parent of the candidates, which are ephemeral and numbered."""
        return f"{self.root}/election"

    def candidate(self, name: str) -> str:
        """One candidate, by the name that ZooKeeper gave it."""
        return f"{self.election}/{name}"

    @property
    def assignment(self) -> str:
        """Which reducer owns which bucket; empty until a leader has published."""
        return f"{self.root}/assignment"

    @property
    def leader_epoch(self) -> str:
        """The highest leader epoch ever taken, in decimals."""
        return f"{self.root}/leader_epoch"
