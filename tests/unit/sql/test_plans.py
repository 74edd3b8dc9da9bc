"""What queries compile to."""

from __future__ import annotations

import pickle

import pytest

from mars.core.errors import SqlError
from mars.core.plan import AggregateFunction, Column, ValueType
from mars.core.types import TaskName
from mars.core.windows import Sliding
from mars.sql import compile_task, find_name, only, source_name
from tests.unit.sql.compiling import FLOWS, compiled, flows, shown


def where(predicate: str) -> str:
    plan = compiled(f"SELECT count(*) FROM S WHERE {predicate} WINDOWING 60 s")
    assert plan.filter is not None
    return shown(plan.filter)


def item(expression: str) -> str:
    """An item over rows, as a group key."""
    plan = compiled(f"SELECT {expression} AS x FROM S GROUP BY x WINDOWING 60 s")
    return shown(plan.keys[0].expression)


def test_query_of_the_paper_compiles_word_for_word() -> None:
    plan = compiled(
        "SELECT sip, type, timestamp, count(*) FROM S GROUP BY sip, type, timestamp WINDOWING 60 s"
    )
    assert [shown(key.expression) for key in plan.keys] == ["sip", "type"]
    assert [(output.name, shown(output.expression)) for output in plan.outputs] == [
        *(("sip", "k0"), ("type", "k1"), ("timestamp", "window_start"), ("count", "a0")),
    ]
    assert [aggregate.function for aggregate in plan.aggregates] == [AggregateFunction.COUNT_ALL]
    assert plan.window == Sliding(60_000, 60_000)
    assert [field.name for field in plan.fields] == ["timestamp", "sip", "type"]
    assert plan.options.output_topic == "mars.results.t"
    assert not plan.single_bucket


def test_plan_survives_pickling() -> None:
    plan = compiled(
        f"SELECT sip, sum(bytes) AS b FROM S WHERE {'+'.join(['sport'] * 90)} > 5 GROUP BY sip "
        "HAVING b > 1 ORDER BY b DESC LIMIT 5 WINDOWING 60 s SLIDE 10 s"
    )
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_keys_stand_in_select_order_and_then_the_rest() -> None:
    plan = compiled(
        "SELECT count(*), type, lower(sip) AS host FROM S GROUP BY dip, host, type, sip, host "
        "WINDOWING 60 s"
    )
    keys = [shown(key.expression) for key in plan.keys]
    assert keys == ["type", "LOWER(sip)", "dip", "sip"]
    assert [key.slot for key in plan.keys] == ["k0", "k1", "k2", "k3"]


@pytest.mark.parametrize(
    "group_by",
    ["upper(type), sip", "protocol, 2", "1, 2", "(protocol), sip, 1", "UPPER(S.type), 2"],
)
def test_keys_may_be_expressions_names_and_positions(group_by: str) -> None:
    plan = compiled(
        f"SELECT upper(type) AS protocol, sip, count(*) FROM S GROUP BY {group_by} WINDOWING 60 s"
    )
    assert [shown(key.expression) for key in plan.keys] == ["UPPER(type)", "sip"]
    assert [shown(output.expression) for output in plan.outputs] == ["k0", "k1", "a0"]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("sip || dip", "k0"),
        ("sip || dip || '!'", "CASE(IS_NULL(k0), None, CONCAT(k0, '!'))"),
        (
            "(sip || dip) || '!' || type",
            "CASE(OR(IS_NULL(k0), IS_NULL(k1)), None, CONCAT(k0, '!', k1))",
        ),
        ("'!' || (sip || dip)", "CASE(IS_NULL(k0), None, CONCAT('!', k0))"),
    ],
)
def test_a_chain_may_begin_with_a_key_that_is_one(item: str, found: str) -> None:
    plan = compiled(f"SELECT {item} AS x FROM S GROUP BY sip || dip, type WINDOWING 60 s")
    assert shown(plan.outputs[0].expression) == found


