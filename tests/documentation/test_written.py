"""Pages that programs write are as these programs write them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT, pages

SITE = ROOT / "docs" / "site"


def test_troubleshooting_names_messages_that_the_code_raises() -> None:
    program = runpy.run_path(str(SITE / "messages.py"))
    assert program["page"]() == program["PAGE"].read_text(), "python docs/site/messages.py"


@pytest.mark.parametrize("path", pages().values(), ids=lambda path: path.stem)
def test_tables_hold_the_numbers_of_their_files(path: Path) -> None:
    written = runpy.run_path(str(SITE / "tables.py"))["written"]
    text = path.read_text()
    assert written(text) == text, "python docs/site/tables.py"
