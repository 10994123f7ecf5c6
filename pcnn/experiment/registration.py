"""Evaluate a descriptor that is not trained, and the report that every evaluation writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track

from pcnn.datasets.registration import PairDataset
from pcnn.experiment import build, report, run_folder
from pcnn.experiment.check import ABOUT_MODEL, checked, without
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.run import nearby
from pcnn.experiment.schema import EvalConfig
from pcnn.metrics.registration import (
    SAMPLES,
    PairResult,
    Protocol,
    Summary,
    protocol,
    recall_curve,
    registration_table,
    scene_table,
    summarize,
)
from pcnn.metrics.registration.pair_table import write_pair_table
from pcnn.registration.descriptor import Descriptor
from pcnn.registration.estimate import EstimateSettings, Solver
from pcnn.registration.evaluation import Evaluation, evaluate_pairs
from pcnn.registration.settings import Matching, Sampling
from pcnn.visualize.registration import overlay_picture, recall_picture

PAIRS = "pairs.csv"
CURVES = "recall.png"
AXES = {"rre": "RRE deg", "rte": "RTE m", "rmse": "RMSE m"}
MOST = {"rre": 15.0, "rte": 1.0, "rmse": 0.5}  # ends of the curves


@dataclass(frozen=True)
class RegistrationOptions:
    """How pairs are registered and judged; what is None is as the protocol has it.

    Args:
        protocol: ``fcgf``, ``predator``, ``geotransformer``, ``pointcnnpp`` or ``strict``.
        predator_compat: count 3DLoMatch's pairs as Predator's evaluator does.
        samples: numbers of samples; 0 takes all points.
        solver: ``torch``, ``open3d`` or ``svd``.
        matching: ``one_way`` or ``mutual``.
        sampling: ``random_points``, ``random_matches`` or ``top_k``.
        distance: of RANSAC's inliers [m].
        points: matches in a hypothesis.
        hypotheses: tried at most.
        confidence: 1 tries them all.
        refine: fit torch's best hypothesis again to its inliers, which the field's reference does
            not do: a few points more recall.
        icp_distance: refine by ICP within this distance [m], reported apart; None does not.
        draws: of the bootstrap.
        pictures: best and worst pairs drawn, so many of each.
    """

    protocol: str = "predator"
    predator_compat: bool = False
    samples: Sequence[int] = SAMPLES
    solver: Solver = "torch"
    matching: Matching | None = None
    sampling: Sampling | None = None
    distance: float | None = None
    points: int | None = None
    hypotheses: int | None = None
    confidence: float | None = None
    refine: bool = False
    icp_distance: float | None = None
    draws: int = 2000
    pictures: int = 3

    def rules(self, benchmark: str) -> Protocol:
        """The protocol, with what is set here in place of its own; its name then says so.

        Raises:
            ValueError: a value is refused.
        """
        rules = protocol(self.protocol, benchmark, self.predator_compat)
        given = {
            name: getattr(self, name)
            for name in ("distance", "points", "hypotheses", "confidence")
            if getattr(self, name) is not None
        }
        changed = replace(
            rules,
            ransac=replace(rules.ransac, **given),
            matching=self.matching or rules.matching,
            sampling=self.sampling or rules.sampling,
        )
        return rules if changed == rules else replace(changed, name=f"{rules.name}, changed")


@dataclass
class UntrainedConfig(EvalConfig):
    """What `eval.py` reads where there is no checkpoint."""

    ckpt_path: Optional[str] = None  # type: ignore[assignment]  # noqa: UP045 - read at run time


def evaluate_untrained(cfg: DictConfig) -> float | None:
    """Run `eval.py model=fpfh`: tables on screen, metrics.json, pairs.csv, curves and pictures.

    Returns:
        Registration recall at the first number of samples.

    Raises:
        ConfigError: the configuration cannot be run.
        FileNotFoundError: data is missing.
    """
    folder = nearby(Path(HydraConfig.get().runtime.output_dir))
    try:
        cfg = checked(cfg, UntrainedConfig)
        if cfg.ckpt_path is not None:
            raise ConfigError(
                f"model={cfg.model.name} has no weights, so ckpt_path names nothing.\n"
                f"possible: python eval.py model={cfg.model.name} dataset={cfg.dataset.name}"
            )
        with build.refused_values():
            data = build.make(build.plain(cfg.dataset.tasks[cfg.task.name]))
            descriptor = build.make(without(build.plain(cfg.model), ABOUT_MODEL))
            options = build.make(without(build.plain(cfg.task), ("name",)))
        cfg.data = {"source": data.source_kind, "ground_truth": data.ground_truth}
        run_folder.record(folder, cfg, resumed=False)
        with build.refused_values(), named_extras():
            return evaluate_and_report(cfg, folder, data, descriptor, options)
    finally:
        run_folder.drop_if_empty(folder)


@contextmanager
def named_extras() -> Iterator[None]:
    """Turn an extra that is not installed into a short message.

    Raises:
        ConfigError: in place of an ImportError.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(str(error)) from error


