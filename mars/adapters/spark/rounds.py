"""Structured Streaming as a clock and a cluster: round after round of work that somebody plans.

    driver's machine                                            executors
    planner process: pending? ── plan ──▶ works ── one task each ──▶ work() ──▶ bytes, bytes ...
                         ▲                                                        │
    our process:         └──── the next round ◀──── take(bytes of all works) ◀────┘ collect

A source's offset is the number of the round and nothing else. Where a round begins is for the
planner to find out, from what is true outside of Spark; so nothing that Spark remembers is needed
after a restart, and its checkpoint is thrown away with the query.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery

from mars.adapters.spark.errors import SPARK_ERRORS, driver_is_gone, translated
from mars.adapters.spark.session import close_session, forget_session, open_session
from mars.core.errors import MarsError, Unavailable
from mars.core.garbage import settle_garbage_collection
from mars.core.settings import Settings

SOURCE = "mars-rounds"
COLUMN = "outcome"
PLANNER_FILE = "planner"

_SCHEMA = pa.schema([(COLUMN, pa.binary())])

RESTART_PAUSE_S = 2.0
"""Between the end of a query that failed and the next one: an executor or a broker that is gone is
back in seconds, and a query costs a second to begin."""

LOOK_S = 1
"""How soon a query is stopped after it was asked for."""

STOP_S = 20
"""How long a query may take to stop, with a round under way; then the session is closed anyway."""

ROUNDS_KEPT = 10
"""Rounds whose files Spark keeps in the checkpoint; none is ever read again."""


class RoundWork(Protocol):
    """What one task of a round does; it travels to an executor with all that it holds."""

    def __call__(self) -> Iterator[bytes]:
        """Do it. What it raises ends the query, so it raises only what concerns all."""


class Planner(Protocol):
    """Says what is to be done; lives in a process of its own on the driver's machine."""

    def pending(self) -> bool:
        """Whether a round is due. Asked a hundred times a second: wait here if there is nothing."""

    def plan(self) -> Sequence[RoundWork]:
        """The works of the next round; may be asked more than once for a round."""

    def close(self) -> None:
        """Free everything."""


MakePlanner = Callable[[], Planner]
"""Makes a planner in its process; it travels there, with the passwords that it needs."""


class Stop(Protocol):
    """Tells when to end; may be set from any thread."""

    @property
    def stopping(self) -> bool:
        """True from then on."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for it; True if it is so."""


# ------------------------------------------------------------------------------------ the source


class RoundsPartition(InputPartition):
    """One work of a round, as Spark carries it."""

    def __init__(self, work: RoundWork) -> None:
        super().__init__(work)


class RoundsReader(DataSourceStreamReader):
    """Counts rounds, and runs works.

    One object lives in the planner's process, and a copy without a planner in each executor.
    """

    def __init__(self, planner: Planner | None) -> None:
        self._planner = planner

    def __reduce__(self) -> tuple[type[RoundsReader], tuple[None]]:
        return RoundsReader, (None,)  # a planner and its connections stay where they are

    def _here(self) -> Planner:
        if self._planner is None:
            raise RuntimeError("an executor plans nothing")
        return self._planner

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 -- Spark's name
        """Before the first round."""
        return {"round": 0}

    def latestOffset(  # noqa: N802 -- Spark's name
        self, start: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """The next round if there is anything to do in it."""
        del limit  # the planner has its own
        return {"round": start["round"] + 1} if self._here().pending() else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The works of a round."""
        return [] if start == end else [RoundsPartition(work) for work in self._here().plan()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: do one work."""
        settle_garbage_collection()
        for outcome in partition.value():
            yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], schema=_SCHEMA)

    def stop(self) -> None:
        """The query has ended."""
        if self._planner is not None:
            self._planner.close()


