"""`pcnn register --graph`: many clouds, registered pair by pair, then placed together."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.status import Status
from rich.table import Table

from pcnn.console import Console
from pcnn.datasets.registration.gt_files import information_matrix
from pcnn.experiment.descriptors import chosen, descriptor_of
from pcnn.experiment.devices import device_of
from pcnn.experiment.options import RegisterOptions
from pcnn.experiment.register import reason_of, register_pair
from pcnn.experiment.run_folder import write_whole
from pcnn.files.simulated import is_simulated
from pcnn.messages import counted
from pcnn.registration.cloud_measures import measured
from pcnn.registration.descriptor import described_all
from pcnn.registration.nearest import nearest_within
from pcnn.registration.pose_graph import Edge, PoseGraph, pose_graph
from pcnn.registration.register import NoOverlapError, Registration
from pcnn.registration.settings import AGREE
from pcnn.registration.transforms import LocalCloud, to_given, transform_points
from pcnn.visualize import write_coloured_ply
from pcnn.visualize.palette import distinct_colours
from pcnn.visualize.view import View, ViewedCloud


def place_together(
    console: Console,
    status: Status,
    clouds: Sequence[LocalCloud],
    names: Sequence[str],
    paths: Sequence[Path],
    out: Path,
    options: RegisterOptions,
) -> None:
    """Register every pair of clouds, and place all of them so that the pairs agree."""
    there = [cloud.to(device_of(options.device)) for cloud in clouds]
    points = [cloud.points for cloud in there]
    measures = measured(points)
    descriptor, choice = descriptor_of(options, chosen(options, measures)[0], measures)
    status.update("describing all clouds")
    described = described_all(descriptor, points, names)
    found: list[Registration] = []
    refused: list[dict[str, str]] = []
    edges, reach = [], AGREE * descriptor.voxel_size
    for target, source in combinations(range(len(clouds)), 2):
        status.update(f"{names[source]} onto {names[target]}")
        ends, both = (there[source], there[target]), (described[source], described[target])
        try:
            one = register_pair(ends, both, descriptor, choice, options)
        except NoOverlapError as error:
            pair = {"source": names[source], "target": names[target]}
            refused.append({**pair, "reason": reason_of(error)})
            continue
        found.append(one)
        first, second = (cloud.points for cloud in both)
        placed = transform_points(one.transform.to(first.device), first.double())
        _, index = nearest_within(placed, second, reach)
        information = information_matrix(second[index[index >= 0]].cpu())
        # FPFH has no confidence: then inliers decide alone
        sure = one.confidence if math.isfinite(one.confidence) else 0.0
        edges.append(Edge(source, target, one.transform, information, sure + 1e-6 * one.inliers))
    status.update("placing all clouds")
    graph = pose_graph(names, edges, reach)
    pairs = [fact_of(graph, at, one, names) for at, one in enumerate(found)]
    note = say_pairs(console, f"{counted(len(clouds), 'cloud')}, {descriptor.name}", pairs, refused)
    poses = [
        to_given(pose, cloud, clouds[0]) for pose, cloud in zip(graph.poses, clouds, strict=True)
    ]
    content = {
        "frame": str(paths[0]),
        "poses": {str(path): pose.tolist() for path, pose in zip(paths, poses, strict=True)},
        "edges": pairs,
        "refused": refused,
        "descriptor": descriptor.name,
        "chosen_because": choice.reason,
        "cloud_span_m": max(measures.spans),
        "cloud_width_m": measures.width,
        "point_spacing_m": measures.spacing,
    }
    colours = distinct_colours(len(clouds))
    write_whole(out / "poses.json", json.dumps(content, indent=2) + "\n")
    numbers = np.repeat(np.arange(len(clouds)), [len(cloud.points) for cloud in clouds])
    moved = [
        transform_points(pose, cloud.points.double()).numpy()
        for pose, cloud in zip(graph.poses, clouds, strict=True)
    ]
    write_coloured_ply(
        out / "merged.ply",
        np.concatenate(moved),
        colours[numbers],
        numbers,
        "label: number of the cloud",
        clouds[0].origin.tolist(),
    )
    shown = [
        ViewedCloud(
            name,
            cloud.given(cloud.points).numpy(),
            pose=poses[at].numpy(),
            color=(int(colours[at][0]), int(colours[at][1]), int(colours[at][2])),
            simulated=is_simulated(paths[at]),
        )
        for at, (name, cloud) in enumerate(zip(names, clouds, strict=True))
    ]
    title = f"{len(clouds)} clouds in the frame of {names[0]}"
    View(shown, title=title, note=note, first="clouds").write(out / "view.html")
    written = ("poses.json", "merged.ply", "view.html")
    console.say("\n".join(str(out / name) for name in written))


def fact_of(graph: PoseGraph, at: int, one: Registration, names: Sequence[str]) -> dict[str, Any]:
    """A transform between clouds, and what became of it."""
    edge = graph.edges[at]
    degrees, metres = graph.residual(edge)
    return {
        "source": names[edge.source],
        "target": names[edge.target],
        "role": "tree" if graph.tree[at] else "loop" if graph.kept[at] else "dropped loop",
        "confidence": one.confidence if math.isfinite(one.confidence) else None,
        "inliers": one.inliers,
        "overlap": one.overlap,
        "off_deg": degrees,
        "off_m": metres,
        "transform": one.transform.tolist(),
    }


def say_pairs(
    console: Console, title: str, pairs: Sequence[dict[str, Any]], refused: Sequence[Any]
) -> str:
    """Print how the pairs agree; returns it in a line."""
    columns = "pair", "confidence", "inliers", "role", "off [deg]", "off [m]"
    table = Table(*columns, title=title, title_justify="left")
    for one in pairs:
        sure = "" if one["confidence"] is None else f"{one['confidence']:.2f}"
        off = (f"{one['off_deg']:.2f}", f"{one['off_m']:.3f}")
        name = f"{one['source']} onto {one['target']}"
        table.add_row(name, sure, str(one["inliers"]), one["role"], *off)
    console.print(table)
    count = Counter(one["role"] for one in pairs)
    note = (
        f"{counted(len(pairs), 'pair')} registered, {len(refused)} without a transform; "
        f"{counted(count['loop'], 'loop')} kept, {count['dropped loop']} dropped"
    )
    console.say(note)
    return note
