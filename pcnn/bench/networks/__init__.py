"""Suite ``networks``: whole networks from shuffled cells, inference and training steps."""
