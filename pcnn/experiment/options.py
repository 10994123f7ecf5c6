"""Options of `pcnn.predict`, `pcnn.register` and of an evaluation, and those of their commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import MinLen

from pcnn.config.values import check_fields
from pcnn.ranges import Count, Length, Matches, Natural, Positive, Seed, Share
from pcnn.registration.settings import Matching, Sampling, Solver

#: What the network sees around a square of a large cloud [m].
MARGIN = 5.0

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
        "A checkpoint, seg_rooms, seg_streets or seg_aerial: by a cloud's shape unless given.",
    ] = None
    tile: Annotated[
        Length | None, "Edge of squares in metres; by their points, of large clouds, unless given."
    ] = None
    columns: Columns = None
    intensity_max: Annotated[Positive | None, "The number in the files that is intensity 1."] = None
    scale: Annotated[Length, "Metres in a unit of the files: 0.001 of millimetres."] = 1.0
    device: Device = "auto"
    allow_targets: AllowTargets = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.tile is not None and self.tile < MARGIN:
            raise ValueError(f"tile {self.tile:g} must be {MARGIN:g} m or more")


@dataclass(frozen=True, kw_only=True)
class RegisterOptions:
    """What describes clouds, and what makes a transform an answer."""

    model: Annotated[
        str | None,
        "reg_rooms, reg_turned (rooms that lie any way), reg_streets, fpfh, or a checkpoint of a "
        "run with task=registration. Without it: by what the clouds span, up to 20 m reg_rooms, "
        "beyond it reg_streets; where a network finds no transform the others, and FPFH (Open3D), "
        "are asked.",
    ] = None
    voxel_size: Annotated[
        Length | None, "Voxel of FPFH in metres; 0.05, beyond 20 m 0.3 unless given."
    ] = None
    sensor_at_origin: Annotated[bool, "The origin of each cloud is about its sensor's place."] = (
        True
    )
    min_confidence: Annotated[
        Share | None,
        "Probability of being right below which no transform is given; poses of FPFH have none.",
    ] = None
    min_inliers: Annotated[
        Matches | None, "Matches that must agree; 3, of FPFH 25 unless given."
    ] = None
    allow_ambiguous: Annotated[
        bool, "--allow-ambiguous", "Take one of several poses that fit as well."
    ] = False
    seed: Annotated[Seed, "Seed of samples and hypotheses."] = 0
    device: Device = "auto"
    allow_targets: AllowTargets = ()

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class RegistrationOptions:
    """How pairs are registered and judged; what is None is as the protocol has it."""

    protocol: str = "predator"  # fcgf
    samples: Annotated[Sequence[Natural], MinLen(1)] = (5000, 2500, 1000, 500, 250)
    turn_clouds: Seed | None = None  # turn every cloud at random before it is described
    solver: Solver = "ransac"  # ransac or cliques
    matching: Matching | None = None  # one_way or mutual
    sampling: Sampling | None = None  # random_points or random_matches
    distance: Length | None = None  # of RANSAC's inliers [m]
    points: Count | None = None  # matches in a hypothesis
    hypotheses: Count | None = None  # tried at most
    confidence: Share | None = None  # 1 tries them all
    refine: bool = False  # fit the best hypotheses of ransac and cliques again to what agrees
    surfaces: bool = False  # move every estimate until surfaces of both clouds lie on each other
