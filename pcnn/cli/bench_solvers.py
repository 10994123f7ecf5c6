"""`pcnn bench solvers`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcnn.cli.bench_run import measure, stop_if_wrong
from pcnn.cli.options import AllowTargets, Device, chosen_device, packages
from pcnn.ranges import Calls, Count, Fragments, Rooms, Seed

if TYPE_CHECKING:
    from pcnn.bench.solvers.pairs import MatchedPair
    from pcnn.registration.descriptor import Descriptor
    from pcnn.registration.settings import EstimateSettings


def solvers(
    solver: Annotated[
        list[str] | None,
        typer.Option(
            help="cliques, cliques-support (without the choice among its poses), ransac, open3d, "
            "svd, or the installed package kiss-matcher; may be repeated. Default: all but that."
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of 3DMatch or of fragments like it; else rooms are simulated."),
    ] = None,
    pair_list: Annotated[
        list[str] | None, typer.Option(help="3DMatch or 3DLoMatch; may be repeated. Default: both.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="interiors, or a checkpoint of task=registration.")
    ] = "interiors",
    samples: Annotated[Count, typer.Option(help="Points drawn of each cloud.")] = 5000,
    matching: Annotated[str, typer.Option(help="mutual or one_way.")] = "mutual",
    a_scene: Annotated[Count, typer.Option(help="Pairs of a scene and list at most.")] = 10,
    scenes: Annotated[Rooms, typer.Option(help="Simulated rooms.")] = 6,
    fragments: Annotated[Fragments, typer.Option(help="Fragments of a simulated room.")] = 10,
    seed: Annotated[Seed, typer.Option(help="Of simulated rooms, draws and RANSAC.")] = 0,
    threads: Annotated[Count | None, typer.Option(help="Threads of torch on the CPU.")] = None,
    repeats: Annotated[Calls, typer.Option(help="Timed calls of a pair.")] = 3,
    data_dir: Annotated[Path, typer.Option(help="Folder of simulated sets.")] = Path("data"),
    device: Device = "auto",
    allow_targets: AllowTargets = None,
    print_rows: Annotated[
        bool, typer.Option("--print/--no-print", help="Print all rows as tables.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Result file (JSON).")] = None,
) -> None:
    """Compare solvers of registration on the same matches: recall, errors and time of a pair.

    Each is first held to the known pose of made matches. All are timed on the CPU, and on a GPU
    those that compute there.
    """
    import torch

    from pcnn.bench.setting import chosen_names
    from pcnn.bench.solvers.figures import FIGURES, SolversSetting
    from pcnn.bench.solvers.lines import LINES, OWN, lines_on
    from pcnn.datasets.registration.threedmatch import LISTS
    from pcnn.experiment.descriptors import of_checkpoint, weights_of
    from pcnn.experiment.fitted_cells import indoors
    from pcnn.registration.register import default_settings
    from pcnn.registration.settings import MATCHINGS

    where = chosen_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        names = chosen_names("--solver", solver, LINES) if solver else OWN
        lists = chosen_names("--pair-list", pair_list, LISTS)
        rule: Any = chosen_names("--matching", [matching], MATCHINGS)[0]
        weights = weights_of(model)
        descriptor = indoors(of_checkpoint(weights, str(where), packages(allow_targets)))
        settings = replace(default_settings(descriptor.voxel_size, seed), matching=rule)
        lines = lines_on(names, settings, where)
        simulate = {"seed": seed, "train_scenes": 0, "val_scenes": 0, "test_scenes": scenes}
        simulate["fragments"] = fragments
        pairs = {}
        for name in lists:
            workload, found = _pairs(
                name, root, data_dir, simulate, descriptor, settings, samples, a_scene
            )
            pairs[workload] = found
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    about = {"model": descriptor.name, "samples": samples, "matching": rule}
    setting = SolversSetting(
        repeats=repeats,
        print_rows=print_rows,
        out=out,
        pairs=pairs,
        lines=lines,
        distance=settings.ransac.distance,
        about={**about, "distance": round(settings.ransac.distance, 6)},
    )
    _, measured = measure("solvers", FIGURES, FIGURES, setting.having(where=where))
    stop_if_wrong(measured)


def _pairs(
    name: str,
    root: Path | None,
    data_dir: Path,
    simulate: dict[str, int],
    descriptor: Descriptor,
    settings: EstimateSettings,
    samples: int,
    a_scene: int,
) -> tuple[str, list[MatchedPair]]:
    """Name and matched pairs of a list."""
    from rich.progress import track

    from pcnn.bench.solvers.pairs import matched_pairs
    from pcnn.console import Console
    from pcnn.datasets.registration.pair_sets import ThreeDMatchSets

    given = None if root is None else str(root)
    source = "simulated" if root is None else "auto"
    data = ThreeDMatchSets(given, source, str(data_dir), name, simulate=simulate).find("test")
    console = Console()
    found = matched_pairs(
        data,
        descriptor,
        settings,
        samples,
        a_scene,
        lambda scenes: track(
            scenes, f"{name}: describing and matching", console=console, transient=True
        ),
    )
    kind = "simulated rooms, " if data.source_kind == "simulated" else ""
    return kind + data.name, found
