"""Dataflows: the two products of a convolution over the triplets of a kernel map."""

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked
from pcnn.dataflows.reference import Reference

__all__ = ["Blocked", "Dataflow", "Reference"]
