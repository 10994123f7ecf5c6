"""Networks made ready to run: what their layers do, and what is quickest for them."""

from pcnn.runtime.compile import Compiled, compile

__all__ = ["Compiled", "compile"]
