"""The names of the keys: all of a task under one hash tag, so that one script may touch them."""

from __future__ import annotations

from dataclasses import dataclass

from mars.core.types import Bucket, MemberId, TaskName

DEFAULT_NAMESPACE = "default"


def _prefix(namespace: str) -> str:
    return "mars" if namespace == DEFAULT_NAMESPACE else f"mars:{namespace}"


def store_key(namespace: str) -> str:
    """The sentinel: the epoch of all tasks of this store."""
    return f"{_prefix(namespace)}:store"


def mailbox_key(namespace: str, acker: MemberId) -> str:
    """The letters to one acker of the tuple tracker."""
    return f"{_prefix(namespace)}:tracker:{acker}"


@dataclass(frozen=True, slots=True)
class TaskKeys:
    """The keys of one task; what each holds is said in its scripts: `lua/append.lua` first."""

    prefix: str

    @classmethod
    def of(cls, namespace: str, task: TaskName) -> TaskKeys:
        """`mars:{task}`, or `mars:<namespace>:{task}`; the braces are Redis's hash tag."""
        return cls(f"{_prefix(namespace)}:{{{task}}}")

    @property
    def meta(self) -> str:
        """Epoch, versions, whether active, the leader heard of."""
        return f"{self.prefix}:meta"

    @property
    def offsets(self) -> str:
        """The compare-and-set fence, per lane."""
        return f"{self.prefix}:offsets"

    @property
    def marks(self) -> str:
        """Marks, per lane."""
        return f"{self.prefix}:marks"

    @property
    def taken(self) -> str:
        """When rows were last taken, per lane."""
        return f"{self.prefix}:taken"

    @property
    def idle(self) -> str:
        """Idle leases, per lane."""
        return f"{self.prefix}:idle"

    @property
    def seq(self) -> str:
        """SEQ."""
        return f"{self.prefix}:seq"

    @property
    def bytes(self) -> str:
        """Size of all logs."""
        return f"{self.prefix}:bytes"

    @property
    def bounds(self) -> str:
        """First offsets of each version, per lane."""
        return f"{self.prefix}:bounds"

    @property
    def cuts(self) -> str:
        """Offsets that no batch may straddle, per lane."""
        return f"{self.prefix}:cuts"

    @property
    def ends(self) -> str:
        """Where the lanes of backfills are finished."""
        return f"{self.prefix}:ends"

    @property
    def rows(self) -> str:
        """How many rows are counted, per lane; of windows that count them."""
        return f"{self.prefix}:rows"

    @property
    def cleared(self) -> str:
        """From where on assistants may merge, per bucket."""
        return f"{self.prefix}:cleared"

    @property
    def bell(self) -> str:
        """The channel of the doorbell; no key, but of the same hash slot."""
        return f"{self.prefix}:bell"

    def log(self, bucket: Bucket) -> str:
        """The entries of one bucket."""
        return f"{self.prefix}:log:{bucket}"

    def sizes(self, bucket: Bucket) -> str:
        """What each entry of one bucket counts for."""
        return f"{self.prefix}:sizes:{bucket}"

    def merged(self, bucket: Bucket) -> str:
        """What assistants have merged of one bucket."""
        return f"{self.prefix}:merged:{bucket}"

    def base(self, bucket: Bucket) -> str:
        """The merged entry of one bucket."""
        return f"{self.prefix}:base:{bucket}"

    def all(self, buckets: int) -> list[str]:
        """Every key; the first six are those that `lua/initialise.lua` sets."""
        found = [self.meta, self.offsets, self.bounds, self.cuts, self.ends, self.rows]
        found += [self.marks, self.taken, self.idle, self.seq, self.bytes, self.cleared]
        for number in range(buckets):
            bucket = Bucket(number)
            found += [self.log(bucket), self.sizes(bucket), self.base(bucket)]
            found.append(self.merged(bucket))
        return found
