"""Dataflows: the two products of a convolution over the triplets of a kernel map."""

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.gemm import OutputStationary
from pcnn.dataflows.reference import Reference
from pcnn.kernels.conv_spec import ConvSpec, Epilogue

__all__ = [
    "Blocked",
    "ConvSpec",
    "Dataflow",
    "Epilogue",
    "GatherScatter",
    "OutputStationary",
    "Reference",
]
