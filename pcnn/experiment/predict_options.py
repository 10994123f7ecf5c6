"""Options of a segmentation: arguments of `pcnn.predict`, and options of its command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pcnn.config.values import check_fields
from pcnn.ranges import Distance, Length, Positive

Columns = Annotated[
    str | None,
    "Columns of .bin and .npy files: kitti, nuscenes, scannet, sunrgbd, or names, as in "
    "x,y,z,intensity,ring (_ passes one over, label holds labels).",
]
Device = Annotated[str, "cpu, cuda, cuda:1, or auto."]
AllowTargets = Annotated[
    tuple[str, ...],
    "Package whose classes the checkpoint may name besides pcnn's: code of your own that you "
    "trust; repeat.",
]


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The network, how a cloud is read, and how a large one is cut."""

    model: Annotated[
        str | None,
        "A checkpoint, seg_rooms or seg_streets; those by the span of every cloud unless given.",
    ] = None
    tile: Annotated[
        Length | None, "Edge of squares in metres; by their points, of large clouds, unless given."
    ] = None
    margin: Annotated[Distance, "Width that the network sees around a square, in metres."] = 5.0
    columns: Columns = None
    intensity_max: Annotated[Positive | None, "The number in the files that is intensity 1."] = None
    scale: Annotated[Length, "Metres in a unit of the files: 0.001 of millimetres."] = 1.0
    device: Device = "auto"
    allow_targets: AllowTargets = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.margin > (self.tile or self.margin):
            raise ValueError(f"margin {self.margin:g} must not exceed tile {self.tile:g}")
