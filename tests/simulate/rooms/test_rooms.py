"""Rooms lie in the files of S3DIS, in both of its layouts, and say the same in both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.s3dis.classes import CLASS_NAMES, ROOM_TYPES
from pcnn.files.simulated import is_simulated
from pcnn.simulate.rooms.s3dis import S3DIS, do_room, plan_area, simulate_rooms
from tests.simulate.rooms.conftest import ROOMS

LINE = re.compile(r"-?\d+\.\d{3} -?\d+\.\d{3} -?\d+\.\d{3} \d{1,3} \d{1,3} \d{1,3}")


def room_folders(root: Path) -> list[Path]:
    return sorted(p for area in root.glob("Area_*") for p in area.iterdir() if p.is_dir())


def objects(room: Path) -> dict[str, np.ndarray]:
    return {p.stem: np.loadtxt(p, ndmin=2) for p in sorted((room / "Annotations").iterdir())}


def test_areas_rooms_and_alignment(rooms: Path) -> None:
    assert {p.name for p in rooms.iterdir()} == {
        "SIMULATED.json", *(f"Area_{n}" for n in range(1, 7)),
    }  # fmt: skip
    assert is_simulated(rooms / "Area_5")
    for folder in room_folders(rooms):
        kind, number = folder.name.rsplit("_", 1)
        assert kind in ROOM_TYPES
        assert number == "1"
        area = folder.parent
        text = (area / f"{area.name}_alignmentAngle.txt").read_text().splitlines()
        assert [line.startswith("##") for line in text] == [True, True, False]
        name, angle = text[2].split()
        assert name == folder.name
        assert int(angle) % 90 == 0


def test_annotations_add_up_to_the_room(rooms: Path) -> None:
    record = json.loads((rooms / "SIMULATED.json").read_text())
    assert (record["format"], record["version"]) == ("s3dis", S3DIS.version)
    seen = set()
    for folder in room_folders(rooms):
        text = (folder / f"{folder.name}.txt").read_text()
        assert all(LINE.fullmatch(line) for line in text.splitlines()[:200])  # as the real ones
        whole = np.loadtxt(text.splitlines())
        parts = objects(folder)
        assert whole.shape[1] == 6
        stacked = np.concatenate(list(parts.values()))
        order = np.lexsort(whole.T), np.lexsort(stacked.T)
        np.testing.assert_array_equal(whole[order[0]], stacked[order[1]])
        assert ((whole[:, 3:] >= 0) & (whole[:, 3:] <= 255)).all()
        assert (whole[:, 3:] % 1 == 0).all()
        assert whole[:, 3:].std() > 10
        own = record["areas"][folder.parent.name][folder.name]
        assert own["points"] == len(whole)
        assert own["objects"] == len(parts)
        held = dict.fromkeys(CLASS_NAMES, 0)
        for name, points in parts.items():
            held[name.split("_")[0]] += len(points)
        assert own["points_by_class"] == {k: v for k, v in held.items() if v}
        seen |= set(own["points_by_class"])
        # floor below, ceiling above, upright
        floor = np.concatenate([v for k, v in parts.items() if k.startswith("floor")])
        ceiling = np.concatenate([v for k, v in parts.items() if k.startswith("ceiling")])
        assert np.median(floor[:, 2]) < 1.2 < np.median(ceiling[:, 2])
    assert {"ceiling", "floor", "wall", "door", "table", "chair", "clutter"} <= seen


def test_arrays_hold_the_same_room(rooms: Path, tmp_path: Path) -> None:
    (job,) = plan_area(ROOMS["seed"], 1, 1, ROOMS["spacing"], "arrays")
    do_room(tmp_path, job)
    folder = tmp_path / "Area_1" / job.name
    arrays = {p.stem: np.load(p) for p in folder.iterdir()}
    assert {k: v.dtype.str for k, v in arrays.items()} == {
        "coord": "<f4", "color": "|u1", "segment": "<i2", "instance": "<i2",
    }  # fmt: skip
    count = len(arrays["coord"])
    assert arrays["segment"].shape == arrays["instance"].shape == (count, 1)
    parts = objects(rooms / "Area_1" / job.name)
    assert len(parts) == len(np.unique(arrays["instance"]))
    for name, points in parts.items():
        label = CLASS_NAMES.index(name.split("_")[0])
        own = arrays["segment"][:, 0] == label
        distance = np.abs(arrays["coord"][own][:, None] - points[None, :5, :3]).max(2).min(0)
        assert distance.max() < 6e-4


def test_first_rooms_do_not_depend_on_how_many_and_all_types_come() -> None:
    few = [plan_area(0, area, 2, 0.1, "text") for area in range(1, 7)]
    many = [plan_area(0, area, 30, 0.1, "text") for area in range(1, 7)]
    assert [plan[:2] for plan in many] == few
    assert {job.room_type for plan in many for job in plan} == set(ROOM_TYPES)
    assert all(len({job.name for job in plan}) == 30 for plan in many)


def test_arguments_that_make_no_sense_are_named(tmp_path: Path) -> None:
    for wrong, message in (
        ({"rooms": 0}, "rooms=0"),
        ({"spacing": 0.0}, "spacing=0.0"),
        ({"seed": -2}, "seed=-2"),
        ({"layout": "ply"}, "layout 'ply' is unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            simulate_rooms(tmp_path / "set", progress=False, **wrong)
        assert not (tmp_path / "set").exists()
