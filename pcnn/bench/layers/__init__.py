"""Suite ``layers``: the time of single convolutions, with and without backward and maps."""
