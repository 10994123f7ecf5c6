"""Trained descriptors: shipped weights, which of them suits a cloud, and those of a checkpoint."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from omegaconf import DictConfig

from pcnn.checkpoints import RunCheckpoint
from pcnn.experiment import networks
from pcnn.experiment.devices import device_of
from pcnn.experiment.options import RegisterOptions
from pcnn.experiment.weights import SHIPPED, opened, suited, weights_file
from pcnn.files.bounded import named
from pcnn.registration.cloud_measures import KNOWN, CloudMeasures, fitting_cell
from pcnn.registration.descriptor import Descriptor
from pcnn.registration.fpfh import FPFH
from pcnn.registration.network_descriptor import NetworkDescriptor
from pcnn.registration.verifier import Verifier, shipped_verifier

#: Name of weights for clouds of rooms that lie any way, which are asked after the others.
TURNED = "reg_turned"
#: By the network of the place: its benchmark, a voxel of FPFH [m].
_PLACES = {"reg_rooms": ("threedmatch", 0.05), "reg_streets": ("kitti", 0.3)}
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


def verifier_of(weights: Path | None) -> Verifier:
    """The verifier of a network's file; weights of one's own, and FPFH, are judged as rooms."""
    if weights is not None and weights.stem in VERIFIED:
        return shipped_verifier(weights.stem)
    return shipped_verifier()


def chosen(options: RegisterOptions, clouds: CloudMeasures) -> list[Choice]:
    """What describes clouds, and what is asked next where that finds no transform."""
    name, why = suited("reg", clouds.spans)
    like, cell = _PLACES[name]
    model, given = options.model, options.voxel_size
    if model == "fpfh":
        if given is not None:
            return [Choice(None, given, f"model fpfh, voxels of {given:g} m as given")]
        return [Choice(None, cell, f"model fpfh, voxels of {cell:g} m as of {why}", like)]
    if given is not None:
        raise ValueError("voxel_size is of model=fpfh; a network has its own")
    if model is not None:
        return [Choice(weights_file(model), None, f"model {model}")]
    found, asked = [Choice(weights_file(name), None, why)], "the network"
    if name == "reg_rooms":
        turned = f"{why}; {asked} found nothing: {TURNED}, for clouds that lie any way"
        found, asked = [*found, Choice(weights_file(TURNED), None, turned)], "both networks"
    return [*found, Choice(None, cell, f"{why}; {asked} found nothing: FPFH", like)]


def descriptor_of(
    options: RegisterOptions, choice: Choice, clouds: CloudMeasures
) -> tuple[Descriptor, Choice]:
    """What was chosen, in the cell that `fitting_cell` finds, and the choice with the reason."""
    own: FPFH | NetworkDescriptor
    if choice.weights is None:
        assert choice.voxel_size is not None  # FPFH comes with one
        own = FPFH(choice.voxel_size, sensor_at_origin=options.sensor_at_origin)
        known = KNOWN.get(choice.like)
        known = known and replace(known, spacing=FPFH_SPACING)
    else:
        own = of_checkpoint(choice.weights, device_of(options.device), options.allow_targets)
        known = KNOWN.get(own.benchmark)
    cell, why = fitting_cell(clouds, own.voxel_size, known) if known else (own.voxel_size, "")
    if cell == own.voxel_size:
        return own, choice
    reason = f"{choice.reason}; cells of {cell:.2g} m in place of {own.voxel_size:.2g} m: {why}"
    if isinstance(own, FPFH):
        return replace(own, voxel_size=cell), replace(choice, voxel_size=cell, reason=reason)
    return replace(own, factor=cell / own.voxel_size), replace(choice, reason=reason)


def trained_descriptor(
    cfg: DictConfig, found: RunCheckpoint, source: str, device: torch.device | str
) -> NetworkDescriptor:
    """The network of a configuration with a checkpoint's weights, which data of a source taught."""
    net, size = networks.network_of(cfg, found).to(device).eval(), float(cfg.data.voxel_size)
    data = "" if source == "real" else ", trained on SIMULATED data"
    # shipped weights are known by their name, wherever the package lies
    file = found.path.name if found.path.parent == SHIPPED else found.path
    name = f"{cfg.model.name} {size:g} m, {cfg.geometry.name}{data} ({file})"
    benchmark = str(cfg.data.get("benchmark", ""))
    return NetworkDescriptor(net, size, name, networks.placement(cfg), device, benchmark)


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
    return trained_descriptor(cfg, found, cfg.data.source, device)
