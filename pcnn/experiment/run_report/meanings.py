"""The meaning of figures, in words."""

from __future__ import annotations

#: By the name that a figure has behind `train/`, `val/` or `test/`, or by its whole name.
_MEANINGS = {
    "loss": "the smaller the better",
    "lr": "learning rate",
    "miou": "mean IoU over all classes, 0 to 1; a class that does not occur counts 0",
    "miou_present": "mean IoU over the classes that occur",
    "accuracy": "share of right answers",
    "mean_accuracy": "share of right answers of each class, mean over the classes",
    "best_constant": "what one class for everything would reach",
    "feat_match_ratio": "share of pairs with enough right matches (FMR)",
    "inlier_ratio": "share of matches that are right (IR)",
    "rr": "share of pairs that are registered (RR)",
    "rre": "error of the rotation of registered pairs [degrees]",
    "rte": "error of their translation [m]",
    "speed/points_per_second": "points that are trained on in a second",
    "speed/voxels_per_second": "the same of voxels",
    "speed/step_seconds": "time of a batch, with the wait for it [s]",
    "speed/data_share": "share of the time that waits for data",
    "speed/between_share": "share of the time that lies between steps",
    "memory/peak_mib": "most memory that was in use [MiB]",
    "start: all": "time to the first step [s], of which:",
    "start: data": "the first batch [s]",
    "start: kernels": "compilation of kernels [s]",
    "start: step": "the step itself [s]",
    "start: variants": "variants of kernels that were compiled, their number",
}


def meaning(name: str) -> str:
    """The words for a figure; empty for one that nothing is known of.

    Args:
        name: such as ``val/miou``.
    """
    name = name.partition(",")[0]  # `memory/peak_mib, peak`
    return _MEANINGS.get(name, _MEANINGS.get(name.partition("/")[2], ""))
