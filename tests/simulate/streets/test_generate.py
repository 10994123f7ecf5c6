"""A set of streets is equal by seed, whatever the number of processes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pcnn.simulate import simulate_kitti
from pcnn.simulate.streets.plan import plan_jobs, plan_sequences
from pcnn.simulate.streets.street import Street

SMALL = {"seed": 3, "train_scans": 1, "val_scans": 2, "frame_stride": 10}


def digest(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def test_two_workers_write_the_bytes_of_one(small_set: Path, tmp_path: Path) -> None:
    root = simulate_kitti(tmp_path / "two", workers=2, progress=False, **SMALL)
    assert digest(root) == digest(small_set)


def test_another_seed_gives_another_street() -> None:
    mine, theirs = (Street(seed, 0, "train") for seed in (3, 4))
    assert mine.settings != theirs.settings
    assert mine.sensor_settings != theirs.sensor_settings
    again = Street(3, 0, "train")
    assert (again.settings, again.sensor_settings) == (mine.settings, mine.sensor_settings)
    assert again.district(0) == mine.district(0)
    np.testing.assert_array_equal(again.drive.pose(3.0), mine.drive.pose(3.0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"train_scans": 0, "val_scans": 0}, "not both 0"),
        ({"train_scans": -1}, "at least 0"),
        ({"frame_stride": 0}, "at least 1"),
        ({"workers": 0}, "at least 1 worker"),
        ({"seed": -1}, "seed"),
    ],
)
def test_senseless_requests_are_refused(
    tmp_path: Path, wrong: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        simulate_kitti(tmp_path / "set", progress=False, **wrong)
    assert list(tmp_path.iterdir()) == []


def test_scans_are_shared_along_the_official_split() -> None:
    plans = plan_sequences(40, 8, 15)
    assert {p.sequence: p.scans for p in plans if p.split == "val"} == {8: 8}
    train = {p.sequence: p.scans for p in plans if p.split == "train"}
    assert train == dict.fromkeys([0, 1, 2, 3, 4, 5, 6, 7, 9, 10], 4)
    uneven = [p.scans for p in plan_sequences(23, 0, 1)]
    assert uneven == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]
    jobs = plan_jobs(0, plans)
    assert sorted((j.sequence, i) for j in jobs for i, _ in j.scans) == sorted(
        (p.sequence, i) for p in plans for i in range(p.scans)
    )
    assert len({j.name for j in jobs}) == len(jobs)