class RoundsSource(DataSource):
    """The source by its name; its option `folder` names the folder with the planner's file.

    The planner is in no option: options travel to executors and stand in query plans.
    """

    @classmethod
    def name(cls) -> str:
        """As in `readStream.format`."""
        return SOURCE

    def schema(self) -> str:
        """One column of whatever works give."""
        return f"{COLUMN} binary"

    def streamReader(self, schema: object) -> RoundsReader:  # noqa: N802 -- Spark's name
        """On the driver's machine, where the folder is."""
        del schema
        options: MutableMapping[str, str] = self.options
        return RoundsReader(_LazyPlanner(Path(options["folder"]) / PLANNER_FILE))


class _LazyPlanner:
    """Made when it is first asked: Spark makes readers that it never asks."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._made: Planner | None = None

    def _planner(self) -> Planner:
        if self._made is None:
            make: MakePlanner = cloudpickle.loads(self._file.read_bytes())
            self._made = make()
        return self._made

    def pending(self) -> bool:
        return self._planner().pending()

    def plan(self) -> Sequence[RoundWork]:
        return self._planner().plan()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None


# ------------------------------------------------------------------------------------ the driver


class Rounds:
    """Runs rounds on a Spark session until it is told to end; a query that fails begins again."""

    def __init__(
        self,
        settings: Settings,
        make_planner: MakePlanner,
        take: Callable[[list[bytes]], None],
        notice: Callable[[MarsError | None], None],
    ) -> None:
        """`take` gets what the works of a round gave, in a thread of its own, a round at a time.

        `notice` gets None when a query runs, and the error when it has failed.
        """
        self._settings = settings
        self._make_planner = make_planner
        self._take = take
        self._notice = notice
        self._session: SparkSession | None = None
        self._numbers = itertools.count(1)

    def run(self, stop: Stop) -> None:
        """Go on until told to stop; then close the session."""
        try:
            while not stop.stopping:
                try:
                    self._query(stop)
                except (*SPARK_ERRORS, MarsError) as error:
                    self._failed(error, stop)
                    stop.wait(RESTART_PAUSE_S)
        finally:
            session, self._session = self._session, None
            if session is not None:
                close_session(session)

    def _failed(self, error: Exception, stop: Stop) -> None:
        if not isinstance(error, MarsError) and driver_is_gone(error):
            self._session = None
            forget_session()
        problem = translated(error)
        if isinstance(problem, Unavailable):
            problem = Unavailable(problem.service, problem.detail.partition("\n")[0])
        if not stop.stopping:
            self._notice(problem)

    def _query(self, stop: Stop) -> None:
        """One query, from its begin to its end. Raises what pyspark raises, and Unavailable."""
        if self._session is None:
            self._session = open_session(self._settings, self._settings.member or "mapper")
        with _folder(self._make_planner) as folder:
            query = self._started(self._session, folder)
            self._notice(None)
            try:
                while not stop.stopping:
                    if query.awaitTermination(LOOK_S):
                        return
            finally:
                with contextlib.suppress(*SPARK_ERRORS):
                    query.stop()

    def _started(self, session: SparkSession, folder: Path) -> StreamingQuery:
        for key, value in _properties().items():
            session.conf.set(key, value)
        session.dataSource.register(RoundsSource)
        rounds = session.readStream.format(SOURCE).option("folder", str(folder)).load()
        return (
            rounds.writeStream.queryName(f"mars-rounds-{next(self._numbers)}")
            .option("checkpointLocation", (folder / "checkpoint").as_uri())
            .foreachBatch(self._batch)
            .start()
        )

    def _batch(self, rows: DataFrame, _number: int) -> None:
        self._take([bytes(row[0]) for row in rows.collect()])


def _properties() -> Mapping[str, Any]:
    return {
        "spark.sql.streaming.stopTimeout": f"{STOP_S}s",
        "spark.sql.streaming.minBatchesToRetain": ROUNDS_KEPT,
    }


@contextlib.contextmanager
def _folder(make_planner: MakePlanner) -> Iterator[Path]:
    """A folder for its owner only, with the planner in it, for as long as a query runs."""
    folder = Path(tempfile.mkdtemp(prefix="mars-rounds-"))
    try:
        planner: bytes = cloudpickle.dumps(make_planner)  # type: ignore[no-untyped-call]
        (folder / PLANNER_FILE).write_bytes(planner)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
