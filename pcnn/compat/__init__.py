"""Interfaces of other packages on our operations."""
