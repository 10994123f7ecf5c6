"""The start of a run, reported, and the progress of compilation."""

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pcnn.callbacks import WarmUp, warm_up
from pcnn.callbacks.warm_up import compile_shown

CPU = torch.device("cpu")


@pytest.mark.parametrize(("quiet", "lines"), [(60.0, 0), (-1.0, 1)])
def test_compiling_shows_when_it_takes_longer_than_reading(
    quiet: float, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_all(launches: list[Any], device: torch.device) -> Iterator[int]:
        yield from (100 for _ in launches)

    monkeypatch.setattr(warm_up, "compile_all", compile_all)
    monkeypatch.setattr(warm_up, "QUIET_SECONDS", quiet)
    said: list[str] = []
    launches: list[Any] = [SimpleNamespace()] * 5
    assert compile_shown(launches, CPU, said.append) == 500
    assert said == ["compiling kernels, kept for later runs: 4"] * lines
    assert compile_shown(launches, CPU, None) == 500


def test_what_cannot_be_written_down_is_compiled_at_its_first_launch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuses(x: object) -> None:
        raise ValueError("not finite")

    task = SimpleNamespace(net=refuses, inputs=lambda batch: (batch.tensor,))
    features = SimpleNamespace(is_cuda=False)
    batch = SimpleNamespace(batch_size=1, tensor=SimpleNamespace(features=features))
    precision = SimpleNamespace(forward_context=nullcontext)
    trainer: Any = SimpleNamespace(precision_plugin=precision)
    assert WarmUp()._launches("evaluation", trainer, task, batch) == []
    assert "compiled at their first launch, not ahead: not finite" in caplog.text


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
