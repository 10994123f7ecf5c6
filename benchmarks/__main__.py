"""Command line of the benchmarks: ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.rows import RESULTS, Row

#: Scripts, and the figures that each measures unless others are named.
SCRIPTS = {
    "layers": ("layers",),
    "maps": ("spira_fig12",),
    "networks": ("networks",),
    "points": ("points_layers", "points_triplets"),
    "latency": ("latency",),
    "solvers": ("solvers",),
}
#: Seconds between two writings of a result file that is still growing.
SAVE_S = 2.0
EXAMPLES = """examples:
  python -m benchmarks networks --engine auto --engine spconv --model minkunet --workload scan.npz
  python -m benchmarks layers --layer 16:32:3 --base main
  python -m benchmarks figure spira_fig8 minuet_fig12 --workload scans/lidar0_005.npz
  python -m benchmarks workloads make scans
  python -m benchmarks report
"""

Figure = Callable[[Any, str], Iterator[Row]]


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    made = argparse.ArgumentParser(
        "python -m benchmarks",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True)
    for name in (*SCRIPTS, "figure"):
        command = commands.add_parser(name, help=f"measure {name}")
        if name == "figure":
            command.add_argument("figure", nargs="+", help="such as spira_fig8; all: every one")
        else:
            command.add_argument("--figure", action="append", help="another figure of the script")
        _measuring(command)
    report = commands.add_parser("report", help="write the tables of the pages from result files")
    report.add_argument("--results", type=Path, default=RESULTS)
    report.add_argument("--docs", type=Path, default=Path("docs"))
    charts = commands.add_parser("charts", help="draw the charts of result files")
    charts.add_argument("files", nargs="+", type=Path)
    charts.add_argument("--peers", action="append", type=Path, default=[])
    charts.add_argument("--out", type=Path, help="folder; default: beside the files")
    workloads = commands.add_parser("workloads", help="write the scenes of all tables")
    workloads.add_argument("make", choices=["make"])
    workloads.add_argument("folder", type=Path)
    workloads.add_argument("--kitti", type=Path, help="folder of KITTI odometry, or one scan")
    workloads.add_argument("--seed", type=int, default=0)
    return made


def _measuring(command: argparse.ArgumentParser) -> None:
    """Options of measuring; those that are fields of `Options` have their names."""
    add = command.add_argument
    for name, field, about in (
        ("--engine", "engines", "engine, line, map builder or installed package"),
        ("--workload", "workloads", "file.npz with coords, scan@SIZE, or room_20k"),
        ("--cloud", "clouds", "file.npz:NAME@GRID, or room0@200k"),
        ("--model", "models", "network"),
        ("--mode", "modes", "mode of a network or kind of a layer"),
        ("--layer", "shapes", "c_in:c_out:size[:stride]; several with commas"),
        ("--product", "products", "table, pairs, ready or train, of maps"),
    ):
        add(name, dest=field, action="append", default=[], help=f"{about}; may be repeated")
    add("--dtype", default="", help="float16 (on a GPU), bfloat16, tf32, float32 or float64")
    add("--kernels", type=_several(str), default="3:1,5:1,2:2,3:2", help="of maps, as size:stride")
    add(
        "--sizes", type=_several(float), default="10,50,100,500,1000", help="of generated scenes, k"
    )
    add("--kernel-sizes", type=_several(int), default="3,7,13", help="of spira_table4")
    add("--rooms", type=int, default=10, help="simulated rooms, or pairs of solvers")
    add("--width", type=float, default=1.0, help="factor on the channels of networks")
    add("--check", type=int, default=200_000, help="sites that larger networks are checked on")
    add("--repeats", type=int, default=20, help="timed calls")
    add("--runs", type=int, default=1, help="how often everything is timed")
    add("--budget", type=float, default=1.0, help="longest time of one figure of a row [s]")
    add("--limit", type=float, default=float("inf"), help="seconds of a figure")
    add("--memory", type=float, help="memory of pointcnnpp_figJ [GB]")
    add("--largest", type=float, default=400_000, help="its largest cloud, in thousands of points")
    add("--sites", choices=["floor", "reached"], default="floor", help="of strided layers")
    add("--cold", action="store_true", help="empty the cache before every call")
    add("--no-trace", dest="traced", action="store_false", help="count no launches")
    add("--gate", action="store_true", help="run the whole check of every engine first")
    add("--lock", type=Path, help="file shared by processes that measure on one device")
    add("--device", default="auto", help="cpu, cuda, cuda:1 or auto")
    add("--revision", help="of the tree, where it is no checkout")
    add("--base", help="time this revision too, in turns with this tree")
    add("--out", type=Path, help="result file that rows are added to; default: a new one")


def _several(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(one) for one in text.split(",")]


def options_of(args: argparse.Namespace) -> Any:
    """The options that the words stand for."""
    import torch

    from benchmarks.run import Options

    has_gpu = torch.cuda.is_available()
    device = ("cuda" if has_gpu else "cpu") if args.device == "auto" else args.device
    given = {field.name: getattr(args, field.name) for field in fields(Options)}
    return Options(**given | {"device": torch.device(device)})


def figures(names: Sequence[str] = tuple(SCRIPTS)) -> dict[str, Figure]:
    """All figures of scripts, by name."""
    found: dict[str, Figure] = {}
    for name in names:
        found |= import_module(f"benchmarks.{name}").FIGURES
    return found


def measure(args: argparse.Namespace) -> int:
    """Measure figures into a result file; 1 if a result was wrong."""
    from benchmarks.rows import described, machine, merged, new_file, read, write

    options = options_of(args)
    scripts = tuple(SCRIPTS) if args.command == "figure" else (args.command,)
    known = figures(scripts)
    wanted = args.figure or SCRIPTS[args.command]
    wanted = list(known) if "all" in wanted else wanted
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"no figure {unknown[0]}; there are {', '.join(known)}")
    if options.device.type == "cuda":
        _compile_sources(options.device)
    path = args.out or new_file(options.device, args.command)
    old = read(path) if path.exists() else []
    here, rows, saved = machine(options.device, args.revision), [], time.monotonic()
    try:
        for name in wanted:
            for row in _of_figure(known[name], replace(options), name):
                rows.append({**row, "machine": here})
                print(described(row), flush=True)
                if time.monotonic() - saved > SAVE_S:  # a run cut short leaves what it has
                    write(path, merged(old, rows))
                    saved = time.monotonic()
    finally:  # Ctrl-C too
        if rows:
            write(path, merged(old, rows))
            print(f"wrote {path}")
    return int(any("CheckFailed" in row["result"].get("left_out", "") for row in rows))


def _of_figure(figure: Figure, options: Any, name: str) -> Iterator[Row]:
    try:
        yield from figure(options, name)
    except Exception as error:  # of what is made before any case, as a scene
        yield {"figure": name, "result": {"left_out": f"{type(error).__name__}: {error}"}}


def _compile_sources(device: Any) -> None:
    """Compile the CUDA sources that are not in the cache side by side, before anything is timed."""
    import torch

    from pcnn.kernels.compiler import architecture
    from pcnn.kernels.sources_ahead import compile_sources_ahead, missing_sources

    capability = torch.cuda.get_device_capability(device)
    if missing_sources(architecture(capability)):
        compile_sources_ahead(capability).wait()


def in_turns(args: argparse.Namespace) -> int:
    """Time this tree and another revision of it in turns, and print the ratios.

    The benchmarks are this tree's in both: they are linked beside the other revision's package.
    """
    import torch

    from benchmarks.rows import new_file, ratios, read, write

    here = Path(__file__).resolve().parents[1]
    words = list(_without(sys.argv[1:], ("--base", "--out", "--runs")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out = args.out or new_file(device, f"{args.command}-over-{args.base.replace('/', '-')}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        other, view = Path(folder) / "tree", Path(folder) / "view"
        git = ["git", "-C", str(here), "worktree"]
        subprocess.run([*git, "add", "--detach", str(other), args.base], check=True)
        stack.callback(subprocess.run, [*git, "remove", "--force", str(other)], check=True)
        view.mkdir()
        (view / "pcnn").symlink_to(other / "pcnn")
        (view / "benchmarks").symlink_to(here / "benchmarks")
        for number in range(max(3, args.runs)):
            for tree in (view, here):
                part = Path(folder) / f"{number}-{tree.name}.json"
                command = [sys.executable, "-m", "benchmarks", *words, "--out", str(part)]
                where = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
                subprocess.run(command, env=where, check=False)
                rows += [{**row, "run": number} for row in read(part)]
                write(out, rows)
    print(ratios(rows))
    return 0


def _without(words: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    left = iter(words)
    for word in left:
        if word in options:
            next(left, None)
        elif not word.startswith(tuple(f"{one}=" for one in options)):
            yield word


def main() -> int:
    """Run a command."""
    args = parser().parse_args()
    if args.command == "workloads":
        from benchmarks.workloads import make

        for path in make(args.folder, args.kitti, args.seed):
            print(f"wrote {path}")
        return 0
    if args.command == "report":
        from benchmarks.report import write_pages

        for path in write_pages(args.results, args.docs):
            print(f"wrote {path}")
        return 0
    if args.command == "charts":
        from benchmarks.charts import draw

        for file in args.files:
            for path in draw(file, args.peers, args.out):
                print(f"wrote {path}")
        return 0
    return in_turns(args) if args.base else measure(args)


if __name__ == "__main__":
    sys.exit(main())
