"""Train, evaluate and record one run."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra.core.hydra_config import HydraConfig
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig, OmegaConf

from pcnn.callbacks import StopOnSignal, StopSignals
from pcnn.callbacks.lightning_internals import close_epoch
from pcnn.checkpoints import RunCheckpoint
from pcnn.config import check_allowed
from pcnn.console import Console
from pcnn.errors import ConfigError
from pcnn.experiment import build, networks, report, run_folder
from pcnn.experiment.process import check_one_folder, rank, started, tell_other_ranks
from pcnn.experiment.resume import AUTO, Run, continuation, has_begun, resume_command
from pcnn.experiment.run_config import allowed, checked, is_network
from pcnn.experiment.run_folder import nearby, write_counts
from pcnn.experiment.stored_options import command_words, is_kept, keys_of, with_stored
from pcnn.experiment.weights import check_fit, fitting, read_config, weights_file
from pcnn.files.bounded import named
from pcnn.files.tensors import is_tensors
from pcnn.loggers import finish
from pcnn.messages import counted

SIMULATED = "simulated"  # tag of a run whose data is
#: Warnings that say nothing here.
QUIET = (
    "does not have many workers",  # small loaders are meant on small machines
    "recommended to use .*sync_dist=True",  # a metric is summed over ranks by itself, exactly
    "smaller than the logging interval",  # the steps of the next epochs count on
    "in eval mode at the start of training",  # layers that are frozen, which the run says
    "Total length of `list` across ranks is zero",  # no validation, which the data module says
    "callbacks used to create the checkpoint need to be",  # an evaluation takes weights alone
    "LeafSpec",  # Lightning's own use of torch
    "AccumulateGrad node's stream",  # Lightning makes DDP on a stream of its own
    "overridden `transfer_batch_to_device` in `LightningModule`",  # which plans on the way
)


def train(cfg: DictConfig) -> float | None:
    """Run `train.py`'s configuration: fit, evaluate the best checkpoint, write metrics.json."""
    made = nearby(Path(HydraConfig.get().runtime.output_dir))
    try:
        run = prepare(cfg, made)
        if run is None:
            return None
        with started(run.folder, trains=True) as stop:
            return execute(run, stop)
    finally:
        run_folder.drop_if_empty(made)  # of a run that did not begin


def evaluate(cfg: DictConfig) -> float | None:
    """Run `eval.py`'s configuration: test, print the table, write metrics.json."""
    overrides = command_words()
    folder = nearby(Path(HydraConfig.get().runtime.output_dir))
    try:
        check_allowed(allowed(cfg), overrides)
        if not is_network(cfg):
            from pcnn.experiment.registration import evaluate_untrained

            with started(folder, trains=False):
                return evaluate_untrained(cfg, folder)
        if OmegaConf.is_missing(cfg, "ckpt_path") or not cfg.ckpt_path:
            raise ConfigError("ckpt_path", "needs a value: ckpt_path=FILE")
        cfg.ckpt_path = str(weights_file(cfg.ckpt_path))  # a name of the catalogue, or a file
        cfg = checked(completed(cfg, keys_of(overrides)))
        with started(folder, trains=False) as stop:
            return execute(Run(cfg, folder), stop)
    finally:
        run_folder.drop_if_empty(folder)  # of an evaluation that did not begin


def completed(cfg: DictConfig, given: Collection[str]) -> DictConfig:
    """The configuration of an evaluation: the network is the checkpoint's, as is its data."""
    saved = read_config(cfg.ckpt_path)
    with named(cfg.ckpt_path, "configuration of a run"):
        own, data = {"tta", "data"}, saved["dataset"]
        if data["name"] != cfg.dataset.name:
            own |= {"dataset", "augment"}
            saved["geometry"].pop("thin", None)  # goes with the data
        elif any(
            f"dataset.{key}" in given and cfg.dataset[key] != data.get(key)
            for key in ("root", "source")
        ):  # of other data than the run's all are tested, real or not, by their own split
            others = "source", "limit_val", *(k for k in data if "test" in k and data[k] == [])
            saved["dataset"] = {key: one for key, one in data.items() if key not in others}
        kept = {key: value for key, value in saved.items() if key not in own}
        return with_stored(cfg, kept, given, cfg.ckpt_path)