def test_a_field_comes_before_an_item_of_its_name_in_group_by() -> None:
    plan = compiled("SELECT lower(sip) AS sip, count(*) FROM S GROUP BY sip WINDOWING 60 s")
    assert shown(plan.keys[0].expression) == "sip"
    assert shown(plan.outputs[0].expression) == "LOWER(k0)"


def test_an_item_comes_before_a_field_of_its_name_in_order_by() -> None:
    plan = compiled(
        "SELECT sip, sum(bytes) AS bytes FROM S GROUP BY sip ORDER BY bytes LIMIT 3 WINDOWING 60 s"
    )
    assert shown(plan.order_by[0].expression) == "a0"


def test_an_item_is_found_whatever_the_case_of_its_name_if_there_is_one_only() -> None:
    plan = compiled(
        "SELECT sip, count(*) AS Total FROM S GROUP BY sip HAVING total > 1 ORDER BY TOTAL LIMIT 3 "
        "WINDOWING 60 s"
    )
    assert shown(plan.order_by[0].expression) == "a0"
    with pytest.raises(SqlError, match="no column 'total'"):
        compiled(
            "SELECT count(*) AS Total, sum(bytes) AS TOTAL FROM S HAVING total > 1 WINDOWING 60 s"
        )


def test_an_item_is_found_whatever_the_case_of_its_name_in_group_by() -> None:
    plan = compiled("SELECT lower(sip) AS Who, count(*) FROM S GROUP BY WHO WINDOWING 60 s")
    assert shown(plan.keys[0].expression) == "LOWER(sip)"
    with pytest.raises(SqlError, match="no column 'WHO'"):
        compiled("SELECT lower(sip) AS Who, upper(sip) AS who FROM S GROUP BY WHO WINDOWING 60 s")


@pytest.mark.parametrize("qualifier", ["S", "s", "F", "f"])
def test_a_qualifier_is_found_whatever_the_case_of_its_name(qualifier: str) -> None:
    plan = compiled(f"SELECT sum({qualifier}.bytes) AS b FROM S AS f WINDOWING 60 s")
    assert plan.aggregates[0].argument == Column("bytes", ValueType.INT64)


def test_a_name_is_the_exact_one_or_the_only_one_that_differs_in_case_alone() -> None:
    assert find_name("osv", ["Osv", "osv"]) == "osv"
    assert find_name("OSV", ["Osv", "x"]) == "Osv"
    assert find_name("OSV", ["Osv", "osv"]) is None
    assert find_name("OSV", ["Os", "v"]) is None


def test_a_stored_version_finds_its_stream_whatever_the_case_in_its_query() -> None:
    assert only(FLOWS)("S") is FLOWS
    assert only(FLOWS)("s") is FLOWS
    assert only(FLOWS)("t") is None


def test_equal_aggregates_share_a_slot() -> None:
    plan = compiled(
        "SELECT sum(bytes), sum(bytes) / count(*) AS mean, count(1) AS n FROM S "
        "HAVING count(*) > 1 ORDER BY sum(bytes) WINDOWING 60 s"
    )
    assert [aggregate.slot for aggregate in plan.aggregates] == ["a0", "a1"]


def test_aggregates_that_differ_in_the_type_of_a_constant_do_not_share_a_slot() -> None:
    plan = compiled("SELECT max(1) AS a, max(1.0) AS b, max(TRUE) AS c FROM S WINDOWING 60 s")
    assert [aggregate.type for aggregate in plan.aggregates] == [
        *(ValueType.INT64, ValueType.FLOAT64, ValueType.BOOL),
    ]


