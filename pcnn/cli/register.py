"""`pcnn register` and `pcnn describe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcnn.cli.options import (
    AllowTargets,
    Columns,
    Device,
    MaxGib,
    chosen_device,
    chosen_reading,
    packages,
)
from pcnn.escaping import say
from pcnn.plural import counted
from pcnn.ranges import Length, Matches, Seed, Share

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "--checkpoint",
        help="interiors, turned (rooms that lie any way), streets, fpfh, or a checkpoint of a run "
        "with task=registration. Without it: by what the clouds span, up to 20 m interiors, beyond "
        "it streets; FPFH (Open3D) where these weights do not come with the package.",
    ),
]
Voxel = Annotated[
    Length | None, typer.Option(help="Voxel of FPFH in metres; default 0.05, beyond 20 m 0.3.")
]
Cell = Annotated[
    str,
    typer.Option(
        help="auto: the trained cell where clouds are as wide and dense as in training, otherwise "
        "by the clouds; trained; clouds: always by the clouds."
    ),
]
Sensor = Annotated[bool, typer.Option(help="The origin of each cloud is about its sensor's place.")]


def register(
    clouds: Annotated[
        list[Path],
        typer.Argument(
            help="Cloud to move, and cloud it is moved onto (.ply, .pcd, .bin, .npy, ...); with "
            "--graph two or more."
        ),
    ],
    graph: Annotated[
        bool,
        typer.Option("--graph", help="Register all pairs of the clouds, and place them together."),
    ] = False,
    model: Model = None,
    out: Annotated[
        Path,
        typer.Option(help="Folder for transform.json and overlay.png, or what --graph writes."),
    ] = Path("registration"),
    voxel_size: Voxel = None,
    cell: Cell = "auto",
    sensor_at_origin: Sensor = True,
    solver: Annotated[
        str | None,
        typer.Option(help="cliques, ransac, open3d or svd; default cliques, of FPFH ransac."),
    ] = None,
    sampling: Annotated[
        str,
        typer.Option(
            help="Which points are matched: random_points; scores or top_scores of a checkpoint "
            "with a head of overlap."
        ),
    ] = "random_points",
    surfaces: Annotated[
        bool,
        typer.Option(
            help="Move the pose until surfaces of both clouds lie on each other, by point-to-plane "
            "ICP on about a thousand points; otherwise it stays as the matches have it."
        ),
    ] = True,
    icp: Annotated[
        Length | None, typer.Option(help="Refine by ICP within this distance, in metres.")
    ] = None,
    min_confidence: Annotated[
        Share | None,
        typer.Option(help="Probability of being right below which no transform is given."),
    ] = None,
    verifier: Annotated[
        Path | None,
        typer.Option(help="A verifier of your own (.json) that pcnn calibrate wrote."),
    ] = None,
    min_inliers: Annotated[
        Matches | None, typer.Option(help="Matches that must agree; default 3, of FPFH 25.")
    ] = None,
    min_overlap: Annotated[
        Share, typer.Option(help="Share of the source that must lie near the target.")
    ] = 0.05,
    allow_ambiguous: Annotated[
        bool, typer.Option(help="Take one of several poses that fit as well.")
    ] = False,
    seed: Annotated[Seed, typer.Option(help="Seed of samples and hypotheses.")] = 0,
    columns: Columns = None,
    max_gib: MaxGib = None,
    device: Device = "auto",
    allow_targets: AllowTargets = None,
    view: Annotated[
        bool, typer.Option("--view", help="Write view.html too: both clouds in a browser.")
    ] = False,
) -> None:
    """Estimate the rigid transform of one cloud onto another, or the poses of many.

    Prints the 4 x 4 matrix that maps source coordinates to the target's, both as the files have
    them, and what speaks for it; writes both to transform.json with a picture of the clouds before
    and after. Where no transform is supported, where other poses fit as well, and where the clouds
    differ in scale or one is a mirror image, the exit code is 1 and nothing is written.

    With --graph every pair is registered. The most trusted transforms connect the clouds, the
    others are loops: poses are moved to agree with them, and loops that contradict the rest are
    dropped (Open3D). Writes poses.json, merged.ply and merged.png in the frame of the first cloud.
    """
    import json
    import math

    from pcnn.cli.register_graph import write_graph
    from pcnn.console import Console
    from pcnn.datasets.readers.channels import Reading
    from pcnn.experiment.multiway import register_many
    from pcnn.experiment.pair_options import PairOptions
    from pcnn.experiment.register import points_of, register_two
    from pcnn.files.simulated import is_simulated
    from pcnn.files.whole_file import whole_file
    from pcnn.registration.local_frame import about
    from pcnn.registration.register import NoOverlapError
    from pcnn.registration.verifier import read_verifier
    from pcnn.visualize.pair import ShownPair
    from pcnn.visualize.registration import overlay_picture
    from pcnn.visualize.view.pair import pair_view

    console = Console()
    where = chosen_device(device)
    reading = chosen_reading(Reading(), columns, max_gib=max_gib)
    if len(clouds) < 2 or (len(clouds) > 2 and not graph):
        raise typer.BadParameter(
            f"two clouds are registered, got {len(clouds)}; --graph registers more than two"
        )
    if graph and view:
        raise typer.BadParameter("--view shows one pair; pcnn view shows merged.ply of --graph")
    source, target = clouds[0], clouds[1]
    options: dict[str, Any] = {
        "sensor_at_origin": sensor_at_origin,
        "solver": solver,  # refused by name where it is none
        "sampling": sampling,  # likewise
        "surfaces": surfaces,
        "icp_distance": icp,
        "min_confidence": min_confidence,
        "min_inliers": min_inliers,
        "min_overlap": min_overlap,
        "allow_ambiguous": allow_ambiguous,
        "seed": seed,
        "device": str(where),
        "allow_targets": packages(allow_targets),
        "cell": cell,  # likewise
    }
    try:
        read = [points_of(path, str(path), reading.columns, reading.max_gib) for path in clouds]
        with console.status("reading the clouds") as status:
            if verifier is not None:
                options["verifier"] = read_verifier(verifier)
            pairs = PairOptions(**options)
            if graph:
                names = [str(path) for path in clouds]
                placed = register_many(read, names, model, voxel_size, pairs, status.update)
            else:
                moving, fixed = read
                found = register_two(moving, fixed, model, voxel_size, pairs, status.update)
    except NoOverlapError as error:
        console.say(error, "" if graph else f"{source} onto {target}", "red")
        raise typer.Exit(1) from error
    except (OSError, ValueError, ImportError) as error:
        raise typer.BadParameter(str(error)) from error
    if graph:
        write_graph(console, placed, clouds, out)
        return
    measures = found.measures
    assert measures is not None  # of clouds that were read here
    facts = {
        "confidence": found.confidence if math.isfinite(found.confidence) else None,
        "descriptor": found.descriptor,
        "chosen_because": found.reason,
        "cloud_span_m": round(measures.most_span, 4),
        "cloud_width_m": round(measures.width, 4),
        "point_spacing_m": round(measures.spacing, 4),
        "solver": found.solver,
        "icp": found.icp,
        "matches": found.matches,
        "inliers": found.inliers,
        "inlier_rmse_m": found.rmse,
        "overlap": found.overlap,
        "scale": found.scale if math.isfinite(found.scale) else None,
        "ambiguity": str(found.ambiguity) or None,
    }
    # far from zero a rotation needs more digits: 1e-8 of 5,000 km are 5 cm
    digits = 12 if moving.moved or fixed.moved else 8
    for row in found.transform.tolist():
        console.say(" ".join(f"{value: .{digits}f}" for value in row))
    for name, value in facts.items():
        console.say(f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}")
    content = {
        "source": str(source),
        "target": str(target),
        "transform": found.transform.tolist(),
        **facts,
    }
    with whole_file(out / "transform.json") as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
    simulated = is_simulated(source), is_simulated(target)
    # both about the origin of the target, so that "as given" shows them as the files have them
    shown = ShownPair(
        f"{source.name} onto {target.name}",
        (moving.points.double() + (moving.origin - fixed.origin)).numpy(),
        fixed.points.numpy(),
        about(found.transform, fixed.origin).numpy(),
        f"{found.inliers} of {counted(found.matches, 'match', 'matches')} agree   "
        f"overlap {100 * found.overlap:.0f} %   {found.descriptor}",
        simulated=any(simulated),
    )
    overlay_picture(shown, out / "overlay.png")
    console.say(f"{out / 'transform.json'}\n{out / 'overlay.png'}")
    if view:
        page = pair_view(
            shown.name,
            moving.given(moving.points).numpy(),
            fixed.given(fixed.points).numpy(),
            found.transform.numpy(),
            (source.name, target.name),
            shown.facts,
            simulated=simulated,
        )
        console.say(page.write(out / "view.html"))


def describe(
    cloud: Annotated[Path, typer.Argument(help="Cloud (.ply, .pcd, .bin, .npy, ...).")],
    model: Model = None,
    out: Annotated[
        Path | None, typer.Option(help="The .npz file; default CLOUD_descriptors.npz beside it.")
    ] = None,
    voxel_size: Voxel = None,
    cell: Cell = "auto",
    sensor_at_origin: Sensor = True,
    columns: Columns = None,
    max_gib: MaxGib = None,
    device: Device = "auto",
    allow_targets: AllowTargets = None,
) -> None:
    """Write descriptors of a cloud: an .npz with points [N, 3], features [N, C] and their name.

    Points are in the coordinates of the file; in float64 where these are those of a map.
    """
    import numpy as np

    from pcnn.console import Console
    from pcnn.datasets.readers.channels import Reading
    from pcnn.experiment.descriptors import chosen
    from pcnn.experiment.pair_options import PairOptions
    from pcnn.experiment.register import advice_on_size, points_of, warn_of_units
    from pcnn.files.whole_file import whole_file
    from pcnn.registration.cloud_measures import measured

    console = Console()
    where = chosen_device(device)
    reading = chosen_reading(Reading(), columns, max_gib=max_gib)
    path = out or cloud.with_name(f"{cloud.stem}_descriptors.npz")
    if path.resolve() == cloud.resolve():
        raise typer.BadParameter(f"--out {path} would replace the cloud; name another file")
    try:
        read = points_of(cloud, str(cloud), reading.columns, reading.max_gib)
        measures = measured([read.points])
        choice = chosen(model, measures, voxel_size)
        options = PairOptions(
            sensor_at_origin,
            device=str(where),
            allow_targets=packages(allow_targets),
            cell=cell,  # type: ignore[arg-type]  # refused by name where it is none
        )
        descriptor = options.descriptor(choice)
        warn_of_units([read], measures, descriptor.voxel_size)
        descriptor, choice = options.fitted(descriptor, choice, measures)
        advice = advice_on_size(measures, descriptor.voxel_size)
        if advice:
            console.say(f"{advice}.")
        described = descriptor(read.points)
    except (OSError, ValueError, ImportError) as error:
        raise typer.BadParameter(
            str(error) if str(cloud) in str(error) else f"{cloud}: {error}"
        ) from error
    with whole_file(path) as file:
        np.savez(
            file,
            points=read.given(described.points).numpy(),
            features=described.features.numpy(),
            descriptor=np.array(descriptor.name),
        )
    say(
        f"{path}: {counted(len(described.points), 'point')}, descriptors of length "
        f"{described.features.shape[1]} by {descriptor.name}; {choice.reason}"
    )
