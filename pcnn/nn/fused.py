"""A convolution, its norm, a residual and ReLU in one call: what networks issue for a block.

`following` says how the sums of a convolution may go on in the same call. Without gradients that is
`Folded`: batch norm is a scale and a shift per channel, computed from the live module and kept. In
training on a GPU it is `TrainedNorm`, by the statistics of the batch. Where it is neither, modules
run one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from pcnn.dataflows import Epilogue
from pcnn.dataflows.torch_sums import accumulator, kernels_serve
from pcnn.geometry import Geometry, KernelMap
from pcnn.graphs.snapshot import Snapshot
from pcnn.kernels.conv_spec import ConvSpec, RunningStatistics
from pcnn.nn.conv import Convolution, compute_dtype
from pcnn.nn.features import JoinedTensor, add, normalize
from pcnn.ops.convolution import convolution, products_of
from pcnn.ops.engine import Engine
from pcnn.ops.products import PointwiseProducts, Products, normalized
from pcnn.tensor import SparseTensor, require_sparse

#: Norms that are a scale and a shift in evaluation; a subclass may compute something else.
FOLDABLE = (nn.BatchNorm1d, nn.SyncBatchNorm)

#: Weights of the first source, of the second, and bias.
Linear = tuple[Tensor, Tensor, Tensor | None]


class Product(NamedTuple):
    """A convolution on features, without what follows its sums."""

    features: Tensor  # [N_in, C_in]
    skip: Tensor | None  # [N_in, C_2], input channels that follow those
    weight: Tensor  # [K, (C_in + C_2) / groups, C_out]
    kernel_map: KernelMap | None  # None: linear on every site
    engine: Engine
    groups: int
    dtype: torch.dtype  # that operands are rounded to


class Folded:
    """Bias b and norm after the product of a convolution, as ``y * scale + shift``."""

    def __init__(self, scale: Tensor | None, shift: Tensor | None) -> None:
        self.scale = scale  # [C_out] float32 (float64 of a float64 norm), None without a norm
        self.shift = shift  # [C_out], None without norm and bias
        self._epilogues = Epilogue(scale, shift), Epilogue(scale, shift, relu=True)
        self._linear: dict[tuple[torch.dtype, int], tuple[Snapshot, Linear]] = {}

    def applied(
        self, product: Product, residual: Tensor | None, relu: bool, count: Tensor | None
    ) -> Tensor:
        """``relu(product * scale + shift + residual)``: sums are rounded once, when stored."""
        epilogue = self._epilogues[relu]
        if residual is not None:
            epilogue = Epilogue(self.scale, self.shift, residual, relu)
        features, skip, weight, kernel_map, engine, groups, dtype = product
        if kernel_map is None:
            return self._pointwise(product, epilogue)
        how: dict[str, Any] = {"groups": groups, "compute_dtype": dtype, "skip": skip}
        return convolution(features, weight, kernel_map, engine, epilogue=epilogue, **how)

    def _pointwise(self, product: Product, epilogue: Epilogue) -> Tensor:
        """A linear layer ``[N, C_in]`` to ``[N, C_out]`` of one source or two, in few launches."""
        features, skip, weight, *_, dtype = product
        if skip is not None and dtype.itemsize == 2 and kernels_serve(features, dtype):
            from pcnn.kernels.dense_slots import pointwise_product

            spec = ConvSpec(compute_dtype=dtype, out_dtype=dtype, epilogue=epilogue, skip=skip)
            return pointwise_product(features, weight, spec)
        split = weight.shape[1] if skip is None else features.shape[1]
        own, others, shift = self.linear(weight, dtype, split)
        features = features.to(dtype)
        out = features @ own if shift is None else torch.addmm(shift, features, own)
        if skip is not None:
            out.addmm_(skip.to(dtype), others)
        if epilogue.residual is not None:
            out += epilogue.residual
        return out.relu_() if epilogue.relu else out

    def linear(self, weight: Tensor, dtype: torch.dtype, split: int) -> Linear:
        """The linear layer that a pointwise convolution and the norm make together; kept."""
        kept = self._linear.get((dtype, split))
        if kept is not None and kept[0].holds((weight,)):
            return kept[1]
        matrix = weight[0]
        if self.scale is not None:
            matrix = matrix.to(self.scale.dtype) * self.scale
        matrix, shift = matrix.to(dtype), None if self.shift is None else self.shift.to(dtype)
        linear = matrix[:split], matrix[split:], shift
        if Snapshot.is_possible((weight,)):
            self._linear[dtype, split] = Snapshot((weight,)), linear
        return linear


class FoldedNorm:
    """Folds a norm, and the bias of the convolution before it, when they have changed.

    In evaluation batch norm (Ioffe & Szegedy 2015, Algorithm 2) is

        scale = weight / sqrt(running_var + eps)
        shift = bias - running_mean * scale      (+ b * scale, with b the convolution's bias)

    Belongs to the module that holds both, and is no part of its state: copies and pickles of it are
    empty. Loading, training, moving and in-place changes are seen at the next call (`Snapshot`).
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: tuple[Snapshot, float, Folded] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return FoldedNorm, ()

    def clear(self) -> None:
        """Forget what was computed."""
        self._kept = None

    def fold(self, norm: nn.Module | None, bias: Tensor | None, channels: int) -> Folded | None:
        """Scale and shift of a norm in evaluation mode; ``None``: it is computed elsewhere."""
        sources: tuple[Tensor | None, ...] = (bias,)
        eps = 0.0
        if norm is not None:
            if norm.training or type(norm) not in FOLDABLE:
                return None
            # norm.weight and its like search three dictionaries, at ten times the cost
            own, buffers = norm._parameters, norm._buffers
            eps = norm.__dict__["eps"]
            try:
                statistics = buffers["running_mean"], buffers["running_var"]
                # torch's kernels update them without counting a change; the last one counts
                counted = *statistics, buffers["num_batches_tracked"]
                sources = bias, own["weight"], own["bias"], *counted
            except KeyError:
                return None
        kept = self._kept  # read once: another thread may write it
        if kept is not None and kept[1] == eps and kept[0].holds(sources):
            return kept[2]
        if not Snapshot.is_possible(sources):
            return None
        snapshot = Snapshot(sources)
        # a tensor made in inference mode could not be used outside it
        with torch.inference_mode(False), torch.no_grad():
            folded = _folded(sources, eps, channels)
        if folded is not None:
            self._kept = snapshot, eps, folded
        return folded


def _folded(sources: Sequence[Tensor | None], eps: float, channels: int) -> Folded | None:
    layer_bias, *of_norm = sources
    if not of_norm:
        wide = None if layer_bias is None else layer_bias.to(accumulator(layer_bias.dtype))
        return Folded(None, wide)
    weight, bias, mean, variance, batches = of_norm
    if mean is None or variance is None or batches is None or mean.shape != (channels,):
        return None
    # in float64, which the other operands are promoted to: scale and shift are rounded once
    scale = (variance.double() + eps).rsqrt_()
    if weight is not None:
        scale.mul_(weight)
    shift = (mean if layer_bias is None else mean.double() - layer_bias) * scale
    shift = -shift if bias is None else bias - shift
    dtype = accumulator(variance.dtype)
    return Folded(scale.to(dtype), shift.to(dtype))


class TrainedNorm:
    """A batch norm in training mode after the product of a convolution, in one autograd node."""

    def __init__(self, norm: nn.BatchNorm1d, running: RunningStatistics) -> None:
        self.norm, self.running = norm, running

    @classmethod
    def of(
        cls, norm: nn.Module, features: Tensor, dtype: torch.dtype, channels: int
    ) -> TrainedNorm | None:
        """On a GPU, with running statistics of the layer's channels, in float32 or dtype."""
        if not kernels_serve(features, dtype) or type(features) not in (Tensor, nn.Parameter):
            return None
        if type(norm) is not nn.BatchNorm1d:
            return None
        # norm.weight and its like search three dictionaries, at ten times the cost
        own, buffers = norm._parameters, norm._buffers
        mean, variance = buffers["running_mean"], buffers["running_var"]
        if mean is None or variance is None or mean.shape != (channels,):
            return None
        # no generator: this runs for every layer of every step
        for part in (own["weight"], own["bias"], mean, variance):
            if part is not None and part.dtype is not torch.float32 and part.dtype is not dtype:
                return None
        batches = buffers["num_batches_tracked"]
        return cls(norm, RunningStatistics(mean, variance, batches, norm.momentum))

    def applied(
        self, product: Product, residual: Tensor | None, relu: bool, count: Tensor | None
    ) -> Tensor:
        """``relu(norm(product) + residual)`` (`pcnn.ops.products`)."""
        features, _, weight, kernel_map, engine, groups, dtype = product
        products: Products = PointwiseProducts(dtype)
        if kernel_map is not None:
            products = products_of(features, weight, kernel_map, engine, groups, dtype)
        own, settings = self.norm._parameters, (self.norm.eps, residual, relu, count)
        affine = own["weight"], own["bias"]
        return normalized(features, weight, products, affine, self.running, *settings)


def following(
    norm: nn.Module | None,
    bias: Tensor | None,
    features: Tensor,
    channels: int,
    folded: FoldedNorm | None,
) -> Folded | TrainedNorm | None:
    """What follows the sums of a convolution in its call; ``None``: module after module."""
    if norm is not None and norm.training:
        if bias is not None:
            return None
        return TrainedNorm.of(norm, features, compute_dtype(features), channels)
    if torch.is_grad_enabled():
        return None
    return (folded or FoldedNorm()).fold(norm, bias, channels)


def fused_convolution(
    layer: nn.Module,
    x: SparseTensor,
    out: SparseTensor | Geometry | None = None,
    norm: nn.Module | None = None,
    residual: SparseTensor | None = None,  # [N_out, C_out] on the output's sites
    relu: bool = False,
    folded: FoldedNorm | None = None,
) -> SparseTensor:
    """``relu(norm(layer(x, out)) + residual)``, in one call where that changes nothing else.

    Everything else runs as it is written, one module after another: gradients in evaluation mode,
    `torch.compile`, layers that are no convolution or have a ``forward`` of their own, other norms,
    and modules that are hooked, so that their hooks fire.
    """
    if torch.compiler.is_compiling():  # sites and maps are found in the call
        parts = x, out, norm, residual, relu, folded
        whole: SparseTensor = torch.compiler.disable(fused_convolution)(layer, *parts)
        return whole
    if _is_free(layer, norm):
        trains = norm is not None and norm.training
        skip = None
        if type(x) is JoinedTensor and x.is_apart and layer.groups == 1 and not trains:
            features, skip = x.first, x.second
        else:
            features = x.features
        # layer.bias searches three dictionaries, at ten times the cost
        parameters = layer._parameters
        bias = parameters["bias"] if "bias" in parameters else layer.__dict__["bias"]
        after = following(norm, bias, features, layer.out_channels, folded)
        if after is not None:
            dtype = compute_dtype(features)
            if residual is not None and residual.features.dtype != dtype:
                y = fused_convolution(layer, x, out, norm, folded=folded)
                return _finished(y, residual, relu)  # whose dtype the residual decides
            sites = out.geometry if isinstance(out, SparseTensor) else out
            kernel_map, target = layer.route(x.geometry, sites)
            if residual is not None and residual.geometry is not target:
                rows = f"{residual.geometry.rows} and {target.rows} sites"
                raise ValueError(f"the residual and the output are on other geometries: {rows}")
            if target.rows > 1 or type(after) is not TrainedNorm:
                added = None if residual is None else residual.features
                weight: Tensor = parameters["weight"]  # type: ignore[assignment]
                how = kernel_map, layer.engine, layer.groups, dtype
                product = Product(features, skip, weight, *how)
                return SparseTensor(after.applied(product, added, relu, target.count), target)
    y = layer(x) if out is None else layer(x, out)
    if norm is not None:
        y = y.replace(normalize(norm, y.features, y.geometry.count))
    return _finished(y, residual, relu)


def _finished(y: SparseTensor, residual: SparseTensor | None, relu: bool) -> SparseTensor:
    if residual is not None:
        y = add(y, residual)
    # in place: no norm needs its own output in backward
    return y.replace(y.features.relu_()) if relu else y


def is_hooked(module: nn.Module) -> bool:
    """True if a call does more than the class says: it is hooked, wrapped or compiled."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or _global_forward_hooks
        or _global_forward_pre_hooks
        or "forward" in module.__dict__
        or module._compiled_call_impl
    )


def _is_free(layer: nn.Module, norm: nn.Module | None) -> TypeGuard[Convolution]:
    """True if the layer computes a convolution, and no hook shows that it is not called."""
    if not isinstance(layer, Convolution) or type(layer).forward is not Convolution.forward:
        return False
    if "weight" not in layer._parameters:  # a parametrized layer computes it
        return False
    if layer.groups > 1 and layer.kernel.is_pointwise:
        return False
    return not (is_hooked(layer) or (norm is not None and is_hooked(norm)))


def steps_of(
    modules: Sequence[nn.Module],
    bare: Sequence[nn.Module],  # the same, without wrappers
    convolution: type[nn.Module],
    kept: dict[int, FoldedNorm],
) -> Iterator[tuple[Any, nn.Module | None, bool, FoldedNorm | None]]:
    """Modules in order; a convolution with batch norm and ReLU that nothing watches is one step."""
    position = 0
    while position < len(modules):
        module, norm, relu, folded = modules[position], None, False, None
        behind = bare[position + 1 : position + 3]
        if isinstance(module, convolution) and behind and _is_one_of(behind[0], FOLDABLE):
            norm, folded = behind[0], kept.setdefault(position, FoldedNorm())
            relu = len(behind) > 1 and _is_one_of(behind[1], (nn.ReLU,))
        yield module, norm, relu, folded
        position += 1 + (norm is not None) + relu


def _is_one_of(module: nn.Module, classes: tuple[type[nn.Module], ...]) -> bool:
    return type(module) in classes and not is_hooked(module)


class FeatureWise(nn.Module):
    """Apply a module that maps ``[N, C]`` to ``[N, C']``: linear, norm, activation, dropout.

    The module inside stays a plain `torch.nn` module, so that conversion to `SyncBatchNorm`,
    weight decay rules and pruning find what they look for.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, C]`` to ``[N, C']`` on the same sites."""
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        return x.replace(normalize(self.module, x.features, x.geometry.count))


class Sequential(nn.Sequential):
    """`torch.nn.Sequential` of sparse layers; plain norms and activations are wrapped by itself.

    A module of `torch.nn` acts on features; every other module takes the sparse tensor. A
    convolution, the batch norm after it and the ReLU after that are one call.
    """

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*(FeatureWise(m) if _is_plain(m) else m for m in modules))
        self._folded: dict[int, FoldedNorm] = {}

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N_in, C_in]`` to what the last module makes of them."""
        bare = [_inside(module) for module in self]
        for step, norm, relu, folded in steps_of(list(self), bare, Convolution, self._folded):
            if norm is None:
                x = step(x)
            else:
                x = fused_convolution(step, x, norm=norm, relu=relu, folded=folded)
        return x

    def train(self, mode: bool = True) -> Sequential:
        """Switch between training and evaluation; folded norms are computed again after it."""
        self._folded.clear()
        return super().train(mode)


def _is_plain(module: nn.Module) -> bool:
    containers = nn.Sequential | nn.ModuleList | nn.ModuleDict
    in_torch = type(module).__module__.startswith("torch.nn.modules.")
    return in_torch and not isinstance(module, containers)


def _inside(module: nn.Module) -> nn.Module:
    """What a wrapper that nothing watches holds."""
    wraps = type(module) is FeatureWise and not is_hooked(module)
    return module.module if wraps else module  # type: ignore[return-value]
