"""Where a batch ends that cannot be unpacked, against what a client would answer."""

from __future__ import annotations

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from mars.adapters.kafka.source.undecodable import Halving


@given(data=st.data())
def test_end_of_a_batch_is_found_by_few_questions(data: st.DataObject) -> None:
    base = data.draw(st.integers(0, 10**9))
    rows = data.draw(st.one_of(st.integers(1, 40), st.integers(1, 10**7)), "rows of the batch")
    last = base + rows - 1
    within = data.draw(st.integers(base, last), "is read from")
    behind = data.draw(st.integers(within + 1, last + 10**9), "end of the partition")
    guess = data.draw(st.sampled_from([-1, base, last, last + 1, last + 5]), "guess")
    halving = Halving(base, behind, within, guess)
    asked = 0
    while halving.end is None:
        offset = halving.asks()
        assert halving.within < offset < halving.behind
        # The next batch cannot be unpacked, either.
        halving.answered(offset, base if offset <= last else last + 1)
        asked += 1
    assert halving.end == min(last + 1, behind)
    assert asked <= 10 + 2 * log2(rows + 1)


def test_batch_of_one_is_found_by_one_question_and_one_that_is_known_by_two() -> None:
    single = Halving(7, 10**9, 7)
    assert single.asks() == 8
    single.answered(8, None)
    assert single.end == 8
    known = Halving(7, 10**9, 7, guess=5_000)
    for named in (7, None):
        known.answered(known.asks(), named)
    assert known.end == 5_000
