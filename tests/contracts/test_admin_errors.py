"""No error of the client library gets out of the adapters."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)

from mars.adapters.kafka import (
    KafkaControlLog,
    KafkaProgressLog,
    KafkaReader,
    KafkaSink,
    KafkaTopicAdmin,
)
from mars.adapters.kafka.errors import configured, translated
from mars.core.errors import MarsError, SettingsError, Unavailable
from mars.core.settings import KafkaSettings, Settings
from mars.core.types import AssignmentEpoch, LeaderEpoch, MemberId, StoreEpoch, Topic
from mars.local.network import HOST, free_port
from mars.protocol.ports import Emission
from tests.contracts.test_control import definition
from tests.contracts.transactions import BUCKET, claim
from tests.contracts.waiting import eventually

CODES = sorted(
    value
    for name, value in vars(KafkaError).items()
    if name.strip("_").isupper() and isinstance(value, int)
)
TOPIC = Topic("flows")


@pytest.mark.parametrize("code", CODES)
def test_each_error_of_the_client_becomes_unavailable_with_a_sentence(code: int) -> None:
    with pytest.raises(Unavailable) as raised, translated():
        raise KafkaException(KafkaError(code, "its own words"))
    assert raised.value.service == "kafka"
    assert "its own words" in raised.value.detail


@pytest.mark.parametrize(
    "error",
    [
        KafkaException("no code"),
        KafkaException(),
        BufferError("full"),
        TimeoutError(),
        IllegalStateException("state"),
        ConcurrentModificationException("thread"),
    ],
)
def test_other_exceptions_of_the_client_become_unavailable_too(error: Exception) -> None:
    with pytest.raises(Unavailable), translated():
        raise error


def test_errors_of_ours_pass_as_they_are() -> None:
    with pytest.raises(SettingsError), translated():
        raise SettingsError("as it is")


@pytest.mark.parametrize("error", [KafkaException(KafkaError(-186)), ValueError("no"), TypeError()])
def test_properties_that_the_client_refuses_are_a_matter_of_settings(error: Exception) -> None:
    with pytest.raises(SettingsError, match=r"kafka\.extra"), configured():
        raise error


def test_a_process_with_too_many_clients_is_told_what_to_do() -> None:
    with pytest.raises(Unavailable, match=r"start more reducers.*local storage"), configured():
        raise RuntimeError("Failed to initialize thread local storage")


@pytest.mark.parametrize(
    "open_client",
    [
        KafkaTopicAdmin,
        lambda settings: KafkaReader.alone(settings, MemberId("m")),
        lambda settings: KafkaReader.in_group(settings, MemberId("m")),
        KafkaControlLog,
        KafkaProgressLog,
        lambda settings: KafkaSink(settings, MemberId("m")),
    ],
)
@pytest.mark.parametrize("extra", [{"no.such.property": 1}, {"security.protocol": "nonsense"}])
def test_a_misspelt_property_is_named_when_the_client_is_made(
    open_client: Callable[[Settings], object], extra: dict[str, str | int | float | bool]
) -> None:
    with pytest.raises(SettingsError, match=r"no\.such\.property|security\.protocol"):
        open_client(Settings(kafka=KafkaSettings(extra=extra)))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A cluster that nobody listens for, and little patience."""
    for name in (
        "asking.ASK_TIMEOUT_S",
        "sink.transaction.CONNECT_TIMEOUT_S",
    ):
        monkeypatch.setattr(f"mars.adapters.kafka.{name}", 0.3)
    return Settings(kafka=KafkaSettings(bootstrap=f"{HOST}:{free_port()}"))


Call = Callable[[Settings], object]


@pytest.mark.parametrize(
    "call",
    [
        lambda settings: KafkaTopicAdmin(settings).describe(TOPIC),
        lambda settings: KafkaTopicAdmin(settings).ensure_internal(4),
        lambda settings: KafkaTopicAdmin(settings).ensure_output(TOPIC, 1),
        lambda settings: KafkaTopicAdmin(settings).ends(TOPIC),
        lambda settings: KafkaTopicAdmin(settings).starts(TOPIC),
        lambda settings: KafkaTopicAdmin(settings).offsets_at(TOPIC, 0),
        lambda settings: KafkaProgressLog(settings).read(BUCKET, 0),
        lambda settings: KafkaControlLog(settings).read(),
        lambda settings: KafkaControlLog(settings).put_task(definition("a")),
        lambda settings: KafkaControlLog(settings).put_epochs(
            LeaderEpoch(1), StoreEpoch(1), AssignmentEpoch(1)
        ),
        lambda settings: KafkaReader.alone(settings, MemberId("m")).confirm_ends({(TOPIC, 0): 0}),
        lambda settings: KafkaSink(settings, MemberId("m")).claim(claim()),
        lambda settings: KafkaSink(settings, MemberId("m")).audit(
            Emission(TOPIC, 0, 1, 0, 0, 1, 1), BUCKET
        ),
    ],
)
def test_a_call_without_brokers_is_unavailable(
    nowhere: Settings, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mars.adapters.kafka.config.SOCKET_TIMEOUT_MS", 300)
    with pytest.raises(MarsError) as raised:
        call(nowhere)
    assert isinstance(raised.value, Unavailable)


def test_a_reader_without_brokers_says_so_in_poll(nowhere: Settings) -> None:
    reader = KafkaReader.in_group(nowhere, MemberId("m"))
    reader.subscribe([TOPIC])

    def complains() -> bool:
        try:
            return bool(reader.poll(10, 0.1))
        except Unavailable:
            return True

    eventually(complains)
    reader.hint({(TOPIC, 0): 1})
    reader.subscribe([])
    reader.close()