def prepare(cfg: DictConfig, folder: Path) -> Run | None:
    """Check everything and settle the run folder; None when the resumed run is finished."""
    console = Console(quiet=rank() != 0)
    overrides = command_words()
    check_allowed(allowed(cfg), overrides)
    check_one_folder()
    OmegaConf.update(cfg, "words", list(filter(is_kept, overrides)), force_add=True)
    if cfg.resume is None:
        cfg = checked(cfg)
        if not is_network(cfg):
            name = f"model={cfg.model.name}"
            raise ConfigError("model", f"{name} has nothing to train: pcnn eval {name}")
        if not cfg.train or cfg.ckpt_path is not None:
            key = "ckpt_path" if cfg.train else "train"
            raise ConfigError(key, "pcnn eval ckpt_path=FILE evaluates weights")
        return Run(cfg, folder)
    auto = cfg.resume == AUTO
    if auto and not has_begun(folder):
        return Run(checked(cfg), folder)
    run = continuation(cfg, overrides, folder if auto else None)
    if run.finished:
        console.say(f"{run.folder} is finished; its figures are in {run_folder.METRICS}.")
        console.say(f"To train it longer:\n  {resume_command(run.folder)} trainer.max_steps=MORE")
        return None
    where = f"continues after step {run.steps}"
    if run.checkpoint is None:
        where = "has no checkpoint yet: training starts from the beginning there"
    console.say(f"{run.folder} {where}")
    return replace(run, cfg=checked(run.cfg))


def execute(run: Run, stop: StopSignals) -> float | None:
    """Build everything, then fit, evaluate and record."""
    console = Console(quiet=rank() != 0)
    cfg, datamodule, said = settled(run.cfg, run.folder)
    task = build.task(cfg)
    if cfg.ckpt_path is not None:
        check_fit(cfg)
    if cfg.train:
        said += build.fine_tuned(task, cfg, begins=run.checkpoint is None)
    if rank() == 0:
        run_folder.record(run.folder, cfg, run.resumed)
        tell_other_ranks(run.folder)
    trainer = trainer_of(cfg, run.folder, datamodule, StopOnSignal(stop))
    report.say_begin(console, cfg, run.folder, task)
    for line in [*said, f"loading: {counted(datamodule.workers, 'worker')}"]:
        console.say(line)
    try:
        return fit_and_evaluate(replace(run, cfg=cfg), trainer, task, datamodule, stop)
    finally:
        finish(trainer.loggers)


def settled(cfg: DictConfig, folder: Path) -> tuple[DictConfig, Any, list[str]]:
    """The configuration with what machine and data decide, the data, and lines that tell of it."""
    quieten()
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    # a device that is not there, or that the engine does not serve, shows before data is made
    cfg, device, said = build.on_this_machine(cfg, folder)
    networks.check_engine(cfg, device)
    datamodule = build.data(cfg)
    return describe_data(cfg, datamodule), datamodule, said


def trainer_of(cfg: DictConfig, folder: Path, datamodule: Any, *more: Callback) -> L.Trainer:
    """The trainer of a settled configuration, with its callbacks, some more, and its loggers."""
    given = {
        "run_folder": folder,
        "config": run_folder.recorded(cfg),
        "source": cfg.data.source,
        **{key: list(cfg.data[key]) for key in ("class_names", "colors") if key in cfg.data},
    }
    callbacks = [*build.beside("callbacks", cfg, folder, given), *more]
    trainer = build.trainer(cfg, folder, callbacks, build.beside("logger", cfg, folder, given))
    datamodule.trainer = trainer  # whose devices share the cores of the machine
    return trainer


