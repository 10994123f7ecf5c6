"""Networks, the calls that are timed, and what their results are held against."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from benchmarks import check
from benchmarks.convolution import torch_dtype
from benchmarks.inputs import CHANNELS, Cells, PeerCells
from benchmarks.peers.base import Peer, PeerLayer, in_our_order, rebuilt
from benchmarks.run import Options, Prepare, same
from pcnn.dataflows import Blocked
from pcnn.graphs.automatic import AFTER
from pcnn.kernels.recorded import compile_all
from pcnn.maps import SortedSearch
from pcnn.maps.radius import RadiusSearch
from pcnn.models import ResNet18, ResUNetBN2C, SparseResNet21, SparseResNetLarge
from pcnn.models.minkunet import MinkUNet
from pcnn.nn import Conv3d
from pcnn.nn.planned import PlannedModule
from pcnn.ops import voxelize
from pcnn.ops.engine import Engine, resolve
from pcnn.runtime import graph
from pcnn.runtime.observed import launches_of
from pcnn.runtime.timing import Call
from pcnn.tensor import SparseTensor

CLASSES = 19  # classes of ``minkunet_logits``, as SemanticKITTI has
#: Modes with backward. ``infer`` and ``train`` begin at shuffled cells or points, ``forward`` and
#: ``step`` at planned input, ``backward`` behind a forward pass; ``graph`` is ``infer`` as CUDA
#: graphs. ``call`` is ``net(pcnn.voxelize(...))`` as users write it, with what the network does by
#: itself, and ``loop`` a step of such a loop with AdamW (whose rate is 0: weights stay).
TRAINING = ("train", "step", "backward", "loop")
PLAINLY = ("call", "loop")
#: Plain torch in the dtype that is measured, on every device and under autocast.
PLAIN = Engine("plain", SortedSearch(), Blocked(), RadiusSearch())
DRAWS = 2  # draws of the errors that a network is held to


def minkunet(
    engine: Engine, width: float = 1.0, size: int = 3, classes: int | None = None
) -> PlannedModule:
    """MinkUNet42, its 3^3 kernels of another size if asked for (Spira Table 4)."""
    kernels: Any = {"stem_kernels": (size, size), "kernel_size": size}
    return MinkUNet(CHANNELS, classes, width, engine, **kernels)


#: Networks by name: of an engine and a width, and ``minkunet`` of a kernel size.
NETWORKS: dict[str, Callable[..., Any]] = {
    "sparse_resnet": lambda e, w: SparseResNet21(CHANNELS, w, e),
    "sparse_resnet_large": lambda e, w: SparseResNetLarge(CHANNELS, w, e),
    "minkunet": minkunet,
    "minkunet_logits": partial(minkunet, classes=CLASSES),
    "resunet": lambda e, w: ResUNetBN2C(CHANNELS, width=w, engine=e),
    "resnet18": lambda e, w: ResNet18(CHANNELS, width=w, engine=e),
}


@dataclass(frozen=True)
class Size:
    """A network in one of its sizes, on so many clouds."""

    model: str  # name of the network
    kernel: int | None = None  # size of its kernels; `None`: its own
    batches: int = 1  # clouds in the batch
    width: float = 1.0  # factor on all channels
    scans: int = 1  # that are aggregated in a cloud

    @property
    def keys(self) -> dict[str, Any]:
        found: dict[str, Any] = {} if self.kernel is None else {"K": self.kernel}
        others = {"B": self.batches, "width": self.width, "scans": self.scans}
        return found | {name: value for name, value in others.items() if value != 1}


def make_network(size: Size, engine: Engine, width: float, device: torch.device) -> Any:
    kernel = () if size.kernel is None else (size.kernel,)
    cuda = [device] if device.type == "cuda" else []
    # made where it runs: 13^3 kernels have more than a thousand million weights
    with torch.random.fork_rng(devices=cuda), torch.device(device):
        torch.manual_seed(0)
        return NETWORKS[size.model](engine, width * size.width, *kernel)


@torch.no_grad()
def settle_norms(network: nn.Module, x: SparseTensor) -> None:
    """Give all norms the statistics of one batch: with those of a new network, features vanish.

    A channel that is the same in all rows has no scale: it keeps the variance 1 of a new norm.
    Divided by the root of 0 and ``eps``, features would grow by a factor of 300 a layer.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    network.train()
    network(x)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
        if norm.running_var is not None:
            norm.running_var[norm.running_var < norm.eps] = 1.0
    network.eval()


def features_of(outputs: Any) -> list[Tensor]:
    found = []
    for one in outputs if isinstance(outputs, list) else [outputs]:
        found.append(one.features if hasattr(one, "features") else one)
    return found


