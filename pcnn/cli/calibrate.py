"""`pcnn calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcnn.cli.app import refusing
from pcnn.cli.options import AllowTargets, Device, chosen_device, packages
from pcnn.ranges import Count, Seed, Share

#: Distance of the scans of a pair of drives [m], lowest and highest.
APART = (5.0, 25.0)


def calibrate(
    root: Annotated[
        Path,
        typer.Argument(
            help="Simulated fragments (pcnn simulate fragments) with val scenes, or drives (pcnn "
            "simulate kitti), of which sequences 00 to 05 are taken."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File of the verifier (.json).")],
    model: Annotated[
        str,
        typer.Option(
            "--model", help="interiors, turned, streets, or a checkpoint of a registration."
        ),
    ] = "interiors",
    turn_clouds: Annotated[
        Seed | None,
        typer.Option(
            help="Turn every cloud at random first, by rotations of this seed: for clouds that lie "
            "any way."
        ),
    ] = None,
    pairs: Annotated[Count, typer.Option(help="Overlapping pairs of a scene at most.")] = 25,
    threshold: Annotated[Share, typer.Option(help="Confidence from which on to answer.")] = 0.75,
    picture: Annotated[Path | None, typer.Option(help="Reliability diagram (.png).")] = None,
    seed: Annotated[Seed, typer.Option(help="Seed of the pairs that are drawn.")] = 0,
    device: Device = "auto",
    allow_targets: AllowTargets = None,
) -> None:
    """Fit how sure `pcnn register` is of a pose, to simulated pairs of one and of two places.

    Prints the calibration error, false answers and answers kept, each of places that the model did
    not see.
    """
    from rich.progress import track

    from pcnn.console import Console
    from pcnn.datasets.registration import KITTIOdometry, PairDataset
    from pcnn.datasets.registration.threedmatch import IndoorPairs
    from pcnn.experiment.descriptors import of_checkpoint, weights_of
    from pcnn.experiment.fitted_cells import indoors
    from pcnn.metrics.calibration import reliability
    from pcnn.registration.calibration import calibrated, judged_pairs, threshold_of
    from pcnn.registration.descriptor import Descriptor, TurnedAtRandom
    from pcnn.registration.register import SAMPLES, default_settings
    from pcnn.registration.verifier import write_verifier
    from pcnn.visualize.reliability import reliability_picture

    console = Console()
    with refusing():
        where = str(chosen_device(device))
        weights = weights_of(model)
        network = of_checkpoint(weights, where, packages(allow_targets))
        descriptor: Descriptor = network
        drives = (root / "sequences").is_dir()
        if drives:
            data: PairDataset = KITTIOdometry(root, "train", "odometry", distances=APART)
        else:
            data, descriptor = IndoorPairs(root, "val"), indoors(network)
        if turn_clouds is not None:
            descriptor = TurnedAtRandom(descriptor, turn_clouds)
        settings = default_settings(descriptor.voxel_size, seed, "cliques")
        judged = judged_pairs(
            data,
            descriptor,
            settings,
            SAMPLES,
            pairs,
            where,
            seed,
            lambda scenes: track(scenes, "scenes", console=console, transient=True),
        )
        turned = "" if turn_clouds is None else f" --turn-clouds {turn_clouds}"
        overlapping = sum(pair.overlaps for pair in judged)
        made = (
            f"pcnn calibrate --model {model}{turned} --pairs {pairs} --seed {seed}, on "
            f"simulated {'drives' if drives else 'val scenes'}: {overlapping} pairs that overlap, "
            f"{len(judged) - overlapping} of two places"
        )
        found = calibrated(judged, made, threshold)
        write_verifier(out, found.verifier)
    told = reliability(found.confidence, found.right)
    strict = threshold_of(found.confidence[~found.overlaps])  # one answer in a hundred
    console.say(made)
    console.say(f"right poses taken: {int(found.right.sum())} of {overlapping}")
    console.say(f"expected calibration error: {told.error:.3f}")
    for at in dict.fromkeys((threshold, strict)):
        answered = found.confidence >= at
        console.say(
            f"at {at:.2f}: two places answered "
            f"{100 * float(answered[~found.overlaps].double().mean()):.1f} %, right poses answered "
            f"{100 * float(answered[found.right].double().mean()):.1f} %, answers that are wrong "
            f"{100 * float((~found.right[answered]).double().mean()):.1f} %"
        )
    if picture is not None:
        reliability_picture(told, picture, "simulated places, by models of others")
    console.say(str(out))
