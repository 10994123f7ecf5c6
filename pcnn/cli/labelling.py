"""The work of `pcnn predict` on one cloud after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.progress import Progress, SpinnerColumn

from pcnn.console import Console
from pcnn.datasets.label_files import write_labelled
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.clouds import PartedCloud, open_parts
from pcnn.datasets.readers.columns import PART
from pcnn.errors import UserError
from pcnn.experiment.classify import Labelled
from pcnn.experiment.predict import Segmenters
from pcnn.experiment.predictor import FULL, Predictor
from pcnn.files.bounded import forget_pages
from pcnn.files.simulated import is_simulated
from pcnn.messages import counted, visible
from pcnn.visualize import write_coloured_ply_parts
from pcnn.visualize.view import POINTS, View, ViewedCloud

#: Share of the work on a cloud that is done before its results are written.
_CLASSIFIED = 0.8
#: Mean confidence below which a cloud is doubted.
_DOUBTED = 0.6


@dataclass
class Labelling:
    """Labels clouds and counts what it finds."""

    segmenters: Segmenters
    console: Console
    ply: bool = True  # write coloured clouds
    view: bool = False  # write pages for the browser
    named: bool = False  # say which files are written
    _counts: dict[Predictor, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _rows: int = 0
    _lost: int = 0

    def label_all(self, targets: Mapping[Path, Path]) -> list[str]:
        """Label the clouds one after the other; returns why some could not be."""
        bad: list[str] = []
        # a cloud that is labelled whole moves no bar: something else must move
        columns = SpinnerColumn(), *Progress.get_default_columns()
        still = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=still) as progress:
            bar = progress.add_task("labelling", total=len(targets))
            for number, (path, target) in enumerate(targets.items()):

                def told(share: float, number: int = number) -> None:
                    progress.update(bar, completed=number + share)

                try:
                    self.label(path, target, told)
                except (UserError, OSError) as error:  # OSError: the result cannot be written
                    bad.append(str(error) if str(path) in str(error) else f"{path}: {error}")
                told(1.0)
        return bad

    def label(self, path: Path, target: Path, told: Callable[[float], None]) -> None:
        """Label a cloud; its results are called as `target`, which gets their suffixes."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent, prefix=".tiles-") as folder:
            done = self.segmenters.label(
                partial(open_parts, path),
                Path(folder),
                lambda share: told(_CLASSIFIED * share),
            )
            for note in (*done.notes, *done.doubts):
                self._say(path, note)
            number, sums = done.counts()
            files = self._write(done, target, Path(folder), self.view and bool(number.any()))
        for kind, written in files.items() if self.named else ():
            self.console.say(f"{kind + ':':<12}{written}")
        mean = sums.sum() / max(number.sum(), 1)
        if number.sum() and mean < _DOUBTED:
            self._say(path, f"the mean confidence is {mean:.2f}: look at the labels")
        before = self._counts.get(done.predictor, (0, 0))
        self._counts[done.predictor] = (before[0] + number, before[1] + sums)
        self._rows += done.cloud.points
        self._lost += done.cloud.points - int(number.sum())

    def summarise(self) -> None:
        """Print how many points have each class, and how sure the networks were."""
        for predictor, (number, sums) in self._counts.items():
            if number.sum():
                self.console.print(f"{'class':>20} {'points':>13} {'share':>9}   confidence")
            for row in np.argsort(-number, kind="stable")[: np.count_nonzero(number)]:
                count, share = number[row], 100 * number[row] / number.sum()
                text = f"{count:>13,} {share:7.1f} %   {sums[row] / count:10.2f}"
                self.console.say(f"{predictor.class_names[row]:>20} {text}")
        if self._lost:
            self.console.say(
                f"{self._lost:,} of {counted(self._rows, 'point')} are missing returns (NaN, or "
                "zeros) and written as unlabelled"
            )

    def _say(self, path: Path, note: str) -> None:
        subject = " ".join(note.split()[:2])
        if subject not in self._said:  # of one cloud for all
            self._said.add(subject)
            self.console.say(f"{path}: {note}", "note", "yellow")

    def _write(self, done: Labelled, target: Path, folder: Path, view: bool) -> dict[str, Path]:
        """Write labels, and what else is asked for; files by what they hold."""
        cloud = replace(done.cloud, reading=done.cloud.reading.places_alone)
        words = done.predictor.as_words
        files = write_labelled(target, cloud.path, _labels(done, folder), words, done.confidence)
        if self.ply:
            own = "_classes" if files["labels"].suffix == ".ply" else ""
            path = target.with_name(f"{target.name}{own}.ply")
            far = cloud.in_map or bool(np.abs(cloud.sample(100)).max(initial=0) > 1e4)
            fields = {"label": "<i4", "confidence": "<f4"}
            write_coloured_ply_parts(path, _coloured(done, cloud), fields, wide=far)
            files["coloured"] = path
        if view:
            page = target.with_name(f"{target.name}.html")
            files["in browser"] = prediction_view(done).write(page)
        return files


def _labels(done: Labelled, folder: Path) -> np.ndarray:
    """Labels of all rows of a file, as the files of the training set hold them."""
    table, points = done.predictor.label_table, len(done.classes)
    known = table[[*range(len(done.predictor.class_names)), IGNORE]]
    kind = np.result_type(np.min_scalar_type(known.min()), np.min_scalar_type(known.max()))
    labels = np.memmap(folder / "labels", kind, "w+", shape=(max(points, 1),))[:points]
    for first in range(0, len(labels), PART):
        part = slice(first, first + PART)
        labels[part] = table[done.classes[part]]
        forget_pages(labels, done.classes)
    return labels


def _coloured(
    done: Labelled, cloud: PartedCloud
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    for part in cloud:
        classes = done.classes[part.rows]
        values = {"label": classes, "confidence": done.confidence[part.rows] / np.float32(FULL)}
        yield part.places / cloud.reading.scale, done.predictor.colors[classes], values


def prediction_view(done: Labelled, points: int = POINTS) -> View:
    """A page of classes and confidence, with what the file holds of so many points at most."""
    cloud, predictor = done.cloud, done.predictor
    own = replace(cloud.reading, channels=None, fill={})
    step = -(-cloud.points // points) if cloud.points else 1
    parts = [one.select(one.rows % step == 0) for one in replace(cloud, reading=own)]
    rows, places, held = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("rows", "places", "channels")
    )
    channels = held.shape[1]  # intensity, then three colours, as far as the file has them
    colours = np.round(np.clip(held[:, -3:], 0.0, 1.0) * 255).astype(np.uint8)
    name = visible(cloud.path.name)
    shown = ViewedCloud(
        name,
        places / cloud.reading.scale,
        rows,
        held[:, 0] if channels in (1, 4) else None,
        colours if channels in (3, 4) else None,
        {"prediction": done.classes[rows]},
        done.confidence[rows] / FULL,
        simulated=is_simulated(cloud.path),
    )
    notes = [f"{len(rows):,} of {cloud.points:,} points"] if step > 1 else []
    if predictor.source == "simulated":
        notes.append("predicted by a network trained on SIMULATED data")
    note = ". ".join(notes)
    names, colors = predictor.class_names, predictor.colors
    return View([shown], names, colors, title=name, note=note, points=points)
