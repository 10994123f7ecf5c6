from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pcnn
from pcnn.experiment import register
from pcnn.experiment.descriptors import Choice
from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.descriptor import Described
from pcnn.registration.register import NoOverlapError, default_settings
from pcnn.registration.settings import EstimateSettings, RansacSettings
from pcnn.registration.transforms import transform_points
from tests.registration.clouds import Known, known, register_points, two_views
from tests.registration.poses import random_pose


def test_inliers_and_rmse_are_those_of_the_refined_transform() -> None:
    source, target, _, _ = known(0.0)
    noisy = source + 0.03 * torch.randn_like(source)
    descriptor = Known((noisy, target.clone()), (target, target.clone()))
    found = register_points(noisy, target, descriptor, samples=None, min_confidence=0.0)
    moved = transform_points(found.transform, noisy.double())
    residual = (moved - target.double()).norm(dim=1)
    near = residual < 0.075  # one and a half voxels
    assert 0 < int(near.sum()) < found.matches == len(target)
    assert found.inliers == int(near.sum())
    assert found.rmse == pytest.approx(float(residual[near].square().mean().sqrt()))


class Numbered:
    """The n-th point of every cloud has the same descriptor, unless it is blind."""

    name, voxel_size = "numbered", 0.05

    def __init__(self, blind: bool = False) -> None:
        self.blind = blind

    def __call__(self, clouds: Sequence[torch.Tensor]) -> list[Described]:
        drawn = torch.rand(len(clouds), 700, 8, generator=torch.Generator().manual_seed(3))
        rows = range(len(clouds)) if self.blind else [0] * len(clouds)
        return [Described(points, drawn[row]) for points, row in zip(clouds, rows, strict=True)]


def test_rows_without_a_return_are_left_out_and_counted(tmp_path: Path) -> None:
    cloud = np.random.default_rng(0).random((60, 3), dtype=np.float32)
    cloud[::5] = np.nan
    cloud[1::20] = 0
    np.save(tmp_path / "a.npy", cloud)
    for given in (cloud, torch.from_numpy(cloud), tmp_path / "a.npy"):
        found = register.points_of(given, "a")
        assert (len(found.points), found.missing) == (45, 15)


