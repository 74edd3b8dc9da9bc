"""`mars top`: the cluster and its tasks, refreshed in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic, sleep, time

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mars.cli.shared import (
    Seconds,
    api_address,
    api_option,
    json_option,
    output,
    say_json,
)
from mars.cli.tables import number, table
from mars.client.answers import Cluster, Member, Task
from mars.client.blocking import Client
from mars.core.errors import NotFound, Unavailable

INTERVAL_S = 2.0
"""Between two looks: reports are refreshed every second."""

TASKS_SHOWN = 20
"""Tasks in the table, those in trouble first: each is one more question to the API."""

MIB = 1024 * 1024

_URGENCY = {"failed": 0, "backfilling": 2, "running": 2, "paused": 3}


class ScreenLook(msgspec.Struct, frozen=True):
    """What is printed with `--json`: `tasks` are at most `TASKS_SHOWN` of `tasks_total`."""

    cluster: Cluster
    tasks: list[Task]
    tasks_total: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """A look, and when it was taken, to tell shares of CPU from the one before."""

    look: ScreenLook
    at_s: float


@click.command()
@click.option("--once", is_flag=True, help="Print it once, as without a terminal.")
@click.option(
    "--interval",
    type=Seconds(min=0.2),
    default=INTERVAL_S,
    show_default=True,
    help="Seconds between two updates.",
)
@api_option
@json_option
def top(once: bool, interval: float, api: str | None, as_json: bool) -> None:
    """Show members and tasks, those in trouble first, until Ctrl-C."""
    console = output()
    with Client(api_address(api)) as client:
        if as_json:
            for moment in _moments(client, interval, once=once):
                say_json(msgspec.json.encode(moment.look).decode())
        elif once or not console.is_terminal:
            console.print(shown(_look(client), {}))
        else:
            _follow(client, interval)


def _follow(client: Client, interval: float) -> None:
    """Draw again and again over the same lines; an API that is away is waited for."""
    before: _Moment | None = None
    with Live(console=output(), auto_refresh=False, screen=True) as live:
        while True:
            try:
                now = _Moment(_look(client), monotonic())
            except Unavailable as error:
                live.update(Text(f"{error}; asking again."), refresh=True)
            else:
                live.update(shown(now.look, _shares(before, now)), refresh=True)
                before = now
            sleep(interval)


def _moments(client: Client, interval: float, *, once: bool) -> Iterator[_Moment]:
    while True:
        yield _Moment(_look(client), monotonic())
        if once:
            return
        sleep(interval)


def _look(client: Client) -> ScreenLook:
    cluster, tasks = client.cluster(), client.tasks()
    lags = {each.task: each.lag for each in cluster.backlog.tasks}
    urgent = sorted(
        tasks,
        key=lambda task: (_URGENCY.get(task.state, 1), -lags.get(task.name, 0), task.name),
    )
    found = []
    for task in urgent[:TASKS_SHOWN]:
        try:
            found.append(client.task(task.name))
        except NotFound:
            continue  # deleted just now
    return ScreenLook(cluster, found, len(tasks))


def _shares(before: _Moment | None, now: _Moment) -> Mapping[str, float]:
    """Cores that each member used between two looks."""
    if before is None:
        return {}
    seconds = max(now.at_s - before.at_s, 1e-3)
    earlier = {member.id: _cpu(member) for member in before.look.cluster.members}
    return {
        member.id: max(0.0, _cpu(member) - earlier[member.id]) / seconds
        for member in now.look.cluster.members
        if member.id in earlier
    }


def _cpu(member: Member) -> float:
    return member.load.get("cpu_seconds_total", 0.0)


def shown(look: ScreenLook, shares: Mapping[str, float]) -> RenderableType:
    """The page; `shares` are cores by member."""
    cluster = look.cluster
    leader = cluster.leader.member if cluster.leader and cluster.leader.member else "nobody"
    head = (
        f"Mars {cluster.version}, namespace {cluster.namespace}: {len(cluster.members)} processes, "
        f"{look.tasks_total} tasks, {leader} leads, {number(cluster.backlog.lag)} messages to come"
    )
    parts: list[RenderableType] = [Text(head)]
    if cluster.missing:
        away = ", ".join(cluster.missing)
        parts.append(Text(f"Not available: {away}; figures of it are missing.", style="red"))
    parts.append(members_table(cluster.members, shares))
    titles = ("task", "state", "rows/s", "lag", "behind by", "log MiB", "open rows", "lost rows")
    parts.append(table(titles, [_task_row(task) for task in look.tasks]))
    if len(look.tasks) < look.tasks_total:
        parts.append(Text(f"... and {look.tasks_total - len(look.tasks)} more tasks"))
    return Group(*parts)


def members_table(members: Iterable[Member], shares: Mapping[str, float]) -> Table:
    """A line for each process; `shares` are cores by member."""
    titles = ("process", "role", "rows/s", "cores", "MiB", "has", "waits for")
    return table(titles, [_member_row(member, shares) for member in members])


def _member_row(member: Member, shares: Mapping[str, float]) -> tuple[str, ...]:
    share = shares.get(member.id)
    has = f"{len(member.partitions)} partitions" if member.role == "mapper" else "-"
    if member.role == "reducer":
        has = f"{len(member.buckets)} buckets"
    return (
        member.id,
        member.role,
        number(member.load.get("rows_per_second")),
        "-" if share is None else f"{share:.2f}",
        number(member.load.get("resident_bytes", 0) / MIB),
        has,
        ", ".join(member.missing) or "-",
    )


def _task_row(task: Task) -> tuple[str, ...]:
    ledger = task.ledger
    behind = None if task.watermark is None else max(0.0, time() - task.watermark / 1_000)
    return (
        task.name,
        task.state,
        number(task.rates.rows_per_second),
        number(task.lag.rows if task.lag else None),
        "-" if behind is None else f"{behind:,.1f} s",
        "-" if task.log_bytes is None else f"{task.log_bytes / MIB:.1f}",
        number(ledger.open if ledger else None),
        number(ledger.bad + ledger.future + ledger.late if ledger else None),
    )
