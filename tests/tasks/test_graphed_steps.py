"""A training in graphs ends with the weights of a plain one, whatever else takes part in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pcnn.callbacks import Checkpoint, FiniteSteps, RngState, WeightAverage
from pcnn.datamodules.batch_stream import BatchStream, batches_done
from pcnn.datasets.sampler import EpochSampler
from pcnn.graphs.fixed_input import Edges
from pcnn.losses import CrossEntropy, HardestContrastive, LovaszSoftmax, WeightedSum
from pcnn.models import ResUNetBN2C
from pcnn.nn import PlannedModule
from pcnn.ops import Engine
from pcnn.tasks import RegistrationTask, SegmentationTask
from pcnn.tasks.schedules import cosine
from tests.callbacks.tiny import trainer_for
from tests.forking import require_fork
from tests.graphs.graphed import ROWS, TILES, cloud, network, rerun
from tests.tasks.pairs import views

pytestmark = pytest.mark.filterwarnings("ignore")


class Clouds(Dataset[int]):
    """Four clouds of two sizes."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, key: tuple[int, int]) -> int:
        return key[1]


def collate(keys: list[int], dtype: torch.dtype) -> Any:
    (seed,) = keys
    x, labels = cloud(120 + 120 * (seed % 2), seed)
    return SimpleNamespace(tensor=x.replace(x.features.to(dtype)), labels=labels, batch_size=1)


def pairs(keys: list[int], dtype: torch.dtype, geometry: str = "voxel") -> Any:
    """A pair of clouds of one of two sizes."""
    (seed,) = keys
    found = views([seed], 0.2 + 0.1 * (seed % 2), geometry, 1500 if geometry == "voxel" else 400)
    source, target = (x.replace(x.features.to(dtype)) for x in found.inputs)
    return replace(found, source=source, target=target)


class Data(L.LightningDataModule):
    def __init__(self, dtype: torch.dtype, collate: Any = collate) -> None:
        super().__init__()
        self.dtype, self.collate = dtype, collate

    def train_dataloader(self) -> BatchStream:
        ranks = {"rank": self.trainer.global_rank, "world": self.trainer.world_size}
        return BatchStream(
            Clouds(),
            EpochSampler(4, seed=1, **ranks),
            position=lambda: batches_done(self.trainer),
            collate=partial(self.collate, dtype=self.dtype),
        )

    def val_dataloader(self) -> DataLoader[int]:
        one = partial(self.collate, dtype=self.dtype)
        return DataLoader(Clouds(), sampler=[(0, 0), (0, 1)], collate_fn=one)  # type: ignore[arg-type]


class Buffers(L.Callback):
    """Ranks have running statistics of their own in training, the first one's in validation."""

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        assert not self._same(module)

    def on_validation_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        assert self._same(module)

    def _same(self, module: Any) -> bool:
        own = torch.cat([each.double().flatten() for each in module.net.buffers()])
        parts = [torch.empty_like(own) for _ in range(2)]
        torch.distributed.all_gather(parts, own)
        return torch.equal(*parts)


class Losses(L.Callback):
    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        self.seen.append(outputs["loss"].detach().clone())


def describing(
    graph: bool, dtype: torch.dtype = torch.float64, engine: Engine = TILES
) -> RegistrationTask:
    torch.manual_seed(0)
    net = ResUNetBN2C(out_channels=8, first_kernel=3, width=0.125, engine=engine).to(dtype)
    optimizer, schedule = partial(torch.optim.SGD, lr=0.1, momentum=0.8), partial(cosine)
    loss = HardestContrastive(256, 64)
    return RegistrationTask(net, loss, optimizer, schedule, 0.1, "threedmatch", cuda_graphs=graph)


def task(
    graph: bool, dtype: torch.dtype = torch.float64, fused: bool | None = None
) -> SegmentationTask:
    made = SegmentationTask(
        network().to(dtype),
        "abc",
        WeightedSum([CrossEntropy(), LovaszSoftmax()]),
        partial(torch.optim.AdamW, lr=0.02, fused=fused),
        partial(cosine, warmup_steps=2),
        cuda_graphs=graph,
    )
    return made


