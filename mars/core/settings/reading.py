"""Settings from TOML and environment variables; the only reader of either."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import msgspec

from mars.core.errors import SettingsError
from mars.core.locations import FileRoots
from mars.core.settings.sections import SECTIONS, Settings

STORE_SCHEMES = (
    *("redis", "rediss", "unix"),
    *("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"),
)
"""Of `redis.url`."""


def load(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of the file at `path` (None: defaults) under those of `environ`.

    Without `environ` the process's own environment is read. Raises SettingsError, naming the file
    or variable and the key.
    """
    table = {} if path is None else _read_toml(path)
    _refuse_unknown(table, Settings, where=str(path), prefix="")
    try:
        settings = msgspec.convert(table, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {_readable(error)}") from error
    settings = _overlay(settings, os.environ if environ is None else environ)
    if path is not None:
        settings = _with_own_folder_closed(settings, path)
    _refuse_contradictions(settings)
    return settings


def _with_own_folder_closed(settings: Settings, path: Path) -> Settings:
    """Passwords stand in a file of settings, and in others beside it."""
    folder, closed = str(path.parent.resolve()), settings.bulk.files_never
    if folder in closed:
        return settings
    return replace(settings, bulk=replace(settings.bulk, files_never=(*closed, folder)))


def environment_for_child(member: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child whose settings are all in its file, under the name `member`.

    Variables that `load` would lay over that file are left out.
    """
    values = os.environ if environ is None else environ
    kept = {name: value for name, value in values.items() if not _is_setting(name)}
    return {**kept, "MARS_MEMBER": member, "PYTHONUNBUFFERED": "1"}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read ({error.strerror}); name an existing file with --config."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}.") from error


def _refuse_unknown(table: Mapping[str, Any], kind: type, where: str, prefix: str) -> None:
    """msgspec passes over unknown keys of dataclasses; a misspelt key must not be passed over."""
    types = _types(kind)
    for key, value in table.items():
        if key not in types:
            known = ", ".join(sorted(types))
            raise SettingsError(f"{where}: unknown key `{prefix}{key}`; known here: {known}.")
        if is_dataclass(types[key]) and isinstance(value, Mapping):
            _refuse_unknown(value, types[key], where, f"{prefix}{key}.")


def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _readable(error: msgspec.ValidationError) -> str:
    """`Expected int, got str - at $.kafka.port` as a sentence that begins with the key."""
    text, _, place = str(error).partition(" - at ")
    key = place.strip("`").removeprefix("$.")
    sentence = text[:1].lower() + text[1:]
    return f"`{key}`: {sentence}." if key else f"{sentence}."


def _overlay(settings: Settings, environ: Mapping[str, str]) -> Settings:
    for name, text in sorted(environ.items()):
        if not _is_setting(name):
            continue
        section, key = _place(name)
        if section is None:
            settings = replace(settings, **{key: _parse(name, text, _types(Settings)[key])})
            continue
        old = getattr(settings, section)
        types = _types(type(old))
        if key not in types:
            known = ", ".join(f"MARS_{section}_{item}".upper() for item in sorted(types))
            raise SettingsError(f"{name} is not a setting; those of [{section}] are {known}.")
        changed = replace(old, **{key: _parse(name, text, types[key])})
        settings = replace(settings, **{section: changed})
    return settings


def _is_setting(name: str) -> bool:
    if name in {"MARS_NAMESPACE", "MARS_MEMBER"}:
        return True
    return any(name.startswith(f"MARS_{section.upper()}_") for section in SECTIONS)


def _place(name: str) -> tuple[str | None, str]:
    """(section, key) of a variable that `_is_setting`; section None for the top."""
    rest = name.removeprefix("MARS_").lower()
    section, _, key = rest.partition("_")
    return (section, key) if section in SECTIONS else (None, rest)


def _parse(name: str, text: str, kind: Any) -> Any:
    """Numbers and booleans as text, tables as JSON, lists as JSON or their only element."""
    try:
        if get_origin(kind) is tuple and not text.startswith("["):
            return msgspec.convert((text,) if text else (), kind)
        if get_origin(kind) in {dict, tuple}:
            return msgspec.json.decode(text, type=kind)
        return msgspec.convert(text, kind, strict=False)
    except msgspec.MsgspecError as error:
        message = str(error).partition(" - at ")[0]
        raise SettingsError(f"{name}: {message[:1].lower()}{message[1:]}.") from error


def _refuse_contradictions(settings: Settings) -> None:
    if settings.namespace == "results":
        raise SettingsError(
            "namespace: 'results' would mix up topics (mars.results.progress is where a task named "
            "progress writes); choose another name"
        )
    kafka = settings.kafka
    if kafka.security_protocol.startswith("sasl_") and not kafka.sasl_mechanism:
        raise SettingsError(
            f"kafka.security_protocol is {kafka.security_protocol}, which needs "
            "kafka.sasl_mechanism (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI)."
        )
    if bool(settings.api.tls_certificate_location) != bool(settings.api.tls_key_location):
        raise SettingsError(
            "api.tls_certificate_location and api.tls_key_location are set together, or neither."
        )
    for proxy in settings.api.proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError as error:
            raise SettingsError(
                f"api.proxies names {proxy!r}, which is neither an address nor a network."
            ) from error
    FileRoots.of(settings.bulk.files, settings.bulk.files_never)  # raises where one is none
    balance = settings.balance
    if not balance.use_low < balance.use_target < balance.use_high:
        raise SettingsError(
            "balance.use_low, use_target and use_high must rise in this order, and are "
            f"{balance.use_low}, {balance.use_target}, {balance.use_high}."
        )
    if not balance.backlog_low < balance.backlog_high:
        raise SettingsError("balance.backlog_low must be below balance.backlog_high.")
    if settings.redis.url.partition("://")[0] not in STORE_SCHEMES:
        raise SettingsError(
            "redis.url must begin with redis://, redis+sentinel:// or redis+cluster://; "
            "for TLS with rediss."
        )
