"""Where a training step goes: loader, host, device by phase, layer and kernel, waits, memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.profilers import Profiler
from torch import nn
from torch.profiler import profile, record_function

from pcnn.runtime import timing
from pcnn.runtime.timing import CUDA_CALLS, DEVICE_WORK, Event, wait_for, waits

#: Before the name of a module, and of an action of Lightning, in a trace.
MODULE, ACTION = "pcnn.module ", "pcnn.action "
#: Phase by the last word of an action of Lightning; all actions of callbacks are theirs.
PHASES = {
    "training_step": "rest of the step",  # in no module: metrics
    "backward": "backward",
    "optimizer_step": "optimizer",
    "optimizer_zero_grad": "optimizer",
    "configure_gradient_clipping": "optimizer",
    "lr_scheduler_step": "optimizer",
    "transfer_batch_to_device": "plan and copy",
    "batch_to_device": "plan and copy",
    "on_before_batch_transfer": "plan and copy",
    "on_after_batch_transfer": "plan and copy",
}
CALLBACKS, LOSS, FORWARD, BACKWARD, OTHER = "callbacks", "loss", "forward", "backward", "other"
#: Functions of steps in graphs, by the end of their file and their name.
GRAPHED = {("own_steps.py", "plan"): "plan and copy", ("own_steps.py", "forward"): FORWARD}
#: A backward node, under the number of the operator that it is the gradient of.
_NODE, _NUMBER = "autograd::engine::evaluate_function", "Sequence number"
#: In the functions of the measurement itself, which waits at its end.
OWN = "pcnn/runtime/step_profile.py"
#: Milliseconds and number of one thing, of a step.
Spent = tuple[float, float]


@dataclass(frozen=True)
class StepTrace:
    """The work of a step on a GPU, means over the steps of a trace, the longest first."""

    busy_ms: float  # time in which the device does something
    phases: Mapping[str, Spent]  # that work by what it is for
    layers: Mapping[str, Spent]  # by module; backward of ... its gradients
    kernels: Mapping[str, Spent]  # by the name of the kernel
    waits: Mapping[str, Spent]  # of the host for the device, by the functions that wait


def read_steps(events: Iterable[Event], steps: int) -> StepTrace:
    """Sum up a trace of so many steps."""
    timed = [event for event in events if event.get("ph") == "X"]
    calls = {_correlation(one): one for one in timed if one.get("cat") in CUDA_CALLS}
    on_device = [event for event in timed if event.get("cat") in DEVICE_WORK]
    found: list[list[tuple[str, float]]] = [[], [], [], []]
    phases, layers, kernels, waited = found
    around: dict[int, tuple[Event, ...]] = {}  # events in which a call lies, by its identity
    forward: dict[int, str] = {}  # module of an operator's number
    for thread in {one["tid"] for one in calls.values()}:
        for event, stack in nested([one for one in timed if one.get("tid") == thread]):
            name, category = str(event["name"]), event.get("cat")
            if category == "cpu_op":
                module = _module_of(stack)
                if module is not None and _number(event) >= 0:
                    forward.setdefault(_number(event), module)
            elif category in CUDA_CALLS:
                around[id(event)] = stack
                if waits(name) and not any(OWN in one["name"] for one in stack):
                    waited.append((_who(stack), float(event["dur"])))
    for event in on_device:
        took, stack = float(event["dur"]), around.get(id(calls.get(_correlation(event))), ())
        phase, layer = _place(stack, forward)
        phases.append((phase, took))
        layers.append((layer, took))
        kernels.append((str(event["name"]), took))
    return StepTrace(busy_of(on_device) / 1e3 / steps, *(_sums(one, steps) for one in found))


def _sums(found: Iterable[tuple[str, float]], steps: int) -> dict[str, Spent]:
    """Milliseconds and number by name, of a step, from microseconds."""
    sums: dict[str, Spent] = {}
    for name, took in found:
        ms, number = sums.get(name, (0.0, 0.0))
        sums[name] = ms + took / 1e3 / steps, number + 1 / steps
    return dict(sorted(sums.items(), key=lambda entry: -entry[1][0]))


def busy_of(work: Sequence[Event]) -> float:
    """Time in which at least one of the events is running [us]."""
    busy, end = 0.0, float("-inf")
    for begin, took in sorted((float(event["ts"]), float(event["dur"])) for event in work):
        busy += max(0.0, begin + took - max(begin, end))
        end = max(end, begin + took)
    return busy


def nested(events: Sequence[Event]) -> Iterator[tuple[Event, tuple[Event, ...]]]:
    """Events of one thread in their order, each with those around it, the outermost first."""
    stack: list[Event] = []
    for event in sorted(events, key=lambda one: (float(one["ts"]), -float(one["dur"]))):
        while stack and float(stack[-1]["ts"]) + float(stack[-1]["dur"]) <= float(event["ts"]):
            stack.pop()
        yield event, tuple(stack)
        stack.append(event)


def _correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation")


def _number(event: Event) -> int:
    return int(event.get("args", {}).get(_NUMBER, -1))


def _module_of(stack: Sequence[Event]) -> str | None:
    names = (str(event["name"]) for event in reversed(stack))
    return next((name[len(MODULE) :] for name in names if name.startswith(MODULE)), None)


def _place(stack: Sequence[Event], forward: Mapping[int, str]) -> tuple[str, str]:
    """Phase and layer of a launch."""
    module = _module_of(stack)
    if module is not None:
        return LOSS if module.partition(".")[0] == LOSS else FORWARD, module
    for event in stack:
        if str(event["name"]).startswith(_NODE):
            known = forward.get(_number(event))
            return BACKWARD, f"backward of {known}" if known else BACKWARD
    for event in reversed(stack):
        name = str(event["name"])
        file, _, function = name.partition("(") if is_function(event) else ("", "", "")
        for (end, own), phase in GRAPHED.items():
            if function.endswith(f": {own}") and file.endswith(f"pcnn/graphs/{end}"):
                return phase, phase
        if name.startswith(ACTION):
            action = name[len(ACTION) :]
            known = CALLBACKS if action.startswith("[Callback]") else None
            known = known or PHASES.get(action.rpartition(".")[2])
            if known is not None:
                return known, known
    return OTHER, OTHER


def is_function(event: Event) -> bool:
    return event.get("cat") == "python_function" and ".py(" in str(event["name"])


def _who(stack: Sequence[Event]) -> str:
    """Who waits: the innermost function of all, and of this package."""
    names = [short(str(one["name"])) for one in reversed(stack) if is_function(one)]
    ours = next((name for name in names if name.startswith("pcnn/")), None)
    return " in ".join(dict.fromkeys(name for name in (*names[:1], ours) if name)) or OTHER


def short(name: str) -> str:
    """A function's name with its file below the folder of packages."""
    path, bracket, rest = name.partition("(")
    parts = path.split("/")
    if "pcnn" in parts:
        parts = parts[len(parts) - 1 - parts[::-1].index("pcnn") :]
    elif "site-packages" in parts:
        parts = parts[parts.index("site-packages") + 1 :]
    return "/".join(parts) + bracket + rest


