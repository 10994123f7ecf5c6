"""Evaluate a checkpoint with the configuration it carries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from pcnn.config import check_allowed
from pcnn.experiment import run_folder
from pcnn.experiment.catalogue import weights_file
from pcnn.experiment.process import nothing_written, started
from pcnn.experiment.run import Run, execute
from pcnn.experiment.run_config import ABOUT, allowed, checked, is_network
from pcnn.experiment.run_folder import nearby
from pcnn.experiment.stored_options import NAMED
from pcnn.experiment.weights import read_config
from pcnn.files.bounded import named

# groups that make the network what it is: taken from the checkpoint as they are
OF_THE_NETWORK = ("model", "task", "geometry", "engine", "augment", "seed")


def evaluate(cfg: DictConfig) -> float | None:
    """Run `eval.py`'s configuration: test, print the table, write metrics.json and label files."""
    overrides = list(HydraConfig.get().overrides.task)
    folder = nearby(Path(HydraConfig.get().runtime.output_dir))
    try:
        check_allowed(allowed(cfg), overrides)
        if not is_network(cfg):
            from pcnn.experiment.registration import evaluate_untrained

            with started(folder, nothing_written):
                return evaluate_untrained(cfg, folder)
        cfg.ckpt_path = str(weights_file(cfg.ckpt_path))  # a name of the catalogue, or a file
        saved = OmegaConf.create(read_config(cfg.ckpt_path))
        with named(cfg.ckpt_path, "configuration of a run"):
            cfg = with_saved(cfg, saved, overrides)
        cfg = checked(cfg)
        with started(folder, nothing_written) as stop:
            return execute(Run(cfg, folder), stop)
    finally:
        run_folder.drop_if_empty(folder)  # of an evaluation that did not begin


def with_saved(cfg: DictConfig, saved: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The composed configuration with the checkpoint's values but where the user gave others."""
    merged = cfg.copy()
    given = [text.lstrip("+~").partition("=")[0] for text in overrides]
    same_data = cfg.dataset.name == saved.dataset.name
    # options precede the user's own; an option that differs from the checkpoint's is the user's
    with open_dict(merged):
        for name in OF_THE_NETWORK:
            # the augmentation goes with the data: it is that of training clouds
            same = name in NAMED and cfg[name].name == saved[name].name
            same |= name == "augment" and same_data
            if name in saved and (same or (name not in given and name != "augment")):
                merged[name] = saved[name]
        for key in ABOUT["model"]:  # what a model serves now, not at the time of the checkpoint
            merged.model[key] = cfg.model[key]
        if "thin" in cfg.geometry and not same_data:
            merged.geometry.thin = value_of(cfg, "geometry.thin")  # goes with the data
        if same_data:
            merged.dataset.update(saved.dataset)
        for key in given:
            # what is in none of these groups is as it was composed, and may be left out by ~key
            if "." in key and key.partition(".")[0] in (*OF_THE_NETWORK, "dataset"):
                OmegaConf.update(merged, key, value_of(cfg, key), merge=False)
        merged.data = {}
    return merged


def value_of(cfg: DictConfig, key: str) -> object:
    """The value a key was composed to, an interpolation kept as it is written."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    assert isinstance(node, DictConfig)
    return OmegaConf.to_container(node, resolve=False).get(name)  # type: ignore[union-attr]