@pytest.mark.parametrize(
    ("aggregate", "function", "argument", "type_"),
    [
        ("count(*)", "COUNT_ALL", None, ValueType.INT64),
        ("count(sip)", "COUNT", "sip", ValueType.INT64),
        ("count(DISTINCT sip)", "COUNT_DISTINCT", "sip", ValueType.INT64),
        ("sum(bytes)", "SUM", "bytes", ValueType.INTEGER),
        ("sum(bytes * 8)", "SUM", "MULTIPLY(bytes, 8)", ValueType.INTEGER),
        ("sum(loss)", "SUM", "loss", ValueType.FLOAT64),
        ("min(sip)", "MIN", "sip", ValueType.STRING),
        ("max(seen)", "MAX", "seen", ValueType.TIMESTAMP),
        ("max(timestamp)", "MAX", "timestamp", ValueType.TIMESTAMP),
        ("avg(bytes)", "AVG", "bytes", ValueType.FLOAT64),
        ("var_samp(loss)", "VAR_SAMP", "loss", ValueType.FLOAT64),
        ("variance(loss)", "VAR_SAMP", "loss", ValueType.FLOAT64),
        ("var_pop(loss)", "VAR_POP", "loss", ValueType.FLOAT64),
        ("stddev_samp(loss)", "STDDEV_SAMP", "loss", ValueType.FLOAT64),
        ("stddev(loss)", "STDDEV_SAMP", "loss", ValueType.FLOAT64),
        ("stddev_pop(loss)", "STDDEV_POP", "loss", ValueType.FLOAT64),
        ("count_if(ok)", "COUNT_IF", "ok", ValueType.INT64),
        ("any_value(ok)", "ANY_VALUE", "ok", ValueType.BOOL),
        ("bool_and(ok)", "BOOL_AND", "ok", ValueType.BOOL),
        ("bool_or(ok)", "BOOL_OR", "ok", ValueType.BOOL),
    ],
)
def test_aggregate_has_its_type(
    aggregate: str, function: str, argument: str | None, type_: ValueType
) -> None:
    plan = compiled(f"SELECT {aggregate} FILTER (WHERE ok) AS x FROM S WINDOWING 60 s")
    (found,) = plan.aggregates
    assert found.function is AggregateFunction[function]
    assert (shown(found.argument) if found.argument else None) == argument
    assert found.filter is not None
    assert found.type is type_


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("count(*), count(sip), count(DISTINCT sip)", ["count", "count_sip", "count_distinct_sip"]),
        ("sum(bytes), MIN(seen), any_value((sip))", ["sum_bytes", "min_seen", "any_value_sip"]),
        ("Stddev(loss), avg(S.loss) FILTER (WHERE ok)", ["stddev_loss", "avg_loss"]),
        ("window_end AS w, WINDOW_START, timestamp, count(1)", ["w", "timestamp", "count"]),
        ('count(*) AS "two words", sum(bytes) "größe"', ["two words", "größe"]),
    ],
)
def test_items_have_the_names_they_are_given_or_their_own(items: str, names: list[str]) -> None:
    plan = compiled(f"SELECT {items} FROM S GROUP BY timestamp WINDOWING 60 s")
    assert [output.name for output in plan.outputs] == names


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("1 + sport * 2 - -3", "SUBTRACT(ADD(1, MULTIPLY(sport, 2)), -3)"),
        ("(1 + sport) * 2", "MULTIPLY(ADD(1, sport), 2)"),
        ("-sport % 5 / 2.5", "DIVIDE(MODULO(NEGATE(sport), 5), 2.5)"),
        ("-9223372036854775808 + sport", "ADD(-9223372036854775808, sport)"),
        ("sip || '-' || dip", "CASE(OR(IS_NULL(sip), IS_NULL(dip)), None, CONCAT(sip, '-', dip))"),
        ("CONCAT(sip, sport, NULL)", "CONCAT(sip, CAST(sport), None)"),
        ("CASE WHEN ok THEN 1 END", "CASE(ok, 1, None)"),
        ("CASE sport WHEN 1 THEN 'a' ELSE sip END", "CASE(EQUAL(sport, 1), 'a', sip)"),
        ("COALESCE(NULL, sip)", "COALESCE(None, sip)"),
        ("NULLIF(sport, 0)", "NULLIF(sport, 0)"),
        ("ROUND(loss, -1)", "ROUND(loss, -1)"),
        ("CEILING(loss) + FLOOR(loss)", "ADD(CEIL(loss), FLOOR(loss))"),
        ("SUBSTRING(sip FROM 2 FOR 3)", "SUBSTR(sip, 2, 3)"),
        ("CHAR_LENGTH(sip)", "LENGTH(sip)"),
        ("CAST(sport AS BIGINT)", "sport"),
        ("sip::double", "CAST(sip)"),
        ("TRY_CAST(sip AS hugeint)", "CAST(sip)"),
        ("cast(sip AS timestamp)", "CAST(sip)"),
        ("SIP", "sip"),
        ('"sip"', "sip"),
    ],
)
def test_scalar_compiles(expression: str, found: str) -> None:
    assert item(expression) == found


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        ("ok AND NOT ok OR ok", "OR(AND(ok, NOT(ok)), ok)"),
        ("sport IN (1, 2.5, NULL)", "IN(sport, 1, 2.5, None)"),
        ("sport NOT IN (1)", "NOT(IN(sport, 1))"),
        ("sport BETWEEN 1 AND 2", "AND(GREATER_EQUAL(sport, 1), LESS_EQUAL(sport, 2))"),
        ("sport NOT BETWEEN 1 AND 2", "NOT(AND(GREATER_EQUAL(sport, 1), LESS_EQUAL(sport, 2)))"),
        ("sip LIKE 'a%'", "LIKE(sip, 'a%')"),
        ("sip NOT LIKE 'a!!%' ESCAPE '!'", "NOT(LIKE(sip, 'a!!%', '!'))"),
        ("sip IS NOT NULL", "NOT(IS_NULL(sip))"),
        ("sip = NULL", "EQUAL(sip, None)"),
        ("loss <> sport", "NOT_EQUAL(loss, sport)"),
        ("timestamp >= 1000", "GREATER_EQUAL(timestamp, 1000)"),
        ("seen < timestamp", "LESS(seen, timestamp)"),
        ("seen = TIMESTAMP '2026-01-01'", "EQUAL(seen, CAST('2026-01-01'))"),
        ("TRUE", "True"),
        ("NULL", "None"),
    ],
)
def test_predicate_compiles(predicate: str, found: str) -> None:
    assert where(predicate) == found


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("sport + 1", ValueType.INTEGER),
        ("sport + loss", ValueType.FLOAT64),
        ("sport / 2", ValueType.FLOAT64),
        ("sport % 2", ValueType.INT64),
        ("(sport + 1) % 2", ValueType.INTEGER),
        ("abs(sport)", ValueType.INTEGER),
        ("floor(sport)", ValueType.INT64),
        ("round(sport, 1)", ValueType.INT64),
        ("round(sport, -1)", ValueType.INTEGER),
        ("CASE WHEN ok THEN sport ELSE loss END", ValueType.FLOAT64),
        ("COALESCE(sport, sport + 1)", ValueType.INTEGER),
        ("NULLIF(sport, 1.5)", ValueType.INT64),
        ("CASE WHEN ok THEN NULL ELSE sip END", ValueType.STRING),
        ("sport = 1.5", ValueType.BOOL),
    ],
)
def test_scalar_has_its_type(expression: str, type_: ValueType) -> None:
    plan = compiled(f"SELECT {expression} AS x FROM S GROUP BY x WINDOWING 60 s")
    assert plan.keys[0].expression.type is type_


