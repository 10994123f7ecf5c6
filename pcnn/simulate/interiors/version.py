"""The version of the simulated interiors."""

#: changes whenever the same seed would give other rooms, fragments or files
VERSION = "2"
