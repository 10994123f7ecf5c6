"""The cost of getting scans from files into a training."""
