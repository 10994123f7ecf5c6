"""Times of layers, networks and maps, each checked against float64 before it is shown.

In the order of a measurement: `workloads` (scenes), `run` (the one loop of check, time, row),
`check` (float64 truth), `engines` (what figures compare), the scripts `layers`, `maps`, `networks`,
`points` and `latency` (cases and figures), `peers` (other packages), `rows` (files of
results), `report` (what is made of them). ``papers.yaml`` holds the papers' claims. `registration`
is apart: pairs of clouds, by our networks and by other code.
"""
