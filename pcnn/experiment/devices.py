"""Settings that depend on the machine: devices, their share of a step, the precision."""

from __future__ import annotations

import os
from pathlib import Path

import lightning as L
import torch
from omegaconf import DictConfig

from pcnn.errors import ConfigError
from pcnn.experiment import build
from pcnn.experiment.run_config import no_graph, of_this_package

#: Values of `trainer.devices` that leave their number to the machine.
ANY_NUMBER = ("auto", "-1")


def on_this_machine(
    cfg: DictConfig, folder: Path, before: int | None = None
) -> tuple[DictConfig, torch.device, list[str]]:
    """The configuration with what this machine decides, the device, and lines that tell of it.

    * Half precision by loss scaling (`16-mixed`) is of GPUs; a CPU computes in `32-true`.
    * Steps run as CUDA graphs (`trainer.cuda_graphs`) on CUDA devices alone; with `auto` where one
      is known to hold them.
    * `global_batch_size` samples go into an optimiser step, whatever the number of devices: they
      are `devices * dataset.batch_size * trainer.accumulate_grad_batches` of them. The batch of a
      device may get smaller, to divide its share, and `trainer.devices=auto` leaves devices out
      that a step cannot be shared with.
    """
    cfg = cfg.copy()
    given = str(cfg.trainer.get("precision"))
    half = given in ("16", "16-mixed")
    plain = cfg.copy()
    if half:  # to ask for the device without the precision's warnings
        plain.trainer.precision = "32-true"
    trial = build.trainer(plain, folder, [], [])
    device = trial.strategy.root_device
    lines = []
    if half and device.type == "cpu":
        cfg.trainer.precision = "32-true"
        lines.append(f"precision: 32-true, as trainer.precision={given} needs a GPU")
    asked = cfg.trainer.get("cuda_graphs")
    if asked:
        reason = None if device.type == "cuda" else "trainer.cuda_graphs=true needs a CUDA device"
        if asked == "auto" and reason is None and cfg.train:
            reason = no_graph(cfg)
            if reason is None and not of_this_package(cfg):
                reason = "trainer.cuda_graphs=auto knows parts of this package alone"
        cfg.trainer.cuda_graphs = reason is None
        if reason is not None and cfg.train and (asked is True or device.type == "cuda"):
            lines.append(f"steps run eagerly: {reason}")
    if before is not None and cfg.train:
        cfg.trainer.accumulate_grad_batches = 1  # follows from the devices of this machine
        cfg.global_batch_size = before
    if cfg.get("global_batch_size") is not None and cfg.train:
        lines.append(share_steps(cfg, trial))
    return cfg, device, lines


def share_steps(cfg: DictConfig, trial: L.Trainer) -> str:
    """Set devices, batch and accumulation to the global batch; returns a line that tells them."""
    total, accumulated = int(cfg.global_batch_size), int(cfg.trainer.accumulate_grad_batches)
    nodes, devices = trial.num_nodes, trial.num_devices
    if str(cfg.trainer.devices) in ANY_NUMBER:
        devices = started(nodes) or max(
            (d for d in range(1, devices + 1) if total % (d * nodes) == 0), default=devices
        )
    world = devices * nodes
    if total % world:
        fitting = [str(d) for d in range(1, total + 1) if total % (d * nodes) == 0]
        raise ConfigError(
            "global_batch_size",
            f"{total} cannot be shared by {world} devices; trainer.devices={' or '.join(fitting)}",
        )
    share = total // world
    most = min(share, max(1, cfg.dataset.batch_size))
    batch = max(size for size in range(1, most + 1) if share % size == 0)
    if accumulated not in (1, share // batch):
        raise ConfigError(
            "trainer.accumulate_grad_batches",
            f"{accumulated} contradicts global_batch_size={total}, which wants {share // batch} "
            f"on {world} devices with batches of {batch}",
        )
    cfg.trainer.devices = devices
    cfg.dataset.batch_size = batch
    cfg.trainer.accumulate_grad_batches = share // batch
    return (
        f"samples of a step: {total} = {world} device{'s' if world > 1 else ''} x batches of "
        f"{batch} x {share // batch} accumulated"
    )


def started(nodes: int) -> int | None:
    """Processes on this node, where a launcher or the first rank has started them already."""
    if "LOCAL_RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    return int(os.environ["WORLD_SIZE"]) // nodes
