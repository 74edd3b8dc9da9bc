"""One question to the API of this machine, by its settings: plainly, or with TLS."""

from __future__ import annotations

import http.client
import ssl

from mars.core.errors import Unavailable
from mars.core.settings import ApiSettings

BODY_BYTES_MAX = 1_000
"""Of an answer: what a sentence can show."""

_REACHED = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- compared, not bound


def ask(settings: ApiSettings, path: str, timeout_s: float) -> tuple[int, str]:
    """Status and body of a GET. Raises Unavailable if there is no answer."""
    host = _REACHED.get(settings.host, settings.host)
    connection = _connection(settings, host, timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(BODY_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable("api", f"it does not answer ({error})") from error
    finally:
        connection.close()


def _connection(settings: ApiSettings, host: str, timeout_s: float) -> http.client.HTTPConnection:
    if not settings.tls_certificate_location:
        return http.client.HTTPConnection(host, settings.port, timeout=timeout_s)
    # It is asked from its own machine, by an address that its certificate need not name, and for
    # nothing but its state.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, settings.port, timeout=timeout_s, context=context)
