"""The temperature of a trained network, measured on the validation of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcnn.datasets.labels import IGNORE
from pcnn.errors import FileError
from pcnn.experiment import build
from pcnn.experiment.trained import network_of
from pcnn.experiment.weights import opened
from pcnn.files.bounded import named
from pcnn.metrics.calibration import calibration_error, fitted_temperature

#: Rows of a cloud that are kept: neighbours are wrong together, so more say little.
_ROWS = 20_000


@dataclass(frozen=True)
class Calibration:
    """The measured calibration."""

    temperature: float  # to divide logits by
    before: float  # expected calibration error without it, on the clouds that did not choose it
    after: float  # the same with it
    clouds: int  # number of clouds


@torch.inference_mode()
def calibrate(
    checkpoint: str | Path,
    device: torch.device,
    root: str | None = None,
    allow_targets: Sequence[str] = (),
) -> Calibration:
    """Find the temperature on every second validation cloud, and measure it on the others."""
    path = Path(checkpoint)
    with named(path, "checkpoint of a segmentation"):
        cfg, found = opened(path, "segmentation", allow_targets)
        net = network_of(cfg, found).to(device).eval()
    cfg.train = True
    cfg.dataset.num_workers = 0
    if root is not None:
        cfg.dataset.root = root
    module = build.data(cfg)
    halves: tuple[list[tuple[Tensor, Tensor]], ...] = ([], [])
    dataset, collate = module.dataset("val"), module.collate()  # type: ignore[attr-defined]
    count = 0 if dataset is None else len(dataset)
    for row in range(count):
        batch = collate([dataset[row]]).to(device)
        logits = net(batch.tensor).features.float()[batch.inverse]
        known = batch.point_labels != IGNORE
        logits, labels = logits[known], batch.point_labels[known]
        step = max(1, len(labels) // _ROWS)
        halves[row % 2].append((logits[::step].cpu(), labels[::step].cpu()))
    if count < 2:
        raise FileError(path, f"{count} validation clouds; two are needed to choose and to measure")
    chosen, measured = (
        (torch.cat([a for a, _ in half]), torch.cat([b for _, b in half])) for half in halves
    )
    temperature = fitted_temperature(*chosen)
    logits, labels = measured
    before = calibration_error(logits.softmax(1), labels)
    after = calibration_error((logits / temperature).softmax(1), labels)
    return Calibration(temperature, before, after, count)
