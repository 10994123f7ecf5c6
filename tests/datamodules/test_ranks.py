"""Two processes share a set: equal numbers of batches, every scan scored once."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch

from pcnn.datasets.batches import CloudBatch
from tests.datamodules.modules import kitti_module, plain_trainer
from tests.datasets.clouds import write_scan
from tests.forking import require_fork


class Net(pl.LightningModule):
    """Has a buffer, which DDP shares at every forward: unequal batches would hang or mix ranks."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 19), torch.nn.BatchNorm1d(19))

    def write(self, what: str, batch: CloudBatch) -> None:
        with (self.folder / f"{what}-{self.global_rank}.txt").open("a") as file:
            file.write(" ".join((str(batch.batch_size), *batch.names)) + "\n")

    def training_step(self, batch: CloudBatch, batch_idx: int) -> torch.Tensor:
        self.write("train", batch)
        return self.net(batch.tensor.features).square().mean()

    def validation_step(self, batch: CloudBatch, batch_idx: int) -> None:
        self.write("val", batch)
        self.net(batch.tensor.features)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.mark.filterwarnings("ignore")
def test_two_processes_share_the_set(tmp_path: Path):
    require_fork()
    for sequence, n in ((0, 5), (8, 3)):
        for frame in range(n):
            write_scan(tmp_path / "kitti", sequence, frame, 40)
    data = kitti_module(
        root=str(tmp_path / "kitti"),
        data_dir=str(tmp_path / "data"),
        train_sequences=[0],
        voxel_size=1.0,
        num_workers=0,
    )
    trainer = plain_trainer(
        tmp_path, devices=2, strategy="ddp_fork", max_epochs=2, num_sanity_val_steps=0
    )
    trainer.fit(Net(tmp_path), data)

    def seen(what: str, rank: int) -> list[list[str]]:
        lines = (tmp_path / f"{what}-{rank}.txt").read_text().splitlines()
        return [line.split()[1:] for line in lines]

    train = [seen("train", rank) for rank in range(2)]
    # 5 scans make 2 steps of 2; one scan is left out of each epoch
    assert [len(batches) for batches in train] == [4, 4]
    for epoch in range(2):
        names = [n for rank in train for batch in rank[2 * epoch : 2 * epoch + 2] for n in batch]
        assert len(set(names)) == 4
    val = [seen("val", rank) for rank in range(2)]
    assert val[0] == [["08/000000"], ["08/000002"]] * 2
    assert val[1] == [["08/000001"], []] * 2
