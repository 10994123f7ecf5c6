"""Two clouds as one."""

from __future__ import annotations

from dataclasses import replace

import torch

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.samples import Cloud


def joined_cloud(first: Cloud, second: Cloud) -> Cloud:
    """All points of both clouds in one frame, under the name of the first.

    The result knows no places in a file, since there are two files; where one of the clouds is not
    labelled, its points are ``IGNORE``.

    Raises:
        ValueError: clouds with unlike numbers of features.
    """
    if first.features.shape[1] != second.features.shape[1]:
        raise ValueError(
            f"{first.path} has {first.features.shape[1]} features a point, {second.path} has "
            f"{second.features.shape[1]}: they cannot be mixed"
        )
    labels = None
    if first.labels is not None or second.labels is not None:
        labels = torch.cat(
            [
                torch.full((one.n_points,), IGNORE) if one.labels is None else one.labels
                for one in (first, second)
            ]
        )
    return replace(
        first,
        points=torch.cat([first.points, second.points]),
        features=torch.cat([first.features, second.features]),
        labels=labels,
        point_index=None,
    )
