"""Each guard of the protocol is needed: without it the simulation fails within some seeds.

Every guard is left out by itself, in a weather that lets it show, and the seeds are tried in order
until one fails: by the invariant that the guard is there for. An error of any other kind is one of
the patch. With the guard in place the same seed holds.

Some guards do not show here, because another one heals what they let pass, or because it would take
a rare moment, and have other tests: that a recovery waits for all claims (the check for straddling
entries begins another one), that the leader tells servers apart (whoever reads a log finds that its
life was begun on another one), that the newest claim stands (it takes a former owner who claims
between two looks of the leader), that the leader alone publishes the assignment (the session of one
who leads no more is over: where it does not know that, its call does not arrive; the contract of
leaders of before has one who has a session again), that a full log admits the lane that holds the
watermark (merging makes room here), and, in the contract of the log: that what an assistant brings
too late is refused, and calls of a former store epoch (it takes one that comes just between two
reads), and that an idle lease is compared with the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from mars.adapters.kafka.sink.refusals import take_slot
from mars.adapters.memory import partial_log, sink, store
from mars.adapters.memory.broker import MemoryBroker
from mars.adapters.memory.store import StoredTask, refused_ranges
from mars.core.definitions import Backfill, TaskDefinition
from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Lane, Mapped, Range, Sequence64
from mars.core.windows import Cumulating, Window, watermarks
from mars.engine.aggregates import others
from mars.protocol.backfill.events import Event, Instruction
from mars.protocol.backfill.machine import BackfillMachine
from mars.protocol.leader import machine as leading
from mars.protocol.leader import tasks as leading_tasks
from mars.protocol.leader.view import View
from mars.protocol.mapper import machine as mapping
from mars.protocol.mapper.task_view import TaskView
from mars.protocol.ports import (
    AppendOutcome,
    Claim,
    Cleared,
    Clearing,
    Frontier,
    Head,
    LogSlice,
    Progress,
    Stale,
    TaskStart,
)
from mars.protocol.reducer import owner as owning
from mars.protocol.reducer import snapshots, term
from mars.protocol.reducer import version as version_in_bucket
from mars.protocol.reducer.drafting import Draft
from mars.protocol.reducer.events import CommitTransaction, TrimLog
from mars.protocol.reducer.log_upkeep import LogUpkeep
from mars.protocol.reducer.position import LogPosition
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.reducer.term import Term
from mars.protocol.reducer.version import VersionInBucket
from mars.protocol.windows import input as input_module
from mars.protocol.windows.by_key.closer import KeyCloser
from mars.protocol.windows.closing import Ahead
from mars.protocol.windows.folding import Folding
from mars.protocol.windows.input import Input, StoreWentBack
from mars.protocol.windows.pane_commits import PaneCommits
from mars.protocol.windows.panes import Pane
from mars.protocol.windows.revising import Revising
from tests.simulation.conditions import (
    CHANGING,
    LEADERLESS,
    SAVING,
    SILENT,
    TWICE,
    USUAL,
    Conditions,
)
from tests.simulation.users import Keys

SEEDS = 60
"""The rarest of these shows in about one of ten seeds."""

Patch = pytest.MonkeyPatch


def offsets_compared_and_set(patch: Patch) -> None:
    """M3: the store takes a batch wherever it begins."""
    real = refused_ranges

    def refused(found: object, version: int, mapped: Mapped) -> AppendOutcome | None:
        outcome = real(found, version, mapped)  # type: ignore[arg-type]
        return None if isinstance(outcome, Stale) and outcome.current >= 0 else outcome

    patch.setattr(partial_log, "refused_ranges", refused)


def all_lanes_of_a_batch_are_compared(patch: Patch) -> None:
    """M3: of a batch of several lanes the store looks at the first one only."""
    real = refused_ranges
    patch.setattr(
        partial_log,
        "refused_ranges",
        lambda found, version, mapped: real(
            found, version, replace(mapped, ranges=mapped.ranges[:1])
        ),
    )


def lanes_are_together_behind_all_of_their_cuts(patch: Patch) -> None:
    """M3: after a recovery an entry may hold accounted rows of one lane and new ones of another.

    Lanes that go by themselves for a while, after a batch that straddles a cut, mostly hide it.
    """
    patch.setattr(TaskView, "go_apart", lambda self, until_ms: None)
    real = refused_ranges

    def refused(found: StoredTask, version: int, mapped: Mapped) -> AppendOutcome | None:
        each = (replace(mapped, ranges=(part,)) for part in mapped.ranges)
        outcomes = (real(found, version, one) for one in each)
        return next((one for one in outcomes if one is not None), None)

    patch.setattr(partial_log, "refused_ranges", refused)


def accounted_rows_only_rebuild(patch: Patch) -> None:
    """R5: what lies below M is counted again."""
    patch.setattr(Input, "accounts_for", lambda self, entry: False)


def catch_up_barrier(patch: Patch) -> None:
    """R6: after a loss a bucket goes on as if it had read again all that it accounted for."""
    always = property(lambda self: self.head is not None, lambda self, value: None)
    patch.setattr(LogPosition, "caught_up", always, raising=False)
    patch.setattr(VersionInBucket, "read_again", lambda self, merged: dict(merged))


def claims_read_the_progress(patch: Patch) -> None:
    """R3: an owner begins from nothing."""
    real = sink.MemorySink.claim

    def claim(self: sink.MemorySink, wanted: Claim) -> object:
        return replace(real(self, wanted), records=())

    patch.setattr(sink.MemorySink, "claim", claim)


def owners_are_fenced(patch: Patch) -> None:
    """R2, R8: a former owner's producer goes on writing, and nobody looks for foreign records."""
    patch.setattr(MemoryBroker, "_current", _any_epoch)
    for check in ("refuse_newer", "refuse_others", "refuse_strangers"):
        patch.setattr(sink, check, lambda *given: None)


