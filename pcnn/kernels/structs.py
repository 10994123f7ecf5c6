"""Structs of the CUDA sources: a kernel's arguments are packed by the names of their fields."""

from __future__ import annotations

import functools
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from pcnn.kernels.compiler import code, kernel_of, number

#: Format of `struct` and the dtypes that a pointer to it may be given, of each scalar type.
SCALARS: dict[str, tuple[str, tuple[torch.dtype, ...]]] = {
    "bool": ("?", (torch.bool,)),
    "char": ("B", (torch.uint8, torch.int8, torch.bool)),
    "int": ("i", (torch.int32,)),
    "u32": ("I", (torch.int32, torch.uint32)),
    "i64": ("q", (torch.int64,)),
    "u64": ("Q", (torch.int64, torch.uint64)),
    "float": ("f", (torch.float32,)),
    "double": ("d", (torch.float64,)),
}
STRUCT = r"\bstruct\s+(?:__align__\((?P<align>\d+)\)\s*)?{name}\s*\{{"
DECLARATOR = re.compile(
    r"(?P<pointer>\**)\s*(?P<name>\w+)\s*(?P<sizes>(?:\[[^\]]*\]\s*)*)(?:=.*)?$"
)

#: Structs whose tensors are checked on a device, of each kind: callers do not change theirs. On
#: the host, where tests run, all are.
CHECKS = 256

#: A value becomes the items that `struct` packs for its field.
Convert = Callable[[Any, int], Sequence[Any]]


class _Member(NamedTuple):
    """Where a field lies, and what it takes."""

    name: str
    format: str
    size: int
    align: int
    pointed: tuple[torch.dtype, ...] | None  # of a pointer: dtypes of its tensor, none: any
    convert: Convert | None  # of arrays and structs


class Struct:
    """Layout of a C struct, and how values become its bytes.

    A pointer takes a tensor, ``None`` or an address; a struct takes a dict, its values in order or
    its bytes; an array a sequence, and what that leaves out is zero, as in C.
    """

    def __init__(self, name: str, members: Sequence[_Member], align: int) -> None:
        self.name, self.names = name, [member.name for member in members]
        self.align = max([align, *(member.align for member in members)])
        self._of = itemgetter(*self.names, self.names[0])  # one more: a tuple in any case
        places = list(enumerate(members))
        self._pointers = [(at, one.pointed) for at, one in places if one.pointed is not None]
        self._checks = CHECKS
        # from the end: an array moves what follows it
        self._parts = [(at, one.convert) for at, one in places[::-1] if one.convert]
        self.offsets: dict[str, int] = {}
        form, size = "=", 0
        for member in members:
            gap = -size % member.align
            self.offsets[member.name] = size + gap
            form += f"{gap}x{member.format}"
            size += gap + member.size
        self.size = size + -size % self.align
        #: items of all members in order, without checks: for what a call of a graph waits for
        self.in_order = struct.Struct(f"{form}{self.size - size}x").pack

    def pack(self, given: Any, device: int) -> bytes:
        """Bytes of the struct for a device (-1: the host)."""
        # few steps of Python: a plan packs some hundred structs
        if type(given) is bytes:
            return given
        ordered = type(given) is tuple or type(given) is list
        try:
            *values, _ = (*given, 0) if ordered else self._of(given)
            if len(given) == len(self.names):
                if device < 0 or self._checks:
                    self._check(values, device)
                for at, _ in self._pointers:
                    value = values[at]
                    if value is None:
                        values[at] = 0
                    elif type(value) is not int:
                        values[at] = value.data_ptr()
                for at, convert in self._parts:
                    values[at : at + 1] = convert(values[at], device)
                return self.in_order(*values)
        except KeyError:
            pass
        except (struct.error, TypeError, AttributeError) as error:
            raise ValueError(f"{self.name} {self.names}: {error}") from error
        if ordered:
            raise ValueError(f"{self.name} {self.names}: {len(given)} values")
        missing = [name for name in self.names if name not in given]
        unknown = sorted(given.keys() - set(self.names))
        raise ValueError(f"{self.name}: fields missing {missing}, unknown {unknown}")

    def _check(self, values: Sequence[Any], device: int) -> None:
        """Refuse tensors that the kernel cannot read; page-locked memory it can."""
        self._checks = max(0, self._checks - 1)
        for at, dtypes in self._pointers:
            value = values[at]
            if value is None or type(value) is int:
                continue
            here = value.get_device() == device or (
                value.device.type == "cpu" and value.is_pinned()
            )
            if not here or (dtypes and value.dtype not in dtypes):
                wanted = " or ".join(str(dtype) for dtype in dtypes) or "any"
                raise ValueError(
                    f"{self.name}.{self.names[at]}: want {wanted} on device {device}, "
                    f"got {value.dtype} on {value.device}"
                )


def packer(source: str, name: str) -> Callable[..., bytes]:
    """Packs the items of a struct of a source, in order and without checks."""
    return struct_of(source, name, ()).in_order


