"""The CUDA sources that travel with the package, read as text.

A source includes nothing but our own files and declares its kernels with ``KERNEL(name, Arguments,
threads)`` of ``common.cuh``; its compile-time choices are macros. The block size, which
a launch has to know, is read from the text, so it is the same for every compiler of these files.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path

#: Folder of the sources: in a checkout a link to the top-level folder, in a wheel a real one.
FOLDER = Path(__file__).resolve().parents[1] / "csrc"

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(\S+)", re.MULTILINE)
KERNEL = re.compile(r"^[ \t]*KERNEL\(\s*(\w+)\s*,\s*(\w+)\s*,\s*([^()]+?)\s*\)", re.MULTILINE)
#: A constant of the text: ``#define X 256`` or ``constexpr int X = 256;``.
CONSTANT = re.compile(
    r"^[ \t]*(?:#[ \t]*define[ \t]+(\w+)[ \t]+"
    r"|(?:static[ \t]+)?constexpr[ \t]+\w+[ \t]+(\w+)\s*=\s*)"
    r"([\w \t*+]+?)[ \t]*;?[ \t]*$",
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
    """Text of a source and of every file it includes, directly or not, by name."""
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


@functools.cache
def code(source: str) -> str:
    """Text of a source and its includes, without comments."""
    return "\n".join(COMMENT.sub("", text) for text in texts(source).values())


@functools.cache
def kernels(source: str) -> dict[str, tuple[str, str]]:
    """Struct and threads of a block, of the kernels that a source declares.

    Threads are a number, a constant, or sums and products of them.
    """
    return {name: (struct, threads) for name, struct, threads in KERNEL.findall(code(source))}


def kernel_of(source: str, kernel: str) -> tuple[str, str]:
    """A kernel's declaration; LookupError where there is none."""
    declared = kernels(source)
    if kernel not in declared:
        raise LookupError(f"{source} has no kernel {kernel!r}; it has {', '.join(declared)}")
    return declared[kernel]


def threads_of(source: str, kernel: str, defines: Mapping[str, int]) -> int:
    """Threads of a block."""
    expression = kernel_of(source, kernel)[1]
    threads = number(source, expression, defines)
    if threads is None or not 1 <= threads <= 1024:
        raise ValueError(
            f"{source}: the block size of {kernel}, {expression!r}, is {threads}, not 1 to 1024"
        )
    return threads


def number(source: str, expression: str, defines: Mapping[str, int]) -> int | None:
    """What sums and products of numbers and constants come to; ``None`` where one is unknown.

    A constant is given in `defines`, or by ``#define`` or ``constexpr`` in the source.
    """
    constants = {
        macro or constant: text for macro, constant, text in CONSTANT.findall(code(source))
    }
    constants |= {name: str(value) for name, value in defines.items()}
    return _value(expression, constants)


def _value(expression: str, constants: Mapping[str, str]) -> int | None:
    for sign in "+*":
        parts = expression.split(sign)
        if len(parts) > 1:
            values = [value for part in parts if (value := _value(part, constants)) is not None]
            whole = sum(values) if sign == "+" else math.prod(values)
            return whole if len(values) == len(parts) else None
    word = expression.strip()
    if word.isdecimal():
        return int(word)
    # a constant may be said in terms of others, never of itself
    others = {name: text for name, text in constants.items() if name != word}
    return _value(constants[word], others) if word in constants else None
