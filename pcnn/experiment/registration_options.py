"""How an evaluation of registration is run and judged: keys of `task` beside the training's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import MinLen

from pcnn.metrics.registration import SAMPLES, Protocol, protocol
from pcnn.ranges import Count, Length, Natural, Seed, Share
from pcnn.registration.settings import EstimateSettings, Matching, Sampling, Solver


@dataclass(frozen=True)
class RegistrationOptions:
    """How pairs are registered and judged; what is None is as the protocol has it."""

    protocol: str = "predator"  # fcgf
    samples: Annotated[Sequence[Natural], MinLen(1)] = SAMPLES  # numbers of samples
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

    def rules(self, benchmark: str) -> Protocol:
        """The protocol, with what is set here in place of its own; its name then says so."""
        rules = protocol(self.protocol, benchmark)
        given = {
            name: getattr(self, name)
            for name in ("distance", "points", "hypotheses", "confidence")
            if getattr(self, name) is not None
        }
        changed = replace(
            rules,
            ransac=replace(rules.ransac, **given),
            matching=self.matching or rules.matching,
            sampling=self.sampling or rules.sampling,
        )
        return rules if changed == rules else replace(changed, name=f"{rules.name}, changed")

    def settings(self, rules: Protocol, seed: int) -> EstimateSettings:
        """How transforms are estimated under these rules."""
        return EstimateSettings(
            rules.ransac,
            self.solver,
            rules.matching,
            rules.sampling,
            self.refine,
            seed,
            surfaces=self.surfaces,
        )
