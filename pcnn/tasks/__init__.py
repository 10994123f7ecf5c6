"""What a training teaches a network: a class a point, a class a cloud, descriptors of places."""

from typing import TYPE_CHECKING

from pcnn.late import late

if TYPE_CHECKING:
    from pcnn.tasks.classification import ClassificationTask
    from pcnn.tasks.registration import RegistrationTask
    from pcnn.tasks.segmentation import SegmentationTask
    from pcnn.tasks.views import EvaluationViews

__all__ = ["ClassificationTask", "EvaluationViews", "RegistrationTask", "SegmentationTask"]

# a segmentation needs no registration
__getattr__ = late(
    __name__,
    {
        ".classification": ("ClassificationTask",),
        ".registration": ("RegistrationTask",),
        ".segmentation": ("SegmentationTask",),
        ".views": ("EvaluationViews",),
    },
)
