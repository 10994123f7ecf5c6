from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.six_fold import joined
from pcnn.errors import FileError, MissingFileError
from pcnn.experiment.run_folder import CONFUSION, read_counts, write_counts
from pcnn.metrics import miou_official

NAMES = ("floor", "wall", "chair")


def counts(seed: int) -> torch.Tensor:
    return torch.randint(0, 50, (3, 4), generator=torch.Generator().manual_seed(seed))


def test_counts_come_back_and_runs_are_joined_by_their_sum(tmp_path: Path) -> None:
    assert write_counts(tmp_path, {}, NAMES) is None
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        folder.mkdir()
        write_counts(folder, {"test": counts(seed), f"only {seed}": counts(2)}, NAMES)
        read = read_counts(folder)
        assert read.class_names == NAMES
        assert torch.equal(read.passes["test"], counts(seed))
    both = joined(folders)
    assert set(both) == {"test"}
    truth, pred = (counts(0) + counts(1)).sum(1), (counts(0) + counts(1)).sum(0)[:3]
    right = (counts(0) + counts(1)).diagonal()
    assert float(miou_official(both["test"])) == pytest.approx(
        float((right / (truth + pred - right)).mean())
    )
    write_counts(folders[1], {"test": counts(1)}, NAMES[::-1])
    with pytest.raises(ValueError):
        joined(folders)


@pytest.mark.parametrize("damage", [("[[", "[[-", 1), ('{"', "{", 1)])
def test_damaged_counts_are_named(tmp_path: Path, damage: tuple[str, str, int]) -> None:
    with pytest.raises(MissingFileError):
        read_counts(tmp_path)
    path = write_counts(tmp_path, {"test": counts(0)}, NAMES)
    assert path == tmp_path / CONFUSION
    path.write_text(path.read_text().replace(*damage))
    with pytest.raises(FileError) as refused:
        read_counts(tmp_path)
    assert refused.value.path == path
