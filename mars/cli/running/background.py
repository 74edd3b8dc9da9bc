"""`mars up --detach`: the same `mars up` in a session of its own, waited for until it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from mars.cli.running.report import Message, StartReport
from mars.cli.shared import print_json
from mars.client.cluster_file import DATA, read_cluster
from mars.core.errors import LocalClusterError
from mars.core.stopping import sigterm_interrupts
from mars.local.cluster import ClusterOptions

END_S = 60.0
"""Longest end of a `mars up` that failed: it stops what it has started before."""


def start(options: ClusterOptions, report: StartReport) -> None:
    """Return when everything is ready. Raises LocalClusterError with what it says itself.

    Ctrl-C and SIGTERM stop what has been started, and raise KeyboardInterrupt.
    """
    data = options.data.absolute()
    with sigterm_interrupts():
        _start(options, data, report)
    if report.as_json:
        print_json(read_cluster(data))
    else:
        click.echo(f"It runs on in the background; `{stopped_by(options.data)}` stops it.")


def stopped_by(data: Path) -> str:
    """The command that stops the cluster of a folder."""
    return "mars down" if data == DATA else f"mars down --data {data}"


def _start(options: ClusterOptions, data: Path, report: StartReport) -> None:
    log = data / "logs" / "supervisor.log"
    read_end, write_end = os.pipe()
    with log.open("wb") as output:
        process = subprocess.Popen(
            _command(options, data, write_end),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
            start_new_session=True,
        )
    os.close(write_end)
    try:
        last = _relay(read_end, report)
    except KeyboardInterrupt:
        process.terminate()
        process.wait(END_S)
        raise
    if last.kind != "ready":
        process.wait(END_S)
        raise LocalClusterError(last.text or f"mars up ended early; its log is {log}.")
    # It goes on without us: its end is not ours to wait for.
    process.returncode = 0


def _relay(read_end: int, report: StartReport) -> Message:
    """Pass lines on until everything is ready, or has failed, or the other side has ended."""
    with os.fdopen(read_end, "rb") as lines:
        for line in lines:
            message = msgspec.json.decode(line, type=Message)
            if message.kind != "line":
                return message
            report.line(message.text)
    return Message("failed")


def _command(options: ClusterOptions, data: Path, pipe: int) -> Sequence[str]:
    given = {
        "--data": data,
        "--mappers": options.mappers,
        "--reducers": options.reducers,
        "--bulk": options.bulk,
        "--buckets": options.buckets,
        "--api-port": options.api_port,
        "--kafka-port": options.kafka_port,
        "--zookeeper-port": options.zookeeper_port,
        "--redis-port": options.redis_port,
        "--config": None if options.config is None else options.config.absolute(),
        "--autoscale": None if options.autoscale is None else str(options.autoscale),
        "--report-fd": pipe,
    }
    words = [
        word for name, value in given.items() if value is not None for word in (name, str(value))
    ]
    return [sys.executable, "-P", "-m", "mars.cli", "up", *words]
