"""Point clouds and labels from files of all formats, within bounds, with one kind of error.

In the order in which a cloud meets them: `clouds` opens a file and makes its columns a cloud;
`formats` (bare numbers), `vertices` (PLY, PCD) and `las`, whose work `las_child` does in a process
of its own, read it as a `point_file` of `columns`; `label_files` finds and reads labels;
`fragments` are clouds without any; `doubts` are what numbers say of units and of the place.
"""
