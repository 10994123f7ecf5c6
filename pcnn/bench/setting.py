"""Options of the suites: one field here is one option of `pcnn bench`, with its help beside it.

Nothing heavy is imported before a property is read, so that help shows at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pcnn.bench.installed import PACKAGES
from pcnn.bench.layer_shape import KINDS, MOST_SIZE, STANDARD, LayerShape, layer_shapes
from pcnn.bench.rows import PRODUCTS
from pcnn.ranges import Calls, Copies, NonNegative, Positive, Rooms, Sample, Thousands, Width

if TYPE_CHECKING:
    import torch

    from pcnn.bench.clouds import Cloud
    from pcnn.bench.installed.peer import Peer
    from pcnn.bench.native.variants import Variant
    from pcnn.bench.peers import Peers
    from pcnn.bench.scenes import Scene
    from pcnn.maps import MapBuilder
    from pcnn.ops.engine import Engine

T = TypeVar("T")
S = TypeVar("S", bound="Setting")

#: Largest scene in thousands of voxels, or cloud in thousands of points.
MOST_THOUSANDS = 10**6
#: Modes of networks: inference from shuffled cells (sort, levels, maps and network), the
#: network alone on planned input, and the same two of a training step (forward and backward).
MODES = ("infer", "forward", "train", "step")
#: Networks of the suite ``networks``, those of the papers' evaluations.
MODELS = ("sparse_resnet", "sparse_resnet_large", "minkunet")
#: Networks that are measured where they are named.
OTHER_MODELS = ("spunet", "spvcnn", "litept", "voxel_resbackbone")
#: Brute force, N^2, serves tiny scenes only.
_NEVER_TIMED = ("brute_force",)

#: Words of an option that may be repeated.
Words = list[str] | None

_BUDGET = "Longest time spent on one figure of a row, in seconds."
_COUNT = "Count launches and waits for the device (0.2 s per row)."
_WORKLOAD = (
    ".npz file with coords (N x 4), a scan of points, or surface_<n>k or random_<n>k; may be "
    "repeated."
)
#: Help of the option ``turns``, here and of `pcnn bench papers`.
TURNS_HELP = (
    "Lock file: processes that name the same one check side by side, and time one after another."
)
_DTYPE = "auto: float16 on a GPU, float32 on a CPU."


class Precision(str, Enum):
    """Dtypes on offer."""

    auto = "auto"
    float16 = "float16"
    bfloat16 = "bfloat16"
    tf32 = "tf32"
    float32 = "float32"
    float64 = "float64"


@dataclass(frozen=True)
class Setting:
    """Options of all suites.

    Words of the command line become objects when a property is read.
    """

    device: Annotated[str, "cpu, cuda, cuda:1, or auto."] = "auto"
    repeats: Annotated[Calls, "Timed calls."] = 20
    runs: Annotated[Copies, "How often everything is measured."] = 1
    budget: Annotated[Positive, _BUDGET] = 1.0
    count: Annotated[bool, _COUNT] = True
    peers: Annotated[
        list[Path] | None, "File of other engines' times to compare with; may be repeated."
    ] = None
    print_rows: Annotated[bool, "--print/--no-print", "Print all rows as tables."] = True
    turns: Annotated[Path | None, TURNS_HELP] = None
    out: Annotated[Path | None, "Result file (JSON)."] = None

    #: Flush the cache before every call.
    cold = False

    @cached_property
    def where(self) -> torch.device:
        """The device."""
        import torch

        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    @cached_property
    def theirs(self) -> Peers | None:
        """Rows of the files of peers together, ``None`` without a file."""
        from pcnn.bench.peers import Peers, read_peers

        files = [read_peers(path) for path in self.peers or ()]
        rows = [row for file in files for row in file.rows]
        return Peers(files[0].device, rows) if files else None

    def having(self: S, **values: Any) -> S:
        """A copy with other values of fields or properties."""
        other = copy.copy(self)
        vars(other).update(values)
        return other

    def resolve(self) -> None:
        """Read every property, so that a mistake shows before anything is measured.

        Raises:
            ValueError: a word that stands for nothing.
            FileNotFoundError: no such file.
        """
        for kind in type(self).__mro__:
            for name, value in vars(kind).items():
                if isinstance(value, cached_property):
                    getattr(self, name)


@dataclass(frozen=True)
class TypedSetting(Setting):
    """Options of the suites that compute."""

    dtype: Annotated[Precision, _DTYPE] = Precision.auto

    @cached_property
    def dtype_name(self) -> str:
        """Name of the dtype on the device."""
        if self.dtype is not Precision.auto:
            return self.dtype.value
        return "float16" if self.where.type == "cuda" else "float32"


@dataclass(frozen=True)
class VoxelSetting(TypedSetting):
    """Options of the suites that compute on voxels."""

    engine: Annotated[
        Words,
        "Engine, 'all', or an installed package such as spconv-triton; may be repeated.",
    ] = None
    workload: Annotated[Words, _WORKLOAD] = None
    sites: Annotated[
        str, "Output sites of strided layers: floor, or reached, which spconv keeps."
    ] = "floor"

    @cached_property
    def scenes(self) -> list[Scene]:
        """Voxels."""
        from pcnn.bench.scenes import downsampled

        return with_option("--sites", lambda: downsampled(_scenes(self.workload), self.sites))

    @cached_property
    def engines(self) -> list[Engine]:
        """Engines to compare; all that serve voxels but brute force, unless given."""
        from pcnn.ops.engine import ENGINES, resolve

        on_voxels = [name for name, one in ENGINES.items() if one.serves_geometry("voxel")]
        every = [name for name in on_voxels if name not in _NEVER_TIMED]
        wanted = every if not self.engine or "all" in self.engine else self.engine
        own = [name for name in wanted if name not in PACKAGES]
        return with_option("--engine", lambda: [resolve(name) for name in own])

    @cached_property
    def installed(self) -> list[Peer]:
        """Packages to compare with."""
        from pcnn.bench.installed import installed

        named = [name for name in self.engine or () if name in PACKAGES]
        return with_option("--engine", lambda: [installed(name) for name in named])

    @property
    def compared(self) -> list[Engine | Peer]:
        """Engines, then packages."""
        return [*self.engines, *self.installed]


@dataclass(frozen=True)
class MappingSetting(Setting):
    """Options of the suite ``mapping``."""

    figure: Annotated[
        Words, "Figure to measure, such as spira_fig12; may be repeated. Default: all."
    ] = None
    workload: Annotated[Words, _WORKLOAD] = None
    voxel_sizes: Annotated[
        str, "Voxel sizes of a scan of points in metres, such as 0.2,0.1,0.05."
    ] = ""
    builder: Annotated[Words, "Map builder; may be repeated. Default: all."] = None
    kernels: Annotated[str, "Kernels of spira_fig12, as size:stride."] = "3:1,5:1,2:2,3:2"
    product: Annotated[
        Words, "table, pairs, ready or train, of spira_fig12; may be repeated. Default: all."
    ] = None
    budget: Annotated[Positive, _BUDGET] = 2.0
    cold: Annotated[bool, "Flush the cache before every call."] = False
    inputs: Annotated[Copies, "Copies of the input that the calls take in turn."] = 1
    ncu: Annotated[bool, "Count L2 hits of minuet_fig16 by Nsight Compute."] = False
    bandwidth: Annotated[
        Positive | None, "Bandwidth of the device memory in TB/s; known for H100 and H200."
    ] = None

    @cached_property
    def scenes(self) -> list[Scene]:
        """Scenes, growing, if they are to be drawn over their size."""
        try:
            sizes = [float(part) for part in self.voxel_sizes.split(",") if part]
        except ValueError as error:
            said = f"--voxel-sizes {self.voxel_sizes}: must be numbers, such as 0.2,0.1"
            raise ValueError(said) from error
        if not all(0 < size <= 1e6 for size in sizes):
            raise ValueError(f"--voxel-sizes {self.voxel_sizes}: lengths must be above 0 m")
        return _scenes(self.workload or ["surface_5k", "surface_20k", "surface_80k"], sizes)

    @cached_property
    def builders(self) -> list[MapBuilder]:
        """Map builders."""
        from pcnn.bench.mapping.builders import named

        return named(self.where, self.builder or ())

    @cached_property
    def kernel_list(self) -> list[tuple[int, int]]:
        """Size and stride of every kernel."""
        pairs = [part.split(":") for part in self.kernels.split(",")]
        if not all(
            len(pair) == 2 and all(p.isdecimal() and 0 < int(p) <= MOST_SIZE for p in pair)
            for pair in pairs
        ):
            raise ValueError(
                f"--kernels {self.kernels}: must be size:stride, each from 1 to {MOST_SIZE}, such "
                "as 3:1,2:2"
            )
        return [(int(size), int(stride)) for size, stride in pairs]

    @cached_property
    def products(self) -> Sequence[str]:
        """Names of products."""
        return chosen_names("--product", self.product, PRODUCTS)

    @cached_property
    def rate(self) -> float | None:
        """Bandwidth of the device's memory, for the floor [bytes/s]."""
        from pcnn.bench.environment import describe
        from pcnn.runtime.timing import known_bandwidth

        if self.bandwidth:
            return self.bandwidth * 1e12
        return known_bandwidth(describe(self.where).device)


