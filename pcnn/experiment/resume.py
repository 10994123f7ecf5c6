"""Continue an interrupted run exactly."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from pcnn.checkpoints import RunCheckpoint
from pcnn.config.values import FOLDERS, LOCAL, STORED, selected, stored
from pcnn.errors import ConfigError, FileError
from pcnn.experiment import run_folder
from pcnn.experiment.stored_options import BESIDE, NAMED, WORDS, repeated
from pcnn.messages import program

#: Value of `resume` that goes on with the run of `hydra.run.dir`, or begins it.
AUTO = "auto"
# a run may be made longer; anything else would make it another run
LONGER = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_time")
#: Keys that the command line may give beside `resume`.
MAY_CHANGE = (*LONGER, "dataset.num_workers", *(f"dataset.{key}" for key in (*LOCAL, *FOLDERS)))
#: Keys that a run fills in by itself.
FILLED = ("tags",)
#: Keys beside the groups that make a run what it is.
KEPT = (
    *("freeze", "layer_decay", "lr_multipliers"),
    *("test", "tags", "optimized_metric"),
)


@dataclass(frozen=True)
class Continuation:
    """A run to go on with."""

    cfg: DictConfig
    folder: Path
    checkpoint: Path | None  # None: it was stopped before its first checkpoint
    steps: int  # optimiser steps behind it
    finished: bool


def has_begun(folder: Path) -> bool:
    """True where a run folder holds a run to go on with."""
    return (folder / run_folder.CONFIG).is_file() or (folder / run_folder.LAST).is_file()


def same_run(cfg: DictConfig, folder: Path, overrides: Sequence[str]) -> Continuation:
    """Read the run of a folder, which the same command line began (``resume=auto``)."""
    saved, kept = run_folder.load_config(folder), []
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key in (*MAY_CHANGE, "allow_targets"):
            kept.append(override)
            continue
        ours, theirs = OmegaConf.select(cfg, key), selected(saved, key)
        free = OmegaConf.is_config(ours) or isinstance(theirs, dict) or "/" in key
        free |= key.startswith(("hydra.", "resume")) or key in FILLED
        if not free and ours != theirs:
            raise ConfigError(key, f"{folder} holds a run with {str(theirs)[:80]}, not {ours}")
    return continuation(cfg, kept, folder)


def continuation(
    cfg: DictConfig, overrides: Sequence[str], folder: Path | None = None
) -> Continuation:
    """Read the run of a folder: `cfg`, with the network and its training as they were stored."""
    auto = folder is not None
    folder = Path(cfg.resume) if folder is None else folder
    check_links(folder)
    saved = run_folder.load_config(folder)
    given = {text.lstrip("+~").partition("=")[0] for text in overrides}
    if not auto:
        for key in sorted(given):
            _check_given(key, cfg, saved)
    merged = with_stored(cfg, saved, given, folder / run_folder.CONFIG)
    changed = {key for key in given if OmegaConf.select(merged, key) != selected(saved, key)}
    last = whole_checkpoint(folder)
    return Continuation(
        cfg=merged,
        folder=folder,
        checkpoint=None if last is None else last.path,
        steps=0 if last is None else last.steps,
        finished=not changed & set(LONGER) and is_finished(folder),
    )


def _check_given(key: str, cfg: DictConfig, saved: Mapping[str, Any]) -> None:
    """Refuse a key that would make the run another one."""
    group = key.partition(".")[0]
    if key in (*MAY_CHANGE, "resume", "allow_targets") or group in ("hydra", "callbacks", "logger"):
        return
    ours, theirs = OmegaConf.select(cfg, key), selected(saved, key)
    if key in NAMED:
        ours, theirs = cfg[key].get("name"), selected(saved, f"{key}.name")
    # numbers of what runs beside the network come from the run
    free = key in BESIDE or (group == "trainer" and not _is_kept(key, ours))
    if not free and ours != theirs:
        raise ConfigError(key, "a resumed run goes on as it was; it may get longer")


def with_stored(
    cfg: DictConfig, saved: Mapping[str, Any], given: Collection[str], path: Path
) -> DictConfig:
    """The composed configuration, with what a run's own says of the network and its training."""
    own: Any = OmegaConf.to_container(cfg, resolve=False)
    for group, values in stored(saved, path).items():
        if group in ("dataset", "geometry"):
            own[group] = _updated(own.get(group) or {}, values, group, given)
        elif group in STORED:
            own[group] = values
    own |= {key: saved[key] for key in KEPT if key in saved and key not in given}
    begun = saved.get("init_from")
    if isinstance(begun, str) and re.fullmatch(r"\w+", begun):  # a name of shipped weights
        own["init_from"] = begun
    for group in BESIDE:
        if isinstance(saved.get(group), dict):
            own[group] = _with_numbers(own.get(group) or {}, saved[group], group, given)
    return OmegaConf.create(own)


