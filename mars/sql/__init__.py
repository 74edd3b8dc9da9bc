"""Queries: text to a checked tree to a `Plan`. No text goes further than this room.

`compile_task` is the whole way; the rest are its parts that are of use alone.
"""

from mars.sql.durations import parse_duration
from mars.sql.expressions.naming import StreamOf, find_name, only
from mars.sql.options import parse_options
from mars.sql.task import compile_task, source_name
from mars.sql.windowing import ZoneOf, pinned

__all__ = [
    "StreamOf",
    "ZoneOf",
    "compile_task",
    "find_name",
    "only",
    "parse_duration",
    "parse_options",
    "pinned",
    "source_name",
]
