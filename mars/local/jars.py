"""The jars that no Python package carries: fetched once, checked, kept outside of the checkout.

`jar_lists/<name>.ivy.xml` names each jar with its version, `<name>.sha256` what it must contain.
Ivy, which comes with pyspark, fetches them into `<cache>/jars/<name>-<hash>`, where the hash is
that of the list: another list is another folder, and a folder that exists is complete and checked.

`python -m mars.local.jars kafka spark` fetches what is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from mars.core.errors import LocalClusterError, MarsError
from mars.core.settings import surroundings
from mars.local.child import Child
from mars.local.java import find_java, pyspark_jar

LISTS = Path(__file__).parent / "jar_lists"

BYTES_NEEDED = 512 * 1024 * 1024
"""Room for the largest list (200 MB, that of the benchmarks) with Ivy's own copy of it."""

FETCH_S = 1_800
"""Longest download: 50 MB over a slow line. It takes about a minute on a usual one."""

POLL_S = 0.2
"""Between two looks at how far Ivy is."""

Show = Callable[[int, int], None]
"""Told how many of how many steps are done."""


class _Ivy(Child):
    """One run of Ivy for a list, into a folder; its own cache beside it, not the user's."""

    def __init__(self, java: str, ivy_list: Path, folder: Path, log: Path) -> None:
        super().__init__("the download", "ivy", log)
        self._java = java
        self._list = ivy_list
        self._folder = folder

    def command(self) -> Sequence[str]:
        """Ivy's command line; packages of type `bundle` are jars with a longer manifest."""
        mirror = surroundings().ivy_settings
        settings = [] if mirror is None else ["-settings", str(mirror)]
        pattern = self._folder / "[artifact]-[revision](-[classifier]).[ext]"
        return [
            *[self._java, "-jar", str(pyspark_jar("ivy-*.jar")), *settings],
            *["-ivy", str(self._list), "-cache", str(self._folder / "ivy"), "-confs", "default"],
            *["-types", "jar", "bundle", "-retrieve", str(pattern)],
        ]

    def steps_done(self) -> int:
        """Jars found, and jars loaded."""
        text = self.log.read_text("utf-8", "replace") if self.log.exists() else ""
        return text.count("\tfound ") + text.count("[SUCCESSFUL ]")


def location(name: str) -> Path:
    """Where the jars of the list `name` are, or will be."""
    return _cache() / f"{name}-{hashlib.sha256(_list_of(name).read_bytes()).hexdigest()[:12]}"


def ensure(name: str, show: Show | None = None) -> Path:
    """The folder with all jars of the list `name`, fetched first if they are not there.

    Safe in several processes at once: one fetches, the others wait. Raises LocalClusterError; what
    was fetched is then removed again.
    """
    target = location(name)
    if target.is_dir():
        return target
    with _only_one(name):
        if not target.is_dir():
            _fetch(name, target, show or (lambda done, total: None))
    return target


def _fetch(name: str, target: Path, show: Show) -> None:
    staging = target.with_name(f"{target.name}.partial")
    _check_room(staging.parent)
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    ivy = _Ivy(find_java(), _list_of(name), staging, staging.with_name(f"{name}.log"))
    try:
        ivy.log.unlink(missing_ok=True)
        _run(ivy, name, show)
        shutil.rmtree(staging / "ivy")
        _verify(name, staging)
        staging.rename(target)
    finally:
        ivy.kill()
        shutil.rmtree(staging, ignore_errors=True)


def _run(ivy: _Ivy, name: str, show: Show) -> None:
    total = 2 * _list_of(name).read_text("utf-8").count("<dependency ")
    deadline = time.monotonic() + FETCH_S
    ivy.start()
    while ivy.running and time.monotonic() < deadline:
        show(min(ivy.steps_done(), total), total)
        time.sleep(POLL_S)
    if ivy.exit_code != 0:
        how = ivy.how_it_ended() if not ivy.running else f"not done after {FETCH_S} s"
        raise LocalClusterError(
            f"The jars of {name} could not be downloaded ({how}; log: {ivy.log}). Check that this "
            "machine reaches a Maven repository (a proxy goes into JAVA_TOOL_OPTIONS, the Ivy "
            "settings of a mirror into MARS_IVY_SETTINGS) and run the same command again."
        )
    show(total, total)


def _verify(name: str, folder: Path) -> None:
    checksums = LISTS / f"{name}.sha256"
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.jar"))
    }
    if surroundings().record_checksums:
        lines = "".join(f"{digest}  {jar}\n" for jar, digest in found.items())
        checksums.write_text(lines, "utf-8")
        return
    pairs = (line.split() for line in checksums.read_text("utf-8").splitlines())
    wanted = {jar: digest for digest, jar in pairs}
    wrong = sorted(jar for jar in wanted.keys() | found.keys() if wanted.get(jar) != found.get(jar))
    if wrong:
        raise LocalClusterError(
            f"The download of {name} is broken: {', '.join(wrong)} is not what {checksums.name} "
            "says. It was removed; run the same command again."
        )


def _check_room(folder: Path) -> None:
    if shutil.disk_usage(folder).free < BYTES_NEEDED:
        raise LocalClusterError(
            f"There is no room for the jars in {folder} ({BYTES_NEEDED >> 20} MiB are needed); "
            "free some, or set MARS_CACHE to a folder on another disk."
        )


def _list_of(name: str) -> Path:
    path = LISTS / f"{name}.ivy.xml"
    if not path.is_file():
        raise LocalClusterError(f"{path} is missing; reinstall Mars.")
    return path


def _cache() -> Path:
    folder = surroundings().cache / "jars"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalClusterError(
            f"{folder} cannot be made ({error.strerror}); set MARS_CACHE to a folder that can "
            "be written."
        ) from error
    return folder


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    """Hold the lock of the list; the kernel gives it up with the process, however that ends."""
    with (_cache() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def shown(title: str, console: Console) -> Iterator[Show]:
    """A progress bar on a terminal; elsewhere one line at every quarter. Silent without steps."""
    if console.is_terminal:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(title, total=None, visible=False)
            yield lambda done, total: progress.update(
                bar, completed=done, total=total, visible=True
            )
        return
    quarters_shown = -1

    def show(done: int, total: int) -> None:
        nonlocal quarters_shown
        if (quarter := 4 * done // total) > quarters_shown:
            quarters_shown = quarter
            console.print(f"{title}: {25 * quarter} %", highlight=False)

    yield show


def main(names: Sequence[str]) -> int:
    """Fetch the lists of these names; returns the exit code."""
    console = Console(stderr=True)
    try:
        for name in names:
            with shown(f"Fetching the jars of {name}", console) as show:
                ensure(name, show)
    except MarsError as error:
        console.print(str(error), highlight=False, soft_wrap=True, markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
