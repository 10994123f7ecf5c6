"""Three of the kills of `tests.kills`, which does hundreds."""

import subprocess
import sys
from pathlib import Path

from tests.forking import require_fork


def test_three_killed_runs_end_as_one_that_was_not() -> None:
    require_fork()
    done = subprocess.run(
        [sys.executable, "-m", "tests.kills", "--kills", "3", "--seed", "1"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "3 kills" in done.stdout
