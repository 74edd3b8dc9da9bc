"""What the machine says, rather than a configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mars.core.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the machine says, rather than a configuration file."""

    cache: Path
    """Where downloads are kept: MARS_CACHE, else `mars` in XDG_CACHE_HOME or `~/.cache`."""
    java_home: Path | None
    """JAVA_HOME; without it `java` is looked for on the PATH."""
    ivy_settings: Path | None
    """MARS_IVY_SETTINGS: Ivy's settings file, for a mirror instead of the public repository."""
    api_url: str | None
    """MARS_API: the API that the command line talks to."""
    api_key: str | None = field(repr=False)
    """MARS_KEY: the key that it shows to the API."""
    demo_seconds: float | None
    """DEMO_SECONDS: how long `mars up --demo` runs; None: until it is stopped."""
    record_checksums: bool
    """MARS_JARS_RECORD: write the checksums of the jars instead of comparing with them."""


def surroundings(environ: Mapping[str, str] | None = None) -> Surroundings:
    """The same for what is not configuration. Raises SettingsError."""
    values = os.environ if environ is None else environ
    home = values.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())

    def path_of(name: str) -> Path | None:
        return Path(values[name]) if values.get(name) else None

    return Surroundings(
        cache=path_of("MARS_CACHE") or Path(home) / "mars",
        java_home=path_of("JAVA_HOME"),
        ivy_settings=path_of("MARS_IVY_SETTINGS"),
        api_url=values.get("MARS_API") or None,
        api_key=values.get("MARS_KEY") or None,
        demo_seconds=_seconds(values.get("DEMO_SECONDS", "")),
        record_checksums=values.get("MARS_JARS_RECORD", "") == "1",
    )


def _seconds(text: str) -> float | None:
    try:
        return float(text) if text.strip() else None
    except ValueError as error:
        raise SettingsError(f"DEMO_SECONDS is a number of seconds, not {text!r}.") from error
