"""Files read within bounds, nothing of them run, and files that appear whole or not at all."""
