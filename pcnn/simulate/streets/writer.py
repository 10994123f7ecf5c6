"""The official files of KITTI odometry and SemanticKITTI."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.simulate.mesh import Floats
from pcnn.simulate.streets.sensor import Scan

# Camera 0 looks forward (x right, y down, z forward), 27 cm before and 8 cm below the sensor,
# turned by a few thousandths as a real mounting is.
_TILT = np.array([[1.0, -0.004, 0.002], [0.004, 1.0, -0.006], [-0.002, 0.006, 1.0]])
_AXES = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
_FOCAL, _CENTRE = 710.0, (610.0, 185.0)
_BASELINES = (0.0, -380.0, 45.0, -335.0)  # focal length times offset of cameras 0-3


def velodyne_to_camera() -> Floats:
    """Return the rigid transform `Tr` [4, 4] from the sensor to camera 0."""
    transform = np.eye(4)
    u, _, vt = np.linalg.svd(_TILT)  # the nearest rotation
    transform[:3, :3] = u @ vt @ _AXES
    transform[:3, 3] = (0.0, -0.08, -0.27)
    # what a reader parses from the file is what the poses are made with
    return np.vstack([np.array(_row(transform).split(), float).reshape(3, 4), [0, 0, 0, 1]])


def _row(transform: Floats) -> str:
    return " ".join(f"{value:.12e}" for value in transform[:3].reshape(-1))


def calibration_text() -> str:
    """Return the content of calib.txt: four projections 3 x 4 and `Tr`."""
    lines = []
    for camera, shift in enumerate(_BASELINES):
        projection = np.array(
            [[_FOCAL, 0, _CENTRE[0], shift], [0, _FOCAL, _CENTRE[1], 0], [0, 0, 1, 0]], float
        )
        lines.append(f"P{camera}: {_row(projection)}")
    lines.append(f"Tr: {_row(velodyne_to_camera())}")
    return "\n".join(lines) + "\n"


def poses_text(sensor_poses: list[Floats]) -> str:
    """Return the content of a pose file: camera 0 of every scan in camera 0 of the first.

    P_i = Tr inv(V_0) V_i inv(Tr), so that inv(Tr) P_i Tr is the pose of the sensor in its first
    pose.

    Args:
        sensor_poses: sensor to world V_i, [4, 4] each.
    """
    transform = velodyne_to_camera()
    back = np.linalg.inv(transform)
    first = np.linalg.inv(sensor_poses[0])
    return "".join(_row(transform @ first @ pose @ back) + "\n" for pose in sensor_poses)


def write_scan(sequence_folder: Path, index: int, scan: Scan) -> None:
    """Write velodyne/NNNNNN.bin (float32 x y z remission) and labels/NNNNNN.label (uint32)."""
    name = f"{index:06d}"
    (sequence_folder / "velodyne" / f"{name}.bin").write_bytes(scan.points.astype("<f4").tobytes())
    (sequence_folder / "labels" / f"{name}.label").write_bytes(scan.labels.astype("<u4").tobytes())


def write_sequence(
    root: Path, sequence: int, sensor_poses: list[Floats], times: list[float]
) -> None:
    """Write a sequence's folders, calib.txt, times.txt and poses.

    Args:
        root: the folder that holds `sequences/` and `poses/`.
        sequence: its number.
        sensor_poses: sensor to world of every scan, [4, 4] each.
        times: of every scan [s].
    """
    folder = root / "sequences" / f"{sequence:02d}"
    (folder / "velodyne").mkdir(parents=True, exist_ok=True)
    (folder / "labels").mkdir(exist_ok=True)
    (root / "poses").mkdir(exist_ok=True)
    poses = poses_text(sensor_poses)
    (folder / "calib.txt").write_text(calibration_text())
    (folder / "times.txt").write_text("".join(f"{time:.6e}\n" for time in times))
    (folder / "poses.txt").write_text(poses)
    (root / "poses" / f"{sequence:02d}.txt").write_text(poses)
