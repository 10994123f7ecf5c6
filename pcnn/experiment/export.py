"""From a checkpoint to a file small enough to hand on: weights in 16 or 8 bits, plain facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import NET, packed, write_exported
from pcnn.config import stored as stored_config
from pcnn.config.make import check_targets
from pcnn.config.values import FOLDERS
from pcnn.datasets.labels import IGNORE
from pcnn.errors import FileError
from pcnn.experiment import build, run_folder
from pcnn.experiment.networks import network_of
from pcnn.experiment.weights import opened
from pcnn.files.bounded import named
from pcnn.metrics.calibration import calibration_error, fitted_temperature

#: Bits of a weight with two or more dimensions.
BITS = (16, 8)
#: Rows of a cloud that calibrate: neighbours are wrong together, so more say little.
_ROWS = 20_000
#: Keys, wherever they stand, that hold places on one machine, and what is written in their stead.
PLACES = dict.fromkeys(FOLDERS)


def export(
    checkpoint: str | Path,
    out: str | Path,
    revision: str | None = None,
    temperature: float | None = None,
    bits: int = 16,
    allow_targets: Sequence[str] = (),
) -> dict[str, Any]:
    """Write a checkpoint's network without its optimiser, and without names of folders.

    Weights become float16, or 8 bits with scales (`pcnn.checkpoints.exported_file`). What has one
    dimension (norms, biases) stays in float32, because running variances leave float16's range.
    The file is in the safetensors format, holds tensors and text alone, and serves wherever a
    checkpoint does, except to resume.
    """
    if bits not in BITS:
        raise ValueError(f"bits={bits}: weights are written in {' or '.join(map(str, BITS))} bits")
    path = Path(checkpoint)
    found = RunCheckpoint.read(path, mmap=False)
    content = found.content
    with named(path, "checkpoint of a run"):
        config, state = stored_config(found.config, path), content["state_dict"]
        check_targets(config, allow_targets)
    held = {name: value for name, value in state.items() if name.startswith(NET)}
    weights: dict[str, Tensor] = {}
    for name, value in held.items():
        weights |= stored(name, value, bits)
    before = content.get("pcnn_export", {})
    metrics = metrics_of(path)
    learnt = [v for name, v in held.items() if "running_" not in name and v.is_floating_point()]
    facts = {
        "name": Path(out).stem,
        "model": config["model"]["name"],
        "task": config["task"]["name"],
        "geometry": config["geometry"]["name"],
        "dataset": config["dataset"]["name"],
        "source": config["data"]["source"],
        "seed": config["seed"],
        "steps": int(content["global_step"]),
        "parameters": sum(value.numel() for value in learnt),
        "bits": bits,
        "revision": revision or metrics.get("revision") or before.get("revision"),
        "figures": dict(metrics.get("metrics") or before.get("figures", {})),
    }
    kept = without_places(config)
    if temperature is not None:
        kept["data"] = {**kept["data"], "temperature": temperature}
    kept["tags"] = ["simulated"] if facts["source"] != "real" else []
    written = {
        "state_dict": weights,
        "pcnn_config": kept,
        "pcnn_export": facts,
        "global_step": facts["steps"],
    }
    write_exported(Path(out), written)
    return facts


def stored(name: str, value: Tensor, bits: int) -> dict[str, Tensor]:
    """A weight as it is written, by name; with its scales where it has two dimensions or more."""
    if bits == 8 and value.is_floating_point() and value.ndim > 1 and value.numel():
        return packed(name, value)
    return {name: halved(name, value)}


def halved(name: str, value: Tensor) -> Tensor:
    """A weight in float16, unless it has one dimension or no fraction."""
    if not value.is_floating_point():
        # int8 in such a file stands for a weight in 8 bits
        return value.short() if value.dtype == torch.int8 else value.clone()
    kept = value.half() if value.ndim > 1 else value.float().clone()
    if not bool(torch.isfinite(kept).all()):
        raise ValueError(
            f"{name} holds NaN, or numbers that are infinite or too large for float16: "
            "check the training"
        )
    return kept


def without_places(node: Any) -> Any:
    """A plain configuration with the places of files taken out."""
    if isinstance(node, dict):
        return {
            key: PLACES[key] if key in PLACES else without_places(value)
            for key, value in node.items()
        }
    return [without_places(value) for value in node] if isinstance(node, list) else node


def metrics_of(checkpoint: Path) -> dict[str, Any]:
    """The record of the run of ``<run folder>/checkpoints/best.ckpt``, if it measured this file."""
    path = checkpoint.parent.parent / run_folder.METRICS
    if not path.is_file():
        return {}
    content = run_folder.load_metrics(path.parent)
    measured = content.get("checkpoint")
    return content if measured and Path(measured).name == checkpoint.name else {}


@dataclass(frozen=True)
class Calibration:
    """The measured calibration."""

    temperature: float  # to divide logits by
    before: float  # expected calibration error without it, on the clouds that did not choose it
    after: float  # the same with it
    clouds: int  # number of clouds


@torch.inference_mode()
def calibrate(
    checkpoint: str | Path,
    device: torch.device,
    root: str | None = None,
    allow_targets: Sequence[str] = (),
) -> Calibration:
    """Find the temperature on every second validation cloud, and measure it on the others."""
    path = Path(checkpoint)
    with named(path, "checkpoint of a segmentation"):
        cfg, found = opened(path, "segmentation", allow_targets)
        net = network_of(cfg, found).to(device).eval()
    cfg.train = True
    cfg.dataset.num_workers = 0
    if root is not None:
        cfg.dataset.root = root
    module = build.data(cfg)
    halves: tuple[list[tuple[Tensor, Tensor]], ...] = ([], [])
    dataset, collate = module.dataset("val"), module.collate()  # type: ignore[attr-defined]
    count = 0 if dataset is None else len(dataset)
    for row in range(count):
        batch = collate([dataset[row]]).to(device)
        logits = net(batch.tensor).features.float()[batch.inverse]
        known = batch.point_labels != IGNORE
        logits, labels = logits[known], batch.point_labels[known]
        step = max(1, len(labels) // _ROWS)
        halves[row % 2].append((logits[::step].cpu(), labels[::step].cpu()))
    if count < 2:
        raise FileError(path, f"{count} validation clouds; two are needed to choose and to measure")
    chosen, measured = (
        (torch.cat([a for a, _ in half]), torch.cat([b for _, b in half])) for half in halves
    )
    temperature = fitted_temperature(*chosen)
    logits, labels = measured
    before = calibration_error(logits.softmax(1), labels)
    after = calibration_error((logits / temperature).softmax(1), labels)
    return Calibration(temperature, before, after, count)