def _any_epoch(self: MemoryBroker, transactional_id: str, epoch: int) -> object:
    return self._ids[transactional_id]


def cuts(patch: Patch) -> None:
    """After a recovery batches may straddle what a bucket has accounted."""
    real = leading_tasks.task_start

    def start(definition: TaskDefinition, view: View) -> TaskStart:
        return replace(real(definition, view), cuts={})

    patch.setattr(leading, "task_start", start)


def cuts_at_snapshots(patch: Patch) -> None:
    """After a recovery batches may straddle the offsets at which a bucket's panes were saved."""
    real = leading_tasks.task_start

    def start(definition: TaskDefinition, view: View) -> TaskStart:
        unsaved = {
            key: replace(record, snapshot=None) for key, record in view.progress.records.items()
        }
        progress = replace(view.progress, records=unsaved)
        return replace(
            real(definition, view), cuts=real(definition, replace(view, progress=progress)).cuts
        )

    patch.setattr(leading, "task_start", start)


def rows_in_a_snapshot_are_passed_over(patch: Patch) -> None:
    """What other buckets have read again is added to panes that hold it already."""
    patch.setattr(Input, "contains", lambda self, entry: False)


def saved_panes_come_before_the_log(patch: Patch) -> None:
    """After a loss a bucket goes on without the panes that it has saved."""
    for module in (snapshots, version_in_bucket):
        patch.setattr(module, "is_of_lost_store", lambda record, store_epoch: False)


def logs_lost_while_they_are_read(patch: Patch) -> None:
    """R5: the answer of a store that was just emptied is taken for a log without entries."""
    patch.setattr(term, "_still_there", lambda part, before, after: True)


def lives_of_one_name(patch: Patch) -> None:
    """A task made again goes on in what the deleted one left."""
    patch.setattr(leading, "of_former_task", lambda definition, head: False)
    patch.setattr(TaskInBucket, "same_life", lambda self, task: True)
    patch.setattr(TaskInBucket, "knows", lambda self, version: True)


def versions_begin_behind_what_is_accounted(patch: Patch) -> None:
    """A version begins where a recovery has set the store back to."""
    patch.setattr(leading_tasks, "_caught_up", lambda view, definition, head: True)


def heads_are_read_without_rows(patch: Patch) -> None:
    """A mapper at the end of its lanes does not notice that the store was lost."""
    patch.setattr(mapping, "HEAD_INTERVAL_MS", 10**12)
    patch.setattr(mapping, "HEAD_INTERVAL_MS_MAX", 10**12)


def unfinished_history_holds_the_watermark(patch: Patch) -> None:
    """Lanes with an end never hold it, as if they were finished from the start."""
    patch.setattr(Head, "finished", property(lambda self: frozenset(self.ends)))


def finished_history_is_put_aside(patch: Patch) -> None:
    """Lanes that are read to their end go on holding the watermark by their last mark."""
    patch.setattr(Head, "finished", property(lambda self: frozenset()))


