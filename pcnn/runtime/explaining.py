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

from pcnn.runtime.layer_calls import ObservedCall, evaluation, inputs, run_observed, unwrapped
from pcnn.runtime.timing import convolution_floor_ms, device_ms
from pcnn.tensor import SparseTensor

#: Columns of a table that no terminal shows.
LOG_WIDTH = 200


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
    floor_ms: float | None  # lower bound on this device [ms], None where its rates are not known

    @property
    def pairs_per_voxel(self) -> float:
        """Mean number of triplets of an output row."""
        return self.triplets / max(1, self.n_out)

    @property
    def over_floor(self) -> float | None:
        """Time over the lower bound."""
        return self.ms / self.floor_ms if self.floor_ms else None


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
        table.add_column("layer")
        table.add_column("kernel")
        for name in ("channels", "rows", "triplets", "per voxel"):
            table.add_column(name, justify="right")
        table.add_column("dataflow", overflow="fold")
        for name in ("ms", "share", "floor", "x floor"):
            table.add_column(name, justify="right")
        for layer in self.layers:
            table.add_row(*self._cells(layer), *self._times(layer.ms, _floor_cells(layer)))
        table.add_section()
        floors = [layer.floor_ms for layer in self.layers]
        known = sum(floor for floor in floors if floor is not None)
        whole = ("-", "-")
        if floors and None not in floors:
            whole = (f"{known:.4f}", f"{self.layers_ms / known:.1f}" if known else "-")
        blank = ("",) * 6
        table.add_row("all convolutions", *blank, *self._times(self.layers_ms, whole))
        table.add_row("whole network", *blank, *self._times(self.network_ms, ("", "")))
        return table

    def _cells(self, layer: LayerReport) -> tuple[str, ...]:
        transposed = " transposed" if layer.kind == "ConvTranspose3d" else ""
        return (
            layer.name,
            layer.kernel + transposed,
            f"{layer.c_in} -> {layer.c_out} {layer.dtype}",
            f"{layer.n_in} -> {layer.n_out}" if layer.n_in != layer.n_out else str(layer.n_out),
            str(layer.triplets),
            f"{layer.pairs_per_voxel:.1f}",
            layer.dataflow,
        )

    def _times(self, ms: float, floors: tuple[str, str]) -> tuple[str, ...]:
        share = f"{100 * ms / self.network_ms:.1f} %" if self.network_ms else "-"
        return f"{ms:.4f}", share, *floors


def explain(model: nn.Module, x: SparseTensor, *, repeats: int = 9) -> Explanation:
    """Measure every convolution of a network on an input; printed, the result is a table.

    Times are medians: on a GPU of the device alone, with all work enqueued ahead (launches cost
    nothing), on a CPU of the clock. A layer is measured on the very input it gets, right after its
    call, without gradients; layouts and compiled kernels are there by then. Norms that a network
    fuses into its convolutions count for the network alone. The floor is the longer of a
    convolution's arithmetic and its traffic (features, weights and output, each once).

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
    reports: list[LayerReport] = []

    def observe(call: ObservedCall) -> None:
        run: Callable[[], Any] = lambda: call.layer.forward(*call.args, **call.kwargs)  # noqa: E731
        reports.append(_report(call, device_ms(run, own.features.device, repeats=repeats)))

    with torch.no_grad(), evaluation(network):
        run_observed(network, own, observe)
        run: Callable[[], Any] = lambda: network(own)  # noqa: E731
        network_ms = device_ms(run, own.features.device, repeats=repeats)
    return Explanation(
        _device_name(own.features.device), tuple(reports), network_ms, own.geometry.held_bytes()
    )


def _report(call: ObservedCall, ms: float) -> LayerReport:
    layer, kernel_map, features = call.layer, call.kernel_map, call.out.features
    triplets = features.shape[0] if kernel_map is None else kernel_map.triplets
    dataflow = "linear"
    if kernel_map is not None:
        dataflow = described(layer.engine.choose(kernel_map, features.device))
    size, stride = layer.kernel.size, layer.kernel.stride
    itemsize = features.element_size()
    moved = itemsize * (call.x.geometry.rows * layer.in_channels + features.numel())
    floor = convolution_floor_ms(
        _device_name(features.device),
        str(features.dtype).removeprefix("torch."),
        triplets * layer.in_channels // layer.groups * layer.out_channels,
        moved + itemsize * layer.weight.numel(),
    )
    return LayerReport(
        call.name,
        "linear" if kernel_map is None else type(layer).__name__,
        _spelled(size) + (f" / {_spelled(stride, '')}" if layer.kernel.is_strided else ""),
        layer.in_channels,
        layer.out_channels,
        str(features.dtype).removeprefix("torch."),
        call.x.geometry.rows,
        features.shape[0],
        triplets,
        dataflow,
        ms,
        floor,
    )


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


def _floor_cells(layer: LayerReport) -> tuple[str, str]:
    if layer.floor_ms is None or layer.over_floor is None:
        return "-", "-"
    return f"{layer.floor_ms:.4f}", f"{layer.over_floor:.1f}"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