def fit(
    folder: Path,
    graph: bool,
    steps: int = 6,
    resume: bool = False,
    dtype: torch.dtype = torch.float64,
    also: Sequence[L.Callback] = (),
    kept: bool = True,
    make: Any = task,
    batches: Any = collate,
    **options: Any,
) -> tuple[Any, list[Tensor]]:
    module, losses = make(graph, dtype), Losses()
    callbacks = [RngState(0), FiniteSteps(2), WeightAverage(0.9), losses, *also]
    trainer = trainer_for(
        folder,
        [*callbacks, Checkpoint(folder, 2)] if kept else callbacks,
        max_steps=steps,
        use_distributed_sampler=False,
        **{"limit_val_batches": 0, "gradient_clip_val": 0.5, **options},
    )
    last = folder / "last.ckpt" if resume else None
    trainer.fit(module, Data(dtype, batches), ckpt_path=last, weights_only=True)
    return module, losses.seen


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Graphs of small sizes on a CPU, which run a function again; one number a graph."""
    made: list[int] = []

    def capture(work: Any) -> Any:
        made.append(len(made))
        return rerun(work)

    start = PlannedModule.start_graphs

    def started(net: PlannedModule, **settings: Any) -> None:
        start(net, **settings, capture=capture, edges=Edges(128)) if settings else start(net)

    monkeypatch.setattr(PlannedModule, "start_graphs", started)
    return made


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "batches", "graphs", "accumulate"),
    [
        (task, collate, 4, 1),
        (task, collate, 4, 2),
        (describing, pairs, 6, 2),
        (partial(describing, engine=ROWS), partial(pairs, geometry="point"), 12, 2),
    ],
)
def test_a_training_ends_with_the_same_weights(
    tmp_path: Path, captures: list[int], make: Any, batches: Any, graphs: int, accumulate: int
) -> None:
    options: dict[str, Any] = {
        "steps": 6 if accumulate == 1 else 4,
        "accumulate_grad_batches": accumulate,
    }
    options |= {"make": make, "batches": batches}
    plain, losses = fit(tmp_path / "plain", False, **options)
    assert not captures
    mine, own = fit(tmp_path / "graph", True, **options)
    assert len(captures) == graphs  # forward and backward of every size
    torch.testing.assert_close(own, losses, rtol=1e-9, atol=0)
    assert len(set(map(float, losses))) == len(losses)
    assert_same(mine.state_dict(), plain.state_dict())
    # the average of the weights stands in the place of the weights
    kept, theirs = (torch.load(tmp_path / x / "last.ckpt") for x in ("graph", "plain"))
    assert_same(kept["state_dict"], theirs["state_dict"])
    assert not mine.net._steps


def test_a_resumed_training_goes_on_where_it_ended(tmp_path: Path, captures: list[int]) -> None:
    runs, fused = [], partial(task, fused=True)
    for graph in (False, True):
        fit(tmp_path / str(graph), graph, steps=4, make=fused)
        assert len(captures) == 4 * graph  # forward and backward of two sizes
        runs.append(fit(tmp_path / str(graph), graph, resume=True, make=fused))
    (plain, losses), (mine, own) = runs
    assert len(own) == 2
    # rates on a device are float32
    torch.testing.assert_close(own, losses, rtol=1e-5, atol=0)
    for one, other in zip(mine.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
    kept = torch.load(tmp_path / "True" / "last.ckpt")["optimizer_states"][0]
    assert all(type(group["lr"]) is float for group in kept["param_groups"])


def test_gradients_are_averaged_over_devices(
    tmp_path: Path, captures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_fork()
    seen = Buffers()
    monkeypatch.setattr(SegmentationTask, "validation_step", lambda task, x, _: task(x.tensor))
    monkeypatch.setattr(SegmentationTask, "on_validation_epoch_end", lambda task: None)
    states = []
    for graph in (False, True):
        options: dict[str, Any] = {"strategy": "ddp_fork", "devices": 2, "kept": False}
        options |= {"also": [seen], "limit_val_batches": 2, "val_check_interval": 2}
        module, _ = fit(tmp_path / str(graph), graph, 2, accumulate_grad_batches=2, **options)
        states.append(module.state_dict())
    assert_same(*states)
    before = task(False).state_dict()
    assert not torch.equal(states[0]["net.head.module.weight"], before["net.head.module.weight"])
