"""Registration of point clouds: transforms, matching, solvers."""
