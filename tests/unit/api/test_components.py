"""What /openapi.json says of answers: from the classes that clients decode."""

from __future__ import annotations

import msgspec

from api.components import NAMES, components, name_of
from mars.client import answers


def kinds() -> list[type[answers.Answer]]:
    return [
        kind
        for kind in vars(answers).values()
        if isinstance(kind, type) and issubclass(kind, answers.Answer)
    ]


def test_every_name_is_of_a_class_and_no_two_classes_have_the_same() -> None:
    assert NAMES.keys() <= {kind.__name__ for kind in kinds()}
    assert len({name_of(kind) for kind in kinds()}) == len(kinds())


def test_components_come_with_those_they_refer_to_by_the_names_people_know() -> None:
    found = components({"StreamList"})
    assert found.keys() == {"StreamList", "StreamView", "FieldView"}
    shown = found["StreamList"]["properties"]["streams"]
    assert shown["items"] == {"$ref": "#/components/schemas/StreamView"}


def test_members_are_required_although_an_older_release_may_not_send_them() -> None:
    task = components({"TaskView"})["TaskView"]
    assert msgspec.structs.fields(answers.Task)[-1].name == "warnings"
    assert not msgspec.structs.fields(answers.Task)[-1].required
    assert task["required"] == list(task["properties"])
    assert not any("default" in member for member in task["properties"].values())


def test_members_that_are_left_out_where_they_are_null_are_not_required() -> None:
    problem = components({"Problem"})["Problem"]
    assert problem["required"] == ["title", "status", "detail"]
    sent = msgspec.json.decode(msgspec.json.encode(answers.Problem("a", 404, "b")))
    assert sent == {"title": "a", "status": 404, "detail": "b"}


def test_a_client_takes_what_a_newer_release_says() -> None:
    raw = b'{"version":1,"sql":"","created":0,"begun":true,"state":"resting","newer":[1]}'
    assert msgspec.json.decode(raw, type=answers.TaskVersion).state == "resting"
