"""Trained descriptors: shipped weights, which of them suits a cloud, and those of a checkpoint."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import Tensor

from pcnn.checkpoints.exported_file import SUFFIX
from pcnn.experiment import networks
from pcnn.experiment.catalogue import SHIPPED, catalogue, check_sum
from pcnn.experiment.rooms_or_streets import ROOMS_UP_TO, scene_of
from pcnn.experiment.weights import check_finite, fitting, opened
from pcnn.files.bounded import named
from pcnn.registration.cell_size import IN_CELLS
from pcnn.registration.cloud_measures import CloudMeasures
from pcnn.registration.network_descriptor import NetworkDescriptor

FOLDER = SHIPPED

#: Name of weights that serve all places; where they are shipped they come before the others.
ANYWHERE = "anywhere"
#: Name of weights for clouds of rooms that lie any way, which are asked after the others.
TURNED = "turned"
#: Files by the place they are for, the first that exists serves.
FILES = {
    "interiors": ("resunet_interiors_point", "resunet_interiors_voxel"),
    "streets": ("resunet_streets_point", "resunet_streets_voxel"),
    TURNED: ("resunet_turned_point", "resunet_turned_voxel"),
    ANYWHERE: ("resunet_anywhere_point", "resunet_anywhere_voxel"),
}
_NAMES = {True: "interiors", False: "streets"}
#: Networks with a verifier of their own.
VERIFIED = ("interiors", TURNED, "streets")
#: Benchmark of the clouds of a place.
_LIKE = {"interiors": "threedmatch", "streets": "kitti"}
#: Voxel of FPFH by the benchmark that it suits [m].
FPFH_VOXELS = {"threedmatch": 0.05, "kitti": 0.3}


@dataclass(frozen=True)
class Choice:
    """The descriptor that was chosen.

    Args:
        weights: file of a network; None stands for FPFH.
        voxel_size: of FPFH [m]; None with a network, which has its own.
        reason: why, in words.
        like: benchmark whose clouds a voxel of FPFH suits, where it was not given; else empty.
    """

    weights: Path | None
    voxel_size: float | None
    reason: str
    like: str = ""

    @property
    def verified_as(self) -> str:
        """The network whose verifier serves it; weights of one's own are judged as interiors."""
        stem = "" if self.weights is None else self.weights.stem
        return next((name for name in VERIFIED if stem in FILES.get(name, ())), "interiors")


def chosen(model: str | Path | None, clouds: CloudMeasures, voxel_size: float | None) -> Choice:
    """Choose the descriptor that a name stands for.

    Args:
        model: ``interiors``, ``turned``, ``streets``, ``fpfh``, the name of shipped weights, or a
            file. None goes by the larger span of the clouds
            (`pcnn.registration.cloud_measures.span`), up to 20 m interiors, beyond it streets;
            weights for all places come first where they are shipped. Where there are none FPFH
            stands in.
        clouds: their measures.
        voxel_size: of FPFH [m]; asks for FPFH where no model is named.

    Raises:
        FileNotFoundError: no such file or shipped weights.
        ValueError: a voxel size beside a network.
    """
    if model is None and voxel_size is not None:
        return Choice(None, voxel_size, "FPFH, because a voxel size was given")
    found = scene_of(clouds.spans)
    place = _NAMES[found.indoors]
    if str(model) == "fpfh":
        if voxel_size is not None:
            return Choice(None, voxel_size, f"model fpfh, voxels of {voxel_size:g} m as given")
        cell = FPFH_VOXELS[_LIKE[place]]
        beyond = "up to" if found.indoors else "beyond"
        return Choice(
            None,
            cell,
            f"model fpfh, voxels of {cell:g} m because {found.spans}, {beyond} {ROOMS_UP_TO:g} m",
            _LIKE[place],
        )
    if model is None:
        weights = shipped(ANYWHERE)
        if weights is not None:
            return Choice(weights, None, f"{found.spans}, and one network serves rooms and streets")
        why = f"{place}: {found.spans} (up to {ROOMS_UP_TO:g} m: interiors)"
        weights = shipped(place)
        if weights is not None:
            return Choice(weights, None, why)
        none = f"{why}, and no weights for {place} come with this version: FPFH"
        return Choice(None, FPFH_VOXELS[_LIKE[place]], none, _LIKE[place])
    if voxel_size is not None:
        raise ValueError(f"{model} was trained at its own voxel size; leave voxel_size out")
    return Choice(weights_of(model), None, f"model {model}")


