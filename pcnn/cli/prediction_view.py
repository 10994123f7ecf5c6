"""The page of a cloud that `pcnn predict` labelled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pcnn.datasets.readers.clouds import Part, PartedCloud
from pcnn.escaping import visible
from pcnn.experiment.answer import Answer
from pcnn.experiment.predictor import Predictor
from pcnn.files.simulated import is_simulated
from pcnn.visualize.view import POINTS, View, ViewedCloud


def prediction_view(
    predictor: Predictor, cloud: PartedCloud, found: Answer, points: int = POINTS
) -> View:
    """Classes and their confidence, with what the file holds of its points.

    Args:
        predictor: the network, for its classes.
        cloud: read part by part; no more than `points` are kept of it.
        found: classes of its rows.
        points: the most that are shown, every n-th row of the file.

    Raises:
        ValueError: no point.
    """
    own = replace(cloud.reading, channels=None, fill={})
    step = -(-cloud.points // points) if cloud.points else 1
    part = _joined([one.select(one.rows % step == 0) for one in replace(cloud, reading=own)])
    channels = part.channels.shape[1]  # intensity, then three colours, as far as the file has them
    shown = ViewedCloud(
        visible(cloud.path.name),
        part.places / cloud.scale,
        part.rows,
        part.channels[:, 0] if channels in (1, 4) else None,
        _bytes(part.channels[:, -3:]) if channels in (3, 4) else None,
        {"prediction": found.classes[part.rows]},
        found.confidence[part.rows] / 255,
        simulated=is_simulated(cloud.path),
    )
    notes = [
        f"{len(part):,} of {cloud.points:,} points" if step > 1 else "",
        "predicted by a network trained on SIMULATED data"
        if predictor.source == "simulated"
        else "",
    ]
    return View(
        [shown],
        predictor.class_names,
        predictor.colors[:-1],
        title=visible(cloud.path.name),
        note=". ".join(filter(None, notes)),
        points=points,
    )


def _joined(parts: list[Part]) -> Part:
    return Part(
        np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]),
        np.concatenate([np.empty((0, 3)), *(part.places for part in parts)]),
        np.concatenate([part.channels for part in parts])
        if parts
        else np.empty((0, 0), np.float32),
    )


def _bytes(shares: np.ndarray) -> np.ndarray:
    """Colours of 0..1, or of 0..255 where one is above, as bytes."""
    top = 255.0 if shares.max(initial=0.0) > 1.0 else 1.0
    return np.round(np.clip(shares / top, 0.0, 1.0) * 255).astype(np.uint8)
