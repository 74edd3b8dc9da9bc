"""The query of the benchmark, as a user of Quix Streams writes it; `side` starts it.

It runs in an environment that has Quix Streams and nothing of Mars. Each process of the same group
gets some partitions. What was chosen, and why:

- `group_by`: windows are kept by message key and partition, and the messages have no key. Its
  documentation recommends exactly that ("Custom GroupBy (multi-column)"): rows go to a repartition
  topic under their group. Only the group goes there, not the row.
- `final(closing_strategy="partition")`: closed by key, which is the default, a window waits for a
  later row of the same group; in the tail of 185,000 groups there may never be one.
- `exactly-once`, and a commit interval that is the checkpoint interval of Flink.
- lz4 and batches of 256 KiB for what it produces, as for Flink.
- state in RocksDB, with changelog topics: the default, without which nothing survives a crash.
- a grace of a minute over a full topic. Each process reads its partitions as they come, and no
  process waits for another, so a partition of the repartition topic holds rows up to tens of
  seconds behind its newest. A row whose window was emitted is lost, and is not even logged as late
  unless it is later than the grace once more: its window is begun anew and never emitted. With the
  delay of the others, 1 s, a third of the rows of a small topic was missing. Where rows come as
  time goes on, 1 s is enough.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from quixstreams import Application
from quixstreams.dataframe.windows import Count

TELL_S = 0.25
"""Between two times that the file of the count is written."""


class Processed:
    """How many messages this process is done with: each row is two, regrouped and counted."""

    def __init__(self) -> None:
        self.messages = 0

    def one(self, _topic: str, _partition: int, _offset: int) -> None:
        """Told after each message."""
        self.messages += 1

    def tell(self, path: Path) -> None:
        """Write the count again and again, never half of it."""
        beside = path.with_suffix(".new")
        while True:
            beside.write_text(str(self.messages), "utf-8")
            beside.replace(path)
            time.sleep(TELL_S)


def result(value: dict[str, int], key: bytes, _timestamp: int, _headers: object) -> object:
    """The same columns that Mars writes."""
    sip, _, type_ = key.decode().partition("|")
    start = value["start"]
    return {
        "window_start": start,
        "window_end": value["end"],
        "sip": sip,
        "type": type_,
        "timestamp": start,
        "count": value["count"],
    }


def main(asked: dict[str, Any]) -> None:
    """Run until SIGTERM. `asked` is what `side` writes."""
    processed = Processed()
    app = Application(
        broker_address=asked["bootstrap"],
        consumer_group=asked["name"],
        # Also for rows that are still to come: their topic is new, and so is the regrouped one.
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=asked["commit_interval_s"],
        state_dir=asked["state"],
        producer_extra_config=asked["producer"],
        on_message_processed=processed.one,
        loglevel="WARNING",
    )
    source = app.topic(
        asked["topic"],
        value_deserializer="json",
        timestamp_extractor=lambda row, _headers, _timestamp, _type: row["timestamp"],
    )
    output = app.topic(asked["output"], key_serializer="bytes", value_serializer="json")
    rows = app.dataframe(source)
    groups = rows.apply(lambda row: f"{row['sip']}|{row['type']}").group_by(
        lambda group: group,
        name="group",
        key_serializer="string",
        key_deserializer="bytes",
        value_serializer="string",
        value_deserializer="bytes",
    )
    counts = (
        groups.tumbling_window(asked["window_ms"], grace_ms=asked["grace_ms"])
        .agg(count=Count())
        .final(closing_strategy="partition")
    )
    counts.apply(result, metadata=True).to_topic(output)
    threading.Thread(target=processed.tell, args=(Path(asked["count"]),), daemon=True).start()
    app.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
