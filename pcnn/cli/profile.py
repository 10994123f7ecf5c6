"""`pcnn profile`: where a training step goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from pcnn.cli.options import Conf, Overrides, composed
from pcnn.ranges import Count

if TYPE_CHECKING:
    from pcnn.console import Console
    from pcnn.runtime.step_profile import Spent

#: Parts of a step by their name, and what their tables are called.
PARTS = {
    "phases": "{device}, by what it is for",
    "layers": "{device}, by layer",
    "kernels": "{device}, by kernel",
    "waits": "waits of the host for the device",
}


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    overrides: Overrides
    steps: Annotated[Count | None, "Steps to time; 30, of many workers more, unless given."] = (
        None  # a loader that is too slow shows when the batches that are made ahead are used up
    )
    warm_up: Annotated[Count, "Steps before those: compilation, memory, graphs."] = 20
    traced: Annotated[Count, "Steps to look into, after the timed ones."] = 3
    most: Annotated[Count, "Names in a table."] = 20
    out: Annotated[Path | None, "File of all numbers (JSON)."] = None
    trace: Annotated[Path | None, "File of the traced steps (JSON), which Perfetto opens."] = None
    conf: Conf = None


def profile(options: ProfileOptions) -> None:
    """Time the steps of a training, and look into some: what the device does in them.

    Give the options of the training, which is not validated. The tables tell the milliseconds of
    a step and how often each thing happens in it.
    """
    import torch

    from pcnn.console import Console
    from pcnn.experiment import report
    from pcnn.experiment.run_folder import write_whole
    from pcnn.programs.command_line import short_errors

    console = Console()
    with TemporaryDirectory(prefix="pcnn-profile-") as folder, short_errors():
        found = measured(options, Path(folder))
    summary, trace, device = found.summary, found.trace, found.device
    assert trace is not None  # the training is over
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    if device.type == "cuda":  # the profiler slows a CPU
        idle = max(1 - trace.busy_ms / summary["step_ms"], 0.0)
        summary |= {"busy_ms": trace.busy_ms, "idle_share": idle}
        summary["launches"] = sum(count for _, count in trace.kernels.values())
    for key, value in summary.items():
        console.say(f"{key}: {value:.4g}")
    parts: dict[str, Mapping[str, Spent]] = {key: getattr(trace, key) for key in PARTS}
    for part, title in PARTS.items():
        show(console, title.format(device=name), parts[part], options.most)
    if options.trace is not None:
        console.say(f"{options.trace}: open it in https://ui.perfetto.dev")
    if options.out is not None:
        content = {
            "device": name,
            "revision": report.revision(),
            "versions": report.versions(),
            "overrides": list(options.overrides),
            "step": summary,
            **{
                part: {key: {"ms": ms, "count": count} for key, (ms, count) in of.items()}
                for part, of in parts.items()
            },
        }
        write_whole(options.out, json.dumps(content, indent=1) + "\n")
        console.say(options.out)


def measured(options: ProfileOptions, folder: Path) -> Any:
    """Train so many steps in a folder of their own; returns the callback that looked at them."""
    from pcnn.datamodules.batch_stream import AHEAD
    from pcnn.experiment import build
    from pcnn.experiment.run import settled, trainer_of
    from pcnn.runtime.step_profile import StepProfile

    logged = any(word.startswith("logger=") for word in options.overrides)
    quiet = [] if logged else ["logger=[csv]"]
    cfg, module, _ = settled(composed([*options.overrides, *quiet], options.conf), folder)
    steps = options.steps or max(30, 8 * AHEAD * module.workers)
    found = StepProfile(options.warm_up, steps, options.traced, options.trace)
    still = {"enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 0}
    cfg.trainer.update(max_steps=found.total, **still)
    trainer = trainer_of(cfg, folder, module, found)
    trainer.profiler = found.ranges  # type: ignore[attr-defined]  # set where mypy cannot see it
    trainer.fit(build.task(cfg), module)
    return found


def show(console: Console, title: str, parts: Mapping[str, Spent], most: int) -> None:
    from rich.table import Table

    if not parts:
        return
    table = Table("what", title=title, title_justify="left")
    for name in ("ms", "times"):
        table.add_column(name, justify="right")
    named = list(parts.items())
    if rest := [spent for _, spent in named[most:]]:
        sums = sum(ms for ms, _ in rest), sum(count for _, count in rest)
        named = [*named[:most], ("all others", sums)]
    for name, (ms, count) in named:
        table.add_row(name[:100], f"{ms:.3f}", f"{count:g}")
    console.print(table)
