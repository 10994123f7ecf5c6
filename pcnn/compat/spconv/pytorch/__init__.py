"""The names of ``spconv.pytorch``."""

from pcnn.compat.spconv import constants
from pcnn.compat.spconv.core import ConvAlgo
from pcnn.compat.spconv.pytorch import conv, core, functional, identity, modules, ops, pool, tables
from pcnn.compat.spconv.pytorch.conv import (
    SparseConv1d,
    SparseConv2d,
    SparseConv3d,
    SparseConvTranspose1d,
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SparseInverseConv1d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SubMConv1d,
    SubMConv2d,
    SubMConv3d,
)
from pcnn.compat.spconv.pytorch.convolution import SparseConvolution
from pcnn.compat.spconv.pytorch.core import SparseConvTensor
from pcnn.compat.spconv.pytorch.identity import Identity
from pcnn.compat.spconv.pytorch.modules import (
    RemoveGrid,
    SparseBatchNorm,
    SparseIdentity,
    SparseModule,
    SparseReLU,
    SparseSequential,
    ToDense,
    assign_name_for_sparse_modules,
)
from pcnn.compat.spconv.pytorch.pool import (
    SparseAvgPool1d,
    SparseAvgPool2d,
    SparseAvgPool3d,
    SparseGlobalAvgPool,
    SparseGlobalMaxPool,
    SparseMaxPool1d,
    SparseMaxPool2d,
    SparseMaxPool3d,
)
from pcnn.compat.spconv.pytorch.tables import AddTable, ConcatTable, JoinTable

__all__ = [
    "AddTable",
    "ConcatTable",
    "ConvAlgo",
    "Identity",
    "JoinTable",
    "RemoveGrid",
    "SparseAvgPool1d",
    "SparseAvgPool2d",
    "SparseAvgPool3d",
    "SparseBatchNorm",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConvTensor",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvolution",
    "SparseGlobalAvgPool",
    "SparseGlobalMaxPool",
    "SparseIdentity",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseModule",
    "SparseReLU",
    "SparseSequential",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "ToDense",
    "assign_name_for_sparse_modules",
    "constants",
    "conv",
    "core",
    "functional",
    "identity",
    "modules",
    "ops",
    "pool",
    "tables",
]
