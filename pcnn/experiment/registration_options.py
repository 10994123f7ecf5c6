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
    """How pairs are registered and judged; what is None is as the protocol has it.

    Args:
        protocol: ``fcgf``, ``predator``, ``geotransformer``, ``pointcnnpp``,
            ``pointcnnpp_printed`` or ``strict``.
        predator_compat: count 3DLoMatch's pairs as Predator's evaluator does.
        samples: numbers of samples; 0 takes all points.
        turn_clouds: turn every cloud at random before it is described, by rotations of this seed,
            drawn evenly from all there are: how descriptors hold under rotation; None does not.
        solver: ``ransac``, ``cliques`` or ``open3d``.
        matching: ``one_way`` or ``mutual``.
        sampling: ``random_points``, ``random_matches`` or ``top_k``; of a network with a head of
            overlap ``scores`` (points by their scores, as Predator draws them) or ``top_scores``.
        distance: of RANSAC's inliers [m].
        points: matches in a hypothesis.
        hypotheses: tried at most.
        confidence: 1 tries them all.
        refine: fit the best hypotheses of ``ransac`` and ``cliques`` again to what agrees, which
            the field's reference does not do: a few points more recall.
        surfaces: move every estimate until surfaces of both clouds lie on each other
            (`pcnn.registration.surface_fit`), as ``pcnn register`` does by default; the field's
            evaluators do not.
        icp_distance: refine by ICP within this distance [m], reported apart; None does not.
        draws: of the bootstrap.
        pictures: best and worst pairs drawn, so many of each.
    """

    protocol: str = "predator"
    predator_compat: bool = False
    samples: Annotated[Sequence[Natural], MinLen(1)] = SAMPLES
    turn_clouds: Seed | None = None
    solver: Solver = "ransac"
    matching: Matching | None = None
    sampling: Sampling | None = None
    distance: Length | None = None
    points: Count | None = None
    hypotheses: Count | None = None
    confidence: Share | None = None
    refine: bool = False
    surfaces: bool = False
    icp_distance: Length | None = None
    draws: Count = 2000
    pictures: Natural = 3

    def rules(self, benchmark: str) -> Protocol:
        """The protocol, with what is set here in place of its own; its name then says so.

        Raises:
            ValueError: a value is refused.
        """
        rules = protocol(self.protocol, benchmark, self.predator_compat)
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
