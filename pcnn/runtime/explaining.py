"""Sizes, dataflow and time of every convolution of a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from io import StringIO
from shutil import get_terminal_size
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from pcnn.runtime.observed import ObservedCall, evaluation, inputs, run_observed, unwrapped
from pcnn.runtime.timing import device_ms
from pcnn.tensor import SparseTensor

#: Columns of a table that no terminal shows.
LOG_WIDTH = 200
COLUMNS = (
    *("layer", "kernel", "channels", "rows", "triplets", "per voxel"),
    *("dataflow", "ms", "share"),
)


@dataclass(frozen=True)
class LayerReport:
    """One call of a convolution layer."""

    name: str  # of the layer in the network
    kind: str  # Conv3d, ConvTranspose3d or linear (one slot at offset 0: no map is read)
    kernel: str  # size and stride, as 3^3 or 2^3 / 2
    c_in: int  # input channels
    c_out: int  # output channels
    dtype: str  # of the result
    n_in: int  # input rows
    n_out: int  # output rows
    triplets: int  # number of triplets T
    dataflow: str  # the dataflow with its settings
    ms: float  # time of the layer's call, maps excluded [ms]


@dataclass(frozen=True, repr=False)
class Explanation:
    """A network on one input; as text a table."""

    device: str  # its name
    layers: tuple[LayerReport, ...]  # calls of its convolutions, in order
    network_ms: float  # the whole network's time, maps excluded [ms]
    maps_bytes: int  # memory of the kernel maps, with the layouts that were read

    @property
    def layers_ms(self) -> float:
        """Time of all convolutions [ms]."""
        return sum(layer.ms for layer in self.layers)

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=get_terminal_size((LOG_WIDTH, 1)).columns).print(self)
        return text.getvalue()

    __repr__ = __str__

    def __rich__(self) -> Table:
        """The explanation as rich prints it."""
        table = Table(title=f"convolutions on {self.device}", title_justify="left")
        table.caption = f"kernel maps take {self.maps_bytes / 1e6:.1f} MB"
        for name in COLUMNS:
            words = name in ("layer", "kernel", "dataflow")
            table.add_column(name, justify="left" if words else "right", overflow="fold")
        for one in self.layers:
            table.add_row(
                one.name,
                one.kernel + " transposed" * (one.kind == "ConvTranspose3d"),
                f"{one.c_in} -> {one.c_out} {one.dtype}",
                f"{one.n_in} -> {one.n_out}" if one.n_in != one.n_out else str(one.n_out),
                str(one.triplets),
                f"{one.triplets / max(1, one.n_out):.1f}",
                one.dataflow,
                *self._times(one.ms),
            )
        table.add_section()
        blank = ("",) * 6
        table.add_row("all convolutions", *blank, *self._times(self.layers_ms))
        table.add_row("whole network", *blank, *self._times(self.network_ms))
        return table

    def _times(self, ms: float) -> tuple[str, str]:
        share = f"{100 * ms / self.network_ms:.1f} %" if self.network_ms else "-"
        return f"{ms:.4f}", share


def explain(model: nn.Module, x: SparseTensor, *, repeats: int = 9) -> Explanation:
    """Measure every convolution of a network on an input; printed, the result is a table.

    Times are medians: on a GPU of the device alone, with all work enqueued ahead (launches cost
    nothing), on a CPU of the clock. A layer is measured on the very input it gets, right after its
    call, without gradients; layouts and compiled kernels are there by then. Norms that a network
    fuses into its convolutions count for the network alone.

    Args:
        model: takes a `SparseTensor`; its mode stays as it is.
        x: its input; moved to the model's device, and to its dtype.
        repeats: timed repeats of every layer.

    Raises:
        ValueError: the input has no site.
    """
    network = unwrapped(model)
    own = next(inputs(network, [x], 1), None)
    if own is None:
        raise ValueError("nothing to explain: the input has no site")
    device, reports = own.device, list[LayerReport]()

    def observe(call: ObservedCall) -> None:
        run: Callable[[], Any] = lambda: call.layer.forward(*call.args, **call.kwargs)  # noqa: E731
        reports.append(_report(call, device_ms(run, device, repeats=repeats)))

    with torch.no_grad(), evaluation(network):
        run_observed(network, own, observe)
        network_ms = device_ms(lambda: network(own), device, repeats=repeats)
    maps_bytes = own.geometry.held_bytes()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Explanation(name, tuple(reports), network_ms, maps_bytes)


def _report(call: ObservedCall, ms: float) -> LayerReport:
    layer, kernel_map, features = call.layer, call.kernel_map, call.out.features
    n_in, n_out = call.x.geometry.rows, features.shape[0]
    triplets, kind, dataflow = n_out, "linear", "linear"
    if kernel_map is not None:
        triplets, kind = kernel_map.triplets, type(layer).__name__
        dataflow = described(layer.engine.choose(kernel_map, features.device))
    size, stride = layer.kernel.size, layer.kernel.stride
    kernel = _spelled(size) + (f" / {_spelled(stride, '')}" if layer.kernel.is_strided else "")
    dtype = str(features.dtype).removeprefix("torch.")
    sizes = layer.in_channels, layer.out_channels, dtype, n_in, n_out, triplets
    return LayerReport(call.name, kind, kernel, *sizes, dataflow, ms)


def described(dataflow: Any) -> str:
    """A dataflow in one short line: its class, and the settings that are not the usual ones."""
    if not is_dataclass(dataflow):
        return str(getattr(dataflow, "name", dataflow))
    pairs = ((f.name, getattr(dataflow, f.name), f.default) for f in fields(dataflow) if f.init)
    words = [f"{name}={getattr(own, 'name', own)}" for name, own, usual in pairs if own != usual]
    name = type(dataflow).__name__
    return f"{name}({', '.join(words)})" if words else name


def _spelled(sizes: tuple[int, int, int], cube: str = "^3") -> str:
    return f"{sizes[0]}{cube}" if len(set(sizes)) == 1 else "x".join(map(str, sizes))