@dataclass(frozen=True)
class LayersSetting(VoxelSetting):
    """Options of the suite ``layers``."""

    figure: Annotated[
        Words, "Figure of a paper, or 'all'; may be repeated. Default: the layers alone."
    ] = None
    layers: Annotated[
        Words, "c_in:c_out:size or c_in:c_out:size:stride; several with commas, or repeated."
    ] = None
    what: Annotated[
        Words, "layer, train, map+layer or map+train; may be repeated. Default: all."
    ] = None
    only_peers: Annotated[
        bool, "--only-peers", "Measure only what the files of --peers contain."
    ] = False

    @cached_property
    def shapes(self) -> Sequence[LayerShape]:
        """Layers; those that the papers' networks are made of, unless others are given."""
        return [shape for text in self.layers or () for shape in layer_shapes(text)] or STANDARD

    @cached_property
    def kinds(self) -> Sequence[str]:
        """Kinds of rows, names in `KINDS`."""
        return chosen_names("--what", self.what, KINDS)

    @cached_property
    def places(self) -> dict[str, dict[LayerShape, list[str]]] | None:
        """By workload, the layers and kinds measured there; ``None``: all everywhere."""
        from pcnn.bench.peers import places_of

        if not self.only_peers:
            return None
        if self.theirs is None:
            raise ValueError("--only-peers needs --peers")
        return places_of(self.theirs.rows)


