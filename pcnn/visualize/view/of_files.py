"""Clouds for a page, of files in every format that is read, with labels beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.label_files import confidence_file, label_files, read_labels
from pcnn.datasets.readers.clouds import Reading, read_columns
from pcnn.datasets.readers.columns import COLORS, Columns, valid_returns
from pcnn.errors import FileError
from pcnn.files.bounded import finite_numbers, named, numbered_lines, read_json, read_npy
from pcnn.files.simulated import is_simulated
from pcnn.messages import counted
from pcnn.visualize.view.cloud import ViewedCloud

_PLAIN = Reading()


def viewed_file(
    path: Path,
    labels: Path | None = None,
    truth: Path | None = None,
    confidence: Path | None = None,
    reading: Reading = _PLAIN,
) -> ViewedCloud:
    """Read a cloud with its labels, as files hold them.

    Labels that the cloud's own file holds, or one beside it, are the truth where `labels` are given
    and no `truth`, else a layer of their own. A classification of LAS files, which is always there,
    is a layer of its own unless it is named as one of both. Missing returns are left out. A cloud
    in the folder of a simulated set (`pcnn.files.simulated`) is marked as simulated.
    """
    with named(path, f"{path.suffix} file"):
        table = read_columns(path, reading, "confidence")
        rows = np.flatnonzero(valid_returns(table.places))
        if not len(rows):
            raise FileError(path, f"no return among {counted(len(table), 'point')}")
        layers = _layers(path, table, labels, truth, reading)
        trust = _confidence(path, table, labels, confidence, reading)
        return ViewedCloud(
            path.name,
            table.places[rows],
            rows,
            _intensity(table, rows),
            _colours(table, reading, rows),
            {name: values[rows] for name, values in layers.items()},
            None if trust is None else trust[rows],
            simulated=is_simulated(path),
        )


def _layers(
    path: Path, table: Columns, labels: Path | None, truth: Path | None, reading: Reading
) -> dict[str, NDArray[np.int64]]:
    found = {}
    if labels is not None:
        found["prediction"] = labels_of(labels, len(table), reading)
    if truth is not None:
        found["truth"] = labels_of(truth, len(table), reading)
    beside = label_files(path)
    if truth is None and len(beside) == 1 and beside[0] != labels:
        own = _labels_beside(path, beside[0], table)
        found["labels" if labels is None else "truth"] = own
    elif table.labels is not None and (truth is None or table.in_map):
        held_as_truth = labels is not None and not table.in_map
        found["truth" if held_as_truth else "labels"] = table.labels.astype(np.int64)
    return found


def _labels_beside(path: Path, beside: Path, table: Columns) -> NDArray[np.int64]:
    try:
        return read_labels(beside, len(table))
    except FileError as error:
        if table.labels is None:
            raise
        # pcnn predict writes NAME.ply without missing returns beside NAME.label with them
        raise FileError(
            error.path,
            f"{error.rule}; if {path.name} is a coloured copy that pcnn predict wrote, view the "
            f"cloud that was labelled: pcnn view CLOUD --labels {beside}",
        ) from error


def labels_of(path: Path, n_points: int, reading: Reading = _PLAIN) -> NDArray[np.int64]:
    """Labels [P] of a file of labels, or of a cloud that holds them."""
    if path.suffix == ".label" or (path.suffix == ".npy" and read_npy(path).ndim == 1):
        return read_labels(path, n_points)
    found = read_columns(path, reading, "confidence").labels
    if found is None:
        raise FileError(path, "holds no labels (a property label or class, or classification)")
    if len(found) != n_points:
        raise FileError(path, f"{len(found)} labels for a cloud of {n_points} points")
    return found.astype(np.int64)


def _confidence(
    path: Path, table: Columns, labels: Path | None, given: Path | None, reading: Reading
) -> NDArray[np.floating] | None:
    if given is not None:
        if given.suffix == ".npy" and read_npy(given).ndim == 1:
            return _confidence_file(given, len(table))
        held = _held_confidence(read_columns(given, reading, "confidence"))
        if held is None:
            raise FileError(given, "holds no confidence (a property of that name, in 0..1)")
        if len(held) != len(table):
            raise FileError(given, f"{len(held)} points for a cloud of {len(table)}")
        return held
    for place in (labels, path):
        if place is None:
            continue
        if place == path or place.suffix.lower() not in (".label", ".npy"):
            held = _held_confidence(
                table if place == path else read_columns(place, reading, "confidence")
            )
            if held is not None:
                return held
        beside = confidence_file(place)
        if beside.is_file():
            return _confidence_file(beside, len(table))
    return None


def _held_confidence(table: Columns) -> NDArray[np.floating] | None:
    """What a cloud holds under this name; None where it means something else than 0..1."""
    values = table.find("confidence")
    if values is None or values.ndim != 1 or values.dtype.kind != "f":
        return None
    return values if ((values >= 0) & (values <= 1)).all() else None


def _confidence_file(path: Path, n_points: int) -> NDArray[np.floating]:
    values = read_npy(path)
    if values.shape != (n_points,) or values.dtype.kind != "f":
        raise FileError(
            path,
            f"confidence must be {n_points} numbers, found {values.dtype} {list(values.shape)}",
        )
    return values


def _intensity(table: Columns, rows: NDArray[np.integer]) -> NDArray[np.float32] | None:
    """Intensity as the file has it; None where it has none or it is no finite number."""
    values = table.find("intensity")
    if values is None or values.ndim != 1:
        return None
    with np.errstate(over="ignore"):
        shown = values[rows].astype(np.float32)
    return shown if np.isfinite(shown).all() else None


def _colours(
    table: Columns, reading: Reading, rows: NDArray[np.integer]
) -> NDArray[np.uint8] | None:
    """Colours in 0..255."""
    if any(table.find(name) is None for name in COLORS):
        return None
    rgb = replace(reading, channels=COLORS).values(table)[rows]
    if not np.isfinite(rgb).all():
        return None
    return np.round(np.clip(rgb, 0.0, 1.0) * 255).astype(np.uint8)


def read_pose(path: Path) -> NDArray[np.float64]:
    """The transform [4, 4] of a file, source to target."""
    with named(path, "pose"):
        if path.suffix == ".json":
            content = read_json(path)
            rows = content.get("transform") if isinstance(content, dict) else None
            values = np.array(rows, dtype=np.float64) if isinstance(rows, list) else np.empty(0)
        elif path.suffix == ".npy":
            values = read_npy(path).astype(np.float64)
        else:
            lines = [(number, text.split()) for number, text in numbered_lines(path)]
            values = np.array(
                [finite_numbers(path, number, words, 4) for number, words in lines if words]
            )
        if values.shape == (3, 4):
            values = np.concatenate([values, [[0.0, 0.0, 0.0, 1.0]]])
        if values.shape != (4, 4) or not np.isfinite(values).all():
            raise FileError(path, f"a pose is [4, 4] finite numbers, found {list(values.shape)}")
        if not np.allclose(values[3], [0, 0, 0, 1]):
            raise FileError(path, "the last line of a pose is 0 0 0 1")
        return values


def posed_pair(clouds: Sequence[ViewedCloud], pose: NDArray[np.floating]) -> list[ViewedCloud]:
    """A source and a target, the source with the pose that registers it, in the usual colours."""
    from pcnn.visualize.registration import SOURCE, TARGET

    if len(clouds) != 2:
        raise ValueError(f"a pose moves one cloud onto another: give two, not {len(clouds)}")
    source, target = clouds
    return [replace(source, pose=pose, color=SOURCE), replace(target, color=TARGET)]
