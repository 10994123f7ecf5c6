"""A set is complete or absent, goes on where it stopped, and is written once."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pcnn.errors import ConfigError
from pcnn.ranges import Count
from pcnn.simulate.rooms.s3dis import S3DIS
from pcnn.simulate.rooms.threedmatch import THREEDMATCH
from pcnn.simulate.simulator import SetPlan, Simulator, Task
from pcnn.simulate.streets.kitti import KITTI


def write_square(folder: Path, number: int) -> int:
    (folder / "numbers").mkdir(exist_ok=True)
    (folder / "numbers" / f"{number}.txt").write_text(str(number**2))
    return number**2


def total(folder: Path, results: dict[str, int], workers: int) -> dict[str, int]:
    assert len(list((folder / "numbers").iterdir())) == len(results)
    return {"total": sum(results.values())}


def squares(do: Callable[[Path, int], int] = write_square) -> Simulator:
    def plan(*, count: Count = 5) -> SetPlan[int]:
        tasks = [Task(f"square-{n}", n, units=1 + n % 2) for n in range(count)]
        return SetPlan(tasks, do, total, "square")

    return Simulator("squares", "1", plan)


def write(root: Path, simulator: Simulator, **arguments: int) -> Path:
    return simulator.write(root, workers=1, progress=False, **arguments)


def files(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}


def neighbours(root: Path) -> set[str]:
    return {p.name for p in root.parent.iterdir()} - {f".{root.name}.lock"}


def test_a_set_is_whole_and_marked(tmp_path: Path) -> None:
    root = write(tmp_path / "set", squares())
    found = files(root)
    marker = {"format": "squares", "version": "1", "count": 5, "total": 30}
    assert json.loads(found.pop("SIMULATED.json")) == marker
    assert found == {f"numbers/{n}.txt": str(n**2) for n in range(5)}
    assert neighbours(root) == {"set"}


@pytest.mark.parametrize("count", [5, 2])
def test_an_interrupted_set_goes_on_unless_another_is_asked_for(tmp_path: Path, count: int) -> None:
    done: list[int] = []

    def interrupted(folder: Path, number: int) -> int:
        if number == 3 and len(done) == 3:
            raise KeyboardInterrupt
        done.append(number)
        return write_square(folder, number)

    root = tmp_path / "set"
    with pytest.raises(KeyboardInterrupt):
        write(root, squares(interrupted))
    assert not root.exists()
    done.append(-1)
    write(root, squares(interrupted), count=count)
    assert done == [0, 1, 2, -1, *([3, 4] if count == 5 else [0, 1])]
    assert files(root) == files(write(tmp_path / "other", squares(), count=count))
    assert neighbours(root) == {"set", "other", ".other.lock"}


def test_a_finished_set_is_left_alone_and_another_never_overwritten(tmp_path: Path) -> None:
    root = write(tmp_path / "set", squares())
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*")}
    assert write(root, squares()) == root
    with pytest.raises(FileExistsError):
        write(root, squares(), count=2)
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*")} == before
    foreign = tmp_path / "photos"
    foreign.mkdir()
    (foreign / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(FileExistsError):
        write(foreign, squares())
    assert [p.name for p in foreign.iterdir()] == ["cat.jpg"]


def test_two_at_once_write_one_set(tmp_path: Path) -> None:
    written: list[int] = []

    def counted(folder: Path, number: int) -> int:
        written.append(number)
        return write_square(folder, number)

    root, simulator = tmp_path / "set", squares(counted)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(write, root, simulator, count=20) for _ in range(4)]
        assert {call.result() for call in calls} == {root}
    assert written == list(range(20))
    assert neighbours(root) == {"set"}


@pytest.mark.parametrize(
    ("simulator", "wrong"),
    [
        (KITTI, {"train_scans": 0, "val_scans": 0}),
        (KITTI, {"workers": 0}),
        (KITTI, {"sensors": "any"}),
        (THREEDMATCH, {"fragments": 1}),
        (S3DIS, {"spacing": 0.0}),
    ],
)
def test_senseless_requests_write_nothing(simulator: Simulator, wrong: dict, tmp_path: Path):
    with pytest.raises((ConfigError, ValueError)) as caught:
        simulator.write(tmp_path / "set", progress=False, **wrong)
    assert next(iter(wrong)) in str(caught.value)
    assert list(tmp_path.iterdir()) == []
