"""Folders of real data, made from the files of public repositories, with checksums.

    python -m benchmarks.real_data SET CLONE FOLDER

CLONE is a clone of the set's repository: a checkout, or its git directory. Every file that is
taken stands in FOLDER/SHA256SUMS, and the digest of that list must be that of the figures.
The sets have terms of their own (docs/data_sets.md); nothing of them comes with the package.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pcnn.datasets.s3dis_labels import CLASS_NAMES
from pcnn.files.whole_file import whole_file

#: Labels of ScanNet (NYU40) as classes of S3DIS. All others are clutter, but those of UNKNOWN.
SCANNET = {
    1: "wall", 2: "floor", 20: "floor", 5: "chair", 6: "sofa", 7: "table", 14: "table",
    8: "door", 9: "window", 10: "bookcase", 22: "ceiling", 30: "board",
}  # fmt: skip
UNKNOWN = (0, 11, 13, 16, 19, 28, 38)
"""Not counted: no label, picture, blinds, curtain, mirror, shower curtain, other structure."""
COLUMNS = ("x", "y", "z", "red", "green", "blue")


def as_it_is(path: str, content: bytes, folder: Path) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as file:
        file.write(content)


@dataclass(frozen=True)
class RealSet:
    """The files of a repository that make a set."""

    repository: str  # owner/name
    pattern: str  # of the paths that are taken, with one group: the path in the set
    digest: str  # of the list of files
    write: Callable[[str, bytes, Path], None] = as_it_is  # a file of the set into the folder
    finish: Callable[[Path], None] = lambda folder: None


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
    counted = (label for label in range(1, 41) if label not in UNKNOWN)
    found = {label: SCANNET.get(label, "clutter") for label in counted}
    names = [name for name in CLASS_NAMES if name in found.values()]
    text = json.dumps({"names": names, "map": found, "ignore": list(UNKNOWN)}, indent=1)
    as_it_is("classes.yaml", re.sub(r'"(\d+)":', r"\1:", text).encode(), folder)


SETS = {
    "kitti": RealSet(
        "rancheng/mini_kitti_dataset",
        r"dataset/(sequences/\d\d/(?:(?:velodyne|labels)/\d{6}\.\w+|\w+\.txt))",
        "a8510897e6dd03c7943d06da452d0fc5951764568cdb1be30cd222d0dc9933bb",
    ),
    "scannet": RealSet(
        "picwoon/votenet",
        r"scannet/scannet_train_detection_data/(scene\d+_\d+_(?:vert|sem_label)\.npy)",
        "7c94273c2e86c6408d5914e8cd393b4ec278aa50f8689c35724f14acb27c5aa6",
        scene,
        scannet_classes,
    ),
    "nuscenes": RealSet(
        "ika-rwth-aachen/PCLSegmentation",
        r"dataset_samples/nuscenes/(\w+/\d+\.npy)",
        "7ec090d5941ed9bf38cb04ccc3baad0b47ff38622973f75c4accfbcf41c8f93f",
    ),
    "oakland": RealSet(
        "colegulino/Point-Cloud-Segmentation",
        r"Data/cmu_oakland_data/(.+\.xyz_label_conf)",
        "6743394494fa997d32f3f41be4eae75d0b8d02d74ed5885055b5d8dcbc0be9f6",
    ),
}


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


def make(wanted: RealSet, clone: Path, folder: Path) -> str:
    """Write a set and its list of checksums, whose digest is returned."""
    sums = []
    for path, content in files(clone, wanted.pattern):
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {path}\n")
        wanted.write(path, content, folder)
    if not sums:
        raise SystemExit(f"{clone} holds no file of {wanted.repository}")
    text = "".join(sorted(sums, key=lambda line: line.split("  ")[1])).encode()
    as_it_is("SHA256SUMS", text, folder)
    wanted.finish(folder)
    return hashlib.sha256(text).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("clone", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    wanted = SETS[given.set]
    digest = make(wanted, given.clone, given.folder)
    if digest != wanted.digest:
        raise SystemExit(f"{given.folder} is not the set of the figures: its digest is {digest}")
    print(f"{given.folder}: {given.set}, digest {digest[:12]} as in the figures")


if __name__ == "__main__":
    main()
