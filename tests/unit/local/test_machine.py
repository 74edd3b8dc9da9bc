"""What the machine must have: Java, ports, room, and the settings of the embedded cluster."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mars.core.errors import LocalClusterError
from mars.core.settings import load
from mars.local import cluster, jars, network
from mars.local.cluster import ClusterOptions, make_folder, running
from mars.local.java import find_java, java_identity, java_version, pyspark_jar
from mars.local.network import PORT_MIN, PortWish, check_ports, free_port, is_free


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25-ea", 25)]
)
def test_java_says_its_version(fake_java: Callable[..., Path], said: str, version: int) -> None:
    assert java_version(str(fake_java(said) / "bin" / "java")) == version


def test_options_of_the_environment_make_no_other_java(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The real one, which tells of the options that it heeds.
    java = find_java()
    java_identity.cache_clear()
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    plain = java_identity(java)
    java_identity.cache_clear()
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Dany=thing")
    assert java_identity(java) == plain
    assert "version" in plain


def test_a_java_that_is_too_old_is_told(fake_java: Callable[..., Path]) -> None:
    fake_java("11.0.2")
    with pytest.raises(LocalClusterError, match="Java 11, which is too old"):
        find_java()


def test_no_java_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LocalClusterError, match="no java on the PATH"):
        find_java()


def test_a_java_home_without_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalClusterError, match="no java in JAVA_HOME"):
        find_java()


def test_pyspark_brings_ivy_and_zookeeper() -> None:
    assert pyspark_jar("ivy-*.jar").is_file()
    assert pyspark_jar("zookeeper-3*.jar").is_file()
    with pytest.raises(LocalClusterError, match="no nothing"):
        pyspark_jar("nothing-*.jar")


def test_a_port_in_use_is_told_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(LocalClusterError, match=rf"Port {port}.*Kafka.*--kafka-port"):
            check_ports([PortWish("Kafka", port, "--kafka-port")])


def test_a_free_port_is_none_of_those_that_outgoing_connections_are_given() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    chosen = {free_port() for _ in range(20)}
    assert min(chosen) >= PORT_MIN
    assert max(chosen) < first
    assert all(is_free(port) for port in chosen)


def test_where_outgoing_connections_are_given_all_ports_the_system_chooses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024\t65535\n", "ascii")
    monkeypatch.setattr(network, "_OUTGOING", everything)
    assert is_free(free_port())


def test_a_port_asked_for_twice_is_told() -> None:
    port = free_port()
    wishes = [PortWish("Kafka", port, "--kafka-port"), PortWish("Valkey", port, "--redis-port")]
    with pytest.raises(LocalClusterError, match=r"twice, for Kafka and Valkey.*--redis-port"):
        check_ports(wishes)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalClusterError, match="--data"):
        make_folder(tmp_path / "file" / "data")


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=5 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(LocalClusterError, match="5 MiB left and 1024 are needed"):
        make_folder(tmp_path)


def start(options: ClusterOptions) -> None:
    """A start whose children cannot be run: it ends with them, or with what is wrong before."""

    def nothing(_role: str, _config: Path) -> Sequence[str]:
        return ["/no/such/thing"]

    with running(options, lambda _line: None, threading.Event(), command=nothing):
        pytest.fail("it started")


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java server is started: the first that would be ends the start."""

    def no_jars(_name: str) -> Path:
        raise LocalClusterError("that far")

    monkeypatch.setattr(jars, "ensure", no_jars)


def at_any_port(data: Path, buckets: int | None) -> ClusterOptions:
    return ClusterOptions(
        data, buckets=buckets, kafka_port=0, zookeeper_port=0, redis_port=0, api_port=0
    )


@pytest.mark.usefixtures("no_servers", "fake_java")
def test_the_settings_of_the_children_name_our_servers(
    tmp_path: Path, fake_java: Callable[..., Path]
) -> None:
    fake_java()
    config = tmp_path / "base.toml"
    config.write_text(
        'namespace = "mine"\n[kafka]\nbootstrap = "elsewhere:1"\nsecurity_protocol = "ssl"\n'
        '[kafka.extra]\n"client.id" = "x"\n[mapper]\npoll_ms = 7\n[redis]\npassword = "p"\n',
        "utf-8",
    )
    data = tmp_path / "data"
    port = free_port()
    with pytest.raises(LocalClusterError, match="that far"):
        start(replace(at_any_port(data, 5), config=config, kafka_port=port))
    settings = load(data / "mars.toml", {})
    assert settings.kafka.bootstrap == f"127.0.0.1:{port}"
    assert settings.kafka.security_protocol == "plaintext"
    assert settings.kafka.extra == {"client.id": "x"}
    assert settings.redis.password == ""
    assert (settings.namespace, settings.mapper.poll_ms) == ("mine", 7)
    assert settings.cluster.buckets == 5
    assert (data / "mars.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("no_servers")
def test_buckets_stay_what_they_were(tmp_path: Path, fake_java: Callable[..., Path]) -> None:
    fake_java()
    for wanted, outcome in [(5, "that far"), (None, "that far"), (6, "made with 5 buckets")]:
        with pytest.raises(LocalClusterError, match=outcome):
            start(at_any_port(tmp_path, wanted))
    assert load(tmp_path / "mars.toml", {}).cluster.buckets == 5


def test_the_api_listening_everywhere_is_reached_on_loopback() -> None:
    assert cluster._reachable("0.0.0.0") == "127.0.0.1"
    assert cluster._reachable("10.0.0.1") == "10.0.0.1"


def test_a_new_data_folder_is_its_owners_alone(tmp_path: Path) -> None:
    made = make_folder(tmp_path / "deep" / "data")
    assert made.stat().st_mode & 0o777 == 0o700
    (tmp_path / "old").mkdir(mode=0o755)
    assert make_folder(tmp_path / "old").stat().st_mode & 0o777 == 0o755
