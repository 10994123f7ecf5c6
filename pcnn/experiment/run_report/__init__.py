"""Runs as one page: configuration, curves, figures, confusion, pictures and views."""

from pcnn.experiment.run_report.page import write_report
from pcnn.experiment.run_report.recorded import RecordedRun, runs_of

__all__ = ["RecordedRun", "runs_of", "write_report"]
