"""Every kind of file that the project reads: small whole ones, and what reads them."""

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import yaml

from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import packed
from pcnn.datasets.cache import CloudCache
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.label_files import label_source, read_labels
from pcnn.datasets.labels import read_classes
from pcnn.datasets.readers.clouds import Reading, read_points
from pcnn.datasets.readers.fragments import read_fragment
from pcnn.datasets.registration.gt_files import read_gt_info, read_gt_log, read_pose
from pcnn.datasets.registration.kitti_pairs import read_calibration, read_poses
from pcnn.datasets.registration.pairs import read_list
from pcnn.datasets.s3dis import read_annotation
from pcnn.datasets.semantic_kitti import read_scan
from pcnn.experiment import run_folder
from pcnn.experiment.resume import is_finished
from pcnn.experiment.run_folder import read_counts
from pcnn.files.simulated import read_marker
from tests.datasets.las_files import write_las
from tests.datasets.point_files import lines_of, pcd_bytes, ply_bytes, table
from tests.datasets.registration.training_sets import listed_pairs

P = 24  # points


@dataclass(frozen=True)
class Subject:
    """A kind of file."""

    name: str  # in a folder of its own
    samples: tuple[bytes, ...]  # whole ones
    read: Callable[[Path], Any]
    around: tuple[tuple[str, bytes], ...] = ()  # further files of the folder


def subjects(folder: Path) -> list[Subject]:
    """All kinds; whole files are written into a folder to get their bytes."""
    return [*_clouds(folder), *_arrays(folder), *_registration(), *_experiments(folder)]


def _points() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(1, 30, (P, 4)).round(2).astype("<f4")


def _clouds(folder: Path) -> list[Subject]:
    points = _points()
    rows, rings = table(rows=points), np.arange(P, dtype="<f4")
    plys = ("ascii", "binary_little_endian", "binary_big_endian")
    pcds = ("ascii", "binary")
    found = [
        Subject("a.bin", (points.tobytes(),), read_points),
        Subject("000000.bin", (points.tobytes(),), read_scan),
        Subject("a.pcd.bin", (np.column_stack([points, rings]).tobytes(),), read_points),
        Subject("a.npy", (_npy(points), _npy(rows), _npy(np.asfortranarray(points))), _read),
        Subject("a.ply", tuple(ply_bytes(kind, rows) for kind in plys), _read),
        Subject("a.pcd", tuple(pcd_bytes(kind, rows) for kind in pcds), _read),
        Subject("a.txt", (lines_of(points), lines_of(points, "x,y,z,r\n", ",")), _read),
        Subject("a.label", (np.arange(P, dtype="<u4").tobytes(),), lambda p: read_labels(p, P)),
        Subject("a_label.npy", (_npy(np.arange(P)),), lambda p: read_labels(p, P)),
    ]
    for name in ("a.las", "a.laz"):
        samples = []
        for kind in (1, 7):
            write_las(folder / name, P, kind)
            samples.append((folder / name).read_bytes())
        found.append(Subject(name, tuple(samples), _near))
    return found


def _near(path: Path) -> None:
    read_points(path, reading=Reading(centred=True))


def _bytes(save: Callable[..., None], *values: Any, **more: Any) -> bytes:
    """What a function writes into a file: as its first argument, or behind a value."""
    file = io.BytesIO()
    save(*((values[0], file) if save is torch.save else (file, *values)), **more)
    return file.getvalue()


def _read(path: Path) -> None:
    label_source(path)
    read_points(path)


def _arrays(folder: Path) -> list[Subject]:
    points = _points()[:, :3].copy()
    tensor = torch.from_numpy(points)
    pths = [_bytes(torch.save, value) for value in (points, tensor, points.astype(np.float64))]
    pths.append(_bytes(torch.save, tensor, _use_new_zipfile_serialization=False))
    source = folder / "source"
    source.write_bytes(b"")
    cloud = Cloud(torch.from_numpy(points), torch.ones(P, 1), torch.zeros(P).long(), "a", "a")
    cache = CloudCache(folder / "made", {})
    cache.put("a", [source], lambda: cloud)
    lines = "".join(f"{x:.3f} {y:.3f} {z:.3f} 12 200 0\n" for x, y, z in points.tolist())
    return [
        Subject("a.pth", tuple(pths), read_fragment),
        Subject("chair_1.txt", (lines.encode(), b"1 2 3 185\x10187 4\n"), read_annotation),
        Subject("entry.npz", ((cache.folder / "a.npz").read_bytes(),), _find_entry),
    ]


