"""The folder of a run and the files in it, each written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from pcnn.checkpoints import RunCheckpoint
from pcnn.config import read_stored
from pcnn.errors import ConfigError, FileError
from pcnn.experiment.weights import check_config
from pcnn.files.bounded import named, read_json, read_yaml
from pcnn.files.whole_file import drop_parts, whole_file

CONFIG = "config.yaml"
METRICS = "metrics.json"
CONFUSION = "confusion.json"  # counts, class by class
SO_FAR = "pairs.part.jsonl"  # results of an evaluation of pairs that is not at its end
LAST = Path("checkpoints", "last.ckpt")
LOCK = ".lock"


def write_whole(path: Path, text: str) -> None:
    """Write a text file under a temporary name in its folder, then rename it."""
    with whole_file(path) as file:
        file.write(text.encode())


def sha256(path: Path) -> str:
    """Hash of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def record(folder: Path, cfg: DictConfig, resumed: bool) -> None:
    """Write the resolved configuration into the run folder, less what no file may say."""
    if (folder / CONFIG).exists() and not resumed and not (folder / SO_FAR).exists():
        raise ConfigError(
            "hydra.run.dir", f"{folder} holds a run already; resume={folder} goes on with it"
        )
    drop_parts(folder)  # left by a killed process
    write_whole(folder / CONFIG, OmegaConf.to_yaml(recorded(cfg)))


def recorded(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration as files hold it: whose code may run, no file says."""
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items() if key != "allow_targets"}


def load_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run, as its file holds it."""
    path = folder / CONFIG
    if not path.is_file():
        if (folder / LAST).is_file():
            return RunCheckpoint.read(folder / LAST).config
        raise ConfigError("resume", f"{folder} holds no run ({CONFIG} is missing)")
    config = read_stored(read_yaml(path), path)
    check_config(config, path)  # without the file that of the last checkpoint is taken
    return config


def load_metrics(folder: Path) -> dict[str, Any]:
    """Content of metrics.json of a run."""
    path = folder / METRICS
    content = read_json(path)
    if not isinstance(content, dict) or "config_sha256" not in content:
        raise FileError(path, "damaged, keys are missing; the run writes it again without it")
    return content


def nearby(path: Path) -> Path:
    """The path relative to the working folder when it lies inside, which is what a user types."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def argument(key: str, path: Path | str) -> str:
    """`key=path` as a shell and Hydra take it, whatever characters the path has."""
    if re.fullmatch(r"[\w./@%+-]+", str(path), re.ASCII):
        return f"{key}={path}"
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{key}="{escaped}"')


def drop_if_empty(folder: Path) -> None:
    """Remove a folder that was made for a run that did not begin."""
    if folder.is_dir() and folder.resolve() != Path.cwd():
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
        if not any(folder.iterdir()):
            folder.rmdir()


def write_counts(folder: Path, passes: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
    """Write the counts of a task's last passes into its run folder, if there are any."""
    if passes:
        counts = {name: counts.cpu().tolist() for name, counts in passes.items()}
        content = {"class_names": list(class_names), "counts": counts}
        write_whole(folder / CONFUSION, json.dumps(content) + "\n")


def read_counts(folder: Path) -> tuple[tuple[str, ...], dict[str, Tensor]]:
    """The counts of a run: C names of classes, and [C, C + 1] by stage."""
    path = folder / CONFUSION
    content = read_json(path)
    with named(path, "file of counts"):
        names = tuple(map(str, content["class_names"]))
        passes = {
            name: torch.tensor(counts, dtype=torch.int64)
            for name, counts in content["counts"].items()
        }
        for counts in passes.values():
            if counts.shape != (len(names), len(names) + 1) or int(counts.min()) < 0:
                raise FileError(path, f"{list(counts.shape)} counts for {len(names)} classes")
    return names, passes
