from __future__ import annotations

from pcnn.tasks.classification import ClassificationTask
from pcnn.tasks.registration import RegistrationTask
from pcnn.tasks.segmentation import SegmentationTask
from pcnn.tasks.views import EvaluationViews

__all__ = ["ClassificationTask", "EvaluationViews", "RegistrationTask", "SegmentationTask"]
