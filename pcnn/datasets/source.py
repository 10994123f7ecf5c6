"""Real or simulated data: one rule for every set."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pcnn.files.simulated import kind_of

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


@dataclass(frozen=True)
class Published:
    """A published data set, which is simulated where it is absent.

    Args:
        name: the set, for messages.
        folder: where it is expected below ``data_dir``.
        simulator: dotted name of its `pcnn.simulate.simulator.Simulator`, which is imported when it
            is needed: simulators write with this package.
        steps: how to get the real set, for errors.
    """

    name: str
    folder: str
    simulator: str
    steps: str

    def found(
        self,
        root: str | None,
        source: str,
        data_dir: str,
        arguments: Mapping[str, Any] | None,
        required: Sequence[str] = (),
    ) -> DataSource:
        """Find the set, or simulate it; see `resolve_source`.

        Args:
            root: folder given by the user, or None.
            source: ``auto``, ``real`` or ``simulated``.
            data_dir: folder for the default root and for simulated sets.
            arguments: of the simulator.
            required: paths below the root that must exist.
        """
        simulator, data = pkgutil.resolve_name(self.simulator), Path(data_dir)
        given = dict(arguments or {})
        return resolve_source(
            self.name,
            root,
            source,
            data / self.folder,
            simulator.folder(data, given),
            partial(simulator.write, **given),
            required,
            self.steps,
        )


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
    kind = kind_of(chosen)
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