def event_time_goes_on_from_the_newest_row(patch: Patch) -> None:
    """Where all lanes are idle the clock alone closes windows, however old their rows are."""
    patch.setattr(watermarks, "event_time", lambda mark, now_ms: now_ms)


def chunks_are_the_same_again(patch: Patch) -> None:
    """Each process takes shares of the lanes of its own: of every second one less at first."""
    powers: dict[int, int] = {}
    current = [1]
    handle = BackfillMachine.handle

    def handled(self: BackfillMachine, event: Event) -> list[Instruction]:
        current[0] = powers.setdefault(id(self), len(powers) % 4 + 1)
        return handle(self, event)

    def chunk(self: Backfill, number: int) -> tuple[Range, ...]:
        ranges = []
        for place, (lane, span) in enumerate(self.lanes.items()):
            power = current[0] if place % 2 else 1
            shares = ((at / self.chunks) ** power for at in (number, number + 1))
            first, after = (span.first + int((span.end - span.first) * at) for at in shares)
            ranges += [Range(lane, first, after)] if first < after else []
        return tuple(ranges)

    patch.setattr(BackfillMachine, "handle", handled)
    patch.setattr(Backfill, "chunk", chunk)


def full_logs_are_merged_while_they_are_read_again(patch: Patch) -> None:
    """R9: a log that is filled anew is merged only once all that was accounted is in it."""
    real = LogUpkeep.is_compactable
    patch.setattr(
        LogUpkeep,
        "is_compactable",
        lambda self, budget: self._position.caught_up and real(self, budget),
    )


def one_bucket_counts_the_groups(patch: Patch) -> None:
    """A limit on groups: each bucket takes as many as the whole task may have."""
    patch.setattr(Plan, "single_bucket", False)


def a_window_shows_groups_that_no_pane_has_folded(patch: Patch) -> None:
    """A limit on groups: what a pane has put among the others lacks in the group's row."""
    patch.setattr(others, "_without_divided", lambda plan, whole, panes, folding: whole)


def a_limit_found_while_merging_stops_one_task(patch: Patch) -> None:
    """A limit on groups: what merging a log finds (R9) is not taken for that task's own trouble."""
    patch.setattr(Term, "clean_up", Term._trim)


def closed_windows_are_kept(patch: Patch) -> None:
    """Late rows: what is closed is needed no more, as if it took none."""
    real = PaneCommits.needed

    def needed(self: PaneCommits, through: Mapping[Lane, int], frontier: Frontier) -> object:
        closed_ms = self._state.frontier.closed_ms
        kept_ms = frontier.forgotten_ms if closed_ms is None else closed_ms
        return real(self, through, replace(frontier, forgotten_ms=kept_ms))

    patch.setattr(PaneCommits, "needed", needed)


def revisions_are_numbered_in_the_record(patch: Patch) -> None:
    """Late rows: an owner begins with the first revision."""
    real = Revising.__init__

    def begin(
        self: Revising, plan: Plan, numbers: Mapping[int, int], owed: Iterable[Window]
    ) -> None:
        real(self, plan, {}, owed)

    patch.setattr(Revising, "__init__", begin)


def revisions_that_are_owed_come_later(patch: Patch) -> None:
    """Late rows: what one commit does not revise is taken for revised."""
    real = Revising.committed
    patch.setattr(Revising, "committed", lambda self, record: real(self, replace(record, owed=())))


def closed_groups_are_known_again(patch: Patch) -> None:
    """Windows by key: an owner takes all groups that it has read again for open ones."""

    def settle(self: KeyCloser) -> None:
        self.settled = True

    patch.setattr(KeyCloser, "settle", settle)


def rows_above_wait_for_those_below(patch: Patch) -> None:
    """Windows by key: what lies above M is decided before all below it is read again."""
    real = Folding.absorb

    def absorb(self: Folding, entry: Entry) -> None:
        closer: Any = self.state.closer
        settled, closer.settled = closer.settled, True
        try:
            real(self, entry)
        finally:
            closer.settled = settled

    patch.setattr(Folding, "absorb", absorb)


def what_is_due_is_closed_with_every_commit(patch: Patch) -> None:
    """Windows by key: every other commit leaves some of it to the next one."""
    real, turns = KeyCloser.close_ahead, count()

    def close(self: KeyCloser, closed_ms: int | None) -> Ahead:
        whole = real(self, closed_ms)
        return Ahead(whole.upto_ms) if next(turns) % 2 else whole

    patch.setattr(KeyCloser, "close_ahead", close)


