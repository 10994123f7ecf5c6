"""`pcnn register --graph`: many clouds in one frame."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from pcnn.files.simulated import is_simulated
from pcnn.files.whole_file import whole_file
from pcnn.plural import counted

if TYPE_CHECKING:
    from pcnn.console import Console
    from pcnn.experiment.multiway import Multiway


def write_graph(console: Console, placed: Multiway, paths: Sequence[Path], out: Path) -> None:
    """Print how pairs agree; write poses.json, merged.ply and merged.png."""
    from pcnn.visualize import write_coloured_ply
    from pcnn.visualize.palette import distinct_colours
    from pcnn.visualize.registration import merged_picture

    names = _short(paths)
    edges = _edges(placed, names)
    table = Table(
        title=f"{counted(len(paths), 'cloud')}, {placed.descriptor}", title_justify="left"
    )
    for column in ("pair", "confidence", "inliers", "role", "off [deg]", "off [m]"):
        table.add_column(column, justify="left" if column in ("pair", "role") else "right")
    for edge in edges:
        sure = "" if edge["confidence"] is None else f"{edge['confidence']:.2f}"
        off = (f"{edge['off_deg']:.2f}", f"{edge['off_m']:.3f}")
        pair = f"{edge['source']} onto {edge['target']}"
        table.add_row(pair, sure, str(edge["inliers"]), edge["role"], *off)
    console.print(table)
    count = {role: sum(edge["role"] == role for edge in edges) for role in ("loop", "dropped loop")}
    note = (
        f"{counted(len(edges), 'pair')} registered, {len(placed.refused)} without a transform; "
        f"{counted(count['loop'], 'loop')} kept, {count['dropped loop']} dropped"
    )
    console.say(note)
    content = {
        "frame": str(paths[0]),
        "poses": {str(path): placed.pose(at).tolist() for at, path in enumerate(paths)},
        "edges": edges,
        "refused": [
            {"source": names[source], "target": names[target], "reason": reason}
            for (source, target), reason in placed.refused.items()
        ],
        "descriptor": placed.descriptor,
        "chosen_because": placed.reason,
        "cloud_span_m": placed.measures.most_span,
        "cloud_width_m": placed.measures.width,
        "point_spacing_m": placed.measures.spacing,
    }
    with whole_file(out / "poses.json") as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
    clouds = {name: placed.placed(at) for at, name in enumerate(names)}
    sizes = [len(cloud) for cloud in clouds.values()]
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    write_coloured_ply(
        out / "merged.ply",
        np.concatenate(list(clouds.values())),
        distinct_colours(len(sizes))[numbers],
        numbers,
        "label: number of the cloud",
        placed.clouds[0].origin.tolist(),
    )
    title = f"{len(paths)} clouds in the frame of {names[0]}"
    merged_picture(clouds, out / "merged.png", title, note, any(map(is_simulated, paths)))
    console.say("\n".join(str(out / name) for name in ("poses.json", "merged.ply", "merged.png")))


def _edges(placed: Multiway, names: Sequence[str]) -> list[dict[str, Any]]:
    graph = placed.graph
    made = []
    for edge, in_tree, kept in zip(graph.edges, graph.tree, graph.kept, strict=True):
        one = placed.found[edge.source, edge.target]
        degrees, metres = graph.residual(edge)
        made.append(
            {
                "source": names[edge.source],
                "target": names[edge.target],
                "role": "tree" if in_tree else "loop" if kept else "dropped loop",
                "confidence": one.confidence if math.isfinite(one.confidence) else None,
                "inliers": one.inliers,
                "overlap": one.overlap,
                "off_deg": degrees,
                "off_m": metres,
                "transform": one.transform.tolist(),
            }
        )
    return made


def _short(paths: Sequence[Path]) -> list[str]:
    """Names of files, with as much of their folders as tells them apart."""
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {path.name}" for number, path in enumerate(paths)]
