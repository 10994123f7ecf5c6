"""Evaluate descriptors on pairs of clouds: hand-made ones, and networks with their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from pcnn.checkpoints import RunCheckpoint
from pcnn.config import make, named_after
from pcnn.console import Console, Progress
from pcnn.datasets.registration import PairDataset, RegistrationPair
from pcnn.errors import ConfigError
from pcnn.experiment import report, run_folder
from pcnn.experiment.descriptors import described, trained_descriptor
from pcnn.experiment.registration_options import RegistrationOptions
from pcnn.experiment.registration_pictures import draw_curves, draw_pairs, send_evaluation
from pcnn.experiment.report import CURVES, PAIRS
from pcnn.experiment.run_config import (
    allowed,
    checked,
    data_module,
    evaluation_options,
    resolved,
    without,
)
from pcnn.experiment.weights import config_of
from pcnn.messages import counted
from pcnn.metrics.registration import (
    Figure,
    JudgedPairs,
    Protocol,
    Summary,
    registration_table,
    scene_table,
    summarize,
)
from pcnn.metrics.registration.pair_table import shown, write_pair_table
from pcnn.registration.descriptor import Descriptor, TurnedAtRandom
from pcnn.registration.estimate import Estimate, estimate_all
from pcnn.registration.evaluation import Batches, Evaluation, Track, evaluate_pairs
from pcnn.registration.settings import EstimateSettings


def evaluate_untrained(cfg: DictConfig, folder: Path) -> float | None:
    """Run `eval.py model=fpfh`: tables on screen, metrics.json, pairs.csv, curves and pictures."""
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
        done = report_pairs(cfg, folder, data, descriptor, device)
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
        return report_pairs(cfg, folder, data, descriptor, device, loggers)


#: Figures of a summary that metrics.json holds, each with its interval.
FLAT = (
    *("rr", "rr_scenes", "rr_pairs", "fmr", "ir"),
    *("rre", "rte", "rre_median", "rte_median", "rre_std", "rte_std"),
)


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
    loggers: Sequence[Logger] = (),
) -> PairReport:
    """Register all pairs, print the tables, write pairs.csv, curves and pictures."""
    options: RegistrationOptions = evaluation_options(cfg)
    if options.turn_clouds is not None:
        descriptor = TurnedAtRandom(descriptor, options.turn_clouds)
    console = Console()
    rules = options.rules(data.benchmark)
    settings = options.settings(rules, cfg.seed)
    samples = [number or None for number in options.samples]
    title = f"{data.name}, {descriptor.name}, solver {solver_name(options.solver)}"
    title += ", refitted" if options.refine and options.solver in ("ransac", "cliques") else ""
    console.print(f"{title}: {counted(len(data.pairs), 'pair')}, ground truth {data.ground_truth}")
    for note in data.notes():
        console.say(note)
    report.say_simulated(console, cfg)
    evaluate = partial(
        evaluate_pairs,
        data,
        protocol=rules,
        settings=settings,
        samples=samples,
        device=device,
    )
    done = evaluate(
        descriptor, icp_distance=options.icp_distance, track=shown_progress(console, rules)
    )
    summary = partial(summarize, protocol=rules, draws=options.draws, seed=cfg.seed)
    figures: dict[str, float] = {}
    groups = {"": done.results, " + ICP": done.refined}
    summaries: dict[str, dict[int | None, Summary]] = {}
    for suffix, results in groups.items():
        if not results:
            continue
        summaries[suffix] = {number: summary(pairs) for number, pairs in results.items()}
        console.print(registration_table(summaries[suffix], title + suffix))
        first = summaries[suffix][samples[0]]
        console.print(scene_table(first, f"scenes, {shown(samples[0])}{suffix}"))
        figures |= flat(summaries[suffix], "test_icp" if suffix else "test")
    report.say_simulated(console, cfg)
    write_pair_table(folder / PAIRS, done.results, done.refined, rules)
    draw_curves(folder / CURVES, done, rules, title)
    once_more = partial(matches_of, data, descriptor, settings, samples[0], device)
    draw_pairs(folder / "pictures", data, done, rules, samples[0], options.pictures, once_more)
    send_evaluation(loggers, data, done, rules, samples[0], figures)
    facts = {
        "protocol": rules.name,
        "success": str(rules.success),
        "ground_truth": data.ground_truth,
        "pairs": len(data.pairs),
        "notes": data.notes(),
        "descriptor": descriptor.name,
        "turn_clouds": options.turn_clouds,
        "solver": solver_name(options.solver),
        "refine": options.refine,
        "matching": rules.matching,
        "sampling": rules.sampling,
    }
    return PairReport(figures, facts, figures[f"test/rr@{shown(samples[0])}"])


def matches_of(
    data: PairDataset,
    descriptor: Descriptor,
    settings: EstimateSettings,
    samples: int | None,
    device: torch.device | str,
    pair: RegistrationPair,
) -> Estimate:
    """A pair's matches, as its evaluation found them."""
    described = [descriptor(data.cloud(pair.scene, at)) for at in (pair.source, pair.target)]
    (estimate,) = estimate_all(described[:1], described[1:], settings, samples, device)
    return estimate


def shown_progress(console: Console, rules: Protocol, of: str = "") -> Track:
    """A function that shows how far a pass over batches of pairs is, with the recall so far."""

    def tracked(batches: Batches, so_far: Evaluation) -> Iterator[Sequence[RegistrationPair]]:
        def recall() -> str:
            done = JudgedPairs(list(next(iter(so_far.results.values()), [])), rules)
            registered = done.registered[done.counted]
            return f"recall {100 * registered.mean():.1f} %" if len(registered) else ""

        total = sum(map(len, batches))
        with Progress(console, f"registering {of}".strip(), total, recall) as progress:
            for batch in batches:
                yield batch
                progress.advance(len(batch))

    return tracked


def solver_name(solver: str) -> str:
    """The solver with the version of what computes it."""
    if solver != "open3d":
        return f"{solver}, torch {torch.__version__}"
    from pcnn.registration.open3d_tools import open3d_name

    return open3d_name()


def flat(summaries: Mapping[int | None, Summary], prefix: str) -> dict[str, float]:
    """Every figure with its interval, by name."""
    figures: dict[str, float] = {}
    for samples, summary in summaries.items():
        for name in FLAT:
            figures |= with_ends(f"{prefix}/{name}", samples, getattr(summary, name))
        for name in ("counted", "no_estimate", "unjudged"):
            figures[f"{prefix}/{name}@{shown(samples)}"] = getattr(summary, name)
    return figures


def with_ends(name: str, samples: int | None, figure: Figure) -> dict[str, float]:
    """A figure and the ends of its interval, by name."""
    ends = {"": figure.value, "_low": figure.low, "_high": figure.high}
    return {f"{name}{end}@{shown(samples)}": value for end, value in ends.items()}
