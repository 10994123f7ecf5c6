"""Point clouds and labels from files of all formats, within bounds, with one kind of error.

In the order in which a cloud meets them: `clouds` opens a file and makes its columns a cloud;
`formats` (PLY, PCD, bare numbers) and `las`, whose work `las_child` does in a process
of its own, read it as `columns`; `fragments` are clouds without labels.
"""
