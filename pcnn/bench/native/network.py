"""ResNet18 on clouds, the network of the paper's figures, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.harness import measure
from pcnn.bench.layers.layer import products_of
from pcnn.bench.native.cloud import Cloud
from pcnn.bench.native.lines import Line, tensor_on
from pcnn.bench.native.rooms import room
from pcnn.bench.native.setting import Setting
from pcnn.bench.networks.check import check_network
from pcnn.bench.networks.measured import Setting as NetworkSetting
from pcnn.bench.networks.measured import Standard, Variant
from pcnn.bench.networks.models import CHANNELS
from pcnn.bench.networks.work import TRAINING, Work
from pcnn.bench.rows import Row
from pcnn.bench.verify import Configuration, Proof
from pcnn.geometry import Kernel
from pcnn.nn import PlannedModule
from pcnn.tensor import SparseTensor

MODEL = Variant("resnet18")
#: Inference from points; the network alone; backward alone; forward and backward from points.
MODES = ("infer", "forward", "backward", "train")


@dataclass(frozen=True, eq=False)
class Points:
    """A cloud with features, as a reader delivers it to a network.

    Args:
        points: ``[P, 3]`` float32 [m].
        features: ``[P, C]``.
        grid_size: edge of a cell [m].
        geometry: a name in `pcnn.bench.native.lines.GEOMETRIES`.
    """

    points: Tensor
    features: Tensor
    grid_size: float
    geometry: str

    @classmethod
    def of(cls, cloud: Cloud, geometry: str) -> Points:
        """A cloud with random features, the same for all lines."""
        device = cloud.points.device
        random = torch.Generator(device).manual_seed(1)
        features = torch.randn(len(cloud.points), CHANNELS, generator=random, device=device)
        return cls(cloud.points, features, cloud.grid_size, geometry)

    @property
    def are_points(self) -> bool:
        """See `pcnn.bench.networks.work.Input.are_points`."""
        return self.geometry != "voxel"

    def to(self, dtype: torch.dtype) -> Points:
        """The same with features of another dtype."""
        return Points(self.points, self.features.to(dtype), self.grid_size, self.geometry)

    def on(self, network: PlannedModule, backward: bool) -> SparseTensor:
        """Input of a network: points sorted into sites, and planned; on voxels in one go."""
        planner = network.planner
        x = tensor_on(self.geometry, self.points, self.features, self.grid_size, planner)
        planner(x.geometry, backward)
        return x


class Checked:
    """Networks that have passed their check on a small room, ready for any cloud.

    Args:
        setting: device, dtype, width, and the points of the room.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.cloud = room(0, setting.check_points, setting.device)
        self.of_networks = NetworkSetting(
            setting.device, (), (), dtype=setting.dtype, width=setting.width
        )
        self._standards: dict[str, Standard] = {}
        self._proofs: dict[tuple[str, str], Proof] = {}

    def standard(self, geometry: str) -> Standard:
        """What results on a geometry are held against."""
        if geometry not in self._standards:
            points = Points.of(self.cloud, geometry)
            self._standards[geometry] = Standard(self.of_networks, MODEL, points)
        return self._standards[geometry]

    def check(self, line: Line, mode: str) -> None:
        """Hold the network of a line to float64 on the small room, once.

        Raises:
            CheckFailed: it is wrong there.
        """
        key, configuration = (line.name, mode), self._configuration(line, mode)
        if key not in self._proofs:
            standard = self.standard(line.geometry)
            small = standard.work(line.engine, mode, standard.cells)
            truth, plain, rounded = standard.results(mode)
            results = small.results(mode)
            # of a backward alone the gradients
            exact, other = ({name: one[name] for name in results} for one in (truth, plain))
            self._proofs[key] = check_network(configuration, results, exact, other, rounded)
        self._proofs[key].admit(configuration)

    def forget(self) -> None:
        """Give back what further checks would be held against; they compute it again."""
        for standard in self._standards.values():
            standard.forget()

    def work(self, line: Line, mode: str, cloud: Cloud) -> Work:
        """A network on a cloud.

        Raises:
            CheckFailed: it is wrong on the small room.
        """
        self.check(line, mode)
        points = Points.of(cloud, line.geometry)
        return self.standard(line.geometry).work(line.engine, mode, points)

    def _configuration(self, line: Line, mode: str) -> Configuration:
        return Configuration(
            line.name,
            self.cloud.name,
            str(self.setting.device),
            Kernel.of(MODEL.kernel_size),
            self.setting.dtype,
            backward=mode in TRAINING,
            params=(("mode", mode), ("model", MODEL.model)),
        )

    def identity(self, line: Line, cloud: Cloud, figure: str, mode: str) -> dict[str, Any]:
        """What a row says of its network, by the names of the row format."""
        params = {"mode": mode, "checked_on": self.cloud.name}
        return {
            "workload": cloud.name,
            "engine": line.name,
            "n": len(cloud.points),
            "dtype": self.setting.dtype,
            "model": MODEL.model,
            "figure": figure,
            "params": params,
        }


def network_rows(setting: Setting, figure: str, modes: Sequence[str] = MODES) -> Iterator[Row]:
    """ResNet18 on growing rooms by all lines: time and peak memory.

    What a line cannot serve, or does wrongly, is a row without times.
    """
    with products_of(setting.dtype):
        checked = Checked(setting)
        for named, cloud in setting.growing():
            for line in setting.lines:
                for mode in modes:
                    identity = checked.identity(line, cloud, figure, mode)
                    identity["params"] |= named
                    yield _measured(setting, checked, line, mode, cloud, identity)


def _measured(
    setting: Setting,
    checked: Checked,
    line: Line,
    mode: str,
    cloud: Cloud,
    identity: dict[str, Any],
) -> Row:
    try:
        work = checked.work(line, mode, cloud)
        measured = measure(
            work.calls(mode),
            setting.device,
            warmup=2,
            repeats=setting.repeats,
            budget_s=setting.budget_s,
            count=setting.count,
        )
    except Exception as error:  # a compiler's errors have no base of their own
        identity["params"]["left_out"] = f"{type(error).__name__}: {error}"
        return Row("network", **identity)
    return Row("network", checked=True, **identity, **measured.columns())
