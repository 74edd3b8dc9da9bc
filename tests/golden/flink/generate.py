"""Let Flink compute all cases: `python -m tests.golden.flink.generate [--keep FOLDER]`.

One JVM runs them as one job for each set of rows, with a cluster of its own within. It takes a
minute or two, and fetches Flink's jars where they are missing. Read the difference of `results`
before it is committed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.flink.parts import VERSION, SqlClient, configure
from mars.core.errors import LocalClusterError
from tests.golden.flink.flink_cases import RESULTS, FlinkCase, flink_cases
from tests.golden.flink.rows import SETS, Row

FINISH_S = 900.0
"""Longest run of all cases."""

TIMES = "window_start TIMESTAMP(3), window_end TIMESTAMP(3)"

CONFIGURATION: Mapping[str, str] = {
    "execution.target": "local",
    "execution.runtime-mode": "streaming",
    "parallelism.default": "1",
    "taskmanager.memory.managed.size": "256m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "table.local-time-zone": "UTC",
}

JSON = "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"

SOURCE = """
DROP TEMPORARY TABLE IF EXISTS S;
CREATE TEMPORARY TABLE S (
  ts TIMESTAMP_LTZ(3), k BIGINT, host STRING, v BIGINT, x DOUBLE, ok BOOLEAN,
  WATERMARK FOR ts AS ts - INTERVAL '{delay}' HOUR TO SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', {json});
"""

SINK = """
CREATE TEMPORARY TABLE `{name}` ({columns})
WITH ('connector' = 'filesystem', 'path' = '{path}', {json});
"""


class LocalFlink(SqlClient):
    """The SQL client, with the cluster in its own JVM."""

    heap = "800m"

    def machine_options(self) -> Sequence[str]:
        """Few threads, and what the cluster takes off the heap."""
        return [*super().machine_options(), "-XX:MaxDirectMemorySize=500m", "-XX:CICompilerCount=2"]


def statements(cases: Sequence[FlinkCase], folder: Path) -> str:
    """The script: for each set of rows its table, a sink for each case, and all cases at once."""
    parts = ["SET 'table.dml-sync' = 'true';"]
    for row_set in sorted({case.row_set for case in cases}):
        members = [case for case in cases if case.row_set == row_set]
        path = folder / "rows" / f"{row_set.replace(' ', '_')}.ndjson"
        path.write_bytes(b"".join(line + b"\n" for line in members[0].messages))
        delay = timedelta(seconds=SETS[row_set].delay_s)
        parts.append(SOURCE.format(delay=delay, path=path.as_uri(), json=JSON))
        for case in members:
            sink = (folder / "out" / case.name).as_uri()
            columns = f"{TIMES}, {quoted(case.columns)}"
            parts.append(SINK.format(name=case.name, columns=columns, path=sink, json=JSON))
        inserts = [f"INSERT INTO `{case.name}`\n{case.sql};" for case in members]
        parts.append("\n".join(["EXECUTE STATEMENT SET BEGIN", *inserts, "END;"]))
    return "\n".join(parts)


def quoted(columns: str) -> str:
    """A column list whose names may be words of SQL."""
    pairs = (column.strip().split(" ", 1) for column in columns.split(","))
    return ", ".join(f"`{name}` {type_}" for name, type_ in pairs)


def run(cases: Sequence[FlinkCase], folder: Path) -> None:
    """Run Flink over all cases. Raises LocalClusterError with the end of its log."""
    for name in ("rows", "out"):
        (folder / name).mkdir(parents=True)
    configure(folder, {**CONFIGURATION, "io.tmp.dirs": str(folder / "tmp")})
    (folder / "job.sql").write_text(statements(cases, folder))
    client = LocalFlink(folder, None)
    client.start()
    client.wait_ended(FINISH_S)
    log = client.log.read_text("utf-8", "replace")
    if client.exit_code != 0 or "[ERROR]" in log:
        raise LocalClusterError(f"Flink failed ({client.how_it_ended()}):\n{log[-6000:]}")


def rows_of(case: FlinkCase, folder: Path) -> list[Row]:
    """What Flink wrote for a case, with times in milliseconds, in a fixed order."""
    files = [one for one in (folder / "out" / case.name).rglob("*") if one.is_file()]
    lines = [line for file in sorted(files) for line in file.read_text().splitlines()]
    columns = f"{TIMES}, {case.columns}".split(", ")
    times = [column.split(" ")[0] for column in columns if " TIMESTAMP" in column]
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.update({name: _ms(row[name]) for name in times if row[name] is not None})
    return sorted(rows, key=lambda row: [_rank(value) for value in row.values()])


def _ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round(moment.replace(tzinfo=UTC).timestamp() * 1_000)


def _rank(value: object) -> tuple[bool, float, str]:
    return value is None, value if isinstance(value, int | float) else 0, str(value)


def save(case: FlinkCase, rows: Sequence[Row]) -> None:
    """Write the file of a case."""
    about = {"flink": VERSION, "of": case.digest}
    lines = [json.dumps(one) for one in (about, *rows)]
    case.result.write_text("".join(f"{line}\n" for line in lines))


def main() -> None:
    """Run all cases, then write their files; files of cases that are gone go, too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep", type=Path, help="a new folder where the run's files stay, to look at"
    )
    keep = parser.parse_args().keep
    cases = list(flink_cases().values())
    with tempfile.TemporaryDirectory() as temporary:
        folder = (keep or Path(temporary)).absolute()
        run(cases, folder)
        found = {case: rows_of(case, folder) for case in cases}
    RESULTS.mkdir(exist_ok=True)
    for file in RESULTS.glob("*.ndjson"):
        file.unlink()
    for case, rows in found.items():
        save(case, rows)
        sys.stdout.write(f"{case.name}: {len(rows)} rows\n")


if __name__ == "__main__":
    main()
