"""The service as a whole."""

from __future__ import annotations

from mars.client.answers import AllFigures, Cluster, Incident, Incidents, Readiness
from mars.client.calls.base import Calls
from mars.client.calls.waiting import WAIT_S, waited
from mars.client.wire import decode
from mars.core.errors import Unavailable


class ServiceCalls(Calls):
    """Look at the whole service."""

    def cluster(self) -> Cluster:
        """The state of the cluster."""
        return self._call("GET", "/v1/cluster", Cluster)

    def incidents(
        self, *, task: str | None = None, since: int | None = None, limit: int | None = None
    ) -> list[Incident]:
        """What happened that people should hear of, newest first."""
        query = {"task": task, "since": since, "limit": limit}
        return self._call("GET", "/v1/incidents", Incidents, query=query).incidents

    def all_figures(self) -> AllFigures:
        """Figures of all tasks together over the last minutes, and the newest of each."""
        return self._call("GET", "/v1/figures", AllFigures)

    def readiness(self) -> Readiness:
        """Whether the API has every server it needs; that it has not is no error here."""
        return decode(self._connection.look("/readyz"), Readiness)

    def wait_until_ready(self, *, timeout_s: float | None = WAIT_S) -> None:
        """Wait until the API answers and has every server it needs. Raises WaitedTooLong."""

        def look() -> bool | None:
            try:
                return self.readiness().status == "ready" or None
            except Unavailable:
                return None

        waited(lambda: "the API to be ready", look, timeout_s)
