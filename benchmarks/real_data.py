"""Folders of real data, made from the files of public repositories, with checksums.

    python -m benchmarks.real_data SET CLONE FOLDER
    python -m benchmarks.real_data aerial CLONES FOLDER
    python -m benchmarks.real_data score FIGURES.json FOLDER

CLONE is a clone of the set's repository: a checkout, or its git directory. Every file that is
taken stands in FOLDER/SHA256SUMS, and the digest of that list must be that of the figures. CLONES
are those of the airborne tiles, as OWNER+NAME; the last line scores `seg_aerial` on held ones.
The sets have terms of their own (docs/data_sets.md); nothing of them comes with the package.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import laspy
import numpy as np
import yaml

import pcnn
from pcnn.datasets.labels import read_classes
from pcnn.datasets.s3dis_labels import CLASS_NAMES
from pcnn.files.whole_file import whole_file

SETS, TILES = (
    yaml.safe_load(Path(__file__).with_name(name).read_text())
    for name in ("real_data.yaml", "aerial.yaml")
)
BINS = 15
COLUMNS = ("x", "y", "z", "red", "green", "blue")


def as_it_is(path: str, content: bytes, folder: Path) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as file:
        file.write(content)


def scene(path: str, content: bytes, folder: Path) -> None:
    """ScanNet's vertices [N, 6] with colours of 0 to 255, or their labels, of VoteNet's export."""
    values = np.load(io.BytesIO(content), allow_pickle=False)
    name = path[: len("scene0000_00")]
    if path.endswith("_sem_label.npy"):
        as_it_is(f"{name}.label", values.astype("<u4").tobytes(), folder)
        return
    values = np.concatenate([values[:, :3], values[:, 3:6] / 255], axis=1, dtype=np.float32)
    made = io.BytesIO()
    np.save(made, values.view([(column, "f4") for column in COLUMNS])[:, 0], allow_pickle=False)
    as_it_is(f"{name}.npy", made.getvalue(), folder)


def scannet_classes(folder: Path) -> None:
    """The map from ScanNet's labels, as the class file that `dataset=folder` reads."""
    known, unknown = SETS["scannet"]["map"], SETS["scannet"]["unknown"]
    found = {label: known.get(label, "clutter") for label in range(1, 41) if label not in unknown}
    names = [name for name in CLASS_NAMES if name in found.values()]
    text = json.dumps({"names": names, "map": found, "ignore": unknown}, indent=1)
    as_it_is("classes.yaml", re.sub(r'"(\d+)":', r"\1:", text).encode(), folder)


def files(clone: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Committed files whose path fits, by the group of the pattern."""
    git = ["git", "-C", str(clone)]
    listed = subprocess.run([*git, "ls-tree", "-r", "HEAD"], capture_output=True, check=True)
    for line in listed.stdout.decode().splitlines():
        facts, path = line.split("\t", 1)
        name = re.fullmatch(pattern, path)
        if name:
            blob = [*git, "cat-file", "blob", facts.split()[2]]
            yield name[1], subprocess.run(blob, capture_output=True, check=True).stdout


def tiles(clones: Path, folder: Path) -> None:
    """Airborne tiles, by the names of their blobs, from clones that are called OWNER+NAME."""
    as_it_is("classes.yaml", yaml.safe_dump(TILES["classes"], sort_keys=False).encode(), folder)
    for split in ("train", "val", "test"):
        for name, spec in TILES[split].items():
            git = ["git", "-C", str(clones / spec["repository"].replace("/", "+")), "cat-file"]
            for number, blob in enumerate(spec["blobs"]):
                held = subprocess.run([*git, "blob", blob], capture_output=True, check=True).stdout
                las, made = laspy.read(io.BytesIO(held)), io.BytesIO()
                low, high = spec.get("x", (-np.inf, np.inf))
                las.points = las.points[(las.x >= low) & (las.x < high)]
                if spec.get("unlabelled") and split != "test":
                    las.classification[las.classification == 1] = 0
                las.write(made, do_compress=True)
                as_it_is(f"{split}/{name}_{number}.laz", made.getvalue(), folder)


def score(target: Path, folder: Path) -> None:
    """Of held tiles points by class and answer [C, C], and sums of the calibration [B, 3]."""
    labels, found = read_classes(TILES["classes"]), {}
    size, other = len(labels.class_names), labels.class_names.index("other")
    for name, spec in TILES["test"].items():
        path = folder / f"test/{name}_0.laz"
        answer = pcnn.predict(path, "seg_aerial")
        truth = labels.encode(np.asarray(laspy.read(path).classification), str(path))
        known = truth < size
        truth, said, sure = (
            truth[known],
            answer.classes[known].astype(int),
            answer.confidence[known],
        )
        if spec.get("unlabelled"):  # all vegetation is other there
            said = np.where((said > 0) & (said < 4), other, said)
        counts = np.bincount(truth * size + said, minlength=size**2).reshape(size, size)
        bins = np.minimum((sure * BINS).astype(int), BINS - 1)
        sums = [np.bincount(bins, weights, BINS) for weights in (None, sure, truth == said)]
        found[name] = {"counts": counts.tolist(), "bins": np.round(np.transpose(sums), 1).tolist()}
    target.write_text(json.dumps({"classes": labels.class_names, "places": found}) + "\n")


def make(name: str, clone: Path, folder: Path) -> None:
    wanted, sums = SETS[name], []
    for path, content in files(clone, wanted["pattern"]):
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {path}\n")
        (scene if name == "scannet" else as_it_is)(path, content, folder)
    text = "".join(sorted(sums, key=lambda line: line.split("  ")[1])).encode()
    as_it_is("SHA256SUMS", text, folder)
    if name == "scannet":
        scannet_classes(folder)
    digest = hashlib.sha256(text).hexdigest()
    if digest != wanted["digest"]:
        raise SystemExit(f"{folder} is not the set of the figures: {clone} gives {digest}")
    print(f"{folder}: {name}, digest {digest[:12]} as in the figures")


if __name__ == "__main__":
    wanted, *paths = sys.argv[1], *map(Path, sys.argv[2:])
    if wanted == "aerial":
        tiles(*paths)
    elif wanted == "score":
        score(*paths)
    else:
        make(wanted, *paths)
