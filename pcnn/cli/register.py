"""`pcnn register`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcnn.cli.app import ARGUMENT
from pcnn.experiment.options import Columns, RegisterOptions
from pcnn.messages import counted

if TYPE_CHECKING:
    from pcnn.console import Console
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
    from pcnn.cli.register_graph import place_together
    from pcnn.console import Console
    from pcnn.datasets.readers.clouds import chosen_columns
    from pcnn.experiment.register import points_of, register_two
    from pcnn.registration.register import NoOverlapError

    console, paths = Console(), options.clouds
    if len(paths) < 2 or (len(paths) > 2 and not options.graph):
        told = f"two clouds are registered, got {len(paths)}; --graph registers more than two"
        raise typer.BadParameter(told)
    if options.graph and len({path.resolve() for path in paths}) < len(paths):
        raise typer.BadParameter("a cloud is given twice; --graph places each once")
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    columns = chosen_columns(options.columns)
    try:
        read = [points_of(path, str(path), columns) for path in paths]
        with console.status("reading the clouds") as status:
            if options.graph:
                return place_together(console, status, read, names, paths, options.out, options)
            found = register_two(read[0], read[1], options, status.update, (names[0], names[1]))
    except NoOverlapError as error:
        console.say(error, "" if options.graph else f"{names[0]} onto {names[1]}", "red")
        raise typer.Exit(1) from error
    except (OSError, ValueError, ImportError) as error:
        raise typer.BadParameter(f"{error}") from error
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
        "cloud_span_m": round(max(measures.spans), 4),
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
