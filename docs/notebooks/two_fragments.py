# %% [markdown]
# # Registration of two fragments
#
# Two scans of one corner of a room overlap in part. We find the transform that maps the first onto
# the second, and compare it with the true one.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pcnn

rng = np.random.default_rng(0)


def wall(corner, along, up, points):
    """Points of a parallelogram, with a millimetre of noise."""
    place = rng.random((points, 2))
    return corner + place @ np.array([along, up]) + rng.normal(0, 0.001, (points, 3))


room = np.concatenate(
    [
        wall([0, 0, 0], [4, 0, 0], [0, 3, 0], 3000),  # the floor
        wall([0, 0, 0], [4, 0, 0], [0, 0, 2], 2000),  # two walls
        wall([0, 0, 0], [0, 3, 0], [0, 0, 2], 1500),
        wall([1, 1, 0], [0.6, 0, 0], [0, 0, 0.8], 400),  # a box
        wall([1, 1, 0], [0, 0.9, 0], [0, 0, 0.8], 400),
        wall([1, 1, 0.8], [0.6, 0, 0], [0, 0.9, 0], 400),
        wall([2.4, 0.5, 0], [0.7, 0.3, 0], [0, 0, 1.4], 400),  # a shelf
    ]
)
truth = np.eye(4)
truth[:3, :3] = [[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]]
truth[:3, 3] = [1.0, 2.0, 0.1]
source = room[room[:, 0] < 3.4]
target = room[room[:, 0] > 0.4] @ truth[:3, :3].T + truth[:3, 3]

# %% [markdown]
# `pcnn.register` describes points, matches them, tries hypotheses, and refuses an answer without
# support. FPFH descriptors need no training.

# %%
found = pcnn.register(source, target, model="fpfh", voxel_size=0.1)
print(np.round(np.asarray(found.transform), 3))
print("matches:", found.matches, " that agree:", found.inliers)

# %% [markdown]
# How far is it from the truth? The rotation error is an angle, the translation error a length.

# %%
estimate = np.asarray(found.transform)
turn = estimate[:3, :3].T @ truth[:3, :3]
degrees = np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1)))
metres = np.linalg.norm(estimate[:3, 3] - truth[:3, 3])
print(f"rotation error {degrees:.2f} degrees, translation error {metres:.3f} m")
assert degrees < 2 and metres < 0.1

# %%
moved = source @ estimate[:3, :3].T + estimate[:3, 3]
figure, panels = plt.subplots(1, 2, figsize=(9, 4))
for panel, title, cloud in zip(panels, ("as given", "registered"), (source, moved), strict=True):
    panel.scatter(*target[:, :2].T, s=1, c="tab:blue", label="target")
    panel.scatter(*cloud[:, :2].T, s=1, c="tab:orange", label="source")
    panel.set(title=title, xlabel="x [m]", ylabel="y [m]", aspect="equal")
panels[0].legend(markerscale=6)
figure.tight_layout()
