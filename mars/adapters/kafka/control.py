"""The topic `mars.control`: what survives the loss of ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from confluent_kafka import Message

from mars.adapters.copies import TaskCopies
from mars.adapters.kafka.admin import KafkaTopicAdmin
from mars.adapters.kafka.names import Names
from mars.adapters.kafka.source.slices import SliceReader
from mars.adapters.kafka.wire import (
    DELETED_KEY_PREFIX,
    STREAM_KEY_PREFIX,
    Epochs,
    copied_task,
    decode_declared,
    decode_epochs,
    decode_task,
    deleted_key,
    encode_epochs,
    epochs_key,
    noted_epochs,
    stream_key,
    stream_named,
    task_key,
)
from mars.adapters.kafka.writing import RecordWriter
from mars.core.definitions import TaskDefinition, encode_definition, encode_stream, with_deletions
from mars.core.plan import Stream
from mars.core.settings import Settings
from mars.core.types import AssignmentEpoch, LeaderEpoch, StoreEpoch, StreamName, TaskName
from mars.protocol.ports import ControlState

PARTITION = 0

NO_EPOCHS = Epochs(LeaderEpoch(0), StoreEpoch(0), AssignmentEpoch(0))


class KafkaControlLog:
    """`ControlLog` on Kafka; safe for threads.

    A record that this release cannot read raises MarsError, naming the place.
    """

    def __init__(self, settings: Settings, admin: KafkaTopicAdmin | None = None) -> None:
        self._topic = Names(settings.namespace).control
        self._admin = admin or KafkaTopicAdmin(settings)
        self._reader = SliceReader(settings, f"{settings.member or 'mars'}-control")
        self._writer = RecordWriter(settings, self._topic, PARTITION)
        self._copies = TaskCopies()
        self._noted: dict[LeaderEpoch, Epochs] = {}

    def put_task(self, definition: TaskDefinition, leader: LeaderEpoch | None = None) -> None:
        """Copy a definition; returns once the brokers have it.

        A leader's copy has a key of its own, by its epoch, so that compaction never lets a late one
        replace a newer one's. Copies of leaders before it, as far as they were read, are put away.
        """
        self.put_tasks([definition], leader)

    def put_tasks(
        self, definitions: Sequence[TaskDefinition], leader: LeaderEpoch | None = None
    ) -> None:
        """Copy many definitions at once; returns once the brokers have all."""
        self._writer.put_all(
            [(task_key(one.name, leader), encode_definition(one)) for one in definitions]
        )
        former = [
            (one.name, epoch)
            for one in definitions
            for epoch in self._copies.of_leaders_before(one.name, leader or LeaderEpoch(0))
        ]
        self._writer.put_all([(task_key(name, epoch), None) for name, epoch in former])
        for name, epoch in former:
            self._copies.remove(name, epoch)

    def put_deleted(self, definition: TaskDefinition) -> None:
        """Copy a deleted task for good; returns once the brokers have it."""
        self._writer.put(deleted_key(definition.name), encode_definition(definition))

    def put_stream(self, stream: Stream) -> None:
        """Copy a stream; returns once the brokers have it."""
        self._writer.put(stream_key(stream.name), encode_stream(stream))

    def delete_stream(self, name: StreamName) -> None:
        """Take the copy of a stream away; returns once the brokers know."""
        self._writer.put(stream_key(name), None)

    def put_epochs(
        self, leader: LeaderEpoch, store: StoreEpoch, assignment: AssignmentEpoch
    ) -> None:
        """Note the highest epochs in use; returns once the brokers have them.

        Each leader has a key of its own, as for tasks, and puts those of leaders before it away.
        """
        former = [one for one in self._noted if 0 < one < leader]
        epochs = encode_epochs(Epochs(leader, store, assignment))
        gone = [(epochs_key(one), None) for one in former]
        self._writer.put_all([(epochs_key(leader), epochs), *gone])
        for one in former:
            del self._noted[one]

    def read(self) -> ControlState:
        """Everything in the topic; of the epochs that leaders noted, the highest of each."""
        copies = TaskCopies()
        deleted: dict[TaskName, TaskDefinition] = {}
        streams: dict[StreamName, Stream] = {}
        noted: dict[LeaderEpoch, Epochs] = {}
        for message in self._messages():
            key, value = message.key() or b"", message.value() or b""
            place = f"{self._topic}[{PARTITION}] offset {message.offset()}"
            if (by := noted_epochs(key)) is not None and value:
                noted[by] = _higher(noted.get(by, NO_EPOCHS), decode_epochs(value, place))
            elif by is not None:
                noted.pop(by, None)
            elif (copied := copied_task(key)) is not None and value:
                copies.put(decode_task(value, place), copied[1])
            elif copied is not None:
                copies.remove(*copied)
            elif key.startswith(DELETED_KEY_PREFIX):
                definition = decode_task(value, place)
                deleted[definition.name] = definition
            elif key.startswith(STREAM_KEY_PREFIX) and value:
                stream = decode_declared(value, place)
                streams[stream.name] = stream
            elif key.startswith(STREAM_KEY_PREFIX):
                streams.pop(stream_named(key), None)
        self._copies, self._noted = copies, noted
        known = with_deletions(copies.newest(), deleted)
        highest = reduce(_higher, noted.values(), NO_EPOCHS)
        leader = max(highest.leader, copies.leader)
        return ControlState(known, leader, highest.store, highest.assignment, streams)

    def close(self) -> None:
        """Free the clients."""
        self._reader.close()

    def _messages(self) -> list[Message]:
        end = self._admin.end(self._topic, PARTITION)
        portions = self._reader.read(self._topic, PARTITION, 0, end)
        return [message for portion in portions for message in portion]


def _higher(one: Epochs, other: Epochs) -> Epochs:
    return Epochs(
        max(one.leader, other.leader),
        max(one.store, other.store),
        max(one.assignment, other.assignment),
    )
