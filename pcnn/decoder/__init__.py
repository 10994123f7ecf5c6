"""A process of its own for libraries that a damaged file can bring down.

Nothing here imports torch or the rest of pcnn: the process starts in a fraction of a second.
"""
