"""Solvers of registration on the same matches: recall, errors and time."""
