"""What it costs to get scans from files into a training."""
