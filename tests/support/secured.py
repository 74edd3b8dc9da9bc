"""The three servers behind TLS, names and passwords, as a careful user runs them.

    Kafka        SASL_SSL with SCRAM-SHA-512, and ACLs; what a test feeds goes in by a plain port
    Valkey       an ACL user; TLS by a front of ours, since the wheel's build has none
    ZooKeeper    TLS with certificates on both sides; nodes belong to a digest user

The rights are those of `docs/operate/kafka.md` and its neighbours, no more.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from mars.adapters.probe import redis_ready
from mars.core.settings import KafkaSettings, RedisSettings, Settings, ZooKeeperSettings
from mars.local.child import Child
from mars.local.network import HOST, free_port
from mars.local.servers import KafkaServer, ValkeyServer, ZooKeeperServer
from tests.support.cluster import wait_for

USER = "mars"
PASSWORDS = {
    "MARS_KAFKA_SASL_PASSWORD": "planted-kafka-secret",
    "MARS_REDIS_PASSWORD": "planted-redis-secret",
    "MARS_ZOOKEEPER_DIGEST_PASSWORD": "planted-zookeeper-secret",
}
"""By the variables in which a process gets them."""

NAMESPACE = "default"
TOPICS, OWN = "mars.", f"mars.{NAMESPACE}."
ASK_S = 20.0
CHUNK_BYTES = 65_536

EVERY_ACL = AclBindingFilter(
    *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),  # type: ignore[arg-type]
    *(AclOperation.ANY, AclPermissionType.ANY),
)

RIGHTS = (
    (ResourceType.TOPIC, TOPICS, ("CREATE", "DESCRIBE", "READ", "WRITE")),
    (ResourceType.GROUP, OWN, ("READ",)),
    (ResourceType.TRANSACTIONAL_ID, OWN, ("DESCRIBE", "WRITE")),
)
"""Of the one principal of all processes, by prefix; a source topic comes besides."""


@dataclass(frozen=True, slots=True)
class Secured:
    """The servers, and the settings of a process that may use them; passwords are not in it."""

    kafka: KafkaServer
    valkey: ValkeyServer
    zookeeper: ZooKeeperServer
    settings: Settings

    def may_read(self, topic: str) -> None:
        """Let Mars read a source topic."""
        self._allow((ResourceType.TOPIC, topic, ("DESCRIBE", "READ")), ResourcePatternType.LITERAL)

    def prepare_kafka(self) -> None:
        """Make the user, and give him his rights."""
        password = PASSWORDS["MARS_KAFKA_SASL_PASSWORD"].encode()
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        admin = self._admin()
        made = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(USER, info, password)]
        )
        made[USER].result(ASK_S)
        for right in RIGHTS:
            self._allow(right, ResourcePatternType.PREFIXED)

    def _allow(
        self, right: tuple[ResourceType, str, tuple[str, ...]], pattern: ResourcePatternType
    ) -> None:
        kind, name, operations = right
        bindings = [
            AclBinding(
                *(kind, name, pattern, f"User:{USER}", "*"),
                *(AclOperation[operation], AclPermissionType.ALLOW),
            )
            for operation in operations
        ]
        admin = self._admin()
        for made in admin.create_acls(bindings).values():
            made.result(ASK_S)
        # The controller has answered; the broker, which checks them, takes them up on its own.
        wait_for("the broker's ACLs", lambda: self._in_force(admin, bindings), seconds=ASK_S)

    def _in_force(self, admin: AdminClient, bindings: list[AclBinding]) -> bool:
        known = admin.describe_acls(EVERY_ACL, request_timeout=ASK_S).result(ASK_S)
        return set(bindings) <= set(known)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap})


@contextmanager
def secured(folder: Path, certificate: Path, key: Path, within_s: float) -> Iterator[Secured]:
    """All three, ready; ended afterwards."""
    # Servers want both in one file.
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    with ExitStack() as stack:
        kafka_port, zookeeper_port = free_port(), free_port()
        kafka = _kafka(folder, kafka_port, both)
        zookeeper = _ZooKeeper(folder / "zookeeper", zookeeper_port, both, certificate)
        valkey = _Valkey(folder / "valkey", options=_redis_users())
        servers: list[Child] = [kafka, zookeeper, valkey]
        for server in servers:
            stack.callback(server.stop, within_s)
            server.start()
        for server in servers:
            server.wait_ready(within_s)
        front = stack.enter_context(contextlib.closing(_TlsFront(valkey.port, certificate, key)))
        ca = str(certificate)
        found = Secured(
            kafka,
            valkey,
            zookeeper,
            Settings(
                kafka=KafkaSettings(
                    bootstrap=f"{HOST}:{kafka_port}",
                    security_protocol="sasl_ssl",
                    sasl_mechanism="SCRAM-SHA-512",
                    sasl_username=USER,
                    ssl_ca_location=ca,
                ),
                redis=RedisSettings(
                    url=f"rediss://{HOST}:{front.port}/0", username=USER, tls_ca_location=ca
                ),
                zookeeper=ZooKeeperSettings(
                    hosts=f"{HOST}:{zookeeper_port}",
                    digest_username=USER,
                    use_tls=True,
                    tls_ca_location=ca,
                    tls_certificate_location=ca,
                    tls_key_location=str(key),
                ),
            ),
        )
        found.prepare_kafka()
        yield found


def _kafka(folder: Path, secure_port: int, both: Path) -> KafkaServer:
    port, controller = free_port(), free_port()
    plain, far = f"PLAINTEXT://{HOST}:{port}", f"SASL_SSL://{HOST}:{secure_port}"
    return KafkaServer(
        folder / "kafka",
        port,
        properties={
            "listeners": f"{plain},{far},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"{plain},{far}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )


def _redis_users() -> list[str]:
    """Options that make ours, and leave nobody in without a name."""
    password = PASSWORDS["MARS_REDIS_PASSWORD"]
    rights = ["~mars:*", "&mars:*", "+@all", "-@admin", "-@dangerous", "+info"]
    return ["--user", "default", "off", "--user", USER, "on", f">{password}", *rights]


class _Valkey(ValkeyServer):
    """One that knows the user only."""

    def missing(self) -> str | None:
        """Whether it answers that user's PING."""
        password = PASSWORDS["MARS_REDIS_PASSWORD"]
        own = RedisSettings(url=self.url, username=USER, password=password)
        return redis_ready(Settings(redis=own))


class _ZooKeeper(ZooKeeperServer):
    """One with a second port, where both sides show certificates."""

    def __init__(self, data: Path, secure_port: int, both: Path, certificate: Path) -> None:
        super().__init__(data)
        self._lines = [
            f"secureClientPortAddress={HOST}",
            f"secureClientPort={secure_port}",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={both}",
            f"ssl.trustStore.location={certificate}",
            "ssl.clientAuth=need",
            # The clients' certificates are for their machine, not for a name.
            "ssl.hostnameVerification=false",
        ]

    def prepare(self) -> None:
        """The configuration as ever, and more of it."""
        super().prepare()
        with (self.data / "zoo.cfg").open("a", encoding="utf-8") as file:
            file.write("\n".join(self._lines) + "\n")


class _TlsFront:
    """Takes TLS off, and hands what is in it to a port of this machine."""

    def __init__(self, target: int, certificate: Path, key: Path) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept_all, name="front", daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that are there end with their clients."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept_all(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(client, server_side=True) as far,
        ):
            with socket.create_connection((HOST, self._target)) as near:
                back = threading.Thread(target=_carry, args=(near, far), daemon=True)
                back.start()
                _carry(far, near)
                back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
