from __future__ import annotations

from pcnn.tasks.segmentation import SegmentationTask

__all__ = ["SegmentationTask"]
