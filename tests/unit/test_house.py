"""The house stays as tidy as it is: what is counted here may become less, and never more."""

from __future__ import annotations

import pytest

from tests.house import (
    FILES_MAX,
    METHODS_MAX,
    Source,
    files_by_folder,
    methods_by_class,
    names_used_again,
    sources,
)

LARGE_FOLDERS = {"mars/adapters/memory": 18}
"""Each file there is the twin of one elsewhere, under its name."""

LARGE_CLASSES = {
    "KafkaTopicAdmin": 27,
    "KafkaSink": 27,
    "MemoryPartialLog": 36,
    "MemorySink": 27,
    "RedisPartialLog": 32,
}
"""To be taken apart; whoever adds a method to one of them takes another one out."""

ANSWERS = "mars/client/answers/"
"""An answer bears the name of what it tells of."""

EVENTS = ("/events.py", "/leader/view.py", "/tracker/acking.py")
"""Machines that hear of the same, or decide the same, have a word of the same name each."""


@pytest.fixture(scope="module")
def files() -> list[Source]:
    return sources()


def test_folders_can_be_looked_over(files: list[Source]) -> None:
    large = {name: count for name, count in files_by_folder(files).items() if count > FILES_MAX}
    assert large == LARGE_FOLDERS, "a folder holds one thing: find the parts that belong together"


def test_classes_can_be_kept_in_mind(files: list[Source]) -> None:
    large = {
        name.rpartition(":")[2]: count
        for name, count in methods_by_class(files).items()
        if count > METHODS_MAX
    }
    assert large == LARGE_CLASSES, "fewer: lower the number here; more: take the class apart"


def test_a_name_is_one_class(files: list[Source]) -> None:
    again = {
        name: places
        for name, places in names_used_again(files).items()
        if sum(not place.startswith(ANSWERS) for place in places) > 1
        and not all(place.endswith(EVENTS) for place in places)
    }
    assert not again, f"give one of them another name: {again}"