@pytest.mark.parametrize("origin", [(456_789.125, 5_428_123.5, 112.25), (0.0, 0.0, 0.0)])
def test_clouds_of_a_map_get_a_transform_of_the_map(
    origin: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "descriptor_of", lambda _, choice, *__: (Numbered(), choice))
    turn = random_pose(2)
    local = torch.rand(700, 3, dtype=torch.float64) * 4
    target = local + torch.tensor(origin, dtype=torch.float64)
    source = transform_points(turn.inverse(), local) + torch.tensor(origin, dtype=torch.float64)
    found = pcnn.register(source, target.numpy())
    assert found.transform.dtype == torch.float64
    torch.testing.assert_close(transform_points(found.transform, source), target, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("seeing", "reason"),
    [
        ("reg_rooms", "(up to 20 m: reg_rooms)"),
        ("reg_turned", "the network found nothing: reg_turned, for clouds that lie any way"),
        ("FPFH", "both networks found nothing: FPFH"),
        ("", ""),
    ],
)
def test_others_are_asked_where_a_network_finds_nothing(
    seeing: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stand_in(_: object, choice: Choice, *__: object) -> tuple[Any, Choice]:
        asked.append(choice.name)
        return Numbered(blind=choice.name != seeing), choice

    monkeypatch.setattr(register, "descriptor_of", stand_in)
    target = torch.rand(700, 3, generator=torch.Generator().manual_seed(0)) * 4
    source = transform_points(random_pose(2).inverse(), target.double())
    names = ["reg_rooms", "reg_turned", "FPFH"]
    if not seeing:
        with pytest.raises(NoOverlapError) as error:
            pcnn.register(source, target)
        told = [line.partition(":")[0].strip() for line in str(error.value).splitlines()]
        assert told == ["no transform found", *names]
        return
    found = pcnn.register(source, target)
    assert asked == names[: names.index(seeing) + 1]
    torch.testing.assert_close(found.transform, random_pose(2), atol=1e-3, rtol=0)
    assert found.reason.endswith(reason)
    assert (found.confidence > 0.5) == (seeing != "FPFH")  # of which there is none


def test_doubtful_units_are_told_and_small_objects_registered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small = np.random.default_rng(0).random((500, 3)) * 0.1
    found = pcnn.register(small, small + 0.01, "reg_rooms")
    assert float((found.transform[:3, 3] - 0.01).abs().max()) < 0.002
    with pytest.raises(NoOverlapError):
        pcnn.register(small, small[::-1].copy(), "fpfh", voxel_size=0.05)
    assert len(caplog.records) == 1
    assert "metres" in caplog.text


def test_matches_on_a_line_leave_the_rotation_open() -> None:
    target = torch.rand(300, 1) * torch.tensor([2.0, 1.0, -1.0]) + torch.rand(300, 3) * 0.01
    source = transform_points(random_pose(1).inverse(), target.double()).float()
    descriptor = Known((source, target.clone()), (target, target.clone()))
    for solver in ("ransac", "cliques"):
        settings = default_settings(0.05, solver=solver)
        with pytest.raises(NoOverlapError, match="of a line"):
            register_points(source, target, descriptor, settings)
    # some width is enough to tell, in three directions for the shape to be the only such pose
    wide = target.clone()
    wide[::2] += torch.rand(150, 3) * 0.4
    source = transform_points(random_pose(1).inverse(), wide.double()).float()
    found = register_points(source, wide, Known((source, wide), (wide, wide.clone())))
    assert float(rotation_error(found.transform, random_pose(1))) < 2


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        *(("min_inliers", 0), ("min_confidence", torch.nan), ("seed", -1), ("voxel_size", 0.1)),
    ],
)
def test_options_out_of_range_are_refused(options: str, bad: Any) -> None:
    source, target, _, _ = known()
    with pytest.raises(ValueError, match=options):
        pcnn.register(source, target, **{options: bad})
    with pytest.raises(ValueError, match="sampling"):
        EstimateSettings(RansacSettings(0.1), sampling="best")  # type: ignore[arg-type]


def test_too_little_agreement_is_no_identity() -> None:
    source, target, _, _ = known(0.0)
    wrong = Known((source, torch.rand(len(target), 3)), (target, target))
    with pytest.raises(NoOverlapError):
        register_points(source, target, wrong, min_inliers=60)
    far = torch.cat([source, *(source + 50 * step for step in range(1, 25))])
    most = Known((far, torch.cat([target, *24 * [0 * target]])), (target, target))
    with pytest.raises(NoOverlapError, match="5 % required"):
        register_points(far, target, most, min_confidence=0.0)


def test_public_function_registers_two_turned_views_by_fpfh() -> None:
    pytest.importorskip("open3d")
    source, target, truth = two_views()
    found = pcnn.register(source.numpy(), target, "fpfh", sensor_at_origin=False)
    assert found.descriptor.startswith("fpfh")
    assert found.confidence != found.confidence  # of FPFH there is none
    assert float(rotation_error(found.transform, truth)) < 1
    assert float(translation_error(found.transform, truth)) < 0.03


def test_a_cloud_registers_onto_itself_by_shipped_weights() -> None:
    _, target, _ = two_views()
    found = pcnn.register(target, target)
    assert "SIMULATED" in found.descriptor
    assert "(reg_rooms.safetensors)" in found.descriptor
    torch.testing.assert_close(found.transform, torch.eye(4).double(), rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("cloud", "words"),
    [
        (np.empty((0, 3)), "source: the cloud is empty"),
        (np.zeros((9, 2)), r"source: points must be numbers \[P, 3\]"),
        (np.zeros((9, 3)), "source: the cloud is empty"),
        (np.full((9, 3), 5_412_345.67), "9 points fill 1 voxel"),
        (np.array([[0, 0, 1], [3_000_000_111, 0, 0]]), "source: coordinates of up to"),
        ("none.ply", "none.ply"),
    ],
)
def test_bad_clouds_are_named(cloud: Any, words: str) -> None:
    pytest.importorskip("open3d")
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        pcnn.register(cloud, torch.rand(500, 3))
