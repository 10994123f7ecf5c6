"""Every configuration file composes, and options go together as a table says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from pcnn.config.make import FUNCTIONS
from pcnn.errors import ConfigError
from pcnn.experiment import build, networks, resume
from pcnn.experiment.run_config import ABOUT, RUN, checked, data_module
from pcnn.experiment.stored_options import WORDS
from pcnn.nn.conv import convolutions
from pcnn.ops import ENGINES as ENGINE_OBJECTS
from pcnn.ops import resolve
from pcnn.ops.engine_settings import setting_names
from tests.experiment.sweep import CONF, composed, composed_with_hydra

#: Tasks of every model, of every data set, and engines of every geometry.
MODELS = {
    "sparse_resnet": {"segmentation", "classification"},
    "minkunet": {"segmentation", "registration"},
    "spunet": {"segmentation"},
    "spvcnn": {"segmentation"},
    "resunet": {"segmentation", "registration"},
    "fpfh": {"registration"},
    "resnet18": {"classification"},
}
DATASETS = {
    "kitti": "segmentation",
    "kitti_pairs": "registration",
    "s3dis": "segmentation",
    "s3dis_types": "classification",
    "threedmatch": "registration",
    "folder": "segmentation",
}
ENGINES = {
    "voxel": {"auto", "reference", "torchsparse", "minuet", "spira"},
    "point": {"auto", "reference", "pointcnnpp"},
}
#: Models whose convolutions are on voxels alone.
ON_VOXELS = ("fpfh", "spvcnn")
OWN_DATA = ("dataset.root=x", "dataset.class_names=[a,b]")


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def refused(*overrides: str) -> str | None:
    """The key that a command line is refused for; None where it can be run."""
    try:
        checked(composed(*overrides))
    except ConfigError as error:
        return error.key
    return None


@cache
def part(group: str, option: str) -> DictConfig:
    """A group of a composed configuration; composing takes long, and groups are independent."""
    own = OWN_DATA if option == "folder" else ()
    task = () if group == "task" else ("task=segmentation",)
    cfg: DictConfig = composed(f"{group}={option}", *task, *own)
    return cfg


def combinations() -> Iterator[tuple[str, str, str, str, str]]:
    usual = {
        "segmentation": ("minkunet", "kitti"),
        "registration": ("resunet", "threedmatch"),
        "classification": ("resnet18", "s3dis_types"),
    }
    for task, (model, dataset) in usual.items():
        for geometry in ENGINES:
            yield from ((other, dataset, task, geometry, "auto") for other in MODELS)
            yield from ((model, other, task, geometry, "auto") for other in DATASETS)
            for engine in options("engine") if task == "segmentation" else ():
                yield model, dataset, task, geometry, engine


def test_options_that_go_together() -> None:
    base = composed("task=segmentation", "model=minkunet")
    for chosen in dict.fromkeys(combinations()):
        model, dataset, task, geometry, engine = chosen
        cfg = base.copy()
        OmegaConf.set_struct(cfg, False)
        others = (model, task, geometry, engine)
        for group, option in zip(("model", "task", "geometry", "engine"), others, strict=True):
            cfg[group] = part(group, option)[group]
        for group in ("dataset", "augment"):
            cfg[group] = part("dataset", dataset).get(group)
        expected = None
        if task not in MODELS[model]:
            expected = "model"
        elif task != DATASETS[dataset]:
            expected = "dataset"
        elif geometry == "point" and model in ON_VOXELS:
            expected = "geometry"
        elif engine not in ENGINES[geometry]:
            expected = "engine"
        try:
            checked(cfg)
            found = None
        except ConfigError as error:
            found = error.key
        assert found == expected, chosen
    assert set(options("model")) == set(MODELS)
    assert set(options("dataset")) == set(DATASETS)
    assert set(options("engine")) == set().union(*ENGINES.values())


SCHEDULES = FUNCTIONS["pcnn.tasks.schedules"]
#: With the table above they choose every file of conf/.
COMMANDS = (
    *(("task/loss=" + name,) for name in ("cross_entropy", "lovasz")),
    *(("model=resunet", "dataset=kitti_pairs", f"task/loss={name}") for name in ("circle",)),
    *((f"task.scheduler._target_=pcnn.tasks.schedules.{name}",) for name in SCHEDULES),
    *((f"task/optimizer={name}",) for name in options("task/optimizer")),
    *((f"augment={name}",) for name in options("augment") if not name.startswith("pairs")),
    *((f"tta={name}",) for name in options("tta")),
    *((f"trainer={name}",) for name in options("trainer")),
    *((f"callbacks={name}",) for name in ("plain", "evaluation")),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_composes(words: tuple[str, ...]) -> None:
    assert refused(*words) is None


@pytest.mark.parametrize("name", options("experiment"))
def test_every_experiment_composes_and_says_what_it_is(name: str) -> None:
    assert refused(f"experiment={name}") is None
    text = (CONF / "experiment" / f"{name}.yaml").read_text()
    head = [line for line in text.splitlines()[:10] if line.startswith("#")]
    for word in ("command:", "source:", "expected:"):
        assert any(line.startswith(f"# {word}") for line in head), word
    assert f"python train.py experiment={name}" in text


#: The key that a command line is refused for.
WRONG = {
    "dataset=kitti task=registration model=resunet dataset.on_error=skip": "dataset",
    "dataset=kitti_pairs model=resunet +dataset.on_error=skip": "dataset.on_error",
    "+dataset.tiles=x": "dataset.tiles",
    "+dataset.augment={}": "dataset.augment",
    "model=resunet dataset=kitti_pairs augment=lidar": "dataset.augment",
    "model=resunet dataset=threedmatch tta=rot4": "tta",
    "tta=rot4 tta.flips=[z]": "tta.flips",
    "+seeed=3": "seeed",
    "+model.widht=1": "model.widht",
    "+geometry.color=1 geometry=point": "geometry.color",
    "geometry=point geometry.thin=0": "geometry.thin",
    "trainer.max_steps=-1": "trainer.max_steps",
    "trainer.cuda_graphs=2": "trainer.cuda_graphs",
    "trainer.cuda_graphs=true engine=torchsparse": "trainer.cuda_graphs",
    "trainer.cuda_graphs=true trainer=ddp": "trainer.cuda_graphs",
    "seed=-1": "seed",
    "lr_multipliers={a:0}": "lr_multipliers",
    "dataset=folder": "dataset.root",
    "dataset.train_sequences=all": "dataset.train_sequences",
    "dataset.voxel_size=0": "dataset.voxel_size",
    "task.optimizer.lr=nan": "task.optimizer.lr",
    "task.optimizer._target_=torch.optim.Adamm": "task.optimizer._target_",
    "model.tasks=null": "model.tasks",
    "engine=minuet +engine.epsilon=0.5": "engine",
    "engine=spira engine.deterministic=true": "engine",
    "engine=torchsparse engine.layers=nowhere.yaml": "engine.layers",
    "engine=torchsparse engine.layers={stem.0.conv:{padding:0.5}}": "engine.layers",
    "engine=torchsparse engine.layers=[1]": "engine.layers",
    "model=fpfh dataset=threedmatch task.solver=magic": "task.solver",
}


@pytest.mark.parametrize("words", WRONG)
def test_the_key_of_what_is_wrong_is_named(words: str) -> None:
    assert refused(*words.split()) == WRONG[words]


#: Given to every key; none of it may end in anything but a ConfigError.
VALUES: tuple[Any, ...] = (-1, 0.5, 10**18, math.nan, None, "text", True, [], ["text", None], {})


@pytest.mark.parametrize(
    "words", [(), ("model=resunet", "dataset=threedmatch"), ("dataset=s3dis", "geometry=point")]
)
def test_no_value_of_any_key_ends_in_a_traceback(words: tuple[str, ...]) -> None:
    plain: Any = OmegaConf.to_container(checked(composed(*words)), resolve=True)
    keys = [
        *(key for key in RUN if key != "allow_targets"),
        *(f"{group}.{key}" for group in ABOUT for key in plain[group]),
        *(f"augment.{key}" for key in plain["augment"] or ()),
        *(f"task.optimizer.{key}" for key in plain["task"]["optimizer"]),
        *(f"callbacks.{name}.{key}" for name, one in plain["callbacks"].items() for key in one),
    ]
    for number, key in enumerate(keys):
        cfg = OmegaConf.create(plain)
        # each key with one of them, which differs from command to command: all take minutes
        value = VALUES[(number + len(words)) % len(VALUES)]
        OmegaConf.update(cfg, key, value, merge=False)
        with suppress(ConfigError):
            checked(cfg)


def test_keys_of_a_data_set_reach_its_module_and_its_sets() -> None:
    module: Any = data_module(checked(composed("dataset.crop=7", "dataset.source=real", "seed=5")))
    assert (module.crop, module.seed, module.sets.source) == (7, 5, "real")
    assert module.augment.sector == 160.0
    module = data_module(checked(composed("model=resunet", "dataset=kitti_pairs")))
    assert (module.voxel_size, module.limit["val"]) == (0.3, 400)
    assert module.augment.scale == (0.8, 1.2)
    assert module.sets.simulate["frame_stride"] == 4


def test_every_setting_of_a_paper_is_a_key_of_its_engine() -> None:
    for name in options("engine"):
        node = part("engine", name).engine
        own = {key: value for key, value in node.items() if key not in ABOUT["engine"]}
        assert tuple(own) == setting_names(ENGINE_OBJECTS[name].settings), name
        assert resolve(name, **own) == ENGINE_OBJECTS[name], name  # the file says what is usual


def test_settings_of_single_layers_come_from_a_file_and_stay_with_the_run(tmp_path: Path) -> None:
    file, name = tmp_path / "layers.yaml", "stem.0.conv"
    file.write_text(f"{name}: {{epsilon: 0.5, threshold: 4096}}")
    cfg = checked(composed("engine=torchsparse", "model.width=0.25", f"engine.layers={file}"))
    file.unlink()  # the run's own configuration holds what it said
    layers = convolutions(networks.network(checked(cfg), 4, 19))
    engine = resolve("torchsparse")
    assert layers[name].engine == engine.having(epsilon=0.5, threshold=4096)
    assert {one.engine for other, one in layers.items() if other != name} == {engine}
    cfg.engine.layers = {"stem.0.con": {"epsilon": 0.5}}
    with pytest.raises(ConfigError):
        networks.network(cfg, 4, 19)


@pytest.mark.parametrize("model", [name for name in MODELS if name != "fpfh"])
def test_models_are_built_for_their_tasks(model: str) -> None:
    task = composed(f"model={model}").task.name
    own = {"registration": "kitti_pairs", "classification": "s3dis_types"}.get(task, "s3dis")
    cfg = composed(f"model={model}", f"dataset={own}")
    (cfg.model.backbone if "backbone" in cfg.model else cfg.model).width = 0.25
    net = networks.network(checked(cfg), 4, 5)
    assert net.in_channels == 4


def test_trainers_and_loggers_are_built(tmp_path: Path) -> None:
    for name in options("trainer"):
        cfg = checked(composed(f"trainer={name}"))
        # everything but the accelerator, which this machine may not have
        cfg.trainer.accelerator, cfg.trainer.devices = "cpu", min(2, abs(cfg.trainer.devices))
        made = build.trainer(cfg, tmp_path, [], [])
        assert (made.max_steps, made.default_root_dir) == (250, str(tmp_path)), name
    for choice in [
        "csv",
        "wandb",
        "wandb,csv",
        *(["tensorboard"] * bool(find_spec("tensorboard"))),
    ]:
        cfg = checked(composed(f"logger=[{choice}]", "tags=[a]"))
        loggers = build.loggers(cfg, tmp_path, {"run_folder": tmp_path, "config": {}})
        assert all(isinstance(logger, Logger) for logger in loggers)
        assert all(Path(str(logger.save_dir)).is_relative_to(tmp_path) for logger in loggers)
    assert checked(composed("logger=[]")).logger == {}


@pytest.mark.parametrize(
    ("file", "plugin", "key"),
    [
        ("cluster=slurm", "hydra_submitit_launcher", "hydra.launcher.signal_delay_s"),
        ("hparams_search=optuna", "hydra_optuna_sweeper", "hydra.sweeper.n_trials"),
    ],
)
def test_files_of_plugins_compose(file: str, plugin: str, key: str) -> None:
    if not (find_spec("hydra_plugins") and find_spec(f"hydra_plugins.{plugin}")):
        pytest.skip(f"{plugin} is not installed")
    found = composed_with_hydra("train", (file, "trainer=ddp", "trainer.devices=4"))
    assert OmegaConf.select(found, key) is not None


def test_keys_that_a_resumed_run_keeps_are_there() -> None:
    cfg = checked(composed())
    assert set(resume.KEPT) <= RUN.keys()
    for key in {*WORDS, *resume.LONGER, *resume.FILLED} - RUN.keys():
        parent, _, name = key.rpartition(".")
        assert name in OmegaConf.select(cfg, parent), key
