"""Networks and training steps as CUDA graphs.

`sizes` says how large memory is, `voxel_memory` and `fixed_input` hold one input after another,
`capture` makes graphs, `runner` captures and replays a network by size, `graph` and `automatic` are
its two uses; `step_graph`, `gradients` and `optimizer_graph` serve training.
"""
