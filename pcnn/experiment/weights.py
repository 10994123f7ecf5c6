"""Checks of the weights that are evaluated: never random ones, never another network's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from pcnn.checkpoints import CheckpointError, RunCheckpoint
from pcnn.errors import FileError
from pcnn.experiment.command_line import program
from pcnn.experiment.errors import ConfigError, listed

if TYPE_CHECKING:
    import lightning as L

# keys of a data set that say which clouds validate
_VALIDATION = ("name", "root", "source", "val_sequences", "val_areas", "test_areas", "val_fraction")
#: Keys without which no stored configuration can be read.
NEEDED = (
    "model.name",
    "dataset.name",
    "geometry.name",
    "engine.name",
    "task.name",
    "data.source",
)


def require_checkpoint(cfg: DictConfig) -> None:
    """Without training there must be something to test, and weights to test it with.

    Raises:
        ConfigError: nothing is to be done, or no checkpoint was named.
        FileNotFoundError: the checkpoint does not exist.
    """
    if not cfg.test:
        raise ConfigError("train=false test=false: nothing to do.\npossible: test=true")
    if cfg.ckpt_path is None:
        raise ConfigError(
            "train=false test=true needs ckpt_path=FILE: there are no trained weights to test.\n"
            "possible: ckpt_path=logs/<task>/<run>/checkpoints/best.ckpt"
        )
    if not Path(cfg.ckpt_path).is_file():
        raise FileNotFoundError(f"ckpt_path={cfg.ckpt_path}: there is no such file")


def config_of(found: RunCheckpoint) -> dict[str, Any]:
    """The configuration in a checkpoint.

    Raises:
        FileError: the file carries none, or not the keys that every run has.
    """
    config = found.config
    # an earlier version had no other geometry
    config.setdefault("geometry", {"name": "voxel"})
    lacking = lacking_keys(config, "data.in_channels")
    if lacking:
        raise CheckpointError(
            found.path,
            f"damaged, its configuration lacks {listed(lacking)}.\n"
            "possible: another checkpoint of the run, or a copy of this one",
        )
    return config


def read_config(path: str | Path) -> dict[str, Any]:
    """The configuration in a checkpoint (`config_of`)."""
    return config_of(RunCheckpoint.read(path))


def opened(
    path: str | Path, task: str | None = None, allow_targets: Sequence[str] = ()
) -> tuple[DictConfig, RunCheckpoint]:
    """A checkpoint that is used outside of its run, and its configuration.

    Args:
        path: the checkpoint.
        task: that it has to be trained for; None takes any.
        allow_targets: packages of the user's own whose classes the configuration may name.

    Raises:
        FileError: as `config_of`, or a checkpoint of another task.
    """
    found = RunCheckpoint.read(path, mmap=False)
    cfg = OmegaConf.create({**config_of(found), "allow_targets": list(allow_targets)})
    if task not in (None, cfg.task.name):
        raise FileError(path, f"trained for {cfg.task.name}, not for {task}")
    return cfg, found


def was_chosen_here(cfg: DictConfig, found: RunCheckpoint) -> bool:
    """True where a checkpoint is the best state on the clouds that `cfg` validates on."""
    if not found.is_best:
        return False
    saved: Mapping[str, Any] = config_of(found)["dataset"]
    return all(cfg.dataset.get(key) == saved.get(key) for key in _VALIDATION)


def lacking_keys(config: Mapping[str, Any], *more: str) -> list[str]:
    """Those keys, of `NEEDED` and more, that a configuration lacks or has no value of."""
    return [key for key in (*NEEDED, *more) if _value(config, key) is None]


def _value(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config


def check_fit(cfg: DictConfig) -> None:
    """Check that the checkpoint `cfg.ckpt_path` holds weights of the network of `cfg`.

    Raises:
        ConfigError: the model, the input channels or the classes differ.
    """
    found = RunCheckpoint.read(cfg.ckpt_path)
    saved = config_of(found)
    check_finite(found.content.get("state_dict", {}), cfg.ckpt_path)
    model = OmegaConf.to_container(cfg.model, resolve=True)
    assert isinstance(model, dict)
    served = ("tasks", "geometries")  # grow from version to version
    for key in [key for key in [*model, *saved["model"]] if key not in served]:
        # an option that an earlier version had not, as overlap_head, was off
        ours, theirs = model.get(key) or None, saved["model"].get(key) or None
        if ours != theirs:
            raise ConfigError(
                f"the checkpoint was trained with model.{key}={theirs}, not {ours}.\n"
                f"possible: {program('eval')} ckpt_path={cfg.ckpt_path}, "
                "which takes its configuration"
            )
    if saved["data"]["in_channels"] != cfg.data.in_channels:
        raise ConfigError(
            f"the checkpoint takes {saved['data']['in_channels']} input channels, "
            f"dataset={cfg.dataset.name} has {cfg.data.in_channels}"
        )
    named = cfg.data.get("channels"), saved["data"].get("channels")
    if None not in named and list(named[0]) != list(named[1]):
        raise ConfigError(
            f"the checkpoint takes the channels {', '.join(named[1])}, "
            f"dataset={cfg.dataset.name} has {', '.join(named[0])}"
        )
    if cfg.task.name != saved["task"]["name"]:
        raise ConfigError(
            f"the checkpoint was trained for task={saved['task']['name']}, not {cfg.task.name}"
        )
    ours, theirs = list(cfg.data.get("class_names", [])), saved["data"].get("class_names", [])
    if ours != theirs:
        raise ConfigError(
            f"the checkpoint tells {len(theirs)} classes apart ({', '.join(theirs[:3])}, ...), "
            f"dataset={cfg.dataset.name} has {len(ours)} ({', '.join(ours[:3])}, ...)"
        )


def check_finite(state: Mapping[str, Any], where: str | Path) -> None:
    """Refuse weights that are not numbers: any answer of such a network is wrong.

    Raises:
        ConfigError: names the first tensor with NaN or infinite values.
    """
    for name, value in state.items():
        if isinstance(value, Tensor) and value.is_floating_point() and not value.isfinite().all():
            raise ConfigError(
                f"{where}: the weights {name} hold NaN or infinite numbers: the training broke.\n"
                "possible: an earlier checkpoint, or a training with a lower task.optimizer.lr"
            )


@contextmanager
def fitting(checkpoint: object) -> Iterator[None]:
    """Name the checkpoint whose weights do not fit the network of its configuration.

    Raises:
        ConfigError: in place of torch's error.
    """
    try:
        yield
    except RuntimeError as error:
        if "loading state_dict" not in str(error):
            raise
        raise ConfigError(f"{checkpoint}: weights of another network than its configuration") from (
            error
        )


def best_checkpoint(trainer: L.Trainer) -> str:
    """The best checkpoint of the training that just ended, or its last one without validation.

    Raises:
        ConfigError: the run keeps no checkpoints, so there are no weights to evaluate.
    """
    kept = trainer.checkpoint_callback
    path = getattr(kept, "best_model_path", "") or getattr(kept, "last_model_path", "")
    if not path:
        raise ConfigError(
            "this run wrote no checkpoint, so nothing can be evaluated.\n"
            "possible: callbacks=default, which keeps best.ckpt and last.ckpt"
        )
    return str(path)