def test_event_time_is_the_row_s_own_in_rows_and_the_window_s_in_groups() -> None:
    plan = compiled(
        "SELECT timestamp, max(timestamp) AS last FROM S WHERE timestamp > 5 GROUP BY timestamp "
        "HAVING timestamp > 7 ORDER BY timestamp WINDOWING 60 s"
    )
    assert plan.filter is not None
    assert plan.having is not None
    assert shown(plan.filter) == "GREATER(timestamp, 5)"
    assert shown(plan.having) == "GREATER(window_start, 7)"
    assert shown(plan.order_by[0].expression) == "window_start"
    assert plan.keys == ()
    assert [shown(output.expression) for output in plan.outputs] == ["window_start", "a0"]


def test_window_columns_under_their_own_names_are_no_outputs() -> None:
    plan = compiled(
        "SELECT window_end, window_start, window_start AS w, count(*) FROM S WINDOWING 60 s"
    )
    assert [output.name for output in plan.outputs] == ["w", "count"]


def test_only_fields_that_are_read_are_decoded_in_declared_order() -> None:
    plan = compiled(
        "SELECT type, sum(bytes) FILTER (WHERE ok) AS b FROM S WHERE loss > 1 GROUP BY type, dip "
        "WINDOWING 60 s"
    )
    names = [field.name for field in plan.fields]
    assert names == ["timestamp", "dip", "type", "bytes", "loss", "ok"]


