"""The ten commonest complaints about a service like this: each time `why` tells the reason in one
sentence, and so does a preview where the reason lies in the rows.

Each has a topic, a stream and a task of its own, called after it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.support.cluster import MarsCluster, wait_for

pytestmark = pytest.mark.acceptance

FIELDS = {"at": "timestamp_ms", "page": "string", "bytes": "int64"}
SQL = "SELECT page, count(*), sum(bytes) AS bytes FROM {name} GROUP BY page WINDOWING 10 s"

HOUR_MS = 3_600_000
SAID_S = 30.0
"""For a sentence to be said; on a quiet machine it takes one to three seconds."""

LOOK_S = 0.3

PREVIEW_S = 60.0
"""The most that a preview looks back: all of a complaint, on a slow machine too."""

MAX_KEYS = 5


class Complaint:
    """A topic, a stream over it and a task, of one name."""

    def __init__(self, mars: MarsCluster, name: str, partitions: int, **options: object) -> None:
        self.mars, self.name = mars, name
        self.options = {"idle_after": "1s", **options}
        mars.topic(name, partitions)
        stream = {"topic": name, "format": "json", "fields": FIELDS, "event_time": "at"}
        mars.client.put_stream(name, stream)
        mars.client.create_task(name, self.sql, options=self.options)

    @property
    def sql(self) -> str:
        return SQL.format(name=self.name)

    def send(self, rows: Iterable[dict[str, object]], partition: int = 0) -> None:
        """Rows to one partition."""
        self.mars.produce(self.name, [(partition, json.dumps(row).encode()) for row in rows])

    def says(self, pattern: str, *, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Wait until `why` says so in one sentence, and return it; `meanwhile` before each look."""
        last = ""

        def said() -> bool:
            nonlocal last
            meanwhile()
            last = self.mars.client.why(self.name).summary
            return re.search(pattern, last) is not None

        try:
            wait_for(f"why to say {pattern}", said, seconds=SAID_S, pause_s=LOOK_S)
        except AssertionError as problem:
            raise AssertionError(f"{self.name}: it says: {last}") from problem
        return last

    def previewed(self) -> str:
        """What a preview of the same query notes and predicts."""
        found = self.mars.client.preview(self.sql, options=self.options, seconds=PREVIEW_S)
        return " ".join([*found.notes, *found.predictions.sentences])


Complain = Callable[..., Complaint]


@pytest.fixture
def complain(shared_mars: MarsCluster) -> Iterator[Complain]:
    """Makes complaints, whose tasks end with the test."""
    made: list[Complaint] = []

    def make(name: str, partitions: int = 1, **options: object) -> Complaint:
        made.append(Complaint(shared_mars, f"complaint_{name}", partitions, **options))
        return made[-1]

    yield make
    for one in made:
        shared_mars.client.delete_task(one.name)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rows_at(*times_ms: int) -> list[dict[str, object]]:
    """A row at each time, all of one group: what is late is decided by each bucket for itself."""
    return [{"at": at, "page": "index", "bytes": 5} for at in times_ms]


# ----------------------------------------------------------------------- what is wrong with rows


def test_1_a_partition_that_nobody_writes_to(complain: Complain) -> None:
    here = complain("idle_partition", partitions=2, idle_after="1h")
    here.send(rows_at(now_ms() - 30_000, now_ms()))
    here.says(
        r"^The window .* waits: partition 1 has had no row yet; it no longer holds windows back "
        r"once it has been idle for 1 h \(idle_after\)\.$"
    )
    assert re.search(
        r"Partition 1 (had no message in the last 60 s|never had a message, or none that is kept): "
        r"windows wait for it until it has been idle for 1 h \(idle_after\)\.",
        here.previewed(),
    )


def test_2_a_row_from_the_future(complain: Complain) -> None:
    here = complain("future")
    here.send(rows_at(now_ms() - 20_000, now_ms() + HOUR_MS))
    here.says(
        r"Of 2 rows read, some were not counted: 1 too far in the future \(for example `at` is "
        r"(1 h|59\.\d min|60 min) after Kafka got the row, and future_limit is 5 min: partition 0, "
        r"offset 1\)\.$"
    )
    assert "1 of 2 rows have an event time far after they came" in here.previewed()


def test_2_a_row_from_the_near_future_that_makes_all_others_late(complain: Complain) -> None:
    here = complain("near_future")
    here.send(rows_at(now_ms() + 200_000))
    # Idle after five seconds: who looks later than that, on a busy machine, hears of the clock.
    here.says("has not ended yet|all partitions are idle")
    here.says(  # a bucket has to close windows up to that row first
        r"\d late \(windows had closed before them, because a row of partition 0 is of .*Z, 3\.\d* "
        r"min ahead of now: a smaller future_limit leaves such rows out\)\.$",
        meanwhile=lambda: here.send(rows_at(now_ms())),
    )
    assert re.search(r"Rows come up to (200|19\d) s behind newer ones", here.previewed())


