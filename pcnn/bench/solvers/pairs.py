"""Pairs of clouds with matches that every solver is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.datasets.registration.pairs import PairDataset, RegistrationPair
from pcnn.metrics.registration import point_rmse, rotation_error, translation_error
from pcnn.registration.descriptor import Described, Descriptor
from pcnn.registration.matching import Matches, sampled_matches
from pcnn.registration.nearest import nearest_within
from pcnn.registration.settings import EstimateSettings
from pcnn.registration.transforms import transform_points

RIGHT = 0.2  # metres: root mean square distance of the overlap from where it belongs, as in 3DMatch
NEAR = 0.1  # metres: a point of the source that the target holds, too


@dataclass(frozen=True, eq=False)
class MatchedPair:
    """What a solver is given, and what it is judged by.

    Args:
        scene: of both clouds.
        matches: rows of the described clouds, and distances of descriptors.
        source: [M, 3] float32 points of the matches in the source [m].
        target: [M, 3] their partners.
        described: both clouds, for solvers that look at them.
        truth: [4, 4] float64, source to target.
        overlap: [P, 3] float64 points of the source that the target holds.
    """

    scene: str
    matches: Matches
    source: Tensor
    target: Tensor
    described: tuple[Described, Described]
    truth: Tensor
    overlap: Tensor

    def to(self, device: torch.device | str) -> MatchedPair:
        """The same, what solvers read on another device."""
        matches = self.matches
        moved = (side.to(device) for side in (matches.source, matches.target, matches.distance))
        one, other = (side.to(device) for side in self.described)
        return replace(
            self,
            matches=Matches(*moved),
            source=self.source.to(device),
            target=self.target.to(device),
            described=(one, other),
        )

    def errors(self, transform: Tensor | None) -> tuple[bool, float, float]:
        """Whether a transform is right, its rotation error [deg] and translation error [m]."""
        if transform is None:
            return False, torch.nan, torch.nan
        rmse = point_rmse(transform, self.truth, self.overlap)
        rotation = rotation_error(transform, self.truth)
        return float(rmse) < RIGHT, float(rotation), float(translation_error(transform, self.truth))


def matched_pairs(
    data: PairDataset,
    descriptor: Descriptor,
    settings: EstimateSettings,
    samples: int,
    a_scene: int,
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> list[MatchedPair]:
    """Match pairs of a set, as an evaluation does.

    Args:
        data: pairs with true transforms.
        descriptor: describes clouds.
        settings: how they are matched; the seed also draws the pairs.
        samples: points drawn of each cloud.
        a_scene: pairs of a scene at most, drawn from all.
        track: wraps the scenes, e.g. to show progress.

    Raises:
        ValueError: the set holds no pairs.
    """
    if not data.pairs:
        raise ValueError(
            f"{data.name} holds no pairs: choose another list (--pair-list), or simulate more "
            "fragments of a scene"
        )
    generator = torch.Generator().manual_seed(settings.seed)
    found = []
    for scene in track(list(dict.fromkeys(pair.scene for pair in data.pairs))):
        pairs = [pair for pair in data.pairs if pair.scene == scene]
        drawn = torch.randperm(len(pairs), generator=generator)[:a_scene].tolist()
        pairs = [pairs[row] for row in sorted(drawn)]
        clouds = sorted({at for pair in pairs for at in (pair.source, pair.target)})
        held = {at: descriptor(data.cloud(scene, at)) for at in clouds}
        found += [
            _matched(pair, held[pair.source], held[pair.target], settings, samples)
            for pair in pairs
        ]
    return found


def _matched(
    pair: RegistrationPair,
    source: Described,
    target: Described,
    settings: EstimateSettings,
    samples: int,
) -> MatchedPair:
    source, target = source.to("cpu"), target.to("cpu")
    matches = sampled_matches(
        source.features,
        target.features,
        samples,
        settings.matching,
        settings.sampling,
        torch.Generator().manual_seed(settings.seed),
    )
    points = source.points.double()
    _, near = nearest_within(transform_points(pair.transform, points), target.points, NEAR)
    return MatchedPair(
        pair.scene,
        matches,
        source.points[matches.source],
        target.points[matches.target],
        (source, target),
        pair.transform,
        points[near >= 0],
    )
