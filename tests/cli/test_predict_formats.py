"""Every format comes back, with and without a checkpoint, of clouds larger than memory, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import laspy
import numpy as np
import pytest
import torch

import pcnn
from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import write_exported
from pcnn.datasets.readers.clouds import open_parts
from pcnn.experiment import weights
from pcnn.experiment.classify import classify
from pcnn.experiment.predictor import Predictor
from tests.cli.invoking import invoke
from tests.cli.test_predict import cloud, run, saved
from tests.datasets.clouds import records_of, write_vertices
from tests.datasets.las_files import write_las


def test_results_lie_beside_a_cloud_or_in_it_and_are_those_of_memory(
    kitti: Path, tmp_path: Path
) -> None:
    points, source, out = cloud(300), tmp_path / "in", tmp_path / "out"
    source.mkdir()
    points.tofile(source / "bin.bin")
    fields = np.zeros(300, [(n, "f4") for n in ("x", "y", "z", "intensity")])
    for name, column in zip(fields.dtype.names or (), points.T, strict=True):
        fields[name] = column
    write_vertices(source / "ply.ply", fields)
    text = run(kitti, *sorted(source.iterdir()), "--out", out, "--no-ply")
    assert "2 clouds labelled" in text
    assert "class points share confidence" in text
    wanted = np.fromfile(out / "bin.label", "<u4")
    assert len(set(wanted)) > 1
    np.testing.assert_array_equal(records_of(out / "ply.ply")["label"], wanted)
    sure = np.load(out / "bin_confidence.npy")  # of a .label, which stays what it was
    assert 0 < sure.min() <= sure.max() <= 1
    np.testing.assert_array_equal(records_of(out / "ply.ply")["confidence"], sure)
    in_memory = pcnn.predict(points[:, :3], kitti, channels={"intensity": points[:, 3]})
    np.testing.assert_array_equal(in_memory.labels, wanted)
    short = torch.from_numpy(points).bfloat16()  # which numpy has no type for
    channels = {"intensity": short[:, 3]}
    exact = pcnn.predict(short[:, :3].float(), kitti, channels=channels)
    np.testing.assert_array_equal(
        pcnn.predict(short[:, :3], kitti, channels=channels).labels, exact.labels
    )
    for given, named in (((1j * points)[:, :3], "points"), (points[:, :3], "channel intensity")):
        with pytest.raises(ValueError, match=f"{named} must hold numbers"):
            pcnn.predict(given, kitti, channels={"intensity": 1j * points[:, 3]})
    np.savetxt(source / "bare.txt", points, "%.9g")
    np.testing.assert_array_equal(pcnn.predict(source / "bare.txt", kitti).labels, wanted)
    assert "1 text" in run(kitti, source, "--out", tmp_path / "of the folder", "--no-ply")


@pytest.fixture
def nothing_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights come with the package."""
    monkeypatch.setattr(weights, "SHIPPED", tmp_path)


@pytest.mark.usefixtures("nothing_ships")
def test_without_a_checkpoint(kitti: Path, tmp_path: Path) -> None:
    points = cloud(300)
    points.tofile(tmp_path / "room.bin")
    (points * [6, 6, 1, 1]).astype(np.float32).tofile(tmp_path / "street.bin")
    words = (tmp_path / "room.bin", tmp_path / "street.bin", "--out", tmp_path / "out")
    text = run(*words, code=1)
    for name in ("seg_rooms", "seg_streets"):
        assert name in text
    # as soon as there are such weights
    found = RunCheckpoint.read(kitti)
    for name in ("seg_rooms", "seg_streets"):
        about = {"pcnn_config": found.config, "global_step": 1}
        write_exported(tmp_path / f"{name}.safetensors", found.weights, about)
    text = run(*words)
    assert "room.bin: seg_rooms: the cloud spans 1" in text
    assert "street.bin: seg_streets: the cloud spans 8" in text
    assert ".ply" not in text  # of one cloud the files are named
    text = invoke("predict", tmp_path / "room.bin", "--model", kitti, "--out", tmp_path / "named")
    assert "spans" not in text
    for path in ("room.label", "room.ply", "room.html"):
        assert str(tmp_path / "named" / path) in text
    for refused in ((kitti, "--model", "seg_rooms"), (kitti,)):
        assert "name" in invoke("predict", *refused, code=2)
    for device in ("tpu", "cuda:99"):
        assert device in run(*words, "--device", device, code=2)


@pytest.mark.usefixtures("nothing_ships")
def test_a_cloud_gets_the_same_classes_wherever_it_lies(kitti: Path) -> None:
    points = cloud(900).astype(np.float64)
    places, channels = points[:, :3].round(2), {"intensity": points[:, 3]}
    far = np.array([640.0, -320.0, 48.0])

    def found(at: np.ndarray, tile: float | None = None) -> np.ndarray:
        return pcnn.predict(at, kitti, channels=channels, tile=tile).classes

    assert (found(places + far) == found(places + 2 * far)).all()
    assert (found(places + far, 16.0) == found(places, 16.0)).all()
    reading = Predictor.load(kitti, torch.device("cpu")).reading
    assert not reading.origin(places, in_map=True).any()  # as about a sensor
    assert np.abs(reading.origin(places + far, in_map=False) - far).max() < 2
    for height, moved in ((48.0, 48.0), (-1.7, 0.0)):
        raised = places + np.array([0, 0, height])
        assert reading.origin(raised, in_map=False).tolist() == [0, 0, moved]


