"""Which Java machine to run, for the servers of the embedded cluster and for Spark."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess

from mars.core.errors import LocalClusterError
from mars.core.settings import surroundings

JAVA_VERSION_MIN = 17
"""What Kafka 4 and Spark 4 ask for."""

ANSWER_S = 30
"""Longest wait for `java -version`; it takes tenths of a second, more on a busy machine."""

OPTIONS_HEEDED = ("NOTE: Picked up ", "Picked up ")
"""How a line begins that tells of JDK_JAVA_OPTIONS or JAVA_TOOL_OPTIONS."""

_HELP = (
    f"Install a JDK of version {JAVA_VERSION_MIN} or newer (Debian and Ubuntu: "
    "openjdk-17-jdk-headless) and put it on the PATH, or set JAVA_HOME."
)


def find_java() -> str:
    """The `java` to run, new enough. Raises LocalClusterError that says what to install."""
    home = surroundings().java_home
    found = shutil.which("java") if home is None else shutil.which(str(home / "bin" / "java"))
    if found is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME ({home})"
        raise LocalClusterError(f"There is no java {where}. {_HELP}")
    version = java_version(found)
    if version < JAVA_VERSION_MIN:
        raise LocalClusterError(f"{found} is Java {version}, which is too old. {_HELP}")
    return found


def java_version(java: str) -> int:
    """The main version of a `java`: 17, or 8 for `1.8`. Raises LocalClusterError."""
    match = re.search(r'version "(?:1\.)?(\d+)', java_identity(java))
    if match is None:
        raise LocalClusterError(f"{java} does not say its version. {_HELP}")
    return int(match[1])


@functools.cache
def java_identity(java: str) -> str:
    """What `java -version` says of itself: two that say the same are the same build."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalClusterError(f"{java} does not run. {_HELP}") from error
    # A line may tell first that options of the environment are heeded.
    lines = answer.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(OPTIONS_HEEDED))
