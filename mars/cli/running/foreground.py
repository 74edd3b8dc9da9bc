"""`mars up` itself: supervises until it is told to stop."""

from __future__ import annotations

import signal
import threading

from mars.cli.running.report import StartReport
from mars.client.cluster_file import ClusterFile, read_cluster
from mars.core.errors import LocalClusterError, MarsError
from mars.core.settings import surroundings
from mars.core.stopping import at_signals
from mars.local.cluster import ClusterOptions, running
from mars.local.supervisor import StopAsked, Supervisor


class Stopper:
    """Turns SIGINT, SIGTERM and SIGHUP into a request to stop; a second one is impatient."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._count = 0

    def install(self) -> None:
        """Take the signals from now on; in the main thread."""
        at_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._note)

    def impatient(self) -> bool:
        """Whether it was asked twice."""
        return self._count > 1

    def _note(self) -> None:
        self._count += 1
        self.asked.set()


def run(options: ClusterOptions, report: StartReport) -> None:
    """Start everything, keep it running, stop it when asked to."""
    stopper = Stopper()
    stopper.install()
    try:
        with running(options, report.line, stopper.asked, at_once=stopper.impatient) as supervisor:
            _announce(supervisor, report)
            report.line("Ctrl-C (or `mars down`) stops everything; the data stays.")
            supervisor.watch()
            report.line("Stopping.")
    except StopAsked:
        report.line("Stopped before everything was ready.")
    except MarsError as error:
        report.failed(str(error))
        raise


def run_demo(options: ClusterOptions, report: StartReport) -> int:
    """The same with `mars.cli.running.demo` in front; returns its exit code."""
    stopper = Stopper()
    stopper.install()
    try:
        with running(options, report.line, stopper.asked, at_once=stopper.impatient) as supervisor:
            return _demo(supervisor, _announce(supervisor, report))
    except StopAsked:
        report.line("Stopped before everything was ready.")
        return 0


def _demo(supervisor: Supervisor, cluster: ClusterFile) -> int:
    """The demo has the main thread and its signals; it returns when `stop_asked` is set."""
    watcher = threading.Thread(target=supervisor.watch, name="supervisor")
    watcher.start()
    try:
        from mars.cli.running import demo

        return demo.run(cluster, supervisor.stop_asked, surroundings().demo_seconds)
    finally:
        supervisor.stop_asked.set()
        watcher.join()


def _announce(supervisor: Supervisor, report: StartReport) -> ClusterFile:
    cluster = read_cluster(supervisor.data)
    if cluster is None:
        raise LocalClusterError(f"{supervisor.data}/cluster.json is gone; run `mars up` again.")
    report.ready(cluster)
    return cluster
