from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.config.values import values_in
from pcnn.datasets.labels import IGNORE, contents, read_classes
from pcnn.datasets.semantic_kitti_labels import SEMANTIC_KITTI


def test_official_map():
    assert SEMANTIC_KITTI.num_classes == 19
    names = ("car", "bicycle", "motorcycle", "truck", "other-vehicle")
    assert SEMANTIC_KITTI.class_names[:5] == names
    raw = np.array([0, 1, 10, 252, 13, 16, 20, 40, 60, 44, 52, 99, 81, 254, 258, 259, 255])
    train = SEMANTIC_KITTI.encode(raw.astype(np.uint32), "scan")
    expected = [255, 255, 0, 0, 4, 4, 4, 8, 8, 9, 255, 255, 18, 5, 3, 4, 7]
    assert train.tolist() == expected
    assert train.dtype == np.int64
    assert len(SEMANTIC_KITTI.raw_to_train) == 34
    train = np.array([*range(19), IGNORE])
    words = SEMANTIC_KITTI.decode(train)
    assert (words.dtype, words[-1]) == (np.uint32, 0)
    assert SEMANTIC_KITTI.encode(words, "scan").tolist() == train.tolist()


def test_unknown_ids_are_named():
    for raw in (2, 100, 65535):
        with pytest.raises(ValueError, match=rf"a/b\.label: raw label {raw} \(2 points"):
            SEMANTIC_KITTI.encode(np.array([40, raw, raw], dtype=np.uint32), "a/b.label")
    for train in (-1, 19, 256):
        with pytest.raises(ValueError, match=str(train)):
            SEMANTIC_KITTI.decode(np.array([0, train]))


# -- class files

WHOLE = """
names: [ground, tree, house]
colors: [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
map:
  2: ground
  5: tree
  4: tree
  6: house
ignore: [1, 7]
"""


def test_labels_of_the_files(tmp_path: Path):
    path = tmp_path / "classes.yaml"
    path.write_text(WHOLE)
    labels = read_classes(path)
    assert labels.class_names == ("ground", "tree", "house")
    assert labels.colors[1] == (4, 5, 6)
    train = labels.encode(np.array([2, 4, 5, 6, 1, 7]), "a.las")
    assert train.tolist() == [0, 1, 1, 2, IGNORE, IGNORE]
    assert labels.decode(train).tolist() == [2, 5, 5, 6, 1, 1]
    assert read_classes(contents(labels)) == labels
    assert list(values_in(contents(labels), ""))  # a checkpoint can hold it


def test_negative_labels():
    labels = read_classes({"names": ["a", "b"], "map": {-5: "a", 3: "b"}, "ignore": -1})
    assert labels.encode(np.array([-5, 3, -1]), "x").tolist() == [0, 1, IGNORE]
    assert labels.decode(np.array([0, IGNORE])).tolist() == [-5, -1]
    for unknown in (-6, -2, 0, 4, 10**6):
        with pytest.raises(ValueError, match=rf"x: raw label {unknown} \(1 points\)"):
            labels.encode(np.array([3, unknown]), "x")


WRONG = {
    # text of a class file: the key that is named
    "names: [a": "not YAML",
    "- a": "mapping",
    "{}": "names",
    "names: [a, a]": "names",
    "names: [a, b]\ncolors: [[1, 2, 3]]": "colors",
    "names: [a]\ncolors: [[1, 2, 300]]": "colors",
    "names: [a]\nmap: {2: b}": "map: label 2",
    "names: [a, b]\nmap: {2: a}": "map: no label for b",
    "names: [a]\nmap: {ground: a}": "map",
    "names: [a]\nmap: {2: a, 2: a}": "given twice",
    "names: [a]\nmap: {2: a}\nignore: [2]": "ignore: label 2",
    "names: [a]\nignore: [x]": "ignore",
    "names: [a]\ncolours: []": "unknown key colours",
}


def test_entries_that_do_not_fit_are_named(tmp_path: Path):
    path = tmp_path / "classes.yaml"
    for text, said in WRONG.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=rf"classes\.yaml: .*{said}"):
            read_classes(path)
