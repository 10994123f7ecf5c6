from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import laspy
import numpy as np
import pytest

from pcnn.ahead import ahead, in_order
from pcnn.datasets.readers.parts import Part
from pcnn.datasets.tile_spool import TileSpool
from pcnn.datasets.tiles import CutTiles, Tiles
from tests.datasets.las_files import places, write_las


def points(n: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-30, 50, (n, 3))


@pytest.mark.parametrize(("n", "margin"), [(0, 3.0), (1, 3.0), (500, 0.0), (500, 10.0)])
def test_every_point_is_one_squares_own(n: int, margin: float, tmp_path: Path):
    cloud = points(n)
    whole = Part(np.arange(n), cloud, np.zeros((n, 1), np.float32))
    spool = TileSpool(tmp_path, 10.0, margin, 1)
    squares, returns = spool.fill([whole.select(slice(0, 200)), whole.select(slice(200, None))])
    assert returns == n
    owners = np.zeros(n, dtype=int)
    for i, j in squares:
        part = spool.read((i, j))
        own = spool.own((i, j), part.places)
        owners[part.rows[own]] += 1
        x, y = cloud[:, 0], cloud[:, 1]
        around = (x >= 10 * i - margin) & (x <= 10 * i + 10 + margin)
        around &= (y >= 10 * j - margin) & (y <= 10 * j + 10 + margin)
        assert part.rows.tolist() == np.flatnonzero(around).tolist()
        np.testing.assert_array_equal(part.places, cloud[part.rows])
        order, ranges = spool.by_owner(part.places)
        assert sorted(order.tolist()) == list(range(len(part)))
        for owner, (first, last) in ranges.items():
            of = np.flatnonzero(spool.own(owner, part.places))
            assert order[first:last].tolist() == of.tolist() != []
    assert (owners == 1).all()
    assert not list(tmp_path.iterdir())


def test_threads_keep_the_order_and_tell_errors() -> None:
    def broken() -> Iterator[int]:
        yield from range(5)
        raise OSError("gone")

    assert list(in_order(lambda number: number**2, ahead(range(40)), 3)) == [
        number**2 for number in range(40)
    ]
    assert list(ahead([])) == list(in_order(str, [], 2)) == []
    made = ahead(broken())
    assert [next(made) for _ in range(5)] == list(range(5))
    with pytest.raises(OSError, match="gone"):
        next(made)
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda number: 1 // number, [1, 0], 2))


def test_sizes_that_are_none(tmp_path: Path):
    for size in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="positive edge"):
            Tiles(points(3), size)
        with pytest.raises(ValueError, match="positive edge"):
            TileSpool(tmp_path, size, 0.0, 0)
    with pytest.raises(ValueError, match="margin must lie in"):
        TileSpool(tmp_path, 5.0, 6.0, 0)


def test_las_files_are_cut(tmp_path: Path):
    before = write_las(tmp_path / "in" / "north" / "a.las", 200)
    cut = CutTiles(tmp_path / "in", (tmp_path / "in/north/a.las",), tmp_path / "out", 15.0)
    assert cut.do(0)[0] == "made"
    made = sorted((tmp_path / "out" / "north").glob("*.laz"))
    found = [laspy.read(path) for path in made]
    # in whole millimetres, as the files hold them
    together = np.round(1000 * np.concatenate([np.asarray(part.xyz) for part in found]))
    codes = np.concatenate([np.asarray(part.classification) for part in found])
    given = np.round(1000 * places(200))
    order, wanted = np.lexsort(together.T), np.lexsort(given.T)
    np.testing.assert_array_equal(together[order], given[wanted])
    np.testing.assert_array_equal(codes[order], np.asarray(before.classification)[wanted])
    for path, part in zip(made, found, strict=True):
        i, j = map(int, path.stem.split("_")[1:])
        np.testing.assert_array_equal(
            np.floor(np.asarray(part.xyz)[:, :2] / 15), [[i, j]] * len(part.points)
        )


def test_a_cloud_is_cut_once_unless_something_changed(tmp_path: Path):
    write_las(tmp_path / "in" / "a.las", 200)

    def cut(size: float = 15.0, least: int = 1) -> str:
        clouds = (tmp_path / "in" / "a.las",)
        return CutTiles(tmp_path / "in", clouds, tmp_path / "out", size, least).do(0)[0]

    assert [cut(), cut()] == ["made", "kept"]
    next((tmp_path / "out").glob("*.laz")).unlink()
    assert [cut(), cut()] == ["made", "kept"]
    (tmp_path / "out" / ".a.tiles").write_text("{")
    assert [cut(), cut()] == ["made", "kept"]
    write_las(tmp_path / "in" / "a.las", 210)
    assert [cut(), cut()] == ["made", "kept"]


def test_tiles_of_few_points_are_told(tmp_path: Path):
    write_las(tmp_path / "in" / "a.las", 50)
    cut = CutTiles(tmp_path / "in", (tmp_path / "in/a.las",), tmp_path / "out", 1.0, 3)
    state, (note,) = cut.do(0)
    left = sum(len(laspy.read(p).points) for p in (tmp_path / "out").glob("*.laz"))
    assert state == "made"
    assert f"a.las: {50 - left} points in tiles of fewer than 3 left out" in note
