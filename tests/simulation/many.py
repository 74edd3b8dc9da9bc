"""Runs many seeds: `python -m tests.simulation.many COUNT [FIRST] [KEYS] [--processes N]`."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait

from tests.simulation.hashes import fix_hashes
from tests.simulation.users import Keys
from tests.simulation.world import World

USAGE = "usage: python -m tests.simulation.many COUNT [FIRST] [KEYS] [--processes N]\n"

REPORT_EVERY = 100

YOUNG_OBJECTS = 20_000
"""Objects between two looks for garbage: the usual 700 of them are made in a few steps, and hardly
any are in a cycle."""

Run = Callable[[int], str]
"""Runs a seed; what is wrong with it, in one line that names it; empty if it holds."""


def main(arguments: list[str]) -> int:
    """Exit 0 if all runs hold, 1 if one does not, 2 for a wrong call."""
    processes = processes_of(arguments)
    keys = Keys.at_the_end_of(arguments)
    if not processes or not 1 <= len(arguments) <= 2 or not all(map(str.isdigit, arguments)):
        sys.stderr.write(USAGE)
        return 2
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    begun_s = time.monotonic()
    failed: list[int] = []
    results = results_of(range(first, first + count), partial(problem_of, keys=keys), processes)
    for done, (seed, problem) in enumerate(results, start=1):
        if problem:
            failed.append(seed)
            _say(problem)
        if done % REPORT_EVERY == 0 or done == count:
            minutes = (time.monotonic() - begun_s) / 60
            pace = done / minutes / min(processes, count)
            _say(
                f"{done} of {count} seeds, {len(failed)} failed, "
                f"{minutes:.1f} min, {pace:.0f} a minute and process"
            )
    if failed:
        _say(f"failed: {' '.join(map(str, sorted(failed)))}")
        _say(f"again, with all its steps: python -m tests.simulation.replay SEED {keys}")
    return 1 if failed else 0


def processes_of(arguments: list[str]) -> int:
    """Take `--processes N` out of the arguments; 0 for a wrong one, else one for each core."""
    if "--processes" not in arguments:
        return len(os.sched_getaffinity(0))
    at = arguments.index("--processes")
    number = arguments[at + 1 : at + 2]
    del arguments[at : at + 2]
    return int(number[0]) if number and number[0].isdigit() else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def problem_of(seed: int, keys: Keys) -> str:
    """See `Run`."""
    try:
        World(seed, keys=keys).run()
    except AssertionError as problem:
        return str(problem).splitlines()[0][:300]
    return ""


# ---------------------------------------------------------------------------------- processes


def results_of(seeds: Iterable[int], run: Run, processes: int) -> Iterator[tuple[int, str]]:
    """Each seed with its problem, as they come. A seed whose process dies has failed, too."""
    waiting = iter(seeds)
    workers: dict[Connection, _Worker] = {}
    try:
        for _number in range(processes):
            _employ(workers, waiting, run)
        while workers:
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                worker = workers.pop(connection)
                seed, problem, alive = worker.result()
                _employ(workers, waiting, run, worker if alive else None)
                yield seed, problem
    finally:
        for worker in workers.values():
            worker.end()


def _employ(
    workers: dict[Connection, _Worker],
    waiting: Iterator[int],
    run: Run,
    worker: _Worker | None = None,
) -> None:
    """Give the next seed to a worker, a new one if there is none; let it go if there is no seed."""
    seed = next(waiting, None)
    if seed is not None:
        worker = worker or _Worker(run)
        worker.begin(seed)
        workers[worker.connection] = worker
    elif worker is not None:
        worker.end()


class _Worker:
    """A process that runs one seed at a time."""

    def __init__(self, run: Run) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, run), daemon=True)
        self._process.start()
        theirs.close()
        self._seed = 0

    def begin(self, seed: int) -> None:
        """Let it run a seed; one that is dead tells so with the result."""
        self._seed = seed
        with suppress(BrokenPipeError):
            self.connection.send(seed)

    def result(self) -> tuple[int, str, bool]:
        """The seed, its problem, and whether the process lives on."""
        try:
            return self._seed, self.connection.recv(), True
        except (EOFError, ConnectionResetError):
            self.end()
            code = self._process.exitcode
            return self._seed, f"seed {self._seed}: its process died, exit code {code}", False

    def end(self) -> None:
        """No further seed: it ends, at once if it is in the middle of one."""
        self.connection.close()
        self._process.terminate()
        self._process.join()


def _work(connection: Connection, run: Run) -> None:
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    with suppress(EOFError):
        while True:
            connection.send(run(connection.recv()))


if __name__ == "__main__":
    fix_hashes()
    raise SystemExit(main(sys.argv[1:]))
