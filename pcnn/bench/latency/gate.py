"""Networks held to float64 on a part of a scan, and graphs to eager on all that is timed.

Eager and graph run the same kernels, so their outputs are mostly the same bits. Where they are not
(a kernel that adds in another order, or by another split), each may be off by the bound that
`pcnn.bench.verify.check_network` has for it, so the two may differ by twice that.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.bench.clouds import Cloud
from pcnn.bench.latency.runners import EAGER, Eager, Graphed, Line, Runner
from pcnn.bench.latency.scans import part_of
from pcnn.bench.latency.setting import LatencySetting
from pcnn.bench.layers.layer import torch_dtype
from pcnn.bench.native.network import Points
from pcnn.bench.networks.cases import NetworkSize, Standard
from pcnn.bench.rows import Row, described
from pcnn.bench.verify import OUTPUT, CheckFailed, bound_of, check_network, rms
from pcnn.ops.engine import Engine, resolve

#: Names in `pcnn.bench.networks.models.NETWORKS` where they are not the model's own.
NETWORK_OF = {"minkunet": "minkunet_logits"}


class Agreement(NamedTuple):
    """Outputs of a graph beside those of eager.

    Args:
        error: largest relative RMS difference of an output.
        bitwise: whether all bits are the same.
    """

    error: float
    bitwise: bool

    @property
    def words(self) -> str:
        """As a setting of a row."""
        return "bitwise" if self.bitwise else f"{self.error:.1e}"


class Gate:
    """Networks of one model, each line's ready to be called once it has passed.

    Args:
        setting: dtype, width, device, and how many points the reference gets.
        model: a name in `pcnn.bench.latency.setting.MODELS`.
        cloud: the scan that a part is cut from.
    """

    def __init__(self, setting: LatencySetting, model: str, cloud: Cloud) -> None:
        self.setting, self.model, self.grid_size = setting, model, cloud.grid_size
        self.dtype = torch_dtype(setting.dtype_name)
        part = part_of(cloud, setting.check).to(setting.where)
        size = NetworkSize(NETWORK_OF.get(model, model))
        self.standard = Standard(setting, size, Points.of(part, setting.geometry))
        self._runners: dict[str, Runner] = {}

    @property
    def auto(self) -> Engine:
        """The engine that others are compared with."""
        return resolve("auto")

    def scan(self, cloud: Cloud) -> Points:
        """A cloud on the device, with features in the dtype of the network."""
        return Points.of(cloud.to(self.setting.where), self.setting.geometry).to(self.dtype)

    def runner(self, line: Line, row: Row) -> Runner:
        """The network of a line, held to float64.

        Raises:
            CheckFailed: it is wrong.
        """
        if line.name not in self._runners:
            made = self.made(line)
            self._check(made, row)
            self._runners[line.name] = made
        return self._runners[line.name]

    def made(self, line: Line, exactly: bool = False) -> Runner:
        """The network of a line, unchecked; a graph with a bucket for every size if asked for.

        Raises:
            CheckFailed: the engine does not pass its whole check.
        """
        if line.is_graph:
            usual = line.engine == self.auto
            eager = self.eager if usual else self.made(Line(EAGER, line.engine))
            assert isinstance(eager, Eager)
            return Graphed(eager.network, self.grid_size, exactly)
        network = self.standard.work(line.engine, "infer", self.standard.cells).network
        return Eager(network, self.setting.where)

    def _check(self, runner: Runner, row: Row) -> None:
        part = self.standard.cells.to(self.dtype)
        assert isinstance(part, Points)
        found = runner.outputs(runner(part))
        results = {f"out{number}": tensor for number, tensor in enumerate(found)}
        check_network(row, results, *self.standard.results("infer")).admit(row)

    @cached_property
    def eager(self) -> Eager:
        """The engine ``auto``, eager."""
        made = self.made(Line(EAGER, self.auto))
        assert isinstance(made, Eager)
        return made

    def agreement(self, row: Row, runner: Runner, scan: Points) -> Agreement:
        """Compare a graph with eager on a scan.

        Raises:
            CheckFailed: they differ by more than errors of rounding explain.
        """
        found, wanted = (one.outputs(one(scan)) for one in (runner, self.eager))
        shapes = [[tuple(t.shape) for t in tensors] for tensors in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise CheckFailed(f"{described(row)}: outputs {shapes[0]}, eager has {shapes[1]}")
        bitwise = all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        error = max(map(_difference, found, wanted))
        if not error <= self.bound:  # NaN is above every bound
            raise CheckFailed(
                f"{described(row)}: on {len(scan.points)} points the outputs of graph and eager "
                f"differ by {error:.1e} of their RMS; the bound is {self.bound:.1e}"
            )
        return Agreement(error, bitwise)

    @cached_property
    def bound(self) -> float:
        """Largest relative RMS difference of two results that are both within their bounds."""
        truth, plain, rounded = self.standard.results("infer")
        shares = [bound_of(self.setting.dtype_name)]
        for name, exact in truth.items():
            own = max(rms(plain[name].double() - exact), rounded[name])
            shares += [own / rms(exact)] if rms(exact) else []
        return 2 * OUTPUT * max(shares)


def _difference(found: Tensor, wanted: Tensor) -> float:
    """RMS of a difference over that of what is wanted, 0 of empty tensors."""
    scale = rms(wanted.double())
    difference = rms(found.double() - wanted.double())
    return difference / scale if scale else difference
