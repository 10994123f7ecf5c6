"""Readers of point files, by format."""
