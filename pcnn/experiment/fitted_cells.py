"""The chosen descriptor in cells that fit the clouds."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from pcnn.experiment.descriptors import Choice
from pcnn.registration.cell_size import (
    IN_CELLS,
    KNOWN,
    CellSize,
    Rescaled,
    cell_of_width,
    fitting_cell,
)
from pcnn.registration.cloud_measures import CloudMeasures
from pcnn.registration.descriptor import Descriptor
from pcnn.registration.fpfh import FPFH
from pcnn.registration.network_descriptor import NetworkDescriptor

#: Largest spacing of points for FPFH, whose radius is five voxels: then a dozen lie within it.
FPFH_SPACING = 2.5

#: ``auto``: the trained cell where the clouds are as those of the training, otherwise by the
#: clouds; ``trained``; ``clouds``: by the clouds alone, in proportion to their size.
CellRule = Literal["auto", "trained", "clouds"]


def check_rule(rule: str) -> None:
    """Refuse another word than those of `CellRule`."""
    if rule not in get_args(CellRule):
        raise ValueError(f"cell must be one of {', '.join(get_args(CellRule))}, got {rule!r}")


def fitted(
    descriptor: Descriptor, choice: Choice, clouds: CloudMeasures, rule: CellRule = "auto"
) -> tuple[Descriptor, Choice]:
    """A descriptor in the cell that `fitting_cell` finds, and the choice with the reason for it.

    Both are the given ones where the cell is the descriptor's own, where the user gave a cell, and
    where nothing tells which clouds a network knows.

    Args:
        descriptor: of the choice.
        choice: which descriptor, and why.
        clouds: measures of those that it is to describe.
        rule: ``auto``, ``trained`` or ``clouds``.

    Raises:
        ValueError: another rule.
    """
    check_rule(rule)
    benchmark = descriptor.benchmark if isinstance(descriptor, NetworkDescriptor) else choice.like
    if benchmark not in KNOWN or (rule == "trained" and benchmark != IN_CELLS):
        return descriptor, choice
    own = descriptor.voxel_size
    trained = own
    if benchmark == IN_CELLS:
        trained = cell_of_width(clouds.width)
    known = KNOWN[benchmark]
    if isinstance(descriptor, FPFH):
        known = replace(known, spacing=FPFH_SPACING)
    found = CellSize(trained)
    if rule != "trained":
        found = fitting_cell(clouds, trained, known, always=rule == "clouds")
    cell = found.cell
    if cell == own:
        return descriptor, choice
    reason = f"{choice.reason}; cells of {cell:.2g} m"
    if cell != trained:
        reason = f"{reason} in place of {trained:.2g} m: {found.reason}"
    if isinstance(descriptor, FPFH):
        made = FPFH(cell, sensor_at_origin=descriptor.sensor_at_origin)
        return made, replace(choice, voxel_size=cell, reason=reason)
    return Rescaled(descriptor, cell / own), replace(choice, reason=reason)


def indoors(descriptor: Descriptor) -> Descriptor:
    """A descriptor for clouds of rooms: one without a cell of its own gets that of rooms."""
    if isinstance(descriptor, NetworkDescriptor) and descriptor.benchmark == IN_CELLS:
        return Rescaled(descriptor, cell_of_width(0.0) / descriptor.voxel_size)
    return descriptor
