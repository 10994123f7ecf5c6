"""A stored configuration and a command line: the words that it completes, the values it keeps.

torch is imported only where a file is read, so that help and mistakes show at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pcnn.config.values import LOCAL, selected, stored
from pcnn.errors import ConfigError

#: Groups whose options are named in a stored configuration.
NAMED = ("model", "dataset", "task", "geometry", "engine")
#: Groups of what runs beside a network, of which a run keeps its words alone.
BESIDE = ("trainer", "callbacks", "logger")
#: Keys of these groups whose text makes a run what it is; their numbers all do.
TEXTS = (
    *("trainer.accelerator", "trainer.devices", "trainer.precision", "trainer.max_time"),
    "trainer.cuda_graphs",
    *("callbacks.checkpoint.monitor", "callbacks.checkpoint.mode"),
)
#: Options and keys beside the groups of which a run keeps the words.
KEPT = (*BESIDE, "experiment", "init_from", "freeze", "layer_decay", "test", "tags")


def command_words() -> list[str]:
    """The words of the command line of this run; none outside of Hydra's programs."""
    from hydra.core.hydra_config import HydraConfig

    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []


def with_stored_options(arguments: Sequence[str], conf: Path) -> list[str]:
    """The command line, preceded by the words that the checkpoint or the run was begun with."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if any(text.startswith("-") for text in arguments):
        return list(arguments)  # --help and the like need no file
    parsed = OverridesParser.create().parse_overrides(list(arguments))
    given: dict[str, Any] = {one.key_or_group: one.value() for one in parsed}
    begun: list[str] = []
    if given.get("resume") not in (None, "auto", ""):
        from pcnn.experiment.run_folder import load_config  # imports torch

        saved = load_config(Path(str(given["resume"])))
        if not isinstance(saved.get("words"), list):
            raise ConfigError("resume", f"{given['resume']} does not say how it was begun")
        begun = [word for word in map(str, saved["words"]) if is_kept(word)]
    elif given.get("ckpt_path"):
        from pcnn.experiment.weights import read_config  # imports torch

        saved = read_config(str(given["ckpt_path"]))
    else:
        return list(arguments)
    searched = given.get("hydra.searchpath") or ()
    folders = [conf, *(Path(str(one).removeprefix("file://")) for one in searched)]
    options = {key: str(selected(saved, f"{key}.name")) for key in NAMED}
    words = [
        f"{group}={name}"  # a name in a file becomes nothing but the name of one of our files
        for group, name in options.items()
        if re.fullmatch(r"\w+", name, re.ASCII)
        and any((folder / group / f"{name}.yaml").exists() for folder in folders)
    ]
    own = keys_of(arguments)
    return [*(word for word in [*words, *begun] if not keys_of([word]) & own), *arguments]


def keys_of(overrides: Sequence[str]) -> set[str]:
    """The keys that a command line gives."""
    return {key_of(word) for word in overrides}


def key_of(word: str) -> str:
    """The key that a word of a command line gives."""
    return word.lstrip("+~").partition("=")[0]


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


def is_kept(word: str) -> bool:
    """True for a word that a run keeps: an option, a number, a text of `TEXTS`."""
    key, value = key_of(word), word.partition("=")[2]
    group = key.partition(".")[0]
    if key in KEPT:
        return bool(re.fullmatch(r"[\w.*+-]*|\[[\w.,*+-]*\]", value, re.ASCII))
    rule = r"[\d.eE+-]*|null"
    if group != "logger":  # whether checkpoints are sent away
        rule += "|true|false"
    if key in TEXTS:
        rule += r"|(['\"]?)\w[\w:/.-]{0,80}\1"
    named = group in BESIDE and re.fullmatch(r"\w+(\.\w+)+", key, re.ASCII)
    return bool(named and re.fullmatch(rule, value, re.ASCII))


def repeated(words: Sequence[str]) -> list[str]:
    """Words of a command line that no run folder keeps: a resumed run wants them once more."""
    places = {"allow_targets", *(f"dataset.{name}" for name in LOCAL)}
    return [
        word
        for word in words
        if (key_of(word) in places or key_of(word).partition(".")[0] in KEPT) and not is_kept(word)
    ]