@dataclass(frozen=True)
class NetworksSetting(VoxelSetting):
    """Options of the suite ``networks``."""

    figure: Annotated[
        Words, "Figure of a paper, or 'all'; may be repeated. Default: the networks alone."
    ] = None
    model: Annotated[
        Words,
        "sparse_resnet, sparse_resnet_large, minkunet, spunet, spvcnn, litept or "
        "voxel_resbackbone; may be repeated. Default: the first three.",
    ] = None
    mode: Annotated[
        Words,
        "infer and train (from shuffled cells), forward and step (on planned input); may be "
        "repeated. Default: all.",
    ] = None
    dtype: Annotated[Precision, f"Dtype of training under autocast. {_DTYPE}"] = Precision.auto
    width: Annotated[Width, "Factor on all channels; the papers have 1."] = 1.0
    repeats: Annotated[Calls, "Timed calls."] = 22
    budget: Annotated[Positive, _BUDGET] = 3.0
    check_voxels: Annotated[Sample, "Larger scenes are verified on this many of their voxels."] = (
        200_000
    )
    sizes: Annotated[
        str, "Sizes of generated scenes in thousands of voxels, such as 10,50,100."
    ] = "10,50,100,500,1000"
    kernel_sizes: Annotated[str, "Kernel sizes of spira_table4."] = "3,7,13"

    @cached_property
    def models(self) -> Sequence[str]:
        """Names of networks."""
        return chosen_models(self.model, MODELS)

    @cached_property
    def modes(self) -> Sequence[str]:
        """Names in `MODES`."""
        return chosen_names("--mode", self.mode, MODES)

    @cached_property
    def size_list(self) -> list[int]:
        """Sizes of generated scenes [thousands of voxels]."""
        return whole_numbers("--sizes", self.sizes, MOST_THOUSANDS)

    @cached_property
    def kernel_size_list(self) -> list[int]:
        """Kernel sizes of figures over them."""
        return whole_numbers("--kernel-sizes", self.kernel_sizes, MOST_SIZE)


