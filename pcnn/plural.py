"""Numbers of things in messages. This file imports nothing, so that any room may count."""

from __future__ import annotations


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number with its noun, as in ``1 cloud`` and ``2 clouds``.

    Args:
        number: how many.
        thing: the noun for one.
        things: the noun for another number; `thing` with an ``s`` unless given.
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
