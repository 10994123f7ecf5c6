"""Runners that are compared: a network as one graph, eager, and by the papers' engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.engines import with_papers
from pcnn.bench.native.network import Points
from pcnn.bench.networks.models import features_of
from pcnn.nn.planned import PlannedModule
from pcnn.ops.engine import Engine, resolve
from pcnn.runtime import graph
from pcnn.runtime.buckets import Edges, Exact

#: The lines by the engine ``auto``.
GRAPH, EAGER = "graph", "eager"
#: Engines of the papers that run as one graph too, by lines called ``<engine> graph``.
CAPTURED = ("torchsparse", "minuet", "spira")


@dataclass(frozen=True)
class Line:
    """One line of a figure.

    Args:
        name: what rows call it.
        engine: finds the triplets and computes.
        is_graph: whether the network runs as one graph.
    """

    name: str
    engine: Engine
    is_graph: bool = False


def lines_on(device: torch.device, names: Sequence[str], native: bool = False) -> list[Line]:
    """Lines of these names that a device serves; of the papers' engines those on voxels."""
    auto = resolve("auto")
    found = [Line(GRAPH, auto, True)] if device.type == "cuda" else []
    found.append(Line(EAGER, auto))
    if not native:
        papers = [engine for engine, _ in with_papers([], device)]
        found += [Line(engine.name, engine) for engine in papers]
        captured = [e for e in papers if e.name in CAPTURED and device.type == "cuda"]
        found += [Line(f"{engine.name} {GRAPH}", engine, True) for engine in captured]
    return [line for line in found if line.name in names]


class Runner(ABC):
    """A network that answers scans, from points to features."""

    @abstractmethod
    def __call__(self, scan: Points) -> Any:
        """The answer to a scan on the device, or of the host's pinned memory."""

    @abstractmethod
    def outputs(self, answer: Any) -> list[Tensor]:
        """Rows of sites of every output of an answer; may wait."""

    @abstractmethod
    def delivered(self, answer: Any) -> Tensor:
        """The host's result: an output at every point, of backbones the last level's rows."""

    def edges(self, most: int) -> list[int]:
        """Capacities of the buckets up to so many sites; none without buckets."""
        return []

    def memory(self) -> dict[str, int]:
        """The memory of the runner, as settings of a row."""
        return {}


class Eager(Runner):
    """A network called layer by layer.

    Args:
        network: in evaluation mode.
        device: where it lies.
    """

    def __init__(self, network: PlannedModule, device: torch.device) -> None:
        self.network, self.device = network, device

    @torch.inference_mode()
    def __call__(self, scan: Points) -> Any:
        """See `Runner`."""
        scan = scan if scan.points.device == self.device else scan.at(self.device)
        return self.network(scan.on(self.network, backward=False))

    def outputs(self, answer: Any) -> list[Tensor]:
        """See `Runner`."""
        return features_of(answer)

    @torch.inference_mode()
    def delivered(self, answer: Any) -> Tensor:
        """See `Runner`."""
        found: Tensor = answer[-1].features if isinstance(answer, list) else answer.at_points()
        return found


class Graphed(Runner):
    """A network as CUDA graphs, one a bucket of sizes.

    Args:
        network: in evaluation mode, in the dtype of the features.
        voxel_size: edge of a voxel [m].
        exactly: whether every size is a bucket of its own.
    """

    def __init__(self, network: PlannedModule, voxel_size: float, exactly: bool = False) -> None:
        self.graph = graph(network, voxel_size, edges=Exact() if exactly else Edges())

    def __call__(self, scan: Points) -> Any:
        """See `Runner`.

        Raises:
            ValueError: the network cannot be captured, so that calls would be eager.
        """
        answer = self.graph(scan.points, scan.features, scan.batch, scan.batch_size)
        if self.graph.reason is not None:
            raise ValueError(f"no graph: {self.graph.reason}")
        return answer

    def outputs(self, answer: Any) -> list[Tensor]:
        """See `Runner`."""
        found = answer if isinstance(answer, list) else [answer]
        return [one.features[: one.rows()] for one in found]

    def delivered(self, answer: Any) -> Tensor:
        """See `Runner`; of a backbone with the rows of its bucket that hold no site."""
        found: Tensor = answer[-1].features if isinstance(answer, list) else answer.at_points()
        return found

    def edges(self, most: int) -> list[int]:
        """See `Runner`."""
        found = [self.graph.edges.above(1)]
        while found[-1] < most:
            found.append(self.graph.edges.above(found[-1] + 1))
        return found[:-1]

    def memory(self) -> dict[str, int]:
        """See `Runner`."""
        buckets = self.graph.buckets
        return {"buckets": len(buckets), "bytes": sum(int(one["bytes"]) for one in buckets)}
