"""Records of pairs over ranks, and the figures made of them."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from pcnn.tasks.pair_judge import PairRecord, judge_of, seed_of
from pcnn.tasks.pair_records import PairRecords, figures
from tests.forking import require_fork

# a pair of rank 0, one that both ranks had, one of rank 1
OWN = (
    [PairRecord("b", 0.5, 1.0, 0.1, 0.3), PairRecord("shared", 0.1, nan, nan, 0.5)],
    [PairRecord("shared", 0.1, nan, nan, 0.5), PairRecord("a", 0.0, 20.0, 0.2, 0.7)],
)


def gather(rank: int, store: str, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    records = PairRecords()
    records.add(OWN[rank])
    found = records.gathered()
    again = records.gathered()
    Path(folder, str(rank)).write_text(repr(found) + "\n" + repr(again))
    dist.destroy_process_group()


def test_every_rank_gets_every_pair_once(tmp_path: Path) -> None:
    require_fork()
    mp.start_processes(
        gather, (str(tmp_path / "store"), str(tmp_path)), nprocs=2, start_method="fork"
    )
    one, other = (Path(tmp_path, str(rank)).read_text() for rank in (0, 1))
    assert one == other
    found, again = one.splitlines()
    joined = {record.name: record for record in (*OWN[0], *OWN[1])}
    assert found == repr(dict(sorted(joined.items())))
    assert list(joined) == ["b", "shared", "a"]
    assert again == "{}"


def test_alone() -> None:
    records = PairRecords()
    records.add(OWN[0])
    records.add(OWN[0][1:])
    assert list(records.gathered()) == ["b", "shared"]
    assert records.gathered() == {}


def test_figures() -> None:
    records = {record.name: record for part in OWN for record in part}
    judge = judge_of("threedmatch")
    found = figures(records, judge)
    assert found["inlier_ratio"] == pytest.approx(0.2)
    assert found["feat_match_ratio"] == pytest.approx(2 / 3)
    assert found["loss"] == pytest.approx(0.5)
    assert found["rr"] == pytest.approx(1 / 3)  # 20 deg are too many, no estimate is none
    assert (found["rre"], found["rte"]) == (1.0, 0.1)
    # 0.2 m suffice there, 20 degrees do not
    assert figures(records, judge_of("kitti"))["rr"] == pytest.approx(1 / 3)
    assert figures(records, judge_of("kitti", success_rre=25.0))["rr"] == pytest.approx(2 / 3)
    assert "rr" not in figures(records, judge_of("kitti", hypotheses=0))


def test_thresholds_of_benchmarks() -> None:
    room, drive = judge_of("threedmatch"), judge_of("kitti")
    assert (room.hit_distance, drive.hit_distance) == (0.1, 0.3)
    assert (room.success.rre, room.success.rte) == (15, 0.3)
    assert (drive.success.rre, drive.success.rte) == (5, 2)
    assert judge_of("kitti", hit_distance=0.6).hit_distance == 0.6


def test_seeds_of_names() -> None:
    assert seed_of("a", 0) == seed_of("a", 0)
    assert len({seed_of(name, seed) for name in "abc" for seed in range(3)}) == 9
