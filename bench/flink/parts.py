"""Flink's processes as children: job manager, task manager, SQL client; and what they run."""

from __future__ import annotations

import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.flink.query import MANAGED_MEMORY, MANAGER_HEAP, TASK_HEAP
from mars.core.errors import LocalClusterError
from mars.local import jars
from mars.local.child import Child
from mars.local.java import find_java

VERSION = "2.3.0"
CONNECTOR_VERSION = "5.0.0-2.2"
"""As in mars/local/jar_lists/flink.ivy.xml."""

COMPILE_S = 120
"""Longest compilation of the one class that is ours; it takes a few seconds."""

ANSWER_S = 2.0

OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.io",
    "java.base/java.text",
    "java.base/java.time",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks",
    "java.base/sun.nio.ch",
)
"""Packages that Flink's own start scripts open to it on Java 17."""

_LOGGING = """\
status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRefs=out
rootLogger.appenderRef.out.ref=out
"""

_SOURCE = Path(__file__).with_name("ndjson") / "JsonLinesFormatFactory.java"


class _FlinkProcess(Child):
    """A main class of Flink with the configuration in `folder`/conf."""

    heap = MANAGER_HEAP

    def __init__(self, name: str, folder: Path, extra_classes: Path | None) -> None:
        super().__init__(name, "flink", folder / f"{name}.log")
        self._folder = folder
        self._extra = extra_classes

    def java(self, main: Sequence[str]) -> Sequence[str]:
        """`java` with what all of them need, and the main class with its arguments."""
        classes = [f"{jars.ensure('flink')}/*", *([str(self._extra)] if self._extra else [])]
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
        return [
            *[find_java(), f"-Xmx{self.heap}", f"-Xms{self.heap}", *self.machine_options()],
            *opened,
            f"-Dlog4j2.configurationFile={self._folder / 'conf' / 'log4j2.properties'}",
            *["-cp", ":".join(classes), *main],
        ]

    def machine_options(self) -> Sequence[str]:
        """Options of the virtual machine beside its heap."""
        return ["-XX:+UseG1GC", f"-Djava.io.tmpdir={self._folder / 'tmp'}"]

    def environment(self) -> Mapping[str, str]:
        """Where the configuration is; nothing else of ours concerns it."""
        return {"FLINK_CONF_DIR": str(self._folder / "conf"), "PATH": "/usr/bin:/bin"}


class JobManager(_FlinkProcess):
    """Schedules."""

    def __init__(self, folder: Path, extra_classes: Path | None, rest: str) -> None:
        super().__init__("flink-jobmanager", folder, extra_classes)
        self._rest = rest

    def command(self) -> Sequence[str]:
        """A session cluster, to which jobs are submitted."""
        main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        return self.java([main, "--configDir", str(self._folder / "conf")])

    def missing(self) -> str | None:
        """Whether its REST interface answers."""
        return _asked(f"{self._rest}/overview", b"slots-total", "has not begun to lead")


class TaskManager(_FlinkProcess):
    """Does the work."""

    heap = TASK_HEAP

    def __init__(self, folder: Path, extra_classes: Path | None, rest: str) -> None:
        super().__init__("flink-taskmanager", folder, extra_classes)
        self._rest = rest

    def command(self) -> Sequence[str]:
        """The task manager's own main class."""
        main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        return self.java([main, "--configDir", str(self._folder / "conf")])

    def missing(self) -> str | None:
        """Whether the job manager knows it."""
        return _asked(f"{self._rest}/taskmanagers", b'"id"', "knows no task manager yet")

    def machine_options(self) -> Sequence[str]:
        """Direct memory as Flink's scripts bound it: framework, network and managed."""
        direct = 192 + int(MANAGED_MEMORY.removesuffix("m"))
        return [*super().machine_options(), f"-XX:MaxDirectMemorySize={direct}m"]


class SqlClient(_FlinkProcess):
    """Plans the statements of a file, submits the job, and ends."""

    def __init__(self, folder: Path, extra_classes: Path | None) -> None:
        super().__init__("flink-client", folder, extra_classes)

    def command(self) -> Sequence[str]:
        """The embedded SQL client over the file `job.sql`."""
        main = "org.apache.flink.table.client.SqlClient"
        return self.java([main, "embedded", "-f", str(self._folder / "job.sql")])


def _asked(url: str, expected: bytes, otherwise: str) -> str | None:
    """None when the answer of the job manager holds what is expected of it."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return None if expected in answer.read() else f"the job manager {otherwise}"
    except (urllib.error.URLError, OSError) as error:
        return f"the job manager does not answer ({error})"


def configure(folder: Path, settings: Mapping[str, str]) -> None:
    """Write what all processes read in `folder`, and make its folder for what they leave."""
    for name in ("conf", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{key}: {value}\n" for key, value in settings.items())
    (folder / "conf" / "config.yaml").write_text(lines, "utf-8")
    (folder / "conf" / "log4j2.properties").write_text(_LOGGING, "utf-8")


def compile_ndjson(folder: Path) -> Path:
    """Compile the format `json-lines`; returns the folder to put on the class path.

    Raises LocalClusterError where there is no compiler.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise LocalClusterError(
            "There is no javac on the PATH, without which Flink cannot read NDJSON messages; "
            "install a JDK rather than a JRE, or leave --peer flink out."
        )
    classes = folder / "classes"
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True, exist_ok=True)
    (services / "org.apache.flink.table.factories.Factory").write_text(
        "mars.bench.JsonLinesFormatFactory\n", "utf-8"
    )
    run = subprocess.run(
        [compiler, "-cp", f"{jars.ensure('flink')}/*", "-d", str(classes), str(_SOURCE)],
        capture_output=True,
        text=True,
        timeout=COMPILE_S,
        check=False,
    )
    if run.returncode != 0:
        raise LocalClusterError(f"{_SOURCE.name} cannot be compiled: {run.stderr[-500:]}")
    return classes
