"""Options of a registration: arguments of `pcnn.register`, and options of its command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pcnn.config.values import check_fields
from pcnn.experiment.predict_options import AllowTargets, Device
from pcnn.ranges import Length, Matches, Seed, Share


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
