"""Networks and training steps as CUDA graphs.

Sizes are rounded up (`sizes`); memory of a size takes one input after another
(`memory`, `fixed_input`, for the `sources` of inputs), `capture` makes graphs, `runner` captures
and replays a network in inference; `graph` and `automatic` are its two uses. `own_steps` does the
same for steps of a training, whose `gradients` and `optimizer_graph` lie in fixed memory too.
"""
