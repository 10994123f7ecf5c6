from pathlib import Path

import pytest
import torch
from torch import multiprocessing as mp
from torch import nn

import pcnn
from pcnn.dataflows import Blocked, Reference
from pcnn.runtime.layer_calls import convolutions
from pcnn.runtime.rank_zero import on_rank_zero
from tests.clouds import surface_grid
from tests.forking import require_fork


def test_without_ranks_the_work_is_done() -> None:
    assert on_rank_zero(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        on_rank_zero(lambda: 1 // 0)


def spawn(function: object, folder: Path) -> None:
    require_fork()
    arguments = str(folder / "meet"), str(folder / "tuned.json")
    mp.start_processes(function, arguments, nprocs=2, start_method="fork")


def join(rank: int, path: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=2
    )


def ranks_tune(rank: int, path: str, cache: str) -> None:
    join(rank, path)
    net = nn.Sequential(pcnn.nn.Conv3d(4, 6, 3), pcnn.nn.Conv3d(6, 5, 2, 2))
    grid = surface_grid(100)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)
    # the other rank has nothing to measure on: it takes rank 0's word
    parallel = nn.parallel.DistributedDataParallel(net)
    candidates = [Reference(name=f"rank{rank}")] if rank == 0 else [Blocked()]
    layers = pcnn.tune(parallel, [x] if rank == 0 else [], candidates=candidates, cache=cache)
    assert [layer.name for layer in layers] == ["0", "1"]
    for layer in convolutions(net).values():
        assert layer.engine.dataflow.name == "rank0"
    torch.distributed.destroy_process_group()


def test_rank_zero_measures_for_all(tmp_path: Path) -> None:
    spawn(ranks_tune, tmp_path)
    assert (tmp_path / "tuned.json").exists()


def ranks_fail(rank: int, path: str, _: str) -> None:
    join(rank, path)
    expected = (ZeroDivisionError, None) if rank == 0 else (RuntimeError, "rank 0 failed: ZeroDiv")
    with pytest.raises(expected[0], match=expected[1]):
        on_rank_zero(lambda: 1 // 0)
    assert on_rank_zero(lambda: rank) == 0  # the ranks still agree on what comes next
    torch.distributed.destroy_process_group()


def test_a_failure_on_rank_zero_reaches_all(tmp_path: Path) -> None:
    spawn(ranks_fail, tmp_path)
