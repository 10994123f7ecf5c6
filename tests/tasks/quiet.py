"""A trainer that says and writes nothing, and batches for it."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch


def loader(batches: list[Any]) -> Any:
    """Batches as they are."""
    return torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def trainer_for(path: Any, **options: Any) -> L.Trainer:
    """On the CPU, without files; every step is one whose figures are logged."""
    return L.Trainer(
        accelerator="cpu",
        default_root_dir=path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        **options,
    )
