"""`pcnn predict`: classes for the points of a file or a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os.path import realpath
from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import ARGUMENT, refusing
from pcnn.cli.options import filled
from pcnn.experiment.options import PredictOptions
from pcnn.messages import counted, say

#: Clouds up to which each has a page without being asked for: a page takes some MB.
_VIEWED = 10


@dataclass(frozen=True, kw_only=True)
class PredictCommand(PredictOptions):
    paths: Annotated[
        list[Path],
        ARGUMENT,
        "Clouds, or folders; in front of them may stand a checkpoint of a segmentation run.",
    ]
    out: Annotated[Path, "Folder for the results."] = Path("predictions")
    fill: Annotated[
        list[str] | None, "Number for a channel that a cloud lacks, as in intensity=0; repeat."
    ] = None
    ply: Annotated[bool, "Write a coloured .ply beside the labels."] = True
    view: Annotated[
        bool | None,
        "--view/--no-view",
        "Write NAME.html, the labelled cloud in a browser; of ten clouds or fewer unless given.",
    ] = None


def predict(options: PredictCommand) -> None:
    """Label every point of clouds; write labels, a coloured .ply and a page of each.

    Labels are those of the data the network was trained on, in the format of the cloud: .las, .laz
    and .ply whole; of .bin files, and by networks of SemanticKITTI, NAME.label with a word a point;
    of others NAME_label.npy. The coloured cloud is NAME.ply, or NAME_classes.ply beside a
    labelled .ply. The confidence of every point, 0..1, is a property of clouds, and
    NAME_confidence.npy beside labels alone.

    Channels are found by name. Missing returns (NaN, or zeros) are written as unlabelled. A file
    that cannot be read is named, the others are labelled, and the exit code is 1.
    """
    from pcnn.cli.labelling import Labelling
    from pcnn.console import Console
    from pcnn.experiment.predict import Segmenters

    console, out = Console(), options.out
    model, paths = separated(options.model, options.paths)
    with refusing():
        segmenters = Segmenters(replace(options, model=model), filled(options.fill))
        if model is not None:
            segmenters.load(model)
        targets, missing = plan_targets(paths, out)
    view = len(targets) <= _VIEWED if options.view is None else options.view
    labelling = Labelling(segmenters, console, options.ply, view, named=len(targets) == 1)
    bad = missing + labelling.label_all(targets)
    labelling.summarise()
    done = len(targets) + len(missing) - len(bad)
    if done or not bad:
        console.say(f"{counted(done, 'cloud')} labelled in {out}")
    for line in bad:
        console.say(line, "not labelled", "red")
    if bad:
        raise typer.Exit(1)


def separated(model: str | None, paths: list[Path]) -> tuple[str | None, list[Path]]:
    """The model and the clouds of a command line, whose first path may be a checkpoint."""
    from pcnn.checkpoints.exported_file import SUFFIX
    from pcnn.datasets.readers.clouds import SUFFIXES
    from pcnn.datasets.readers.formats import TEXTS

    first, *others = paths
    of_a_run = first.suffix.lower() in (".ckpt", ".pt", SUFFIX)
    of_a_cloud = first.is_dir() or first.suffix.lower() in (*SUFFIXES, *TEXTS)
    if not of_a_run and (model is not None or not others or of_a_cloud):
        return model, paths
    if model is not None:
        raise typer.BadParameter(f"--model {model} and the checkpoint {first}: name one of them")
    if not others:
        raise typer.BadParameter(f"{first} is a checkpoint; name clouds behind it")
    return str(first), others


def plan_targets(paths: list[Path], out: Path) -> tuple[dict[Path, Path], list[str]]:
    """Result of every cloud, without suffix, and what is missing among the paths."""
    from pcnn.datasets.label_files import is_cloud_file, without_label_files
    from pcnn.datasets.readers.clouds import SUFFIXES
    from pcnn.datasets.readers.formats import TEXTS

    targets: dict[Path, Path] = {}
    missing: list[str] = []
    owners: dict[Path, Path] = {}
    results = out.resolve()
    for path in paths:
        clouds = [path]
        if path.is_dir():
            files = sorted(path.rglob("*"))
            clouds = without_label_files(c for c in files if is_cloud_file(c))
            texts = [file for file in files if file.suffix.lower() in TEXTS]
            if clouds and texts:  # they may be anything
                passed = counted(len(texts), "text")
                say(f"{path}: {passed} beside other clouds passed over, name those that are clouds")
            clouds = clouds or texts
            if path.resolve() in results.parents:  # results of a run before
                clouds = [c for c in clouds if results not in Path(realpath(c)).parents]
            if not clouds:
                formats = ", ".join((*SUFFIXES, *TEXTS))
                missing.append(f"{path}: no cloud ({formats}) in this folder")
        elif not path.exists():
            missing.append(f"{path}: no such file or folder")
            continue
        for cloud in clouds:
            place = cloud.relative_to(path) if path.is_dir() else Path(cloud.name)
            target = out / place.with_suffix("")
            if owners.setdefault(target, cloud) != cloud:
                raise ValueError(f"{owners[target]} and {cloud} would both be written to {target}")
            targets[cloud] = target
    among = {cloud.parent.resolve() for cloud in targets}
    for cloud, target in targets.items():
        if target.parent.resolve() in among:
            raise ValueError(
                f"the result of {cloud} would lie among the clouds in {target.parent} and might "
                "replace one; give another folder as --out"
            )
    return targets, missing
