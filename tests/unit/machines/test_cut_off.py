"""When a process alone has lost a server."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from mars.core.types import MemberId
from mars.protocol.balance.load_view import STALE_S
from mars.protocol.cut_off import CUT_OFF_S, CutOff
from mars.protocol.ports import MemberInfo

LOST = frozenset({"redis"})


def other(
    name: str, at_s: float, missing: tuple[str, ...] = (), *, leaving: bool = False
) -> MemberInfo:
    """What another reducer says of itself at a time of the run."""
    return MemberInfo(
        id=MemberId(name),
        role="reducer",
        host="there",
        pid=1,
        started_ms=0,
        missing=missing,
        reported_ms=int(at_s * 1_000),
        leaving=leaving,
    )


def after(seconds: float, looks: Iterable[tuple[float, tuple[MemberInfo, ...]]]) -> frozenset[str]:
    """What the last of the looks before that time finds, Redis being lost all the time."""
    cut_off = CutOff()
    found: frozenset[str] = frozenset()
    for at_s, others in looks:
        if at_s <= seconds:
            found = cut_off.look(at_s, LOST, others)
    return found


def each_second(
    *names: str, missing: tuple[str, ...] = (), until: float = 60.0
) -> list[tuple[float, tuple[MemberInfo, ...]]]:
    """Looks at others that report each second."""
    return [(float(s), tuple(other(name, s, missing) for name in names)) for s in range(int(until))]


def test_who_alone_has_lost_a_server_knows_it_after_a_while() -> None:
    looks = each_second("well")
    assert after(CUT_OFF_S - 1, looks) == frozenset()
    assert after(CUT_OFF_S, looks) == LOST


def test_a_process_without_others_of_its_role_keeps_its_part() -> None:
    assert after(60, each_second()) == frozenset()


@pytest.mark.parametrize("service", ["redis", "kafka"])
def test_others_that_lack_a_server_too_take_nothing_over(service: str) -> None:
    assert after(60, each_second("ill", missing=(service,))) == frozenset()


def test_others_may_lack_what_is_not_needed_for_the_work() -> None:
    assert after(CUT_OFF_S, each_second("well", missing=("spark",))) == LOST


def test_who_says_nothing_new_is_no_witness() -> None:
    silent = [(float(s), (other("silent", 0),)) for s in range(60)]
    assert after(STALE_S, silent) == frozenset()
    assert after(60, silent) == frozenset()


def test_who_is_about_to_stop_is_no_witness() -> None:
    leaving = [(float(s), (other("leaving", s, leaving=True),)) for s in range(60)]
    assert after(60, leaving) == frozenset()


def test_the_other_must_have_been_well_all_the_time() -> None:
    """A server that comes back for one a moment before it comes back for the next."""
    back_s = 40
    looks = [(float(s), (other("first", s, () if s >= back_s else ("redis",)),)) for s in range(80)]
    assert after(back_s + CUT_OFF_S - 1, looks) == frozenset()
    assert after(back_s + CUT_OFF_S, looks) == LOST


def test_a_server_that_came_back_begins_anew() -> None:
    cut_off = CutOff()
    for s in range(int(CUT_OFF_S)):
        cut_off.look(s, LOST, [other("well", s)])
    cut_off.look(CUT_OFF_S, (), [other("well", CUT_OFF_S)])
    later = CUT_OFF_S + 1
    assert cut_off.look(later, LOST, [other("well", later)]) == frozenset()


def test_another_witness_begins_anew() -> None:
    looks = each_second("one", until=10) + [(s + 10, o) for s, o in each_second("two")]
    assert after(CUT_OFF_S, looks) == frozenset()


def test_zookeeper_is_left_to_its_session() -> None:
    cut_off = CutOff()
    for s in range(60):
        assert not cut_off.look(s, {"zookeeper"}, [other("well", s)])
