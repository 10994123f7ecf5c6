"""ResNet18 on clouds, the network of the paper's figures, variant by variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from pcnn.bench.clouds import Cloud, room
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.layers import growing
from pcnn.bench.native.variants import Variant, tensor_on
from pcnn.bench.networks.cases import NetworkSize, Standard, network_row, timed
from pcnn.bench.networks.models import CHANNELS
from pcnn.bench.networks.work import Work
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, Checked, Measure, run
from pcnn.bench.setting import NativeSetting
from pcnn.bench.verify import Proof, check_network
from pcnn.nn import PlannedModule
from pcnn.tensor import SparseTensor

MODEL = NetworkSize("resnet18")
#: Inference from points; the network alone; backward alone; forward and backward from points.
MODES = ("infer", "forward", "backward", "train")


@dataclass(frozen=True, eq=False)
class Points:
    """Clouds with features, as a reader delivers them to a network.

    Args:
        points: ``[P, 3]`` float32 [m].
        features: ``[P, C]``.
        grid_size: edge of a cell [m].
        geometry: a name in `pcnn.bench.native.variants.GEOMETRIES`.
        batch: ``[P]`` int32, cloud of every point; ``None``: one cloud.
        batch_size: number of clouds.
    """

    points: Tensor
    features: Tensor
    grid_size: float
    geometry: str
    batch: Tensor | None = None
    batch_size: int = 1

    @classmethod
    def of(cls, cloud: Cloud, geometry: str) -> Points:
        """A cloud with random features, the same for all variants."""
        device = cloud.points.device
        random = torch.Generator(device).manual_seed(1)
        features = torch.randn(len(cloud.points), CHANNELS, generator=random, device=device)
        return cls(cloud.points, features, cloud.grid_size, geometry)

    @classmethod
    def batched(cls, clouds: Sequence[Points]) -> Points:
        """Several single clouds of one grid as a batch."""
        sizes = torch.tensor([len(cloud.points) for cloud in clouds])
        number = torch.arange(len(clouds), dtype=torch.int32).repeat_interleave(sizes)
        first = clouds[0]
        return cls(
            torch.cat([cloud.points for cloud in clouds]),
            torch.cat([cloud.features for cloud in clouds]),
            first.grid_size,
            first.geometry,
            number.to(first.points.device),
            len(clouds),
        )

    @property
    def are_points(self) -> bool:
        """See `pcnn.bench.networks.work.Input.are_points`."""
        return self.geometry != "voxel"

    def to(self, dtype: torch.dtype) -> Points:
        """The same with features of another dtype."""
        return replace(self, features=self.features.to(dtype))

    def at(self, device: torch.device) -> Points:
        """The same on a device; from pinned memory the host does not wait for the copies."""
        points, features = (t.to(device, non_blocking=True) for t in (self.points, self.features))
        batch = None if self.batch is None else self.batch.to(device, non_blocking=True)
        return replace(self, points=points, features=features, batch=batch)

    def on(self, network: PlannedModule, backward: bool) -> SparseTensor:
        """Input of a network: points sorted into sites, and planned; on voxels in one go."""
        planner = network.planner
        places = self.geometry, self.points, self.features, self.grid_size
        x = tensor_on(*places, planner, self.batch, self.batch_size)
        planner(x.geometry, backward)
        return x


class CheckedNetworks:
    """Networks that have passed their check on a small room, ready for any cloud."""

    def __init__(self, setting: NativeSetting) -> None:
        self.setting = setting
        self.cloud = room(0, setting.check, setting.where)
        self._standards: dict[str, Standard] = {}
        self._passed: set[tuple[str, str]] = set()

    def standard(self, geometry: str) -> Standard:
        """The reference for results on a geometry."""
        if geometry not in self._standards:
            points = Points.of(self.cloud, geometry)
            self._standards[geometry] = Standard(self.setting, MODEL, points)
        return self._standards[geometry]

    def check(self, variant: Variant, mode: str) -> None:
        """Hold the network of a variant to float64 on the small room, once.

        Raises:
            CheckFailed: it is wrong there.
        """
        if (variant.name, mode) in self._passed:
            return
        standard = self.standard(variant.geometry)
        small = standard.work(variant.engine, mode, standard.cells)
        small.compile_ahead(mode)
        truth, plain, rounded = standard.results(mode)
        results = small.results(mode)
        # of a backward alone the gradients
        exact, other = ({name: one[name] for name in results} for one in (truth, plain))
        row = self.row(variant, self.cloud, "", mode)
        check_network(row, results, exact, other, rounded).admit(row)
        self._passed.add((variant.name, mode))

    def forget(self) -> None:
        """Give back what further checks would be held against; they compute it again."""
        for standard in self._standards.values():
            standard.forget()

    def work(self, variant: Variant, mode: str, cloud: Cloud) -> Work:
        """A network on a cloud.

        Raises:
            CheckFailed: it is wrong on the small room.
        """
        self.check(variant, mode)
        points = Points.of(cloud, variant.geometry)
        return self.standard(variant.geometry).work(variant.engine, mode, points)

    def row(self, variant: Variant, cloud: Cloud, figure: str, mode: str) -> Row:
        """A row of the network on a cloud, without times."""
        params = {"mode": mode, "checked_on": self.cloud.name}
        row = network_row(self.setting, cloud.name, variant.name, MODEL.model, figure, params)
        return replace(row, n=len(cloud.points))


def network_rows(
    setting: NativeSetting, figure: str, modes: Sequence[str] = MODES
) -> Iterator[Row]:
    """ResNet18 on growing rooms by all variants: time and peak memory."""
    with products_of(setting.dtype_name):
        checked = CheckedNetworks(setting)
        for named, cloud in growing(setting):
            for variant in setting.variants:
                for mode in modes:
                    row = checked.row(variant, cloud, figure, mode)
                    row = replace(row, params={**(row.params or {}), **named})
                    yield from run([network_case(checked, variant, mode, cloud, row)], setting)


def network_case(
    checked: CheckedNetworks,
    variant: Variant,
    mode: str,
    cloud: Cloud,
    row: Row,
    measure: Measure | None = None,
) -> Case:
    """A network on a cloud, in one mode; ``measure`` makes rows of its `Work`."""

    def check() -> Checked:
        work = checked.work(variant, mode, cloud)
        if measure is None:  # others look at memory
            work.compile_ahead(mode)
        return Proof(row), lambda: work if measure else work.calls(mode)

    return Case(row, check, measure or partial(timed, warmup=2))
