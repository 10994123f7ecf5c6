"""`pcnn simulate` passes its options on and ends politely."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.cli.invoking import invoke

simulate = partial(invoke, "simulate")


@pytest.mark.parametrize("command", ["kitti", "rooms"])
def test_a_folder_that_holds_something_else_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert "not a simulated set" in simulate(command, tmp_path, "--no-progress", code=2)
    assert (tmp_path / "mine.txt").read_text() == "keep"
