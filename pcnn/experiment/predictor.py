"""A trained segmentation network, rebuilt from nothing but its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from pcnn.datasets.labels import IGNORE, LabelMap, read_classes
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.readers.clouds import Part, PartedCloud, Reading, chosen_columns, intensity_top
from pcnn.datasets.readers.columns import COLORS, meant, rounded_points
from pcnn.datasets.transforms.features import FORGOTTEN
from pcnn.errors import FileError
from pcnn.experiment import networks
from pcnn.experiment.weights import opened
from pcnn.files.bounded import named
from pcnn.registration.cloud_measures import measured

#: Confidence is kept as a byte: so much is 1.
FULL = 255
#: Intensities up to this are taken for those of 0 to 1.
_UNIT = 1.5
#: Points that tell of units.
_ENOUGH = 100
#: Seen from the air: wider than this [m], and in cells of this edge [m] at most so many points a
#: square metre, in hardly any cell so many times the usual number: scanners on the ground see the
#: near ground far denser than the rest.
_WIDE, _CELL, _DENSE, _UNEVEN = 40.0, 4.0, 100.0, 4.0


@dataclass(frozen=True, eq=False)
class Predictor:
    """A network and what the checkpoint says about its inputs and classes."""

    net: nn.Module  # in evaluation mode, on device
    device: torch.device  # where it computes
    class_names: tuple[str, ...]  # C names
    colors: np.ndarray  # [C, 3] uint8
    in_channels: int  # input channels: x, y, z and the cloud's own
    voxel_size: VoxelSize  # edge of a voxel [m]; on native points of a cell, the unit of kernels
    trained_crop: float | None  # radius the network was trained in [m], None if whole clouds
    source: str  # real or simulated, what it was trained on
    label_map: LabelMap  # labels that the classes have in the files of the set it was trained on
    as_words: bool  # whether those files hold labels as words, .label, as SemanticKITTI's do
    reading: Reading  # which channels of a file the network was trained on
    placement: Placement  # puts clouds on the geometry the network was trained on
    unit_intensity: bool = False
    temperature: float = 1.0  # that logits are divided by, so that probabilities are calibrated

    @classmethod
    def load(
        cls, checkpoint: Path, device: torch.device, allow_targets: Sequence[str] = ()
    ) -> Predictor:
        """Rebuild the network that a checkpoint holds."""
        with named(checkpoint, "checkpoint of a segmentation"):
            cfg, found = opened(checkpoint, "segmentation", allow_targets)
            plain: Any = OmegaConf.to_container(cfg)
            data, files = plain["data"], plain["data"]["files"]
            return cls(
                net=networks.network_of(cfg, found).to(device).eval(),
                device=device,
                class_names=tuple(data["class_names"]),
                colors=np.array(data["colors"], dtype=np.uint8),
                in_channels=3 + len(data["channels"]),
                voxel_size=plain["dataset"]["voxel_size"],
                trained_crop=cfg.dataset.get("crop"),  # rooms have none
                source=data["source"],
                label_map=read_classes(files["classes"]),
                as_words=files["word_labels"],
                reading=_reading(cfg),
                placement=networks.placement(cfg),
                unit_intensity=files["unit_intensity"],
                temperature=float(data.get("temperature", 1.0)),
            )

    def inputs(self, part: Part, path: Path, in_map: bool, piece: bool = False) -> Tensor:
        """Points as the network takes them [P, 3 + F]: about an origin where float32 keeps them."""
        origin = self.reading.origin(part.places, in_map, piece)
        points = rounded_points(part.places - origin, path)
        return torch.from_numpy(np.concatenate([points, part.channels], axis=1))

    @torch.inference_mode()
    def scored(self, inputs: Tensor, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Classes of points [P] uint8, and `FULL` times their probabilities [P] uint8."""
        if not len(inputs):
            return np.zeros(0, np.uint8), np.zeros(0, np.uint8)
        inputs = inputs.to(self.device)
        points = inputs[:, :3].contiguous()
        clouds = torch.zeros(len(points), dtype=torch.int64, device=self.device)
        try:
            tensor = self.placement.place(points, inputs, clouds, 1, self.voxel_size)
        except ValueError as error:
            raise FileError(path, str(error)) from error
        inverse = tensor.geometry.inverse
        assert inverse is not None  # the tensor was made from points
        logits = self.net(tensor).features.float()  # [N, C]
        if not bool(logits.isfinite().all()):
            raise FileError(path, "the network gives NaN or infinite numbers for it")
        probability, classes = (logits / self.temperature).softmax(1).max(1)  # [N] each
        rows = classes, (probability * FULL).round()
        first, second = (row.to(torch.uint8)[inverse].cpu().numpy() for row in rows)
        return first, second

    def fitted(self, cloud: PartedCloud) -> tuple[PartedCloud, list[str]]:
        """A cloud with its intensity in 0..1 where that is beyond doubt, and what is to be said."""
        channels = map(meant, self.reading.channels or ())
        if not self.unit_intensity or cloud.reading.intensity_max or "intensity" not in channels:
            return cloud, []
        top = intensity_top(cloud)
        full = 255.0 if 128 < top <= 255 else 65535.0 if 4096 < top <= 65535 else None
        if full is not None:
            reading = replace(cloud.reading, intensity_max=full)
            note = f"intensity goes up to {top:.4g} and is divided by {full:.0f}"
            return replace(cloud, reading=reading), [note]
        note = f"intensity goes up to {top:.4g}: --intensity-max says which number is 1"
        return cloud, [note] if top > _UNIT else []

    @property
    def notes(self) -> list[str]:
        """What the training of the network means for any cloud."""
        found = []
        if self.source == "simulated":
            found.append("trained on simulated data")
        if self.trained_crop is not None:
            found.append(f"in its training the network saw {self.trained_crop:g} m about a sensor")
        return found

    def doubts(self, part: Part) -> list[str]:
        """Say why the points of a cloud look unlike those that the network was trained on."""
        found = []
        if len(part) >= _ENOUGH:
            near = torch.from_numpy(part.places - part.places.mean(axis=0))
            doubt = measured([near]).doubt(float(np.max(self.voxel_size)))
            found += [f"{doubt} (--scale gives the metres in a unit)"] if doubt else []
        ground = self.reading.at_sensor or self.reading.on_floor  # no user's own clouds
        if ground and from_the_air(part.places, len(part)):
            found.append("it seems to have been seen from the air; labels mean little here")
        return found

    @property
    def label_table(self) -> np.ndarray:
        """[256] the labels that classes have in the files of the training set, and `IGNORE` has."""
        known = np.array([*range(len(self.class_names)), IGNORE])
        table = np.zeros(256, dtype=np.int64)
        table[known] = self.label_map.decode(known)
        return table