class ActionRanges(Profiler):
    """Lightning's own actions (hooks of tasks and callbacks, backward, transfers) as ranges."""

    on = False

    def start(self, action_name: str) -> None:
        """Nothing: no phase is an action without an end of its own."""

    stop = start

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        with record_function(ACTION + action_name) if self.on else nullcontext():
            yield action_name


@contextmanager
def module_ranges(root: nn.Module) -> Iterator[None]:
    """Calls of modules below a root as ranges: of the loss, and of modules made of several.

    Layers are left alone: those that are hooked run one after another and not as one
    (`pcnn.nn.fused`), which would be another step than the one that is measured.
    """
    with ExitStack() as handles:
        for name, module in root.named_modules():
            several = len(list(module.children())) > 1 and not list(
                module.parameters(recurse=False)  # a norm in its wrapper is one
            )
            if name == LOSS or (name and several):
                ranges: list[Any] = []

                def begin(*_: Any, name: str = name, ranges: list[Any] = ranges) -> None:
                    ranges.append(record_function(MODULE + name))
                    ranges[-1].__enter__()

                def end(*_: Any, ranges: list[Any] = ranges) -> None:
                    ranges.pop().__exit__(None, None, None)

                handles.callback(module.register_forward_pre_hook(begin).remove)
                handles.callback(module.register_forward_hook(end).remove)
        yield


class StepProfile(L.Callback):
    """Times steps as they are, then traces some more."""

    def __init__(self, warm_up: int, steps: int, traced: int, path: Path | None = None) -> None:
        self.warm_up, self.steps, self.traced, self.path = warm_up, steps, traced, path
        self.total = warm_up + steps + traced
        self.ranges = ActionRanges()
        self.summary: dict[str, float | int] = {}
        self.device = torch.device("cpu")
        self.trace: StepTrace | None = None
        self._each: list[float] = []
        self._done = self._rows = 0
        self._began = self._end = self._loaded = 0.0
        self._profiler: profile | None = None
        self._tracing = ExitStack()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._done, self.device = self._done + 1, pl_module.device
        timed, device, now = self._done - self.warm_up, self.device, time.perf_counter()
        if 0 < timed <= self.steps:
            self._each.append(now - self._end)
            self._end = now
            self._rows += sum(int(one.features.shape[0]) for one in pl_module.inputs(batch))
        if timed == 0:
            wait_for(device)
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            self._loaded = _waited(trainer)
            self._began = self._end = time.perf_counter()
        elif timed == self.steps:
            wait_for(device)
            self._sum_up(trainer, device, time.perf_counter() - self._began)
            tools = profile(activities=timing.activities(device), with_stack=True)
            self._tracing.enter_context(module_ranges(pl_module))
            self._profiler = self._tracing.enter_context(tools)
            self.ranges.on = True
        elif timed == self.steps + self.traced:
            self.ranges.on = False
            self._tracing.close()  # waits for the device
            assert self._profiler is not None  # tracing has begun
            self.trace = read_steps(timing.events_of(self._profiler, self.path), self.traced)

    def _sum_up(self, trainer: L.Trainer, device: torch.device, seconds: float) -> None:
        self.summary = {
            "step_ms": 1e3 * seconds / self.steps,
            "median_ms": 1e3 * statistics.median(self._each),
            "loader_share": (_waited(trainer) - self._loaded) / seconds,
            "rows": self._rows // self.steps,
            "steps": self.steps,
        }
        if device.type == "cuda":
            self.summary["peak_mib"] = torch.cuda.max_memory_allocated(device) / 2**20


def _waited(trainer: L.Trainer) -> float:
    """Seconds that the training has waited for batches."""
    loader: Any = trainer.train_dataloader
    return float(loader.seconds_waited)
