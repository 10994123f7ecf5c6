"""Every configuration file composes, and options go together as a table says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from pcnn.config.make import FUNCTIONS
from pcnn.errors import ConfigError
from pcnn.experiment import resume
from pcnn.experiment.run_config import ABOUT, RUN, checked
from pcnn.experiment.stored_options import TEXTS
from pcnn.ops import ENGINES as ENGINE_OBJECTS
from pcnn.ops import resolve
from pcnn.ops.engine_settings import setting_names
from tests.experiment.sweep import CONF, composed

#: Tasks of every model, of every data set, and engines of every geometry.
MODELS = {
    "sparse_resnet": {"segmentation"},
    "minkunet": {"segmentation", "registration"},
    "spvcnn": {"segmentation"},
    "resunet": {"segmentation", "registration"},
    "fpfh": {"registration"},
}
DATASETS = {
    "kitti": "segmentation",
    "kitti_pairs": "registration",
    "s3dis": "segmentation",
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
    *(("model=resunet", "dataset=kitti_pairs", f"task/loss={name}") for name in ("info_nce",)),
    *((f"task.scheduler._target_=pcnn.tasks.schedules.{name}",) for name in SCHEDULES),
    *((f"task/optimizer={name}",) for name in options("task/optimizer")),
    *((f"augment={name}",) for name in options("augment") if not name.startswith("pairs")),
    *((f"tta={name}",) for name in options("tta")),
    *((f"trainer={name}",) for name in options("trainer")),
    *((f"callbacks={name}",) for name in ("plain", "evaluation")),
    *((f"experiment={name}",) for name in options("experiment") if name != "seg_aerial"),
    ("experiment=seg_aerial", *OWN_DATA),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_composes(words: tuple[str, ...]) -> None:
    assert refused(*words) is None


#: The key that a command line is refused for.
WRONG = {
    "dataset=kitti task=registration model=resunet dataset.on_error=skip": "dataset",
    "dataset=kitti_pairs model=resunet +dataset.crop=3": "dataset.crop",
    "model=resunet dataset=kitti_pairs augment=lidar": "dataset.augment",
    "model=resunet dataset=threedmatch tta=rot4": "tta",
    "+seeed=3": "seeed",
    "+geometry.color=1 geometry=point": "geometry.color",
    "trainer.max_steps=-1": "trainer.max_steps",
    "trainer.cuda_graphs=true engine=torchsparse": "trainer.cuda_graphs",
    "trainer.cuda_graphs=true trainer=ddp": "trainer.cuda_graphs",
    "dataset=folder": "dataset.root",
    "dataset.train_sequences=all": "dataset.train_sequences",
    "task.optimizer.lr=nan": "task.optimizer.lr",
    "task.optimizer._target_=torch.optim.Adamm": "task.optimizer._target_",
    "task/loss=info_nce": "task.loss",
    "model=resunet dataset=threedmatch task/loss=lovasz": "task.loss",
    "model.tasks=null": "model.tasks",
    "engine=minuet +engine.epsilon=0.5": "engine",
    "engine=spira engine.deterministic=true": "engine",
    "engine=torchsparse engine.layers={stem.0.conv:{padding:0.5}}": "engine.layers",
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


def test_every_setting_of_a_paper_is_a_key_of_its_engine() -> None:
    for name in options("engine"):
        node = part("engine", name).engine
        own = {key: value for key, value in node.items() if key not in ABOUT["engine"]}
        assert tuple(own) == setting_names(ENGINE_OBJECTS[name].settings), name
        assert resolve(name, **own) == ENGINE_OBJECTS[name], name  # the file says what is usual


def test_keys_that_a_resumed_run_keeps_are_there() -> None:
    cfg = checked(composed())
    for key in {*TEXTS, *resume.LONGER} - RUN.keys():
        parent, _, name = key.rpartition(".")
        assert name in OmegaConf.select(cfg, parent), key
