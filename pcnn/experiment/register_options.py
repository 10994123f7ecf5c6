"""Options of a registration: arguments of `pcnn.register`, and options of its command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pcnn.config.values import check_fields
from pcnn.ranges import Length, Matches, Seed, Share

#: ``auto``: the trained cell where the clouds are as those of the training, otherwise by the
#: clouds; ``trained``; ``clouds``: by the clouds alone, in proportion to their size.
CellRule = Literal["auto", "trained", "clouds"]


@dataclass(frozen=True, kw_only=True)
class DescriptorOptions:
    """What describes clouds."""

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
    cell: Annotated[
        CellRule,
        "auto: the trained cell where clouds are as wide and dense as in training, otherwise by "
        "the clouds; trained; clouds: always by the clouds.",
    ] = "auto"
    sensor_at_origin: Annotated[bool, "The origin of each cloud is about its sensor's place."] = (
        True
    )
    device: Annotated[str, "cpu, cuda, cuda:1, or auto."] = "auto"
    allow_targets: Annotated[
        tuple[str, ...],
        "Package whose classes the checkpoint may name besides pcnn's: code of your own that you "
        "trust; repeat.",
    ] = ()

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class RegisterOptions(DescriptorOptions):
    """How one cloud is registered onto another."""

    solver: Annotated[
        Literal["cliques", "ransac"] | None,
        "cliques of a network and ransac of FPFH unless given.",
    ] = None
    surfaces: Annotated[
        bool,
        "Move the pose until surfaces of both clouds lie on each other (point-to-plane); otherwise "
        "it stays as the matches have it.",
    ] = True
    min_confidence: Annotated[
        Share | None,
        "Probability of being right below which no transform is given; poses of FPFH have none.",
    ] = None
    verifier: Annotated[
        str | None, "A verifier of your own (.json), which judges poses of a network."
    ] = None
    min_inliers: Annotated[
        Matches | None, "Matches that must agree; 3, of FPFH 25 unless given."
    ] = None
    min_overlap: Annotated[Share, "Share of the source that must lie near the target."] = 0.05
    allow_ambiguous: Annotated[
        bool, "--allow-ambiguous", "Take one of several poses that fit as well."
    ] = False
    seed: Annotated[Seed, "Seed of samples and hypotheses."] = 0