def test_3_seconds_declared_as_milliseconds(complain: Complain) -> None:
    here = complain("seconds")
    here.send(rows_at(now_ms() // 1_000))
    hint = "if at counts seconds, declare it timestamp_s in the stream."
    here.says(rf"All event times lie before 2001, the newest at 1970-.*Z: {hint}$")
    assert f"All event times lie before 2001, but the messages do not: {hint}" in here.previewed()


def test_3_microseconds_declared_as_milliseconds(complain: Complain) -> None:
    here = complain("microseconds")
    here.send(rows_at(now_ms() * 1_000))
    hint = "if at counts microseconds, declare it timestamp_us in the stream."
    here.says(
        r"^No window is open: of 1 row read, 1 bad \(for example `at` is outside the years 1 to "
        rf"9999: partition 0, offset 0\); {hint}$"
    )
    assert f"Event times lie far ahead: {hint}" in here.previewed()


def test_4_a_field_that_is_missing(complain: Complain) -> None:
    here = complain("missing_field")
    here.send([{"time": now_ms(), "pages": "a", "bytes": 5}])
    here.says(
        r"^No window is open: of 1 row read, 1 bad \(for example `at` is missing or NULL: "
        r"partition 0, offset 0\)\.$"
    )
    assert "1 of 1 rows have no usable event time, such as: `at` is missing" in here.previewed()
    here.send([{"at": now_ms(), "pages": "a", "bytes": 5}])
    wait_for("the preview", lambda: "Field page is missing or NULL in every" in here.previewed())


def test_5_a_value_of_a_wrong_type(complain: Complain) -> None:
    here = complain("wrong_type")
    here.send([{"at": now_ms(), "page": "a", "bytes": "5"}])
    here.says(
        r"^No window is open: of 1 row read, 1 bad \(for example `bytes` is not a valid int64: "
        r"partition 0, offset 0\)\.$"
    )
    assert (
        "1 of 1 rows have a value of a wrong type, such as: `bytes` is not a valid"
        in here.previewed()
    )


def test_6_a_topic_without_messages(complain: Complain) -> None:
    here = complain("empty")
    here.says(rf"^No row has come to topic {here.name} since the task's start offsets\.$")
    assert f"Topic {here.name} has no messages: send some" in here.previewed()


def test_7_rows_that_are_all_late(complain: Complain) -> None:
    here = complain("late")
    here.send(rows_at(now_ms() - 20_000))
    here.says("all windows with rows are closed")
    here.send(rows_at(*[now_ms() - 60_000] * 5))
    here.says(
        r"Of 6 rows read, some were not counted: 5 late \(their windows had closed: a longer delay "
        r"than 0 s keeps windows open for such rows\)\.$"
    )
    assert "would be late; use a delay of 60 s." in here.previewed()


# ------------------------------------------------------------------------ what is wrong elsewhere


def test_8_a_mapper_that_is_stopped(complain: Complain, shared_mars: MarsCluster) -> None:
    here = complain("stopped_mapper", partitions=2)
    here.send(rows_at(now_ms()))
    here.says("^The window(?!.* no mapper reads)")
    with shared_mars.stopped("mapper-1", "mapper-2"):
        for partition in (0, 1):
            here.send(rows_at(now_ms()), partition)
        here.says(
            r"mapper-\d, which reads partition \d, has said nothing for \S+ s; it is stopped, cut "
            r"off or overloaded\."
        )
    here.says("^(?!.*said nothing)")


def test_9_a_task_that_is_paused(complain: Complain, shared_mars: MarsCluster) -> None:
    here = complain("paused")
    shared_mars.client.pause_task(here.name)
    here.says(r"^The task is paused: resume it to go on where it stopped\.$")


def test_10_a_task_over_its_limit(complain: Complain) -> None:
    here = complain("over_limit", max_keys=MAX_KEYS)
    here.send({"at": now_ms(), "page": f"p{number}", "bytes": 5} for number in range(50))
    here.says(
        r"^The task has failed, and takes no rows until it is resumed: the window that begins at "
        rf"\S+ \S+Z has 50 groups so far, and max_keys is {MAX_KEYS}: delete the task and register "
        r"it again with a larger max_keys or none, .*\.$"
    )
    assert f"That is more than max_keys ({MAX_KEYS}): the task would fail." in here.previewed()
