"""A process that is a member of the mappers' group, to be killed: says what it owns, line by line.

python group_member.py BOOTSTRAP NAMESPACE TOPIC
"""

from __future__ import annotations

import sys

from mars.adapters.kafka import KafkaReader
from mars.core.settings import KafkaSettings, Settings
from mars.core.types import MemberId, Topic
from mars.protocol.ports import Assigned


def main() -> None:
    bootstrap, namespace, topic = sys.argv[1:]
    settings = Settings(namespace=namespace, kafka=KafkaSettings(bootstrap=bootstrap))
    reader = KafkaReader.in_group(settings, MemberId("victim"))
    reader.subscribe([Topic(topic)])
    while True:
        for event in reader.poll(1_000, 0.1):
            if isinstance(event, Assigned):
                sys.stdout.write(f"{len(event.partitions)}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
