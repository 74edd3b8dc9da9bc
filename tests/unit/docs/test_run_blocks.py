"""A document with blocks that are marked to be run is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.test_documents import DOCUMENTS, HOWTOS, OVER_THE_DEMO
from tests.support.documents import steps_of
from tests.unit.docs.test_links import PAGES, ROOT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_with_commands_to_be_run_is_run(page: Path) -> None:
    is_run = page in [*DOCUMENTS, *OVER_THE_DEMO, *HOWTOS]
    assert is_run or not list(steps_of(page))
