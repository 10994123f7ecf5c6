"""Mistakes in a command line end in at most three lines that name what is possible."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
)
from omegaconf import OmegaConf

from pcnn.console import until_output_closes
from pcnn.errors import UserError, storage_cause
from pcnn.escaping import escaped_output, say
from pcnn.experiment.errors import MAX_LINES, UnservedTaskError, listed, nearest
from pcnn.extras import install

#: Options of Hydra's plugins, and the commands that install them.
OF_EXTRAS = {"submitit_slurm": lambda: install("cluster"), "optuna": lambda: install("sweep")}
EXIT_CODE = 2


@contextmanager
def short_errors(conf: Path) -> Iterator[None]:
    """End with a short message and exit code 2 for a mistake of the command line or of the data.

    Any other exception is an error of the program and keeps its traceback.

    Args:
        conf: folder of the configuration groups, to name what exists there.
    """
    # Hydra prints composition errors itself, in a dozen lines, unless told to raise them
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    try:
        with until_output_closes(), escaped_output():
            yield
    except UnservedTaskError as error:
        others = serving(conf, error.group, error.task)
        where = f"\ntask={error.task} is served by: {error.group}={listed(others)}"
        stop(f"{error}" + (where if others else ""))
    except (UserError, FileNotFoundError) as error:
        stop(str(error))
    except ValueError as error:
        group = re.search(r"Config group override must be", str(error))
        if group is None:
            raise
        stop(without_name(sys.argv[1:], conf))
    except KeyboardInterrupt:  # before a run took Ctrl-C for itself
        say("Ctrl-C: stopped before the run began", error=True)
        raise SystemExit(128 + signal.SIGINT) from None
    except HydraException as error:
        stop(explain(error, sys.argv[1:], conf))
    except OSError as error:  # before a run began; some of Hydra are also of this kind
        cause = storage_cause(error)
        if cause is None:
            raise
        stop(f"{error.filename or Path.cwd()} cannot be written: {cause}")


def stop(text: str) -> None:
    """Print `text` to stderr and leave with exit code 2."""
    say(text, error=True)
    raise SystemExit(EXIT_CODE)


def explain(error: HydraException, overrides: list[str], conf: Path) -> str:
    """The mistake of a command line and what is possible, in at most three lines."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return missing_option(error, conf)
    match = re.search(r"[Cc]ould not override '([^']+)'", str(error))
    if isinstance(error, ConfigCompositionException) and match:
        return missing_key(match.group(1), overrides, conf)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[:MAX_LINES])


def options(conf: Path, group: str) -> list[str]:
    """Names of a configuration group: its YAML files."""
    return sorted(path.stem for path in (conf / group).glob("*.yaml"))


def serving(conf: Path, group: str, task: str) -> list[str]:
    """Names of the models or data sets that serve a task."""
    return [
        name
        for name in options(conf, group)
        if task in OmegaConf.to_container(OmegaConf.load(conf / group / f"{name}.yaml"))["tasks"]  # type: ignore[index, call-overload]
    ]


def groups(conf: Path) -> list[str]:
    """Configuration groups: the folders that hold YAML files."""
    found = {path.parent.relative_to(conf).as_posix() for path in conf.rglob("*.yaml")}
    return sorted(found - {"."})


def keys(node: object, prefix: str = "") -> Iterator[str]:
    """Every dotted key of a plain dictionary."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield f"{prefix}{name}"
            yield from keys(value, f"{prefix}{name}.")


def without_name(overrides: list[str], conf: Path) -> str:
    """A group was set to null, or to something else that names none of its files."""
    chosen = chosen_options(overrides, conf)
    group = next((name for name, value in chosen.items() if value == "null"), "a group")
    return (
        f"{group}={chosen.get(group, 'null')} names no configuration.\n"
        f"possible: {group}={listed(options(conf, group))}"
        + (f", or {group}=[] for none" if group == "logger" else "")
    )


def missing_option(error: MissingConfigException, conf: Path) -> str:
    """A group has no such option."""
    group, _, name = str(error.missing_cfg_file).rpartition("/")
    if not group:
        return str(error).splitlines()[0]
    if name in OF_EXTRAS:
        return f"{group}={name} comes with another package.\npossible: {OF_EXTRAS[name]()}"
    names = options(conf, group)
    return f"{group}={name} is not available.{nearest(name, names)}\navailable: {listed(names)}"


def missing_key(key: str, overrides: list[str], conf: Path) -> str:
    """A key does not exist: the nearest ones, and all of its folder."""
    existing = sorted({*keys(composed(overrides, conf)), *groups(conf)})
    parent = key.rpartition(".")[0]
    while parent and parent not in existing:
        parent = parent.rpartition(".")[0]
    prefix = f"{parent}." if parent else ""
    siblings = [
        name.removeprefix(prefix)
        for name in existing
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    ]
    return (
        f"{key} does not exist.{nearest(key, existing)}\n"
        f"{f'keys of {parent}' if parent else 'keys and groups'}: {listed(siblings)}"
    )


def chosen_options(overrides: list[str], conf: Path) -> dict[str, str]:
    """The group choices in a command line: {group: option}."""
    known = set(groups(conf))
    chosen = {}
    for text in overrides:
        name, _, value = text.partition("=")
        if name in known:
            chosen[name] = value
    return chosen


def composed(overrides: list[str], conf: Path) -> object:
    """The configuration with the group choices of a command line only, as a plain dictionary."""
    known = {*groups(conf), "hydra.searchpath"}
    arguments = [text for text in overrides if "=" in text and not text.startswith("-")]
    kept = [
        str(item.input_line)
        for item in OverridesParser.create().parse_overrides(arguments)
        if item.key_or_group in known and not item.is_sweep_override()
    ]
    program = Path(sys.argv[0]).stem
    name = program if (conf / f"{program}.yaml").exists() else "train"
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf.resolve()), version_base="1.3"):
        return OmegaConf.to_container(compose(name, kept))