def how_far_groups_are_closed_is_in_the_record(patch: Patch) -> None:
    """Windows by key: an owner takes all that is due by the marks for closed, X or not."""
    real = KeyCloser.settle

    def settle(self: KeyCloser) -> None:
        self._frontier = replace(self._frontier, ahead_ms=self._marks.reached_ms)
        self._marks.ahead_ms = self._marks.reached_ms
        real(self)

    patch.setattr(KeyCloser, "settle", settle)


def entries_are_counted(patch: Patch) -> None:
    """R5: a log that holds fewer entries than the store has noted is read as if it were whole."""
    real = partial_log._slice

    def whole(*given: Any, **named: Any) -> LogSlice:
        return replace(real(*given, **named), vanished=0)

    patch.setattr(partial_log, "_slice", whole)


def segments_are_replaced_as_a_whole(patch: Patch) -> None:
    """Assistants: what a merged entry stands for stays beside it."""
    real = StoredTask.replace
    patch.setattr(StoredTask, "replace", lambda self, entry: _beside(self, entry, real))


def _beside(self: StoredTask, entry: Entry, replace_all: Callable[..., None]) -> None:
    bucket = entry.partial.bucket
    before = self.logs[bucket]
    replace_all(self, entry)
    self.logs[bucket] = dict(sorted({**before, **self.logs[bucket]}.items()))


def servers_are_told_apart_by_reducers(patch: Patch) -> None:
    """After a fail-over: a reducer goes on in the log of another server where it is no shorter."""
    patch.setattr(LogPosition, "check_life", lambda self, run_id: None)


def lives_are_held_to_from_the_first_look_on(patch: Patch) -> None:
    """After a fail-over: who has read nothing yet takes the server that is there for the right one,
    though saved panes may have been put back into the other.
    """
    real = LogPosition.reach

    def reach(self: LogPosition, head: Head) -> bool:
        self.check_life(head.run_id)
        return real(self, head)

    patch.setattr(LogPosition, "look", lambda self, head: None)
    patch.setattr(LogPosition, "reach", reach)


def batches_fit_their_version(patch: Patch) -> None:
    """M3: a batch is taken whatever version of the task it was made by."""
    patch.setattr(store, "_fits_version", lambda found, version, part: True)


def logs_are_trimmed_after_the_commit(patch: Patch) -> None:
    """R9: what a commit makes superfluous goes before its outcome is known."""
    real = owning.BucketOwner._commit

    def commit(self: owning.BucketOwner, *given: Any) -> list[Any]:
        asked = real(self, *given)
        return [*_trims(self, asked), *asked]

    patch.setattr(owning.BucketOwner, "_commit", commit)


def _trims(own: owning.BucketOwner, asked: Iterable[object]) -> Iterable[TrimLog]:
    for one in asked:
        records = one.transaction.progress if isinstance(one, CommitTransaction) else ()
        for name in dict.fromkeys(record.task for record in records if not record.deleted):
            part = own.term.parts[name]
            alive = {one.version: one for one in records if one.task == name}
            gone = part.log.trim(_needed_after(part, alive))
            yield TrimLog(own.bucket, name, own._store_epoch, part.position.born, gone)


def _needed_after(part: TaskInBucket, records: Mapping[int, Progress]) -> dict[Lane, int]:
    """What the log is needed for once these records are committed."""
    needed = dict(part.position.through)
    for version in part._open():
        record = records.get(version.plan.version)
        frontier = version.state.frontier if record is None else record.frontier
        read = version.read_again(frontier.merged)
        low = version.state.commits.needed(read, frontier)
        needed = {lane: min(offset, low.get(lane, 0)) for lane, offset in needed.items()}
    return needed


def entries_of_open_windows_are_kept(patch: Patch) -> None:
    """R9: what is accounted leaves the log, its windows closed or not."""
    patch.setattr(LogUpkeep, "trim", _trim_accounted)


def _trim_accounted(self: LogUpkeep) -> tuple[Sequence64, ...]:
    merged = [version.folding.input.merged for version in self._versions.values()]
    lanes = self._position.through
    return self._log.trim({lane: min(one.get(lane, 0) for one in merged) for lane in lanes})


def panes_that_become_one_need_their_first_rows(patch: Patch) -> None:
    """R5: once the panes of a cycle are one, the rows that came into it last are needed no more."""
    real = Pane.carry

    def carry(self: Pane, other: Pane, start_ms: int) -> None:
        firsts = dict(self.first)
        real(self, other, start_ms)
        self.first = firsts

    patch.setattr(Pane, "carry", carry)


