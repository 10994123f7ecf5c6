"""The start of a run, reported, and the progress of compilation."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pcnn.callbacks import WarmUp, warm_up

CPU = torch.device("cpu")


def test_a_batch_of_another_size_compiles_what_only_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = {1000: ["a", "b"], 1020: ["c"], 9000: ["b", "d"]}
    compiled: list[list[Any]] = []

    def launches(stage: str, trainer: Any, task: Any, batch: Any) -> list[Any]:
        return [f"{stage} {name}" for name in wanted[len(batch.tensor.features)]]

    def noted(launches: list[Any], device: torch.device, progress: Any) -> int:
        compiled.append(launches)
        return 0

    monkeypatch.setattr(warm_up, "compile_shown", noted)
    callback = WarmUp()
    monkeypatch.setattr(callback, "_launches", launches)
    task = SimpleNamespace(device=torch.device("cuda"), inputs=lambda batch: (batch.tensor,))
    sizes = 1000, 1020, 9000, 1000, 9000
    batches = [
        SimpleNamespace(batch_size=1, tensor=SimpleNamespace(features=torch.zeros(n, 1)))
        for n in sizes
    ]
    alone: Any = SimpleNamespace(world_size=1, local_rank=0, progress_bar_callback=None)
    assert [callback._compile("train", alone, task, one) for one in batches] == [2, 0, 1, 0, 0]
    assert compiled == [["train a", "train b"], ["train d"]]
    # ranks meet at the first batch only
    met: list[str] = []
    both: Any = SimpleNamespace(
        **{**vars(alone), "world_size": 2}, strategy=SimpleNamespace(barrier=met.append)
    )
    assert [callback._compile("evaluation", both, task, one) for one in batches[1:3]] == [1, 0]
    assert len(met) == 1
