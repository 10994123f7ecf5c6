"""No damaged file ends in anything but one error that names it."""

import os
from pathlib import Path

import pytest

from pcnn.datasets.registration.kitti_pairs import read_poses
from pcnn.errors import FileError
from pcnn.files.pickles import read_arrays
from tests.fuzz.runner import fuzzed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_damaged_files_are_refused_by_name() -> None:
    found = list(fuzzed(seed=0, files=600))
    outcomes = [outcome for _, _, outcome in found]
    bad = [one for one in found if one[2] not in ("read", "refused")]
    assert not bad, "\n".join(f"file {n} ({name}): {outcome}" for n, name, outcome in bad[:20])
    assert len(outcomes) == 600
    assert outcomes.count("read") > 0
    assert outcomes.count("refused") > 200


def test_a_name_that_torch_would_search_for_hours_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    for start in (b"\x80\x02c", b"\x80\x02ctorch\n"):
        path.write_bytes(start + b"9" * 100_000 + b"\nx\n.")
        with pytest.raises(FileError, match=r"a\.pth: byte 2: a name of"):
            read_arrays(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["1" * 1_000_000 + "x", "1." + "1" * 1_000_000 + "e"])
def test_a_long_row_of_digits_is_looked_at_once(word: str, tmp_path: Path) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(f"{word}{' 0' * 11}\n")
    with pytest.raises(FileError, match=r"line 1: "):
        read_poses(path)
