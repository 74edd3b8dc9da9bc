"""`mars stream put | list | show | rm`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from mars.cli.completion import stream_argument
from mars.cli.shared import (
    api_address,
    api_option,
    json_option,
    messages,
    output,
    print_json,
    read_text,
    warn,
)
from mars.cli.tables import listing, table
from mars.client.answers import FieldOfRecord
from mars.client.blocking import Client
from mars.core.errors import Rejected


@click.group()
def stream() -> None:
    """Declare, list and remove streams."""


@stream.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", default=None, help="Name of the stream [default: the file's name].")
@api_option
@json_option
def put(file: Path, name: str | None, api: str | None, as_json: bool) -> None:
    """Declare or replace the stream that FILE (JSON) describes.

    A member "name" in the file counts if --name is not given.
    """
    declaration = read_object(file)
    chosen = name or declaration.pop("name", None) or file.stem
    declaration.pop("name", None)
    with Client(api_address(api)) as client:
        found = client.put_stream(str(chosen), declaration)
    if as_json:
        print_json(found)
    else:
        messages().print(f"Stream {found.name} reads topic {found.topic} ({found.format}).")
        warn(found.warnings)


@stream.command("list")
@api_option
@json_option
def list_streams(api: str | None, as_json: bool) -> None:
    """List all streams."""
    with Client(api_address(api)) as client:
        found = client.streams()
    if as_json:
        print_json(found)
        return
    rows = [
        (each.name, each.topic, each.format, str(len(each.fields)), each.event_time)
        for each in found
    ]
    titles = ("stream", "topic", "format", "fields", "event time")
    output().print(listing("streams", titles, rows))


@stream.command()
@stream_argument
@api_option
@json_option
def show(name: str, api: str | None, as_json: bool) -> None:
    """Show a stream with its fields."""
    with Client(api_address(api)) as client:
        found = client.stream(name)
    if as_json:
        print_json(found)
        return
    output().print(f"{found.name}: topic {found.topic}, {found.format}, time {found.event_time}")
    fields = [(name, _field(kind)) for name, kind in found.fields.items()]
    output().print(table(("field", "type"), fields))


@stream.command()
@stream_argument
@api_option
@json_option
def rm(name: str, api: str | None, as_json: bool) -> None:
    """Remove a stream that no task uses. The topic and its records stay."""
    with Client(api_address(api)) as client:
        client.delete_stream(name)
    if as_json:
        print_json({"removed": name})
    else:
        messages().print(f"Stream {name} is removed; its topic stays.")


def _field(kind: str | FieldOfRecord) -> str:
    return kind if isinstance(kind, str) else f"{kind.type} from {kind.origin}"


def read_object(file: Path) -> dict[str, object]:
    """The JSON object in a file. Raises UsageError, Rejected, naming the file."""
    try:
        return msgspec.json.decode(read_text(file), type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Rejected(f"{file} is not a JSON object: {error}") from error
