"""Benchmarks of native points: the figures of PointCNN++, and what bounds them."""
