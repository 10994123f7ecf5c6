"""Weights from a server: resumed where a transfer broke off, and compared with the catalogue."""

from __future__ import annotations

import fcntl
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

from pcnn.errors import FileError, UserError
from pcnn.experiment.catalogue import Weights, check_sum, local_file
from pcnn.files.whole_file import told_storage

_CHUNK = 1 << 18
_SECONDS = 30.0  # without a byte
_NO_SUCH_RANGE = 416
#: Times that a transfer is resumed before it is given up.
TRIES = 3


class DownloadError(UserError):
    """A file could not be fetched; what has come is kept for the next time."""


def download(weights: Weights, told: Callable[[int], None] | None = None) -> Path:
    """Fetch the file of an entry, unless it is here.

    A transfer that breaks off leaves its part in the cache folder, and the next one asks the server
    for the rest alone. Two processes fetch one after the other.

    Args:
        weights: the entry.
        told: called with the number of bytes that are here, again and again.

    Returns:
        The file.

    Raises:
        DownloadError: no URL, no answer, or a transfer that broke off.
        StorageError: the disk is full.
        FileError: the server has another file than the catalogue says; it is removed.
    """
    found = local_file(weights)
    if found is not None:
        return found
    if weights.url is None or not weights.url.startswith(("https://", "http://")):
        raise DownloadError(f"{weights.name} has no URL of a server, found {weights.url}")
    path = weights.cached
    part = path.with_name(f".{path.name}.part")
    with told_storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(part) as file:
            if path.is_file():  # another process fetched it meanwhile
                check_sum(path, weights)
                return path
            _fetch(weights, file, told or (lambda _: None))
            try:
                check_sum(part, weights)
            except FileError as error:
                part.unlink()
                raise FileError(
                    weights.url,
                    f"the file is not the one of the catalogue ({weights.name} {weights.version}): "
                    f"{str(error).removeprefix(f'{part}: ').partition(';')[0]}; nothing is kept",
                ) from None
            part.replace(path)
    return path


@contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    """The file of what has come, held by this process."""
    while True:
        with part.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # the process that held it may have moved it away meanwhile
            if part.exists() and part.stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield file
                return


def _fetch(weights: Weights, file: BinaryIO, told: Callable[[int], None]) -> None:
    """Append what is missing."""
    for left in reversed(range(TRIES)):
        try:
            _append(weights, file, told)
        except urllib.error.HTTPError as error:
            if error.code == _NO_SUCH_RANGE and _emptied(file) == 0:
                continue  # what was kept is of a longer file
            raise DownloadError(
                f"{weights.url}: the server says {error.code} {error.reason}"
            ) from error
        except (HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
            if left == 0:
                raise _broken(weights, file, str(getattr(error, "reason", error))) from error
        if file.tell() >= weights.bytes:
            return
    raise _broken(weights, file, "the transfer broke off")


def _append(weights: Weights, file: BinaryIO, told: Callable[[int], None]) -> None:
    have = file.seek(0, 2)
    if have > weights.bytes:
        have = _emptied(file)
    if have == weights.bytes:
        return
    assert weights.url is not None  # the caller has looked
    request = urllib.request.Request(weights.url)
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        if have and not _continues(answer, have):
            have = _emptied(file)
        while have < weights.bytes:
            chunk = answer.read(min(_CHUNK, weights.bytes - have))
            if not chunk:
                break
            file.write(chunk)
            have += len(chunk)
            told(have)
        if have == weights.bytes and answer.read(1):
            _emptied(file)
            raise FileError(
                weights.url, f"the file is larger than the {weights.bytes} bytes of the catalogue"
            )
    file.flush()


def _continues(answer: Any, have: int) -> bool:
    """Whether an answer begins where the file ends; a server without ranges sends all of it."""
    start = str(answer.headers.get("Content-Range", "")).removeprefix("bytes ")
    return answer.status == 206 and start.startswith(f"{have}-")


def _emptied(file: BinaryIO) -> int:
    file.truncate(0)
    return file.seek(0)


def _broken(weights: Weights, file: BinaryIO, why: str) -> DownloadError:
    return DownloadError(
        f"{weights.url}: {why} after {file.tell()} of {weights.bytes} bytes, which are kept.\n"
        f"possible: pcnn download {weights.name}, which goes on from there"
    )
