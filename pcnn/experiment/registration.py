"""Evaluate descriptors on pairs of clouds: hand-made ones, and networks with their weights."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from pcnn.checkpoints import RunCheckpoint
from pcnn.config import make, named_after
from pcnn.console import Console, progress
from pcnn.datasets.registration import PairDataset
from pcnn.errors import ConfigError
from pcnn.experiment import report, run_folder
from pcnn.experiment.descriptors import trained_descriptor, verifier_of
from pcnn.experiment.options import RegistrationOptions
from pcnn.experiment.report import PAIRS
from pcnn.experiment.run_config import allowed, checked, data_module, resolved, task_parts, without
from pcnn.experiment.weights import config_of
from pcnn.loggers import send_media
from pcnn.messages import counted
from pcnn.metrics.registration import Protocol, protocol, registration_table, summarize
from pcnn.metrics.registration.table import percent, shown, write_pair_table
from pcnn.registration.descriptor import Descriptor, TurnedAtRandom
from pcnn.registration.evaluation import begun, evaluate_pairs, keep, recall
from pcnn.registration.settings import EstimateSettings
from pcnn.registration.verifier import Verifier

#: Options that are settings of RANSAC.
RANSAC = ("distance", "points", "hypotheses", "confidence")
EVERY = 25.0  # seconds from which on a log is told how far an evaluation is


def evaluate_untrained(cfg: DictConfig, folder: Path) -> float | None:
    """Run `eval.py model=fpfh`: tables on screen, metrics.json and pairs.csv."""
    if OmegaConf.is_missing(cfg, "ckpt_path"):
        cfg = OmegaConf.merge(cfg, {"ckpt_path": None})  # type: ignore[assignment]
    cfg = checked(cfg)
    if cfg.ckpt_path is not None:
        raise ConfigError("ckpt_path", f"model={cfg.model.name} has no weights")
    module: Any = data_module(cfg)
    with named_after("dataset"):
        data: PairDataset = module.pairs("test")
    descriptor = make(without(resolved(cfg.model), "model"), "model", allowed(cfg))
    cfg.data = {"source": data.source_kind, "ground_truth": data.ground_truth}
    run_folder.record(folder, cfg, resumed=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with named_after("task"):
        figures, facts = report_pairs(cfg, folder, data, descriptor, device)
    report.write_metrics(folder, cfg, figures, 0, None, facts)
    report.say_end(Console(), cfg, folder, None)
    return next(iter(figures.values()))  # the recall at the first number of samples


def evaluate_trained(
    cfg: DictConfig,
    folder: Path,
    data: PairDataset,
    checkpoint: str | Path,
    device: torch.device,
    loggers: Sequence[Logger] = (),
) -> tuple[dict[str, float], dict[str, Any]]:
    """Evaluate the network of a checkpoint on the pairs of the test split; see `report_pairs`."""
    with named_after("task"):
        found = RunCheckpoint.read(checkpoint, mmap=False)
        source = str(config_of(found)["data"]["source"])
        descriptor = trained_descriptor(cfg, found, source, device)
        verifier = verifier_of(Path(checkpoint))
        weights = run_folder.sha256(Path(checkpoint))
        given = device, loggers, weights, verifier
        return report_pairs(cfg, folder, data, descriptor, *given)


def rules_of(options: RegistrationOptions, benchmark: str) -> Protocol:
    """The protocol, with what is set in place of its own; its name then says so."""
    rules = protocol(options.protocol, benchmark)
    ransac, pairs = (
        {name: one for name in names if (one := getattr(options, name)) is not None}
        for names in (RANSAC, ("matching", "sampling"))
    )
    changed = replace(rules, ransac=replace(rules.ransac, **ransac), **pairs)
    return rules if changed == rules else replace(changed, name=f"{rules.name}, changed")


#: Groups of a configuration that results of pairs depend on.
DECIDING = ("dataset", "model", "task", "geometry", "engine", "seed")
#: Figures of a summary that metrics.json holds.
FLAT = (
    *("rr", "rr_scenes", "rr_pairs", "fmr", "ir", "rre", "rte"),
    *("counted", "no_estimate", "unjudged"),
)


def report_pairs(
    cfg: DictConfig,
    folder: Path,
    data: PairDataset,
    descriptor: Descriptor,
    device: torch.device | str,
    loggers: Sequence[Logger] = (),
    weights: str = "",  # their digest
    verifier: Verifier | None = None,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Register all pairs, print the tables, write pairs.csv; figures by name, and facts of them."""
    options: RegistrationOptions = task_parts(cfg)[1]
    if options.turn_clouds is not None:
        descriptor = TurnedAtRandom(descriptor, options.turn_clouds)
    console = Console()
    rules = rules_of(options, data.benchmark)
    settings = EstimateSettings(
        rules.ransac,
        options.solver,
        rules.matching,
        rules.sampling,
        options.refine,
        cfg.seed,
        verifier=verifier,
        surfaces=options.surfaces,
    )
    samples = [number or None for number in options.samples]
    solver = f"{options.solver}, torch {torch.__version__}"
    title = f"{data.name}, {descriptor.name}, solver {solver}"
    title += ", refitted" if options.refine and options.solver in ("ransac", "cliques") else ""
    console.print(f"{title}: {counted(len(data.pairs), 'pair')}, ground truth {data.ground_truth}")
    for note in data.notes:
        console.say(note)
    report.say_simulated(console, cfg)
    # all that results depend on: the same command goes on where it was interrupted
    groups = [run_folder.recorded(cfg)[name] for name in DECIDING]
    pairs = [tuple(pair.id) for pair in data.pairs]
    program = report.versions(), report.revision()
    depends = repr((groups, title, str(data.root), pairs, weights, program))
    so_far = folder / run_folder.SO_FAR
    found = begun(so_far, hashlib.sha256(depends.encode()).hexdigest(), samples)
    if before := len(found[samples[0]]):
        console.say(f"{counted(before, 'pair')} measured before, which are not measured again")

    total, began = len(data.pairs) - before, time.monotonic()
    told = began

    def measured(batch: Sequence[int]) -> None:
        nonlocal told
        keep(so_far, found, batch)
        advance(len(batch))
        if not console.is_terminal and time.monotonic() - told > EVERY:
            told = time.monotonic()
            done = len(found[samples[0]]) - before
            left = timedelta(seconds=round((told - began) / done * (total - done)))
            share = percent(recall(found, rules))
            console.say(f"registering: {done} of {total}, recall so far {share} %, {left} left")

    with progress(console, "registering", total) as advance:
        given = rules, settings, samples, device, measured, found
        results = evaluate_pairs(data, descriptor, *given)
    summaries = {number: summarize(pairs, rules) for number, pairs in results.items()}
    console.print(registration_table(summaries, title))
    figures: dict[str, float] = {
        f"test/{name}@{shown(number)}": getattr(summary, name)
        for number, summary in summaries.items()
        for name in FLAT
    }
    write_pair_table(folder / PAIRS, results, rules)
    so_far.unlink()
    send_media(loggers, lambda: figures)
    facts = {
        "protocol": rules.name,
        "success": str(rules.success),
        "ground_truth": data.ground_truth,
        "pairs": len(data.pairs),
        "notes": list(data.notes),
        "descriptor": descriptor.name,
        "turn_clouds": options.turn_clouds,
        "solver": solver,
        "refine": options.refine,
        "matching": rules.matching,
        "sampling": rules.sampling,
    }
    return figures, facts