class Work:
    def __init__(self, network: Any, cells: Any, dtype: torch.dtype) -> None:
        self.network, self.cells, self.dtype = network, cells, dtype
        own = next(network.parameters()).dtype
        self.casts = own != dtype
        self.input = cells.to(own)
        self._pulls: list[Tensor] = []

    def elsewhere(self, cells: Any) -> Work:
        return Work(self.network, cells, self.dtype)

    def _autocast(self) -> AbstractContextManager[object]:
        device = self.cells.features.device.type
        return torch.autocast(device, self.dtype) if self.casts else nullcontext()

    def compile_ahead(self, mode: str) -> None:
        """Compile the kernels of a mode side by side, on a GPU; one by one takes minutes."""
        device = self.cells.features.device
        if device.type != "cuda":
            return
        training = mode in TRAINING
        network = copy.deepcopy(self.network).train(training)
        with suppress(Exception), self._autocast():  # the call says where
            x = self.input.on(network, backward=training)
            deque(compile_all(launches_of(network, [x], training), device), maxlen=0)

    @torch.no_grad()
    def infer(self, x: SparseTensor | None = None) -> list[Tensor]:
        return self.outputs(self.input.on(self.network, backward=False) if x is None else x)

    def train(self, x: SparseTensor | None = None) -> list[Tensor]:
        outputs = self.outputs(self.input.on(self.network, backward=True) if x is None else x)
        return [*outputs, *self._gradients(outputs)]

    def outputs(self, x: SparseTensor) -> list[Tensor]:
        with self._autocast():
            return self._features(self.network(x))

    def _features(self, outputs: Any) -> list[Tensor]:
        return features_of(outputs)

    def _gradients(self, outputs: list[Tensor]) -> tuple[Tensor, ...]:
        grads = [self._gradient(number, out) for number, out in enumerate(outputs)]
        return torch.autograd.grad(outputs, list(self.network.parameters()), grads)

    def _gradient(self, number: int, output: Tensor) -> Tensor:
        # rows pull the same way; under random gradients little but rounding would be left of the
        # gradient of a weight
        if number == len(self._pulls):
            random = torch.Generator(output.device).manual_seed(number)
            pull = torch.rand(output.shape[1], generator=random, device=output.device)
            self._pulls.append((pull - 0.3).to(output.dtype))
        return output.detach() * self._pulls[number]

    def prepare(self, mode: str) -> Prepare:
        training = mode in TRAINING
        self.network.train(training)
        self.network.graphs = mode in PLAINLY
        if mode == "graph":
            return self._graphed()
        if mode in PLAINLY:
            return self._plainly(mode == "loop")
        step = self.train if training else self.infer
        if mode in ("infer", "train"):
            return same(step)
        with torch.set_grad_enabled(training):
            x = self.input.on(self.network, backward=training)
        if mode != "backward":
            return same(lambda: step(x))

        def prepared() -> Call:
            outputs = self.outputs(x)
            return lambda: self._gradients(outputs)

        return prepared

    def _graphed(self) -> Prepare:
        given, voxel_size = self.input.as_points
        runner = graph(self.network, voxel_size)

        def call() -> object:
            answer = runner(*given)
            if runner.reason is not None:
                raise ValueError(f"no graph: {runner.reason}")
            return answer

        return same(call)

    def _plainly(self, learns: bool) -> Prepare:
        (points, features, *batch), voxel_size = self.input.as_points
        parameters = list(self.network.parameters())
        optimizer = torch.optim.AdamW(parameters, 0.0, weight_decay=0.0) if learns else None

        def call() -> list[Tensor]:
            given = points, features, batch[0]
            x = voxelize(*given, voxel_size=voxel_size, batch_size=batch[1])
            if optimizer is None:
                with torch.no_grad():
                    return self.outputs(x)
            optimizer.zero_grad()
            outputs = self.outputs(x)
            grads = [self._gradient(number, out) for number, out in enumerate(outputs)]
            torch.autograd.backward(outputs, grads)
            optimizer.step()
            return [*outputs, *(one.grad for one in parameters if one.grad is not None)]

        for _ in range(AFTER + 1):  # sizes repeat
            call()
        if self.network.graphs_reason is not None:
            raise ValueError(f"no graph: {self.network.graphs_reason}")
        return same(call)

    def results(self, mode: str) -> check.Tensors:
        answer: Any = self.prepare(mode)()()
        found = features_of(answer) if mode == "graph" else [t.detach() for t in answer]
        weights = [name for name, _ in self.network.named_parameters()] if mode in TRAINING else []
        count = len(found) - len(weights)
        return dict(zip([*(f"out{n}" for n in range(count)), *weights], found, strict=True))


