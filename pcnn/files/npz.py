"""Archives of arrays (``.npz``), whose members are checked before they are unpacked."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from pcnn.errors import FileError
from pcnn.files.limits import LIMIT, check_size
from pcnn.files.named import named
from pcnn.files.npy import read_array

#: Deflate packs 258 bytes into 2 bits at best.
_RATIO = 1032
_SLACK = 1 << 10
_STORED_OR_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1


def read_npz(
    path: Path, names: Sequence[str] | None = None, limit: float = LIMIT
) -> dict[str, np.ndarray]:
    """Arrays of an ``.npz`` file by name.

    Args:
        path: the file.
        names: which are read, of those that are there; None reads all.
        limit: largest size of all of them [GiB].

    Raises:
        MissingFileError: no such file.
        FileError: no whole archive, a member with an unsafe name, of Python objects, or that claims
            to unpack to more than its bytes can hold; or as `pcnn.files.npy.read_array`.
    """
    with named(path, ".npz file"), zipfile.ZipFile(path) as archive:
        members = _members(archive, path)
        wanted = [name for name in (members if names is None else names) if name in members]
        check_size(path, sum(members[n].file_size for n in wanted), limit, "what it unpacks to")
        found = {}
        for name in wanted:
            with archive.open(members[name]) as file:
                found[name] = read_array(
                    cast(BinaryIO, file),
                    members[name].file_size,
                    path,
                    limit,
                )
        return found


def names_in(path: Path) -> list[str]:
    """Names of the arrays of an ``.npz`` file.

    Raises:
        FileError: as `read_npz`.
    """
    with named(path, ".npz file"), zipfile.ZipFile(path) as archive:
        return list(_members(archive, path))


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    size = path.stat().st_size
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if not member.filename.endswith(".npy") or "/" in name or "\\" in name or "\0" in name:
            raise FileError(path, f"member {member.filename[:80]!r} is no array")
        if name in found:
            raise FileError(path, f"array {name[:80]!r} is there twice")
        if member.compress_type not in _STORED_OR_DEFLATED or member.flag_bits & _ENCRYPTED:
            raise FileError(path, f"array {name[:80]!r} must be stored or deflated, not encrypted")
        ratio = 1 if member.compress_type == zipfile.ZIP_STORED else _RATIO
        if member.compress_size > size or member.file_size > ratio * member.compress_size + _SLACK:
            raise FileError(
                path,
                f"array {name[:80]!r} claims {member.file_size} bytes out of "
                f"{member.compress_size}, more than they can hold",
            )
        found[name] = member
    return found
