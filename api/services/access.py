"""Keys: making them, and telling whose request it is."""

from __future__ import annotations

import base64
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from threading import Lock

from api.callers import ANYBODY, Caller
from api.http.limits import TokenBuckets
from api.schemas import NewKeyRequest
from api.services.context import Ports
from mars.core.errors import Conflict, Forbidden, NotAuthenticated, NotFound, Unavailable
from mars.core.settings import ApiSettings
from mars.protocol.ports import ApiKey, KeyId, KeyRegistry, Role
from mars.protocol.ports.access import find_key, make_key, without_secrets

REQUESTS_PER_SECOND = 100
"""Of one key, or of one address that shows none, unless the settings say otherwise."""

KEYS_MAX = 1_000
"""Keys of a namespace: all are kept in memory, and read again at each change of one."""

LOOK_AGAIN_S = 0.2
"""Between two readings of all keys because of some that are not known: who guesses waits."""

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""By what names this machine calls itself."""

LOG = logging.getLogger(__name__)

NO_KEY = (
    "this API asks for a key: send `Authorization: Bearer KEY` (the command line and the Python "
    "client take it from MARS_KEY); an admin makes keys with `mars key create`, the first one is "
    "made beside the API with `mars key create --role admin --config FILE`"
)
WRONG_KEY = "the key is not known: it was removed, or is of another namespace, or was cut short"
NO_KEYS_HERE = (
    "this API asks nobody for a key (api.access), so it makes none: make the first one beside it "
    "with `mars key create --role admin --config FILE`, then set api.access to on"
)
WRONG_SCHEME = "the header Authorization is not understood: send `Authorization: Bearer KEY`"


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Whether keys are asked for, and how much each may ask for.

    `hosts` are the names that requests may call this API by (None: any): set where nobody is asked
    for a key, so that no web page with a name of its own opens it to others (DNS rebinding), nor,
    where only this machine is to reach it, a proxy. `addresses` says whether it may also be called
    by any address: a page cannot choose to be called by one that is not its own.
    """

    on: bool = False
    requests_per_second: int = REQUESTS_PER_SECOND
    hosts: frozenset[str] | None = None
    addresses: bool = False


def policy_of(settings: ApiSettings) -> AccessPolicy:
    """What the settings say about access."""
    local = _is_loopback(settings.host)
    on = settings.access == "on" or (settings.access == "auto" and not local)
    named = {name.lower() for name in (settings.host, *settings.hosts)}
    return AccessPolicy(
        on=on,
        requests_per_second=settings.requests_per_second,
        hosts=None if on else LOCAL_NAMES | named,
        addresses=settings.access == "off" and not local,
    )


def warnings_of(settings: ApiSettings) -> list[str]:
    """What somebody should know about how this API can be reached."""
    if _is_loopback(settings.host):
        return []
    found = []
    if settings.access == "off":
        found.append(
            f"whoever reaches {settings.host}:{settings.port} may do everything, because "
            "api.access is off"
        )
    elif not settings.tls_certificate_location:
        found.append(
            "keys come over the network in clear text: set api.tls_certificate_location and "
            "api.tls_key_location, or let a proxy in front of it end TLS"
        )
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class KeyRing:
    """The keys, kept in memory: they count as they were last read while ZooKeeper is away."""

    def __init__(self, registry: KeyRegistry) -> None:
        self._registry = registry
        self._lock = Lock()
        self._keys: Mapping[KeyId, ApiKey] | None = None
        self._changes, self._changes_read = 1, 0
        """Changes that were heard of, and those of them that the keys have; one at the start."""
        self._read_s = -math.inf

    def watch(self) -> None:
        """Learn of changes from now on."""
        self._registry.watch(self._changed)

    def _changed(self) -> None:
        self._changes += 1

    @property
    def stale(self) -> bool:
        """Whether `refresh` is due."""
        return self._changes_read != self._changes

    def refresh(self) -> None:
        """Read the keys again if they have changed. Raises Unavailable as long as they never were
        read.
        """
        with self._lock:
            if self.stale:
                self._read()

    def look_again(self) -> None:
        """Before a key is refused: it may have been made a moment ago, elsewhere.

        Raises as `refresh` does.
        """
        with self._lock:
            if time.monotonic() - self._read_s >= LOOK_AGAIN_S:
                self._read()

    def _read(self) -> None:
        changes = self._changes  # before reading: a change meanwhile is another one
        self._read_s = time.monotonic()
        try:
            self._keys = {key.id: key for key in self._registry.all()}
        except Unavailable as error:
            if self._keys is None:
                raise
            LOG.warning("keys could not be read again, so the last known ones apply: %s", error)
        else:
            self._changes_read = changes

    def find(self, text: str) -> ApiKey | None:
        """The key that a text is; `refresh` first."""
        return find_key(self._keys or {}, text)

    def has(self, key: KeyId) -> bool:
        """Whether there was such a key when they were last read."""
        return key in (self._keys or {})