def evaluate_and_report(
    cfg: DictConfig,
    folder: Path,
    data: PairDataset,
    descriptor: Descriptor,
    options: RegistrationOptions,
) -> float:
    """Register all pairs and write everything that is known about them.

    Args:
        cfg: what metrics.json names; `cfg.data.source` says whether the data was simulated.
        folder: run folder, which holds config.yaml.
        data: the pairs.
        descriptor: describes clouds.
        options: how pairs are registered and judged.

    Returns:
        Registration recall at the first number of samples.
    """
    console = Console()
    rules = options.rules(data.benchmark)
    settings = EstimateSettings(
        rules.ransac, options.solver, rules.matching, rules.sampling, options.refine, cfg.seed
    )
    samples = [number or None for number in options.samples]
    title = f"{data.name}, {descriptor.name}, solver {solver_name(options.solver)}"
    title += ", refitted" if options.refine and options.solver == "torch" else ""
    console.print(f"{title}: {len(data.pairs)} pairs, ground truth {data.ground_truth}")
    for note in data.notes():
        console.print(note, soft_wrap=True, highlight=False, markup=False)
    report.say_simulated(console, cfg)
    done = evaluate_pairs(
        data,
        descriptor,
        rules,
        settings,
        samples,
        options.icp_distance,
        "cuda" if torch.cuda.is_available() else "cpu",
        lambda batches: track(batches, "registering", console=console, transient=True),
    )
    groups = {"": done.results} | ({" + ICP": done.refined} if done.refined else {})
    figures: dict[str, float] = {}
    for suffix, results in groups.items():
        summaries = {
            number: summarize(pairs, rules, options.draws, cfg.seed)
            for number, pairs in results.items()
        }
        console.print(registration_table(summaries, title + suffix))
        console.print(scene_table(summaries[samples[0]], f"scenes, {shown(samples[0])}{suffix}"))
        figures |= flat(summaries, "test_icp" if suffix else "test")
    report.say_simulated(console, cfg)
    write_pair_table(folder / PAIRS, done.results, done.refined, rules)
    draw_curves(folder / CURVES, done, rules, title)
    draw_pairs(folder, data, done, samples[0], options.pictures)
    extra = {
        "protocol": rules.name,
        "success": str(rules.success),
        "ground_truth": data.ground_truth,
        "pairs": len(data.pairs),
        "notes": data.notes(),
        "descriptor": descriptor.name,
        "solver": solver_name(options.solver),
        "refine": options.refine,
        "matching": rules.matching,
        "sampling": rules.sampling,
    }
    report.write_metrics(folder, cfg, figures, 0, None, extra)
    for name in (run_folder.METRICS, PAIRS, CURVES):
        console.print(f"{folder / name}", soft_wrap=True, highlight=False)
    return figures[f"test/rr@{shown(samples[0])}"]


def solver_name(solver: str) -> str:
    """The solver with the version of what computes it."""
    if solver != "open3d":
        return f"{solver} {torch.__version__}" if solver == "svd" else f"torch {torch.__version__}"
    from pcnn.registration.open3d_tools import open3d_name

    return open3d_name()


def shown(samples: int | None) -> str:
    """A number of samples as a name."""
    return "all" if samples is None else str(samples)


def flat(summaries: dict[int | None, Summary], prefix: str) -> dict[str, float]:
    """Every figure with its interval, by name."""
    figures: dict[str, float] = {}
    for samples, summary in summaries.items():
        at = f"@{shown(samples)}"
        for name in ("rr", "rr_scenes", "rr_pairs", "fmr", "ir", "rre", "rte"):
            figure = getattr(summary, name)
            figures[f"{prefix}/{name}{at}"] = figure.value
            figures[f"{prefix}/{name}_low{at}"] = figure.low
            figures[f"{prefix}/{name}_high{at}"] = figure.high
        figures[f"{prefix}/counted{at}"] = summary.counted
        figures[f"{prefix}/no_estimate{at}"] = summary.no_estimate
        figures[f"{prefix}/unjudged{at}"] = summary.unjudged
    return figures


def draw_curves(path: Path, done: Evaluation, rules: Protocol, title: str) -> None:
    """Draw recall against every error that the pairs have."""
    curves = {}
    first = next(iter(done.results.values()))
    for error, label in AXES.items():
        if all(isnan(getattr(pair, error)) for pair in first):
            continue
        limits = np.linspace(0, MOST[error], 61)
        lines = {
            shown(number): recall_curve(pairs, rules, error, limits).tolist()
            for number, pairs in done.results.items()
        }
        curves[label] = (limits.tolist(), lines)
    own = {label: getattr(rules.success, error) for error, label in AXES.items()}
    if curves:
        recall_picture(curves, own, path, title)


def draw_pairs(
    folder: Path, data: PairDataset, done: Evaluation, samples: int | None, number: int
) -> None:
    """Draw the pairs with the smallest and the largest errors."""
    results, transforms = done.results[samples], done.transforms[samples]
    order = sorted(range(len(results)), key=lambda place: badness(results[place]))
    chosen = {"best": order[:number], "worst": order[::-1][:number]}
    for kind, places in chosen.items():
        for rank, place in enumerate(places, 1):
            pair, result = data.pairs[place], results[place]
            transform = transforms[place]
            overlay_picture(
                data.cloud(pair.scene, pair.source).numpy(),
                data.cloud(pair.scene, pair.target).numpy(),
                None if bool(transform.isnan().any()) else transform.numpy(),
                folder / "pictures" / f"{kind}_{rank}.png",
                f"{pair.scene}, {pair.source} onto {pair.target}",
                f"RRE {result.rre:.2f} deg   RTE {result.rte:.3f} m   "
                f"right matches {100 * result.inlier_ratio:.1f} %",
                data.source_kind == "simulated",
            )


def badness(result: PairResult) -> float:
    """Order of pairs: by RMSE, by RTE where there is none; without an estimate last."""
    error = result.rte if isnan(result.rmse) else result.rmse
    return float("inf") if isnan(error) else error
