"""Checks of the weights that are evaluated: never random ones, never another network's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval, Len, MinLen
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from pcnn.checkpoints import CheckpointError, RunCheckpoint
from pcnn.config import check_allowed, refusal, stored
from pcnn.config.values import selected
from pcnn.errors import ConfigError, FileError
from pcnn.experiment.catalogue import weights_file
from pcnn.ranges import Channels, Length, Positive, Seed

if TYPE_CHECKING:
    import lightning as L

_Byte = Annotated[int, Interval(ge=0, le=255)]
#: Keys without which no stored configuration can be read.
NEEDED = (
    *("model.name", "dataset.name", "geometry.name", "engine.name", "task.name"),
    *("data.source", "data.in_channels"),
)
#: Types of stored values that are used as they are.
_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(NEEDED[:5], str),
    "seed": Seed,
    "data.source": Literal["real", "simulated"],
    "data.in_channels": Channels,
    "data.out_channels": Channels,
    "data.voxel_size": Length,
    "data.benchmark": str,
    "data.channels": list[str],
    "data.class_names": Annotated[list[str], MinLen(1)],
    "data.colors": Annotated[list[tuple[_Byte, _Byte, _Byte]], MinLen(1)],
    "data.temperature": Positive,
    "data.files": dict[str, Any],
    "dataset.voxel_size": Length | Annotated[list[Length], Len(3, 3)],
    "dataset.crop": Length,
    "dataset.intensity_max": Positive,
    "dataset.fill": dict[str, float],
}


def config_of(found: RunCheckpoint) -> dict[str, Any]:
    """The configuration in a checkpoint."""
    config = stored(found.config, found.path)
    lacking = lacking_keys(config)
    if lacking:
        raise CheckpointError(found.path, f"damaged, its configuration lacks {', '.join(lacking)}")
    for key, hint in _TYPES.items():
        value = selected(config, key)
        rule = None if value is None else refusal(value, hint)
        if rule is not None:
            raise CheckpointError(found.path, f"damaged, {key}={str(value)[:80]}: {rule}")
    registration = selected(config, "task.name") == "registration"
    edge = "data.voxel_size" if registration else "dataset.voxel_size"
    names, colors = selected(config, "data.class_names"), selected(config, "data.colors")
    if selected(config, edge) is None or (colors is not None and len(colors) != len(names or [])):
        raise CheckpointError(found.path, f"damaged, {edge} or data.colors do not fit the rest")
    return config


def read_config(path: str | Path) -> dict[str, Any]:
    """The configuration in a checkpoint (`config_of`), or in weights of the catalogue."""
    return config_of(RunCheckpoint.read(weights_file(path)))


def opened(
    path: str | Path, task: str | None = None, allow_targets: Sequence[str] = ()
) -> tuple[DictConfig, RunCheckpoint]:
    """A checkpoint that is used outside of its run, and its configuration."""
    check_allowed(allow_targets, ["allow_targets="])
    found = RunCheckpoint.read(path, mmap=False)
    cfg = OmegaConf.create({**config_of(found), "allow_targets": list(allow_targets)})
    if task not in (None, cfg.task.name):
        raise FileError(path, f"trained for {cfg.task.name}, not for {task}")
    return cfg, found


def lacking_keys(config: Mapping[str, Any]) -> list[str]:
    """Those keys of `NEEDED` that a configuration lacks or has no value of."""
    return [key for key in NEEDED if selected(config, key) is None]


def check_fit(cfg: DictConfig) -> None:
    """Check that the checkpoint `cfg.ckpt_path` holds weights of the network of `cfg`."""
    found = RunCheckpoint.read(cfg.ckpt_path)
    check_finite(found.content.get("state_dict", {}), cfg.ckpt_path)
    saved, own = config_of(found), OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(own, dict)
    for key in ("model", "task.name", "data.in_channels", "data.channels", "data.class_names"):
        ours, theirs = selected(own, key), selected(saved, key)
        if ours != theirs and None not in (ours, theirs):  # a set of pairs names no channels
            rule = f"the checkpoint has {key}={str(theirs)[:200]}, not {str(ours)[:200]}"
            raise ConfigError(key, rule)


def check_finite(state: Mapping[str, Any], where: str | Path) -> None:
    """Refuse weights that are not numbers: any answer of such a network is wrong."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value.is_floating_point() and not value.isfinite().all():
            raise FileError(where, f"the weights {name} hold NaN or infinite numbers")


@contextmanager
def fitting(checkpoint: object) -> Iterator[None]:
    """Name the checkpoint whose weights do not fit the network of its configuration."""
    try:
        yield
    except RuntimeError as error:
        if "loading state_dict" not in str(error):
            raise
        raise FileError(checkpoint, "weights of another network than its configuration") from error


def best_checkpoint(trainer: L.Trainer) -> str:
    """The best checkpoint of the training that just ended, or its last one without validation."""
    kept = trainer.checkpoint_callback
    path = getattr(kept, "best_model_path", "") or getattr(kept, "last_model_path", "")
    if not path:
        raise ConfigError("callbacks", "without a checkpoint nothing can be evaluated")
    return str(path)