def _find_entry(path: Path) -> None:
    cache = CloudCache(path.parent, {})
    cache.folder.mkdir(exist_ok=True)
    path.replace(cache.folder / "a.npz")
    cache.find("a", [])  # rebuilt where it is broken: nothing is raised


def _registration() -> list[Subject]:
    pose = np.eye(4)
    pose[:3, 3] = 1.5, 0.25, 0.0
    rows = "".join("\t".join(f"{v:.6f}" for v in row) + "\n" for row in pose.tolist())
    line = " ".join(f"{v:.6e}" for v in pose[:3].reshape(-1).tolist())
    kitti = [{"seq_id": 8, "frame0": 11, "frame1": 0, "transform": pose, "pcd0": "a", "pcd1": "b"}]
    info = "0 1 3\n" + "".join(" ".join(map(str, row)) + "\n" for row in np.eye(6).tolist())
    lists = tuple(pickle.dumps(c, protocol=p) for c in listed_pairs(pose) for p in (2, 4, 5))
    return [
        Subject("poses.txt", (f"{line}\n{line}\n{line}\n".encode(),), read_poses),
        Subject("calib.txt", (f"P0: {line}\nTr: {line}\n".encode(),), read_calibration),
        Subject("gt.log", (f"0\t1\t3\n{rows}0\t2\t3\n{rows}".encode(),), read_gt_log),
        Subject("gt.info", (info.encode(),), read_gt_info),
        Subject(
            "c_0.info.txt",
            (f"scene 1 2\n{rows}".encode(),),
            lambda p: read_pose(p.parent / "c_0.ply"),
        ),
        Subject("indoor.pkl", lists, read_list),
        Subject("kitti.pkl", tuple(pickle.dumps(kitti, protocol=p) for p in (2, 4)), read_list),
    ]


def _encode(path: Path) -> None:
    labels = read_classes(path)
    labels.encode(np.array(list(labels.raw_to_train)), str(path))


def _experiments(folder: Path) -> list[Subject]:
    config = {
        "model": {"name": "minkunet", "width": 0.5},
        "dataset": {"name": "kitti", "root": None},
        "task": {"name": "segmentation"},
        "data": {"in_channels": 4, "source": "real"},
        "geometry": {"name": "voxel"},
        "engine": {"name": "auto"},
        "seed": 1,
    }
    checkpoint = {
        "state_dict": {"net.a": torch.ones(3, 4), "net.b": torch.arange(3)},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []}],
        "pcnn_config": config,
        "global_step": 3,
        "callbacks": {"c": {"best_step": 3}},
    }
    exported = [
        safetensors.torch.save(
            {**tensors, "b": torch.arange(3)},
            {"pcnn": yaml.safe_dump({"pcnn_config": config, "global_step": 3})},
        )
        for tensors in ({"a": torch.ones(3, 4)}, packed("a", torch.randn(2, 3, 4)))
    ]
    metrics = {"config_sha256": "0" * 64, "metrics": {"val/miou": 0.5}, "checkpoint": "best.ckpt"}
    counts = {"class_names": ["a", "b"], "counts": {"val": [[1, 2, 0], [0, 3, 1]]}}
    classes = {
        "names": ["ground", "tree"],
        "colors": [[1, 2, 3], [4, 5, 6]],
        "map": {2: "ground", 5: "tree", 60_000: "tree"},
        "ignore": [0],
    }
    text = yaml.safe_dump(config).encode()
    marker = b'{"seed": 0, "version": "4"}'
    return [
        Subject("classes.yaml", (yaml.safe_dump(classes).encode(),), _encode),
        Subject("SIMULATED.json", (marker,), lambda path: read_marker(path.parent)),
        Subject("best.ckpt", (_bytes(torch.save, checkpoint),), _checkpoint),
        Subject("best.safetensors", tuple(exported), _checkpoint),
        Subject("config.yaml", (text,), lambda p: run_folder.load_config(p.parent)),
        Subject(
            "metrics.json",
            (json.dumps(metrics).encode(),),
            lambda p: is_finished(p.parent),
            (("config.yaml", text),),
        ),
        Subject("confusion.json", (json.dumps(counts).encode(),), lambda p: read_counts(p.parent)),
    ]


def _checkpoint(path: Path) -> None:
    found = RunCheckpoint.read(path)
    _ = found.config, found.weights


def _npy(values: np.ndarray) -> bytes:
    return _bytes(np.save, values)
