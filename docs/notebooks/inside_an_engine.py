# %% [markdown]
# # Inside an engine
#
# An engine is a map builder and a dataflow. We build a kernel map, look at its layouts, compute the
# sum by hand, and put an engine together from parts.

# %%
import torch

import pcnn
from pcnn.dataflows import Blocked, Reference
from pcnn.maps import BruteForce, SortedSearch
from pcnn.nn import Conv3d

torch.manual_seed(0)
cells = torch.randint(0, 6, (80, 3))
x = pcnn.from_coordinates(cells, torch.rand(80, 4))
layer = Conv3d(4, 8, 3, bias=False)

# %% [markdown]
# **The builder** finds the triplets (i, j, k). Builders differ in speed alone: brute force and a
# sorted search find the same ones.

# %%
sites = x.geometry
kernel_map = SortedSearch().build(sites, sites, layer.kernel)
other = BruteForce().build(sites, sites, layer.kernel)
j, i, offsets = kernel_map.layout("pairs")
assert all(torch.equal(a, b) for a, b in zip(other.layout("pairs"), (j, i, offsets), strict=True))
print("sites:", len(x), " triplets:", len(i))

# %% [markdown]
# **Layouts** hold the same triplets in another order. A table has a row for each output and a
# column for each slot, with -1 where there is no input.

# %%
(table,) = kernel_map.layout("table")
print("table:", tuple(table.shape), " filled:", int((table >= 0).sum()))

# %% [markdown]
# **The sum** is the one equation. With a loop over slots it takes four lines.

# %%
weight = layer.weight.detach()  # [K, C_in, C_out]
out = torch.zeros(len(x), 8)
for k in range(len(weight)):
    pairs = slice(int(offsets[k]), int(offsets[k + 1]))
    out.index_add_(0, i[pairs].long(), x.features[j[pairs].long()] @ weight[k])

# %% [markdown]
# **An engine** is a pair of a builder and a dataflow. Every pair gives the same values.

# %%
for builder in (SortedSearch(), BruteForce()):
    for dataflow in (Reference(), Blocked()):
        layer.engine = pcnn.Engine("mine", builder, dataflow)
        with torch.no_grad():
            fresh = pcnn.from_coordinates(cells, torch.zeros(80, 4)).geometry  # keeps no maps yet
            y = layer(pcnn.SparseTensor(x.features, fresh))
        assert torch.allclose(y.features, out, atol=1e-5)
        print(type(builder).__name__, "+", type(dataflow).__name__, ": the same values")
