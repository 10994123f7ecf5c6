"""Configurations: plain values of a file (`values`), and objects that their nodes name (`make`).

A node is a mapping with a ``_target_``, the dotted name of a class, and its arguments. What a file
of another person says is cut down to plain values of the network and its data first (`stored`).
"""

from pcnn.config.make import check_allowed, looked_up, make, named_after, parameters_of
from pcnn.config.values import read_stored, refusal, stored

__all__ = [
    "check_allowed",
    "looked_up",
    "make",
    "named_after",
    "parameters_of",
    "read_stored",
    "refusal",
    "stored",
]
