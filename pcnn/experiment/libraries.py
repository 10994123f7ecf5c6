"""Known of the constructors of libraries: ranges of their arguments, packages that they need.

They declare no ranges. Without these a library's error would come late and without the key's name,
or not at all: `max_steps=0` trains nothing, a negative `gradient_clip_val` clips nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from annotated_types import Interval, Len, MinLen

from pcnn.extras import install
from pcnn.ranges import Count, Natural, NonNegative, PartialShare, Positive

_Devices = Annotated[int, Interval(ge=1, le=4096)]
_Part = Count | Annotated[float, Interval(gt=0, le=1)]  # so many batches, or a share of them

TRAINER: Mapping[str, Any] = {
    "devices": Literal[-1, "auto"] | _Devices | Annotated[list[Natural], MinLen(1)],
    "num_nodes": _Devices,
    "max_steps": Literal[-1] | Count,
    "min_steps": Count | None,
    "max_epochs": Literal[-1] | Count | None,
    "min_epochs": Count | None,
    "max_time": str | None,
    "limit_train_batches": _Part | None,
    "limit_val_batches": _Part | Literal[0] | None,
    "limit_test_batches": _Part | None,
    "limit_predict_batches": _Part | None,
    "overfit_batches": Natural | Annotated[float, Interval(ge=0, le=1)],
    "val_check_interval": _Part | str | timedelta | None,
    "check_val_every_n_epoch": Count | None,
    "num_sanity_val_steps": Literal[-1] | Natural | None,
    "log_every_n_steps": Count | None,
    "gradient_clip_val": NonNegative | None,
    "accumulate_grad_batches": Count,
    "reload_dataloaders_every_n_epochs": Natural,
}

OPTIMIZER: Mapping[str, Any] = {
    "lr": Positive,
    "weight_decay": NonNegative,
    "momentum": PartialShare,
    "dampening": Annotated[float, Interval(ge=0, le=1)],
    "eps": NonNegative,
    "betas": Annotated[list[PartialShare], Len(2, 2)],
    "alpha": Annotated[float, Interval(ge=0, le=1)],
}

LOGGER: Mapping[str, Any] = {"flush_logs_every_n_steps": Count, "max_queue": Count}


#: Package that a class needs and does not import at first, and the extra that brings it.
PACKAGES: Mapping[str, tuple[str, str]] = {
    "lightning.pytorch.loggers.TensorBoardLogger": ("tensorboard", "tensorboard"),
    "pcnn.registration.fpfh.FPFH": ("open3d", "registration"),
}


def missing_package(target: str) -> str | None:
    """What to install for a class whose package is absent, in words; None where it is there."""
    package, extra = PACKAGES.get(target, (None, ""))
    if package is None or find_spec(package) is not None:
        return None
    return f"needs the package {package}, which is not installed.\npossible: {install(extra)}"


def library_hints(target: str) -> Mapping[str, Any]:
    """Types, with ranges, of arguments of a library's class; by the argument's name."""
    if target in ("lightning.Trainer", "lightning.pytorch.Trainer"):
        return TRAINER
    if target.startswith("torch.optim."):
        return OPTIMIZER
    if target.startswith("lightning.pytorch.loggers."):
        return LOGGER
    return {}
