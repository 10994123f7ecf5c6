"""Networks made ready to run: captured, what their layers do, and what is quickest."""

from pcnn.graphs.graph import GraphedNetwork, graph

__all__ = ["GraphedNetwork", "graph"]
