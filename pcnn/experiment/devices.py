"""Settings that depend on the machine: the device, graphs, the precision."""

from __future__ import annotations

from pathlib import Path

import torch
from omegaconf import DictConfig

from pcnn.messages import counted


def device_of(name: str) -> torch.device:
    """A device by its name; ``auto`` is the first GPU, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")  # which is refused, too
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device {name}: must be cpu, cuda, cuda:1 or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        seen = counted(torch.cuda.device_count(), "CUDA device")
        raise ValueError(f"device {name}: torch sees {seen} (pcnn doctor says more)")
    return device


def on_this_machine(cfg: DictConfig, folder: Path) -> tuple[DictConfig, torch.device, list[str]]:
    """The configuration with what this machine decides, the device, and lines that tell of it.

    * Half precision by loss scaling (`16-mixed`) is of GPUs; a CPU computes in `32-true`.
    * Steps run as CUDA graphs (`trainer.cuda_graphs`) on CUDA devices alone; with `auto` where one
      is known to hold them.
    """
    from pcnn.experiment import build
    from pcnn.experiment.run_config import no_graph, of_this_package

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
    return cfg, device, lines
