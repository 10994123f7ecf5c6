"""Trained weights: their names, their files, and the checks of what these hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Interval, Len, MinLen
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import SUFFIX
from pcnn.config import check_allowed, refusal, stored
from pcnn.config.values import selected
from pcnn.errors import ConfigError, FileError, MissingFileError
from pcnn.files.bounded import named, read_json
from pcnn.ranges import Channels, Length, Positive, Seed

#: Folder of the weights that come with the package, and the file in it that lists them.
SHIPPED, CATALOGUE = Path(__file__).parents[1] / "weights", "catalogue.json"
#: Clouds up to this span are taken for rooms, larger ones for streets [m].
ROOMS_UP_TO = 20.0
_Byte = Annotated[int, Interval(ge=0, le=255)]
#: Types of stored values that are used as they are, and of those without which none can be read.
_NEEDED: Mapping[str, Any] = {
    **dict.fromkeys((f"{key}.name" for key in ("model", "dataset", "geometry", "task")), str),
    "engine.name": str,
    "data.source": Literal["real", "simulated"],
    "data.in_channels": Channels,
}
_TYPES: Mapping[str, Any] = {
    **_NEEDED,
    "seed": Seed,
    "data.out_channels": Channels,
    "data.voxel_size": Length,
    "data.channels": list[str],
    "data.class_names": Annotated[list[str], MinLen(1)],
    "data.colors": Annotated[list[tuple[_Byte, _Byte, _Byte]], MinLen(1)],
    "data.temperature": Positive,
    "dataset.voxel_size": Length | Annotated[list[Length], Len(3, 3)],
    "dataset.crop": Length,
    "dataset.intensity_max": Positive,
    "dataset.fill": dict[str, float],
}


@dataclass(frozen=True)
class Weights:
    """An entry of the catalogue."""

    name: str  # what it is called
    version: str  # of the file; another file has another one
    task: str  # segmentation or registration
    licence: str  # of the weights, as SPDX writes it
    source: str  # real or simulated, what it was trained on
    trained_on: str  # the data set, in words
    classes: tuple[str, ...]  # names of the classes of a segmentation


def catalogue() -> dict[str, Weights]:
    """The weights that come with the package, by name."""
    with named(SHIPPED / CATALOGUE, "catalogue of weights"):
        entries: dict[str, dict[str, Any]] = read_json(SHIPPED / CATALOGUE)
        return {
            name: Weights(**{"name": name, **entry, "classes": tuple(entry["classes"])})
            for name, entry in entries.items()
        }


def weights_file(model: str | Path) -> Path:
    """The file that a name of shipped weights or a path stands for."""
    shipped = SHIPPED / f"{model}{SUFFIX}"
    if Path(model).name == str(model) and shipped.is_file():
        return shipped
    if Path(model).is_file():
        return Path(model)
    names = ", ".join(sorted(path.stem for path in SHIPPED.glob(f"*{SUFFIX}")))
    raise MissingFileError(model, f"no such checkpoint, and no weights of that name ({names})")


def suited(task: str, spans: Sequence[float]) -> tuple[str, str]:
    """The weights for clouds, of rooms or streets by the one that spans most, and why these."""
    least, most = min(spans, default=0.0), max(spans, default=0.0)
    name = f"{task}_rooms" if most <= ROOMS_UP_TO else f"{task}_streets"
    subject = "the cloud spans" if len(spans) == 1 else "the clouds span"
    # a pair of two kinds has no network of its own: say so, the user may have mixed up files
    both = f"{least:.3g} to " if least <= ROOMS_UP_TO < most else ""
    return name, f"{name}: {subject} {both}{most:.3g} m (up to {ROOMS_UP_TO:g} m: {task}_rooms)"


def check_config(config: Mapping[str, Any], path: Path) -> None:
    """Refuse a stored configuration that lacks something, or holds what no run has written."""
    for key, hint in _TYPES.items():
        value = selected(config, key)
        rule = "it is missing" if key in _NEEDED else None
        if value is not None:
            rule = refusal(value, hint)
        if rule is not None:
            raise FileError(path, f"damaged, {key}={str(value)[:80]}: {rule}")


def config_of(found: RunCheckpoint) -> dict[str, Any]:
    """The configuration in a checkpoint."""
    config = stored(found.config, found.path)
    check_config(config, found.path)
    registration = selected(config, "task.name") == "registration"
    edge = "data.voxel_size" if registration else "dataset.voxel_size"
    names, colors = selected(config, "data.class_names"), selected(config, "data.colors")
    if selected(config, edge) is None or (colors is not None and len(colors) != len(names or [])):
        raise FileError(found.path, f"damaged, {edge} or data.colors do not fit the rest")
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
