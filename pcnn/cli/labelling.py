"""The work of `pcnn predict` on one cloud after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.progress import Progress, SpinnerColumn

from pcnn.cli.options import chosen_reading
from pcnn.console import Console
from pcnn.datasets.label_files import write_labelled
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.clouds import Part, PartedCloud, Reading, open_parts
from pcnn.datasets.readers.columns import PART
from pcnn.errors import UserError
from pcnn.experiment.classify import Classified, classify
from pcnn.experiment.predict import Segmenters
from pcnn.experiment.predictor import Predictor
from pcnn.files.bounded import forget_pages
from pcnn.files.simulated import is_simulated
from pcnn.messages import counted, visible
from pcnn.visualize import write_coloured_ply_parts
from pcnn.visualize.segmentation import segmentation_picture
from pcnn.visualize.view import POINTS, View, ViewedCloud

if TYPE_CHECKING:
    from pcnn.cli.predict import PredictOptions

#: Points of a picture.
_DRAWN = 200_000
#: Share of the work on a cloud in squares that is done before its results are written.
_CLASSIFIED = 0.8
#: Mean confidence below which a cloud is doubted.
_DOUBTED = 0.6


@dataclass
class Labelling:
    """Labels clouds and counts what it finds."""

    segmenters: Segmenters
    options: PredictOptions
    console: Console
    view: bool = False  # write pages for the browser
    alone: bool = False  # whether there is one cloud, whose files are named
    _counts: dict[Predictor, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _doubted: int = 0
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
        predictor, cloud = self._opened(path)
        plain = replace(cloud, reading=cloud.reading.places_alone)
        given = self.options
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent, prefix=".tiles-") as folder:
            found = classify(
                predictor,
                cloud,
                Path(folder),
                *(given.crop, given.tile, given.margin),
                lambda share: told(_CLASSIFIED * share),
                lambda part: self._doubt(predictor, path, part),
            )
            if found.note:
                self.console.say(f"{path}: {found.note}")
            self._write(predictor, plain, found, target, Path(folder))

    def summarise(self) -> None:
        """Print how many points have each class, and how sure the networks were."""
        if self._doubted > 1:
            text = f"{self._doubted} clouds are unlike those of the training; above is the first"
            self.console.say(text, "note", "yellow")
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

    def _reading(self, own: Reading) -> Reading:
        given = self.options
        numbers = given.intensity_max, given.scale
        return chosen_reading(own, given.columns, given.fill, *numbers)

    def _opened(self, path: Path) -> tuple[Predictor, PartedCloud]:
        """The network for a cloud, and the cloud as this network reads it."""
        predictor, why = self.segmenters.suited(lambda own: open_parts(path, self._reading(own)))
        if why:
            self._say(f"{path}: {why}; --model names another", why.partition(":")[0])
        cloud, notes = predictor.fitted(open_parts(path, self._reading(predictor.reading)))
        for note in notes:
            self._say(f"{path}: {note}", note.split(" ")[0])
        if predictor.source == "simulated":
            self._say("this network was trained on simulated data")
        if predictor.trained_crop is not None and self.options.crop is None:
            self._say(
                f"this network was trained within {predictor.trained_crop} m of the sensor; "
                f"--crop {predictor.trained_crop} leaves points beyond that unlabelled"
            )
        return predictor, cloud

    def _say(self, text: str, subject: str = "") -> None:
        if (subject or text) not in self._told:  # once for all clouds
            self._told.add(subject or text)
            self.console.say(text)

    def _doubt(self, predictor: Predictor, path: Path, part: Part) -> None:
        doubts = predictor.doubts(part)
        for doubt in doubts if not self._doubted else ():  # one cloud tells of all
            self.console.say(f"{path}: {doubt}", "note", "yellow")
        self._doubted += bool(doubts)

    def _write(
        self,
        predictor: Predictor,
        cloud: PartedCloud,
        found: Classified,
        target: Path,
        folder: Path,
    ) -> None:
        labels = _labels(predictor, found, folder)
        trust = found.confidence if self.options.confidence else None
        files = write_labelled(target, cloud.path, labels, predictor.as_words, trust)
        if self.options.ply:
            own = "_classes" if files["labels"].suffix == ".ply" else ""
            path = target.with_name(f"{target.name}{own}.ply")
            far = cloud.in_map or bool(np.abs(cloud.sample(100)).max(initial=0) > 1e4)
            fields = {"label": "<i4"} | ({"confidence": "<f4"} if self.options.confidence else {})
            write_coloured_ply_parts(path, _coloured(predictor, cloud, found), fields, wide=far)
            files["coloured"] = path
        if self.options.picture:
            files["picture"] = self._draw(predictor, cloud, found, target)
        if self.view and found.returns:
            page = target.with_name(f"{target.name}.html")
            files["in browser"] = prediction_view(predictor, cloud, found).write(page)
        for kind, path in files.items() if self.alone else ():
            self.console.say(f"{kind + ':':<12}{path}")
        number, sums = found.counts(len(predictor.class_names))
        mean = sums.sum() / max(number.sum(), 1)
        if number.sum() and mean < _DOUBTED:
            text = f"{cloud.path}: the mean confidence is {mean:.2f}: look at the labels"
            self.console.say(text, "note", "yellow")
        before = self._counts.get(predictor, (0, 0))
        self._counts[predictor] = (before[0] + number, before[1] + sums)
        self._rows += cloud.points
        self._lost += cloud.points - found.returns

    def _draw(
        self, predictor: Predictor, cloud: PartedCloud, found: Classified, target: Path
    ) -> Path:
        trained: Any = "simulated training" if predictor.source == "simulated" else None
        step = max(1, cloud.points // _DRAWN)
        drawn = _joined([part.select(np.arange(0, len(part), step)) for part in cloud])
        return segmentation_picture(
            drawn.places - (drawn.places.mean(axis=0) if cloud.in_map and len(drawn) else 0),
            None,
            found.classes[drawn.rows],
            predictor.class_names,
            predictor.colors[:-1],
            target.with_name(f"{target.name}.png"),
            visible(cloud.path.name),
            source="simulated" if is_simulated(cloud.path) else trained,
        )


def _labels(predictor: Predictor, found: Classified, folder: Path) -> np.ndarray:
    """Labels of all rows of a file, as the files of the training set hold them."""
    table = predictor.label_table
    known = table[[*range(len(predictor.class_names)), IGNORE]]
    kind = np.result_type(np.min_scalar_type(known.min()), np.min_scalar_type(known.max()))
    labels: np.ndarray
    if not isinstance(found.classes, np.memmap):
        return table.astype(kind)[found.classes]
    labels = np.memmap(folder / "labels", kind, "w+", shape=(len(found.classes),))
    for first in range(0, len(labels), PART):
        part = slice(first, first + PART)
        labels[part] = table[found.classes[part]]
        forget_pages(labels, found.classes)
    return labels


def _coloured(
    predictor: Predictor, cloud: PartedCloud, found: Classified
) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    for part in cloud:
        classes = found.classes[part.rows]
        rgb = predictor.rgb(torch.from_numpy(classes.astype(np.int64)))
        values = {"label": classes, "confidence": found.confidence[part.rows] / np.float32(255)}
        yield part.places / cloud.reading.scale, rgb, values


def prediction_view(
    predictor: Predictor, cloud: PartedCloud, found: Classified, points: int = POINTS
) -> View:
    """A page of classes and confidence, with what the file holds of so many points at most."""
    own = replace(cloud.reading, channels=None, fill={})
    step = -(-cloud.points // points) if cloud.points else 1
    part = _joined([one.select(one.rows % step == 0) for one in replace(cloud, reading=own)])
    channels = part.channels.shape[1]  # intensity, then three colours, as far as the file has them
    shares = part.channels[:, -3:]  # of 0..1, or of 0..255 where one is above
    top = 255.0 if shares.max(initial=0.0) > 1.0 else 1.0
    colours = np.round(np.clip(shares / top, 0.0, 1.0) * 255).astype(np.uint8)
    shown = ViewedCloud(
        visible(cloud.path.name),
        part.places / cloud.reading.scale,
        part.rows,
        part.channels[:, 0] if channels in (1, 4) else None,
        colours if channels in (3, 4) else None,
        {"prediction": found.classes[part.rows]},
        found.confidence[part.rows] / 255,
        simulated=is_simulated(cloud.path),
    )
    notes = [f"{len(part):,} of {cloud.points:,} points"] if step > 1 else []
    if predictor.source == "simulated":
        notes.append("predicted by a network trained on SIMULATED data")
    return View(
        [shown],
        predictor.class_names,
        predictor.colors[:-1],
        title=visible(cloud.path.name),
        note=". ".join(notes),
        points=points,
    )


def _joined(parts: list[Part]) -> Part:
    return Part(
        np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]),
        np.concatenate([np.empty((0, 3)), *(part.places for part in parts)]),
        np.concatenate([part.channels for part in parts])
        if parts
        else np.empty((0, 0), np.float32),
    )
