"""Is the process beside this one well? `python -m mars.process.health --config FILE ROLE`.

For health checks of containers: run it where the process runs, with the same file and environment.
A mapper, reducer or bulk process is well when its report in ZooKeeper is being refreshed and names
no server that it waits for (Spark is one for a bulk process); the API when `/readyz` says so. Exit
0, or 1 after a sentence that says what is wrong.
"""

from __future__ import annotations

import argparse
import http
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mars.adapters.zookeeper import ZooKeeperConnection
from mars.adapters.zookeeper.reports import MemberReport, MemberReports
from mars.core.errors import SettingsError, Unavailable
from mars.core.settings import ApiSettings, Settings, load
from mars.core.types import MemberId
from mars.process.asking import ask

PATIENCE_S = 15.0
"""How long a report may stay as it is. They are refreshed every second, but a process that misses
a server waits for that server's time-out first."""

PAUSE_S = 0.5
"""Between two looks."""

ANSWER_S = 5.0
"""Longest answer of the API; `/readyz` answers from memory."""

Look = Callable[[], Sequence[MemberReport]]
"""The reports of this machine's members of the role. May raise Unavailable."""


def member_problem(look: Look, patience_s: float = PATIENCE_S, pause_s: float = PAUSE_S) -> str:
    """What is wrong with the members that `look` sees; empty as soon as nothing is.

    A report counts only if it was written after the first look at it, so no two clocks are
    compared.
    """
    before: dict[MemberId, tuple[int, int]] = {}
    deadline = time.monotonic() + patience_s
    while True:
        try:
            problem = _verdict(look(), before)
        except Unavailable as error:
            problem = str(error)
        if not problem or time.monotonic() >= deadline:
            return problem
        time.sleep(pause_s)


def _verdict(reports: Sequence[MemberReport], before: dict[MemberId, tuple[int, int]]) -> str:
    if not reports:
        return "no such process is registered in ZooKeeper; its log says what it waits for"
    for report in reports:
        member = report.info.id
        if before.setdefault(member, report.write) == report.write:
            return f"{member} does not refresh its report; see its log"
        if report.info.missing:
            return f"{member} waits for {', '.join(report.info.missing)}"
    return ""


def api_problem(settings: ApiSettings) -> str:
    """What the API misses; empty if it is ready."""
    try:
        status, body = ask(settings, "/readyz", ANSWER_S)
    except Unavailable as error:
        return str(error)
    return "" if status == http.HTTPStatus.OK else f"the API is not ready: {body}"


def problem_of(role: str, settings: Settings) -> str:
    """What is wrong with the process of this role on this machine; empty if nothing is."""
    if role == "api":
        return api_problem(settings.api)
    connection = ZooKeeperConnection.open(settings.zookeeper)
    try:
        reports = MemberReports(connection, settings.namespace, role)
        return member_problem(
            lambda: [each for each in reports.read() if _is_here(each, settings.member)]
        )
    finally:
        connection.close()


def _is_here(report: MemberReport, member: str) -> bool:
    return report.info.id == member if member else report.info.host == socket.gethostname()


def main() -> int:
    """Judge the role named on the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mars.process.health")
    parser.add_argument("--config", type=Path, help="the TOML file of the process")
    parser.add_argument("role", choices=["mapper", "reducer", "bulk", "api"])
    arguments = parser.parse_args()
    try:
        problem = problem_of(arguments.role, load(arguments.config))
    except SettingsError as error:
        problem = str(error)
    if problem:
        sys.stdout.write(f"{problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
