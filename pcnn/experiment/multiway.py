"""Many clouds of one place: registered pair by pair, then placed together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from torch import Tensor

from pcnn.datasets.registration.gt_files import information_matrix
from pcnn.experiment.descriptors import chosen, descriptor_of
from pcnn.experiment.devices import device_of
from pcnn.experiment.options import RegisterOptions
from pcnn.experiment.register import reason_of, register_pair
from pcnn.registration.cloud_measures import CloudMeasures, measured
from pcnn.registration.descriptor import described_all
from pcnn.registration.nearest import nearest_within
from pcnn.registration.pose_graph import Edge, PoseGraph, pose_graph
from pcnn.registration.register import NoOverlapError, Registration
from pcnn.registration.settings import AGREE
from pcnn.registration.transforms import LocalCloud, to_given, transform_points


@dataclass(frozen=True, eq=False)
class Multiway:
    """Clouds placed in the frame of the first."""

    clouds: tuple[LocalCloud, ...]  # as they were given
    graph: PoseGraph  # poses between the local frames of the clouds
    found: dict[tuple[int, int], Registration]  # by (source, target)
    refused: dict[tuple[int, int], str]  # by (source, target), why a pair has none
    descriptor: str  # name
    reason: str  # why it was taken
    measures: CloudMeasures  # of all clouds

    def pose(self, number: int) -> Tensor:
        """[4, 4] float64: from the coordinates of a cloud's file to those of the first."""
        return to_given(self.graph.poses[number], self.clouds[number], self.clouds[0])

    def placed(self, number: int) -> np.ndarray:
        """Points of a cloud in the local frame of the first, [P, 3] float64."""
        moved = transform_points(self.graph.poses[number], self.clouds[number].points.double())
        return moved.numpy()


def register_many(
    clouds: Sequence[LocalCloud],
    names: Sequence[str],
    options: RegisterOptions,
    progress: Callable[[str], object] = str,
) -> Multiway:
    """Register every pair of clouds, and place all of them so that the pairs agree."""
    there = [cloud.to(device_of(options.device)) for cloud in clouds]
    points = [cloud.points for cloud in there]
    measures = measured(points)
    descriptor, choice = descriptor_of(options, chosen(options, measures)[0], measures)
    progress("describing all clouds")
    described = described_all(descriptor, points, names)
    found: dict[tuple[int, int], Registration] = {}
    refused: dict[tuple[int, int], str] = {}
    edges, reach = [], AGREE * descriptor.voxel_size
    for target, source in combinations(range(len(clouds)), 2):
        progress(f"{names[source]} onto {names[target]}")
        ends, both = (there[source], there[target]), (described[source], described[target])
        try:
            one = register_pair(ends, both, descriptor, choice, options)
        except NoOverlapError as error:
            refused[source, target] = reason_of(error)
            continue
        found[source, target] = one
        first, second = (cloud.points for cloud in both)
        placed = transform_points(one.transform.to(first.device), first.double())
        _, index = nearest_within(placed, second, reach)
        information = information_matrix(second[index[index >= 0]].cpu())
        # FPFH has no confidence: then inliers decide alone
        sure = one.confidence if math.isfinite(one.confidence) else 0.0
        edges.append(Edge(source, target, one.transform, information, sure + 1e-6 * one.inliers))
    progress("placing all clouds")
    graph = pose_graph(names, edges, reach)
    return Multiway(tuple(clouds), graph, found, refused, descriptor.name, choice.reason, measures)
