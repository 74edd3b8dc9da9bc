"""The partial log on Redis or Valkey.

log.py          RedisPartialLog, the port
scripts.py      loads lua/*.lua: one file per operation, with its keys and answers
wire.py         arguments and answers of the scripts
keys.py         the names of the keys
doorbell.py     sharded publish and subscribe, best effort
reading.py      Reader, of logs
notes.py        RedisNoteBox, the mailboxes of the tuple tracker
connection.py   the client, its time-outs, and the table of errors
addresses.py    what the URL says
sentinels.py    the primary that sentinels name
servers.py      which server has which keys
"""

from __future__ import annotations

from mars.adapters.redis.log import RedisPartialLog
from mars.adapters.redis.notes import RedisNoteBox

__all__ = ["RedisNoteBox", "RedisPartialLog"]
