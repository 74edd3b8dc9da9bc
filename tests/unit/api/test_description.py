"""What the OpenAPI description allows, and what it does not, is answered as it says.

schemathesis makes requests from the description: such as fit it, and such as break it in one
place. The same ones each time, so that a failure comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.unit.api.twins import World, application, known_world

EXAMPLES = 8
"""Of each operation and kind: few, because all of them are to take less than 30 s."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

SEEDED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def operations() -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(application().openapi())
    found = {}
    for one in schema.get_all_operations():
        assert isinstance(one, Ok), one
        found[one.ok().label] = one.ok()
    return found


OPERATIONS = operations()

KINDS = [
    pytest.param(label, mode, id=f"{label}-{mode.value}")
    for label, operation in sorted(OPERATIONS.items())
    for mode in GenerationMode
    # Where nothing is to be given, nothing can be given wrongly.
    if mode is GenerationMode.POSITIVE or operation.body or list(operation.iter_parameters())
]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    yield from known_world()


@pytest.mark.parametrize(("label", "mode"), KINDS)
def test_operation_answers_as_it_is_described(
    world: World, label: str, mode: GenerationMode
) -> None:
    operation = OPERATIONS[label]

    @SEEDED
    @given(data=st.data())
    def try_it(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        asked = requests.Request(**case.as_transport_kwargs(base_url="http://mars")).prepare()
        assert asked.method is not None
        assert asked.url is not None
        answer = world.http.request(
            asked.method,
            asked.url,
            headers=dict(asked.headers),  # type: ignore[arg-type]  # names are text, values bytes too
            content=asked.body,  # type: ignore[arg-type]  # never a file
        )
        answer.elapsed = timedelta(0)  # the twin's transport does not measure it
        case.validate_response(answer, checks=CHECKS)

    try_it()