class PeerWork(Work):
    def __init__(self, peer: Peer, network: Any, cells: Cells, dtype: torch.dtype) -> None:
        if not isinstance(cells, Cells):
            raise ValueError(f"{peer.name} is measured on voxels alone")
        given = PeerCells(peer, peer.prepared(cells.cells, cells.batches), cells.features)
        super().__init__(network, given, dtype)
        self.peer, self._in_order = peer, False

    @classmethod
    def of(cls, peer: Peer, network: Any, cells: Any, dtype: torch.dtype, trains: bool) -> PeerWork:
        """Of a network of ours in float32; in training parameters stay so."""
        for layer in network.modules():
            if isinstance(layer, Conv3d) and isinstance(cells, Cells):
                peer.require_sites(layer.kernel, cells.downsampling)
        made = rebuilt(network, peer).eval()
        return cls(peer, made if trains else made.to(dtype), cells, dtype)

    def elsewhere(self, cells: Any) -> PeerWork:
        return PeerWork(self.peer, self.network, cells, self.dtype)

    def compile_ahead(self, mode: str) -> None:
        """Packages compile by themselves."""

    def prepare(self, mode: str) -> Prepare:
        if not self.peer.builds_maps:
            raise ValueError(f"{self.peer.name} finds no neighbours of voxels: compare its layers")
        if mode not in ("infer", "train") and not (
            self.peer.keeps_strided_maps and mode in ("forward", "step")
        ):
            raise ValueError(f"{self.peer.name} is compared in the modes infer and train")
        return super().prepare(mode)

    def results(self, mode: str) -> check.Tensors:
        self._in_order = True
        found = super().results(mode)
        self._in_order = False
        return dict(self._ours(name, value) for name, value in found.items())

    def _features(self, outputs: Any) -> list[Tensor]:
        if not self._in_order:
            return [one.features for one in (outputs if isinstance(outputs, list) else [outputs])]
        every = outputs if isinstance(outputs, list) else [outputs]
        return [one.features[in_our_order(one.geometry.coords())] for one in every]

    def _ours(self, name: str, value: Tensor) -> tuple[str, Tensor]:
        prefix, _, _ = name.rpartition(".theirs.")
        if not prefix:
            return name, value
        layer = self.network.get_submodule(prefix)
        assert isinstance(layer, PeerLayer)
        return f"{prefix}.weight", layer.in_ours(value)


class Standard:
    """The reference for the engines' results: one network on the check cells of one scene."""

    def __init__(self, options: Options, size: Size, cells: Any) -> None:
        self.options, self.size, self.cells = options, size, cells
        self.dtype = torch_dtype(options.dtype)
        network = self._made(resolve("reference"))
        settle_norms(network, cells.on(network, backward=False))
        self.state = network.state_dict()
        self.found: dict[str, tuple[check.Tensors, check.Tensors, dict[str, float]]] = {}

    def _made(self, engine: Engine) -> Any:
        return make_network(self.size, engine, self.options.width, self.options.device)

    def work(self, engine: Engine | Peer, mode: str, cells: Any) -> Work:
        if isinstance(engine, Peer):
            engine.require(self.options.dtype)
            ours = self._work(resolve("reference"), "train", cells).network
            return PeerWork.of(engine, ours, cells, self.dtype, mode in TRAINING)
        if self.options.gate:
            check.gate(engine, self.options.device)
        return self._work(engine, mode, cells)

    def _work(self, engine: Engine, mode: str, cells: Any) -> Work:
        network = self._made(engine)
        network.load_state_dict(self.state)
        network.eval()
        return Work(network if mode in TRAINING else network.to(self.dtype), cells, self.dtype)

    def check(self, work: Work, mode: str) -> None:
        self.check_results(work.results(mode), mode)

    def check_results(self, results: check.Tensors, mode: str) -> None:
        kind = "train" if mode in TRAINING else "infer"
        if kind not in self.found:
            truth = self._wide(resolve("reference"), kind)
            plain = self._work(PLAIN, kind, self.cells).results(kind)
            self.found[kind] = truth, plain, self._errors(kind, truth)
        truth, plain, errors = self.found[kind]
        if mode == "backward":  # the gradients alone
            truth = {name: truth[name] for name in results}
        check.check_network(results, truth, plain, errors, self.options.dtype)

    def _wide(self, engine: Engine, kind: str) -> check.Tensors:
        network = copy.deepcopy(self._work(engine, kind, self.cells).network).to(torch.float64)
        return Work(network, self.cells, torch.float64).results(kind)

    def _errors(self, kind: str, truth: check.Tensors) -> dict[str, float]:
        """By name, the largest RMS error of several draws of errors at the bound of a product."""
        flow = check.Rounded(error=check.RELATIVE_RMS[self.options.dtype])
        engine = Engine("rounded", SortedSearch(), flow, RadiusSearch())
        errors = dict.fromkeys(truth, 0.0)
        device = self.options.device
        for draw in range(DRAWS):
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(draw)
                found = self._wide(engine, kind)
            for name, expected in truth.items():
                errors[name] = max(errors[name], check.rms(found[name] - expected))
        return errors
