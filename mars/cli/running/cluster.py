"""`mars up`, `mars down`, `mars status`: the cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from mars.cli.shared import api_option, data_option, json_option, messages, print_json

PROCESSES = click.IntRange(0, 64)
"""Mappers, or reducers, on one machine: 64 are more than it has any use for."""

PORT = click.IntRange(0, 65_535)


class CountRange(click.ParamType[tuple[int, int]]):
    """Two counts, written MIN:MAX."""

    name = "min:max"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Both; the first is at least 1 and not above the second."""
        low, colon, high = str(value).partition(":")
        if not (colon and low.isdigit() and high.isdigit() and 1 <= int(low) <= int(high) <= 64):
            self.fail(f"{value!r} is not a range; write MIN:MAX, as 1:4 (64 at most).", param, ctx)
        return int(low), int(high)


@click.command()
@data_option
@click.option("--mappers", type=PROCESSES, default=2, show_default=True)
@click.option("--reducers", type=PROCESSES, default=2, show_default=True)
@click.option(
    "--bulk",
    type=PROCESSES,
    default=1,
    show_default=True,
    help="Drivers of PySpark jobs; Java starts with the first job.",
)
@click.option(
    "--buckets",
    type=click.IntRange(1, 4096),
    default=None,
    help="Number of buckets; fixed when the data is made [default: 8].",
)
@click.option("--api-port", type=PORT, default=None, help="[default: 8080; 0: a free one]")
@click.option("--kafka-port", type=PORT, default=9092, show_default=True)
@click.option("--zookeeper-port", type=PORT, default=2181, show_default=True)
@click.option("--redis-port", type=PORT, default=6379, show_default=True)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="TOML file with further settings.",
)
@click.option(
    "--autoscale",
    type=CountRange(),
    default=None,
    help="Keep as many mappers, and as many reducers, as the load asks for.",
)
@click.option("--demo", is_flag=True, help="Feed synthetic flows and show their statistics.")
@click.option("--detach", is_flag=True, help="Return when everything is ready.")
@click.option("--report-fd", type=int, default=None, hidden=True)
@json_option
def up(
    data: Path,
    mappers: int,
    reducers: int,
    bulk: int,
    buckets: int | None,
    api_port: int | None,
    kafka_port: int,
    zookeeper_port: int,
    redis_port: int,
    config: Path | None,
    autoscale: tuple[int, int] | None,
    demo: bool,
    detach: bool,
    report_fd: int | None,
    as_json: bool,
) -> int:
    """Start Kafka, ZooKeeper, Valkey, mappers, reducers and the API, and keep them running.

    Ports of 0 take free ones. What dies is started again. Ctrl-C stops everything; the data stays.
    """
    from mars.cli.running import background, foreground
    from mars.cli.running.report import StartReport
    from mars.local.cluster import ClusterOptions, check_machine, fetch_jars, make_folder
    from mars.local.jars import shown
    from mars.local.scaling import ScaleBounds

    if demo and detach:
        raise click.UsageError("--demo shows results as they come; leave out --detach.")
    options = ClusterOptions(
        data=data,
        mappers=mappers,
        reducers=reducers,
        bulk=bulk,
        buckets=buckets,
        api_port=api_port,
        kafka_port=kafka_port,
        zookeeper_port=zookeeper_port,
        redis_port=redis_port,
        config=config,
        autoscale=None if autoscale is None else ScaleBounds(*autoscale),
    )
    check_machine()
    make_folder(data)
    with shown("Fetching Kafka (once)", messages()) as show:
        fetch_jars(show)
    report = StartReport(as_json=as_json, pipe=report_fd)
    if detach:
        background.start(options, report)
    elif demo:
        return foreground.run_demo(options, report)
    else:
        foreground.run(options, report)
    return 0


@click.command()
@data_option
@json_option
def down(data: Path, as_json: bool) -> None:
    """Stop the cluster on this machine and wait until it has ended; its data stays."""
    from mars.local.control import stop_cluster

    pid = stop_cluster(data.absolute())
    if as_json:
        print_json({"stopped": pid is not None})
    elif pid is None:
        click.echo(f"No cluster runs on {data}; there is nothing to stop.")
    else:
        click.echo(f"Stopped; the data stays in {data}.")


@click.command()
@data_option
@api_option
@json_option
def status(data: Path, api: str | None, as_json: bool) -> int:
    """Show what runs on this machine, and what the API says about the cluster."""
    from mars.cli.running.status import show_status

    return show_status(data, api, as_json=as_json)
