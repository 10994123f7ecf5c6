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

import torch

from benchmarks.report import missing, write_pages
from benchmarks.rows import RESULTS, Row, described, machine, merged, new_file, ratios, read, write
from benchmarks.run import Options
from benchmarks.workloads import make
from pcnn.kernels.compiler import architecture, compile_sources_ahead, missing_sources

#: Scripts, and the figures that each measures unless others are named.
SCRIPTS = {
    "layers": ("layers",),
    "maps": ("spira_fig12",),
    "networks": ("networks",),
    "points": ("points_layers",),
    "latency": ("latency",),
}
SAVE_S = 2.0  # seconds between two writings of a result file that is still growing
EXAMPLE = "example: python -m benchmarks networks --model minkunet --workload scan.npz"

Figure = Callable[[Options, str], Iterator[Row]]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m benchmarks",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True)
    for name in (*SCRIPTS, "figure"):
        command = commands.add_parser(name, help=f"measure {name}")
        if name == "figure":
            command.add_argument(
                "figure", nargs="+", help="spira_fig8; all; missing: not in the results"
            )
        else:
            command.add_argument("--figure", action="append", help="another figure of the script")
        _measuring(command)
    report = commands.add_parser("report", help="write the tables of the pages from result files")
    report.add_argument("--results", type=Path, default=RESULTS)
    report.add_argument("--docs", type=Path, default=Path("docs"))
    workloads = commands.add_parser("workloads", help="write the scenes of all tables")
    workloads.add_argument("make", choices=["make"])
    workloads.add_argument("folder", type=Path)
    workloads.add_argument("--kitti", type=Path, help="folder of KITTI odometry, or one scan")
    workloads.add_argument("--seed", type=int, default=0)
    return made


def _measuring(command: argparse.ArgumentParser) -> None:
    for one in fields(Options):
        flag = one.metadata["flag"] or f"--{one.name.replace('_', '-')}"
        command.add_argument(flag, dest=one.name, **one.metadata["words"])
    add = command.add_argument
    add("--revision", help="of the tree, where it is no checkout")
    add("--base", help="time this revision too, in turns with this tree")
    add("--runs", type=int, default=3, help="turns of --base")
    add("--out", type=Path, help="result file that rows are added to; default: a new one")


def options_of(args: argparse.Namespace) -> Options:
    given = {one.name: getattr(args, one.name) for one in fields(Options)}
    given["device"] = args.device or default_device()
    return Options(**given)


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def figures(names: Sequence[str] = tuple(SCRIPTS)) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for name in names:
        found |= import_module(f"benchmarks.{name}").FIGURES
    return found


def measure(args: argparse.Namespace) -> int:
    options = options_of(args)
    scripts = tuple(SCRIPTS) if args.command == "figure" else (args.command,)
    known = figures(scripts)
    wanted = args.figure or SCRIPTS[args.command]
    wanted = list(known) if "all" in wanted else wanted
    wanted = missing(RESULTS) if wanted == ["missing"] else wanted
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


def _of_figure(figure: Figure, options: Options, name: str) -> Iterator[Row]:
    try:
        yield from figure(options, name)
    except Exception as error:  # of what is made before any case, as a scene
        yield {"figure": name, "result": {"left_out": f"{type(error).__name__}: {error}"}}


def _compile_sources(device: torch.device) -> None:
    capability = torch.cuda.get_device_capability(device)
    if missing_sources(architecture(capability)):
        compile_sources_ahead(capability).wait()


def in_turns(args: argparse.Namespace) -> int:
    """Time this tree and another revision of it in turns, and print the ratios."""
    here = Path(__file__).resolve().parents[1]
    words = list(_without(sys.argv[1:], ("--base", "--out", "--runs")))
    device = args.device or default_device()
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
        for number in range(args.runs):
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
    args = parser().parse_args()
    if args.command == "workloads":
        for path in make(args.folder, args.kitti, args.seed):
            print(f"wrote {path}")
        return 0
    if args.command == "report":
        for path in write_pages(args.results, args.docs):
            print(f"wrote {path}")
        return 0
    return in_turns(args) if args.base else measure(args)


if __name__ == "__main__":
    sys.exit(main())
