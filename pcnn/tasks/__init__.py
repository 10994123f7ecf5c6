"""What a training teaches a network: a class a point, a class a cloud, descriptors of places."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcnn.tasks.classification import ClassificationTask
    from pcnn.tasks.registration import RegistrationTask
    from pcnn.tasks.segmentation import SegmentationTask
    from pcnn.tasks.views import EvaluationViews

__all__ = ["ClassificationTask", "EvaluationViews", "RegistrationTask", "SegmentationTask"]

# imported when they are asked for: a segmentation needs no registration
_HOMES = {
    "ClassificationTask": "pcnn.tasks.classification",
    "EvaluationViews": "pcnn.tasks.views",
    "RegistrationTask": "pcnn.tasks.registration",
    "SegmentationTask": "pcnn.tasks.segmentation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
