"""Figures that documents name are those of the code: limits, and numbers of formats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import aside, preview_schemas, query_schemas, schemas
from api.http import body, connections, limits, places
from api.http.turns import AllTurns, Turns
from api.routes import audits
from api.routes import tasks as task_routes
from api.services import access, queries, streams
from api.services.defining import making, set_steps
from api.services.inside import rereading, results, verifying, windows
from api.services.operation import figures
from api.services.previews import reading as preview_reading
from api.services.previews import service as preview
from api.services.previews import trial as preview_trial
from mars.adapters.kafka import wire
from mars.adapters.kafka.read import recent
from mars.adapters.spark import files, walking
from mars.adapters.zookeeper import nodes
from mars.core.settings import Settings
from mars.core.windows.shapes import OPEN_PANES_MAX
from mars.engine import finishing
from mars.engine.aggregates.distinct import DISTINCT_VALUES_MAX
from mars.engine.codec import entry, states
from mars.engine.decode import columns, long_keys, usable
from mars.engine.decode import limits as codec_limits
from mars.engine.decode.formats import arrow_size
from mars.engine.decode.formats import nesting as json_nesting
from mars.engine.evaluate import texts
from mars.inspect import explaining
from mars.process.telemetry import scraping
from mars.process.tracking import NOTES_WAITING_MAX
from mars.protocol.ports import seen
from mars.protocol.ports.access import NOTE_CHARACTERS_MAX, PATTERN_CHARACTERS_MAX, PATTERNS_MAX
from mars.protocol.ports.queries import ANSWER_BYTES_MAX
from mars.protocol.reducer import drafting
from mars.protocol.tracker import acking
from mars.protocol.windows import input as input_module
from mars.protocol.windows import turns as closing_turns
from mars.protocol.windows.panes import MERGE_ROWS_MIN
from mars.sql import keys, lengths, options, outputs, source, syntax, task
from mars.sql.expressions import compiler, functions, groups, operators
from mars.sql.windows import counting

DOCS = Path(__file__).parents[3] / "docs"

TABLE = re.compile(r"^\| limit \| value \| over it \|\n\| [- |]+ \|\n((?:\|.*\|\n)+)", re.MULTILINE)

DAY_MS = 86_400_000
SETTINGS = Settings()
ALL_TURNS = AllTurns()


def mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def kib(count: int) -> str:
    return f"{count / 2**10:,.0f} KiB"


def days(duration_ms: int) -> str:
    return f"{duration_ms / DAY_MS:,.0f} d"


def turns(kind: Turns) -> str:
    return f"{kind._at_once} and {kind._places.count - kind._at_once}"


LIMITS: dict[str, tuple[int | float | str, ...]] = {
    "request body; query to check; set of tasks": (
        mib(SETTINGS.api.body_bytes_max),
        kib(task_routes.VALIDATE_BYTES_MAX),
        mib(task_routes.SET_BYTES_MAX),
    ),
    "tasks of one set; written as one": (
        schemas.TASKS_MAX,
        nodes.STEP_MEMBERS_MAX,
        nodes.STEP_BYTES_MAX,
    ),
    "length of a query": (
        kib(source.TEXT_BYTES_MAX),
        source.TOKENS_MAX,
        source.NESTING_MAX,
        syntax.DEPTH_MAX,
    ),
    "size of a plan": (task.PLAN_NODES_MAX, compiler.EXPRESSION_NODES_MAX),
    "items of SELECT, keys, aggregates": (
        *{outputs.OUTPUTS_MAX, keys.KEYS_MAX, groups.AGGREGATES_MAX},
        outputs.NAME_CHARACTERS_MAX,
    ),
    "values of IN; pattern of LIKE": (operators.LIST_MAX, operators.PATTERN_CHARACTERS_MAX),
    "texts that one CONCAT joins, or a chain of `\\|\\|`": (functions.TEXTS_MAX,),
    "LIMIT": (task.LIMIT_MAX,),
    "window, slide and step": (
        lengths.WINDOW_MS_MIN,
        days(lengths.WINDOW_MS_MAX),
        lengths.PANES_MAX,
    ),
    "window and slide that count rows": (
        1,
        counting.ROWS_MAX,
        lengths.PANES_MAX,
        OPEN_PANES_MAX,
    ),
    "`max_keys`": (options.MAX_KEYS_MAX,),
    "`max_keys` where windows cumulate, or since a landmark": (task.STEP_ROWS_A_MINUTE_MAX,),
    "`delay`, `idle_after`, `future_limit`, `key_lag`": (
        days(options.DELAY_MS_MAX),
        days(options.IDLE_AFTER_MS_MAX),
        days(options.FUTURE_LIMIT_MS_MAX),
        days(options.KEY_LAG_MS_MAX),
    ),
    "`lateness`": (days(options.LATENESS_MS_MAX), options.WINDOWS_KEPT_MAX),
    "windows held by delay, lateness and `key_lag`": (OPEN_PANES_MAX,),
    "tasks, streams, API keys of a namespace": (
        *{SETTINGS.api.tasks_max, streams.STREAMS_MAX, access.KEYS_MAX},
    ),
    "fields of a stream": (
        streams.FIELDS_MAX,
        streams.FIELD_NAME_CHARACTERS_MAX,
        kib(streams.STREAM_BYTES_MAX),
    ),
    "definition of a task, with its versions and files": (making.DEFINITION_BYTES_MAX,),
    "files of a history": (files.FILES_MAX,),
    "listing of a history's folder": (
        walking.ENTRIES_MAX,
        walking.DEPTH_MAX,
        f"{walking.LISTING_S:g} s",
    ),
    "a query's rows; time; bytes": (
        query_schemas.ROWS_MAX,
        f"{query_schemas.TIMEOUT_S_MAX // 3_600} h",
        mib(ANSWER_BYTES_MAX),
    ),
    "queries that are kept": (queries.QUERIES_KEPT,),
    "patterns of a key; length; note": (
        PATTERNS_MAX,
        PATTERN_CHARACTERS_MAX,
        NOTE_CHARACTERS_MAX,
    ),
    "requests of a key, or of an address without one": (
        SETTINGS.api.requests_per_second,
        f"{limits.BURST_S:g} s",
    ),
    "rows of open windows in an answer": (windows.LIMIT_MAX, windows.WINDOWS_MAX),
    "rows of finished windows in an answer": (windows.LIMIT_MAX,),
    "messages searched for a finished window": (recent.SCAN_MESSAGES_MAX,),
    "uncounted rows, or incidents, in an answer": (audits.LIMIT_MAX,),
    "windows that `why` explains": (explaining.OPEN_WINDOWS_MAX,),
    "requests at a metrics port; silence in one": (
        scraping.CONNECTIONS_MAX,
        f"{scraping.SILENCE_S:.0f} s",
    ),
    "connections; time for headers; for a body": (
        Settings().api.connections_max,
        f"{connections.HEAD_S:g} s",
        f"{connections.BODY_S:g} s",
    ),
    "event streams of results; of figures": (results.FOLLOWERS_MAX, figures.FOLLOWERS_MAX),
    "previews": (preview.PREVIEWS_MAX,),
    "messages of a preview; bytes; time; rows": (
        preview_reading.MESSAGES_MAX,
        mib(preview_reading.BYTES_MAX),
        f"{preview_reading.READ_S_MAX:g} s",
        preview_trial.ROWS_MAX,
    ),
    "memory and time of a preview of a topic": (
        mib(aside.PREVIEWING.memory_bytes),
        f"{aside.PREVIEWING.time_s:g} s",
    ),
    "seconds of a preview; rows given; result rows of a window": (
        preview_schemas.SECONDS_MAX,
        preview_schemas.ROWS_MAX,
        preview_schemas.WINDOW_ROWS_MAX,
    ),
    "verified window: source offsets; source rows; result rows": (
        rereading.SOURCE_OFFSETS_MAX,
        rereading.SOURCE_ROWS_MAX,
        verifying.RESULT_ROWS_MAX,
    ),
    "looks into open windows, searches of topics": (
        turns(ALL_TURNS.logs),
        turns(ALL_TURNS.topics),
    ),
    "answers of queries": (turns(ALL_TURNS.rows),),
    "memory and time of a verification; of a listing of files": (
        mib(aside.VERIFYING.memory_bytes),
        f"{aside.VERIFYING.time_s:g} s",
        mib(aside.LISTING.memory_bytes),
        f"{aside.LISTING.time_s:g} s",
    ),
    "queries checked": (turns(ALL_TURNS.checks),),
    "tasks, queries and streams changed": (turns(ALL_TURNS.changes),),
    "of these places, for one key": (
        f"1/{places.SHARES}",
        preview.PREVIEWS_OF_A_KEY,
    ),
    "message": (mib(codec_limits.MESSAGE_BYTES_MAX),),
    "batch that the Kafka client unpacks": (mib(codec_limits.KAFKA_BATCH_BYTES_MAX),),
    "Arrow message, unpacked": (
        mib(codec_limits.UNPACKED_BYTES_MAX),
        f"{arrow_size.MESSAGE_ROWS_MAX // 2**20} Mi rows",
    ),
    "number with a fraction or an exponent, as an integer": (
        f"2^{columns.WHOLE_MAX.bit_length() - 1}",
    ),
    "bodies under way, together; sets of tasks beside them": (
        body.BODIES_AT_ONCE,
        mib(body.BODIES_AT_ONCE * SETTINGS.api.body_bytes_max),
        mib(task_routes.SET_BYTES_MAX),
    ),
    "wrong members that an answer names; wrong tasks of a set": (
        body.PROBLEMS_MAX,
        set_steps.WRONG_SHOWN,
    ),
    "sets of tasks made; windows verified": (turns(ALL_TURNS.sets), turns(ALL_TURNS.verifications)),
    "nesting of JSON": (json_nesting.NESTING_MAX,),
    "texts in GROUP BY, of a row, together": (kib(long_keys.KEY_BYTES_MAX),),
    "result: its key and its value in Kafka, together": (kib(finishing.RESULT_BYTES_MAX),),
    "rows named one by one": (usable.NAMED_MAX, input_module.LATE_WINDOWS_NAMED_MAX),
    "partials in Redis": (
        mib(SETTINGS.cluster.log_bytes_max),
        mib(2 * SETTINGS.cluster.log_bytes_max),
    ),
    "states that one batch adds to a bucket": (mib(states.BATCH_STATES_BYTES_MAX),),
    "states of a bucket merged, saved or in one partial of a history": (
        mib(states.STATES_BYTES_MAX),
    ),
    "slices of time open, or kept for late rows": (OPEN_PANES_MAX,),
    "text that CONCAT makes": (kib(texts.TEXT_BYTES_MAX),),
    "values of one `count(DISTINCT)`": (DISTINCT_VALUES_MAX,),
    "batch": (SETTINGS.mapper.batch_rows_max, mib(SETTINGS.mapper.batch_bytes_max)),
    "rows decoded at once; unpacked bytes of Arrow": (
        codec_limits.ROWS_MAX,
        mib(codec_limits.UNPACKED_BYTES_MAX),
    ),
    "windows that one commit closes, or revises": (
        closing_turns.WINDOWS_AT_ONCE,
        closing_turns.PANES_AT_ONCE,
        closing_turns.ROWS_AT_ONCE,
    ),
    "rows of a commit that tasks share": (SETTINGS.reducer.large_task_rows,),
    "draft of a window about to close": (
        SETTINGS.reducer.draft_rows_min,
        drafting.DRAFT_MS,
        f"{drafting.DRAFT_MS_MAX // 1000} s",
    ),
    "batches that a tracker follows": (acking.ROOTS_MAX, NOTES_WAITING_MAX, seen.KEPT),
}
"""What the rows of docs/reference/limits.md are about, and what their figures must be."""

WITHOUT_FIGURES = {
    "where files lie",
    "event time",
    "event time after the message's own time",
    "groups of a window",
    "result where Kafka takes less than usual",
}
"""Rows whose limits are an option, Kafka's, or a range of dates."""