@dataclass(frozen=True)
class NativeSetting(TypedSetting):
    """Options of the suite ``native``."""

    figure: Annotated[
        Words,
        "fig3, fig4, fig5 or figJ of PointCNN++; layers, triplets, groups, dataflows, same_t, "
        "memory or step20m; may be repeated. Default: all.",
    ] = None
    cloud: Annotated[
        Words,
        "Points: file.npz, file.npz:name or file.npz:name@grid, a grid in metres; may be repeated. "
        "Default: simulated rooms, which fig3, fig4, fig5, figJ and step20m use.",
    ] = None
    line: Annotated[
        Words,
        "voxel, degraded, native, torchsparse, minuet or pointcnnpp; may be repeated. "
        "Default: all.",
    ] = None
    dtype: Annotated[Precision, f"Dtype of training under autocast. {_DTYPE}"] = Precision.auto
    rooms: Annotated[Rooms, "Simulated rooms; the paper has 10."] = 10
    sizes: Annotated[str, "Sizes of growing rooms in thousands of points, such as 20,50,100."] = (
        "20,50,100,300,1000"
    )
    repeats: Annotated[Calls, "Timed calls."] = 10
    limit: Annotated[NonNegative, "Seconds after which a figure starts no further row."] = 600.0
    memory: Annotated[
        Positive | None, "Memory that figJ may use, in GB. Default: all of the device."
    ] = None
    largest: Annotated[Thousands, "Largest cloud of figJ, in thousands of points."] = 400_000
    step: Annotated[Thousands, "Cloud of step20m, in thousands of points."] = 20_000
    check: Annotated[Sample, "Points of the room that networks are verified on."] = 50_000
    width: Annotated[Width, "Factor on the channels of ResNet18."] = 1.0
    count: Annotated[bool, _COUNT] = False

    @cached_property
    def variants(self) -> list[Variant]:
        """The compared settings."""
        from pcnn.bench.native.variants import named_variants

        return named_variants(self.line or (), self.where)

    @cached_property
    def clouds(self) -> list[Cloud]:
        """Clouds of files."""
        from pcnn.bench.clouds import load_clouds

        return with_option(
            "--cloud", lambda: [one for word in self.cloud or () for one in load_clouds(word)]
        )

    @cached_property
    def size_list(self) -> list[int]:
        """Points of growing rooms."""
        return [1000 * size for size in whole_numbers("--sizes", self.sizes, MOST_THOUSANDS)]

    def scans(self, points: int = 100_000) -> Iterator[Cloud]:
        """The clouds of files on the device; without any, the first room of so many points."""
        from pcnn.bench.clouds import room

        if not self.clouds:
            yield room(0, min(points, max(self.size_list)), self.where)
        for cloud in self.clouds:
            yield cloud.to(self.where)

    def chosen(self, *names: str) -> list[Variant]:
        """Those of the variants that have these names."""
        return [variant for variant in self.variants if variant.name in names]


def chosen_names(option: str, names: Sequence[str] | None, known: Sequence[str]) -> Sequence[str]:
    """Names that an option gave, all known ones if it gave none.

    Raises:
        ValueError: an unknown name.
    """
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"{option} {unknown[0]}: must be one of {', '.join(known)}")
    return names or known


def chosen_models(names: Sequence[str] | None, usual: Sequence[str]) -> Sequence[str]:
    """Networks that ``--model`` gave, the usual ones if it gave none.

    Raises:
        ValueError: an unknown name.
    """
    return chosen_names("--model", names, (*usual, *OTHER_MODELS)) if names else usual


def whole_numbers(option: str, text: str, most: int) -> list[int]:
    """Numbers of an option, with commas between them.

    Raises:
        ValueError: something else than whole numbers from 1 to ``most``.
    """
    parts = text.split(",")
    if not all(part.isdecimal() and 0 < int(part) <= most for part in parts):
        raise ValueError(
            f"{option} {text}: must be whole numbers from 1 to {most:,}, such as 10,50"
        )
    return [int(part) for part in parts]


def with_option(option: str, make: Callable[[], T]) -> T:
    """Name the option in an error about its words."""
    try:
        return make()
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"{option}: {error}") from error


def _scenes(names: Sequence[Any] | None, voxel_sizes: Sequence[float] = ()) -> list[Scene]:
    from pcnn.bench.scenes import load_scenes

    found = names or ["surface_20k"]
    return with_option(
        "--workload", lambda: [one for name in found for one in load_scenes(name, voxel_sizes)]
    )
