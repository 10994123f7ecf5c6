"""Trained descriptors: shipped weights, which of them suits a cloud, and those of a checkpoint."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import Tensor

from pcnn.experiment import networks
from pcnn.experiment.catalogue import ROOMS_UP_TO, SHIPPED, scene_of, weights_file
from pcnn.experiment.devices import device_of
from pcnn.experiment.options import RegisterOptions
from pcnn.experiment.weights import check_finite, fitting, opened
from pcnn.files.bounded import named
from pcnn.registration.cloud_measures import KNOWN, CloudMeasures, fitting_cell
from pcnn.registration.descriptor import Descriptor
from pcnn.registration.fpfh import FPFH
from pcnn.registration.network_descriptor import NetworkDescriptor

#: Name of weights for clouds of rooms that lie any way, which are asked after the others.
TURNED = "reg_turned"
#: By whether clouds are of a room: the network of the place, its benchmark, a voxel of FPFH [m].
_PLACES = {True: ("reg_rooms", "threedmatch", 0.05), False: ("reg_streets", "kitti", 0.3)}
#: Networks that come with the package, each with a verifier of its own.
VERIFIED = ("reg_rooms", TURNED, "reg_streets")
#: Largest spacing of points for FPFH, whose radius is five voxels: then a dozen lie within it.
FPFH_SPACING = 2.5


@dataclass(frozen=True)
class Choice:
    """The descriptor that was chosen."""

    weights: Path | None  # file of a network; None stands for FPFH
    voxel_size: float | None  # of FPFH [m]; None with a network, which has its own
    reason: str  # why, in words
    like: str = ""  # benchmark whose clouds a voxel of FPFH suits, where it was not given

    @property
    def name(self) -> str:
        """What it is called."""
        return "FPFH" if self.weights is None else self.weights.stem

    @property
    def verified_as(self) -> str:
        """The network whose verifier serves it; weights of one's own are judged as rooms."""
        return self.name if self.name in VERIFIED else "reg_rooms"


def chosen(options: RegisterOptions, clouds: CloudMeasures) -> list[Choice]:
    """What describes clouds, and what is asked next where that finds no transform."""
    indoors, spans = scene_of(clouds.spans)
    name, like, cell = _PLACES[indoors]
    model, given = options.model, options.voxel_size
    if model == "fpfh":
        if given is not None:
            return [Choice(None, given, f"model fpfh, voxels of {given:g} m as given")]
        why = f"{spans}, {'up to' if indoors else 'beyond'} {ROOMS_UP_TO:g} m"
        return [Choice(None, cell, f"model fpfh, voxels of {cell:g} m because {why}", like)]
    if given is not None:
        raise ValueError("voxel_size is of model=fpfh; a network has its own")
    if model is not None:
        return [Choice(weights_file(model), None, f"model {model}")]
    why = f"{name}: {spans} (up to {ROOMS_UP_TO:g} m: reg_rooms)"
    found, asked = [Choice(weights_file(name), None, why)], "the network"
    if indoors:
        turned = f"{why}; {asked} found nothing: {TURNED}, for clouds that lie any way"
        found, asked = [*found, Choice(weights_file(TURNED), None, turned)], "both networks"
    return [*found, Choice(None, cell, f"{why}; {asked} found nothing: FPFH", like)]


def descriptor_of(
    options: RegisterOptions, choice: Choice, clouds: CloudMeasures
) -> tuple[Descriptor, Choice]:
    """What was chosen, in the cell that `fitting_cell` finds, and the choice with the reason."""
    own = made(options, choice)
    benchmark = own.benchmark if isinstance(own, NetworkDescriptor) else choice.like
    if benchmark not in KNOWN:
        return own, choice
    known = KNOWN[benchmark]
    if isinstance(own, FPFH):
        known = replace(known, spacing=FPFH_SPACING)
    cell, why = fitting_cell(clouds, own.voxel_size, known)
    if cell == own.voxel_size:
        return own, choice
    reason = f"{choice.reason}; cells of {cell:.2g} m in place of {own.voxel_size:.2g} m: {why}"
    if isinstance(own, FPFH):
        return replace(own, voxel_size=cell), replace(choice, voxel_size=cell, reason=reason)
    return replace(own, factor=cell / own.voxel_size), replace(choice, reason=reason)


def made(options: RegisterOptions, choice: Choice) -> FPFH | NetworkDescriptor:
    """What was chosen, in its own cells."""
    if choice.weights is not None:
        return of_checkpoint(choice.weights, device_of(options.device), options.allow_targets)
    assert choice.voxel_size is not None  # FPFH comes with one
    return FPFH(choice.voxel_size, sensor_at_origin=options.sensor_at_origin)


def trained_descriptor(
    cfg: DictConfig, weights: Mapping[str, Tensor], name: str, device: torch.device | str
) -> NetworkDescriptor:
    """The network of a configuration with given weights."""
    net = networks.network(cfg, 1, int(cfg.data.out_channels))
    check_finite(weights, name)
    with fitting(name):
        net.load_state_dict(dict(weights))
    placement, benchmark = networks.placement(cfg), str(cfg.data.get("benchmark", ""))
    size = float(cfg.data.voxel_size)
    return NetworkDescriptor(net.to(device).eval(), size, name, placement, device, benchmark)


def of_checkpoint(
    path: str | Path, device: torch.device | str = "cpu", allow_targets: Sequence[str] = ()
) -> NetworkDescriptor:
    """The descriptor of a checkpoint, by the configuration that it carries."""
    with named(path, "checkpoint of a registration"):
        file = Path(path).stat()
        stamp = file.st_ino, file.st_size, file.st_mtime_ns
        return _of_file(path, stamp, device, tuple(allow_targets))


@functools.lru_cache(maxsize=2)
def _of_file(
    path: str | Path, stamp: object, device: torch.device | str, allow_targets: tuple[str, ...]
) -> NetworkDescriptor:
    cfg, found = opened(path, "registration", allow_targets)
    name = described(cfg, path, cfg.data.source)
    return trained_descriptor(cfg, found.weights, name, device)


def described(cfg: DictConfig, path: str | Path, source: str) -> str:
    """Name of a descriptor: what it is, at which cell, on which geometry, and its training data."""
    where = f"{cfg.model.name} {cfg.data.voxel_size:g} m, {cfg.geometry.name}"
    data = "" if source == "real" else ", trained on SIMULATED data"
    file = Path(path)
    # shipped weights are known by their name, wherever the package lies
    return f"{where}{data} ({file.name if file.parent == SHIPPED else file})"
