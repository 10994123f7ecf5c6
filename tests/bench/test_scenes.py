from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.bench.clouds import load_clouds, room, size_name, surfaces
from pcnn.bench.native.variants import sites_of
from pcnn.bench.scenes import load_scene, load_scenes, noise, slab, surface
from pcnn.geometry import Kernel
from pcnn.ops.engine import resolve

CPU = torch.device("cpu")


def test_a_workload_file_is_read(tmp_path: Path) -> None:
    coords = np.array([[0, -1, 2, 3], [0, -1, 2, 4], [1, 0, 0, 0]], dtype=np.int32)
    np.savez(tmp_path / "street.npz", coords=coords, voxel_size=0.05)
    scene = load_scene(str(tmp_path / "street.npz"))
    assert scene.name == "street"
    assert scene.grid.coords.tolist() == coords.tolist()
    assert scene.grid.batch_size == 2
    assert [s.name for s in load_scenes(str(tmp_path / "street.npz"), [0.1])] == ["street"]


def test_what_is_no_workload_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="surface_20k"):
        load_scene("nowhere.npz")
    np.savez(tmp_path / "floats.npz", coords=np.zeros((3, 4)))
    with pytest.raises(ValueError, match="integers"):
        load_scene(str(tmp_path / "floats.npz"))
    np.savez(tmp_path / "other.npz", points=np.zeros((3, 4)))
    with pytest.raises(ValueError, match="no array coords"):
        load_scene(str(tmp_path / "other.npz"))
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04torn")
    for load in (load_scene, load_scenes):
        with pytest.raises(ValueError, match=r"no (array coords|points)"):
            load(str(tmp_path / "torn.npz"))


def test_generated_scenes_have_the_size_asked_for_and_are_the_same_each_time() -> None:
    for generate, fewest, most in (
        (noise, 20_000, 20_000),
        (surface, 18_000, 22_000),
        (lambda n: slab((63, 63, 200), n), 20_000, 20_000),
    ):
        cells = generate(20_000)
        assert fewest <= len(cells) <= most
        assert len(np.unique(cells, axis=0)) == len(cells)
        assert np.array_equal(cells, generate(20_000))


def cloud() -> np.ndarray:
    return np.random.default_rng(0).uniform(-2, 2, (500, 3)).astype(np.float32)


def test_a_scan_becomes_a_scene_a_voxel_size(tmp_path: Path) -> None:
    points = cloud()
    np.hstack([points, np.full_like(points[:, :1], 0.3)]).tofile(tmp_path / "scan.bin")
    np.savez(tmp_path / "clouds.npz", room=points, street=points + 1)
    coords = np.floor(points / 0.5).astype(np.int32)
    both = np.column_stack([np.zeros(len(coords), np.int32), coords])
    np.savez(tmp_path / "both.npz", coords=np.unique(both, axis=0), points=points)
    for name, stem in (("scan.bin", "scan"), ("clouds.npz:room", "room"), ("both.npz", "both")):
        coarse, fine = load_scenes(str(tmp_path / name), [0.5, 0.1])
        assert (coarse.name, fine.name) == (f"{stem}@0.5", f"{stem}@0.1")
        assert coarse.grid.rows == len(np.unique(coords, axis=0))
        assert coarse.grid.rows < fine.grid.rows <= len(points)
    assert [scene.name for scene in load_scenes(str(tmp_path / "both.npz"))] == ["both"]


def test_a_scan_needs_voxel_sizes_and_a_known_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "clouds.npz", room=cloud(), labels=np.zeros((5, 3), np.int64))
    cloud().tofile(tmp_path / "scan.bin")
    with pytest.raises(ValueError, match="--voxel-sizes"):
        load_scenes(str(tmp_path / "clouds.npz:room"))
    with pytest.raises(ValueError, match="--voxel-sizes"):
        load_scene(str(tmp_path / "scan.bin"))
    with pytest.raises(ValueError, match="there are room, labels"):
        load_scenes(str(tmp_path / "clouds.npz:kitchen"), [0.1])
    with pytest.raises(ValueError, match="floats"):
        load_scenes(str(tmp_path / "clouds.npz:labels"), [0.1])