def windows_that_begin_together_are_told_apart_in_records(patch: Patch) -> None:
    """Late rows: the record names the revisions of all steps of a cycle by its start."""
    patch.setattr(Cumulating, "name_of", lambda self, window: window.start_ms)
    patch.setattr(Cumulating, "window_named", Cumulating.window_of_start)


def each_transaction_has_a_producer_of_its_own(patch: Patch) -> None:
    """R8: a commit that arrives a second time ends the next transaction of its producer."""
    made: dict[object, object] = {}
    real_producer, real_slot = sink.MemorySink._producer, sink.MemorySink._slot

    def producer(self: sink.MemorySink, bucket: Bucket) -> object:
        made[self, bucket] = real_producer(self, bucket)
        return made[self, bucket]

    def slot(self: sink.MemorySink, own: sink._Own, *given: Any) -> object:
        with patch.context() as here:
            here.setattr(self, "_producer", lambda bucket: made[self, bucket], raising=False)
            return real_slot(self, own, *given)

    patch.setattr(sink.MemorySink, "_producer", producer)
    patch.setattr(sink.MemorySink, "_slot", slot)


def drafts_stand_while_no_row_comes(patch: Patch) -> None:
    """R7: a draft is committed whatever came for its windows since, and whatever is due."""
    patch.setattr(Draft, "fits", lambda self, panes, due, emit: emit == self.emit)


def the_sink_compares_what_it_has_drafted(patch: Patch) -> None:
    """R7: a commit takes any draft for its own rows."""
    real = take_slot

    def take(slots: dict[Bucket, Any], bucket: Bucket) -> Any:
        slot = real(slots, bucket)
        draft = slot.draft
        return slot if draft is None else replace(slot, draft=replace(draft, results=_Any(())))

    patch.setattr(sink, "take_slot", take)


class _Any(tuple[Any, ...]):
    """Equal to all others."""

    __slots__ = ()

    def __ne__(self, _other: object) -> bool:
        return False


def no_merged_entry_crosses_a_look(patch: Patch) -> None:
    """Assistants: they merge what its owner may have read already."""
    patch.setattr(StoredTask, "clear", _clear_all)


def _clear_all(self: StoredTask, said: Clearing) -> None:
    self.cleared[said.bucket] = Cleared(said.owner_epoch, Sequence64(0))


@dataclass(frozen=True, slots=True)
class Guard:
    """What is left out, what that breaks, and in which conditions it shows.

    `breaks`: how messages begin that say so: the invariant, `never` where a run does not come to
    its end, or the error that processes complain of. `first`: the seed tried first, which showed it
    when this was written; nothing but time is saved by it.
    """

    leave_out: Callable[[Patch], None]
    breaks: str | tuple[str, ...]
    conditions: Conditions = USUAL
    first: int = 0


I1, I2, I3, NEVER = "I1: ", "I2: ", "I3: ", "never: "

TAKEN_TWICE = '["I4: '
"""The store takes offsets twice, or passes some over."""

OVERFULL = "TaskLimit: "

