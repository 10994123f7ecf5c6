"""Messages between two processes: a JSON object and an array's bytes, never a pickle."""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

_SIZES = struct.Struct("<QQ")

#: Bytes of a JSON object; a longer one is no message.
_LONGEST = 1 << 24


class SilenceError(TimeoutError):
    """The other process takes longer than it may."""


def send(
    fd: int,
    fields: Mapping[str, Any],
    payload: bytes | memoryview = b"",
    deadline: float | None = None,
) -> None:
    """Write a message.

    Args:
        fd: the writing end of a pipe; with a deadline it must not block.
        fields: what JSON can hold.
        payload: the bytes of an array.
        deadline: of `time.monotonic`; None waits as long as it takes.

    Raises:
        SilenceError: the deadline passed.
        BrokenPipeError: the reader is gone.
    """
    text = json.dumps(fields).encode()
    for part in (_SIZES.pack(len(text), len(payload)) + text, payload):
        rest = memoryview(part)
        while rest:
            if deadline is not None:
                _wait(fd, deadline, writing=True)
            rest = rest[os.write(fd, rest) :]


def receive(fd: int, deadline: float | None = None) -> tuple[dict[str, Any], bytearray]:
    """Read a message.

    Args:
        fd: the reading end of a pipe.
        deadline: of `time.monotonic`; None waits as long as it takes.

    Returns:
        The JSON object, and the bytes of an array.

    Raises:
        SilenceError: the deadline passed.
        EOFError: the writer is gone.
    """
    text, size = _SIZES.unpack(_exactly(fd, _SIZES.size, deadline))
    if text > _LONGEST:
        raise EOFError(f"{text} bytes are no message")
    fields = json.loads(bytes(_exactly(fd, text, deadline)))
    return fields, _exactly(fd, size, deadline)


def _exactly(fd: int, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        if deadline is not None:
            _wait(fd, deadline, writing=False)
        got = os.readv(fd, [rest])
        if not got:
            raise EOFError("the writer is gone")
        rest = rest[got:]
    return data


def _wait(fd: int, deadline: float, writing: bool) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT if writing else select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise SilenceError
