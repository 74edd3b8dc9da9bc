"""Our own processes as children: mapper, reducer, bulk, API."""

from __future__ import annotations

import http
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mars.core.errors import Unavailable
from mars.core.settings import ApiSettings, environment_for_child
from mars.local.child import Child
from mars.process.asking import ask

ANSWER_S = 2.0
"""Longest answer of the API to the question whether it is ready."""

_MODULES = {"bulk": "mapper.bulk"}
"""Where a role is that has not its name."""

RoleCommand = Callable[[str, Path], Sequence[str]]
"""What to run for a role with a configuration file."""


def role_command(role: str, config: Path) -> Sequence[str]:
    """The role's own package, in this Python; `-P`: not one of that name in the current folder."""
    module = _MODULES.get(role, role)
    return [sys.executable, "-P", "-m", module, "--config", str(config)]


class RoleProcess(Child):
    """A mapper, reducer or bulk process; it waits for servers itself, so it is ready at once."""

    def __init__(
        self, name: str, role: str, config: Path, log: Path, command: RoleCommand = role_command
    ) -> None:
        super().__init__(name, role, log)
        self._config = config
        self._command = command

    def command(self) -> Sequence[str]:
        """The role with the cluster's configuration."""
        return self._command(self.role, self._config)

    def environment(self) -> Mapping[str, str]:
        """Its name; the settings are all in the file."""
        return environment_for_child(self.name)


class ApiProcess(RoleProcess):
    """The API, which says itself whether it is ready."""

    def __init__(
        self, settings: ApiSettings, config: Path, log: Path, command: RoleCommand = role_command
    ) -> None:
        super().__init__("api", "api", config, log, command)
        self._settings = settings

    def missing(self) -> str | None:
        """Whether GET /readyz is answered with 200."""
        try:
            status, body = ask(self._settings, "/readyz", ANSWER_S)
        except Unavailable as error:
            return str(error)
        return None if status == http.HTTPStatus.OK else f"the API is not ready: {body}"
