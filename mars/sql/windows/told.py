"""What the SQL reference says of windows whose bounds rows tell."""

from __future__ import annotations

from typing import Final

from mars.core.windows import span
from mars.sql.lengths import PANES_MAX
from mars.sql.windows.counting import ROWS_MAX, SLICES_BY_KEY_MAX
from mars.sql.windows.sessions import MOST_MS_DEFAULT, MOST_MS_MAX

COUNTING: Final = f"""
Windows of so many **rows** are those of a partition: its rows that pass WHERE, and are neither bad
nor too far in the future, have numbers in the order of their offsets, from 0 on where the version
of the task begins. Window j has the rows number j * slide to j * slide + size - 1. It comes as soon
as its last row has been counted: there is no watermark and no delay, and no row is late.

- Groups lie within the window of a partition. A result says `partition` and `window_number`, and
  its key ends with both: `[window_start, keys..., partition, window_number]`. `window_start` and
  `window_end` are the lowest and highest event time of the group's rows, `window_first_offset` and
  `window_last_offset` their first and last offset.
- `mars windows --partition` shows the open windows of a partition. `partition` and `window_number`
  name a finished window of the current version, for its results, its ledger and `mars verify`. That
  one reads from the first to the last of its offsets, finds exactly so many rows there, and
  compares their groups; that the number is right it does not check.
- A window that is not full waits for its rows, however long. A pause changes no number. A new
  version counts from 0; what the old one has not filled by then comes as it is, with
  `mars-complete: 0`.
- Windows that touch rows which Kafka no longer had are `mars-complete: 0`. Behind those, rows have
  the numbers that they had before, from the first offset of which a progress record knows one; rows
  up to there count as gone, too.
- Up to {ROWS_MAX:,} rows and {PANES_MAX:,} slices. Mappers read all history, one row after the
  other: there is no backfill by Spark, and no `history` from files.

With **PER KEY** the rows of each key of a partition are counted by themselves: a window has so many
rows of one key, and comes with the last of them. A key in two partitions is two keys.

- `EXPIRE` says when a key is over: once the event time of its partition has gone on by more than
  that, from one of its rows to the next, or since its last one. What it has comes as it is, in as
  many windows as had begun, with `mars-complete: 0`. Its next row begins anew. Event time is the
  highest of all rows so far that can be read, those too that WHERE leaves out. A partition to which
  no rows come stands still, and so do its keys.
- `window_number` is the number of the window's first row in its partition, of all keys. So it names
  a window together with `partition`, and is in its key, but numbers come in no order.
- `window_start` and `window_end` are the lowest and highest event time of its rows.
- Windows of a key that lie on both sides of rows which Kafka no longer had are `mars-complete: 0`.
  Where rows are gone that had been counted, and are needed again, the task fails and says so:
  nobody knows with which row windows of a key begin.
- Every row is appended to the log of its bucket as it is, for only a reducer knows which window it
  is of. So such a task takes more of Redis than one whose rows are grouped in mappers.
- Rows that wait are saved in Kafka every quarter of an hour, or sooner where they are many, and
  Kafka must keep its rows for longer than that. They are read again from there.
- Up to {SLICES_BY_KEY_MAX} slices. The query needs a key. ORDER BY, LIMIT and `max_keys` are
  refused, as each window is of one key. `mars windows` shows what waits, partition by partition;
  ledgers of single windows are not there yet.
- `mars verify` reads all rows of a partition from the first one of the version on, as no less tells
  which of them make a window, and says so where these are too many or gone. It compares the newest
  windows, or the one that `partition` and `window_number` name: also that the number is right.
- A query over history answers what a task with `start` `earliest` has emitted that has read as far
  and whose WHERE has the range of time: what waits for more rows, or for its key to be over, is not
  there."""

SESSIONS: Final = f"""
A **session** is of one group: its rows that follow each other by less than the gap, by event time.
`window_start` is the time of its first row, `window_end` that of its last one and the gap. With
gaps of 30 min, rows of `a` at 9:00, 9:20 and 9:50 are two sessions: [9:00, 9:50) and
[9:50, 10:20), for the third came a whole gap behind the second.

- A result comes once the watermark has passed its `window_end`, at most a quarter of the gap later.
  Its key is `[window_start, keys...]`. HAVING chooses among sessions.
- `MAX` cuts sessions at multiples of it since 1970 in UTC: `MAX 4 h` at 0:00, 4:00, 8:00. It goes
  up to {span(MOST_MS_MAX)}. Without it, it is the first of
  {", ".join(span(most_ms) for most_ms in MOST_MS_DEFAULT)} that has at most {PANES_MAX:,} slices
  of a quarter of the gap.
- A row is late if its slice lies before what the last commit of its bucket has closed: no row is
  that comes within `delay` of those before it in its partition. A late row never touches a session
  that was emitted. A commit that drops some saves all that is open (`mars.state`), so rows that are
  late all the time cost writes: choose a longer `delay` then.
- Without GROUP BY keys there is one session of the whole stream at a time.
- Flink's form is `FROM TABLE(SESSION(TABLE flows PARTITION BY sip, DESCRIPTOR(at), INTERVAL '30'
  MINUTE)) GROUP BY sip, window_start, window_end`. PARTITION BY names the keys of GROUP BY. In
  Flink rows that are exactly a gap apart are of one session, where here they are of two, and none
  is cut as by MAX.
- A new version cuts sessions: those that may have rows of both are `mars-complete: 0`. If rows of
  open sessions are gone from Kafka when they are read again, the task fails and says so.
- Mappers read all history: there is no backfill by Spark, and no `history` from files.
- `window_start` names all sessions that begin then, for results and `mars verify`; `window_end`
  beside it those of them that end then. `mars-rows` and `mars-ranges` are those of all sessions of
  a bucket that came together, so a session has no ledger of its own.
- `mars verify` of the newest sessions (up to 1,000) reads from the first to the last of their
  offsets, leaves out the rows that `mars.dead` names as late, and finds sessions that are wrong,
  that came twice, or that should not be there. It finds missing ones, too, where their rows lie
  between these offsets, unless the query has HAVING; by `window_start` it finds none."""