def test_random_scenes_of_the_papers_have_their_size() -> None:
    slab_width = (2000 / 2.5) ** 0.5 + 1  # 1.25 % of its cells are filled
    for name, wide, high in (
        ("box200_2k", 200, 200),
        ("box400_2k", 400, 400),
        ("slab_2k", slab_width, 200),
    ):
        scene = load_scene(name)
        assert (scene.name, scene.grid.rows) == (f"{name} (generated)", 2000)
        x, _, z = scene.grid.coords[:, 1:].max(0).values.tolist()
        assert 0.9 * wide < x < wide, name
        assert 0.9 * high < z < high, name


def test_clouds_are_read_with_a_grid_in_their_name_or_given(tmp_path: Path) -> None:
    file, text = tmp_path / "clouds.npz", tmp_path / "notes.txt"
    random = np.random.default_rng(0)
    np.savez(file, scan005=random.normal(size=(20, 3)), room=random.normal(size=(5, 4)))
    np.savez(tmp_path / "flat.npz", flat=np.zeros(7))
    text.write_text("nothing")
    (scan,) = load_clouds(f"{file}:scan005")
    assert (scan.name, scan.grid_size, len(scan.points)) == ("scan005", 0.05, 20)
    (room,) = load_clouds(f"{file}:room@0.125")
    assert (room.name, room.grid_size) == ("room", 0.125)
    assert room.points.dtype == torch.float32
    assert room.points.shape == (5, 3)
    assert [cloud.name for cloud in load_clouds(f"{file}@1")] == ["scan005", "room"]
    for word, message in (
        (f"{file}:room", "no grid; give it as"),
        (f"{file}:none@1", "no array none"),
        (f"{file}:room@x", "must be a number"),
        (f"{file}:room@0", "must be positive"),
        (f"{tmp_path}/flat.npz@1", r"floats \[P, 3 or more\]"),
        (f"{text}@1", "not an .npz file"),
    ):
        with pytest.raises(ValueError, match=message):
            load_clouds(word)
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.npz"):
        load_clouds(f"{tmp_path}/none.npz:room002")


def test_a_room_has_the_points_asked_for_one_in_each_cell_and_is_the_same_each_time() -> None:
    first, again, other = room(1, 3000, CPU), room(1, 3000, CPU), room(2, 3000, CPU)
    assert torch.equal(first.points, again.points)
    assert first.grid_size != other.grid_size
    assert first.name == "room1@3k (simulated)"
    assert [size_name(n) for n in (500, 20_000, 1_500_000)] == ["0.5k", "20k", "1.5m"]
    cloud = room(0, 20_000, CPU)
    assert len(cloud.points) == 20_000
    cells = torch.floor(cloud.points.double() / cloud.grid_size)
    neighbours = len(torch.unique(cells, dim=0)) / len(cells)
    assert neighbours > 0.6, "cells begin elsewhere, but no cell is much fuller than another"
    assert (cloud.points[1:, 0] < cloud.points[:-1, 0]).any(), "in no order"
    # as many neighbours as in a scanned room
    sites = sites_of("native", cloud.points, cloud.grid_size)
    found = sites.kernel_map(sites, Kernel.of(3), resolve("auto"))
    assert found.triplets / sites.rows == pytest.approx(9.0, rel=0.15)


def test_surfaces_are_rectangles_of_a_room() -> None:
    corners, first, second = surfaces(5)
    assert corners.shape == first.shape == second.shape
    assert len(corners) >= 6 + 5 * 10
    np.testing.assert_allclose((first * second).sum(1), 0, atol=1e-9)
    heights = np.concatenate([corners, corners + first, corners + second])[:, 2]
    assert -1e-9 < heights.min() < heights.max() < 3.6
