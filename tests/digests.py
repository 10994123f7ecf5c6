"""Digests of networks and short trainings on fixed inputs; `python -m tests.digests` writes them.

Inputs, weights and data sets come from numpy's generator, so that a digest depends on nothing but
the arithmetic. Numbers that change need a reason in CHANGELOG.md before the file is written again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import pcnn
from pcnn.models import (
    SPVCNN,
    MinkUNet42,
    ResNet18,
    ResUNetBN2C,
    SparseResNet21,
    SparseResNetLarge,
    SparseResNetSegmentation,
)

FILE = Path(__file__).with_suffix(".json")

#: Every network of `pcnn.models`, narrow, with four input channels.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "minkunet": lambda engine: MinkUNet42(4, 5, width=0.125, engine=engine),
    "minkunet_input_norm": lambda engine: MinkUNet42(
        4, None, width=0.125, engine=engine, input_norm=True
    ),
    "resnet18": lambda engine: ResNet18(4, 5, width=0.125, engine=engine),
    "resunet": lambda engine: ResUNetBN2C(4, 16, width=0.25, engine=engine),
    "resunet_logits": lambda engine: ResUNetBN2C(
        4, 5, first_kernel=7, normalize_features=False, width=0.25, engine=engine
    ),
    "sparse_resnet": lambda engine: SparseResNetSegmentation(
        SparseResNet21(4, width=0.5, engine=engine), 5, hidden=8, engine=engine
    ),
    "sparse_resnet_large": lambda engine: SparseResNetLarge(4, width=0.25, engine=engine),
    "spvcnn": lambda engine: SPVCNN(4, 5, width=0.125, dropout=0.0, engine=engine),
}
GEOMETRIES = ("voxel", "point")
#: Networks on voxels alone.
VOXELS_ALONE = ("spvcnn",)
CASES = tuple(
    (name, geometry)
    for name in NETWORKS
    for geometry in GEOMETRIES
    if geometry == "voxel" or name not in VOXELS_ALONE
)
ENGINES = (
    ("auto", "voxel"),
    ("reference", "voxel"),
    ("auto", "point"),
    ("reference", "point"),
    ("pointcnnpp", "point"),
)


def scene(rng: np.random.Generator, points: int) -> np.ndarray:
    """[points, 3] metres: ground, a wall and a pole, as a scan of a street has them."""
    cloud = rng.uniform((-6, -6, -1.8), (6, 6, -1.7), (points, 3))
    wall, pole = np.split(np.arange(points), [points // 3, points // 2])[:2]
    cloud[wall, 1:] = rng.uniform((4.0, -1.7), (4.2, 2), (len(wall), 2))
    cloud[pole] = rng.uniform((1.0, 1.0, -1.7), (1.2, 1.2, 2), (len(pole), 3))
    return cloud


def sample(geometry: str, dtype: torch.dtype) -> pcnn.SparseTensor:
    """Two clouds of 300 and 200 points with four features."""
    rng = np.random.default_rng(20)
    points = torch.from_numpy(np.concatenate([scene(rng, 300), scene(rng, 200)]))
    features = torch.from_numpy(rng.standard_normal((500, 4))).to(dtype)
    batch = torch.arange(2).repeat_interleave(torch.tensor([300, 200]))
    if geometry == "voxel":
        return pcnn.voxelize(points, features, batch, voxel_size=0.5)
    return pcnn.native_points(points, features, batch, voxel_size=0.5)


def filled(network: nn.Module) -> nn.Module:
    """Every weight and statistic drawn by its name, in the scale of He's initialisation."""
    for name, tensor in network.state_dict().items():
        if not tensor.is_floating_point():
            continue
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        if tensor.ndim == 1:
            values = rng.uniform(0.5, 1.5, tensor.shape)
        else:
            fan_in = tensor.numel() / max(tensor.shape[-1], 1)
            values = rng.standard_normal(tensor.shape) * (2 / fan_in) ** 0.5
        tensor.copy_(torch.from_numpy(values))
    return network


def digest(values: Tensor) -> list[float]:
    """Rows, mean, mean of magnitudes, and the first six values."""
    flat = values.detach().double().flatten()
    return [float(len(values)), float(flat.mean()), float(flat.abs().mean()), *flat[:6].tolist()]


def rows(output: Any) -> Tensor:
    """Features of a network's output: a tensor, a sparse tensor, or the last of several levels."""
    output = output[-1] if isinstance(output, list) else output
    return output if isinstance(output, Tensor) else output.features


def network_digest(
    name: str, geometry: str, dtype: torch.dtype, engine: str = "auto"
) -> dict[str, list[float]]:
    """Outputs in training and in fused inference, gradients, and the names of weights."""
    network, x = filled(NETWORKS[name](engine)).to(dtype), sample(geometry, dtype)
    with torch.no_grad():
        fused = rows(network.eval()(x))
    features = x.features.clone().requires_grad_()
    out = rows(network.train()(x.replace(features)))
    probe = np.random.default_rng(3).standard_normal(tuple(out.shape))
    (out * torch.from_numpy(probe).to(dtype)).sum().backward()
    assert features.grad is not None
    sums = torch.stack([p.grad.abs().sum() for p in network.parameters() if p.grad is not None])
    names = "\n".join(f"{k} {tuple(v.shape)}" for k, v in sorted(network.state_dict().items()))
    return {
        "state": [float(zlib.crc32(names.encode()))],
        "eval": digest(fused),
        "train": digest(out),
        "input_gradient": digest(features.grad),
        "weight_gradients": digest(sums),
    }


