# %% [markdown]
# # Voxels and points side by side
#
# One cloud, one network, one set of weights: first on voxels, then on the points themselves.

# %%
import matplotlib.pyplot as plt
import torch

import pcnn

torch.manual_seed(0)
points = torch.rand(1500, 3) * torch.tensor([4.0, 4.0, 1.0])  # [P, 3] metres
features = torch.rand(1500, 4)  # [P, 4]

# %% [markdown]
# `voxelize` averages the points of a cell. `native_points` keeps every point where it is; the cell
# is only the unit in which a kernel is measured.

# %%
on_voxels = pcnn.voxelize(points, features, voxel_size=0.25)
on_points = pcnn.native_points(points, features, voxel_size=0.25)
print("points:", len(points), " voxels:", len(on_voxels), " native points:", len(on_points))

# %% [markdown]
# The same layers run on both. On voxels a slot of a kernel holds one input at most. On points it
# may hold several, so there are more triplets.

# %%
network = pcnn.models.MinkUNet42(in_channels=4, out_channels=5, width=0.25).eval()
with torch.no_grad():
    from_voxels = network(on_voxels).at_points()  # [P, 5]
    from_points = network(on_points).at_points()  # [P, 5]
print("logits:", tuple(from_voxels.shape), tuple(from_points.shape))

# %% [markdown]
# The numbers differ, because neighbourhoods do. Points of one voxel share a row; native points do
# not.

# %%
assert len(from_voxels.unique(dim=0)) <= len(on_voxels)
assert len(from_points.unique(dim=0)) > len(on_voxels)

# %% [markdown]
# Seen from above: a colour for every value of the first logit.

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True)
for panel, name, logits in zip(
    panels, ("voxels", "points"), (from_voxels, from_points), strict=True
):
    panel.scatter(points[:, 0], points[:, 1], s=4, c=logits[:, 0])
    panel.set(title=name, xlabel="x [m]", aspect="equal")
panels[0].set_ylabel("y [m]")
figure.tight_layout()
