"""The pictures of the documentation are those that their program draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.blocks import ROOT

FOLDER = ROOT / "docs" / "site" / "drawings"


def test_the_pictures_are_drawn_by_their_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import pictures

    drawn = {f"{name}.svg": draw().svg() for name, draw in pictures.PICTURES.items()}
    kept = {path.name: path.read_text() for path in Path(ROOT / "docs/drawings").glob("*.svg")}
    assert drawn == kept, "python docs/site/drawings/pictures.py docs/drawings"
