"""Real or simulated data: one rule for every set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pcnn.files.simulated import is_simulated

log = logging.getLogger(__name__)

Kind = Literal["real", "simulated"]

SOURCES = ("auto", "real", "simulated")


@dataclass(frozen=True)
class DataSource:
    """A folder that holds a data set, and what it holds.

    Args:
        root: the folder.
        kind: ``simulated`` when the folder, or one above it, holds a ``SIMULATED.json``.
    """

    root: Path
    kind: Kind


def resolve_source(
    name: str,
    root: str | Path | None,
    source: str,
    default_root: Path,
    simulated_root: Path,
    simulate: Callable[[Path], Path],
    required: Sequence[str],
    steps: str = "",
) -> DataSource:
    """Decide which folder a data set is read from, and simulate one if that is what is asked for.

    * ``auto``: the given root; else the default root where it exists; else simulated data.
    * ``real``: the given root or the default root, which must hold real data.
    * ``simulated``: the given root, which must hold simulated data; else ``simulated_root``.

    A root that lacks something is never replaced by simulated data. Simulated data is announced
    in the log at level WARNING.

    Args:
        name: the set, for messages.
        root: folder given by the user, or None.
        source: ``auto``, ``real`` or ``simulated``.
        default_root: where the set is expected when no root is given.
        simulated_root: where simulated data is written.
        simulate: writes a simulated set to the folder it is given and returns the folder; does
            nothing when the folder holds that set already.
        required: paths below the root that must exist.
        steps: how to get the real set, for errors.

    Raises:
        FileNotFoundError: a folder that lacks something.
        ValueError: an unknown source, or a folder of the other kind.
    """
    if source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {source!r}")
    chosen = Path(root) if root is not None else default_root
    if root is None and (source == "simulated" or (source == "auto" and not chosen.exists())):
        chosen = simulated_root
        if source == "auto":
            log.warning("%s: no root was given and %s does not exist", name, default_root)
        simulate(chosen)
    _check(name, chosen, required, steps)
    kind: Kind = "simulated" if is_simulated(chosen) else "real"
    if source != "auto" and kind != source:
        raise ValueError(
            f"{name}: source={source}, but {chosen} holds {kind} data; give another root or "
            f"source={kind}"
        )
    if kind == "simulated":
        log.warning("%s: SIMULATED data from %s; results say nothing of real scans", name, chosen)
    else:
        log.info("%s: real data from %s", name, chosen)
    return DataSource(chosen, kind)


def _check(name: str, root: Path, required: Sequence[str], steps: str) -> None:
    if not root.is_dir():
        raise FileNotFoundError(f"{name}: {root} is not a folder. {steps}".rstrip())
    missing = [path for path in required if not (root / path).exists()]
    if missing:
        raise FileNotFoundError(f"{name}: {root} lacks {', '.join(missing)}. {steps}".rstrip())
