from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.bench.scenes import load_scene, load_scenes, noise, slab, surface


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


@pytest.mark.parametrize("generate", [noise, surface])
def test_generated_scenes_have_the_size_asked_for_and_are_the_same_each_time(generate) -> None:
    cells = generate(20_000)
    assert abs(len(cells) - 20_000) < 2_000
    assert len(np.unique(cells, axis=0)) == len(cells)
    assert np.array_equal(cells, generate(20_000))


def test_a_slab_has_just_the_cells_asked_for() -> None:
    cells = slab((63, 63, 20), 1000)
    assert len(np.unique(cells, axis=0)) == 1000
    assert (cells.max(0) < (63, 63, 20)).all()
    assert np.array_equal(cells, slab((63, 63, 20), 1000))


def cloud(n: int = 500) -> np.ndarray:
    return np.random.default_rng(0).uniform(-2, 2, (n, 3)).astype(np.float32)


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


@pytest.mark.parametrize(
    ("name", "rows", "extent"),
    [("box200_2k", 2000, 200), ("box400_2k", 2000, 400), ("slab_2k", 2000, 200)],
)
def test_random_scenes_of_the_papers_have_their_size(name: str, rows: int, extent: int) -> None:
    scene = load_scene(name)
    assert scene.name == f"{name} (generated)"
    assert scene.grid.rows == rows
    x, _, z = scene.grid.coords[:, 1:].max(0).values.tolist()
    assert 0.9 * extent < z < extent
    if name.startswith("slab"):
        assert x < (rows / 2.5) ** 0.5 + 1, "1.25 % of the cells are filled"
