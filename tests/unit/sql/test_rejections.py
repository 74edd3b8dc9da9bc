"""Queries that are refused: where the complaint points, what it says, and what to write instead.

In each query a `^` stands before the character that the complaint must point at.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mars.core.errors import SqlError
from mars.core.plan import Field, FieldType
from mars.core.types import TaskName
from mars.sql import compile_task, source_name
from tests.unit.sql.compiling import FLOWS, INSTEAD, compiled

W = "WINDOWING 60 s"


def refused(marked: str) -> str:
    """The complaint about a query; it must point at the mark, and say what is right."""
    at = marked.index("^")
    line, column = marked.count("\n", 0, at) + 1, at - (marked.rfind("\n", 0, at) + 1) + 1
    with pytest.raises(SqlError) as caught:
        compiled(marked.replace("^", ""))
    assert (caught.value.line, caught.value.column) == (line, column), caught.value.detail
    assert INSTEAD.search(caught.value.detail), caught.value.detail
    return caught.value.detail


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        ("^", "the query is empty"),
        ("^DELETE FROM S", "begins with SELECT"),
        (f"^INSERT INTO x SELECT count(*) FROM S {W}", "INSERT is not supported; write the SELECT"),
        (f"^create table x AS SELECT count(*) FROM S {W}", "CREATE is not supported"),
        ("SELECT sip, count(*) FROM S GROUP BY sip ^EMIT CHANGES", "EMIT is not supported"),
        (f"SELECT sip, count(*) FROM S GROUP BY sip ^emit changes {W}", "EMIT is not supported"),
        ("^WITH x AS (SELECT 1) SELECT 1", "WITH is not supported"),
        (f"^SELEC count(*) FROM S {W}", "did you mean SELECT?"),
        (f"SELECT count(*) FROM S ^WERE sip = 'a' {W}", "did you mean WHERE?"),
        (f"SELECT sip, count(*) FROM S ^GROUPBY sip {W}", "did you mean GROUP BY?"),
        (f"SELECT sip, count(*) FROM S ^GROUP sip {W}", "did you mean GROUP BY?"),
        (f"SELECT sip, count(*) FROM S GROUP BY sip ^HAVIN count(*) > 5 {W}", "mean HAVING?"),
        ("SELECT sip, count(*) FROM S GROUP BY sip ^windowin 5 s", "did you mean WINDOWING?"),
        (f"SELECT sip, count(*) FROM S {W} ^GROUP BY sip", "WINDOWING comes last; write GROUP BY"),
        (f"SELECT sip, count(*) FROM S GROUP BY sip {W} ^EMIT FINAL", "EMIT is not supported"),
        ("SELECT count(*^)", "FROM is missing"),
        (f"SELECT count(*) ^FORM S {W}", "did you mean FROM?"),
        (f"SELECT count(*) AS n ^frm `S` {W}", "did you mean FROM?"),
        ("SELECT sip, form, count(*^)", "FROM is missing"),
        (f"^SELECT FROM S {W}", "SELECT list is empty"),
        (f"SELECT lower(^, dip) FROM S {W}", "missing before this ','"),
        (f"SELECT sip^, FROM S {W}", "missing after this ','"),
        (f"SELECT sip\nFROM S dip ^type {W}", "'type' is not understood here"),
        (f"SELECT (1 + ^) AS x FROM S {W}", "something is missing at ')'"),
        (f"SELECT any_value(sip, dip^) FROM S {W}", "2 arguments are given, and at most 1 taken"),
        (
            f"SELECT count(*) FROM S WHERE mod(id, 2, 3^) = 1 {W}",
            "3 arguments are given, and at most 2 taken; leave out the others",
        ),
        (f"SELECT ^(sip FROM S {W}", "this '(' is never closed"),
        (f"SELECT sip^) FROM S {W}", "this ')' closes nothing"),
        (f"SELECT ^`sip FROM S {W}", "` is opened here and never closed"),
        (f"SELECT ^'sip FROM S {W}", "' is opened here and never closed"),
        (f'SELECT\n\n  ^"sip FROM S {W}', '" is opened here'),
        (f"SELECT sip ^/* FROM S {W}", "/* is opened here"),
        (f"SELECT ^5x FROM S {W}", "5x is not a number"),
        (f"SELECT ^[1] FROM S {W}", "'[' is not supported"),
        (f"SELECT sip ^-> 1 FROM S {W}", "'->' is not supported"),
        (f"SELECT count(*) FROM S WHERE sip = ^$1 {W}", "parameters are not supported"),
        (f"SELECT count(*) FROM S WHERE sip = ^'a' 'b' {W}", "two strings"),
        (f"SELECT count(*) FROM S WHERE ok ^WHERE ok {W}", "WHERE stands here twice"),
        (f"SELECT count(*) FROM S {W}^; SELECT 1", "a task is one query"),
        (f"SELECT count(*) FROM S WHERE ^E'x' = sip {W}", "only plain strings"),
        ("SELECT '^\ud800", "not valid Unicode"),
    ],
)
def test_text_that_is_no_query_is_refused(marked: str, says: str) -> None:
    assert says in refused(marked)


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        (f"SELECT ^DISTINCT sip FROM S {W}", "use GROUP BY"),
        (f"SELECT sum(^DISTINCT bytes) FROM S {W}", "count(DISTINCT x) only"),
        (f"SELECT ^* FROM S {W}", "name columns and aggregates"),
        (f"SELECT count(*) FROM S ^PIVOT (x) {W}", "use GROUP BY, or an aggregate for each"),
        (f"SELECT count(*) FROM S ^UNPIVOT (x) {W}", "use an item of SELECT for each column"),
        (f"SELECT lower(sip) AS x FROM S WHERE ceil(loss, ^1) = 2 {W}", "as in CEIL(loss)"),
        (f"SELECT CAST(sip AS INT FORMAT ^'9') AS x FROM S {W}", "as in CAST(sip AS BIGINT)"),
        (f"SELECT count(*) FROM S WHERE ^sip IN () {W}", "write at least one value"),
        (f"SELECT count(*) FROM S WHERE sip IN ^UNNEST(dip) {W}", "as in sip IN ('a', 'b')"),
        (f"SELECT count(*) FROM S AS a(^b) {W}", "as in FROM flows AS f"),
        (f"SELECT ^count(*) FROM S FOR UPDATE {W}", "write SELECT items FROM stream"),
        (f"SELECT S.^* FROM S {W}", "* is not supported"),
        (f"SELECT sum(^*) FROM S {W}", "* is not supported"),
        (f"SELECT sip FROM S ^JOIN T ON TRUE {W}", "one stream"),
        (f"SELECT sip FROM S CROSS ^JOIN T {W}", "one stream"),
        (f"SELECT sip FROM S, ^T {W}", "one stream"),
        (f"SELECT sip FROM ^(SELECT 1) {W}", "one stream"),
        (f"SELECT sip FROM S WHERE sip IN (^SELECT 1) {W}", "one stream"),
        (f"SELECT sip FROM S ^UNION SELECT 1 {W}", "register two tasks"),
        (f"SELECT sip FROM S ^EXCEPT SELECT 1 {W}", "use WHERE"),
        (f"SELECT sum(bytes) ^OVER () AS x FROM S {W}", "window functions"),
        (f"SELECT sip FROM S ^GROUP BY ALL {W}", "name the columns"),
        (f"SELECT sip FROM S GROUP BY ^ROLLUP(sip) {W}", "each grouping"),
        (f"SELECT count(*) FROM S LIMIT 5 ^OFFSET 1 {W}", "OFFSET is not supported"),
        (f"SELECT count(*) FROM S ^QUALIFY 1 {W}", "QUALIFY is not supported"),
        (f"SELECT count(*) FROM S ORDER BY ^1 NULLS FIRST {W}", "NULLs come last"),
        (f"SELECT count(*) FROM S LIMIT ^0 {W}", "from 1 to 100000"),
        (f"SELECT count(*) FROM S LIMIT ^100001 {W}", "from 1 to 100000"),
        (f"SELECT count(*) FROM S LIMIT ^bytes {W}", "from 1 to 100000"),
        (f"SELECT count(*) FROM S LIMIT ^1 PERCENT {W}", "from 1 to 100000"),
        (f"SELECT ^current_timestamp AS x FROM S {W}", "current time"),
        (f"SELECT sip FROM S WHERE sip ^ILIKE 'a' {W}", "LOWER(x) LIKE"),
        (f"SELECT sip FROM S WHERE ^ok IS TRUE {W}", "IS NULL and IS NOT NULL only"),
        (f"SELECT sip FROM S WHERE sip IS ^DISTINCT FROM dip {W}", "count(DISTINCT x) only"),
        (f"SELECT bytes ^** 2 AS x FROM S {W}", "'**'"),
        (f"SELECT CAST(bytes AS ^VARCHAR(5)) AS x FROM S {W}", "no length"),
        (f"SELECT bytes AS x FROM S GROUP BY ^CAST(bytes AS DATE) {W}", "CAST to DATE"),
        (f"SELECT bytes AS x FROM S GROUP BY ^CAST(bytes AS DECIMAL(9, 2)) {W}", "CAST to DECIMAL"),
        (f"SELECT bytes AS x FROM S GROUP BY ^CAST(ok AS TIMESTAMP) {W}", "a boolean cannot"),
    ],
)
def test_what_is_not_supported_is_named_with_what_is(marked: str, says: str) -> None:
    assert says in refused(marked)


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        (f"SELECT ^sipp, count(*) FROM S GROUP BY sip {W}", "did you mean sip?"),
        (f"SELECT sip,\n\n   ^nothing\nFROM S GROUP BY sip {W}", "there are timestamp, sip"),
        (f"SELECT sip FROM S WHERE ^x = 1 {W}", "no column 'x'"),
        (f"SELECT sip FROM S GROUP BY ^nope {W}", "no column 'nope'"),
        (f"SELECT sip FROM S WHERE ^T.sip = 'a' {W}", "not the stream of this query"),
        ("SELECT sip FROM ^X", "there is no stream 'X'"),
        (
            f"SELECT count(*) AS n FROM S WHERE ^n > 5 {W}",
            "n is an item of SELECT, and WHERE knows",
        ),
        (f"SELECT ^foo(sip) FROM S {W}", "there is no function foo()"),
        (f"SELECT ^approx_count_distinct(sip) AS n FROM S {W}", "write count(DISTINCT x)"),
        (f"SELECT ^session_end(timestamp) AS e FROM S {W}", "write window_end"),
        (f"SELECT ^unix_timestamp() AS t FROM S {W}", "a query knows no time but that of its rows"),
        (f"SELECT ^LAST_VALUE(sip) AS s FROM S {W}", "write min(x), max(x) or any_value(x)"),
        (f"SELECT ^latest_by_offset(sip) AS s FROM S {W}", "goes by the order of rows"),
        (f"SELECT ^topk(bytes, 3) AS s FROM S {W}", "write ORDER BY x DESC LIMIT n"),
        (f"SELECT ^lenght(sip) AS x FROM S {W}", "did you mean length?"),
        (f"SELECT 1 + ^median(bytes) AS x FROM S {W}", "there is no function median(); there are"),
        (f"SELECT ^count_distinct(sip) AS x FROM S {W}", "write count(DISTINCT x)"),
        (f"SELECT ^TUMBLE_START(seen) AS x FROM S {W}", "write window_start"),
        (f"SELECT ^window_time FROM S {W}", "write window_end"),
        (f"SELECT sip FROM S WHERE seen < ^now() {W}", "no time but that of its rows"),
        (f'SELECT sip FROM S WHERE sip = ^"yes" {W}', "single quotes, as in 'yes'; for columns"),
        (f"SELECT count(*) FROM S WHERE ^window_start > 5 {W}", "use timestamp in WHERE"),
        (f"SELECT max(^window_end) FROM S {W}", "after grouping only"),
    ],
)
def test_names_that_mean_nothing_are_refused_with_near_ones(marked: str, says: str) -> None:
    assert says in refused(marked)


def test_a_near_stream_is_suggested_as_a_query_must_write_it() -> None:
    known = ["web-logs", "flows"]
    with pytest.raises(SqlError, match='did you mean "web-logs"\\?'):
        compile_task(
            "SELECT count(*) FROM weblogs WINDOWING 60 s",
            task=TaskName("t"),
            version=1,
            stream_of=lambda _name: known,
            options={},
        )


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        (f"SELECT sum(^sip) FROM S {W}", "sum() needs a number, this is a string"),
        (f"SELECT sum(^ok) FROM S {W}", "this is a boolean"),
        (f"SELECT avg(^seen) FROM S {W}", "this is a timestamp"),
        (f"SELECT bool_and(^bytes) FROM S {W}", "bool_and() needs a boolean"),
        (f"SELECT count(*) FILTER (WHERE ^bytes) FROM S {W}", "FILTER needs a boolean"),
        (f"SELECT sip FROM S WHERE ^sip {W}", "WHERE needs a boolean"),
        (f"SELECT sip FROM S WHERE sip = ^5 {W}", "use CAST(... AS VARCHAR)"),
        (f"SELECT sip FROM S WHERE bytes > ^'5' {W}", "use CAST(... AS BIGINT)"),
        (f"SELECT sip FROM S WHERE bytes = ^TRUE {W}", "this is a boolean"),
        (f"SELECT sip FROM S WHERE sip IN ('a', ^1) {W}", "IN with a string"),
        (f"SELECT sip FROM S WHERE seen = ^'2026-01-01' {W}", "AS TIMESTAMP)"),
        (f"SELECT sip FROM S WHERE seen > ^1.5 {W}", "needs a timestamp"),
        (f"SELECT sip FROM S WHERE ^seen + 1 > 5 {W}", "+ needs"),
        (f"SELECT sip FROM S WHERE NOT ^bytes {W}", "NOT needs a boolean"),
        (f"SELECT sip FROM S WHERE ok AND ^bytes {W}", "AND needs a boolean"),
        (f"SELECT sip FROM S WHERE ^bytes LIKE 'a' {W}", "LIKE needs a string"),
        (f"SELECT sip FROM S WHERE lower(^5) = 'a' {W}", "LOWER needs a string"),
        (f"SELECT sip FROM S WHERE - ^sip = 1 {W}", "- needs a number"),
        (f"SELECT sip FROM S WHERE 1 + ^(sip || dip) = 1 {W}", "+ needs a number"),
        (f"SELECT sip FROM S WHERE 1 = ^CASE WHEN ok THEN 'x' END {W}", "= with an integer"),
        (f"SELECT sip FROM S WHERE CASE WHEN ok THEN 1 ELSE ^'x' END = 1 {W}", "CASE with"),
        (f"SELECT sip FROM S WHERE CASE WHEN ^1 THEN 1 END = 1 {W}", "WHEN needs a boolean"),
        (f"SELECT sip FROM S WHERE COALESCE(sip, ^1) = 'a' {W}", "COALESCE with a string"),
        (f"SELECT sip FROM S WHERE SUBSTR(sip, ^'1') = 'a' {W}", "SUBSTR needs an integer"),
    ],
)
def test_types_that_do_not_go_together_are_refused(marked: str, says: str) -> None:
    assert says in refused(marked)


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        (f"SELECT sip, ^bytes FROM S GROUP BY sip {W}", "add it to GROUP BY"),
        (f"SELECT sip FROM S GROUP BY sip HAVING ^bytes > 1 {W}", "add it to GROUP BY"),
        (f"SELECT lower(^sip) AS x FROM S GROUP BY upper(sip) {W}", "add it to GROUP BY"),
        (f"SELECT sip FROM S GROUP BY sip ORDER BY ^loss {W}", "add it to GROUP BY"),
        (f"SELECT sip FROM S WHERE ^count(*) > 1 GROUP BY sip {W}", "use HAVING"),
        (f"SELECT sip FROM S GROUP BY ^sum(bytes) {W}", "GROUP BY cannot hold sum()"),
        (f"SELECT ^sum(bytes) AS b FROM S GROUP BY b {W}", "GROUP BY cannot hold sum()"),
        (f"SELECT sum(^max(bytes)) AS x FROM S {W}", "cannot hold max()"),
        (f"SELECT sum(bytes) FILTER (WHERE ^max(ok)) FROM S {W}", "FILTER cannot hold max()"),
        (f"SELECT ^lower(sip) FILTER (WHERE ok) AS x FROM S {W}", "FILTER belongs behind"),
        (f"SELECT ^count() AS x FROM S {W}", "count(*)"),
        (f"SELECT max(bytes, ^2) AS x FROM S {W}", "write it as in max(sip)"),
        (f"SELECT ^any_value() AS x FROM S {W}", "as in any_value(sip)"),
        (f"SELECT count(sip, ^dip) AS x FROM S {W}", "as in count(*), count(sip) or count(DIST"),
        (f"SELECT count(DISTINCT ^sip, dip) AS x FROM S {W}", "takes one argument"),
        (f"SELECT ^window_start FROM S {W}", "add an aggregate, or GROUP BY"),
        (f"SELECT sip FROM S GROUP BY ^5 {W}", "which has 1 items"),
        (f"SELECT sip FROM S GROUP BY sip ORDER BY ^2 {W}", "which has 1 items"),
        (f"SELECT sip FROM S GROUP BY sip, ^'x' {W}", "GROUP BY a constant makes one group"),
        (f"SELECT sip FROM S GROUP BY CAST(^timestamp AS BIGINT) {W}", "must stand there alone"),
        (f"SELECT sum(bytes), ^sum(bytes) FILTER (WHERE ok) FROM S {W}", "name one with AS"),
        (f"SELECT sip, dip AS ^sip FROM S GROUP BY sip, dip {W}", "name one with AS"),
        (f"SELECT ^sum(bytes) + 1 FROM S {W}", "add one with AS"),
        (f"SELECT sip AS ^window_start FROM S GROUP BY sip {W}", "the window's own"),
        (f"SELECT window_start AS ^window_end, count(*) FROM S {W}", "the window's own"),
        (f'SELECT count(*) AS ^"{"x" * 129}" FROM S {W}', "1 to 128 characters"),
    ],
)
def test_groups_that_make_no_sense_are_refused(marked: str, says: str) -> None:
    assert says in refused(marked)


SUMS_64 = " + ".join([*(f"sum(sport + {number})" for number in range(63)), "^sum(sport)"])
KEYS_65 = [f"sport + {number}" for number in range(65)]


@pytest.mark.parametrize(
    ("marked", "says"),
    [
        (f"SELECT ^9223372036854775808 AS x, count(*) FROM S {W}", "64 bits"),
        (f"SELECT ^-9223372036854775809 AS x, count(*) FROM S {W}", "64 bits"),
        (f"SELECT ^{'9' * 5000} AS x, count(*) FROM S {W}", "64 bits"),
        (f"SELECT ^1e999 AS x, count(*) FROM S {W}", "too large for a float"),
        (f"SELECT sip FROM S WHERE sip LIKE ^dip {W}", "must be written out"),
        (f"SELECT sip FROM S WHERE sip LIKE ^'{'a' * 1001}' {W}", "at most 1000 characters"),
        (f"SELECT sip FROM S WHERE sip LIKE ^'a!!!' ESCAPE '!' {W}", "ends with its escape"),
        (f"SELECT sip FROM S WHERE ^CONCAT({', '.join(['sip'] * 33)}) = 'a' {W}", "at most 32"),
        (f"SELECT sip FROM S WHERE sip LIKE 'a' ESCAPE ^'!!' {W}", "one character"),
        (f"SELECT ROUND(loss, ^sport) AS x FROM S GROUP BY 1 {W}", "must be written out"),
        (f"SELECT ROUND(loss, ^16) AS x FROM S GROUP BY 1 {W}", "from -15 to 15"),
        (f"SELECT ^SUBSTR(sip) AS x FROM S GROUP BY 1 {W}", "needs a start"),
        (f"SELECT sip FROM S WHERE ^sport IN ({', '.join('1' * 1001)}) {W}", "at most 1000"),
        ("SELECT count(*) FROM S WHERE " + "(" * 21 + "^ok" + ")" * 21 + f" {W}", "20 levels"),
        (f"SELECT count(*) FROM S WHERE {'NOT ' * 21}^ok {W}", "20 levels"),
        (f"^SELECT count(*) FROM S WHERE {' OR '.join(['ok'] * 103)} {W}", "more than 100"),
        (f"SELECT {'count(*), ' * 64}^count(*) FROM S {W}", "at most 64 items"),
        (f"SELECT count(*) FROM S HAVING {SUMS_64} > 0 {W}", "at most 64 aggregates"),
        (f"SELECT count(*) FROM S GROUP BY ^{', '.join(KEYS_65)} {W}", "at most 64 keys"),
        (f"SELECT count(*) AS ^{'x' * 129} FROM S {W}", "from 1 to 128 characters"),
        (f"SELECT sip FROM S GROUP BY sip LIMIT ^100001 {W}", "a number from 1 to 100000"),
        (f"^SELECT '{'x' * 65536}'", "at most 65536 bytes"),
        ("SELECT " + "1, " * 4999 + "1 ^FROM S", "at most 10000 words"),
    ],
)
def test_limits_are_named(marked: str, says: str) -> None:
    assert says in refused(marked)


def test_repeated_operands_cannot_make_a_plan_explode() -> None:
    nested = "ok"
    for _ in range(18):
        nested = f"({nested}) BETWEEN FALSE AND TRUE"
    with pytest.raises(SqlError, match="too large"):
        compiled(f"SELECT count(*) FROM S WHERE {nested} {W}")


def test_source_name_refuses_what_has_no_source() -> None:
    with pytest.raises(SqlError, match="FROM is missing"):
        source_name("SELECT 1")
    with pytest.raises(SqlError, match="the name of a stream is missing"):
        source_name("SELECT 1 FROM 5 + 5")


DOTTED = replace(FLOWS, fields=(*FLOWS.fields, Field("Site.Name", FieldType.STRING)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Sitename", 'did you mean "Site.Name"?'),
        ("Site.Name", 'write the field "Site.Name" in double quotes'),
    ],
)
def test_a_field_that_is_no_word_is_named_as_a_query_must_write_it(name: str, says: str) -> None:
    with pytest.raises(SqlError, match=re.escape(says)):
        compile_task(
            f"SELECT {name}, count(*) FROM S GROUP BY 1 {W}",
            task=TaskName("t"),
            version=1,
            stream_of=lambda _name: DOTTED,
            options={},
        )
