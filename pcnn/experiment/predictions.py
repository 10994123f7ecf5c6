"""Label files of an evaluation, in a data set's own layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from pcnn.datasets.label_files import write_label_file
from pcnn.errors import ConfigError


class LabelWriter(Callback):
    """While testing, write a label file for every scan: one raw id a point, in the file's order."""

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
    """Refuse a folder in which label files would lie among the data's own files."""
    dataset = datamodule.dataset("test")
    rows = range(0 if dataset is None else len(dataset))
    wanted = {(folder / datamodule.sets.prediction_path(dataset.name(row))).parent for row in rows}
    own = {path.parent.resolve() for row in rows for path in dataset.sources(row)}
    for place in sorted(wanted):
        if place.resolve() in own:
            raise ConfigError("predictions", f"label files in {place} would lie among the data")
