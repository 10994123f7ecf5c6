"""Registration of point clouds: from two clouds to a transform, and whether to believe it.

In the order in which a pair goes through it:

- `cloud_measures`: width and density of the clouds, and the cell that follows.
- `descriptor`, with `network_descriptor` and `fpfh`: points with a descriptor each.
- `matching`: which points are compared, and their nearest descriptors.
- `ransac`, `cliques` (`compatibility`): solvers, each from matches to a `solution`.
- `evidence`, `verifier`: what speaks for a pose, and how much.
- `surface_fit`: the pose that was chosen, moved until surfaces lie on each other.
- `estimate`: matching, a solver, the choice among its poses and their fit, for many pairs.
- `rivals`: what explains a pair as well: another scale, a mirror image, other poses.
- `register`: one pair, with all that may refuse it; `pose_graph` places many clouds.
- `evaluation`: pairs with known poses; `positives`: true matches, of which networks learn.

Beneath them: `transforms`, `rigid_fit`, `nearest`, `open3d_tools`, and `settings` of all.
"""
