"""The services of docker-compose.yml under a project name and on ports of this test's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from mars.local.network import free_port

ROOT = Path(__file__).parents[2]

ANSWER_S = 60.0
"""Of commands that only ask."""

UP_S = 900.0
"""Of the first start: images are pulled and ours is built."""

DOWN_S = 180.0
"""Longer than the longest grace period of a service."""


class ComposeError(Exception):
    """A command of compose failed; the message ends with what it said."""


class Stack:
    """One project. Every method raises ComposeError where compose fails.

    `files` are laid over docker-compose.yml, as compose does it.
    """

    def __init__(self, compose: Sequence[str], project: str, files: Sequence[Path] = ()) -> None:
        chosen = [f"--file={path}" for path in (ROOT / "docker-compose.yml", *files)]
        self._compose = [*compose, "--project-name", project, *chosen]
        self.api_port = free_port()
        self.kafka_port = free_port()

    @property
    def api(self) -> str:
        """The API's address on this machine."""
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def bootstrap(self) -> str:
        """Kafka's address on this machine."""
        return f"127.0.0.1:{self.kafka_port}"

    def run(self, *words: str, within_s: float = ANSWER_S) -> str:
        """What compose says to these words."""
        variables = {
            "MARS_HOST_API_PORT": str(self.api_port),
            "MARS_HOST_KAFKA_PORT": str(self.kafka_port),
        }
        return _said([*self._compose, *words], within_s, {**os.environ, **variables})

    def up(self, *words: str) -> None:
        """Start what is not running; returns when everything is healthy."""
        self.run("up", "--detach", "--wait", "--wait-timeout", "240", *words, within_s=UP_S)

    def down(self) -> None:
        """Remove containers, network and volumes."""
        self.run("down", "--volumes", "--remove-orphans", within_s=DOWN_S)

    def containers(self, service: str) -> list[str]:
        """The ids of a service's running containers."""
        return self.run("ps", "--quiet", "--status", "running", service).split()

    def logs(self, *services: str) -> str:
        """The last lines of services, for a message."""
        return self.run("logs", "--no-color", "--tail", "30", *services)


def docker(*words: str, within_s: float = ANSWER_S) -> str:
    """What Docker's client says."""
    return _said(["docker", *words], within_s)


def engine_problem() -> str | None:
    """Why containers cannot be run here."""
    try:
        docker("info", "--format", "{{.ServerVersion}}", within_s=15)
    except (ComposeError, OSError, subprocess.SubprocessError) as error:
        return f"No container engine answers, so no container was started: {str(error)[-200:]}"
    return None


def images_problem(stack: Stack) -> str | None:
    """Which public image is neither here nor to be had."""
    services = msgspec.json.decode(stack.run("config", "--format", "json"))["services"]
    built = [each for each in services.values() if "build" in each]
    ours = {each["image"] for each in built}
    bases = {
        image
        for each in built
        for name, image in each["build"]["args"].items()
        if name.endswith("_IMAGE")
    }
    for image in sorted({each["image"] for each in services.values()} - ours | bases):
        try:
            docker("image", "inspect", image)
        except ComposeError:
            try:
                docker("pull", "--quiet", image, within_s=UP_S)
            except (ComposeError, subprocess.SubprocessError) as error:
                return f"The image {image} cannot be pulled: {str(error)[-200:]}"
    return None


def _said(
    command: Sequence[str], within_s: float, environment: Mapping[str, str] | None = None
) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    if done.returncode != 0:
        raise ComposeError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-2_000:]}")
    return done.stdout