def after(choice: Choice, clouds: CloudMeasures) -> list[Choice]:
    """What is asked in turn where shipped weights found no transform.

    In rooms that is the network for clouds that lie any way, then FPFH; on streets FPFH alone.
    """
    place = _NAMES[scene_of(clouds.spans).indoors]
    weights = shipped(TURNED) if place == "interiors" else None
    found = []
    if weights is not None:
        second = f"{TURNED}, for clouds that lie any way"
        found.append(Choice(weights, None, f"{choice.reason}; the network found nothing: {second}"))
    asked = "the network" if weights is None else "both networks"
    reason = f"{choice.reason}; {asked} found nothing: FPFH"
    return [*found, Choice(None, FPFH_VOXELS[_LIKE[place]], reason, _LIKE[place])]


def weights_of(model: str | Path) -> Path:
    """The file that a name or a path stands for.

    Raises:
        FileNotFoundError: there is none; names what there is.
    """
    path = shipped(str(model)) or Path(model)
    if path.is_file():
        return path
    there = sorted(file.stem for file in FOLDER.glob(f"*{SUFFIX}"))
    if str(model) in FILES:
        raise FileNotFoundError(
            f"no weights for {model} come with this version; "
            "possible: fpfh, or a checkpoint of a run with task=registration"
        )
    raise FileNotFoundError(
        f"{model}: no such checkpoint, and no such shipped weights ({', '.join(there) or 'none'})"
    )


def shipped(name: str) -> Path | None:
    """The file of shipped weights, by place or by its own name; None where there is none.

    Raises:
        FileError: another file than the catalogue says.
    """
    for stem in FILES.get(name, (name,)):
        path = FOLDER / f"{stem}{SUFFIX}"
        if Path(stem).name == stem and path.is_file():
            entry = catalogue(FOLDER).get(stem)
            if entry is not None:
                check_sum(path, entry)
            return path
    return None


def trained_descriptor(
    cfg: DictConfig,
    weights: Mapping[str, Tensor],
    name: str,
    device: torch.device | str,
) -> NetworkDescriptor:
    """The network of a configuration with given weights.

    Args:
        cfg: of a run with task=registration; its geometry is the one that is used.
        weights: of the network itself.
        name: as it is named beside figures.
        device: where it computes.

    Raises:
        ValueError: weights of another network.
    """
    net = networks.network(cfg, 1, int(cfg.data.out_channels))
    check_finite(weights, name)
    with fitting(name):
        net.load_state_dict(dict(weights))
    return NetworkDescriptor(
        net.to(device).eval(),
        voxel_size(cfg),
        name,
        networks.placement(cfg),
        device,
        str(cfg.data.get("benchmark", "")),
    )


def of_checkpoint(
    path: str | Path,
    device: torch.device | str = "cpu",
    allow_targets: Sequence[str] = (),
) -> NetworkDescriptor:
    """The descriptor of a checkpoint, by the configuration that it carries.

    The last two are kept as long as their files stay the same: to read a network takes longer than
    to register a pair with it.

    Args:
        path: the checkpoint.
        device: where it computes.
        allow_targets: packages of the user's own whose classes the configuration may name.

    Raises:
        FileNotFoundError: no such checkpoint.
        FileError: a torn file, or a checkpoint of another task.
    """
    with named(path, "checkpoint of a registration"):
        file = Path(path).stat()
        stamp = file.st_ino, file.st_size, file.st_mtime_ns
        return _of_file(path, stamp, device, tuple(allow_targets))


@functools.lru_cache(maxsize=2)
def _of_file(
    path: str | Path,
    stamp: tuple[int, ...],  # of the file as it is now
    device: torch.device | str,
    allow_targets: tuple[str, ...],
) -> NetworkDescriptor:
    """The descriptor of a file that stays the same."""
    cfg, found = opened(path, "registration", allow_targets)
    name = described(cfg, path, cfg.data.source)
    return trained_descriptor(cfg, found.weights, name, device)


def described(cfg: DictConfig, path: str | Path, source: str) -> str:
    """Name of a descriptor: what it is, at which cell, on which geometry, what it was trained on.

    Args:
        cfg: of the network as it is used.
        path: file of the weights.
        source: of the training data, ``real`` or ``simulated``.
    """
    unit = "cells" if cfg.data.get("benchmark") == IN_CELLS else "m"
    where = f"{cfg.model.name} {voxel_size(cfg):g} {unit}, {cfg.geometry.name}"
    data = "" if source == "real" else ", trained on SIMULATED data"
    file = Path(path)
    # shipped weights are known by their name, wherever the package lies
    return f"{where}{data} ({file.name if file.parent == FOLDER else file})"


def voxel_size(cfg: DictConfig) -> float:
    """Edge of a voxel or of a native cell that the run's pairs are placed on [m]."""
    return float(cfg.data.voxel_size)
