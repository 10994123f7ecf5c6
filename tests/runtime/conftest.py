"""Tunings of tests are kept apart from the user's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pcnn.dataflows.tuned import forget


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield
    forget()
