"""The verdict on what users did to their tasks over the rows of a load."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from confluent_kafka import Message

from mars.core.definitions import TaskVersion
from mars.core.errors import MarsError
from tests.support.chronicle import TaskStory
from tests.support.cluster import wait_for
from tests.support.load import Load, Row
from tests.support.poison import rows_of
from tests.support.queries import Query
from tests.support.rows import Result
from tests.support.store import Store
from tests.support.users import Registration, Users, identity
from tests.support.versions import Life, SourceRow, assert_exact, rows_between

DRAIN_S = 120.0
"""From the last row to the last result, the longest recovery included."""

REVISED_S = 30.0
"""From the last row counted to the last revision."""


class UsersCheck:
    """Compares results, ledgers and what the API said with what lies in the topic."""

    def __init__(self, users: Users, load: Load) -> None:
        self.users = users
        self.load = load
        self.mars = load.mars
        self.queries = users.queries
        self._messages = self.mars.messages(load.name)
        self.source = source_rows(self._messages, load.rows, load.closing(load.rows))
        self.lives = {
            name: story.lives(self._query_of) for name, story in users.chronicle.stories.items()
        }

    def check(self, *, seconds: float = DRAIN_S) -> None:
        """Each version of each life is exact; what was answered is so; ledgers balance."""
        for story in self.users.chronicle.stories.values():
            self._check_answers(story)
        for user in self.users.users:
            for registration in user.registrations:
                self._check_start(registration)
        for lives in self.lives.values():
            for life in lives:
                if not life.ended:
                    self._check_ledger(life, seconds)
        self._check_results()

    def delete_all(self) -> None:
        """End what lives: no key of any of these tasks stays in the store."""
        for name, lives in self.lives.items():
            if lives and not lives[-1].ended:
                self.mars.client.delete_task(name)
        with Store(self.mars) as store:
            wait_for(
                "no key of deleted tasks",
                lambda: not [key for name in self.users.names for key in store.keys_of(name)],
            )

    @property
    def versions(self) -> int:
        """How many have begun."""
        return sum(len(life.versions) for lives in self.lives.values() for life in lives)

    def _query_of(self, version: TaskVersion) -> Query:
        return self.queries[identity(version.sql, dict(version.options))]

    # ------------------------------------------------------------------------------- results

    def _check_results(self) -> None:
        deadline = time.monotonic() + REVISED_S
        while True:
            try:
                self._compare()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _compare(self) -> None:
        came: dict[str, list[Result]] = {name: [] for name in self.lives}
        for result in self.mars.read(self.users.output_topic):
            came[result[2]["mars-task"]].append(result)
        for name, lives in self.lives.items():
            assert_exact(name, lives, self.source, came[name])

    # -------------------------------------------------------------------------------- ledgers

    def _check_ledger(self, life: Life, seconds: float) -> None:
        """All messages from its start on are read, and each is where it belongs."""
        client, wanted = self.mars.client, _Counts(life, self.source)

        def all_told() -> bool:
            ledger = client.ledger(life.task)
            return ledger.read >= wanted.read and ledger.open == 0

        try:
            wait_for(f"{wanted.read} rows of {life.task}", all_told, seconds=seconds)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self._told_of(life.task)}") from problem
        ledger = client.ledger(life.task)
        told = f"{life.task} has {ledger}, wanted {wanted}"
        assert (ledger.read, ledger.late) == (wanted.read, 0), told
        assert ledger.counted == ledger.emitted == wanted.counted, told
        assert (ledger.filtered, ledger.bad + ledger.future) == (wanted.filtered, wanted.bad), told

    def _told_of(self, name: str) -> str:
        """What Mars itself says of a task."""
        client = self.mars.client
        try:
            return f"{client.ledger(name)}\n{client.task(name).detail}\n{client.why(name)}"
        except MarsError as problem:
            return str(problem)

    # -------------------------------------------------------------------------------- answers

    def _check_answers(self, story: TaskStory) -> None:
        """Each version that the API has answered is there, with its query."""
        for user in self.users.users:
            for (name, number), sql in user.answered.items():
                if name == story.name:
                    version = story.versions.get(number)
                    assert version is not None, f"{name} version {number} was answered, and is not"
                    assert version.sql == sql, f"{name} version {number}: {version.sql}, not {sql}"

    def _check_start(self, registration: Registration) -> None:
        """A life begins where it was to."""
        lives = self.lives[registration.name]
        life = next(one for one in lives if one.versions[0].number == registration.version)
        starts = life.versions[0].starts
        if isinstance(registration.start, int):
            assert_starts_at(registration, starts, self._messages)
            return
        for message in self._messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            (_, at_ms) = message.timestamp()
            if registration.start == "earliest" or at_ms > registration.answered_ms:
                told = f"{registration}: offset {offset} of partition {partition}, written {at_ms}"
                assert offset >= starts.get(partition, 0), told


def assert_starts_at(
    registration: Registration, starts: Mapping[int, int], messages: Iterable[Message]
) -> None:
    """A start by time is the first message that is not older; what lies behind it may be.

    So it is in a topic with several producers, where one's messages may wait while Kafka stands
    still. Where no message was that young, the start is the partition's end of then.
    """
    reached: dict[int, int] = {}
    partitions = set[int]()
    for message in messages:
        partition = message.partition() or 0
        partitions.add(partition)
        (_, at_ms) = message.timestamp()
        if isinstance(registration.start, int) and at_ms >= registration.start:
            reached.setdefault(partition, message.offset() or 0)
    for partition in sorted(partitions):
        start, first = starts.get(partition, 0), reached.get(partition)
        was_end = start >= registration.there.get(partition, 0) and (first is None or start < first)
        told = f"{registration}: partition {partition} from {start}, where {first} is the first"
        assert start == first or was_end, told


class _Counts:
    """What the ledger of a life must say."""

    def __init__(self, life: Life, source: Sequence[SourceRow]) -> None:
        self.read = self.counted = self.bad = 0
        for version, following in life.spans():
            own = rows_between(version, following, source)
            self.read += sum(each.rows for each in own)
            self.bad += sum(each.rows for each in own if each.row is None)
            self.counted += len(version.query.counted(each.row for each in own))
        self.filtered = self.read - self.bad - self.counted

    def __repr__(self) -> str:
        return f"read={self.read} filtered={self.filtered} bad={self.bad} counted={self.counted}"


def source_rows(
    messages: Sequence[Message], rows: Sequence[Row], closing: Sequence[Row]
) -> list[SourceRow]:
    """The topic as it is. Fails where it has not each row once; what is none of them is bad."""
    known: Mapping[bytes, Row] = {msgspec.json.encode(row): row for row in (*rows, *closing)}
    found = []
    for each in messages:
        value = each.value() or b""
        place = each.partition() or 0, each.offset() or 0
        found.append(SourceRow(*place, known.get(value), rows_of(value)))
    times = Counter(each.row["id"] for each in found if each.row is not None)
    wrong = [row["id"] for row in known.values() if times[row["id"]] != 1]
    assert not wrong, f"the topic itself has not each row once: {wrong[:5]}"
    return found
