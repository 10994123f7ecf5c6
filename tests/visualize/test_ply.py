import numpy as np
import pytest
import trimesh

from pcnn.visualize import write_coloured_ply


@pytest.mark.parametrize(("count", "labelled"), [(1, False), (33, True)])
def test_another_reader_reads_it(tmp_path, count, labelled):
    rng = np.random.default_rng(count)
    points = rng.normal(size=(count, 3))
    rgb = rng.integers(0, 256, (count, 3)).astype(np.uint8)
    labels = rng.integers(0, 19, count) if labelled else None
    path = write_coloured_ply(tmp_path / "new" / "scan.ply", points, rgb, labels, "simulated")
    cloud = trimesh.load(path)
    np.testing.assert_array_equal(cloud.vertices, points.astype(np.float32))
    np.testing.assert_array_equal(cloud.colors[:, :3], rgb)
    if labelled:
        data = cloud.metadata["_ply_raw"]["vertex"]["data"]
        np.testing.assert_array_equal(data["label"], labels)
    assert b"comment simulated\n" in path.read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["scan.ply"]


def test_bad_input_raises_and_writes_nothing(tmp_path):
    path, points = tmp_path / "x.ply", np.zeros((4, 3))
    rgb = np.zeros((4, 3), np.uint8)
    for bad in (
        (points[:, :2], rgb, None, ""),
        (points, rgb[:3], None, ""),
        (points, rgb.astype(float), None, ""),
        (points, rgb, np.zeros(3, int), ""),
        (points, rgb, None, "two\nlines"),
    ):
        with pytest.raises(ValueError):
            write_coloured_ply(path, *bad)
    assert not list(tmp_path.iterdir())
