"""The folder of a run: config.yaml, metrics.json, checkpoints/, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from pcnn.experiment.errors import ConfigError

CONFIG = "config.yaml"
METRICS = "metrics.json"
LAST = Path("checkpoints", "last.ckpt")
BEST = Path("checkpoints", "best.ckpt")


def write_whole(path: Path, text: str) -> None:
    """Write a text file under a temporary name in its folder, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Hash of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def record(folder: Path, cfg: DictConfig, resumed: bool) -> None:
    """Write the resolved configuration into the run folder.

    Raises:
        ConfigError: the folder holds another run already.
    """
    if (folder / CONFIG).exists() and not resumed:
        raise ConfigError(
            f"{folder} holds a run already.\n"
            f"possible: resume={folder} to continue it, or another hydra.run.dir"
        )
    write_whole(folder / CONFIG, OmegaConf.to_yaml(cfg, resolve=True))


def load_config(folder: Path) -> DictConfig:
    """The resolved configuration of a run.

    Raises:
        ConfigError: the folder does not exist or holds no config.yaml.
    """
    path = folder / CONFIG
    if not path.is_file():
        runs = sorted(found.parent for found in Path("logs").glob(f"*/*/{CONFIG}"))
        latest = f"\nlatest run: {runs[-1]}" if runs else ""
        raise ConfigError(f"resume={folder}: no run is there ({CONFIG} is missing).{latest}")
    cfg = OmegaConf.load(path)
    assert isinstance(cfg, DictConfig)
    return cfg


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
    if folder.is_dir() and not any(folder.iterdir()) and folder.resolve() != Path.cwd():
        folder.rmdir()
