"""Products and sums in plain torch: any device, any float dtype; short enough to trust.

`Reference` defines the values of all dataflows. Those of Triton kernels compute with these on a CPU
and in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pcnn.kernels.conv_spec import ConvSpec

#: Most rows that one call sums over. cuBLAS of CUDA 13.0 loses rows of long sums on an H200. Of
#: float16 operands [64, 32017] x [32017, 64] those of about 17 rows were missing (32017 mod 64): an
#: RMS error of 4.06 at values of 181.8. Sums in float32 were right, and so were those of 19424 rows
#: and fewer.
PIECE_ROWS = 4096


def kernels_serve(x: Tensor, compute_dtype: torch.dtype) -> bool:
    """True if Triton kernels take a product: CUDA tensors, in dtypes of tensor cores."""
    return x.is_cuda and compute_dtype != torch.float64


def accumulator(compute_dtype: torch.dtype) -> torch.dtype:
    """Dtype sums are kept in: float64 for float64, else float32."""
    return torch.float64 if compute_dtype == torch.float64 else torch.float32


def rounded(x: Tensor, spec: ConvSpec) -> Tensor:
    """A tensor rounded to the compute dtype, in the dtype of the sums."""
    dtype = spec.compute_dtype
    x = x if x.dtype is dtype else x.to(dtype)
    return x if dtype.itemsize > 2 else x.float()


def rows_of(x: Tensor, spec: ConvSpec) -> Tensor:
    """Channels of ``x`` and of the skip connection side by side, `rounded`."""
    return rounded(x if spec.skip is None else join(x, spec.skip), spec)


def join(x: Tensor, skip: Tensor | None) -> Tensor:
    """Channels of both sources side by side: ``[N, C_1 + C_2]``."""
    return x if skip is None else torch.cat([x, skip], dim=1)


def matrices_of(w: Tensor, spec: ConvSpec) -> Tensor:
    """The matrix of every slot and group: ``[K, G, A, B]``, `rounded`; slots not mirrored."""
    matrices = per_group(rounded(w, spec), spec.groups)
    return matrices.transpose(2, 3) if spec.transposed else matrices


def finish(sums: Tensor, spec: ConvSpec) -> Tensor:
    """Epilogue, and the one rounding of the result."""
    return (sums if spec.epilogue is None else spec.epilogue.apply(sums)).to(spec.out_dtype)


def per_group(weight: Tensor, groups: int) -> Tensor:
    """View ``[K, C_in/G, C_out]`` as ``[K, G, C_in/G, C_out/G]``."""
    volume, c_in, c_out = weight.shape
    return weight.reshape(volume, c_in, groups, c_out // groups).transpose(1, 2)


def joined_groups(parts: Tensor, spec: ConvSpec) -> Tensor:
    """A weight gradient ``[K, G, C_in/G, C_out/G]`` as ``[K, C_in/G, C_out]``, rounded."""
    volume, groups, c_in, c_out = parts.shape
    return parts.transpose(1, 2).reshape(volume, c_in, groups * c_out).to(spec.out_dtype)


def multiply(rows: Tensor, matrices: Tensor) -> Tensor:
    """Rows ``[T, G * A]`` times one matrix per group ``[G, A, B]``: ``[T, G * B]``."""
    groups, a, b = matrices.shape
    with in_given_dtype(rows):
        if groups == 1:
            return rows @ matrices[0]
        product = torch.einsum("tga,gab->tgb", rows.view(-1, groups, a), matrices)
        return product.reshape(-1, groups * b)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Sum of the outer products of rows ``[T, G, A]`` and ``[T, G, B]``: ``[G, A, B]``."""
    with in_given_dtype(a):
        return torch.einsum("tgc,tgd->gcd", a, b)


def add_rows(sums: Tensor, index: Tensor, rows: Tensor) -> None:
    """``sums[index] += rows``, in one order where an index occurs several times.

    On a GPU ``index_add_`` adds such rows in the order in which they arrive, ``index_put_`` in that
    of a sort; there it waits for the device.
    """
    if not sums.is_cuda:
        sums.index_add_(0, index, rows)
    elif len(index):
        sums.index_put_((index.long(),), rows, accumulate=True)


def in_given_dtype(operand: Tensor) -> AbstractContextManager[object]:
    """Products in the dtype of their operands, under a caller's autocast too.

    Operands are rounded to the compute dtype and then multiplied in the dtype of the sums; autocast
    would round them, and the sums, once more.
    """
    device = operand.device.type
    if not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


