"""Structured log lines on standard error: for a person, or one JSON object a line.

    log = logs.logger("mapper")
    logs.info(log, "partition assigned", topic="flows", partition=3)

The fields are values worth searching for; the text says what happened and, where somebody has to
act, what to do.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time

from mars.core.printable import printable
from mars.core.settings import LoggingSettings

_FIELDS = "mars_fields"


class _TextFormatter(logging.Formatter):
    """`12:00:01.123 WARNING mapper: text key=value ...`."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        pairs = getattr(record, _FIELDS, {}).items()
        fields = "".join(f" {name}={_quoted(str(value))}" for name, value in pairs)
        head = f"{clock}.{int(record.msecs):03d} {record.levelname} {record.name}: "
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{head}{printable(record.getMessage())}{fields}{trace}"


_PLAIN = re.compile(r"[^\s=\"'\\]+")
"""A value that cannot be taken for several."""


def _quoted(value: str) -> str:
    """A value as a line of text has it: in quotes, if it could be taken for more than one."""
    shown = printable(value)
    if _PLAIN.fullmatch(value) and shown == value:
        return value
    return printable(json.dumps(value, ensure_ascii=False))


class _JsonFormatter(logging.Formatter):
    """One JSON object: time (epoch s), level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(settings: LoggingSettings) -> None:
    """Send all logs to standard error in the chosen form; client libraries only warn.

    ZooKeeper's not even that: it tells each attempt to connect, and we say what is missing.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if settings.format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for noisy in ("httpx", "httpcore", "uvicorn.access", "py4j"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("kazoo").setLevel(logging.ERROR)


def logger(name: str) -> logging.Logger:
    """The logger of a room."""
    return logging.getLogger(name)


def debug(log: logging.Logger, text: str, **fields: object) -> None:
    """A step that is told only where somebody looks for the cause of something."""
    log.debug(text, extra={_FIELDS: fields})


def info(log: logging.Logger, text: str, **fields: object) -> None:
    """Something happened that explains later lines."""
    log.info(text, extra={_FIELDS: fields})


def warning(log: logging.Logger, text: str, **fields: object) -> None:
    """Something a person may have to look at."""
    log.warning(text, extra={_FIELDS: fields})


def error(log: logging.Logger, text: str, *, trace: bool = False, **fields: object) -> None:
    """Something went wrong here; `trace` adds the current exception's."""
    log.error(text, extra={_FIELDS: fields}, exc_info=trace)
