"""The submission of an evaluation to SemanticKITTI's test server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pcnn.console import Console
from pcnn.datasets.prediction_files import missing_sequences, write_submission
from pcnn.datasets.semantic_kitti import SemanticKITTI
from pcnn.experiment.errors import ConfigError
from pcnn.plural import counted

#: Below the run folder, where `predictions` names no other.
PREDICTIONS = "predictions"


def predictions_folder(cfg: DictConfig, run_folder: Path) -> Path | None:
    """Where label files of an evaluation go; None where none are asked for.

    Raises:
        ConfigError: a submission of a set, of classes or of a crop that the server does not know.
    """
    if cfg.get("submission"):
        if cfg.dataset.name != "kitti" or cfg.task.name != "segmentation":
            raise ConfigError(
                "submission=FILE.zip is SemanticKITTI's.\n"
                "possible: dataset=kitti task=segmentation, or predictions=FOLDER"
            )
        if cfg.dataset.labels != "official":
            raise ConfigError(
                f"the test server wants the official classes, not labels={cfg.dataset.labels}"
            )
        if cfg.dataset.crop is not None:
            raise ConfigError(
                f"the test server counts all points, not those within {cfg.dataset.crop} m.\n"
                "possible: dataset.crop=null"
            )
        return Path(cfg.get("predictions") or run_folder / PREDICTIONS)
    return Path(cfg.predictions) if cfg.get("predictions") else None


def submit(cfg: DictConfig, folder: Path, datamodule: Any, console: Console) -> None:
    """Zip the predictions of the test scans, checked, and say what is in the zip.

    Raises:
        ValueError: files that are missing or wrong.
    """
    dataset: SemanticKITTI = datamodule.dataset("test")
    expected = {
        dataset.name(index): dataset.sources(index)[0].stat().st_size // 16
        for index in range(len(dataset))
    }
    count = write_submission(folder, expected, Path(cfg.submission))
    console.print(f"submission: {cfg.submission} ({counted(count, 'file')})", highlight=False)
    absent = missing_sequences(expected)
    if absent:
        console.print(
            f"the test server wants sequences 11 to 21; not in it: {', '.join(absent)}",
            highlight=False,
        )
