"""`pcnn view` and `pcnn report`: clouds, and a run, as a page for the browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import ARGUMENT, refusing
from pcnn.cli.options import Open, each
from pcnn.experiment.options import Columns
from pcnn.messages import counted, say
from pcnn.ranges import Count


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    files: Annotated[list[Path], ARGUMENT, "Clouds (.las, .ply, .pcd, .npy, .bin, .txt, ...)."]
    labels: Annotated[list[Path] | None, "Predicted labels (.label, ...), one a cloud."] = None
    truth: Annotated[list[Path] | None, "True labels, likewise; one a cloud."] = None
    confidence: Annotated[list[Path] | None, "Confidence of every point; one a cloud."] = None
    classes: Annotated[
        str | None, "Class file, or kitti, s3dis or las; by the files unless given."
    ] = None
    pose: Annotated[
        Path | None, "Transform of the first of two clouds onto the second (.json, .npy or text)."
    ] = None
    out: Annotated[Path, "The page."] = Path("view.html")
    points: Annotated[Count, "The most points of the page; others are left out evenly."] = 1_000_000
    columns: Columns = None
    show: Open = False


def view(options: ViewOptions) -> None:
    """Write a page that shows clouds in a browser: one file, which needs no network.

    Points are coloured by class, errors, height, intensity, confidence or their own colours, and
    a click on one shows its values. Labels and confidence in a cloud or beside it are found.
    """
    from pcnn.datasets.readers.clouds import Reading, chosen_columns
    from pcnn.visualize.view import View
    from pcnn.visualize.view.classes import with_classes
    from pcnn.visualize.view.of_files import posed_pair, read_pose, viewed_file

    files, out, points = options.files, options.out, options.points
    predicted, true, trust = (
        each(name, getattr(options, name), len(files)) for name in ("labels", "truth", "confidence")
    )
    for path in files:
        if path.is_dir():
            raise typer.BadParameter(f"{path} is a folder; name the clouds in it")
    if realpath(out) in map(realpath, files):  # which takes a link to itself
        raise typer.BadParameter(f"--out {out} would replace a cloud; name another file")
    with refusing():
        reading = Reading(columns=chosen_columns(options.columns))
        clouds = [
            viewed_file(*one, reading) for one in zip(files, predicted, true, trust, strict=True)
        ]
        if options.pose is not None:
            clouds = posed_pair(clouds, read_pose(options.pose))
        clouds, chosen = with_classes(
            clouds, options.classes, usual(files, options.labels, options.truth)
        )
        View(clouds, chosen.names, chosen.colors, points=points).write(out)
    held = sum(map(len, clouds))
    shown = "all of" if held <= points else f"{points:,} of"
    say(f"{out}: {shown} {counted(held, 'point')}, {out.stat().st_size / 1e6:.1f} MB")
    if options.show:
        show_page(out)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    run: Annotated[Path, ARGUMENT, "Folder of pcnn train or eval."]
    out: Annotated[Path, "The page."] = Path("report.html")
    show: Open = False


def report(options: ReportOptions) -> None:
    """Write a run as one page: its figures, curves, confusion and configuration.

    Curves are those of logger=csv. The page is one file, which needs no network.
    """
    from pcnn.cli.run_report import write_report

    with refusing():
        curves = write_report(options.out, options.run)
    if not curves:
        say("no curves: an evaluation, or a run without logger=csv")
    say(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")
    if options.show:
        show_page(options.out)


def usual(
    files: Sequence[Path], labels: Sequence[Path] | None, truth: Sequence[Path] | None
) -> str | None:
    """The classes that files of a kind usually mean: words are SemanticKITTI's."""
    from pcnn.datasets.label_files import label_files

    found = [*(labels or ()), *(truth or ()), *(one for path in files for one in label_files(path))]
    if found and all(path.suffix == ".label" for path in found):
        return "kitti"
    if all(path.suffix.lower() in (".las", ".laz") for path in (*files, *found)):
        return "las"
    return None


def show_page(path: Path) -> None:
    """Open a page in the browser, and say so where there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        say(f"no browser found here; open {path} in one", error=True)