GUARDS = (
    Guard(offsets_compared_and_set, TAKEN_TWICE, first=1),
    Guard(
        all_lanes_of_a_batch_are_compared, (NEVER, TAKEN_TWICE), Conditions(wide=True), first=105
    ),
    Guard(accounted_rows_only_rebuild, I1),
    Guard(catch_up_barrier, I2),
    Guard(claims_read_the_progress, (I1, I3)),
    Guard(owners_are_fenced, (I1, I3), first=9),
    Guard(cuts, NEVER),
    Guard(cuts_at_snapshots, NEVER, Conditions(SAVING), first=39),
    Guard(rows_in_a_snapshot_are_passed_over, I1, Conditions(SAVING), first=1),
    Guard(saved_panes_come_before_the_log, I1, Conditions(SAVING), first=1),
    Guard(logs_lost_while_they_are_read, I2, Conditions({"emptied": 0.01}), first=16),
    Guard(lives_of_one_name, (NEVER, I1), Conditions({"user_ms": 250}), first=50),
    Guard(versions_begin_behind_what_is_accounted, (NEVER, I1), first=30),
    Guard(heads_are_read_without_rows, NEVER, first=17),
    Guard(unfinished_history_holds_the_watermark, I1, first=7),
    Guard(finished_history_is_put_aside, NEVER, first=1),
    Guard(event_time_goes_on_from_the_newest_row, I1, Conditions(SILENT), first=8),
    Guard(
        chunks_are_the_same_again,
        NEVER,
        Conditions({"flush_ms": 1_500, "kill_ms": 1_500}),
        first=72,
    ),
    Guard(full_logs_are_merged_while_they_are_read_again, NEVER, first=36),
    Guard(one_bucket_counts_the_groups, I1, first=1),
    Guard(a_window_shows_groups_that_no_pane_has_folded, I1, first=119),
    Guard(a_limit_found_while_merging_stops_one_task, OVERFULL, first=3),
    Guard(closed_windows_are_kept, I1, Conditions(SAVING, revising=True), first=5),
    Guard(revisions_are_numbered_in_the_record, I1, Conditions(SAVING, revising=True), first=9),
    Guard(revisions_that_are_owed_come_later, I1, Conditions(revising=True), first=36),
    Guard(closed_groups_are_known_again, I1, Conditions(keys=Keys.OWN)),
    Guard(rows_above_wait_for_those_below, I1, Conditions(SAVING, keys=Keys.STRAY)),
    Guard(what_is_due_is_closed_with_every_commit, I1, Conditions(keys=Keys.OWN)),
    Guard(how_far_groups_are_closed_is_in_the_record, I1, Conditions(keys=Keys.OWN), first=1),
    Guard(segments_are_replaced_as_a_whole, NEVER, Conditions(split=True), first=30),
    Guard(no_merged_entry_crosses_a_look, NEVER, Conditions(split=True)),
    Guard(servers_are_told_apart_by_reducers, (I1, I2, NEVER), Conditions(LEADERLESS), first=88),
    Guard(
        lives_are_held_to_from_the_first_look_on,
        (I1, NEVER),
        Conditions({**LEADERLESS, "flush_ms": 3_000}),
        first=149,
    ),
    Guard(batches_fit_their_version, I1, Conditions(CHANGING), first=55),
    Guard(logs_are_trimmed_after_the_commit, I1, first=22),
    Guard(entries_of_open_windows_are_kept, I1),
    Guard(panes_that_become_one_need_their_first_rows, I1, first=9),
    Guard(
        windows_that_begin_together_are_told_apart_in_records,
        I1,
        Conditions(revising=True),
        first=8,
    ),
    Guard(each_transaction_has_a_producer_of_its_own, I1, Conditions(TWICE), first=1),
    Guard(drafts_stand_while_no_row_comes, I1, first=1),
    Guard(the_sink_compares_what_it_has_drafted, I1, first=1),
    Guard(entries_are_counted, I1, Conditions({"vanish_ms": 3_000, "vanish_noted": True})),
)


def failure(guard: Guard) -> tuple[int, str] | None:
    """The first of so many seeds that fails, and by what."""
    for seed in range(guard.first, guard.first + SEEDS):
        problem = guard.conditions.problem(seed)
        if problem is not None:
            return seed, problem
    return None


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.leave_out.__name__)
def test_without_a_guard_the_simulation_fails(guard: Guard, monkeypatch: Patch) -> None:
    guard.leave_out(monkeypatch)

    found = failure(guard)

    assert found is not None, f"none of {SEEDS} seeds shows that it is missing"
    seed, problem = found
    assert problem.startswith(guard.breaks), f"seed {seed} fails by something else: {problem}"
    monkeypatch.undo()
    assert guard.conditions.problem(seed) is None, f"seed {seed} fails with the guard, too"


LOSSES = Conditions({"flush_ms": 1_500}, wide=True)
"""The store is lost while mappers read many lanes."""


def straddling(patch: Patch, seeds: Iterable[int]) -> int:
    """How many entries lie on both sides of what a bucket has accounted, or has in its base."""
    real, found = input_module._lies_below, 0

    def lies_below(offsets: Mapping[Lane, int], entry: Entry, what: str) -> bool:
        nonlocal found
        try:
            return real(offsets, entry, what)
        except StoreWentBack:
            found += 1
            raise

    patch.setattr(input_module, "_lies_below", lies_below)
    for seed in seeds:
        assert LOSSES.problem(seed) is None
    return found


def test_without_their_cuts_behind_them_lanes_are_together_in_entries_that_begin_recoveries(
    monkeypatch: Patch,
) -> None:
    """Each of these recoveries ends some time, so that no invariant shows what is missing."""
    seeds = range(6)
    with monkeypatch.context() as patch:
        lanes_are_together_behind_all_of_their_cuts(patch)
        assert straddling(patch, seeds)
    with monkeypatch.context() as patch:
        assert not straddling(patch, seeds)