def _updated(own: Any, other: Any, where: str, given: Collection[str]) -> Any:
    """`other` over `own`, but for keys of the command line and keys that `other` has not."""
    if not isinstance(own, dict) or not isinstance(other, dict):
        return other
    return own | {
        key: own[key]
        if f"{where}.{key}" in given
        else _updated(own.get(key), value, f"{where}.{key}", given)
        for key, value in other.items()
    }


def _with_numbers(
    own: Mapping[str, Any], other: Mapping[str, Any], where: str, given: Collection[str]
) -> dict[str, Any]:
    found = dict(own)
    for name, value in own.items():
        key, theirs = f"{where}.{name}", other.get(name)
        if name not in other or key in given:
            continue
        if isinstance(value, dict) and isinstance(theirs, dict):
            found[name] = _with_numbers(value, theirs, key, given)
        elif theirs is None or (not isinstance(value, dict) and _is_kept(key, theirs)):
            found[name] = theirs
    return found


def _is_kept(key: str, value: Any) -> bool:
    """True for a value that a run keeps of what runs beside its network."""
    if isinstance(value, bool) and key.startswith("logger."):
        return False  # whether checkpoints are sent away
    if isinstance(value, str):
        return key in WORDS and bool(re.fullmatch(r"\w[\w:/.-]{0,80}", value, re.ASCII))
    return isinstance(value, bool | int | float)


def check_links(folder: Path) -> None:
    """Refuse a run folder in which a link leads out of it: the run writes below it alone."""
    root = folder.resolve()
    for path in folder.rglob("*"):
        try:
            inside = not path.is_symlink() or path.resolve().is_relative_to(root)
            # W&B links its log from its own cache, and writes a new one
            inside |= path.relative_to(folder).parts[0] == "wandb" and path.is_file()
        except (OSError, RuntimeError):  # a link to itself
            inside = False
        if not inside:
            raise FileError(path, "the link leads out of the run folder; it is not followed")


def is_finished(folder: Path) -> bool:
    """True where metrics.json, a run's last file, belongs to the configuration as it is."""
    config = folder / run_folder.CONFIG
    if not config.is_file() or not (folder / run_folder.METRICS).is_file():
        return False
    recorded = run_folder.load_metrics(folder)["config_sha256"]
    return bool(recorded == run_folder.sha256(config))


def whole_checkpoint(folder: Path) -> RunCheckpoint | None:
    """The last checkpoint of a run; None where it was stopped before its first one."""
    last = folder / run_folder.LAST
    if not last.is_file():
        return None
    found = RunCheckpoint.read(last)
    _ = found.steps  # told by every checkpoint of a run
    return found


def resume_command(folder: Path) -> str:
    """The command that goes on with a run, with the words of this one that no file keeps."""
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    words = "".join(f" {shlex.quote(word)}" for word in repeated(overrides))
    return f"{program('train')} {run_folder.argument('resume', folder)}{words}"
