"""Networks made ready to run: captured, what their layers do, and what is quickest."""

from pcnn.runtime.fixed_tensor import FixedTensor
from pcnn.runtime.graph import GraphedNetwork, graph
from pcnn.runtime.point_graph import GraphedPoints

__all__ = [
    "FixedTensor",
    "GraphedNetwork",
    "GraphedPoints",
    "graph",
]
