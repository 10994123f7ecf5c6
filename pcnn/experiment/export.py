"""From a checkpoint to a file small enough to hand on: weights in 16 or 8 bits, plain facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import packed, write_exported
from pcnn.config import stored as stored_config
from pcnn.config.values import FOLDERS
from pcnn.experiment.report import revision
from pcnn.files.bounded import named


def export(
    checkpoint: str | Path,
    out: str | Path,
    temperature: float | None = None,
    bits: int = 16,
) -> dict[str, Any]:
    """Write a checkpoint's network without its optimiser, and without names of folders.

    Weights become float16, or 8 bits with scales (`pcnn.checkpoints.exported_file`). What has one
    dimension (norms, biases) stays in float32, because running variances leave float16's range.
    The file is in the safetensors format, holds tensors and text alone, and serves wherever a
    checkpoint does, except to resume.
    """
    if bits not in (16, 8):
        raise ValueError(f"bits={bits}: weights are written in 16 or 8 bits")
    path = Path(checkpoint)
    found = RunCheckpoint.read(path, mmap=False)
    with named(path, "checkpoint of a run"):
        config, held = stored_config(found.config, path), found.weights
    weights: dict[str, Tensor] = {}
    for name, value in held.items():
        weights |= stored(name, value, bits)
    learnt = [v for name, v in held.items() if "running_" not in name and v.is_floating_point()]
    source = config["data"]["source"]
    facts = {
        "name": Path(out).stem,
        **{key: config[key]["name"] for key in ("model", "task", "geometry", "dataset")},
        "source": source,
        "seed": config["seed"],
        "steps": found.steps,
        "parameters": sum(value.numel() for value in learnt),
        "bits": bits,
        "revision": found.content.get("pcnn_export", {}).get("revision") or revision(),
    }
    kept = without_places(config)
    if temperature is not None:
        kept["data"] = {**kept["data"], "temperature": temperature}
    kept["tags"] = ["simulated"] if source != "real" else []
    about = {"pcnn_config": kept, "pcnn_export": facts, "global_step": found.steps}
    write_exported(Path(out), weights, about)
    return facts


def stored(name: str, value: Tensor, bits: int) -> dict[str, Tensor]:
    """A weight as it is written: with scales, or in float16 where it has two dimensions."""
    if not value.is_floating_point():
        # int8 in such a file stands for a weight in 8 bits
        return {name: value.short() if value.dtype == torch.int8 else value.clone()}
    if bits == 8 and value.ndim > 1 and value.numel():
        return packed(name, value)
    kept = value.half() if value.ndim > 1 else value.float().clone()
    if not bool(torch.isfinite(kept).all()):
        raise ValueError(f"{name} holds NaN, or numbers infinite or too large for float16")
    return {name: kept}


def without_places(node: Any) -> Any:
    """A plain configuration with the places of files taken out."""
    if isinstance(node, dict):
        return {k: None if k in FOLDERS else without_places(v) for k, v in node.items()}
    return [without_places(value) for value in node] if isinstance(node, list) else node
