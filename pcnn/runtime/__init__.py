"""Networks made ready to run: captured, what their layers do, and what is quickest."""

from pcnn.runtime.fixed_tensor import FixedTensor
from pcnn.runtime.graph import GraphedNetwork, graph
from pcnn.runtime.graph_file import load_graph, save_graph
from pcnn.runtime.point_graph import GraphedPoints

__all__ = [
    "FixedTensor",
    "GraphedNetwork",
    "GraphedPoints",
    "graph",
    "load_graph",
    "save_graph",
]
