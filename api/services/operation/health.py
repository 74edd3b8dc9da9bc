"""Which servers answer: probed in the background, so that asking costs nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread

from mars.client.answers import Readiness
from mars.core.errors import Unavailable
from mars.process.outliving import Outliving

PROBE_INTERVAL_S = 1.0
"""Between two probes of a server: what /readyz says is at most this old, and a probe's time."""

NOT_PROBED = "not asked yet"

LOG = logging.getLogger(__name__)

Probe = Callable[[], str | None]
"""None if a server answers, else a sentence that says what is missing."""


class Health:
    """Asks each server in a thread of its own, so that a slow one does not hide the others."""

    def __init__(self, probes: Mapping[str, Probe]) -> None:
        self._probes = probes
        self._lock = Lock()
        self._found: dict[str, str | None] = dict.fromkeys(probes, NOT_PROBED)
        self._stop = Event()
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Probe from now on."""
        for service in self._probes:
            thread = Thread(
                target=self._watch, args=(service,), name=f"probe-{service}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Probe no more. Does not wait: a probe of a server that is away takes seconds."""
        self._stop.set()

    def _watch(self, service: str) -> None:
        rounds = Outliving(f"the probe of {service}", self._stop.wait)
        while not self._stop.is_set():
            rounds.round(lambda: self.check(service))
            self._stop.wait(PROBE_INTERVAL_S)

    def check(self, service: str) -> None:
        """Probe one server now; a change is logged."""
        found = self._probes[service]()
        with self._lock:
            before = self._found[service]
            self._found[service] = found
        if found is not None and before in {None, NOT_PROBED}:
            LOG.warning("waiting for %s: %s", service, found)
        elif found is None and before not in {None, NOT_PROBED}:
            LOG.info("%s answers again", service)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the servers that do not answer."""
        with self._lock:
            return tuple(service for service, found in self._found.items() if found is not None)

    def away(self) -> dict[str, Unavailable]:
        """The servers that did not answer when they were last asked."""
        with self._lock:
            return {
                service: Unavailable(service, _without_name(service, found))
                for service, found in self._found.items()
                if found is not None and found != NOT_PROBED
            }

    def readiness(self) -> Readiness:
        """Each server: ok, or what is missing."""
        with self._lock:
            found = dict(self._found)
        ready = all(sentence is None for sentence in found.values())
        return Readiness(
            status="ready" if ready else "not ready",
            services={service: sentence or "ok" for service, sentence in found.items()},
        )


def _without_name(service: str, sentence: str) -> str:
    """Probes name the server as errors do; the error names it again."""
    return sentence.removeprefix(f"{service} is not available: ")