@pytest.mark.parametrize("tail", ["ORDER BY count(*) LIMIT 5", "ORDER BY sip", "LIMIT 5"])
def test_ordered_and_limited_tasks_live_in_one_bucket(tail: str) -> None:
    plan = compiled(f"SELECT sip, count(*) FROM S GROUP BY sip {tail} WINDOWING 60 s")
    assert plan.single_bucket


@pytest.mark.parametrize("window", ["60 s", "SESSION 60 s", "5 ROWS", "5 ROWS PER KEY EXPIRE 1 d"])
def test_a_task_lives_in_one_bucket_if_it_asks_for_it(window: str) -> None:
    sql = f"SELECT sip, count(*) FROM S GROUP BY sip WINDOWING {window}"
    assert compiled(sql, buckets="one").single_bucket
    assert not compiled(sql, buckets="all").single_bucket


@pytest.mark.parametrize(
    "name", ["window", "offset", "order", "end", "select", "map", "current_user"]
)
def test_any_word_may_be_given_as_a_name(name: str) -> None:
    plan = compiled(f"SELECT sip, count(*) AS {name} FROM S GROUP BY sip WINDOWING 60 s")
    assert plan.outputs[1].name == name


@pytest.mark.parametrize("name", ["window", "offset", "map", "interval", "format", "current_user"])
def test_a_given_name_can_be_used_though_it_is_a_word_of_sql(name: str) -> None:
    plan = compiled(
        f"SELECT lower(sip) AS {name}, max(CAST(sport AS bigint)) AS top FROM S GROUP BY {name} "
        f"HAVING {name} <> 'x' ORDER BY {name} WINDOWING 60 s"
    )
    assert shown(plan.keys[0].expression) == "LOWER(sip)"
    assert shown(plan.order_by[0].expression) == "k0"


def test_source_name_is_known_before_the_stream_is() -> None:
    assert source_name("SELECT nothing FROM flows WINDOWING 60 s") == "flows"
    assert source_name('SELECT x FROM "two words" AS t') == "two words"


def test_default_topic_is_the_caller_s() -> None:
    plan = compile_task(
        "SELECT count(*) FROM S WINDOWING 60 s",
        task=TaskName("t"),
        version=1,
        stream_of=flows,
        options={},
        default_topic="mars.blue.results.t",
    )
    assert plan.options.output_topic == "mars.blue.results.t"


@pytest.mark.parametrize(
    "sql",
    [
        "select sip, COUNT(*) from S group by sip windowing 60 S",
        "SELECT sip, count(*) FROM S GROUP BY sip WINDOWING 60 s;",
        "SELECT -- a comment with WINDOWING 5 s\n sip, /* ' */ count(*)\r\nFROM S GROUP BY sip\n"
        "WINDOWING 60 s",
        'SELECT "sip", count(*) FROM "S" GROUP BY "sip" WINDOWING 60s',
        "SELECT f.sip, count(*) FROM S AS f GROUP BY f.sip WINDOWING 1 min",
        "SELECT f.sip, count(*) FROM S f GROUP BY S.sip, TUMBLE(f.timestamp, INTERVAL '1 minute')",
    ],
)
def test_queries_that_say_the_same_have_the_same_plan(sql: str) -> None:
    plain = compiled("SELECT sip, count(*) FROM S GROUP BY sip WINDOWING 60 s")
    assert compiled(sql) == plain
