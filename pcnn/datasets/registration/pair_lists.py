"""Published lists of pairs, which come as pickles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from pcnn.datasets.registration.gt_files import checked_overlap
from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.errors import FileError
from pcnn.files.bounded import named
from pcnn.files.pickles import read_pickle
from pcnn.registration.transforms import assembled, rigid


def read_indoor_list(path: Path) -> list[RegistrationPair]:
    """Pairs of 3DMatch or 3DLoMatch, as GeoTransformer (a list) or Predator (a dict) ships them.

    The stored overlap is another estimate than the one the lists were made by: never filter the
    official pairs by it again.
    """
    content = read_pickle(path)
    with named(path, "list of indoor pairs"):
        if isinstance(content, dict):
            return _predator(path, content)
        return [
            _pair(
                path,
                index,
                one["scene_name"],
                one["frag_id0"],
                one["frag_id1"],
                _pose(one["rotation"], one["translation"]),
                one["overlap"],
            )
            for index, one in enumerate(_list(path, content))
        ]


def read_kitti_list(path: Path) -> list[RegistrationPair]:
    """Pairs of KITTI odometry as GeoTransformer ships them, their ground truth ``legacy``.

    There frame 0 is the later one, the target; the transform maps frame 1 into it.
    """
    content = read_pickle(path)
    with named(path, "list of KITTI pairs"):
        return [
            _pair(
                path,
                index,
                f"{_whole(path, index, one['seq_id']):02d}",
                one["frame0"],
                one["frame1"],
                _numbers(one["transform"]),
            )
            for index, one in enumerate(_list(path, content))
        ]


def _list(path: Path, content: Any) -> list[Any]:
    if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
        raise FileError(path, "not a list of pairs")
    return content


def _predator(path: Path, content: dict[Any, Any]) -> list[RegistrationPair]:
    pairs = []
    for index, (source, target) in enumerate(zip(content["src"], content["tgt"], strict=True)):
        # test/SCENE/cloud_bin_N.pth
        pairs.append(
            _pair(
                path,
                index,
                Path(target).parent.name,
                int(Path(target).stem.rpartition("_")[2]),
                int(Path(source).stem.rpartition("_")[2]),
                _pose(content["rot"][index], content["trans"][index]),
                content["overlap"][index],
            )
        )
    return pairs


def _pair(
    path: Path,
    index: int,
    scene: Any,
    target: Any,
    source: Any,
    transform: np.ndarray | torch.Tensor,
    overlap: Any = None,
) -> RegistrationPair:
    """A pair of checked values."""
    if not isinstance(scene, str) or not scene or "/" in scene or scene.startswith("."):
        raise FileError(path, f"entry {index}: {str(scene)[:40]!r} is no name of a scene")
    share = None if overlap is None else checked_overlap(path, f"entry {index}", float(overlap))
    return RegistrationPair(
        scene,
        _whole(path, index, target),
        _whole(path, index, source),
        rigid(transform, f"{path}: transform of entry {index}"),
        overlap=share,
        index=index,
    )


def _whole(path: Path, index: int, value: Any) -> int:
    number = int(value)
    if number != value or number < 0:
        raise FileError(path, f"entry {index}: a number of a cloud is whole, found {value}")
    return number


def _numbers(values: Any) -> np.ndarray:
    # lists may hold themselves
    if not isinstance(values, np.ndarray) or values.size > 16:
        raise ValueError("a transform must be an array")
    return values.astype(np.float64)


def _pose(rotation: Any, translation: Any) -> torch.Tensor:
    turn = torch.from_numpy(_numbers(rotation))
    shift = torch.from_numpy(_numbers(translation)).reshape(3)
    return assembled(turn, shift)
