"""docker-compose.yml as compose itself understands it. Needs no engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mars.core.settings import MIB, load
from tests.acceptance.compose_stack import ROOT, Stack
from tests.acceptance.compose_tool import ComposeMissing, compose_command
from tests.conftest import need

pytestmark = pytest.mark.acceptance

LIVE = ("mapper", "reducer", "api")
OURS = (*LIVE, "bulk")
SERVERS = ("kafka", "zookeeper", "valkey")

Service = dict[str, Any]


@pytest.fixture(scope="module")
def stack() -> Stack:
    try:
        return Stack(compose_command(), "mars-config")
    except ComposeMissing as error:
        need(str(error))
        raise


@pytest.fixture(scope="module")
def config(stack: Stack) -> dict[str, Any]:
    """The file after merging and filling in, as compose prints it; it refuses an invalid one."""
    answer: dict[str, Any] = msgspec.json.decode(stack.run("config", "--format", "json"))
    return answer


@pytest.fixture(scope="module")
def services(config: dict[str, Any]) -> dict[str, Service]:
    found: dict[str, Service] = config["services"]
    return found


def test_the_file_is_valid_and_has_these_services(services: dict[str, Service]) -> None:
    assert sorted(services) == sorted([*OURS, *SERVERS])


@pytest.mark.parametrize("name", [*OURS, *SERVERS])
def test_each_service_is_checked_limited_and_restarted(
    services: dict[str, Service], name: str
) -> None:
    service = services[name]
    assert service["healthcheck"]["test"]
    assert service["healthcheck"]["start_interval"]
    assert service["restart"] == "unless-stopped"
    assert service["stop_grace_period"]
    assert int(service["deploy"]["resources"]["limits"]["memory"]) > 0
    assert service["deploy"]["resources"]["limits"]["cpus"]
    assert service["deploy"]["resources"]["limits"]["pids"] > 0
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", [*OURS, *SERVERS])
def test_no_service_has_rights_on_the_host(services: dict[str, Service], name: str) -> None:
    service = services[name]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"} & set(service)
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(mount["type"] == "volume" for mount in service.get("volumes", []))


def test_ports_are_published_on_loopback_only(services: dict[str, Service]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}
    assert len(published) == 2


def test_live_processes_share_a_small_image_and_bulk_has_one_with_spark(
    services: dict[str, Service],
) -> None:
    assert {services[name]["image"] for name in LIVE} == {"mars:local"}
    assert services["bulk"]["image"] == "mars-bulk:local"
    assert services["api"]["build"]["target"] == "live"
    assert services["bulk"]["build"]["target"] == "bulk"
    arguments = services["api"]["build"]["args"]
    assert {**arguments, "JAVA_IMAGE": "eclipse-temurin:17.0.17_10-jre"} == services["bulk"][
        "build"
    ]["args"]


def test_our_processes_run_without_rights(services: dict[str, Service]) -> None:
    for name in OURS:
        assert services[name]["user"].partition(":")[0] not in {"", "0", "root"}
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]


def test_each_of_our_processes_is_judged_by_its_role(services: dict[str, Service]) -> None:
    for name in OURS:
        assert services[name]["healthcheck"]["test"][-1] == name


def test_spark_has_a_scratch_folder_of_its_own_on_the_disk_and_the_memory_that_it_takes(
    services: dict[str, Service],
) -> None:
    bulk = services["bulk"]
    (scratch,) = bulk["volumes"]
    assert scratch["type"] == "volume"
    assert "source" not in scratch  # two bulk processes must not empty each other's
    assert f"SPARK_LOCAL_DIRS={scratch['target']}" in (ROOT / "Dockerfile").read_text("utf-8")
    heap_mb = load(ROOT / "configs" / "compose.toml", environ={}).bulk.driver_memory_mb
    # Beside the heap: what Java takes for itself, the driver, and 300 MB of Python per core.
    memory = int(bulk["deploy"]["resources"]["limits"]["memory"])
    assert memory >= (2 * heap_mb + 300 * bulk["deploy"]["resources"]["limits"]["cpus"]) * MIB


def test_two_mappers_and_two_reducers_start_after_the_servers_are_healthy(
    services: dict[str, Service],
) -> None:
    assert [services[name]["deploy"]["replicas"] for name in ("mapper", "reducer")] == [2, 2]
    for name in OURS:
        waits_for = services[name]["depends_on"]
        assert {each: waits_for[each]["condition"] for each in waits_for} == dict.fromkeys(
            SERVERS, "service_healthy"
        )


def test_kafka_and_zookeeper_keep_their_data_in_named_volumes_and_valkey_keeps_none(
    config: dict[str, Any], services: dict[str, Service]
) -> None:
    for name in ("kafka", "zookeeper"):
        sources = {mount["source"] for mount in services[name]["volumes"]}
        assert sources
        assert sources <= set(config["volumes"])
    command = services["valkey"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--save"] == ""
    assert options["--appendonly"] == "no"
    assert options["--maxmemory-policy"] == "noeviction"
    assert "volumes" not in services["valkey"]


def test_kafka_tells_clients_outside_the_address_that_is_published(
    stack: Stack, services: dict[str, Service]
) -> None:
    environment = services["kafka"]["environment"]
    advertised = dict(
        each.split("://") for each in environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    listeners = dict(each.split("://") for each in environment["KAFKA_LISTENERS"].split(","))
    (port,) = services["kafka"]["ports"]
    assert advertised["OUTSIDE"] == f"{port['host_ip']}:{port['published']}" == stack.bootstrap
    assert listeners["OUTSIDE"] == f":{port['target']}"


def test_the_settings_of_our_processes_name_services_of_the_file(
    config: dict[str, Any], services: dict[str, Service]
) -> None:
    file = Path(config["configs"]["mars"]["file"])
    assert file == ROOT / "configs" / "compose.toml"
    settings = load(file, environ={})
    environment = services["kafka"]["environment"]
    assert f"INSIDE://{settings.kafka.bootstrap}" in environment["KAFKA_ADVERTISED_LISTENERS"]
    assert settings.zookeeper.hosts == "zookeeper:2181"
    assert settings.redis.url == "redis://valkey:6379/0"
    assert settings.api.host == "0.0.0.0"
    assert settings.api.port == services["api"]["ports"][0]["target"]