@dataclass(frozen=True)
class TorchSums:
    """Operands of a product over listed pairs or a table, and its sums."""

    rows: Tensor  # [N_in, C_in]
    matrices: Tensor  # [K, G, C_in / G, C_out / G], in the order in which slots multiply
    sums: Tensor  # [N_out, C_out], added to

    @classmethod
    def of(cls, x: Tensor, w: Tensor, n_out: int, spec: ConvSpec) -> TorchSums:
        """Round the operands, and begin with zeros; arguments as of `Dataflow.forward`."""
        rows, matrices = rows_of(x, spec), matrices_of(w, spec)
        matrices = matrices.flip(0) if spec.mirrored else matrices
        return cls(rows, matrices, rows.new_zeros(n_out, spec.groups * matrices.shape[3]))

    def add_centre(self) -> None:
        """Add the product of the central slot, at which row i meets row i."""
        self.sums.add_(multiply(self.rows, self.matrices[len(self.matrices) // 2]))

    def add_table(self, table: Tensor, slots: Tensor) -> None:
        """Add the products of slots whose inputs a table names."""
        if not len(self.rows):
            return
        for column, slot in zip(table.unbind(1), slots.tolist(), strict=True):
            gathered = self.rows.index_select(0, column.clamp_min(0))
            gathered.masked_fill_((column < 0)[:, None], 0)
            self.sums.add_(multiply(gathered, self.matrices[slot]))

    def add_pairs(
        self, in_index: Tensor, out_index: Tensor, counts: Tensor, slots: Tensor | None, both: bool
    ) -> None:
        """Add the products of listed pairs; waits for the device."""
        sizes = counts.tolist()
        end = sum(sizes)
        numbers = range(len(sizes)) if slots is None else slots.tolist()
        lists = in_index[:end].split(sizes), out_index[:end].split(sizes)
        for slot, inputs, outputs in zip(numbers, *lists, strict=True):
            self._add(inputs, outputs, slot)
            if both:
                self._add(outputs, inputs, len(self.matrices) - 1 - slot)

    def _add(self, inputs: Tensor, outputs: Tensor, slot: int) -> None:
        product = multiply(self.rows.index_select(0, inputs), self.matrices[slot])
        add_rows(self.sums, outputs, product)  # slots may hold several inputs of a row


@dataclass(frozen=True)
class Reference:
    """Gather, multiply, add, one slot at a time: the loop that defines all other dataflows.

    Half precision operands are rounded to ``compute_dtype``, then multiplied and summed in float32;
    float64 stays float64.
    """

    needs: tuple[str, ...] = ("pairs",)
    needs_weight_grad: tuple[str, ...] = ("pairs",)
    fuses: bool = True
    deterministic: bool = True

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        in_index, out_index, offsets = layouts
        sums = TorchSums.of(x, w, n_out, spec)
        sums.add_pairs(in_index, out_index, offsets.diff(), None, both=False)
        return finish(sums.sums, spec)

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        in_index, out_index, offsets = layouts
        left, right, groups = rounded(x, spec), rounded(g, spec), spec.groups
        c_in, c_out = x.shape[1] // groups, g.shape[1] // groups
        out = left.new_zeros(offsets.shape[0] - 1, groups, c_in, c_out)
        for k, (start, end) in enumerate(pairwise(offsets.tolist())):
            a = left.index_select(0, in_index[start:end])
            b = right.index_select(0, out_index[start:end])
            slot = out[-1 - k if spec.mirrored else k]
            if groups == 1:
                torch.mm(a.t(), b, out=slot[0])
            else:
                slot.copy_(outer(a.view(-1, groups, c_in), b.view(-1, groups, c_out)))
        return joined_groups(out, spec)


def has_wide_products() -> bool:
    """True if torch multiplies half precision operands to float32 results (2.8 and later)."""
    return hasattr(torch.ops.aten.bmm, "dtype_out")


def reduced_product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """``left^T @ right``, summed over rows in pieces of `PIECE_ROWS`, whatever autocast says.

    Half precision operands are multiplied to float32 where torch does so, and are widened piece by
    piece elsewhere. Operands of ``dtype`` may need derivatives of any order.
    """
    count, rows = left.shape[:2]
    full = rows // PIECE_ROWS
    with in_given_dtype(left):
        if rows <= PIECE_ROWS:
            return _product(left, right, dtype)
        sides = left, right
        if count <= full:  # a call for every matrix, or else for every piece: what is fewer
            cut = [side[:, : full * PIECE_ROWS].unflatten(1, (full, PIECE_ROWS)) for side in sides]
            matrices = zip(*cut, strict=True)
            found = torch.stack([_product(a, b, dtype).sum(0) for a, b in matrices])
        else:
            pieces = zip(*(side.split(PIECE_ROWS, 1)[:full] for side in sides), strict=True)
            found = torch.stack([_product(a, b, dtype) for a, b in pieces]).sum(0)
        if full * PIECE_ROWS == rows:
            return found
        rest = left[:, full * PIECE_ROWS :], right[:, full * PIECE_ROWS :]
        return found + _product(*rest, dtype)


def _product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """``left^T @ right`` of ``[S, R, A]`` and ``[S, R, C]`` in one call; one matrix by ``mm``."""
    wide = [] if left.dtype == dtype else [dtype]
    if wide and not (left.is_cuda and has_wide_products()):
        left, right, wide = left.to(dtype), right.to(dtype), []
    if left.shape[0] == 1:
        return torch.mm(left[0].t(), right[0], *wide)[None]
    return torch.bmm(left.transpose(1, 2), right, *wide)
