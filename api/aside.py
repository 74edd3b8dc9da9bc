"""Work that may take much memory or time, in a process of its own that has limits of both.

    thread ──question──▶ python -m api.aside_work     memory: the kernel's limit; time: killed
           ◀──answer, or error──

A process costs a second to start; what it took goes back to the machine when it ends, however much
that was, and it dies with this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock

import msgspec

import mars.core.errors
import mars.local.leash
from api.http.answering import Rendered
from api.preview_schemas import PreviewRequest
from api.services.inside.naming import AskedWindow
from api.services.previews.service import PREVIEWS_MAX
from mars.client.answers import Preview
from mars.core.definitions import FileHistory
from mars.core.errors import Conflict, MarsError, Rejected, RequestError, TooMany, Unavailable
from mars.core.locations import FileRoots
from mars.core.plan import Stream
from mars.core.settings import MIB, BulkSettings, Settings
from mars.process.telemetry import logs

OVER_MEMORY = 77
"""Exit code of a process that got no more memory, where it could still say so."""

BROKEN = 78
"""Exit code of one that failed in another way and has logged how. Libraries that get no memory end
a process with codes and signals of their own."""


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of work, for how many at once there is room, and what each may take.

    Who finds no room waits for it, `wait_s` at most. `refusal` is what is raised over a limit.
    """

    name: str
    at_once: int
    memory_bytes: int
    time_s: float
    wait_s: float
    refusal: type[RequestError]
    advice: str


LISTING = Work(
    name="list",
    at_once=2,
    memory_bytes=384 * MIB,
    time_s=45.0,
    wait_s=5.0,
    refusal=Rejected,
    advice="name a folder with fewer or smaller files",
)
"""A listing ends itself after 30 s, unless a store that does not answer holds it."""

VERIFYING = Work(
    name="verify",
    at_once=1,
    memory_bytes=1_024 * MIB,
    time_s=120.0,
    wait_s=120.0,
    refusal=Conflict,
    advice=(
        "verify a smaller window, or compute it with a batch engine over the ranges in the header "
        "mars-ranges"
    ),
)
"""Five million offsets take half a minute of one core. Of the memory, some 370 MiB are room for the
stacks of 46 threads, most of them of Kafka's clients, which take next to nothing of it."""


PREVIEWING = Work(
    name="preview",
    at_once=PREVIEWS_MAX,
    memory_bytes=1_024 * MIB,
    time_s=60.0,
    wait_s=10.0,
    refusal=Rejected,
    advice="look back fewer seconds, or give rows",
)
"""200,000 rows of 235 bytes take a second or two, and 65 MB besides those stacks. But messages of
four kilobytes may unpack to millions of rows, and long texts are held many times over."""


class Failure(msgspec.Struct, frozen=True):
    """One of our errors on its way back: the name of its class, and what it is made of."""

    kind: str
    arguments: tuple[str, ...]


class WorkOutcome(msgspec.Struct, frozen=True):
    """What a process answers."""

    answer: msgspec.Raw = msgspec.Raw(b"null")
    failure: Failure | None = None