def address(tensor: torch.Tensor | None) -> int:
    """What a pointer takes."""
    return 0 if tensor is None else tensor.data_ptr()


class Module(ABC):
    """Kernels of one source under one set of macros, for one device."""

    def __init__(self, source: str, device: torch.device, defines: Mapping[str, int]) -> None:
        self.source, self.device, self.defines = source, device, defines
        self.index = -1 if device.index is None else device.index  # as `Tensor.get_device` says it
        self._structs: dict[str, Struct] = {}

    def launch(
        self, kernel: str, grid: int, /, *ordered: Any, shared_bytes: int = 0, **fields: Any
    ) -> None:
        """Run a kernel on torch's current stream of the device, without waiting for it.

        ``grid`` is a number of blocks, with dynamic shared memory of so many bytes each; ``fields``
        are values of the kernel's struct by name; or they are given in its order.
        """
        if grid:
            self.start(kernel, grid, self.pack(kernel, ordered or fields), shared_bytes)

    def pack(self, kernel: str, fields: Any) -> bytes:
        """Bytes of a kernel's struct; other kernels of the source may take the same."""
        return (self._structs.get(kernel) or self.struct(kernel)).pack(fields, self.index)

    def run(self, kernel: str, grid: int, arguments: bytes, shared_bytes: int = 0) -> None:
        """`launch` with the bytes of the struct."""
        if grid:
            self.start(kernel, grid, arguments, shared_bytes)

    @abstractmethod
    def start(self, kernel: str, grid: int, arguments: bytes, shared_bytes: int) -> None:
        """Run a kernel with the bytes of its struct."""

    def struct(self, kernel: str) -> Struct:
        """Struct of a kernel's arguments."""
        found = arguments_of(self.source, kernel, self.defines)
        return self._structs.setdefault(kernel, found)


def arguments_of(source: str, kernel: str, defines: Mapping[str, int]) -> Struct:
    """Struct of the arguments of a kernel, under these macros."""
    return struct_of(source, kernel_of(source, kernel)[0], tuple(defines.items()))


@functools.cache
def struct_of(source: str, name: str, defines: tuple[tuple[str, int], ...]) -> Struct:
    """Struct that a source or one of its includes defines."""
    text = code(source)
    found = re.search(STRUCT.format(name=name), text)
    if found is None:
        raise ValueError(f"{source} defines no struct {name}")
    declared = _declarations(_body(text, found.end()))
    members = [_member(source, *one, defines) for one in declared]
    return Struct(name, members, int(found["align"] or 1))


def _body(text: str, start: int) -> str:
    """Text of the members: up to the closing brace, without functions and initial values."""
    depth, end = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    body, rest = "", text[start : end - 1]
    while body != rest:
        body, rest = rest, re.sub(r"\{[^{}]*\}", ";", rest)
    return body


def _declarations(body: str) -> list[tuple[str, re.Match[str]]]:
    """Type and declarator of every member."""
    found = []
    for line in body.split(";"):
        words = re.match(r"\s*(?:const\s+)?(?:unsigned\s+)?(\w+)\b(.*)$", line, re.DOTALL)
        if words and "(" not in line and words[1] not in ("static", "using"):
            for part in words[2].split(","):
                declarator = DECLARATOR.match(part.strip())
                if declarator:
                    found.append((words[1], declarator))
    return found


def _member(
    source: str, kind: str, declarator: re.Match[str], defines: tuple[tuple[str, int], ...]
) -> _Member:
    count = 1
    for length in re.findall(r"\[([^\]]*)\]", declarator["sizes"]):
        count *= number(source, length, dict(defines)) or 0
    if not count:
        raise ValueError(f"{source}: {declarator[0]}: its length is no number")
    name, is_array = declarator["name"], bool(declarator["sizes"])
    if declarator["pointer"]:
        return _Member(name, "Q", 8, 8, SCALARS.get(kind, ("", ()))[1], None)
    if kind in SCALARS:
        form = SCALARS[kind][0]
        size = struct.calcsize(form)
        spread = functools.partial(_spread, count) if is_array else None
        return _Member(name, f"{count}{form}", count * size, size, None, spread)
    part = struct_of(source, kind, defines)
    join = functools.partial(_join, part, count if is_array else 0)
    return _Member(name, f"{count * part.size}s", count * part.size, part.align, None, join)


def _spread(count: int, values: Sequence[Any], device: int) -> Sequence[Any]:
    """Items of an array of numbers."""
    return values if len(values) == count else [*values, *[0] * (count - len(values))]


def _join(part: Struct, count: int, values: Any, device: int) -> tuple[bytes]:
    """Bytes of a struct, or of an array of them; `struct` fills up with zeros."""
    if not count:
        return (part.pack(values, device),)
    if len(values) > count:
        raise ValueError(f"{len(values)} values for an array of {count} {part.name}")
    return (b"".join([part.pack(value, device) for value in values]),)
