"""How a pair of clouds is described and registered once it is known what describes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pcnn.experiment.descriptors import Choice, of_checkpoint
from pcnn.experiment.fitted_cells import CellRule, check_rule, fitted
from pcnn.registration.cloud_measures import CloudMeasures
from pcnn.registration.descriptor import Descriptor
from pcnn.registration.fpfh import FPFH
from pcnn.registration.local_frame import LocalCloud
from pcnn.registration.register import Registration, default_settings, register_points
from pcnn.registration.settings import Sampling, Solver
from pcnn.registration.verifier import Verifier, shipped_verifier

#: Matches of FPFH that agree by chance: of 58 wrong transforms of indoor fragments without much
#: overlap none had more than 23; of 58 right ones two had fewer than this.
FPFH_MIN_INLIERS = 25


@dataclass(frozen=True)
class PairOptions:
    """Options of `pcnn.register`, which says what they are; all pairs of many clouds share them."""

    sensor_at_origin: bool = True
    solver: Solver | None = None
    sampling: Sampling = "random_points"
    icp_distance: float | None = None
    min_confidence: float | None = None
    min_inliers: int | None = None
    min_overlap: float = 0.05
    allow_ambiguous: bool = False
    seed: int = 0
    device: str = "cpu"
    allow_targets: Sequence[str] = ()
    cell: CellRule = "auto"
    verifier: Verifier | None = None
    surfaces: bool = True

    def __post_init__(self) -> None:
        check_rule(self.cell)

    def descriptor(self, choice: Choice) -> Descriptor:
        """The descriptor that was chosen.

        Raises:
            ValueError: a torn file, or a checkpoint of another task; a verifier for FPFH, whose
                poses have no confidence.
        """
        if choice.weights is not None:
            return of_checkpoint(choice.weights, self.device, self.allow_targets)
        if self.verifier is not None:
            raise ValueError(
                "poses of FPFH have no confidence: leave the verifier out, or name a network"
            )
        assert choice.voxel_size is not None  # FPFH comes with one
        return FPFH(choice.voxel_size, sensor_at_origin=self.sensor_at_origin)

    def fitted(
        self, descriptor: Descriptor, choice: Choice, clouds: CloudMeasures
    ) -> tuple[Descriptor, Choice]:
        """The descriptor in cells that fit the clouds; see `pcnn.experiment.fitted_cells`."""
        return fitted(descriptor, choice, clouds, self.cell)

    def register(
        self,
        source: LocalCloud,
        target: LocalCloud,
        descriptor: Descriptor,
        choice: Choice,
        progress: Callable[[str], object] = str,
    ) -> Registration:
        """Register a pair, in the local frames of both; see `register_points`.

        Args:
            source: the cloud to move.
            target: the cloud that it is moved onto.
            descriptor: describes both.
            choice: what it was made of. FPFH has a solver and a number of inliers of its own, and
                no confidence, as the verifier was not fitted to it.
            progress: is told what begins.
        """
        network = choice.weights is not None
        # of a cloud that was moved near zero the sensor's place is not known
        seen = self.sensor_at_origin and not (source.moved or target.moved)
        solver = self.solver or ("cliques" if network else "ransac")
        least = 3 if network else FPFH_MIN_INLIERS
        settings = replace(
            default_settings(descriptor.voxel_size, self.seed, solver, seen),
            sampling=self.sampling,
            verifier=self.verifier or shipped_verifier(choice.verified_as),
            surfaces=self.surfaces,
        )
        found = register_points(
            source.points,
            target.points,
            descriptor,
            settings,
            icp_distance=self.icp_distance,
            min_confidence=self.min_confidence if network else 0.0,
            min_inliers=least if self.min_inliers is None else self.min_inliers,
            min_overlap=self.min_overlap,
            allow_ambiguous=self.allow_ambiguous,
            device=self.device,
            progress=progress,
        )
        sure = found.confidence if network else math.nan
        return replace(found, reason=choice.reason, confidence=sure)
