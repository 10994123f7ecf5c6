"""One registered pair of clouds, as evaluation steps hand it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.visualize.matches import DrawnMatches

NEEDED = {"source", "target", "truth", "estimate"}


@dataclass(frozen=True)
class Pair:
    """Two clouds on the host, with their true and their estimated transform.

    Args:
        name: of the pair.
        source: [N, 3] [m].
        target: [M, 3] [m].
        truth: [4, 4] source to target.
        estimate: [4, 4], or None where none was found.
        facts: errors and right matches in a line.
        matches: [K, 2] rows of source and target that were matched; may be empty.
    """

    name: str
    source: NDArray[np.float32]
    target: NDArray[np.float32]
    truth: NDArray[np.float64]
    estimate: NDArray[np.float64] | None
    facts: str
    matches: NDArray[np.int64]

    @classmethod
    def of(cls, outputs: Any) -> Pair | None:
        """Take the pair out of a step's outputs, to the host; None when there is none."""
        if not isinstance(outputs, dict) or not set(outputs) >= NEEDED:
            return None
        estimate, matches = outputs["estimate"], outputs.get("matches")
        return cls(
            name=str(outputs.get("name", "pair")),
            source=outputs["source"].detach().float().cpu().numpy(),
            target=outputs["target"].detach().float().cpu().numpy(),
            truth=outputs["truth"].detach().double().cpu().numpy(),
            estimate=None if estimate is None else estimate.detach().double().cpu().numpy(),
            facts=facts_of(outputs),
            matches=np.empty((0, 2), np.int64)
            if matches is None
            else matches.detach().long().cpu().numpy(),
        )

    def drawn(self, distance: float) -> DrawnMatches:
        """The matches; right are those within a distance [m] under the true transform."""
        source, target = self.source[self.matches[:, 0]], self.target[self.matches[:, 1]]
        moved = source @ self.truth[:3, :3].T + self.truth[:3, 3]
        return DrawnMatches(source, target, np.linalg.norm(moved - target, axis=1) < distance)


def facts_of(outputs: dict[str, Any]) -> str:
    """Errors and right matches in a line."""
    parts = []
    for key, text in (("rre", "RRE {:.2f} deg"), ("rte", "RTE {:.3f} m")):
        if key in outputs and outputs[key] == outputs[key]:
            parts.append(text.format(float(outputs[key])))
    if "inlier_ratio" in outputs:
        parts.append(f"right matches {100 * float(outputs['inlier_ratio']):.1f} %")
    return "   ".join(parts)
