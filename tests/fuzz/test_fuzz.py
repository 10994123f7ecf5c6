"""No damaged file ends in anything but one error that names it.

`make fuzz` (`FUZZ_SEED`, `FUZZ_SECONDS`) goes on for longer.
"""

import os
from pathlib import Path

import pytest

from pcnn.errors import FileError
from pcnn.files.pickles import read_arrays
from tests.fuzz.runner import Findings, fuzzed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def check(found: Findings) -> None:
    said = "\n".join(found.bad[:20])
    assert not found.bad, f"{len(found.bad)} of {found.total} files:\n{said}"
    assert found.read > 0
    assert found.refused > found.total // 3


def test_damaged_files_are_refused_by_name() -> None:
    found = fuzzed(seed=0, files=600)
    assert found.total == 600
    check(found)


@pytest.mark.skipif("FUZZ_SECONDS" not in os.environ, reason="make fuzz")
@pytest.mark.timeout(0)
def test_for_as_long_as_is_asked() -> None:
    found = fuzzed(int(os.environ.get("FUZZ_SEED", "1")), seconds=float(os.environ["FUZZ_SECONDS"]))
    print(f"{found.total} files: {found.read} read, {found.refused} refused, {len(found.bad)} bad")
    check(found)


def test_a_name_that_torch_would_search_for_hours_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    for start in (b"\x80\x02c", b"\x80\x02ctorch\n"):
        path.write_bytes(start + b"9" * 100_000 + b"\nx\n.")
        with pytest.raises(FileError, match=r"a\.pth: byte 2: a name of"):
            read_arrays(path)
