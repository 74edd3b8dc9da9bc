"""Wires an API process together and runs it: `python -m api --config FILE`.

It listens at once, whatever is missing: paths that need a server which is away answer 503 and name
it, `/readyz` lists them all, and everything goes on by itself when they are back.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from types import FrameType

import uvicorn

from api.app import create_app
from api.aside import (
    LISTING,
    PREVIEWING,
    VERIFYING,
    Aside,
    ListedAside,
    PreviewedAside,
    VerifiedAside,
)
from api.http.connections import bounded
from api.routes.inside import Stopping
from api.services.access import policy_of, warnings_of
from api.services.all import Services, build
from api.services.inside.sampling import SAMPLE_INTERVAL_S
from api.services.operation.health import Health
from api.wiring import Servers, cluster_of
from mars.adapters.kafka.watch import KafkaWatch
from mars.adapters.zookeeper import ZooKeeperConnection
from mars.core.errors import SettingsError, Unavailable
from mars.core.garbage import settle_garbage_collection
from mars.core.settings import ApiSettings, Settings
from mars.process import life as living
from mars.process.command import settings_from_command_line
from mars.process.outliving import Outliving
from mars.process.telemetry import logs
from mars.process.telemetry.member import REPORT_INTERVAL_S, Reporter, member_id

BACKLOG = 128
"""Connections that wait to be taken."""

SHUTDOWN_S = 5
"""How long requests under way may take once the process is asked to stop."""


def run(settings: Settings) -> int:
    """Run the API until it is asked to stop. Returns the exit code."""
    logs.configure(settings.logging)
    life = living.Life()
    life.stop_on_signals()
    try:
        listening = _listen(settings.api)
    except OSError as error:
        sys.stderr.write(
            f"{settings.api.host}:{settings.api.port} cannot be listened on ({error.strerror}): "
            "choose another api.port, or stop what uses it\n"
        )
        return 1
    problem = _tls_problem(settings.api)
    if problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    for warning in warnings_of(settings.api):
        logs.warning(logs.logger("api"), warning)
    connection = ZooKeeperConnection.open(settings.zookeeper)
    try:
        _Process(settings, life, connection).serve(listening)
    finally:
        life.stop()
        connection.close()
    return 0


def _listen(settings: ApiSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)


def _tls_problem(settings: ApiSettings) -> str:
    """Why the certificate cannot be used; empty if it can, or there is none."""
    if not settings.tls_certificate_location:
        return ""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.tls_certificate_location,
            settings.tls_key_location,
            settings.tls_key_password,
        )
    except OSError as error:  # ssl.SSLError is one
        return (
            f"api.tls_certificate_location ({settings.tls_certificate_location}) and "
            f"api.tls_key_location ({settings.tls_key_location}) cannot be used: "
            f"{error.strerror or 'the password is missing or wrong'}"
        )
    return ""


class _Process:
    """The parts of one API process."""

    def __init__(
        self, settings: Settings, life: living.Life, connection: ZooKeeperConnection
    ) -> None:
        self._member = member = member_id(settings, "api")
        self._settings = settings
        self._life = life
        self._joined = self._made = False
        """Whether it is a member, and whether the topics of the namespace are there."""
        self._servers = Servers.open(settings, connection, member)
        self._reporter = Reporter(member, "api")
        self._health = Health(
            {
                "kafka": KafkaWatch(settings),
                "redis": self._servers.log.ping,
                "zookeeper": self._servers.registry.ping,
            }
        )

    def serve(self, listening: socket.socket) -> None:
        """Answer requests until the process is asked to stop."""
        listings, verifications, previews = map(Aside, (LISTING, VERIFYING, PREVIEWING))
        services = build(
            self._servers.ports(ListedAside(self._settings, listings)),
            cluster_of(self._settings),
            self._health,
            _version(),
            policy_of(self._settings.api),
            verifier=VerifiedAside(self._settings, verifications),
            previewer=PreviewedAside(self._settings, previews),
        )
        services.access.ring.watch()
        self._health.start()
        background = [
            threading.Thread(target=self._take_part, name="member", daemon=True),
            threading.Thread(target=self._sample, args=(services,), name="sampler", daemon=True),
        ]
        for thread in background:
            thread.start()
        try:
            self._listen_and_serve(services, listening)
        finally:
            self._life.stop()
            self._health.stop()
            listings.close()
            verifications.close()
            previews.close()
            self._servers.close()

    def _listen_and_serve(self, services: Services, listening: socket.socket) -> None:
        stopping, tls = Stopping(), self._settings.api
        app = create_app(
            services,
            version=_version(),
            body_bytes_max=self._settings.api.body_bytes_max,
            stopping=stopping,
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=bounded(self._settings.api.connections_max),
            ws="none",
            # Left out, uvicorn believes whoever asks from this machine, and its environment.
            proxy_headers=bool(self._settings.api.proxies),
            forwarded_allow_ips=list(self._settings.api.proxies),
            timeout_graceful_shutdown=SHUTDOWN_S,
            server_header=False,
            ssl_certfile=tls.tls_certificate_location or None,
            ssl_keyfile=tls.tls_key_location or None,
            ssl_keyfile_password=tls.tls_key_password or None,
        )
        host, port = listening.getsockname()[:2]
        logs.info(
            logs.logger("api"),
            "API listens",
            address=f"{'https' if tls.tls_certificate_location else 'http'}://{host}:{port}",
            access="on" if services.access.policy.on else "off",
        )
        settle_garbage_collection()
        _Server(config, stopping).run(sockets=[listening])

    # ---------------------------------------------------------------------------- background

    def _take_part(self) -> None:
        """Be a member and make what a namespace needs, as soon as the servers answer."""
        Outliving("the member").until(self._life, REPORT_INTERVAL_S, self._report)

    def _report(self) -> None:
        report = self._reporter.report(0, self._health.missing)
        with suppress(Unavailable):  # the probes have logged which server is away
            if self._joined:
                self._servers.coordinator.report(report)
            else:
                self._servers.coordinator.join(report)
                self._joined = True
            if not self._made and "kafka" not in self._health.missing:
                self._make_topics()
                self._made = True

    def _make_topics(self) -> None:
        buckets = self._servers.coordinator.buckets(self._settings.cluster.buckets)
        try:
            self._servers.admin.ensure_internal(buckets)
        except SettingsError as error:
            logs.error(logs.logger("api"), str(error))

    def _sample(self, services: Services) -> None:
        works: dict[str, Callable[[], object]] = {
            "the sampler": services.figures.take,
            "the pulse": services.pulse.look,
            "the look at keys": partial(self._look_at_keys, services),
        }
        rounds = [(Outliving(what), work) for what, work in works.items()]
        while not self._life.wait(SAMPLE_INTERVAL_S):
            for each, work in rounds:
                each.round(work)

    def _look_at_keys(self, services: Services) -> None:
        if "zookeeper" not in self._health.missing:
            services.access.look()


class _Server(uvicorn.Server):
    """Ends event streams when it is asked to stop: uvicorn itself would wait for them."""

    def __init__(self, config: uvicorn.Config, stopping: Stopping) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        self._stopping.set()
        super().handle_exit(sig, frame)


def _version() -> str:
    try:
        return version("mars-statistics")
    except PackageNotFoundError:
        return "0"


if __name__ == "__main__":
    raise SystemExit(run(settings_from_command_line("api")))
