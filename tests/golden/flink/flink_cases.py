"""Cases whose rows Flink has computed: what `cases.toml` holds, and what is saved of Flink.

    sql         the query, over the stream S: the same text for both engines
    rows        a set of rows by its name in `rows.py`
    columns     the result columns behind window_start and window_end, with Flink's types
    [.differs]  where Mars means another thing: `why`, which a page or a decision says; `sql`, by
                which Mars gives Flink's rows after all; `but`, columns that differ still

`results/<name>.ndjson` has a line that says which Flink computed what, and the rows. After a change
of cases or rows: `python -m tests.golden.flink.generate`.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import StreamName
from tests.golden.flink.rows import SETS, Row
from tests.golden.golden_cases import Case

HERE = Path(__file__).parent
RESULTS = HERE / "results"

STREAM = Stream(
    StreamName("S"),
    "rows",
    Format.JSON,
    (
        Field("ts", FieldType.TIMESTAMP_ISO),
        Field("k", FieldType.INT64),
        Field("host", FieldType.STRING),
        Field("v", FieldType.INT64),
        Field("x", FieldType.FLOAT64),
        Field("ok", FieldType.BOOL),
    ),
    "ts",
)


@dataclass(frozen=True, slots=True)
class Departure:
    """What Mars does otherwise; `but` are columns that differ even with its own query."""

    why: str
    sql: str
    but: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlinkCase:
    """One case."""

    name: str
    sql: str
    row_set: str
    columns: str
    differs: Departure | None

    @property
    def messages(self) -> list[bytes]:
        """What both engines read."""
        return [json.dumps(row).encode() for row in SETS[self.row_set].rows]

    @property
    def digest(self) -> str:
        """Of all that Flink's result depends on."""
        text = json.dumps([self.sql, self.columns, SETS[self.row_set].delay_s])
        return hashlib.sha256(b"\n".join([text.encode(), *self.messages])).hexdigest()

    @property
    def result(self) -> Path:
        """Where Flink's rows are saved."""
        return RESULTS / f"{self.name}.ndjson"

    @property
    def mars_sql(self) -> str:
        """The query by which Mars gives Flink's rows."""
        return self.sql if self.differs is None else self.differs.sql

    @property
    def but(self) -> tuple[str, ...]:
        """Columns that differ with that query, too."""
        return () if self.differs is None else self.differs.but

    def run_by(self, sql: str) -> Case:
        """A case as Mars runs it: of this query or of another one over the same rows."""
        rows = [dict(row) for row in SETS[self.row_set].rows]
        return Case(sql, "", rows, [], self.messages, STREAM, "")


def flink_cases() -> dict[str, FlinkCase]:
    """All cases, by name."""
    content = tomllib.loads((HERE / "cases.toml").read_text())
    return {name: _case(name, one) for name, one in content.items()}


def _case(name: str, content: Row) -> FlinkCase:
    differs = content.get("differs")
    departure = None
    if differs is not None:
        departure = Departure(differs["why"], differs["sql"], tuple(differs.get("but", ())))
    return FlinkCase(name, content["sql"].strip(), content["rows"], content["columns"], departure)


def saved(case: FlinkCase) -> tuple[Row, list[Row]]:
    """What is said of a result, and its rows."""
    about, *rows = (json.loads(line) for line in case.result.read_text().splitlines())
    return about, rows


def without(columns: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """The rows without these columns."""
    return [{name: row[name] for name in row if name not in columns} for row in rows]
