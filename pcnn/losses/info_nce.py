"""InfoNCE of descriptors: every match has to be found among far places of its pair of clouds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pcnn.losses.descriptors import no_loss
from pcnn.losses.sampled_ends import SampledEnds


class InfoNCE(nn.Module):
    """InfoNCE over samples of the matches of every pair of clouds.

    Up to ``samples`` matches (i, j) of each pair are drawn, from torch's generator of the device
    and without replacement. The other ends of the sample that lie beyond the safe radius under the
    true transform are the negatives of an end; nearer ones count nowhere. The loss is the mean of
    both directions over all drawn matches of the batch; see `info_nce`.

    A batch without matches gives 0 with gradient 0. Nothing is read back from the device.

    Args:
        temperature: τ.
        safe_radius: in voxels.
        samples: matches a pair of clouds (PointContrast: 4096 of a batch).

    Raises:
        ValueError: a number that is not positive.

    Source: Xie et al., "PointContrast", ECCV 2020, Eq. 3 (PointInfoNCE, τ = 0.07); its negatives
    are all other ends of the batch, here those of the same pair that are far enough.
    """

    def __init__(
        self, temperature: float = 0.07, safe_radius: float = 4.0, samples: int = 512
    ) -> None:
        super().__init__()
        if temperature <= 0 or safe_radius <= 0 or samples < 1:
            raise ValueError(
                "temperature, safe_radius and samples must be positive, got "
                f"{temperature}, {safe_radius} and {samples}"
            )
        self.temperature, self.safe_radius, self.samples = temperature, safe_radius, samples

    def forward(self, source: Tensor, target: Tensor, batch: Any) -> Tensor:
        """Return the loss.

        Args:
            source: [N, C] features of the sources' rows, of unit length.
            target: [M, C] features of the targets' rows.
            batch: as `SampledEnds.of` reads it.

        Returns:
            Scalar; float32, or float64 for float64 features.
        """
        if len(batch.positives) == 0:
            return no_loss(source, target)
        ends = SampledEnds.of(source, target, batch, self.samples, 0.0, self.safe_radius)
        return info_nce(ends.distance, ends.drawn, ends.negative, self.temperature)


def info_nce(distance: Tensor, drawn: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """InfoNCE of features of unit length, by their distances, mean of both directions.

    ``L_i = -log(exp(s_ii / τ) / (exp(s_ii / τ) + sum_(k in N_i) exp(s_ik / τ)))`` with the cosine
    ``s = 1 - d² / 2``; end i of the source and end i of the target are a match.

    Args:
        distance: [B, K, K] between features of source ends (rows) and target ends (columns).
        drawn: [B, K] bool, which matches are there.
        negative: [B, K, K] bool, false on the diagonal.
        temperature: τ.

    Returns:
        Scalar: the mean over drawn matches and both directions; of nothing 0, with gradient 0.
    """
    cosine = (1 - distance.square() / 2) / temperature
    own = torch.eye(distance.shape[1], dtype=torch.bool, device=distance.device)
    there = negative | (own & drawn[:, :, None])
    right = cosine.diagonal(dim1=1, dim2=2)  # [B, K]
    total = cosine.new_zeros(())
    for dim in (2, 1):
        # of an end that is not there nothing may be infinite: its slope would be NaN
        logits = torch.where(there, cosine, -torch.inf).where(drawn.unsqueeze(dim), 0.0)
        total = total + ((logits.logsumexp(dim) - right) * drawn).sum()
    return total / (2 * drawn.sum().clamp(min=1))
