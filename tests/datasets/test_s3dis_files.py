"""Rooms of S3DIS from files: the published text, and arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.s3dis import CLASS_NAMES, ROOM_TYPES, find_rooms
from pcnn.datasets.s3dis.classes import room_type
from pcnn.datasets.s3dis.files import (
    RoomArrays,
    read_annotation,
    read_array_room,
    read_text_room,
    write_array_room,
)
from pcnn.errors import FileError
from tests.datasets.s3dis_rooms import room_arrays, write_set, write_text

GOOD = b"1.000 2.000 3.000 10 20 30\n"


def same(one: RoomArrays, other: RoomArrays) -> bool:
    return all(
        np.array_equal(getattr(one, stem), getattr(other, stem))
        and getattr(one, stem).dtype == getattr(other, stem).dtype
        for stem in ("coord", "color", "segment")
    )


def annotation(tmp_path: Path, text: bytes) -> Path:
    path = tmp_path / "ceiling_1.txt"
    path.write_bytes(text)
    return path


def test_classes_and_types_are_the_official_ones():
    assert CLASS_NAMES == (
        "ceiling", "floor", "wall", "beam", "column", "window", "door", "table", "chair", "sofa",
        "bookcase", "board", "clutter",
    )  # fmt: skip
    assert len(ROOM_TYPES) == len(set(ROOM_TYPES)) == 11


REPAIRED = {
    # as in Area_5/hallway_6: a control character between two numbers
    b"22.3 6.6 3.0 185.0\x10187 182": "22.3 6.6 3.0 185.0 187 182",
    b"22.3 6.6 3.0\x00103 98 90": "22.3 6.6 3.0 103 98 90",
    # as in Area_5/office_19: within a number
    b"22.3 6.6 3.0 103.0\x100000 98.0 90.0": "22.3 6.6 3.0 103.00000 98.0 90.0",
    b"22.3 6.6 3.0 103.0\x10 0000 98 90": "22.3 6.6 3.0 103.00000 98 90",
}


def test_the_known_corrupt_lines_are_repaired_and_named(tmp_path: Path):
    good = [1, 2, 3, 10, 20, 30]
    for line, meant in REPAIRED.items():
        path = annotation(tmp_path, GOOD + b"\n" + line + b"\n" + GOOD)
        values, notes = read_annotation(path)
        np.testing.assert_allclose(values, [good, [float(word) for word in meant.split()], good])
        assert notes == [f"{path}, line 3: {line!r} was read as {meant.encode()!r}"]


def test_lines_that_cannot_be_read_are_named(tmp_path: Path):
    for line in (
        b"1 2 3 4 5",
        b"1 2 3 4 5 6 7",
        b"1 2 x 4 5 6",
        b"1 2 3 4 5 \x10",
        b"1 2 nan 4 5 6",
        b"1 2 3 4 5 256",
        b"1 2 3 -1 5 6",
    ):
        path = annotation(tmp_path, GOOD * 2 + line + b"\n")
        with pytest.raises(FileError) as error:
            read_annotation(path)
        assert error.value.path == path
    with pytest.raises(FileError):  # in every line
        read_annotation(annotation(tmp_path, b"1 2 3 4 5\n" * 3))


def test_files_of_no_point_and_of_one(tmp_path: Path):
    for text in (b"", b"\n \n"):
        values, notes = read_annotation(annotation(tmp_path, text))
        assert (values.shape, notes) == ((0, 6), [])
    for ending in (b"\n", b"\r\n", b""):
        values, _ = read_annotation(annotation(tmp_path, GOOD.strip() + ending))
        assert values.tolist() == [[1, 2, 3, 10, 20, 30]]


def test_both_layouts_hold_the_same_room(tmp_path: Path):
    room = room_arrays(300)
    read, notes = read_text_room(write_text(tmp_path / "text" / "office_1", room))
    assert not notes
    assert same(read, room)
    folder = tmp_path / "arrays" / "office_1"
    write_array_room(folder, room)
    stored = {path.stem: np.load(path) for path in folder.iterdir()}
    assert {stem: (a.dtype.str, a.shape) for stem, a in stored.items()} == {
        "coord": ("<f4", (300, 3)),
        "color": ("|u1", (300, 3)),
        "segment": ("<i2", (300, 1)),
        "instance": ("<i2", (300, 1)),
    }
    assert same(read_array_room(folder), room)


def test_unknown_classes_are_clutter_and_empty_files_are_named(tmp_path: Path):
    folder = write_text(tmp_path / "hallway_1", room_arrays(50))
    (folder / "Annotations" / "stairs_1.txt").write_bytes(GOOD)
    (folder / "Annotations" / "beam_1.txt").write_bytes(b"")
    (folder / "Annotations" / ".hidden_1.txt").write_bytes(b"no point")
    (folder / "Annotations" / "notes.md").write_bytes(b"no point")
    room, notes = read_text_room(folder)
    assert room.n_points == 51
    assert (room.segment == CLASS_NAMES.index("clutter")).sum() == 1
    assert (room.segment == CLASS_NAMES.index("beam")).sum() == 0
    assert len(notes) == 2
    assert "beam_1.txt: holds no points" in notes[0]
    assert "stairs_1.txt: class 'stairs' is none of the 13" in notes[1]


def test_pointcepts_own_files_are_read(tmp_path: Path):
    room = room_arrays(30)
    write_array_room(tmp_path, room)
    np.save(tmp_path / "normal.npy", np.ones((30, 3), np.float32))
    np.save(tmp_path / "color.npy", room.color.astype(np.float32))
    np.save(tmp_path / "segment.npy", room.segment.astype(np.int64))
    read = read_array_room(tmp_path)
    assert np.array_equal(read.color, room.color)
    assert np.array_equal(read.segment, room.segment)


def test_arrays_that_make_no_sense_are_named(tmp_path: Path):
    for stem, array in (
        ("coord", np.zeros((9, 4), np.float32)),
        ("coord", np.full((9, 3), np.nan, np.float32)),
        ("color", np.full((9, 3), 300)),
        ("color", np.zeros((8, 3), np.uint8)),
        ("segment", np.full((9, 1), 13)),
        ("segment", np.zeros((9, 1), np.float32)),
    ):
        write_array_room(tmp_path, room_arrays(9))
        np.save(tmp_path / f"{stem}.npy", array)
        with pytest.raises(FileError) as error:
            read_array_room(tmp_path)
        assert error.value.path == tmp_path / f"{stem}.npy"
    write_array_room(tmp_path, room_arrays(90))
    path = tmp_path / "coord.npy"
    for torn in (path.read_bytes()[:-10], b""):
        path.write_bytes(torn)
        with pytest.raises(ValueError, match=r"coord\.npy: not a whole \.npy file"):
            read_array_room(tmp_path)


def test_rooms_are_found_in_order(tmp_path: Path):
    names = ["Area_2/office_10", "Area_2/office_2", "Area_2/WC_1", "Area_1/hallway_1"]
    write_set(tmp_path, dict.fromkeys(names, 5))
    write_text(tmp_path / "Area_1" / "lobby_1", room_arrays(5))
    (tmp_path / "Area_1" / "Area_1_alignmentAngle.txt").write_text("")
    found = find_rooms(tmp_path, [1, 2])
    assert [(room.name, room.is_text, room.area) for room in found] == [
        ("Area_1/hallway_1", False, 1),
        ("Area_1/lobby_1", True, 1),
        ("Area_2/WC_1", False, 2),
        ("Area_2/office_2", False, 2),
        ("Area_2/office_10", False, 2),
    ]
    assert [room.name for room in find_rooms(tmp_path, [2])] == [r.name for r in found[2:]]


def test_what_is_missing_is_named(tmp_path: Path):
    write_set(tmp_path, {"Area_1/office_1": 5})
    with pytest.raises(FileNotFoundError, match=r"lacks Area_5\. .*Fill in the form"):
        find_rooms(tmp_path, [1, 5])
    (tmp_path / "Area_1" / "office_2").mkdir()
    (tmp_path / "Area_1" / "office_3" / "Annotations").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"2 rooms hold neither .*office_2, .*office_3\."):
        find_rooms(tmp_path, [1])
    (tmp_path / "Area_6").mkdir()
    with pytest.raises(FileNotFoundError, match="Area_6 holds no rooms"):
        find_rooms(tmp_path, [6])


def test_types_come_from_names():
    assert ROOM_TYPES[room_type("Area_1/conferenceRoom_2")] == "conferenceRoom"
    assert [room_type(f"{name}_11") for name in ROOM_TYPES] == list(range(11))
    for name in ("stairs_1", "office", "Area_1/office1"):
        with pytest.raises(ValueError, match=f"{name}: a room is called TYPE_n"):
            room_type(name)
