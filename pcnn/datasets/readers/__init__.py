"""Readers of point files, by format.

Every reader raises one error, `pcnn.errors.FileError`, which names the file and the rule that it
breaks; `MissingFileError` and `MissingPackageError` say that a file or a package is not there.
"""
