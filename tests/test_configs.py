"""Every configuration file composes, and options go together as a table says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hydra.errors import HydraException
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from pcnn.experiment import build, networks
from pcnn.experiment.check import checked
from pcnn.experiment.described_keys import ABOUT
from pcnn.experiment.errors import ConfigError
from pcnn.experiment.schema import Config, EvalConfig
from pcnn.experiment.short_errors import explain, options
from pcnn.nn import Conv3d
from pcnn.ops import ENGINES as ENGINE_OBJECTS
from pcnn.ops import resolve
from pcnn.ops.engine_settings import setting_names
from pcnn.runtime.layer_calls import convolutions
from tests.experiment.sweep import COMMANDS, CONF, chosen_files, composed, composed_with_hydra

MODELS = (
    *("sparse_resnet", "sparse_resnet_large", "minkunet", "spunet", "spvcnn", "litept"),
    *("resunet", "resnet18", "fpfh"),
)
DATASETS = ("kitti", "s3dis", "threedmatch", "folder")
TASKS = ("segmentation", "registration", "classification")
GEOMETRIES = ("voxel", "point")
ENGINES = ("auto", "reference", "torchsparse", "minuet", "spira", "pointcnnpp")

# (model, task) that work; each with every data set, geometry and engine below
WORKING_MODELS = {
    ("sparse_resnet", "segmentation"),
    ("sparse_resnet_large", "segmentation"),
    ("minkunet", "segmentation"),
    ("minkunet", "registration"),
    ("spunet", "segmentation"),
    ("spvcnn", "segmentation"),
    ("litept", "segmentation"),
    ("resunet", "segmentation"),
    ("resunet", "registration"),
    ("fpfh", "registration"),
    ("sparse_resnet", "classification"),
    ("sparse_resnet_large", "classification"),
    ("resnet18", "classification"),
}
WORKING_DATASETS = {
    "segmentation": {"kitti", "s3dis", "folder"},
    "registration": {"kitti", "threedmatch"},
    "classification": {"s3dis"},
}
WORKING_ENGINES = {
    "voxel": {"auto", "reference", "torchsparse", "minuet", "spira"},
    "point": {"auto", "reference", "pointcnnpp"},
}

OWN_DATA = ("dataset.root=x", "dataset.class_names=[a,b]")


def refusal(*overrides: str) -> str | None:
    """The message of train.py for a command line that it cannot run; None when it can."""
    try:
        return refusal_of(composed(*overrides))
    except HydraException as error:
        return explain(error, list(overrides), CONF)


def refusal_of(cfg: DictConfig) -> str | None:
    try:
        checked(cfg)
    except ConfigError as error:
        return str(error)
    return None


@cache
def part(group: str, option: str) -> DictConfig:
    """A group of a composed configuration; composing takes long, and groups are independent."""
    own = OWN_DATA if option == "folder" else ()
    task = () if group == "task" else ("task=segmentation",)
    cfg: DictConfig = composed(f"{group}={option}", *task, *own)[group]
    return cfg


@cache
def base() -> DictConfig:
    return composed("task=segmentation", "model=minkunet")


def combinations() -> Iterator[tuple[str, str, str, str, str]]:
    """(model, dataset, task, geometry, engine): each two that depend on one another."""
    of_task = {
        "segmentation": ("minkunet", "kitti"),
        "registration": ("resunet", "threedmatch"),
        "classification": ("resnet18", "s3dis"),
    }
    for task, (model, dataset) in of_task.items():
        for geometry in GEOMETRIES:
            for other in MODELS:
                yield other, dataset, task, geometry, "auto"
            for other in DATASETS:
                yield model, other, task, geometry, "auto"
            for engine in ENGINES if task == "segmentation" else ():
                yield model, dataset, task, geometry, engine


def test_options_that_go_together() -> None:
    for chosen in dict.fromkeys(combinations()):
        model, dataset, task, geometry, engine = chosen
        works = (
            (model, task) in WORKING_MODELS
            and dataset in WORKING_DATASETS[task]
            and engine in WORKING_ENGINES[geometry]
            # it is no network; its points are the sites of voxels
            and (model, geometry) not in {("fpfh", "point"), ("spvcnn", "point")}
        )
        cfg = base().copy()
        groups = ("model", "dataset", "task", "geometry", "engine")
        for group, option in zip(groups, chosen, strict=True):
            cfg[group] = part(group, option)
        said = refusal_of(cfg)
        assert (said is None) == works, (chosen, said)
        if said is not None:
            assert len(said.splitlines()) <= 3, chosen
            assert any(word in said for word in ("serve", "possible")), chosen


@pytest.mark.parametrize("engine", sorted(WORKING_ENGINES["voxel"]))
def test_deterministic_engines(engine: str) -> None:
    overrides = f"engine={engine}", "engine.deterministic=true", "model.width=0.25"
    said = refusal(*overrides)
    if engine == "spira":
        assert "'spira' adds by atomics" in str(said)
        return
    assert said is None
    net = networks.network(checked(composed(*overrides)), 4, 19)
    (used,) = {layer.engine for layer in net.modules() if isinstance(layer, Conv3d)}
    assert used == resolve(engine, deterministic=True)
    assert used.deterministic_on(torch.device("cuda"))


def test_an_engine_of_an_earlier_checkpoint_is_not_asked_to_be_deterministic() -> None:
    cfg = checked(composed("model.width=0.25"))
    cfg = OmegaConf.create({**cfg, "engine": {"name": "auto"}})
    net = networks.network(cfg, 4, 19)
    assert {m.engine.name for m in net.modules() if isinstance(m, Conv3d)} == {"auto"}
    assert OmegaConf.merge(OmegaConf.structured(Config), cfg).engine == {"name": "auto"}


def test_every_setting_of_a_paper_is_a_key_of_its_engine() -> None:
    for name, engine in ENGINE_OBJECTS.items():
        if name in ENGINES:
            own = {
                key: value
                for key, value in part("engine", name).items()
                if key not in ABOUT["engine"]
            }
            assert tuple(own) == setting_names(engine.settings), name
            assert resolve(name, **own) == engine, name  # the file says what is usual


def test_settings_of_an_engine_reach_its_layers() -> None:
    changed = "engine=minuet", "engine.padding=0.5", "engine.gather_tile=16", "model.width=0.25"
    net = networks.network(checked(composed(*changed)), 4, 19)
    (used,) = {layer.engine for layer in net.modules() if isinstance(layer, Conv3d)}
    assert used == resolve("minuet", padding=0.5, gather_tile=16)


@pytest.mark.parametrize(
    ("engine", "setting", "said"),
    [
        ("minuet", "+engine.epsilon=0.5", "no setting epsilon; it has padding, threshold, gather"),
        ("auto", "+engine.t=2", "engine 'auto' has no setting t; it has blocks"),
        ("torchsparse", "engine.epsilon=2", "epsilon must be a number from 0 to 1, got 2"),
        ("spira", "engine.key_bits=48", "key_bits must be auto, 32, 64, got 48"),
    ],
)
def test_settings_of_other_engines_are_refused(engine: str, setting: str, said: str) -> None:
    assert said in str(refusal(f"engine={engine}", setting))


def test_settings_of_single_layers_come_from_a_file_and_stay_with_the_run(tmp_path: Path) -> None:
    file, name = tmp_path / "layers.yaml", "stem.0.conv"
    file.write_text(f"{name}: {{epsilon: 0.5, threshold: 4096}}")
    chosen = "engine=torchsparse", "model.width=0.25", f"engine.layers={file}"
    cfg = checked(composed(*chosen))
    assert cfg.engine.layers == {name: {"epsilon": 0.5, "threshold": 4096}}
    file.unlink()  # the run's own configuration holds what it said
    layers = convolutions(networks.network(checked(cfg), 4, 19))
    engine = resolve("torchsparse")
    assert layers[name].engine == engine.having(epsilon=0.5, threshold=4096)
    assert {one.engine for other, one in layers.items() if other != name} == {engine}


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ("nowhere.yaml", "there is no such file"),
        ("{stem.0.conv:{padding:0.5}}", "no setting padding; it has epsilon"),
        ("{stem.0.conv:{epsilon:2}}", "epsilon must be a number from 0 to 1"),
        ("{stem.0.conv:2}", "engine.layers"),
        ("[1]", "engine.layers"),
    ],
)
def test_what_single_layers_cannot_have_is_refused(layers: str, said: str) -> None:
    assert said in str(refusal("engine=torchsparse", f"engine.layers={layers}"))


def test_layers_that_a_network_does_not_have_are_named() -> None:
    cfg = checked(composed("engine=spira", "model.width=0.25", "engine.layers={stem.0.con:{t:2}}"))
    with pytest.raises(
        ConfigError, match=r"no convolution stem\.0\.con\. Did you mean stem\.0\.conv"
    ):
        networks.network(cfg, 4, 19)


@pytest.mark.parametrize("value", ["maybe", "3.5"])
def test_deterministic_is_true_or_false(value: str) -> None:
    assert "engine.deterministic" in str(refusal(f"engine.deterministic={value}"))


def test_the_default_task_goes_by_the_model() -> None:
    for model in MODELS:
        task = "registration" if model in ("fpfh", "resunet") else "segmentation"
        task = "classification" if model == "resnet18" else task
        assert composed(f"model={model}").task.name == task, model
    said = str(refusal("model=resnet18"))
    assert "dataset=kitti does not serve task=classification" in said


def test_keys_that_a_task_has_no_use_for_are_refused() -> None:
    options = ("model=resunet", "dataset=threedmatch")
    assert "task=registration has no use for tta" in str(refusal(*options, "tta=rot4"))
    assert refusal("tta=rot4", "tta.fragments=true") is None
    assert "tta.scale does not exist" in str(refusal("tta=rot4", "+tta.scale=[1.0]"))
    assert "tta.flips=[z]" in str(refusal("tta=rot4", "tta.flips=[z]"))


def test_steps_that_no_graph_can_hold_are_refused() -> None:
    graph = "trainer.graph=true"
    assert refusal(graph) is None
    for reason, *overrides in (
        ("engine=torchsparse", "engine=torchsparse"),
        ("trainer.sync_batchnorm=true", "trainer=ddp"),
        (
            "model.overlap_head=true",
            "model=resunet",
            "dataset=threedmatch",
            "model.overlap_head=true",
        ),
    ):
        assert reason in str(refusal(graph, *overrides)), overrides
    assert refusal(graph, "trainer=ddp", "trainer.sync_batchnorm=false") is None
    assert refusal(graph, "model=resunet", "dataset=threedmatch") is None
    assert refusal(graph, "model=resnet18", "dataset=s3dis", "geometry=point") is None
    assert "trainer.graph=2" in str(refusal("trainer.graph=2"))


# with those of the sweep, every file of the groups; loggers and experiments have tests of their own
REST = (
    ("augment=lidar_sensors", "dataset=kitti"),
    ("augment=rooms_pieces", "dataset=s3dis"),
    ("callbacks=plain", "engine=minuet", "trainer=cpu", "tta=identity"),
    ("callbacks=evaluation", "engine=spira", "trainer=gpu"),
    ("engine=torchsparse", "trainer=ddp", "debug=profiler"),
    ("engine=reference", "trainer=ddp_sim", "debug=fast"),
    ("engine=pointcnnpp", "geometry=point", "hparams_search=learning_rate"),
)


# files that need a plugin of Hydra, the extra that brings it, and what they choose
PLUGINS = {
    "cluster/slurm": ("cluster", "hydra_submitit_launcher", "hydra.launcher.signal_delay_s"),
    "hparams_search/optuna": ("sweep", "hydra_optuna_sweeper", "hydra.sweeper.n_trials"),
}


@pytest.mark.parametrize("file", PLUGINS)
def test_files_of_plugins_compose_or_name_the_extra(file: str) -> None:
    extra, plugin, key = PLUGINS[file]
    option = file.replace("/", "=")
    if find_spec("hydra_plugins") and find_spec(f"hydra_plugins.{plugin}"):
        found = composed_with_hydra("train", (option, "trainer=ddp", "trainer.devices=4"))
        assert OmegaConf.select(found, key) is not None
        assert str(found.hydra.mode) == "RunMode.MULTIRUN"
        if extra == "cluster":
            assert (found.hydra.launcher.tasks_per_node, found.resume) == (4, "auto")
    else:
        assert f"pip install 'pcnn3d[{extra}]'" in str(refusal(option))


def test_the_sweep_of_wandb_sets_keys_that_exist_for_a_figure_that_is_logged() -> None:
    asked = OmegaConf.load(CONF / "wandb_sweep.yaml")
    found = composed(
        *(f"{key}={node.value}" for key, node in asked.parameters.items() if "value" in node)
    )
    keys = [str(key) for key, node in asked.parameters.items() if "value" not in node]
    assert all(OmegaConf.select(found, key) is not None for key in keys)
    assert asked.metric.name == found.task.metric
    assert OmegaConf.to_container(asked)["command"][-1] == "${args_no_hyphens}"


def test_every_file_composes() -> None:
    chosen = set()
    for overrides in (*COMMANDS.values(), *REST):
        assert refusal(*overrides) is None, overrides
        chosen |= chosen_files(*overrides)
    files = {path.relative_to(CONF).with_suffix("").as_posix() for path in CONF.rglob("*/*.yaml")}
    left = {
        file
        for file in files - chosen - PLUGINS.keys()
        if not file.startswith(("hydra/", "logger/"))
    }
    assert {file.partition("/")[0] for file in left} == {"experiment"}, left


def test_options_that_need_others_name_them() -> None:
    assert "dataset=threedmatch serves: registration" in str(refusal("dataset=threedmatch"))
    said = str(refusal("engine=pointcnnpp"))
    assert "does not serve voxels" in said
    assert "geometry=point" in said


def test_eval_composes() -> None:
    cfg = checked(composed("ckpt_path=x.ckpt", name="eval"), EvalConfig)
    assert cfg.test
    assert not cfg.train
    assert not cfg.logger


@pytest.mark.parametrize(
    ("model", "task", "name"),
    [
        ("minkunet", "segmentation", "MinkUNet"),
        ("spunet", "segmentation", "MinkUNet"),
        ("spvcnn", "segmentation", "SPVCNN"),
        ("litept", "segmentation", "LitePT"),
        ("resunet", "segmentation", "ResUNet"),
        ("resnet18", "classification", "ResNet"),
        ("sparse_resnet", "segmentation", "SparseResNetSegmentation"),
        ("sparse_resnet_large", "classification", "SparseResNetClassification"),
    ],
)
def test_models_are_built_with_the_head_of_their_task(model: str, task: str, name: str) -> None:
    cfg = composed(f"model={model}", f"task={task}", "dataset=s3dis")
    (cfg.model.backbone if "backbone" in cfg.model else cfg.model).width = 0.25
    net = networks.network(checked(cfg), 4, 5)
    assert (type(net).__name__, net.in_channels) == (name, 4)


def test_trainers_are_built(tmp_path: Path) -> None:
    for trainer in options(CONF, "trainer"):
        cfg = checked(composed(f"trainer={trainer}"))
        # everything but the accelerator, which this machine may not have
        cfg.trainer.accelerator, cfg.trainer.devices = "cpu", min(2, abs(cfg.trainer.devices))
        made = build.trainer(cfg, tmp_path, [], [])
        assert (made.max_steps, made.default_root_dir) == (250, str(tmp_path)), trainer


@pytest.mark.parametrize("choice", [*options(CONF, "logger"), "wandb,csv"])
def test_loggers_are_built(choice: str, tmp_path: Path) -> None:
    if "tensorboard" in choice or choice == "many":
        pytest.importorskip("tensorboard")
    cfg = checked(composed(f"logger=[{choice}]", "tags=[a]"))
    made = build.loggers(cfg, tmp_path, {"run_folder": tmp_path, "config": {}})
    assert made
    assert all(isinstance(logger, Logger) for logger in made)
    assert all(Path(str(logger.save_dir)).is_relative_to(tmp_path) for logger in made)


def test_no_logger() -> None:
    assert checked(composed("logger=[]")).logger == {}


def test_experiments_say_command_source_and_expectation() -> None:
    for name in options(CONF, "experiment"):
        text = (CONF / "experiment" / f"{name}.yaml").read_text()
        head = [line for line in text.splitlines()[:10] if line.startswith("#")]
        for word in ("command:", "source:", "expected:"):
            assert any(line.startswith(f"# {word}") for line in head), (name, word)
        assert f"python train.py experiment={name}" in text, name


def test_published_recipe() -> None:
    cfg = checked(composed("experiment=semantic_kitti_minkunet"))
    assert (cfg.model.width, cfg.dataset.voxel_size, cfg.dataset.crop) == (1.0, 0.05, None)
    assert (cfg.task.optimizer.lr, cfg.task.optimizer.nesterov) == (0.24, True)
    assert cfg.trainer.max_epochs == 15
    assert (cfg.global_batch_size, cfg.dataset.batch_size, cfg.trainer.devices) == (16, 2, "auto")
    assert cfg.dataset.source == "real"


def test_published_recipe_with_mixes() -> None:
    cfg = checked(composed("experiment=semantic_kitti_minkunet_mix"))
    assert (cfg.global_batch_size, cfg.dataset.batch_size, cfg.trainer.devices) == (16, 2, "auto")
    assert (cfg.task.optimizer.lr, cfg.task.optimizer.weight_decay) == (0.008, 0.01)
    assert (cfg.trainer.max_epochs, cfg.trainer.gradient_clip_val) == (36, 10.0)
    assert [round(36 * share) for share in cfg.task.scheduler.milestones] == [24, 32]
    laser, polar = cfg.augment.mix.mixes
    assert (laser.areas, laser.pitch) == ([3, 4, 5, 6], [-25.0, 3.0])
    assert (polar.classes, polar.swap, polar.paste) == (list(range(8)), 0.5, 1.0)
    assert (cfg.augment.scale, cfg.augment.flip, cfg.augment.jitter) == ([0.95, 1.05], False, 0.0)


def test_published_recipe_of_rooms() -> None:
    cfg = checked(composed("experiment=s3dis_minkunet"))
    assert (cfg.global_batch_size, cfg.dataset.batch_size, cfg.trainer.devices) == (12, 3, "auto")
    assert cfg.trainer.max_steps * 12 == 204 * 3000  # rooms of five areas, passes
    assert (cfg.dataset.voxel_size, cfg.dataset.point_max) == (0.05, 100000)
    assert (cfg.augment.mix3d, cfg.augment.elastic.share) == (0.8, 0.95)
    assert cfg.augment.elastic.strengths == [[0.2, 0.4], [0.8, 1.6]]
    assert cfg.task.optimizer.lr == 0.1


def test_quick_recipes_are_simulated_and_end() -> None:
    for name in ("streets_minkunet", "rooms_minkunet", "rooms_resnet18"):
        cfg = checked(composed(f"experiment={name}_quick", "geometry=point"))
        assert cfg.dataset.source == "simulated", name
        assert cfg.trainer.max_time == "00:00:05:00", name
        assert cfg.trainer.max_steps % cfg.trainer.val_check_interval == 0, name


def test_quick_configuration_is_the_default() -> None:
    cfg = checked(composed())
    assert (cfg.model.name, cfg.model.width) == ("minkunet", 0.5)
    assert (cfg.dataset.name, cfg.dataset.voxel_size, cfg.dataset.crop) == ("kitti", 0.1, 25.0)
    assert (cfg.dataset.simulate.train_scans, cfg.dataset.simulate.val_scans) == (40, 8)
    assert cfg.trainer.max_steps == 250
    assert list(cfg.logger) == ["wandb", "csv"]


def test_nothing_but_the_accelerator_depends_on_the_device() -> None:
    auto = checked(composed("trainer=auto"))
    for name in ("cpu", "gpu"):
        other = checked(composed(f"trainer={name}"))
        assert other.trainer.accelerator == name
        other.trainer.accelerator = auto.trainer.accelerator
        assert other == auto


def test_registration_refuses_what_its_settings_do_not_hold() -> None:
    options = ("model=fpfh", "dataset=threedmatch")
    said = refusal(*options, "task.solver=magic")
    assert "ransac, cliques, open3d, svd" in str(said)
    assert "RegistrationOptions" not in str(refusal(*options, "task.sampling=best"))
    assert "random_points, random_matches, top_k" in str(refusal(*options, "task.sampling=best"))
    assert refusal(*options, "task.matching=mutual", "task.samples=[0]") is None


def test_keys_of_another_task_are_no_mistake() -> None:
    assert refusal("model=fpfh", "dataset=kitti", "dataset.crop=10.0") is None
    assert "dataset.crops does not exist" in str(refusal("dataset=kitti", "dataset.crops=1"))