def fit_and_evaluate(
    run: Run, trainer: L.Trainer, task: L.LightningModule, datamodule: Any, stop: StopSignals
) -> float | None:
    """Fit when asked to, evaluate, write metrics.json; returns the figure a sweep compares."""
    cfg, console = run.cfg, Console(quiet=rank() != 0)
    metrics: dict[str, float] = {}
    facts: dict[str, Any] = {}
    checkpoint = cfg.ckpt_path
    if cfg.train:
        with fitting(run.checkpoint):
            trainer.fit(task, datamodule, ckpt_path=run.checkpoint, weights_only=True)
        stop.check()
        close_epoch(trainer)
        kept = trainer.checkpoint_callback  # without validation its last one counts
        checkpoint = getattr(kept, "best_model_path", "") or getattr(kept, "last_model_path", "")
        if not checkpoint:
            raise ConfigError("callbacks", "without a checkpoint nothing can be evaluated")
    steps = RunCheckpoint.read(checkpoint).steps
    if cfg.train:
        console.say(f"evaluating {checkpoint}, step {steps} of {trainer.global_step}")
        metrics |= figures_of(trainer, task, datamodule, checkpoint, "val")
    if cfg.test and cfg.task.name == "registration":
        from pcnn.experiment.registration import evaluate_trained

        if trainer.is_global_zero:  # pairs are few, and RANSAC runs in batches: one rank does it
            device = trainer.strategy.root_device
            pairs = datamodule.pairs("test")
            given = run.folder, pairs, checkpoint, device, trainer.loggers
            figures, facts = evaluate_trained(cfg, *given)
            metrics |= figures
    elif cfg.test:
        metrics |= figures_of(trainer, task, datamodule, checkpoint, "test")
    if trainer.is_global_zero:
        facts["test_split"] = "validation" if datamodule.tests_on_validation else "own"
        report.write_metrics(run.folder, cfg, metrics, steps, checkpoint, facts)
        passes: dict[str, torch.Tensor] = getattr(task, "confusion", {})
        write_counts(run.folder, passes, list(cfg.data.get("class_names", [])))
        report.say_table(console, cfg, task)
        report.say_end(console, cfg, run.folder, checkpoint)
        if not metrics and cfg.train:
            console.say("no cloud was validated or tested: no figures", style="bold yellow")
    return metrics.get(cfg.task.get("metric") or "")  # None: nothing was measured


def describe_data(cfg: DictConfig, datamodule: Any) -> DictConfig:
    """The configuration with what the network and the reports need to know about the data."""
    cfg = cfg.copy()
    facts: dict[str, Any] = {
        "source": datamodule.source_kind,
        "in_channels": int(datamodule.in_channels),
        # a task may say how many it wants
        "out_channels": int(cfg.task.get("channels") or len(datamodule.class_names)),
    }
    if hasattr(datamodule, "benchmark"):  # pairs
        facts["voxel_size"] = float(datamodule.voxel_size)
        facts["benchmark"] = datamodule.benchmark
    else:
        facts["channels"] = list(datamodule.channels)  # besides x, y, z
        facts["class_names"] = list(datamodule.class_names)
        facts["colors"] = [list(map(int, color)) for color in datamodule.colors]
        facts["files"] = datamodule.files
    cfg.data = facts
    if isinstance(cfg.dataset.get("classes"), str):
        # a checkpoint stays whole when the class file is changed or gone
        cfg.dataset.classes = datamodule.classes
    if cfg.data.source != "real" and SIMULATED not in cfg.tags:
        cfg.tags = [*cfg.tags, SIMULATED]
    return cfg


def figures_of(
    trainer: L.Trainer, task: L.LightningModule, datamodule: Any, checkpoint: str, split: str
) -> dict[str, float]:
    """Figures of a checkpoint's weights on the `val` or `test` split."""
    run = trainer.test if split == "test" else trainer.validate
    with fitting(checkpoint):
        if is_tensors(Path(checkpoint)):  # weights alone, which Lightning does not read
            weights = RunCheckpoint.read(checkpoint, mmap=False).weights
            task.net.load_state_dict(weights)  # type: ignore[operator, union-attr]
            results = run(task, datamodule, verbose=False)
        else:
            results = run(task, datamodule, ckpt_path=checkpoint, weights_only=True, verbose=False)
    return {name: float(value) for result in results for name, value in result.items()}


def quieten() -> None:
    """Keep Lightning to its warnings, less those that say nothing here."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if rank() != 0:  # every rank finds the same data; one says so
        logging.getLogger("pcnn").setLevel(logging.WARNING)
    for words in QUIET:
        warnings.filterwarnings("ignore", f".*{words}.*")
