"""Plant small faults, one at a time, in copies of the tree, and see which ones the tests catch.

    python -m tests.mutations --seed 1 --faults 60 --workers 16

Sites are drawn from the seed: rooms take turns, then kinds, then places. A fault meets the tests of
its module first, then those of the rooms near it, then all tests; the first failure ends it. That
test must pass without the fault. A timeout counts as caught, as the fault made a loop endless.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("geometry", "maps", "dataflows", "kernels", "ops", "metrics", "registration")
NOT_COPIED = (".git", ".venv*", "data", "logs", "dist", "build", "*.egg-info", ".*_cache", "shared")
SECONDS = (400, 900, 3600)  # of the three stages
LARGEST = 64  # constant that is changed: larger ones are thresholds of speed or of memory
INTERPRETED = "tests/kernels/triton"  # with TRITON_INTERPRET=1, in a process of its own

SWAPPED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.MatMult)
#: What follows a comparison: the operator a step beside it.
OTHER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OTHER_COMPARISON: dict[type, type] = {**OTHER, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
#: Nodes and fields without arithmetic: messages, annotations, decorators.
SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
SKIPPED_FIELDS = ("annotation", "returns", "decorator_list", "bases", "type_params")


@dataclass(frozen=True)
class Fault:
    """One small change: bytes ``start..end`` of a file become ``text``."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """The file with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def __str__(self) -> str:
        """Where it is, and what it changes."""
        before = (ROOT / self.path).read_bytes()[self.start : self.end].decode()
        return f"{self.path}:{self.line} {self.kind}: {before} -> {self.text}"


