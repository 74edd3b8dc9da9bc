"""A session with ZooKeeper that never gives up, and the one table of its errors.

The client connects again by itself for ever, and makes a new session when the old one expired. What
must then stand again (membership, candidacy, watches) are *duties*: the keeper thread renews them
after every change of the connection and whenever a watch fired.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient, TransactionRequest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from mars.adapters.zookeeper.polling import PollingHandler
from mars.core.errors import Unavailable
from mars.core.settings import ZooKeeperSettings

CONNECT_WAIT_S = 1.0
"""How long after its loss calls wait for the connection: over a short reconnect. Later ones fail at
once, so that whoever asks again and again is not slowed down while the server is away."""

REPLY_TIMEOUT_S = 5.0
"""How long a call waits for its answer; a healthy ensemble needs milliseconds."""

RECONNECT_PAUSE_S_MAX = 1.0
"""Longest pause between two attempts to connect."""

DUTY_RETRY_S = 0.5
"""After which a duty is tried again that failed although there is a connection."""

_log = logging.getLogger(__name__)

_SENTENCES: tuple[tuple[type[Exception], str], ...] = (
    (
        exceptions.NoAuthError,
        "the nodes belong to another user; check zookeeper.digest_username and its password",
    ),
    (
        exceptions.AuthFailedError,
        "it refuses the credentials; check zookeeper.digest_username and its password",
    ),
    (KazooTimeoutError, f"no answer within {REPLY_TIMEOUT_S:.0f} s; check that it runs"),
    (exceptions.SessionExpiredError, "the session has expired; a new one is being opened"),
    (exceptions.ConnectionClosedError, "no connection; check that it runs and zookeeper.hosts"),
    (exceptions.ConnectionLoss, "the connection was lost; it is being opened again"),
    (exceptions.KazooException, "it refused the request; check its log"),
    (OSError, "no connection; check that it runs and zookeeper.hosts"),
)

_Answer = TypeVar("_Answer")


def unavailable(error: Exception) -> Unavailable:
    """The error of ours for one of the client's: what to do, and the client's own words."""
    sentence = next(text for kind, text in _SENTENCES if isinstance(error, kind))
    return Unavailable("zookeeper", f"{sentence} ({str(error) or type(error).__name__})")


class Reply(Protocol):
    """An answer of the client that is still under way.

    It is never asked to raise what it holds: its error would name the frames that hold it, and so
    all that was at hand where it was asked for, until somebody looks for cycles.
    """

    value: Any
    exception: BaseException | None

    def wait(self, timeout: float | None = ...) -> bool:
        """Wait for it; whether it is there."""


class Duty(Protocol):
    """Something that must stand as long as the process lives."""

    def renew(self, link: Link) -> None:
        """Bring it to what it should be, whatever it is now; called by the keeper thread only.

        Called after each change of the connection and each watch that fired, and again after a
        pause if it raised `Unavailable`.
        """


@dataclass(frozen=True, slots=True)
class Link:
    """The connection at one moment; `generation` grows each time one is made.

    Whatever a generation achieved is doubtful in the next one.
    """

    connected: bool
    generation: int


class ZooKeeperConnection:
    """One session, shared by the registry and the coordinator of a process."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._client = _client(settings)
        self._forget_after_s = settings.session_timeout_s
        """Absence after which the server has ended the session, unless it was away itself."""
        self._link = Link(connected=False, generation=0)
        self._duties: list[Duty] = []
        self._connected = threading.Event()
        self._absent_since_s = time.monotonic()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._renewing = threading.RLock()
        self._keeper = threading.Thread(target=self._keep, name="mars-zookeeper", daemon=True)

    @classmethod
    def open(cls, settings: ZooKeeperSettings) -> ZooKeeperConnection:
        """Begin to connect, in the background. `close` it at the end."""
        connection = cls(settings)
        connection.start()
        return connection

    def start(self) -> None:
        """Begin to connect, in the background."""
        self._client.add_listener(self._on_state)
        self._absent_since_s = time.monotonic()
        self._client.start_async()
        self._keeper.start()

    def close(self) -> None:
        """End the session: ephemeral nodes vanish at once. Never raises."""
        self._closing.set()
        self._woken.set()
        self._keeper.join()
        self._connected.clear()
        try:
            self._client.stop()
            self._client.close()
        except (exceptions.KazooException, OSError) as error:
            _log.warning("the ZooKeeper session could not be closed; it will expire: %s", error)

    @property
    def link(self) -> Link:
        """The connection as it is now: disconnected from the moment the session is suspended."""
        link = self._link
        # The client knows of a loss a moment before it tells.
        return link if self._client.connected else Link(False, link.generation)

    @property
    def session_id(self) -> int | None:
        """The present session, None without a connection."""
        identity = self._client.client_id
        return None if identity is None else identity[0]

    def ping(self) -> str | None:
        """None if the server answers, else a sentence that says what to do."""
        try:
            self.call(lambda client: client.exists_async("/"))
        except Unavailable as error:
            return str(error)
        return None

    def call(self, request: Callable[[KazooClient], Reply], *expected: type[Exception]) -> Any:
        """Send one request and wait for its answer: `CONNECT_WAIT_S + REPLY_TIMEOUT_S` at most.

        `expected` errors of ZooKeeper are raised as they are, all others as Unavailable.
        """
        return self._answer(self.send(request), expected)

    def send(self, request: Callable[[KazooClient], Reply]) -> Reply:
        """Send one request, whose answer is waited for later; the server keeps the order."""
        absent_s = time.monotonic() - self._absent_since_s
        if self._closing.is_set() or not self._connected.wait(max(0.0, CONNECT_WAIT_S - absent_s)):
            raise Unavailable(
                "zookeeper", "no connection; check that it runs, zookeeper.hosts and the TLS files"
            )
        return request(self._client)

    def found(self, replies: Iterable[Reply]) -> list[Any]:
        """The answers to several requests that read, in order; None where there is no such node."""
        return [self._answer_or_none(reply) for reply in replies]

    def transact(
        self, build: Callable[[TransactionRequest], None], *expected: type[Exception]
    ) -> bool:
        """Do several writes as one; False if one of the `expected` errors stopped them all."""

        def request(client: KazooClient) -> Reply:
            transaction = client.transaction()
            build(transaction)
            reply: Reply = transaction.commit_async()
            return reply

        for result in self.call(request):
            # The operations beside the one that failed answer with one of these two.
            if isinstance(result, exceptions.RolledBackError | exceptions.RuntimeInconsistency):
                continue
            if isinstance(result, expected):
                return False
            if isinstance(result, Exception):
                raise unavailable(result) from result
        return True

    def ensure(self, path: str) -> None:
        """Make a node and its parents where they are missing."""
        self.call(lambda client: client.ensure_path_async(path))

    def _answer(self, reply: Reply, expected: tuple[type[Exception], ...]) -> Any:
        error = reply.exception if reply.wait(REPLY_TIMEOUT_S) else KazooTimeoutError()
        if error is None:
            return reply.value
        if isinstance(error, exceptions.KazooException | KazooTimeoutError | OSError):
            if isinstance(error, expected):
                raise type(error)(*error.args)
            raise unavailable(error) from error
        raise error

    def _answer_or_none(self, reply: Reply) -> Any:
        try:
            return self._answer(reply, (exceptions.NoNodeError,))
        except exceptions.NoNodeError:
            return None

    # --------------------------------------------------------------------------------- duties

    def stand(self, duty: Duty) -> None:
        """Renew this duty from now on."""
        self._duties.append(duty)
        self.wake()

    def lay_down(self, duty: Duty) -> None:
        """Renew this duty no more; when this returns, it is not being renewed."""
        with self._renewing:
            if duty in self._duties:
                self._duties.remove(duty)

    def wake(self, _event: object = None) -> None:
        """Have the duties renewed soon; also what watches call."""
        self._woken.set()

    def _keep(self) -> None:
        pause_s: float | None = None
        while not self._closing.is_set():
            self._woken.wait(pause_s)
            self._woken.clear()
            with self._renewing:
                done = [self._renewed(duty) for duty in list(self._duties)]
            if not self.link.connected:
                self._forget_session()
                pause_s = self._forget_after_s / 2
            else:
                pause_s = None if all(done) else DUTY_RETRY_S

    def _forget_session(self) -> None:
        """Connect as if for the first time, after an absence in which the session has ended.

        A server that has lost its data refuses whoever has seen more than it holds, for ever; the
        client itself never stops trying.
        """
        now_s = time.monotonic()
        if self._closing.is_set() or now_s - self._absent_since_s < self._forget_after_s:
            return
        self._absent_since_s = now_s
        try:
            self._client.stop()
            self._client.start_async()
        except Exception as error:  # noqa: BLE001 -- as in `_renewed`; the next absence tries again
            _log.warning("cannot connect to ZooKeeper again: %s", error)

    def _renewed(self, duty: Duty) -> bool:
        try:
            duty.renew(self.link)
        except Unavailable:
            return False
        except Exception:  # noqa: BLE001
            # One duty's mistake must not end the others: the thread is the process's only keeper.
            _log.exception("work for ZooKeeper failed; this is a bug, please report it")
            return False
        return True

    def _on_state(self, state: str) -> None:
        """Called by the client's own thread, which must not wait."""
        if state == KazooState.CONNECTED:
            self._link = Link(connected=True, generation=self._link.generation + 1)
            self._connected.set()
        else:
            if self._connected.is_set():
                self._absent_since_s = time.monotonic()
            self._connected.clear()
            self._link = Link(connected=False, generation=self._link.generation)
        self._woken.set()


def _client(settings: ZooKeeperSettings) -> KazooClient:
    return KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout_s,
        handler=PollingHandler(),
        connection_retry=KazooRetry(
            max_tries=-1, delay=0.05, backoff=2, max_delay=RECONNECT_PAUSE_S_MAX
        ),
        use_ssl=settings.use_tls,
        check_hostname=settings.use_tls,
        ca=settings.tls_ca_location or None,
        certfile=settings.tls_certificate_location or None,
        keyfile=settings.tls_key_location or None,
        keyfile_password=settings.tls_key_password or None,
        **_digest(settings),
    )


def _digest(settings: ZooKeeperSettings) -> dict[str, Any]:
    """With credentials: present them, and make every node theirs alone."""
    if not settings.digest_username:
        return {}
    name, password = settings.digest_username, settings.digest_password
    return {
        "auth_data": [("digest", f"{name}:{password}")],
        "default_acl": [make_digest_acl(name, password, all=True)],
    }
