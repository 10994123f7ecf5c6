"""Poses of many clouds from transforms between pairs of them (Choi, Zhou, Koltun 2015, 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcnn.registration.open3d_tools import open3d
from pcnn.registration.register import NoOverlapError
from pcnn.registration.transforms import inverse, rotation_angle

#: An edge whose line process falls below this is dropped (Choi et al., 3.2).
PRUNED = 0.25


@dataclass(frozen=True, eq=False)
class Edge:
    """A transform between two clouds."""

    source: int  # number of the cloud that is moved
    target: int  # of the cloud it is moved onto
    transform: Tensor  # [4, 4] float64
    information: Tensor  # [6, 6] float64, of the points that meet
    trust: float  # orders edges: those that are trusted most connect the clouds


@dataclass(frozen=True, eq=False)
class PoseGraph:
    """Poses of clouds in the frame of the first."""

    poses: Tensor  # [N, 4, 4] float64
    edges: tuple[Edge, ...]  # in the order they were given
    tree: tuple[bool, ...]  # by edge, whether it is of the tree that connects the clouds
    kept: tuple[bool, ...]  # by edge, whether the optimisation agrees with it

    def residual(self, edge: Edge) -> tuple[float, float]:
        """The rest between a transform and the poses: rotation [deg], translation [m]."""
        between = inverse(self.poses[edge.target]) @ self.poses[edge.source]
        rest = inverse(edge.transform) @ between
        return float(rotation_angle(rest[:3, :3])), float(rest[:3, 3].norm())


def pose_graph(names: Sequence[str], edges: Sequence[Edge], distance: float) -> PoseGraph:
    """Place clouds by the tree of the most trusted edges, then move them to agree with the others.

    That is Open3D's Levenberg-Marquardt with line processes; it drops loops that contradict.
    """
    tree = _tree(len(names), edges)
    poses = _placed(len(names), edges, tree)
    apart = [name for name, pose in zip(names, poses, strict=True) if pose is None]
    if apart:
        those = "it" if len(apart) == 1 else "them"
        raise NoOverlapError(f"{', '.join(apart)}: no transform connects {those} with {names[0]}")
    pipeline = open3d().pipelines.registration
    graph = pipeline.PoseGraph()
    for pose in poses:
        assert pose is not None  # none is apart
        graph.nodes.append(pipeline.PoseGraphNode(pose.numpy()))
    for edge, in_tree in zip(edges, tree, strict=True):
        matrices = edge.transform.numpy(), edge.information.numpy()
        graph.edges.append(
            pipeline.PoseGraphEdge(edge.source, edge.target, *matrices, uncertain=not in_tree)
        )
    pipeline.global_optimization(
        graph,
        pipeline.GlobalOptimizationLevenbergMarquardt(),
        pipeline.GlobalOptimizationConvergenceCriteria(),
        pipeline.GlobalOptimizationOption(
            max_correspondence_distance=distance, edge_prune_threshold=PRUNED, reference_node=0
        ),
    )
    left = {(edge.source_node_id, edge.target_node_id) for edge in graph.edges}
    found = torch.from_numpy(np.stack([np.array(node.pose) for node in graph.nodes]))
    kept = tuple((edge.source, edge.target) in left for edge in edges)
    found = inverse(found[0]) @ found
    found[0] = torch.eye(4)  # exact
    return PoseGraph(found, tuple(edges), tree, kept)


def _tree(count: int, edges: Sequence[Edge]) -> tuple[bool, ...]:
    """Which edges are of the tree, or the trees, of greatest trust (Kruskal)."""
    group = list(range(count))
    chosen = [False] * len(edges)
    for number in sorted(range(len(edges)), key=lambda at: -edges[at].trust):
        first, second = group[edges[number].source], group[edges[number].target]
        if first != second:
            chosen[number] = True
            group = [first if own == second else own for own in group]
    return tuple(chosen)


def _placed(count: int, edges: Sequence[Edge], tree: Sequence[bool]) -> list[Tensor | None]:
    """Poses along the tree from the first cloud on; None of clouds that it does not reach."""
    poses: list[Tensor | None] = [None] * count
    poses[0] = torch.eye(4, dtype=torch.float64)
    chosen = [edge for edge, own in zip(edges, tree, strict=True) if own]
    for _ in range(count):
        for edge in chosen:
            source, target = poses[edge.source], poses[edge.target]
            if source is None and target is not None:
                poses[edge.source] = target @ edge.transform
            elif target is None and source is not None:
                poses[edge.target] = source @ inverse(edge.transform)
    return poses
