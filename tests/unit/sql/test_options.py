"""Options of a task, and durations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_type_hints

import pytest

from mars.adapters.kafka.names import DEFAULT_NAMESPACE, Names
from mars.core.errors import Rejected
from mars.core.plan import LatePolicy, Options, OverMaxKeys, WatermarkScope
from mars.core.topics import INTERNAL, is_internal, namespace_of_results
from mars.core.types import TaskName, Topic
from mars.engine.aggregates import scope_aggregates
from mars.sql import parse_duration, parse_options
from tests.unit.sql.compiling import FLOWS, compiled


def options(**given: object) -> Options:
    return parse_options(given, TaskName("by_sip"), FLOWS)


def test_everything_has_a_default() -> None:
    assert options() == Options(
        output_topic="mars.results.by_sip", delay_ms=0, idle_after_ms=5_000, future_limit_ms=300_000
    )


def test_options_are_taken() -> None:
    found = options(
        delay="1.5s", idle_after="500ms", future_limit="1h", late="drop", output_topic="a.b-c_1"
    )
    assert found == Options("a.b-c_1", 1_500, 500, 3_600_000)


@pytest.mark.parametrize("written", [1_000, "1000"])
def test_a_limit_on_groups_is_a_number_or_its_digits(written: object) -> None:
    found = options(max_keys=written)
    assert (found.max_keys, found.over_max_keys) == (1_000, OverMaxKeys.FAIL)


def test_groups_over_the_limit_are_folded_where_asked() -> None:
    assert options(max_keys=1, over_max_keys="fold").over_max_keys is OverMaxKeys.FOLD


def test_windows_are_revised_where_asked_and_for_ten_minutes_unless_said() -> None:
    found = options(late="revise")
    assert (found.late, found.lateness_ms) == (LatePolicy.REVISE, 600_000)
    assert options(late="revise", lateness="90 s").lateness_ms == 90_000
    assert options(late="drop").lateness_ms == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dealy": "1s"}, "did you mean delay?"),
        ({"x": 1}, "unknown option 'x'"),
        ({"late": "never"}, "write 'drop' or 'revise'"),
        ({"late": None}, "write 'drop' or 'revise'"),
        ({"late": ["revise"]}, "write 'drop' or 'revise'"),
        ({"lateness": "1h"}, "set late: revise too"),
        ({"late": "drop", "lateness": "1h"}, "set late: revise too"),
        ({"late": "revise", "lateness": "0s"}, "option lateness: 0s is outside"),
        ({"late": "revise", "lateness": "8d"}, "option lateness: 8d is outside"),
        ({"late": "revise", "lateness": 5}, "option lateness: write a duration as text"),
        ({"watermark": "row"}, "write 'partition', 'bucket' or 'key'"),
        ({"watermark": None}, "write 'partition'"),
        ({"watermark": ["key"]}, "write 'partition'"),
        ({"key_lag": "1min"}, "set watermark: key too"),
        ({"watermark": "partition", "key_lag": "1min"}, "set watermark: key too"),
        ({"watermark": "key", "key_lag": "0s"}, "option key_lag: 0s is outside"),
        ({"watermark": "key", "key_lag": 5}, "option key_lag: write a duration as text"),
        ({"max_keys": 0}, "option max_keys: '0' is not a whole number from 1 to 100000"),
        ({"max_keys": 100_001}, "from 1 to 100000"),
        ({"max_keys": True}, "option max_keys"),
        ({"max_keys": 5.0}, "option max_keys"),
        ({"max_keys": "-5"}, "option max_keys"),
        ({"max_keys": "\u0665"}, "option max_keys"),
        ({"max_keys": "9" * 5_000}, "option max_keys"),
        ({"max_keys": None}, "option max_keys"),
        ({"max_keys": 5, "over_max_keys": "drop"}, "write 'fail' or 'fold'"),
        ({"max_keys": 5, "over_max_keys": None}, "write 'fail' or 'fold'"),
        ({"max_keys": 5, "over_max_keys": ["fold"]}, "write 'fail' or 'fold'"),
        ({"buckets": "two"}, "write 'all', or 'one' for a task of few groups"),
        ({"buckets": 1}, "write 'all', or 'one' for a task of few groups"),
        ({"over_max_keys": "fold"}, "set that too"),
        ({"delay": 5}, "option delay: write a duration as text"),
        ({"delay": None}, "option delay: write a duration as text"),
        ({"delay": "5"}, "option delay: '5' is not a duration"),
        ({"delay": "-1s"}, "is not a duration"),
        ({"delay": "8d"}, "outside of 0 s to 7 d"),
        ({"idle_after": "0s"}, "option idle_after: 0s is outside"),
        ({"future_limit": "367d"}, "option future_limit"),
        ({"output_topic": 5}, "as text"),
        ({"output_topic": ""}, "not a valid topic name"),
        ({"output_topic": "a b"}, "not a valid topic name"),
        ({"output_topic": "x\n"}, "not a valid topic name"),
        ({"output_topic": ".."}, "not a valid topic name"),
        ({"output_topic": "x" * 250}, "not a valid topic name"),
        ({"output_topic": "mars.progress"}, "is reserved"),
        ({"output_topic": "mars.blue.dead"}, "is reserved"),
        ({"output_topic": "mars.control"}, "is reserved"),
        ({"output_topic": "__consumer_offsets"}, "is reserved"),
        ({"output_topic": "flows"}, "the topic that the task reads"),
    ],
)
def test_unusable_options_are_refused_by_name(given: dict[str, object], says: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_options(given, TaskName("t"), FLOWS)
    assert says in str(caught.value)


def own_topics() -> Iterator[Topic]:
    """What Mars writes for itself, in two namespaces."""
    for name, member in vars(Names).items():
        if isinstance(member, property) and get_type_hints(member.fget)["return"] is Topic:
            yield from (getattr(Names(each), name) for each in (DEFAULT_NAMESPACE, "blue"))


def test_every_topic_of_a_namespace_is_known_as_one_of_ours() -> None:
    topics = set(own_topics())
    assert {"mars.state", "mars.blue.incidents"} <= topics
    assert topics == {f"{prefix}.{each}" for prefix in ("mars", "mars.blue") for each in INTERNAL}
    for topic in topics:
        assert is_internal(topic)
        with pytest.raises(Rejected, match="is reserved"):
            options(output_topic=topic)


@pytest.mark.parametrize(
    ("topic", "namespace"),
    [
        ("mars.results.a", "default"),
        ("mars.results.progress", "default"),
        ("mars.blue.results.a", "blue"),
        ("mars.results", None),
        ("mars.results.a.b", None),
        ("mars.progress", None),
        ("results.a", None),
    ],
)
def test_topics_of_results_are_known_by_their_namespace(topic: str, namespace: str | None) -> None:
    assert namespace_of_results(topic) == namespace
    assert is_internal(topic) is (topic == "mars.progress")


@pytest.mark.parametrize("topic", ["mars.results.progress", "marsXprogress", "mars.progress2"])
def test_topics_that_only_look_like_ours_are_free(topic: str) -> None:
    assert options(output_topic=topic).output_topic == topic


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("1s", 1_000),
        ("5 min", 300_000),
        ("5MIN", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("0.25 s", 250),
        (" 1 s ", 1_000),
    ],
)
def test_duration_is_read(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "1",
        "1 week",
        "1s 5s",
        "1e3s",
        "-1s",
        "0.0001 s",
        "1..5s",
        "\u0661s",
        "9" * 16 + "s",
    ],
)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="is not a duration"):
        parse_duration(text)


def test_a_delay_that_would_hold_too_many_windows_open_is_refused() -> None:
    sql = "SELECT count(*) FROM S WINDOWING 10 s"
    assert compiled(sql, delay="5d").options.delay_ms == 5 * 86_400_000
    with pytest.raises(Rejected, match="60481 in all, and 50000 may be open: shorten the delay"):
        compiled(sql, delay="7d")


@pytest.mark.parametrize(
    ("sql", "given", "says"),
    [
        ("SELECT sip, count(*) FROM S GROUP BY sip LIMIT 3 WINDOWING 10 s", {}, "with LIMIT"),
        (
            "SELECT sip, count(*) FROM S GROUP BY sip WINDOWING 10 s",
            {"max_keys": 5, "over_max_keys": "fold"},
            "which groups are folded",
        ),
        (
            "SELECT count(*) FROM S WINDOWING 10 s",
            {"lateness": "2d"},
            "17280 closed windows would be kept, and at most 12000",
        ),
        (
            "SELECT count(*) FROM S WINDOWING 25 s SLIDE 10 s",
            {"lateness": "1d", "delay": "5d"},
            "shorten the delay and lateness",
        ),
    ],
)
def test_what_cannot_be_revised_exactly_is_refused(
    sql: str, given: dict[str, object], says: str
) -> None:
    with pytest.raises(Rejected, match=says):
        compiled(sql, late="revise", **given)


def test_a_week_of_minutes_can_be_revised() -> None:
    sql = "SELECT sip, count(*) FROM S GROUP BY sip HAVING count(*) > 1 ORDER BY 2 WINDOWING 60 s"
    assert compiled(sql, late="revise", lateness="7d").options.lateness_ms == 7 * 86_400_000


BY_KEY = "SELECT sip, count(*) AS n FROM S GROUP BY sip WINDOWING 60 s"
SINCE = "SELECT sip, count(*) AS n FROM S GROUP BY sip WINDOWING LANDMARK '2026-01-01' EVERY 1 s"


@pytest.mark.parametrize("scope", ["bucket", "key"])
def test_a_watermark_has_the_scope_that_is_asked_for(scope: str) -> None:
    found = options(watermark=scope)
    assert (found.watermark, found.key_lag_ms) == (WatermarkScope(scope), 60_000)
    assert options(watermark=scope, key_lag="90 s").key_lag_ms == 90_000
    assert options(watermark="partition").key_lag_ms == 0


@pytest.mark.parametrize("scope", ["bucket", "key"])
def test_groups_carry_their_marks_where_the_scope_needs_them(scope: str) -> None:
    plain, scoped = compiled(BY_KEY), compiled(BY_KEY, watermark=scope)
    marks = scope_aggregates(plain.stream.event_time)
    assert scoped.aggregates == (*plain.aggregates, *marks)
    assert (scoped.outputs, scoped.fields) == (plain.outputs, plain.fields)


@pytest.mark.parametrize(
    ("sql", "given", "says"),
    [
        ("SELECT count(*) AS n FROM S WINDOWING 60 s", {}, "groups by no key"),
        (f"{BY_KEY} SLIDE 30 s", {}, "its windows slide"),
        (f"{BY_KEY} EVERY 30 s", {}, "its windows cumulate"),
        (SINCE, {}, "its windows cumulate"),
        (BY_KEY.replace("WINDOWING", "ORDER BY n WINDOWING"), {}, "ORDER BY, LIMIT and max_keys"),
        (BY_KEY.replace("WINDOWING", "LIMIT 3 WINDOWING"), {}, "ORDER BY, LIMIT and max_keys"),
        (BY_KEY, {"max_keys": 5}, "ORDER BY, LIMIT and max_keys"),
        (BY_KEY, {"late": "revise"}, "use late: drop"),
    ],
)
@pytest.mark.parametrize("scope", ["bucket", "key"])
def test_what_cannot_be_closed_apart_is_refused(
    sql: str, given: dict[str, object], says: str, scope: str
) -> None:
    with pytest.raises(Rejected, match=says):
        compiled(sql, watermark=scope, **given)
    assert compiled(sql, **given).options.watermark is WatermarkScope.PARTITION


def test_a_lag_that_would_hold_too_many_windows_open_is_refused() -> None:
    sql = BY_KEY.replace("60 s", "1 s")
    with pytest.raises(Rejected, match="shorten the delay and key_lag"):
        compiled(sql, watermark="key", key_lag="1d")


def test_which_groups_are_folded_would_change_from_step_to_step() -> None:
    fold = {"max_keys": 5, "over_max_keys": "fold"}
    with pytest.raises(Rejected, match="use over_max_keys: fail, or no max_keys"):
        compiled(f"{BY_KEY} EVERY 30 s", **fold)
    assert compiled(f"{BY_KEY} EVERY 30 s", max_keys=5).options.max_keys == 5
    assert compiled(f"{BY_KEY} EVERY 60 s", **fold).folds


def test_groups_at_each_step_are_refused_where_they_are_too_many_rows() -> None:
    assert compiled(f"{BY_KEY} EVERY 1 s", max_keys=100_000).options.max_keys == 100_000
    with pytest.raises(Rejected, match="each step of 500 ms are 12000000 result rows a minute"):
        compiled(f"{BY_KEY} EVERY 500 ms", max_keys=100_000)


def test_steps_that_are_kept_for_late_rows_are_counted_one_by_one() -> None:
    with pytest.raises(Rejected, match="36000 closed windows would be kept"):
        compiled(f"{BY_KEY} EVERY 100 ms", late="revise", lateness="1h")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"late": "revise"}, "since a landmark no row is late"),
        ({"max_keys": 9, "over_max_keys": "fold"}, "fold is not possible"),
    ],
)
def test_what_a_landmark_has_no_use_for_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(Rejected, match=says):
        compiled(SINCE, **given)


def test_each_step_since_a_landmark_may_have_no_more_rows_than_are_written_in_it() -> None:
    with pytest.raises(Rejected, match="are 12000000 result rows a minute"):
        compiled(SINCE.replace("1 s", "500 ms"), max_keys=100_000)


def test_a_landmark_is_as_far_back_as_people_like() -> None:
    plan = compiled(SINCE.replace("2026", "1970").replace("1 s", "100 ms"), delay="1h", max_keys=9)
    assert plan.window.kept_ms == 100


def test_groups_that_changed_are_emitted_alone_where_windows_begin_together() -> None:
    assert compiled(SINCE, emit="changed").emits_changed
    assert compiled(f"{BY_KEY} EVERY 10 s", emit="changed").emits_changed
    assert not compiled(SINCE).emits_changed


@pytest.mark.parametrize(
    ("sql", "given", "says"),
    [
        (SINCE, {"emit": "some"}, "write 'all' or 'changed'"),
        (BY_KEY, {}, "for windows that begin together"),
        (f"{BY_KEY} EVERY 10 s", {"late": "revise"}, "does not go with late: revise"),
        (SINCE.replace("WINDOWING", "LIMIT 3 WINDOWING"), {}, "with HAVING or LIMIT"),
        (SINCE.replace("WINDOWING", "HAVING count(*) > 1 WINDOWING"), {}, "with HAVING or LIMIT"),
    ],
)
def test_where_a_group_that_does_not_come_would_mislead_it_is_refused(
    sql: str, given: dict[str, object], says: str
) -> None:
    with pytest.raises(Rejected, match=says):
        compiled(sql, **{"emit": "changed", **given})
