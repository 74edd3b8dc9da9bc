"""What the tuple tracker costs: `python -m bench.tracking [--quick]`. No servers.

The paper's three questions, over as many roots as it has: memory of one acker by number of roots,
the balance of six ackers, and how many roots move when an acker joins or leaves. Besides: how many
notes an acker adds up in a second, and what a note costs the process that sends it.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from mars.core.types import Bucket, Lane, MemberId, Range, Sequence64, StoreEpoch, TaskName
from mars.protocol.ports.notes import (
    BLOCK_ROOTS,
    LogLife,
    Note,
    Root,
    check_of,
    counted_note,
    encode_notes,
    place_of,
)
from mars.protocol.tracker.records import RECORD_BYTES, RootRecords
from mars.protocol.tracker.ring import HashRing

LIFE = LogLife(TaskName("by_sip"), StoreEpoch(1), 1)
BUCKETS = 8
ROOTS = (100_000, 300_000, 500_000, 900_000)
ACKERS = 6
TASKS = 20
BATCH_ROWS = 10_000
QUICK_SHARE = 20
MB = 1_000_000


def root(seq: int) -> Root:
    """A batch of one task."""
    return Root(LIFE, Sequence64(seq))


def offsets(seq: int) -> Range:
    """The offsets of a batch, of four lanes in turn."""
    return Range(Lane(str(seq % 4)), seq * BATCH_ROWS, (seq + 1) * BATCH_ROWS)


def stored(seq: int) -> Note:
    """A mapper's note of a batch that wrote all buckets."""
    check = check_of(root(seq), map(Bucket, range(BUCKETS)))
    return Note(root(seq), check, check, (offsets(seq),))


def packed(roots: int) -> RootRecords:
    """An acker's records, none of them counted yet. Which bits they hold does not matter here."""
    records = RootRecords()
    for seq in range(roots):
        records.add(Note(root(seq), seq + 1, seq + 1, (offsets(seq),)), 0)
    return records


def plain(roots: int) -> dict[int, tuple[set[int], tuple[Range, ...]]]:
    """The same without XOR: for each batch the ids of its partials that are not counted yet."""
    return {
        seq: (
            {2**63 + seq * BUCKETS + number for number in range(BUCKETS)},
            (offsets(seq),),
        )
        for seq in range(roots)
    }


def resident(build: Callable[[int], object], roots: int) -> int:
    """Bytes by which a process grows that builds this."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_grown, (build, roots))


def _grown(build: Callable[[int], object], roots: int) -> int:
    gc.collect()
    before = _resident_bytes()
    kept = build(roots)
    gc.collect()
    grown = _resident_bytes() - before
    del kept
    return grown


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def print_memory(counts: Iterable[int]) -> None:
    """Memory by number of roots."""
    print(f"memory of one acker; a record is {RECORD_BYTES} bytes, 20 of them the tree\n")
    print("| roots | XOR records, MB | bytes a root | every partial by itself, MB |")
    print("| ---: | ---: | ---: | ---: |")
    for roots in counts:
        ours, others = resident(packed, roots), resident(plain, roots)
        print(
            f"| {roots:,} | {ours / MB:.1f} | {ours / roots:.0f} | {others / MB:.0f} |", flush=True
        )


def blocks(roots: int) -> list[int]:
    """The places of all blocks, over some tasks."""
    per_task = roots // TASKS // BLOCK_ROOTS
    lives = [LIFE._replace(task=TaskName(f"task-{number}")) for number in range(TASKS)]
    return [place_of(life, block) for life in lives for block in range(per_task)]


def ring_of(ackers: int) -> HashRing:
    """The ring of so many reducers."""
    return HashRing(MemberId(f"reducer-{number}") for number in range(1, ackers + 1))


def print_balance(counts: Iterable[int]) -> None:
    """How evenly six ackers share the roots."""
    print(f"\nroots of {ACKERS} ackers, {TASKS} tasks\n")
    print("| roots | fewest | most | most to mean |")
    print("| ---: | ---: | ---: | ---: |")
    for roots in counts:
        places = blocks(roots)
        shares = Counter(map(ring_of(ACKERS).owner, places)).values()
        mean = len(places) / ACKERS
        fewest, most = min(shares) * BLOCK_ROOTS, max(shares) * BLOCK_ROOTS
        print(f"| {roots:,} | {fewest:,} | {most:,} | {max(shares) / mean:.3f} |")


def print_moves(roots: int) -> None:
    """How many roots change their acker."""
    places = blocks(roots)
    before, after = ring_of(ACKERS), ring_of(ACKERS + 1)
    moved = sum(before.owner(place) != after.owner(place) for place in places)
    left = sum(ring_of(ACKERS - 1).owner(place) != before.owner(place) for place in places)
    print(f"\nof {len(places) * BLOCK_ROOTS:,} roots on {ACKERS} ackers move")
    print(f"- {moved / len(places):.1%} when one joins (1/{ACKERS + 1} = {1 / (ACKERS + 1):.1%})")
    print(f"- {left / len(places):.1%} when one leaves (1/{ACKERS} = {1 / ACKERS:.1%})")


def print_rates(roots: int) -> None:
    """What notes cost whoever sends them and whoever adds them up."""
    begun = time.process_time()
    sent = [stored(seq) for seq in range(roots)]
    made_s = time.process_time() - begun
    notes = [*sent, *(counted_note(root(seq), Bucket(b)) for seq in range(roots) for b in range(8))]
    records = RootRecords()
    begun = time.process_time()
    proven = sum(records.add(note, 0) for note in notes)
    added_s = time.process_time() - begun
    assert proven == roots
    assert len(records) == 0
    letter = len(encode_notes(sent)) / roots
    print(f"\na mapper's note of {BUCKETS} partials takes {made_s / roots * 1e6:.1f} us of CPU")
    print(f"and {letter:.0f} bytes on the wire; an acker adds {len(notes) / added_s:,.0f} notes/s")


def main() -> None:
    """Print everything; `--quick` with a twentieth of the roots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the roots")
    share = QUICK_SHARE if parser.parse_args().quick else 1
    counts = [roots // share for roots in ROOTS]
    print_memory(counts)
    print_balance(counts)
    print_moves(counts[-1])
    print_rates(counts[0])


if __name__ == "__main__":
    main()
