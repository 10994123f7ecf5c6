"""A strict reader of PCD files: ascii, binary and binary_compressed.

Source: the file format of the Point Cloud Library, version 0.7, and Marc Lehmann's LZF for its
compressed form.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pcnn.datasets.file_error import CloudFileError
from pcnn.datasets.point_table import COLORS, missing_axes

_TYPES = {
    (kind, size): f"{letter}{size}"
    for kind, letter, sizes in (
        ("F", "f", (4, 8)),
        ("I", "i", (1, 2, 4, 8)),
        ("U", "u", (1, 2, 4, 8)),
    )
    for size in sizes
}
_HEADER_LIMIT = 1 << 14


def read_pcd(path: Path) -> np.ndarray:
    """Read the points of a PCD file.

    Returns:
        [P] structured array with the file's field names and types; a field of several numbers has
        them in its last axis.

    Raises:
        CloudFileError: a malformed header, or data that is not what the header says.
    """
    content = path.read_bytes()
    header, size = _header(path, content[:_HEADER_LIMIT])
    dtype, count = _layout(path, header)
    body, kind = content[size:], " ".join(header["DATA"])
    if kind == "ascii":
        return _ascii(path, body, dtype, count)
    if kind == "binary_compressed":
        body = _decompressed(path, body, dtype, count)
    elif kind != "binary":
        raise CloudFileError(
            path, f"DATA must be ascii, binary or binary_compressed, found {kind!r}"
        )
    if len(body) < count * dtype.itemsize:
        raise CloudFileError(
            path,
            f"truncated: {count} points need {count * dtype.itemsize} bytes, the file has "
            f"{len(body)}",
        )
    return np.frombuffer(body, dtype, count).copy()


def pcd_names(points: np.ndarray) -> tuple[str, ...]:
    """Names of the fields, and of the colours where a field ``rgb`` or ``rgba`` packs them."""
    names = points.dtype.names or ()
    lower = {name.lower() for name in names}
    return names if _packed(points) is None or lower & set(COLORS) else (*names, *COLORS)


def pcd_column(points: np.ndarray, name: str) -> np.ndarray:
    """Values [P] of a name of `pcd_names`; packed colours are uint8.

    Four bytes hold alpha, red, green and blue, the highest first; a field of type F has the same
    bits as one of type U.
    """
    packed = _packed(points)
    if packed is None or name in (points.dtype.names or ()):
        return points[name]
    words = np.ascontiguousarray(points[packed]).view("<u4")
    shift = 16 - 8 * COLORS.index(name)
    return (words >> shift & 0xFF).astype(np.uint8)


def _packed(points: np.ndarray) -> str | None:
    for name in points.dtype.names or ():
        if name.lower() in ("rgb", "rgba") and points.dtype[name] in ("<f4", "<u4", "<i4"):
            return name
    return None


def _header(path: Path, start: bytes) -> tuple[dict[str, list[str]], int]:
    """Words of every header line by its first, and the bytes of the header."""
    words: dict[str, list[str]] = {}
    at = 0
    while "DATA" not in words:
        end = start.find(b"\n", at)
        if end < 0:
            raise CloudFileError(
                path, f"not a PCD file: no DATA line in its first {len(start)} bytes"
            )
        try:
            line = start[at:end].decode("ascii").split()
        except UnicodeDecodeError as error:
            raise CloudFileError(path, "not a PCD file: its header is not ascii text") from error
        at = end + 1
        if line and not line[0].startswith("#"):
            words[line[0]] = line[1:]
    return words, at


def _layout(path: Path, header: dict[str, list[str]]) -> tuple[np.dtype, int]:
    """Type of a point and number of points."""
    missing = [name for name in ("FIELDS", "SIZE", "TYPE", "POINTS") if name not in header]
    if missing:
        raise CloudFileError(path, f"the PCD header lacks {', '.join(missing)}")
    names = header["FIELDS"]
    counts = header.get("COUNT", ["1"] * len(names))
    if not len(names) == len(header["SIZE"]) == len(header["TYPE"]) == len(counts):
        raise CloudFileError(path, "FIELDS, SIZE, TYPE and COUNT have different lengths")
    fields: list[tuple[str, str, int]] = []
    try:
        for place, name in enumerate(names):
            kind = "<" + _TYPES[header["TYPE"][place], int(header["SIZE"][place])]
            # PCL names padding _, several times in one file
            unique = f"_{place}" if name == "_" else name
            fields.append((unique, kind, int(counts[place])))
        count = int(header["POINTS"][0])
        shaped = [(n, k) if c == 1 else (n, k, (c,)) for n, k, c in fields]
        dtype = np.dtype(shaped)  # type: ignore[arg-type]
    except (KeyError, ValueError, IndexError) as error:
        raise CloudFileError(path, f"unusable PCD header ({error!r})") from error
    if missing_axes(names):
        raise CloudFileError(path, f"a cloud needs the fields x, y and z, found {' '.join(names)}")
    return dtype, count


def _ascii(path: Path, body: bytes, dtype: np.dtype, count: int) -> np.ndarray:
    widths = [dtype[name].shape[0] if dtype[name].shape else 1 for name in dtype.names or ()]
    rows = [line.split() for line in body.decode("ascii", "replace").splitlines() if line.strip()]
    if len(rows) != count or any(len(row) != sum(widths) for row in rows):
        raise CloudFileError(
            path, f"the header says {count} points of {sum(widths)} numbers, the data differs"
        )
    points = np.zeros(count, dtype)
    table = np.array(rows, dtype=object).reshape(count, sum(widths))
    try:
        at = 0
        for name, width in zip(dtype.names or (), widths, strict=True):
            column = table[:, at : at + width].astype(dtype[name].base)
            points[name] = column if dtype[name].shape else column[:, 0]
            at += width
    except (ValueError, OverflowError) as error:
        raise CloudFileError(path, f"field {name}: {error}") from error
    return points


def _decompressed(path: Path, body: bytes, dtype: np.dtype, count: int) -> bytes:
    """The fields one after the other, compressed by LZF, as rows of points."""
    if len(body) < 8:
        raise CloudFileError(path, "truncated: no sizes before the compressed data")
    packed, full = (int(size) for size in np.frombuffer(body, "<u4", 2))
    if full != count * dtype.itemsize or len(body) < 8 + packed:
        raise CloudFileError(path, f"compressed data of {packed} bytes for {full} does not fit")
    try:
        planes = _lzf(body[8 : 8 + packed])
    except IndexError as error:
        raise CloudFileError(path, "the compressed data is torn") from error
    if len(planes) != full:
        raise CloudFileError(path, f"the compressed data holds {len(planes)} bytes, not {full}")
    points = np.zeros(count, dtype)
    at = 0
    for name in dtype.names or ():
        field = dtype[name]
        end = at + count * field.itemsize
        points[name] = np.frombuffer(planes[at:end], field.base).reshape(count, *field.shape)
        at = end
    return points.tobytes()


def _lzf(packed: bytes) -> bytes:
    out = bytearray()
    at = 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:  # so many bytes as they are
            if at + control + 1 > len(packed):
                raise IndexError
            out += packed[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += packed[at]
            at += 1
        back = len(out) - ((control & 31) << 8) - packed[at] - 1
        at += 1
        if back < 0:
            raise IndexError
        for place in range(back, back + length + 2):  # may run into what it writes itself
            out.append(out[place])
    return bytes(out)
