"""Suite ``latency``: from points to logits, scan after scan."""
