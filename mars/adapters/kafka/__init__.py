"""Kafka: what the mappers read, what the reducers write, and the topics of Mars itself.

source.py        KafkaReader: records of the users' topics
gathering.py     messages to records, without a line of Python per message
sink.py          KafkaSink: claims, audits, commits
transaction.py   one transaction of one bucket: a producer that is used once
hanging.py       whether a transaction that is over has its markers
audit.py         compares an emission with the output
progress.py      KafkaProgressLog: what the buckets have emitted
control.py       KafkaControlLog: definitions and epochs
incidents.py     KafkaIncidentLog: what happened that people should hear of
writing.py       RecordWriter: single records outside of any transaction
admin.py         KafkaTopicAdmin: topics, partitions, offsets
offsets.py       KafkaOffsets: where partitions begin and end
asking.py        Asker: a client for questions, and waiting for its answers; Refusals
queries.py       KafkaQueryRows: the answers of ad-hoc queries
answers.py       the records of the topic of answers
results.py       output topics and `mars.dead`, read from their ends for people
slices.py        reads a known stretch of a partition
watch.py         KafkaWatch: whether a broker answers
wire.py          the records of our own topics
config.py        properties of the clients, with their limits
names.py         topics, groups and transactional ids of a namespace
errors.py        the table of errors
"""

from __future__ import annotations

from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.control import KafkaControlLog
from mars.adapters.kafka.incidents import KafkaIncidentLog
from mars.adapters.kafka.progress import KafkaProgressLog
from mars.adapters.kafka.read.queries import KafkaQueryRows
from mars.adapters.kafka.sink.sink import KafkaSink
from mars.adapters.kafka.source.reader import KafkaReader

__all__ = [
    "KafkaControlLog",
    "KafkaIncidentLog",
    "KafkaProgressLog",
    "KafkaQueryRows",
    "KafkaReader",
    "KafkaSink",
    "KafkaTopicAdmin",
]
