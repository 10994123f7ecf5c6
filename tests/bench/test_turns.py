"""Turns at one device: checks side by side, times one process at a time."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import torch

from pcnn.bench.harness import Repeats, same, wall_times
from pcnn.bench.turns import measuring, taking_turns

#: Another process: it works, then times once, and says when.
OTHER = """
    import sys
    from pathlib import Path
    from pcnn.bench.turns import measuring, taking_turns

    with taking_turns(Path(sys.argv[1])):
        print("works", flush=True)
        with measuring():
            print("times", flush=True)
"""


def is_free(file: Path, kind: int) -> bool:
    with file.open("a") as opened:
        try:
            fcntl.flock(opened, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_times_are_taken_alone_and_checks_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    with taking_turns(file):
        assert is_free(file, fcntl.LOCK_SH)  # another may check
        assert not is_free(file, fcntl.LOCK_EX)  # but not time
        with measuring():
            assert not is_free(file, fcntl.LOCK_SH)
            with measuring():  # a row whose parts are timed
                pass
            assert not is_free(file, fcntl.LOCK_SH)
        assert is_free(file, fcntl.LOCK_SH)
        held: list[bool] = []
        wall_times(
            same(lambda: held.append(is_free(file, fcntl.LOCK_SH))),
            torch.device("cpu"),
            Repeats(3, 1),
        )
        assert held
        assert not any(held)
    assert is_free(file, fcntl.LOCK_EX)
    with taking_turns(None), measuring():
        assert is_free(file, fcntl.LOCK_EX)


def test_a_process_times_when_the_other_is_done(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    with taking_turns(file):
        words = [sys.executable, "-c", textwrap.dedent(OTHER), str(file)]
        other = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "works\n"
        assert other.poll() is None  # it waits: this process still works
    assert other.communicate(timeout=60) == ("times\n", None)
    assert other.returncode == 0


def test_a_process_that_times_again_and_again_lets_others_in(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    words = [sys.executable, "-c", textwrap.dedent(OTHER), str(file)]
    others = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    with taking_turns(file):
        end = time.monotonic() + 60
        while any(other.poll() is None for other in others):  # without a pause between its turns
            assert time.monotonic() < end
            with measuring():
                sum(range(10000))
            sum(range(10000))
    assert [other.communicate(timeout=60)[0] for other in others] == ["works\ntimes\n"] * 2
