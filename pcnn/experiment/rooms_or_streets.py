"""Rooms or streets: one rule for networks that label points and for those that describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Clouds up to this span are taken for rooms, larger ones for streets [m].
ROOMS_UP_TO = 20.0


@dataclass(frozen=True)
class Scene:
    """Where clouds seem to have been scanned."""

    indoors: bool  # whether it is a room
    spans: str  # in words, as in "the cloud spans 3.1 m"


def scene_of(spans: Sequence[float]) -> Scene:
    """The scene of clouds, by the one that spans most."""
    least, most = min(spans, default=0.0), max(spans, default=0.0)
    subject = "the cloud spans" if len(spans) == 1 else "the clouds span"
    indoors = most <= ROOMS_UP_TO
    if indoors or least > ROOMS_UP_TO:
        return Scene(indoors, f"{subject} {most:.3g} m")
    # a pair of two kinds has no network of its own: say so, the user may have mixed up files
    return Scene(indoors, f"{subject} {least:.3g} to {most:.3g} m")