def _reading(cfg: DictConfig) -> Reading:
    """How the network's files were read in its training."""
    files = cfg.data.files
    own_fill: dict[str, float] = dict(cfg.dataset.get("fill") or {})
    # colours for clouds that have none, where the network has seen such clouds
    forget = OmegaConf.select(cfg, "augment.chromatic.forget")
    forgotten = dict.fromkeys(COLORS, FORGOTTEN) if forget else {}
    return Reading(
        tuple(cfg.data.channels),
        cfg.dataset.get("intensity_max"),
        centred=True,
        columns=chosen_columns(cfg.dataset.get("columns")),
        fill=Reading(fill=forgotten).filled(own_fill),
        at_sensor=not files.always_centred,
        on_floor=bool(files.get("on_floor")),
    )


def from_the_air(places: np.ndarray, points: int) -> bool:
    """Whether a cloud seems to have been seen from the air."""
    width = np.ptp(places[:, :2], axis=0) if len(places) else np.zeros(2)
    # of a few points each, or what is uneven is chance
    cell = max(_CELL, float(np.sqrt(width.prod() * 16 / max(len(places), 1))))
    if width.min() < max(_WIDE, 8 * cell):
        return False
    cells = np.floor((places[:, :2] - places[:, :2].min(0)) / cell).astype(np.int64)
    _, counts = np.unique(cells[:, 0] * (1 << 31) + cells[:, 1], return_counts=True)
    usual, many = np.quantile(counts, [0.5, 0.95])
    density = usual / cell**2 * points / len(places)
    return bool(many <= _UNEVEN * usual and density <= _DENSE)
