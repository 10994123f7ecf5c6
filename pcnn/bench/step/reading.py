"""The trace of some training steps, summed up: by kernel, phase, module, function and wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pcnn.bench.step.ranges import ACTION, MODULE
from pcnn.bench.trace import CUDA_CALLS, DEVICE_WORK, waits

Event = Mapping[str, Any]

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
#: Functions of steps in graphs, by the ends of their names without lines.
GRAPHED = {
    ("pcnn/runtime/fixed_input.py", "take"): "plan and copy",
    ("pcnn/runtime/step_graph.py", "forward"): FORWARD,
}
#: A backward node, under the number of the operator that it is the gradient of.
_NODE, _NUMBER = "autograd::engine::evaluate_function", "Sequence number"


@dataclass(frozen=True)
class Spent:
    """Milliseconds and numbers of one thing, of a step."""

    ms: float = 0.0
    count: float = 0.0


@dataclass
class Sums:
    """Milliseconds and numbers by name."""

    steps: int
    _of: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))

    def add(self, name: str, microseconds: float, count: int = 1) -> None:
        """Add to what a name has."""
        entry = self._of[name]
        entry[0] += microseconds / 1e3
        entry[1] += count

    def largest(self) -> dict[str, Spent]:
        """Of a step, the longest first."""
        ordered = sorted(self._of.items(), key=lambda entry: -entry[1][0])
        return {name: Spent(ms / self.steps, n / self.steps) for name, (ms, n) in ordered}


@dataclass(frozen=True)
class StepTrace:
    """The work of a step, means over the steps of a trace.

    Args:
        busy_ms: time in which the device does something.
        kernels: device work by name.
        phases: device work by what it is for.
        modules: device work by module; ``backward of ...`` its gradients.
        functions: time of the host in a function of Python itself, with the operators and launches
            that it calls and without other functions; of threads that launch.
        waits: of the host for the device, by the functions that wait.
    """

    busy_ms: float
    kernels: Mapping[str, Spent]
    phases: Mapping[str, Spent]
    modules: Mapping[str, Spent]
    functions: Mapping[str, Spent]
    waits: Mapping[str, Spent]

    @property
    def launches(self) -> float:
        """Kernels, copies and fills of a step."""
        return sum(spent.count for spent in self.kernels.values())


def read_steps(events: Iterable[Event], steps: int) -> StepTrace:
    """Sum up a trace.

    Args:
        events: ``traceEvents`` of the profiler's file; times in us.
        steps: that it holds.
    """
    timed = [event for event in events if event.get("ph") == "X"]
    work = [event for event in timed if event.get("cat") in DEVICE_WORK]
    calls = [event for event in timed if event.get("cat") in CUDA_CALLS]
    launched = {_correlation(call): call for call in calls}
    threads = {call["tid"] for call in calls} or _threads_of_operators(timed)
    kernels, phases, modules = Sums(steps), Sums(steps), Sums(steps)
    functions, waited = Sums(steps), Sums(steps)
    around: dict[int, tuple[Event, ...]] = {}  # of the calls, by identity
    forward: dict[int, str] = {}  # module of an operator's number
    for thread in threads:
        for event, stack in nested([one for one in timed if one.get("tid") == thread]):
            if event.get("cat") in CUDA_CALLS:
                around[id(event)] = stack
                if waits(str(event["name"])) and not _is_ours(stack):
                    waited.add(_who(stack), float(event["dur"]))
            elif event.get("cat") == "cpu_op":
                _note_module(event, stack, forward)
        _add_functions(timed, thread, functions)
    for event in work:
        launch = launched.get(_correlation(event))
        stack = around.get(id(launch), ())
        took = float(event["dur"])
        phase, module = _place(stack, forward)
        kernels.add(str(event["name"]), took)
        phases.add(phase, took)
        modules.add(module, took)
    return StepTrace(
        busy_of(work) / 1e3 / steps,
        *(one.largest() for one in (kernels, phases, modules, functions, waited)),
    )


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


def _threads_of_operators(timed: Sequence[Event]) -> set[Any]:
    return {event["tid"] for event in timed if event.get("cat") == "cpu_op"}


def _number(event: Event) -> int:
    return int(event.get("args", {}).get(_NUMBER, -1))


def _module_of(stack: Sequence[Event]) -> str | None:
    names = (str(one["name"]) for one in reversed(stack))
    return next((name[len(MODULE) :] for name in names if name.startswith(MODULE)), None)


def _note_module(event: Event, stack: Sequence[Event], forward: dict[int, str]) -> None:
    """Remember the module of an operator, for its gradient."""
    module = _module_of(stack)
    if module is not None and _number(event) >= 0:
        forward.setdefault(_number(event), module)


def _place(stack: Sequence[Event], forward: Mapping[int, str]) -> tuple[str, str]:
    """Phase and module of a launch."""
    module = _module_of(stack)
    if module is not None:
        return LOSS if module.partition(".")[0] == LOSS else FORWARD, module
    for event in stack:
        if str(event["name"]).startswith(_NODE):
            known = forward.get(_number(event))
            return BACKWARD, f"backward of {known}" if known else BACKWARD
    for event in reversed(stack):
        name = str(event["name"])
        if _is_function(event):
            file, _, function = name.partition("(")
            for (end, own), named in GRAPHED.items():
                if function.endswith(f": {own}") and file.endswith(end):
                    return named, named
        if name.startswith(ACTION):
            action = name[len(ACTION) :]
            if action.startswith("[Callback]"):
                return CALLBACKS, CALLBACKS
            phase = PHASES.get(action.rpartition(".")[2])
            if phase is not None:
                return phase, phase
    return OTHER, OTHER


def _is_function(event: Event) -> bool:
    """Whether an event is a function that is written in Python."""
    return event.get("cat") == "python_function" and ".py(" in str(event["name"])


def _add_functions(timed: Sequence[Event], thread: Any, functions: Sums) -> None:
    own = [one for one in timed if one.get("tid") == thread and _is_function(one)]
    for event, stack in nested(own):
        functions.add(short(str(event["name"])), float(event["dur"]))
        if stack:
            functions.add(short(str(stack[-1]["name"])), -float(event["dur"]), 0)


def _is_ours(stack: Sequence[Event]) -> bool:
    """Whether the measurement itself waits, as it does at its end."""
    return any(short(str(one["name"])).startswith("pcnn/bench/step/watch") for one in stack)


def _who(stack: Sequence[Event]) -> str:
    """Who waits: the innermost function of this package and the innermost of all."""
    names = [short(str(one["name"])) for one in reversed(stack) if _is_function(one)]
    ours = next((name for name in names if name.startswith("pcnn/")), None)
    return " in ".join(dict.fromkeys(name for name in (*names[:1], ours) if name)) or OTHER


def short(name: str) -> str:
    """A function's name with its file below the folder of packages."""
    path, bracket, rest = name.partition("(")
    parts = path.replace("\\", "/").split("/")
    if "pcnn" in parts:
        parts = parts[len(parts) - 1 - parts[::-1].index("pcnn") :]
    elif "site-packages" in parts:
        parts = parts[parts.index("site-packages") + 1 :]
    return "/".join(parts) + bracket + rest
