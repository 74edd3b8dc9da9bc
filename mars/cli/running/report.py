"""What `mars up` tells while it starts: to a person, a program, or the `mars up` that waits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import click
import msgspec

from mars.cli.shared import print_json
from mars.client.cluster_file import ClusterFile


class Message(msgspec.Struct, frozen=True):
    """One line (as JSON) in the pipe from a detached `mars up` to the one that waits.

    `failed` ends it with what went wrong; neither `ready` nor `failed` is a line for a person.
    """

    kind: Literal["line", "ready", "failed"]
    text: str = ""


@dataclass(slots=True)
class StartReport:
    """Lines for a person on standard output (with `as_json` on standard error).

    `pipe` is the descriptor, if any, on which another `mars up` waits for the same lines and for
    `ready`.
    """

    as_json: bool = False
    pipe: int | None = None

    def line(self, text: str) -> None:
        """Something happened."""
        click.echo(text, err=self.as_json)
        self._send(Message("line", text))

    def failed(self, text: str) -> None:
        """It will not become ready; our own caller tells it to a person, if there is one."""
        self._send(Message("failed", text))

    def ready(self, cluster: ClusterFile) -> None:
        """Everything is ready: the addresses."""
        if self.as_json:
            print_json(cluster)
        self.line(f"Dashboard  {cluster.api}/")
        self.line(f"API        {cluster.api}  (documentation: {cluster.api}/docs)")
        self.line(f"Kafka      {cluster.kafka}")
        self.line(f"ZooKeeper  {cluster.zookeeper}")
        self.line(f"Valkey     {cluster.redis}")
        self._send(Message("ready"))
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def _send(self, message: Message) -> None:
        if self.pipe is None:
            return
        try:
            os.write(self.pipe, msgspec.json.encode(message) + b"\n")
        except BrokenPipeError:
            self.pipe = None  # who waited has gone; the cluster is to run on
