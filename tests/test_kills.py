"""Three of the kills of `tests.kills`, which does hundreds."""

import pytest

from tests import kills
from tests.forking import require_fork


def test_three_killed_runs_end_as_one_that_was_not(capsys: pytest.CaptureFixture[str]) -> None:
    require_fork()
    code = kills.main(["--kills", "3", "--seed", "1", "model.width=0.0625", "trainer.max_steps=7"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "3 kills" in said