class AccessService:
    """What the gate asks, and what the paths under /v1/keys do."""

    def __init__(self, ports: Ports, policy: AccessPolicy) -> None:
        self.policy = policy
        self.ring = KeyRing(ports.keys)
        self._ports = ports
        self._buckets = TokenBuckets(policy.requests_per_second, time.monotonic)

    def caller(self, authorization: str | None) -> Caller:
        """Whose request has this header; the ring is fresh. Raises NotAuthenticated."""
        if not self.policy.on:
            return ANYBODY
        if authorization is None:
            raise NotAuthenticated(NO_KEY)
        key = self.ring.find(_key_text(authorization))
        if key is None:
            raise NotAuthenticated(WRONG_KEY)
        return Caller(key.role, key.id, key.reads, key.writes)

    def stands(self, who: Caller) -> bool:
        """Whether a caller may still be answered: those that listen for long ask now and then.

        Asks nobody; `look` learns of keys that are gone.
        """
        return who.key is None or self.ring.has(who.key)

    def look(self) -> None:
        """Read the keys again if they have changed, also while nobody asks for anything."""
        if self.policy.on and self.ring.stale:
            try:
                self.ring.refresh()
            except Unavailable:
                return  # they never were read: nobody has got in

    def wait_s(self, who: str) -> float:
        """0 if `who` may ask now, else the seconds until then."""
        return self._buckets.take(who) if self.policy.on else 0.0

    # ------------------------------------------------------------------------------ the keys

    def list_all(self) -> list[ApiKey]:
        """All keys, oldest first."""
        return sorted(self._ports.keys.all(), key=lambda key: (key.created_ms, key.id))

    def create(self, request: NewKeyRequest) -> tuple[ApiKey, str]:
        """A new key and its text, which nobody can show again.

        Raises Rejected, Conflict; Forbidden where nobody is asked for a key: one that somebody
        made unasked would open everything on the day that keys are asked for.
        """
        if not self.policy.on:
            raise Forbidden(NO_KEYS_HERE)
        if len(self._ports.keys.all()) >= KEYS_MAX:
            raise Conflict(f"there are {KEYS_MAX} keys already: remove some")
        key, text = make_key(
            Role(request.role),
            self._ports.now_ms(),
            reads=request.reads,
            writes=request.writes,
            note=request.note,
        )
        if not self._ports.keys.create(key):
            raise Conflict("another key was made at the same time: try again")
        return key, text

    def delete(self, text: str) -> None:
        """Remove a key; it opens nothing from now on. Raises NotFound."""
        known = {key.id for key in self._ports.keys.all()}
        if KeyId(text) not in known or not self._ports.keys.delete(KeyId(text)):
            named = without_secrets(text)
            if named != text:
                raise NotFound(
                    f"a key is named by its id alone, without its secret: {named[:80]!a}"
                )
            raise NotFound(
                f"there is no key {text[:80]!a}; `mars key list` (GET /v1/keys) shows all of them"
            )


def _key_text(authorization: str) -> str:
    """The key in `Bearer KEY`, or, as browsers ask for one, the password of `Basic`."""
    scheme, _, rest = authorization.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":
            try:
                pair = base64.b64decode(rest.strip(), validate=True).decode()
            except ValueError:  # no base64, or no UTF-8
                raise NotAuthenticated(WRONG_SCHEME) from None
            return pair.partition(":")[2]
        case _:
            raise NotAuthenticated(WRONG_SCHEME)
