"""Ways in which files go wrong, each a pure function of random numbers and bytes."""

import io
import re
import struct
import zipfile
from collections.abc import Callable
from random import Random

Mutator = Callable[[Random, bytes, bytes], bytes]

_WORD = re.compile(rb"[^\s,:\[\]{}]+")
_WORDS = (b"0", b"-1", b"1", b"1.7", b"nan", b"inf", b"-inf", b"1e308", b"-1e308", b"1e400")
_WORDS += (b"2147483648", b"4294967295", b"9223372036854775808", b"1000000000000", b"9" * 5000)
_WORDS += (b"", b"#", b"*a", b"&a", b"!!python/name:os.system", b"${oc.env:HOME}", b"\xff", b"\0")
_WORDS += (b"\n1 2 3", b"9" * 100_000, b"[" * 5000, b"{" * 5000, b"\na: &x [*x]")
_WHOLE = (0, 1, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1)


def pieced(random: Random, data: bytes, other: bytes) -> bytes:
    """A stretch less or more, in another order, or the end of another file."""
    a, b, c = sorted(random.choice((_place, _any))(random, len(data)) for _ in range(3))
    return random.choice(
        (
            data[:c],
            data + random.randbytes(random.choice((1, 4, 1000))),
            data[:a] + random.randbytes(random.choice((1, 8, 64))) + data[a:],
            data[:a] + data[b:],
            data[:a] + data[b:c] + data[a:b] + data[c:],
            data[:a] + other[_place(random, len(other)) :],
        )
    )


def overwritten(random: Random, data: bytes, other: bytes) -> bytes:
    """Some bits, or a number in binary at any place."""
    if random.random() < 0.5:
        out = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 8)) if out else 0):
            out[_place(random, len(out))] ^= 1 << random.randrange(8)
        return bytes(out)
    kind, order = random.choice("BHIQ"), random.choice("<>")
    at, size = _place(random, len(data)), struct.calcsize(order + kind)
    packed = struct.pack(order + kind, random.choice(_WHOLE) % (1 << 8 * size))
    return data[:at] + packed + data[at + size :]


def reworded(random: Random, data: bytes, other: bytes) -> bytes:
    """Another word or number in the text, in the header as a rule."""
    found = list(_WORD.finditer(data[:4096] if random.random() < 0.8 else data))
    if not found:
        return overwritten(random, data, other)
    chosen = random.choice(found)
    word = random.choice((*_WORDS, *[random.choice(found).group()] * 8))
    return data[: chosen.start()] + word + data[chosen.end() :]


def rezipped(random: Random, data: bytes, other: bytes) -> bytes:
    """An archive with one member changed, longer, renamed, twice, or away; its checksums hold."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:  # no archive, or one that was broken before
        members = []
    if not members:
        return overwritten(random, data, other)
    name, content = members.pop(random.randrange(len(members)))
    changed = random.choice((pieced, overwritten, reworded))(random, content, content)
    strange = random.choice(("../x", "/x.npy", "a\\b.npy", "", "x" * 5000))
    members += random.choice(
        (
            *([(name, changed)], [(name, changed)], [(strange, content)], []),
            [(name, content), (name, content[::-1])],
            [(name, content + bytes(random.choice((1 << 10, 1 << 22))))],
        )
    )
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """The file after one to three changes, mostly one."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        change: Mutator = random.choice((pieced, overwritten, reworded, rezipped))
        data = change(random, data, other)
    return data


def _any(random: Random, size: int) -> int:
    return random.randrange(size + 1)


def _place(random: Random, size: int) -> int:
    """A place in a file, in its first 256 bytes as often as anywhere."""
    return random.randrange(min(size, 256) + 1 if random.random() < 0.5 else size + 1) % (size or 1)
