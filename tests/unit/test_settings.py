"""Settings: defaults, file, environment, refusals, and the way back to TOML."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mars.core.errors import SettingsError
from mars.core.settings import (
    BulkSettings,
    KafkaSettings,
    RedisSettings,
    Settings,
    environment_for_child,
    load,
    surroundings,
    to_toml,
)
from mars.local.flows import FIELDS

CONFIGS = Path(__file__).parents[2] / "configs"


def write(folder: Path, text: str) -> Path:
    path = folder / "mars.toml"
    path.write_text(text, "utf-8")
    return path


def test_without_file_and_environment_the_defaults_hold() -> None:
    assert load(None, {}) == Settings()
    assert Settings().kafka.bootstrap == "127.0.0.1:9092"
    assert Settings().cluster.buckets == 8


def test_a_file_changes_what_it_names_only(tmp_path: Path) -> None:
    path = write(tmp_path, '[kafka]\nbootstrap = "a:1"\n[kafka.extra]\n"client.rack" = "x"\n')
    kafka = KafkaSettings(bootstrap="a:1", extra={"client.rack": "x"})
    bulk = BulkSettings(files_never=(str(tmp_path),))
    assert load(path, {}) == Settings(kafka=kafka, bulk=bulk)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'namespace = "file"\n[kafka]\nbootstrap = "file:1"\n')
    environ = {"MARS_NAMESPACE": "env", "MARS_KAFKA_BOOTSTRAP": "env:1", "MARS_MEMBER": "mapper-1"}
    settings = load(path, environ)
    assert (settings.namespace, settings.kafka.bootstrap) == ("env", "env:1")
    assert settings.member == "mapper-1"


@pytest.mark.parametrize(
    ("name", "text", "section", "key", "value"),
    [
        ("MARS_MAPPER_POLL_MS", "75", "mapper", "poll_ms", 75),
        ("MARS_ZOOKEEPER_SESSION_TIMEOUT_S", "2.5", "zookeeper", "session_timeout_s", 2.5),
        ("MARS_ZOOKEEPER_USE_TLS", "true", "zookeeper", "use_tls", True),
        ("MARS_API_HOST", "0.0.0.0", "api", "host", "0.0.0.0"),
        ("MARS_REDIS_PASSWORD", '{"a', "redis", "password", '{"a'),
        ("MARS_KAFKA_EXTRA", '{"a.b": 1}', "kafka", "extra", {"a.b": 1}),
        ("MARS_BULK_CHUNK_ROWS", "5000", "bulk", "chunk_rows", 5000),
        ("MARS_BULK_FILES", "/srv/history", "bulk", "files", ("/srv/history",)),
        ("MARS_BULK_FILES", '["/a", "s3://b"]', "bulk", "files", ("/a", "s3://b")),
        ("MARS_BULK_FILES", "", "bulk", "files", ()),
        ("MARS_BULK_SPARK", '{"spark.a": "2"}', "bulk", "spark", {"spark.a": "2"}),
    ],
)
def test_environment_values_are_read_by_the_type_of_the_setting(
    name: str, text: str, section: str, key: str, value: object
) -> None:
    assert getattr(getattr(load(None, {name: text}), section), key) == value


def test_variables_that_are_no_settings_are_left_alone() -> None:
    environ = {"MARS_API": "http://x", "MARS_CACHE": "/x", "PATH": "/bin", "MARSUPIAL_X": "1"}
    assert load(None, environ) == Settings()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nonsense = 1", "`nonsense`"),
        ("[kafka]\nbootstap = 'a'", "`kafka.bootstap`"),
        ("[kafkas]\nbootstrap = 'a'", "`kafkas`"),
        ("[mapper]\npoll_ms = 'soon'", "`mapper.poll_ms`"),
        ("[mapper]\npoll_ms = 0", "`mapper.poll_ms`"),
        ("[api]\nport = 70000", "`api.port`"),
        ("[bulk]\nchunk_rows = 0", "`bulk.chunk_rows`"),
        ("[bulk]\nmastr = 'yarn'", "`bulk.mastr`"),
        ("[logging]\nformat = 'xml'", "`logging.format`"),
        ("kafka = 3", "`kafka`"),
        ("namespace = '1st'", "`namespace`"),
        ("[kafka", "TOML"),
        ("[kafka]\nsecurity_protocol = 'sasl_ssl'", "kafka.sasl_mechanism"),
        ("[redis]\nurl = 'http://x'", "redis.url"),
        ("[api]\nproxies = ['nginx']", "api.proxies"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write(tmp_path, text), {})
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MARS_KAFKA_BOOTSTAP", "a"),
        ("MARS_MAPPER_POLL_MS", "soon"),
        ("MARS_API_PORT", "-1"),
        ("MARS_ZOOKEEPER_USE_TLS", "perhaps"),
        ("MARS_KAFKA_EXTRA", "{"),
        ("MARS_NAMESPACE", "a b"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load(None, {name: text})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--config"):
        load(tmp_path / "none.toml", {})


def test_secrets_are_not_in_repr() -> None:
    settings = Settings(
        kafka=KafkaSettings(
            sasl_password="hidden-1", ssl_key_password="hidden-2", extra={"x": "hidden-3"}
        ),
        redis=RedisSettings(url="redis://u:hidden-4@h:1/0", password="hidden-5"),
    )
    assert "hidden" not in repr(settings)


plain_text = st.text(st.characters(codec="utf-8"), max_size=20)


@given(password=plain_text, key=st.text(st.characters(codec="utf-8"), min_size=1, max_size=9))
def test_toml_holds_any_text(
    tmp_path_factory: pytest.TempPathFactory, password: str, key: str
) -> None:
    extra: dict[str, str | int | float | bool] = {key: password, "n": 1, "f": 0.5, "b": True}
    settings = Settings(kafka=KafkaSettings(sasl_password=password, extra=extra))
    path = write(tmp_path_factory.mktemp("toml"), to_toml(settings))
    assert load(path, {}).kafka == settings.kafka


def test_toml_of_a_changed_object_is_read_back_equal(tmp_path: Path) -> None:
    settings = load(CONFIGS / "cluster.toml", {"MARS_MEMBER": "reducer-3"})
    closed = (*settings.bulk.files_never, str(tmp_path))
    bulk = dataclasses.replace(settings.bulk, files_never=closed)
    again = load(write(tmp_path, to_toml(settings)), {})
    assert again == dataclasses.replace(settings, bulk=bulk)
    assert load(write(tmp_path, to_toml(again)), {}) == again


def test_folders_of_all_files_that_settings_came_from_are_closed(tmp_path: Path) -> None:
    """`mars up --config FILE` writes another one for its processes."""
    named, data = tmp_path / "etc", tmp_path / "data"
    named.mkdir()
    data.mkdir()
    (tmp_path / "link").symlink_to("etc")
    path = write(named, '[bulk]\nfiles = ["/srv/history"]\n')
    first = load(tmp_path / "link" / path.name, {})
    second = load(write(data, to_toml(first)), {})
    assert second.bulk.files == ("/srv/history",)
    assert second.bulk.files_never == (str(named), str(data))


@pytest.mark.parametrize("folder", ["data", "", "hf://x", "/data/*", "s3://me:secret@bucket", "."])
def test_what_can_be_no_root_of_files_is_refused(tmp_path: Path, folder: str) -> None:
    path = write(tmp_path, f"[bulk]\nfiles = ['{folder}']\n")
    with pytest.raises(SettingsError, match=r"bulk\.files"):
        load(path, {})


def test_the_local_configuration_names_every_setting_with_its_default() -> None:
    path = CONFIGS / "local.toml"
    assert load(path, {}) == Settings(bulk=BulkSettings(files_never=(str(CONFIGS),)))
    text = path.read_text("utf-8")
    for section in dataclasses.fields(Settings):
        value = getattr(Settings(), section.name)
        if dataclasses.is_dataclass(value):
            keys = [item.name for item in dataclasses.fields(value)]
            body = text.partition(f"\n[{section.name}]\n")[2].partition("\n[")[0]
            assert [line.partition(" ")[0] for line in body.splitlines() if line] == keys


@pytest.mark.parametrize("name", ["cluster.toml", "compose.toml"])
def test_the_other_configurations_are_accepted(name: str) -> None:
    assert load(CONFIGS / name, {}).api.host == "0.0.0.0"


def test_the_example_stream_is_the_one_that_the_generator_feeds() -> None:
    stream = json.loads((CONFIGS / "examples" / "S.json").read_text("utf-8"))
    assert list(stream["fields"].items()) == [(each.name, str(each.type)) for each in FIELDS]


def test_a_child_gets_no_variable_that_would_change_its_file() -> None:
    environ = {"MARS_KAFKA_BOOTSTRAP": "x", "MARS_NAMESPACE": "n", "MARS_CACHE": "/c", "A": "1"}
    child = environment_for_child("mapper-2", environ)
    assert child == {
        "MARS_CACHE": "/c",
        "A": "1",
        "MARS_MEMBER": "mapper-2",
        "PYTHONUNBUFFERED": "1",
    }
    assert load(None, child) == dataclasses.replace(Settings(), member="mapper-2")


def test_the_cache_follows_its_variables() -> None:
    assert surroundings({"MARS_CACHE": "/a", "XDG_CACHE_HOME": "/b"}).cache == Path("/a")
    assert surroundings({"XDG_CACHE_HOME": "/b"}).cache == Path("/b/mars")
    assert surroundings({}).cache == Path("~/.cache/mars").expanduser()


def test_the_length_of_the_demo_must_be_a_number() -> None:
    assert surroundings({"DEMO_SECONDS": "7.5"}).demo_seconds == 7.5
    assert surroundings({"DEMO_SECONDS": ""}).demo_seconds is None
    with pytest.raises(SettingsError, match="DEMO_SECONDS"):
        surroundings({"DEMO_SECONDS": "long"})
