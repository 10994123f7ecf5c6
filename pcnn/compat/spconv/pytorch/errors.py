"""The mistakes of a caller."""


class SpconvError(ValueError, AssertionError):
    """A wrong argument; also an `AssertionError`, which spconv raises in its place."""


def require(fits: bool, message: str) -> None:
    """Raise a `SpconvError` with the message unless an argument fits."""
    if not fits:
        raise SpconvError(message)
