"""The largest of the numbers that ranks say, known one question later."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Agreement:
    """The largest number of all ranks, while none waits for another, or for a device.

    All ranks ask equally often. The answer is that to the question before, which has travelled
    between the hosts in the meantime: a host waits only for one that is a whole question behind.
    """

    def __init__(self) -> None:
        self._hosts: Any = None  # the group of the hosts, where the usual one is of devices
        self._asked: tuple[Any, Tensor] | None = None  # the exchange under way, and its answer

    def ask(self, number: int, now: bool = False) -> int:
        """Ask a question; all ranks get the same answer."""
        answer = self._answer()
        self._send(number)
        return max(answer, self._answer()) if now else answer

    def forget(self) -> None:
        """Leave a question unanswered: other ranks may be gone."""
        self._asked = None

    def _send(self, number: int) -> None:
        if self._hosts is None and torch.distributed.get_backend() != "gloo":
            self._hosts = torch.distributed.new_group(backend="gloo")
        answer = torch.tensor(int(number))
        largest = torch.distributed.ReduceOp.MAX
        work = torch.distributed.all_reduce(answer, largest, self._hosts, async_op=True)
        self._asked = work, answer

    def _answer(self) -> int:
        if self._asked is None:
            return 0
        (work, answer), self._asked = self._asked, None
        work.wait()
        return int(answer)