class Aside:
    """Runs work of one kind; safe for threads."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._places = BoundedSemaphore(work.at_once)
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def run(self, question: bytes) -> bytes:
        """The answer, as JSON. Raises the work's own errors, its refusal, and TooMany."""
        work = self._work
        if not self._places.acquire(timeout=work.wait_s):
            raise TooMany(f"{work.at_once} {work.name} jobs run already: try again in some seconds")
        try:
            return self._answered(question)
        finally:
            self._places.release()

    def close(self) -> None:
        """End all that runs; whoever waits for it is told that it was interrupted."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.kill()

    def _answered(self, question: bytes) -> bytes:
        with self._started() as process:  # which is waited for, and its pipes closed
            try:
                answer, _ = process.communicate(question, timeout=self._work.time_s)
            except subprocess.TimeoutExpired:
                raise self._refused(f"takes more than {self._work.time_s:g} s") from None
            finally:
                process.kill()
                with self._lock:
                    self._running.discard(process)
        if self._closed:
            raise Unavailable("api", "the API is stopping; try again")
        if process.returncode == 0:
            return _taken(answer)
        logs.warning(
            logs.logger("api"),
            "a helper process failed; its last lines, if any, say why",
            work=self._work.name,
            exit_code=process.returncode,
        )
        if process.returncode == BROKEN:
            raise self._refused("failed for a reason that the log of the API process names")
        raise self._refused(f"takes more than {self._work.memory_bytes // MIB} MiB of memory")

    def _started(self) -> subprocess.Popen[bytes]:
        leash = [sys.executable, "-I", "-S", str(Path(mars.local.leash.__file__)), str(os.getpid())]
        work = [sys.executable, "-P", "-m", "api.aside_work"]
        limits = [self._work.name, str(self._work.memory_bytes)]
        process = subprocess.Popen(
            [*leash, *work, *limits], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with self._lock:
            self._running.add(process)
        return process

    def _refused(self, why: str) -> RequestError:
        return self._work.refusal(f"what was asked for {why}: {self._work.advice}")


def _taken(raw: bytes) -> bytes:
    outcome = msgspec.json.decode(raw, type=WorkOutcome)
    if outcome.failure is not None:
        raise _error_of(outcome.failure)
    return bytes(outcome.answer)


def failure_of(error: MarsError) -> Failure:
    """An error as it is sent."""
    if isinstance(error, Unavailable):
        return Failure("Unavailable", (error.service, error.detail))
    if isinstance(error, Rejected):  # what a more special one holds besides is in its text
        return Failure("Rejected", (str(error),))
    return Failure(type(error).__name__, (str(error),))


def _error_of(failure: Failure) -> MarsError:
    kind = getattr(mars.core.errors, failure.kind, Conflict)
    error: MarsError = kind(*failure.arguments)
    return error


# --------------------------------------------------------------------------------- the works


class ListQuestion(msgspec.Struct, frozen=True):
    """What files there are, below these roots; `bulk` holds nothing else."""

    location: str
    format: str
    stream: Stream
    csv_header: bool
    until_ms: int | None
    bulk: BulkSettings


class VerifyQuestion(msgspec.Struct, frozen=True):
    """Whether a window is right; the servers are those of the settings."""

    settings: Settings
    task: str
    asked: AskedWindow


class PreviewQuestion(msgspec.Struct, frozen=True):
    """A request for a preview as JSON, found right; the servers are those of the settings."""

    settings: Settings
    request: str


class ListedAside:
    """`ListHistory` in a process of its own: folders may be vast, footers large, stores silent."""

    def __init__(self, settings: Settings, aside: Aside) -> None:
        bulk = settings.bulk
        self._roots = BulkSettings(files=bulk.files, files_never=bulk.files_never)
        self._aside = aside

    def __call__(
        self, location: str, format: str, stream: Stream, *, csv_header: bool, until_ms: int | None
    ) -> FileHistory:
        """The files. Raises Rejected, TooMany."""
        # Most questions that are refused are so before anything is looked at.
        FileRoots.of(self._roots.files, self._roots.files_never).check(location)
        question = ListQuestion(location, format, stream, csv_header, until_ms, self._roots)
        answer = self._aside.run(msgspec.json.encode(question))
        return msgspec.json.decode(answer, type=FileHistory)


class PreviewedAside:
    """Previews of a topic in a process of its own: what is read may unpack to anything."""

    def __init__(self, settings: Settings, aside: Aside) -> None:
        self._settings = settings
        self._aside = aside

    def __call__(self, request: PreviewRequest) -> Preview:
        """The preview. Raises what `PreviewService.preview` does, and Rejected over a limit."""
        question = PreviewQuestion(self._settings, request.model_dump_json())
        return msgspec.json.decode(self._aside.run(msgspec.json.encode(question)), type=Preview)


class VerifiedAside:
    """Verification in a process of its own: what is read again may unpack to anything."""

    def __init__(self, settings: Settings, aside: Aside) -> None:
        self._settings = settings
        self._aside = aside

    def __call__(self, task: str, asked: AskedWindow) -> Rendered:
        """The verification as JSON. Raises what `VerifyService.verify` does."""
        question = VerifyQuestion(self._settings, task, asked)
        return Rendered(self._aside.run(msgspec.json.encode(question)))