def test_a_square_is_classified_with_what_lies_around_it(
    kitti: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against each square by itself, of a cloud in several parts."""
    places = np.asarray(write_las(tmp_path / "a.laz", 3000).xyz)
    predictor = Predictor.load(kitti, torch.device("cpu"))
    predictor = replace(predictor, temperature=1e22)  # random weights are that sure
    parts = open_parts(tmp_path / "a.laz", predictor.reading)
    whole = parts.whole()
    monkeypatch.setattr("pcnn.datasets.readers.clouds.PART", 700)
    (tmp_path / "tiles").mkdir()
    found = classify(predictor, parts, tmp_path / "tiles", 13.0)
    assert found.counts()[0].sum() == 3000
    assert len(np.unique(found.confidence)) > 9
    squares = np.floor(places[:, :2] / 13)
    different = {tuple(square) for square in squares}
    assert found.notes[0].startswith(f"squares of 13 m, {len(different)} of them")
    for square in different:
        own, low = (squares == square).all(axis=1), np.array(square) * 13.0
        near = ((places[:, :2] >= low - 5) & (places[:, :2] <= low + 13 + 5)).all(axis=1)
        inputs = predictor.inputs(whole.select(near), parts.path, True, piece=True)
        classes, confidence = predictor.scored(inputs, parts.path)
        np.testing.assert_array_equal(found.classes[own], classes[own[near]])
        np.testing.assert_array_equal(found.confidence[own], confidence[own[near]])


def test_large_files_are_cut_by_themselves(
    kitti: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_las(tmp_path / "in" / "a.laz", 2500)
    monkeypatch.setattr("pcnn.experiment.classify._SQUARE", 900)
    monkeypatch.setattr("pcnn.experiment.classify.WHOLE", 1000)
    assert "tile" in run(kitti, tmp_path / "in", "--tile", 1, code=2)
    text = run(kitti, tmp_path / "in", "--out", tmp_path / "out")
    assert "squares of" in text
    after = laspy.read(tmp_path / "out" / "a.laz")
    for name in before.point_format.dimension_names:
        if name != "classification":
            np.testing.assert_array_equal(after[name], before[name])
    coloured = records_of(tmp_path / "out" / "a.ply")
    np.testing.assert_array_equal(coloured["x"], before.x)
    raw = np.asarray(after.classification)
    predictor = Predictor.load(kitti, torch.device("cpu"))
    np.testing.assert_array_equal(predictor.label_table[coloured["label"]], raw)
    rgb = np.stack([coloured[name] for name in ("red", "green", "blue")], 1)
    np.testing.assert_array_equal(rgb, predictor.colors[coloured["label"]])


CLASSES = {
    "names": ["ground", "tree", "house"],
    "map": {2: "ground", 5: "tree", 6: "house"},
    "ignore": [1],
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    keys = {"classes": CLASSES, "class_names": None, "channels": None, "crop": None}
    return saved(tmp_path / "best.ckpt", "folder", further=4, **keys)  # intensity, colour


def test_las_files_come_back_with_classes(own: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "tiles", tmp_path / "out"
    before = write_las(source / "north" / "a.las")
    write_las(source / "b.LAZ")
    (source / "c.laz").write_bytes((source / "b.LAZ").read_bytes()[:-9])
    text = run(own, source, "--out", out, code=1)
    assert "2 clouds labelled" in text
    assert f"not labelled: {source / 'c.laz'}: not a whole LAS file" in text
    after = laspy.read(out / "north" / "a.las")
    np.testing.assert_array_equal(after.xyz, before.xyz)
    np.testing.assert_array_equal(after.intensity, before.intensity)
    assert set(np.asarray(after.classification)) <= {2, 5, 6}
    coloured = records_of(out / "north" / "a.ply")  # at the coordinates of the map, too
    np.testing.assert_allclose(coloured["x"], before.x, atol=1e-6)
    written = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    files = {"b.laz", "b.ply", "north/a.las", "north/a.ply"}
    assert written == files | {"b_confidence.npy", "north/a_confidence.npy"}


def test_results_never_replace_a_cloud(own: Path, tmp_path: Path) -> None:
    tiles = tmp_path / "tiles"
    write_las(tiles / "a.las")
    write_las(tiles / "deep" / "b.las")
    write_las(tmp_path / "c.las")
    before = (tiles / "a.las").read_bytes()
    for words in ((tiles,), (tiles / "a.las",), (tmp_path / "c.las", tiles / "a.las")):
        text = run(own, *words, "--out", tiles, code=2)
        assert "might replace one; give another folder as --out" in text
    assert (tiles / "a.las").read_bytes() == before
    assert len(list(tiles.iterdir())) == 2
    # a folder below the clouds is the results' own, one above them holds no cloud
    for out in (tmp_path, tiles / "out"):
        assert "2 clouds labelled" in run(own, tiles, "--out", out, "--no-ply")
