"""`mars key create | list | rm`."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from mars.adapters.zookeeper import ZooKeeperConnection, ZooKeeperKeyRegistry
from mars.cli.completion import key_ids
from mars.cli.running.roles import config_option
from mars.cli.shared import api_address, api_option, json_option, messages, output, print_json
from mars.cli.tables import clock, listing
from mars.client.answers import Key, NewKey
from mars.client.blocking import Client
from mars.core.errors import Conflict, Unavailable
from mars.core.settings import load
from mars.protocol.ports import Role
from mars.protocol.ports.access import EVERYTHING, make_key

CONNECT_S = 15.0
"""How long ZooKeeper is waited for: a start of a session takes less than one."""

PAUSE_S = 0.2


@click.group()
def key() -> None:
    """Make, list and remove API keys."""


@key.command()
@click.option(
    "--role",
    type=click.Choice([each.value for each in Role]),
    required=True,
    help="What it may do.",
)
@click.option("--topics", multiple=True, metavar="PATTERN", help="Topics to read and to write to.")
@click.option("--read", multiple=True, metavar="PATTERN", help="Topics (or files) to read.")
@click.option("--write", multiple=True, metavar="PATTERN", help="Topics to write to.")
@click.option("--note", default="", help="Who uses it, and what for.")
@config_option
@api_option
@json_option
def create(
    role: str,
    topics: tuple[str, ...],
    read: tuple[str, ...],
    write: tuple[str, ...],
    note: str,
    config: Path | None,
    api: str | None,
    as_json: bool,
) -> None:
    """Make a key and show it, once.

    A reader may look at everything, an operator also change tasks and queries, an admin also
    streams and keys. PATTERN is a topic, with * for any text. It may be repeated; without one there
    is no limit. With --config the key goes to ZooKeeper directly, as the first one must.
    """
    limited = bool(topics or read or write)
    reads = (*topics, *read) if limited else EVERYTHING
    writes = (*topics, *write) if limited else EVERYTHING
    if config is not None:
        made = _made_directly(config, Role(role), reads, writes, note)
    else:
        with Client(api_address(api)) as client:
            made = client.create_key(role, reads=reads, writes=writes, note=note)
    if as_json:
        print_json(made)
        return
    messages().print(
        f"Key {made.id} ({made.role}). It is shown here and never again; put it into MARS_KEY:",
    )
    click.echo(made.key)


def _made_directly(
    config: Path, role: Role, reads: tuple[str, ...], writes: tuple[str, ...], note: str
) -> NewKey:
    """A key written past the API. Raises Conflict, Rejected, Unavailable."""
    settings = load(config)
    kept, text = make_key(role, time.time_ns() // 1_000_000, reads=reads, writes=writes, note=note)
    connection = ZooKeeperConnection.open(settings.zookeeper)
    try:
        _wait(connection)
        if not ZooKeeperKeyRegistry(connection, settings.namespace).create(kept):
            raise Conflict("Another key was made at the same time; try again.")
    finally:
        connection.close()
    fields = {name: getattr(kept, name) for name in ("id", "role", "ending", "note")}
    lists = {"reads": list(reads), "writes": list(writes)}
    return msgspec.convert({**fields, **lists, "created": kept.created_ms, "key": text}, NewKey)


def _wait(connection: ZooKeeperConnection) -> None:
    """Until there is a session. Raises Unavailable."""
    deadline = time.monotonic() + CONNECT_S
    while (problem := connection.ping()) is not None:
        if time.monotonic() > deadline:
            raise Unavailable("zookeeper", problem.partition(": ")[2])
        time.sleep(PAUSE_S)


@key.command("list")
@api_option
@json_option
def list_keys(api: str | None, as_json: bool) -> None:
    """List all keys, without their secrets."""
    with Client(api_address(api)) as client:
        found = client.keys()
    if as_json:
        print_json(found)
        return
    titles = ("key", "role", "ends with", "reads", "writes", "made", "note")
    output().print(listing("keys", titles, [_row(each) for each in found]))


def _row(found: Key) -> tuple[str, ...]:
    return (
        found.id,
        found.role,
        found.ending,
        " ".join(found.reads) or "-",
        " ".join(found.writes) or "-",
        clock(found.created),
        found.note,
    )


@key.command()
@click.argument("key_id", metavar="KEY", shell_complete=key_ids)
@api_option
@json_option
def rm(key_id: str, api: str | None, as_json: bool) -> None:
    """Remove the key with the id KEY, at once."""
    with Client(api_address(api)) as client:
        client.delete_key(key_id)
    if as_json:
        print_json({"removed": key_id})
    else:
        messages().print(f"Key {key_id} is removed.")
