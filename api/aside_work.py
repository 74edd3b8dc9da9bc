"""`python -m api.aside_work KIND BYTES`: does one piece of work for the API, see `api.aside`.

The question comes on standard input, the outcome goes to standard output.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from api.aside import (
    BROKEN,
    OVER_MEMORY,
    ListQuestion,
    PreviewQuestion,
    VerifyQuestion,
    WorkOutcome,
    failure_of,
)
from mars.core.definitions import FileHistory
from mars.core.errors import MarsError, Rejected
from mars.core.plan import Stream
from mars.core.settings import Settings

if TYPE_CHECKING:
    from api.services.all import Services

OOM_FIRST = "1000"
"""Where a container has no memory left, the kernel ends this process rather than the API."""


def list_files(question: bytes) -> bytes:
    """The files of a history."""
    from mars.adapters.spark.files import list_history  # noqa: PLC0415 -- with pyarrow
    from mars.core.locations import FileRoots  # noqa: PLC0415

    asked = msgspec.json.decode(question, type=ListQuestion)
    found = list_history(
        asked.location,
        asked.format,
        asked.stream,
        FileRoots.of(asked.bulk.files, asked.bulk.files_never),
        csv_header=asked.csv_header,
        until_ms=asked.until_ms,
    )
    return msgspec.json.encode(found)


def verify(question: bytes) -> bytes:
    """The verification of a window."""
    asked = msgspec.json.decode(question, type=VerifyQuestion)
    verifying = _services(asked.settings).verifying
    found = verifying.verify(asked.task, asked.asked)
    return msgspec.json.encode(found)


def preview(question: bytes) -> bytes:
    """The preview of a query; whoever asks for it has the right to."""
    from api.callers import Caller, acting  # noqa: PLC0415 -- only this work needs them
    from api.preview_schemas import PreviewRequest  # noqa: PLC0415
    from mars.protocol.ports import Role  # noqa: PLC0415

    asked = msgspec.json.decode(question, type=PreviewQuestion)
    request = PreviewRequest.model_validate_json(asked.request)
    with acting(Caller(Role.ADMIN)):
        return msgspec.json.encode(_services(asked.settings).previews.preview(request))


def _services(settings: Settings) -> Services:
    """Services of our own on clients of our own."""
    from api.services.all import build  # noqa: PLC0415 -- only some work needs clients
    from api.services.operation.health import Health  # noqa: PLC0415
    from api.wiring import Servers, cluster_of  # noqa: PLC0415
    from mars.adapters.zookeeper import ZooKeeperConnection  # noqa: PLC0415
    from mars.core.types import MemberId  # noqa: PLC0415
    from mars.process.telemetry import logs  # noqa: PLC0415

    logs.configure(settings.logging)
    connection = ZooKeeperConnection.open(settings.zookeeper)
    servers = Servers.open(settings, connection, MemberId(f"verifier-{os.getpid()}"))
    return build(servers.ports(_no_files), cluster_of(settings), Health({}), "")


WORKS: Mapping[str, Callable[[bytes], bytes]] = {
    "list": list_files,
    "preview": preview,
    "verify": verify,
}


def _no_files(
    location: str, format: str, stream: Stream, *, csv_header: bool, until_ms: int | None
) -> FileHistory:
    del format, stream, csv_header, until_ms
    raise Rejected(f"{location} is not read here: nothing is registered")


def main() -> None:
    """Do the work; the process ends at once then, whatever its clients still do."""
    kind, memory_bytes = sys.argv[1], int(sys.argv[2])
    _limit(memory_bytes)
    # What libraries print is no part of the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    code = 0
    try:
        answer.write(msgspec.json.encode(_outcome(kind, sys.stdin.buffer.read())))
        answer.flush()
    except (MemoryError, ImportError, SystemError):
        # A library that gets no memory cannot be imported, a module not compiled.
        traceback.print_exc()
        code = OVER_MEMORY
    except BaseException:  # noqa: BLE001 -- it is told, and nobody is left to take it
        traceback.print_exc()
        code = BROKEN
    os._exit(code)


def _outcome(kind: str, question: bytes) -> WorkOutcome:
    try:
        return WorkOutcome(answer=msgspec.Raw(WORKS[kind](question)))
    except MarsError as error:
        return WorkOutcome(failure=failure_of(error))


def _limit(memory_bytes: int) -> None:
    """Of the memory that is not shared with anybody, as far as the system can limit it."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_FIRST, "utf-8")


if __name__ == "__main__":
    main()
