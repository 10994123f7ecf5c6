"""Result files of the benchmarks: a header that says where, and one row a measurement.

``{"header": {device, driver, torch, triton, cuda, revision, date, ...}, "rows": [...]}``. An absent
key means not applicable. A row with a time always says ``checked: true``; how it got there is
`pcnn.bench.verify`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pcnn.errors import UserError
from pcnn.files.text import read_json
from pcnn.files.whole_file import whole_file

WHAT = (
    "map",
    "layer",
    "backward",
    "train",
    "map+layer",
    "map+train",
    "network",
    "radius",
    "stage",
    "training",
    "part",
    "solver",
)
#: Products of a kernel map; see `pcnn.bench.mapping.products`.
PRODUCTS = ("table", "pairs", "ready", "train")
TIMES = ("gpu_ms", "wall_ms", "host_ms", "min_ms", "p90_ms", "p95_ms", "p99_ms", "gpu_busy_ms")
CACHES = ("warm", "cold")


@dataclass(frozen=True)
class Header:
    """Where and when rows were measured; ``None`` means not there (no GPU, no Triton).

    Args:
        device: name of the GPU, or of the processor and its threads.
        torch: version.
        revision: commit of the checkout, or the package's version.
        date: of the measurement.
        driver: version of the GPU's.
        triton: version.
        cuda: version that torch was built for.
        before: clocks, temperature and power of the GPU (`pcnn.bench.environment`) before the rows.
        after: the same after them.
        stand_ins: by figure, what was measured in place of the paper's data.
    """

    device: str
    torch: str
    revision: str
    date: str
    driver: str | None = None
    triton: str | None = None
    cuda: str | None = None
    before: dict[str, float | None] | None = None
    after: dict[str, float | None] | None = None
    stand_ins: dict[str, str] | None = None


@dataclass(frozen=True)
class Row:
    """One measurement.

    Args:
        what: what ran: ``map``, ``layer`` (forward), ``backward``, ``train`` (both),
            ``map+layer`` and ``map+train`` (a new map, then these), ``network`` or ``radius`` (the
            map of native points); of the data path a ``stage``, or a whole ``training``,
            and a ``part`` of its steps; or a ``solver`` of registration.
        workload: name of the scene.
        engine: name of the engine.
        product: what a map measurement delivers: ``table``, ``pairs``, ``ready``, ``train``.
        n: input rows.
        triplets: number of triplets T.
        dtype: of features and weights.
        k: kernel size.
        stride: stride.
        c_in: input channels.
        c_out: output channels.
        model: name of the network.
        gpu_ms: device time without launch gaps, median.
        wall_ms: from start to end on an idle device, launches and syncs included, median.
        host_ms: until the call returned to the host, which waited for nothing, median; of a
            ``stage``, time of one core; of a ``solver``, time of all cores together.
        min_ms: smallest wall time of the repeats.
        p90_ms: nine in ten repeats took at most this wall time.
        p95_ms: 95 in a hundred took at most this wall time.
        p99_ms: 99 in a hundred took at most this wall time.
        gpu_busy_ms: sum of the durations of all kernels of one call; of one stage where ``params``
            names a stage.
        floor_ms: lower bound by arithmetic and memory traffic, where the device's rates are known.
        memory_mb: peak device memory above what was there before the call.
        launches: kernels, copies and fills that the device ran.
        syncs: times the host waited for the device.
        cache: ``warm`` (repeats follow each other) or ``cold`` (flushed before every repeat).
        inputs: copies of the input that repeats took turns among, if several.
        l2_hit_percent: sectors found in the L2 cache [%].
        params: settings that tell rows apart, by name.
        figure: the paper's figure that the row belongs to.
        run: number of the run, where everything was measured several times.
        checked: the very configuration agreed with float64 before it was timed.

    Raises:
        ValueError: a time without ``checked``, or an unknown ``what``, ``product`` or ``cache``.
    """

    what: str
    workload: str
    engine: str
    product: str | None = None
    n: int | None = None
    triplets: int | None = None
    dtype: str | None = None
    k: int | None = None
    stride: int | None = None
    c_in: int | None = None
    c_out: int | None = None
    model: str | None = None
    gpu_ms: float | None = None
    wall_ms: float | None = None
    host_ms: float | None = None
    min_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    gpu_busy_ms: float | None = None
    floor_ms: float | None = None
    memory_mb: float | None = None
    launches: int | None = None
    syncs: int | None = None
    cache: str | None = None
    inputs: int | None = None
    l2_hit_percent: float | None = None
    params: Mapping[str, int | float | str] | None = None
    figure: str | None = None
    run: int | None = None
    checked: bool = False

    def __post_init__(self) -> None:
        for name, known in (("what", WHAT), ("product", PRODUCTS), ("cache", CACHES)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if not self.checked and any(getattr(self, name) is not None for name in TIMES):
            raise ValueError(
                f"the time of {self.engine} on {self.workload} was not verified; verify the result "
                "before timing it (pcnn.bench.verify)"
            )


def present(record: Header | Row) -> dict[str, Any]:
    """Fields of a record that apply, in their order."""
    return {name: value for name, value in asdict(record).items() if value is not None}


def left_out(row: Row, error: BaseException | str) -> Row:
    """A row without times whose setting ``left_out`` says why."""
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return replace(row, params={**(row.params or {}), "left_out": reason})


def described(row: Row) -> str:
    """Engine, workload and settings of a row, for a message."""
    kernel = "" if row.k is None else f"K={row.k} stride {row.stride}"
    layer = "" if row.c_in is None else f"{row.c_in}->{row.c_out}"
    names = (row.figure, row.what, row.workload, row.model, row.product, row.dtype, layer, kernel)
    said = {name: value for name, value in (row.params or {}).items() if name != "left_out"}
    settings = ", ".join(f"{name} {value}" for name, value in said.items())
    return f"{row.engine}, {' '.join(filter(None, names))}{f' ({settings})' if settings else ''}"


def write_rows(path: Path, header: Header, rows: Sequence[Row]) -> Path:
    """Write a result file whole or not at all.

    Returns:
        ``path``.
    """
    lines = ",\n".join("  " + json.dumps(present(row)) for row in rows)
    text = f'{{"header": {json.dumps(present(header))},\n"rows": [\n{lines}\n]}}\n'
    with whole_file(path) as file:
        file.write(text.encode())
    return path


def read_rows(path: Path) -> tuple[Header, list[Row]]:
    """Read a result file.

    Raises:
        ValueError: not a result file, or keys that the row format does not have.
    """
    try:
        content = read_json(path)
        header, rows = content["header"], content["rows"]
    except (UserError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a benchmark result file ({error})") from error
    return (
        _record(Header, header, f"{path}, header"),
        [_record(Row, row, f"{path}, row {index}") for index, row in enumerate(rows)],
    )


def _record(kind: type[Any], values: dict[str, Any], where: str) -> Any:
    known = {entry.name for entry in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{where}: unknown keys {', '.join(unknown)}")
    return kind(**values)
