"""Label files in a data set's own layout, and the zip of them for SemanticKITTI's server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig

from pcnn.console import Console
from pcnn.datasets.prediction_files import missing_sequences, write_submission
from pcnn.datasets.readers.label_files import write_label_file
from pcnn.errors import ConfigError
from pcnn.messages import counted


class LabelWriter(Callback):
    """While testing, write a label file for every scan: one raw id a point, in the file's order.

    For SemanticKITTI: `<folder>/sequences/XX/predictions/NNNNNN.label`, uint32, as the official
    evaluator reads them. Points outside `dataset.crop` get the data set's id for "unlabelled".
    """

    def __init__(self, folder: str | Path, ignore_index: int = 255) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.ignore_index = ignore_index

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Write the files of one batch; every rank writes its own scans."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        for scan, name in enumerate(batch.names if outputs is not None else ()):
            classes = batch.full_scan(scan, outputs["predictions"], self.ignore_index)
            path = self.folder / data.sets.prediction_path(name)
            write_label_file(path, data.sets.label_map.decode(classes.cpu().numpy()))


def check_apart(folder: Path, datamodule: Any) -> None:
    """Refuse a folder in which label files would lie among the data's own files.

    There they would replace labels, or be read as labels by the next training.
    """
    dataset = datamodule.dataset("test")
    rows = range(0 if dataset is None else len(dataset))
    wanted = {(folder / datamodule.sets.prediction_path(dataset.name(row))).parent for row in rows}
    own = {path.parent.resolve() for row in rows for path in dataset.sources(row)}
    for place in sorted(wanted):
        if place.resolve() in own:
            raise ConfigError("predictions", f"label files in {place} would lie among the data")


def predictions_folder(cfg: DictConfig, run_folder: Path) -> Path:
    """Where label files of an evaluation go; below the run folder where nothing names another."""
    if cfg.get("submission"):
        if cfg.dataset.name != "kitti" or cfg.task.name != "segmentation":
            raise ConfigError("submission", "is SemanticKITTI's: dataset=kitti")
        if cfg.dataset.labels != "official":
            raise ConfigError("dataset.labels", "the test server wants the official classes")
        if cfg.dataset.crop is not None:
            raise ConfigError("dataset.crop", "the test server counts all points: null")
    return Path(cfg.get("predictions") or run_folder / "predictions")


def submit(cfg: DictConfig, folder: Path, datamodule: Any, console: Console) -> None:
    """Zip the predictions of the test scans, checked, and say what is in the zip."""
    dataset = datamodule.dataset("test")
    expected = {
        dataset.name(index): dataset.sources(index)[0].stat().st_size // 16
        for index in range(len(dataset))
    }
    count = write_submission(folder, expected, Path(cfg.submission))
    console.say(f"submission: {cfg.submission} ({counted(count, 'file')})")
    absent = missing_sequences(expected)
    if absent:
        console.say(f"the test server wants sequences 11 to 21; not in it: {', '.join(absent)}")
