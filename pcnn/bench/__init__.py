"""Measurements: workloads, timing, the correctness gate before every time, and result files."""
