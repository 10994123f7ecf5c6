"""Networks and training steps as CUDA graphs.

Memory of a size takes one input after another (`fixed_input`, `memory`). `automatic`
says when a size is captured and what happens where it fails. `runner` does it for inference, on
which `graph` stands, and `own_steps` for steps of a training.
"""

from contextvars import ContextVar

#: Inside of a network's call: one that is called there belongs to what the outer one does.
INSIDE: ContextVar[bool] = ContextVar("inside a network", default=False)
#: In place of an output: it is to be computed eagerly.
NOTHING = object()
