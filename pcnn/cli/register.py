"""`pcnn register`."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.app import ARGUMENT
from pcnn.experiment.options import Columns, RegisterOptions
from pcnn.messages import counted

if TYPE_CHECKING:
    from pcnn.console import Console
    from pcnn.experiment.multiway import Multiway
    from pcnn.registration.register import Registration
    from pcnn.registration.transforms import LocalCloud


@dataclass(frozen=True, kw_only=True)
class RegisterCommand(RegisterOptions):
    clouds: Annotated[
        list[Path], ARGUMENT, "Cloud to move, and cloud it is moved onto; with --graph two or more."
    ]
    graph: Annotated[bool, "--graph", "Register all pairs, and place the clouds together."] = False
    out: Annotated[Path, "Folder for what is written."] = Path("registration")
    columns: Columns = None


def register(options: RegisterCommand) -> None:
    """Estimate the rigid transform of one cloud onto another, or the poses of many.

    Prints the 4 x 4 matrix that maps source coordinates to the target's, as the files have them,
    and what speaks for it; writes both to transform.json, and the clouds to a page, view.html.
    Where no transform is supported, where other poses fit as well, and where the clouds differ in
    scale or one is a mirror image, the exit code is 1 and nothing is written.

    With --graph every pair is registered. The most trusted transforms connect the clouds; poses
    are moved to agree with the others, of which those that contradict the rest are dropped
    (Open3D). Writes poses.json, merged.ply and view.html in the frame of the first cloud.
    """
    from pcnn.console import Console
    from pcnn.datasets.readers.clouds import chosen_columns
    from pcnn.experiment.multiway import register_many
    from pcnn.experiment.register import points_of, register_two
    from pcnn.registration.register import NoOverlapError

    console, paths = Console(), options.clouds
    if len(paths) < 2 or (len(paths) > 2 and not options.graph):
        told = f"two clouds are registered, got {len(paths)}; --graph registers more than two"
        raise typer.BadParameter(told)
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    columns = chosen_columns(options.columns)
    try:
        read = [points_of(path, str(path), columns) for path in paths]
        with console.status("reading the clouds") as status:
            if options.graph:
                placed = register_many(read, names, options, status.update)
            else:
                found = register_two(read[0], read[1], options, status.update, (names[0], names[1]))
    except NoOverlapError as error:
        console.say(error, "" if options.graph else f"{names[0]} onto {names[1]}", "red")
        raise typer.Exit(1) from error
    except (OSError, ValueError, ImportError) as error:
        raise typer.BadParameter(f"{error}") from error
    if options.graph:
        write_graph(console, placed, names, options)
    else:
        write_pair(console, found, read, names, options)


def or_none(value: float) -> float | None:
    """A number of a JSON file; none for one that is not known."""
    return value if math.isfinite(value) else None


def write_pair(
    console: Console,
    found: Registration,
    clouds: Sequence[LocalCloud],
    names: Sequence[str],
    options: RegisterCommand,
) -> None:
    """Print a transform; write transform.json and view.html."""
    from pcnn.experiment.run_folder import write_whole
    from pcnn.files.simulated import is_simulated
    from pcnn.visualize.view import View, ViewedCloud
    from pcnn.visualize.view.of_files import posed_pair

    measures, out = found.measures, options.out
    assert measures is not None  # of clouds that were read here
    facts = {
        "confidence": or_none(found.confidence),
        "descriptor": found.descriptor,
        "chosen_because": found.reason,
        "cloud_span_m": round(measures.most_span, 4),
        "cloud_width_m": round(measures.width, 4),
        "point_spacing_m": round(measures.spacing, 4),
        "solver": found.solver,
        "matches": found.matches,
        "inliers": found.inliers,
        "inlier_rmse_m": found.rmse,
        "overlap": found.overlap,
        "scale": or_none(found.scale),
        "ambiguity": found.ambiguity or None,
    }
    # far from zero a rotation needs more digits: 1e-8 of 5,000 km are 5 cm
    digits = 12 if any(cloud.moved for cloud in clouds) else 8
    for row in found.transform.tolist():
        console.say(" ".join(f"{value: .{digits}f}" for value in row))
    for name, value in facts.items():
        console.say(f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}")
    ends = dict(zip(("source", "target"), map(str, options.clouds), strict=True))
    content = {**ends, "transform": found.transform.tolist(), **facts}
    write_whole(out / "transform.json", json.dumps(content, indent=2) + "\n")
    shown = [
        ViewedCloud(name, cloud.given(cloud.points).numpy(), simulated=is_simulated(path))
        for name, cloud, path in zip(names, clouds, options.clouds, strict=True)
    ]
    shown = posed_pair(shown, found.transform.numpy())
    agree = f"{found.inliers} of {counted(found.matches, 'match', 'matches')} agree"
    note = f"{agree}   overlap {100 * found.overlap:.0f} %   {found.descriptor}"
    page = View(shown, title=f"{names[0]} onto {names[1]}", note=note, first="clouds")
    console.say(f"{out / 'transform.json'}\n{page.write(out / 'view.html')}")


def write_graph(
    console: Console, placed: Multiway, names: Sequence[str], options: RegisterCommand
) -> None:
    """Print how pairs agree; write poses.json, merged.ply and view.html."""
    import numpy as np
    from rich.table import Table

    from pcnn.experiment.run_folder import write_whole
    from pcnn.files.simulated import is_simulated
    from pcnn.visualize import write_coloured_ply
    from pcnn.visualize.palette import distinct_colours
    from pcnn.visualize.view import View, ViewedCloud

    paths, out = options.clouds, options.out
    edges = list(edges_of(placed, names))
    title = f"{counted(len(paths), 'cloud')}, {placed.descriptor}"
    columns = "pair", "confidence", "inliers", "role", "off [deg]", "off [m]"
    table = Table(*columns, title=title, title_justify="left")
    for edge in edges:
        sure = "" if edge["confidence"] is None else f"{edge['confidence']:.2f}"
        off = (f"{edge['off_deg']:.2f}", f"{edge['off_m']:.3f}")
        pair = f"{edge['source']} onto {edge['target']}"
        table.add_row(pair, sure, str(edge["inliers"]), edge["role"], *off)
    console.print(table)
    count = Counter(edge["role"] for edge in edges)
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
    write_whole(out / "poses.json", json.dumps(content, indent=2) + "\n")
    moved = [placed.placed(at) for at in range(len(names))]
    sizes = [len(cloud) for cloud in moved]
    numbers, colours = np.repeat(np.arange(len(sizes)), sizes), distinct_colours(len(sizes))
    write_coloured_ply(
        out / "merged.ply",
        np.concatenate(moved),
        colours[numbers],
        numbers,
        "label: number of the cloud",
        placed.clouds[0].origin.tolist(),
    )
    shown = [
        ViewedCloud(
            name,
            placed.clouds[at].given(placed.clouds[at].points).numpy(),
            pose=placed.pose(at).numpy(),
            color=(int(colours[at][0]), int(colours[at][1]), int(colours[at][2])),
            simulated=is_simulated(paths[at]),
        )
        for at, name in enumerate(names)
    ]
    title = f"{len(paths)} clouds in the frame of {names[0]}"
    View(shown, title=title, note=note, first="clouds").write(out / "view.html")
    written = ("poses.json", "merged.ply", "view.html")
    console.say("\n".join(str(out / name) for name in written))


def edges_of(placed: Multiway, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The transforms between clouds, and what became of each."""
    graph = placed.graph
    for edge, in_tree, kept in zip(graph.edges, graph.tree, graph.kept, strict=True):
        one = placed.found[edge.source, edge.target]
        degrees, metres = graph.residual(edge)
        yield {
            "source": names[edge.source],
            "target": names[edge.target],
            "role": "tree" if in_tree else "loop" if kept else "dropped loop",
            "confidence": or_none(one.confidence),
            "inliers": one.inliers,
            "overlap": one.overlap,
            "off_deg": degrees,
            "off_m": metres,
            "transform": one.transform.tolist(),
        }
