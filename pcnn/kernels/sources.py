"""The CUDA sources that travel with the package, read as text.

A source includes nothing but our own files and declares its kernels with ``KERNEL(name, Arguments,
threads)`` of ``common.cuh``; its compile-time choices are macros. The block size, which
a launch has to know, is read from the text, so it is the same for every compiler of these files.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Folder of the sources: in a checkout a link to the top-level folder, in a wheel a real one.
FOLDER = Path(__file__).resolve().parents[1] / "csrc"

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(\S+)", re.MULTILINE)
KERNEL = re.compile(r"^[ \t]*KERNEL\(\s*(\w+)\s*,\s*(\w+)\s*,\s*([^()]+?)\s*\)", re.MULTILINE)
VARIANTS = re.compile(r"^//\s*variants:\s*(.+)$", re.MULTILINE)
#: A constant of the text: ``#define X 256`` or ``constexpr int X = 256;``.
CONSTANT = re.compile(
    r"^[ \t]*(?:#[ \t]*define[ \t]+(\w+)[ \t]+"
    r"|(?:static[ \t]+)?constexpr[ \t]+\w+[ \t]+(\w+)\s*=\s*)"
    r"([\w \t*]+?)[ \t]*;?[ \t]*$",
    re.MULTILINE,
)


def locate(source: str) -> Path:
    """Path of a source: a name in the package's folder, or a path of its own."""
    path = FOLDER / source
    if not path.is_file():
        there = ", ".join(sorted(found.name for found in FOLDER.glob("*.cu"))) or "none"
        raise FileNotFoundError(f"no CUDA source {path}; there are {there}")
    return path


@functools.cache
def texts(source: str) -> Mapping[str, str]:
    """Text of a source and of every file it includes, directly or not, by name.

    A file is read once in a process.
    """
    found: dict[str, str] = {}
    waiting = [locate(source)]
    while waiting:
        path = waiting.pop()
        found[path.name] = path.read_text(encoding="utf-8")
        for target in INCLUDE.findall(COMMENT.sub("", found[path.name])):
            name = target.strip('"')
            if f'"{name}"' != target:
                raise ValueError(
                    f"{path} includes {target}: kernels include own files only, in quotes "
                    "(the run-time compiler has no headers of CUDA or of C++)"
                )
            if name not in found:
                waiting.append(_included(path, name))
    return found


def _included(path: Path, name: str) -> Path:
    for folder in (path.parent, FOLDER):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{path} includes {name}, which is in neither {path.parent} nor csrc")


def kernels(source: str) -> dict[str, str]:
    """Kernels that a source declares, with the expression of their block size."""
    return {
        name: threads
        for text in texts(source).values()
        for name, _, threads in KERNEL.findall(COMMENT.sub("", text))
    }


def threads_of(source: str, kernel: str, defines: Mapping[str, int]) -> int:
    """Threads of a block, the third argument of the kernel's declaration.

    It is a number, a constant (given in `defines`, or by ``#define`` or ``constexpr`` in the
    source), or a product of those.
    """
    declared = kernels(source)
    if kernel not in declared:
        raise LookupError(f"{source} has no kernel {kernel!r}; it has {', '.join(declared)}")
    constants = {
        macro or constant: value
        for text in texts(source).values()
        for macro, constant, value in CONSTANT.findall(COMMENT.sub("", text))
    }
    constants |= {name: str(value) for name, value in defines.items()}
    threads = _value(declared[kernel], constants)
    if threads is None or not 1 <= threads <= 1024:
        raise ValueError(
            f"{source}: the block size of {kernel}, {declared[kernel]!r}, is {threads}; want a "
            "number from 1 to 1024, a #define or constexpr of one, or a product of those"
        )
    return threads


def _value(expression: str, constants: Mapping[str, str]) -> int | None:
    """Number that a product of numbers and constants stands for; ``None`` where it has none."""
    factors: list[int] = []
    for part in expression.split("*"):
        word = part.strip()
        if word.isdecimal():
            factors.append(int(word))
            continue
        # a constant may be said in terms of others, never of itself
        others = {name: text for name, text in constants.items() if name != word}
        value = _value(constants[word], others) if word in constants else None
        if value is None:
            return None
        factors.append(value)
    return math.prod(factors)


def variants_of(source: str) -> Iterator[dict[str, int]]:
    """Sets of macros that a source asks to be compiled with, by comment lines.

    ``// variants: BITS=32 | BITS=64`` names two; several such lines are combined with each other.
    A source without any has one variant, no macros at all.
    """
    lines = [line.split("|") for line in VARIANTS.findall(texts(source)[locate(source).name])]
    for chosen in itertools.product(*lines):
        words = [word for part in chosen for word in part.split()]
        if not all(re.fullmatch(r"\w+=-?\d+", word) for word in words):
            raise ValueError(f"{source}: variants {words}: must be NAME=number NAME=number | ...")
        yield {name: int(value) for name, value in (word.split("=") for word in words)}
