"""What a training teaches a network: a class a point, descriptors of places."""

from typing import TYPE_CHECKING

from pcnn.late import late

if TYPE_CHECKING:
    from pcnn.tasks.registration import RegistrationTask
    from pcnn.tasks.segmentation import SegmentationTask
    from pcnn.tasks.views import EvaluationViews

__all__ = ["EvaluationViews", "RegistrationTask", "SegmentationTask"]

# a segmentation needs no registration
__getattr__ = late(
    __name__,
    {
        ".registration": ("RegistrationTask",),
        ".segmentation": ("SegmentationTask",),
        ".views": ("EvaluationViews",),
    },
)
