"""`mars status`: cluster.json of this machine beside what the API says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec

from mars.cli.shared import (
    output,
    print_json,
    say,
)
from mars.cli.tables import clock, number, table
from mars.cli.top import members_table
from mars.client.answers import Balance, Member
from mars.client.cluster_file import ClusterFile, find_api, running_cluster
from mars.client.connection import base_url
from mars.client.wire import authorization, shown
from mars.core.errors import NotFound
from mars.core.settings import surroundings
from mars.core.words import counted

ANSWER_S = 5.0
"""Longest answer of the API; it reads ZooKeeper and Redis for it."""


class _Refusal(msgspec.Struct, frozen=True):
    """What is read of a problem document."""

    detail: str


class Status(msgspec.Struct, frozen=True):
    """What is printed with `--json`: what is not there is null, `problem` says why."""

    local: ClusterFile | None
    cluster: Any
    problem: str | None


def show_status(data: Path, api: str | None, *, as_json: bool) -> int:
    """Print it; the exit code is 1 when the API does not answer.

    Raises NotFound when no cluster runs and no API is named.
    """
    local = running_cluster(data.absolute())
    address = find_api(api, data)
    if address is None:
        raise NotFound(f"No cluster runs on {data}; start one with `mars up`.")
    answer, problem = _ask(address)
    status = Status(local, answer, problem)
    if as_json:
        print_json(status)
    else:
        _show(status)
    return 0 if problem is None else 1


def _ask(api: str) -> tuple[Any, str | None]:
    url, headers = base_url(api), authorization(surroundings().api_key)
    api = shown(api)
    try:
        response = httpx.get(f"{url}/v1/cluster", timeout=ANSWER_S, headers=headers)
        response.raise_for_status()
        return msgspec.json.decode(response.content), None
    except httpx.HTTPStatusError as error:
        detail = error.response.text
        with suppress(msgspec.MsgspecError):
            detail = msgspec.json.decode(detail, type=_Refusal).detail
        return None, f"The API at {api} refuses to say ({error.response.status_code}): {detail}"
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        return None, f"The API at {api} does not answer ({error}); see its log."


def _show(status: Status) -> None:
    if status.local is not None:
        _show_local(status.local)
    if isinstance(status.cluster, dict):
        _show_cluster(status.cluster)
        _show_balance(status.cluster.get("balance"))
    if status.problem is not None:
        say(status.problem, err=True)


def _show_cluster(cluster: Mapping[str, Any]) -> None:
    """What a person looks for; --json has all of it."""
    for name in ("version", "buckets", "store_epoch"):
        if name in cluster:
            say(f"{name}: {cluster[name]}")
    leader = cluster.get("leader") or {}
    say(f"leader: {leader.get('member') or 'nobody yet'}")
    lag = (cluster.get("backlog") or {}).get("lag")
    say(f"messages to come: {number(lag)}")
    missing = ", ".join(cluster.get("missing", ()))
    if missing:
        say(f"not available: {missing}")
    members = msgspec.convert(cluster.get("members", []), list[Member])
    shares = {each.id: each.load["cpu_use"] for each in members if "cpu_use" in each.load}
    output().print(members_table(members, shares))
    ages_s = {each.id: each.age_s for each in members if each.age_s is not None}
    if ages_s:
        oldest = max(ages_s, key=lambda member: ages_s[member])
        say(f"oldest report: of {oldest}, {ages_s[oldest]:.1f} s ago")


def _show_balance(raw: Any) -> None:
    """How evenly the reducers are used, how many there should be, what moved last and why."""
    if raw is None:
        return
    balance = msgspec.convert(raw, Balance)
    say(
        f"balance: mean use of a reducer {balance.mean_use:.0%} of a core, "
        f"deviation {balance.deviation:.2f}"
    )
    if balance.strategy:
        say(f"strategy: {balance.strategy} ({balance.strategy_reason})")
    for one in balance.assisted:
        say(f"assisted: bucket {one.bucket}, by {', '.join(one.assistants)}: {one.reason}")
    for loan in balance.lent:
        say(f"lent: bucket {loan.bucket} of {loan.home}, to {loan.borrower}")
    if balance.lent_total > len(balance.lent):
        say(f"lent: {balance.lent_total} in all")
    for each in balance.wanted:
        wanted = counted(each.wanted, each.role)
        say(f"wanted: {wanted} (running: {each.present}): {each.reason}")
    for move in balance.moves:
        say(
            f"moved {clock(move.at)} UTC: bucket {move.bucket}, {move.source or 'nobody'} -> "
            f"{move.target}: {move.reason}"
        )
    _show_changes(balance)


def _show_changes(balance: Balance) -> None:
    """Former strategies and assistants, and why they are others now."""
    for change in balance.strategy_changes:
        say(f"strategy {clock(change.at)} UTC: {change.strategy} ({change.reason})")
    for each in balance.assistant_changes:
        now = ", ".join(each.assistants) or "nobody"
        say(f"assisted {clock(each.at)} UTC: bucket {each.bucket}, by {now}: {each.reason}")


def _show_local(local: ClusterFile) -> None:
    for name in ("api", "kafka", "zookeeper", "redis", "namespace"):
        say(f"{name}: {getattr(local, name)}")
    rows = [(entry.name, str(entry.pid), str(entry.restarts)) for entry in local.processes]
    output().print(table(("process", "pid", "restarts"), rows))
