"""Write predicted classes in a data set's own layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from pcnn.datasets.readers.label_files import write_label_file
from pcnn.experiment.errors import ConfigError


def check_apart(folder: Path, datamodule: Any) -> None:
    """Refuse a folder in which label files of an evaluation would lie among the data's own files.

    There they would replace labels, or be read as labels by the next training.

    Raises:
        ConfigError: naming the folder of the data.
    """
    dataset = datamodule.dataset("test")
    rows = range(0 if dataset is None else len(dataset))
    wanted = {(folder / datamodule.prediction_path(dataset.name(row))).parent for row in rows}
    own = {path.parent.resolve() for row in rows for path in dataset.sources(row)}
    for place in sorted(wanted):
        if place.resolve() in own:
            raise ConfigError(
                f"predictions={folder}: label files in {place} would lie among the data.\n"
                "possible: predictions=ANOTHER_FOLDER"
            )


class LabelWriter(Callback):
    """While testing, write a label file for every scan: one raw id a point, in the file's order.

    For SemanticKITTI: `<folder>/sequences/XX/predictions/NNNNNN.label`, uint32, as the official
    evaluator reads them. Points outside `dataset.crop` get the data set's id for "unlabelled".

    Args:
        folder: where the layout begins.
        ignore_index: class of a point that was not predicted.
    """

    def __init__(self, folder: str | Path, ignore_index: int = 255) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.ignore_index = ignore_index
        self.written = 0

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
        if outputs is None:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        for scan, name in enumerate(batch.names):
            classes = batch.full_scan(scan, outputs["predictions"], self.ignore_index)
            path = self.folder / data.prediction_path(name)
            write_label_file(path, data.to_raw(classes.cpu().numpy()))
            self.written += 1
