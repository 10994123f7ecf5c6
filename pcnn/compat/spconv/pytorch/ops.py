"""Sizes of volumes, and names that programs import from here."""

from pcnn.compat.spconv.core import AlgoHint, ConvAlgo
from pcnn.compat.spconv.pytorch.sparse_module import get_conv_output_size, get_deconv_output_size

__all__ = ["AlgoHint", "ConvAlgo", "get_conv_output_size", "get_deconv_output_size"]
