"""Ways in which files go wrong, each a pure function of random numbers and bytes."""

import io
import re
import struct
import zipfile
from collections.abc import Callable
from random import Random

Mutator = Callable[[Random, bytes, bytes], bytes]

_NUMBER = re.compile(rb"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_WORDS = (b"0", b"-1", b"1", b"1.7", b"nan", b"inf", b"-inf", b"1e308", b"-1e308", b"1e400")
_WORDS += (b"2147483648", b"4294967295", b"9223372036854775808", b"1000000000000", b"9" * 5000)
_WORDS += (b"", b"#", b"*a", b"&a", b"!!python/name:os.system", b"${oc.env:HOME}", b"\xff", b"\0")
_LINES = (b"", b"#", b"# 1 2 3", b"1 2 3", b"9" * 100_000, b"[" * 5000, b"{" * 5000, b"a: &x [*x]")
_WHOLE = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_WHOLE += (1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def truncated(random: Random, data: bytes, other: bytes) -> bytes:
    """The first part."""
    return data[: random.randrange(len(data) + 1)]


def extended(random: Random, data: bytes, other: bytes) -> bytes:
    """More behind the end."""
    return data + random.randbytes(random.choice((1, 3, 4, 16, 1000)))


def flipped(random: Random, data: bytes, other: bytes) -> bytes:
    """Some bits of one stretch, near the start as often as anywhere."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if out:
            out[_place(random, len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def overwritten(random: Random, data: bytes, other: bytes) -> bytes:
    """A number in binary at any place."""
    size, order = random.choice((1, 2, 4, 8)), random.choice("<>")
    at = _place(random, len(data))
    value = random.choice(_WHOLE) % (1 << 8 * size)
    packed = struct.pack(order + {1: "B", 2: "H", 4: "I", 8: "Q"}[size], value)
    return data[:at] + packed + data[at + size :]


def inserted(random: Random, data: bytes, other: bytes) -> bytes:
    """Bytes between others."""
    at = _place(random, len(data))
    return data[:at] + random.randbytes(random.choice((1, 2, 4, 8, 64))) + data[at:]


def deleted(random: Random, data: bytes, other: bytes) -> bytes:
    """A stretch less."""
    at = _place(random, len(data))
    return data[:at] + data[at + random.choice((1, 2, 4, 8, 64, 1000)) :]


def swapped(random: Random, data: bytes, other: bytes) -> bytes:
    """Two sections in the other order."""
    a, b, c = sorted(random.randrange(len(data) + 1) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def spliced(random: Random, data: bytes, other: bytes) -> bytes:
    """The start of one file and the end of another."""
    return data[: _place(random, len(data))] + other[_place(random, len(other)) :]


def renumbered(random: Random, data: bytes, other: bytes) -> bytes:
    """Another number in the text, in the header as a rule."""
    found = list(_NUMBER.finditer(data[:4096] if random.random() < 0.8 else data))
    if not found:
        return overwritten(random, data, other)
    chosen = random.choice(found)
    return data[: chosen.start()] + random.choice(_WORDS) + data[chosen.end() :]


def reworded(random: Random, data: bytes, other: bytes) -> bytes:
    """Another word in the text."""
    found = list(re.finditer(rb"[^\s,:\[\]{}]+", data[:4096]))
    if not found:
        return inserted(random, data, other)
    chosen, donor = random.choice(found), random.choice(found)
    word = random.choice((*_WORDS, donor.group(), donor.group()))
    return data[: chosen.start()] + word + data[chosen.end() :]


def relined(random: Random, data: bytes, other: bytes) -> bytes:
    """A line twice, away, in another place, or a strange one."""
    lines = data.split(b"\n")
    at, to = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(4)
    if kind == 0:
        lines.insert(at, lines[at])
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines.insert(at, random.choice(_LINES))
    return b"\n".join(lines)


def rezipped(random: Random, data: bytes, other: bytes) -> bytes:
    """An archive with one member changed, packed in another way, renamed, twice, or away.

    Its checksums hold, so that what is inside is looked at.
    """
    members = _members(data)
    if not members:
        return flipped(random, data, other)
    at = random.randrange(len(members))
    name, content = members[at]
    kind = random.randrange(6)
    if kind <= 1:
        change = random.choice((flipped, overwritten, truncated, renumbered, extended, spliced))
        members[at] = name, change(random, content, members[-1][1])
    elif kind == 2:
        members[at] = random.choice(("../x", "/x.npy", "a\\b.npy", "", "x" * 5000)), content
    elif kind == 3:
        members.append((name, content[::-1]))
    elif kind == 4:
        del members[at]
    else:
        members[at] = name, content + bytes(random.choice((1 << 10, 1 << 22)))
    method = random.choice(
        (zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return file.getvalue()


MUTATORS: tuple[Mutator, ...] = (
    truncated,
    extended,
    flipped,
    flipped,
    overwritten,
    overwritten,
    inserted,
    deleted,
    swapped,
    spliced,
    renumbered,
    renumbered,
    reworded,
    relined,
    relined,
    rezipped,
    rezipped,
)


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """The file after one to three changes, mostly one."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        data = random.choice(MUTATORS)(random, data, other)
    return data


def _place(random: Random, size: int) -> int:
    """A place in a file, in its first 256 bytes as often as anywhere."""
    return random.randrange(min(size, 256) + 1 if random.random() < 0.5 else size + 1) % (size or 1)


def _members(data: bytes) -> list[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:  # no archive, or one that was broken before
        return []
