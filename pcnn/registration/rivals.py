"""Other models of the same matches: the target larger or smaller, or a mirror image.

A rigid transform of a scaled or mirrored copy is right near one place only, but has inliers enough
there to be believed. The model that is true of the copy has clearly more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.registration.ransac import ransac
from pcnn.registration.settings import RansacSettings

#: Sizes that are tried: up to half and twice.
LARGEST_SCALE = 2.0
#: Share by which sizes may differ: depth cameras are off by one or two hundredths.
SAME_SIZE = 0.03
#: Inliers of the other model over those of the rigid one. Of 31 right pairs of a real scene none
#: had more than 1.32 with a scale of its own, and none with 60 inliers more than 0.63 mirrored.
CLEARLY = 1.5
FEWEST, MOST = 5_000, 15_000  # hypotheses of each


@dataclass(frozen=True)
class Rivals:
    """Inliers of the other models."""

    scale: float  # size of the target over that of the source by the similarity with most inliers
    scaled: int  # inliers of that similarity
    mirrored: int  # inliers of a mirror image of the source

    def refusal(self, inliers: int) -> str:
        """Why a rigid transform with this many inliers is wrong; empty where nothing says so."""
        if self.scaled > CLEARLY * inliers and abs(self.scale - 1) > SAME_SIZE:
            return (
                f"the target is {self.scale:.2f} times as large as the source: {self.scaled} "
                f"matches agree with that, {inliers} without a scale"
            )
        if self.mirrored > CLEARLY * inliers:
            return (
                f"one cloud is a mirror image of the other: {self.mirrored} matches agree with "
                f"that, {inliers} with a rigid transform"
            )
        return ""


def rivals(
    source: Tensor, target: Tensor, settings: RansacSettings, tried: int, seed: int = 0
) -> Rivals:
    """Estimate the similarity and the mirror image that most matches agree with.

    Both by RANSAC: of similarities (Umeyama 1991), and of rigid transforms of ``-source``, for any
    mirror image is a point reflection and a rotation.
    """
    settings = replace(settings, hypotheses=min(max(tried, FEWEST), MOST), confidence=0.999)
    similarity = ransac(source, target, replace(settings, scale=LARGEST_SCALE), seed)
    mirror = ransac(-source, target, settings, seed)
    scale = math.nan
    if similarity.transform is not None:
        scale = float(torch.linalg.det(similarity.transform[:3, :3])) ** (1 / 3)
    return Rivals(scale, int(similarity.inliers.sum()), int(mirror.inliers.sum()))