def rows_of_limits() -> Iterator[tuple[str, str]]:
    """What each row is about, and its value."""
    for rows in TABLE.findall((DOCS / "reference" / "limits.md").read_text("utf-8")):
        for row in rows.splitlines():
            what, value, _over = row.strip("|").split(" | ")
            yield what.strip(), value


def test_limits_page_has_a_row_for_each_and_each_row_is_compared() -> None:
    written = [what for what, _value in rows_of_limits()]
    assert sorted(written) == sorted([*LIMITS, *WITHOUT_FIGURES])


@pytest.mark.parametrize("what", LIMITS)
def test_limit_that_a_page_names_is_that_of_the_code(what: str) -> None:
    value = dict(rows_of_limits())[what]
    for limit in LIMITS[what]:
        figure = limit if isinstance(limit, str) else f"{limit:,.0f}"
        assert re.search(rf"(?<![\d,]){re.escape(figure)}(?![\d,]*\d)", value), (figure, value)


def test_other_figures_of_the_limits_page_are_those_of_the_code() -> None:
    page = (DOCS / "reference" / "limits.md").read_text("utf-8")
    assert f"1 to {options.MAX_KEYS_MAX:,}" in page
    assert f"sooner where it has {MERGE_ROWS_MIN:,} more" in page


def test_upgrade_page_names_the_formats_that_are_written_and_read() -> None:
    page = (DOCS / "operate" / "upgrade.md").read_text("utf-8")
    *most, last = sorted(set(wire.FORMATS_READ) - {wire.FORMAT})
    older = f"{', '.join(map(str, most))} and {last}"
    assert f"| `mars.progress` | number {wire.FORMAT}; {older} are read, too |" in page
    assert f"| partials in Redis | number {entry.FORM}; 1 is read, too |" in page
