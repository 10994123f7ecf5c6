"""A user's own labelled clouds."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

from pcnn.datamodules.segmentation import SegmentationDataModule, Split
from pcnn.datasets.augment import Augmentation
from pcnn.datasets.folder import FolderClouds
from pcnn.datasets.labels import IGNORE, Rgb
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.simulate import is_simulated
from pcnn.datasets.source import Kind


class FolderSegmentation(SegmentationDataModule):
    """Semantic segmentation of the clouds in a folder; formats and split as in `FolderClouds`.

    Args:
        root: the folder.
        class_names: names of the classes 0..C-1.
        voxel_size: edge of a voxel [m]; on native points of a cell, the unit of kernels.
        colors: RGB in 0..255 of the classes; None spreads hues.
        crop: horizontal radius about the origin [m], or None.
        augment: random changes of training clouds, or None.
        batch_size: as in `SegmentationDataModule`, with the following four.
        val_batch_size: ...
        num_workers: ...
        seed: ...
        geometry: ...
        cache: keep training clouds under ``data_dir/cache``: their voxels, or their cropped
            points.
        data_dir: folder for the cache.
        val_fraction: share of the clouds for validation where there are no train and val folders.
        ignore_label: the label of points that do not count.

    Raises:
        ValueError: colours that are not as many as the classes.
    """

    def __init__(
        self,
        root: str,
        class_names: Sequence[str],
        voxel_size: VoxelSize,
        colors: Sequence[Sequence[int]] | None = None,
        crop: float | None = None,
        augment: Augmentation | None = None,
        batch_size: int = 1,
        val_batch_size: int = 1,
        num_workers: int = 2,
        cache: bool = False,
        data_dir: str = "data",
        val_fraction: float = 0.2,
        ignore_label: int = IGNORE,
        seed: int = 0,
        geometry: Placement | None = None,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            val_batch_size=val_batch_size,
            num_workers=num_workers,
            seed=seed,
            geometry=geometry,
        )
        if colors is not None and len(colors) != len(class_names):
            raise ValueError(f"{len(colors)} colors for {len(class_names)} classes")
        self.root = Path(root)
        self.voxel_size = voxel_size
        self.crop = crop
        self.augment = augment
        self.cache = cache
        self.data_dir = Path(data_dir)
        self.val_fraction = val_fraction
        self.ignore_label = ignore_label
        self._class_names = tuple(class_names)
        self._colors = _hues(len(class_names)) if colors is None else tuple(map(_rgb, colors))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self._class_names

    @property
    def colors(self) -> tuple[Rgb, ...]:
        """Given colours, or evenly spread hues."""
        return self._colors

    @property
    def in_channels(self) -> int:
        """Three for x, y, z and the further channels of the first cloud of a split in use."""
        dataset = next(iter(self._datasets.values()), None) or self.dataset("train")
        assert isinstance(dataset, FolderClouds)
        return 3 + dataset.channels

    @property
    def source_kind(self) -> Kind:
        """``simulated`` where the folder holds a SIMULATED.json, else ``real``."""
        return "simulated" if is_simulated(self.root) else "real"

    @property
    def data_root(self) -> Path:
        """The folder the clouds are read from."""
        return self.root

    def build(self, split: Split) -> FolderClouds:
        """Make the data set of a split."""
        train = split == "train"
        return FolderClouds(
            self.root,
            self._class_names,
            split=split,
            voxel_size=self.voxel_size,
            crop=self.crop,
            augment=self.augment if train else None,
            cache=self.data_dir / "cache" / "folder" if train and self.cache else None,
            val_fraction=self.val_fraction,
            ignore_label=self.ignore_label,
            seed=self.seed,
            geometry=self.geometry,
        )


def _hues(n: int) -> tuple[Rgb, ...]:
    return tuple(_rgb([255 * c for c in colorsys.hsv_to_rgb(i / n, 0.8, 0.9)]) for i in range(n))


def _rgb(color: Sequence[float]) -> Rgb:
    red, green, blue = (round(c) for c in color)
    return red, green, blue
