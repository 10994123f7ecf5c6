"""A stored configuration and a command line: the options that it completes, the values it keeps.

torch is imported only where a file is read, so that help and mistakes show at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pcnn.config.values import LOCAL, selected, stored

#: Groups whose options are named in a stored configuration.
NAMED = ("model", "dataset", "task", "geometry", "engine")
#: Groups of what runs beside a network: a run tells which of our own files it chose.
BESIDE = ("trainer", "callbacks", "logger")
#: Words of these groups that make a run what it is; its numbers all do.
WORDS = (
    *("trainer.accelerator", "trainer.devices", "trainer.precision", "trainer.max_time"),
    "trainer.cuda_graphs",
    *("callbacks.checkpoint.monitor", "callbacks.checkpoint.mode"),
)
#: Keys beside the groups that make a run what it is.
KEPT = ("freeze", "layer_decay", "test", "tags")


def with_stored_options(arguments: Sequence[str], conf: Path) -> list[str]:
    """The command line, preceded by the options that the checkpoint's or the run's own chose."""
    given = dict(text.partition("=")[::2] for text in arguments)
    # the value of an argument, without the quotes that Hydra takes
    plain = {
        key: given.get(key, "").strip("'\"").replace('\\"', '"').replace("\\\\", "\\")
        for key in ("resume", "ckpt_path")
    }
    if any(text.startswith("-") for text in arguments):
        return list(arguments)  # --help and the like need no file
    if plain["resume"] not in ("null", "auto", ""):
        from pcnn.experiment.run_folder import load_config  # imports torch

        saved: Any = load_config(Path(plain["resume"]))
        options = saved["choices"] if isinstance(saved.get("choices"), dict) else {}
    elif plain["ckpt_path"]:
        from pcnn.experiment.weights import read_config  # imports torch

        saved, options = read_config(plain["ckpt_path"]), {}
    else:
        return list(arguments)
    options = {**{key: selected(saved, f"{key}.name") for key in NAMED}, **options}
    searched = re.findall(r"file://([^],'\"]+)", given.get("hydra.searchpath", ""))
    folders = [conf, *map(Path, searched)]
    words = [
        word
        for key in (*NAMED, *BESIDE)
        if key not in given and (word := _word(key, options.get(key), folders)) is not None
    ]
    return [*words, *arguments]


def _word(group: str, option: Any, folders: Sequence[Path]) -> str | None:
    """`group=option`; a name that a file holds becomes nothing but the name of one of our files."""
    names = option if isinstance(option, list) else [option]
    for name in names:
        there = re.fullmatch(r"\w+", str(name), re.ASCII) and any(
            (folder / group / f"{name}.yaml").exists() for folder in folders
        )
        if not there:
            return None
    return f"{group}=[{','.join(names)}]" if isinstance(option, list) else f"{group}={option}"


def keys_of(overrides: Sequence[str]) -> set[str]:
    """The keys that a command line gives."""
    return {text.lstrip("+~").partition("=")[0] for text in overrides}


def with_stored(
    cfg: DictConfig, saved: Mapping[str, Any], given: Collection[str], path: object
) -> DictConfig:
    """The composed configuration with what a stored one says of the network and its data.

    The keys that the command line gives stay, as does an option that is not the stored one.
    """
    own: Any = OmegaConf.to_container(cfg, resolve=False)
    kept = stored(saved, path)
    merged = dict(own)
    for group, values in kept.items():
        before = own.get(group)
        both = isinstance(before, dict) and isinstance(values, dict)
        same = both and group in NAMED and before.get("name") == values.get("name")
        if same or group not in given:
            # of data and of places a file does not say everything
            keeps = same and group in ("dataset", "geometry")
            merged[group] = before | values if keeps else values
    changed: DictConfig = OmegaConf.create(merged)
    for key in given:
        if "." in key and key.partition(".")[0] in kept:
            OmegaConf.update(changed, key, selected(own, key), merge=False)
    return changed


def with_numbers(
    cfg: DictConfig, saved: Mapping[str, Any], given: Collection[str], path: object
) -> DictConfig:
    """The same of a run to go on with, with its numbers of what runs beside the network."""
    merged: Any = OmegaConf.to_container(with_stored(cfg, saved, given, path), resolve=False)
    merged |= {key: saved[key] for key in KEPT if key in saved and key not in given}
    begun = saved.get("init_from")
    if isinstance(begun, str) and re.fullmatch(r"\w+", begun):  # a name of shipped weights
        merged["init_from"] = begun
    for group in BESIDE:
        if isinstance(saved.get(group), dict):
            merged[group] = _with_numbers(merged.get(group) or {}, saved[group], group, given)
    return OmegaConf.create(merged)


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
        elif theirs is None or (not isinstance(value, dict) and is_kept(key, theirs)):
            found[name] = theirs
    return found


def is_kept(key: str, value: Any) -> bool:
    """True for a value that a run keeps of what runs beside its network."""
    if isinstance(value, bool) and key.startswith("logger."):
        return False  # whether checkpoints are sent away
    if isinstance(value, str):
        return key in WORDS and bool(re.fullmatch(r"\w[\w:/.-]{0,80}", value, re.ASCII))
    return isinstance(value, bool | int | float)


def repeated(overrides: Sequence[str]) -> list[str]:
    """Words of a command line that no run folder keeps: a resumed run wants them once more."""
    words = []
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        group, _, rest = key.partition(".")
        kept = key in WORDS or re.fullmatch(r"[\d.eE+-]+|null|true|false", value)
        beside = group in BESIDE and rest and not kept
        place = key in [f"dataset.{name}" for name in LOCAL] or key == "allow_targets"
        if beside or place or (key == "init_from" and not re.fullmatch(r"\w+", value)):
            words.append(text)
    return words
