"""A set is complete or absent, equal by seed, and written once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pcnn.datasets.simulate import generate, simulate_kitti
from pcnn.datasets.simulate.lock import exclusive
from pcnn.datasets.simulate.plan import plan_jobs, plan_sequences

SMALL = {"seed": 3, "train_scans": 1, "val_scans": 2, "frame_stride": 10}


def digest(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def leftovers(root: Path) -> list[str]:
    return [p.name for p in root.parent.iterdir() if p.name != f".{root.name}.lock"]


def test_two_workers_write_the_bytes_of_one(small_set: Path, tmp_path: Path) -> None:
    root = simulate_kitti(tmp_path / "two", workers=2, progress=False, **SMALL)
    assert digest(root) == digest(small_set)
    assert leftovers(root) == ["two"]


def test_another_seed_gives_another_street(small_set: Path, tmp_path: Path) -> None:
    root = simulate_kitti(
        tmp_path / "other", seed=4, train_scans=1, val_scans=0, workers=1, progress=False
    )
    mine, theirs = digest(root), digest(small_set)
    scan = "sequences/00/velodyne/000000.bin"
    assert mine[scan] != theirs[scan]


def test_a_finished_set_is_left_alone(small_set: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in small_set.rglob("*")}
    assert simulate_kitti(small_set, workers=1, progress=False, **SMALL) == small_set
    assert {p: p.stat().st_mtime_ns for p in small_set.rglob("*")} == before


def test_another_set_is_never_overwritten(small_set: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="seed is 3, asked for 5"):
        simulate_kitti(small_set, workers=1, progress=False, **{**SMALL, "seed": 5})
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(FileExistsError, match="not a simulated set"):
        simulate_kitti(foreign, workers=1, progress=False, **SMALL)
    assert [p.name for p in foreign.iterdir()] == ["cat.jpg"]


def test_an_interrupted_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = generate.do_job

    def second_job_is_interrupted(folder: Path, job: generate.Job) -> generate.Counts:
        if job.sequence == 1:
            raise KeyboardInterrupt
        return done(folder, job)

    monkeypatch.setattr(generate, "do_job", second_job_is_interrupted)
    root = tmp_path / "set"
    with pytest.raises(KeyboardInterrupt):
        simulate_kitti(root, train_scans=2, val_scans=0, workers=1, progress=False)
    assert not root.exists()
    assert leftovers(root) == []


def fake_job(folder: Path, job: generate.Job) -> generate.Counts:
    """Write one byte a scan, which takes no time."""
    for index, _ in job.scans:
        path = folder / "sequences" / f"{job.sequence:02d}" / "velodyne" / f"{index:06d}.bin"
        path.write_bytes(b"x")
    return generate.Counts()


def test_what_a_killed_run_left_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "do_job", fake_job)
    stale = tmp_path / ".set.partial-999999" / "sequences"
    stale.mkdir(parents=True)
    root = simulate_kitti(tmp_path / "set", workers=1, progress=False)
    assert leftovers(root) == ["set"]
    assert len(list(root.glob("sequences/*/velodyne/*.bin"))) == 48


def test_two_at_once_write_one_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def counted(folder: Path, job: generate.Job) -> generate.Counts:
        written.append(job)
        return fake_job(folder, job)

    monkeypatch.setattr(generate, "do_job", counted)
    root = tmp_path / "set"
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(simulate_kitti, root, workers=1, progress=False) for _ in range(4)]
        assert {call.result() for call in calls} == {root}
    assert len(written) == len(plan_jobs(0, plan_sequences(40, 8, 15)))
    assert leftovers(root) == ["set"]


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path\n"
        "from pcnn.datasets.simulate.lock import exclusive\n"
        f"with exclusive(Path({str(path)!r})):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    folder = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": folder},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        waited = []

        def kill() -> None:
            waited.append(True)
            holder.kill()

        with exclusive(path, on_wait=kill):
            assert waited == [True]


def test_progress_is_two_lines_off_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "do_job", fake_job)
    simulate_kitti(tmp_path / "silent", workers=1, progress=False)
    assert capfd.readouterr() == ("", "")
    simulate_kitti(tmp_path / "loud", workers=1, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("simulat") == 2
    assert "48 scans" in err


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
