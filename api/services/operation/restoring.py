"""What the API does while ZooKeeper lacks what it once held."""

from __future__ import annotations

from api.services.context import Ports
from mars.core.errors import Unavailable


def check_whole(ports: Ports) -> None:
    """Raise Unavailable while streams and tasks that exist are missing from ZooKeeper.

    A name that is not there would be taken for a free one, and its version numbers would restart.
    """
    if ports.registry.whole():
        return
    if ports.control.read().is_new:
        ports.registry.make_whole()
        return
    raise Unavailable(
        "zookeeper",
        "it has lost all streams and tasks; the leader brings them back from Kafka: see that a "
        "reducer runs, and try again in some seconds",
    )
