"""Evaluate descriptors on pairs of clouds: hand-made ones, and networks with their weights."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from pcnn.checkpoints import RunCheckpoint
from pcnn.config import make, named_after
from pcnn.console import Console, Progress
from pcnn.datasets.registration import PairDataset
from pcnn.errors import ConfigError
from pcnn.experiment import report, run_folder
from pcnn.experiment.descriptors import described, trained_descriptor
from pcnn.experiment.registration_options import RegistrationOptions
from pcnn.experiment.report import PAIRS
from pcnn.experiment.run_config import (
    allowed,
    checked,
    data_module,
    evaluation_options,
    resolved,
    without,
)
from pcnn.experiment.weights import config_of
from pcnn.loggers import send_media
from pcnn.messages import counted
from pcnn.metrics.registration import (
    Summary,
    registration_table,
    scene_table,
    summarize,
)
from pcnn.metrics.registration.table import shown, write_pair_table
from pcnn.registration.descriptor import Descriptor, TurnedAtRandom
from pcnn.registration.evaluation import Evaluation, evaluate_pairs


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
        done = report_pairs(cfg, folder, data, descriptor, device, weights="")
    report.write_metrics(folder, cfg, done.figures, 0, None, done.facts)
    report.say_files(Console(), folder)
    return done.recall


def evaluate_trained(
    cfg: DictConfig,
    folder: Path,
    data: PairDataset,
    checkpoint: str | Path,
    device: torch.device,
    loggers: Sequence[Logger] = (),
) -> PairReport:
    """Evaluate the network of a checkpoint on the pairs of the test split."""
    with named_after("task"):
        found = RunCheckpoint.read(checkpoint, mmap=False)
        name = described(cfg, checkpoint, str(config_of(found)["data"]["source"]))
        descriptor = trained_descriptor(cfg, found.weights, name, device)
        weights = run_folder.sha256(Path(checkpoint))
        return report_pairs(cfg, folder, data, descriptor, device, weights, loggers)


#: Figures of a summary that metrics.json holds.
FLAT = (
    *("rr", "rr_scenes", "rr_pairs", "fmr", "ir"),
    *("rre", "rte", "rre_median", "rte_median", "rre_std", "rte_std"),
)
KEPT_EVERY = 10.0  # seconds: so much of an evaluation is lost when it is killed
#: Groups of a configuration on which figures of pairs depend.
DECIDING = ("dataset", "model", "task", "geometry", "engine", "seed")


@dataclass(frozen=True)
class PairReport:
    """The outcome of an evaluation."""

    figures: dict[str, float]  # by name, as metrics.json holds them
    facts: dict[str, Any]  # what they rest on, for metrics.json
    recall: float  # registration recall at the first number of samples


def report_pairs(
    cfg: DictConfig,
    folder: Path,
    data: PairDataset,
    descriptor: Descriptor,
    device: torch.device | str,
    weights: str,
    loggers: Sequence[Logger] = (),
) -> PairReport:
    """Register all pairs, print the tables, write pairs.csv."""
    options: RegistrationOptions = evaluation_options(cfg)
    if options.turn_clouds is not None:
        descriptor = TurnedAtRandom(descriptor, options.turn_clouds)
    console = Console()
    rules = options.rules(data.benchmark)
    settings = options.settings(rules, cfg.seed)
    samples = [number or None for number in options.samples]
    solver = f"{options.solver}, torch {torch.__version__}"
    title = f"{data.name}, {descriptor.name}, solver {solver}"
    title += ", refitted" if options.refine and options.solver in ("ransac", "cliques") else ""
    console.print(f"{title}: {counted(len(data.pairs), 'pair')}, ground truth {data.ground_truth}")
    for note in data.notes():
        console.say(note)
    report.say_simulated(console, cfg)
    done = Evaluation(data.pairs, samples)
    key = key_of(cfg, title, data, weights)
    path, written = folder / run_folder.PAIRS_SO_FAR, time.monotonic()
    if found := begun(done, folder, key):
        number = int(done.done.sum())
        were = "was" if number == 1 else "were"
        console.say(f"{counted(number, 'pair')} {were} measured before ({found})")
        if found != path:  # goes on here
            done.write(path, key)
            found.unlink()

    def so_far() -> str:
        recall = done.recall(rules)
        return "" if isnan(recall) else f"recall {100 * recall:.1f} %"

    def measured(pairs: int) -> None:
        nonlocal written
        bar.advance(pairs)
        if time.monotonic() - written > KEPT_EVERY:
            done.write(path, key)
            written = time.monotonic()

    with Progress(console, "registering", int((~done.done).sum()), so_far) as bar:
        try:
            evaluate_pairs(data, descriptor, rules, settings, samples, device, done, measured)
        finally:
            done.write(path, key)
    summaries = {number: summarize(pairs, rules) for number, pairs in done.results.items()}
    console.print(registration_table(summaries, title))
    console.print(scene_table(summaries[samples[0]], f"scenes, {shown(samples[0])}"))
    figures = flat(summaries, "test")
    report.say_simulated(console, cfg)
    write_pair_table(folder / PAIRS, done.results, rules)
    path.unlink()

    def media() -> dict[str, Any]:
        from pcnn.callbacks.wandb_media import of_pairs

        return {**figures, **of_pairs("test", done.results[samples[0]], rules, {})}

    send_media(loggers, media)
    facts = {
        "protocol": rules.name,
        "success": str(rules.success),
        "ground_truth": data.ground_truth,
        "pairs": len(data.pairs),
        "notes": data.notes(),
        "descriptor": descriptor.name,
        "turn_clouds": options.turn_clouds,
        "solver": solver,
        "refine": options.refine,
        "matching": rules.matching,
        "sampling": rules.sampling,
    }
    return PairReport(figures, facts, figures[f"test/rr@{shown(samples[0])}"])


def key_of(cfg: DictConfig, title: str, data: PairDataset, weights: str) -> str:
    """A digest of all that figures of pairs depend on."""
    recorded = run_folder.recorded(cfg)
    parts = [recorded[name] for name in DECIDING]
    pairs = [tuple(pair.id) for pair in data.pairs]
    program = report.versions(), report.revision()
    said = repr((parts, title, str(data.root), pairs, weights, program))
    return hashlib.sha256(said.encode()).hexdigest()


def begun(done: Evaluation, folder: Path, key: str) -> Path | None:
    """Go on from what this evaluation measured here or, interrupted, in a folder beside this."""
    held = [folder, *sorted(folder.parent.iterdir(), reverse=True)]
    for path in (one / run_folder.PAIRS_SO_FAR for one in held):
        if path.is_file() and done.read(path, key):
            return path
    return None


def flat(summaries: Mapping[int | None, Summary], prefix: str) -> dict[str, float]:
    """Every figure by name."""
    figures: dict[str, float] = {}
    for samples, summary in summaries.items():
        at = f"@{shown(samples)}"
        for name in (*FLAT, "counted", "no_estimate", "unjudged"):
            figures[f"{prefix}/{name}{at}"] = getattr(summary, name)
    return figures
