"""Published lists of pairs, which come as pickles.

A pickle may run any code when it is read. Here only the names that numpy arrays are made of are
let in, so a file that asks for anything else is refused before it does anything.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from pcnn.datasets.registration.pairs import RegistrationPair
from pcnn.registration.transforms import assembled, rigid

_ALLOWED = {
    (module, name)
    for module in ("numpy.core.multiarray", "numpy._core.multiarray")
    for name in ("_reconstruct", "scalar")
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
_ALLOWED |= {(module, "_frombuffer") for module in ("numpy.core.numeric", "numpy._core.numeric")}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, a list of pairs does not")
        return super().find_class(module, name)


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain values and numpy arrays.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a pickle.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with path.open("rb") as file:
        try:
            return _ArraysOnly(file).load()
        except (pickle.UnpicklingError, EOFError, ValueError, ImportError) as error:
            raise ValueError(f"{path}: not a list of pairs ({error})") from error


def read_indoor_list(path: Path) -> list[RegistrationPair]:
    """Pairs of 3DMatch or 3DLoMatch, as GeoTransformer (a list) or Predator (a dict) ships them.

    The stored overlap is another estimate than the one the lists were made by: never filter the
    official pairs by it again.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another content.
    """
    content = read_pickle(path)
    try:
        if isinstance(content, dict):
            return _predator(content)
        return _geotransformer(content)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path}: not a list of indoor pairs ({error!r})") from error


def read_kitti_list(path: Path) -> list[RegistrationPair]:
    """Pairs of KITTI odometry as GeoTransformer ships them, their ground truth ``legacy``.

    There frame 0 is the later one, the target; the transform maps frame 1 into it.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another content.
    """
    content = read_pickle(path)
    try:
        return [
            RegistrationPair(
                f"{int(one['seq_id']):02d}",
                int(one["frame0"]),
                int(one["frame1"]),
                rigid(one["transform"], f"{path}: transform of entry {index}"),
                index=index,
            )
            for index, one in enumerate(content)
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a list of KITTI pairs ({error!r})") from error


def _geotransformer(content: list[dict[str, Any]]) -> list[RegistrationPair]:
    return [
        RegistrationPair(
            one["scene_name"],
            int(one["frag_id0"]),
            int(one["frag_id1"]),
            _pose(one["rotation"], one["translation"]),
            overlap=float(one["overlap"]),
            index=index,
        )
        for index, one in enumerate(content)
    ]


def _predator(content: dict[str, Any]) -> list[RegistrationPair]:
    pairs = []
    for index, (source, target) in enumerate(zip(content["src"], content["tgt"], strict=True)):
        # test/SCENE/cloud_bin_N.pth
        pairs.append(
            RegistrationPair(
                Path(target).parent.name,
                int(Path(target).stem.rpartition("_")[2]),
                int(Path(source).stem.rpartition("_")[2]),
                _pose(content["rot"][index], content["trans"][index]),
                overlap=float(content["overlap"][index]),
                index=index,
            )
        )
    return pairs


def _pose(rotation: Any, translation: Any) -> torch.Tensor:
    turn = torch.as_tensor(rotation, dtype=torch.float64)
    shift = torch.as_tensor(translation, dtype=torch.float64).reshape(3)
    return rigid(assembled(turn, shift))
