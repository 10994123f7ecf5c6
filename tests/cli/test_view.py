"""`pcnn view`: what of the files lands on the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.files.simulated import write_marker
from pcnn.visualize import write_coloured_ply
from tests.cli.invoking import invoke
from tests.visualize.view.test_page import held


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """Eight points and two missing returns of KITTI, with raw labels beside them."""
    points = np.random.default_rng(0).uniform(0.1, 0.9, (10, 4)).astype("<f4")
    points[[3, 7], :3] = 0
    (tmp_path / "velodyne").mkdir()
    (tmp_path / "labels").mkdir()
    points.tofile(tmp_path / "velodyne" / "000000.bin")
    np.array([40, 40, 10, 0, 10, 252, 0, 0, 50, 70], "<u4").tofile(
        tmp_path / "labels" / "000000.label"
    )
    return tmp_path / "velodyne" / "000000.bin"


def test_labels_beside_a_scan_are_its_truth(scan: Path, tmp_path: Path) -> None:
    page, predicted = tmp_path / "v.html", tmp_path / "p.label"
    np.full(10, 10, "<u4").tofile(predicted)
    np.save(tmp_path / "c.npy", np.linspace(0, 1, 10))
    trust = "--confidence", tmp_path / "c.npy"
    labels = "view", scan, "--out", page, "--labels", predicted
    assert "all of 8 points" in invoke(*labels, *trust)
    content, arrays = held(page)
    (cloud,) = content["clouds"]
    names = [one["name"] for one in content["classes"]]
    rows = arrays[cloud["arrays"]["rows"]]
    assert sorted(rows) == [0, 1, 2, 4, 5, 6, 8, 9]
    truth = dict(zip(rows, arrays[cloud["labels"]["truth"]], strict=True))
    expected = {0: "road", 2: "car", 5: "car", 6: "no class", 8: "building", 9: "vegetation"}
    assert {row: names[truth[row]] for row in expected} == expected
    assert {names[one] for one in arrays[cloud["labels"]["prediction"]]} == {"car"}
    assert np.allclose(arrays[cloud["arrays"]["confidence"]], rows / 9)

    invoke("view", scan, "--out", page)
    (cloud,) = held(page)[0]["clouds"]
    assert list(cloud["labels"]) == ["labels"]
    copy = tmp_path / "p.ply"  # as pcnn predict writes it, without missing returns
    write_coloured_ply(copy, np.ones((8, 3)), np.zeros((8, 3), np.uint8), np.zeros(8, int))
    assert f"--labels {predicted}" in invoke("view", copy, "--out", page, code=2)
    np.full(10, 3, "<u4").tofile(predicted)  # no label of SemanticKITTI
    invoke(*labels, "--truth", predicted)
    assert held(page)[0]["classes"][0]["name"] == "label 3"
    assert "raw label 3" in invoke(*labels, "--classes", "kitti", code=2)
    invoke(*labels, "--truth", predicted, "--classes", "s3dis")
    assert [one["name"] for one in held(page)[0]["classes"]][3] == "beam"


def test_classes_of_las_and_of_a_class_file(tmp_path: Path) -> None:
    laspy = pytest.importorskip("laspy")
    header = laspy.LasHeader(point_format=6, version="1.4")
    header.scales, header.offsets = [0.001] * 3, [412_000, 5_412_000, 0]
    las = laspy.LasData(header)
    las.x = 412_345.678 + np.arange(4)
    las.y, las.z = np.full(4, 5_412_345.021), np.full(4, 812.5)
    las.classification = np.array([2, 6, 1, 6], np.uint8)
    las.write(tmp_path / "a.laz")
    page = tmp_path / "v.html"
    invoke("view", tmp_path / "a.laz", "--out", page)
    content, _ = held(page)
    assert [one["name"] for one in content["classes"]][:3] == ["unclassified", "ground", "building"]
    assert content["clouds"][0]["decimals"] == 3
    classes = tmp_path / "classes.yaml"
    classes.write_text("names: [ground, house]\nmap: {2: ground, 6: house}\nignore: [1]\n")
    invoke("view", tmp_path / "a.laz", "--out", page, "--classes", classes)
    assert held(page)[0]["classes"][1]["name"] == "house"


def test_files_that_do_not_fit_are_named(scan: Path, tmp_path: Path) -> None:
    short, page, loop = tmp_path / "short.npy", tmp_path / "v.html", tmp_path / "loop.ply"
    np.save(short, np.zeros(3, np.int64))
    np.zeros((4, 4), "<f4").tofile(tmp_path / "none.bin")
    alone = tmp_path / "alone" / "a.bin"  # without labels, whose classes are still looked for
    alone.parent.mkdir()
    alone.write_bytes(scan.read_bytes())
    loop.symlink_to(loop)
    for words, named in (
        ((scan, "--labels", short), short),
        ((scan, "--labels", short, "--labels", short), "--labels"),
        ((scan, "--labels", scan), "holds no labels"),
        ((scan, "--out", scan), "--out"),
        ((tmp_path / "absent.bin",), tmp_path / "absent.bin"),
        ((tmp_path,), tmp_path),
        ((tmp_path / "none.bin",), tmp_path / "none.bin"),
        ((alone, "--classes", "absent"), "absent"),
        ((loop,), f"{loop}: "),
    ):
        assert str(named) in invoke("view", "--out", page, *words, code=2)
    assert not page.exists()


def test_simulated_clouds_are_marked(scan: Path, tmp_path: Path) -> None:
    page = tmp_path / "v.html"
    real = tmp_path / "real.bin"
    real.write_bytes(scan.read_bytes())
    for folder, marked in ((None, ""), (scan.parent, ": 000000.bin"), (tmp_path, "")):
        if folder is not None:
            write_marker(folder, {})
        invoke("view", scan, real, "--out", page)
        mark = held(page)[0]["simulated"]
        assert mark == ("SIMULATED DATA" + marked if folder is not None else "")
