"""More sites: those that a kernel of stride 1 reaches."""

from __future__ import annotations

from pcnn.geometry import Geometry, Kernel
from pcnn.geometry.find_sites import find_keys, require_voxels
from pcnn.nn.conv import Conv3d, Size
from pcnn.ops.sites import dilated_sites
from pcnn.tensor import SparseTensor, require_sparse


class SparseConv3d(Conv3d):
    """`Conv3d` that at stride 1 has every site that it reaches, and is not submanifold.

    Sites behind it are those of the input and the ones around them, so they become more with every
    such layer. A strided layer is `Conv3d`, and arguments are the same. The host waits once for the
    number of sites, in a plan too.
    """

    def forward(self, x: SparseTensor, out: Geometry | None = None) -> SparseTensor:
        """Convolve.

        Args:
            x: features ``[N_in, C_in]`` on voxels.
            out: output sites; ``None``: those that the kernel reaches.

        Returns:
            Features ``[N_out, C_out]`` on the output sites.

        Raises:
            TypeError: native points, without ``out``.
        """
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        if out is None and not self.kernel.is_strided:
            out = dilated_sites(x.geometry, self.kernel)
        return super().forward(x, out)


def dilate(
    x: SparseTensor, kernel_size: Size, dilation: Size = 1, padding: Size | None = None
) -> SparseTensor:
    """The tensor on the sites that a kernel reaches from its own, 0 on those that it had not.

    Layers of the same kernel on this tensor's sites find the same geometry, and a plan makes it.
    The host waits once for the number of sites.

    Args:
        x: features ``[N, C]`` on voxels; gradients flow to them.
        kernel_size: cells per axis around a site.
        dilation: per axis.
        padding: as in `Conv3d`: by default odd sizes are centred.

    Raises:
        TypeError: native points.
    """
    grid = require_voxels(x.geometry, "dilate")
    sites = dilated_sites(grid, Kernel.of(kernel_size, 1, dilation, padding))
    if sites is grid:
        return x
    rows, there = find_keys(grid.keys, sites.keys)
    return SparseTensor(x.features.index_select(0, rows) * there[:, None], sites)