def changes(node: ast.AST, inside: bool) -> Iterator[tuple[str, ast.expr]]:
    """Kinds of fault that an expression can have, and the expressions with them."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.BinOp):
        if isinstance(other.op, ast.Add | ast.Sub):
            yield "dropped term", other.left
            flipped = ast.Sub() if isinstance(other.op, ast.Add) else ast.Add()
            yield "sign", ast.BinOp(other.left, flipped, other.right)
        joined_path = isinstance(other.right, ast.Constant) and isinstance(other.right.value, str)
        if isinstance(other.op, SWAPPED) and not joined_path:
            yield "swapped operands", ast.BinOp(other.right, other.op, other.left)
        if isinstance(other.op, ast.Mult):
            yield "dropped factor", other.left
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.USub):
        yield "sign", other.operand
    elif isinstance(other, ast.Compare) and type(other.ops[0]) in OTHER_COMPARISON:
        other.ops[0] = OTHER_COMPARISON[type(other.ops[0])]()
        yield "comparison", other
    elif isinstance(other, ast.BoolOp):
        other.op = ast.Or() if isinstance(other.op, ast.And) else ast.And()
        yield "comparison", other
    elif isinstance(other, ast.IfExp):
        yield "swapped operands", ast.IfExp(other.test, other.orelse, other.body)
    elif isinstance(other, ast.Constant) and type(other.value) is int and other.value <= LARGEST:
        yield ("wrong slot" if inside else "off by one"), ast.Constant(other.value + 1)
    elif isinstance(other, ast.Call) and ast.unparse(other.func).endswith("where"):
        condition, *values = other.args
        yield "swapped operands", ast.Call(other.func, [condition, *values[::-1]], other.keywords)


def faults_of(path: Path) -> Iterator[Fault]:
    """Every fault that a file can have."""
    raw, starts = path.read_bytes(), [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, parents: tuple[ast.AST, ...]) -> Iterator[Fault]:
        for kind, changed in changes(node, any(isinstance(p, ast.Subscript) for p in parents[-3:])):
            assert isinstance(node, ast.expr)
            text = ast.unparse(ast.fix_missing_locations(changed))
            if not isinstance(changed, ast.Constant | ast.Name | ast.Call):
                text = f"({text})"
            ends = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
            start, end = (starts[line - 1] + column for line, column in ends)
            yield Fault(str(path.relative_to(ROOT)), node.lineno, kind, start, end, text)
        if isinstance(node, SKIPPED):
            return
        for field, value in ast.iter_fields(node):
            if field not in SKIPPED_FIELDS:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from walk(child, (*parents, node))

    yield from walk(ast.parse(raw), ())


def drawn(seed: int, count: int) -> list[Fault]:
    """Faults from all rooms in turn, kinds equally likely in each."""
    rng = random.Random(seed)
    stock: dict[str, dict[str, list[Fault]]] = {room: {} for room in ROOMS}
    for room, kinds in stock.items():
        for path in sorted((ROOT / "pcnn" / room).rglob("*.py")):
            for fault in faults_of(path):
                kinds.setdefault(fault.kind, []).append(fault)
    found: list[Fault] = []
    while len(found) < count:
        kinds = stock[ROOMS[len(found) % len(ROOMS)]]
        fault = rng.choice(kinds[rng.choice(sorted(kinds))])
        if fault not in found:
            found.append(fault)
    return found


def stages(fault: Fault) -> list[list[str]]:
    """Test files in the order in which a fault meets them: nearest, room, all."""
    module = Path(fault.path).with_suffix("")
    dotted, room = ".".join(module.parts), module.parts[1]
    named = re.compile(rf"test_{re.escape(module.name.strip('_'))}(_|\.)")
    near = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if named.search(path.name) or dotted in path.read_text()
    ]
    rooms = [f"tests/{name}" for name in (room, "ops", "nn") if (ROOT / "tests" / name).is_dir()]
    return [near, ["tests/test_digests.py", INTERPRETED, *rooms], ["tests"]]


class Copy:
    """A copy of the tree with one fault at a time."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        ignored = shutil.ignore_patterns(*NOT_COPIED, "__pycache__")
        shutil.copytree(ROOT, folder, symlinks=True, ignore=ignored)

    def run(self, tests: list[str], seconds: int) -> tuple[int, str]:
        """Exit code and output of pytest; -1 after a timeout."""
        path = [str(self.root), *filter(None, [os.environ.get("PYTHONPATH")])]
        here = {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        here["PYTHONDONTWRITEBYTECODE"] = "1"  # a fault's file has the size and time of another's
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
        command += ["--tb=line", "--ignore=tests/test_wheel.py", "--timeout=300", *tests]
        if tests[0].startswith(INTERPRETED):
            here["TRITON_INTERPRET"] = "1"
        else:
            command.append(f"--ignore={INTERPRETED}")
        try:
            done = subprocess.run(
                command,
                cwd=self.root,
                env={**os.environ, **here},
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, ""
        return done.returncode, done.stdout + done.stderr

    def judged(self, fault: Fault, last: int) -> tuple[str, str]:
        """Verdict on a fault, and the test that caught it."""
        path = self.root / fault.path
        source = path.read_bytes()
        for seconds, tests in zip(SECONDS[:last], stages(fault), strict=False):
            apart = [one for one in tests if one.startswith(INTERPRETED)]
            for chosen in (apart, [one for one in tests if one not in apart]):
                if not chosen:
                    continue
                path.write_bytes(fault.applied(source))
                try:
                    code, said = self.run(chosen, seconds)
                finally:
                    path.write_bytes(source)
                if code == -1:
                    return "caught", "by a timeout"
                if code in (0, 5):  # 5: no tests
                    continue
                failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
                if failed and self.run([failed[0]], seconds)[0] != 0:
                    return "invalid", f"{failed[0]} does not pass without the fault"
                return "caught", failed[0] if failed else said.strip()[-200:]
        return "survived", ""


def main() -> None:
    """Draw faults, judge them side by side, and print every verdict with its change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stages", type=int, choices=(1, 2, 3), default=3)
    options = parser.parse_args()
    faults, counts = drawn(options.seed, options.faults), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.workers) as pool:
        copies: Queue[Copy] = Queue()
        for number in range(min(options.workers, len(faults))):
            copies.put(Copy(Path(folder) / f"tree{number}"))

        def judge(fault: Fault) -> tuple[str, str]:
            tree = copies.get()
            try:
                return tree.judged(fault, options.stages)
            finally:
                copies.put(tree)

        for fault, (verdict, test) in zip(faults, pool.map(judge, faults), strict=True):
            counts[verdict] += 1
            print(f"{verdict} {test}: {fault}", flush=True)
    print(f"seed {options.seed}: {dict(counts)}")
    sys.exit(counts["caught"] != len(faults))


if __name__ == "__main__":
    main()
