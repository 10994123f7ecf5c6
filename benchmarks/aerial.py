"""Tiles of airborne scans: pieces to train on, squares that validate, held places, their figures.

    python -m benchmarks.aerial CLONES FOLDER
    python -m benchmarks.aerial CLONES FOLDER MODEL FIGURES.json

CLONES holds a clone of every repository of ``aerial.yaml``, with its history, as OWNER+NAME. The
first line writes FOLDER, for `experiment=seg_aerial`; the second scores a network on the held
places of FOLDER/test. The data has terms of its own (docs/models.md).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import pcnn
from benchmarks.real_data import as_it_is
from pcnn.datasets.labels import read_classes
from pcnn.datasets.readers.clouds import Reading, read_columns

TABLE = Path(__file__).with_suffix(".yaml")
CHANNELS = ("return_number", "number_of_returns")
KIND = np.dtype([*((a, "f4") for a in "xyz"), *((name, "u1") for name in (*CHANNELS, "label"))])
PIECES, MOST, SPARSE, SEED = 1400, 120_000, 0.3, 7
#: Shares of pieces that are thinned, that forget their returns, and that hold a bridge of the tile.
THINNED, FORGETFUL, BRIDGES = 0.6, 0.15, 0.25
BINS = 15


def tile(spec: Mapping[str, Any], files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the map [P, 3], and records of the other columns [P]."""
    tables = [read_columns(path, Reading(CHANNELS)) for path in files]
    places = np.concatenate([np.asarray(table.places) for table in tables])
    rows = np.zeros(len(places), KIND)
    for name, found in (*((name, name) for name in CHANNELS), ("label", "classification")):
        rows[name] = np.concatenate([table.values[found] for table in tables])
    if spec.get("unlabelled"):
        rows["label"][~np.isin(rows["label"], (2, 6))] = 0
    low, high = spec.get("x", (-math.inf, math.inf))
    above = places[:, 2] - np.median(places[:, 2])  # of 150 m and more: birds, and stray echoes
    there = (places[:, 0] >= low) & (places[:, 0] < high) & (abs(above) < 150)
    there &= ~np.isin(rows["label"], (7, 18, 66))
    return places[there], rows[there]


def write(path: Path, places: np.ndarray, rows: np.ndarray, forget: bool = False) -> None:
    middle = (places.min(0) + places.max(0)) / 2
    middle[2] = np.median(places[:, 2])
    for axis, values in zip("xyz", (places - np.round(middle)).T, strict=True):
        rows[axis] = values
    for name in CHANNELS if forget else ():
        rows[name] = 1
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, rows)


def piece(spec: Mapping[str, Any], places: np.ndarray, rows: np.ndarray, draw: Any) -> np.ndarray:
    """Rows of a turned square somewhere in the tile, perhaps thinned."""
    flat, bridge = places[:, :2], np.flatnonzero(rows["label"] == 17)
    while True:
        edge = math.exp(draw.uniform(*np.log(spec["edges"])))
        low, high = flat.min(0) + 0.35 * edge, flat.max(0) - 0.35 * edge
        middle = draw.uniform(low, np.maximum(high, low + 0.1))
        if draw.random() < BRIDGES and len(bridge):
            middle = flat[draw.choice(bridge)] + draw.uniform(-0.4, 0.4, 2) * edge
        turn = np.exp(1j * draw.uniform(0, 2 * math.pi))
        turned = (flat - middle) @ [[turn.real, -turn.imag], [turn.imag, turn.real]]
        chosen = np.flatnonzero((abs(turned) <= edge / 2).all(1))
        density, keep = len(chosen) / edge**2, MOST / max(len(chosen), 1)
        if draw.random() < THINNED and density > SPARSE:
            keep = min(keep, math.exp(draw.uniform(math.log(SPARSE / density), 0)))
        chosen = chosen[draw.random(len(chosen)) < keep]
        if len(chosen) > 300 and np.count_nonzero(rows["label"][chosen]) > 200:
            return chosen


def make(clones: Path, folder: Path, table: Mapping[str, Any]) -> None:
    as_it_is("classes.yaml", yaml.safe_dump(table["classes"], sort_keys=False).encode(), folder)
    draw, tiles = np.random.default_rng(SEED), {}
    for split in ("train", "val", "test"):
        for name, spec in table[split].items():
            git = ["git", "-C", str(clones / spec["repository"].replace("/", "+")), "cat-file"]
            paths = []
            for number, blob in enumerate(spec["blobs"]):
                content = subprocess.run([*git, "blob", blob], capture_output=True, check=True)
                paths.append(f"{split if split == 'test' else 'tiles'}/{name}_{number}.laz")
                as_it_is(paths[-1], content.stdout, folder)
            if split != "test":
                tiles[name] = tile(spec, [folder / path for path in paths])
    shares = {name: spec["share"] for name, spec in table["train"].items()}
    chance = np.array(list(shares.values())) / sum(shares.values())
    for number, name in enumerate(draw.choice(list(shares), PIECES, p=chance)):
        places, rows = tiles[name]
        chosen = piece(table["train"][name], places, rows, draw)
        path = folder / f"train/{number:05d}_{name}.npy"
        write(path, places[chosen], rows[chosen], draw.random() < FORGETFUL)
    for name, spec in table["val"].items():
        places, rows = tiles[name]
        cells = np.floor((places[:, :2] - places[:, :2].min(0)) / (spec["edge"] + 0.01)).astype(int)
        for keep in spec["keep"]:
            for x, y in np.unique(cells, axis=0):
                inside = (cells == (x, y)).all(1) & (draw.random(len(rows)) < keep)
                write(folder / f"val/{name}_{keep}_{x}_{y}.npy", places[inside], rows[inside])


def scored(folder: Path, model: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Of every held place points by class and answer [C, C], and sums of the calibration [B, 3].

    Where class 1 is all that is no ground and no building, each vegetation and other answers it.
    """
    labels, found = read_classes(table["classes"]), {}
    size, other = len(labels.class_names), labels.class_names.index("other")
    for name, spec in table["test"].items():
        path = folder / f"test/{name}_0.laz"
        answer = pcnn.predict(path, model)
        truth = labels.encode(np.asarray(read_columns(path, Reading(())).labels), str(path))
        said, sure = answer.classes[truth < size].astype(int), answer.confidence[truth < size]
        truth = truth[truth < size]
        if spec.get("unlabelled"):
            said = np.where((said > 0) & (said < 4), other, said)
        counts = np.bincount(truth * size + said, minlength=size**2).reshape(size, size)
        bins = np.minimum((sure * BINS).astype(int), BINS - 1)
        sums = [np.bincount(bins, weights, BINS) for weights in (None, sure, truth == said)]
        found[name] = {"counts": counts.tolist(), "bins": np.round(np.transpose(sums), 1).tolist()}
    return {"classes": list(labels.class_names), "model": model, "places": found}


def main() -> None:
    table, (clones, folder, *more) = yaml.safe_load(TABLE.read_text()), map(Path, sys.argv[1:])
    if not more:
        make(clones, folder, table)
        return
    model, target = more
    text = json.dumps(scored(folder, str(model), table))
    as_it_is(target.name, text.encode(), target.parent)


if __name__ == "__main__":
    main()