# --- trainings ---------------------------------------------------------------------------------


def write_streets(root: Path) -> Path:
    """Labelled scans of drives in the official layout of SemanticKITTI and KITTI odometry."""
    (root / "poses").mkdir(parents=True)
    for sequence, frames in {0: 5, 6: 4, 8: 2}.items():
        folder = root / "sequences" / f"{sequence:02d}"
        for name in ("velodyne", "labels"):
            (folder / name).mkdir(parents=True)
        rng = np.random.default_rng([20, sequence])
        world = np.concatenate([scene(rng, 600) + np.array([6.0 * n, 0, 0]) for n in range(4)])
        poses = []
        for frame in range(frames):
            turn, place = 0.05 * frame, np.array([3.0 * frame, 0.1 * frame, 0.0])
            axes = np.array(
                [[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]]
            )
            poses.append(np.concatenate([axes, place[:, None]], 1).reshape(-1))
            seen = (world - place) @ axes
            kind = np.select([seen[:, 2] < -1.69, world[:, 1] > 3.9], [40, 50], 80)  # raw ids
            scan = np.concatenate([seen, rng.uniform(0, 1, (len(seen), 1))], 1)
            scan.astype("<f4").tofile(folder / "velodyne" / f"{frame:06d}.bin")
            kind.astype("<u4").tofile(folder / "labels" / f"{frame:06d}.label")
        np.savetxt(root / "poses" / f"{sequence:02d}.txt", np.stack(poses))
        one = "1 0 0 0 0 1 0 0 0 0 1 0"
        (folder / "calib.txt").write_text(f"P0: {one}\nTr: {one}\n")
    return root


COMMON = (
    "model.width=0.125",
    "trainer=cpu",
    "trainer.max_steps=6",
    "trainer.val_check_interval=6",
    "trainer.precision=64-true",
    "+trainer.deterministic=true",
    "dataset.num_workers=0",
    "dataset.batch_size=2",
    "callbacks=plain",
    "logger=csv",
)
SEGMENTATION = (
    "dataset=kitti",
    "model=minkunet",
    "dataset.train_sequences=[0]",
    "dataset.voxel_size=0.5",
    "task.optimizer.lr=0.01",
    "+task.optimizer.eps=0.1",  # else Adam takes the sign of a gradient, rounding included
)
REGISTRATION = (
    "dataset=kitti_pairs",
    "model=resunet",
    "dataset.ground_truth=odometry",
    "dataset.train_sequences=[0]",
    "dataset.val_sequences=[6]",
    "dataset.distances=[2,7]",
    "dataset.voxel_size=0.5",
    "dataset.limit_val=2",
    "task.val_hypotheses=200",
    "task.val_samples=400",
    "task.hit_distance=1.0",
    "task.optimizer.lr=0.001",
)
TRAININGS = {
    "segmentation_voxels": (*SEGMENTATION, "geometry=voxel"),
    "segmentation_points": (*SEGMENTATION, "geometry=point"),
    "registration": REGISTRATION,
}


def trained(name: str, root: Path, run: Path) -> dict[str, float]:
    """Metrics that train.py writes for a training of six steps."""
    import train

    words = [*COMMON, *TRAININGS[name], f"dataset.root={root}", f"hydra.run.dir={run}"]
    with mock.patch.object(sys, "argv", ["train.py", *words]):
        train.main()
    found: dict[str, float] = json.loads((run / "metrics.json").read_text())["metrics"]
    return found


def trainings(folder: Path) -> dict[str, dict[str, float]]:
    """Metrics of all trainings, by a process with one thread and the instructions of any x86-64."""
    any_machine = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    any_machine |= {"ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.digests", "--train", str(folder)]
    subprocess.run(
        command, cwd=FILE.parents[1], env={**os.environ, **any_machine}, check=True, timeout=300
    )
    found: dict[str, dict[str, float]] = json.loads((folder / "trainings.json").read_text())
    return found


def train_all(folder: Path) -> None:
    """Write trainings.json, in the process that `trainings` starts."""
    root = write_streets(folder / "streets")
    found = {name: trained(name, root, folder / name) for name in TRAININGS}
    (folder / "trainings.json").write_text(json.dumps(found))


def main() -> None:
    """Write the digests of this tree."""
    torch.set_num_threads(1)
    networks = {
        f"{name} {geometry}": network_digest(name, geometry, torch.float64)
        for name, geometry in CASES
    }
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "networks": networks,
            "trainings": trainings(Path(folder)),
        }
    lines = json.dumps(found, indent=1).replace(",\n    ", ", ").replace("[\n    ", "[")
    FILE.write_text(re.sub(r"\n   \]", "]", lines) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train_all(Path(sys.argv[2]))
    else:
        main()
